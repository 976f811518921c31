"""``tailback calibrate``: settings of the engine from benchmarks of a machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import format_option
from tailback.cli.result import show
from tailback.cli.text import align_columns, command_lines, wrap
from tailback.units import bytes_in_unit, time_in_unit

if TYPE_CHECKING:
    from tailback.calibration.estimates import FittedValue
    from tailback.calibration.file import Calibration


@click.command(cls=GroupedHelp)
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--fabric",
    metavar="FILE|PRESET",
    help="Network of the machine: a file, a preset or a scenario.",
)
@click.option(
    "--hosts",
    metavar="SPEC",
    help="Hosts that FILES ran on, in rank order, like node[001-002]; FILE@SPEC for one of them.",
)
@click.option(
    "--rankfile",
    type=click.Path(path_type=Path),
    help="The same from a file: a CSV of rank and host, a rank file or a host list.",
)
@click.option("--out", type=click.Path(path_type=Path), help="File for the settings (TOML).")
@click.option("--force", is_flag=True, help="Overwrite that file.")
@format_option
def calibrate(
    files: tuple[str, ...],
    fabric: str | None,
    hosts: str | None,
    rankfile: Path | None,
    out: Path | None,
    force: bool,
    form: str,
) -> int:
    """Fit the engine's settings to a machine, each with its 95 % interval.

    FILES are outputs of benchmarks ('tailback list benchmark'), or traces that
    have times (OTF2, DUMPI, Nsight Systems).
    FILE@HOST,HOST says where one ran, FILE@HOST that both ranks shared a host.
    Latencies over two different numbers of switches separate switch from software delay.

    \b
    tailback calibrate near.txt@n1,n2 far.txt@n1,n99 bw.txt@n1,n2 \\
        --fabric fabric.txt --out machine.toml
    """
    with loading():
        from tailback.api.calibrate import calibrate as fit_machine
    calibration = fit_machine(files, fabric=fabric, hosts=hosts, rankfile=rankfile)
    if out is not None:
        calibration.write(out, force=force)
    if form == "json":
        facts = {
            "parameters": calibration.frame.to_dicts(),
            "not_identified": calibration.not_identified,
            "disagreements": [asdict(disagreement) for disagreement in calibration.disagreements],
            "notes": calibration.notes,
        }
        return show(json.dumps(facts, indent=2), 0)
    return show("\n".join(_screen(calibration, out)), 0)


def _screen(calibration: Calibration, out: Path | None) -> list[str]:
    """The screen: hosts that disagree, values with intervals, what is unknown, notes."""
    from tailback.io.folders import shell_path

    lines = []
    for disagreement in calibration.disagreements:
        lines += ["HOSTS DISAGREE", *wrap(disagreement.text()), ""]
    for title, some in (
        ("CALIBRATION  settings of the engine", calibration.engine),
        ("MEASURED  without a setting of the engine", calibration.measured),
    ):
        if some:
            rows = [_row(fitted) for fitted in some]
            header = ("parameter", "value", "95 % interval", "n", "from")
            lines += [title, *align_columns(header, rows, " r r", names=(4,)), ""]
    if calibration.not_identified:
        lines.append("NOT IDENTIFIED  left at the default")
        for name, why in calibration.not_identified.items():
            lines += wrap(f"{name}: {why}")
        lines.append("")
    for note in calibration.notes:
        lines += wrap(f"note: {note}")
    if out is not None:
        use = f"--calibration {shell_path(out)}"
        lines += ["", "NEXT", *command_lines(f"tailback diagnose TRACE --fabric FABRIC {use}")]
    else:
        lines += ["", "NEXT  add --out machine.toml to use these settings in a diagnosis"]
    return lines


def _row(fitted: FittedValue) -> tuple[str, ...]:
    (low, unit), (high, last) = (_format_value(fitted, end) for end in (fitted.low, fitted.high))
    between = f"{high} {last}"
    if (low, unit) != (high, last):
        between = f"{low}–{between}" if unit == last else f"{low} {unit}–{between}"
    return (
        fitted.name,
        " ".join(_format_value(fitted, fitted.value)),
        between,
        f"{fitted.n:,}",
        fitted.source,
    )


def _format_value(fitted: FittedValue, value: float) -> tuple[str, str]:
    """A number and its unit."""
    if fitted.kind == "time":
        return time_in_unit(value)
    return bytes_in_unit(round(value)) if fitted.kind == "size" else (f"{value:.4g}", "Gb/s")
