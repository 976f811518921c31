"""The two measurement studies: the parts that are small enough to check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from studies.production_networks import (
    inference,
    job_mixes,
    torus_figures,
    torus_fit,
    torus_machine,
    victim,
    yellowstone,
)


def test_the_victim_of_figure_1_gets_a_third() -> None:
    """Three flows share port p; F1, which waits there, and F2 take turns at port q."""
    quiet, hot = victim.figure_1(congested=False), victim.figure_1(congested=True)
    assert victim.flow_gbps(quiet, "f2") == pytest.approx(victim.LINE_GBPS, rel=0.01)
    assert victim.flow_gbps(hot, "f2") == pytest.approx(victim.LINE_GBPS / 3, rel=0.03)
    assert victim.stall(hot, "r", "s") == pytest.approx(1 / 3, abs=0.03)
    assert victim.stall(hot, "s", "p") == victim.stall(hot, "s", "w") == 0


def test_ports_stall_only_at_slow_receivers() -> None:
    """ToR down ports wait for adapters; with receivers at line rate they never do."""
    mix = job_mixes.Mix(12, 512 * 1024, 0.3, 0.05, 0.5, 0.2, 1.0, True)
    at = job_mixes.CLASSES.index(("ToR", "down"))
    for drain, stalled in ((job_mixes.LINE_GBPS, False), (13.5, True)):
        receivers = job_mixes.Receivers(drain, 1.0, job_mixes.LINE_GBPS)
        shares = job_mixes.shares(job_mixes.one_run(mix, receivers, "500 us"), 1)[0]
        assert (shares[at] > 0.3) == stalled and shares[at] <= 1


def test_draws_nearest_to_the_published_shares_are_kept() -> None:
    exact, far = job_mixes.PUBLISHED, np.zeros(len(job_mixes.CLASSES))
    shares = np.array([far, exact, exact])
    shares = np.vstack([shares, exact])
    stall, lasting = np.array([0.0, 0.5, 0.05, 0.01]), np.array([True, True, True, False])
    draws = job_mixes.Draws(pl.DataFrame({"x": [0, 1, 2, 3]}), shares, stall, lasting)
    # The second has the published shares, but its ports stall half the time; the last has them,
    # but its receivers are offered more than they take.
    assert draws.kept().tolist() == [2]


def test_a_mix_lasts_within_node_capacity() -> None:
    mix = job_mixes.Mix(
        12, 8192, load=0.2, files=0.1, reads=0.5, copies=0.3, active=1.0, scattered=True
    )
    line = job_mixes.LINE_GBPS
    slower = ((1.0, 1.0, True), (0.3, 0.6, True), (0.1, 1.0, False), (1.0, 0.4, False))
    for drain, servers, lasts in slower:
        kind = job_mixes.Receivers(drain * line, 1.0, servers * line)
        assert job_mixes.sustained(mix, kind) is lasts


def test_jobs_of_a_mix_use_each_host_once() -> None:
    mix = job_mixes.Mix(24, 8192, 0.1, 0.05, 0.5, 0.2, 0.6, False)
    jobs = job_mixes.jobs(mix)
    hosts_of_jobs = [set(map(int, job["hosts"].split(","))) for job in jobs]
    assert [job["name"] for job in jobs] == ["job0", "job1", "job2", "files", "copies"]
    assert (
        all(len(hosts) == 24 for hosts in hosts_of_jobs[:3])
        and not hosts_of_jobs[0] & hosts_of_jobs[1]
    )
    assert hosts_of_jobs[4] == set(range(144, 150))
    plant_jobs = job_mixes.jobs(mix, plant=job_mixes.WHOLE)
    hosts = [len(job["hosts"].split(",")) for job in plant_jobs]
    # The same shares of the hosts; 80 clients with 20 servers; the servers' copies.
    assert [job["name"] for job in plant_jobs] == [job["name"] for job in jobs]
    assert hosts[-2:] == [100, 20]
    assert {round(4456 / (120 // mix.job_hosts)) - count for count in hosts[:-2]} <= {0, 1, -1}


@pytest.mark.slow
def test_iterations_are_those_of_the_messages() -> None:
    """Eight iterations of 100 µs of computation and some communication each."""
    times, stall = torus_figures.application("AMR", 0.01, 1)
    assert len(times) == torus_figures.ITERATIONS
    assert times.min() > 100 and times.max() < 300 and 0 <= stall < 10


@pytest.mark.slow
def test_z_ports_wait_only_for_slow_nodes() -> None:
    """Z is the last direction: its packets can wait only for what leaves the torus."""
    shares = []
    for rate in ("10.4 GB/s", "5 GB/s"):
        rows = torus_machine.intervals(
            torus_machine.run_of(replace(torus_figures.FITTED, host_rate=rate))
        )
        shares.append(torus_figures.above(rows, "stall_fraction", 0.1)["Z"])
    assert shares[0] < 0.01 and shares[1] > 0.05


@pytest.mark.parametrize("name", ["exponential", "power law", "uniform"])
def test_each_distribution_is_straightest_on_its_scales(name: str) -> None:
    random = np.random.default_rng(1)
    values = {
        "exponential": random.exponential(3.0, 2000),
        "power law": random.pareto(2.0, 2000) + 1,
        "uniform": random.random(2000),
    }[name]
    fits = torus_figures.straightness(values)
    assert max(fits, key=lambda key: fits[key]) == name


def test_no_stall_cannot_be_halved() -> None:
    before = np.array([0.0, 0.4, *np.full(len(job_mixes.CLASSES) - 2, 0.5)])
    after = np.array([0.0, 0.1, *np.full(len(job_mixes.CLASSES) - 2, 0.5)])
    fallen, others = inference.falls({"the nearest draw": before, "change": after}, "change")
    assert len(fallen) == 1 and "40 % → 10 %" in fallen[0]
    assert any("0 % → 0 %" in text for text in others)


def test_slow_servers_as_often_as_drawn_are_undetermined() -> None:
    line = job_mixes.LINE_GBPS
    every = pl.DataFrame({"servers": [line] + [27.0] * 5})
    kept = pl.DataFrame({"servers": [line] * 4 + [27.0] * 20})
    assert inference.compare_with_all(kept, every, "servers").endswith(": not determined")
    quick = pl.DataFrame({"servers": [line] * 24})
    assert inference.compare_with_all(quick, every, "servers").endswith(": determined")


def draws_of(shares: list[float]) -> job_mixes.Draws:
    """One draw at line rate and one with slow hosts, with these shares of ToR down."""
    every = np.full((2, len(job_mixes.CLASSES)), 0.5)
    every[:, job_mixes.CLASSES.index(("ToR", "down"))] = shares
    rates = {name: [job_mixes.LINE_GBPS, 27.0] for name in ("drain", "servers")}
    names = ("message", "load", "files", "reads", "copies", "active", "slow")
    table = pl.DataFrame({**rates, **{name: [1.0, 2.0] for name in names}})
    return job_mixes.Draws(table, every, np.zeros(2), np.ones(2, bool))


def test_findings_of_the_inference_follow_from_its_figures() -> None:
    """The mechanism is stated only while the change without it removes the stalls."""
    near, at = np.full(len(job_mixes.CLASSES), 0.5), job_mixes.CLASSES.index(("ToR", "down"))
    for without, sentence in (
        (0.01, "slow hosts explain them"),
        (0.4, "slow hosts do not explain"),
    ):
        after = near.copy()
        after[at] = without
        changed = {
            "the nearest draw": near,
            "hosts take data at line rate": after,
            "servers take data at line rate": near,
        }
        text = inference.findings(draws_of([0.0, 0.9]), changed)[0]
        assert (
            sentence in text
            and f"{100 * without:.2g} % if its hosts take data at line rate" in text
        )


def test_yellowstone_reasons_follow_from_its_figures() -> None:
    grown, flat = [(34.0, 1.0), (1074.0, 9.0)], [(34.0, 9.0), (1074.0, 9.0)]
    leaf = ("Leaf", "down")
    assert "1 % of intervals of 34 µs, 9 % of 1074 µs" in yellowstone.why(leaf, 5.0, 5.0, grown)
    assert "not the length" in yellowstone.why(leaf, 5.0, 5.0, flat)
    assert "slower adapters" in yellowstone.why(("ToR", "down"), 0.0, 4.4, grown)
    assert "slower adapters" not in yellowstone.why(("ToR", "down"), 0.5, 4.4, grown)
    free = yellowstone.change_of_routes({("ToR", "up"): 45.0}, {("ToR", "up"): 10.0})
    assert free.startswith("less than with fixed routes: ToR up (45 %)")


def test_pooling_loads_creates_the_correlation() -> None:
    """Within each minute use and stall are unrelated; both rise with the load."""
    random = np.random.default_rng(1)
    minutes = {
        load: pl.DataFrame(
            {
                "link": np.arange(200),
                "direction": ["X+"] * 200,
                "node_name": ["n"] * 200,
                "utilization": load * (1 + 0.2 * random.random(200)),
                "stall_fraction": load * (0.5 + 0.2 * random.random(200)),
                "internal_stall_fraction": np.zeros(200),
            }
        )
        for load in (0.1, 0.5)
    }
    alone, both = (torus_fit.pooled(minutes, loads)["X"] for loads in ((0.5,), (0.1, 0.5)))
    assert alone is not None and both is not None
    assert abs(alone) < 0.3 and both > 0.9
    assert "loads that vary give theirs" in torus_fit.reason(
        [{"X": 0.3, "Y": 0.3, "Z": 0.3}], {"X": 0.6, "Y": 0.5, "Z": 0.66}
    )
    assert "do not help" in torus_fit.reason(
        [{"X": 0.6, "Y": 0.5, "Z": 0.66}], {"X": 0.3, "Y": 0.3, "Z": 0.3}
    )
