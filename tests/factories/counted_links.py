"""Counters of the links of a small fat tree while a job sends known messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from tailback.evidence.counter_alignment import Sent, sent_bytes
from tailback.evidence.link_counters import LinkCounters, join_counters
from tailback.fabric.model import Fabric
from tailback.port_counters.schema import INTERVALS, conform
from tailback.scenario.model import parse
from tailback.simulation import prepare

UTC = 1_700_000_000 * 10**9
SECOND_NS = 10**9


def small_tree(leaves: int = 3) -> Fabric:
    """Four hosts a leaf, two spines, 100 Gb/s."""
    tree = {"hosts_per_leaf": 4, "leaves": leaves, "aggregation": 2}
    pattern = {"kind": "ring", "ranks": 4, "size": "1 KiB"}
    return prepare(parse({"fabric": {"fat_tree": tree}, "job": [{"pattern": pattern}]})).fabric


def egress(fabric: Fabric, node: int) -> int:
    """The link that leaves a node."""
    return int(np.flatnonzero(fabric.link_src == node)[0])


def bursts(
    flows: Sequence[tuple[int, int, float]], seconds: float, seed: int = 1, every: float = 0.5
) -> Sent:
    """Messages of each ``(source, destination, bytes)`` in bursts at irregular times."""
    rng = np.random.default_rng(seed)
    rows = []
    for src, dst, size in flows:
        for start in np.arange(0.0, seconds - every, every):
            at = start + 0.4 * every * rng.random()
            part = size * (0.2 + rng.random())
            rows.append((src, dst, part, at * 1e12, (at + 0.3 * every) * 1e12))
    src, dst, size, start, end = (np.array(column) for column in zip(*rows, strict=True))
    return Sent(src.astype(np.int64), dst.astype(np.int64), size, start, end)


def counted(
    fabric: Fabric,
    sent: Sent,
    *,
    zero_ns: int = UTC,
    start_s: float = -5.0,
    end_s: float = 15.0,
    every_s: float = 0.1,
    overhead: float = 1.0,
    links: Sequence[int] | None = None,
    stall: float = 0.0,
    error: float = 0.0,
) -> pl.DataFrame:
    """Intervals of the ports of hosts, each way, whose bytes are those of messages.

    Args:
        fabric: The fabric.
        sent: Everything that was sent, by whom ever.
        zero_ns: UTC of time 0 of the messages.
        start_s: When counting begins, seconds from that.
        end_s: When it ends.
        every_s: Length of an interval.
        overhead: Bytes on the wire over bytes of messages.
        links: Links counted; those of all hosts by default.
        stall: Stall fraction of all of them.
        error: Standard deviation of a factor on every interval.
    """
    rng = np.random.default_rng(7)
    edges = np.arange(start_s, end_s + every_s / 2, every_s)
    if links is None:
        ends = (fabric.link_src < fabric.n_nodes) | (fabric.link_dst < fabric.n_nodes)
        links = np.flatnonzero(ends).tolist()
    parts = []
    for link in links:
        src, dst = int(fabric.link_src[link]), int(fabric.link_dst[link])
        mine = sent.src_node == src if src < fabric.n_nodes else sent.dst_node == dst
        carried = np.diff(sent_bytes(sent.of(mine), edges * 1e12)) * overhead
        carried = carried * np.maximum(1.0 + error * rng.standard_normal(len(carried)), 0.0)
        parts.append(
            pl.DataFrame(
                {
                    "time_ns": zero_ns + np.rint(edges[1:] * 1e9).astype(np.int64),
                    "interval_ns": np.full(len(edges) - 1, round(every_s * 1e9)),
                    "data_bytes": np.rint(np.maximum(carried, 0.0)).astype(np.uint64),
                    "stall_fraction": np.full(len(edges) - 1, stall),
                }
            ).with_columns(
                link=pl.lit(link),
                port=pl.lit(int(fabric.link_src_port[link])),
                node_name=pl.lit(fabric.vertex_name(src)),
                source=pl.lit("made"),
            )
        )
    frame = pl.concat(parts)
    schema = INTERVALS.polars_schema
    missing = [pl.lit(None).alias(name) for name in schema if name not in frame.columns]
    return conform(INTERVALS, frame.with_columns(missing))


def joined(
    fabric: Fabric,
    intervals: pl.DataFrame,
    sent: Sent,
    *,
    seconds: float = 10.0,
    origin: int | None = UTC,
) -> LinkCounters:
    """The intervals beside the messages of the job itself."""
    return join_counters(
        intervals,
        fabric,
        sent,
        elapsed_ps=round(seconds * 1e12),
        origin_unix_ns=origin,
        lossy=False,
    )
