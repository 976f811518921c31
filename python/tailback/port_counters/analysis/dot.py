"""A congestion evolution graph in Graphviz' language; time runs downwards.

It contains only numbers and the quoted title: names from files never reach Graphviz.
"""

from __future__ import annotations

import itertools
import math
from typing import Final

import polars as pl

from tailback.port_counters.analysis.evolution import Evolution
from tailback.units import counted

BANDS: Final = (
    (40.0, "#f3d9ee"),
    (50.0, "#dfa6dc"),
    (60.0, "#b96cc4"),
    (70.0, "#83409e"),
    (80.0, "#4a1f6b"),
)
"""From which percentage a colour applies: light to dark, in order of lightness."""


def colour(percent: float) -> str:
    """Colour of a feature by its largest value, ``#rrggbb``."""
    chosen = "#faf0f8"
    for start, name in BANDS:
        if percent >= start:
            chosen = name
    return chosen


def quoted(text: str) -> str:
    """Text as a quoted DOT string: one line, without markup or escapes."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


def dot_text(graph: Evolution, title: str = "", *, most: int = 20_000) -> str:
    """The graph as text for ``dot``.

    One vertex per feature, its width proportional to the square root of its extent, coloured by its
    largest value; one rank per time step. Draw it with ``dot -Tsvg``.

    Args:
        graph: The graph.
        title: Shown above it.
        most: Maximum number of features; beyond it, the evolutions with the largest values are kept
            and the title says so.

    Returns:
        The text.
    """
    features = graph.features
    note = ""
    if features.height > most:
        ranked = (
            features.group_by("evolution")
            .agg(worst=pl.col("maximum").max(), n=pl.len())
            .sort("worst", "evolution", descending=[True, False])
        )
        kept = ranked.filter(ranked["n"].cum_sum() <= most)["evolution"]
        features = features.filter(features["evolution"].is_in(kept.implode()))
        note = f" (the worst {features.height} of {graph.features.height} features)"
    lines = [
        "digraph congestion {",
        "  rankdir=TB; newrank=true; nodesep=0.08; ranksep=0.16;",
        f"  labelloc=t; label={quoted((title or 'congestion evolution') + note)};",
        '  node [shape=circle, style=filled, fixedsize=true, fontsize=7, label="", penwidth=0.4];',
        "  edge [arrowsize=0.3, penwidth=0.5];",
    ]
    steps = sorted(set(features["step"].to_list()))
    lines += [
        f'  t{step} [shape=plaintext, style="", width=0.8, label="{step}"];' for step in steps
    ]
    lines += [f"  t{a} -> t{b} [style=invis];" for a, b in itertools.pairwise(steps)]
    by_step: dict[int, list[int]] = {}
    for row in features.iter_rows(named=True):
        number, size = row["feature"], 0.12 + 0.08 * math.sqrt(row["extent"])
        dark = row["maximum"] >= 70
        lines.append(
            f'  f{number} [width={size:.2f}, fillcolor="{colour(row["maximum"])}", '
            f'label="{row["extent"]}", fontcolor="{"white" if dark else "black"}", '
            f'tooltip="feature {number}: {counted(row["extent"], "link")}, '
            f'{"at least" if row["at_least"] else "at most"} {row["maximum"]:.1f} %"];'
        )
        by_step.setdefault(row["step"], []).append(number)
    for step, numbers in by_step.items():
        same = "; ".join(f"f{number}" for number in numbers)
        lines.append(f"  {{ rank=same; t{step}; {same}; }}")
    present = set(features["feature"].to_list())
    for source, target in graph.edges.iter_rows():
        if source in present:
            lines.append(f"  f{source} -> f{target};")
    return "\n".join([*lines, "}", ""])
