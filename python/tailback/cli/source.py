"""The input of a command: a scenario file, or a trace and a fabric on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tailback.cli.option_types import FiniteRange

F = TypeVar("F", bound=Callable[..., Any])


_SKIP_REPEATS = click.option(
    "--skip-repeats",
    is_flag=True,
    default=None,
    help="Simulate some of the steps that jobs repeat and extrapolate the others.",
)


_COARSE = click.option(
    "--coarse",
    metavar="SIZE",
    help="Simulate messages in larger packets, like 16 KiB or auto: less exact and faster.",
)


_NETWORK = (
    click.option(
        "--fabric",
        metavar="FILE|PRESET|RUN",
        help="Network of a trace: a file, a preset, or a scenario or run. Of the latter, "
        "[fabric] and [engine] are used.",
    ),
    click.option(
        "--cable-rate",
        metavar="RATE",
        help="Rate of cables for which the file of the network states none, like '100 Gb/s'.",
    ),
    click.option(
        "--taper",
        type=FiniteRange(1),
        help="Of a network without numbers of cables (Slurm's topology): cables below a "
        "switch for each one upwards (default: 1).",
    ),
    click.option(
        "--forwarding",
        metavar="FILE|FOLDER",
        help="Forwarding tables of the switches, as dump_lfts.sh prints them (for a trace: "
        "every shortest path).",
    ),
)
"""Options for the network that a trace or capture is diagnosed on."""


_WITHIN_HOSTS = (
    click.option(
        "--local-rate",
        metavar="RATE",
        help="Rate of a message between ranks of one host, like '80 Gb/s' (default: that of "
        "the recording, or 80 Gb/s).",
    ),
    click.option(
        "--memory-rate",
        metavar="RATE",
        help="Rate that all messages within a host share (default: that of the recording, or "
        "400 Gb/s).",
    ),
)
"""Options for the rates of messages within hosts."""


def fabric_option(command: F) -> F:
    """Add only the option for the network of a trace."""
    return _NETWORK[0](command)


def scenario_options(command: F) -> F:
    """Add the argument SOURCE and the options that change its scenario."""
    decorators = [
        click.argument("source", type=click.Path(path_type=Path)),
        *_NETWORK,
        click.option(
            "--hosts",
            metavar="SPEC",
            help="Hosts of the job, like 0-127 or node[001-016]:4. That is 4 ranks each. For a "
            "trace: all compute hosts.",
        ),
        click.option(
            "--ranks-per-host",
            type=click.IntRange(1),
            help="Ranks on each host for which --hosts gives no number (trace: 1).",
        ),
        click.option(
            "--placement", metavar="NAME|FILE", help="Placement of the ranks (for a trace: block)."
        ),
        click.option(
            "--rankfile",
            metavar="FILE",
            help="Host of each rank: a CSV, rank file, host list or 'mpirun … env'. Gives --hosts "
            "and --placement at once.",
        ),
        click.option(
            "--compute-scale",
            type=FiniteRange(0),
            help="Multiply compute time (for a trace: by 1).",
        ),
        click.option(
            "--ranks",
            metavar="N|GRID",
            help="Run a trace on more ranks than recorded, like 512 or 8x8x8 (stencils, rings and "
            "collectives; the problem grows with the ranks).",
        ),
        click.option(
            "--seed", type=click.IntRange(0), help="Seed of every random choice (for a trace: 1)."
        ),
        click.option(
            "--calibration",
            type=click.Path(path_type=Path),
            help="Settings of the engine that 'tailback calibrate' fitted to the machine.",
        ),
        *_WITHIN_HOSTS,
        _SKIP_REPEATS,
        _COARSE,
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def source_options(command: F) -> F:
    """Add the argument SOURCE, the options that change its scenario, and that of the engine."""
    threads = click.option(
        "--threads",
        type=click.IntRange(1),
        help="Threads that simulate (default: idle cores).",
    )
    return scenario_options(threads(command))


def allow_hosts_option(command: F) -> F:
    """Add the option for the hosts that other placements may use."""
    return click.option(
        "--allow-hosts",
        metavar="SPEC",
        help="Hosts that other placements may use, like --hosts; all: every compute host "
        "(default: those the job runs on).",
    )(command)
