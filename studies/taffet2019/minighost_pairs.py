"""miniGhost: do two rules together give all of the talk's figures?

    python -m studies.taffet2019.minighost_pairs --write           the page: three simulated
    python -m studies.taffet2019.minighost_pairs --simulate 0      predictions alone

Rules are those of ``case_reasons --case minighost``. If two rules act independently, their factors
of both ratios multiply: that predicts every pair from the table of single rules. Pairs that may
meet all three figures by that prediction can be simulated at full size, and others drawn at random,
which show how far the prediction can be relied on.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np

from measuring import cpu_seconds, put
from studies.taffet2019.case_reasons import MINIGHOST, Setting, minighost
from studies.taffet2019.minighost_rules import TOLERANCE, Outcome, outcomes
from studies.taffet2019.reproduction import PAGE
from tailback import Scenario
from tailback.units import percent

READING: Final = "as much faster"
"""The only reading of the "60 %" under which the talk's figures can be of the same runs."""
NEAR: Final = 0.15
"""Pairs are listed whose predicted figures are all this near: half more than what counts as met,
for the error of the prediction."""
DRAWN: Final = 8
SIMULATED: Final = 3
"""As many as the page has, so that its command makes the same table again."""

SAME: Final = {
    "buffers of 32 KiB": "buffer",
    "buffers of 128 KiB": "buffer",
    "buffers of 512 KiB (more than a message)": "buffer",
    "adapter takes turns, buffers of 128 KiB": "buffer",
    "axes in the order x, y, z": "order",
    "axes in the order z, y, x": "order",
    "random instead of adaptive routing": "routing",
    "fixed instead of adaptive routes": "routing",
    "grid of 48 × 24 × 24": "grid",
    "grid of 24 × 32 × 36": "grid",
    "no computation between": "compute",
    "computation up to 5 % longer at random": "compute",
}
"""Rules that change the same setting, which cannot be combined."""


@dataclass(frozen=True)
class Pair:
    """Two rules, and what the single ones predict of both together."""

    settings: tuple[Setting, Setting]
    predicted: Outcome


def pairs() -> list[Pair]:
    """Every pair of rules that can be combined."""
    base, *single = outcomes()
    rules = dict(zip((rule.name for rule in MINIGHOST[1:]), MINIGHOST[1:], strict=True))
    if [outcome.name for outcome in single] != list(rules):
        raise SystemExit("the table of single rules is not of these rules: run case_reasons first")
    combined = []
    for outcome, other in itertools.combinations(single, 2):
        if SAME.get(outcome.name, outcome.name) == SAME.get(other.name, other.name):
            continue
        if "adapter takes turns" in outcome.name and "adapter takes turns" in other.name:
            continue
        tiling = outcome.tiling * other.tiling / base.tiling
        together = outcome.together * other.together / base.together
        predicted = Outcome(f"{outcome.name}; {other.name}", tiling, together)
        combined.append(Pair((rules[outcome.name], rules[other.name]), predicted))
    return combined


def chosen(every: list[Pair], drawn: int) -> tuple[list[Pair], list[Pair]]:
    """Pairs that may meet the figures, nearest first, and some of the others."""
    order = sorted(every, key=lambda pair: pair.predicted.distance(READING))
    near = [pair for pair in order if pair.predicted.distance(READING) <= NEAR]
    far = order[len(near) :]
    picked = np.random.default_rng(24).choice(len(far), min(drawn, len(far)), replace=False)
    return near, [far[number] for number in sorted(picked.tolist())]


def simulated(pair: Pair) -> Outcome:
    """The three runs of a pair."""

    def change(scenario: Scenario) -> None:
        for setting in pair.settings:
            setting.change(scenario)

    outcome = minighost(Setting(pair.predicted.name, change))
    return Outcome(outcome.name, outcome.value, float(outcome.cells[-1].rstrip("×")))


def figures(outcome: Outcome) -> str:
    """The three figures in one cell, those that are met in bold."""
    texts = (
        f"{outcome.tiling:.2f}×",
        percent(outcome.readings()[READING]),
        f"{outcome.together:.2f}×",
    )
    return ", ".join(
        f"**{text}**" if met else text
        for text, met in zip(texts, outcome.met(READING), strict=True)
    )


def rows(near: list[Pair], others: list[Pair], simulate: int) -> tuple[str, str]:
    """The table, and what it says, in Markdown.

    Args:
        near: Pairs that may meet the figures, nearest first.
        others: Pairs drawn from the others.
        simulate: How many pairs are simulated, in this order.
    """
    lines = ["| two rules | why listed | predicted | simulated |", "|---" * 4 + "|"]
    checked: list[tuple[Pair, Outcome]] = []
    for number, pair in enumerate([*near, *others]):
        cell = "–"
        if number < simulate:
            checked.append((pair, simulated(pair)))
            cell = figures(checked[-1][1])
        why = "predicted near" if number < len(near) else "drawn"
        lines.append(f"| {pair.predicted.name} | {why} | {figures(pair.predicted)} | {cell} |")
        print(lines[-1], flush=True)
    return "\n".join(lines), summary(near, checked)


def summary(near: list[Pair], checked: list[tuple[Pair, Outcome]]) -> str:
    """How many meet all three, which is nearest, and how good the predictions were."""
    full = sum(all(pair.predicted.met(READING)) for pair in near)
    said = (
        f"{len(pairs())} pairs of rules can be combined. {len(near)} are predicted to be within "
        f'{percent(NEAR)} of all three figures, "60 %" read as 60 % faster, and {full} within '
        f"{percent(TOLERANCE)}. {len(checked)} were simulated at full size"
    )
    if not checked:
        return f"{said}."
    met = sum(all(outcome.met(READING)) for _, outcome in checked)
    best = min((outcome for _, outcome in checked), key=lambda outcome: outcome.distance(READING))
    off = [
        max(
            abs(outcome.tiling / pair.predicted.tiling - 1),
            abs(outcome.together / pair.predicted.together - 1),
        )
        for pair, outcome in checked
    ]
    return (
        f"{said}, of which {met} meet all three. Closest: {best.name}, with {figures(best)}. The "
        f"predicted ratios differ from the simulated ones by {percent(float(np.median(off)))} in "
        f"the median and {percent(max(off))} at most. {cpu_seconds():.0f} s of processor time."
    )


def main() -> None:
    """Print the pairs; simulate them and write the page on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--drawn", type=int, default=DRAWN, help="pairs drawn at random")
    parser.add_argument(
        "--simulate",
        type=int,
        default=SIMULATED,
        metavar="N",
        help="simulate the first N pairs, 24 s of processor time each",
    )
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    table, said = rows(*chosen(pairs(), arguments.drawn), arguments.simulate)
    print(said)
    if arguments.write:
        put(PAGE, {"minighost pairs": table, "minighost pairs summary": said})


if __name__ == "__main__":
    main()
