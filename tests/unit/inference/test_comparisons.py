"""Congestion by samples in packets, as evidence for a slow cable."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis.topology import link_totals
from tailback.inference.comparisons import (
    Comparisons,
    LinkSamples,
    PortBytes,
    PortStalls,
    stall_error_ps,
)
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import simulate

MACHINE: dict[str, Any] = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 2}},
    "job": [{"pattern": {"kind": "alltoall", "ranks": 8, "size": "64 KiB"}}],
    "engine": {"routing": "deterministic"},
}


def fractions(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Congested fraction and packets of each link, as it was."""
    sums = (
        run.tables["truth"]
        .group_by("link")
        .agg(pl.col("observed_packets", "observed_congested_packets").sum())
    )
    n = run.tables["links"].height
    packets, congested = np.zeros(n), np.zeros(n)
    packets[sums["link"].to_numpy()] = sums["observed_packets"].to_numpy()
    congested[sums["link"].to_numpy()] = sums["observed_congested_packets"].to_numpy()
    with np.errstate(invalid="ignore"):
        return congested / packets, packets


def run_with(slow: str | None) -> Run:
    data = {**MACHINE}
    if slow is not None:
        data["fabric"] = {**MACHINE["fabric"], "degraded": [{"cable": slow, "rate": "15 Gb/s"}]}
    return simulate(parse(data))


def test_samples_tell_the_slow_cable_from_another() -> None:
    healthy = run_with(None)
    ports = [
        row["src_name"] + f"[{row['src_port']}]"
        for row in healthy.tables["links"]
        .filter(~pl.col("from_node") & (pl.col("direction") == "up"))
        .iter_rows(named=True)
    ]
    true, other = ports[0], ports[-1]
    seen, packets = fractions(run_with(true))
    from_node = healthy.tables["links"]["from_node"].to_numpy()
    compare = LinkSamples(seen, packets, from_node)
    right, wrong, none = (compare(run_with(cable)) for cable in (true, other, None))
    assert right is not None and wrong is not None and none is not None
    assert right == pytest.approx(0.0, abs=1e-9)
    assert right < none and right < wrong


def test_links_without_samples_tell_nothing() -> None:
    run = run_with(None)
    n = run.tables["links"].height
    blind = LinkSamples(np.full(n, np.nan), np.zeros(n), np.zeros(n, np.bool_))
    assert blind(run) is None


def test_a_stall_absorbed_by_buffers_is_no_difference() -> None:
    """Nobody says how large buffers are: a buffer's time a message may be stalled, or not."""
    run = run_with(None)
    links = run.tables["links"]
    from_node, size = links["from_node"].to_numpy(), 65536
    sent = np.full(links.height, 10.0 * size)
    error = stall_error_ps(sent, np.full(links.height, 100.0), size, 1000.0)
    # Ten buffers of 64 KiB at 100 Gb/s take 5.24 us each.
    assert error == pytest.approx(10 * size * 8 / 100e9 * 1e12)
    stalled = np.full(links.height, 0.9 * error[0]) + sums_of(run, "stall_ps")
    exact = PortStalls(stalled, from_node & False, 10**8, np.zeros(links.height))(run)
    assert exact is not None and exact > 0.1
    loose = PortStalls(stalled, from_node & False, 10**8, error)(run)
    assert loose is not None and loose < 0.1 * exact
    # But not what is far more than that.
    far = PortStalls(stalled + 20 * error, from_node & False, 10**8, error)(run)
    assert far is not None and far > 0.5


def test_ports_without_waits_speak_against_stalls() -> None:
    slow = run_with("leaf0[5]")
    elapsed, links = slow.elapsed_ps, np.arange(slow.tables["links"].height)
    none = np.zeros(len(links))
    few = none.copy()
    few[0] = 0.004 * elapsed
    misfit = PortStalls(few, none < 0, elapsed, none)(slow)
    assert misfit is not None and 0.5 < misfit < 1.0
    # No wait at all may not have been counted.
    assert PortStalls(none, none < 0, elapsed, none)(slow) is None
    assert PortStalls(none, none < 0, elapsed, none, counts=True)(slow) is not None


def sums_of(run: Run, column: str) -> np.ndarray:
    """Sum of a column of ``truth`` for each link."""
    sums = run.tables["truth"].group_by("link").agg(pl.col(column).sum())
    out = np.zeros(run.tables["links"].height)
    out[sums["link"].to_numpy()] = sums[column].to_numpy()
    return out


def test_simulations_are_compared_like_the_measurement() -> None:
    slow, healthy = run_with("leaf0[5]"), run_with(None)
    n = slow.tables["links"].height
    none = np.full(n, 0.0)
    stalls = PortStalls(none, none < 0, slow.elapsed_ps, none)
    samples = LinkSamples(none, np.ones(n), np.zeros(n, np.bool_))
    compare = Comparisons([stalls, samples])
    assert compare.between(slow, [slow]) == {"stalls": 0.0, "samples": pytest.approx(0.0, abs=1e-9)}
    apart = compare.between(slow, [slow, healthy])
    assert apart["stalls"] > 0.01 and apart["samples"] > 0.0


def test_a_run_slow_at_times_lies_between_both() -> None:
    slow, healthy = run_with("leaf0[5]"), run_with(None)
    n = slow.tables["links"].height
    stall = 0.75 * link_totals(healthy, "stall_ps") + 0.25 * link_totals(slow, "stall_ps")
    none = np.zeros(n)
    compare = Comparisons([PortStalls(stall, none < 0, slow.elapsed_ps, none)])
    outcome = compare.at_times(healthy, slow, 0.25)
    assert outcome.elapsed_ps == pytest.approx(
        0.75 * healthy.elapsed_ps + 0.25 * slow.elapsed_ps, abs=1
    )
    assert outcome.misfits["stalls"] == pytest.approx(0.0, abs=1e-9)
    always = compare(slow).misfits["stalls"]
    assert always is not None and always > 0.01
    for share, run in ((0.0, healthy), (1.0, slow)):
        assert compare.at_times(healthy, slow, share).misfits == compare(run).misfits


def test_bytes_between_switches_tell_how_messages_are_routed() -> None:
    def routed(routing: str) -> Run:
        pattern = {"kind": "stencil2d", "dims": [2, 4], "size": "256 KiB"}
        return simulate(
            parse({**MACHINE, "job": [{"pattern": pattern}], "engine": {"routing": routing}})
        )

    counted, other = routed("deterministic"), routed("random")
    links = counted.tables["links"]
    between = ~(links["from_node"] | links["to_node"]).to_numpy()
    sent = 1.05 * link_totals(counted, "bytes")  # Headers.
    seen = PortBytes(sent, between)
    assert seen(counted) == pytest.approx(0.0, abs=1e-9)
    spread = seen(other)
    assert spread is not None and spread > 0.005
    assert seen.to(other)(other) == pytest.approx(0.0, abs=1e-9)
    # Ports without counters are left out.
    assert PortBytes(np.full(len(sent), np.nan), between)(other) is None
