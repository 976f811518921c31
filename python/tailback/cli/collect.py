"""``tailback collect``: port counters of a live InfiniBand subnet, into a folder."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.option_types import Duration, FiniteRange, format_option, quiet_option
from tailback.cli.text import align_columns
from tailback.collector import (
    Collection,
    CollectorSession,
    CollectorSettings,
    Endpoint,
    MadExchange,
    MetricsBoard,
    SessionSummary,
    UmadPort,
)
from tailback.collector.metrics_board import WorstPort
from tailback.names.display import printable
from tailback.names.ports import link_name, port_name
from tailback.port_counters.schema import CounterError
from tailback.port_counters.targets import PortTarget
from tailback.units import counted, percent


@click.command(cls=GroupedHelp)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder of the collection; an existing one is continued.",
)
@click.option(
    "--interval",
    type=Duration("nanosecond"),
    default="10 s",
    show_default=True,
    help="Time between two sweeps.",
)
@click.option("--sweeps", type=click.IntRange(1), help="Number of sweeps (default: no limit).")
@click.option(
    "--duration", type=Duration("nanosecond"), help="Stop after this time (default: no limit)."
)
@click.option("--switches-only", is_flag=True, help="Do not read the ports of adapters.")
@click.option(
    "--fabric",
    type=click.Path(path_type=Path),
    help="Take the ports from this output of ibnetdiscover instead of discovering them.",
)
@click.option(
    "--rediscover",
    type=Duration("nanosecond"),
    default="3600 s",
    show_default=True,
    help="Look for changes this often; SIGHUP does it at once.",
)
@click.option("--tick", type=Duration(), help="Length of a PortXmitWait tick, like '22 ns'.")
@click.option(
    "--rate",
    type=FiniteRange(1),
    default=20_000.0,
    show_default=True,
    help="Maximum number of MADs sent per second.",
)
@click.option(
    "--timeout",
    type=Duration("nanosecond"),
    default="200 ms",
    show_default=True,
    help="How long to wait for an answer.",
)
@click.option(
    "--retries",
    type=click.IntRange(0, 10),
    default=2,
    show_default=True,
    help="Retries of a request.",
)
@click.option("--ca", metavar="NAME", help="Adapter to use (default: the first active one).")
@click.option("--ca-port", type=click.IntRange(0, 254), default=0, help="Its port.")
@click.option("--sl", type=click.IntRange(0, 15), default=0, help="Service level of requests.")
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve Prometheus metrics there; without HOST on 127.0.0.1 only.",
)
@click.option(
    "--compact",
    "compact_only",
    is_flag=True,
    help="Only convert segments that a killed collector left to Parquet.",
)
@format_option
@quiet_option
def collect(out: Path, compact_only: bool, form: str, quiet: bool, **options: Any) -> None:
    """Collect port counters of a live InfiniBand subnet.

    It changes nothing on a device. Stop it with Ctrl-C or SIGTERM. After a crash, the next run or
    --compact completes the conversion.

    \b
    tailback collect --out counters --interval "10 s"
    """
    board = MetricsBoard()
    if compact_only and not (out / "collection.json").is_file():
        raise CounterError(
            "is not a collection: there is nothing to compact",
            file=out,
            remedy="name the folder that 'tailback collect' wrote to",
        )
    with ExitStack() as stack:
        if compact_only:
            summary = SessionSummary(notes=_collection(out, stack).compact())
        else:
            summary = _collect(out, board, quiet, stack, options)
    if form == "json":
        click.echo(json.dumps(_facts(summary, board), indent=2))
    else:
        click.echo("\n".join(_lines(summary, board, out, compact_only)))


def _collection(out: Path, stack: ExitStack) -> Collection:
    collection = Collection(out)
    stack.callback(collection.close)
    return collection


def _collect(
    out: Path, board: MetricsBoard, quiet: bool, stack: ExitStack, options: dict[str, Any]
) -> SessionSummary:

    def log(line: str) -> None:
        # The reader of stderr (terminal, logging service) may be gone; collecting continues.
        with suppress(OSError):
            if not quiet:
                click.echo(f"tailback: {printable(line)}", err=True)

    if options["metrics"] is not None:
        endpoint = Endpoint(options["metrics"], board.metrics, lambda: board.edition)
        stack.callback(endpoint.close)
        log(f"metrics on port {endpoint.port}")
    port = UmadPort(options["ca"], options["ca_port"], options["sl"])
    stack.callback(port.close)
    exchange = MadExchange(
        port,
        timeout_ms=max(1, round(options["timeout"]) // 1_000_000),
        retries=options["retries"],
        rate=options["rate"],
    )
    # Last, so that no empty collection is left behind if one of the others fails.
    collection = _collection(out, stack)
    session = CollectorSession(_settings(options), exchange, collection, board, log)
    with _signals(session.stop, session.rediscover):
        try:
            return session.run()
        except OSError as error:
            raise CounterError(
                f"collecting stopped: {error.strerror or error}",
                remedy="what was read is saved in --out; check the port ('ibstat') and the disk",
            ) from None


def _settings(options: dict[str, Any]) -> CollectorSettings:
    duration = options["duration"]
    return CollectorSettings(
        interval_ns=round(options["interval"]),
        sweeps=options["sweeps"],
        duration_ns=None if duration is None else round(duration),
        hosts=not options["switches_only"],
        fabric=options["fabric"],
        rediscover_ns=round(options["rediscover"]),
        tick_ns=options["tick"],
    )


@contextmanager
def _signals(stop: Callable[[], None], rediscover: Callable[[], None]) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the session and SIGHUP look for changes."""

    def on(number: int, _frame: FrameType | None) -> None:
        (rediscover if number == signal.SIGHUP else stop)()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _facts(summary: SessionSummary, board: MetricsBoard) -> dict[str, Any]:
    return {
        "devices": summary.nodes,
        "ports": summary.ports,
        "sweeps": summary.sweeps,
        "readings": summary.readings,
        "failed": summary.failed,
        "seconds": round(summary.seconds, 3),
        "cpu_seconds": round(summary.cpu_seconds, 3),
        "mads": summary.mads,
        "mads_per_s": round(summary.mads_per_s, 1),
        "sweep_mads_per_s": round(summary.sweep_mads / max(summary.sweep_seconds, 1e-9), 1),
        "cpu_seconds_per_sweep": round(summary.sweep_cpu_seconds / max(summary.sweeps, 1), 4),
        "longest_sweep_s": round(summary.longest_sweep_s, 3),
        "resets": board.resets,
        "notes": summary.notes,
        "most_lost": [
            {
                "node": port.target.node_name,
                "port": port.target.port,
                "peer": port.target.peer_name,
                "stall_fraction": port.stall_fraction,
                "lost_gbps": port.lost_gbps,
                "at_least": port.at_least,
                "latched_stall_seconds": port.latched_seconds,
                "tick_ns": port.target.tick_ns,
                "tick_high_ns": port.target.tick_high_ns,
                "tick_source": port.target.tick_source,
            }
            for port in board.worst(10)
        ],
    }


def _tick(target: PortTarget) -> str:
    """Length of a tick and its source."""
    high = target.tick_high_ns
    shown = f"{target.tick_ns:.3g}" + ("" if high is None else f" to {high:.3g}")
    return f"{shown} ns {target.tick_source}"


def _format_stalled(port: WorstPort) -> str:
    """Stall fraction of the last interval, or the lower bound of a latched counter."""
    if port.latched_seconds is not None:
        return f"≥ {port.latched_seconds:.3g} s (counter full)"
    shown = ("≥ " if port.at_least else "") + percent(port.stall_fraction)
    low, high = port.target.tick_ns, port.target.tick_high_ns
    if high is None or port.stall_fraction >= 1.0:
        return shown
    return f"{shown} to {percent(min(port.stall_fraction * high / low, 1.0))}"


def _format_lost(port: WorstPort) -> str:
    """Lost bandwidth; of a full counter, that of the last interval in which it counted."""
    if port.latched_seconds is not None:
        return f"{port.lost_gbps:.2f} before" if port.stall_fraction else "?"
    return ("≥ " if port.at_least else "") + f"{port.lost_gbps:.2f}"


def _lines(
    summary: SessionSummary, board: MetricsBoard, out: Path, compact_only: bool
) -> list[str]:
    lines = []
    if not compact_only:
        lines = [
            f"{counted(summary.nodes, 'device')}, {counted(summary.ports, 'port')}; "
            f"{counted(summary.sweeps, 'sweep')}, {counted(summary.readings, 'reading')}, "
            f"{summary.failed} failed",
            f"{counted(summary.mads, 'MAD')} in {summary.seconds:.1f} s "
            f"({summary.mads_per_s:.0f}/s), "
            f"{percent(summary.cpu_share)} of a processor; "
            f"longest sweep {summary.longest_sweep_s:.2f} s",
        ]
    worst = board.worst(5)
    if worst:
        rows = [
            (
                link_name(port_name(port.target.node_name, port.target.port), port.target.far_port),
                _format_stalled(port),
                _format_lost(port),
                _tick(port.target),
            )
            for port in worst
        ]
        lines += ["", "LOST TO STALLS IN THE LAST INTERVAL"]
        lines += align_columns(("port", "stalled", "Gb/s lost", "tick"), rows, " rr", names=(0,))
    lines += [f"note: {printable(note)}" for note in summary.notes[:5]]
    return [*lines, "", f"readings/ and intervals/ in {printable(str(out))} are Parquet"]
