"""Differences of two case studies from the published figures, and settings that may explain them.

    python -m studies.taffet2019.case_reasons                        both
    python -m studies.taffet2019.case_reasons --case minighost       one of them
    python -m studies.taffet2019.case_reasons --write                also its page

One setting is changed at a time, everything else is that of the example scenario. Nothing is
fitted: the examples keep their settings whatever the results here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from measuring import put
from studies.taffet2019.case_figures import save
from studies.taffet2019.case_minighost import communication
from studies.taffet2019.case_model import example
from studies.taffet2019.reproduction import FIGURES, PAGE
from tailback import Scenario, simulate
from tailback.report import FAINT, INK, MUTED, canvas, style
from tailback.scenario.model import FabricSection, FatTree
from tailback.units import format_time, percent

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(1, 6)
MANY_SEEDS = range(1, 41)
Change = Callable[[Scenario], None]


@dataclass(frozen=True)
class Setting:
    """One changed setting: its name in tables, the change, and its seeds."""

    name: str
    change: Change
    seeds: Iterable[int] = SEEDS


@dataclass(frozen=True)
class Outcome:
    """Results of one setting: a figure to compare, its range, and the cells of its row."""

    name: str
    value: float
    low: float
    high: float
    cells: tuple[str, ...]


def engine(**options: Any) -> Change:
    """Settings of section ``[engine]``."""

    def change(scenario: Scenario) -> None:
        for name, value in options.items():
            setattr(scenario.engine, name, value)

    return change


def pattern(*jobs: int, **options: Any) -> Change:
    """Options of the patterns of some jobs."""

    def change(scenario: Scenario) -> None:
        for job in jobs:
            settings = scenario.job[job].pattern
            assert settings is not None
            settings.update(options)

    return change


def later(job: int, microseconds: int) -> Change:
    """One job starts later than the other."""

    def change(scenario: Scenario) -> None:
        scenario.job[job].start = microseconds * 1_000_000

    return change


def rates(gbps: int) -> Change:
    """One two-level tree of the pod's shape with links of another rate."""

    def change(scenario: Scenario) -> None:
        rate: Any = f"{gbps} Gb/s"
        scenario.fabric = FabricSection(
            fat_tree=FatTree(
                hosts_per_leaf=32,
                leaves=24,
                aggregation=16,
                host_rate=rate,
                leaf_rate=rate,
            )
        )

    return change


def nothing(scenario: Scenario) -> None:
    """The example as it is."""


BACKGROUND = [
    Setting("as the example: 2 KiB packets, 64 KiB buffers", nothing),
    Setting("the same, 40 draws of the destinations", nothing, MANY_SEEDS),
    Setting("packets of 4 KiB", engine(packet=4096)),
    Setting("packets of 512 B", engine(packet=512)),
    Setting("packets of 128 B", engine(packet=128)),
    Setting("buffers of 32 KiB", engine(buffer=32 * 1024)),
    Setting("buffers of 128 KiB (a whole message)", engine(buffer=128 * 1024)),
    Setting("buffers of 1 MiB (nothing is held back)", engine(buffer=1024 * 1024)),
    Setting("packets of 512 B, buffers of 128 KiB", engine(packet=512, buffer=128 * 1024)),
    Setting(
        "the same, 40 draws of the destinations", engine(packet=512, buffer=128 * 1024), MANY_SEEDS
    ),
    Setting("input-buffered switches", engine(buffering="input")),
    Setting("store and forward", engine(switching="store-and-forward")),
    Setting("round-robin instead of first come, first served", engine(arbitration="round-robin")),
    Setting("random instead of adaptive routing", engine(routing="random")),
    Setting("all messages posted at once", pattern(0, 1, post="all")),
    Setting("no software delay", engine(send_delay=0)),
    Setting("links 3 % slower (header of 64 B a packet)", engine(header=64)),
    Setting("no delay in switches", engine(switch_delay=0)),
    Setting("the ring starts 20 µs after the background", later(0, 20)),
    Setting("the background starts 10 µs after the ring", later(1, 10)),
]

MINIGHOST = [
    Setting("as the example: 4 KiB packets, 64 KiB buffers", nothing),
    Setting("packets of 2 KiB", engine(packet=2048)),
    Setting("buffers of 32 KiB", engine(buffer=32 * 1024)),
    Setting("buffers of 128 KiB", engine(buffer=128 * 1024)),
    Setting("buffers of 512 KiB (more than a message)", engine(buffer=512 * 1024)),
    Setting("adapter takes turns between its messages", engine(injection="round-robin")),
    Setting("input-buffered switches", engine(buffering="input")),
    Setting("store and forward", engine(switching="store-and-forward")),
    Setting("round-robin instead of first come, first served", engine(arbitration="round-robin")),
    Setting("random instead of adaptive routing", engine(routing="random")),
    Setting("fixed instead of adaptive routes", engine(routing="deterministic")),
    Setting("handshake of large messages", engine(eager=16 * 1024)),
    Setting("no software delay", engine(send_delay=0)),
    Setting("links of 200 Gb/s", rates(200)),
    Setting("1 variable: messages of 83 kB", pattern(0, variables=1)),
    Setting("axes in the order x, y, z", pattern(0, order="xyz")),
    Setting("axes in the order z, y, x", pattern(0, order="zyx")),
    Setting("one wait for all three axes", pattern(0, wait="exchange")),
    Setting(
        "adapter takes turns, buffers of 128 KiB",
        engine(injection="round-robin", buffer=128 * 1024),
    ),
    Setting("grid of 48 × 24 × 24", pattern(0, dims=[48, 24, 24])),
    Setting("grid of 24 × 32 × 36", pattern(0, dims=[24, 32, 36])),
    Setting("no computation between", pattern(0, compute="0 s")),
    Setting("computation up to 5 % longer at random", pattern(0, imbalance=0.05)),
    Setting("no global sums: the exchange alone", pattern(0, sums="none")),
]


def background(setting: Setting) -> Outcome:
    """The ring among the background, and alone; both from when the ring starts."""
    both, slower = [], []
    for seed in setting.seeds:
        scenario = example("background/background.toml", seed)
        setting.change(scenario)
        times = simulate(scenario).summary["job_elapsed_ps"]
        ring = scenario.model_copy(update={"job": scenario.job[:1]})
        alone = simulate(ring).elapsed_ps
        both.append(times["0"] / 1e6)
        slower.append(times["0"] / alone - 1)
    mean, low, high = float(np.mean(both)), min(both), max(both)
    cells = (f"{mean:.1f} µs ({low:.1f}–{high:.1f})", percent(float(np.mean(slower)), sign="+"))
    return Outcome(setting.name, mean, low, high, cells)


def minighost(setting: Setting) -> Outcome:
    """Communication time linear, tiled, and tiled in small phases with one sum a time step."""
    times = []
    for placement, changed in (("block", False), ("tile", False), ("tile", True)):
        scenario = example("minighost/step.toml")
        job = scenario.job[0]
        assert job.pattern is not None
        job.placement = placement
        setting.change(scenario)
        if changed:
            sums = "none" if job.pattern["sums"] == "none" else "step"
            job.pattern.update(method="svaf", sums=sums)
        times.append(communication(simulate(scenario)))
    linear, tiled, phases = times
    ratio = linear / tiled
    cells = (
        format_time(linear),
        format_time(tiled),
        f"{ratio:.2f}×",
        percent(1 - phases / tiled),
        f"{linear / phases:.2f}×",
    )
    return Outcome(setting.name, ratio, ratio, ratio, cells)


@dataclass(frozen=True)
class Question:
    """One difference to explain."""

    settings: list[Setting]
    measure: Callable[[Setting], Outcome]
    heads: tuple[str, ...]
    theirs: float
    axis: str


QUESTIONS = {
    "background": Question(
        BACKGROUND,
        background,
        ("ring among the background", "slow-down"),
        51.4,
        "time of the ring among the background, µs: mean and range over draws",
    ),
    "minighost": Question(
        MINIGHOST,
        minighost,
        ("linear", "tiled", "linear ÷ tiled", "saved by small phases", "together"),
        2.9,
        "communication time, linear ÷ tiled",
    ),
}


def table(question: Question, outcomes: list[Outcome]) -> str:
    """The outcomes in Markdown."""
    lines = [
        f"| one change | {' | '.join(question.heads)} |",
        "|---" * (1 + len(question.heads)) + "|",
    ]
    return "\n".join(
        lines + [f"| {outcome.name} | {' | '.join(outcome.cells)} |" for outcome in outcomes]
    )


def chart(question: Question, outcomes: list[Outcome]) -> Figure:
    """Every outcome as a dot with its range, beside the published figure."""
    with style():
        drawn = canvas(8.6, 0.9 + 0.24 * len(outcomes))
        axes = drawn.add_subplot()
        axes.axvline(question.theirs, color=INK, linewidth=1.2, label="published")
        axes.axvline(
            outcomes[0].value,
            color=MUTED,
            linewidth=1.0,
            linestyle=(0, (4, 2)),
            label="the example",
        )
        for row, outcome in enumerate(outcomes):
            axes.plot([outcome.low, outcome.high], [row, row], color="#9fb3c8", linewidth=3)
            axes.plot([outcome.value], [row], marker="o", markersize=4.5, color="#c2571a")
        axes.set_yticks(range(len(outcomes)), [outcome.name for outcome in outcomes], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(question.axis)
        axes.grid(axis="x", color=FAINT)
        axes.tick_params(axis="y", length=0)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return drawn


def write(name: str, question: Question, outcomes: list[Outcome]) -> None:
    """Replace the question's part of the page and draw its figure."""
    put(PAGE, {f"{name} reasons": table(question, outcomes)})
    save(chart(question, outcomes), FIGURES / f"{name}-reasons.png")


def measure(which: tuple[str, int]) -> Outcome:
    """One setting of one question, by their names: the arguments of a separate process."""
    name, number = which
    question = QUESTIONS[name]
    return question.measure(question.settings[number])


def main() -> None:
    """Print the tables; write page and figures on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=list(QUESTIONS), help="default: both")
    parser.add_argument("--jobs", type=int, default=1, help="settings tried at once")
    parser.add_argument("--write", action="store_true", help="update its page and figures")
    arguments = parser.parse_args()
    for name in arguments.case or list(QUESTIONS):
        question, outcomes = QUESTIONS[name], list[Outcome]()
        with ProcessPoolExecutor(arguments.jobs) as pool:
            for outcome in pool.map(measure, [(name, n) for n in range(len(question.settings))]):
                outcomes.append(outcome)
                print(f"{outcome.name}: {', '.join(outcome.cells)}", flush=True)
        print(f"\n{table(question, outcomes)}\n", flush=True)
        if arguments.write:
            write(name, question, outcomes)


if __name__ == "__main__":
    main()
