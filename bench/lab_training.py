r"""How often a diagnosis of a training run is right on real packets, as root.

    python bench/lab_training.py --runs 20 --first 1 --keep cases --json

Brings up the fabric of ``examples/lab`` and, for every seed, runs a data-parallel job over TCP
(``lab_rank.py``) with the causes that ``tailback lab run --secret`` draws. The job sums gradients
by a ring or a tree, drawn with the seed, and writes what NCCL Inspector would, and network steps.
Each run is diagnosed with the counters of ports and without, and compared with the truth.

right          verdicts that name what was wrong: of a cable also which one, of a healthy run that
               nothing was; where two things were wrong, either of them
undetermined   verdicts that leave the cause open
wrong          the others; of healthy runs these are false alarms

A run takes a quarter of a minute on two cores, and is valid only where nothing else runs. Cases
that ``--keep`` finds in its folder are not run again, and need no root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from _shared import machine
from lab import EXAMPLE, NO_ALARM, TIMEOUT_S, judge

from tailback import TailbackError
from tailback.lab import causes, counters, fabric, job, spec, system
from tailback.lab.causes import Setting
from tailback.lab.datapath.background import BackgroundRecorder
from tailback.lab.plan import Plan
from tailback.lab.record import QUIET_S

RANK = Path(__file__).with_name("lab_rank.py")

JOBS = ((8, 3, 200_000, 0.03), (6, 4, 120_000, 0.02), (10, 2, 300_000, 0.05))
"""Steps, buckets of gradients, bytes of each and seconds of computation before it."""


def run(seeds: Iterable[int], folder: Path) -> None:
    """Run the cases of some seeds; the lab is gone at the end."""
    system.require(system.FABRIC_TOOLS)
    wanted = spec.load(EXAMPLE / "leaf-spine.toml").model_copy(
        update={"name": f"train{os.getpid()}"}
    )
    plan = fabric.bring_up(wanted)
    try:
        for seed in seeds:
            run_case(plan, seed, folder / f"case-{seed}")
    finally:
        fabric.take_down(wanted.name)


def run_case(plan: Plan, seed: int, case: Path) -> None:
    """Run a case: its trace, counters, links, hosts of ranks, and the truth."""
    setting = Setting.nominal(plan)
    for text in causes.draw(seed, plan):
        causes.apply(text, setting, plan)
    (case / "trace").mkdir(parents=True)
    config = job_config(plan, setting, seed, case)
    (case / "job.json").write_text(json.dumps(config))
    path_seed = causes.path_seed(seed)
    with fabric.in_use(plan):
        fabric.seed_paths(plan, path_seed)
        fabric.settle(plan, setting.rates_bps, setting.spines)
        file = case / "counters.csv.gz"
        with (
            BackgroundRecorder(
                "lab counters", lambda wait: counters.record_until(plan, file, wait)
            ),
            job.other_traffic(plan, setting),
        ):
            time.sleep(QUIET_S)
            run_ranks(plan, config, case / "job.json")
            time.sleep(QUIET_S)
    lines = ["link,src,dst,iface,rate_mbit"]
    lines += [f"{k.number},{k.source},{k.target},{k.interface},{k.mbit}" for k in plan.links]
    (case / "links.csv").write_text("\n".join(lines) + "\n")
    ranks = [f"{rank},{host}" for rank, host in enumerate(setting.hosts)]
    (case / "rank_host.csv").write_text("\n".join(["rank,host", *ranks]) + "\n")
    truth = {"causes": setting.causes, "path_seed": path_seed}
    (case / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def job_config(plan: Plan, setting: Setting, seed: int, case: Path) -> dict[str, Any]:
    """The job of a case, as ``lab_rank.py`` takes it; the causes within ranks among it."""
    dice = random.Random(f"training {seed}")
    steps, buckets, size, compute_s = dice.choice(JOBS)
    slow = dict(pair.split(":") for pair in setting.environment.get(_SLOW, "").split())
    share, length_ms, noise_seed = setting.environment.get(_NOISE, "0 0 1").split()
    return {
        "hosts": setting.hosts,
        "addresses": [plan.address(host) for host in setting.hosts],
        "algorithm": dice.choice(["ring", "ring", "tree"]),
        "steps": steps,
        "buckets": buckets,
        "bytes": size,
        "compute_s": compute_s,
        "slow": {rank: float(factor) for rank, factor in slow.items()},
        "noise": [float(share), float(length_ms) / 1e3, int(noise_seed)],
        "out": str((case / "trace").absolute()),
    }


_SLOW, _NOISE = "TAILBACK_LAB_SLOW", "TAILBACK_LAB_NOISE"


def run_ranks(plan: Plan, config: dict[str, Any], file: Path) -> None:
    """Run all ranks to their end; SystemExit if one fails."""
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


def diagnose(case: Path, *, with_counters: bool) -> dict[str, Any]:
    """Diagnose a case and compare the verdict with the truth."""
    out = case / ("diagnosis" if with_counters else "diagnosis-of-trace")
    files = ["--counters", case / "counters.csv.gz"] if with_counters else []
    command = [sys.executable, "-m", "tailback", "diagnose", case / "trace", "--quiet", "--force"]
    command += ["--fabric", case / "links.csv", "--rankfile", case / "rank_host.csv"]
    done = subprocess.run(
        [*map(str, [*command, *files, "--out", out])],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode not in (0, 3):
        raise SystemExit(f"the diagnosis of {case.name} failed:\n{done.stderr}")
    truth = json.loads((case / "truth.json").read_text())["causes"]
    said = json.loads((out / "diagnosis.json").read_text())
    right = judge(truth, said)
    return {
        "case": case.name,
        "counters": with_counters,
        "truth": [cause["written"] for cause in truth],
        "cause": said["cause"],
        "right": right,
        "undetermined": said["cause"] == "undetermined",
        "false_alarm": not truth and said["cause"] not in NO_ALARM,
        "confidence": said["confidence"],
        "headline": said["headline"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--keep", type=Path, help="folder of the cases and their diagnoses")
    parser.add_argument("--only-run", action="store_true", help="without the diagnoses")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.runs)
    rows = []
    try:
        with tempfile.TemporaryDirectory(prefix="tailback-bench-") as scratch:
            folder = options.keep or Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            missing = [s for s in seeds if not (folder / f"case-{s}" / "truth.json").is_file()]
            if missing:
                run(missing, folder)
            for seed in () if options.only_run else seeds:
                for with_counters in (True, False):
                    row = diagnose(folder / f"case-{seed}", with_counters=with_counters)
                    rows.append(row)
                    print(json.dumps(row), file=sys.stderr, flush=True)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return 2
    result: dict[str, Any] = {"machine": machine()}
    for name, with_counters in (("with counters", True), ("trace alone", False)):
        mine = [row for row in rows if row["counters"] == with_counters]
        counts = {key: sum(row[key] for row in mine) for key in ("right", "undetermined")}
        result[name] = {"runs": len(mine), **counts}
        result[name]["wrong"] = len(mine) - sum(counts.values())
        result[name]["false_alarms"] = sum(row["false_alarm"] for row in mine)
    print(json.dumps(result | ({"cases": rows} if options.json else {}), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
