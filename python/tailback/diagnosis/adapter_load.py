"""Bytes that each adapter sends, the rates it reaches, and the time it needs at line rate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.diagnosis.activity import observed_messages
from tailback.run.run import Run

LARGE_PACKETS = 8
"""Smallest number of packets for which a message gives a rate; below, latency dominates."""

SLOW_RATE_SHARE = 0.6
"""An adapter is slow below this share of the median adapter's rate."""

HEALTHY_RATE_SHARE = 0.8
"""Share of the line rate that the median adapter must reach before one is reported as slow, and
share of the median that all others must reach."""

BUSIER = 0.05
"""Share by which one adapter must need longer than another; a cause that costs less is not worth
fixing."""

MAX_SLOW_ADAPTERS = 3
"""Smallest number of adapters to compare, and of partners of a slow one, for a verdict."""


@dataclass(frozen=True)
class AdapterLoad:
    """Our traffic of each node, by node number; shape (N,) each.

    Attributes:
        sent_bytes: Bytes of our messages that it sends to other hosts.
        rate_gbps: Nominal rate of its injection link.
        took_ps: Time it needs to receive the bytes of our messages at line rate, picoseconds.
        fastest: Highest rate that a large message of ours to or from it reached, as a share of
            the slower of the two adapters' line rates; NaN without such a message.
        partners: Nodes it exchanges large messages with, each direction counted.
    """

    sent_bytes: Floats
    rate_gbps: Floats
    took_ps: Floats
    fastest: Floats
    partners: Ints

    @property
    def wire_ps(self) -> Floats:
        """Time each node needs to send its bytes at line rate, picoseconds."""
        return np.divide(
            self.sent_bytes * 8000.0,
            self.rate_gbps,
            out=np.zeros_like(self.sent_bytes),
            where=self.rate_gbps > 0,
        )


def adapter_load(run: Run) -> AdapterLoad:
    """Compute the adapter load from the message log; 0 without one."""
    n = run.tables["nodes"].height
    links = run.tables["links"]
    out = links.filter("from_node")
    into = links.filter("to_node")
    rate, take = np.zeros(n), np.zeros(n)
    np.maximum.at(rate, out["src"].to_numpy(), out["rate_gbps"].to_numpy())
    np.maximum.at(take, into["dst"].to_numpy(), into["rate_gbps"].to_numpy())
    # Ranks of one host communicate through memory, not through an adapter.
    host = run.tables["nodes"].sort("node")["host"].to_numpy()
    log = observed_messages(run.tables)
    log = log.filter(host[log["src"].to_numpy()] != host[log["dst"].to_numpy()])
    engine = run.scenario.engine
    source, target = (log[end].to_numpy().astype(np.int64) for end in ("src", "dst"))
    size = log["size_bytes"].cast(pl.Float64).to_numpy()
    header = run.scenario.packet_header_bytes
    size = size + header * np.ceil(np.maximum(size, 1.0) / engine.packet)
    all_bytes = size * log["copies"].to_numpy()
    sent = np.bincount(source, weights=all_bytes, minlength=n).astype(np.float64)
    got = np.bincount(target, weights=all_bytes, minlength=n).astype(np.float64)
    took = np.divide(got * 8000.0, take, out=np.zeros(n), where=take > 0)
    time = (log["arrival_ps"].cast(pl.Int64) - log["start_ps"].cast(pl.Int64)).to_numpy()
    line = np.minimum(rate[source], take[target])
    large = (size >= LARGE_PACKETS * engine.packet) & (time > 0) & (line > 0)
    best, partners = np.zeros(n), np.zeros(n, np.int64)
    if large.any():
        share = size[large] * 8000.0 / (time[large] * line[large])
        pairs = np.unique(np.column_stack([source[large], target[large]]), axis=0)
        for end, column in ((source, 0), (target, 1)):
            np.maximum.at(best, end[large], share)
            partners += np.bincount(pairs[:, column], minlength=n)
    return AdapterLoad(sent, rate, took, np.where(best > 0, best, np.nan), partners)


def wire_time_ps(run: Run) -> int:
    """Time the busiest adapter needs to send its bytes at line rate, picoseconds."""
    return round(float(adapter_load(run).wire_ps.max(initial=0.0)))


def receivers_are_full(run: Run) -> bool:
    """Whether the busiest receiver needs longer for its bytes than the busiest sender.

    In any order of messages, the run then takes as long as that receiver.
    """
    load = adapter_load(run)
    sent, took = (float(x.max(initial=0.0)) for x in (load.wire_ps, load.took_ps))
    return took >= (1.0 + BUSIER) * sent


def slow_adapter(load: AdapterLoad) -> int | None:
    """The single node whose large messages, sent and received, are all slow; None if none is.

    It must have several partners, because two flows that share a link are both slow too.
    """
    nodes = np.flatnonzero(np.isfinite(load.fastest))
    if len(nodes) < MAX_SLOW_ADAPTERS:
        return None
    order = nodes[np.argsort(load.fastest[nodes], kind="stable")]
    median = float(np.median(load.fastest[nodes]))
    first, second = (float(load.fastest[node]) for node in order[:2])
    alone = (
        first < SLOW_RATE_SHARE * median
        and second >= HEALTHY_RATE_SHARE * median
        and median >= HEALTHY_RATE_SHARE
    )
    return int(order[0]) if alone and load.partners[order[0]] >= MAX_SLOW_ADAPTERS else None
