r"""What ranking slow cables in coarse packets saves of a diagnosis, and whether the answer stays.

    python bench/blind.py --make DIR --first 66 --cases 1 --seed 311
    python bench/coarse_hypotheses.py --trace-only DIR/build-066

Each case is diagnosed without and with the ranking, alternately, in processes of their own. Prints
user and system CPU seconds of both, the ratio, the number of simulations in full packets, and the
cause, its confidence and the costs where they differ.
"""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path
from typing import Any

from _diagnosed import compare_cases, diagnose_here, diagnosed
from blind import arguments

import tailback.inference.search as attempts
from tailback.units import percent


def child(command: list[str], folder: Path, whole: bool) -> None:
    """Diagnose a case, without the ranking if ``whole``."""
    if whole:
        setattr(attempts, "MIN_SUSPECTS", sys.maxsize)  # noqa: B010
    diagnose_here(command, folder)


def diagnose(command: list[str], *, ranked: bool) -> dict[str, Any]:
    """CPU seconds, without the start of the interpreter, and the answer."""
    done = diagnosed(__file__, command, changed=not ranked)
    read = done["diagnosis"]
    explained = read["explanation"]
    ranking = [one for one in explained["sources"] if "coarse packets" in one]
    return {
        "cpu_s": done["cpu_s"],
        "simulations": done["simulations"],
        "ranking": ranking[0] if ranking else "",
        "answer": {
            "cause": read["cause"],
            "confidence": read["confidence"],
            "headline": read["headline"],
            "costs": {one["cause"]: one["share"] for one in explained["costs"]},
        },
    }


def measure(case: Path, evidence: str, known: list[str], pairs: int) -> dict[str, Any]:
    """Both ways of diagnosing a case, alternately."""
    command = arguments(case, evidence, known)
    runs = [(diagnose(command, ranked=False), diagnose(command, ranked=True)) for _ in range(pairs)]
    ratios = [with_it["cpu_s"] / whole["cpu_s"] for whole, with_it in runs]
    whole, ranked = runs[0]
    return {
        "case": case.name,
        "evidence": evidence,
        "whole": whole,
        "ranked": ranked,
        "ratios": ratios,
        "same": whole["answer"] == ranked["answer"],
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The pairs in Markdown."""
    lines = [
        "| case, evidence | cables, ruled out in coarse packets | simulations | CPU s "
        "| ratio (pairs) | answer |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        whole, ranked = row["whole"], row["ranked"]
        cables = re.findall(r"of (\d+) cables, (\d+) were", ranked["ranking"])
        pairs = len(row["ratios"])
        cells = [
            f"{row['case']}, {row['evidence']}",
            ", ".join(cables[0]) if cables else "not ranked",
            f"{whole['simulations']}, {ranked['simulations']}",
            f"{whole['cpu_s']:.1f}, {ranked['cpu_s']:.1f}",
            f"{statistics.median(row['ratios']):.2f} ({pairs})",
            _compared(whole, ranked),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _compared(whole: dict[str, Any], ranked: dict[str, Any]) -> str:
    """The answer, and what of it differs."""
    before, after = whole["answer"], ranked["answer"]
    cause, sure = before["cause"], percent(before["confidence"], 1)
    if before == after:
        return f"{cause}, {sure}: same"
    other = f"{after['cause']}, {percent(after['confidence'], 1)}"
    names = {*before["costs"], *after["costs"]}
    apart = max(
        (abs(before["costs"].get(n, 0.0) - after["costs"].get(n, 0.0)) for n in names), default=0.0
    )
    headline = "same headline" if before["headline"] == after["headline"] else "other headline"
    return f"{cause}, {sure}; {other}; costs differ by {percent(apart, 2)}, {headline}"


if __name__ == "__main__":
    sys.exit(compare_cases(__doc__, child, measure, table))
