r"""How often a diagnosis of a measured run is right when reality differs from the model.

    python bench/blind.py --make DIR --cases 60 --split build     cases to look at
    python bench/blind.py --split judge --json                    the figures, made where missing

A case is a run on a simulated machine with causes that the diagnosis does not know, and the files
that ordinary tools write: a trace, a discovery, forwarding tables, port counters and a job list
(``blind_case``). ``tailback diagnose`` gets these files twice, once with all of them and once with
trace, discovery and forwarding tables alone, and is compared with the truth: the time of the run
without each cause.

accuracy           share of the cases whose main cause is right, with everything
accuracy_trace_only  the same with the trace alone; "not determined" is right where two causes fit
false_alarms       share of the healthy runs that are said to suffer from something
share_error        median over the causes of mixed cases: distance of what the run is said to save
                   without the cause from what it saves, as a share of the measured time
calibration_error  largest distance of stated confidence from the share that is right, over bins
                   with ten answers or more
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from _cases import make_cases
from blind_case import VERSION, write_case
from blind_reality import CAUSES
from diagnosis import calibration

from tailback.units import percent

CASES = 150
"""Cases of a split."""

SEED = 21
TIMEOUT_S = 900

ALARMS = frozenset(CAUSES)
"""Causes of which a healthy run has none."""

FILES = ("counters", "jobs", "forwarding")
"""Files of a case that have an option of ``diagnose`` by their name."""

_FORMER = {"injection": "adapter", "undetermined": "not_determined", "not_network": "healthy"}
"""Earlier names of causes."""


@dataclass(frozen=True)
class Answer:
    """The verdict on a case.

    Attributes:
        number, kind, long: The case.
        main: Its true main cause.
        accepted: Causes that count as right.
        evidence: ``all`` or ``trace``.
        cause: The main cause that was named; empty without a verdict.
        confidence: The stated confidence, 0 to 1.
        right: It is right.
        shares: For each cause, the share of the measured time that the run saves without it, true
            and as diagnosed.
        error: Why there is no verdict.
    """

    number: int
    kind: str
    long: bool
    main: str
    accepted: list[str]
    evidence: str
    cause: str
    confidence: float
    right: bool
    shares: dict[str, tuple[float, float]] = field(default_factory=dict)
    error: str = ""


def cause_of(diagnosis: dict[str, Any]) -> str:
    """The main cause that ``diagnosis.json`` names."""
    name = str(diagnosis.get("cause") or "").replace("-", "_")
    return _FORMER.get(name, name)


def shares_of(diagnosis: dict[str, Any]) -> dict[str, float]:
    """Share of the measured time that the run would save without each cause, as diagnosed."""
    out: dict[str, float] = {}
    for part in (diagnosis.get("explanation") or {}).get("costs", []):
        name = str(part["cause"]).replace("-", "_")
        name = _FORMER.get(name, name)
        out[name] = out.get(name, 0.0) + float(part["share"])
    return out


def judge(truth: dict[str, Any], diagnosis: dict[str, Any], evidence: str) -> Answer:
    """Compare a diagnosis with the truth."""
    cause = cause_of(diagnosis)
    right = cause in truth["accepted"]
    if evidence == "trace" and len(truth["fit_trace_alone"]) > 1:
        right = right or cause == "not_determined"
    stated = shares_of(diagnosis)
    shares = {
        name: (part["removed_ps"] / truth["elapsed_ps"], stated.get(name, 0.0))
        for name, part in truth["causes"].items()
    }
    return Answer(
        truth["number"],
        truth["kind"],
        truth["long"],
        truth["main"],
        truth["accepted"],
        evidence,
        cause,
        float(diagnosis.get("confidence") or 0.0),
        right,
        shares,
    )


# --- running ---------------------------------------------------------------------------------


def _given(seen: Path, name: str | None) -> list[Path]:
    """Arguments of an option: each file of a folder of readings, or a collection as a folder."""
    if name is None:
        return []
    path = seen / name
    single = path.is_dir() and name == "counters" and not (path / "collection.json").exists()
    return sorted(path.iterdir()) if single else [path]


def arguments(folder: Path, evidence: str) -> list[str]:
    """Arguments of ``diagnose`` for a case: its trace, its fabric and other evidence."""
    seen = folder / "seen"
    files = json.loads((seen / "case.json").read_text(encoding="utf-8"))
    use = FILES if evidence == "all" else ("forwarding",)
    out = [str(seen / files["trace"]), "--fabric", str(seen / files["fabric"])]
    for name in use:
        for path in _given(seen, files[name]):
            out += [f"--{name}", str(path)]
    return out


def diagnose(folder: Path, evidence: str) -> dict[str, Any]:
    """``diagnosis.json`` of a case.

    Raises:
        RuntimeError: There is none; says why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        inputs = arguments(folder, evidence)
        command = [
            sys.executable,
            "-m",
            "tailback",
            "diagnose",
            *inputs,
            "--out",
            str(out),
            "--quiet",
        ]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"took more than {TIMEOUT_S} s") from None
        made = out / "diagnosis.json"
        if not made.is_file():
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-300:]}")
        diagnosis: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
        return diagnosis


def answer(folder: Path, evidence: str) -> Answer:
    """Diagnose a case and score the verdict."""
    truth = json.loads((folder / "truth" / "truth.json").read_text(encoding="utf-8"))
    try:
        return judge(truth, diagnose(folder, evidence), evidence)
    except RuntimeError as error:
        return replace(judge(truth, {}, evidence), right=False, shares={}, error=str(error))


# --- figures ---------------------------------------------------------------------------------


def figures(answers: list[Answer]) -> dict[str, Any]:
    """The figures of all answers; None if there are none."""
    by = {name: [a for a in answers if a.evidence == name] for name in ("all", "trace")}
    bins = {name: calibration(_sure(mine)) for name, mine in by.items()}
    return {
        "scenarios": len({a.number for a in answers}),
        "accuracy": _share(by["all"]),
        "accuracy_trace_only": _share(by["trace"]),
        "false_alarms": _alarms(by["all"]),
        "false_alarms_trace_only": _alarms(by["trace"]),
        "share_error": _share_error(by["all"]),
        "calibration_error": _worst(bins["all"]),
        "calibration_error_trace_only": _worst(bins["trace"]),
        "calibration": bins,
        "by_kind": {
            kind: {
                name: [
                    sum(a.right for a in mine if a.kind == kind),
                    sum(a.kind == kind for a in mine),
                ]
                for name, mine in by.items()
            }
            for kind in sorted({a.kind for a in answers})
        },
        "failed": sum(bool(a.error) for a in answers),
    }


def _sure(answers: list[Answer]) -> list[Answer]:
    """Answers that name a cause: an answer "not determined" states no probability."""
    return [a for a in answers if a.cause not in ("", "not_determined")]


def _share(answers: list[Answer]) -> float | None:
    return sum(a.right for a in answers) / len(answers) if answers else None


def _alarms(answers: list[Answer]) -> float | None:
    healthy = [a for a in answers if a.main == "healthy"]
    return sum(a.cause in ALARMS for a in healthy) / len(healthy) if healthy else None


def _share_error(answers: list[Answer]) -> float | None:
    """Median over the causes of mixed cases, as a share of the measured time."""
    off = [
        abs(true - said) for a in answers if len(a.shares) > 1 for true, said in a.shares.values()
    ]
    return float(np.median(off)) if off else None


def _worst(bins: list[dict[str, float]]) -> float | None:
    off = [abs(row["stated"] - row["right"]) for row in bins if row["answers"] >= 10]
    return max(off) if off else None


def text(answers: list[Answer]) -> str:
    """What is printed without ``--json``."""
    made = figures(answers)
    lines = []
    for name in (
        "accuracy",
        "accuracy_trace_only",
        "false_alarms",
        "share_error",
        "calibration_error",
    ):
        value = made[name]
        lines.append(f"{name:22} {'-' if value is None else percent(value, 1)}")
    lines.append(f"{'kind':24} {'all':>9} {'trace':>9}   of {made['scenarios']} scenarios")
    for kind, by in made["by_kind"].items():
        cells = [f"{by[name][0]}/{by[name][1]}" for name in ("all", "trace")]
        lines.append(f"{kind:24} {cells[0]:>9} {cells[1]:>9}")
    for name, bins in made["calibration"].items():
        lines.append(f"stated confidence, {name}:")
        lines += [
            f"  {row['from']:.2f}-{row['to']:.2f}: {row['answers']} answers, stated "
            f"{percent(row['stated'], 1)}, right {percent(row['right'], 1)}"
            for row in bins
        ]
    lines += [
        f"{a.number:4} {a.evidence:5} {a.kind}: said {a.cause or a.error} ({percent(a.confidence)})"
        for a in answers
        if not a.right
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=Path, help="only make cases, in this folder")
    parser.add_argument("--cases", type=int, default=CASES, help="cases of the split")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--split", choices=("build", "judge"), default="build")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--cache", type=Path, help="folder of cases to make once and use again")
    parser.add_argument("--trace-only", action="store_true", help="leave out what needs counters")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path, help="write every answer to this file (JSON)")
    options = parser.parse_args()
    if options.cases < 1 or options.first < 0 or options.seed < 0:
        parser.error("--cases must be at least 1, --first and --seed 0")
    numbers = range(options.first, options.first + options.cases)
    folder = options.make or options.cache
    folder = folder or Path(tempfile.gettempdir()) / f"tailback-blind-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    made = make_cases(
        {folder / f"{options.split}-{number:03d}": number for number in numbers},
        lambda number, path: write_case(number, options.split, options.seed, path),
        "truth/truth.json",
        version=VERSION,
        seed=options.seed,
    )
    if options.make:
        return 0
    # Without counters there is nothing to compare with the trace alone.
    asked = ["trace"] if options.trace_only else ["all", "trace"]
    answers = []
    for path in made:
        answers += [answer(path, evidence) for evidence in asked]
        if options.save:
            saved = json.dumps([asdict(each) for each in answers])
            options.save.write_text(saved, encoding="utf-8")
    print(json.dumps(figures(answers), indent=2) if options.json else text(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
