"""Which model a run comes from, and what may be said of it."""

from __future__ import annotations

from pathlib import Path

import click

from tailback.cli.text import wrap
from tailback.errors import RunError
from tailback.remedy.proof import congested_hops
from tailback.run import Run, run_folder


def read_run(folder: Path) -> Run:
    """Read a run, or the run of a result of ``diagnose``; raises RunError."""
    return Run.read(run_folder(folder))


def read_samples(folder: Path) -> Run:
    """As :func:`read_run`, with the samples that its packets carried, whatever their scheme."""
    return with_samples(read_run(folder))


def with_samples(run: Run) -> Run:
    """The run with table ``samples`` decoded from its packets, unless that has been done before.

    Where that cannot be done the reason goes to stderr.
    """
    if run.tables["samples"].height:
        return run
    # Deferred: most runs are of scheme full, whose samples the engine sums up.
    from tailback.simulate.decode import decode_samples

    decoded = decode_samples(run)
    for note in decoded.notes[len(run.notes) :]:
        click.echo("\n".join(wrap(f"note: {note}")), err=True)
    return decoded


def default_output(folder: Path, ending: str) -> Path:
    """What is written beside ``folder`` by default: its name and an ending, also for ``.``."""
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return Path(f"{named}{ending}")


def model_of(run: Run) -> str:
    """``fluid`` or ``packet``."""
    return str(run.summary.get("model", "packet"))


def model_description(run: Run) -> str:
    """The model in a few words, with what it was told."""
    if model_of(run) == "packet":
        return "packet engine"
    return f"fluid: {run.summary['rates']} rates, {run.summary['paths']} paths; an estimate"


def congestion_of(run: Run) -> float | None:
    """Congested packet-hops over packet-hops, 0–1; None where nobody counted them.

    The fluid model knows no queues, and with scheme ``off`` the packet engine does not look.
    """
    return congested_hops(run) if model_of(run) == "packet" else None


def require_packets(run: Run, folder: Path, purpose: str) -> None:
    """Refuse a run that has no packets.

    Raises:
        RunError: It is of the fluid model.
    """
    if model_of(run) != "packet":
        raise RunError(
            f"this run is of the fluid model: it has no samples and no congestion to {purpose}",
            file=folder,
            remedy=f"simulate it with packets: tailback diagnose {folder}; or set it beside "
            "another run: tailback compare",
        )
