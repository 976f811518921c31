r"""How often a diagnosis of a training run is right on real packets, as root.

    python bench/foreign/run_training.py --make DIR --cases 20 --seed 7 [--judge]

As ``run_lab.py``, with a data-parallel job over TCP (``training_rank.py``) that sums gradients by a
ring or a tree and writes what NCCL Inspector would, and network steps. Other work on the machine
disturbs the runs; a case takes half a minute.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from run_lab import Draw, make_and_judge, parsed

from tailback.lab import causes, counters, fabric, job, system
from tailback.lab.causes import Setting
from tailback.lab.datapath.background import BackgroundRecorder
from tailback.lab.plan import Plan
from tailback.lab.record import QUIET_S, write_links

RANK = Path(__file__).with_name("training_rank.py")

PROGRAMS = {
    "ring": (24, 250_000, 30),
    "tree": (24, 150_000, 30),
    "tree-in-turn": (24, 150_000, 30),
}
"""Sums, bytes of each and milliseconds of computation before it, to be varied."""

TIMEOUT_S = 600

_SLOW, _NOISE = "TAILBACK_LAB_SLOW", "TAILBACK_LAB_NOISE"


def run_once(plan: Plan, case: Draw, written: Sequence[str], out: Path) -> float:
    """Run the job with some causes; its trace, counters, links and hosts of ranks are written."""
    setting = Setting.nominal(plan)
    for text in written:
        causes.apply(text, setting, plan)
    (out / "trace").mkdir(parents=True, exist_ok=True)
    for log in (out / "trace").iterdir():
        log.unlink()
    config = job_config(plan, setting, case, out)
    with fabric.in_use(plan):
        fabric.seed_paths(plan, case.path_seed)
        fabric.settle(plan, setting.rates_bps, setting.spines)
        file = out / "counters.csv.gz"
        with (
            BackgroundRecorder(
                "lab counters", lambda wait: counters.record_until(plan, file, wait)
            ),
            job.other_traffic(plan, setting),
        ):
            time.sleep(QUIET_S)
            run_ranks(plan, config, out / "job.json")
            time.sleep(QUIET_S)
    write_links(plan, out / "links.csv")
    ranks = [f"{rank},{host}" for rank, host in enumerate(setting.hosts)]
    (out / "rank_host.csv").write_text("\n".join(["rank,host", *ranks]) + "\n")
    return _elapsed_s(out / "trace")


def _elapsed_s(logs: Path) -> float:
    """Seconds from the first launch of a sum to the end of the last."""
    records = [json.loads(line) for log in logs.iterdir() for line in log.open()]
    times = [r["coll_perf"]["event_trace_ts"] for r in records if "coll_perf" in r]
    first = min(each["coll_start_ts"] for each in times)
    last = max(each["kernel_events"][0]["kernel_stop_ts"] for each in times)
    return float(last - first) / 1e6


def job_config(plan: Plan, setting: Setting, case: Draw, out: Path) -> dict[str, Any]:
    """The job of a case, as ``training_rank.py`` takes it; the causes within ranks among it."""
    algorithm, sums, size, compute_ms = case.program
    slow = dict(pair.split(":") for pair in setting.environment.get(_SLOW, "").split())
    share, length_ms, noise_seed = setting.environment.get(_NOISE, "0 0 1").split()
    return {
        "hosts": setting.hosts,
        "addresses": [plan.address(host) for host in setting.hosts],
        "algorithm": algorithm,
        "sums": int(sums),
        "bytes": int(size),
        "compute_s": float(compute_ms) / 1e3,
        "slow": {rank: float(factor) for rank, factor in slow.items()},
        "noise": [float(share), float(length_ms) / 1e3, int(noise_seed)],
        "out": str((out / "trace").absolute()),
    }


def run_ranks(plan: Plan, config: dict[str, Any], file: Path) -> None:
    """Run all ranks to their end; SystemExit if one fails."""
    file.write_text(json.dumps(config))
    started = [
        subprocess.Popen(
            [
                "nsenter",
                f"--net=/run/netns/{plan.namespace(host)}",
                *(sys.executable, "-S", str(RANK), str(file), str(rank)),
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(config["hosts"])
    ]
    try:
        for rank, process in enumerate(started):
            _, error = process.communicate(timeout=TIMEOUT_S)
            if process.returncode:
                raise SystemExit(f"rank {rank} failed:\n{error}")
    finally:
        for process in started:
            process.kill()
            process.wait()
    file.unlink()


def main() -> int:
    system.require(system.FABRIC_TOOLS)
    return make_and_judge(parsed(__doc__), "training", PROGRAMS, tuple(PROGRAMS), run_once)


if __name__ == "__main__":
    sys.exit(main())
