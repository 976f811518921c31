"""Times and congestion of the published simulator compared with ours, case by case.

    python -m studies.conformance.compare                      every case
    python -m studies.conformance.compare --case ring          one of them; may be repeated
    python -m studies.conformance.compare --changes            one rule at a time changed
    python -m studies.conformance.compare --write              also their page

The cases are the scenarios of this folder: ``tailback simulate studies/conformance/ring.toml`` runs
one. Published figures are those of the simulator of Taffet (2019), a public fork of CODES, run
again; ours are computed, and no setting is fitted to them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from measuring import put
from tailback import Run, Scenario, load_scenario, simulate
from tailback.units import percent

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "measurements" / "simulators.md"
README = HERE / "README.md"

TIERS = {"leaf-up": ("up", 1), "agg-down": ("down", 1), "leaf-down": ("down", 0)}
"""Direction and tier of links: leaf to aggregation, aggregation to leaf, leaf to node."""

TIME_AIM = 0.03
"""Difference of a time that counts as agreement."""

FRACTION_AIM = 0.01
"""Difference of a congested fraction that counts as agreement."""


@dataclass(frozen=True)
class Published:
    """Results of the published simulator for a case.

    Attributes:
        elapsed_ns: Last arrival of each job, in the order of the scenario's.
        congested: Congested fraction by tier, where it is known.
    """

    elapsed_ns: Mapping[str, int]
    congested: Mapping[str, float] = field(default_factory=dict)


# Congestion on links down from aggregation switches in "row-major" is known as 0.01 to 0.02.
PUBLISHED = {
    "row-major": Published(
        {"stencil": 61_213}, {"leaf-up": 0.73, "agg-down": 0.015, "leaf-down": 0.29}
    ),
    "tiled": Published({"stencil": 44_044}, {"leaf-up": 0.0, "agg-down": 0.0, "leaf-down": 0.0}),
    "rcm": Published({"stencil": 89_386}),
    "random": Published({"stencil": 88_144}),
    "ring": Published({"ring": 33_634}, {"leaf-up": 0.0, "agg-down": 0.0, "leaf-down": 0.0}),
    "background": Published({"background": 106_240}),
    "both": Published(
        {"ring": 52_125, "background": 106_282},
        {"leaf-up": 0.0002, "agg-down": 0.037, "leaf-down": 0.167},
    ),
}


@dataclass(frozen=True)
class Measured:
    """Results of our engine for a case: last arrival of each job, congested fraction by tier."""

    elapsed_ns: Mapping[str, float]
    congested: Mapping[str, float]


def scenario(case: str) -> Scenario:
    """The scenario of a case."""
    return load_scenario(HERE / f"{case}.toml")


def measure(model: Scenario) -> Measured:
    """Simulate a scenario."""
    run = simulate(model)
    times = run.summary["job_elapsed_ps"].values()
    names = [job.name for job in model.job]
    elapsed = {name: ps / 1000 for name, ps in zip(names, times, strict=True)}
    return Measured(elapsed, {tier: congested_fraction(run, tier) for tier in TIERS})


def congested_fraction(run: Run, tier: str) -> float:
    """Share of the packets on the links of a tier that found their port congested."""
    direction, number = TIERS[tier]
    mine = run.tables["links"].filter(
        (pl.col("direction") == direction) & (pl.col("tier") == number)
    )
    counts = run.tables["truth"].join(mine, on="link", how="semi").sum()
    packets, congested = counts.select("packets", "congested_packets").row(0)
    return float(congested / packets) if packets else 0.0


IN_WORDS = ("background",)
"""Cases whose congestion the thesis describes in words, so our fractions stand alone."""


def table(case: str, ours: Measured) -> list[str]:
    """Rows of one case in Markdown."""
    theirs, lines = PUBLISHED[case], []
    for job, published in theirs.elapsed_ns.items():
        difference = ours.elapsed_ns[job] / published - 1
        lines.append(
            f"| `{case}` | {job}: time | {published:,} ns | {ours.elapsed_ns[job]:,.0f} ns "
            f"| {percent(difference, 1, '+')} | {_within(difference, TIME_AIM)} |"
        )
    for tier, fraction in ours.congested.items():
        if tier in theirs.congested:
            difference = fraction - theirs.congested[tier]
            lines.append(
                f"| `{case}` | {tier}: congested | {theirs.congested[tier]:.4f} | {fraction:.4f} "
                f"| {difference:+.4f} | {_within(difference, FRACTION_AIM)} |"
            )
        elif case in IN_WORDS:
            lines.append(f"| `{case}` | {tier}: congested | – | {fraction:.4f} | – | – |")
    return lines


def _within(difference: float, aim: float) -> str:
    return "yes" if abs(difference) <= aim else "no"


HEAD = "| case | quantity | theirs | ours | difference | within the aim |"
CHANGES_HEAD = f"| case | one change | time | {' | '.join(TIERS)} |"


@dataclass(frozen=True)
class Change:
    """A change of one rule of a case: its name in tables, and how it is made."""

    case: str
    name: str
    apply: Callable[[Scenario], None]


def _posts(how: str) -> Callable[[Scenario], None]:
    def apply(model: Scenario) -> None:
        for job in model.job:
            assert job.pattern is not None
            job.pattern["post"] = how

    return apply


def _engine(**options: object) -> Callable[[Scenario], None]:
    def apply(model: Scenario) -> None:
        for name, value in options.items():
            setattr(model.engine, name, value)

    return apply


def _all(*changes: Callable[[Scenario], None]) -> Callable[[Scenario], None]:
    def apply(model: Scenario) -> None:
        for change in changes:
            change(model)

    return apply


def _adaptive(**rules: object) -> Callable[[Scenario], None]:
    def apply(model: Scenario) -> None:
        model.engine.adaptive = model.engine.adaptive.model_copy(update=rules)

    return apply


_LINE_RATE = _engine(injection_rate=None)
_QUEUE, _RANDOM = _adaptive(load="queue"), _adaptive(ties="random")
_DEFAULT = _all(_QUEUE, _RANDOM)
WHOLE_PACKET = 512
"""Bytes of a packet where rules are changed: routed whole, which takes a quarter of the time."""

CHANGES = [
    Change("row-major", "none", lambda model: None),
    Change("row-major", "adapters at line rate", _LINE_RATE),
    Change("row-major", "…, a direction each 10.5 µs", _all(_LINE_RATE, _posts("timed"))),
    Change("row-major", "…, posting on delivery", _all(_LINE_RATE, _posts("delivered"))),
    Change("rcm", "none", lambda model: None),
    Change("rcm", "adapters at line rate", _LINE_RATE),
    Change("random", "none", lambda model: None),
    Change("random", "adapters at line rate", _LINE_RATE),
    Change("random", "ports compared by queue alone", _QUEUE),
    Change("random", "the first of equal ports from a random one on", _RANDOM),
    Change("random", "both: our default rule", _DEFAULT),
    Change("random", "the lowest of equal ports", _adaptive(ties="lowest")),
    Change("ring", "none", lambda model: None),
    Change("ring", "…, posting on local completion", _all(_LINE_RATE, _posts("sequence"))),
    Change("background", "none", lambda model: None),
    Change("background", "adapters at line rate", _LINE_RATE),
    Change("background", "…, posting on local completion", _all(_LINE_RATE, _posts("sequence"))),
    Change("background", "our default rule of adaptive routing", _DEFAULT),
    Change("both", "none", lambda model: None),
    Change("both", "ports compared by queue alone", _QUEUE),
    Change("both", "the first of equal ports from a random one on", _RANDOM),
    Change("both", "both: our default rule", _DEFAULT),
    Change("both", "the lowest of equal ports", _adaptive(ties="lowest")),
    Change("both", "posting on local completion", _posts("sequence")),
]


def changed(change: Change) -> Measured:
    """One change, simulated."""
    model = scenario(change.case)
    model.engine.packet = WHOLE_PACKET
    change.apply(model)
    return measure(model)


def change_row(change: Change, ours: Measured) -> str:
    """One change in Markdown."""
    times = ", ".join(
        f"{job} {ns:,.0f} ns ({percent(ns / PUBLISHED[change.case].elapsed_ns[job] - 1, 1, '+')})"
        for job, ns in ours.elapsed_ns.items()
    )
    tiers = " | ".join(f"{fraction:.4f}" for fraction in ours.congested.values())
    return f"| `{change.case}` | {change.name} | {times} | {tiers} |"


def main() -> None:
    """Print the tables; write their page on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", action="append", choices=list(PUBLISHED), help="default: all")
    parser.add_argument("--changes", action="store_true", help="one rule at a time changed")
    parser.add_argument("--write", action="store_true", help=f"update docs/{PAGE.name}")
    arguments = parser.parse_args()
    cases = arguments.case or list(PUBLISHED)
    if arguments.write and arguments.case:
        parser.error("--write writes whole tables: leave out --case")
    if arguments.changes:
        name, lines = "changes", [CHANGES_HEAD, "|---" * 6 + "|"]
        rows = (change_row(change, changed(change)) for change in CHANGES if change.case in cases)
    else:
        name, lines = "conformance", [HEAD, "|---" * 6 + "|"]
        rows = (row for case in cases for row in table(case, measure(scenario(case))))
    print("\n".join(lines))
    for row in rows:
        print(row, flush=True)
        lines.append(row)
    if arguments.write:
        put(README if arguments.changes else PAGE, {name: "\n".join(lines)})


if __name__ == "__main__":
    main()
