r"""What it saves a diagnosis of a measured run that nothing is simulated twice.

    python bench/blind.py --make DIR --first 4 --cases 1 --split judge --seed 311
    python bench/known_hypotheses.py DIR/judge-004

Each case is diagnosed alternately without and with what is remembered, in processes of their own:
predictions of hypotheses, repetitions in which no packet has a choice, runs of the search that are
steps of the waterfall, and converted forwarding tables. Simulations record no more than what is
compared with the evidence. Prints user and system CPU seconds of both, simulations, peak memory
and whether ``diagnosis.json`` is the same.
"""

from __future__ import annotations

import statistics
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from _diagnosed import compare_cases, diagnose_here, diagnosed
from _machine import machine
from blind import arguments

import tailback
import tailback.inference.search as attempts
from tailback.evaluate import Change, Evaluate
from tailback.inference.known_predictions import Conditions, KnownPredictions
from tailback.simulation import KnownRuns, make_evaluate, routes_for


def forget() -> None:
    """Make a diagnosis simulate again what it knows, and record more than it compares."""

    def again(_: Any, __: Conditions, simulate: Callable[[], tuple[Any, bool]]) -> Any:
        return simulate()[0]

    def one_path(_: Any, change: Change) -> bool:
        return change.network in ("star", "no-contention") and not change.measure

    def with_samples(*given: Any, **named: Any) -> Evaluate:
        evaluate = make_evaluate(*given, **named)
        return lambda change: evaluate(replace(change, measure=True, totals_only=False))

    def alone(*given: Any, **named: Any) -> Any:
        return replace(explained(*given, **named), others=())

    search = sys.modules[attempts.HypothesisSpace.__module__]
    diagnosing, routing = (sys.modules[one.__module__] for one in (tailback.diagnose, routes_for))
    explained = diagnosing.add_evidence
    changes = [
        (KnownPredictions, "find_or", again),
        (KnownRuns, "_is_determined", one_path),
        (attempts, "make_evaluate", with_samples),
        (search, "make_evaluate", with_samples),
        (diagnosing, "add_evidence", alone),
        (diagnosing, "has_no_probes", lambda _: False),
        (routing, "_FORWARDED", deque(maxlen=0)),
    ]
    for where, name, value in changes:
        assert hasattr(where, name), name
        setattr(where, name, value)


def child(command: list[str], folder: Path, again: bool) -> None:
    """Diagnose a case; with ``again``, without what is remembered."""
    if again:
        forget()
    diagnose_here(command, folder)


def diagnose(command: list[str], *, remembers: bool) -> dict[str, Any]:
    """CPU seconds, without the start of the interpreter, and the answer."""
    done = diagnosed(__file__, command, changed=not remembers)
    return {
        "answer": done["diagnosis"],
        "cpu_s": done["cpu_s"],
        "simulations": done["simulations"],
        "peak_mb": max(one["peak_mb"] for one in done["profile"]["stages"]),
    }


def measure(case: Path, evidence: str, known: list[str], pairs: int) -> dict[str, Any]:
    """Both ways of diagnosing a case, alternately."""
    command = arguments(case, evidence, known)
    runs = [
        tuple(diagnose(command, remembers=remembers) for remembers in (False, True))
        for _ in range(pairs)
    ]
    again, once = runs[0]
    return {
        "case": case.name,
        "evidence": evidence,
        "again": again,
        "once": once,
        "ratios": [with_it["cpu_s"] / without["cpu_s"] for without, with_it in runs],
        "same": again["answer"] == once["answer"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The pairs in Markdown."""
    lines = [
        "| case, evidence | cause | simulations | CPU s | ratio (pairs) | peak MB | answer |",
        "|---" * 7 + "|",
    ]
    for row in rows:
        again, once = row["again"], row["once"]
        cells = [
            f"{row['case']}, {row['evidence']}",
            str(once["answer"]["cause"]),
            f"{again['simulations']}, {once['simulations']}",
            f"{again['cpu_s']:.1f}, {once['cpu_s']:.1f}",
            f"{statistics.median(row['ratios']):.2f} ({len(row['ratios'])})",
            f"{again['peak_mb']:.0f}, {once['peak_mb']:.0f}",
            "same" if row["same"] else "differs",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    before, after = (sum(row[way]["cpu_s"] for row in rows) for way in ("again", "once"))
    lines.append(f"\n{before:.0f} CPU s in all, then {after:.0f} (ratio {after / before:.2f})")
    lines.append(machine())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(compare_cases(__doc__, child, measure, table))
