"""A small file in every format that a user may give, and what reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailback.api.calibrate import calibrate
from tailback.api.counters import counters
from tailback.calibration.file import load as load_calibration
from tailback.calibration.readers import BENCHMARKS
from tailback.evidence.jobs import FORMS as JOB_LISTS
from tailback.evidence.jobs import read_jobs
from tailback.fabric.lft import read_lfts
from tailback.fabric.readers import READERS as FABRICS
from tailback.fabric.readers import read_fabric
from tailback.placement.rank_hosts import FORMS as RANK_HOSTS
from tailback.placement.rank_hosts import rank_hosts
from tailback.port_counters.readers import READERS as COUNTERS
from tailback.registry import Registry
from tailback.scenario.model import load as load_scenario
from tailback.traffic.readers import READERS as TRACES
from tailback.traffic.readers import read_trace
from tests.factories import benchmark_outputs, fabric_files, foreign_traces
from tests.factories.counter_files import TEXTS
from tests.factories.forwarding_tables import LEFT

REGISTRIES: dict[str, Registry[Any]] = {
    "benchmark": BENCHMARKS,
    "counters": COUNTERS,
    "fabric": FABRICS,
    "jobs": JOB_LISTS,
    "rank-hosts": RANK_HOSTS,
    "trace": TRACES,
}
"""The kinds of file that have several formats."""

NOT_ALONE = {
    "counters collection",
    "counters cxi",
    "counters engine-run",
    "counters sysfs",
    "rank-hosts jsrun-erf",
}
"""Folders of Parquet files and of the kernel, and a list that needs the names of hosts."""


@dataclass(frozen=True)
class UserInput:
    """A file that a user may give.

    Attributes:
        write: Writes it into an empty folder; returns what to read.
        read: Reads it as a command does.
        text: The file whose text is damaged; None if it is binary.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], object]
    text: str | None


def _input(text: str, read: Callable[[Path], object], name: str = "input.txt") -> UserInput:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return UserInput(write, read, name)


_T = 1_795_345_570
_JOB_LISTS = {
    "csv": f"job,start,end,hosts\n17,{_T},{_T + 60},n[1-2]\n",
    "qstat": f"Job Id: 5.server\n    job_state = R\n    exec_host = n1/0*4+n2/0*4\n"
    f"    stime = {_T}\n    etime = {_T}\n\n",
    "sacct-json": json.dumps(
        {
            "jobs": [
                {"job_id": 17, "nodes": "n[1-2]", "time": {"start": _T, "end": _T + 60}},
                {
                    "job_id": 21,
                    "nodes": "n3",
                    "time": {"start": {"set": True, "number": _T}, "end": 0},
                },
            ]
        }
    ),
    "sacct-parsable": f"JobIDRaw|Start|End|State|NodeList\n17|{_T}|{_T + 60}|COMPLETED|n[1-2]\n",
    "squeue-json": json.dumps(
        {
            "jobs": [
                {
                    "job_id": 5,
                    "job_state": ["RUNNING"],
                    "nodes": "n[1-2]",
                    "start_time": {"set": True, "infinite": False, "number": _T},
                    "end_time": {"set": True, "number": _T + 86400},
                },
            ]
        }
    ),
}
_RANK_HOSTS = {
    "cray-order": "# nodes in this order:\n# n0 n1\n1,0\n2-3\n",
    "environment": "SLURM_PROCID=0\nSLURMD_NODENAME=n1\nSLURM_PROCID=1\nSLURMD_NODENAME=n2\n",
    "launcher-output": "".join(
        f" Data for node: n{rank + 1}   Num slots: 1   Max slots: 0    Num procs: 1\n"
        f"    Process OMPI jobid: [1,1] App: 0 Process rank: {rank}\n"
        for rank in range(2)
    ),
    "tagged-lines": "0: n1\n1: n2\n",
    "host-list": "n1 slots=2\nn2 slots=2\n",
    "rank-csv": "rank,host\n0,n1\n1,n2\n",
    "rankfile": "rank 0=n1 slot=0\nrank 1=n2 slot=1\n",
}
_BENCHMARKS = {
    "gpcnet": benchmark_outputs.gpcnet(),
    "imb": benchmark_outputs.imb(),
    "nccl-tests": benchmark_outputs.nccl_text(),
    "osu": benchmark_outputs.osu_latency(),
    "perftest": benchmark_outputs.ib_write_lat(),
}
_SCENARIO = """\
seed = 3
[fabric.fat_tree]
hosts_per_leaf = 2
leaves = 2
aggregation = 1
[engine]
buffer = "64 KiB"
[[job]]
name = "a"
pattern = { kind = "stencil2d", dims = [2, 2], bytes_per_message = "1 KiB" }
"""
_CALIBRATION = """\
[engine]
local_delay = "500 ns"
[calibration]
local_delay = { value = "500 ns", low = "400 ns", high = "600 ns", source = "osu_latency", n = 9 }
"""


def _traces() -> dict[str, UserInput]:
    binary = {"chakra", "dumpi", "flight-recorder", "nsight", "otf2"}
    texts = {"pipit": "events.csv", "nccl-log": None}
    return {
        f"trace {name}": UserInput(
            sample.write,
            read_trace,
            None if name in binary else texts.get(name, sample.cut),
        )
        for name, sample in foreign_traces.SAMPLES.items()
    }


INPUTS: dict[str, UserInput] = {
    **{f"benchmark {name}": _input(text, calibrate) for name, text in _BENCHMARKS.items()},
    "benchmark nccl-tests json": _input(benchmark_outputs.nccl_json(), calibrate),
    "benchmark osu bandwidth": _input(benchmark_outputs.osu_bw(), calibrate),
    "benchmark perftest bandwidth": _input(benchmark_outputs.ib_write_bw(), calibrate),
    **{f"counters {name}": _input(text, counters) for name, text in TEXTS.items()},
    **{
        f"fabric {name}": _input(
            sample.text, lambda path, rate=sample.cable_gbps: read_fabric(path, cable_gbps=rate)
        )
        for name, sample in fabric_files.SAMPLES.items()
    },
    **{f"jobs {name}": _input(text, read_jobs) for name, text in _JOB_LISTS.items()},
    **{f"rank-hosts {name}": _input(text, rank_hosts) for name, text in _RANK_HOSTS.items()},
    **_traces(),
    "calibration": _input(_CALIBRATION, load_calibration),
    "forwarding tables": _input(LEFT, read_lfts),
    "scenario": _input(_SCENARIO, load_scenario),
}
