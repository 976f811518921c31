"""What takes the time that a re-simulation of everything known does not explain.

Two things a scenario need not know of: jobs of others, and links that serve less than they should.
Seen from our own packets both are dark and thin links. But a slow link is a hypothesis that can be
simulated: the few cables that the samples and the message log point to are made slow, one at a
time, and every message of ours gets a time. Where these times agree with those observed, far better
than the times of a healthy network do, that cable is the explanation; the traffic of others comes
and goes and holds up other messages, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tailback.diagnose.evidence import Evidence
from tailback.diagnose.topology import Floats, Ints
from tailback.evaluate import Change, Evaluate
from tailback.run import Run

TRIED = 4
"""Cables tried of each kind of suspicion."""

RATES = (0.1, 0.3, 0.6)
"""Shares of the nominal rate that are tried besides the one a suspect seems to have."""

CERTAIN = 0.97
"""Fit from which no other cable is tried."""

DELAYED = 64
"""Messages, those with the largest excess, whose ways are looked at."""

MIN_FIT = 0.1
"""Fit under which the rate is not looked for more closely."""

_KEY = ["src_rank", "dst_rank", "label", "number"]


@dataclass(frozen=True)
class Slow:
    """The slow cable that explains the observed times best.

    Attributes:
        link: One of its links.
        gbps: The rate that fits best, Gb/s.
        fit: Share of the squared excess of message times over a healthy network that a simulation
            with it reproduces; 1 is all, 0 or less is nothing.
    """

    link: int
    gbps: float
    fit: float


def find_slow(evidence: Evidence, evaluate: Evaluate) -> Slow | None:
    """Look for the one slow cable that reproduces how long our messages took.

    Args:
        evidence: What the samples and the message log say.
        evaluate: Simulates a change.

    Returns:
        The best of those tried; None without a message log or a suspect.
    """
    seen = _durations(evidence.run)
    if not seen.height:
        return None
    healthy = evaluate(Change(network="healthy", measure=True))
    best: Slow | None = None

    def attempt(link: int, gbps: float) -> Slow:
        run = evaluate(Change(network="healthy", slow=((link, gbps),)))
        return Slow(link, gbps, _fit(seen, _durations(healthy), _durations(run)))

    for link, gbps in _suspects(evidence, healthy, seen):
        nominal = float(evidence.topology.rate_gbps[link])
        for rate in (gbps, *(share * nominal for share in RATES)):
            tried = attempt(link, rate)
            if best is None or tried.fit > best.fit:
                best = tried
        if best is not None and best.fit > CERTAIN:
            break
    for step in (0.7, 1.4, 0.85, 1.15):
        if best is None or best.fit < MIN_FIT:
            return best
        nominal = float(evidence.topology.rate_gbps[best.link])
        gbps = best.gbps * step
        if gbps < nominal:
            tried = attempt(best.link, gbps)
            if tried.fit > best.fit:
                best = tried
    return best


def _durations(run: Run) -> pl.DataFrame:
    """Mean time in flight of each message of ours that crosses the network, by who sent it to whom.

    The same message of several executions, one after the other in the log, is one row.
    """
    observed = run.tables["jobs"].filter("observed")["job"]
    labels = run.tables["labels"].filter(pl.col("job").is_in(observed.implode()))["label"]
    log = run.tables["messages"].filter(
        pl.col("label").is_in(labels.implode())
        & (pl.col("switch_hops") > 0)
        & (pl.col("arrival_ps") > pl.col("start_ps"))
    )
    order = log.group_by("message").agg(
        pl.col("src_rank", "dst_rank", "label").first(),
        took=(pl.col("arrival_ps") - pl.col("start_ps")).cast(pl.Float64).mean(),
    )
    return order.sort("message").with_columns(
        number=pl.int_range(pl.len()).over("src_rank", "dst_rank", "label")
    )


def _fit(seen: pl.DataFrame, healthy: pl.DataFrame, slow: pl.DataFrame) -> float:
    """Share of the squared excess of observed times that the slow network reproduces."""
    both = seen.join(healthy.select(*_KEY, healthy="took"), on=_KEY).join(
        slow.select(*_KEY, slow="took"), on=_KEY
    )
    took, well, ill = (both[name].to_numpy() for name in ("took", "healthy", "slow"))
    excess = float(((took - well) ** 2).sum())
    return 1.0 - float(((took - ill) ** 2).sum()) / excess if excess > 0 else 0.0


def _suspects(
    evidence: Evidence, healthy: Run, seen_durations: pl.DataFrame
) -> list[tuple[int, float]]:
    """Cables that may be slow, by one link each, with the rate they seem to have.

    Links on the ways of messages that took longer than they should; links that are more often
    congested than they should be; links that carry fewer packets than they should, which adaptive
    routing sees to; adapters that no message leaves fast.
    """
    t = evidence.topology
    expected = Evidence(replace(healthy, scenario=evidence.run.scenario)).whole
    seen = evidence.whole
    scale = float(seen.packets.sum()) / max(float(expected.packets.sum()), 1.0)
    rate = t.rate_gbps
    suspects: dict[int, float] = {}

    def add(links: Ints, share: Floats) -> None:
        for link, part in list(zip(links.tolist(), share.tolist(), strict=True))[:TRIED]:
            cable = min(link, evidence.reverse(link))
            if cable not in suspects:
                suspects[cable] = float(np.clip(part, 0.02, 0.9)) * float(rate[link])

    delayed = _delayed(seen_durations, _durations(healthy))
    for measure in (pl.col("excess"), pl.col("excess") / pl.col("healthy")):
        add(*_on_the_way(evidence, delayed.with_columns(blame=measure)))
    dark = seen.weight - expected.weight * scale
    roots = evidence.roots.filter(pl.col("verdict") != "ours")
    if roots.height:
        first = roots.unique("link", keep="first", maintain_order=True)
        add(first["link"].to_numpy().astype(np.int64), first["utilization"].to_numpy())
    order = np.argsort(-dark)[:TRIED]
    order = order[dark[order] > 0]
    if len(order):
        add(order, evidence.use_while_hot(order))
    lack = expected.packets * scale - seen.packets
    order = np.argsort(-lack)[:TRIED]
    order = order[lack[order] > 0]
    add(order, seen.packets[order] / np.maximum(expected.packets[order] * scale, 1.0))
    fastest = evidence.adapters.fastest
    known = np.flatnonzero(np.isfinite(fastest))
    slow = known[np.argsort(fastest[known])][:TRIED]
    links = np.flatnonzero(t.from_node)
    of_node = dict(zip(t.src[links].tolist(), links.tolist(), strict=True))
    add(np.array([of_node[int(n)] for n in slow], np.int64), fastest[slow])
    return list(suspects.items())


def _delayed(seen: pl.DataFrame, healthy: pl.DataFrame) -> pl.DataFrame:
    """Messages that took longer than they should have, by ``excess``."""
    both = seen.join(healthy.select(*_KEY, healthy="took"), on=_KEY)
    return both.with_columns(excess=pl.col("took") - pl.col("healthy")).filter(pl.col("excess") > 0)


def _on_the_way(evidence: Evidence, delayed: pl.DataFrame) -> tuple[Ints, Floats]:
    """Links by the blame of the messages that may have crossed them, and the rate that suggests.

    The ways of a message are its shortest ones; where there are several links at the same distance
    each takes its part.
    """
    t = evidence.topology
    top = delayed.sort("blame", descending=True).head(DELAYED)
    ranks = evidence.run.tables["ranks"]
    node_of = dict(zip(ranks["rank"].to_list(), ranks["node"].to_list(), strict=True))
    vertices = len(t.out_start) - 1
    ones = np.ones(t.n_links)
    graph = csr_array((ones, (t.src, t.dst)), shape=(vertices, vertices))
    ends = [
        (int(node_of[a]), int(node_of[b])) for a, b in top.select("src_rank", "dst_rank").rows()
    ]
    starts = sorted({v for pair in ends for v in pair})
    away = dijkstra(graph, indices=starts, unweighted=True)
    at = {v: i for i, v in enumerate(starts)}
    used = (evidence.whole.packets > 0) | t.from_node
    blame = np.zeros(t.n_links)
    share = np.ones(t.n_links)
    rows = top.select("blame", "took", "healthy").rows()
    for (a, b), (amount, took, well) in zip(ends, rows, strict=True):
        # Cables work both ways, so distances to b are those from b.
        out, back = away[at[a]], away[at[b]]
        way = np.flatnonzero(used & (out[t.src] + 1 + back[t.dst] == out[b]))
        level = out[t.src[way]].astype(np.int64)
        blame[way] += amount / np.bincount(level)[level]
        share[way] = np.minimum(share[way], well / took)
    order = np.argsort(-blame)[:TRIED]
    order = order[blame[order] > 0]
    return order, share[order]
