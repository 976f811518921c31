"""The InfiniBand study's closing questions, examined on a smaller simulated fabric of its shape."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from studies.production_networks.definitions import run_time_correlation
from studies.production_networks.simulated import Found, Row, counters_of, percent, run_of
from tailback import Scenario, load_scenario
from tailback.report import INK, MUTED, canvas

SHAPE: Final = {
    "kind": "yellowstone",
    "hosts_per_tor": 8,
    "tors_per_group": 8,
    "groups": 4,
    "directors": 4,
    "leaves": 9,
    "spines": 8,
    "storage_leaves": 0,
    "storage_spines": 0,
    "servers_per_leaf": 0,
}
"""Yellowstone's shape at less than half its width: 256 hosts, full bisection."""

OWN: Final = tuple(host for host in range(256) if host % 4 == host // 8 % 4)
"""Hosts of the application: every fourth, not the same ones of each ToR. D-mod-k gives hosts at the
same position of their ToRs the same links, so an application on the same positions everywhere would
share no link with others."""

TICK_NS: Final = 22.0
LINE_GBPS: Final = 54.0
LOADS: Final = (0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
MIXES: Final[dict[str, dict[str, Any]]] = {
    "16 KiB to anybody": {"size": "16 KiB"},
    "512 KiB to anybody": {"size": "512 KiB"},
    "files to 12 servers": {"size": "256 KiB", "servers": 12},
}
APPLICATIONS: Final[dict[str, dict[str, Any]]] = {
    "stencil": {
        "kind": "stencil2d",
        "dims": [8, 8],
        "size": "128 KiB",
        "rounds": 8,
        "compute": "20 us",
        "post": "all",
        "boundary": "skip",
    },
    "transpose": {
        "kind": "alltoall",
        "ranks": 64,
        "size": "16 KiB",
        "rounds": 4,
        "compute": "20 us",
    },
    "mostly computing": {
        "kind": "stencil2d",
        "dims": [8, 8],
        "size": "32 KiB",
        "rounds": 3,
        "compute": "250 us",
        "post": "all",
        "boundary": "skip",
    },
}
COLOURS: Final = {"stencil": INK, "transpose": "#b96cc4", "mostly computing": MUTED}
MARKS: Final = dict(zip(MIXES, "os^", strict=True))


@dataclass(frozen=True)
class Point:
    """One application under one mix and load.

    Attributes:
        application: Its name.
        mix: Name of the other traffic.
        load: Offered load of each of its clients, share of the line rate.
        slowdown: Run time over that alone.
        stall: Mean share of time stalled of the links between switches that it uses.
        stalled_windows: Share of the intervals of all ToR up ports with a stall.
    """

    application: str
    mix: str
    load: float
    slowdown: float
    stall: float
    stalled_windows: float

    @property
    def ticks_per_s(self) -> float:
        """Growth of PortXmitWait of a port, ticks a second."""
        return self.stall * 1e9 / TICK_NS


def scenario(application: str, mix: str | None, load: float) -> Scenario:
    """An application on two hosts of every ToR, other traffic on the rest."""
    hosts = ",".join(map(str, OWN))
    jobs: list[dict[str, Any]] = [
        {
            "name": "application",
            "hosts": hosts,
            "pattern": APPLICATIONS[application],
            "placement": "random",
        }
    ]
    if mix is not None:
        others = ",".join(str(host) for host in range(256) if host not in OWN)
        settings = MIXES[mix]
        # Writes of 180 clients to 12 servers: the servers' own rate is at load 1.
        share = load / 15 if "servers" in settings else load
        jobs.append(
            {
                "name": "others",
                "hosts": others,
                "observed": False,
                "placement": "random",
                "pattern": {
                    "kind": "paced",
                    "ranks": 192,
                    "load": share,
                    "duration": "1500 us",
                    "line_rate": "54 Gb/s",
                    **settings,
                },
            }
        )
    return load_scenario(
        {
            "name": "questions",
            "seed": 1,
            "job": jobs,
            "fabric": {"topology": dict(SHAPE)},
            "engine": {"routing": "deterministic"},
            "telemetry": {"windows": 32, "messages": False},
        }
    )


def point(application: str, mix: str, load: float, alone_ps: int = 0) -> Point:
    """Simulate one of them; without a time alone, this is the run alone."""
    run = run_of(scenario(application, mix or None, load))
    end = run.elapsed_ps
    rows = counters_of(run)
    # The application's links, over its own time.
    starts = pl.col("time_ns") - pl.col("interval_ns")
    rows = rows.filter(starts * 1000 < end)
    used = (
        run.tables["truth"]
        .filter(pl.col("observed_packets") > 0)
        .join(run.tables["links"].filter(~pl.col("from_node") & ~pl.col("to_node")), on="link")[
            "link"
        ]
        .unique()
    )
    mine = rows.filter(pl.col("link").is_in(used.implode()))
    up = run.tables["links"].filter((pl.col("tier") == 1) & (pl.col("direction") == "up"))["link"]
    tor = rows.filter(pl.col("link").is_in(up.implode()))
    return Point(
        application,
        mix,
        load,
        end / (alone_ps or end),
        float(mine["stall_ns"].sum() / mine["interval_ns"].sum()),
        float((tor["stall_fraction"] > 0).mean() or 0.0),
    )


def curves(points: list[Point]) -> Figure:
    """Slow-down against stall fraction, and the same as growth of the counter."""
    drawn = canvas(8.4, 3.4)
    axes = drawn.add_subplot()
    for application, colour in COLOURS.items():
        alone = [p for p in points if p.application == application and not p.mix]
        axes.plot(
            [100 * p.stall for p in alone],
            [1.0] * len(alone),
            "x",
            color=colour,
            label=f"{application} alone",
        )
        mine = sorted((p for p in points if p.application == application), key=lambda p: p.stall)
        for mix, mark in MARKS.items():
            some = [p for p in mine if p.mix == mix]
            axes.plot(
                [100 * p.stall for p in some],
                [p.slowdown for p in some],
                color=colour,
                marker=mark,
                linewidth=1.0,
                linestyle="-",
                markersize=5,
                label=f"{application}, {mix}",
            )
    axes.set_xlabel("mean time stalled of the links between switches that it uses (%)")
    axes.set_ylabel("run time ÷ run time alone (1 = alone)")
    axes.set_xlim(left=0)
    axes.grid()
    top = axes.secondary_xaxis(
        "top",
        functions=(lambda x: x * 1e7 / TICK_NS / 1e6, lambda x: x * TICK_NS * 1e6 / 1e7),
    )
    top.set_xlabel("growth of PortXmitWait (million ticks of 22 ns a second)")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return drawn


def when(points: list[Point]) -> Figure:
    """Stalled intervals of ToR up ports by load, one curve a mix."""
    drawn = canvas(5.6, 3.0)
    axes = drawn.add_subplot()
    for mix, mark in MARKS.items():
        mine = [p for p in points if p.mix == mix and p.application == "mostly computing"]
        axes.plot(
            [p.load for p in mine],
            [100 * p.stalled_windows for p in mine],
            marker=mark,
            color=INK,
            linestyle={"o": "-", "s": "--", "^": ":"}[mark],
            label=mix,
        )
    axes.set_xlabel("load offered by the others (1: line rate, or all that servers take)")
    axes.set_ylabel("ToR up intervals with a stall (%)")
    axes.set_ylim(bottom=0)
    axes.grid()
    axes.legend()
    return drawn


def reached(points: list[Point], slowdown: float) -> float | None:
    """Stall fraction at which run time first reaches ``slowdown``, between the points around it."""
    ordered = sorted(points, key=lambda p: p.stall)
    stall, slow = np.array([p.stall for p in ordered]), np.array([p.slowdown for p in ordered])
    above = np.flatnonzero(slow >= slowdown)
    if len(above) == 0:
        return None
    at = int(above[0])
    if at == 0:
        return float(stall[0])
    share = (slowdown - slow[at - 1]) / (slow[at] - slow[at - 1])
    return float(stall[at - 1] + share * (stall[at] - stall[at - 1]))


def questions() -> Found:
    """When congestion occurs, and what it costs three applications."""
    points = []
    for application in APPLICATIONS:
        alone = run_of(scenario(application, None, 0.0)).elapsed_ps
        points.append(point(application, "", 0.0))
        points += [point(application, mix, load, alone) for mix in MIXES for load in LOADS]
    study = Found("questions", rows=_rows(points))
    study.figures = {
        "questions-load": partial(when, points),
        "questions-slowdown": partial(curves, points),
    }
    return study


def _rows(points: list[Point]) -> list[Row]:
    rows = []
    for mix in MIXES:
        mine = [p for p in points if p.mix == mix and p.application == "mostly computing"]
        shares = ", ".join(f"{p.load:g}: {percent(100 * p.stalled_windows)}" for p in mine)
        rows.append(Row(f"ToR up intervals with a stall by load, {mix}", "not answered", shares))
    for application in APPLICATIONS:
        mine = [p for p in points if p.application == application]
        for mix in MIXES:
            stall = reached([p for p in mine if p.mix in (mix, "")], 1.1)
            if stall is None:
                text = "not reached"
            else:
                growth, lost = stall * 1e9 / TICK_NS / 1e6, stall * LINE_GBPS
                text = (
                    f"{percent(100 * stall)} stalled, {growth:.2g} M ticks/s, "
                    f"{lost:.2g} of 54 Gb/s a port"
                )
            rows.append(Row(f"{application}: run time +10 %, {mix}", "not answered", text))
        stall_alone = next(p.stall for p in mine if not p.mix)
        rows.append(Row(f"{application}: time stalled when alone", "–", percent(100 * stall_alone)))
        r, _ = run_time_correlation(
            np.array([p.slowdown for p in mine]), np.array([100 * p.stall for p in mine])
        )
        most = max(mine, key=lambda p: p.slowdown)
        theirs = {"transpose": "0.87 (PSDNS)", "stencil": "0.96 (AMR)"}.get(application, "–")
        rows.append(
            Row(
                f"{application}: correlation of run time with stall",
                theirs,
                f"{r:.2f}",
                f"worst: {most.slowdown:.2f}× at {percent(100 * most.stall)}; theirs 1.7× at 12 %",
            )
        )
    return rows


__all__ = ["questions"]
