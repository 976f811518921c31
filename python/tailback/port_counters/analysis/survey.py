"""The analysis of port counters alone, from a source to a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from tailback.names.ports import port_name
from tailback.port_counters.analysis import verdict
from tailback.port_counters.analysis.classes import attach
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Archive, Engine
from tailback.port_counters.analysis.port_inventory import PortInventory, name_ports, with_classes
from tailback.port_counters.analysis.resets import resets
from tailback.port_counters.analysis.sources import CounterSource
from tailback.port_counters.analysis.timestamp_checks import read_once
from tailback.port_counters.analysis.verdict import Verdict
from tailback.port_counters.far_ends import check_cabling, described
from tailback.port_counters.findings.conservation import (
    are_credible,
    link_balances,
    not_compared,
    wrong_pairs_note,
)
from tailback.port_counters.findings.ill_links import ill_links, without
from tailback.port_counters.findings.port_events import note_discards
from tailback.port_counters.readers.model import CounterData
from tailback.port_counters.schema import CounterError


@dataclass(frozen=True)
class AnalysisOptions:
    """Options of the analysis.

    Attributes:
        tick_ns: Length of a tick of PortXmitWait, nanoseconds; None takes the known one.
        threshold: From which share of its time a port counts as stalling, 0–1.
        last_ns: Restricts the analysis to the last so many nanoseconds of the recorded time.
        muted: Names of devices and ports whose links are not listed as in need of a hand.
    """

    tick_ns: float | None = None
    threshold: float = 0.01
    last_ns: int | None = None
    muted: Sequence[str] = ()


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
        classes = with_classes(ports, inventory, source.counters.classes)
        # Where the source looks its ports up in the inventory, its notes name the unknown ones.
        unmatched = [] if source.matches(inventory) else attach(ports, classes)[1]
        changes, _ = name_ports(source.changes, inventory)
        if ports["resets"].sum():
            changes = pl.concat([changes, resets(intervals, ports, engine)])
            changes = changes.sort("time_ns", maintain_order=True)
        peers = inventory.peers() or stated_peers(source.fabric_ports)
        contradiction = ""
        if contradicted := source.contradictions(inventory):
            contradiction = f"{described(contradicted, 'the fabric')}: {check_cabling()}"
            # Which port counted is certain, and its counters are as old as its far end.
            peers = {**peers, **{(each.node_name, each.port): each.stated for each in contradicted}}
            notes = [contradiction, *notes]
        balances = link_balances(ports, peers)
        if not are_credible(balances):
            notes = [*notes, wrong_pairs_note(balances)]
        elif open_question := not_compared(balances):
            notes = [*notes, open_question]
        ill = ill_links(
            _with_classes(ports, classes),
            source.counts(inventory, chosen.last_ns),
            changes,
            peers,
            _switches(source.fabric_ports, inventory),
            balances if are_credible(balances) else None,
        )
        ill, muted = without(ill, chosen.muted)
        if ports.is_empty():
            notes = [*note_discards(source.counts(inventory), peers), *notes]
        all_notes = [*notes, *source.notes, *inventory.notes, *unmatched, *muted]
        once = read_once(source.counters.readings)
        judged = verdict.assess(
            ports,
            classes,
            threshold=chosen.threshold,
            unknown=source.unknown,
            notes=list(dict.fromkeys(all_notes)),
            events=source.port_events(inventory, chosen.last_ns),
            peers=peers,
            ill=ill,
            changes=changes,
            balances=balances,
            read_once=once.height + _never_read(source.counters),
            damaged=bool(source.counters.left_out),
        )
        devices = once["node_name"].unique(maintain_order=True).to_list()
        return replace(judged, contradiction=contradiction, devices_read_once=devices)
    except CounterError as error:
        raise error if source.path is None else error.located(source.path) from None
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        first = str(error).split("\n")[0][:300]
        raise CounterError(
            f"cannot be decoded: {first}",
            file=source.path,
            remedy="the archive was cut or edited; its columns are in docs/how-to/counters.md",
        ) from None


def _never_read(counters: CounterData) -> int:
    """Number of ports of which every reading is damaged."""
    places = set(counters.readings.select("node_name", "port").unique().iter_rows())
    return sum(place not in places for place in counters.damaged if place[1] >= 0)


def _with_classes(ports: pl.DataFrame, classes: pl.DataFrame) -> pl.DataFrame:
    """Ports with ``category`` and ``port_type``."""
    absent = pl.col("category").fill_null("other"), pl.col("port_type").fill_null("any")
    return attach(ports, classes)[0].with_columns(*absent)


def stated_peers(ports: pl.DataFrame) -> dict[tuple[str, int], str]:
    """Far end of each port as the source states it."""
    rows = ports.drop_nulls("peer_name").select("node_name", "port", "peer_name", "peer_port")
    return {(name, port): port_name(peer, number) for name, port, peer, number in rows.iter_rows()}


def _switches(ports: pl.DataFrame, inventory: PortInventory) -> dict[str, bool]:
    """Whether each device is a switch, as the source or the fabric states it."""
    out = dict(ports.select("node_name", "switch").iter_rows())
    classes = inventory.classes.select("node_name", pl.col("category") != "Host")
    return {**out, **dict(classes.iter_rows())}


def recent(rows: Archive, last_ns: int | None) -> Archive:
    """Intervals of the last part of the recorded time; all without a limit."""
    if last_ns is None:
        return rows
    end = rows.rows.select(pl.col("time_ns").max()).collect(engine="streaming").item()
    return rows if end is None else rows.then(partial(_rows_after, time_ns=end - last_ns))


def _rows_after(rows: pl.LazyFrame, time_ns: int) -> pl.LazyFrame:
    return rows.filter(pl.col("time_ns") > time_ns)
