"""Slow cables in a measured run: which to try in which order, and how trials are scored.

A slow cable predicts how long each rank is in each of its calls, how long ports stall, and how long
the run takes. The search (:mod:`tailback.diagnosis.cable_search`) only proposes: which of its
trials holds, if any, is decided by :mod:`tailback.inference.hypotheses`, beside all other
hypotheses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
import polars as pl
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from tailback.arrays import Floats, Ints
from tailback.diagnosis.cable_search import (
    CableTrials,
    Outcome,
    Trial,
    lateness_explained,
    links_on_shortest_paths,
)
from tailback.diagnosis.topology import LinkTopology, link_totals
from tailback.evaluate import Change
from tailback.evidence.link_counters import LinkCounters
from tailback.evidence.measured_routes import USUAL_UNEVENNESS, parallel_bundles
from tailback.evidence.send_times import SendProfile, is_point_to_point
from tailback.fabric.degraded import SlowLink
from tailback.fabric.model import Fabric
from tailback.inference.error_model import ErrorModel
from tailback.inference.hypotheses import Hypothesis, Prior, log_probability
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.routes import forwarded_links

MIN_BYTES_SHARE = 0.02
"""Share of the busiest cable's bytes below which a cable carries too little to slow down the run:
it would have to run at a fiftieth of its rate."""


MACHINE = ("", "")
"""Machine model of a search on its own."""


@dataclass(kw_only=True)
class MeasuredCableTrials(CableTrials):
    """Simulates slow cables in the expected run of a measured one.

    Attributes:
        predict: Simulates a change of the expected run, and compares it with the evidence.
        model: The error model.
        prior: What is charged for assumptions.
        healthy: The expected run without slow cables.
    """

    predict: Callable[[Change], Outcome]
    model: ErrorModel
    prior: Prior
    healthy: Outcome
    measured_ps: int = field(init=False)
    expected_ps: int = field(init=False)

    def __post_init__(self) -> None:
        self.measured_ps = self.model.measured_ps
        self.expected_ps = self.healthy.elapsed_ps

    def simulate(self, cables: tuple[SlowLink, ...]) -> Trial:
        """Simulate slow cables and score what that predicts."""
        outcome = self.predict(Change(slow=cables, computations=True))
        hypothesis = Hypothesis(MACHINE, outcome, cables, alone_ps=self.expected_ps)
        score = log_probability(hypothesis, self.model, self.prior)
        return Trial(cables, outcome, self.model.log_shape(outcome), score)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of evidence that are compared."""
        return self.model.kinds

    @property
    def worth_fitting(self) -> float:
        """Value of :attr:`Trial.shape` above which a cable is better than none."""
        cable = Hypothesis(MACHINE, self.healthy, (SlowLink(0, 1.0),))
        return self.model.log_shape(self.healthy) - self.prior.log(cable, self.model)

    def agrees(self, trial: Trial) -> bool:
        """Whether the evidence agrees as well as under the right hypothesis."""
        return self.model.agrees(trial.outcome)

    def is_conclusive(self, trials: Sequence[Trial]) -> bool:
        """Whether the search can stop.

        Call times alone are not sufficient: all ranks wait for one another, so an adjacent cable
        may fit nearly as well as the correct one, which may come later in the list.
        """
        return len(self.kinds) > 1 and any(self.agrees(trial) for trial in trials)

    def least_rate(self, link: int, *, both: bool) -> float:
        """Lowest rate of a cable by its counters, Gb/s; infinite if it is not slow."""
        return self.prior.least_rate(link, both=both)


def parallel_links(fabric: Fabric, link: int) -> list[int]:
    """Links in the same direction between switches that leave, or enter, the same lower switch.

    Without forwarding tables, messages may take any of them, so each may fit the evidence.
    """
    up = np.sign(fabric.link_up)
    end = fabric.link_src if up[link] > 0 else fabric.link_dst
    between = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    alike = between & (end == end[link]) & (up == up[link]) & (up != 0)
    return [int(other) for other in np.flatnonzero(alike) if other != link]


def cable_suspects(
    sends: SendProfile | None,
    run: Run,
    clues: StallClues,
    paths: MessagePaths,
    most: int,
    faulty: Sequence[int] = (),
    groups: Sequence[int] = (),
) -> list[int]:
    """Cables to try, by one link of each, most likely first.

    Args:
        sends: Measured times of sends; None if there are none.
        run: The expected run, with link measurements.
        clues: Links downstream of stalled ports.
        paths: The paths of messages.
        most: Maximum number of cables.
        faulty: Cables with rising errors, which come first.
        groups: Cables of groups whose collectives are late, as :func:`late_groups` returns them.
    """
    fabric = paths.fabric
    reverse = fabric.link_reverse.astype(np.int64)
    carried = _carried(run, reverse)
    cable = np.minimum(np.arange(fabric.n_links), reverse)
    late = [] if sends is None else late_sends(sends, run, paths)
    ranked = [clues.avoided, clues.ahead, late, groups]
    turns = [link for turn in zip_longest(*ranked) for link in turn if link is not None]
    used = carrying_cables(run, fabric).tolist()
    likely = [int(cable[link]) for link in (*faulty, *turns, *used) if carried[link] > 0]
    return list(dict.fromkeys(likely))[:most]


@dataclass(frozen=True)
class MessagePaths:
    """The links that messages cross.

    Attributes:
        fabric: The fabric.
        forwarded: The links between pairs of nodes by forwarding tables
            (:func:`tailback.simulation.routes.forwarded_links`); None without tables: messages may
            take any shortest path.
    """

    fabric: Fabric
    forwarded: Callable[[Ints, Ints], tuple[Ints, Ints]] | None

    def between(self, src: Ints, dst: Ints, run: Run) -> tuple[Ints, Ints, Floats]:
        """Index of the pair, link, and share of the pair's messages, shape (M,) each.

        Args:
            src: Source nodes, shape (P,); all differ from their destinations.
            dst: Destination nodes, shape (P,).
            run: A run, whose links in use count.
        """
        if self.forwarded is not None:
            pair, link = self.forwarded(src, dst)
            return pair, link, np.ones(len(pair))
        used = link_totals(run, "bytes") > 0
        ends = list(zip(src.tolist(), dst.tolist(), strict=True))
        return links_on_shortest_paths(LinkTopology.of(run), used, ends)


def late_sends(sends: SendProfile, run: Run, paths: MessagePaths) -> list[int]:
    """Cables that explain best which sends are late, by their first link; the best one first.

    The delay of a call that completes sends is its time from the last post of all its messages,
    less the simulated one: medians over its repetitions. What a cable explains of these delays is
    that of :func:`.lateness_explained`.
    """
    simulated = sends.of_run(run, posted=True)
    if simulated is None:
        return []
    middle = simulated.shape[1] // 2
    late = sends.posted_quantiles_ps[:, middle] - simulated[:, middle]
    observed = run.tables["jobs"].filter("observed").select("job")
    ranks = run.tables["ranks"].join(observed, on="job", how="semi").sort("job_rank")
    nodes = ranks["node"].cast(pl.Int64)
    ends = sends.pairs.with_columns(
        src=nodes.gather(sends.pairs["src"]), dst=nodes.gather(sends.pairs["dst"])
    )
    ends = ends.filter(pl.col("src") != pl.col("dst")).unique(maintain_order=True)
    pairs = ends.select("src", "dst").unique(maintain_order=True)
    src, dst = (pairs[name].to_numpy() for name in ("src", "dst"))
    pair, link, share = paths.between(src, dst, run)
    reverse = paths.fabric.link_reverse.astype(np.int64)
    crossed = pl.DataFrame(
        {"pair": pair, "cable": np.minimum(link, reverse[link]), "share": share},
        schema_overrides={"pair": pl.UInt32},
    )
    rows = (
        ends.join(pairs.with_row_index("pair"), on=("src", "dst"))
        .join(crossed, on="pair")
        .group_by("site", "cable", maintain_order=True)
        .agg(pl.col("share").max())
    )
    site, cable, part = (rows[name].to_numpy() for name in ("site", "cable", "share"))
    score = lateness_explained(cable, part, late[site], sends.count[site], paths.fabric.n_links)
    order = np.argsort(-score, kind="stable")
    return [int(first) for first in order if score[first] > 0]


def links_in_series(link: int, prepared: PreparedScenario, run: Run) -> list[int]:
    """Other links that carry exactly the messages that this one carries.

    Times of messages are the same whichever of them is slow, except for what buffers between them
    hold. Without forwarding tables packets may take several paths, and no link is listed.

    Args:
        link: The link.
        prepared: The scenario.
        run: A run of it, with its messages.
    """
    links_of = forwarded_links(prepared.scenario, prepared.fabric)
    if links_of is None:
        return []
    nodes = run.tables["ranks"].sort("rank")["node"].to_numpy().astype(np.int64)
    ends = run.tables["messages"].select("src_rank", "dst_rank").unique(maintain_order=True)
    src, dst = (nodes[ends[name].to_numpy()] for name in ("src_rank", "dst_rank"))
    pairs = np.unique(np.stack([src, dst])[:, src != dst], axis=1)
    pair, crossed = links_of(pairs[0], pairs[1])
    numbers_of: dict[int, list[Hashable]] = {}
    for number, crossed_link in zip(pair.tolist(), crossed.tolist(), strict=True):
        numbers_of.setdefault(crossed_link, []).append(number)
    numbers_of_link = numbers_of.get(link, [])
    return [
        other
        for other, numbers in numbers_of.items()
        if other != link and numbers == numbers_of_link
    ]


def busy_cables_ps(run: Run, fabric: Fabric) -> Floats:
    """Time that the busier direction of each link's cable sends at its rate, ps, shape (L,)."""
    busy_ps = link_totals(run, "bytes") * 8e3 / np.asarray(fabric.link_gbps, np.float64)
    return np.maximum(busy_ps, busy_ps[fabric.link_reverse])


AS_BUSY = 0.1
"""Relative difference of the time that two cables are busy, below which one that is slow delays
collectives as much as the other."""


def equally_busy(run: Run, fabric: Fabric) -> dict[int, int]:
    """For each cable that carries enough of a run's traffic, the first of those that are alike.

    All ranks of a group end a collective together, so its times are the same whichever of the
    cables that are as busy with it is slow. Packets may avoid cables between switches, and not
    those of hosts.
    """
    busy = busy_cables_ps(run, fabric)
    cables = carrying_cables(run, fabric)
    node = np.minimum(fabric.link_src, fabric.link_dst)
    groups = _groups_of_nodes(run, fabric)
    out: dict[int, int] = {}
    first: dict[Hashable, int] = {}
    for cable in sorted(cables.tolist(), key=lambda each: (-busy[each], each)):
        at = int(node[cable])
        kind: Hashable = at >= fabric.n_nodes or groups.get(at, ())
        if kind not in first or busy[cable] < (1.0 - AS_BUSY) * busy[first[kind]]:
            first[kind] = cable
        out[cable] = first[kind]
    return out


def _groups_of_nodes(run: Run, fabric: Fabric) -> dict[int, Hashable]:
    """What each node's messages belong to: groups of ranks that end together, and pairs.

    Ranks that messages of one label connect are a group, but those of sends and receives: each of
    these ends on its own. What a node sends too little of to slow the run down is left out.
    """
    ranks = run.tables["ranks"].select("rank", pl.col("node").cast(pl.Int64))
    pairs = (
        run.tables["messages"]
        .group_by("label", "src_rank", "dst_rank")
        .agg(pl.col("size_bytes").sum())
        .join(run.tables["labels"].select("label", alone=is_point_to_point("call")), on="label")
        .sort("label", "src_rank", "dst_rank")
    )
    parts = []
    for (label, alone), rows in pairs.group_by("label", "alone", maintain_order=True):
        src, dst = (rows[name].to_numpy().astype(np.int64) for name in ("src_rank", "dst_rank"))
        if alone:
            group = np.minimum(src, dst) * ranks.height + np.maximum(src, dst)
        else:
            links = csr_array((np.ones(len(src)), (src, dst)), shape=(ranks.height, ranks.height))
            group = connected_components(links, directed=False)[1][src].astype(np.int64)
        for end in ("src_rank", "dst_rank"):
            part = rows.select(pl.col(end).alias("rank"), "src_rank", "dst_rank", "size_bytes")
            parts.append(part.with_columns(label=pl.lit(label, pl.Int64), group=pl.Series(group)))
    if not parts:
        return {}
    host = fabric.node_host[ranks.sort("rank")["node"].to_numpy()]
    sent = pl.concat(parts)
    src, dst = (host[sent[name].to_numpy()] for name in ("src_rank", "dst_rank"))
    shares = (
        sent.filter(pl.Series(src != dst))
        .join(ranks, on="rank")
        .group_by("node", "label", "group")
        .agg(pl.col("size_bytes").sum())
        .filter(pl.col("size_bytes") >= MIN_BYTES_SHARE * pl.col("size_bytes").sum().over("node"))
        .sort("node", "label", "group")
    )
    of_node = shares.group_by("node").agg(pl.struct("label", "group"))
    return {
        int(node): tuple((each["label"], each["group"]) for each in listed)
        for node, listed in of_node.rows()
    }


def late_groups(tables: Mapping[str, pl.DataFrame], run: Run, fabric: Fabric) -> list[int]:
    """Cables of hosts that explain best which groups end collectives late; the best one first.

    The last rank to begin a collective does not wait, so its time is the transfer, whatever the
    clocks. It is compared with the median over the groups that run the same collective.

    Args:
        tables: Table ``collectives`` of the measured run.
        run: A simulation of the same program.
        fabric: The fabric.
    """
    if tables["collectives"].is_empty():
        return []
    kind = ("operation", "sent_bytes", "size")
    instances = (
        tables["collectives"]
        .group_by("instance", maintain_order=True)
        .agg(
            pl.col("operation", "sent_bytes").first(),
            pl.col("rank").sort(),
            size=pl.len(),
            took=(pl.col("leave_ps") - pl.col("enter_ps")).min().cast(pl.Float64),
        )
        .filter(pl.col("rank").n_unique().over(kind) > 1)
        .with_columns(late=pl.col("took") - pl.col("took").median().over(kind))
    )
    observed = run.tables["jobs"].filter("observed").select("job")
    ranks = run.tables["ranks"].join(observed, on="job", how="semi")
    node = ranks.sort("job_rank")["node"].to_numpy().astype(np.int64)
    rows = instances.select("instance", "late", "rank").explode("rank")
    at = node[rows["rank"].to_numpy().astype(np.int64)]
    rows = rows.with_columns(host=pl.Series(fabric.node_host[at]), node=pl.Series(at))
    rows = rows.filter(pl.col("host").n_unique().over("instance") > 1)
    rows = rows.unique(["instance", "node"], maintain_order=True)
    cable = np.full(fabric.n_nodes, -1, np.int64)
    from_node = np.flatnonzero(fabric.link_src < fabric.n_nodes)
    cable[fabric.link_src[from_node]] = np.minimum(from_node, fabric.link_reverse[from_node])
    crossed = cable[rows["node"].to_numpy()]
    even = np.ones(len(crossed))
    score = lateness_explained(crossed, even, rows["late"].to_numpy(), even, fabric.n_links)
    order = np.argsort(-score, kind="stable")
    return [int(first) for first in order if score[first] > 0]


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


@dataclass(frozen=True)
class StallClues:
    """Links for which others wait by their counters, most likely first.

    Attributes:
        avoided: Those that carried less than their parallel links, as adaptive routing avoids a
            slow link, by one link of each cable.
        ahead: Busy ones whose upstream ports stall more than expected.
    """

    avoided: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()


def stall_clues(counters: LinkCounters | None, run: Run, fabric: Fabric) -> StallClues:
    """Links that do not stall themselves, and on which others seem to wait, by counters.

    Empty without counters and on lossy networks, whose ports do not stall.
    """
    if counters is None or counters.lossy:
        return StallClues()
    # The stalls that are expected of a run that took as long as measured.
    expected = link_totals(run, "stall_ps") / max(run.elapsed_ps, counters.seconds * 1e12, 1.0)
    excess = np.nan_to_num(counters.stall - expected)
    into = np.zeros(fabric.n_nodes + len(fabric.switch_name))
    np.add.at(into, fabric.link_dst, np.maximum(excess, 0.0))
    busy = np.nan_to_num(counters.sent_bytes) * 8 / max(counters.seconds * 1e9, 1.0)
    share = np.minimum(busy / fabric.link_gbps, 1.0)
    busiest = np.full(len(into), 1e-9)
    np.maximum.at(busiest, fabric.link_src, share)
    # Links that do not stall, at switches whose incoming links stall.
    flows = 1.0 - np.clip(excess, 0.0, 1.0)
    ahead = into[fabric.link_src] * share / busiest[fabric.link_src] * flows
    # All links of a switch are avoided with the one that is slow, so both ways of a cable count. A
    # link that stalls is avoided for what is ahead of it.
    avoided = _avoided_share(counters, run, fabric) * flows
    reverse = fabric.link_reverse.astype(np.int64)
    cables = np.where(avoided >= avoided[reverse], avoided + avoided[reverse], 0.0)
    return StallClues(_largest(cables), _largest(ahead))


def _largest(score: Floats) -> tuple[int, ...]:
    """Links with a positive score, the largest first."""
    order = np.argsort(-score, kind="stable")
    return tuple(int(link) for link in order[:24] if score[link] > 0)


def _avoided_share(counters: LinkCounters, run: Run, fabric: Fabric) -> Floats:
    """Share of its expected bytes that each link lacks beside its parallel links, 0-1, shape (L,).

    0 where it lacks no more than usual, where bytes of a bundle of parallel links are not counted,
    or none are expected.
    """
    expected = link_totals(run, "bytes")
    out = np.zeros(fabric.n_links)
    for links in parallel_bundles(fabric):
        carried, usual = counters.sent_bytes[links], expected[links]
        if np.isnan(carried).any() or carried.sum() <= 0 or usual.sum() <= 0:
            continue
        usual = usual * carried.sum() / usual.sum()
        out[links] = np.divide(usual - carried, usual, out=np.zeros(len(links)), where=usual > 0)
    return np.where(out > USUAL_UNEVENNESS, out, 0.0)
