"""Text in the exposition format of Prometheus, for a textfile collector or a push gateway."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tailback.io.exposition import family, labelled, sample
from tailback.report.exports.model import EXPORTS, Exported, Result

_OF_LINKS = {
    "congested": ("congested_ratio", "Share of the job's packets that met congestion, 0-1"),
    "busy": ("busy_ratio", "Share of the run in which the link was sending, 0-1"),
    "stalled": ("stalled_ratio", "Share of the run in which it had data but no credit, 0-1"),
}


@EXPORTS.register("prometheus")
def prometheus(result: Result) -> Exported:
    """Time of the job, cost of each cause and load of each link as Prometheus metrics."""
    lines = [*_of_job(result), *_of_links(result)]
    count = sum(not line.startswith("#") for line in lines)
    return Exported(
        f"{count:,} samples",
        "copy it to the folder of node_exporter's textfile collector",
        lines,
    )


def _of_job(result: Result) -> Iterator[str]:
    run, diagnosis = result.run, result.diagnosis
    name = {"scenario": run.scenario.name}
    yield from family("tailback_elapsed_seconds", "gauge", "Time of the run")
    measured = diagnosis is not None and diagnosis.measured is not None
    times = {"simulated": run.elapsed_ps}
    if diagnosis is not None and measured:
        times["measured"] = diagnosis.elapsed_ps
    for kind, elapsed_ps in times.items():
        yield sample("tailback_elapsed_seconds", elapsed_ps / 1e12, labelled(name | {"time": kind}))
    if diagnosis is None:
        return
    yield from family("tailback_verdict", "gauge", "Probability of the cause of the verdict, 0-1")
    cause = labelled(name | {"cause": diagnosis.cause})
    yield sample("tailback_verdict", float(diagnosis.confidence), cause)
    if diagnosis.explanation is not None:
        yield from family("tailback_cause_seconds", "gauge", "Measured time that a cause costs")
        for cost in diagnosis.explanation.costs:
            labels = labelled(name | {"cause": cost.cause})
            yield sample("tailback_cause_seconds", cost.ps / 1e12, labels)


def _of_links(result: Result) -> Iterator[str]:
    """The mean over the run, weighted by the length of windows."""
    length = (pl.col("end_ps") - pl.col("start_ps")).cast(pl.Float64)
    total = max(float(result.run.elapsed_ps), 1.0)
    table = (
        result.run.tables["samples"]
        .group_by("link")
        .agg(pl.col("congested_weight").sum(), pl.col("hop_weight").sum())
    )
    congested = table.select(
        "link", congested=(pl.col("congested_weight") / pl.col("hop_weight")).clip(0, 1)
    )
    shares = result.loads.group_by("link").agg(
        busy=(pl.col("busy") * length).sum() / total,
        stalled=(pl.col("stalled") * length).sum() / total,
        known=pl.col("busy").is_not_null().any(),
    )
    loads = shares.join(congested, on="link", how="left").sort("link")
    for column, (metric, meaning) in _OF_LINKS.items():
        rows = loads.filter(pl.col(column).is_not_null() & pl.col(column).is_finite())
        if column != "congested":
            rows = rows.filter("known")
        if not rows.height:
            continue
        name = f"tailback_link_{metric}"
        yield from family(name, "gauge", meaning)
        for link, value in rows.select("link", column).iter_rows():
            labels = {"scenario": result.run.scenario.name, "link": result.link_names[link]}
            yield sample(name, value, labelled(labels))
