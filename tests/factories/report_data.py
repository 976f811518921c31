"""Fabricated runs for tests of the report: plausible tables of a fat tree, made without an engine.

The numbers follow a crude model (expected loads of a stencil, congestion as a function of load) and
serve only to exercise the pictures; nothing outside the tests may use them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.diagnosis.model import (
    Candidate,
    Diagnosis,
    Estimate,
    Finding,
    LinkEvidence,
    Remedy,
    Sampling,
    Status,
    WaterfallBar,
)
from tailback.run.run import Run
from tailback.run.schema import TABLES, conform
from tailback.scenario.model import parse

PHASES = ("+x", "-x", "+y", "-y")
WINDOW_PS = 1_000_000
PACKET = 4096


@dataclass(frozen=True)
class Shape:
    """A fat tree and the grid of ranks on it."""

    hosts_per_leaf: int
    leaves: int
    aggregation: int
    pods: int
    cores: int
    grid: tuple[int, int]

    @property
    def n_leaves(self) -> int:
        return self.leaves * max(self.pods, 1)

    @property
    def n_nodes(self) -> int:
        return self.hosts_per_leaf * self.n_leaves


SMALL = Shape(16, 8, 4, 0, 0, (8, 16))
TAPERED = Shape(32, 24, 16, 6, 48, (64, 72))


def _cables(shape: Shape) -> list[tuple[int, int, int]]:
    """(lower vertex, upper vertex, tier) of every cable."""
    n, leaves = shape.n_nodes, shape.n_leaves
    cables = [(node, n + node // shape.hosts_per_leaf, 0) for node in range(n)]
    pods = max(shape.pods, 1)
    for leaf in range(leaves):
        pod = leaf // shape.leaves
        for agg in range(shape.aggregation):
            cables.append((n + leaf, n + leaves + pod * shape.aggregation + agg, 1))
    if shape.pods:
        up = shape.cores // 2
        for agg in range(pods * shape.aggregation):
            for port in range(up):
                core = (agg % 2) * up + port
                cables.append((n + leaves + agg, n + leaves + pods * shape.aggregation + core, 2))
    return cables


def _fabric(shape: Shape, prefix: str) -> dict[str, pl.DataFrame]:
    n, pods = shape.n_nodes, max(shape.pods, 1)
    tier = [0] * shape.n_leaves + [1] * (pods * shape.aggregation) + [2] * shape.cores
    pod = [leaf // shape.leaves for leaf in range(shape.n_leaves)]
    pod += [a // shape.aggregation for a in range(pods * shape.aggregation)] + [-1] * shape.cores
    if not shape.pods:
        pod = [-1] * len(tier)
    kinds = ("leaf", "agg", "core")
    names = [f"{prefix}node{i:04d}" for i in range(n)]
    switch_names = [f"{prefix}{kinds[t]}{i:03d}" for i, t in enumerate(tier)]
    vertex = names + switch_names
    next_port = [1] * len(vertex)
    rows = []
    for low, high, level in _cables(shape):
        ports = next_port[low], next_port[high]
        next_port[low] += 1
        next_port[high] += 1
        link = len(rows)
        for src, dst, p, q, direction in (
            (low, high, ports[0], ports[1], "up"),
            (high, low, ports[1], ports[0], "down"),
        ):
            rows.append(
                (
                    len(rows),
                    src,
                    dst,
                    vertex[src],
                    vertex[dst],
                    p,
                    q,
                    "",
                    level,
                    direction,
                    src < n,
                    dst < n,
                    100.0,
                    0,
                    link + 1 if direction == "up" else link,
                )
            )
    nodes = pl.DataFrame(
        {
            "node": range(n),
            "name": names,
            "host": range(n),
            "host_name": names,
            "switch": [i // shape.hosts_per_leaf for i in range(n)],
        }
    )
    switches = pl.DataFrame(
        {"switch": range(len(tier)), "name": switch_names, "tier": tier, "pod": pod}
    )
    links = pl.DataFrame(rows, schema=list(TABLES["links"].polars_schema), orient="row")
    return {"nodes": nodes, "switches": switches, "links": links}


def _place(shape: Shape, tiled: bool) -> NDArray[np.int64]:
    """Node of each rank: row after row, or tiles of one leaf each."""
    gx, gy = shape.grid
    rank = np.arange(gx * gy)
    x, y = rank % gx, rank // gx
    if not tiled:
        return rank
    tx = 8 if shape.hosts_per_leaf >= 32 else 4
    ty = shape.hosts_per_leaf // tx
    tile = (x // tx) * (gy // ty) + y // ty
    return tile * shape.hosts_per_leaf + (y % ty) * tx + x % tx


def _messages(
    shape: Shape, node: NDArray[np.int64], elapsed: int, names: tuple[str, ...]
) -> pl.DataFrame:
    gx, gy = shape.grid
    rank = np.arange(gx * gy)
    x, y = rank % gx, rank // gx
    frames = []
    for label, (dx, dy) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))[: len(names)]):
        ok = (x + dx >= 0) & (x + dx < gx) & (y + dy >= 0) & (y + dy < gy)
        src = rank[ok]
        dst = src + dx + gx * dy
        a, b = node[src] // shape.hosts_per_leaf, node[dst] // shape.hosts_per_leaf
        hops = np.where(
            a == b, 1, np.where((a // shape.leaves == b // shape.leaves) | (shape.pods == 0), 3, 5)
        )
        post = np.full(len(src), elapsed * label // len(names), np.int64)
        frames.append(
            pl.DataFrame(
                {
                    "message": np.arange(len(src)),
                    "src_rank": src,
                    "dst_rank": dst,
                    "size_bytes": 131072,
                    "label": label,
                    "post_ps": post,
                    "start_ps": post + 1000,
                    "arrival_ps": post + elapsed // len(names) * (20 + src * 7 % 13) // 32 - 1,
                    "packets": 32,
                    "switch_hops": 32 * hops,
                }
            )
        )
    return pl.concat(frames)


def _expected(shape: Shape, messages: pl.DataFrame, node: NDArray[np.int64]) -> NDArray[np.float64]:
    """Expected packets of each directed link under each label, shape (labels, L)."""
    cables = _cables(shape)
    out = np.zeros((int(messages["label"].max()) + 1, 2 * len(cables)))  # type: ignore[arg-type, call-overload]
    low = np.array([c[0] for c in cables])
    tier = np.array([c[2] for c in cables])
    leaf_of = low - shape.n_nodes
    for label in range(len(out)):
        part = messages.filter(pl.col("label") == label)
        src, dst = node[part["src_rank"].to_numpy()], node[part["dst_rank"].to_numpy()]
        a, b = src // shape.hosts_per_leaf, dst // shape.hosts_per_leaf
        for vertex, leaf, way in ((src, a, 0), (dst, b, 1)):
            out[label, way : 2 * shape.n_nodes : 2] += 32 * np.bincount(
                vertex, minlength=shape.n_nodes
            )
            leaving = np.bincount(leaf[a != b], minlength=shape.n_leaves)
            mine = np.flatnonzero(tier == 1)
            out[label, 2 * mine + way] = 32 * leaving[leaf_of[mine]] / shape.aggregation
            if shape.pods:
                pod = leaf // shape.leaves
                over = np.bincount(
                    pod[a // shape.leaves != b // shape.leaves], minlength=shape.pods
                )
                top = np.flatnonzero(tier == 2)
                of = (low[top] - shape.n_nodes - shape.n_leaves) // shape.aggregation
                each = shape.aggregation * (shape.cores // 2)
                out[label, 2 * top + way] = 32 * over[of] / each
    return out


def make_run(
    shape: Shape = SMALL,
    *,
    tiled: bool = False,
    phases: tuple[str, ...] = PHASES,
    prefix: str = "",
    seed: int = 7,
    truth: bool = True,
) -> Run:
    """A fabricated run of a four-neighbour stencil.

    Args:
        shape: Fabric and grid.
        tiled: Place ranks in tiles of one leaf rather than row by row.
        phases: Names of the phases, at most four.
        prefix: Put before every name of a node or switch.
        seed: Of the noise.
        truth: Fill the table ``truth``.
    """
    rng = np.random.default_rng(seed)
    elapsed = 44_000_000 if tiled else 61_000_000
    node = _place(shape, tiled)
    messages = _messages(shape, node, elapsed, phases)
    tables = _fabric(shape, prefix)
    windows = np.arange(-(-elapsed // WINDOW_PS))
    samples, real = _link_tables(shape, _expected(shape, messages, node), len(windows), rng)
    tables |= {
        "messages": messages,
        "samples": samples,
        "truth": real if truth else real.clear(),
        "jobs": pl.DataFrame(
            {
                "job": [0],
                "name": [prefix + "stencil"],
                "observed": [True],
                "ranks": [len(node)],
                "placement": ["tiled" if tiled else "block"],
                "grid": ["x".join(map(str, shape.grid))],
            }
        ),
        "labels": pl.DataFrame(
            {
                "label": range(len(phases)),
                "job": 0,
                "phase": phases,
                "call": prefix + "MPI_Isend",
                "tag": range(len(phases)),
                "communicator": "MPI_COMM_WORLD",
            }
        ),
        "windows": pl.DataFrame(
            {
                "window": windows,
                "start_ps": windows * WINDOW_PS,
                "end_ps": np.minimum((windows + 1) * WINDOW_PS, elapsed),
            }
        ),
        "ranks": pl.DataFrame(
            {
                "rank": range(len(node)),
                "job": 0,
                "job_rank": range(len(node)),
                "node": node,
                "finish_ps": elapsed,
                "compute_ps": 0,
                "wait_ps": elapsed // 2,
            }
        ),
    }
    scenario = parse(
        {
            "name": "stencil on a fat tree",
            "seed": seed,
            "fabric": {"preset": "tapered"},
            "job": [{"name": "stencil", "pattern": {"kind": "stencil"}}],
        }
    )
    summary = {
        "elapsed_ps": elapsed,
        "packets": int(messages["packets"].sum()),
        "packet_hops": int(messages["switch_hops"].sum()),
        "events": 0,
        "average_path_length": 1.433 if tiled else 2.087,
        "observed_packets": int(messages["packets"].sum()),
        "complete": True,
    }
    for name in TABLES:
        tables.setdefault(name, pl.DataFrame(schema=TABLES[name].polars_schema))
    return Run(scenario, {name: conform(name, tables[name]) for name in TABLES}, summary)


def _link_tables(
    shape: Shape, expected: NDArray[np.float64], n_windows: int, rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    n_labels, n_links = expected.shape
    hops = {0: 3.0, 1: 4.0, 2: 6.0}
    tier = np.repeat([c[2] for c in _cables(shape)], 2)
    samples, truth = [], []
    length = np.array([hops[t] for t in tier])
    capacity = WINDOW_PS * 100 / 8e3 / PACKET
    bias = rng.normal(0, 0.25, n_links)
    for window in range(n_windows):
        label = min(window * n_labels // n_windows, n_labels - 1)
        span = n_windows / n_labels
        inside = (window - label * span) / span
        shape_in_time = np.clip(1.6 - 1.4 * inside, 0.05, None)
        packets = rng.poisson(expected[label] / span * shape_in_time)
        load = packets / capacity
        probability = 0.97 / (1 + np.exp(-4 * (load - 1.4 + bias)))
        probability = np.where(tier == 0, 0.15 * probability, probability)
        probability = np.where((np.arange(n_links) % 2 == 0) & (tier == 0), 0.0, probability)
        congested = rng.binomial(packets, probability)
        seen = np.where((np.arange(n_links) % 2 == 0) & (tier == 0), 0, packets)
        hop = rng.binomial(seen, 1 / length)
        cong = rng.binomial(np.minimum(congested, seen), 0.6)
        use = np.flatnonzero((hop > 0) | (cong > 0))
        samples.append(
            pl.DataFrame(
                {
                    "window": np.full(len(use), window),
                    "job": 0,
                    "label": label,
                    "link": use,
                    "hop_samples": hop[use],
                    "hop_weight": np.round(hop[use] * length[use]),
                    "hop_variance": np.round(hop[use] * length[use] * (length[use] - 1)),
                    "hop_bytes": hop[use] * length[use] * PACKET,
                    "congested_samples": cong[use],
                    "congested_weight": np.round(cong[use] / 0.6),
                    "congested_variance": np.round(cong[use] * 0.4 / 0.36),
                }
            )
        )
        use = np.flatnonzero(packets)
        truth.append(
            pl.DataFrame(
                {
                    "window": np.full(len(use), window),
                    "link": use,
                    "packets": packets[use],
                    "bytes": packets[use] * PACKET,
                    "observed_packets": packets[use],
                    "congested_packets": congested[use],
                    "observed_congested_packets": congested[use],
                    "busy_ps": np.round(np.clip(load[use], 0, 1) * WINDOW_PS),
                    "stall_ps": np.round(0.4 * probability[use] * WINDOW_PS),
                }
            )
        )
    return pl.concat(samples), pl.concat(truth)


def _waterfall(hostile: str) -> list[WaterfallBar]:
    """The bars of the row-major stencil, in microseconds."""
    steps = (
        ("ideal", 41.9),
        ("pattern", 0.9),
        ("placement", 15.6),
        ("routing", 1.6),
        ("other traffic", 1.2),
        ("observed", 0.0),
    )
    bars, total = [], 0.0
    for name, delta in steps:
        total += delta
        bars.append(
            WaterfallBar(
                name=name,
                elapsed_ps=round(total * 1e6),
                delta_ps=round(delta * 1e6),
                low_ps=round(delta * 0.9e6),
                high_ps=round(delta * 1.12e6),
                meaning=f"the run with {name} made real" + hostile,
            )
        )
    return bars


def _candidates(hostile: str) -> list[Candidate]:
    """Placements tried, one of which cannot be."""
    return [
        Candidate(
            name=name + hostile,
            elapsed_ps=round(t * 1e6),
            low_ps=round(t * 0.99e6),
            high_ps=round(t * 1.015e6),
            path_length=p,
            congested_fraction=c,
        )
        for name, t, p, c in (
            ("tiled", 44.0, 1.433, 0.04),
            ("partition", 46.1, 1.47, 0.07),
            ("hilbert", 48.8, 1.6, 0.11),
            ("block", 61.2, 2.087, 0.31),
            ("reverse-cuthill-mckee", 89.0, 3.1, 0.44),
            ("random", 88.1, 4.65, 0.52),
        )
    ] + [
        Candidate(
            name="hypercube",
            status=Status.FAILED,
            reason="needs a power of two of ranks" + hostile,
        )
    ]


def make_diagnosis(run: Run, *, hostile: str = "") -> Diagnosis:
    """A diagnosis that fits ``make_run``; ``hostile`` is put into every text it may hold."""
    from tailback.report.figure_data import (
        FigureData,  # deferred: the tables can be made without it
    )

    evidence = FigureData(run)
    load = evidence.load()
    order = np.argsort(-np.nan_to_num(load.congested_weight))[:12]
    use = load.utilization(evidence.rate_gbps)

    def estimate(value: float, error: float) -> Estimate:
        return Estimate(
            value=value,
            standard_error=error,
            low=max(value - 1.96 * error, 0.0),
            high=min(value + 1.96 * error, 1.0),
        )

    links = [
        LinkEvidence(
            link=int(i),
            name=evidence.link_names[int(i)],
            tier=int(evidence.tier[i]),
            direction=str(evidence.direction[i]),
            phase=evidence.phases[-1],
            utilization=estimate(float(use[i]), 0.01),
            congested_fraction=estimate(float(load.fraction[i]), float(load.error[i])),
            samples=int(load.samples[i]),
            tree_links=int(i) % 9,
        )
        for i in order
    ]
    share = 0.86
    return Diagnosis(
        cause="placement",
        headline="Placement: neighbours of the grid sit on different leaves, and the leaf up links "
        "carry what need not leave the leaf." + hostile,
        findings=[
            Finding(
                code="TB002",
                cause="placement",
                title="Ranks that talk are apart" + hostile,
                explanation="86 % of congested packets met congestion on leaf up links in "
                "phases +y and -y; 62 % of these bytes would stay in a leaf." + hostile,
                share=share,
                phases=evidence.phases[-2:],
                links=links[:4],
                advice="Place ranks in tiles of one leaf." + hostile,
            ),
            Finding(
                code="TB001",
                cause="pattern",
                title="Hosts receive from several at once",
                explanation="Ejection links hold the root of the remaining trees.",
                share=0.09,
                phases=evidence.phases[:1],
                links=links[4:5],
                advice="Nothing to gain.",
            ),
        ],
        waterfall=_waterfall(hostile),
        remedy=Remedy(
            actions=("Place ranks in 8×4 tiles, one tile a leaf." + hostile,),
            name="tiled" + hostile,
            parts=("tiled" + hostile,),
            placement="tiled" + hostile,
            before_ps=61_200_000,
            after_ps=44_000_000,
            gain=1 - 44 / 61.2,
            candidates=_candidates(hostile),
            files={"rankfile" + hostile: "Open MPI rank file", "hosts.slurm": "Slurm host file"},
            commands=[
                "mpirun -np 4608 --rankfile rankfile ./app" + hostile,
                "SLURM_HOSTFILE=hosts.slurm srun --distribution=arbitrary ./app",
            ],
        ),
        top_links=links,
        sampling=Sampling(
            packets=int(run.summary["observed_packets"]),
            links_seen=int((load.samples > 0).sum()),
            links_sure=int((load.samples >= 20).sum()),
            sufficient=True,
            note="Enough samples for every link that matters." + hostile,
        ),
        elapsed_ps=run.elapsed_ps,
        communication_fraction=0.5,
        warnings=["3 messages were received before they were sent" + hostile],
    )
