"""``tailback advise``: where the next job should go, and what slow cables cost it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tailback.api.advise import LOAD, Advice
from tailback.api.advise import advise as api_advise
from tailback.cli.option_types import format_option, quiet_option
from tailback.cli.progress import meter
from tailback.cli.source import fabric_option
from tailback.cli.text import align_columns, wrap
from tailback.errors import InvalidValueError, TailbackError
from tailback.io.folders import check_writable
from tailback.names.display import printable
from tailback.units import counted, format_time, parse_gbps, percent


@click.command()
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
    default=LOAD,
    show_default=True,
    help="Assumed traffic of each of them, as a share of the line rate; 0: none.",
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
    load: float,
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
    if out is not None:
        check_writable(out, force=force, sources=[source, jobs])
    cables = dict(map(_cable, slow_cables))
    with meter(quiet) as progress:
        advice = api_advise(
            source,
            fabric=fabric,
            jobs=jobs,
            load=load,
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


def advice_lines(advice: Advice, out: Path | None = None) -> list[str]:
    """The screen: placements with their hosts, slow cables, notes.

    Args:
        advice: The advice.
        out: Folder of its rank files; None: not written.
    """
    best = advice.rows[0]
    hosts = counted(len(best["hosts"]), "host")
    beside = f"beside {counted(advice.beside, 'job')}" if advice.beside else "alone"
    lines = [f"NEXT JOB  {hosts} of {advice.free} free, {beside}"]
    rows = [
        (
            row["placement"],
            format_time(row["elapsed_ps"]),
            _gain(row),
            printable(_shortened(row["hosts"])),
        )
        for row in advice.rows
    ]
    lines += align_columns(("placement", "time", "less time", "hosts"), rows, " rr ", names=(0, 3))
    gain = best["gain"]
    if gain is None or len(advice.rows) < 2 or gain <= 0:
        text = "No choice of free hosts is better than the first ones in their order."
    else:
        text = (
            f"Use placement {advice.best}: {percent(gain)} less time than on the first free hosts "
            f"({percent(best['gain_low'])} to {percent(best['gain_high'])} in all draws)."
        )
    lines += ["", *wrap(text)]
    if out is not None:
        lines += [f"  $ {printable(file.command_from(out))}" for file in advice.rank_files[:1]]
    elif advice.rank_files:
        lines += wrap("Its rank files for Open MPI, Slurm and MPICH: give --out FOLDER.")
    if advice.cables:
        costs = [
            (cable.cable, f"{cable.rate_gbps:g} Gb/s", percent(cable.next_job, sign="+"))
            for cable in advice.cables
        ]
        lines += ["", "SLOW CABLES", *align_columns(("cable", "rate", "next job"), costs, " rr")]
    for note in advice.notes:
        lines += wrap(f"note: {note}")
    return lines


def _gain(row: dict[str, Any]) -> str:
    return "—" if row["gain"] is None else percent(row["gain"])


def _shortened(hosts: list[str]) -> str:
    """The first hosts of a list, and how many more there are."""
    return ", ".join(hosts[:3]) + (f", {len(hosts) - 3} more" if len(hosts) > 3 else "")
