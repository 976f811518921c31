"""The InfiniBand study on a simulated Yellowstone: which ports stall, how often, how long."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from studies.production_networks import counter_figures as figures
from studies.production_networks import counter_tables as tables
from studies.production_networks.simulated import (
    EXAMPLES,
    Found,
    Row,
    counters_of,
    first_end_ps,
    interval_of,
    percent,
    run_of,
    with_adapters,
)
from tailback import Run, load_scenario
from tailback.fabric import Fabric
from tailback.port_counters.analysis import classes
from tailback.report import FAINT, INK, MUTED, canvas
from tailback.simulation import load_fabric

ROUNDS: Final = {
    ("Spine", "down"): (63129, 2765),
    ("Leaf", "down"): (63527, 40258),
    ("ToR", "down"): (60217, 51814),
    ("GladeSpine", "down"): (1455, 806),
    ("GladeLeaf", "down"): (1165, 627),
    ("Leaf", "up"): (63679, 47167),
    ("ToR", "up"): (60131, 44807),
    ("GladeLeaf", "up"): (1172, 1132),
}
"""Rounds of each class (the study's Table I) and rounds with a stall (its Table II)."""

LARGEST: Final = {
    ("Spine", "down"): 0.865,
    ("Leaf", "down"): 1.179,
    ("ToR", "down"): 0.879,
    ("GladeSpine", "down"): 0.807,
    ("GladeLeaf", "down"): 0.852,
    ("Leaf", "up"): 1.163,
    ("ToR", "up"): 1.158,
    ("GladeLeaf", "up"): 0.959,
}
"""Largest fraction of each class (the study's Table II)."""

HOST_GBPS: Final = 50.0
SERVER_GBPS: Final = 36.0
"""Rates of adapters in the second run; assumptions, see README.md."""


def adapters(fabric: Fabric) -> Fabric:
    """Yellowstone with hosts and servers that accept less than 54 Gb/s."""
    server = np.array([name.startswith("nsd") for name in fabric.node_name])
    return with_adapters(fabric, np.where(server, SERVER_GBPS, HOST_GBPS))


def looked_at(run: Run, base: Fabric) -> pl.DataFrame:
    """One row a port of a run, while all jobs ran."""
    kinds = classes.classify(base, {"Glade": "^storage"})
    # Ports keep their names and numbers when adapters are inserted; links do not.
    rows = counters_of(run, first_end_ps(run)).filter(
        ~pl.col("node_name").str.ends_with(" adapter")
    )
    rows = rows.with_columns(link=pl.lit(None, pl.UInt32))
    rows, _ = classes.attach(rows, kinds)
    rows = rows.filter(pl.col("category") != "Host")
    fraction = pl.col("stall_fraction")
    return rows.group_by("category", "port_type", "node_name", "port").agg(
        mean=pl.col("stall_ns").sum() / pl.col("interval_ns").sum(),
        maximum=fraction.max(),
        average=fraction.filter(fraction > 0).mean(),
        intervals=fraction.count(),
        nonzero=(fraction > 0).sum(),
    )


def stalled_ports(ports: pl.DataFrame) -> dict[tuple[str, str], float]:
    """Percentage of the ports of each class that stalled at some time."""
    table = ports.group_by("category", "port_type").agg(
        percent=100.0 * (pl.col("maximum") > 0).mean()
    )
    return {(a, b): float(p) for a, b, p in table.iter_rows()}


def theirs_and_ours(plain: pl.DataFrame, slower: pl.DataFrame) -> Figure:
    """Share of rounds, and of simulated ports, with a stall."""
    drawn = canvas(8.0, 3.2)
    axes = drawn.add_subplot()
    order = list(ROUNDS)
    at = np.arange(len(order))
    series = (
        ("measured: rounds of 10 s", [100 * b / a for a, b in ROUNDS.values()], INK),
        (
            "simulated: ports in 1.5 ms",
            [stalled_ports(plain).get(c, 0.0) for c in order],
            "#b96cc4",
        ),
        (
            "… with adapters slower than cables",
            [stalled_ports(slower).get(c, 0.0) for c in order],
            FAINT,
        ),
    )
    for number, (label, values, colour) in enumerate(series):
        axes.bar(
            at + 0.27 * (number - 1),
            values,
            0.25,
            label=label,
            color=colour,
            edgecolor=INK,
            linewidth=0.5,
        )
    axes.set_xticks(at, [f"{c}\n{t}" for c, t in order], fontsize=8)
    axes.set_ylabel("with a stall (%)")
    axes.set_ylim(0, 100)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8)
    axes.grid(axis="y")
    return drawn


Lengths = dict[tuple[str, str], list[tuple[float, float]]]
"""Length of an interval, µs, and percentage of intervals with a stall, by class of ports."""


def shares_by_length(run: Run, base: Fabric) -> Lengths:
    """Percentage of the intervals of each class with a stall, by how long an interval is."""
    kinds = classes.classify(base, {"Glade": "^storage"})
    rows, _ = classes.attach(counters_of(run, first_end_ps(run)), kinds)
    window = int(run.summary["window_ps"]) // 1000
    out: Lengths = {}
    for category, way in ROUNDS:
        mine = rows.filter((pl.col("category") == category) & (pl.col("port_type") == way))
        most = mine["time_ns"].n_unique()
        for several in (1, 2, 4, 8, 16, 32):
            if several <= most:
                merged = (
                    mine.filter((pl.col("time_ns") - 1) // window < most // several * several)
                    .group_by("link", (pl.col("time_ns") - 1) // window // several)
                    .agg(pl.col("stall_ns").sum())
                )
                share = 100 * float((merged["stall_ns"] > 0).mean() or 0.0)
                out.setdefault((category, way), []).append((several * window / 1000, share))
    return out


def by_length(lengths: Lengths) -> Figure:
    """Share of ToR and leaf intervals with a stall, by how long an interval is."""
    drawn = canvas(5.2, 3.0)
    axes = drawn.add_subplot()
    styles = (
        ("ToR", "up", INK, "-"),
        ("Leaf", "up", "#b96cc4", "--"),
        ("Leaf", "down", MUTED, ":"),
    )
    for category, way, colour, dash in styles:
        micros, shares = zip(*lengths[category, way], strict=True)
        axes.plot(micros, shares, dash, color=colour, marker="o", label=f"{category} {way}")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("length of an interval (µs)")
    axes.set_ylabel("intervals with a stall (%)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.legend()
    axes.grid()
    return drawn


def yellowstone() -> Found:
    """Compute ports stall: how often and how long, with and without slow adapters.

    Alali et al. (2017).
    """
    scenario = load_scenario(EXAMPLES / "yellowstone/yellowstone.toml")
    base = load_fabric(scenario.fabric)
    run, slow = run_of(scenario), run_of(scenario, adapters)
    ports, slow_ports = looked_at(run, base), looked_at(slow, base)
    names = {-1: "host", 0: "ToR or storage leaf", 1: "leaf or storage spine", 2: "spine"}
    every = counters_of(run, first_end_ps(run))
    lengths = shares_by_length(run, base)
    study = Found("yellowstone", rows=_rows(ports, slow_ports, every, lengths))
    free = scenario.model_copy(deep=True)
    free.engine.routing = "adaptive"
    after = stalled_ports(looked_at(run_of(free), base))
    study.rows.append(
        Row(
            "ports with a stall under adaptive routing",
            "– (cannot be measured)",
            ", ".join(
                f"{c} {t} {percent(after.get((c, t), 0.0))}"
                for c, t in (("ToR", "up"), ("Leaf", "up"), ("Leaf", "down"), ("Spine", "down"))
            ),
            change_of_routes(stalled_ports(ports), after),
        )
    )
    study.figures = {
        "yellowstone-ports": partial(theirs_and_ours, ports, slow_ports),
        "yellowstone-zero": partial(figures.zero_shares, tables.zero_shares(slow_ports)),
        "yellowstone-average": partial(
            figures.class_boxes,
            tables.boxes(slow_ports, "average"),
            "mean stall fraction of stalled intervals (%)",
        ),
        "yellowstone-maximum": partial(
            figures.class_boxes,
            tables.boxes(slow_ports, "maximum"),
            "largest stall fraction of a port (%)",
        ),
        "yellowstone-length": partial(by_length, lengths),
        "yellowstone-tiers": partial(figures.tier_stalls, tables.tier_stalls(every, base, names)),
    }
    return study


def _rows(
    ports: pl.DataFrame,
    slow_ports: pl.DataFrame,
    every: pl.DataFrame,
    lengths: Lengths,
) -> list[Row]:
    ours, slower = stalled_ports(ports), stalled_ports(slow_ports)
    length = interval_of(every)
    rows = []
    for kind, (all_rounds, stalled) in ROUNDS.items():
        rows.append(
            Row(
                f"{kind[0]} {kind[1]}: rounds (ours: ports) with a stall",
                percent(100 * stalled / all_rounds),
                f"{percent(ours.get(kind, 0.0))}; {percent(slower.get(kind, 0.0))} with adapters",
                why(kind, ours.get(kind, 0.0), slower.get(kind, 0.0), lengths.get(kind, [])),
            )
        )
    shares = {
        (row["category"], row["port_type"]): row["nonzero_percent"]
        for row in tables.zero_shares(ports).iter_rows(named=True)
    }
    rows.append(
        Row(
            "intervals of ToR ports with a stall",
            "about 60 % (100 ms)",
            f"{percent(shares['ToR', 'up'])} of up ports ({length})",
            by_length_of(lengths["ToR", "up"]),
        )
    )
    box = {
        (row["category"], row["port_type"]): row["q3"] - row["q1"]
        for row in tables.boxes(ports, "average").iter_rows(named=True)
    }
    rows.append(
        Row(
            "variability of the average: ToR, leaf, spine (interquartile range)",
            "ToR larger than leaf and spine",
            ", ".join(
                f"{c} {t} {box[c, t]:.2f}"
                for c, t in (("ToR", "up"), ("Leaf", "up"), ("Leaf", "down"), ("Spine", "down"))
                if (c, t) in box
            ),
            order_of(box),
        )
    )
    filled = ports.filter(pl.col("maximum") > 0.999).group_by("category", "port_type").len()
    rows.append(
        Row(
            "ports stalled for a whole interval",
            "leaf down 37, leaf up 23, ToR up 6 rounds",
            ", ".join(f"{c} {t} {n}" for c, t, n in filled.sort("len", descending=True).iter_rows())
            or "none",
            f"ours are {length} long, theirs 100 ms",
        )
    )
    return rows


def by_length_of(lengths: list[tuple[float, float]]) -> str:
    """What the length of an interval does, in words that follow from the shares."""
    if not lengths:
        return "not observed"
    (short, few), (long, many) = lengths[0], lengths[-1]
    said = f"{percent(few)} of intervals of {short:.0f} µs, {percent(many)} of {long:.0f} µs"
    more = "the longer an interval, the more have a stall"
    return f"{more}: {said}" if many > few else f"not the length of an interval: {said}"


def why(kind: tuple[str, str], line: float, slow: float, lengths: list[tuple[float, float]]) -> str:
    """Why a class differs, in words that follow from the results.

    Args:
        kind: The class.
        line: Percentage of its ports with a stall if hosts take data at line rate.
        slow: The same with slower adapters.
        lengths: Its part of :func:`shares_by_length`.
    """
    if line == 0 and slow > 0:
        return "no stall while receivers take data at line rate, some with slower adapters"
    if kind[0].startswith("Glade"):
        return "slow servers, copies: [tested](#storage-and-analysis-systems) with the whole system"
    return f"theirs look 10 s long; {by_length_of(lengths)}"


def order_of(spread: dict[tuple[str, str], float]) -> str:
    """Whether ToR ports vary most, as theirs do."""
    least = min(value for (category, _), value in spread.items() if category == "ToR")
    others = [
        f"{category} {way}"
        for (category, way), value in spread.items()
        if category in ("Leaf", "Spine") and value >= least
    ]
    return f"not above {', '.join(others)}" if others else "the same order"


def change_of_routes(
    fixed: dict[tuple[str, str], float], free: dict[tuple[str, str], float]
) -> str:
    """Which classes stall less and which more without fixed routes."""
    moved: dict[str, list[str]] = {"less": [], "more": []}
    for kind in (("ToR", "up"), ("Leaf", "up"), ("Leaf", "down"), ("Spine", "down")):
        before, after = fixed.get(kind, 0.0), free.get(kind, 0.0)
        moved["less" if after < before else "more"].append(f"{' '.join(kind)} ({percent(before)})")
    return "; ".join(
        f"{word} than with fixed routes: {', '.join(names)}"
        for word, names in moved.items()
        if names
    )


__all__ = ["yellowstone"]
