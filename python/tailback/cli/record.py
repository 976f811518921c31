"""``tailback record``: run an MPI program and leave all that a diagnosis needs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import quiet_option
from tailback.cli.progress import meter
from tailback.cli.result import EXIT_OWN_FAILURE
from tailback.errors import TailbackError
from tailback.names.display import printable
from tailback.units import counted

if TYPE_CHECKING:
    from tailback.recorder.session import Recording


class _NotRunError(click.UsageError):
    """A mistake in the options."""

    exit_code = EXIT_OWN_FAILURE


class _ProgramRunner(GroupedHelp):
    """A command whose exit codes are those of another program, but for its own failures."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _NotRunError(error.format_message(), ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except TailbackError as error:
            error.exit_code = EXIT_OWN_FAILURE
            raise


@click.command(
    cls=_ProgramRunner,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="docs/how-to/record.md says what is recorded and what it costs.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the evidence.")
@click.option(
    "--mpicc",
    metavar="PROGRAM",
    help="C compiler of your MPI library (default: beside the launcher).",
)
@click.option(
    "--recover",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Finish the recording OUT.unfinished that a killed recorder left.",
)
@click.option("--build", is_flag=True, help="Only compile the recorder for this MPI library.")
@click.option(
    "--clocks-every",
    type=click.FloatRange(min=0, min_open=True),
    default=30,
    metavar="SECONDS",
    show_default=True,
    help="Compare the hosts' clocks again after this time.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=10,
    metavar="SECONDS",
    show_default=True,
    help="Wait in MPI_Init for all ranks to load the recorder.",
)
@click.option(
    "--byte-ranges",
    is_flag=True,
    help="Record which bytes of TCP connections each call writes, for packet captures.",
)
@click.option("--force", is_flag=True, help="Replace the folder if Tailback wrote it.")
@quiet_option
def record(
    command: tuple[str, ...],
    out: Path | None,
    mpicc: str | None,
    recover: Path | None,
    build: bool,
    clocks_every: float,
    wait: float,
    byte_ranges: bool,
    force: bool,
    quiet: bool,
) -> int:
    """Run COMMAND, an MPI program with its launcher, and record its MPI calls.

    The program needs neither recompiling nor another tracer. The folder gets an
    OTF2 trace, the host of each rank, adapter counters of each host and the batch
    system's description of the job. diagnose also needs --fabric if this user may
    not ask the InfiniBand fabric (the last line of the output says so).

    The files of the ranks are in OUT.unfinished until the folder is complete. If
    the recorder is killed or the disk is full, --recover finishes the folder.

    Exits with the exit code of COMMAND; with 125 if Tailback itself fails.

    \b
    tailback record --out evidence -- mpirun -np 64 ./app
    tailback diagnose evidence
    tailback record --recover evidence.unfinished
    """
    with loading():
        from tailback.recorder.build import build as build_recorder
        from tailback.recorder.launch import compiler_for
        from tailback.recorder.session import finish, finished_folder
        from tailback.recorder.session import record as record_program
    if build:
        built = build_recorder(mpicc or compiler_for(command or ("mpirun",)))
        click.echo(printable(f"{'compiled' if built.fresh else 'already there'}: {built.recorder}"))
        return 0

    def step(what: str) -> None:
        if not quiet:
            click.echo(f"tailback: {what}", err=True)

    if recover is not None:
        if command:
            raise TailbackError(
                "--recover runs no program", remedy=f"leave {shlex.join(command)!r} out"
            )
        recording = finish(recover, out, force=force, step=step)
        return _report(recording, out or finished_folder(recover))
    if out is None or not command:
        raise TailbackError(
            "--out and a program are needed",
            remedy="tailback record --out evidence -- mpirun -np 64 ./app",
        )
    # A progress meter would interfere with the program's output.
    with meter(True):
        recording = record_program(
            command,
            out,
            mpicc=mpicc,
            force=force,
            clocks_every_s=clocks_every,
            wait_s=wait,
            byte_ranges=byte_ranges,
            step=step,
        )
    return _report(recording, out)


def _report(recording: Recording, out: Path) -> int:
    """Say on stderr what was recorded: stdout is the program's. Returns the exit code."""
    from tailback.io.folders import shell_path
    from tailback.recorder.endings import exit_status

    lines = [
        f"{out}: {counted(recording.calls, 'MPI call')} of "
        f"{counted(recording.ranks - len(recording.not_recorded), 'rank')} on "
        f"{counted(len(recording.hosts), 'host')}; {_clocks(recording)}",
        *(f"note: {note}" for note in recording.notes),
    ]
    if recording.communicating:
        lines.append(f"tailback diagnose {shell_path(out)} {_network(out)}".rstrip())
    click.echo(printable("\n".join(lines), keep_newlines=True), err=True)
    return exit_status(recording.exit_code)


def _clocks(recording: Recording) -> str:
    if len(recording.hosts) == 1 and not recording.clock_residual_ns:
        return "all times by one clock"
    if not recording.clock_measurements:
        return "clocks not compared"
    return (
        f"clocks within {recording.clock_residual_ns / 1000:.1f} µs, measured "
        f"{counted(recording.clock_measurements, 'time')}"
    )


def _network(out: Path) -> str:
    """Options of a diagnosis that give the network; none if it is in the recording."""
    from tailback.io.folders import shell_path
    from tailback.sources.recording import recorded_fabric

    if recorded_fabric(out) is not None:
        return ""
    if (out / "topology.conf").is_file():
        return f"--fabric {shell_path(out / 'topology.conf')} --cable-rate RATE"
    return "--fabric FABRIC"
