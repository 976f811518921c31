"""Chooses the study that suits the counters and computes it together with the verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

import polars as pl

from tailback.errors import option
from tailback.port_counters.analysis import rounds, study, verdict
from tailback.port_counters.analysis.evolution_run import is_torus, torus_coordinates, torus_rows
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Archive, Engine
from tailback.port_counters.analysis.port_inventory import PortInventory, with_classes
from tailback.port_counters.analysis.sources import CounterSource
from tailback.port_counters.analysis.study import Study
from tailback.port_counters.analysis.verdict import Verdict
from tailback.port_counters.schema import CounterError
from tailback.run.run import Run

EVOLUTION_PERCENT = 40.0
"""Percentage of time stalled from which a link counts in the evolution graph (Jha et al., VI)."""


@dataclass(frozen=True)
class AnalysisOptions:
    """Options of the analysis.

    Attributes:
        tick_ns: Length of a tick of PortXmitWait, nanoseconds; None takes the known one.
        threshold: From which share of its time a port counts as stalling, 0–1.
        io: Regular expression of the names of I/O routers of a torus.
        last_ns: Restricts the analysis to the last so many nanoseconds of the recorded time.
    """

    tick_ns: float | None = None
    threshold: float = 0.01
    io: str | None = None
    last_ns: int | None = None


def analyse(
    source: CounterSource,
    inventory: PortInventory,
    chosen: AnalysisOptions,
    engine: Engine = LOCAL_ENGINE,
) -> tuple[Study, Verdict]:
    """Compute the study that suits the counters, and the verdict from the counters alone.

    Args:
        source: The counters, from ``sources.load``.
        inventory: The ports to which the counters belong.
        chosen: Options of the analysis.
        engine: Processes archives.

    Raises:
        CounterError: ``io`` is not a regular expression, matches nothing or is given for counters
            that are not of a torus, or an archive is damaged.
    """
    try:
        return _survey(source, inventory, chosen, engine)
    except CounterError as error:
        raise error if source.path is None else error.located(source.path) from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        first = str(error).split("\n")[0][:300]
        raise CounterError(
            f"cannot be decoded: {first}",
            file=source.path,
            remedy="the archive was cut or edited; its columns are in docs/how-to/counters.md",
        ) from None


def _survey(
    source: CounterSource, inventory: PortInventory, chosen: AnalysisOptions, engine: Engine
) -> tuple[Study, Verdict]:
    notes = [*source.notes, *inventory.notes]
    if source.rounds is not None:
        found, ports, classes = _rounds(source.rounds, source, inventory, chosen, engine)
    else:
        intervals, more = source.intervals(inventory, chosen.tick_ns)
        intervals = recent(intervals, chosen.last_ns)
        notes += more
        found, ports, classes = _intervals(intervals, source, inventory, chosen, engine)
    assessed = verdict.assess(
        ports,
        classes,
        threshold=chosen.threshold,
        unknown=source.unknown,
        notes=list(dict.fromkeys([*notes, *found.notes])),
        events=source.port_events(inventory, chosen.last_ns),
        peers=inventory.peers(),
    )
    found.tables |= {"ports": assessed.ports, "groups": assessed.groups}
    return found, assessed


def _rounds(
    readings: Archive,
    source: CounterSource,
    inventory: PortInventory,
    chosen: AnalysisOptions,
    engine: Engine,
) -> tuple[Study, pl.DataFrame, pl.DataFrame]:
    _refuse_io(chosen)
    readings = recent(readings, chosen.last_ns)
    classes = inventory.classes
    if classes.is_empty():
        named = readings.rows.select("node_name", "port").unique()
        classes = with_classes(named.collect(engine="streaming"), inventory)
    if chosen.tick_ns is not None:
        readings = readings.then(partial(_ticked, tick_ns=chosen.tick_ns))
    found = study.infiniband(readings, classes, title=", ".join(source.kinds), engine=engine)
    summary = pl.DataFrame(schema=rounds.ROUNDS) if found.rounds is None else found.rounds
    ports = verdict.from_rounds(summary)
    if source.archive is not None:
        intervals = recent(source.intervals(inventory, None)[0], chosen.last_ns)
        ports = verdict.with_utilization(ports, verdict.by_port(intervals, engine))
    return found, ports, classes


def recent(rows: Archive, last_ns: int | None) -> Archive:
    """Readings or intervals of the last part of the recorded time; all without a limit."""
    if last_ns is None:
        return rows
    end = rows.rows.select(pl.col("time_ns").max()).collect(engine="streaming").item()
    return rows if end is None else rows.then(partial(_after, time_ns=end - last_ns))


def _after(rows: pl.LazyFrame, time_ns: int) -> pl.LazyFrame:
    return rows.filter(pl.col("time_ns") > time_ns)


def _ticked(readings: pl.LazyFrame, tick_ns: float) -> pl.LazyFrame:
    return readings.with_columns(tick_ns=pl.lit(tick_ns))


def _intervals(
    intervals: Archive,
    source: CounterSource,
    inventory: PortInventory,
    chosen: AnalysisOptions,
    engine: Engine,
) -> tuple[Study, pl.DataFrame, pl.DataFrame]:
    """The torus study for counters of a torus, the sweep study for all others."""
    ports = verdict.by_port(intervals, engine)
    classes = with_classes(ports, inventory)
    title = ", ".join(source.kinds)
    if ports.is_empty():
        return Study(title=title), ports, classes
    torus = _torus(intervals, ports, source, engine)
    if torus is None:
        _refuse_io(chosen)
        found = study.sweep(
            intervals,
            classes,
            inventory.fabric,
            threshold=EVOLUTION_PERCENT,
            title=title,
            engine=engine,
        )
        if source.matches(inventory):
            # The notes on the intervals name the ports that the fabric does not have.
            found.notes = []
        return found, ports, classes
    worst = torus.ports.drop_nulls(["direction", "stall_fraction"])
    found = study.torus(
        torus.intervals,
        torus.coordinates,
        io_nodes=_io(torus.ports, chosen.io),
        title=title,
        engine=engine,
        direction=str(worst["direction"][0]) if worst.height else "X+",
        threshold=EVOLUTION_PERCENT,
    )
    return found, ports, classes


@dataclass(frozen=True)
class _Torus:
    """Input of the torus study; directions are X+ … Z-, ports that stall most come first."""

    intervals: Archive
    ports: pl.DataFrame
    coordinates: pl.DataFrame


def _torus(
    intervals: Archive, ports: pl.DataFrame, source: CounterSource, engine: Engine
) -> _Torus | None:
    """The counters by direction, None if they are not of a torus."""
    if source.run is not None and is_torus(run := Run.read(source.run)):
        # A run calls all links between routers flat, and includes those of adapters.
        rows = Archive(torus_rows(run, intervals.rows.collect()).lazy())
        return _Torus(rows, verdict.by_port(rows, engine), torus_coordinates(run))
    if ports["direction"].drop_nulls().str.contains(r"^[XYZ][+-]$").any():
        return _Torus(intervals, ports, source.coordinates)
    return None


def _refuse_io(chosen: AnalysisOptions) -> None:
    if chosen.io is not None:
        raise CounterError(
            f"{chosen.io!r} names the I/O routers of a torus, and these counters are not of a "
            f"torus",
            place=option("io"),
            remedy="leave it out",
        )


def _io(ports: pl.DataFrame, pattern: str | None) -> list[str]:
    """Names of the routers that match ``io``."""
    if pattern is None:
        return []
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise CounterError(
            f"{pattern!r} is not a regular expression: {error}",
            place=option("io"),
            remedy="write it like '^io[0-9]'",
        ) from None
    known = [str(name) for name in ports["node_name"].unique().sort()]
    names = [name for name in known if expression.search(name)]
    if not names:
        raise CounterError(
            f"{pattern!r} matches no name",
            place=option("io"),
            remedy="names are like " + ", ".join(repr(name[:40]) for name in known[:3]),
        )
    return names
