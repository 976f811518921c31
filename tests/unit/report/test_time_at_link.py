"""Samples stand at the time when packets met the link, where a simulated run can tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tailback.report import FigureData
from tailback.report.timeline import Timeline
from tailback.run.run import Run
from tailback.simulation.decode import decode_samples
from tailback.telemetry.estimate import SUMS
from tests.factories.probed_runs import stencil


@pytest.fixture(scope="module")
def run() -> Run:
    return stencil("full")


def by_window(evidence: FigureData, table: pl.DataFrame, column: str) -> NDArray[np.float64]:
    """A column summed over the up-links of leaves, by window."""
    links = np.flatnonzero((evidence.tier == 1) & (evidence.direction == "up"))
    sums = (
        table.filter(pl.col("link").is_in(links.tolist()))
        .group_by("window")
        .agg(pl.col(column).sum())
    )
    out = np.zeros(evidence.windows.height)
    out[sums["window"].to_numpy()] = sums[column].to_numpy()
    return out


def distance(run: Run, samples: pl.DataFrame) -> float:
    """L1 distance of the course of congestion to the simulator's, as a share of it."""
    evidence = FigureData(run)
    truth = by_window(evidence, run.tables["truth"], "observed_congested_packets")
    assert truth.sum() > 10_000
    return float(
        np.abs(by_window(evidence, samples, "congested_weight") - truth).sum() / truth.sum()
    )


def test_the_course_is_within_2_percent(run: Run) -> None:
    evidence = FigureData(run)
    assert distance(run, evidence.samples) > 0.1, "arrival is much later"
    assert distance(run, evidence.samples_by_link_time) < 0.02


def test_six_bit_samples_stand_at_the_same_time() -> None:
    """Their course differs by what the counts of so few bits are off, not by the time."""
    run = decode_samples(stencil("coordinated"))
    dated, late = FigureData(run).samples_by_link_time, FigureData(run).samples
    assert distance(run, dated) < 0.06 < 0.1 < distance(run, late)


def test_nothing_is_lost_or_added(run: Run) -> None:
    evidence = FigureData(run)
    keys = ("job", "label", "phase", "link")
    both = [
        table.group_by(keys).agg(pl.col(SUMS).sum()).sort(keys)
        for table in (evidence.samples, evidence.samples_by_link_time)
    ]
    assert both[0].equals(both[1])
    assert evidence.samples_by_link_time.schema == evidence.samples.schema


def test_tier_fractions_in_time_stay_below_one(run: Run) -> None:
    """Packets are counted when they reach the queue, as those that meet congestion there are."""
    evidence = FigureData(run)
    chosen = (evidence.tier == 1) & (evidence.direction == "up")
    load = Timeline(evidence, evidence.windows.height).sums(chosen)
    busy = load.samples >= 100
    assert busy.sum() > 20
    assert np.isfinite(load.fraction[busy]).all()


def test_samples_without_record_stand_at_their_arrival(run: Run) -> None:
    bare = replace(run, tables=run.tables | {"truth": run.tables["truth"].clear()})
    evidence = FigureData(bare)
    assert evidence.samples_by_link_time.equals(evidence.samples)
    assert (evidence.dated, FigureData(run).dated) == (False, True)
    assert "arrival" in evidence.time_meaning and "arrival" not in FigureData(run).time_meaning


def test_delivered_data_stands_where_it_arrived(run: Run) -> None:
    evidence = FigureData(run)
    course = Timeline(evidence, evidence.windows.height)
    last = evidence.samples.join(
        evidence.links.filter("to_node").select("link"), on="link", how="semi"
    )["window"].max()
    assert isinstance(last, int)
    assert np.flatnonzero(course.delivered_bytes())[-1] == last
