"""Remedies proved on generated scenarios, and those that screening by the fluid model misses.

    python bench/remedies.py --count 210 --json      by cause and by kind of remedy
    python bench/remedies.py --count 210 --write     tables in docs/measurements/accuracy.md

The scenarios are the development ones (bench/diagnosis_suite.py), with everything in them known,
including other jobs and slow cables. Candidates are proved with screening, as ``tailback diagnose``
does it, and without.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from _shared import put
from diagnosis_suite import LABELS, Case, make

from tailback.api.candidates import DEFAULT_METHODS, make_candidates
from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.model import Candidate, Remedy
from tailback.remedy import RemedyContext, find_remedy
from tailback.remedy.proof import current_placement, is_improvement
from tailback.remedy.screening import Screening, screen
from tailback.simulation import (
    FluidOptions,
    make_evaluate,
    make_fluid_evaluate,
    other_rules,
    prepare,
    simulate,
)
from tailback.units import percent

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"
SEEDS = 2
KINDS = ("placement", "pattern", "routing", "rate-control", "repair", "combined")


@dataclass(frozen=True)
class Found:
    """One scenario.

    Attributes:
        number: Number of the scenario.
        label: Cause that was built in.
        cause: The verdict.
        kind: Kind of the recommended remedy, empty without one.
        remedy: Its name.
        gain: Its proven gain, 0–1.
        gains: Largest proven gain of each kind that helps.
        proved: Candidates that were proved after screening.
        all: Candidates that were proved without.
        lost: How much longer the best after screening takes than the best of all, 0–1.
        best: Name of the best of all.
    """

    number: int
    label: str
    cause: str
    kind: str = ""
    remedy: str = ""
    gain: float = 0.0
    gains: dict[str, float] | None = None
    proved: int = 0
    all: int = 0
    lost: float = 0.0
    best: str = ""


def look(case: Case) -> Found:
    """Diagnose one scenario, and look for remedies with screening and without."""
    prepared = prepare(case.scenario)
    run = simulate(prepared)
    evaluate = make_evaluate(prepared)
    quantum = max(100_000, run.elapsed_ps // 2000)
    quick = make_fluid_evaluate(prepared, FluidOptions(windows=0, quantum_ps=quantum))
    placed, _ = make_candidates(prepared, DEFAULT_METHODS, run, lambda *_: None)
    made = {variant.name: node for variant, node in placed.items()}
    now = current_placement(run)
    screened: Screening = screen(made, quick, always=frozenset({now}))
    rules = other_rules(case.scenario)
    diagnosis = diagnose_cause(run, evaluate, placements=screened.kept, rules=rules, seeds=SEEDS)
    program = prepared.observed.program
    means = RemedyContext(evaluate, quick, screened.kept, screened.estimate_ps, program, rules)
    remedy = find_remedy(run, diagnosis, means, seeds=SEEDS).remedy
    unscreened = RemedyContext(evaluate, None, made, {}, program, rules)
    everything = find_remedy(run, diagnosis, unscreened, seeds=SEEDS).remedy
    if remedy is None or everything is None:
        return Found(case.number, case.label, diagnosis.cause)
    kept, all_ = _proved(remedy), _proved(everything)
    before = next(c for c in kept if c.name == now)
    best = {
        kind: min(
            (c for c in kept if c.kind == kind and is_improvement(c, before)),
            key=lambda c: c.elapsed_ps,
            default=None,
        )
        for kind in KINDS
    }
    first = min(all_, key=lambda c: c.elapsed_ps)
    recommended = next((c for c in kept if c.name == remedy.name), None)
    return Found(
        case.number,
        case.label,
        diagnosis.cause,
        recommended.kind if recommended else "",
        remedy.name,
        remedy.gain,
        {kind: 1 - c.elapsed_ps / before.elapsed_ps for kind, c in best.items() if c is not None},
        len(kept),
        len(all_),
        min(c.elapsed_ps for c in kept) / first.elapsed_ps - 1,
        first.name,
    )


def _proved(remedy: Remedy) -> list[Candidate]:
    return [c for c in remedy.candidates if c.proved]


def tables(scenarios: list[Found]) -> str:
    """The tables of the page."""
    lines = [
        "| built in | scenarios | a remedy is proved | recommended | its gain, median | "
        + " | ".join(f"best {kind}" for kind in KINDS[:4])
        + " |",
        "|---|---:|---:|---|---:|" + "---:|" * 4,
    ]
    for label in LABELS:
        some = [each for each in scenarios if each.label == label]
        with_remedy = [each for each in some if each.kind]
        if not some:
            continue
        kinds = sorted({each.kind for each in with_remedy})
        counts = ", ".join(f"{kind} {sum(e.kind == kind for e in with_remedy)}" for kind in kinds)
        gains = []
        for kind in KINDS[:4]:
            of = [e.gains[kind] for e in some if e.gains and kind in e.gains]
            gains.append(f"{percent(median(of))} ({len(of)})" if of else "–")
        gain = percent(median(e.gain for e in with_remedy)) if with_remedy else "–"
        lines.append(
            f"| {label} | {len(some)} | {len(with_remedy)} | {counts or '–'} | {gain} | "
            + " | ".join(gains)
            + " |"
        )
    return "\n".join([*lines, "", _missed([each for each in scenarios if each.all])])


def _missed(tried: list[Found]) -> str:
    """The savings of screening, and its cost."""
    missed = sorted((each for each in tried if each.lost > 0.02), key=lambda each: -each.lost)
    kept, candidates = sum(each.proved for each in tried), sum(each.all for each in tried)
    names = "; ".join(f"{each.number} ({each.best}, {percent(each.lost)})" for each in missed)
    return (
        f"Screening proved {kept} of {candidates} candidates. In {len(missed)} of {len(tried)} "
        "scenarios the quickest of all was left out and nothing kept comes within 2 % of it"
        + (f": {names}." if names else ".")
    )


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=210, help="scenarios, from number 0 in twos")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    scenarios = []
    for number in range(0, 2 * asked.count, 2):
        try:
            scenarios.append(look(make(number)))
        except RuntimeError as error:
            print(error, file=sys.stderr)
            continue
        print(f"{number}: {scenarios[-1]}", file=sys.stderr, flush=True)
    if asked.json:
        print(json.dumps([asdict(each) for each in scenarios], indent=2))
    else:
        print(tables(scenarios))
    if asked.write:
        put(PAGE, {"remedies": tables(scenarios)})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
