"""Stall time by congested link, line of the program and rank.

The stall of a message is the time it took beyond its own bytes at line rate. It is attributed to
the congested links that its packets may have crossed, in proportion to how often packets of its
label met congestion there, and from these along the congestion trees of the diagnosis to their
roots. The links of a bundle count as one. Without a message log the unit is congested packets, and
ranks are unknown.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.diagnosis.link_directions import links_in_words
from tailback.diagnosis.run_analysis import OTHER_PHASES, PhaseAnalysis
from tailback.diagnosis.run_analysis import RunAnalysis as Trees
from tailback.diagnosis.topology import LinkTopology
from tailback.report.flame import Frame, add_rest, sort_frames, title
from tailback.report.layout import tier_direction_name
from tailback.run.run import Run
from tailback.run.schema import DERIVED, conform
from tailback.stages import stage
from tailback.telemetry.left_out import copies
from tailback.telemetry.run_views import Side, labelled_by_receives

MAX_DEPTH = 6
"""Maximum length of a chain of waiting links. Links beyond count for the last one."""

MIN_SHARE = 0.02
"""Shares of waiting below this are not followed."""

NAMED_RANKS = 3
"""Number of ranks named under a call, those that lose most time. The others are added up."""


@dataclass(frozen=True)
class CallSite:
    """One line of the program at one saturated link or bundle.

    Attributes:
        place: Name of the link or bundle.
        link: Its most congested link.
        ours: Whether our own traffic fills it; None if the samples do not tell.
        line: Call path and call, or phase and call if no path is known.
        phase: Phase of the messages.
        call: Call that sent them, or received them.
        tag: MPI tag, -1 where there is none.
        communicator: Their communicator.
        share: Share of this line in our congested packets there, 0–1.
        stall: Stall of this line there (ps or packets).
        ranks: Ranks that wait, numbered within the job; empty if unknown.
    """

    place: str
    link: int
    ours: bool | None
    line: str
    phase: str
    call: str
    tag: int
    communicator: str
    share: float
    stall: float
    ranks: frozenset[int]


@dataclass(frozen=True)
class Attribution:
    """Stall time of a run by saturated link, line of the program and rank.

    Attributes:
        unit: ``ps`` (message log known) or ``packets``.
        flame: The root frame; its children are the saturated links, heaviest first.
        lines: The table, heaviest stall first.
        elsewhere: Stall of messages that met no congested link: queues too short to count.
    """

    unit: Literal["ps", "packets"]
    flame: Frame
    lines: list[CallSite]
    elsewhere: float


@stage("stall by call site")
def attribute(
    run: Run, analyse: Callable[[Run], Trees] = Trees, side: Side = "sender"
) -> Attribution:
    """Attribute the stall time of our messages to saturated links, lines and ranks.

    Args:
        run: The run.
        analyse: Builds its congestion trees; a caching function avoids building them twice.
        side: Whose lines and ranks: of the calls that send, or of the calls that receive.

    Raises:
        RunError: The receiving calls are not known.
    """
    trees = analyse(run if side == "sender" else labelled_by_receives(run))
    waits = _Waits(trees, side)
    flame = Frame("all", "all")
    stall, waiting_ranks = dict[tuple[int, int], float](), dict[tuple[int, int], set[int]]()
    for view in trees.views:
        graph = _BundleGraph(trees, view)
        waits_of_view = waits.at(view, trees)
        for part in _group_waits(waits_of_view):
            for chain, factor in graph.chains(part.bundle):
                _insert_chain(flame, waits, graph, chain, part, factor)
                key = (chain[0], part.label)
                stall[key] = stall.get(key, 0.0) + factor * part.total
                waiting_ranks.setdefault(key, set()).update(part.ranks)
    sort_frames(flame)
    table = _table(trees, waits, stall, waiting_ranks)
    return Attribution(waits.unit, flame, table, max(waits.total - flame.value, 0.0))


class _Waits:
    """Stall of each label and rank, by bundle."""

    def __init__(self, trees: Trees, side: Side) -> None:
        run = trees.run
        self.labels = {int(row["label"]): row for row in run.tables["labels"].iter_rows(named=True)}
        self.ranks = dict(run.tables["ranks"].select("rank", "job_rank").iter_rows())
        self.nodes = dict(run.tables["ranks"].select("rank", "node").iter_rows())
        self._bundles = pl.DataFrame(
            {
                "link": np.arange(trees.topology.n_links, dtype=np.uint32),
                "bundle": trees.topology.bundle,
                "inner": ~trees.topology.from_node,
            }
        )
        ours = run.tables["jobs"].filter("observed")["job"]
        self.samples = (
            run.tables["samples"]
            .filter(pl.col("job").is_in(ours.implode()))
            .join(self._bundles, on="link")
            .filter("inner")
            .group_by("bundle", "label")
            .agg(
                met=pl.col("congested_weight").sum().cast(pl.Float64),
                packets=pl.col("hop_weight").sum().cast(pl.Float64),
            )
            .sort("bundle", "label")
        )
        log = _delays(run, trees, "src_rank" if side == "sender" else "dst_rank")
        self.unit: Literal["ps", "packets"] = "packets" if log is None else "ps"
        self.own = self._packets() if log is None else self._stalls(log, trees)
        everything = self.samples["met"] if log is None else log["lost"]
        self.total = float(everything.sum())

    def at(self, view: PhaseAnalysis, trees: Trees) -> pl.DataFrame:
        """Rows ``bundle, label, rank, value`` of the phases of one view."""
        labels = pl.DataFrame(
            {"label": list(self.labels), "phase": [row["phase"] for row in self.labels.values()]},
            schema={"label": pl.UInt32, "phase": pl.String},
        )
        waits_of_phases = self.own.join(labels, on="label")
        if len(trees.views) == 1:
            return waits_of_phases
        if view.name == OTHER_PHASES:
            others = pl.Series([other.name for other in trees.views], dtype=pl.String)
            return waits_of_phases.filter(~pl.col("phase").is_in(others.implode()))
        return waits_of_phases.filter(pl.col("phase") == view.name)

    def _packets(self) -> pl.DataFrame:
        return self.samples.filter(pl.col("met") > 0).select(
            "bundle", "label", rank=pl.lit(-1, pl.Int64), value=pl.col("met")
        )

    def _stalls(self, log: pl.DataFrame, trees: Trees) -> pl.DataFrame:
        """Split the stall of each message over the bundles that may have delayed it."""
        places = _places(trees)
        heat = self.samples.filter(pl.col("packets") > 0).with_columns(
            heat=(pl.col("met") / pl.col("packets")).clip(0, 1)
        )
        crossed = [
            log.join(places.rename({"vertex": key}), on=key)
            for key in ("src_switch", "dst_switch", "dst_node")
        ]
        middle = heat.filter(~pl.col("bundle").is_in(places["bundle"].unique().implode()))
        far = log.filter(pl.col("src_pod") != pl.col("dst_pod"))
        # Which upper links a message took is unknown: use all of its label, weighted by traffic.
        weight = pl.col("packets") / pl.col("packets").sum().over("label")
        upper = (
            far.join(middle.select("bundle", "label", part=weight), on="label")
            if far.height * max(middle.height, 1) < 5_000_000
            else far.head(0).with_columns(bundle=pl.lit(0, pl.Int64), part=pl.lit(0.0))
        )
        columns = ("rank", "label", "lost", "message", "bundle", "part")
        unsplit = pl.lit(1.0)
        joined = pl.concat(
            [
                *(frame.with_columns(part=unsplit).select(columns) for frame in crossed),
                upper.select(columns),
            ]
        ).join(heat.select("bundle", "label", "heat"), on=("bundle", "label"))
        share = pl.col("heat") * pl.col("part")
        return (
            joined.filter(pl.col("heat") > 0)
            .with_columns(value=pl.col("lost") * share / share.sum().over("message"))
            .group_by("bundle", "label", "rank")
            .agg(pl.col("value").sum())
            .sort("bundle", "label", "rank")
        )

    def line(self, label: int) -> str:
        """The line of the program that a label stands for."""
        return line_name(self.labels[label])


def line_name(label: Mapping[str, Any]) -> str:
    """The line of the program that a row of ``labels`` stands for, with its call path if known."""
    tag = f", tag {label['tag']}" if label["tag"] >= 0 else ""
    if label["path"]:
        return f"{label['path']} > {label['call']}{tag}"
    if label["phase"] == f"tag {label['tag']}":
        return f"{label['call']}{tag}"
    phase = f" in {label['phase']}" if label["phase"] not in ("", label["call"]) else ""
    return f"{label['call']}{phase}{tag}"


def _places(trees: Trees) -> pl.DataFrame:
    """Bundles a message must cross: ``vertex, bundle`` of leaf switches and nodes."""
    t = trees.topology
    leaf = np.zeros(len(t.out_start) - 1, np.bool_)
    leaf[t.node_switch[t.node_switch >= 0]] = True
    up = (t.direction == 1) & ~t.from_node & leaf[t.src]
    down = (t.direction == -1) & ~t.to_node & leaf[t.dst]
    vertex = np.concatenate([t.src[up], len(leaf) + t.dst[down], 2 * len(leaf) + t.dst[t.to_node]])
    bundle = np.concatenate([t.bundle[up], t.bundle[down], t.bundle[t.to_node]])
    return pl.DataFrame({"vertex": vertex, "bundle": bundle}).unique().sort("vertex", "bundle")


def _delays(run: Run, trees: Trees, rank: str) -> pl.DataFrame | None:
    """Stall of each observed message, with the rank in column ``rank``; None without a message log.

    The stall is the time beyond the message's bytes at the slower of its two host links and a
    latency: the least excess of any message over the same number of switches. A message that stands
    for others, of steps left out, has their stall, too.
    """
    ours = run.tables["jobs"].filter("observed")["job"]
    ranks = run.tables["ranks"].filter(pl.col("job").is_in(ours.implode())).select("rank", "node")
    t = trees.topology
    rate = np.zeros(t.n_nodes)
    rate[t.src[t.from_node]] = t.rate_gbps[t.from_node]
    switch = t.node_switch
    pods = run.tables["switches"].sort("switch")["pod"].cast(pl.Int64).to_numpy()
    vertices = len(t.out_start) - 1
    nodes = pl.DataFrame(
        {
            "node": np.arange(t.n_nodes, dtype=np.uint32),
            "rate": rate,
            "switch": switch,
            "pod": pods[np.maximum(switch - t.n_nodes, 0)] if len(pods) else switch,
        }
    )
    ends = ranks.join(nodes, on="node")
    log = (
        run.tables["messages"]
        .with_columns(copies=copies(run.tables))
        .filter((pl.col("arrival_ps") > pl.col("start_ps")) & (pl.col("packets") > 0))
        .join(
            ends.rename({"rank": "src_rank", "switch": "src_switch", "pod": "src_pod"}),
            on="src_rank",
        )
        .join(
            ends.rename({"rank": "dst_rank", "switch": "to_switch", "pod": "dst_pod"}),
            on="dst_rank",
            suffix="_to",
        )
        .filter(pl.col("node") != pl.col("node_to"))
    )
    if not log.height:
        return None
    took = pl.col("arrival_ps").cast(pl.Float64) - pl.col("start_ps").cast(pl.Float64)
    wire = pl.col("size_bytes") * 8000 / pl.min_horizontal("rate", "rate_to")
    away = pl.col("src_switch") != pl.col("to_switch")
    log = log.with_columns(beyond=took - wire, hops=pl.col("switch_hops") // pl.col("packets"))
    return log.with_columns(
        lost=(pl.col("beyond") - pl.col("beyond").min().over("hops")).clip(lower_bound=0)
        * pl.col("copies"),
        dst_switch=pl.when(away).then(vertices + pl.col("to_switch")).otherwise(-1),
        src_switch=pl.when(away).then("src_switch").otherwise(-1),
        dst_node=2 * vertices + pl.col("node_to").cast(pl.Int64),
    ).select(
        "message",
        "label",
        "lost",
        "src_switch",
        "dst_switch",
        "dst_node",
        "src_pod",
        "dst_pod",
        rank=pl.col(rank).cast(pl.Int64),
    )


class _BundleGraph:
    """A congestion forest by bundle: which bundles each bundle waits on."""

    def __init__(self, trees: Trees, view: PhaseAnalysis) -> None:
        t, forest = trees.topology, view.forest
        self._trees = trees
        links, weight = forest.links, view.congestion.weight[forest.links]
        weight = np.where(weight > 0, weight, 1e-9)
        bundle = t.bundle[links]
        size = int(t.bundle.max(initial=-1)) + 1
        self._total = np.bincount(bundle, weights=weight, minlength=size)
        self._root = np.bincount(bundle, weights=weight * forest.root, minlength=size)
        self._names: dict[int, str] = {}
        self._heaviest: dict[int, int] = {}
        self._roots: dict[int, int] = {}
        for at in np.argsort(weight, kind="stable").tolist():
            self._heaviest[int(bundle[at])] = int(links[at])
            self._roots[int(bundle[at])] = self._roots.get(int(bundle[at]), 0) + 1
        graph = forest.waits_on.tocoo()
        rows, columns = graph.coords
        self._next: dict[int, dict[int, float]] = {}
        shares = zip(rows.tolist(), columns.tolist(), graph.data.tolist(), strict=True)
        for row, column, share in shares:
            a, b = int(bundle[row]), int(bundle[column])
            next_bundles = self._next.setdefault(a, {})
            next_bundles[b] = next_bundles.get(b, 0.0) + share * float(weight[row]) / float(
                self._total[a]
            )

    def chains(self, bundle: int) -> Iterator[tuple[tuple[int, ...], float]]:
        """Chains of waiting from ``bundle``: root first, with the share of stall for each.

        A bundle that is not congested in this view has none.
        """
        if bundle >= len(self._total) or self._total[bundle] <= 0:
            return
        todo: list[tuple[tuple[int, ...], float]] = [((bundle,), 1.0)]
        while todo:
            chain, factor = todo.pop()
            here = chain[0]
            held = float(self._root[here] / self._total[here])
            next_bundles = {
                other: share
                for other, share in self._next.get(here, {}).items()
                if other not in chain and factor * share >= MIN_SHARE and len(chain) < MAX_DEPTH
            }
            # Shares that are not followed further stay here.
            stays = factor * max(held, 1.0 - sum(next_bundles.values()))
            if stays > 0:
                yield chain, stays
            todo += [((other, *chain), factor * share) for other, share in next_bundles.items()]

    def heaviest(self, bundle: int) -> int:
        """The link of the bundle with the most congested packets."""
        return self._heaviest[bundle]

    def tiers(self, link: int) -> str:
        """What a link joins: ``leaf → aggregation``."""
        t = self._trees.topology
        way = {1: "up", 0: "flat", -1: "down"}[int(t.direction[link])]
        if t.flat_direction and t.flat_direction[link]:
            return links_in_words(t.flat_direction[link])
        return tier_direction_name(int(t.tier[link]), way, bool(t.flat_direction))

    def name(self, bundle: int) -> str:
        """Name of the bundle."""
        if bundle not in self._names:
            self._names[bundle] = bundle_name(self._trees, bundle)
        return self._names[bundle]


def bundles(run: Run) -> NDArray[np.int64]:
    """Number of the bundle of each link, shape (L,)."""
    return np.asarray(LinkTopology.of(run).bundle, np.int64)


def bundle_name(trees: Trees, bundle: int) -> str:
    """``leaf042: 16 up-links``, or the name of the only link."""
    t = trees.topology
    members = np.flatnonzero(t.bundle == bundle)
    if len(members) == 1:
        return t.name[int(members[0])]
    way = int(t.direction[members[0]])
    switches = trees.run.tables["switches"]["name"]
    here = int((t.dst if way < 0 else t.src)[members[0]]) - t.n_nodes
    name = str(switches[here]) if 0 <= here < len(switches) else t.name[int(members[0])]
    if way == 0:
        return f"{t.name[int(members[0])]} and {len(members) - 1} parallel"
    return f"{name}: {len(members)} {'up' if way > 0 else 'down'}-links"


class _Part(NamedTuple):
    """Stall of one label at one bundle: in all, and of each rank, heaviest first."""

    bundle: int
    label: int
    total: float
    ranks: list[int]
    values: list[float]


def _group_waits(waits: pl.DataFrame) -> Iterator[_Part]:
    """Rows of each bundle and label. Slicing one sorted table is faster than grouping."""
    rows = waits.sort("bundle", "label", "value", "rank", descending=[False, False, True, True])
    key = rows.select("bundle", "label").to_numpy()
    first = np.flatnonzero((np.diff(key, axis=0, prepend=-1) != 0).any(axis=1))
    ranks, values = rows["rank"].to_list(), rows["value"]
    for begin, end in itertools.pairwise([*first.tolist(), rows.height]):
        part = values.slice(begin, end - begin)
        bundle, label = (int(number) for number in key[begin])
        yield _Part(bundle, label, float(part.sum()), ranks[begin:end], part.to_list())


def _insert_chain(
    flame: Frame,
    waits: _Waits,
    graph: _BundleGraph,
    chain: tuple[int, ...],
    part: _Part,
    factor: float,
) -> None:
    """Add the stall of one bundle and label, along one chain, to the flame graph."""
    total = factor * part.total
    flame.value += total
    frame = flame
    for bundle in chain:
        link = graph.heaviest(bundle)
        frame = frame.add(graph.name(bundle), "link", link, graph.tiers(link))
        frame.value += total
    frame = frame.add(waits.line(part.label), "line")
    frame.value += total
    frame.phase = str(waits.labels[part.label]["phase"])
    if waits.unit == "packets":
        return
    values, ranks = part.values, part.ranks
    for rank, value in zip(ranks[:NAMED_RANKS], values[:NAMED_RANKS], strict=True):
        box = frame.add(f"rank {waits.ranks[rank]}", "rank")
        box.rank = int(waits.ranks[rank])
        box.value += factor * value
        box.node = waits.nodes[rank]
    if len(ranks) > NAMED_RANKS:
        more = dict(zip(ranks[NAMED_RANKS:], values[NAMED_RANKS:], strict=True))
        add_rest(
            frame,
            {waits.ranks[rank]: factor * value for rank, value in more.items()},
            {waits.ranks[rank]: waits.nodes[rank] for rank in more},
        )


def _table(
    trees: Trees,
    waits: _Waits,
    lost: Mapping[tuple[int, int], float],
    waiting_ranks: Mapping[tuple[int, int], set[int]],
) -> list[CallSite]:
    """Rows of the table: share and stall of each line at each saturated bundle."""
    met = {
        (b, label): value
        for b, label, value in waits.samples.select("bundle", "label", "met").iter_rows()
    }
    total = _by_bundle(met)
    stalls = _by_bundle(lost)
    verdicts = _verdicts(trees)
    out = []
    for (bundle, label), stall in lost.items():
        link, ours = verdicts.get(bundle, (-1, None))
        row = waits.labels[label]
        here = total.get(bundle, 0.0)
        # Packets may wait for a slow link in front of its switch, and never in its own queue.
        share = met.get((bundle, label), 0.0) / here if here else stall / max(stalls[bundle], 1e-9)
        if link < 0:
            link = int(np.flatnonzero(trees.topology.bundle == bundle)[0])
        out.append(
            CallSite(
                place=bundle_name(trees, bundle),
                link=link,
                ours=ours,
                line=waits.line(label),
                phase=str(row["phase"]),
                call=str(row["call"]),
                tag=int(row["tag"]),
                communicator=str(row["communicator"]),
                share=share,
                stall=stall,
                ranks=frozenset(waits.ranks[r] for r in waiting_ranks[bundle, label] if r >= 0),
            )
        )
    return sorted(out, key=lambda line: (-line.stall, line.place, line.line))


def _by_bundle(values: Mapping[tuple[int, int], float]) -> dict[int, float]:
    """Sums over the labels of each bundle."""
    out: dict[int, float] = {}
    for (bundle, _), value in values.items():
        out[bundle] = out.get(bundle, 0.0) + value
    return out


def _verdicts(trees: Trees) -> dict[int, tuple[int, bool | None]]:
    """Most congested root of each bundle, and whether our traffic fills it."""
    meaning = {"ours": True, "others": False}
    if trees.network is not None:
        meaning["slow"] = True  # At the rate at which the link serves.
    out: dict[int, tuple[int, bool | None]] = {}
    bundle: NDArray[np.int64] = trees.topology.bundle
    for row in trees.roots.iter_rows(named=True):
        out.setdefault(int(bundle[row["link"]]), (int(row["link"]), meaning.get(row["verdict"])))
    return out


def by_call_site(attribution: Attribution) -> list[CallSite]:
    """The table with one row per line, its links combined.

    ``place`` then names the link or bundle with the most stall, and the number of others.
    """
    groups: dict[tuple[str, bool], list[CallSite]] = {}
    for line in attribution.lines:
        groups.setdefault((line.line, line.ours is False), []).append(line)
    out = []
    for (_, others), lines in groups.items():
        first, stall = lines[0], sum(line.stall for line in lines)
        sure = sum(line.stall for line in lines if line.ours is not None)
        ours = None if sure < stall / 2 else not others
        ranks: frozenset[int] = frozenset().union(*(line.ranks for line in lines))
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        share = sum(line.share * line.stall for line in lines) / stall if stall > 0 else 0.0
        out.append(
            CallSite(
                first.place + more,
                first.link,
                ours,
                first.line,
                first.phase,
                first.call,
                first.tag,
                first.communicator,
                share,
                stall,
                ranks,
            )
        )
    return sorted(out, key=lambda line: (-line.stall, line.line))


def to_json(attribution: Attribution) -> str:
    """The attribution as JSON: ``unit``, ``total``, ``elsewhere``, ``lines`` and ``flame``."""

    def frame(box: Frame) -> dict[str, object]:
        children = [frame(child) for child in box.children]
        return {
            "name": title(box),
            "kind": box.kind,
            "value": box.value,
            "link": box.link,
            "children": children,
        }

    lines = [{**asdict(line), "ranks": sorted(line.ranks)} for line in attribution.lines]
    out = {
        "unit": attribution.unit,
        "total": attribution.flame.value,
        "elsewhere": attribution.elsewhere,
        "lines": lines,
        "flame": frame(attribution.flame),
    }
    return json.dumps(out, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Attribution:
    """The attribution of :func:`to_json`, with the root of its flame graph alone."""
    data = json.loads(text)
    lines = [CallSite(**{**line, "ranks": frozenset(line["ranks"])}) for line in data["lines"]]
    root = Frame("", "all", value=data["total"])
    return Attribution(data["unit"], root, lines, data["elsewhere"])


def to_table(attribution: Attribution) -> pl.DataFrame:
    """The attribution's lines as table ``attribution`` of the schema, heaviest stall first."""
    time = attribution.unit == "ps"
    filled = {True: "ours", False: "others", None: "unknown"}
    rows = [
        {
            **{
                name: getattr(line, name)
                for name in (
                    "place",
                    "link",
                    "line",
                    "phase",
                    "call",
                    "tag",
                    "communicator",
                    "share",
                )
            },
            "filled_by": filled[line.ours],
            "stall_ps": line.stall if time else None,
            "congested_packets": None if time else line.stall,
            "ranks": sorted(line.ranks),
        }
        for line in attribution.lines
    ]
    frame = pl.DataFrame(rows, schema=dict(DERIVED["attribution"].polars_schema))
    return conform("attribution", frame)
