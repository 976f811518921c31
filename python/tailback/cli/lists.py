"""``tailback list``: the parts of Tailback, kind by kind."""

from __future__ import annotations

import json
from importlib import import_module

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.option_types import format_option
from tailback.cli.text import wrap
from tailback.errors import TailbackError, nearest
from tailback.registry import Registry, kinds
from tailback.run.schema import TABLES

PACKAGES = (
    "tailback.scenario.header_schemes",
    "tailback.telemetry.path_hash",
    "tailback.fabric.topologies",
    "tailback.placement",
    "tailback.port_counters.readers",
    "tailback.calibration.readers",
    "tailback.evidence.jobs",
    "tailback.telemetry.samples_csv",
    "tailback.simulation",
    "tailback.remedy",
    "tailback.report",
    "tailback.report.exports",
)
"""Importing a package registers its parts, all of a kind at once. The quick ones come first."""


def registries(kind: str | None) -> dict[str, Registry[object]]:
    """All registries; those needed to know of ``kind`` if there is one of that name."""
    for package in PACKAGES:
        if kind in kinds():
            break
        import_module(package)
    return kinds()


@click.command("list", cls=GroupedHelp)
@click.argument("kind", required=False)
@format_option
def list_parts(kind: str | None, form: str) -> None:
    """List the parts of KIND, or all kinds.

    \b
    tailback list
    tailback list pattern
    """
    if kind == "table":
        entries = [(table.name, f"a row is {table.row}") for table in TABLES.values()]
    elif kind in (registry_of_kind := registries(kind)):
        entries = [(entry.name, entry.summary) for entry in registry_of_kind[kind]]
    else:
        summaries = {name: registry.summary for name, registry in registry_of_kind.items()}
        summaries["table"] = "tables of a run"
        if kind is not None:
            raise TailbackError(f"unknown kind {kind!r}", remedy=nearest(kind, summaries))
        entries = sorted(summaries.items())
    tells = {
        entry.name: entry.part.CAPABILITIES._asdict()
        for entry in kinds().get(kind or "", ())
        if hasattr(entry.part, "CAPABILITIES")
    }
    if form == "json":
        described = {
            name: {"summary": summary, **tells[name]} if name in tells else summary
            for name, summary in entries
        }
        click.echo(json.dumps(described, indent=2))
        return
    width = max((len(name) for name, _ in entries), default=4)
    lines = [f"  {kind or 'kind'}"]
    for name, summary in entries:
        first = f"  {name:<{width}}  "
        lines += wrap(summary, " " * len(first), first) or [first.rstrip()]
        lines += _capability_lines(tells.get(name, {}), " " * len(first))
    click.echo("\n".join(lines))


def _capability_lines(tells: dict[str, str], indent: str) -> list[str]:
    """Recorded and missing facts of a format, one line each."""
    width = max((len(what) for what in tells), default=0)
    lines = []
    for what, text in tells.items():
        first = f"{indent}{what.replace('_', ' '):<{width}}  "
        lines += wrap(text, " " * len(first), first)
    return lines
