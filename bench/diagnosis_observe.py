"""A user's data on a generated scenario: executions joined to one run, with samples thinned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from diagnosis_suite import TRIED, Case
from numpy.typing import NDArray

from tailback import Scenario, TailbackError
from tailback.evaluate import Change, Evaluate
from tailback.placement import place, restrict_to_used
from tailback.run.run import Run
from tailback.scenario.model import TelemetrySection
from tailback.simulation import execute, make_evaluate, prepare, routes_for

OURS = 0
"""Number of the observed job, which is the first in generated scenarios."""

SIMULATED = ("truth", "counters", "queues")
"""Tables that only a simulator fills, or that a user of one job has no access to."""

MOST_EXECUTIONS = 400

JOINED = ("windows", "samples", "packets", "messages")
"""Tables that grow with every execution."""


SCHEMES: dict[str, dict[str, Any]] = {
    "full": {"scheme": "full"},
    "coordinated": {"scheme": "coordinated", "hash_bits": 5},
    "coordinated-4": {"scheme": "coordinated", "hash_bits": 4},
    "compact": {"scheme": "compact", "hash_bits": 2, "count_bits": 3},
}
"""What packets carry, by the name it has here: six bits of ``coordinated`` and ``compact``, five of
``coordinated-4``."""


def carrying(scenario: Scenario, scheme: str) -> Scenario:
    """The scenario with another telemetry scheme; nothing else of a run changes by it."""
    telemetry = TelemetrySection(windows=scenario.telemetry.windows, **SCHEMES[scheme])
    return scenario.model_copy(update={"telemetry": telemetry})


def observe(case: Case, packets: int, scheme: str = "full") -> list[Run]:
    """Executions of a case until the given number of packets was sent.

    Traffic and placements are the same in each; adaptive and random routes, and the hops that are
    sampled, are not. They are the same for every scheme.
    """
    return observe_with(carrying(case.scenario, scheme), packets)


def observe_with(scenario: Scenario, packets: int) -> list[Run]:
    """Executions of a scenario, with its telemetry, until the given number of packets was sent."""
    prepared = prepare(scenario)
    routes = routes_for(prepared.scenario, prepared.fabric, prepared.slots().tolist())
    runs: list[Run] = []
    sent = 0
    while sent < packets and len(runs) < MOST_EXECUTIONS:
        seed = prepared.scenario.seed + 1000 + len(runs)
        runs.append(_ours(execute(prepared, routes=routes, seed=seed)))
        sent += int(runs[-1].summary["observed_packets"])
    return runs


def _ours(run: Run) -> Run:
    """The run as its user sees it: own job, own messages, own packets."""
    tables = dict(run.tables)
    for name in ("jobs", "ranks", "labels", "samples"):
        tables[name] = tables[name].filter(pl.col("job") == OURS)
    labels, ranks = tables["labels"]["label"], tables["ranks"]["rank"]
    tables["messages"] = tables["messages"].filter(
        pl.col("label").is_in(labels.implode()) & pl.col("src_rank").is_in(ranks.implode())
    )
    return replace(run, tables=tables)


def join(runs: list[Run], scenario: Scenario) -> Run:
    """Executions one after the other, as one run of the scenario as its user knows it."""
    tables = dict(runs[0].tables)
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in JOINED}
    window = offset = sent = 0
    for run in runs:
        shift = pl.lit(offset, pl.UInt64)
        windows = run.tables["windows"]
        parts["windows"].append(
            windows.with_columns(
                pl.col("window") + window, pl.col("start_ps") + shift, pl.col("end_ps") + shift
            )
        )
        parts["samples"].append(run.tables["samples"].with_columns(pl.col("window") + window))
        parts["packets"].append(
            run.tables["packets"].with_columns(pl.col("time_ps") + shift, pl.col("packet") + sent)
        )
        parts["messages"].append(
            run.tables["messages"].with_columns(pl.col("post_ps", "start_ps", "arrival_ps") + shift)
        )
        window += windows.height
        sent += int(run.summary["packets"])
        offset += int(run.summary["end_ps"]) + 1
    tables |= {name: pl.concat(frames) for name, frames in parts.items()}
    ranks = tables["ranks"]
    for column in ("finish_ps", "compute_ps", "wait_ps"):
        total = np.sum([run.tables["ranks"][column].to_numpy() for run in runs], axis=0)
        ranks = ranks.with_columns(pl.Series(column, total, dtype=pl.UInt64))
    tables["ranks"] = ranks
    summary: dict[str, Any] = dict(runs[0].summary)
    summary["elapsed_ps"] = sum(run.elapsed_ps for run in runs)
    summary["observed_packets"] = sum(run.summary["observed_packets"] for run in runs)
    return Run(scenario, tables, summary)


def known_to_user(run: Run) -> Run:
    """The run without what only a simulator knows."""
    hidden = {name: run.tables[name].clear() for name in SIMULATED if name in run.tables}
    return replace(run, tables={**run.tables, **hidden})


def thin(run: Run, packets: int, seed: int) -> Run:
    """The run as if only a given number of its packets, drawn at random, had carried a sample.

    A packet drawn with probability 1/m represents m, so a sample of a path of l hops weighs l·m and
    adds l·m (l·m − 1) to the variance.
    """
    sent = int(run.summary["observed_packets"])
    if sent <= packets:
        return run
    rng = np.random.Generator(np.random.Philox(key=[seed, packets]))
    m = sent / packets
    one_in = round(m)
    if not run.scenario.telemetry.summed_on_arrival:
        # Single packets; those without a header are left out.
        headers = run.tables["packets"]
        kept = headers.filter(pl.Series(rng.random(headers.height) < 1.0 / one_in))
        summary = {**run.summary, "one_in": one_in}
        return replace(run, tables={**run.tables, "packets": kept}, summary=summary)
    samples = run.tables["samples"]

    def column(name: str) -> NDArray[np.float64]:
        return samples[name].cast(pl.Float64).to_numpy()

    out = samples
    for count, weight, variance, size in (
        ("hop_samples", "hop_weight", "hop_variance", "hop_bytes"),
        ("congested_samples", "congested_weight", "congested_variance", ""),
    ):
        n = samples[count].cast(pl.Int64).to_numpy()
        kept = rng.binomial(n, 1.0 / m)
        share = np.divide(kept, n, out=np.zeros(len(n)), where=n > 0)
        w, v = column(weight) * share, column(variance) * share
        values = {count: kept, weight: w * m, variance: (v + w) * m * m - w * m}
        if size:
            values[size] = column(size) * share * m
        out = out.with_columns(
            pl.Series(name, np.round(np.maximum(x, 0.0)).astype(np.uint64))
            for name, x in values.items()
        )
    out = out.filter((pl.col("hop_samples") > 0) | (pl.col("congested_samples") > 0))
    return replace(run, tables={**run.tables, "samples": out})


def what_if(scenario: Scenario, executions: int) -> tuple[Evaluate, dict[str, NDArray[np.uint32]]]:
    """Re-simulation of a number of executions with the given knowledge, and placements to try."""
    prepared = prepare(scenario)
    once = make_evaluate(prepared)

    def evaluate(change: Change) -> Run:
        run = once(change)
        return replace(run, summary={**run.summary, "elapsed_ps": run.elapsed_ps * executions})

    job, placements = prepared.observed, {}
    for name in TRIED:
        try:
            placements[name] = place(name, restrict_to_used(job.problem, job.node), {})
        except TailbackError:
            continue
    return evaluate, placements
