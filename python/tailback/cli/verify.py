"""``tailback verify``: a diagnosis repeated, and compared with its folder number by number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import format_option, quiet_option
from tailback.cli.progress import meter
from tailback.cli.result import EXIT_OK, EXIT_REFUTED, EXIT_UNDETERMINED, show
from tailback.cli.text import more_line, wrap
from tailback.units import counted

if TYPE_CHECKING:
    from tailback.sources.verification import Verification

_EXIT = {"stands": EXIT_OK, "differs": EXIT_REFUTED, "not-repeatable": EXIT_UNDETERMINED}

MOST_SHOWN = 10
"""Differences on the screen, each on about two lines; JSON has all."""


@click.command(cls=GroupedHelp)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where its inputs are, if moved together.",
)
@click.option(
    "--threads", type=click.IntRange(1), help="Threads that simulate (default: idle cores)."
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Simulate on N processes besides this one.",
)
@format_option
@quiet_option
def verify(
    folder: Path,
    inputs: Path | None,
    threads: int | None,
    workers: int | None,
    form: str,
    quiet: bool,
) -> int:
    """Repeat a diagnosis, and compare it bit for bit with its folder.

    Exit code 0: all files, inputs and results are the same. 1: something else came out. 2: a file
    is damaged or missing, or FOLDER is no diagnosis. 3: another version made it, or its inputs are
    gone or have changed.

    \b
    tailback verify diagnosis --inputs copies/
    """
    with loading():
        from tailback.api.verify import verify as api_verify
    with meter(quiet) as progress:
        result = api_verify(
            folder,
            inputs=inputs,
            threads=threads,
            workers=workers,
            progress=progress.step,
            watch=progress.watch,
        )
    code = _EXIT[result.outcome]
    if form == "json":
        return show(result.model_dump_json(indent=2), code)
    return show("\n".join(verification_lines(result)), code)


def verification_lines(result: Verification) -> list[str]:
    """The screen: outcome, and each number that came out differently."""
    label = result.outcome.upper().replace("-", " ")
    lines = wrap(_outcome(result), first=f"{label}  ")
    if result.differences:
        lines += ["", "  file, place: in the folder → again"]
        for each in result.differences[:MOST_SHOWN]:
            where = f"{each.file}, {each.place}" if each.place else each.file
            lines += wrap(f"{where}: {each.stated} → {each.again}", indent="      ", first="  ")
        lines += more_line(len(result.differences) - MOST_SHOWN)
    if result.not_compared:
        names = ", ".join(result.not_compared)
        lines += ["", *wrap(f"not compared (wall-clock times, figures, files of others): {names}")]
    return lines


def _outcome(result: Verification) -> str:
    files = f"{counted(result.checked, 'file')} have the stated SHA-256"
    if result.outcome == "not-repeatable":
        return f"{result.reason}. {files}."
    remedy = f" The remedy is {result.remedy}." if result.remedy else ""
    inputs = counted(len(result.inputs), "input")
    same = (
        f"All {result.compared} files came out the same from {inputs}"
        if result.outcome == "stands"
        else f"{counted(len({each.file for each in result.differences}), 'file')} of "
        f"{result.compared} came out differently from {inputs}"
    )
    return f"{result.headline}{remedy} {same}; {files}."
