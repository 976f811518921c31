"""How much hosts sent and ports carried, and how often it was more.

Jha et al. (2018) characterize a network by the tails of its traffic: injection and ingestion of all
nodes together in each period (Figure 3), packets and use of links in each (Figure 4), and what
nodes read and write (Figure 6). Injection and ingestion are those of adapters; where no adapter was
counted, those of the switch ports at their other ends.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Engine, Piece
from tailback.run.schema import Column, Table

SHARES: Final = (0.5, 0.1, 0.01, 0.001)
"""Shares of periods, or of the intervals of ports, for which the exceeded value is stated."""

STEPS: Final = 32
"""Steps of a factor of two in which rates are counted: 2 % each."""

TRAFFIC_LEVELS: Final = Table(
    "traffic_levels",
    "a rate that a share of the periods or intervals exceeds",
    (
        Column("measured", pl.String, "injection, ingestion, files, packets or utilization"),
        Column("of", pl.String, "all hosts together, one node, or a port of this class"),
        Column("share_above", pl.Float64, "share of periods, or of intervals of ports, above it"),
        Column("gbps", pl.Float64, "rate of injection, ingestion, or reading and writing files"),
        Column("packets_per_s", pl.Float64, "rate of packets sent, the lower end of a 2 % step"),
        Column("utilization", pl.Float64, "data sent over the capacity, likewise"),
        Column("intervals", pl.UInt64, "number of periods or intervals"),
    ),
)

_PLACE: Final = ("node_name", "port")
_COLUMNS: Final = (
    *_PLACE,
    "time_ns",
    "interval_ns",
    "data_bytes",
    "received_bytes",
    "packets",
    "utilization",
)


def traffic_levels(
    rows: pl.LazyFrame | Archive,
    ports: pl.DataFrame,
    hosts: Collection[str],
    to_hosts: Collection[tuple[str, int]],
    engine: Engine = LOCAL_ENGINE,
) -> pl.DataFrame:
    """Levels of traffic that were exceeded.

    Args:
        rows: Rows of ``counter_intervals``.
        ports: Table of ``verdict.by_port`` with ``category`` and ``port_type``.
        hosts: Names of adapters.
        to_hosts: Device and number of switch ports that lead to adapters.
        engine: Processes the pieces.

    Returns:
        Rows of :data:`TRAFFIC_LEVELS`.
    """
    period_ns = _period_ns(ports)
    names = pl.DataFrame({"node_name": list(hosts)}, schema={"node_name": pl.String})
    stated = ports.filter(pl.col("category") == "Host").select("node_name")
    adapters = ports.join(pl.concat([names, stated]).unique(), on="node_name", how="semi")
    far = pl.DataFrame(
        list(to_hosts), schema={"node_name": pl.String, "port": pl.UInt16}, orient="row"
    )
    edge = adapters if not adapters.is_empty() else ports.join(far, on=_PLACE, how="semi")
    sums = partial(_sum_bytes, places=edge.select(_PLACE).unique(), period_ns=period_ns)
    rates = partial(_count_rates, classes=_class_names(ports))
    passes = [Aggregate(sums, _add_bytes, _COLUMNS), Aggregate(rates, _add_counts, _COLUMNS)]
    total, steps = engine.add_up(Archive.of(rows).pieces(), passes)
    sent, received = (_known_gbps(total, name, period_ns) for name in ("sent", "received"))
    if adapters.is_empty():
        sent, received = received, sent
    parts = [
        _exact_levels("injection", sent),
        _exact_levels("ingestion", received),
        *(
            _counted_levels(str(measured), str(of), counts)
            for (measured, of), counts in sorted(steps.group_by("measured", "of"))
        ),
    ]
    return pl.concat(parts).select(*TRAFFIC_LEVELS.polars_schema)


def _period_ns(ports: pl.DataFrame) -> float:
    """Mean length of an interval."""
    intervals, seconds = ports.select(pl.col("intervals", "seconds").sum()).row(0)
    return max(seconds * 1e9 / intervals, 1.0) if intervals else 1.0


def _class_names(ports: pl.DataFrame) -> pl.DataFrame:
    """Name of the class of each port."""
    kind = pl.concat_str(pl.col("category"), pl.col("port_type"), separator=" ")
    return ports.select(*_PLACE, "category", of=pl.coalesce(kind, pl.lit("Port"))).unique(_PLACE)


def _sum_bytes(piece: Piece, places: pl.DataFrame, period_ns: float) -> pl.LazyFrame:
    period = (pl.col("time_ns") / period_ns).round().cast(pl.Int64)
    sent, received = pl.col("data_bytes"), pl.col("received_bytes")
    return (
        piece.rows.join(places.lazy(), on=_PLACE, how="semi")
        .group_by(period=period)
        .agg(
            sent=sent.sum().cast(pl.Float64),
            received=received.sum().cast(pl.Float64),
            sent_unknown=sent.null_count(),
            received_unknown=received.null_count(),
        )
    )


def _add_bytes(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.group_by("period").agg(pl.exclude("period").sum())


def _known_gbps(total: pl.DataFrame, name: str, period_ns: float) -> NDArray[np.float64]:
    """Rate of each period in which no port's bytes are unknown."""
    periods = total.filter(pl.col(f"{name}_unknown") == 0)
    return periods[name].to_numpy() * 8 / period_ns


def _count_rates(piece: Piece, classes: pl.DataFrame) -> pl.LazyFrame:
    """Number of intervals of each class by the step of their rate; the lowest step has none."""
    seconds = pl.col("interval_ns") / 1e9
    files = 8e-9 * (pl.col("data_bytes") + pl.col("received_bytes")) / seconds
    rates = {
        "files": pl.when(pl.col("category") == "Files").then(files),
        "packets": pl.col("packets") / seconds,
        "utilization": pl.col("utilization"),
    }
    named = piece.rows.join(classes.lazy(), on=_PLACE, how="left")
    step = (pl.col("rate").log(2) * STEPS).floor().clip(_NONE, None).cast(pl.Int32)
    return (
        named.select("of", **rates)
        .unpivot(index="of", variable_name="measured", value_name="rate")
        .drop_nulls("rate")
        .group_by("measured", "of", step=pl.when(pl.col("rate") > 0).then(step).otherwise(_NONE))
        .agg(intervals=pl.len().cast(pl.UInt64))
    )


_NONE: Final = -(1 << 20)


def _add_counts(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.group_by("measured", "of", "step").agg(pl.col("intervals").sum())


def _levels(measured: str, of: str, column: str, values: list[float], count: int) -> pl.DataFrame:
    """The median, and a row for each rarer level that so many intervals tell."""
    kept = sum(share * count >= 1 for share in SHARES[1:]) + 1
    rows = [
        {"measured": measured, "of": of, "share_above": share, column: value, "intervals": count}
        for share, value in zip(SHARES[:kept], values, strict=False)
    ]
    return pl.DataFrame(rows, schema=TRAFFIC_LEVELS.polars_schema)


def _exact_levels(measured: str, gbps: NDArray[np.float64]) -> pl.DataFrame:
    values = np.quantile(gbps, [1 - share for share in SHARES]).tolist() if len(gbps) else []
    return _levels(measured, "all hosts together", "gbps", values, len(gbps))


def _counted_levels(measured: str, of: str, steps: pl.DataFrame) -> pl.DataFrame:
    ordered = steps.sort("step", descending=True)
    above, count = ordered["intervals"].cum_sum().to_numpy(), int(ordered["intervals"].sum())
    at = [int(np.searchsorted(above, share * count)) for share in SHARES]
    step = ordered["step"].to_numpy()[at]
    values = np.where(step == _NONE, 0.0, 2.0 ** (step / STEPS)).tolist()
    column = {"files": "gbps", "packets": "packets_per_s"}.get(measured, measured)
    return _levels(measured, "one node" if measured == "files" else of, column, values, count)
