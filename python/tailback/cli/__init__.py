"""The command line: one module per command, uniform error handling.

Exit codes: 0 done; 1 a remedy did not gain what was predicted (``confirm``), or a diagnosis came
out differently (``verify``); 2 something in what the user gave is wrong; 3 the evidence does not
suffice for a verdict, or a diagnosis cannot be repeated; 130 interrupted. ``record`` exits with the
code of its program, 125 where it fails itself.
Results go to stdout, progress and warnings to stderr.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from tailback.available import require_address_space
from tailback.cli.grouped_help import SuggestingGroup
from tailback.cli.interrupt import end_on_signals
from tailback.cli.loading import loading
from tailback.cli.result import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USER,
    RefusedValueError,
    StdoutClosedError,
)
from tailback.errors import TailbackError, command_line
from tailback.names.display import printable
from tailback.version import version

COMMANDS = {
    "advise": "Advise where the next job of a machine should go.",
    "calibrate": "Fit the engine's settings to a machine.",
    "collect": "Collect port counters of a live InfiniBand subnet.",
    "compare": "Compare two runs.",
    "confirm": "Compare the predicted gain of a remedy with the measured one.",
    "counters": "Find out where ports stall, from counters alone.",
    "diagnose": "Find out where traffic backs up, why, and what to do.",
    "evolution": "Draw how congestion evolves, as a page.",
    "export": "Export a run for other tools.",
    "lab": "Run an MPI program across a real network with a known fault.",
    "list": "List patterns, placements, readers, rules and so on.",
    "place": "Place the ranks of a job and compare the results.",
    "record": "Run an MPI program and record what a diagnosis needs.",
    "report": "Write the report of a run or a diagnosis.",
    "simulate": "Simulate a scenario and write its tables.",
    "sweep": "Run a scenario over many values of its keys.",
    "verify": "Repeat a diagnosis and compare every number.",
    "watch": "Watch a running collection: hot links, congestion trees, changes.",
}
"""Every command and its line of the help. A command is the function of its name in the module of
its name, ``list`` apart, loaded when it is asked for."""


@contextmanager
def _closed_pipe_as_error() -> Iterator[None]:
    # For a closed pipe click itself exits with code 1, which is not one of our exit codes.
    try:
        yield
    except BrokenPipeError:
        raise StdoutClosedError from None


class Commands(SuggestingGroup):
    """The commands, each loaded when it is called for."""

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Read the command line; prints help and version."""
        with _closed_pipe_as_error():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with command_line(), _closed_pipe_as_error():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands; loads none."""
        return sorted({*COMMANDS, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command by its name; None if there is none of that name."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            module, function = _ELSEWHERE.get(cmd_name, (cmd_name, cmd_name))
            with loading():
                command = getattr(import_module(f"tailback.cli.{module}"), function)
            self.add_command(command, cmd_name)
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into the help; loads none."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


_ELSEWHERE = {"list": ("lists", "list_parts")}


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"tailback, version {version()}")
        ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: 0 success, 1 not as predicted (confirm) or stated (verify), 2 invalid "
    "input, 3 no verdict (undetermined, not repeatable), 130 interrupted.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Find where traffic backs up in a network, why, and prove the fix.

    \b
    Start here:
      tailback diagnose TRACE --fabric FABRIC   a verdict, a remedy, a report
      tailback list                             patterns, placements, formats …
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that has no arrow or bar shows a question mark; None stands for a closed one.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        require_address_space()
    except TailbackError as error:
        _print_error(str(error))
        sys.exit(error.exit_code)
    end_on_signals()
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        code = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="tailback",
            standalone_mode=False,
        )
    except TailbackError as error:
        _print_error(str(error))
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USER
    except click.ClickException as error:
        _print_error(str(_usage_error(error)))
        return max(EXIT_USER, error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _print_error("interrupted")
        return EXIT_INTERRUPTED
    except (StdoutClosedError, BrokenPipeError) as error:
        # There is no reader left to report to.
        _give_up_stdout()
        return error.code if isinstance(error, StdoutClosedError) else EXIT_OK
    except OSError as error:
        _print_error(str(_explain(error)))
        return EXIT_USER
    except MemoryError:
        _print_error(
            "out of memory\n  remedy: use a smaller scenario or a machine with more memory"
        )
        return EXIT_USER
    return code if isinstance(code, int) else EXIT_OK


def _usage_error(error: click.ClickException) -> TailbackError:
    """What is wrong with the command line, in the form of all errors."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = "tailback" if context is None else context.command_path
    remedy = f"{command} --help shows what it takes"
    if isinstance(error, RefusedValueError):
        remedy = error.remedy
    if isinstance(error, click.MissingParameter) or getattr(error, "param", None) is None:
        is_refused = isinstance(error, RefusedValueError)
        message = error.message if is_refused else error.format_message()
        return TailbackError(message.rstrip("."), remedy=remedy)
    assert isinstance(error, click.BadParameter) and error.param is not None
    name = error.param.human_readable_name
    if isinstance(error.param, click.Option):
        name = max(error.param.opts, key=len)
    return TailbackError(error.message.rstrip("."), place=name, remedy=remedy)


def _explain(error: OSError) -> TailbackError:
    """Convert an error of the operating system that no caller has translated."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return TailbackError(
            f"cannot be read or written: {reason}",
            file=str(error.filename),
            remedy="check the path, its permissions, and the free space on its disk",
        )
    _give_up_stdout()
    return TailbackError(
        f"input or output failed: {reason}",
        remedy="check the free space on the output disk, and the input files",
    )


def _give_up_stdout() -> None:
    """Discard pending output, which would fail again with a traceback when Python exits."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(text: str) -> None:
    click.echo(f"tailback: error: {printable(text, keep_newlines=True)}", err=True)
