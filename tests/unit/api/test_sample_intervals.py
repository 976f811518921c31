"""Intervals of a congested fraction from samples in CSV: one reservoir or two."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback import load_scenario
from tailback.inference.evidence import NetworkEvidence, with_samples
from tailback.simulation import prepare
from tailback.telemetry.estimate import link_estimates
from tailback.telemetry.samples_csv import read_samples

EDGES = "link,src,dst,rate_gbit\n" + "".join(
    f"{10 * i},h{i},s,1\n{10 * i + 1},s,h{i},1\n" for i in range(1, 4)
)
FLOW = "src_ip,dst_ip,link,congested,hops,samples\nh1,h2,10,0,2,{free}\nh1,h2,10,1,2,{hot}\n"
RANK = (
    "time_utc,rank,link,samples,packets,packets_variance,bytes,congested_samples,congested,"
    "congested_variance\n2026-11-22T11:06:10Z,1,10,200,400,400,400000,140,280,280\n"
)
WIDTH = 1.5
"""How much wider the intervals of two reservoirs are at least, at a fraction of 0.7."""


def interval(folder: Path, text: str, **telemetry: str) -> tuple[float, float]:
    """The 95 % interval that a diagnosis uses for the sampled link."""
    (folder / "links.csv").write_text(EDGES)
    (folder / "samples.csv").write_text(text)
    prepared = prepare(
        load_scenario(
            {
                "name": "intervals",
                "fabric": {"file": str(folder / "links.csv")},
                "telemetry": telemetry,
                "job": [{"pattern": {"kind": "ring", "size": "1 KiB", "ranks": 3}}],
            }
        )
    )
    estimates = with_samples(NetworkEvidence(), folder / "samples.csv", prepared).estimates
    assert estimates is not None
    row = estimates.row(0, named=True)
    return row["fraction_low"], row["fraction_high"]


def test_samples_by_flow_have_intervals_of_one_reservoir(tmp_path: Path) -> None:
    low, high = interval(tmp_path, FLOW.format(free=60, hot=140))
    fabric = prepare(
        load_scenario(
            {
                "name": "x",
                "fabric": {"file": str(tmp_path / "links.csv")},
                "job": [{"pattern": {"kind": "ring", "size": "1 KiB", "ranks": 3}}],
            }
        )
    ).fabric
    table = read_samples(tmp_path / "samples.csv", fabric).samples
    shared_row, separate_row = (
        link_estimates(table, shared=shared).row(0, named=True) for shared in (True, False)
    )
    assert (low, high) == (shared_row["fraction_low"], shared_row["fraction_high"])
    assert separate_row["fraction_high"] - separate_row["fraction_low"] > WIDTH * (high - low)


def test_samples_by_rank_need_the_scenarios_scheme(tmp_path: Path) -> None:
    coordinated = interval(tmp_path, RANK, scheme="coordinated")
    unknown, full = interval(tmp_path, RANK), interval(tmp_path, RANK, scheme="full")
    assert unknown == full
    assert full[1] - full[0] > WIDTH * (coordinated[1] - coordinated[0])


@pytest.mark.parametrize("fraction", [0.2, pytest.param(0.7, marks=pytest.mark.slow)])
def test_intervals_hold_the_truth_as_often_as_stated(tmp_path: Path, fraction: float) -> None:
    """400 packets of two hops cross the link; each carries it with probability 1/2."""
    random, held, packets = np.random.default_rng(1), 0, 400
    for _ in range(100):
        hot = int(random.binomial(round(packets * fraction), 0.5))
        free = int(random.binomial(round(packets * (1 - fraction)), 0.5))
        low, high = interval(tmp_path, FLOW.format(free=free, hot=hot))
        held += low <= fraction <= high
    assert held >= 90
