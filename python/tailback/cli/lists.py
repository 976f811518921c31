"""``tailback list``: what Tailback knows, kind by kind."""

from __future__ import annotations

import json

import click

import tailback.counters.analysis.figures
import tailback.counters.readers
import tailback.diagnose.rules
import tailback.fabric.topologies
import tailback.placement
import tailback.remedy
import tailback.report
import tailback.simulate  # noqa: F401 - importing a package registers its parts
from tailback.cli.text import wrap
from tailback.errors import TailbackError, nearest
from tailback.registry import kinds
from tailback.schema import TABLES


@click.command("list")
@click.argument("kind", required=False)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              show_default=True, help="What to print.")  # fmt: skip
def list_parts(kind: str | None, form: str) -> None:
    """List what Tailback knows of KIND, or the kinds there are.

    \b
    tailback list
    tailback list pattern
    """
    known = {name: registry.summary for name, registry in kinds().items()}
    known["table"] = "tables of a run"
    if kind is None:
        entries = sorted(known.items())
    elif kind == "table":
        entries = [(table.name, f"a row is {table.row}") for table in TABLES.values()]
    elif kind in known:
        entries = [(entry.name, entry.summary) for entry in kinds()[kind]]
    else:
        raise TailbackError(f"unknown kind {kind!r}", remedy=nearest(kind, known))
    if form == "json":
        click.echo(json.dumps(dict(entries), indent=2))
        return
    width = max((len(name) for name, _ in entries), default=4)
    lines = [f"  {kind or 'kind'}"]
    for name, summary in entries:
        first = f"  {name:<{width}}  "
        lines += wrap(summary, " " * len(first), first) or [first.rstrip()]
    click.echo("\n".join(lines))
