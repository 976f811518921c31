r"""Output of ``ibqueryerrors --data``: the counters of a whole fabric at one instant.

One line per port::

    Errors for "ys053n18 HCA-1"
       GUID 0x2c90300100f2d port 1: [PortXmitWait == 1286300] [PortXmitData == 973921971 (3.6GB)]

It prints only counters above its thresholds, which it lists at the end (``## Thresholds:``; 0 for
the others). A counter that it prints later was at or below its threshold before
(:func:`with_unprinted`). Data and packets of a port without errors are not printed, and so unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.names.ports import some_ports
from tailback.port_counters.findings import port_events
from tailback.port_counters.readers.model import (
    U32_MAX,
    U64_MAX,
    WORD_BYTES,
    CounterData,
    Unprinted,
    begins_with,
    cut_text,
    events_of,
    left_out_rows,
    missing_flags,
    note_counter,
    parse_counter,
    quoted_text,
    read_text,
    readings_of,
    time_of,
)
from tailback.port_counters.schema import READINGS, CounterError, Flag, conform

_NODE = re.compile(r'Errors for (?:0x[0-9a-fA-F]{1,16} )?"(?P<name>.*)"\s*')
_PORT = re.compile(
    r"\s*GUID (?P<guid>0x[0-9a-fA-F]{1,16}) port (?P<port>[0-9]{1,5}|ALL):(?P<rest>.*)"
)
_COUNTER = re.compile(
    r"\s*\[(?P<name>[A-Za-z0-9_]{1,64}) == (?P<value>[^\s\]()]*)(?: \([^()]*\))?\]"
)
_USED = ("PortXmitData", "PortXmitPkts", "PortXmitWait")
_WAIT: Final = "PortXmitWait"
_THRESHOLD = re.compile(r"\[([A-Za-z0-9_]{1,64}) = ([0-9]{1,20})\]")
_NODES = re.compile(r"## Summary: ([0-9]{1,9}) nodes checked")
_PORTS = re.compile(r"## +([0-9]{1,9}) ports checked")
_PLACE: Final = ("node_guid", "node_name", "port")


HAS_TIME_STAMPS = False


def sniff(path: Path) -> bool:
    """A text file whose first lines say ``Errors for "…"``."""
    return begins_with(path, r'^Errors for (0x[0-9a-fA-F]+ )?"')


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read one run of ``ibqueryerrors --data``.

    Args:
        path: Its output.
        time_ns: When it ran, UTC nanoseconds; the modification time of the file when None.

    Raises:
        CounterError: No port, or none whose counters can be read; a damaged line is left out.
    """
    rows: list[dict[str, Any]] = []
    problems: list[CounterError] = []
    unknown: dict[str, None] = {}
    notes = []
    if time_ns is None:
        notes.append("ibqueryerrors prints no time: the file's modification time was used")
    when, name, sums = time_of(path, time_ns), "", 0
    text = read_text(path)
    last = text.count("\n") + 1
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        if match := _NODE.fullmatch(line):
            name = match["name"]
        elif match := _PORT.fullmatch(line):
            if match["port"] == "ALL":
                sums += 1
                continue
            try:
                if number == last:
                    raise cut_text(path, number)
                rows.append(_reading(path, number, match, unknown, name, when))
            except CounterError as error:
                problems.append(error)
        elif line.strip() and not line.startswith("#"):
            if line.lstrip().startswith("Link info:"):
                unknown.setdefault("Link info")
            else:
                notes.append(f"line {number} was left out: {quoted_text(line)}")
    if problems and not rows:
        raise problems[0]
    if not rows:
        raise CounterError(
            "only sums over all ports of a switch (port ALL)" if sums else "no port in it",
            file=path,
            place="line 1, column 1",
            remedy="give what 'ibqueryerrors --data' printed, with its lines of single ports",
        )
    summary = _read_summary(text)
    if sums:
        notes.append(f"{sums} sums over all ports of a switch (port ALL) were left out")
    return CounterData(
        readings_of(rows),
        unknown=list(unknown),
        notes=notes,
        untimed=True,
        events=events_of(rows),
        left_out=[left_out_rows(problems)] if problems else [],
        # A port that is left out was not at its thresholds.
        unprinted=replace(summary, complete=summary.complete and not problems),
    )


def _reading(
    path: Path, number: int, match: re.Match[str], unknown: dict[str, None], name: str, when: int
) -> dict[str, Any]:
    """The reading of the port in one line; CounterError if it is damaged."""
    if (port := int(match["port"])) > 65535:
        raise CounterError(
            f"port {port} is outside 0 to 65535",
            file=path,
            remedy="the output was cut or edited; collect it again",
            place=f"line {number}, column {match.start('port') + 1}",
        )
    further: dict[str, Any] = {}
    row = _row(_values(path, number, match, unknown, further)) | further
    place = {
        "time_ns": when,
        "node_guid": int(match["guid"], 16),
        "port": port,
        "node_name": name,
        "source": "ibqueryerrors",
    }
    return row | place | {"flags": missing_flags(row)}


def _read_summary(text: str) -> Unprinted:
    """Facts of the summary at the end of the output."""
    lines = [line.strip() for line in text.split("\n") if line.startswith("##")]
    listed = [line for line in lines if line.startswith(("## Thresholds:", "## (null)"))]
    suppressed = (line.split()[2:] for line in lines if line.startswith("## Suppressed:"))
    nodes, ports = _NODES.search(text), _PORTS.search(text)
    return Unprinted(
        {name: int(most) for name, most in _THRESHOLD.findall(listed[-1])} if listed else None,
        frozenset(name for names in suppressed for name in names),
        (int(nodes[1]), int(ports[1])) if nodes and ports else None,
        not any("PMA query failures" in line for line in lines),
    )


def with_unprinted(parts: Sequence[CounterData]) -> list[CounterData]:
    """Readings with the counters that a file prints and the file before it does not.

    Such a counter was at or below its threshold, so it rose by its value less the threshold at
    least. That holds only if its port was read then: another port of its device is printed, or as
    many devices and ports were checked as later, and no query failed.

    Args:
        parts: Counters of any sources, one part for each file.
    """
    out = list(parts)
    mine = [number for number, part in enumerate(out) if part.unprinted is not None]
    mine.sort(key=lambda number: out[number].readings["time_ns"][0])
    lowest = _lowest([out[number] for number in mine])
    earlier = pl.DataFrame(schema=_printed_counters(CounterData()).schema)
    for before, now in pairwise(mine):
        printed = _printed_counters(out[before])
        out[before], out[now] = _complete_readings(out[before], out[now], lowest, earlier)
        earlier = printed
    return out


def _lowest(parts: Sequence[CounterData]) -> dict[str, int]:
    """Smallest printed value of each counter, which is above its threshold."""
    if not parts:
        return {}
    counted = pl.concat([_printed_counters(part) for part in parts]).group_by("counter")
    return dict(counted.agg(pl.col("value").min()).iter_rows())


def _printed_counters(part: CounterData) -> pl.DataFrame:
    """``node_guid, node_name, port, counter, value`` of the counters that have a threshold."""
    wait = part.readings.select(*_PLACE, counter=pl.lit(_WAIT), value="xmit_wait_ticks")
    events = part.events.select(*_PLACE, "counter", "value")
    return pl.concat([wait.drop_nulls("value"), events])


def _complete_readings(
    before: CounterData, now: CounterData, lowest: dict[str, int], earlier: pl.DataFrame
) -> tuple[CounterData, CounterData]:
    """Two consecutive readings: the earlier with the counters that only the later one prints.

    Args:
        before: The earlier reading.
        now: The later reading.
        lowest: Smallest printed value of each counter.
        earlier: Counters that the reading before both prints (:func:`_printed_counters`).
    """
    rules, later = before.unprinted, now.unprinted
    assert rules is not None and later is not None
    new = _printed_counters(now).join(
        _printed_counters(before), on=[*_PLACE, "counter"], how="anti"
    )
    new = new.filter(~pl.col("counter").is_in(list(rules.suppressed)))
    if new.is_empty():
        return before, now
    seen = pl.col("node_name").is_in(before.readings["node_name"].unique().to_list())
    was_read = seen | (rules.checked is not None and rules.checked == later.checked)
    sure, unsure = new.filter(was_read), new.filter(~was_read)
    if not rules.complete:
        sure, unsure = new.clear(), new
    thresholds = rules.thresholds
    if thresholds is None:
        thresholds = {counter: value - 1 for counter, value in lowest.items()}
    limit = pl.col("counter").replace_strict(thresholds, default=0, return_dtype=pl.UInt64)
    # A counter above a lower threshold of the later file may have been as high before.
    sure = sure.with_columns(least=pl.min_horizontal(limit, "value"))
    # A counter that was reset to an unknown value in between is a reset of the whole time.
    was_reset = sure.filter(pl.col("least") > 0).join(earlier, on=[*_PLACE, "counter"], how="semi")
    sure = sure.join(was_reset, on=[*_PLACE, "counter"], how="anti")
    notes = [*now.notes, *_first_printed(sure, unsure)]
    time_ns = before.readings["time_ns"][0]
    events = sure.filter(pl.col("counter") != _WAIT).with_columns(
        time_ns=time_ns,
        value="least",
        interface=pl.lit(None, pl.String),
        at_most=pl.col("least") > 0,
    )
    readings = _add_waits(before.readings, sure.filter(pl.col("counter") == _WAIT), time_ns)
    above = sure.filter((pl.col("counter") == _WAIT) & (pl.col("least") > 0))
    bound = above.select(*_PLACE, _bound=pl.lit(int(Flag.AT_LEAST), pl.UInt32))
    bounded = now.readings.join(bound, on=_PLACE, how="left", maintain_order="left")
    flags = pl.col("flags") | pl.col("_bound").fill_null(0)
    columns = [pl.col(name).cast(kind) for name, kind in port_events.READINGS.items()]
    first = events.select(*columns, port_events.AT_MOST)
    return (
        replace(
            before,
            readings=readings,
            events=pl.concat([before.events, first], how="diagonal"),
        ),
        replace(now, readings=bounded.with_columns(flags=flags).drop("_bound"), notes=notes),
    )


def _add_waits(readings: pl.DataFrame, waits: pl.DataFrame, time_ns: int) -> pl.DataFrame:
    """Readings with PortXmitWait at its threshold (``least``), new rows for ports without one."""
    thresholds = waits.select(*_PLACE, _least="least")
    filled = readings.join(thresholds, on=_PLACE, how="left", maintain_order="left").with_columns(
        flags=pl.when(pl.col("_least").is_null())
        .then("flags")
        .otherwise(pl.col("flags") & ~pl.lit(int(Flag.NO_COUNTER), pl.UInt32)),
        xmit_wait_ticks=pl.coalesce("xmit_wait_ticks", "_least"),
    )
    added = waits.join(readings, on=_PLACE, how="anti").select(
        *_PLACE,
        time_ns=pl.lit(time_ns),
        xmit_wait_ticks="least",
        source=pl.lit("ibqueryerrors"),
    )
    return pl.concat([filled.drop("_least"), conform(READINGS, added)])


def _first_printed(sure: pl.DataFrame, unsure: pl.DataFrame) -> list[str]:
    """Notes on counters that a later file is the first to print."""
    notes = []
    if sure.height:
        ports = sure.select(*_PLACE).unique(maintain_order=True)
        notes.append(
            f"counters first printed by a later file: {sure.height}, like those of "
            f"{some_ports(ports)}; they rose by their value less the threshold of ibqueryerrors "
            f"({max(sure['least'])} at most) or more"
        )
    if unsure.height:
        ports = unsure.select(*_PLACE).unique(maintain_order=True)
        worst = unsure.sort("value").row(-1, named=True)
        notes.append(
            f"counters that a file lacks and the next prints: {unsure.height}, like those of "
            f"{some_ports(ports)} (up to {worst['counter']} {worst['value']:,}); whether the port "
            "was read before is unknown, so their rise is, too"
        )
    return notes


def _values(
    path: Path,
    number: int,
    match: re.Match[str],
    unknown: dict[str, None],
    further: dict[str, Any],
) -> dict[str, int]:
    """The counters of one line. Others go to ``further``, or to ``unknown`` if not used."""
    out: dict[str, int] = {}
    text, at, offset = match["rest"], 0, match.start("rest")
    while text[at:].strip():
        counter = _COUNTER.match(text, at)
        if counter is None:
            raise CounterError(
                f"{quoted_text(text[at:])} is not a counter",
                file=path,
                place=f"line {number}, column {offset + at + 1}",
                remedy="counters are like '[PortXmitWait == 12]'",
            )
        column = offset + counter.start("value") + 1
        value = parse_counter(counter["value"], path, number, column)
        if counter["name"] in _USED:
            out[counter["name"]] = value
        else:
            note_counter(further, unknown, counter["name"], value)
            if "castXmitPkts" in counter["name"]:
                out["extended"] = 1
        at = counter.end()
    return out


def _row(values: dict[str, int]) -> dict[str, Any]:
    """Columns of ``READINGS`` from the counters of a line. The width follows from their kind."""
    wide = "extended" in values or any(v > U32_MAX for v in values.values())
    largest = U64_MAX if wide else U32_MAX
    row: dict[str, Any] = {}
    if "PortXmitData" in values:
        row["data_bytes"] = min(values["PortXmitData"] * WORD_BYTES, U64_MAX)
        row["data_limit"] = min(largest * WORD_BYTES, U64_MAX)
    if "PortXmitPkts" in values:
        row["packets"], row["packets_limit"] = values["PortXmitPkts"], largest
    if "PortRcvData" in values:
        row["received_bytes"] = min(values["PortRcvData"] * WORD_BYTES, U64_MAX)
    for name, column in (("PortRcvPkts", "received_packets"), ("PortXmitWait", "xmit_wait_ticks")):
        if name in values:
            row[column] = values[name]
    return row
