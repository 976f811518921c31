"""Port counters of cables that stand at 0 although the cables are used.

That a cable counted nothing at either end means that it carried nothing, or that its counters do
not count. Only the first shows that traffic was routed around it. Which one it is follows from what
must have crossed it: messages whose route is known, messages of the trace that no other port
counted where they left their switch, or samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from tailback.arrays import Bools, Ints
from tailback.evidence.counter_alignment import Sent
from tailback.evidence.link_counters import LinkCounters
from tailback.fabric.model import Fabric
from tailback.io.delimited import NotUsed
from tailback.units import counted

UNCOUNTED: Final = 0.02
"""Share of the bytes of messages from which it counts that no port counted them: what counters and
traces differ by because of clocks and headers is less."""

_NAMED: Final = 3
"""Cables that a note names."""


def silent_cables(counters: LinkCounters, fabric: Fabric) -> Bools:
    """Links of cables that counted nothing in either direction, shape (L,).

    One of the two directions may not be counted at all.
    """
    sent, stall = np.nan_to_num(counters.sent_bytes), np.nan_to_num(counters.stall)
    nothing = (sent == 0) & (stall == 0)
    read = ~np.isnan(counters.sent_bytes)
    reverse = fabric.link_reverse
    return np.asarray(nothing & nothing[reverse] & (read | read[reverse]))


def used_cables(counters: LinkCounters, fabric: Fabric, sent: Sent, crossed: Bools) -> Bools:
    """Links of :func:`silent_cables` that the job used all the same, shape (L,).

    Args:
        counters: Counters of links during the job.
        fabric: The fabric.
        sent: The messages of the job.
        crossed: Links that messages cross for certain, since their routes are stated, shape (L,).
    """
    silent = silent_cables(counters, fabric)
    out = silent & crossed
    if silent.any():
        least = _overhead(counters, fabric, sent)
        # Which ranks a library sends the messages of a collective to is not recorded.
        sent = sent if sent.assumed is None else sent.of(~sent.assumed)
        for links, own_bytes in exits(fabric, sent):
            carried = counters.sent_bytes[links]
            if silent[links].any() and not np.isnan(carried[~silent[links]]).any():
                lacking = own_bytes * least * (1.0 - UNCOUNTED) > np.nan_to_num(carried).sum()
                out[links[silent[links]]] |= bool(lacking)
    return np.asarray(out | out[fabric.link_reverse])


def without_silent(
    counters: LinkCounters, used: Bools, fabric: Fabric, why: str
) -> tuple[LinkCounters, list[str]]:
    """The counters without those of cables that are used and count nothing, and a note on these.

    Args:
        counters: Counters of links during the job.
        used: Links of those cables, shape (L,).
        fabric: The fabric.
        why: What shows that they are used.
    """
    if not used.any():
        return counters, []
    links = np.flatnonzero(used)
    cables = [int(link) for link in links if link <= fabric.link_reverse[link]]
    names = ", ".join(fabric.link_name(link) for link in cables[:_NAMED])
    more = f" and {len(cables) - _NAMED} more" if len(cables) > _NAMED else ""
    note = NotUsed(
        f"counters of {counted(len(cables), 'cable')} ({names}{more}) not used: they stand at 0 at "
        f"both ends, although {why}"
    )
    others = ~pl.col("link").is_in(links).fill_null(False)
    kept = replace(
        counters,
        sent_bytes=np.where(used, np.nan, counters.sent_bytes),
        covered=np.where(used, 0.0, counters.covered),
        stall=np.where(used, np.nan, counters.stall),
        stall_ps=np.where(used, np.nan, counters.stall_ps),
        latched=counters.latched & ~used,
        drops=np.where(used, np.nan, counters.drops),
        queues_read=counters.queues_read & ~used,
        intervals=counters.intervals.filter(others),
        findings=counters.findings.filter(others),
        queue_readings=counters.queue_readings.filter(others),
    )
    return kept, [note]


def exits(fabric: Fabric, sent: Sent) -> Iterator[tuple[Ints, float]]:
    """Links by which messages leave a host or a leaf switch, or enter it, and their bytes.

    Hosts with several adapters, and leaf switches with such hosts, are left out: by which of them
    messages leave is not recorded.
    """
    nodes, src, dst = fabric.n_nodes, fabric.link_src, fabric.link_dst
    single = np.bincount(fabric.node_host, minlength=fabric.n_hosts)[fabric.node_host] == 1
    inner = (src >= nodes) & (dst >= nodes)
    leaf = fabric.node_switch.astype(np.int64)
    mixed = set(leaf[~single].tolist())
    remote = leaf[sent.src_node] != leaf[sent.dst_node]
    for end, node in ((src, sent.src_node), (dst, sent.dst_node)):
        of_node = np.bincount(node, sent.size_bytes, minlength=nodes)
        for at in np.flatnonzero((of_node > 0) & single):
            yield np.flatnonzero(end == at), float(of_node[at])
        leaving = np.bincount(leaf[node[remote]], sent.size_bytes[remote])
        for at in np.flatnonzero(leaving > 0):
            if at not in mixed:
                yield np.flatnonzero(inner & (end == nodes + at)), float(leaving[at])


def _overhead(counters: LinkCounters, fabric: Fabric, sent: Sent) -> float:
    """Least bytes that a host counted over those of its messages, recorded or not: at least 1."""
    of_node = np.bincount(sent.src_node, sent.size_bytes, minlength=fabric.n_nodes)
    of_hosts = np.flatnonzero(fabric.link_src < fabric.n_nodes)
    node = fabric.link_src[of_hosts]
    counted_bytes = counters.sent_bytes[of_hosts]
    used = (of_node[node] > 0) & (np.nan_to_num(counted_bytes) > 0)
    ratios = counted_bytes[used] / of_node[node[used]]
    return max(1.0, float(ratios.min())) if used.any() else 1.0
