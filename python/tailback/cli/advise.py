"""``tailback advise``: where the next job should go, and what slow cables cost it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import format_option, quiet_option
from tailback.cli.progress import meter
from tailback.cli.source import fabric_option
from tailback.cli.text import align_columns, command_lines, heading, more_line, wrap
from tailback.errors import InvalidValueError, TailbackError
from tailback.names.display import display_width, printable
from tailback.names.hosts import fold_hosts
from tailback.units import counted, format_time, parse_gbps, percent

if TYPE_CHECKING:
    from tailback.api.advise import Advice


@click.command(cls=GroupedHelp)
@click.argument("source", type=click.Path(path_type=Path))
@fabric_option
@click.option(
    "--jobs",
    required=True,
    type=click.Path(path_type=Path),
    help="List of the jobs that run now: squeue --json, qstat -f, or a CSV.",
)
@click.option(
    "--load",
    type=click.FloatRange(0, 1),
    help="Assumed traffic of each of them, as a share of the line rate (default 0.2); 0: none.",
)
@click.option(
    "--slow-cable",
    "slow_cables",
    multiple=True,
    metavar="PORT=RATE",
    help='Also simulate a slow cable, like "leaf3[7]=25 Gb/s"; repeat for several.',
)
@click.option("--seeds", type=click.IntRange(1), default=3, help="Repetitions (default 3).")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the best placement's rank files."
)
@click.option("--force", is_flag=True, help="Replace that folder if Tailback wrote it.")
@format_option
@quiet_option
def advise(
    source: Path,
    fabric: str | None,
    jobs: Path,
    load: float | None,
    slow_cables: tuple[str, ...],
    seeds: int,
    out: Path | None,
    force: bool,
    form: str,
    quiet: bool,
) -> None:
    """Advise where the next job of a machine should go.

    SOURCE is the next job, a scenario or a trace. Free hosts are chosen in several ways and
    simulated beside the jobs that run, by the optimiser that finds remedies.

    \b
    tailback advise next.toml --jobs squeue.json --slow-cable "leaf3[7]=25 Gb/s"
    """
    with loading():
        from tailback.api.advise import LOAD
        from tailback.api.advise import advise as api_advise
    if out is not None:
        with loading():
            from tailback.io.folders import check_writable
        check_writable(out, force=force, sources=[source, jobs])
    cables = dict(map(_cable, slow_cables))
    with meter(quiet) as progress:
        advice = api_advise(
            source,
            fabric=fabric,
            jobs=jobs,
            load=LOAD if load is None else load,
            slow_cables=cables,
            seeds=seeds,
            progress=progress.step,
        )
    if out is not None:
        advice.write(out, force=force)
    if form == "json":
        click.echo(json.dumps(advice.to_dict(out), indent=2))
        return
    click.echo("\n".join(advice_lines(advice, out)))


def _cable(text: str) -> tuple[str, float]:
    """``"leaf3[7]=25 Gb/s"`` as port and Gb/s."""
    port, separator, rate = text.rpartition("=")
    try:
        if not separator:
            raise InvalidValueError("has no rate", "write PORT=RATE")
        return port.strip(), parse_gbps(rate.strip())
    except InvalidValueError as error:
        raise TailbackError(
            f"{text!r}: {error.message}",
            place="--slow-cable",
            remedy='write the port at one end and the rate, like "leaf3[7]=25 Gb/s"',
        ) from None


_SHOWN, _NOTES = 8, 3
"""Placements and notes on the screen."""


def advice_lines(advice: Advice, out: Path | None = None) -> list[str]:
    """The screen: where the job should go, how, placements with their hosts, slow cables, notes.

    Args:
        advice: The advice.
        out: Folder of its rank files; None: not written.
    """
    lines = wrap(_verdict(advice), first=f"{heading('ADVICE')}  ")
    # To copy: never cut.
    lines += [f"  --hosts '{printable(fold_hosts(advice.rows[0]['hosts']))}'"]
    if out is not None:
        for file in advice.rank_files[:1]:
            lines += command_lines(file.command_from(out))
    elif advice.rank_files:
        lines += wrap("Its rank files for Open MPI, Slurm and MPICH: give --out FOLDER.")
    rows = [
        (
            row["placement"],
            format_time(row["elapsed_ps"]),
            _gain(row),
            printable(_hosts(row["hosts"])),
        )
        for row in advice.rows[:_SHOWN]
    ]
    head = ("placement", "time", "less time", "hosts")
    table = align_columns(head, rows, " rr ", names=(0,), to_type=True)
    lines += ["", heading("PLACEMENTS"), *table]
    lines += more_line(len(advice.rows) - _SHOWN)
    if any(row["gain"] is None for row in advice.rows[:_SHOWN]):
        lines += wrap("—: simulated less often, as it was behind; its time is not comparable")
    if advice.cables:
        costs = [
            (cable.cable, f"{cable.rate_gbps:g} Gb/s", percent(cable.next_job, sign="+"))
            for cable in advice.cables
        ]
        table = align_columns(("cable", "rate", "next job"), costs, " rr", names=(0,))
        lines += ["", heading("SLOW CABLES"), *table]
    lines += [""] * bool(advice.notes)
    for note in advice.notes[:_NOTES]:
        lines += wrap(f"note: {note}")
    return lines + more_line(len(advice.notes) - _NOTES)


def _verdict(advice: Advice) -> str:
    """The best placement, what it gains, and on how many hosts."""
    best = advice.rows[0]
    hosts = counted(len(best["hosts"]), "host")
    beside = f"beside {counted(advice.beside, 'job')}" if advice.beside else "alone"
    where = f"{hosts} of {advice.free} free, {beside}"
    gain = best["gain"]
    if gain is None or len(advice.rows) < 2 or gain <= 0:
        return f"No choice of free hosts is better than the first ones in their order ({where})."
    low, high = percent(best["gain_low"]), percent(best["gain_high"])
    between = f"{low} to {high}" if low != high else low
    return (
        f"Use placement {advice.best}: {percent(gain)} less time than on the first free hosts "
        f"({between} in all draws; {where})."
    )


def _gain(row: dict[str, Any]) -> str:
    return "—" if row["gain"] is None else percent(row["gain"])


_HOSTS_WIDTH = 36
"""Columns of a list of hosts in a table."""


def _hosts(hosts: list[str]) -> str:
    """A list of hosts, whole if it fits, else their number."""
    folded = fold_hosts(hosts)
    return folded if display_width(folded) <= _HOSTS_WIDTH else counted(len(hosts), "host")
