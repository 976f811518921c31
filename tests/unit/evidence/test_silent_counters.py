"""Counters at 0 at both ends of a cable are evidence of nothing where the cable was used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tailback.arrays import Bools
from tailback.evidence.link_counters import LinkCounters
from tailback.evidence.measured_routes import limited_by_routes
from tailback.evidence.silent_counters import silent_cables, used_cables, without_silent
from tailback.inference.evidence import NetworkEvidence, with_samples
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tests.factories.counted_links import bursts, counted, joined, small_tree

FABRIC = small_tree()
# As much either way, so that what enters a switch and what leaves it agree without the cable, too.
OWN = bursts([(0, 5, 4e7), (5, 0, 4e7), (1, 9, 3e7), (9, 1, 3e7), (6, 10, 2e7), (10, 6, 2e7)], 10.0)
NOTHING = np.zeros(FABRIC.n_links, np.bool_)
LEAF = FABRIC.node_switch.astype(np.int64)
CABLE = int(np.flatnonzero((FABRIC.link_src == FABRIC.n_nodes + LEAF[0]) & (FABRIC.link_up > 0))[0])
"""The first up-link of the first leaf."""


def carried(first: float, overhead: float = 1.04) -> LinkCounters:
    """Counters where the up-links of each leaf carry these shares of what leaves it."""
    out = np.zeros(FABRIC.n_links)
    remote = LEAF[OWN.src_node] != LEAF[OWN.dst_node]
    for ends, node, sign in (
        (FABRIC.link_src, OWN.src_node, 1),
        (FABRIC.link_dst, OWN.dst_node, -1),
    ):
        for host in range(FABRIC.n_nodes):
            out[ends == host] += OWN.size_bytes[node == host].sum()
        for leaf in np.unique(LEAF):
            links = np.flatnonzero(
                (ends == FABRIC.n_nodes + leaf) & (np.sign(FABRIC.link_up) == sign)
            )
            links = links[(FABRIC.link_src[links] >= FABRIC.n_nodes)]
            links = links[(FABRIC.link_dst[links] >= FABRIC.n_nodes)]
            bytes_ = OWN.size_bytes[remote & (LEAF[node] == leaf)].sum()
            out[links] = bytes_ * np.array([first, 1.0 - first])
    return replace(joined(FABRIC, counted(FABRIC, OWN), OWN), sent_bytes=out * overhead)


def silenced(counters: LinkCounters, *links: int) -> LinkCounters:
    """The same with nothing counted at both ends of cables."""
    sent = counters.sent_bytes.copy()
    for link in links:
        sent[[link, FABRIC.link_reverse[link]]] = 0.0
    return replace(counters, sent_bytes=sent, stall=np.where(sent == 0, 0.0, counters.stall))


def ends_of(*links: int) -> Bools:
    return np.isin(np.arange(FABRIC.n_links), [*links, *FABRIC.link_reverse[list(links)]])


def test_uncounted_cable_is_no_evidence_of_routes() -> None:
    silent = silenced(carried(0.5), CABLE)
    assert limited_by_routes(silent, FABRIC, np.zeros(FABRIC.n_links))[1] > 0.2
    used = used_cables(silent, FABRIC, OWN, NOTHING)
    assert (used == ends_of(CABLE)).all()
    kept, (note,) = without_silent(silent, used, FABRIC, "messages of the trace crossed them")
    assert np.isnan(kept.sent_bytes[used]).all() and not np.isnan(kept.sent_bytes[~used]).any()
    assert limited_by_routes(kept, FABRIC, np.zeros(FABRIC.n_links)) == ((), 0.0)
    assert FABRIC.link_name(CABLE) in note and "stand at 0 at both ends" in note


def test_collectives_show_no_cable_in_use() -> None:
    """A library may send their messages to other ranks than is assumed, over other cables."""
    collectives = replace(OWN, assumed=np.full(len(OWN.size_bytes), True))
    silent = silenced(carried(0.5), CABLE)
    assert not used_cables(silent, FABRIC, collectives, NOTHING).any()


def test_uncounted_switch_is_no_evidence_of_routes() -> None:
    spine = FABRIC.link_dst[CABLE]
    cables = np.flatnonzero(FABRIC.link_dst == spine).tolist()
    silent = silenced(carried(0.5), *cables)
    limits, unevenness = limited_by_routes(silent, FABRIC, np.zeros(FABRIC.n_links))
    assert limits and unevenness > 0.9
    used = used_cables(silent, FABRIC, OWN, NOTHING)
    assert (used == ends_of(*cables)).all()
    kept, (note,) = without_silent(silent, used, FABRIC, "messages of the trace crossed them")
    assert limited_by_routes(kept, FABRIC, np.zeros(FABRIC.n_links)) == ((), 0.0)
    assert note.startswith("counters of 3 cables")


def test_cable_around_which_traffic_was_routed_stays_evidence() -> None:
    """All of it went by the other up-link, which counted it."""
    around = carried(0.0)
    assert silent_cables(around, FABRIC).any()
    assert not used_cables(around, FABRIC, OWN, NOTHING).any()


def test_stated_routes_show_that_a_cable_is_used() -> None:
    around = carried(0.0)
    crossed = ends_of(CABLE)
    assert (used_cables(around, FABRIC, OWN, crossed) == crossed).all()


@pytest.mark.parametrize("reverse", [False, True])
def test_one_end_may_not_be_counted(reverse: bool) -> None:
    silent = silenced(carried(0.5), CABLE)
    end = int(FABRIC.link_reverse[CABLE]) if reverse else CABLE
    silent.sent_bytes[end] = np.nan
    assert used_cables(silent, FABRIC, OWN, NOTHING)[end]


def test_cable_of_a_host_that_sends_is_used() -> None:
    host = int(np.flatnonzero(FABRIC.link_src == 0)[0])
    silent = silenced(carried(0.5), host)
    assert (used_cables(silent, FABRIC, OWN, NOTHING) == ends_of(host)).all()


def test_cable_that_counts_one_way_is_not_silent() -> None:
    one_way = silenced(carried(0.5), CABLE)
    one_way.sent_bytes[CABLE] = 5e6
    assert not silent_cables(one_way, FABRIC)[CABLE]


def test_samples_show_that_a_cable_is_used(tmp_path: Path) -> None:
    """All bytes of the trace were counted elsewhere, but packets were sampled on the cable."""
    tree = {"hosts_per_leaf": 4, "leaves": 3, "aggregation": 2}
    pattern = {"kind": "ring", "ranks": 4, "size": "1 KiB"}
    prepared = prepare(parse({"fabric": {"fat_tree": tree}, "job": [{"pattern": pattern}]}))
    (tmp_path / "samples.csv").write_text(
        "time_utc,rank,link,samples,packets,packets_variance,bytes,congested_samples,congested,"
        f"congested_variance\n2026-11-22T11:06:10Z,1,{CABLE},200,400,400,400000,140,280,280\n"
    )
    around = carried(0.0)
    evidence = NetworkEvidence(counters=around)
    sampled = with_samples(evidence, tmp_path / "samples.csv", prepared)
    assert sampled.counters is not None
    assert (np.isnan(sampled.counters.sent_bytes) == ends_of(CABLE)).all()
    (note,) = sampled.unused
    assert "although packets were sampled on them" in note
