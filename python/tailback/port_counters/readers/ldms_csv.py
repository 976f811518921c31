"""CSV files of LDMS (store_csv): ibnet, sysclassib, Gemini and Aries samplers.

The header is the first line, ``#Time, Time_usec, …``, or a separate file next to the data called
``<name>.HEADER`` or ``HEADER``, which LDMS can write. Counters become readings. The percentages of
the Gemini sampler become intervals where the file has no counters.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

import polars as pl

from tailback.io.input_files import content, head_bytes, is_input_file, opened
from tailback.port_counters.analysis.classes import CLASSES
from tailback.port_counters.findings import port_events
from tailback.port_counters.readers.ldms_columns import (
    ADAPTER,
    FILES,
    GEMINI_GBPS,
    GEMINI_TILES,
    LANES_A_TILE,
    LdmsLayout,
    LdmsPort,
    parse_header,
)
from tailback.port_counters.readers.model import (
    U64_MAX,
    CounterData,
    identified,
    left_out_rows,
    quoted_text,
)
from tailback.port_counters.schema import INTERVALS, LID_NAME, READINGS, CounterError, Flag, conform

_HEADER_LIMIT: Final = 4 << 20
_SECOND_NS: Final = 1_000_000_000


_OF_NODE: Final = {ADAPTER: "Host", FILES: "Files"}
"""Class of what a Cray node counts of itself, as the device is named."""


HAS_TIME_STAMPS = True


def sniff(path: Path) -> bool:
    """A CSV with the header of a known LDMS sampler."""
    if not is_input_file(path):
        return False
    header_lines = _header(path)
    return header_lines is not None and parse_header(header_lines[0]) is not None


def _header(path: Path) -> tuple[list[str], int] | None:
    """Column names and how many lines of the file they take; None when there is no header."""
    first = head_bytes(path, _HEADER_LIMIT).partition(b"\n")[0]
    if first.startswith(b"#"):
        return _names(first), 1
    for beside in (path.with_name(path.name + ".HEADER"), path.with_name("HEADER")):
        if is_input_file(beside):
            line = head_bytes(beside, _HEADER_LIMIT).partition(b"\n")[0]
            if line.startswith(b"#"):
                return _names(line), 0
    return None


def _names(line: bytes) -> list[str]:
    text = line.decode("utf-8", errors="replace").lstrip("#")
    return [name.strip().strip('"') for name in text.strip("\r\n").split(",")]


def read(path: Path, *, time_ns: int | None = None, interval_s: float = 60.0) -> CounterData:
    """Read one LDMS CSV file.

    Args:
        path: The file.
        time_ns: Not needed: every row has its time. Given, it is added to all of them, for
            recordings whose clock starts at 0.
        interval_s: Seconds between two samples: the length of the intervals of the Gemini
            sampler's percentages (Blue Waters: 60, Jha et al. II-D).

    Raises:
        CounterError: No header, an unknown sampler, or a value that is not a number, with its line
            and column.
    """
    header_lines = _header(path)
    if header_lines is None:
        raise CounterError(
            "an LDMS CSV without its header",
            file=path,
            place="line 1, column 1",
            remedy="the first line is '#Time, …', or put it in a file called HEADER next to it",
        )
    names, skip = header_lines
    layout = parse_header(names)
    if layout is None:
        raise CounterError(
            "has no column of a known sampler (ibnet, sysclassib, Gemini, Aries)",
            file=path,
            place="line 1, column 1",
            remedy="its columns are: " + ", ".join(quoted_text(name) for name in names[:12]),
        )
    text, problems = _table(path, len(names), skip, layout)
    if problems and text.is_empty():
        raise problems[0]
    left_out = [left_out_rows(problems)] if problems else []
    out = CounterData(unknown=layout.unknown, left_out=left_out)
    base = _place(text, layout, time_ns or 0)
    if base.is_empty():
        out.notes.append(f"{path.name}: no row under its header")
    raw = any(port.cumulative for port in layout.ports if port.device not in _OF_NODE)
    rows = {}
    for adapter in dict.fromkeys(port.device for port in layout.ports):
        rows[adapter], devices = identified(_of_adapter(base, adapter), _labels(layout))
        out.devices |= devices
    readings = [
        frame
        for port in layout.ports
        if (raw or port.device in _OF_NODE)
        and (frame := _readings(rows[port.device], port, layout)) is not None
    ]
    intervals = [
        frame
        for port in layout.ports
        if not raw and (frame := _intervals(rows[port.device], port, interval_s)) is not None
    ]
    out.events = pl.concat(
        [out.events, *(_events(rows[port.device], port) for port in layout.ports)]
    )
    out.readings = pl.concat([out.readings, *readings])
    out.intervals = pl.concat([out.intervals, *intervals])
    if raw and any(port.derived for port in layout.ports):
        out.notes.append("percentages were left out: they are computed anew from the counters")
    if any(port.device in _OF_NODE for port in layout.ports):
        out.classes = pl.concat([_classes(rows[port.device], port) for port in layout.ports])
    if {"x", "y", "z"} <= set(layout.place):
        out.coordinates = base.select("node_name", "x", "y", "z").unique(maintain_order=True)
    if layout.family == "gemini":
        out.notes.append("capacity of Z links: 15 GB/s assumed; one in eight has 9.4 GB/s")
    return out


def _table(
    path: Path, width: int, skip: int, layout: LdmsLayout
) -> tuple[pl.DataFrame, list[CounterError]]:
    """The used columns as numbers, ``line`` is the line in the file; and the rows left out.

    Rows that are cut or hold a wrong value are left out.
    """
    used = sorted(
        set(layout.place.values())
        | {value.index for port in layout.ports for value in (*port.cumulative, *port.derived)}
        | {index for port in layout.ports for index, _ in port.events}
    )
    data, ragged = content(path, CounterError), dict[int, CounterError]()
    columns = sorted({*used, width - 1})
    try:
        frame = _fields(data, width, skip, columns)
        is_cut = frame[f"c{width - 1}"].null_count() > 0
    except pl.exceptions.PolarsError:
        is_cut = True
    if is_cut:
        ragged = _ragged(path, width, skip)
        empty = b"," * (width - 1)
        kept = [empty if n in ragged else line for n, line in enumerate(data.split(b"\n"), 1)]
        try:
            frame = _fields(b"\n".join(kept), width, skip, columns)
        except pl.exceptions.PolarsError as error:
            raise CounterError(
                f"cannot be read as CSV: {error}", file=path, place=f"line {skip + 1}, column 1"
            ) from None
    frame = frame.with_row_index("line", offset=skip + 1)
    first = f"c{layout.place['time']}"
    is_row = ~pl.col(first).str.starts_with("#").fill_null(False)
    frame = frame.filter(is_row & ~pl.col("line").is_in(list(ragged)))
    text_columns = {layout.place[k] for k in ("producer", "node_name") if k in layout.place}
    floats = {layout.place[k] for k in ("time", "turnaround") if k in layout.place}
    out, problems = frame.select("line"), ragged
    for index in used:
        values = frame[f"c{index}"].str.strip_chars()
        if index not in text_columns:
            values, wrong = _numbers(values, frame["line"], index, path, floating=index in floats)
            problems = wrong | problems
        out = out.with_columns(values.alias(f"c{index}"))
    undamaged = out.filter(~pl.col("line").is_in(list(problems)))
    return undamaged, [problems[line] for line in sorted(problems)]


def _fields(data: bytes, width: int, skip: int, columns: list[int]) -> pl.DataFrame:
    """Some columns of all rows as text."""
    return pl.read_csv(
        io.BytesIO(data),
        has_header=False,
        skip_rows=skip,
        infer_schema=False,
        schema={f"c{i}": pl.String for i in range(width)},
        quote_char=None,
        encoding="utf8-lossy",
        raise_if_empty=False,
        columns=columns,
    )


def _numbers(
    values: pl.Series, lines: pl.Series, index: int, path: Path, *, floating: bool
) -> tuple[pl.Series, dict[int, CounterError]]:
    """A column as numbers, null where it is none; an error for each wrong value, by its line."""
    cleaned = values.replace("", None)
    kind = pl.Float64 if floating else pl.UInt64
    # Some stores write whole counters with a decimal point: "12.000000".
    integers = cleaned if floating else cleaned.str.replace(r"\.0+$", "")
    out = integers.cast(kind, strict=False)
    bad = out.is_null() & cleaned.is_not_null()
    if floating:
        bad = bad | (~out.is_finite() & out.is_not_null())
    problems: dict[int, CounterError] = {}
    for row in bad.arg_true().to_list():
        line = int(lines[row])
        column = _character(path, line, index) if not problems else index + 1
        problems[line] = CounterError(
            f"{quoted_text(str(values[row]))} is not a number",
            file=path,
            place=f"line {line}, column {column}",
            remedy="the file was cut or edited; leave that line out",
        )
    return out, problems


def _character(path: Path, line: int, index: int) -> int:
    """Character at which a field starts, from 1."""
    with opened(path, CounterError) as file:
        for number, row in enumerate(file, 1):
            if number == line:
                fields = row.decode("utf-8", errors="replace").split(",")
                before = sum(len(part) + 1 for part in fields[:index])
                field = fields[index] if index < len(fields) else ""
                return before + len(field) - len(field.lstrip()) + 1
    return 1


def _ragged(path: Path, width: int, skip: int) -> dict[int, CounterError]:
    """An error for each line without ``width`` fields, by its number."""
    out: dict[int, CounterError] = {}
    with opened(path, CounterError) as file:
        for number, row in enumerate(file, 1):
            stripped = row.strip()
            if number <= skip or not stripped or stripped.startswith(b"#"):
                continue
            fields = row.count(b",") + 1
            if fields != width:
                out[number] = CounterError(
                    f"{fields} fields where the header has {width}",
                    file=path,
                    place=f"line {number}, column {len(row.rstrip()) + 1}",
                    remedy="the file was cut, or its header is of another sampler",
                )
    return out


def _place(text: pl.DataFrame, layout: LdmsLayout, offset_ns: int) -> pl.DataFrame:
    """The values with the time and node of every row."""
    at = {role: f"c{index}" for role, index in layout.place.items()}
    usable = text.filter(pl.col(at["time"]).is_not_null() & (pl.col(at["time"]).abs() < 9e9))
    seconds = pl.col(at["time"])
    if "time_usec" in at:
        # Time includes the microseconds, but a float cannot hold nanoseconds since 1970.
        time = seconds.floor().cast(pl.Int64) * _SECOND_NS + (
            pl.col(at["time_usec"]).clip(0, 999_999).cast(pl.Int64).fill_null(0) * 1000
        )
    else:
        time = (seconds * 1e6).round().cast(pl.Int64) * 1000
    has_coordinates = {"x", "y", "z"} <= set(at)
    coordinates = (
        pl.format("({},{},{})", *(pl.col(at[a]) for a in "xyz")) if has_coordinates else None
    )
    names = [pl.col(at[role]) for role in ("node_name", "producer") if role in at]
    if "lid" in at:
        names.append(pl.format(LID_NAME, pl.col(at["lid"])))
    if "component" in at:
        names.append(pl.format("component {}", pl.col(at["component"])))
    own_name = pl.coalesce([*names, pl.lit("")])
    if coordinates is not None:
        # Two nodes share a Gemini router, and the links are those of the router.
        names.insert(0, coordinates)
    turnaround = (
        (pl.col(at["turnaround"]).clip(0, 1e6) * _SECOND_NS).cast(pl.UInt64)
        if "turnaround" in at
        else pl.lit(None, pl.UInt64)
    )
    extra = [pl.col(at[a]).cast(pl.Int32, strict=False).alias(a) for a in "xyz" if a in at]
    extra += [pl.col(at[label]).alias(label) for label in _labels(layout)]
    return usable.with_columns(
        (time + offset_ns).alias("time_ns"),
        pl.coalesce([*names, pl.lit("")]).alias("node_name"),
        own_name.alias("own_name"),
        turnaround.alias("turnaround_ns"),
        *extra,
        (pl.col(at["port"]) if "port" in at else pl.lit(0)).alias("own_port"),
    )


def _readings(base: pl.DataFrame, port: LdmsPort, layout: LdmsLayout) -> pl.DataFrame | None:
    """Readings of one port from its counters."""
    if not port.cumulative:
        return None
    columns = {
        "time_ns": pl.col("time_ns"),
        "turnaround_ns": pl.col("turnaround_ns"),
        **_port(port),
        "direction": pl.lit(port.direction, pl.String),
        "flags": pl.lit(0, pl.UInt32),
        "source": pl.lit(f"ldms {layout.family}"),
    }
    for value in port.cumulative:
        worth = int(value.scale)
        number = pl.col(f"c{value.index}").clip(upper_bound=U64_MAX // worth) * worth
        # A node sends by RDMA and in short messages, and has several file systems.
        earlier = columns.get(value.target)
        columns[value.target] = number if earlier is None else earlier + number
    if port.direction is not None:
        columns |= _gemini_link(port.direction[0], columns.get("lanes", pl.lit(None, pl.UInt64)))
    frame = base.select(expression.alias(column) for column, expression in columns.items())
    return conform(READINGS, frame)


def _port(port: LdmsPort) -> dict[str, pl.Expr]:
    """Number and device of a port."""
    number = pl.col("own_port") if port.port is None else pl.lit(port.port)
    return {
        "port": number.cast(pl.UInt16, strict=False).fill_null(0),
        "node_name": pl.col("node_name"),
    }


def _of_adapter(base: pl.DataFrame, adapter: str) -> pl.DataFrame:
    """The rows with the names of one adapter of each node."""
    if not adapter:
        return base
    name = "own_name" if adapter in _OF_NODE else "node_name"
    return base.with_columns(node_name=pl.concat_str(name, pl.lit(" " + adapter)))


def _classes(base: pl.DataFrame, port: LdmsPort) -> pl.DataFrame:
    """The class of a port: its direction, or what a node counts of itself."""
    kind = {
        "category": pl.lit(_OF_NODE.get(port.device, "Port")),
        "port_type": pl.lit(port.direction or "any"),
        "link": pl.lit(None),
    }
    stated = base.select(**_port(port), **kind).unique(maintain_order=True)
    return stated.select(pl.col(name).cast(dtype) for name, dtype in CLASSES.items())


def _labels(layout: LdmsLayout) -> dict[str, str]:
    """The fields that identify a device beside its name; two nodes share one Gemini router."""
    if {"x", "y", "z"} <= set(layout.place):
        return {}
    names = {"producer": "ProducerName", "component": "component_id", "lid": "lid"}
    return {role: name for role, name in names.items() if role in layout.place}


def _events(base: pl.DataFrame, port: LdmsPort) -> pl.DataFrame:
    """Counters of errors, pauses and marks of one port, rows of ``port_events.READINGS``."""
    place = {
        "time_ns": pl.col("time_ns"),
        "node_guid": pl.lit(0),
        **_port(port),
        "interface": pl.lit(None),
    }
    parts = [
        base.select(**place, counter=pl.lit(name), value=pl.col(f"c{index}"))
        .drop_nulls("value")
        .select(pl.col(column).cast(dtype) for column, dtype in port_events.READINGS.items())
        for index, name in port.events
    ]
    return pl.concat([pl.DataFrame(schema=port_events.READINGS), *parts])


def _gemini_link(axis: str, lanes: pl.Expr) -> dict[str, pl.Expr]:
    """Tiles, capacity and flags of a directional link of which some lanes are active.

    "A tile link is functional as long as at least one lane is active" (Jha et al., II-A). The
    number of lanes gives only bounds for the number of working tiles. The stall is divided by the
    upper bound, so it is a lower bound where the two differ.
    """
    tiles = GEMINI_TILES[axis]
    all_lanes = LANES_A_TILE * tiles
    active = lanes.fill_null(all_lanes).clip(upper_bound=all_lanes)
    least = (active + LANES_A_TILE - 1) // LANES_A_TILE
    most = pl.when(active > 0).then(active.clip(upper_bound=tiles)).otherwise(tiles)
    share = active.cast(pl.Float64) / all_lanes
    return {
        "lanes": most,
        # A link without an active lane has no capacity: its utilization is unknown, not 0.
        "capacity_gbps": pl.when(active > 0).then(share * GEMINI_GBPS[axis]),
        "flags": pl.when(least < most).then(int(Flag.AT_LEAST)).otherwise(0).cast(pl.UInt32),
    }


def _intervals(base: pl.DataFrame, port: LdmsPort, interval_s: float) -> pl.DataFrame | None:
    """Intervals of one port from percentages."""
    if not port.derived:
        return None
    length = round(interval_s * _SECOND_NS)
    columns = {value.target: pl.col(f"c{value.index}") * value.scale for value in port.derived}
    capacity = GEMINI_GBPS[port.direction[0]] if port.direction else None
    frame = base.select(
        pl.col("time_ns"),
        pl.lit(length, pl.Int64).alias("interval_ns"),
        pl.lit(port.port or 0, pl.UInt16).alias("port"),
        pl.col("node_name"),
        pl.lit(port.direction, pl.String).alias("direction"),
        *(expression.alias(column) for column, expression in columns.items()),
        pl.lit(capacity, pl.Float64).alias("capacity_gbps"),
        pl.lit("ldms gemini percentages").alias("source"),
    )
    if "stall_fraction" in columns:
        frame = frame.with_columns(stall_ns=pl.col("stall_fraction") * length)
    return conform(INTERVALS, frame)
