"""Every table of a run: its columns, their units and their meaning.

``docs/reference/tables.md`` is generated from this file (``python -m tailback.run.schema``). A run
directory has one Parquet file per table; analyses, diagnosis and figures read nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tailback.errors import RunError

DataType = pl.DataType | type[pl.DataType]


@dataclass(frozen=True)
class Column:
    """One column: its name (which carries the unit), type and meaning."""

    name: str
    dtype: DataType
    meaning: str


@dataclass(frozen=True)
class Table:
    """One table: its name, what a row is, and its columns."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, name: str, row: str, *columns: tuple[str, DataType, str]) -> Table:
        """A table from ``(name, type, meaning)`` of each column."""
        return cls(name, row, tuple(Column(*column) for column in columns))

    @property
    def polars_schema(self) -> dict[str, DataType]:
        """Column names and types, in order."""
        return {column.name: column.dtype for column in self.columns}


TABLES = {
    table.name: table
    for table in (
        Table.of(
            "nodes",
            "one network adapter",
            ("node", pl.UInt32, "number of the node"),
            ("name", pl.String, "name as the fabric gives it"),
            ("host", pl.UInt32, "the host that holds the adapter"),
            ("host_name", pl.String, "name of that host"),
            ("switch", pl.Int64, "switch it attaches to, -1 if none"),
        ),
        Table.of(
            "switches",
            "one switch",
            ("switch", pl.UInt32, "number of the switch"),
            ("name", pl.String, "name as the fabric gives it"),
            ("tier", pl.Int32, "0 = leaf, 1 = aggregation, 2 = core, …"),
            ("pod", pl.Int32, "pod, -1 where it belongs to none"),
        ),
        Table.of(
            "links",
            "one directed link",
            ("link", pl.UInt32, "number from 0; files may number otherwise"),
            ("src", pl.UInt32, "source vertex: nodes first, then switches"),
            ("dst", pl.UInt32, "destination vertex"),
            ("src_name", pl.String, "name of the source"),
            ("dst_name", pl.String, "name of the destination"),
            ("src_port", pl.UInt32, "port number at the source"),
            ("dst_port", pl.UInt32, "port number at the destination"),
            (
                "src_interface",
                pl.String,
                "name of the port at the source, like swp5; empty "
                "if the fabric only has port numbers",
            ),
            (
                "tier",
                pl.Int32,
                "0 node–leaf, 1 leaf–aggregation, 2 aggregation–core; for a flat "
                "link the tier of its switches plus 1",
            ),
            ("direction", pl.String, "up, down or flat (between switches of one tier)"),
            ("from_node", pl.Boolean, "injection link: the source is a node"),
            ("to_node", pl.Boolean, "ejection link: the destination is a node"),
            ("rate_gbps", pl.Float64, "data rate, gigabits per second"),
            ("delay_ps", pl.UInt64, "cable delay, picoseconds"),
            ("reverse", pl.UInt32, "the opposite link of the same cable"),
        ),
        Table.of(
            "jobs",
            "one job",
            ("job", pl.UInt32, "number of the job"),
            ("name", pl.String, "name from the scenario"),
            ("observed", pl.Boolean, "true: ours, its packets are measured; false: background"),
            ("ranks", pl.UInt32, "number of ranks"),
            (
                "placement",
                pl.String,
                "placement it ran with; `file`: from a rank file, `recorded`: from its trace",
            ),
            ("grid", pl.String, "Cartesian grid, like 64x72 (x fastest), empty when unknown"),
        ),
        Table.of(
            "ranks",
            "one MPI rank",
            ("rank", pl.UInt32, "number over all jobs"),
            ("job", pl.UInt32, "its job"),
            ("job_rank", pl.UInt32, "its rank within the job"),
            ("node", pl.UInt32, "node it ran on"),
            (
                "finish_ps",
                pl.UInt64,
                "when its last operation completed; 0 if the run was interrupted first",
            ),
            ("compute_ps", pl.UInt64, "time it computed"),
            ("wait_ps", pl.UInt64, "time it was blocked in WAIT or WAITALL"),
        ),
        Table.of(
            "labels",
            "what a message belongs to",
            ("label", pl.UInt32, "number of the label"),
            ("job", pl.UInt32, "its job"),
            ("phase", pl.String, "phase of the application"),
            ("call", pl.String, "call that sent it"),
            ("tag", pl.Int64, "MPI tag, -1 where there is none"),
            ("communicator", pl.String, "communicator"),
            ("path", pl.String, "call path of the application, outermost first; empty if unknown"),
        ),
        Table.of(
            "windows",
            "one time window",
            ("window", pl.UInt32, "number of the window"),
            ("start_ps", pl.UInt64, "first picosecond"),
            ("end_ps", pl.UInt64, "first picosecond after it; the last window ends with the run"),
        ),
        Table.of(
            "samples",
            "samples of one link in one window and with one label",
            ("window", pl.UInt32, "window of the packets' arrival"),
            ("job", pl.UInt32, "job of the packets"),
            ("label", pl.UInt32, "label of the packets: that of their sends"),
            ("receive_label", pl.UInt32, "label of the receives they met; null if unknown"),
            ("receiver", pl.UInt32, "node they arrived at; null unless `[telemetry] receivers`"),
            ("link", pl.UInt32, "sampled link"),
            ("hop_samples", pl.UInt64, "packets that arrived with the link in the hop reservoir"),
            ("hop_weight", pl.UInt64, "sum of hop counts: estimates packets through the link"),
            ("hop_variance", pl.UInt64, "sum of l(l-1): estimates the variance of hop_weight"),
            ("hop_bytes", pl.UInt64, "sum of hop count x packet size: estimates bytes"),
            ("congested_samples", pl.UInt64, "packets with the link in the congested reservoir"),
            ("congested_weight", pl.UInt64, "sum of congested counts: estimates congested packets"),
            ("congested_variance", pl.UInt64, "sum of g(g-1): estimates its variance"),
        ),
        Table.of(
            "truth",
            "the actual traffic of one link in one window (simulation only)",
            ("window", pl.UInt32, "window in which packets began to leave, or met congestion"),
            ("link", pl.UInt32, "link"),
            ("packets", pl.UInt64, "packets sent, handshakes of large messages included"),
            ("bytes", pl.UInt64, "bytes sent"),
            ("observed_packets", pl.UInt64, "of them, data packets of observed jobs"),
            (
                "congested_packets",
                pl.UInt64,
                "packets of any job that met congestion there; they may leave in a later window",
            ),
            ("observed_congested_packets", pl.UInt64, "of them, packets of observed jobs"),
            (
                "busy_ps",
                pl.UInt64,
                "time the link was sending; a packet counts in the window in which it began",
            ),
            (
                "stall_ps",
                pl.UInt64,
                "time it had data but no credit or was paused, counted in the "
                "window in which the stall ended",
            ),
        ),
        Table.of(
            "messages",
            "one message",
            ("message", pl.UInt32, "number of the message"),
            ("src_rank", pl.UInt32, "sending rank"),
            ("dst_rank", pl.UInt32, "receiving rank"),
            ("size_bytes", pl.UInt64, "size"),
            ("label", pl.UInt32, "its label: that of its send"),
            ("receive_label", pl.UInt32, "label of its receive; null if unknown"),
            ("post_ps", pl.UInt64, "when the send was posted"),
            (
                "start_ps",
                pl.UInt64,
                "when its first packet entered the network; null if the run was interrupted first",
            ),
            (
                "arrival_ps",
                pl.UInt64,
                "when its last byte arrived; null if the run was interrupted first",
            ),
            ("packets", pl.UInt32, "data packets"),
            ("switch_hops", pl.UInt32, "switches visited, summed over its packets"),
        ),
        Table.of(
            "counters",
            "one port's counters at one instant, if any has changed",
            ("time_ps", pl.UInt64, "a multiple of the interval, or the end of the run"),
            ("link", pl.UInt32, "directed link that leaves the port"),
            ("data_bytes", pl.UInt64, "bytes sent since the start, including part of a packet"),
            ("packets", pl.UInt64, "packets sent completely since the start"),
            ("busy_ps", pl.UInt64, "time sending"),
            (
                "stall_ps",
                pl.UInt64,
                "time with data but nothing sent, for lack of credit, paused "
                "or, with round-robin arbitration, of a free crossbar input",
            ),
            ("queue_ps", pl.UInt64, "time in which data waited behind other data being sent"),
            ("inq_ps", pl.UInt64, "time the input buffer at its far end kept a packet ready to go"),
        ),
        Table.of(
            "queues",
            "one port's queue at one instant, if it has changed",
            ("time_ps", pl.UInt64, "a multiple of the interval, or the end of the run"),
            ("link", pl.UInt32, "directed link that leaves the port"),
            ("waiting_bytes", pl.UInt64, "bytes that wait for credit or for their turn"),
            ("booked_bytes", pl.UInt64, "bytes with credit that are not sent yet"),
            ("packets", pl.UInt32, "packets of both, including one being sent"),
        ),
        Table.of(
            "packets",
            "one packet of an observed job that arrived with a sample",
            ("packet", pl.UInt64, "number of the packet over the whole run"),
            ("sequence", pl.UInt32, "its packet sequence number within its queue pair, 24 bits"),
            (
                "queue_pair",
                pl.UInt32,
                "its queue pair: the receiver's, or the sender's if shared; "
                "null where it is unknown",
            ),
            ("time_ps", pl.UInt64, "when its tail arrived"),
            ("src_node", pl.UInt32, "node it came from"),
            ("dst_node", pl.UInt32, "node it went to"),
            ("label", pl.UInt32, "label of its message"),
            ("receive_label", pl.UInt32, "label of the receive of its message; null if unknown"),
            ("size_bytes", pl.UInt32, "payload"),
            ("hops", pl.UInt8, "switches on its path; null if a receiver cannot know"),
            ("header", pl.UInt64, "header bits in the layout of the scheme"),
            (
                "links",
                pl.List(pl.UInt32),
                "scheme `full` with several slots: links of the hop reservoir, then of the "
                "congested one, numbered from 1, 0 in empty slots; else null",
            ),
        ),
        Table.of(
            "skips",
            "steps of one job that were not simulated but extrapolated",
            ("job", pl.UInt32, "its job"),
            ("first_step", pl.UInt32, "first step left out; the job's steps count from 0"),
            ("steps", pl.UInt32, "steps left out"),
            ("basis", pl.UInt32, "simulated steps they were extrapolated from"),
            ("step_ps", pl.UInt64, "mean time of a step left out"),
            ("time_ps", pl.UInt64, "time of all of them"),
            ("half_ps", pl.UInt64, "half the 95 % interval of that"),
            ("exact", pl.Boolean, "whether the run repeats itself to the picosecond"),
            (
                "window",
                pl.UInt32,
                "the window that stands for them; its rows of samples and truth "
                "are extrapolated; null without telemetry",
            ),
        ),
    )
}


DERIVED = {
    table.name: table
    for table in (
        Table.of(
            "attribution",
            "one line of the program at one link, or bundle, that it congests",
            ("place", pl.String, "the link, or the bundle of parallel links"),
            ("link", pl.UInt32, "its most congested link"),
            ("filled_by", pl.String, "whose traffic fills it: ours, others or unknown"),
            ("line", pl.String, "call path and call, or call, phase and tag without a path"),
            ("phase", pl.String, "phase of the messages"),
            ("call", pl.String, "call that sent them"),
            ("tag", pl.Int64, "their MPI tag, -1 where there is none"),
            ("communicator", pl.String, "their communicator"),
            ("share", pl.Float64, "share of our congested packets there, 0-1"),
            ("stall_ps", pl.Float64, "stall of the line there; null without a message log"),
            ("congested_packets", pl.Float64, "instead of `stall_ps` without a message log"),
            ("ranks", pl.List(pl.UInt32), "ranks of the job that wait; empty if unknown"),
        ),
        Table.of(
            "changes",
            "one directed link in two runs, over the whole runs or in one phase",
            ("link", pl.UInt32, "as in table links"),
            ("name", pl.String, "source[port] → destination[port]"),
            ("tier", pl.Int32, "as in table links"),
            ("direction", pl.String, "up, down or flat"),
            ("phase", pl.String, "phase of the application, null for the whole runs"),
            ("before_samples", pl.UInt64, "hop samples in the first run"),
            ("after_samples", pl.UInt64, "hop samples in the second run"),
            ("before_fraction", pl.Float64, "congested fraction (shrunk estimate), null: unknown"),
            ("after_fraction", pl.Float64, "the same in the second run"),
            ("change", pl.Float64, "after - before, null if either is"),
            ("standard_error", pl.Float64, "of the change; samples of two runs are independent"),
            ("before_utilization", pl.Float64, "our packets' share of the line rate, 0-1"),
            ("after_utilization", pl.Float64, "the same in the second run"),
        ),
        Table.of(
            "evidence",
            "one value of the evidence of a diagnosis",
            ("subject", pl.String, "name of what it is about"),
            ("kind", pl.String, "run, link, host, switch, rank, call or job"),
            ("start_ps", pl.Int64, "start of its time"),
            ("end_ps", pl.Int64, "end"),
            ("quantity", pl.String, "what was measured"),
            ("value", pl.Float64, "its value"),
            ("unit", pl.String, "its unit"),
            ("error", pl.Float64, "standard error, null unknown"),
            ("source", pl.String, "its source"),
            ("for_slow_link", pl.Float64, "log-likelihood ratio, null unknown"),
            ("for_other_traffic", pl.Float64, "the same"),
            (
                "says",
                pl.List(pl.Struct({"cause": pl.String, "text": pl.String})),
                "what follows otherwise",
            ),
        ),
    )
}
"""Tables derived from runs by diagnosis and comparison; not part of a run."""

ADDED_COLUMNS = {
    ("labels", "path"): "",
    ("links", "src_interface"): "",
    ("counters", "inq_ps"): None,
    ("packets", "queue_pair"): None,
    ("packets", "receive_label"): None,
    ("packets", "links"): None,
    ("messages", "receive_label"): None,
    ("samples", "receive_label"): None,
    ("samples", "receiver"): None,
}
"""Columns added later, and their value in runs that were written before."""


def conform(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``frame`` with exactly the columns and types of table ``name``.

    Raises:
        RunError: A column is missing or cannot be converted.
    """
    schema = (TABLES.get(name) or DERIVED[name]).polars_schema
    if list(frame.schema.items()) == list(schema.items()):
        return frame
    later = {
        column: pl.lit(value)
        for (table, column), value in ADDED_COLUMNS.items()
        if table == name and column not in frame.columns
    }
    if later:
        frame = frame.with_columns(**later)
    missing = [column for column in schema if column not in frame.columns]
    if missing:
        raise RunError(f"table {name!r} lacks column {missing[0]!r}")
    if frame.height == 0:
        # Nothing to convert: a run for its time alone has half a dozen such tables.
        return pl.DataFrame(schema=dict(schema))
    return frame.select(pl.col(column).cast(dtype) for column, dtype in schema.items())


def type_name(dtype: DataType) -> str:
    """A column's type as the documentation writes it."""
    return dtype.__name__ if isinstance(dtype, type) else str(dtype)


def markdown() -> str:
    """The documentation page of all tables."""
    lines = [
        "# The tables of a run",
        "",
        "Generated from `python/tailback/run/schema.py` by `python -m tailback.run.schema`.",
        "",
        "A run has all of these tables, some without rows: `counters`, `queues` and `packets`",
        "unless the [scenario](scenario.md) asks for them; `skips` unless steps were left out",
        "([repetition](../explanation/approximations.md#repeated-steps)); `messages` with",
        '`[telemetry] messages = false`; `windows`, `samples` and `truth` with `scheme = "off"`.',
        "Rows of `samples` are stored for scheme `full` with one slot only; for other schemes they",
        "are decoded from `packets` when the run is read",
        "([telemetry](../explanation/telemetry.md)). Runs of the",
        "[fluid model](../explanation/congestion.md#the-fluid-model) have no samples, and only",
        "`bytes` and `busy_ps` in `truth`; its other columns are null.",
        "",
    ]
    for table in TABLES.values():
        lines += _described(table)
    lines += [
        "## Tables derived from runs",
        "",
        "`attribution` is written by `tailback diagnose` and `tailback export attribution`,",
        "`evidence` by `tailback diagnose`, `changes` by `tailback compare --out`.",
        "",
    ]
    for table in DERIVED.values():
        lines += _described(table)
    return "\n".join(lines)


def _described(table: Table) -> list[str]:
    lines = [f"## {table.name}", "", f"A row is {table.row}.", ""]
    lines += ["| column | type | meaning |", "|---|---|---|"]
    for c in table.columns:
        lines.append(f"| `{c.name}` | {type_name(c.dtype)} | {c.meaning} |")
    return [*lines, ""]


if __name__ == "__main__":
    print(markdown(), end="")
