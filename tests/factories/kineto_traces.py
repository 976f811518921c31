"""Small Kineto traces and logs of NCCL, as PyTorch and NCCL write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def kernel(ts: float, dur: float, name: str = "gemm", **args: Any) -> Event:
    """A kernel that computes, in microseconds."""
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "args": args}


def collective(
    ts: float, dur: float, call: str, elements: int, ranks: list[int], **more: Any
) -> Event:
    """A kernel of NCCL; ``more`` are further arguments, underscores for blanks."""
    args = {
        "Collective name": call,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "Float",
        "Group size": len(ranks),
        "Process Group Ranks": str(ranks),
        "Process Group Name": "7",
        "Process Group Description": "dp",
        "grid": [2, 1, 1],
        **{key.replace("_", " "): value for key, value in more.items()},
    }
    return kernel(ts, dur, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", **args)


def document(rank: int, world: int, events: list[Event], devices: int = 8) -> Event:
    """The trace of a rank."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": k} for k in range(devices)],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "traceEvents": events,
    }


def write(folder: Path, *ranks: list[Event], devices: int = 8) -> Path:
    """Write the traces of all ranks of a run into a folder."""
    for rank, events in enumerate(ranks):
        text = json.dumps(document(rank, len(ranks), events, devices))
        (folder / f"rank-{rank}.1.pt.trace.json").write_text(text)
    return folder


def sample(folder: Path) -> Path:
    """Two ranks: 100 us, a sum of 4,000 B beside 30 us, 50 us more."""
    events = [
        kernel(0, 100),
        collective(100, 40, "allreduce", 1000, [0, 1]),
        kernel(110, 30),
        kernel(140, 50),
    ]
    return write(folder, events, events)


def init(host: str, rank: int, nranks: int, comm: str = "0xaa", key: str = "0x77") -> str:
    """The line of NCCL's log that makes a communicator."""
    return (
        f"{host}:10{rank}:20{rank} [{rank}] NCCL INFO ncclCommInitRankConfig comm {comm} rank "
        f"{rank} nranks {nranks} cudaDev {rank} busId 1000 commId {key} - Init COMPLETE\n"
    )


def call(
    host: str,
    rank: int,
    name: str,
    count: int,
    nranks: int,
    comm: str = "0xaa",
    root: int = 0,
    datatype: int = 7,
) -> str:
    """The line of a call of a rank, of 4 B floats."""
    return (
        f"{host}:10{rank}:20{rank} [{rank}] NCCL INFO {name}: opCount 1b sendbuff 0x1 recvbuff "
        f"(nil) count {count} datatype {datatype} op 0 root {root} comm {comm} "
        f"[nranks={nranks}] stream 0x5\n"
    )


def tuned(host: str, name: str, nbytes: int, algorithm: str, protocol: str, last: int) -> str:
    """The line of rank 0 that says how a collective is run."""
    return (
        f"{host}:100:200 [0] NCCL INFO {name}: {nbytes} Bytes -> Algo {algorithm} proto "
        f"{protocol} channel{{Lo..Hi}}={{0..{last}}}\n"
    )


def sample_log(folder: Path) -> Path:
    """Three ranks sum 6,000 B over a tree and gather 3 x 40 B around a ring."""
    text = "".join(init("n0", rank, 3) for rank in range(3))
    text += tuned("n0", "AllReduce", 6000, "TREE", "LL128", 1)
    text += tuned("n0", "AllGather", 120, "RING", "SIMPLE", 0)
    for name, count in (("AllReduce", 1500), ("AllGather", 10)):
        text += "".join(call("n0", rank, name, count, 3) for rank in range(3))
    (folder / "nccl.log").write_text("starting\n" + text)
    return folder / "nccl.log"
