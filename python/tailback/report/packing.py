"""Arrays packed small for the browser: JSON for names, one deflated block for numbers.

An array is stored byte plane by byte plane (all lowest bytes, then the next …): the high bytes of
counts are mostly zero and vanish when deflated. 18,432 links in six selections of two runs take
about 0.5 MB.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_SHARE = 65535
_KINDS = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "i4": np.int32, "f4": np.float32}


class Packer:
    """Collects arrays into one block of bytes and hands out references to them."""

    def __init__(self) -> None:
        self._planes: list[bytes] = []
        self._size = 0

    def add(self, values: NDArray[Any], kind: str) -> dict[str, int | str]:
        """Store ``values`` as ``kind`` (u1, u2, u4, i4 or f4, little-endian); returns where."""
        flat = np.ascontiguousarray(values).ravel().astype(np.dtype(_KINDS[kind]).newbyteorder("<"))
        planes = flat.view(np.uint8).reshape(len(flat), flat.itemsize).T.tobytes()
        reference: dict[str, int | str] = {"o": self._size, "n": len(flat), "t": kind}
        self._planes.append(planes)
        self._size += len(planes)
        return reference

    def count(self, values: NDArray[Any]) -> dict[str, int | str]:
        """Store counts as whole numbers, or as floats where they do not fit 32 bits."""
        if values.max(initial=0) >= 2**32:
            return self.add(values, "f4")
        return self.add(np.round(values), "u4")

    def json(self, data: object) -> dict[str, int | str]:
        """Store plain values as JSON, whose repeated words deflate well; returns where.

        Their names are as :func:`in_order` has them, and can be no markup: they are in no page.
        """
        return self.add(np.frombuffer(safe_json(data).encode("utf-8"), np.uint8), "u1")

    def base64(self) -> str:
        """Everything stored, deflated (zlib), as base64."""
        # Level 6 takes twice as long for a page 1 % smaller, level 9 several times as long.
        return base64.b64encode(zlib.compress(b"".join(self._planes), 5)).decode("ascii")


_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def in_order(text: str) -> str:
    """Text in which the marks that turn the direction of writing are visible, as on a terminal.

    With one of them a name from a file could show as another one, or reorder the text next to it.
    """
    return _TURNS.sub(lambda mark: f"\\x{ord(mark.group()):02x}", text)


def safe_json(data: object) -> str:
    """JSON that may stand inside a ``<script>`` element: no markup can begin or end in it.

    Its names are as :func:`in_order` has them.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = _TURNS.sub(lambda mark: json.dumps(in_order(mark.group()))[1:-1], text)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def shares(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Shares as ten-thousandths; NO_SHARE where there is no data."""
    scaled = np.minimum(np.round(np.nan_to_num(values, nan=0.0) * 10000), NO_SHARE - 1)
    return np.where(np.isnan(values), NO_SHARE, scaled).astype(np.int64)
