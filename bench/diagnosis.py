r"""How often the diagnosis is right, by number of packets, scheme and knowledge.

    python bench/diagnosis.py --split judge --scheme full --packets 1000000 --json
    python bench/diagnosis.py --split judge --packets 1000000 10000 1000 \
        --scheme full coordinated --know own samples rough --write
                                               also writes docs/measurements/accuracy.md

The scenarios and their labels are those of ``diagnosis_suite``. The diagnosis gets what a user has
(``diagnosis_observe``): the samples of its own packets, its own messages, and a level of knowledge:

samples  nothing can be simulated
own      the own job on the network as it should be can: no other job, no slow cable is known
rough    the same, but with the simulator's default buffers, packet size and injection, which are
         not those of most scenarios: a model that is wrong in detail
all      everything can, the other jobs and slow cables included
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from _shared import put
from diagnosis_observe import SCHEMES, carrying, join, known_to_user, observe, thin, what_if
from diagnosis_suite import LABELS, Case, make

from tailback import Scenario
from tailback.diagnosis import diagnose_cause
from tailback.run.run import Run
from tailback.scenario.engine import EngineSection
from tailback.simulation import decode_samples, prepare
from tailback.units import percent

COUNT = 420
KNOWLEDGE = ("samples", "own", "rough", "all")
ONCE = ("rough", "all")
"""Measured only with most packets and the first scheme, because the samples matter little here."""

SEEDS = 2
PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"


@dataclass(frozen=True)
class Answer:
    """The diagnosis of one scenario, observed in one way."""

    number: int
    label: str
    kind: str
    routing: str
    scheme: str
    packets: int
    knowledge: str
    cause: str
    confidence: float
    basis: str
    headline: str
    seconds: float
    saved: dict[str, float]
    rejected: int

    @property
    def right(self) -> bool:
        """Whether it is the label."""
        return self.cause == self.label

    @property
    def stated(self) -> bool:
        """Whether a cause is stated, and not undetermined."""
        return self.cause != "undetermined"


@dataclass(frozen=True)
class Ask:
    """Ways of observing that are measured on every scenario."""

    packets: Sequence[int]
    schemes: Sequence[str]
    knowledge: Sequence[str]


def known_scenario(case: Case, knowledge: str) -> Scenario:
    """The scenario as it is known."""
    if knowledge == "all":
        return case.scenario
    scenario = case.as_known()
    if knowledge == "rough":
        engine = EngineSection(routing=scenario.engine.routing)
        scenario = scenario.model_copy(update={"engine": engine})
    return scenario


def answers(number: int, ask: Ask) -> list[Answer]:
    """All measurements of one scenario; empty if no draw of it was confirmed."""
    try:
        case = make(number)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return []
    out = []
    most = max(ask.packets)
    for scheme in ask.schemes:
        run, executions = executed(case, scheme, most)
        for packets in ask.packets:
            seen = as_seen(case, run, packets)
            for knowledge in ask.knowledge:
                once = packets == most and scheme == ask.schemes[0]
                if knowledge in ONCE and not once:
                    continue
                out.append(answer(case, seen, executions, scheme, packets, knowledge))
    return out


def executed(case: Case, scheme: str, packets: int) -> tuple[Run, int]:
    """Executions of a case until that many packets were sent, joined to one run; how many."""
    runs = observe(case, packets, scheme)
    return join(runs, carrying(case.as_known(), scheme)), len(runs)


def as_seen(case: Case, run: Run, packets: int) -> Run:
    """The joined run as its user sees it if that many packets carry samples."""
    fabric = prepare(case.as_known()).fabric
    return known_to_user(decode_samples(thin(run, packets, case.number), fabric))


def answer(
    case: Case, seen: Run, executions: int, scheme: str, packets: int, knowledge: str
) -> Answer:
    """Diagnose one scenario, observed in one way."""
    scenario = carrying(known_scenario(case, knowledge), scheme)
    run = Run(scenario, seen.tables, seen.summary)
    began = time.perf_counter()
    if knowledge == "samples":
        diagnosis = diagnose_cause(run)
    else:
        evaluate, placements = what_if(scenario, executions)
        diagnosis = diagnose_cause(run, evaluate, placements=placements, seeds=SEEDS)
    return Answer(
        number=case.number,
        label=case.label,
        kind=case.kind,
        routing=case.scenario.engine.routing,
        scheme=scheme,
        packets=packets,
        knowledge=knowledge,
        cause=diagnosis.cause,
        confidence=diagnosis.confidence,
        basis=diagnosis.basis,
        headline=diagnosis.headline,
        seconds=time.perf_counter() - began,
        saved={name: round(value, 4) for name, value in case.saved.items()},
        rejected=case.rejected,
    )


def run_all(split: str, first: int, count: int, ask: Ask, jobs: int) -> list[Answer]:
    """The scenarios of a split from a number on."""
    numbers = [n for n in range(first, count) if (n % 2 == 1) == (split == "judge")]
    if jobs == 1:
        return [verdict for number in numbers for verdict in answers(number, ask)]
    # Spawned, not forked: polars has threads. Scenarios are many and small, so one each will do.
    for variable in ("POLARS_MAX_THREADS", "TAILBACK_THREADS"):
        os.environ.setdefault(variable, "1")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        batches = pool.map(partial(answers, ask=ask), numbers, chunksize=2)
        return [verdict for many in batches for verdict in many]


# --- figures ---------------------------------------------------------------------------------


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a proportion (Wilson, 1927)."""
    if not total:
        return 0.0, 1.0
    share, c = right / total, z * z / total
    middle = (share + c / 2) / (1 + c)
    half = z / (1 + c) * np.sqrt(share * (1 - share) / total + c / (4 * total))
    return float(middle - half), float(middle + half)


def figures(verdicts: list[Answer]) -> dict[str, object]:
    """Accuracy, confusion and calibration of answers of one kind."""
    right, total = sum(a.right for a in verdicts), len(verdicts)
    confusion = Counter((a.label, a.cause) for a in verdicts)
    causes = [*LABELS, "undetermined"]
    return {
        "scheme": verdicts[0].scheme,
        "packets": verdicts[0].packets,
        "knowledge": verdicts[0].knowledge,
        "scenarios": total,
        "right": right,
        "accuracy": right / total,
        "accuracy_95": wilson(right, total),
        "confusion": {
            label: {c: confusion[label, c] for c in causes if confusion[label, c]}
            for label in LABELS
        },
        "by_fabric": {
            kind: [sum(a.right for a in verdicts if a.kind == kind), n]
            for kind, n in sorted(Counter(a.kind for a in verdicts).items())
        },
        "calibration": calibration(verdicts),
        "calibration_error": expected_error(calibration(verdicts)),
        "squared_error": float(np.mean([(a.confidence - a.right) ** 2 for a in verdicts])),
        "mean_seconds": float(np.mean([a.seconds for a in verdicts])),
        "misses": [
            {k: v for k, v in asdict(a).items() if k not in ("scheme", "packets", "knowledge")}
            for a in verdicts
            if not a.right
        ],
    }


def calibration(verdicts: Iterable[Answer]) -> list[dict[str, float]]:
    """Reliability: stated confidence against how often it was right, in bins of confidence."""
    edges = [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0001]
    out = []
    listed = list(verdicts)
    for low, high in pairwise(edges):
        inside = [a for a in listed if low <= a.confidence < high]
        if inside:
            right = sum(a.right for a in inside)
            out.append(
                {
                    "from": low,
                    "to": min(high, 1.0),
                    "answers": len(inside),
                    "stated": float(np.mean([a.confidence for a in inside])),
                    "right": right / len(inside),
                    "right_low": wilson(right, len(inside))[0],
                    "right_high": wilson(right, len(inside))[1],
                }
            )
    return out


def expected_error(bins: Iterable[dict[str, float]]) -> float:
    """Mean difference of stated confidence and share of right answers, weighted by answers."""
    bins = list(bins)
    total = sum(b["answers"] for b in bins)
    return sum(b["answers"] * abs(b["stated"] - b["right"]) for b in bins) / max(total, 1)


def groups(verdicts: list[Answer]) -> list[list[Answer]]:
    """Answers by way of observing."""
    keys = dict.fromkeys((a.knowledge, a.scheme, a.packets) for a in verdicts)
    return [
        [a for a in verdicts if (a.knowledge, a.scheme, a.packets) == key] for key in sorted(keys)
    ]


def text(verdicts: list[Answer]) -> str:
    """What is printed without ``--json``."""
    lines = []
    for part in groups(verdicts):
        f = figures(part)
        low, high = f["accuracy_95"]  # type: ignore[misc]
        lines.append(
            f"{f['knowledge']}, {f['scheme']}, {f['packets']} packets: {percent(f['accuracy'], 1)} "
            f"({percent(low, 1)}–{percent(high, 1)}) of {f['scenarios']} scenarios; "
            f"calibration error {percent(f['calibration_error'], 1)}, "
            f"mean squared error {f['squared_error']:.3f}"
        )
        for label, row in f["confusion"].items():  # type: ignore[attr-defined]
            lines.append(f"    {label:14} {row}")
        lines += [
            f"    {a.number}: {a.label}, said {a.cause} ({percent(a.confidence)}, {a.kind}, "
            f"{a.routing}): {a.headline}"
            for a in part
            if not a.right and len(part) - sum(b.right for b in part) <= 25
        ]
    return "\n".join(lines)


def block(verdicts: list[Answer]) -> str:
    """The measured part of the page: accuracy, misses, and confidence against right answers."""
    parts = groups(verdicts)
    lines = [
        "| known | scheme | packets | right | 95 % interval | undetermined | calibration error |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for part in parts:
        f = figures(part)
        low, high = f["accuracy_95"]  # type: ignore[misc]
        lines.append(
            f"| {f['knowledge']} | {f['scheme']} | {f['packets']:,} | {f['right']} of "
            f"{f['scenarios']} | {percent(low, 1)}–{percent(high, 1)} | "
            f"{sum(not a.stated for a in part)} | {percent(f['calibration_error'], 1)} |"
        )
    return "\n".join([*lines, "", *miss_table(parts), "", *calibration_table(verdicts)])


def miss_table(parts: Sequence[Sequence[Answer]]) -> list[str]:
    """Every wrong answer with most packets, and the counterfactual times of its scenario."""
    most = max(part[0].packets for part in parts)
    out = [
        "| known | scenario | fabric, routing | built in | said | sure | saved by taking away |",
        "|---|---:|---|---|---|---:|---|",
    ]
    wrong = [a for part in parts for a in part if a.stated and not a.right and a.packets == most]
    for a in wrong:
        saved = ", ".join(
            f"{name} {percent(value)}"
            for name, value in sorted(a.saved.items(), key=lambda item: -item[1])
            if name in LABELS and value >= 0.02
        )
        out.append(
            f"| {a.knowledge} | {a.number} | {a.kind}, {a.routing} | {a.label} | {a.cause} | "
            f"{percent(a.confidence)} | {saved or 'nothing'} |"
        )
    return out


def calibration_table(verdicts: Sequence[Answer]) -> list[str]:
    """Stated confidence against the share of right answers."""
    out = [
        "| stated | answers | mean stated | right | 95 % interval |",
        "|---|---:|---:|---:|---:|",
    ]
    out += [
        f"| {percent(b['from'])}–{percent(b['to'])} | {b['answers']:.0f} | "
        f"{percent(b['stated'], 1)} | {percent(b['right'], 1)} | "
        f"{percent(b['right_low'], 1)}–{percent(b['right_high'], 1)} |"
        for b in calibration(a for a in verdicts if a.stated)
    ]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--split", choices=("build", "judge"), default="build")
    parser.add_argument("--count", type=int, default=COUNT, help="scenarios of both splits")
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--packets", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--scheme", choices=SCHEMES, nargs="+", default=["full"])
    parser.add_argument("--know", choices=KNOWLEDGE, nargs="+", default=["own"])
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="update the measured page")
    parser.add_argument("--from", dest="saved", type=Path, nargs="+", help="answers saved before")
    parser.add_argument("--save", type=Path, help="write every answer to this file (JSON)")
    options = parser.parse_args()
    if options.count < 2 or min(options.packets) < 100 or options.jobs < 1:
        parser.error("--count must be at least 2, --packets 100, --jobs 1")
    ask = Ask(sorted(options.packets, reverse=True), options.scheme, options.know)
    if options.saved:
        texts = [path.read_text(encoding="utf-8") for path in options.saved]
        verdicts = [Answer(**row) for text in texts for row in json.loads(text)]
    else:
        verdicts = run_all(options.split, options.first, options.count, ask, options.jobs)
    if options.save:
        options.save.write_text(json.dumps([asdict(a) for a in verdicts]), encoding="utf-8")
    if options.write:
        put(PAGE, {"measured": block(verdicts)})
    if options.json:
        print(json.dumps([figures(part) for part in groups(verdicts)], indent=2))
    else:
        print(text(verdicts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
