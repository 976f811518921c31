"""``tailback simulate``: run a scenario and keep its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tailback.cli.progress import meter
from tailback.cli.render import columns
from tailback.cli.source import scenario_from, source_options
from tailback.remedy.placements import congested_hops
from tailback.run import Run, claim
from tailback.simulate import prepare
from tailback.simulate import simulate as run_scenario
from tailback.units import format_time


@click.command(short_help="Simulate a scenario and keep its tables.")
@source_options
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the tables of the run.")
@click.option("--force", is_flag=True, help="Replace that folder if Tailback wrote it.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def simulate(out: Path | None, force: bool, form: str, quiet: bool, **source: Any) -> None:
    """Simulate a scenario (SOURCE: a .toml file, or a trace with --fabric).

    \b
    tailback simulate examples/stencil2d/row-major.toml --out run
    """
    if out is not None:
        claim(out, force=force)
    scenario = scenario_from(**source)
    with meter(quiet) as progress:
        prepared = prepare(scenario)
        progress.step("simulating", 0.0)
        run = run_scenario(prepared, progress.watch)
    if out is not None:
        run.write(out, force=force)
    facts = run_facts(run)
    if form == "json":
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo("\n".join(run_lines(run, facts)))
    if out is not None:
        click.echo(f"\nNEXT  tailback report {out}")


def run_facts(run: Run) -> dict[str, Any]:
    """What ``--format json`` prints of a run."""
    return {
        "name": run.scenario.name,
        "seed": run.scenario.seed,
        **run.summary,
        "congested_hop_fraction": congested_hops(run),
        "notes": run.notes,
        "performance": run.performance,
    }


def run_lines(run: Run, facts: dict[str, Any]) -> list[str]:
    """A run in a few lines."""
    rows = [
        ("elapsed", format_time(run.elapsed_ps)),
        ("messages", f"{facts['messages']:,}"),
        ("packets", f"{facts['packets']:,}"),
        ("average path length", f"{facts['average_path_length']:.3f} switches"),
        ("congested hops", f"{100 * facts['congested_hop_fraction']:.2f} %"),
        ("simulated in", f"{run.performance['engine_seconds']:.2f} s "
         f"({run.performance['packet_hops_per_s'] / 1e6:.1f} M packet-hops/s)"),
    ]  # fmt: skip
    return [f"RUN  {run.scenario.name}", *columns(("", ""), rows)[1:]]
