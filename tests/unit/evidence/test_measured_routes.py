"""Uneven routes: full links of a group limit its even traffic as the busiest one did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tailback.evidence.link_counters import LinkCounters
from tailback.evidence.measured_routes import (
    HASHED_VARIANCE,
    LeafFlows,
    hashed_variance,
    limited_by_routes,
    parallel_bundles,
    unevenness_of_tables,
)
from tailback.fabric.degraded import SlowLink, with_slow_links
from tailback.fabric.lft import NO_ENTRY
from tests.factories.counted_links import bursts, counted, joined, small_tree

FABRIC = small_tree()
OWN = bursts([(0, 5, 4e7)], 10.0)
NOTHING = np.zeros(FABRIC.n_links)


def carried(first: float, second: float) -> LinkCounters:
    """Counters of links between switches: of each two parallel ones these shares."""
    out = np.zeros(FABRIC.n_links)
    inner = (FABRIC.link_src >= FABRIC.n_nodes) & (FABRIC.link_dst >= FABRIC.n_nodes)
    for up, end in ((True, FABRIC.link_src), (False, FABRIC.link_dst)):
        side = inner & ((FABRIC.link_up > 0) if up else (FABRIC.link_up < 0))
        for vertex in np.unique(end[side]):
            links = np.flatnonzero(side & (end == vertex))
            assert len(links) == 2
            out[links] = 1e9 * first, 1e9 * second
    return replace(joined(FABRIC, counted(FABRIC, OWN), OWN), sent_bytes=out)


def flows(each: int) -> tuple[np.ndarray, np.ndarray]:
    """Leaf switches of flows: so many from each leaf to each other one."""
    leaves = np.unique(FABRIC.node_switch[FABRIC.node_switch >= 0]).astype(np.int64)
    pairs = [(a, b) for a in leaves for b in leaves if a != b]
    src, dst = np.repeat(np.array(pairs), each, axis=0).T
    return src, dst


@pytest.mark.parametrize("each", [1, 8, 60])
def test_hashed_flows_differ_as_by_chance(each: int) -> None:
    src, dst = flows(each)
    rng = np.random.default_rng(each)
    size, up, down = rng.exponential(1e6, len(src)), *rng.integers(0, 2, (2, len(src)))
    counters = carried(0.5, 0.5)
    for links in parallel_bundles(FABRIC):
        leaving = len(np.unique(FABRIC.link_src[links])) == 1
        end = (FABRIC.link_src if leaving else FABRIC.link_dst)[links[0]] - FABRIC.n_nodes
        mine = (src if leaving else dst) == end
        chosen = (up if leaving else down)[mine]
        counters.sent_bytes[links] = np.bincount(chosen, size[mine], 2)
    least, most = HASHED_VARIANCE
    assert least < hashed_variance(counters, FABRIC, LeafFlows(src, dst, size)) < most
    assert hashed_variance(carried(0.51, 0.49), FABRIC, LeafFlows(src, dst, size)) < least / 3


def test_an_avoided_link_is_no_chance() -> None:
    src, dst = flows(60)
    avoided = hashed_variance(carried(0.85, 0.15), FABRIC, LeafFlows(src, dst, np.ones(len(src))))
    assert avoided > HASHED_VARIANCE[1]


def test_one_used_link_of_two_halves_the_rate() -> None:
    limits, uneven = limited_by_routes(carried(1.0, 0.0), FABRIC, NOTHING)
    assert uneven == pytest.approx(1.0)
    # Six leaves' worth of groups up and down, two links each; 2 x 50 Gb/s pass what one did.
    assert len(limits) == 12 and {rate for _, rate in limits} == {50.0}


def test_a_share_of_nine_tenths_is_in_between() -> None:
    limits, uneven = limited_by_routes(carried(0.9, 0.1), FABRIC, NOTHING)
    assert uneven == pytest.approx(0.8)
    assert {round(rate, 6) for _, rate in limits} == {round(100 / (2 * 0.9), 6)}


@pytest.mark.parametrize("second", [0.5, 0.4])
def test_even_traffic_is_not_limited(second: float) -> None:
    limits, uneven = limited_by_routes(carried(1.0 - second, second), FABRIC, NOTHING)
    assert limits == () and uneven == pytest.approx(abs(1.0 - 2 * second))


def ring_of_leaves(each: int) -> LeafFlows:
    """So many equal flows from each leaf to the next."""
    leaves = np.unique(FABRIC.node_switch[FABRIC.node_switch >= 0]).astype(np.int64)
    src, dst = (np.repeat(ends, each) for ends in (leaves, np.roll(leaves, -1)))
    return LeafFlows(src, dst, np.ones(len(src)))


@pytest.mark.parametrize(("each", "limited"), [(1, False), (2, True), (8, True)])
def test_one_flow_cannot_use_both_links(each: int, limited: bool) -> None:
    limits, uneven = limited_by_routes(carried(1.0, 0.0), FABRIC, NOTHING, ring_of_leaves(each))
    assert bool(limits) == limited
    assert uneven == pytest.approx(1.0 if limited else 0.0)


def test_three_flows_share_two_links_unevenly() -> None:
    shares = carried(2 / 3, 1 / 3)
    assert limited_by_routes(shares, FABRIC, NOTHING, ring_of_leaves(3))[1] == pytest.approx(0.0)


@pytest.mark.parametrize("lossy", [True, False])
def test_one_uneven_bundle_limits_where_packets_drop(lossy: bool) -> None:
    counters = replace(carried(0.5, 0.5), lossy=lossy)
    first = int(np.flatnonzero((FABRIC.link_src >= FABRIC.n_nodes) & (FABRIC.link_up > 0))[0])
    bundle = np.flatnonzero((FABRIC.link_src == FABRIC.link_src[first]) & (FABRIC.link_up > 0))
    counters.sent_bytes[bundle] = 1e9, 0.0
    limits, uneven = limited_by_routes(counters, FABRIC, NOTHING)
    assert uneven < 0.5
    assert dict(limits) == (dict.fromkeys(bundle.tolist(), 50.0) if lossy else {})


@pytest.mark.parametrize(
    ("second", "expected", "uneven", "gbps"),
    [
        # A slow link with a sixth of the bytes of the other, as adaptive routing leaves it.
        (1 / 7, 1 / 7, 0.0, None),
        # The slow cable explains part of it: the excess over what is expected is the routes'.
        (0.0, 0.3, 0.6, 100 * 0.7),
        # What is expected is farther from the bytes than even traffic, or its reverse.
        (0.2, 0.9, 0.6, 100 / 1.6),
        (0.5, 0.1, 0.0, None),
        (0.1, 0.5, 0.8, 100 / 1.8),
    ],
)
def test_expected_avoidance_is_no_uneven_route(
    second: float, expected: float, uneven: float, gbps: float | None
) -> None:
    bytes_expected = carried(1.0 - expected, expected).sent_bytes
    limits, shown = limited_by_routes(carried(1.0 - second, second), FABRIC, bytes_expected)
    assert shown == pytest.approx(uneven, abs=1e-9)
    assert {round(rate, 6) for _, rate in limits} == ({round(gbps, 6)} if gbps else set())


def test_slow_cables_are_not_multiplied_by_routes() -> None:
    """Hashing loads a slow link like the other: its cost is that of the cable, not of routes."""
    counters = carried(1.0, 0.0)
    slow = int(np.flatnonzero((FABRIC.link_src >= FABRIC.n_nodes) & (FABRIC.link_up > 0))[0])
    bundle = np.flatnonzero((FABRIC.link_src == FABRIC.link_src[slow]) & (FABRIC.link_up > 0))
    counters.sent_bytes[bundle] = 5e8
    fabric = with_slow_links(FABRIC, [SlowLink(slow, 20.0, both=False)])
    limits, uneven = limited_by_routes(counters, fabric, NOTHING)
    assert uneven > 0.5
    # The other bundles pass half; this one passes what its links serve.
    assert {rate for link, rate in limits if link not in bundle} == {50.0}
    assert dict(limits)[slow] == 20.0 and {dict(limits)[int(link)] for link in bundle} == {
        20.0,
        100.0,
    }


def test_links_that_were_not_counted_say_nothing() -> None:
    counters = carried(1.0, 0.0)
    unknown = replace(counters, sent_bytes=np.full(FABRIC.n_links, np.nan))
    assert limited_by_routes(unknown, FABRIC, NOTHING) == ((), 0.0)


def tables(spread: bool) -> np.ndarray:
    """Tables of the leaves: nodes in turn over two up-links, or all over the first."""
    link = np.full((FABRIC.n_switches, FABRIC.n_nodes), NO_ENTRY, np.uint32)
    for leaf in np.unique(FABRIC.node_switch):
        up = np.flatnonzero((FABRIC.link_src == FABRIC.n_nodes + leaf) & (FABRIC.link_up > 0))
        away = np.flatnonzero(FABRIC.node_switch != leaf)
        link[leaf, away] = up[np.arange(len(away)) % len(up)] if spread else up[0]
    return link


def test_tables_are_judged_by_destinations_alone() -> None:
    assert unevenness_of_tables(tables(spread=True), FABRIC) < 0.1
    assert unevenness_of_tables(tables(spread=False), FABRIC) == pytest.approx(1.0)
    nothing = np.full((FABRIC.n_switches, FABRIC.n_nodes), NO_ENTRY, np.uint32)
    assert unevenness_of_tables(nothing, FABRIC) == 0.0
