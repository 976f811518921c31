"""miniGhost: is there a rule of posting and waiting that gives all of the talk's figures?

    python -m studies.taffet2019.minighost_rules             every rule on half the network
    python -m studies.taffet2019.minighost_rules --write     also its part of the page

The SC'19 talk of Taffet and Mellor-Crummey gives three figures of communication time: 2.9× less by
tiling, 60 % less by small phases with one sum a time step, "nearly 5×" by both. Every rule is
simulated on 12 of the 24 leaves with 36 × 32 × 12 ranks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from bench._pages import put
from studies.taffet2019.case_minighost import communication
from studies.taffet2019.case_model import example
from studies.taffet2019.case_reasons import Change, engine, nothing, pattern
from studies.taffet2019.reproduction import PAGE
from tailback import Scenario, simulate
from tailback.units import format_time, percent

LEAVES: Final = 12
"""Of the network, 32 nodes each; the talk's has 24."""

TILING: Final = 2.9
SAVED: Final = 0.6
TOGETHER: Final = 5.0
TOLERANCE: Final = 0.1
"""A figure counts as met within a tenth: the talk gives one or two digits, and "nearly"."""

RUNS: Final = (
    ("block", "bspma", "variable"),
    ("tile", "bspma", "variable"),
    ("tile", "svaf", "variable"),
    ("tile", "svaf", "step"),
)
"""Placement, messages, and sums of: linear, tiled, small phases, one sum a time step."""


@dataclass(frozen=True)
class Times:
    """Communication time of the four runs, picoseconds."""

    linear: float
    tiled: float
    small: float
    step: float

    @property
    def tiling(self) -> float:
        """How many times less by tiling."""
        return self.linear / self.tiled

    @property
    def together(self) -> float:
        """How many times less by tiling and the change of communication."""
        return self.linear / self.step

    def readings(self) -> dict[str, float]:
        """The "60 %" as each of three readings of the slide has it, as a share of 1."""
        return {
            "of tiled": 1 - self.step / self.tiled,
            "of small phases": 1 - self.step / self.small,
            "faster than tiled": self.tiled / self.step - 1,
        }

    def met(self, reading: str) -> int:
        """How many of the three figures are met."""
        pairs = (
            (self.tiling, TILING), (self.readings()[reading], SAVED), (self.together, TOGETHER),
        )  # fmt: skip
        return sum(abs(ours / theirs - 1) <= TOLERANCE for ours, theirs in pairs)

    def distance(self, reading: str) -> float:
        """Largest relative difference of the three figures."""
        return max(
            abs(self.tiling / TILING - 1), abs(self.readings()[reading] / SAVED - 1),
            abs(self.together / TOGETHER - 1),
        )  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One rule: its name and what it changes of the example."""

    name: str
    changes: tuple[Change, ...] = ()


def adaptive(**options: Any) -> Change:
    """Settings of section ``[engine.adaptive]``."""

    def change(scenario: Scenario) -> None:
        for name, value in options.items():
            setattr(scenario.engine.adaptive, name, value)

    return change


def ranks_a_node(number: int, *shape: float) -> Change:
    """Another number of ranks on each node, with its grid as many times larger as ``shape``."""

    def change(scenario: Scenario) -> None:
        job = scenario.job[0]
        assert job.pattern is not None
        job.ranks_per_host = number
        job.pattern["dims"] = [
            int(extent * by) for extent, by in zip(job.pattern["dims"], shape, strict=True)
        ]

    return change


SINGLE: Final = (
    Rule("adaptive by queue and credit, random or lowest port (CODES)",
         (adaptive(load="queue-and-credit", ties="random-or-lowest"),)),
    Rule("adaptive per message", (adaptive(per="message"),)),
    Rule("18 ranks a node", (ranks_a_node(18, 1, 0.5, 1),)),
)  # fmt: skip


def combinations() -> list[Rule]:
    """Waiting, order of axes, completion, adapter and buffer, where single changes came nearest."""
    chosen = [
        ("direction", "yxz", "delivered", "fifo", 64),
        ("axis", "yxz", "delivered", "fifo", 64),
        ("exchange", "yxz", "delivered", "fifo", 64),
        ("axis", "zyx", "local", "fifo", 128),
        ("exchange", "zyx", "local", "fifo", 128),
    ]
    rules = []
    for wait, order, completion, injection, buffer in chosen:
        name = f"wait by {wait}, order {order}, {completion}, {injection}, {buffer} KiB"
        changes = (
            pattern(0, wait=wait, order=order, completion=completion),
            engine(injection=injection, buffer=buffer * 1024),
        )
        rules.append(Rule(name, changes))
    return rules


RULES: Final = (*combinations(), *SINGLE)


def scenario(rule: Rule, run: tuple[str, str, str], leaves: int) -> Scenario:
    """One of the four runs under a rule, on so many leaves of 32 nodes."""
    made = example("minighost/step.toml")
    job = made.job[0]
    assert job.pattern is not None
    job.placement, method, sums = run
    job.hosts = f"0-{32 * leaves - 1}"
    job.pattern.update(dims=[36, 32, leaves], method=method, sums=sums)
    for change in rule.changes:
        change(made)
    return made


def measure(rule: Rule, leaves: int) -> Times:
    """The four communication times under a rule."""
    return Times(*(communication(simulate(scenario(rule, run, leaves))) for run in RUNS))


def measure_number(which: tuple[int, int]) -> Times:
    """A rule by its number in ``RULES`` (-1: the example): the argument of a separate process."""
    number, leaves = which
    return measure(EXAMPLE if number < 0 else RULES[number], leaves)


EXAMPLE: Final = Rule("as the example", (nothing,))


def cells(name: str, times: Times) -> str:
    """A line of the table."""
    by = times.readings()
    met = ", ".join(str(times.met(reading)) for reading in by)
    shares = " | ".join(percent(share) for share in by.values())
    return (
        f"| {name} | {format_time(times.linear)} | {times.tiling:.2f}× | {shares} "
        f"| {times.together:.2f}× | {met} |"
    )


def table(rows: Iterable[tuple[str, Times]]) -> str:
    """Every rule in Markdown."""
    names = Times(1, 1, 1, 1).readings()
    head = (
        f"| rule | linear | linear ÷ tiled | {' | '.join(f'saved, {n}' for n in names)} "
        "| together | met, by reading |"
    )
    return "\n".join([head, "|---" * 7 + "|", *(cells(name, times) for name, times in rows)])


def summary(small: Sequence[tuple[str, Times]]) -> str:
    """What the ensemble says, computed from it."""
    lines = [
        f"* If all three figures are of the same runs, 2.9× and 60 % less make "
        f"{TILING / (1 - SAVED):.2f}×, not nearly 5×; 2.9× and “60 % faster” make "
        f"{TILING * (1 + SAVED):.2f}×.",
    ]
    for reading in Times(1, 1, 1, 1).readings():
        best = min(small, key=lambda one: one[1].distance(reading))
        most = max(times.met(reading) for _, times in small)
        count = sum(times.met(reading) == 3 for _, times in small)
        lines.append(
            f"* “60 %” {reading}: {count} of {len(small)} rules meet all three within "
            f"{percent(TOLERANCE)}, the best meet {most}. Closest: {best[0]}, "
            f"{best[1].tiling:.2f}×, {percent(best[1].readings()[reading])}, "
            f"{best[1].together:.2f}×."
        )
    return "\n".join(lines)


def main() -> None:
    """Print the tables; write the page on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="rules tried at once")
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    arguments = parser.parse_args()
    small: list[tuple[str, Times]] = []
    numbers = range(-1, len(RULES))
    names = [EXAMPLE.name, *(rule.name for rule in RULES)]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name, times in zip(
            names, pool.map(measure_number, [(n, LEAVES) for n in numbers]), strict=True
        ):
            small.append((name, times))
            print(cells(name, times), flush=True)
    parts = {
        "minighost rules": table(small),
        "minighost rules summary": summary(small),
    }
    for name, text in parts.items():
        print(f"\n{name}\n{text}\n", flush=True)
    if arguments.write:
        put(PAGE, parts)


if __name__ == "__main__":
    main()
