"""The two measurement studies: the parts that are small enough to check."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from studies.production_networks import inference, torus_figures, torus_machine, victim


def test_figure_1_victim_gets_a_third_and_its_port_waits() -> None:
    """Three flows share port p; F1, which waits there, and F2 take turns at port q."""
    quiet, hot = victim.figure_1(congested=False), victim.figure_1(congested=True)
    assert victim.flow_gbps(quiet, "f2") == pytest.approx(victim.LINE_GBPS, rel=0.01)
    assert victim.flow_gbps(hot, "f2") == pytest.approx(victim.LINE_GBPS / 3, rel=0.03)
    assert victim.stall(hot, "r", "s") == pytest.approx(1 / 3, abs=0.03)
    assert victim.stall(hot, "s", "p") == victim.stall(hot, "s", "w") == 0


def test_ports_stall_only_where_receivers_are_slower_than_cables() -> None:
    """ToR down ports wait for adapters; with receivers at line rate they never do."""
    mix = inference.Mix(12, 512 * 1024, 0.3, 0.05, 0.5, 0.2, 1.0, True)
    at = inference.CLASSES.index(("ToR", "down"))
    for drain, stalled in ((inference.LINE_GBPS, False), (13.5, True)):
        receivers = inference.Receivers(drain, 1.0, inference.LINE_GBPS)
        found = inference.shares(inference.one_run(mix, receivers, "500 us"), 1)[0]
        assert (found[at] > 0.3) == stalled and found[at] <= 1


def test_draws_nearest_to_the_published_shares_are_kept() -> None:
    exact, far = inference.PUBLISHED, np.zeros(len(inference.CLASSES))
    shares = np.array([far, exact, exact])
    draws = inference.Draws(pl.DataFrame({"x": [0, 1, 2]}), shares, np.array([0.0, 0.5, 0.05]))
    # The second has the published shares, but its ports stall half the time.
    assert draws.kept().tolist() == [2]


def test_jobs_of_a_mix_use_each_host_once() -> None:
    mix = inference.Mix(24, 8192, 0.1, 0.05, 0.5, 0.2, 0.6, False)
    jobs = inference.jobs(mix)
    own = [set(map(int, job["hosts"].split(","))) for job in jobs]
    assert [job["name"] for job in jobs] == ["job0", "job1", "job2", "files", "copies"]
    assert all(len(hosts) == 24 for hosts in own[:3]) and not own[0] & own[1]
    assert own[4] == set(range(144, 150))
    whole = inference.jobs(mix, plant=inference.WHOLE)
    hosts = [len(job["hosts"].split(",")) for job in whole]
    # The same shares of the hosts; 80 clients with 20 servers; the servers' copies.
    assert [job["name"] for job in whole] == [job["name"] for job in jobs]
    assert hosts[-2:] == [100, 20]
    assert {round(4456 / (120 // mix.job_hosts)) - count for count in hosts[:-2]} <= {0, 1, -1}


def test_iterations_are_those_of_the_messages() -> None:
    """Eight iterations of 100 µs of computation and some communication each."""
    times, stall = torus_figures.application("AMR", 0.01, 1)
    assert len(times) == torus_figures.ITERATIONS
    assert times.min() > 100 and times.max() < 300 and 0 <= stall < 10


def test_z_ports_wait_only_for_slow_nodes() -> None:
    """Z is the last direction: its packets can wait only for what leaves the torus."""
    shares = []
    for rate in ("10.4 GB/s", "5 GB/s"):
        rows = torus_machine.intervals(
            torus_machine.run_of(replace(torus_figures.FITTED, host_rate=rate))
        )
        shares.append(torus_figures.above(rows, "stall_fraction", 0.1)["Z"])
    assert shares[0] < 0.01 and shares[1] > 0.05


def test_an_exponential_distribution_is_straight() -> None:
    values = np.random.default_rng(1).exponential(3.0, 2000)
    assert torus_figures.exponential_fit(values) > 0.98
    assert torus_figures.exponential_fit(np.concatenate([values, np.full(500, 300.0)])) < 0.9
