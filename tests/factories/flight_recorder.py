"""Small dumps of PyTorch's Flight Recorder, one for each rank."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

UTC_NS = 1_790_000_000_000_000_000

WORLD = {"0": ("default_pg", (0, 1))}


def operation(
    number: int,
    name: str = "all_reduce",
    *,
    state: str = "completed",
    group: tuple[str, str] = ("0", "default_pg"),
    elements: int = 2000,
    out: int | None = None,
    duration_ms: float | None = None,
    is_p2p: bool = False,
    at_s: float = 0.0,
    dtype: str = "Float",
) -> Entry:
    """A collective with its number in its group, or a send or receive ``send 0->1``."""
    entry = {
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": 0 if is_p2p else number,
        "p2p_seq_id": number if is_p2p else 0,
        "op_id": number,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": UTC_NS + round((number + at_s) * 1e9),
        "input_sizes": [[elements]],
        "input_dtypes": [dtype],
        "output_sizes": [[elements if out is None else out]],
        "output_dtypes": [dtype],
        "state": state,
        "time_discovered_started_ns": None if state == "scheduled" else UTC_NS + number * 10**9 + 1,
        "time_discovered_completed_ns": UTC_NS + number * 10**9 + 2
        if state == "completed"
        else None,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": is_p2p,
        "frames": [
            {"name": "all_reduce", "filename": "/x/torch/distributed/c10d.py", "line": 9},
            {"name": "step", "filename": "/home/u/train.py", "line": 120},
        ],
    }
    return entry | ({} if duration_ms is None else {"duration_ms": duration_ms})


def document(
    entries: Sequence[Entry],
    groups: Mapping[str, tuple[str, tuple[int, ...]]] = WORLD,
    version: str = "2.5",
    enqueued: Mapping[str, int] | None = None,
    lost: int = 0,
) -> dict[str, Any]:
    """The content of a dump; ``lost`` older operations were overwritten."""
    return {
        "version": version,
        "pg_config": {
            name: {"name": name, "desc": desc, "ranks": str(list(ranks))}
            for name, (desc, ranks) in groups.items()
        },
        "pg_status": {
            name: {"last_enqueued_collective": last} for name, last in (enqueued or {}).items()
        },
        "entries": [each | {"record_id": number} for number, each in enumerate(entries, lost)],
    }


def write(folder: Path, dumps: Mapping[int, dict[str, Any]], form: str = "pickle") -> Path:
    """Write the dumps of ranks; returns the folder."""
    for rank, content in dumps.items():
        if form == "pickle":
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
        else:
            (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(content))
    return folder


def sample(folder: Path) -> Path:
    """Two sums of two ranks; the second rank begins each 0.1 ms later than the first."""
    late = [[operation(k, duration_ms=duration) for k in (1, 2)] for duration in (0.3, 0.2)]
    return write(folder, {rank: document(entries) for rank, entries in enumerate(late)})
