"""The command line: one file a command, one way to fail.

Exit codes: 0 done; 2 something in what the user gave is wrong; 3 the samples do not suffice for a
verdict; 130 interrupted. Results go to stdout, progress and warnings to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

import tailback
from tailback.cli.collect import collect
from tailback.cli.compare import compare
from tailback.cli.counters import counters
from tailback.cli.diagnose import diagnose
from tailback.cli.evolution import evolution
from tailback.cli.export import export
from tailback.cli.lists import list_parts
from tailback.cli.place import place
from tailback.cli.render import safe
from tailback.cli.report import report
from tailback.cli.simulate import simulate
from tailback.errors import TailbackError

EXIT_OK, EXIT_USER, EXIT_UNDETERMINED, EXIT_INTERRUPTED = 0, 2, 3, 130


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Exit codes: 0 done, 2 something given is wrong, 3 too few samples for a verdict, "
    "130 interrupted.",
)
@click.version_option(tailback.__version__, prog_name="tailback")
def cli() -> None:
    """Find where traffic backs up in a network, why, and prove the fix.

    \b
    Start here:
      tailback diagnose TRACE --fabric FABRIC   a verdict, a remedy, a report
      tailback list                             what it knows
    """


for command in (
    diagnose, simulate, place, compare, report, collect, counters, evolution, export, list_parts,
):  # fmt: skip
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
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
        _complain(str(error))
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_USER
    except (KeyboardInterrupt, click.Abort):
        _complain("interrupted; nothing was written")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except MemoryError:
        _complain("out of memory\n  remedy: use a smaller scenario or a machine with more memory")
        return EXIT_USER
    return code if isinstance(code, int) else EXIT_OK


def _complain(text: str) -> None:
    click.echo(f"tailback: error: {safe(text, keep_newlines=True)}", err=True)
