"""The page of ``tailback counters --html``: what an administrator reads once a week."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from markupsafe import Markup

from tailback.arrays import Floats
from tailback.evidence.culprits import JobHarm
from tailback.evidence.repeated_runs import run_cells
from tailback.names.display import keep_units
from tailback.names.ports import link_name, port_name
from tailback.port_counters.analysis.course import bins_of
from tailback.port_counters.analysis.evolution import colour
from tailback.port_counters.analysis.verdict import Verdict
from tailback.port_counters.changes import described
from tailback.report.page import asset, content_policy, template, write_page
from tailback.units import counted, format_time, instant, percent
from tailback.version import version

_ROWS: Final = 25
_COURSES: Final = 20
LEAST_PERCENT: Final = 1.0
"""Mean stall below which a cell of the course is empty, percent."""

_KEY: Final = (0.01, 0.07, 0.13, 0.22, 0.35, 0.52)
"""Stalls whose colours the key shows."""


@dataclass(frozen=True)
class PagePart:
    """A table of the page.

    Attributes:
        title: Its heading.
        header: Titles of its columns.
        rows: Its cells.
        right: Columns of numbers, aligned to the right.
        more: Number of further rows.
    """

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: tuple[int, ...] = ()
    more: int = 0

    @classmethod
    def of(
        cls,
        title: str,
        header: tuple[str, ...],
        rows: Sequence[tuple[str, ...]],
        right: tuple[int, ...] = (),
    ) -> PagePart:
        """The first rows."""
        return cls(title, header, rows[:_ROWS], right, max(len(rows) - _ROWS, 0))


def write_counters_page(
    path: str | Path,
    verdict: Verdict,
    course: pl.DataFrame,
    jobs: JobHarm | None,
    title: str,
    headline: str,
) -> Path:
    """Write the page.

    Args:
        path: The file; an existing one is replaced, whole or not at all.
        verdict: The verdict on the counters.
        course: Rows of ``stall_course`` between ``verdict.start_ns`` and ``verdict.end_ns``.
        jobs: What jobs lost, None without a job list.
        title: Name of the source.
        headline: The verdict in words; of a lossy network, that on its queues.

    Returns:
        The path. The same input gives the same bytes.

    Raises:
        RunError: The file cannot be written.
    """
    look, bins = asset("evolution.css"), bins_of(verdict.ports)
    page = template("counters.html.j2").render(
        version=version(),
        policy=content_policy("", look),
        look=Markup(look),
        title=title,
        headline=keep_units(headline),
        scope=_scope(verdict),
        before=[_ill_links(verdict), _changes(verdict)],
        courses=_courses(verdict, course, bins),
        span=_span(verdict),
        bin=format_time(1000 * (verdict.end_ns - verdict.start_ns) // bins),
        bins=bins,
        least=f"{LEAST_PERCENT:g}",
        key=[(f"{100 * share:.0f} %", _colour(share)) for share in _KEY],
        after=[_jobs(jobs), _runs(jobs), _links(verdict), _classes(verdict)],
        notes=verdict.notes,
    )
    return write_page(path, page, "page")


def _scope(verdict: Verdict) -> str:
    devices = verdict.ports.select("node_name", "node_guid").n_unique()
    return (
        f"{counted(verdict.ports.height, 'port', ',')} of {counted(devices, 'device', ',')}, "
        f"{_span(verdict)}"
    )


def _span(verdict: Verdict) -> str:
    """The time that the counters cover."""
    begin, end = (instant(at) for at in (verdict.start_ns, verdict.end_ns))
    return f"{begin} to {end}" if verdict.start_ns else end.removeprefix("+")


def _ill_links(verdict: Verdict) -> PagePart:
    rows = [
        (
            row["link"],
            row["what"],
            "start" if row["since_ns"] is None else instant(row["since_ns"]),
            _gbps(row["lost_gbps"]),
        )
        for row in verdict.ill.iter_rows(named=True)
    ]
    header = ("Link", "What is wrong", "Since", "Gb/s lost")
    return PagePart.of("Links that need a hand", header, rows, (3,))


def _changes(verdict: Verdict) -> PagePart:
    rows = [
        (instant(row["time_ns"]), *described(row).rsplit(": ", 1))
        for row in verdict.changes.iter_rows(named=True)
    ]
    return PagePart.of("What changed", ("Time", "Where", "Change"), rows[::-1])


def _jobs(jobs: JobHarm | None) -> PagePart:
    amounts = ("Hosts", "Stalled", "Most", "Node-hours stalled", "Gb/s lost")
    header = ("Job", *amounts, "Held up by", "Why")
    if jobs is None:
        return PagePart("Jobs", header, [])
    rows = [
        (
            str(row["job"]),
            f"{row['hosts']:,}",
            percent(row["stall_fraction"]),
            percent(row["maximum"]),
            f"{row['stalled_node_hours']:,.3g}",
            _gbps(row["lost_gbps"]),
            row["culprit"] or "?",
            row["why"],
        )
        for row in jobs.jobs.iter_rows(named=True)
    ]
    return PagePart.of("Jobs", header, rows, (1, 2, 3, 4, 5))


def _runs(jobs: JobHarm | None) -> PagePart:
    header = ("Runs of", "Runs", "Hosts", "Slowest", "Stalled", "Correlation", "p")
    rows = [run_cells(row) for row in ([] if jobs is None else jobs.runs.iter_rows(named=True))]
    title = "Do runs take longer when they stall?"
    return PagePart.of(title, (*header, "Node-hours lost"), rows, tuple(range(1, 8)))


def _links(verdict: Verdict) -> PagePart:
    stalling = verdict.ports.filter(pl.col("lost_gbps") > 0)
    rows = [
        (
            _link(row["node_name"], row["port"], row["interface"], verdict),
            _share(row["stall_fraction"]),
            _share(row["maximum"]),
            _share(row["utilization"]),
            _gbps(row["lost_gbps"]),
        )
        for row in stalling.iter_rows(named=True)
    ]
    header = ("Link", "Stalled", "Most", "Used", "Gb/s lost")
    return PagePart.of("Links that stall most", header, rows, (1, 2, 3, 4))


def _classes(verdict: Verdict) -> PagePart:
    rows = [
        (
            _class_name(row["category"], row["port_type"]),
            f"{row['ports']:,}",
            _share(row["stall_fraction"]),
            _share(row["maximum"]),
            _share(row["utilization"]),
            _gbps(row["lost_gbps"]),
        )
        for row in verdict.groups.iter_rows(named=True)
    ]
    header = ("Class", "Ports", "Stalled", "Most", "Used", "Gb/s lost")
    return PagePart("By tier and direction", header, rows, (1, 2, 3, 4, 5))


def _class_name(category: str, port_type: str) -> str:
    if category in ("Port", "other") and port_type == "any":
        return "All ports"
    return port_type if category == "Port" else f"{category} {port_type}"


def _courses(
    verdict: Verdict, course: pl.DataFrame, bins: int
) -> list[tuple[str, list[tuple[int, str]], str]]:
    """Name, cells and largest value of the classes and of the links that stalled longest."""
    if course.is_empty():
        return []
    bin_ns = max((verdict.end_ns - verdict.start_ns) / bins, 1.0)
    key = ["node_guid", "node_name", "port"]
    classes = ["category", "port_type"]
    of_port = verdict.ports.select(*key, "interface", *classes)
    rows = course.join(of_port, on=key)
    sizes = of_port.group_by(classes, maintain_order=True).len().sort(classes)
    out = []
    for category, port_type, ports in sizes.iter_rows():
        mine = rows.filter(pl.col("category") == category, pl.col("port_type") == port_type)
        name = f"{_class_name(category, port_type)} ({ports:,})"
        out.append(_course(name, mine, bin_ns * ports, bins))
    longest = rows.group_by(*key, "interface").agg(pl.col("stalled_ns").sum())
    longest = longest.sort("stalled_ns", *key, descending=[True, False, False, False])
    for guid, node, port, interface, _ in longest.head(_COURSES).iter_rows():
        place = (pl.col("node_guid") == guid, pl.col("node_name") == node, pl.col("port") == port)
        out.append(
            _course(_link(node, port, interface, verdict), rows.filter(*place), bin_ns, bins)
        )
    return [entry for entry in out if entry[1]]


def _course(
    name: str, rows: pl.DataFrame, full_ns: float, bins: int
) -> tuple[str, list[tuple[int, str]], str]:
    """Cells of a course; none where it never stalled."""
    shares: Floats = np.zeros(bins)
    totals = rows.group_by("bin").agg(pl.col("stalled_ns").sum())
    shares[totals["bin"].to_numpy()] = totals["stalled_ns"].to_numpy() / full_ns
    shares = np.minimum(shares, 1.0)
    most = float(shares.max())
    cells = [
        (place, _colour(share))
        for place, share in enumerate(shares.tolist())
        if 100 * share >= LEAST_PERCENT
    ]
    return name, cells if most > 0 else [], percent(most)


def _colour(share: float) -> str:
    """Colour of a stall: means of classes and bins are small, so their cube roots are shown."""
    return colour(100 * share ** (1 / 3))


def _link(node: str, port: int, interface: str | None, verdict: Verdict) -> str:
    return link_name(port_name(node, port, interface), verdict.peers.get((node, port)))


def _share(value: float | None) -> str:
    return "?" if value is None else percent(value)


def _gbps(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
