"""Reading runs for a command: notes go to stderr."""

from __future__ import annotations

from pathlib import Path

import click

from tailback.api import runs
from tailback.cli.text import wrap
from tailback.errors import RunError
from tailback.run.run import Run
from tailback.sources.source import read_base_run
from tailback.telemetry.run_views import received_by


def read_samples(folder: Path, host: str | None = None) -> Run:
    """Read a run with the samples that its packets carried, whatever their scheme.

    With ``host`` only those that this host received.
    """
    run = read_base_run(folder)
    if host is None:
        return with_samples(run)
    try:
        return with_samples(received_by(run, host))
    except RunError as error:
        raise error.located(folder) from None


def with_samples(run: Run) -> Run:
    """As :func:`tailback.api.runs.with_samples`; prints the notes of decoding to stderr."""
    decoded = runs.with_samples(run)
    for note in decoded.notes[len(run.notes) :]:
        click.echo("\n".join(wrap(f"note: {note}")), err=True)
    return decoded


def skip_lines(run: Run) -> list[str]:
    """Lines on the extrapolated steps of a run; none if all were simulated."""
    return [line for note in run.skip_notes for line in wrap(f"note: {note}")]


def default_output(folder: Path, ending: str) -> Path:
    """The default output next to ``folder``: its name with another suffix, also for ``.``."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return Path(f"{named}{ending}")
