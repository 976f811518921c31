"""Bytes to each partner of collectives, from the files of ranks to strings of an OTF2 archive.

OTF2 records of collectives have totals only. Where a rank sends different sizes to the partners of
an MPI_Alltoallv or MPI_Alltoallw, the record of its end has the attribute :data:`ATTRIBUTE`, a
string: the bytes to each rank of the communicator in its order, separated by spaces, a run of equal
numbers as ``TIMES*BYTES``. Equal vectors of all ranks are one string. Records without the attribute
are of equal sizes; the definition of the attribute says that this is so.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

ATTRIBUTE = "tailback::bytes_to_each_rank"
DESCRIPTION = (
    "bytes to each rank of the communicator, in its order; TIMES*BYTES for a run of equal numbers; "
    "absent where all are equal, 'unknown' where they are lost"
)
UNKNOWN = "unknown"
"""Text of a vector that is missing."""

MOST_BYTES = 1 << 30
"""Limit for the strings of an archive: every tool that opens it reads them all."""

_HEAD = struct.Struct("=II")


class SizeTexts:
    """The strings of an archive's vectors, each once.

    Args:
        convert: The loaded c/convert.c.
        most_bytes: Limit for all of them.
    """

    def __init__(self, convert: Any, most_bytes: int = MOST_BYTES) -> None:
        self._text = convert.tb_sizes_text
        self._text.restype = ctypes.c_uint64
        self._text.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p)
        self._left = most_bytes
        self.numbers: dict[bytes, int] = {UNKNOWN.encode(): 0}
        self.lost = 0

    def read(self, path: Path) -> list[int]:
        """The string of each vector in a rank's file, in the order of the file.

        A vector that was cut off with its rank ends the list; those beyond the limit are unknown.

        Args:
            path: ``rank-R.sizes``, which need not exist.
        """
        out: list[int] = []
        if not path.is_file():
            return out
        data = path.read_bytes()
        at = 0
        while at + _HEAD.size <= len(data):
            n, width = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            if width not in (4, 8) or at + n * width > len(data):
                break
            room = ctypes.create_string_buffer(21 * n + 1)
            length = self._text(data[at : at + n * width], n, width, room)
            at += n * width
            out.append(self._number(room.raw[:length]))
        return out

    def _number(self, text: bytes) -> int:
        number = self.numbers.get(text)
        if number is None:
            if len(text) > self._left:
                self.lost += 1
                return 0
            self._left -= len(text)
            number = self.numbers[text] = len(self.numbers)
        return number
