"""Files of SST DUMPI as its library writes them, binary and as text."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailback.traffic.readers.dumpi_calls import END, SIGNATURES

Script = Sequence[tuple[int, int, str, dict[str, Any]]]
"""Calls of a rank: nanoseconds of entry and exit, name, arguments by name."""

TYPE_BYTES = [0, 0, 1, 1, 1, 1, 4, 2, 2, 4, 4, 8, 8, 4, 8]
INT = 9
"""Number of MPI_INT."""
WORLD = 2
"""Number of MPI_COMM_WORLD."""

_MAGIC = b"\xff\xaa\xddDUMPI"
_NUMBERS = {one.name: (number, one) for number, one in SIGNATURES.items()}


def binary(script: Script, version: tuple[int, int, int] = (1, 0, 0)) -> bytes:
    """A binary file with these calls between MPI_Init and MPI_Finalize."""
    stream = struct.pack(">II", 0, 1_000)
    end = 0
    for enter, leave, name, given in _whole(script):
        end = leave
        if name == "MPI_Init":
            number, arguments = 124, struct.pack(">ii", 1, 5) + b"./mpi"
        else:
            number, signature = _NUMBERS[name]
            arguments = b"".join(
                _encoded(code, given.get(one))
                for code, one in zip(signature.codes, signature.arguments, strict=True)
                if code not in "xXy" or given["commrank"] == given["root"]
            )
        stream += struct.pack(">HBH", number, 64 | 8 | 4 | 3, 0)
        stream += struct.pack(">HIHI", 0, enter, 0, leave) * 2 + arguments
    assert end < 2**32
    stream += struct.pack(">H", END)
    sizes = struct.pack(f">{len(TYPE_BYTES) + 1}i", len(TYPE_BYTES), *TYPE_BYTES)
    body = len(_MAGIC)
    header = body + len(stream)
    whole = _MAGIC + stream + bytes(version) + sizes
    parts = (header + 3, 0, 0, header, body, header, header)
    return whole + _MAGIC + struct.pack(">7Q", *parts)


def text(script: Script) -> str:
    """What dumpi2ascii prints of these calls."""
    out = ["version=1.0.0", "starttime=Thu Feb  3 16:05:56 2011", "hostname=h", "meshdim=0"]
    for enter, leave, name, given in _whole(script):
        times = [f"1000.{now:09d}, cputime 0.{now:09d} seconds in thread 0."
                 for now in (enter, leave)]  # fmt: skip
        out.append(f"{name} entering at walltime {times[0]}")
        for key in _NUMBERS[name][1].arguments if name in _NUMBERS else ():
            value = given.get(key, "<IGNORED>")
            shown = f"[{', '.join(map(str, value))}]" if isinstance(value, list) else value
            out.append(f"int {key}={shown}")
        out.append(f"{name} returning at walltime {times[1]}")
    out += ["Total keyvals: 0", "MPI_Send called 0 times and ignored 0 times"]
    out += [f"Datatype {n} (MPI_X) has size {size}" for n, size in enumerate(TYPE_BYTES)]
    return "\n".join(out) + "\n"


def write(folder: Path, *scripts: Script) -> Path:
    """Binary files of all ranks and the file beside them; returns the folder."""
    for rank, script in enumerate(scripts):
        (folder / f"run-{rank:04d}.bin").write_bytes(binary(script))
    meta = f"hostname=h\nnumprocs={len(scripts)}\nusername=u\nstartime=1\nfileprefix=run\n"
    (folder / "run.meta").write_text(meta)
    return folder


def _whole(script: Script) -> list[tuple[int, int, str, dict[str, Any]]]:
    last = script[-1][1] if script else 10
    return [(0, 10, "MPI_Init", {}), *script, (last, last + 5, "MPI_Finalize", {})]


def _encoded(code: str, value: Any) -> bytes:
    if code in "bhi":
        return struct.pack(">" + code, value)
    if code in "xy":
        return struct.pack(">i" if code == "x" else ">h", value)
    if code in "IX":
        return struct.pack(f">{len(value) + 1}i", len(value), *value)
    statuses = value or []
    packed = [struct.pack(">iibbi", 0, source, 0, 0, tag) for source, tag in statuses]
    return struct.pack(">i", len(statuses)) + b"".join(packed)
