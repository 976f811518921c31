r"""Predicted and measured gains of remedies on real packets: ``python bench/lab_gains.py``, root.

    python bench/lab_gains.py --runs 12 --keep gains --json

Brings up the fabric of ``examples/lab`` and, for every number, runs its halo exchange with ranks
placed badly in a way that the diagnosis is not told, diagnoses trace and counters, runs it again
three times with the recommended placement and all else alike, and confirms the gain.

predicted    gain that the diagnosis predicts, a share of the measured time, with its 95 % interval
measured     gain of the three runs together (``tailback confirm``)
covered      whether the measured gain is in the predicted interval
error        predicted minus measured gain
harm         whether the mean of the runs with the remedy is slower than the run without

A case takes two minutes on two cores. Those that ``--keep`` finds in its folder are not run again.
Runs in the lab have priority over other programs, which still disturb them: ``noise`` is the share
of the time by which computation, and waits for it, grew with the remedy, which is no effect of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from _shared import machine
from lab import EXAMPLE, HALOS

from tailback import TailbackError, confirm
from tailback.lab import fabric, spec, system
from tailback.lab.spec import LabSpec

TIMEOUT_S = 600
RERUNS = 3
PLACEMENTS = ("by-leaf", "by-node", "split-pairs", "random")


@dataclass(frozen=True)
class Gain:
    """A case: its placement, and the gain of the remedy, None where none is recommended.

    Attributes:
        number: Number of the case.
        cause: The placement, and the cause beside it, as the lab was asked for them.
        verdict: Cause that the diagnosis names.
        remedy: Name of the recommended placement; empty without.
        predicted: Predicted gain with its interval.
        measured: Measured gain with its interval.
        each: Measured gain of each run with the remedy.
        covered: Whether the measured gain is in the predicted interval.
        error: Predicted minus measured gain.
        outcome: Of ``tailback confirm``, with all runs.
        cost: Whether the interval of the saved time overlaps the range of the cost of the cause.
        in_cost: Whether the saved time itself is in that range.
        harm: Whether the runs with the remedy are slower.
        noise: Share of the time without the remedy by which computation, and waits for it, are
            longer with it: not an effect of the placement.
    """

    number: int
    cause: str
    verdict: str
    remedy: str = ""
    predicted: tuple[float, float, float] | None = None
    measured: tuple[float, float, float] | None = None
    each: tuple[float, ...] = ()
    covered: bool | None = None
    error: float | None = None
    outcome: str = ""
    cost: str = ""
    in_cost: bool | None = None
    harm: bool = False
    noise: float = 0.0


def drawn(seed: int, number: int, *, beside: bool) -> tuple[list[str], tuple[int, int, int]]:
    """Causes and program of a case: kinds of placement in turn, so that few cases have all.

    Args:
        seed: Seed of all cases.
        number: Number of the case.
        beside: Whether there is another cause beside the placement.
    """
    dice = random.Random(f"gain {seed} {number}")
    kind = PLACEMENTS[number % len(PLACEMENTS)]
    detail = f"{kind},{dice.randrange(10**6)}" if kind == "random" else kind
    program = dice.choice(HALOS)
    others = [
        f"slow-cable:l{dice.randrange(4)}-s{dice.randrange(2)}={dice.randint(30, 60)}%",
        f"cross-traffic:h{dice.randrange(4)}2-h{dice.randrange(4)}2*{dice.randint(1, 3)}",
        f"imbalance:{dice.randrange(16)}={dice.randint(15, 30) / 10}",
    ]
    # A host cannot send to itself: then the next kind of cause.
    possible = [other for other in others if len(set(re.findall(r"h\d2", other))) != 1]
    return [f"placement:{detail}", *([dice.choice(possible)] if beside else [])], program


FIRST = ("chrt", "--rr", "1")
"""Prefix of runs in the lab: its hosts do not wait for other programs of the machine."""


def _tailback(*arguments: object) -> None:
    before = FIRST if arguments[0] == "lab" else ()
    done = subprocess.run(
        [*before, sys.executable, "-m", "tailback", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    # An undetermined verdict is an answer, too.
    if done.returncode not in (0, 3):
        raise SystemExit(f"tailback {arguments[0]} failed:\n{done.stderr}")


@contextmanager
def _lab_up(wanted: LabSpec) -> Iterator[None]:
    fabric.bring_up(wanted)
    try:
        yield
    finally:
        fabric.take_down(wanted.name)


def run_case(seed: int, number: int, name: str, halo: Path, case: Path, *, beside: bool) -> None:
    """Run, diagnose, and run again; in a new folder that is the case's at the end.

    Args:
        seed: Seed of all cases.
        number: Number of the case.
        name: The lab.
        halo: The program.
        case: Folder of the case.
        beside: Whether there is another cause beside the placement.
    """
    causes, program = drawn(seed, number, beside=beside)
    fresh = case.with_name(f".{case.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    run = ["lab", "run", "--quiet", "--lab", name, "--out"]
    command = ["--", halo, 4, 4, *program]
    before, diagnosis = fresh / "before", fresh / "diagnosis"
    _tailback(*run, before, *(word for cause in causes for word in ("--cause", cause)), *command)
    _tailback("diagnose", before, "--quiet", "--out", diagnosis)
    if _verdict(fresh)["remedy"]["files"]:
        for rerun in range(RERUNS):
            after = fresh / f"after-{rerun}"
            _tailback(*run, after, "--like", before, "--remedy", diagnosis, *command)
    shutil.rmtree(case, ignore_errors=True)
    fresh.rename(case)


def _verdict(case: Path) -> dict[str, Any]:
    verdict: dict[str, Any] = json.loads((case / "diagnosis" / "diagnosis.json").read_text())
    return {**verdict, "remedy": verdict["remedy"] or {"files": {}}}


def judge(number: int, case: Path) -> Gain:
    """Compare the gains of one case."""
    truth = json.loads((case / "before" / "truth" / "truth.json").read_text())
    cause = ", ".join(cause["written"].removeprefix("placement:") for cause in truth["causes"])
    verdict = _verdict(case)["cause"]
    after = sorted(case.glob("after-*"))
    if not after:
        return Gain(number, cause, verdict)
    checked = confirm(case / "diagnosis", after)
    single = [confirm(case / "diagnosis", run).measured for run in after]
    predicted, measured = checked.predicted, checked.measured
    if predicted is None or measured is None:
        raise SystemExit(f"case {number}: {checked.reason}")
    return Gain(
        number,
        cause,
        verdict,
        checked.remedy,
        (predicted.value, predicted.low, predicted.high),
        (measured.value, measured.low, measured.high),
        tuple(gain.value for gain in single if gain is not None),
        predicted.low <= measured.value <= predicted.high,
        predicted.value - measured.value,
        checked.outcome,
        checked.cost.verdict if checked.cost is not None else "",
        None
        if checked.cost is None
        else checked.cost.low_ps <= checked.cost.saved_ps <= checked.cost.high_ps,
        measured.value < 0,
        sum(
            part.after_ps - part.before_ps
            for part in checked.parts
            if part.name in ("computation", "waits for computation")
        )
        / checked.before_ps,
    )


def bench(seed: int, runs: int, folder: Path, *, beside: bool) -> list[Gain]:
    """Judge the cases of a seed, and run those that are not in the folder."""
    kind = "beside" if beside else "gain"
    cases = {number: folder / f"{kind}-{seed}-{number}" for number in range(runs)}
    missing = [number for number, case in cases.items() if not case.is_dir()]
    if missing:
        system.require(system.FABRIC_TOOLS | system.JOB_TOOLS | {"mpicc": "libopenmpi-dev"})
        halo = folder.resolve() / "halo"
        subprocess.run(["mpicc", "-O2", "-o", halo, EXAMPLE / "halo.c"], check=True)
        wanted = spec.load(EXAMPLE / "leaf-spine.toml")
        wanted = wanted.model_copy(update={"name": f"gains{os.getpid()}"})
        with _lab_up(wanted):
            for number in missing:
                run_case(seed, number, wanted.name, halo, cases[number], beside=beside)
                print(_row(judge(number, cases[number])), file=sys.stderr, flush=True)
    return [judge(number, case) for number, case in cases.items()]


HEAD = (
    "| case | causes | verdict | predicted | measured, 3 runs | each | covered | error | "
    "confirm | cost | harm | noise |\n|---:|---|---|---|---|---|---|---:|---|---|---|---:|"
)


def _interval(gain: tuple[float, float, float]) -> str:
    value, low, high = (f"{100 * share:.0f}" for share in gain)
    return f"{value} % ({low} to {high})"


def _row(gain: Gain) -> str:
    """A line of the table."""
    cells = [str(gain.number), gain.cause, gain.verdict]
    if gain.predicted is None or gain.measured is None or gain.error is None:
        cells += ["no remedy", *["–"] * 8]
    else:
        cells += [
            _interval(gain.predicted),
            _interval(gain.measured),
            ", ".join(f"{100 * share:.0f}" for share in gain.each),
            "yes" if gain.covered else "NO",
            f"{100 * gain.error:+.0f}",
            gain.outcome,
            gain.cost,
            "YES" if gain.harm else "no",
            f"{100 * gain.noise:+.0f}",
        ]
    return f"| {' | '.join(cells)} |"


def summary(gains: list[Gain]) -> dict[str, Any]:
    """Figures over all cases."""
    applied = [gain for gain in gains if gain.error is not None]
    errors = [gain.error for gain in applied if gain.error is not None]
    return {
        "runs": len(gains),
        "with_remedy": len(applied),
        "covered": sum(bool(gain.covered) for gain in applied),
        "in_cost": sum(bool(gain.in_cost) for gain in applied),
        "harm": sum(gain.harm for gain in applied),
        "median_error": median(errors) if errors else None,
        "median_absolute_error": median(map(abs, errors)) if errors else None,
        "outcomes": {
            name: sum(gain.outcome == name for gain in applied)
            for name in ("confirmed", "refuted", "undetermined")
        },
    }


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Predicted and measured gains of remedies.")
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1, help="seed of placements and programs")
    parser.add_argument(
        "--beside", action="store_true", help="a slow cable, other traffic or imbalance as well"
    )
    parser.add_argument("--keep", type=Path, help="folder of the cases")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="tailback-bench-") as name:
            folder = args.keep or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            gains = bench(args.seed, args.runs, folder, beside=args.beside)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return 2
    figures = summary(gains)
    if args.json:
        cases = [asdict(gain) for gain in gains]
        print(json.dumps({**figures, "machine": machine(), "cases": cases}, indent=2))
    else:
        print("\n".join([HEAD, *map(_row, gains)]))
        print(
            "\n{covered} of {with_remedy} measured gains in the predicted interval, {in_cost} in "
            "the range of the cost; {harm} harm; "
            "{with_remedy} of {runs} runs have a remedy".format(**figures)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
