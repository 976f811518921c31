"""Where the time goes: from the ideal network to what was observed, one re-simulation a step.

The steps add one thing at a time, always in the same order: endpoints, then the network with the
placement as it is, then its routing, then the traffic of others. What two of them cost together is
charged to the later one; another order would split it otherwise (docs/diagnosis.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tailback.diagnose.model import Bar
from tailback.evaluate import Change, Evaluate
from tailback.run import Run

Progress = Callable[[str, float], None]

CONTENDED = ("pattern", "placement", "routing", "other traffic")
"""Steps whose delta is time lost to contention."""


@dataclass(frozen=True)
class Step:
    """One step: its name, what is simulated, and whether it differs from the step before."""

    name: str
    change: Change
    meaning: str
    skip: str = ""


def steps(run: Run) -> list[Step]:
    """The steps for a run; one that cannot add anything says why and is not simulated."""
    adaptive = run.scenario.engine.routing == "adaptive"
    alone = not any(not job.observed for job in run.scenario.job)
    return [
        Step("ideal", Change(network="no-contention", background=False),
             "every message at the line rate of its own adapters, nothing shared"),
        Step("pattern", Change(network="star", background=False),
             "one ideal switch: only the nodes' own links are shared (ideal's time at least)"),
        Step("placement", Change(routing="adaptive", background=False),
             "the network as it is with adaptive routing, our job alone"),
        Step("routing", Change(background=False),
             f"the network as it is with its {run.scenario.engine.routing} routing, our job alone",
             "routing is adaptive already" if adaptive else ""),
        Step("other traffic", Change(),
             "everything as it was, with the jobs we do not observe",
             "no other job is known" if alone else ""),
    ]  # fmt: skip


def build(run: Run, evaluate: Evaluate, seeds: int, progress: Progress | None = None) -> list[Bar]:
    """Re-simulate every step ``seeds`` times and return the bars, ``observed`` last.

    Args:
        run: The run as observed.
        evaluate: Simulates a change.
        seeds: Repetitions with other random choices; deltas are taken within a repetition.
        progress: Told the step and the share done.
    """
    todo = steps(run)
    real = [step for step in todo if not step.skip]
    times: dict[str, list[int]] = {}
    done = 0
    for step in todo:
        if step.skip:
            times[step.name] = times[todo[todo.index(step) - 1].name]
            continue
        times[step.name] = []
        for seed in range(seeds):
            if progress is not None:
                progress(f"simulating {step.name}", done / (len(real) * seeds))
            result = evaluate(replace(step.change, seed_offset=seed))
            times[step.name].append(result.elapsed_ps)
            done += 1
    # On the ideal switch paths are shorter than they are: what that saves is not contention's loss.
    times["pattern"] = [max(pair) for pair in zip(times["ideal"], times["pattern"], strict=True)]
    bars, before = [], [0] * seeds
    for step in todo:
        meaning = f"{step.meaning}: {step.skip}" if step.skip else step.meaning
        bars.append(_bar(step.name, times[step.name], before, meaning))
        before = times[step.name]
    bars.append(
        _bar(
            "observed",
            [run.elapsed_ps] * seeds,
            before,
            "the run that was given; what it differs by is chance",
        )
    )
    return bars


def _bar(name: str, now: list[int], before: list[int], meaning: str) -> Bar:
    deltas = [a - b for a, b in zip(now, before, strict=True)]
    return Bar(
        name=name,
        elapsed_ps=_mean(now),
        delta_ps=_mean(now) - _mean(before),
        low_ps=min(deltas),
        high_ps=max(deltas),
        meaning=meaning,
    )


def _mean(values: Iterable[int]) -> int:
    items = list(values)
    return round(sum(items) / len(items))


def lost(bars: list[Bar]) -> dict[str, float]:
    """Share of the whole time that each step of contention adds, 0–1; empty without a waterfall."""
    total = next((bar.elapsed_ps for bar in bars if bar.name == "other traffic"), 0)
    if total <= 0:
        return {}
    return {bar.name: bar.delta_ps / total for bar in bars if bar.name in CONTENDED}
