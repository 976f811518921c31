"""Times with our messages in flight: the time base of link utilization.

A window may be longer than a burst. Relative to the whole window, a link that our burst filled
would seem half empty, as if other traffic had congested it. The message log gives the times at
which messages that may cross a link were in flight; utilization is computed over these times only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.diagnosis.topology import DOWN, UP, LinkTopology
from tailback.telemetry.left_out import copies, skipped_times


class MessageActivity:
    """Time during which messages that may cross a link were in flight.

    Messages are grouped by the links they must cross: the ejection link of their destination, the
    up-links of the source switch, the down-links into the destination switch. Any other link may be
    crossed by every message that leaves its switch. Without a message log, all time is active.
    While steps were left out, as large a share of the time is active as in the simulated ones that
    stand for them.
    """

    def __init__(self, tables: Mapping[str, pl.DataFrame], topology: LinkTopology) -> None:
        self._topology = topology
        self._groups = self._group_of_link()
        self._skipped = skipped_times(tables)
        log = observed_messages(tables)
        self.known = log.height > 0
        if not self.known:
            return
        start = log["start_ps"].cast(pl.Int64).to_numpy()
        end = log["arrival_ps"].cast(pl.Int64).to_numpy()
        source, target = topology.node_switch[log["src"]], topology.node_switch[log["dst"]]
        away = source != target
        vertices = len(topology.out_start) - 1
        everything = 2 * vertices
        group = np.concatenate(
            [
                log["dst"].cast(pl.Int64).to_numpy(),
                source[away],
                vertices + target[away],
                np.full(int(away.sum()), everything),
            ]
        )
        start = np.concatenate([start, start[away], start[away], start[away]])
        end = np.concatenate([end, end[away], end[away], end[away]])
        # One timeline with a section for each group, so that a single pass merges them all.
        self._unit = 1 + (int(end.max()) + 1) * (everything + 2) // 2**62
        self._stretch = int(end.max()) // self._unit + 1
        self._merge(group * self._stretch, start // self._unit, end // self._unit)

    def _group_of_link(self) -> Ints:
        t = self._topology
        vertices = len(t.out_start) - 1
        leaf = np.zeros(vertices, np.bool_)
        leaf[t.node_switch[t.node_switch >= 0]] = True
        group = np.full(t.n_links, 2 * vertices, np.int64)
        up = (t.direction == UP) & leaf[t.src]
        down = (t.direction == DOWN) & leaf[t.dst]
        group[up] = t.src[up]
        group[down] = vertices + t.dst[down]
        group[t.to_node] = t.dst[t.to_node]
        return group

    def _merge(self, base: Ints, start: Ints, end: Ints) -> None:
        order = np.argsort(base + start, kind="stable")
        begin, finish = (base + start)[order], (base + end)[order]
        reach = np.maximum.accumulate(finish)
        fresh = np.concatenate([[True], begin[1:] > reach[:-1]])
        self._begin = begin[fresh]
        self._end = reach[np.concatenate([np.flatnonzero(fresh)[1:] - 1, [len(reach) - 1]])]
        length = self._end - self._begin
        self._before = np.cumsum(length) - length

    def _covered(self, at: Ints) -> Ints:
        """Active time before ``at``, on the concatenated timeline."""
        index = np.searchsorted(self._begin, at, side="right") - 1
        safe = np.maximum(index, 0)
        inside = np.minimum(at, self._end[safe]) - self._begin[safe]
        return np.where(index < 0, 0, self._before[safe] + inside)

    def time_ps(self, link: Ints, start_ps: Ints, end_ps: Ints) -> Floats:
        """Active time of each link in an interval; the whole interval without a message log.

        Args:
            link: Links, shape (n,).
            start_ps: Start of each interval, shape (n,).
            end_ps: First picosecond after each interval, shape (n,).
        """
        length = (end_ps - start_ps).astype(np.float64)
        if not self.known:
            return length
        base = self._groups[link] * self._stretch
        top = self._stretch - 1
        low = self._covered(base + np.minimum(start_ps // self._unit, top))
        high = self._covered(base + np.minimum(end_ps // self._unit, top))
        active = (high - low).astype(np.float64) * self._unit
        for skip in self._skipped:
            inside = np.minimum(end_ps, skip.end_ps) - np.maximum(start_ps, skip.start_ps)
            if not (inside > 0).any():
                continue
            first, last = (
                self._covered(base + np.clip(at // self._unit, 0, top))
                for at in (skip.start_ps - skip.basis_ps, skip.start_ps)
            )
            share = (last - first) * self._unit / max(skip.basis_ps, 1)
            active += np.maximum(inside, 0) * np.minimum(share, 1.0)
        return np.asarray(np.where(active > 0, np.minimum(active, length), length), np.float64)


def messages_within_hosts(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Delivered messages of observed jobs between ranks of one host.

    Columns ``src_rank``, ``dst_rank``, ``size_bytes``, ``start_ps``, ``arrival_ps`` and ``copies``
    (:func:`tailback.telemetry.left_out.copies`).
    """
    observed = tables["jobs"].filter("observed")["job"]
    ranks = tables["ranks"].filter(pl.col("job").is_in(observed.implode())).select("rank", "node")
    ranks = ranks.join(tables["nodes"].select("node", "host"), on="node").drop("node")
    return (
        tables["messages"]
        .with_columns(copies=copies(tables))
        .filter(pl.col("arrival_ps") > pl.col("start_ps"))
        .join(ranks.rename({"rank": "src_rank"}), on="src_rank")
        .join(ranks.rename({"rank": "dst_rank", "host": "to"}), on="dst_rank")
        .filter(pl.col("host") == pl.col("to"))
        .select("src_rank", "dst_rank", "size_bytes", "start_ps", "arrival_ps", "copies")
    )


def observed_messages(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the delivered messages of observed jobs, with their nodes ``src`` and ``dst``.

    ``switches`` is the average number of switches that their packets visited, and ``copies`` how
    many messages each stands for (:func:`tailback.telemetry.left_out.copies`).
    """
    observed = tables["jobs"].filter("observed")["job"]
    ranks = tables["ranks"].filter(pl.col("job").is_in(observed.implode())).select("rank", "node")
    messages = (
        tables["messages"]
        .with_columns(copies=copies(tables))
        .filter((pl.col("arrival_ps") > pl.col("start_ps")) & (pl.col("packets") > 0))
    )
    return (
        messages.join(ranks.rename({"rank": "src_rank", "node": "src"}), on="src_rank")
        .join(ranks.rename({"rank": "dst_rank", "node": "dst"}), on="dst_rank")
        .filter(pl.col("src") != pl.col("dst"))
        .select(
            "src",
            "dst",
            "start_ps",
            "arrival_ps",
            "src_rank",
            "dst_rank",
            "label",
            "size_bytes",
            "copies",
            switches=(pl.col("switch_hops") / pl.col("packets")).round(),
        )
    )
