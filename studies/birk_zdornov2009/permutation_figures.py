"""Figures of Birk and Zdornov (2009), in the fluid model and with packets.

    python -m studies.birk_zdornov2009.permutation_figures            in five minutes
    python -m studies.birk_zdornov2009.permutation_figures --json     the numbers as well

It draws figures/permutation-*.png.

Figure 1: congestion that the flows of one random permutation encounter on the 16-ary 3-tree, by
width of the horizontal links, and the time the same permutation takes. Figure 2: the time that 1
to 8 superposed permutations take. *Fluid*: the assignment's W, and max-min rates. *Packets*: cells
with buffers of 8, served in turn (``rounds_to_completion``), and the packet engine: where it routes
as the flows do, by D-mod-k tables, at assigned rates and without control; by VC routing at width 2,
where a flow chooses as its first packet passes; and packet by packet.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from studies.birk_zdornov2009.permuted_flows import (
    KaryTree,
    SuperposedFlows,
    TreeRouting,
    permutation_congestion,
    rounds_to_completion,
    superpose_permutations,
)
from tailback import TailbackError, load_scenario
from tailback.evaluate import Change
from tailback.fluid import simulate_flows
from tailback.simulation import make_evaluate, prepare
from tailback.traffic import Label, Program, ProgramBuilder, side_by_side

IMAGES = Path(__file__).resolve().with_name("figures")
CELLS, BUFFER, CELL_BYTES = 32, 8, 4096
WIDTHS = (0, 1, 2, 3, 4, 6, 8)
OBLIVIOUS = TreeRouting(adaptive=False)
ROUTINGS = {
    "oblivious, plain tree": (KaryTree(), OBLIVIOUS),
    "adaptive, width 2": (KaryTree(width=2), TreeRouting()),
    "adaptive, width 2, margin 2": (KaryTree(width=2), TreeRouting(margin=2)),
}
PLAIN = {"kind": "k-ary-n-tree", "k": 16, "n": 3}
WIDE = {"kind": "modified-k-ary-n-tree", "k": 16, "n": 3, "width": 2}
ENGINES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "engine": ("packet engine, D-mod-k", PLAIN, {"routing": "deterministic"}),
    "engine adaptive": ("packet engine, packet by packet", PLAIN, {"routing": "adaptive"}),
    "engine vc": ("packet engine, VC, width 2", WIDE, {"routing": "vc", "vc_entries": 65536}),
    "engine assigned": (
        "packet engine, D-mod-k",
        PLAIN,
        {
            "routing": "deterministic",
            "injection": "per-destination",
            "pacing": {"kind": "elastic", "rates": "assigned"},
        },
    ),
}
"""Runs of the packet engine: what they are called, the tree, the engine's settings."""
INK, MUTED = "#1b2430", "#7f8893"
LINE_STYLES: dict[str, dict[str, Any]] = {
    "oblivious, plain tree": {"color": MUTED, "marker": "s", "linestyle": "-"},
    "adaptive, width 2": {"color": "#b96cc4", "marker": "o", "linestyle": (0, (5, 2))},
    "adaptive, width 2, margin 2": {
        "color": "#3d1a5b",
        "marker": "^",
        "linestyle": (0, (1.2, 1.6)),
    },
    "packet engine, D-mod-k": {"color": INK, "marker": "x", "linestyle": ""},
    "packet engine, packet by packet": {"color": INK, "marker": "+", "linestyle": ""},
    "packet engine, VC, width 2": {"color": "#b96cc4", "marker": "x", "linestyle": ""},
}


def program_of(s: SuperposedFlows, nodes: int) -> Program:
    """The flows as a program: each node posts all its sends at once."""
    builder = ProgramBuilder("superposition", nodes)
    label = builder.label(Label("permutations", "MPI_Isend"))
    ends = s.paths.link[s.paths.start[1:].astype(np.int64) - 1].astype(np.int64) - nodes
    for tag, (src, dst) in enumerate(zip(s.node.tolist(), ends.tolist(), strict=True)):
        builder.irecv(dst, src, CELLS * CELL_BYTES, tag, label)
        builder.isend(src, dst, CELLS * CELL_BYTES, tag, label)
    for rank in range(nodes):
        builder.waitall(rank)
    return builder.build()


def engine(s: SuperposedFlows, topology: dict[str, Any], settings: dict[str, Any]) -> float:
    """Time of the flows in the packet engine, by its own routing, in flows at line rate."""
    tree = KaryTree()
    nodes = tree.arity**tree.levels
    data = {
        "fabric": {"topology": topology},
        "job": [{"pattern": {"kind": "permutation", "ranks": nodes, "size": "1 KiB"}}],
        "engine": {
            "packet": f"{CELL_BYTES} B",
            "buffer": f"{BUFFER * CELL_BYTES} B",
            "injection": "round-robin",
            "switch_delay": "0 ns",
            "send_delay": "0 ns",
            "eager": "1 GiB",
            **settings,
        },
        "telemetry": {"scheme": "off"},
    }
    prepared = prepare(load_scenario(data))
    prepared.jobs[0].program = program_of(s, nodes)
    prepared.program, prepared.job_of_label = side_by_side([prepared.jobs[0].program])
    line_ps = CELLS * CELL_BYTES * 8000 / 100
    return make_evaluate(prepared)(Change()).elapsed_ps / line_ps


def times(s: SuperposedFlows) -> dict[str, float]:
    """Time of routed flows by each model, in units of one flow at line rate."""
    size = np.full(s.paths.n_flows, 1000)  # 1 µs at 8 Gb/s
    fair = simulate_flows(np.full(s.n_links, 8.0), s.paths, size)
    rounds = [
        float(rounds_to_completion(s.n_links, s.paths, CELLS, BUFFER, assigned=assigned).max())
        for assigned in (False, True)
    ]
    return {
        "W": float(s.paths.link_sum(np.ones(s.paths.n_flows), s.n_links).max()),
        "max-min": fair.completion_ps / 1e6,
        "no control": rounds[0] / CELLS,
        "assigned": rounds[1] / CELLS,
    }


def by_width(runs: int, timed: int, seed: int) -> dict[str, Any]:
    """Figure 1: congestion by width, and the time of the same permutations."""
    out: dict[str, Any] = {"runs": runs, "timed_runs": timed, "rows": []}
    for margin in (0, 1, 2):
        for width in WIDTHS if margin else (0,):
            tree = KaryTree(width=width)
            routing = TreeRouting(margin=margin) if margin else OBLIVIOUS
            congestion = permutation_congestion(tree, routing, runs, seed=seed)
            views = [
                times(superpose_permutations(tree, routing, 1, run, seed)) for run in range(timed)
            ]
            out["rows"].append(
                {
                    "margin": margin,
                    "width": width,
                    "extra_ports": tree.extra_ports,
                    "max": float(congestion.max.mean()),
                    "mean": float(congestion.mean.mean()),
                    **{key: float(np.mean([view[key] for view in views])) for key in views[0]},
                }
            )
    return out


def by_copies(runs: int, copies: tuple[int, ...], seed: int) -> dict[str, Any]:
    """Figure 2: time of superposed permutations, by routing, control and view."""
    rows: list[dict[str, Any]] = []
    for n in copies:
        for name, (tree, routing) in ROUTINGS.items():
            views = []
            for run in range(runs):
                s = superpose_permutations(tree, routing, n, run, seed)
                view = times(s)
                if name.startswith("oblivious"):
                    view |= {key: engine(s, *what) for key, (_, *what) in ENGINES.items()}
                views.append(view)
            mean = {key: float(np.mean([v[key] for v in views])) for key in views[0]}
            rows.append({"copies": n, "routing": name, **mean})
    return {"runs": runs, "rows": rows}


def canvas(panels: int) -> tuple[Figure, list[Any]]:
    """A figure of panels side by side, with a plain look."""
    figure = Figure(figsize=(3.5 * panels, 3.3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(np.atleast_1d(figure.subplots(1, panels)))
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#d9dee4", linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def draw_widths(data: dict[str, Any], path: Path) -> None:
    """Figure 1."""
    figure, axes = canvas(3)
    rows = data["rows"]
    base = next(row for row in rows if row["margin"] == 0)
    panels = [
        ("max", "maximum congestion (fluid view)", "flows on the most used link"),
        ("mean", "average congestion (fluid view)", "flows on the most used link"),
        ("no control", "time of the permutation (packets)", "flows at line rate"),
    ]
    for ax, (key, title, label) in zip(axes, panels, strict=True):
        ax.axhline(base[key], label="oblivious, width 0", color=MUTED, linestyle="-")
        for margin, like in ((1, "adaptive, width 2"), (2, "adaptive, width 2, margin 2")):
            mine = [row for row in rows if row["margin"] == margin]
            ax.plot(
                [r["width"] for r in mine],
                [r[key] for r in mine],
                label=f"adaptive, margin {margin}",
                **LINE_STYLES[like],
            )
        ax.set(title=title, xlabel="width of the horizontal links", ylabel=label, ylim=(0, None))
    axes[0].legend(frameon=False, fontsize=8, loc="lower left")
    figure.savefig(path, dpi=110)


def draw_copies(data: dict[str, Any], path: Path) -> None:
    """Figure 2."""
    figure, axes = canvas(3)
    panels = [
        ("W", "fluid: assignment (W)"),
        ("no control", "packets: no control"),
        ("assigned", "packets: assigned rates"),
    ]
    top = max(row[key] for row in data["rows"] for key, _ in panels)
    for ax, (key, title) in zip(axes, panels, strict=True):
        for name in ROUTINGS:
            mine = [row for row in data["rows"] if row["routing"] == name]
            ax.plot(
                [r["copies"] for r in mine], [r[key] for r in mine], label=name, **LINE_STYLES[name]
            )
        mine = [row for row in data["rows"] if "engine" in row]
        for column, (name, *_) in ENGINES.items():
            if key == ("assigned" if column == "engine assigned" else "no control"):
                ax.plot(
                    [r["copies"] for r in mine],
                    [r[column] for r in mine],
                    label=name,
                    **LINE_STYLES[name],
                )
        ax.set(title=title, xlabel="permutations superposed", ylim=(0, 1.05 * top))
    axes[0].set_ylabel("time to the last (flows at line rate)")
    # The curves are in the middle, so the legend fits on the right.
    drawn = axes[1].get_legend_handles_labels()
    axes[2].legend(*drawn, frameon=False, fontsize=8, loc="upper left")
    figure.savefig(path, dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description="The slides' figures, fluid beside packet view.")
    parser.add_argument("--runs", type=int, default=1000, help="permutations of figure 1")
    parser.add_argument("--timed", type=int, default=2, help="of them timed; runs of figure 2")
    parser.add_argument("--copies", type=int, nargs="*", default=[1, 2, 3, 4, 5, 6, 7, 8])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the pictures")
    parser.add_argument("--json", action="store_true", help="print the numbers")
    args = parser.parse_args()
    began = time.perf_counter()
    try:
        widths = by_width(args.runs, args.timed, args.seed)
        copies = by_copies(args.timed, tuple(args.copies), args.seed)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    args.out.mkdir(parents=True, exist_ok=True)
    draw_widths(widths, args.out / "permutation-widths.png")
    draw_copies(copies, args.out / "permutation-superposed.png")
    seconds = round(time.perf_counter() - began, 1)
    if args.json:
        print(json.dumps({"seconds": seconds, "widths": widths, "superposed": copies}))
    else:
        print(f"two pictures in {args.out}, {seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
