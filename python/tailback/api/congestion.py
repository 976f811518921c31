"""Measured congestion of links, as input of placements that avoid it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tailback.api.runs import with_samples as with_decoded_samples
from tailback.arrays import Floats
from tailback.errors import RunError
from tailback.inference.evidence import NetworkEvidence, link_intervals, with_samples
from tailback.port_counters.readers import engine_run
from tailback.port_counters.ticks import filled_ticks
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.sources.source import read_base_run
from tailback.telemetry.captured import is_capture
from tailback.telemetry.estimate import Selection, link_estimates, select
from tailback.telemetry.samples_csv import is_samples


def sampled_fractions(run: Run) -> Floats:
    """Congested fraction of each link from the samples of a run, NaN without any, shape (L,)."""
    estimates = link_estimates(select(run.tables, Selection()))
    out = np.full(run.tables["links"].height, np.nan)
    out[estimates["link"].to_numpy()] = estimates["fraction"].to_numpy()
    return out


def measured_fractions(path: Path, prepared: PreparedScenario) -> Floats:
    """Congestion of each link as it was measured, 0–1, NaN if unknown, shape (L,).

    Args:
        path: A run or result of a diagnosis, a capture or counts of samples (share of packets that
            met congestion), or port counters (share of the time that a port stalled).
        prepared: The scenario on whose fabric it was measured.

    Raises:
        TailbackError: It cannot be read, or is of another fabric.
    """
    fraction: Floats | None
    if engine_run.sniff(path):
        fraction = sampled_fractions(with_decoded_samples(read_base_run(path)))
    elif is_capture(path) or is_samples(path):
        fraction = with_samples(NetworkEvidence(), path, prepared).congested
    else:
        fraction = _stalled(path, prepared)
    if fraction is None or len(fraction) != prepared.fabric.n_links or np.isnan(fraction).all():
        raise RunError(
            "tells no congestion of the links of this fabric",
            file=path,
            remedy="give samples or counters that were taken on the fabric of the job",
        )
    return fraction


def _stalled(path: Path, prepared: PreparedScenario) -> Floats:
    """Share of the time that each link stalled, by port counters; at least, if ticks are vague."""
    rows = link_intervals([path], prepared)[0].drop_nulls("link")
    gbps = pl.DataFrame(
        {"link": range(prepared.fabric.n_links), "_gbps": prepared.fabric.link_gbps}
    )
    rows = filled_ticks(rows.join(gbps.cast({"link": pl.UInt32}), on="link"), "_gbps")
    length = pl.col("interval_ns").cast(pl.Float64)
    by_ticks = pl.col("xmit_wait_ticks") * pl.col("_tick") / length
    rows = rows.with_columns(pl.coalesce("stall_fraction", by_ticks)).drop_nulls("stall_fraction")
    mean = (pl.col("stall_fraction").clip(0.0, 1.0) * length).sum() / length.sum()
    by_link = rows.group_by("link").agg(mean.alias("stalled"))
    out = np.full(prepared.fabric.n_links, np.nan)
    out[by_link["link"].to_numpy()] = by_link["stalled"].to_numpy()
    return out
