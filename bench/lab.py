r"""How often a diagnosis of real packets is right: ``python bench/lab.py [--json]``, as root.

    python bench/lab.py --runs 40 --keep cases --telemetry coordinated:4 --json

Brings up the fabric of ``examples/lab``, runs its halo exchange once for every seed with the causes
that ``tailback lab run --secret`` draws, diagnoses trace and counters, and compares the verdict
with the truth that the lab recorded.

runs           cases
right          verdicts that name what was wrong: of a cable also which one, of a healthy run that
               nothing was; where two things were wrong, either of them
false_alarms   healthy runs that are said to suffer from something
coverage       with --telemetry, by which ports sample packets and the diagnosis is given the
               samples: share of the links with traffic, over all runs, whose 95 % interval of
               packets has what the interface sent (``bench/datapath.py``); null otherwise

A run takes half a minute on two cores, half of it the diagnosis. Cases that ``--keep`` finds in its
folder are not run again, and need neither root nor MPI: what a change of the diagnosis does can be
seen on the same packets. Other work on the machine disturbs the runs as it would
disturb any network whose switches share a processor.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl
from _shared import machine
from datapath import IDLE, links_of

from tailback import TailbackError
from tailback.lab import fabric, spec, system
from tailback.lab.datapath.sampling import PacketScheme
from tailback.lab.telemetry import SAMPLES

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "lab"
TIMEOUT_S = 600

HALOS = ((60, 40_000, 15), (60, 40_000, 30), (80, 25_000, 15), (40, 80_000, 30))
"""Iterations, bytes a message and milliseconds of computation; drawn with the seed. Messages take
most of the time in all of them, so every network fault has an effect."""

VERDICTS = {
    "slow-cable": "slow-link",
    "imbalance": "imbalance",
    "noise": "noise",
    "placement": "placement",
    "one-spine": "routing",
    "cross-traffic": "other-traffic",
}
"""The verdict that names each kind of cause."""

HEALTHY = frozenset({"healthy", "capacity"})
"""Verdicts on a run without a fault: full links need none."""

NO_ALARM = HEALTHY | {"undetermined"}


@dataclass(frozen=True)
class Judged:
    """A case: its causes, the diagnosis, and whether that is right."""

    seed: int
    truth: list[str]
    iteration_ms: float
    verdict: str
    headline: str
    confidence: float | None
    right: bool
    false_alarm: bool


def judge(causes: list[dict[str, Any]], diagnosis: dict[str, Any]) -> bool:
    """Whether a diagnosis names what was wrong.

    Args:
        causes: ``causes`` of ``truth.json``.
        diagnosis: ``diagnosis.json``.
    """
    verdict = diagnosis["cause"]
    if not causes:
        return verdict in HEALTHY
    for cause in causes:
        if VERDICTS[cause["kind"]] != verdict:
            continue
        if cause["kind"] != "slow-cable":
            return True
        # The link "l2[s1] → s1[l2]" is of the cable l2-s1.
        ends = set(cause["cable"].split("-"))
        for cost in diagnosis["explanation"]["costs"]:
            # Of several candidates, the first one counts.
            links = cost["links"][:1] if cost["one_of_links"] else cost["links"]
            named = {end.split("[")[0] for link in links for end in link["name"].split()}
            if cost["cause"] == "slow-link" and ends <= named:
                return True
    return False


def _tailback(*arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailback", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    # Too few samples for a verdict is an answer, too.
    if done.returncode not in (0, 3):
        raise SystemExit(f"tailback {arguments[0]} failed:\n{done.stderr}")


def run(seeds: Iterable[int], folder: Path, scheme: PacketScheme | None) -> None:
    """Run the cases of some seeds; the lab is gone at the end."""
    needed = system.FABRIC_TOOLS | system.JOB_TOOLS | {"mpicc": "libopenmpi-dev"}
    system.require(needed)
    halo = folder / "halo"
    subprocess.run(["mpicc", "-O2", "-o", halo, EXAMPLE / "halo.c"], check=True)
    wanted = spec.load(EXAMPLE / "leaf-spine.toml").model_copy(
        update={"name": f"bench{os.getpid()}"}
    )
    fabric.bring_up(wanted, scheme)
    try:
        for seed in seeds:
            iterations, size, compute_ms = random.Random(f"halo {seed}").choice(HALOS)
            _tailback(
                "lab",
                "run",
                "--quiet",
                "--force",
                "--lab",
                wanted.name,
                "--secret",
                seed,
                "--out",
                folder / f"case-{seed}",
                "--",
                halo,
                4,
                4,
                iterations,
                size,
                compute_ms,
            )
    finally:
        fabric.take_down(wanted.name)


def diagnose(seed: int, folder: Path) -> Judged:
    """Diagnose one case and score the verdict."""
    case, out = folder / f"case-{seed}", folder / f"diagnosis-{seed}"
    sampled = ["--samples", case / SAMPLES] if (case / SAMPLES).exists() else []
    _tailback(
        "diagnose",
        case / "trace",
        "--quiet",
        "--force",
        "--fabric",
        case / "links.csv",
        "--rankfile",
        case / "rank_host.csv",
        "--counters",
        case / "counters.csv.gz",
        "--out",
        out,
        *sampled,
    )
    truth = json.loads((case / "truth" / "truth.json").read_text())
    said = json.loads((out / "diagnosis.json").read_text())
    return Judged(
        seed,
        [cause["written"] for cause in truth["causes"]],
        round(1000 * truth["loop_s"] / int(truth["program"][3]), 1),
        said["cause"],
        said["headline"],
        said["confidence"],
        judge(truth["causes"], said),
        not truth["causes"] and said["cause"] not in NO_ALARM,
    )


def coverage(seeds: range, folder: Path, scheme: PacketScheme | None) -> float | None:
    """Share of the links with traffic whose interval has the packets that were sent."""
    if scheme is None:
        return None
    tables = [links_of(folder / f"case-{seed}", 4, str(scheme), seed) for seed in seeds]
    used = pl.concat(tables).filter(pl.col("sent") >= IDLE)
    return round(float(used["covered"].mean()), 4)  # type: ignore[arg-type]


def bench(seeds: range, folder: Path, scheme: PacketScheme | None) -> list[Judged]:
    """Score the cases of some seeds, and run those that are not in the folder."""
    missing = [seed for seed in seeds if not (folder / f"case-{seed}" / "truth").is_dir()]
    if missing:
        run(missing, folder, scheme)
    judged = []
    for seed in seeds:
        outcome = diagnose(seed, folder)
        judged.append(outcome)
        mark = "right" if outcome.right else "WRONG"
        print(
            f"{seed}: {mark}: {', '.join(outcome.truth) or 'healthy'}: {outcome.headline}",
            file=sys.stderr,
            flush=True,
        )
    return judged


def main() -> int:
    parser = argparse.ArgumentParser(description="How often a diagnosis of real packets is right.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--telemetry", metavar="SCHEME", help="like coordinated:4")
    parser.add_argument("--keep", type=Path, help="folder of the cases and their diagnoses")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    seeds = range(args.first, args.first + args.runs)
    try:
        scheme = None if args.telemetry is None else PacketScheme.parse(args.telemetry)
        with tempfile.TemporaryDirectory(prefix="tailback-bench-") as name:
            folder = args.keep or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            judged = bench(seeds, folder, scheme)
            covered = coverage(seeds, folder, scheme)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return 2
    result = {
        "runs": len(judged),
        "right": sum(outcome.right for outcome in judged),
        "healthy": sum(not outcome.truth for outcome in judged),
        "false_alarms": sum(outcome.false_alarm for outcome in judged),
        "coverage": covered,
        "machine": machine(),
        "cases": [asdict(outcome) for outcome in judged],
    }
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        print(
            "{right} of {runs} right; {false_alarms} false alarms in {healthy} healthy runs; "
            "{machine}".format(**result)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
