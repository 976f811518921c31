"""The analysis of port counters alone, from a source to a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import polars as pl

from tailback.port_counters.analysis import verdict
from tailback.port_counters.analysis.classes import attach
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Archive, Engine
from tailback.port_counters.analysis.port_inventory import PortInventory, with_classes
from tailback.port_counters.analysis.sources import CounterSource
from tailback.port_counters.analysis.verdict import Verdict
from tailback.port_counters.schema import CounterError


@dataclass(frozen=True)
class AnalysisOptions:
    """Options of the analysis.

    Attributes:
        tick_ns: Length of a tick of PortXmitWait, nanoseconds; None takes the known one.
        threshold: From which share of its time a port counts as stalling, 0–1.
        last_ns: Restricts the analysis to the last so many nanoseconds of the recorded time.
    """

    tick_ns: float | None = None
    threshold: float = 0.01
    last_ns: int | None = None


def analyse(
    source: CounterSource,
    inventory: PortInventory,
    chosen: AnalysisOptions,
    engine: Engine = LOCAL_ENGINE,
) -> Verdict:
    """The verdict from counters alone.

    Args:
        source: The counters, from ``sources.load``.
        inventory: The ports to which the counters belong.
        chosen: Options of the analysis.
        engine: Processes archives.

    Raises:
        CounterError: An archive is damaged.
    """
    try:
        intervals, notes = source.intervals(inventory, chosen.tick_ns)
        ports = verdict.by_port(recent(intervals, chosen.last_ns), engine)
        classes = with_classes(ports, inventory)
        # Where the source looks its ports up in the inventory, its notes name the unknown ones.
        unmatched = [] if source.matches(inventory) else attach(ports, classes)[1]
        return verdict.assess(
            ports,
            classes,
            threshold=chosen.threshold,
            unknown=source.unknown,
            notes=list(dict.fromkeys([*source.notes, *inventory.notes, *notes, *unmatched])),
            events=source.port_events(inventory, chosen.last_ns),
            peers=inventory.peers(),
        )
    except CounterError as error:
        raise error if source.path is None else error.located(source.path) from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        first = str(error).split("\n")[0][:300]
        raise CounterError(
            f"cannot be decoded: {first}",
            file=source.path,
            remedy="the archive was cut or edited; its columns are in docs/how-to/counters.md",
        ) from None


def recent(rows: Archive, last_ns: int | None) -> Archive:
    """Intervals of the last part of the recorded time; all without a limit."""
    if last_ns is None:
        return rows
    end = rows.rows.select(pl.col("time_ns").max()).collect(engine="streaming").item()
    return rows if end is None else rows.then(partial(_rows_after, time_ns=end - last_ns))


def _rows_after(rows: pl.LazyFrame, time_ns: int) -> pl.LazyFrame:
    return rows.filter(pl.col("time_ns") > time_ns)
