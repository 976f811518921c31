"""The figures of the torus study that need traffic of nodes, packets, iterations or throttling.

    python -m studies.production_networks.torus_figures                              all parts
    python -m studies.production_networks.torus_figures --part torus-iterations      one of them
    python -m studies.production_networks.torus_figures --write                      also its page

Jha et al. (2018), Figures 2 to 8 and Table I, on tori with Blue Waters' rates and routing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from numpy.typing import NDArray

from measuring import run_parts
from studies.production_networks.compare import PAGE, draw, section
from studies.production_networks.counter_figures import DASHES, GROUPS
from studies.production_networks.counter_tables import compare_groups
from studies.production_networks.definitions import run_time_correlation
from studies.production_networks.simulated import Found, Row, difference, percent
from studies.production_networks.torus_machine import (
    AXES,
    Machine,
    averaged,
    correlations,
    intervals,
    io_nodes,
    listed,
    run_of,
    scenario,
)
from tailback import Run, load_scenario, simulate
from tailback.port_counters.analysis import from_torus, torus_coordinates, torus_rows
from tailback.port_counters.readers import from_run
from tailback.report import INK, MUTED, canvas

THEIRS: Final = {"X": 0.60, "Y": 0.50, "Z": 0.66}
"""Correlation of use with credit stall (their Table I)."""
THEIRS_INQ: Final = {"X": 0.52, "Y": 0.41, "Z": 0.65}
"""Correlation of use with inq stall (the same table)."""
BASE: Final = Machine(load=0.3)
"""The example's mix, communicating a third as often: nearer to the published use."""
FITTED: Final = Machine(buffer="16 KiB", spread=True, host_rate="5 GB/s")
"""The mix of all those tried whose correlations are nearest to the published ones."""
SLOWEST_GBPS: Final = 4.7 * 8
"""Y links: the I/O rate of a node is compared with them, as in section V-A."""


def node_rates(run: Run) -> pl.DataFrame:
    """Bytes a second of all nodes together in each interval: ``time_ns, injected, ingested``."""
    ends = run.tables["links"].filter(pl.col("from_node") | pl.col("to_node"))
    rows = from_run(run).all_intervals().join(ends.select("link", "from_node"), on="link")
    return (
        rows.group_by("time_ns")
        .agg(
            injected=pl.col("data_bytes").filter(pl.col("from_node")).sum()
            / pl.col("interval_ns").first(),
            ingested=pl.col("data_bytes").filter(~pl.col("from_node")).sum()
            / pl.col("interval_ns").first(),
        )
        .sort("time_ns")
    )


def straightness(values: NDArray[np.float64]) -> dict[str, float]:
    """R² of a straight line through the complementary distribution, by the scales of its axes.

    An exponential distribution is straight on a logarithmic scale, a power law on two of them, and
    a uniform distribution on none.
    """
    ordered = np.sort(values[values > 0])
    ccdf = 1 - np.arange(1, len(ordered) + 1) / (len(ordered) + 1)
    scales = {
        "exponential": (ordered, np.log(ccdf)),
        "power law": (np.log(ordered), np.log(ccdf)),
        "uniform": (ordered, ccdf),
    }
    return {name: float(np.corrcoef(*axes)[0, 1] ** 2) for name, axes in scales.items()}


def above(rows: pl.DataFrame, column: str, value: float) -> dict[str, float]:
    """Share of link-intervals of each axis above a value."""
    table = rows.group_by(axis=pl.col("direction").str.head(1)).agg(
        share=(pl.col(column) > value).mean()
    )
    return {axis: float(share) for axis, share in table.iter_rows()}


def three(shares: dict[str, float]) -> str:
    """Percentages of the three axes."""
    return ", ".join(f"{axis} {percent(100 * shares.get(axis, 0.0))}" for axis in AXES)


def distributions() -> Found:
    """Figures 3 to 8: injection, packets, use, both stalls, I/O, I/O routers against others."""
    loads = (0.1, 0.3, 1.0, 2.0)
    runs = {load: run_of(replace(BASE, load=load)) for load in loads}
    rows = {load: intervals(run) for load, run in runs.items()}
    rates = pl.concat([node_rates(run) for run in runs.values()])
    base = rows[BASE.load]
    pooled = pl.concat(list(rows.values()))
    spread = intervals(run_of(replace(BASE, spread=True)))
    packets = float(base["packets"].quantile(0.9) or 0.0)
    fits = [straightness(rates[name].to_numpy()) for name in ("injected", "ingested")]
    inq, credit = (above(base, f"{kind}stall_fraction", 0.1) for kind in ("internal_", ""))
    study = Found("torus-distributions")
    study.rows = [
        *(
            Row(
                f"Figure 3: {name}, straightness (R²) of the distribution of all nodes as "
                "exponential, power law, uniform",
                "exponential",
                ", ".join(f"{value:.3f}" for value in fit.values()),
                f"intervals of 100 µs at loads {loads} together",
            )
            for name, fit in zip(("injection", "ingestion"), fits, strict=True)
        ),
        Row(
            "Figure 4a: link-intervals above the 90th percentile of packets",
            "Z most, Y least",
            three(above(base, "packets", packets)),
            "each of our jobs has a slab along Z, so few packets travel along Z: see the next row",
        ),
        Row(
            "… with jobs spread over the machine",
            "Z most, Y least",
            three(above(spread, "packets", packets)),
            "the slabs explain the missing Z; with equal sides and random partners each axis "
            "carries about as many, so what sets Z apart in theirs is not in our mix",
        ),
        Row(
            "Figure 4b: link-intervals above 5 % of the bandwidth",
            "X 7.5 %, Y 2.7 %, Z 11 %",
            three(above(base, "utilization", 0.05)),
            "at load 0.1: " + three(above(rows[0.1], "utilization", 0.05)),
        ),
        Row("Figure 4b: above 40 %", "Y most", three(above(pooled, "utilization", 0.4)), ""),
        Row(
            "Figure 5a: inq stall above 10 %",
            "X 4.1 %, the most",
            three(inq),
            "more than theirs, as use is",
        ),
        Row("Figure 5b: credit stall above 10 %", "X 3.1 %, the most", three(credit), ""),
        Row(
            "Figure 5: inq over credit stall in X",
            "1.3",
            f"{inq['X'] / credit['X']:.1f}",
            "by definition: ours counts a link while any packet waits, theirs (2.1) averages "
            "over its tiles, waiting or idle; the engine has no tiles",
        ),
        Row(
            "Table I: correlation of use with credit stall",
            listed({**THEIRS}),
            listed(correlations(averaged(base))),
            "see the next table",
        ),
        Row(
            "Table I: … with inq stall",
            listed({**THEIRS_INQ}),
            listed(correlations(averaged(base), "inq")),
            "",
        ),
    ]
    study.rows += io_rows(runs[BASE.load], base)
    study.figures = {"torus-distributions": partial(curves, rates, pooled)}
    return study


def io_rows(run: Run, rows: pl.DataFrame) -> list[Row]:
    """Figure 6, the I/O of nodes, and Figures 7 and 8, links at I/O routers against others."""
    only = run_of(replace(BASE, kinds=("files",)))
    ends = only.tables["links"].filter(pl.col("from_node") | pl.col("to_node"))
    every = (
        from_run(only)
        .all_intervals()
        .join(ends.select("link", "src", "dst", "from_node"), on="link")
    )
    node = pl.when(pl.col("from_node")).then(pl.col("src")).otherwise(pl.col("dst"))
    bytes_ns = every.group_by("time_ns", node=node).agg(
        rate=pl.col("data_bytes").sum() / pl.col("interval_ns").first()
    )
    average = bytes_ns.group_by("time_ns").agg(pl.col("rate").sum() / only.tables["nodes"].height)
    share = 8 * average["rate"] / SLOWEST_GBPS
    largest = 8 * bytes_ns.group_by("node").agg(pl.col("rate").max())["rate"] / SLOWEST_GBPS
    quart = [float(largest.filter(largest > 0).quantile(q) or 0) for q in (0.25, 0.5, 0.75)]
    switches = run.tables["switches"]["name"].to_list()
    at = run.tables["nodes"].filter(pl.col("node").is_in(io_nodes(BASE.side)))["switch"]
    members = sorted({switches[number] for number in at.to_list()})
    out = [
        Row(
            "Figure 6a: largest read and write of a node, share of a Y link, quartiles",
            "–",
            ", ".join(percent(100 * value) for value in quart),
            "no value is in the paper's text; intervals of 100 µs show single messages",
        ),
        Row(
            "Figure 6b: average read and write of a node, share of a Y link, heaviest 5 %",
            "< 0.4 %",
            percent(100 * float(share.quantile(0.95) or 0.0)),
            "",
        ),
    ]
    for number, measure in ((7, "inq"), (8, "credit")):
        test = compare_groups(rows, members, measure=measure)
        out.append(
            Row(
                f"Figure {number}: {measure} stall at I/O routers against others",
                "p = 0.8: no difference",
                difference(test),
                "theirs: Kolmogorov–Smirnov; ours: permutation test on the mean",
            )
        )
    return out


def curves(rates: pl.DataFrame, rows: pl.DataFrame) -> Figure:
    """Figures 3 and 4a: injection and ingestion of all nodes, packets of links."""
    drawn = canvas(7.6, 2.9)
    left, right = drawn.subplots(1, 2)
    for name, colour, dash in (("injected", INK, "-"), ("ingested", MUTED, "--")):
        values = np.sort(rates[name].to_numpy())
        left.step(
            values,
            1 - np.arange(1, len(values) + 1) / (len(values) + 1),
            where="post",
            color=colour,
            linestyle=dash,
            label=name,
        )
    left.set_xlabel("all nodes together (GB/s)")
    for axis in AXES:
        mine = rows.filter(pl.col("direction").str.head(1) == axis)["packets"]
        values = np.sort(mine.to_numpy().astype(np.float64))
        right.step(
            values,
            1 - np.arange(1, len(values) + 1) / (len(values) + 1),
            where="post",
            color=GROUPS[axis],
            linestyle=DASHES[axis],
            label=axis,
        )
    right.set_xlabel("packets of a link in 100 µs")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid()
        axes.legend()
    left.set_ylabel("share of intervals above")
    return drawn


def correlation() -> Found:
    """Table I: what the correlation of use with credit stall depends on, one thing at a time."""
    study = Found("torus-correlation")

    def add(name: str, rows: pl.DataFrame) -> None:
        values = correlations(rows)
        defined = {axis: value for axis, value in values.items() if value is not None}
        far = max(abs(defined.get(axis, 0.0) - THEIRS[axis]) for axis in AXES)
        study.rows.append(Row(name, listed({**THEIRS}), listed(values), f"all within {far:.2f}"))

    base = intervals(run_of(Machine()))
    add("the example's mix, 8³ routers, intervals of 100 µs", base)
    add("… averaged over the run", averaged(base))
    pool = [averaged(base)]
    for load in (0.1, 0.3, 2.0):
        rows = averaged(intervals(run_of(Machine(load=load))))
        add(f"… at {load:g} of the load", rows)
        pool.append(rows)
    add("the four loads together", pl.concat(pool))
    zero = pool[0].with_columns(utilization=pl.lit(0.0), stall_fraction=pl.lit(0.0))
    add("… and twice as many idle link-intervals", pl.concat([*pool, *[zero] * 8]))
    for kind in ("mesh", "spectral"):
        add(f"only the {kind} job", averaged(intervals(run_of(Machine(kinds=(kind,))))))
    add(
        "block instead of random placement", averaged(intervals(run_of(Machine(placement="block"))))
    )
    add("jobs spread over the machine", averaged(intervals(run_of(Machine(spread=True)))))
    for buffer in ("16 KiB", "8 KiB"):
        add(f"buffers of {buffer}", averaged(intervals(run_of(Machine(buffer=buffer)))))
    short = replace(FITTED, host_rate="10.4 GB/s")
    add("jobs spread, buffers of 16 KiB", averaged(intervals(run_of(short))))
    for rate in ("5 GB/s", "2.5 GB/s"):
        rows = intervals(run_of(replace(FITTED, host_rate=rate)))
        add(f"… and nodes that take {rate}", averaged(rows))
        add("… intervals of 100 µs", rows)
    add("nodes that take 5 GB/s alone", averaged(intervals(run_of(Machine(host_rate="5 GB/s")))))
    return study


SLOW, FAST = "2.5 GB/s", "10.4 GB/s"
"""Rates at which nodes take data: that of the nearest mix, and that of their link."""


def by_size(name: str, sides: tuple[int, ...], rates: tuple[str, ...]) -> Found:
    """Table I on tori of several sizes, with nodes of several rates, under one load."""
    study = Found(name)
    for side, rate in itertools.product(sides, rates):
        run = run_of(replace(FITTED, host_rate=rate, side=side))
        values = correlations(averaged(intervals(run)))
        far = max(abs((values.get(axis) or 0.0) - THEIRS[axis]) for axis in AXES)
        study.rows.append(
            Row(
                f"{side}³ routers, nodes that take {rate}",
                listed({**THEIRS}),
                listed(values),
                f"all within {far:.2f}; {run.tables['nodes'].height:,} nodes",
            )
        )
    return study


ITERATIONS: Final = 8
APPLICATIONS: Final[dict[str, dict[str, Any]]] = {
    "PSDNS": {
        "kind": "transpose",
        "dims": [16, 16],
        "axis": "y",
        "size": "16 KiB",
        "rounds": ITERATIONS,
        "compute": "100 us",
    },
    "AMR": {
        "kind": "stencil3d",
        "dims": [8, 8, 4],
        "size": "64 KiB",
        "rounds": ITERATIONS,
        "compute": "100 us",
        "post": "all",
        "boundary": "skip",
    },
}
OTHERS: Final = (0.0125, 0.0375, 0.075, 0.1125, 0.15)
"""Load offered by each of the other nodes in the five runs, share of their link."""


def iteration_times(run: Run) -> NDArray[np.float64]:
    """Time of each iteration of the first job, from its messages, microseconds.

    The k-th message of a pair of ranks belongs to iteration k; an iteration ends with its last
    message.
    """
    mine = run.tables["ranks"].filter(pl.col("job") == 0)["rank"].implode()
    sent = run.tables["messages"].filter(pl.col("src_rank").is_in(mine)).sort("post_ps", "message")
    pair = ["src_rank", "dst_rank", "label"]
    round_ = pl.int_range(pl.len()).over(pair) * ITERATIONS // pl.len().over(pair)
    ends = sent.with_columns(k=round_).group_by("k").agg(pl.col("arrival_ps").max()).sort("k")
    return np.diff(ends["arrival_ps"].to_numpy().astype(np.float64), prepend=0.0) / 1e6


def application(name: str, load: float, seed: int) -> tuple[NDArray[np.float64], float]:
    """Iteration times, and the mean stall in percent of the links that the job uses."""
    data = scenario(Machine(seed=seed, kinds=()))
    nodes = np.random.default_rng([seed, 0xA9]).permutation(2 * Machine().side ** 3)
    hosts, other_hosts = nodes[:256], nodes[256:]
    data["job"] = [
        {"name": name, "hosts": ",".join(map(str, hosts)), "pattern": APPLICATIONS[name]},
        {
            "name": "others",
            "hosts": ",".join(map(str, other_hosts)),
            "observed": False,
            "pattern": {
                "kind": "paced",
                "ranks": len(other_hosts),
                "size": "256 KiB",
                "load": load,
                "duration": "2 ms",
                "line_rate": "83.2 Gb/s",
            },
        },
    ]
    data["telemetry"] = {"windows": 8, "scheme": "full", "one_in": 64, "messages": True}
    run = simulate(load_scenario(data))
    truth = run.tables["truth"].filter(pl.col("observed_packets") > 0)
    between = run.tables["links"].filter(~pl.col("from_node") & ~pl.col("to_node"))
    used = truth.join(between, on="link")["link"].unique().implode()
    rows = (
        from_run(run)
        .all_intervals()
        .filter(pl.col("link").is_in(used) & (pl.col("time_ns") * 1000 <= run.elapsed_ps))
    )
    return iteration_times(run), 100 * float(rows["stall_ns"].sum() / rows["interval_ns"].sum())


def iterations() -> Found:
    """Figure 2: iteration times of two applications in five runs among other traffic."""
    study = Found("torus-iterations")
    theirs = {
        "PSDNS": ("9.7 – 16 s (1.6×)", "41 – 70 min (1.71×)", "0.87", "11 %"),
        "AMR": ("0.2 – 10 s", "59 – 93 min (1.58×)", "0.96", "12 %"),
    }
    times: dict[str, list[NDArray[np.float64]]] = {}
    for name in APPLICATIONS:
        runs = [application(name, load, seed) for seed, load in enumerate(OTHERS, 1)]
        times[name] = [durations for durations, _ in runs]
        totals = np.array([durations.sum() for durations, _ in runs])
        stall = np.array([percentage for _, percentage in runs])
        single = np.concatenate(times[name])
        r, p = run_time_correlation(totals, stall)
        iteration, total, published, most = theirs[name]
        study.rows += [
            Row(
                f"Figure 2, {name}: shortest and longest iteration",
                iteration,
                f"{single.min():.0f} – {single.max():.0f} µs ({single.max() / single.min():.2f}×)",
                "ours iterate alike; AMR's mesh grows and shrinks" if name == "AMR" else "",
            ),
            Row(
                f"… {name}: shortest and longest of five runs",
                total,
                f"{totals.min():.0f} – {totals.max():.0f} µs ({totals.max() / totals.min():.2f}×)",
                f"other nodes offer {OTHERS[0]:g} to {OTHERS[-1]:g} of their link",
            ),
            Row(
                f"… {name}: correlation of run time with stall of its links",
                published,
                f"{r:.2f} (p = {p:.2g})",
                "",
            ),
            Row(f"… {name}: largest stall", most, percent(float(stall.max())), ""),
        ]
    study.figures = {"torus-iterations": partial(boxes, times)}
    return study


def boxes(times: dict[str, list[NDArray[np.float64]]]) -> Figure:
    """Box plots of iteration times, one panel an application, one box a run."""
    drawn = canvas(7.6, 2.7)
    for place, (name, runs) in enumerate(times.items()):
        axes = drawn.add_subplot(1, 2, place + 1)
        axes.boxplot(runs, medianprops={"color": INK})
        axes.set_title(f"like {name}", fontsize=8.5, fontweight="normal")
        axes.set_xlabel("run (more other traffic to the right)")
        axes.grid(axis="y")
    drawn.axes[0].set_ylabel("iteration (µs)")
    return drawn


def hot_spot(**engine: Any) -> Run:
    """All nodes send to four of them for half a millisecond."""
    data = scenario(Machine(kinds=()))
    nodes = 2 * Machine().side ** 3
    data["engine"].update(engine)
    data["job"] = [
        {
            "name": "hot",
            "hosts": f"0-{nodes - 1}",
            "pattern": {
                "kind": "paced",
                "ranks": nodes,
                "servers": 4,
                "size": "16 KiB",
                "load": 0.02,
                "duration": "500 us",
                "line_rate": "83.2 Gb/s",
            },
        }
    ]
    return simulate(load_scenario(data))


def protection() -> Found:
    """Congestion protection: all adapters throttled below what one node takes."""
    nodes = 2 * Machine().side ** 3
    limit = 83.2 / nodes
    study = Found("torus-protection")
    for name, engine, theirs in (
        ("without protection", {}, "over an hour of features ≥ 40 % in X+"),
        (
            "adapters together at the rate of one node",
            {"injection_rate": f"{limit:.4f} Gb/s"},
            "all features end",
        ),
    ):
        run = hot_spot(**engine)
        rows = from_run(run).all_intervals()
        along = torus_rows(run, rows).filter(pl.col("direction") == "X+")
        everything = from_torus(along, torus_coordinates(run), "X+", threshold=40.0)
        delivered = run.summary["elapsed_ps"] / 1e9
        study.rows.append(
            Row(
                f"section VI, congestion protection: {name}",
                theirs,
                f"{everything.features.height} features, all delivered in {delivered:.2f} ms",
                "the switch of rates during a run is not modelled: the throttled run is throttled "
                "from the start"
                if engine
                else "",
            )
        )
    return study


PARTS: Final[dict[str, Callable[[], Found]]] = {
    "torus-distributions": distributions,
    "torus-correlation": correlation,
    "torus-size": partial(by_size, "torus-size", (8, 12), (SLOW, FAST)),
    "torus-larger": partial(by_size, "torus-larger", (16,), (SLOW,)),
    "torus-iterations": iterations,
    "torus-protection": protection,
}


def main() -> None:
    """Print the tables; write the page and its figures on request."""
    run_parts(
        __doc__,
        "part",
        PARTS,
        page=PAGE,
        section=section,
        draw=draw,
        facts=lambda study: {"rows": [asdict(row) for row in study.rows]},
    )


if __name__ == "__main__":
    main()
