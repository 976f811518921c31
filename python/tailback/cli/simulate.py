"""``tailback simulate``: run a scenario and keep its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import OneOf, format_option, profile_option, quiet_option
from tailback.cli.progress import meter, profiled
from tailback.cli.source import source_options
from tailback.cli.text import wrap
from tailback.names.display import printable
from tailback.units import format_time, percent

if TYPE_CHECKING:
    from tailback.run.run import Run


@click.command(cls=GroupedHelp)
@source_options
@click.option(
    "--model",
    type=OneOf(["packet", "fluid"]),
    default="packet",
    show_default=True,
    help="Simulate packets, or rates: faster, but an estimate.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the tables of the run (default: not kept).",
)
@click.option("--force", is_flag=True, help="Replace that folder if Tailback wrote it.")
@format_option
@profile_option
@quiet_option
def simulate(
    model: str,
    out: Path | None,
    force: bool,
    form: str,
    profile: bool,
    quiet: bool,
    **source: Any,
) -> None:
    """Simulate a scenario (SOURCE: a .toml file, or a trace with --fabric).

    \b
    tailback simulate examples/stencil2d/stencil2d.toml --out run
    tailback simulate examples/stencil2d/stencil2d.toml --model fluid
    """
    with loading():
        from tailback.api.simulate import simulate as run_scenario
        from tailback.io.folders import check_writable, shell_path
    path = source.pop("source")
    if out is not None:
        check_writable(out, force=force, sources=[path])
    with profiled(profile), meter(quiet) as progress:
        run = run_scenario(
            path,
            model=cast(Literal["packet", "fluid"], model),
            partial=True,
            progress=progress.step,
            watch=progress.watch,
            **source,
        )
        if out is not None:
            run.write(out, force=force)
    facts = run_facts(run)
    if form == "json":
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo("\n".join(run_lines(run, facts)))
    if not run.complete:
        kept = f"the partial tables are in {out}" if out is not None else "nothing was kept"
        click.echo(f"\nINTERRUPTED at {format_time(run.summary['end_ps'])}: {kept}", err=True)
        raise SystemExit(130)
    if form == "text" and out is not None:
        command = "report" if model == "packet" else "diagnose"
        click.echo(f"\nNEXT  tailback {command} {shell_path(out)}")


def run_facts(run: Run) -> dict[str, Any]:
    """Facts of a run for ``--format json``."""
    from tailback.api.runs import congestion_of, model_of

    return {
        "name": run.scenario.name,
        "seed": run.scenario.seed,
        "model": model_of(run),
        **run.summary,
        "congested_hop_fraction": congestion_of(run),
        "notes": run.notes,
        "performance": run.performance,
    }


ASKED_FOR = {
    "vc_refused": "flows refused an entry",
    "marked_packets": "packets marked",
    "congestion_notifications": "notifications (CNP)",
    "pauses": "pauses of links (PFC)",
}
"""Values that are shown only if present."""
_NOTES = 5
"""Notes on the screen."""


def _not_counted(run: Run) -> str:
    """Why a run has no congestion."""
    from tailback.api.runs import model_of

    if model_of(run) == "fluid":
        return "not known to this model"
    return 'not counted with [telemetry] scheme = "off"'


def run_lines(run: Run, facts: dict[str, Any]) -> list[str]:
    """A run in a few lines."""
    from tailback.api.runs import model_description

    seconds = run.performance["engine_seconds"]
    hops = run.performance.get("packet_hops_per_s")
    speed = f" ({hops / 1e6:.1f} M packet-hops/s)" if hops is not None else ""
    congested = facts["congested_hop_fraction"]
    rows = [
        ("model", model_description(run)),
        ("elapsed", format_time(run.elapsed_ps)),
        ("messages", f"{facts['messages']:,}"),
        ("packets", f"{facts['packets']:,}"),
        ("average path length", f"{facts['average_path_length']:.3f} switches"),
        ("congested hops", _not_counted(run) if congested is None else percent(congested, 2)),
        *([("pacing", facts["pacing"])] if "pacing" in facts else []),
        *((label, f"{facts[key]:,}") for key, label in ASKED_FOR.items() if facts.get(key)),
        ("simulated in", f"{seconds:.2f} s{speed}"),
    ]
    lines = [f"RUN  {printable(run.scenario.name)}"]
    wide = max(len(label) for label, _ in rows)
    for label, value in rows:
        lines += wrap(value, " " * (wide + 4), f"  {label:<{wide}}  ")
    # Traffic missing from a trace or fabric may be most of the traffic.
    for note in run.notes[:_NOTES]:
        lines += wrap(f"note: {note}")
    if len(run.notes) > _NOTES:
        lines += [f"  note: {len(run.notes) - _NOTES} more (--format json lists all)"]
    return lines
