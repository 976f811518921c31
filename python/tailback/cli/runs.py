"""Reading runs for a command: notes go to stderr."""

from __future__ import annotations

from pathlib import Path

import click

from tailback.api import runs
from tailback.api.source import read_base_run
from tailback.cli.text import wrap
from tailback.run import Run


def read_samples(folder: Path) -> Run:
    """Read a run with the samples that its packets carried, whatever their scheme."""
    return with_samples(read_base_run(folder))


def with_samples(run: Run) -> Run:
    """As :func:`tailback.api.runs.with_samples`; prints the notes of decoding to stderr."""
    decoded = runs.with_samples(run)
    for note in decoded.notes[len(run.notes) :]:
        click.echo("\n".join(wrap(f"note: {note}")), err=True)
    return decoded


def default_output(folder: Path, ending: str) -> Path:
    """The default output next to ``folder``: its name with another suffix, also for ``.``."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return Path(f"{named}{ending}")
