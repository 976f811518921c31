"""The three cases of the thesis, simulated: stencil, reduction and a ring among other traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.simulation.decode import decode_samples
from tailback.telemetry.estimate import Selection, link_estimates, select

RING: list[dict[str, Any]] = [
    {
        "name": "ring",
        "hosts": "parity-of-square:even",
        "pattern": {"kind": "ring", "ranks": 2172, "size": "128 KiB", "messages": 3},
    },
    {
        "name": "noise",
        "hosts": "parity-of-square:odd",
        "observed": False,
        "pattern": {"kind": "uniform", "ranks": 2436, "size": "128 KiB", "messages": 3},
    },
]


def scenario(preset: str, jobs: list[dict[str, Any]], **more: str) -> Any:
    engine = {"packet": "4 KiB", **more}
    return prepare(parse({"fabric": {"preset": preset}, "job": jobs, "engine": engine}))


def stencil(**more: str) -> Any:
    pattern = {"kind": "stencil2d", "dims": [64, 72], "size": "128 KiB"}
    return scenario("tapered", [{"pattern": pattern}], **more)


@pytest.fixture(scope="module")
def stencil_run() -> Run:
    return simulate(stencil())


@pytest.mark.slow
def test_row_major_stencil_blames_placement_at_leaf_uplinks(stencil_run: Run) -> None:
    diagnosis = diagnose_cause(stencil_run)
    assert diagnosis.cause == "placement" and diagnosis.sampling.sufficient
    finding = diagnosis.findings[0]
    assert finding.code == "TB002" and finding.share > 0.9
    assert set(finding.phases) == {"+y", "-y"}
    links = stencil_run.tables["links"].select("link", "tier", "direction")
    roots = RunAnalysis(stencil_run).roots.join(links, on="link")
    up = roots.filter((pl.col("tier") == 1) & (pl.col("direction") == "up"))
    assert up["weight"].sum() > 0.9 * roots["weight"].sum()
    assert up["link"].n_unique() > 0.95 * 144 * 16


@pytest.mark.slow
def test_naive_reduction_is_pattern_rooted_at_the_receiver() -> None:
    job = {"pattern": {"kind": "reduce-naive", "ranks": 1024, "size": "4 KiB", "arrays": 50}}
    prepared = scenario("full", [job])
    diagnosis = diagnose_cause(simulate(prepared), make_evaluate(prepared), seeds=1)
    assert diagnosis.cause == "pattern"
    root = diagnosis.findings[0].links[0]
    assert diagnosis.findings[0].code == "TB001" and root.name.endswith("→ n0000[1]")
    assert root.utilization.value > 0.9 and root.congested_fraction.value > 0.95
    assert root.tree_links > 1000
    bars = {bar.name: bar.delta_ps for bar in diagnosis.waterfall}
    assert bars["pattern"] > 0.98 * diagnosis.elapsed_ps and bars["placement"] == 0


def test_ring_with_background_is_other_traffic() -> None:
    prepared = scenario("tapered", RING)
    run = simulate(prepared)
    assert diagnose_cause(run).cause == "other-traffic"
    diagnosis = diagnose_cause(run, make_evaluate(prepared), seeds=1)
    assert diagnosis.cause == "other-traffic"
    finding = diagnosis.findings[0]
    assert finding.code == "TB003"
    assert all(link.utilization.high < 0.7 and link.direction == "down" for link in finding.links)


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["placement", "pattern", "other-traffic"])
def test_six_bits_give_the_same_verdicts(cause: str) -> None:
    """Scheme coordinated, 5 hash bits and a congestion bit.

    On the samples alone where whole links are sure; of the ring they leave much open, too.
    """
    reduction = {"pattern": {"kind": "reduce-naive", "ranks": 1024, "size": "4 KiB", "arrays": 50}}
    pattern = {"kind": "stencil2d", "dims": [64, 72], "size": "128 KiB"}
    preset, jobs = {
        "placement": ("tapered", [{"pattern": pattern}]),
        "pattern": ("full", [reduction]),
        "other-traffic": ("tapered", RING),
    }[cause]
    prepared = prepare(
        parse(
            {
                "fabric": {"preset": preset},
                "job": jobs,
                "engine": {"packet": "4 KiB"},
                "telemetry": {"scheme": "coordinated", "hash_bits": 5},
            }
        )
    )
    evaluate = make_evaluate(prepared) if cause == "other-traffic" else None
    diagnosis = diagnose_cause(
        decode_samples(simulate(prepared), prepared.fabric), evaluate, seeds=1
    )
    assert diagnosis.cause == diagnosis.findings[0].cause == cause
    assert diagnosis.sampling.header_bits == 6


def test_ring_alone_is_the_adapters_own_rate() -> None:
    diagnosis = diagnose_cause(simulate(scenario("tapered", RING[:1])))
    assert diagnosis.cause == "injection"
    # Three messages of 128 KiB at 100 Gb/s in 35.2 µs.
    assert "TB008" in {finding.code for finding in diagnosis.findings}


def test_intervals_hold_the_simulated_truth() -> None:
    # Without rendezvous: its control packets are in the truth but carry no sample.
    stencil_run = simulate(stencil(eager="1 MiB"))
    selection = select(stencil_run.tables, Selection())
    links = stencil_run.tables["links"].filter(~pl.col("from_node")).select("link")
    truth = (
        stencil_run.tables["truth"]
        .group_by("link")
        .agg(pl.col("observed_packets", "observed_congested_packets").sum())
    )
    both = link_estimates(selection).join(truth, on="link").join(links, on="link")
    both = both.filter(pl.col("observed_packets") >= 50)
    f = both["observed_congested_packets"] / both["observed_packets"]
    n = both["observed_packets"]
    hot = (f > 0.05).to_numpy()
    held = ((both["fraction_low"] <= f) & (f <= both["fraction_high"])).to_numpy()
    counted = ((both["packets_low"] <= n) & (n <= both["packets_high"])).to_numpy()
    assert hot.sum() > 2000
    assert 0.93 <= held[hot].mean() <= 0.98
    assert 0.93 <= counted.mean() <= 0.98
    error = (both["packets"] - n).to_numpy() / np.maximum(both["packets_se"].to_numpy(), 1e-9)
    varied = both["packets_se"].to_numpy() > 0
    assert 0.9 <= error[varied].std() <= 1.1 and abs(error[varied].mean()) < 0.1
