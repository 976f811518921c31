"""The torus study on a simulated Blue Waters: why X stalls most, and how I/O links compare."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from studies.production_networks.counter_figures import (
    DASHES,
    GROUPS,
    evolution,
    io_links,
    link_distributions,
    torus_slices,
)
from studies.production_networks.counter_tables import (
    GroupTest,
    ccdf,
    compare_groups,
    correlations,
    worst_slices,
)
from studies.production_networks.simulated import (
    EXAMPLES,
    Found,
    Row,
    counters_of,
    difference,
    first_end_ps,
    interval_of,
    percent,
    run_of,
)
from tailback import Run, Scenario, load_scenario
from tailback.port_counters.analysis import Evolution, from_torus, torus_coordinates, torus_rows
from tailback.report import canvas

Y_RATES: Final = ("4.7 GB/s", "9.4 GB/s", "18.8 GB/s")
AXES: Final = ("X", "Y", "Z")


def with_y(scenario: Scenario, rate: str) -> Scenario:
    """The scenario with other Y links."""
    out = scenario.model_copy(deep=True)
    assert out.fabric.topology is not None
    out.fabric.topology["rates"] = ["9.4 GB/s", rate, ["15 GB/s"] * 7 + ["9.4 GB/s"]]
    return out


def directed(run: Run, until_ps: int) -> pl.DataFrame:
    """Intervals of the links between routers."""
    return torus_rows(run, counters_of(run, until_ps))


def by_axis(rows: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Mean stall, share above 10 % and mean use of each axis, percent."""
    table = rows.group_by(axis=pl.col("direction").str.head(1)).agg(
        stall=100 * pl.col("stall_fraction").mean(),
        above=100 * (pl.col("stall_fraction") > 0.1).mean(),
        used=100 * pl.col("utilization").mean(),
    )
    return {row.pop("axis"): row for row in table.iter_rows(named=True)}


def curves(runs: dict[str, pl.DataFrame]) -> Figure:
    """CCDFs of the stall by axis, one panel for each rate of Y."""
    drawn = canvas(8.6, 3.0)
    axes = drawn.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for panel, (rate, rows) in zip(axes, runs.items(), strict=True):
        table = ccdf(rows, "credit")
        for axis in AXES:
            mine = table.filter((pl.col("group") == axis) & (pl.col("ccdf") > 0))
            panel.plot(
                [0.0, *mine["percent"]],
                [1.0, *mine["ccdf"]],
                drawstyle="steps-post",
                label=axis,
                color=GROUPS[axis],
                linestyle=DASHES[axis],
            )
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlim(0, 100)
        panel.set_title(f"Y at {rate}", fontsize=8.5, fontweight="normal")
        panel.set_xlabel("percent of time stalled (%)")
        panel.grid()
    axes[0].set_ylabel("share of link-intervals above")
    axes[0].legend()
    return drawn


def io_routers(run: Run, servers: int) -> list[str]:
    """Names of the routers of the I/O nodes: the last ranks of the last job."""
    ranks = run.tables["ranks"]
    last = ranks.filter(pl.col("job") == ranks["job"].max()).sort("job_rank").tail(servers)
    switch = run.tables["nodes"].join(last.select("node"), on="node")["switch"].unique()
    names = run.tables["switches"]["name"].to_list()
    return sorted(names[number] for number in switch.to_list())


def pooled_correlations(rows: pl.DataFrame) -> dict[str, float]:
    """Correlation of use with stall over links, each averaged over the whole time."""
    means = rows.group_by("link", axis=pl.col("direction").str.head(1)).agg(
        pl.col("utilization", "stall_fraction").mean()
    )
    return {
        axis: float(np.corrcoef(part["utilization"], part["stall_fraction"])[0, 1])
        for (axis,), part in means.group_by("axis")
        if part["stall_fraction"].std()
    }


def blue_waters() -> Found:
    """Jha et al. (2018): X stalls most and why, I/O links, the evolution graph and the torus."""
    scenario = load_scenario(EXAMPLES / "blue-waters/blue-waters.toml")
    run = run_of(scenario)
    rows = {Y_RATES[0]: directed(run, first_end_ps(run))}
    for rate in Y_RATES[1:]:
        other = run_of(with_y(scenario, rate))
        rows[rate] = directed(other, first_end_ps(other))
    pattern = scenario.job[-1].pattern
    assert pattern is not None
    members = io_routers(run, pattern["servers"])
    measured, where = rows[Y_RATES[0]], torus_coordinates(run)
    comparison = compare_groups(measured, members)
    along = measured.filter(pl.col("direction") == "X+")
    graph = from_torus(along, where, "X+", threshold=40.0)
    # The engine does not measure stalls within a router.
    distributions = {name: ccdf(measured, name) for name in ("credit", "bandwidth")}
    io = ccdf(measured.filter(pl.col("node_name").is_in(members)), "credit")
    study = Found("blue-waters", rows=_rows(rows, comparison, graph))
    study.figures = {
        "blue-waters-axes": partial(curves, rows),
        "blue-waters-use": partial(link_distributions, distributions),
        "blue-waters-io": partial(io_links, distributions["credit"], io, comparison),
        "blue-waters-evolution": partial(evolution, graph),
        "blue-waters-slices": partial(torus_slices, worst_slices(along, where)),
    }
    return study


def falling(axes: dict[str, dict[str, float]]) -> list[str]:
    """Axes by mean stall, largest first."""
    return sorted(axes, key=lambda axis: -axes[axis]["stall"])


def left(after: dict[str, dict[str, float]], before: dict[str, dict[str, float]]) -> str:
    """Stall of X over what it was."""
    return percent(100 * after["X"]["stall"] / before["X"]["stall"])


def heavier(axes: dict[str, dict[str, float]], length: str) -> str:
    """Whether X stalls most, and how our use compares with theirs (section IV-B)."""
    order = "the same axis" if falling(axes)[0] == "X" else f"{falling(axes)[0]} stalls most here"
    used = ", ".join(f"{axis} {percent(axes[axis]['used'])}" for axis in AXES)
    return (
        f"{order}; theirs use 5 % or less in 89 to 97 of 100 link-minutes, ours on average {used}; "
        f"intervals are {length}"
    )


def longer_follows(
    single: Mapping[str, float | None], pooled: Mapping[str, float], length: str
) -> str:
    """Whether averaging over a longer time raises the correlation, in words that follow."""
    raised = [axis for axis in pooled if pooled[axis] > (single.get(axis) or 0.0)]
    if len(raised) < len(pooled):
        return f"averaging does not raise all of them: {', '.join(raised) or 'none'} only"
    return f"intervals of {length}: averaged over the run all are higher, see the next row"


def worst_feature(graph: Evolution) -> tuple[float, int]:
    """Largest value of a feature of the evolution graph, percent, and its number of links."""
    worst = graph.features.sort("maximum", "extent", descending=True).row(0, named=True)
    return float(worst["maximum"]), int(worst["extent"])


def _rows(rows: dict[str, pl.DataFrame], comparison: GroupTest, graph: Evolution) -> list[Row]:
    axes = {rate: by_axis(part) for rate, part in rows.items()}
    real, equal, double = (axes[rate] for rate in Y_RATES)

    def three(values: dict[str, dict[str, float]], key: str) -> str:
        return ", ".join(f"{axis} {percent(values[axis][key])}" for axis in AXES)

    length = interval_of(rows[Y_RATES[0]])
    pooled = pooled_correlations(rows[Y_RATES[0]])
    minute = correlations(rows[Y_RATES[0]])
    single = {row["group"]: row["credit"] for row in minute.iter_rows(named=True)}
    return [
        Row(
            "credit stall above 10 % of the interval",
            "X 3.1 %, the most of all",
            three(real, "above"),
            heavier(real, length),
        ),
        Row(
            "mean credit stall",
            "X > Y, Z",
            three(real, "stall"),
            f"ours: {' > '.join(falling(real))}",
        ),
        Row(
            "… if Y were as wide as X (9.4 GB/s)",
            "– (cannot be measured)",
            three(equal, "stall"),
            f"X stalls {left(equal, real)} as much: the rest is what Y's half bandwidth causes",
        ),
        Row(
            "… if Y were twice as wide as X",
            "–",
            three(double, "stall"),
            f"X stalls {left(double, real)} as much",
        ),
        Row(
            "mean bandwidth used",
            "7 % of link-minutes above 5 %",
            three(real, "used"),
            "ours are busy 2 ms, theirs five months",
        ),
        Row(
            "correlation of use with credit stall, single intervals",
            "X 0.60, Y 0.50, Z 0.66 (a minute)",
            ", ".join(f"{a} {'–' if single.get(a) is None else f'{single[a]:.2f}'}" for a in AXES),
            longer_follows(single, pooled, length),
        ),
        Row(
            "… of links, each averaged over the run",
            "–",
            ", ".join(f"{a} {pooled[a]:.2f}" for a in AXES if a in pooled),
            "",
        ),
        Row(
            "Figures 9 and 10: largest stall of a feature at least 40 % in X+",
            "≈ 85 %",
            percent(worst_feature(graph)[0]),
            f"intervals of {length}",
        ),
        Row("… links of that feature", "8", f"{worst_feature(graph)[1]}", ""),
        Row(
            "mean stall of links at I/O nodes, and of the others",
            "p = 0.8 (Kolmogorov–Smirnov): “no more likely”",
            difference(comparison),
            "ours: permutation test on the mean",
        ),
    ]


__all__ = ["blue_waters"]
