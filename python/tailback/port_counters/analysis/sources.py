"""Counters of any source, ready for analysis: files of any reader, or Parquet archives.

Files are read into memory. Archives and collections stay on disk and are processed in passes, so
they may be of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from tailback.errors import TailbackError, option
from tailback.io.parquet import reading, scan_tables
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.analysis.passes import Archive
from tailback.port_counters.analysis.port_inventory import (
    PortInventory,
    fill_ticks,
    name_ports,
    spellings,
    ticked,
    with_port_names,
)
from tailback.port_counters.analysis.timestamp_checks import (
    Instants,
    check,
    note_clock_steps,
    note_decreasing_counters,
    note_single_readings,
)
from tailback.port_counters.changes import no_changes
from tailback.port_counters.far_ends import Contradiction, contradictions
from tailback.port_counters.findings.port_events import pauses, port_events, within
from tailback.port_counters.increments import possible
from tailback.port_counters.readers import (
    FAR_ENDS,
    READERS,
    CounterData,
    collection,
    engine_run,
    merged,
    read_part,
    reader_of,
)
from tailback.port_counters.schema import (
    INTERVALS,
    CounterError,
    Flag,
    conform,
)
from tailback.port_counters.segment_digests import left_out, readable_files
from tailback.port_counters.targets import ports_frame
from tailback.run.run import run_folder

RUN: Final = "engine-run"
"""Name of the reader of simulated runs."""

_NEEDED: Final = ("time_ns", "interval_ns", "node_name", "port", "stall_fraction", "utilization")


@dataclass
class CounterSource:
    """Counters to analyse.

    Attributes:
        kinds: Names of the sources, without duplicates.
        counters: Content of files. It has only the counters of errors of a collection, and nothing
            of an archive.
        archive: An archive of ``counter_intervals``; also that of a collection.
        ports: Distinct ``node_guid, node_name, port`` of a collection; None for other sources.
        path: The archive, for error messages.
        run: Run directory that the counters are of.
        instants: Where the instants of readings come from.
        files: The files they are in.
        changes: Changes of links and devices, rows of ``changes.LINK_CHANGES``.
        fabric_ports: Ports with their far ends that the source states, rows of ``targets.PORTS``.
        unknown: Columns or fields that were not used.
        notes: What was odd and tolerated.
    """

    kinds: list[str] = field(default_factory=list)
    counters: CounterData = field(default_factory=CounterData)
    archive: Archive | None = None
    ports: pl.DataFrame | None = None
    path: Path | None = None
    run: Path | None = None
    instants: Instants = "recorded"
    files: Sequence[Path] = ()
    changes: pl.DataFrame = field(default_factory=no_changes)
    fabric_ports: pl.DataFrame = field(default_factory=lambda: ports_frame(()))
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def contradictions(
        self, inventory: PortInventory, peers: Mapping[tuple[str, int], str] | None = None
    ) -> list[Contradiction]:
        """Ports with another far end by their counters than by the fabric.

        What was recabled while it was collected is left out.

        Args:
            inventory: The ports of the fabric.
            peers: Port at the far end of each; None: those of the inventory.
        """
        recabled = self.changes.filter(pl.col("change") == "recabled")
        lasting = self.fabric_ports.join(recabled, on=["node_guid", "port"], how="anti")
        stated = lasting.with_columns(interface=pl.lit(None, pl.String)).select(*FAR_ENDS)
        far_ends = pl.concat([self.counters.far_ends, stated.drop_nulls("peer_name")])
        far_ends, _ = name_ports(far_ends, inventory)
        peers = inventory.peers() if peers is None else peers
        return contradictions(far_ends, peers, inventory.hosts)

    def matches(self, inventory: PortInventory) -> bool:
        """Whether :meth:`intervals` looks its ports up in ``inventory``, and notes the unknown."""
        return not inventory.ports.is_empty() and (self.archive is None or self.ports is not None)

    def intervals(
        self, inventory: PortInventory, tick_ns: float | None
    ) -> tuple[Archive, list[str]]:
        """All intervals, with the names, speeds and ticks that ``inventory`` knows, and notes.

        Args:
            inventory: The ports of the fabric.
            tick_ns: Length of a tick of PortXmitWait that the user gives, nanoseconds.

        Raises:
            CounterError: The instants of the readings cannot be true.
        """
        if self.archive is not None:
            return self._archived(self.archive, inventory, tick_ns)
        readings = with_pauses(self.counters.readings, self.counters.events)
        if tick_ns is not None:
            self._refuse_tick()
            readings, _ = fill_ticks(readings, tick_ns)
        ports = inventory.with_stated_ticks(self.counters.stated_ticks)
        try:
            readings, notes = name_ports(readings, ports)
            intervals, lost = name_ports(self.counters.intervals, inventory)
        except TailbackError as error:
            raise error.located(self.files[0]) from None
        readings, more = fill_ticks(readings, None)
        if tick_ns is not None:
            intervals = ticked(intervals.lazy(), tick_ns).collect()
        differences = difference(readings)
        try:
            check(readings, differences, self.instants)
        except CounterError as error:
            raise error.located(self.files[-1]) from None
        more += note_clock_steps(readings)
        more += [
            *note_single_readings(readings),
            *note_decreasing_counters(differences, self.instants),
        ]
        frame = possible(_add_utilization(pl.concat([intervals, differences]).lazy())).collect()
        return Archive(frame.lazy()), [*notes, *more, *lost]

    def port_events(self, inventory: PortInventory, last_ns: int | None = None) -> pl.DataFrame:
        """Errors, pauses and marks that the ports counted, as rows of ``port_events``.

        Args:
            inventory: The ports.
            last_ns: Restricts it to the last so many nanoseconds of the recorded time.
        """
        return port_events(self.counts(inventory, last_ns))

    def counts(self, inventory: PortInventory, last_ns: int | None = None) -> pl.DataFrame:
        """Counters of errors, pauses and marks as rows of ``port_events.READINGS``; as above."""
        events = self.counters.all_events()
        if last_ns is not None and not events.is_empty():
            end = int(events["time_ns"].max())  # type: ignore[arg-type]
            events = within(events, end - last_ns, end)
        return name_ports(events, inventory)[0]

    def _refuse_tick(self) -> None:
        """Refuse a tick where stalls are recorded only as time."""
        frames = (self.counters.readings, self.counters.intervals)
        if any(frame["xmit_wait_ticks"].is_not_null().any() for frame in frames):
            return
        if any(frame["stall_ns"].is_not_null().any() for frame in frames):
            raise CounterError(
                "has no effect: these counters give stalls as time, not in ticks",
                place=option("tick_ns"),
                remedy="leave it out",
            )

    def _archived(
        self, rows: Archive, inventory: PortInventory, tick_ns: float | None
    ) -> tuple[Archive, list[str]]:
        """The intervals of an archive, or of a collection, which names its ports by GUID."""
        notes: list[str] = []
        if self.ports is not None:
            ports = conform(INTERVALS, self.ports)
            _, notes = name_ports(ports, inventory)
            if joined := spellings(ports, inventory):
                rows = rows.then(partial(_renamed, names=joined))
            if not inventory.ports.is_empty():
                rows = rows.then(partial(with_port_names, inventory=inventory))
        if tick_ns is not None:
            rows = rows.then(partial(ticked, tick_ns=tick_ns))
        return (rows if self.ports is None else rows.then(_add_utilization)).then(possible), notes


def with_pauses(readings: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Readings with the pauses that their ports counted.

    Args:
        readings: Rows of ``counter_readings``.
        events: Rows of ``port_events.READINGS`` of the same source.
    """
    held = pauses(events)
    if held.is_empty():
        return readings
    key = ["time_ns", "node_guid", "node_name", "port", "interface"]
    # Interfaces have their numbers in the readings only.
    held = held.with_columns(
        port=pl.when(pl.col("interface").is_null()).then("port").otherwise(0).cast(pl.UInt16)
    )
    number = pl.when(pl.col("interface").is_null()).then("port").otherwise(0).cast(pl.UInt16)
    out = readings.drop("paused_ns", "pause_frames").with_columns(_number="port", port=number)
    out = out.join(held, on=key, how="left", nulls_equal=True, maintain_order="left")
    least = pl.when(pl.col("several").fill_null(False)).then(int(Flag.AT_LEAST)).otherwise(0)
    return out.with_columns(port="_number", flags=pl.col("flags") | least.cast(pl.UInt32)).select(
        readings.columns
    )


def load(
    paths: Sequence[Path], reader: str | None = None, *, every_ns: int | None = None
) -> CounterSource:
    """Read files of counters as one source, or open one archive.

    Args:
        paths: Files or folders. A folder of no known format stands for the files in it.
        reader: Name of the reader for all of them; None detects each format.
        every_ns: Nanoseconds from one file to the next, for formats without time stamps.

    A file that is empty, damaged or of an unknown format is left out if others can be read. A note
    names it.

    Raises:
        CounterError: A file is missing, none can be read, an archive or a run comes with other
            files, or ``every_ns`` is given for a format with time stamps.
        TailbackError: ``reader`` is not the name of a reader.
    """
    if reader is None:
        paths = [file for path in paths for file in _files_in(path)]
    archives = [path for path in paths if _is_archive(path)] if reader is None else []
    if archives and len(paths) > 1:
        raise CounterError(
            "an archive cannot be combined with other files",
            file=archives[0],
            remedy="give one archive, or files",
        )
    if every_ns is not None:
        _refuse_every([] if archives else paths, reader)
    if archives:
        return _open(archives[0])
    _one_run(paths, reader)
    if reader in (None, "collection") and all(collection.sniff(path) for path in paths):
        return _collections(paths)
    counters = _files(paths, reader, every_ns)
    notes = counters.notes
    instants: Instants = "written" if counters.untimed else "recorded"
    if every_ns is not None and counters.untimed:
        instants = "every"
    frames = (counters.readings, counters.intervals)
    if all(frame.is_empty() for frame in frames):
        raise CounterError(
            "no rows of counters in it",
            file=paths[0],
            remedy="a header alone is not enough: also give the file with its rows",
        )
    kinds = pl.concat([f["source"] for f in frames]).unique(maintain_order=True).drop_nulls()
    return CounterSource(
        [str(kind) for kind in kinds],
        counters,
        run=run_folder(paths[0]) if reader in (None, RUN) and engine_run.sniff(paths[0]) else None,
        unknown=counters.unknown,
        notes=notes,
        instants=instants,
        files=paths,
    )


def _files(paths: Sequence[Path], reader: str | None, every_ns: int | None) -> CounterData:
    """The counters of all files that can be read; the first notes name the others.

    Raises:
        CounterError: A file does not exist, or none can be read.
    """
    parts: list[CounterData] = []
    problems: list[CounterError] = []
    instant = 0
    for path in paths:
        time_ns = None if every_ns is None else instant * every_ns
        instant += 1
        try:
            parts.append(read_part(path, reader, time_ns=time_ns))
        except CounterError as error:
            if not path.exists():
                raise
            problems.append(error)
            continue
        # A file that has nothing but ticks is of no instant.
        instant -= bool(parts[-1].stated_ticks) and parts[-1].readings.is_empty()
    if not parts:
        raise problems[0]
    timed = [] if every_ns is None else [part for part in parts if not part.untimed]
    if timed and len(timed) < len(parts):
        raise CounterError(
            f"{len(timed)} of {len(parts)} files state the time of their reading",
            file=paths[0],
            place=option("every_ns"),
            remedy=f"give files that all state it, without {option('every_ns')}, or none that does",
        )
    counters = merged(parts)
    if timed:
        name = option("every_ns")
        counters.notes.append(f"{name} has no effect: the files state the times of their readings")
    not_read = [left_out(error) for error in problems]
    counters.left_out = [*not_read, *counters.left_out]
    counters.notes = [*not_read, *counters.notes]
    return counters


def _refuse_every(paths: Sequence[Path], reader: str | None) -> None:
    """Refuse a time between files where a file, or an archive (no paths), has time stamps."""
    timed = next((path for path in paths if _has_time_stamps(path, reader)), None)
    if timed is not None or not paths:
        raise CounterError(
            "has no effect: these counters have time stamps",
            file=timed,
            place=option("every_ns"),
            remedy="leave it out; it is for what perfquery and ibqueryerrors print, and for sysfs",
        )


def _has_time_stamps(path: Path, reader: str | None) -> bool:
    try:
        return reader_of(path, reader).HAS_TIME_STAMPS
    except CounterError:
        if not path.exists():
            raise
        return False  # an empty or unknown file, which is left out


def _one_run(paths: Sequence[Path], reader: str | None) -> None:
    """Refuse a run together with other files: its time begins at 0 and its network is separate."""
    run = next((path for path in paths if reader in (None, RUN) and engine_run.sniff(path)), None)
    if run is not None and len(paths) > 1:
        raise CounterError(
            "a simulated run cannot be combined with other files: its clock and network are "
            "its own",
            file=run,
            remedy="give one run; 'tailback compare' compares two",
        )


def _is_archive(path: Path) -> bool:
    try:
        if path.is_dir():
            return bool(_parts(path))
        return path.suffix == ".parquet" and path.is_file()
    except (OSError, ValueError):
        return False


def _parts(folder: Path) -> list[Path]:
    """The files of an archive: those called part, or all where there is nothing but tables."""
    files = sorted(file for file in folder.iterdir() if not file.name.startswith((".", "_")))
    parts = [file for file in files if file.match("part-*.parquet")]
    return parts or (files if all(file.suffix == ".parquet" for file in files) else [])


def _files_in(path: Path) -> list[Path]:
    """The path itself, or what is in a folder that no reader accepts as a whole.

    That is its files, and those of its folders that a reader accepts.
    """
    if not path.is_dir() or _is_archive(path) or any(entry.part.sniff(path) for entry in READERS):
        return [path]
    entries = sorted(path.iterdir())
    readable = [e for e in entries if e.is_dir() and any(r.part.sniff(e) for r in READERS)]
    return sorted([*readable, *(entry for entry in entries if entry.is_file())]) or [path]


def _collections(paths: Sequence[Path]) -> CounterSource:
    """Collections of ``tailback collect``: their segments stay on the disk.

    Raises:
        CounterError: A file is damaged or has other columns.
    """
    columns = ["node_guid", "node_name", "port"]
    ports = pl.DataFrame(schema={name: INTERVALS.polars_schema[name] for name in columns})
    kinds: list[str] = []
    files: list[str] = []
    frames: list[pl.LazyFrame] = []
    notes: list[str] = []
    counters, changes, fabric_ports = CounterData(), no_changes(), ports_frame(())
    for path in paths:
        tables, missing = collection.scan(path)
        events, unused, problems = collection.errors(path)
        counters.events = pl.concat([counters.events, events])
        counters.unknown += unused
        notes += [*missing, *collection.notes(path), *problems]
        own_changes, damaged_events = collection.changes(path)
        own_ports, damaged_ports = collection.fabric_ports(path)
        changes = pl.concat([changes, own_changes])
        fabric_ports = pl.concat([fabric_ports, own_ports])
        notes += [*damaged_events, *damaged_ports]
        for file, rows in tables:
            frame = _conforming(rows)
            with reading(file, error=CounterError, remedy="move the file out of the folder"):
                named = frame.select(*columns, "source").unique(maintain_order=True)
                named_rows = named.collect(engine="streaming")
            ports = pl.concat([ports, named_rows.select(columns)]).unique(maintain_order=True)
            kinds += named_rows["source"].drop_nulls().to_list()
            files.append(str(file.absolute()))
            frames.append(frame)
    empty = pl.LazyFrame(schema=INTERVALS.polars_schema)
    return CounterSource(
        list(dict.fromkeys(kinds)),
        counters,
        unknown=counters.unknown,
        archive=Archive(pl.concat(frames) if frames else empty, tuple(files), _conforming),
        ports=ports,
        path=paths[0] if len(paths) == 1 else None,
        files=paths,
        notes=list(dict.fromkeys(notes)),
        changes=changes.sort("time_ns", maintain_order=True),
        fabric_ports=fabric_ports.unique(["node_guid", "port"], keep="last", maintain_order=True),
    )


def _open(path: Path) -> CounterSource:
    """An archive of intervals."""
    files = _parts(path) if path.is_dir() else [path]
    files, notes = readable_files(files)
    frame = scan_tables(files, error=CounterError, checked=True)
    names = frame.collect_schema().names()
    _needs(names, path)
    parts = tuple(str(file.absolute()) for file in files)
    archive = Archive(_conforming(frame), parts, _conforming)
    others = [name for name in names if name not in INTERVALS.polars_schema]
    return CounterSource(["archive"], archive=archive, path=path, unknown=others, notes=list(notes))


def _needs(names: list[str], path: Path) -> None:
    for column in _NEEDED:
        if column not in names:
            raise CounterError(
                f"column {column!r} is missing",
                file=path,
                remedy="an archive has the columns of counter_intervals, docs/reference/tables.md",
            )


def _add_utilization(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Intervals with their utilization, where bytes and capacity are known."""
    share = pl.col("data_bytes") * 8 / (pl.col("capacity_gbps") * pl.col("interval_ns"))
    return rows.with_columns(utilization=pl.coalesce("utilization", share))


def _renamed(rows: pl.LazyFrame, names: dict[str, str]) -> pl.LazyFrame:
    return rows.with_columns(pl.col("node_name").replace(names))


def _conforming(rows: pl.LazyFrame) -> pl.LazyFrame:
    names = rows.collect_schema().names()
    absent: dict[str, object] = {"flags": 0, "node_guid": 0}
    return rows.select(
        pl.col(name).cast(dtype) if name in names else pl.lit(absent.get(name), dtype).alias(name)
        for name, dtype in INTERVALS.polars_schema.items()
    )
