"""Bytes of others at the ports of hosts: never our own, by job, spread inside of jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tailback.evidence.counter_alignment import Sent
from tailback.evidence.other_traffic import (
    MAYBE_COLLECTIVES,
    UNKNOWN,
    OtherTraffic,
    find_other_traffic,
)
from tests.factories.counted_links import bursts, counted, joined, small_tree

FABRIC = small_tree()
OURS = [(a, b, 4e7) for a in (0, 1, 4, 5) for b in (0, 1, 4, 5) if a != b]
OWN = bursts(OURS, 10.0)


def both(first: Sent, second: Sent) -> Sent:
    names = ("src_node", "dst_node", "size_bytes", "start_ps", "end_ps")
    return Sent(*(np.concatenate([getattr(first, n), getattr(second, n)]) for n in names))


def find_others(
    everything: Sent, jobs: dict[str, str] | None = None, **options: float
) -> OtherTraffic:
    counters = joined(FABRIC, counted(FABRIC, everything, **options), OWN)  # type: ignore[arg-type]
    others = find_other_traffic(counters, FABRIC, OWN, jobs, packet_bytes=4096)
    assert others is not None
    return others


@pytest.mark.parametrize("overhead", [1.0, 1.03, 1.2])
def test_our_own_bytes_are_nobody_elses(overhead: float) -> None:
    others = find_others(OWN, overhead=overhead, error=0.02)
    assert others.sent_bytes == 0 and others.jobs == () and others.messages().is_empty()
    # What headers add to the bytes of the trace is learnt from the ports themselves.
    assert others.own_overhead == pytest.approx(overhead, rel=0.01)


def test_possible_collective_bytes_belong_to_no_other_job() -> None:
    """A gather over a tree instead of directly: more bytes, all between our own hosts."""
    tree = bursts([(1, 0, 3e8), (4, 0, 6e8), (5, 4, 3e8)], 10.0)
    direct = bursts([(1, 0, 3e8), (4, 0, 3e8), (5, 0, 3e8)], 10.0)
    foreign = bursts([(2, 8, 6e8)], 10.0, seed=3)

    def jobs(counted_bytes: Sent, *, collective: bool) -> tuple[list[str], tuple[str, ...]]:
        ours = replace(direct, assumed=np.full(len(direct.src_node), collective))
        counters = joined(FABRIC, counted(FABRIC, counted_bytes, error=0.0), ours)
        others = find_other_traffic(counters, FABRIC, ours, packet_bytes=4096)
        assert others is not None
        return [job.job for job in others.jobs], others.notes

    assert jobs(tree, collective=False) == ([UNKNOWN], ())
    assert jobs(tree, collective=True) == ([], (MAYBE_COLLECTIVES,))
    # Other hosts sent, too: then somebody else did.
    assert jobs(both(tree, foreign), collective=True) == ([UNKNOWN], ())


def test_counters_of_half_our_bytes_are_named_so() -> None:
    (note,) = find_others(OWN, overhead=0.5, error=0.0).notes
    assert "counted 50 % of the bytes" in note
    assert not find_others(OWN, overhead=1.0, error=0.02).notes


def test_bytes_of_other_jobs_are_found_per_job() -> None:
    """Also on hosts that run ours: hosts 1 and 5 are shared."""
    loud = bursts([(2, 8, 6e8), (8, 2, 6e8), (3, 9, 3e8)], 10.0, seed=3)
    quiet = bursts([(6, 10, 1.5e8)], 10.0, seed=4)
    shared = bursts([(1, 5, 5e8)], 10.0, seed=5)
    host = FABRIC.host_name
    jobs = {host[n]: "loud" for n in (2, 3, 8, 9)} | {host[n]: "quiet" for n in (6, 10, 7)}
    others = find_others(both(both(OWN, loud), both(quiet, shared)), jobs, overhead=1.04)
    by = {job.job: job for job in others.jobs}
    assert [job.job for job in others.jobs] == ["loud", UNKNOWN, "quiet"]
    for name, sent in (("loud", loud), ("quiet", quiet), (UNKNOWN, shared)):
        assert by[name].sent_bytes == pytest.approx(1.04 * sent.size_bytes.sum(), rel=0.08), name
    assert set(by["loud"].hosts) == {host[n] for n in (2, 3, 8, 9)}
    # Host 7 belongs to the job and sent nothing.
    assert set(by["quiet"].hosts) == {host[6], host[10]}


def test_gravity_stays_within_jobs_and_excludes_self() -> None:
    jobs = {FABRIC.host_name[n]: "a" if n in (2, 8) else "b" for n in (2, 3, 6, 8, 9, 10)}
    first = bursts([(2, 8, 5e8), (8, 2, 5e8)], 10.0, seed=3)
    second = bursts([(3, 9, 5e8), (9, 6, 5e8)], 10.0, seed=4)
    messages = find_others(both(OWN, both(first, second)), jobs).messages()
    pairs = set(messages.select("src_node", "dst_node").iter_rows())
    group = {node: "a" if node in (2, 8) else "b" for node in range(12)}
    assert pairs and all(group[src] == group[dst] and src != dst for src, dst in pairs)
    # They carry what was counted, at times of the job.
    total = first.size_bytes.sum() + second.size_bytes.sum()
    assert messages["size_bytes"].sum() == pytest.approx(total, rel=0.05)
    assert messages["time_ps"].min() >= 0 and messages["time_ps"].max() <= 10e12
    sends = messages.group_by("src_node").agg(size=messages["size_bytes"].sum())
    assert set(sends["src_node"]) == {2, 3, 8, 9}


def test_traffic_comes_when_it_was_counted() -> None:
    burst = bursts([(2, 8, 4e9)], 2.0, seed=3)
    late = Sent(
        burst.src_node, burst.dst_node, burst.size_bytes, burst.start_ps + 6e12, burst.end_ps + 6e12
    )
    times = find_others(both(OWN, late)).messages()["time_ps"].to_numpy() / 1e12
    assert times.min() >= 5.7 and times.max() <= 8.3


def test_bursts_carry_the_same_bytes_at_fewer_instants() -> None:
    burst = bursts([(2, 8, 4e9), (3, 9, 4e9)], 10.0, seed=3)
    others = find_others(both(OWN, burst))
    even, four = others.messages(), others.messages(4)
    assert four["size_bytes"].sum() == even["size_bytes"].sum()
    windows = others.flows["start_ps"].n_unique()
    assert four["time_ps"].n_unique() <= 4 * windows < even["time_ps"].n_unique()
    # In a burst everybody sends.
    senders = four.group_by("time_ps").agg(pl.col("src_node").n_unique())["src_node"]
    assert senders.median() == 2


def test_management_traffic_makes_no_job() -> None:
    assert find_others(both(OWN, bursts([(2, 8, 1e6)], 10.0))).messages().is_empty()


def test_without_counted_ports_of_hosts_nothing_is_said() -> None:
    inner = np.flatnonzero(
        (FABRIC.link_src >= FABRIC.n_nodes) & (FABRIC.link_dst >= FABRIC.n_nodes)
    )
    rows = counted(FABRIC, OWN, links=[int(inner[0])])
    counters = joined(FABRIC, rows, OWN)
    assert find_other_traffic(counters, FABRIC, OWN, packet_bytes=4096) is None
