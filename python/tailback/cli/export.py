"""``tailback export``: runs in the formats of other tools."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import click
import polars as pl

from tailback.api.runs import require_packets
from tailback.cli.grouped_help import GroupedHelp, SuggestingGroup
from tailback.cli.option_types import OneOf
from tailback.cli.runs import read_samples, skip_lines
from tailback.cli.text import align_columns, wrap
from tailback.errors import FabricError, RunError, TailbackError
from tailback.evidence.measure import measure
from tailback.io.delimited import for_spreadsheets
from tailback.io.folders import AtomicDirectory
from tailback.names.ports import link_names
from tailback.report import attribute, to_table
from tailback.report.exports import EXPORTS, Result
from tailback.run.run import Run, atomic_file
from tailback.simulation.decode import link_counts
from tailback.simulation.prepare import programs_of
from tailback.sources.diagnosis_folder import (
    is_diagnosis,
    read_diagnosis,
    read_measured_tables,
)
from tailback.sources.source import read_base_run as read_run
from tailback.telemetry.call_times import call_bytes, call_times
from tailback.telemetry.capture import packets_of
from tailback.telemetry.pcap import write_pcap
from tailback.telemetry.run_views import Side

_SHOWN = 10
"""Links on the screen; the CSV has all."""


@click.group(cls=SuggestingGroup)
def export() -> None:
    """Export a run in the formats of other tools."""


@export.command(short_help="Packets with their samples, as an InfiniBand capture.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--host", metavar="NAME", help="Only packets to or from this host.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of packets.")
@click.option(
    "--payload",
    type=click.IntRange(0, 4096),
    default=0,
    show_default=True,
    metavar="BYTES",
    help="Bytes of payload to write per packet, all zero.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
def pcap(
    run: Path, out: Path, host: str | None, limit: int | None, payload: int, force: bool
) -> None:
    """Write packets of RUN as an InfiniBand capture OUT for Wireshark and tshark.

    The sample is in the six reserved bits behind FECN and BECN, both checksums are right. The
    scenario of the run needs [telemetry] scheme = "compact" with hash_bits + count_bits up to 5,
    or "coordinated" or "xor-digest" with hash_bits up to 5: six bits or less.
    """
    _require_outside(run, out)
    read = read_run(run)
    require_packets(read, run, "export")
    try:
        packets = packets_of(read, host=host, limit=limit, payload=payload)
        count = write_pcap(out, packets, force)
    except RunError as error:
        raise error.located(run) from None
    click.echo(f"{count:,} packets written to {out}")


@export.command(short_help="Calls of captured packets, for 'diagnose CAPTURE --contexts'.")
@click.argument("recording", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--side",
    type=click.Choice(["sender", "receiver"]),
    default="sender",
    show_default=True,
    help="Calls that send, or in which receives are over.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
def contexts(recording: Path, out: Path, side: Side, force: bool) -> None:
    """Write the bytes of TCP, or else the times, of the calls of RECORDING to OUT (CSV).

    RECORDING is a folder of 'tailback record', or a trace with dates and hosts. In a folder of
    contexts, OUT attributes the packets of captures of that time to calls.
    """
    _require_outside(recording, out)
    try:
        table = call_bytes(recording) if side == "sender" else None
        rows = "messages" if table is None else "byte ranges"
        table = call_times(measure(recording), side) if table is None else table
    except RunError as error:
        raise error.located(recording) from None
    _write(out, force, for_spreadsheets(table).write_csv)
    click.echo(f"{table.height:,} {rows} written to {out}")


@export.command(short_help="Counts of links, decoded from the samples of packets.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path), required=False)
@click.option("--host", metavar="NAME", help="Only packets that this host received.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def counts(run: Path, out: Path | None, host: str | None, force: bool) -> None:
    """Estimated packets of every link of RUN from its samples, to OUT (CSV) or the screen.

    With --host the samples are those of one receiver, decoded on their own: what this host knows.
    """
    if out is not None:
        _require_outside(run, out)
    read = read_run(run)
    require_packets(read, run, "export")
    try:
        table = link_counts(read, host)
    except (FabricError, RunError) as error:
        raise error.located(run) from None
    links = read.tables["links"]
    names = pl.Series("port", link_names(links))
    named = links.select("link", names).join(table, on="link", maintain_order="left")
    _state_skips(read)
    if out is not None:
        _write(out, force, for_spreadsheets(named).write_csv)
        click.echo(f"{named.height:,} links written to {out}")
        return
    click.echo("\n".join(_most_congested(named)))


def _most_congested(named: pl.DataFrame) -> list[str]:
    """The links with most congested packets, else with most packets, and unknown counts."""
    # Scheme csig only counts the packets whose bottleneck a link was.
    counted_columns = [
        name
        for name in ("congested", "bottleneck", "packets")
        if name in named.columns and named[name].null_count() < named.height
    ]
    if not counted_columns:
        return wrap("The samples of this run count neither packets nor congested packets.")
    lines = []
    if "congested" not in counted_columns:
        lines = wrap("Congested packets of links are not counted by the samples of this run.")
    elif not (named["congested"] > 0).any():
        lines = wrap("No packet met congestion. The links with most packets:")
    most = named.sort(counted_columns, descending=True, nulls_last=True).head(_SHOWN)
    most = most.filter(pl.any_horizontal(pl.col(counted_columns) > 0))
    shown = [name for name in ("packets", "congested", "bottleneck") if name in named.columns]
    rows = [
        (row["port"], *(_format_estimate(row, name) for name in shown))
        for row in most.iter_rows(named=True)
    ]
    columns = " " + "r" * len(shown)
    return [*lines, *align_columns(("port", *shown), rows, columns, names=(0,))]


def _format_estimate(row: dict[str, float | None], name: str) -> str:
    """An estimate and half its interval."""
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return "not known"
    if low is None or high is None:
        return f"at least {value:,.0f}"
    return f"{value:,.0f} ± {(high - low) / 2:,.0f}"


@export.command(short_help="Which line of the program congests which links, as Parquet.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--side",
    type=OneOf(["sender", "receiver"]),
    default="sender",
    show_default=True,
    help="Lines and ranks that send, or that receive.",
)
@click.option("--host", metavar="NAME", help="Only packets that this host received.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def attribution(folder: Path, out: Path, side: Side, host: str | None, force: bool) -> None:
    """Write which line of the program congests which links, from FOLDER to OUT (Parquet).

    FOLDER is a run of 'simulate' or a result of 'diagnose'. docs/reference/tables.md explains the
    columns.
    """
    _require_outside(folder, out)
    run = read_samples(folder, host)
    require_packets(run, folder, "export")
    try:
        table = to_table(attribute(run, side=side))
    except RunError as error:
        raise error.located(folder) from None
    _write(out, force, table.write_parquet)
    click.echo(f"{table.height:,} rows written to {out}")
    _state_skips(run)
    if not table.height:
        click.echo(f"note: {_why_empty(run)}", err=True)


def _to_tool(name: str, summary: str) -> click.Command:
    """The command that exports in a registered format."""

    @click.argument("folder", type=click.Path(path_type=Path))
    @click.argument("out", type=click.Path(path_type=Path))
    @click.option("--force", is_flag=True, help="Overwrite it.")
    def write(folder: Path, out: Path, force: bool) -> None:
        _require_outside(folder, out)
        run = read_samples(folder)
        require_packets(run, folder, "export")
        diagnosis = read_diagnosis(folder) if is_diagnosis(folder) else None
        measured = read_measured_tables(folder) if diagnosis is not None else None
        exported = EXPORTS[name](
            Result(run, diagnosis, measured, lambda: programs_of(run.scenario))
        )

        def write_lines(file: IO[bytes]) -> None:
            for line in exported.lines:
                file.write(line.encode() + b"\n")

        if exported.fill is None:
            _write(out, force, exported.write or write_lines)
        else:
            with AtomicDirectory(out, force=force, sources=[folder]) as part:
                exported.fill(part)
        _state_skips(run)
        click.echo(f"{exported.contents}, written to {out}")
        click.echo(f"{exported.opened_by}")

    text = f"""{summary}

    FOLDER is a run of 'simulate' or a result of 'diagnose'.

    \b
    tailback diagnose examples/lab/slow-cable --out diagnosis
    tailback export {name} diagnosis {FILES.get(name, f"diagnosis.{name}")}
    """
    return click.command(name, GroupedHelp, help=text, short_help=summary)(write)


FILES = {
    "perfetto": "trace.json",
    "prometheus": "tailback.prom",
    "folded": "stalls.folded",
    "otf2": "otf2-trace",
    "cube": "profile.cubex",
}
"""Usual names of the file or folder of each format."""

for entry in EXPORTS:
    export.add_command(_to_tool(entry.name, entry.summary))


def _state_skips(run: Run) -> None:
    for line in skip_lines(run):
        click.echo(line, err=True)


def _why_empty(run: Run) -> str:
    """Why no line of the program can be named for a congested link."""
    if run.scenario.telemetry.scheme == "off":
        return 'packets carried no samples: simulate again without [telemetry] scheme = "off"'
    if not run.tables["samples"].height:
        return "no packet of an observed job brought a sample of a link inside the network"
    return "no packet of an observed job met congestion"


def _require_outside(folder: Path, out: Path) -> None:
    """Reject an output inside the input folder, where it might overwrite an input file."""
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(folder)):
        raise TailbackError(
            f"is inside the folder that is exported, {str(folder)!r}",
            file=out,
            remedy="choose a file outside of that folder",
        )


def _write(out: Path, force: bool, write: Callable[[IO[bytes]], object]) -> None:
    try:
        with atomic_file(out, force=force) as file:
            write(file)
    except FileExistsError:
        raise TailbackError("the file exists", file=out, remedy="--force overwrites it") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TailbackError(
            f"cannot be written: {reason}",
            file=out,
            remedy="check the path and the free space on its disk",
        ) from None
