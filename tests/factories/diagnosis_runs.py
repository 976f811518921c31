"""Hand-made runs: a two-level fat tree, flows, and links that are hot by decree.

Tests of diagnosis and remedy build on these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tailback.run.run import Run
from tailback.run.schema import TABLES, conform
from tailback.scenario.model import parse

LEAVES, HOSTS, SPINES = 4, 8, 4
NODES = LEAVES * HOSTS
WINDOW_PS = 10_000_000
TOTAL = 20 * WINDOW_PS
"""How long a made run takes unless it says otherwise."""
PACKET = 4096
LINE_PACKETS = 100.0 * WINDOW_PS / 8000.0 / PACKET
"""Packets a link carries in a window at line rate: 30.5."""


def leaf(i: int) -> int:
    return NODES + i


def spine(i: int) -> int:
    return NODES + LEAVES + i


def _ends() -> list[tuple[int, int]]:
    cables = [(n, leaf(n // HOSTS)) for n in range(NODES)]
    cables += [(leaf(i), spine(j)) for i in range(LEAVES) for j in range(SPINES)]
    return [ends for a, b in cables for ends in ((a, b), (b, a))]


ENDS = _ends()
LINK = {ends: number for number, ends in enumerate(ENDS)}


def eject(node: int) -> int:
    return LINK[leaf(node // HOSTS), node]


def ups(i: int) -> list[int]:
    return [LINK[leaf(i), spine(j)] for j in range(SPINES)]


def downs(i: int) -> list[int]:
    return [LINK[spine(j), leaf(i)] for j in range(SPINES)]


@dataclass(frozen=True)
class Flow:
    """Packets from one node to another, spread evenly over windows ``first`` to ``last``.

    They go over ``spine``, or over a random one for each packet.
    """

    src: int
    dst: int
    packets: int
    phase: str = "exchange"
    call: str = "MPI_Isend"
    first: int = 0
    last: int = 19
    spine: int | None = None


def _fabric_tables() -> dict[str, pl.DataFrame]:
    node = np.arange(NODES)
    switch = np.arange(LEAVES + SPINES)
    src = np.array([a for a, _ in ENDS])
    dst = np.array([b for _, b in ENDS])
    tier = np.where(np.arange(len(ENDS)) < 2 * NODES, 0, 1)
    number = np.arange(len(ENDS))
    names = [f"node{n}" for n in node]
    names += [f"leaf{i}" for i in range(LEAVES)] + [f"spine{i}" for i in range(SPINES)]
    return {
        "nodes": pl.DataFrame(
            {
                "node": node,
                "name": names[:NODES],
                "host": node,
                "host_name": names[:NODES],
                "switch": node // HOSTS,
            }
        ),
        "switches": pl.DataFrame(
            {
                "switch": switch,
                "name": names[NODES:],
                "tier": switch // LEAVES,
                "pod": np.full(len(switch), -1),
            }
        ),
        "links": pl.DataFrame(
            {
                "link": number,
                "src": src,
                "dst": dst,
                "src_name": [names[v] for v in src],
                "dst_name": [names[v] for v in dst],
                "src_port": number // 2,
                "dst_port": number // 2,
                "tier": tier,
                "direction": np.where(number % 2 == 0, "up", "down"),
                "from_node": src < NODES,
                "to_node": dst < NODES,
                "rate_gbps": np.full(len(ENDS), 100.0),
                "delay_ps": np.zeros(len(ENDS), int),
                "reverse": number ^ 1,
            }
        ),
    }


Hot = Mapping[int, float] | Mapping[tuple[str, int], float]
Phases = list[tuple[str, str]]


def _sent(
    flows: Sequence[Flow], hot: Hot, phases: Phases, seed: int
) -> tuple[dict[tuple[int, int, int], np.ndarray], dict[tuple[int, int], np.ndarray]]:
    """Sums of the samples by (window, label, link), and packets that met a link and congestion."""
    rng = np.random.default_rng(seed)
    rows: dict[tuple[int, int, int], np.ndarray] = {}
    truth: dict[tuple[int, int], np.ndarray] = {}
    for flow in flows:
        label = phases.index((flow.phase, flow.call))
        a, b = flow.src // HOSTS, flow.dst // HOSTS
        for k in range(flow.packets):
            span = flow.last - flow.first + 1
            window = flow.first + k * span // flow.packets
            j = int(rng.integers(SPINES)) if flow.spine is None else flow.spine
            path = [eject(flow.dst)]
            if a != b:
                path = [LINK[leaf(a), spine(j)], LINK[spine(j), leaf(b)], *path]
            met = [
                e
                for e in path
                if rng.random() < hot.get(e, hot.get((flow.phase, e), 0.0))  # type: ignore[call-overload]
            ]
            for e in path:
                truth.setdefault((window, e), np.zeros(2, int))[:] += [1, e in met]
            length, e = len(path), path[int(rng.integers(len(path)))]
            row = rows.setdefault((window, label, e), np.zeros(7, int))
            row[:4] += [1, length, length * (length - 1), length * PACKET]
            if met:
                g, e = len(met), met[int(rng.integers(len(met)))]
                row = rows.setdefault((window, label, e), np.zeros(7, int))
                row[4:] += [1, g, g * (g - 1)]
    return rows, truth


def _samples(rows: Mapping[tuple[int, int, int], np.ndarray]) -> pl.DataFrame:
    keys = np.array(sorted(rows), int).reshape(-1, 3)
    sums = np.array([rows[tuple(key)] for key in keys.tolist()], int).reshape(-1, 7)
    sides = ("receive_label", "receiver")
    names = [c.name for c in TABLES["samples"].columns if c.name not in sides]
    return pl.DataFrame(
        dict(
            zip(
                names,
                [keys[:, 0], np.zeros(len(keys), int), keys[:, 1], keys[:, 2], *sums.T],
                strict=True,
            )
        )
    )


def _truth(truth: Mapping[tuple[int, int], np.ndarray]) -> pl.DataFrame:
    where = np.array(sorted(truth), int).reshape(-1, 2)
    counts = np.array([truth[tuple(key)] for key in where.tolist()], int).reshape(-1, 2)
    zero = np.zeros(len(where), int)
    return pl.DataFrame(
        {
            "window": where[:, 0],
            "link": where[:, 1],
            "packets": counts[:, 0],
            "bytes": counts[:, 0] * PACKET,
            "observed_packets": counts[:, 0],
            "congested_packets": counts[:, 1],
            "observed_congested_packets": counts[:, 1],
            "busy_ps": zero,
            "stall_ps": zero,
        }
    )


def _messages(flows: Sequence[Flow], phases: Phases, ranks_per_node: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "message": list(range(len(flows))),
            "src_rank": [f.src * ranks_per_node + i % ranks_per_node for i, f in enumerate(flows)],
            "dst_rank": [f.dst * ranks_per_node + i % ranks_per_node for i, f in enumerate(flows)],
            "size_bytes": [f.packets * PACKET for f in flows],
            "label": [phases.index((f.phase, f.call)) for f in flows],
            "post_ps": [f.first * WINDOW_PS for f in flows],
            "start_ps": [f.first * WINDOW_PS for f in flows],
            "arrival_ps": [(f.last + 1) * WINDOW_PS for f in flows],
            "packets": [f.packets for f in flows],
            "switch_hops": [3 * f.packets for f in flows],
        }
    )


def make_run(
    flows: Sequence[Flow],
    hot: Hot,
    *,
    windows: int = 20,
    seed: int = 1,
    wait: float = 0.9,
    log: bool = True,
    background: bool = False,
    ranks_per_node: int = 1,
    routing: str = "adaptive",
) -> Run:
    """Send ``flows`` over random spines; a packet meets congestion on link e with chance hot[e].

    ``hot`` may also be keyed by (phase, link).
    """
    phases = list(dict.fromkeys((f.phase, f.call) for f in flows)) or [("exchange", "MPI_Isend")]
    rows, truth = _sent(flows, hot, phases, seed)
    end = windows * WINDOW_PS
    starts = np.arange(windows) * WINDOW_PS
    tables = _fabric_tables()
    tables["samples"] = _samples(rows)
    tables["truth"] = _truth(truth)
    tables["windows"] = pl.DataFrame(
        {"window": np.arange(windows), "start_ps": starts, "end_ps": starts + WINDOW_PS}
    )
    tables["labels"] = pl.DataFrame(
        {
            "label": np.arange(len(phases)),
            "job": [0] * len(phases),
            "phase": [p for p, _ in phases],
            "call": [c for _, c in phases],
            "tag": [-1] * len(phases),
            "communicator": ["MPI_COMM_WORLD"] * len(phases),
        }
    )
    ranks = np.arange(NODES * ranks_per_node)
    tables["ranks"] = pl.DataFrame(
        {
            "rank": ranks,
            "job": ranks * 0,
            "job_rank": ranks,
            "node": ranks // ranks_per_node,
            "finish_ps": ranks * 0 + end,
            "compute_ps": ranks * 0,
            "wait_ps": ranks * 0 + round(end * wait),
        }
    )
    jobs = [("app", True, "block")] + ([("noise", False, "block")] if background else [])
    tables["jobs"] = pl.DataFrame(
        {
            "job": list(range(len(jobs))),
            "name": [j[0] for j in jobs],
            "observed": [j[1] for j in jobs],
            "ranks": [len(ranks)] * len(jobs),
            "placement": [j[2] for j in jobs],
            "grid": [""] * len(jobs),
        }
    )
    tables["messages"] = _messages(flows if log else [], phases, ranks_per_node)
    job: list[dict[str, object]] = [{"pattern": {"kind": "made"}}]
    if background:
        job.append({"pattern": {"kind": "made"}, "observed": False})
    scenario = parse({"fabric": {"preset": "made"}, "job": job, "engine": {"routing": routing}})
    return Run(
        scenario,
        {
            name: conform(name, tables.get(name, pl.DataFrame(schema=table.polars_schema)))
            for name, table in TABLES.items()
        },
        {"elapsed_ps": end, "complete": True, "average_path_length": 3.0},
    )


def endpoint_run(**options: object) -> Run:
    """24 nodes of other leaves send to node 0 at its line rate; the tree reaches up-links."""
    share = round(20 * LINE_PACKETS / 24)
    flows = [Flow(n, 0, share, "reduce", "MPI_Send") for n in range(HOSTS, NODES)]
    hot = {eject(0): 0.95, **dict.fromkeys(downs(0), 0.7)}
    hot |= {e: 0.3 for i in range(1, LEAVES) for e in ups(i)}
    return make_run(flows, hot, **options)  # type: ignore[arg-type]


def placement_run(**options: object) -> Run:
    """The eight nodes of leaf 0 send to leaf 1 through four full up-links."""
    share = round(20 * LINE_PACKETS * SPINES / HOSTS)
    flows = [Flow(n, HOSTS + n, share, "+y") for n in range(HOSTS)]
    return make_run(flows, dict.fromkeys(ups(0), 0.85), **options)  # type: ignore[arg-type]


def other_run(**options: object) -> Run:
    """One thin flow into leaf 1 finds its down-links dark."""
    flows = [Flow(0, HOSTS, 240), Flow(1, 2, 240), Flow(3, 4, 240)]
    return make_run(flows, dict.fromkeys(downs(1), 0.8), **options)  # type: ignore[arg-type]


def routing_run(**options: object) -> Run:
    """Two flows of leaf 0 share one full up-link, next to three that are idle."""
    share = round(20 * LINE_PACKETS / 2)
    flows = [Flow(n, HOSTS + n, share, spine=0) for n in range(2)]
    static: dict[str, object] = {"routing": "deterministic", **options}
    return make_run(flows, {ups(0)[0]: 0.85}, **static)  # type: ignore[arg-type]


def slow_run(**options: object) -> Run:
    """Four up-links of leaf 0 carry a quarter of the line rate each; one of them is dark.

    Messages that leave leaf 0 take twice as long as those that leave leaf 2.
    """
    share = round(20 * LINE_PACKETS * SPINES / 4 / HOSTS)
    flows = [Flow(n, HOSTS + n, share) for n in range(HOSTS)]
    flows += [Flow(2 * HOSTS + n, 3 * HOSTS + n, share, last=9) for n in range(HOSTS)]
    return make_run(flows, {ups(0)[1]: 0.8}, **options)  # type: ignore[arg-type]


def adapter_run(**options: object) -> Run:
    """Messages to and from node 3 take four times as long as all others; nothing is congested."""
    flows = [
        Flow(
            n,
            (n + HOSTS * k) % NODES,
            30,
            first=4 * k,
            last=4 * k + (3 if 3 in (n, (n + HOSTS * k) % NODES) else 0),
        )
        for n in range(NODES)
        for k in (1, 2, 3)
    ]
    return make_run(flows, {}, **options)  # type: ignore[arg-type]


def line_run(**options: object) -> Run:
    """Every node sends at line rate to a partner of its own, and nothing is congested."""
    share = round(19 * LINE_PACKETS)
    flows = [Flow(n, (n + HOSTS) % NODES, share) for n in range(NODES)]
    return make_run(flows, {}, **options)  # type: ignore[arg-type]


def quiet_run(**options: object) -> Run:
    """Neighbours exchange without any congestion.

    Without a message log, which would show messages in flight all the time, longer than they need.
    """
    flows = [Flow(n, n ^ 1, 100) for n in range(NODES)]
    flows += [Flow(n, (n + HOSTS) % NODES, 40) for n in range(NODES)]
    return make_run(flows, {}, **{"log": False, **options})  # type: ignore[arg-type]


def sparse_run(**options: object) -> Run:
    """A dozen packets, some of them congested, without a message log."""
    flows = [Flow(n, HOSTS + n, 2) for n in range(6)]
    return make_run(flows, dict.fromkeys(ups(0), 0.5), **{"log": False, **options})  # type: ignore[arg-type]
