"""Computed rates in small buffers, and VC routing by entries: packets for Birk and Zdornov (2009).

    python -m studies.birk_zdornov2009.packet_rates --json     the numbers
    python -m studies.birk_zdornov2009.packet_rates --write    tables and picture

Flows of one size on a 4-ary 3-tree (64 nodes), all posted at once, paths by D-mod-k tables. Their
single application assignment is computed from those very paths; then the packet engine sends them,
each at its rate by one way of pacing, through buffers of 1 to 64 packets.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from measuring import put
from tailback import Run, TailbackError, load_scenario
from tailback.fluid import FlowPaths, RateAssignment, assignment, paths_between
from tailback.simulation import (
    PacingSettings,
    PreparedScenario,
    ProbeSettings,
    Routes,
    execute,
    prepare,
    routes_for,
)
from tailback.traffic import Label, Op, ProgramBuilder, side_by_side

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).resolve().with_name("README.md")
IMAGE = PAGE.with_name("figures") / "packet-rates.png"
PACKET = 4096
ARITY, LEVELS = 4, 3
BUFFERS = (1, 2, 4, 8, 16, 32, 64)
ENTRIES = (0, 1, 2, 4, 8, 16, 32, 64)


def elastic(percent: int, offset: str = "none") -> dict[str, Any]:
    """Engine settings of elastic pacing."""
    return {"pacing": PacingSettings("elastic", percent=percent), "pacing_offset": offset}


PACING: dict[str, dict[str, Any]] = {
    "none": {"pacing": PacingSettings()},
    "leaky bucket, 16 packets": {"pacing": PacingSettings("leaky-bucket", 16 * PACKET)},
    "leaky bucket, 1 packet": {"pacing": PacingSettings("leaky-bucket", PACKET)},
    "spaced": {"pacing": PacingSettings("spaced")},
    "elastic, 80 %": elastic(80),
    "elastic, 25 %": elastic(25),
    "elastic, 25 %, offset random": elastic(25, "random"),
    "elastic, 25 %, offset shift": elastic(25, "shift"),
}
"""Engine settings of each way of pacing."""
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Fractions of the assignment, for buffers of one or two packets."""
COPIES = (1, 4, 8)
FLOW_BYTES = 128 * PACKET
PERCENT = (5, 10, 25, 35, 50, 65, 80, 100)
SAMPLE_PS = 1_000_000
BIG = 8
"""Arity of the tree of the VC sweep: 512 nodes."""
LINE_STYLES: dict[str, dict[str, Any]] = {
    "none": {"color": "#7f8893", "marker": "s", "linestyle": "-"},
    "leaky bucket, 16 packets": {"color": "#7f8893", "marker": "x", "linestyle": ":"},
    "leaky bucket, 1 packet": {"color": "#c4862a", "marker": "v", "linestyle": (0, (5, 2))},
    "spaced": {"color": "#1b2430", "marker": "+", "linestyle": (0, (1.2, 1.6))},
    "elastic, 80 %": {"color": "#b96cc4", "marker": "o", "linestyle": (0, (5, 2))},
    "elastic, 25 %": {"color": "#3d1a5b", "marker": "^", "linestyle": "-"},
    "elastic, 25 %, offset random": {"color": "#3d1a5b", "marker": "d", "linestyle": ":"},
    "elastic, 25 %, offset shift": {"color": "#1b2430", "marker": "*", "linestyle": "--"},
}

Flow = tuple[int, int, int]
"""Source node, destination node, bytes."""


@dataclass(frozen=True)
class Network:
    """Flows on a tree, ready to run.

    Attributes:
        prepared: The scenario with the flows as its program.
        routes: Its routes.
        flows: The flows, in order of (source, order given): that of table ``messages``.
        paths: Links of each by D-mod-k.
    """

    prepared: PreparedScenario
    routes: Routes
    flows: tuple[Flow, ...]
    paths: FlowPaths

    @property
    def size(self) -> NDArray[np.int64]:
        """Bytes of each flow, shape (F,)."""
        return np.array([size for _, _, size in self.flows], np.int64)

    def assigned(self) -> RateAssignment:
        """Single application assignment on these paths."""
        return assignment(self.prepared.fabric.link_gbps, self.paths, self.size)

    def run(self, rate_gbps: NDArray[np.float64] | None = None, **settings: Any) -> Run:
        """Send the flows, each at its rate where rates are given."""
        pace = None
        if rate_gbps is not None:
            program = self.prepared.program
            pace = np.zeros(len(program.kind), np.uint32)
            pace[program.kind == Op.ISEND] = np.maximum(1, np.floor(rate_gbps * 1000))
        return execute(self.prepared, routes=self.routes, pace_mbps=pace, threads=1, **settings)


def network(flows: list[Flow], arity: int = ARITY, levels: int = LEVELS) -> Network:
    """A k-ary n-tree whose nodes post all their flows at time 0."""
    nodes = arity**levels
    flows = sorted(flows, key=lambda flow: flow[0])
    data = {
        "fabric": {
            "topology": {"kind": "k-ary-n-tree", "k": arity, "n": levels},
            "routes": "up-down",
        },
        "job": [{"pattern": {"kind": "permutation", "ranks": nodes, "size": "1 KiB"}}],
        "engine": {
            "packet": f"{PACKET} B",
            "routing": "deterministic",
            "injection": "per-destination",
            "send_delay": "0 ns",
            "eager": "1 GiB",
            "pacing": {"offset": "none"},
        },
        "telemetry": {"scheme": "off"},
    }
    prepared = prepare(load_scenario(data))
    builder = ProgramBuilder("flows", nodes)
    label = builder.label(Label("flows", "MPI_Isend"))
    for tag, (src, dst, size) in enumerate(flows):
        builder.irecv(dst, src, size, tag, label)
    for tag, (src, dst, size) in enumerate(flows):
        builder.isend(src, dst, size, tag, label)
    for rank in range(nodes):
        builder.waitall(rank)
    job = prepared.jobs[0]
    job.program = builder.build()
    prepared.program, prepared.job_of_label = side_by_side([job.program])
    routes = routes_for(prepared.scenario, prepared.fabric, prepared.slots().tolist())
    senders, receivers = (job.node[[flow[end] for flow in flows]] for end in (0, 1))
    paths = paths_between(routes.network, senders, receivers, "deterministic")
    return Network(prepared, routes, tuple(flows), paths)


def permutations(copies: int, seed: int, size: int, nodes: int = ARITY**LEVELS) -> list[Flow]:
    """Superposed random permutations, without repeated pairs and flows from a node to itself."""
    rng = np.random.default_rng(seed)
    taken = {(node, node) for node in range(nodes)}
    flows: list[Flow] = []
    for _ in range(copies):
        drawn = enumerate(rng.permutation(nodes).tolist())
        pairs = [(src, int(dst)) for src, dst in drawn if (src, dst) not in taken]
        taken.update(pairs)
        flows += [(*pair, size) for pair in pairs]
    return flows


def realised(run: Run, rate_gbps: NDArray[np.float64]) -> NDArray[np.float64]:
    """Realised over computed rate of each flow, shape (F,): size over the time until its last byte.

    All flows are posted at time 0.
    """
    table = run.tables["messages"]
    size, arrival = (table[name].to_numpy() for name in ("size_bytes", "arrival_ps"))
    return np.asarray(size * 8000 / arrival / rate_gbps)


def mean_queue(run: Run) -> tuple[float, int]:
    """Mean over time of the bytes that wait or are booked in all queues, and the longest queue.

    Needs probe ``queues_ps``; in packets.
    """
    end = run.elapsed_ps
    table = run.tables["queues"].sort("link", "time_ps")
    until = pl.col("time_ps").shift(-1).over("link").fill_null(end)
    held = table.select(
        area=(
            (pl.col("waiting_bytes") + pl.col("booked_bytes"))
            * (until.cast(pl.Float64) - pl.col("time_ps"))
        ).sum(),
        most=(pl.col("waiting_bytes") + pl.col("booked_bytes")).max(),
    ).row(0)
    return float(held[0] or 0) / end / PACKET, round((held[1] or 0) / PACKET)


def rates(
    seeds: int,
    buffers: tuple[int, ...] = BUFFERS,
    copies: tuple[int, ...] = COPIES,
    size: int = FLOW_BYTES,
    schemes: dict[str, dict[str, Any]] = PACING,
) -> list[dict[str, Any]]:
    """Realised against computed rates: means over seeds, the worst flow of each run."""
    rows = []
    for n in copies:
        nets = [network(permutations(n, seed, size)) for seed in range(1, seeds + 1)]
        for buffer, (name, pacing) in product(buffers, schemes.items()):
            runs = [_one(each, pacing, buffer) for each in nets]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            rows.append({"copies": n, "buffer": buffer, "pacing": name, **mean})
    return rows


def percents(seeds: int) -> list[dict[str, Any]]:
    """Eight permutations in small buffers, by how far elastic pacing may catch up."""
    schemes = {f"{percent}": elastic(percent) for percent in PERCENT}
    return rates(seeds, (4, 8), (8,), FLOW_BYTES, schemes)


def shares(seeds: int) -> list[dict[str, Any]]:
    """Parts of the assignment in buffers of one and two packets, offsets at random."""
    rows = []
    for n, share in product(COPIES, SHARES):
        nets = [network(permutations(n, seed, FLOW_BYTES)) for seed in range(1, seeds + 1)]
        for buffer in (1, 2):
            runs = [_one(net, elastic(25, "random"), buffer, share) for net in nets]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            rows.append({"copies": n, "buffer": buffer, "share": share, **mean})
    return rows


def _one(net: Network, pacing: dict[str, Any], buffer: int, share: float = 1) -> dict[str, float]:
    plan = net.assigned()
    run = net.run(
        plan.rate_gbps * share,
        buffer_bytes=buffer * PACKET,
        probes=ProbeSettings(queues_ps=SAMPLE_PS),
        **pacing,
    )
    ratio = realised(run, plan.rate_gbps)
    mean, most = mean_queue(run)
    return {
        "time": run.elapsed_ps / 1000 / plan.completion_ns,
        "mean": float(ratio.mean()),
        "worst": float(ratio.min()),
        "queue": mean / len(net.flows),
        "longest": most,
    }


def circuits(
    seeds: int,
    entries: tuple[int, ...] = ENTRIES,
    copies: tuple[int, ...] = COPIES,
    arity: int = BIG,
    size: int = FLOW_BYTES // 2,
) -> list[dict[str, Any]]:
    """Completion time in flows at line rate: D-mod-k, VC routing by entries, packet by packet.

    For VC routing also how many (flow, switch) pairs found no free entry.
    """
    schemes: dict[str, dict[str, Any]] = {
        "deterministic": {"routing": "deterministic"},
        **{f"vc, {n}": {"routing": "vc", "vc_entries": n} for n in entries},
        "adaptive": {"routing": "adaptive"},
    }
    line_ps = size * 8000 / 100
    rows = []
    for n in copies:
        nodes = arity**LEVELS
        nets = [network(permutations(n, s, size, nodes), arity) for s in range(1, seeds + 1)]
        for scheme, settings in schemes.items():
            runs = [net.run(**settings) for net in nets]
            rows.append(
                {
                    "copies": n,
                    "routing": scheme,
                    "time": float(np.mean([run.elapsed_ps for run in runs])) / line_ps,
                    "refused": float(np.mean([run.summary["vc_refused"] for run in runs])),
                }
            )
    return rows


def draw(rows: list[dict[str, Any]], path: Path, copies: int) -> None:
    """Worst flow, mean rate and completion time by buffer."""
    figure = Figure(figsize=(10.5, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [
        ("worst", "worst flow", "realised over computed rate"),
        ("mean", "mean of the flows", "realised over computed rate"),
        ("queue", "packets in queues", "packets for each flow, mean over time"),
    ]
    axes = figure.subplots(1, len(panels))
    for ax, (key, title, label) in zip(axes, panels, strict=True):
        for name in PACING:
            mine = [r for r in rows if r["pacing"] == name and r["copies"] == copies]
            ax.plot(
                [r["buffer"] for r in mine], [r[key] for r in mine], label=name, **LINE_STYLES[name]
            )
        ax.set_xscale("log", base=2)
        ax.set_xticks(BUFFERS, [str(b) for b in BUFFERS])
        ax.set(title=title, xlabel="buffer (packets)", ylabel=label, ylim=(0, None))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#d9dee4", linewidth=0.6)
        ax.set_axisbelow(True)
    axes[2].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def rate_table(rows: list[dict[str, Any]], copies: int) -> str:
    """Markdown: a line for each way of pacing, a column for each buffer."""
    mine = [row for row in rows if row["copies"] == copies]
    buffers = sorted({row["buffer"] for row in mine})
    lines = [
        "| pacing | " + " | ".join(str(b) for b in buffers) + " | packets queued a flow, longest |",
        "|---" * (len(buffers) + 2) + "|",
    ]
    for name in PACING:
        line = [row for row in mine if row["pacing"] == name]
        cells = [f"{r['time']:.2f}; {r['mean']:.2f}, {r['worst']:.2f}" for r in line]
        large = line[-1]
        cells.append(f"{large['queue']:.1f}, {large['longest']:.0f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def percent_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each percentage."""
    lines = ["| percent | buffer 4: time over W; mean, worst | buffer 8 | packets queued a flow |"]
    lines.append("|---|---|---|---|")
    for name in dict.fromkeys(row["pacing"] for row in rows):
        mine = [row for row in rows if row["pacing"] == name]
        cells = [f"{row['time']:.2f}; {row['mean']:.2f}, {row['worst']:.2f}" for row in mine]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {mine[-1]['queue']:.2f} |")
    return "\n".join(lines)


def share_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each part of the assignment, columns by permutations and buffer."""
    cases = list(dict.fromkeys((row["copies"], row["buffer"]) for row in rows))
    names = [f"{n} permutation{'s' * (n > 1)}, {buffer}" for n, buffer in cases]
    lines = ["| part of the rates | " + " | ".join(names) + " |", "|---" * (len(cases) + 1) + "|"]
    for share in SHARES:
        line = {(r["copies"], r["buffer"]): r for r in rows if r["share"] == share}
        cells = [f"{line[case]['time']:.2f}; {line[case]['worst']:.2f}" for case in cases]
        lines.append(f"| {share:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def circuit_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line for each number of permutations, a column for each routing.

    In brackets: flows that found no free entry.
    """
    names = list(dict.fromkeys(row["routing"] for row in rows))
    lines = ["| permutations | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for n in sorted({row["copies"] for row in rows}):
        mine = [row for row in rows if row["copies"] == n]
        refused = [f" ({row['refused']:.0f})" * (row["routing"][:2] == "vc") for row in mine]
        cells = [f"{row['time']:.2f}{r}" for row, r in zip(mine, refused, strict=True)]
        lines.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Computed rates in small buffers; VC routing.")
    parser.add_argument("--seeds", type=int, default=4, help="runs of each case")
    parser.add_argument("--vc-seeds", type=int, default=10, help="runs of each case of VC routing")
    parser.add_argument("--json", action="store_true", help="print the numbers")
    parser.add_argument("--write", action="store_true", help="write tables and picture")
    args = parser.parse_args()
    began = time.process_time()
    try:
        paced, routed = rates(args.seeds), circuits(args.vc_seeds)
        late, partial = percents(args.seeds), shares(args.seeds)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    tables = {f"rates {n}": rate_table(paced, n) for n in COPIES}
    tables["percent"] = percent_table(late)
    tables["shares"] = share_table(partial)
    tables["circuits"] = circuit_table(routed)
    if args.write:
        put(PAGE, tables)
        draw(paced, IMAGE, COPIES[-1])
    seconds = round(time.process_time() - began, 1)
    if args.json:
        print(
            json.dumps(
                {
                    "cpu_seconds": seconds,
                    "rates": paced,
                    "percent": late,
                    "shares": partial,
                    "circuits": routed,
                }
            )
        )
    else:
        print("\n\n".join(tables.values()), f"\n\n{seconds} s of processor time")
    return 0


if __name__ == "__main__":
    sys.exit(main())
