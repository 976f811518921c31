"""miniGhost: does any rule of posting, waiting or routing give all of the talk's figures?

    python -m studies.taffet2019.minighost_rules --write

The SC'19 talk of Taffet and Mellor-Crummey gives three figures of communication time: 2.9× less by
tiling, 60 % less by small phases with one sum a time step, "nearly 5×" by both. They are compared
with every rule of ``case_reasons --case minighost``, whose table in README.md is read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from measuring import put
from studies.published.index import table_rows
from studies.taffet2019.reproduction import PAGE
from tailback.units import parse_time_ps, percent

TILING: Final = 2.9
SAVED: Final = 0.6
TOGETHER: Final = 5.0
TOLERANCE: Final = 0.1
"""A figure counts as met within a tenth: the talk gives one or two digits, and "nearly"."""


@dataclass(frozen=True)
class Outcome:
    """What a rule gives.

    Attributes:
        name: The rule.
        tiling: How many times less communication time by tiling.
        together: How many times less by tiling and the change of communication.
    """

    name: str
    tiling: float
    together: float

    def readings(self) -> dict[str, float]:
        """The "60 %" as two readings of the slide have it: time saved, and speed gained."""
        ratio = self.together / self.tiling
        return {"less time": 1 - 1 / ratio, "as much faster": ratio - 1}

    def met(self, reading: str) -> list[bool]:
        """Which of the three figures are met."""
        pairs = (
            (self.tiling, TILING),
            (self.readings()[reading], SAVED),
            (self.together, TOGETHER),
        )
        return [abs(ours / theirs - 1) <= TOLERANCE for ours, theirs in pairs]

    def distance(self, reading: str) -> float:
        """Largest relative difference of the three figures."""
        return max(
            abs(self.tiling / TILING - 1),
            abs(self.readings()[reading] / SAVED - 1),
            abs(self.together / TOGETHER - 1),
        )


def outcomes() -> list[Outcome]:
    """Every rule, from the table of reasons: linear and tiled time, and both changes together."""
    _, rows = table_rows("taffet2019/minighost reasons")
    return [
        Outcome(name, parse_time_ps(linear) / parse_time_ps(tiled), float(together.rstrip("×")))
        for name, linear, tiled, _, _, together in rows
    ]


def table(ensemble: Sequence[Outcome]) -> str:
    """Every rule in Markdown, with a mark at each figure that is met."""
    names = tuple(Outcome("", 1, 1).readings())
    head = f"| rule | linear ÷ tiled | {' | '.join(f'60 %, {n}' for n in names)} | together |"
    lines = [head, "|---" * 5 + "|"]
    for outcome in ensemble:
        met = {name: outcome.met(name) for name in names}

        def marked(text: str, yes: bool) -> str:
            return f"**{text}**" if yes else text

        first = met[names[0]]
        shares = [marked(percent(outcome.readings()[name]), met[name][1]) for name in names]
        lines.append(
            f"| {outcome.name} | {marked(f'{outcome.tiling:.2f}×', first[0])} "
            f"| {' | '.join(shares)} | {marked(f'{outcome.together:.2f}×', first[2])} |"
        )
    return "\n".join(lines)


def summary(ensemble: Sequence[Outcome]) -> str:
    """What the ensemble says, computed from it."""
    lines = [
        f"* Of the same runs, 2.9× and 60 % less time make {TILING / (1 - SAVED):.2f}×, not nearly "
        f"5×: no rule can give all three. 2.9× and 60 % faster make {TILING * (1 + SAVED):.2f}×.",
    ]
    for reading in Outcome("", 1, 1).readings():
        best = min(ensemble, key=lambda outcome: outcome.distance(reading))
        most = max(sum(outcome.met(reading)) for outcome in ensemble)
        count = sum(all(outcome.met(reading)) for outcome in ensemble)
        lines.append(
            f"* Read as {reading}: {count} of {len(ensemble)} rules meet all three within "
            f"{percent(TOLERANCE)}, the best meet {most}. Closest: {best.name}, with "
            f"{best.tiling:.2f}×, {percent(best.readings()[reading])} and {best.together:.2f}×."
        )
    return "\n".join(lines)


def main() -> None:
    """Print the tables; write the page on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    ensemble = outcomes()
    parts = {"minighost rules summary": summary(ensemble), "minighost rules": table(ensemble)}
    for text in parts.values():
        print(f"{text}\n")
    if arguments.write:
        put(PAGE, parts)


if __name__ == "__main__":
    main()
