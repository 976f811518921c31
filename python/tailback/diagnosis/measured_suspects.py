"""Cables that may be slow according to the measurements, in the order in which to try them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
import polars as pl

from tailback.diagnosis.cable_suspects import CandidatePaths
from tailback.diagnosis.topology import Floats, Ints, LinkTopology, link_totals
from tailback.evidence import MeasuredRun
from tailback.evidence.link_counters import LinkCounters
from tailback.fabric.model import Fabric
from tailback.run import Run

MIN_BYTES_SHARE = 0.02
"""Share of the busiest cable's bytes below which a cable carries too little to slow down the run:
it would have to run at a fiftieth of its rate."""


def cable_suspects(
    measured: MeasuredRun, run: Run, ahead: Sequence[int], fabric: Fabric, most: int
) -> list[int]:
    """Cables to try, by one link of each, most likely first.

    Args:
        measured: The measured run.
        run: The expected run, with link measurements.
        ahead: Links downstream of stalled ports (:func:`ahead_of_stalls`).
        fabric: The fabric.
        most: Maximum number of cables.
    """
    reverse = fabric.link_reverse.astype(np.int64)
    carried = _carried(run, reverse)
    cable = np.minimum(np.arange(fabric.n_links), reverse)
    used = carrying_cables(run, fabric)
    ranked = [list(ahead)]
    paths = _late_paths(measured, run, reverse, carried)
    ranked.append([link for link, _ in paths.suspects(most)])
    # Paths cannot avoid host cables.
    ranked.append([int(x) for x in used if fabric.link_src[x] < fabric.n_nodes
                   or fabric.link_dst[x] < fabric.n_nodes])  # fmt: skip
    turns = [link for turn in zip_longest(*ranked) for link in turn if link is not None]
    likely = [int(cable[link]) for link in (*turns, *used) if carried[link] > 0]
    return list(dict.fromkeys(likely))[:most]


def carrying_cables(run: Run, fabric: Fabric) -> Ints:
    """Cables that carry enough of a run's traffic to slow it, those with most of it first."""
    reverse = fabric.link_reverse.astype(np.int64)
    carried = _carried(run, reverse)
    first = np.minimum(np.arange(fabric.n_links), reverse) == np.arange(fabric.n_links)
    used = np.flatnonzero((carried > MIN_BYTES_SHARE * carried.max(initial=0.0)) & first)
    return np.asarray(used[np.argsort(-carried[used], kind="stable")], np.int64)


def _carried(run: Run, reverse: Ints) -> Floats:
    """Bytes on the cable of each link, both ways, shape (L,)."""
    sent = link_totals(run, "bytes")
    return np.asarray(sent + sent[reverse], np.float64)


def ahead_of_stalls(counters: LinkCounters | None, run: Run, fabric: Fabric) -> list[int]:
    """Links whose upstream ports stall more than expected, but that do not stall themselves.

    Empty without counters and on lossy networks, whose ports do not stall.
    """
    if counters is None or counters.lossy:
        return []
    expected = link_totals(run, "stall_ps") / max(run.elapsed_ps, 1)
    excess = np.nan_to_num(counters.stall - expected)
    into = np.zeros(fabric.n_nodes + len(fabric.switch_name))
    np.add.at(into, fabric.link_dst, np.maximum(excess, 0.0))
    busy = np.nan_to_num(counters.sent_bytes) * 8 / max(counters.seconds * 1e9, 1.0)
    share = np.minimum(busy / fabric.link_gbps, 1.0)
    busiest = np.full(len(into), 1e-9)
    np.maximum.at(busiest, fabric.link_src, share)
    # Busy links that do not stall, at switches whose incoming links stall.
    score = into[fabric.link_src] * share / busiest[fabric.link_src]
    score *= 1.0 - np.clip(excess, 0.0, 1.0)
    order = np.argsort(-score, kind="stable")
    return [int(link) for link in order[:24] if score[link] > 0]


def _late_paths(measured: MeasuredRun, run: Run, reverse: Ints, carried: Floats) -> CandidatePaths:
    """Candidate paths of our messages, with their measured and expected times."""
    ranks = run.tables["ranks"].sort("job_rank").select("job_rank", "rank", "node")
    log = run.tables["messages"].filter(pl.col("switch_hops") > 0)
    expected = log.group_by("src_rank", "dst_rank").agg(
        expected=(pl.col("arrival_ps") - pl.col("post_ps")).cast(pl.Float64).median()
    )
    took = (
        measured.tables["transfers"].with_columns(
            done=pl.coalesce("recv_done_ps", "send_done_ps", "send_leave_ps")
        ).group_by(src="src_rank", dst="dst_rank").agg(
            took=(pl.col("done") - pl.col("send_enter_ps")).cast(pl.Float64).median()
        )
    )  # fmt: skip
    of = {int(j): (int(r), int(n)) for j, r, n in ranks.rows()}
    known = {(a, b): float(ps) for a, b, ps in expected.rows()}
    rows = [
        (of[s][1], of[d][1], float(ps), known[of[s][0], of[d][0]])
        for s, d, ps in took.rows()
        if s in of and d in of and (of[s][0], of[d][0]) in known and ps is not None
    ]
    messages = pl.DataFrame(
        rows, schema={"src": pl.Int64, "dst": pl.Int64, "took": pl.Float64, "expected": pl.Float64},
        orient="row",
    )  # fmt: skip
    return CandidatePaths(LinkTopology.of(run.tables), reverse, carried > 0, messages)
