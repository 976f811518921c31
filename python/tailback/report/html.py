"""The self-contained HTML report: one file, answer first, no network access.

Verdict, remedy and tables are plain HTML. The viewer draws every figure from the payload. Names
come from files and may be hostile: the template escapes all of them, data are in JSON that cannot
contain markup, and the page's policy forbids the network and any script or style but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import polars as pl
from markupsafe import Markup

from tailback.diagnosis.cause_wording import VERDICTS, verdict_name
from tailback.diagnosis.model import Diagnosis, Estimate, Finding, LinkEvidence
from tailback.diagnosis.waterfall import displayed_bars
from tailback.diagnosis.wording import (
    bar_name,
    confidence_sentence,
    measured_confidence,
)
from tailback.errors import RunError
from tailback.names.display import keep_units
from tailback.report.attribution import Attribution, CallSite, by_call_site
from tailback.report.difference import compared
from tailback.report.export import make_case
from tailback.report.figure_data import FigureCase
from tailback.report.measured_view import measured_view
from tailback.report.packing import safe_json
from tailback.report.page import asset, content_policy, template, write_page
from tailback.report.payload import build_payload, phases_carried
from tailback.report.story import story_of
from tailback.run.run import Run
from tailback.stages import stage
from tailback.units import format_time, percent
from tailback.version import version

EVIDENCE_SHOWN = 200
"""Rows of evidence in the report: more make it slow to open."""

LINES_SHOWN = 12


@stage("report")
def write_report(
    path: str | Path,
    run: Run,
    diagnosis: Diagnosis,
    *,
    before: Run | None = None,
    after: Run | None = None,
    files: Mapping[str, str] | None = None,
    attribution: Attribution | None = None,
    measured: Mapping[str, pl.DataFrame] | None = None,
) -> Path:
    """Write the report of a diagnosed run as one HTML file.

    Args:
        path: The file; an existing one is replaced, whole or not at all.
        run: The observed run.
        diagnosis: Its diagnosis.
        before: Re-simulation of the unchanged run, if it differs from ``run``.
        after: Re-simulation with the remedy.
        files: Content of each file of the remedy, by the name under which it is offered.
        attribution: Stall time of ``run`` by its causes, where it is known already.
        measured: Tables of the measured run that ``run`` is the expected one of.

    Returns:
        The path. The same input gives the same bytes.

    Raises:
        RunError: A run cannot be drawn, the runs are of different fabrics, or the file cannot be
            written.
    """
    page = render_report(
        run,
        diagnosis,
        before=before,
        after=after,
        files=files,
        attribution=attribution,
        measured=measured,
    )
    return write_page(path, page, "report")


def render_report(
    run: Run,
    diagnosis: Diagnosis,
    *,
    before: Run | None = None,
    after: Run | None = None,
    files: Mapping[str, str] | None = None,
    attribution: Attribution | None = None,
    measured: Mapping[str, pl.DataFrame] | None = None,
) -> str:
    """The report as text; arguments and errors as in :func:`write_report`."""
    case = replace(make_case(run, diagnosis, before, after, measured), attributed=attribution)
    shared = _common_parts(case)
    roots = _sort_by_bound(_root_links(diagnosis), case)
    return _template("report.html.j2").render(
        **shared,
        run=run,
        story=story_of(
            diagnosis,
            roots,
            shared["lines"],
            dict(case.observed.links.select("link", "reverse").iter_rows()),
        ),
        measured=measured_view(diagnosis, case.observed.load()),
        shares=_shares(diagnosis.findings),
        costless=_causes_without_cost(diagnosis),
        evidence=diagnosis.evidence[:EVIDENCE_SHOWN],
        weighed=list(dict.fromkeys(c for row in diagnosis.evidence for c in row.log_ratios)),
        root_links=roots,
        named_links=_named_links(case, roots),
        symptoms=_sort_by_bound(_symptoms(diagnosis), case),
        saving=_ideal_saving(diagnosis),
        bars=displayed_bars(diagnosis.waterfall),
        bar_name=bar_name,
        sure=confidence_sentence,
        sure_measured=measured_confidence,
        show_change=False,
        change_question="Does the remedy help, where, and does it harm anywhere?",
        steps=_steps(diagnosis, files or {}),
        provenance=_provenance(run),
        scenario=run.scenario.model_dump_json(indent=2),
    )


def _common_parts(case: FigureCase) -> dict[str, Any]:
    """Parts of every page with the viewer."""
    names, arrays = build_payload(case)
    viewer, look = asset("viewer.js"), asset("viewer.css")
    return {
        "version": version(),
        "policy": content_policy(viewer, look),
        # Markup: our own files, and JSON that safe_json escaped for a page.
        "viewer": Markup(viewer),
        "look": Markup(look),
        "data": Markup(safe_json(names)),
        "arrays": arrays,
        "diagnosis": case.diagnosis,
        "case": case,
        "causes": VERDICTS,
        "verdict": ""
        if case.diagnosis is None
        else verdict_name(case.diagnosis.cause, case.diagnosis.alternatives),
        "datasets": names["datasets"],
        "change": names["change"],
        "ranks": names["ranks"],
        "has_stall": any(dataset["truth"] for dataset in names["datasets"]),
        "bar_plots": names["bars"],
        "column_plots": names["columns"],
        "points": names["points"],
        "grids": names["grids"],
        # Grids and the raster show positions of switches, a single row does not.
        "node_link": names["grids"] is None
        and (names["layout"]["tiers"] > 1 or len(names["switch_names"]) == 1),
        "attribution": case.attribution,
        "lines": _worst_lines(case),
        "phases_left_out": len(case.observed.phases) - len(phases_carried(case.observed)),
        "link_count": case.observed.n_links,
    }


def write_comparison(
    path: str | Path,
    before: Run,
    after: Run,
    short: Sequence[tuple[str, str, str, str]],
    *,
    names: tuple[str, str] = ("before", "after"),
    reports: tuple[str, str] = ("", ""),
) -> Path:
    """Write two runs of one fabric as differences, as one HTML file.

    Args:
        path: The file; an existing one is replaced, whole or not at all.
        before: The run that is compared with.
        after: The other run.
        short: Rows for the top of the page: name, value before, value after, change.
        names: Names of the two runs.
        reports: Addresses of their reports, relative to the page; empty where there is none.

    Returns:
        The path. The same input gives the same bytes.

    Raises:
        RunError: A run cannot be drawn, the runs are of different fabrics, a run has no samples,
            or the file cannot be written.
    """
    case = replace(make_case(before, None, None, after), names=names, labels=names)
    if compared(case) is None:
        raise RunError(
            "one of the runs has no samples, so the two cannot be compared link by link",
            remedy='simulate with [telemetry] scheme = "full"',
        )
    first_facts, other = (dict(_provenance(run)) for run in (before, after))
    page = _template("compare.html.j2").render(
        **_common_parts(case),
        headline=_headline(before, after, names),
        reports=_report_links(reports, names),
        short=short,
        show_change=True,
        change_question="Where did it get better or worse, for whom, and is it more than noise?",
        provenance=[
            (name, first_facts.get(name, "–"), other.get(name, "–"))
            for name in {**first_facts, **other}
        ],
    )
    return write_page(path, page, "comparison")


def _report_links(reports: tuple[str, str], names: tuple[str, str]) -> list[tuple[str, str]]:
    """Reports with the words of their links: one where both runs are of the same result."""
    links = [
        (address, f"Report of {name}")
        for address, name in zip(reports, names, strict=True)
        if address
    ]
    if len(links) == 2 and links[0][0] == links[1][0]:
        return [(links[0][0], "Report")]
    return links


def _headline(before: Run, after: Run, names: tuple[str, str]) -> str:
    if not before.elapsed_ps:
        return f"{names[1]} against {names[0]}"
    change = after.elapsed_ps / before.elapsed_ps - 1
    how = (
        "as long as"
        if abs(change) < 0.0005
        else (f"{percent(abs(change), 1)} {'longer' if change > 0 else 'less time'} than")
    )
    return f"{names[1]} takes {how} {names[0]}."


@cache
def _template(name: str) -> jinja2.Template:
    return template(
        name,
        {
            "time": lambda ps: keep_units(format_time(ps)),
            "percent": lambda share, digits=None: keep_units(percent(share, digits)),
            "keep_units": keep_units,
        },
    )


def _shares(findings: list[Finding]) -> list[tuple[str, float, float]]:
    """``(cause, start, share)`` of the congested packets, largest first; they sum to 1 at most."""
    total: dict[str, float] = {}
    for finding in findings:
        total[finding.cause] = total.get(finding.cause, 0.0) + max(finding.share, 0.0)
    scale = 1.0 / max(sum(total.values()), 1.0)
    out, start = [], 0.0
    for cause, share in sorted(total.items(), key=lambda item: -item[1]):
        if share > 0:
            out.append((cause, start, share * scale))
            start += share * scale
    return out


_STEP_OF = {
    "routing": "routing",
    "placement": "placement",
    "pattern": "pattern",
    "in-host": "in-host",
    "injection": "injection",
    "slow-link": "slow links",
    "other-traffic": "other traffic",
}
"""Step of the waterfall that gives the cost of each cause in time."""

COSTLESS = 0.005
"""Share of the time below which a step of the waterfall is not worth a remedy."""


def _causes_without_cost(diagnosis: Diagnosis) -> list[str]:
    """Causes of congested packets that cost no time by re-simulation."""
    delta = {bar.name: max(bar.delta_ps, bar.high_ps) for bar in diagnosis.waterfall}
    least = COSTLESS * diagnosis.modelled_ps
    shares = {cause: share for cause, _, share in _shares(diagnosis.findings)}
    return [
        cause
        for cause, share in shares.items()
        if share >= 0.05 and delta.get(_STEP_OF.get(cause, ""), least + 1) <= least
    ]


def _sort_by_bound(links: Iterable[LinkEvidence], case: FigureCase) -> list[LinkEvidence]:
    """Links with the fractions that the plots draw, by lower bound of their congestion.

    The highest fractions in the raw samples are mostly those with the largest positive errors.
    """
    shrunk = case.observed.load().shrunk
    assert shrunk is not None  # a load of links

    def drawn(link: LinkEvidence) -> LinkEvidence:
        if np.isnan(shrunk.value[link.link]):
            return link
        value, error, low, high = (
            float(column[link.link])
            for column in (shrunk.value, shrunk.error, shrunk.low, shrunk.high)
        )
        estimate = Estimate(value=value, standard_error=error, low=low, high=high)
        return link.model_copy(update={"congested_fraction": estimate})

    return sorted(map(drawn, links), key=lambda link: (-link.congested_fraction.low, link.link))


def _root_links(diagnosis: Diagnosis) -> list[LinkEvidence]:
    """Roots of congestion trees in the findings."""
    return list(
        {link.link: link for finding in diagnosis.findings for link in finding.links}.values()
    )


def _named_links(case: FigureCase, roots: Sequence[LinkEvidence]) -> list[dict[str, Any]]:
    """Links that the verdict names and that are no root in the expected run, for the table."""
    observed, load = case.observed, case.observed.load()
    shrunk, listed = load.shrunk, {link.link for link in roots}
    assert shrunk is not None  # a load of links
    return [
        {
            "link": link,
            "name": observed.link_names[link],
            "tier": int(observed.tier[link]),
            "direction": str(observed.direction[link]),
            "value": float(shrunk.value[link]),
            "low": float(shrunk.low[link]),
            "high": float(shrunk.high[link]),
            "samples": int(load.samples[link]),
        }
        for link in case.roots
        if link not in listed and link < observed.n_links
    ]


def _symptoms(diagnosis: Diagnosis) -> list[LinkEvidence]:
    """Links with the most congested packets, without the roots."""
    roots = {link.link for link in _root_links(diagnosis)}
    return [link for link in diagnosis.top_links if link.link not in roots]


def _ideal_saving(diagnosis: Diagnosis) -> tuple[int, float] | None:
    """The ideal time, and the share of the expected time that lies above it."""
    if not diagnosis.waterfall or diagnosis.modelled_ps <= 0:
        return None
    ideal = diagnosis.waterfall[0].elapsed_ps
    return ideal, max(0.0, 1.0 - ideal / diagnosis.modelled_ps)


def _worst_lines(case: FigureCase) -> list[CallSite]:
    """Lines of the program with the most stall, places congested by the same line combined."""
    attribution = case.attribution
    return [] if attribution is None else by_call_site(attribution)[:LINES_SHOWN]


def _downloads(diagnosis: Diagnosis, files: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """``(name, purpose, address)`` of each file of the remedy, in the remedy's order."""
    purposes = diagnosis.remedy.files if diagnosis.remedy else {}
    order = [
        *(name for name in purposes if name in files),
        *(name for name in files if name not in purposes),
    ]
    out = []
    for name in order:
        content = base64.b64encode(files[name].encode("utf-8")).decode("ascii")
        address = f"data:text/plain;charset=utf-8;base64,{content}"
        out.append((name, purposes.get(name, ""), address))
    return out


def _steps(
    diagnosis: Diagnosis, files: Mapping[str, str]
) -> list[tuple[tuple[str, str, str] | None, str | None]]:
    """Each file of the remedy with the command that uses it, in the remedy's order.

    With one command per file, as the remedy writes them, files and commands pair up in order.
    Otherwise each command belongs to the first file it names.
    """
    downloads = _downloads(diagnosis, files)
    commands = diagnosis.remedy.commands if diagnosis.remedy else []
    if len(downloads) == len(commands):
        return list(zip(downloads, commands, strict=True))
    left: list[str | None] = list(commands)
    out: list[tuple[tuple[str, str, str] | None, str | None]] = []
    for download in downloads:
        mine = next((command for command in left if command and download[0] in command), None)
        if mine is not None:
            left.remove(mine)
        out.append((download, mine))
    return out + [(None, command) for command in left]


def _model(run: Run) -> str:
    """Origin of the numbers of a run."""
    if "captured" in run.tables["jobs"]["placement"]:
        return "none: captured packets"
    return "packet engine" if run.summary.get("model", "packet") == "packet" else "fluid"


def _skips(run: Run) -> list[tuple[str, str]]:
    """Steps that were not simulated, job by job."""
    jobs = run.tables["jobs"].select("job", "name")
    return [
        (
            f"Steps extrapolated, job {row['name']!r}",
            f"{row['steps']:,} from step {row['first_step']:,} on, from {row['basis']:,} simulated "
            f"ones: {format_time(row['time_ps'])}"
            + (", exact" if row["exact"] else f" ± {format_time(row['half_ps'])} (95 %)"),
        )
        for row in run.tables["skips"].join(jobs, on="job", maintain_order="left").to_dicts()
    ]


def _provenance(run: Run) -> list[tuple[str, Any]]:
    scenario, summary = run.scenario, run.summary
    digest = hashlib.sha256(scenario.model_dump_json(indent=2).encode()).hexdigest()
    rows = [
        ("Scenario", scenario.name),
        ("Seed", scenario.seed),
        ("Scenario SHA-256", digest),
        ("Model", _model(run)),
        ("Written by", f"Tailback {version()}"),
        (
            "Nodes, switches, directed links",
            ", ".join(f"{run.tables[name].height:,}" for name in ("nodes", "switches", "links")),
        ),
    ]
    labels = {
        "packets": "Packets",
        "observed_packets": "Packets of observed jobs",
        "packet_hops": "Packet hops",
        "average_path_length": "Switches a packet visits",
        "vc_refused": "Flows refused an entry (VC routing)",
        "marked_packets": "Packets marked by congestion control",
        "congestion_notifications": "Congestion notifications (CNP)",
        "pauses": "Pauses of links (PFC)",
    }
    for key, label in labels.items():
        if summary.get(key):
            value = summary[key]
            rows.append((label, f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"))
    if "pacing" in summary:
        rows.append(("Flows are paced", summary["pacing"]))
    rows += _skips(run)
    if not run.complete:
        rows.append(("Completeness", "interrupted: the tables end where the run was stopped"))
    return rows
