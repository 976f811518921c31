"""Files of SST DUMPI as its library writes them, binary and as text."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tailback.traffic.readers.dumpi.compile import read_files

Script = Sequence[tuple[int, int, str, dict[str, Any]]]
"""Calls of a rank: nanoseconds of entry and exit, name, arguments by name and ``thread``."""

TYPE_BYTES = [0, 0, 1, 1, 1, 1, 4, 2, 2, 4, 4, 8, 8, 4, 8]
INT = 9
"""Number of MPI_INT."""
WORLD = 2
"""Number of MPI_COMM_WORLD."""

_MAGIC = b"\xff\xaa\xddDUMPI"
_END = 293
_TABLE = """
0 Send ihiih count datatype dest tag comm
1 Recv ihiihs count datatype source tag comm status
4 Ssend ihiih count datatype dest tag comm
8 Isend ihiihi count datatype dest tag comm request
12 Irecv ihiihi count datatype source tag comm request
13 Wait is request status
14 Test iis request flag status
16 Waitany iIis count requests index status
18 Waitall iIs count requests statuses
19 Testall iIis count requests flag statuses
20 Waitsome iIiIs count requests outcount indices statuses
24 Cancel i request
26 Send_init ihiihi count datatype dest tag comm request
30 Recv_init ihiihi count datatype source tag comm request
31 Start i request
32 Startall iI count requests
33 Sendrecv ihiiihiihs sendcount sendtype dest sendtag recvcount recvtype source recvtag comm status
34 Sendrecv_replace ihiiiihs count datatype dest sendtag source recvtag comm status
52 Barrier h comm
53 Bcast ihih count datatype root comm
54 Gather iihihxy commrank sendcount sendtype root comm recvcount recvtype
55 Gatherv iiihihXXh commrank commsize sendcount sendtype root comm recvcounts displs recvtype
56 Scatter iihihxy commrank recvcount recvtype root comm sendcount sendtype
58 Allgather ihihh sendcount sendtype recvcount recvtype comm
59 Allgatherv iihIIhh commsize sendcount sendtype recvcounts displs recvtype comm
60 Alltoall ihihh sendcount sendtype recvcount recvtype comm
61 Alltoallv iIIhIIhh commsize sendcounts senddispls sendtype recvcounts recvdispls recvtype comm
62 Reduce ihbih count datatype op root comm
65 Allreduce ihbh count datatype op comm
66 Reduce_scatter iIhbh commsize recvcounts datatype op comm
72 Comm_group hh comm group
76 Group_incl hiIh group count ranks newgroup
77 Group_excl hiIh group count ranks newgroup
81 Comm_size hi comm size
84 Comm_dup hh oldcomm newcomm
85 Comm_create hhh oldcomm group newcomm
86 Comm_split hiih oldcomm color key newcomm
99 Cart_create hiIIih oldcomm ndim dims periods reorder newcomm
111 Cart_sub ihIh ndim oldcomm remain_dims newcomm
125 Finalize -
155 Alltoallw iIIHIIHh commsize sendcounts sdis sendtypes recvcounts rdis recvtypes comm
167 Comm_set_name hC comm name
"""
"""Number, name, codes and names of the arguments of calls, as SST's library writes them."""


class Signature(NamedTuple):
    """A call: its number, and code and name of each argument."""

    number: int
    codes: str
    arguments: tuple[str, ...]


def _signatures() -> dict[str, Signature]:
    rows = (line.split() for line in _TABLE.strip().split("\n"))
    return {
        f"MPI_{name}": Signature(int(number), codes.strip("-"), tuple(arguments))
        for number, name, codes, *arguments in rows
    }


SIGNATURES = _signatures()


class Recorder(NamedTuple):
    """What a file says of its rank: host, start in seconds since 1970, and its clock's then.

    Without ``wall``, calls have processor time only.
    """

    host: str = "h"
    start_s: int = 1_000
    clock_s: int = 1_000
    wall: bool = True


RECORDER = Recorder()


def binary(
    script: Script, version: tuple[int, int, int] = (1, 0, 0), of: Recorder = RECORDER
) -> bytes:
    """A binary file with these calls between MPI_Init and MPI_Finalize."""
    stream = struct.pack(">II", 0, of.clock_s)
    end = 0
    for enter, leave, name, values in _whole(script):
        end = leave
        if name == "MPI_Init":
            number, arguments = 124, struct.pack(">ii", 1, 5) + b"./mpi"
        else:
            signature = SIGNATURES[name]
            number = signature.number
            arguments = b"".join(
                _encoded(code, values.get(argument))
                for code, argument in zip(signature.codes, signature.arguments, strict=True)
                if code not in "xXy" or values["commrank"] == values["root"]
            )
        stream += struct.pack(">HBH", number, 64 | 8 * of.wall | 4 | 3, values.get("thread", 0))
        stream += struct.pack(">HIHI", 0, enter, 0, leave) * (1 + of.wall) + arguments
    assert end < 2**32
    stream += struct.pack(">H", _END)
    sizes = struct.pack(f">{len(TYPE_BYTES) + 1}i", len(TYPE_BYTES), *TYPE_BYTES)
    body = len(_MAGIC)
    header = body + len(stream)
    described = bytes(version) + struct.pack(">qh", of.start_s, len(of.host)) + of.host.encode()
    contents = _MAGIC + stream + described + sizes
    parts = (header + len(described), 0, 0, header, body, header, header)
    return contents + _MAGIC + struct.pack(">7Q", *parts)


def text(script: Script, of: Recorder = RECORDER) -> str:
    """What dumpi2ascii prints of these calls."""
    start = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(of.start_s))
    out = ["version=1.0.0", f"starttime={start}", f"hostname={of.host}", "meshdim=0"]
    for enter, leave, name, values in _whole(script):
        times = [
            f"{(of.clock_s + now // 10**9) * of.wall}.{now % 10**9 * of.wall:09d}, cputime "
            f"0.{now % 10**9:09d} seconds in thread {values.get('thread', 0)}."
            for now in (enter, leave)
        ]
        out.append(f"{name} entering at walltime {times[0]}")
        for key in SIGNATURES[name].arguments if name in SIGNATURES else ():
            value = values.get(key, "<IGNORED>")
            out.append(_argument(key, value))
        out.append(f"{name} returning at walltime {times[1]}")
    out += ["Total keyvals: 0", "MPI_Send called 0 times and ignored 0 times"]
    out += [f"Datatype {n} (MPI_X) has size {size}" for n, size in enumerate(TYPE_BYTES)]
    return "\n".join(out) + "\n"


def write(
    folder: Path, *scripts: Script, of: Sequence[Recorder] = (), as_text: bool = False
) -> Path:
    """Files of all ranks, binary unless told, and the file beside them; returns the folder."""
    for rank, script in enumerate(scripts):
        recorder = of[rank] if of else RECORDER
        if as_text:
            (folder / f"run-{rank:04d}.txt").write_text(text(script, recorder))
        else:
            (folder / f"run-{rank:04d}.bin").write_bytes(binary(script, of=recorder))
    meta = f"hostname=h\nnumprocs={len(scripts)}\nusername=u\nstartime=1\nfileprefix=run\n"
    (folder / "run.meta").write_text(meta)
    return folder


def _argument(key: str, value: Any) -> str:
    """An argument of a call, as dumpi2ascii prints it."""
    if not isinstance(value, list):
        return f"int {key}={value}"
    shown = ", ".join(map(str, value))
    if key in ("status", "statuses"):
        shown = ", ".join(
            f"{{bytes=0, cancelled=0, source={source}, tag={tag}, error=0}}"
            for source, tag in value
        )
    return f"int {key}[{len(value)}]=[{shown}]"


def everything(files: Sequence[Path]) -> dict[str, Any]:
    """All that is read from the files of all ranks."""
    reader, tables = read_files(files)
    posts, computes = reader.posts()
    return {**tables, "posts": posts, "computes": computes}


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
    if code == "H":
        return struct.pack(f">i{len(value)}h", len(value), *value)
    if code == "C":
        return struct.pack(">i", len(value)) + value.encode()
    statuses = value or []
    packed = [struct.pack(">iibbi", 0, source, 0, 0, tag) for source, tag in statuses]
    return struct.pack(">i", len(statuses)) + b"".join(packed)
