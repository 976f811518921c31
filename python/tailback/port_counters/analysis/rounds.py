"""Forced idle time fractions of querying rounds: one pass over an archive of any size.

Alali et al., *A Measurement Study of Congestion in an InfiniBand Network*, section III-D. A round
is a series of readings of one port; equation 3 gives the fraction of the time between two of them
in which the port had data but no credit::

    F[i] = tick * (W[i+1] - W[i]) / ((tq[i+1] + tp[i+1]/2) - (tq[i] + tp[i]/2))

Every table and figure of the paper follows from one summary row per round, so an archive is read
once, piece by piece: 30 M records are reduced to 300,000 rows.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from tailback.io.parquet import scan_tables
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Engine, Piece
from tailback.port_counters.increments import RATE_TOLERANCE
from tailback.port_counters.schema import U32_MAX, CounterError, Flag, ends_with_full_stall_counter
from tailback.port_counters.segment_digests import readable_files

FDR_TICK_NS: Final = 22.0
"""Tick of PortXmitWait that the paper takes for its FDR switches (III-D); by the rule of ``ticks``
it is 18.77 ns."""

ROUNDS: Final[dict[str, type[pl.DataType]]] = {
    "round": pl.UInt32,
    "node_guid": pl.UInt64,
    "node_name": pl.String,
    "port": pl.UInt16,
    "link": pl.UInt32,
    "intervals": pl.UInt32,
    "nonzero": pl.UInt32,
    "maximum": pl.Float64,
    "total_nonzero": pl.Float64,
    "above_one": pl.UInt32,
    "unexplained": pl.UInt32,
    "left_out": pl.UInt32,
    "latched": pl.UInt32,
}
"""Columns of a summary; ``left_out`` counts intervals whose counter was reset or latched,
``latched`` those of them whose stall counter was full,
``unexplained`` fractions above 1 that turn-around times and tick do not allow."""

TICK_TOLERANCE: Final = 0.5 / 22.0
"""The tick is known to half a nanosecond: "roughly 22 ns" (III-D). The example of Table III, 1.179,
needs it: its turn-around times alone explain all but 0.4 % of the excess over 1."""

_FIXED_POINT: Final = 2.0**40
"""Fractions are added up as integers of this scale: a sum of floats would depend on the order in
which threads deliver them."""

_LEAVE_OUT = int(Flag.AT_LEAST | Flag.RESET | Flag.LATCHED | Flag.WRAP)


def scan(path: Path) -> pl.LazyFrame:
    """An archive of readings: a Parquet file, or a folder of them in order of their names.

    In a folder, files called ``part-….parquet`` are the archive; without any, all Parquet files.

    Raises:
        CounterError: There is none, none can be read, or it is not an archive.
    """
    return archive(path).rows


def archive(path: Path) -> Archive:
    """The archive of :func:`scan` with its files, as a cluster needs it.

    Files that are empty or damaged are left out if others can be read; ``Archive.notes`` names
    them.

    Raises:
        CounterError: There is none, none can be read, or it is not an archive.
    """
    files = [path]
    if path.is_dir():
        files = sorted(path.glob("part-*.parquet")) or sorted(path.glob("*.parquet"))
    if not files or not all(file.is_file() for file in files):
        raise CounterError(
            "no Parquet file there", file=path, remedy="give the folder of an archive"
        )
    sound, notes = readable_files(files)
    frame = scan_tables(sound, error=CounterError)
    names = frame.collect_schema().names()
    for column in ("round", "time_ns", "node_guid", "port", "xmit_wait_ticks"):
        if column not in names:
            raise CounterError(
                f"column {column!r} is missing",
                file=path,
                remedy="an archive has the columns of counter_readings, docs/how-to/counters.md",
            )
    return Archive(frame, tuple(str(file.absolute()) for file in sound), notes=notes)


def summarise(
    readings: pl.LazyFrame | Archive, tick_ns: float = FDR_TICK_NS, engine: Engine = LOCAL_ENGINE
) -> pl.DataFrame:
    """One row per round: how often and how long its port was stalled.

    Rounds are expected one after the other, each in order of time, as the generator writes them.
    Other orders are detected: interleaved rounds, as the collector writes those of its sets, are
    sorted file by file; rounds that skip a whole file, or that come from no file, are sorted all at
    once, which needs memory.

    Args:
        readings: Rows of ``counter_readings`` with a round.
        tick_ns: Length of a tick where the readings do not give it, nanoseconds.
        engine: Processes the pieces.

    Returns:
        Table ``ROUNDS`` in order of the rounds. Names are null where every reading has its link:
        ``classes.attach`` adds them, and reading 30 M strings would take half the time.

    Raises:
        CounterError: The readings cannot be decoded.
    """
    whole = Archive.of(readings)
    try:
        linked = _all_linked(whole.rows)
        out, orderly = _one_pass(whole.pieces(follow=True), linked, tick_ns, engine)
        if not orderly and len(whole.files) > 1:
            out, orderly = _one_pass(_side_by_side(whole, linked), linked, tick_ns, engine)
        if not orderly:
            ordered = Archive(whole.rows.sort("round", "time_ns")).pieces(follow=True)
            out, _ = _one_pass(ordered, linked, tick_ns, LOCAL_ENGINE)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CounterError(f"readings cannot be decoded: {error}") from None
    return out


def _all_linked(readings: pl.LazyFrame) -> bool:
    if "link" not in readings.collect_schema().names():
        return False
    nulls = readings.select(pl.col("link").null_count()).collect(engine="streaming").item()
    return int(nulls) == 0


_COLUMNS: Final = (
    "round",
    "node_guid",
    "port",
    "link",
    "time_ns",
    "xmit_wait_ticks",
    "tick_ns",
    "flags",
    "turnaround_ns",
)


def _side_by_side(readings: Archive, linked: bool) -> list[Piece]:
    """The files as pieces, with interleaved rounds sorted.

    A round that continues from the file before begins with its last row there, for which ``_own``
    is false.
    """
    columns = _COLUMNS if linked else (*_COLUMNS, "node_name")
    out: list[Piece] = []
    before: pl.LazyFrame | None = None
    for file, rows in readings.scans():
        if rows.select(pl.len()).collect().item() == 0:
            continue  # an empty session: rounds continue from the file before
        names = rows.collect_schema().names()
        taken = rows.select(name for name in columns if name in names)
        own = taken.with_columns(_own=pl.lit(True))
        if before is not None:
            last = before.filter(pl.col("time_ns") == pl.col("time_ns").max().over("round"))
            last = last.unique("round", keep="last", maintain_order=True)
            last = last.join(taken.select("round").unique(), on="round", how="semi")
            own = pl.concat([last.with_columns(_own=pl.lit(False)), own])
        out.append(Piece(own.sort("round", "time_ns", maintain_order=True), file=file))
        before = taken
    return out


def _one_pass(
    pieces: list[Piece], linked: bool, tick_ns: float, engine: Engine
) -> tuple[pl.DataFrame, bool]:
    """The summary, and whether every round was in one piece and in order of time.

    Each piece begins with the last row of the one before, so that no interval is lost between.
    """
    columns = _COLUMNS if linked else (*_COLUMNS, "node_name")
    one = Aggregate(partial(_piece, tick_ns=tick_ns), _add, columns)
    (together,) = engine.add_up(pieces, [one])
    orderly = together.filter((pl.col("starts") > 1) | (pl.col("late") > 0)).is_empty()
    out = together.with_columns(total_nonzero=pl.col("fixed") / _FIXED_POINT).sort("round")
    return out.select(pl.col(n).cast(t) for n, t in ROUNDS.items()), orderly


def _add(parts: pl.LazyFrame) -> pl.LazyFrame:
    """Rounds that lie in several pieces become one row."""
    numbers = (
        "intervals",
        "nonzero",
        "fixed",
        "above_one",
        "unexplained",
        "left_out",
        "latched",
        "starts",
        "late",
    )
    return parts.group_by("round", maintain_order=True).agg(
        pl.col("node_guid", "node_name", "port", "link").first(),
        pl.col("maximum").max(),
        pl.col(numbers).sum(),
    )


def intervals(readings: pl.LazyFrame, tick_ns: float) -> pl.LazyFrame:
    """Equation 3 between each reading and the one before it, row by row.

    Args:
        readings: Rows of ``counter_readings``, the rounds one after the other in order of time.
        tick_ns: Length of a tick where a reading does not give it, nanoseconds.

    Returns:
        As many rows: ``round, node_guid, port, node_name, link, same`` (there is a reading before
        it in its round), ``length`` (nanoseconds since), ``stalled`` (of that, nanoseconds),
        ``slack`` (half of both turn-arounds, nanoseconds), ``counted`` (in order, neither reset nor
        latched) and ``fraction``, null unless counted.
    """
    names = readings.collect_schema().names()

    def optional(name: str, dtype: type[pl.DataType]) -> pl.Expr:
        return pl.col(name) if name in names else pl.lit(None, dtype).alias(name)

    number = pl.col("round")
    same = (number == number.shift(1)).fill_null(False)
    length = (pl.col("time_ns") - pl.col("time_ns").shift(1)).cast(pl.Float64)
    wait = pl.col("xmit_wait_ticks").cast(pl.Int64)
    tick = optional("tick_ns", pl.Float64).fill_null(tick_ns)
    flags = optional("flags", pl.UInt32).fill_null(0)
    # An archive of another program need not have flags: 32 ones tell by themselves.
    latched = ((flags & int(Flag.LATCHED)) > 0) | (wait == U32_MAX).fill_null(False)
    low = ((flags & _LEAVE_OUT) > 0) | latched
    answer = optional("turnaround_ns", pl.UInt64).cast(pl.Float64)
    counted = pl.col("same") & ~pl.col("low") & (pl.col("stalled") >= 0) & (pl.col("length") > 0)
    counted &= pl.col("stalled") <= RATE_TOLERANCE * pl.col("length")
    return (
        readings.select(
            "round",
            "node_guid",
            "port",
            optional("node_name", pl.String),
            optional("link", pl.UInt32),
            same=same,
            length=length,
            low=low,
            latched=latched,
            stalled=(wait - wait.shift(1)).cast(pl.Float64) * tick,
            slack=((answer + answer.shift(1)) / 2).fill_null(0.0),
            **({"_own": pl.col("_own")} if "_own" in names else {}),
        )
        .with_columns(counted=counted)
        .with_columns(fraction=pl.when("counted").then(pl.col("stalled") / pl.col("length")))
        .drop("low")
    )


def _piece(piece: Piece, tick_ns: float) -> pl.LazyFrame:
    """Summary of the rounds in a piece; counts are additive."""
    steps = intervals(piece.rows, tick_ns)
    if "_own" in steps.collect_schema().names():
        steps = steps.filter("_own")
    steps = steps.slice(piece.carried).filter(pl.col("round").is_not_null())
    fraction = pl.col("fraction")
    allowed = (pl.col("length") + pl.col("slack")) / (1 - TICK_TOLERANCE)
    return steps.group_by("round").agg(
        pl.col("node_guid", "node_name", "port", "link").first(),
        intervals=fraction.count(),
        nonzero=(fraction > 0).sum(),
        maximum=fraction.max(),
        fixed=(fraction.clip(0, 2.0**16) * _FIXED_POINT).cast(pl.Int64).sum(),
        above_one=(fraction > 1).sum(),
        unexplained=((fraction > 1) & (pl.col("stalled") > allowed)).sum(),
        left_out=(pl.col("same") & ~pl.col("counted")).sum(),
        latched=(pl.col("same") & pl.col("latched")).sum(),
        starts=(~pl.col("same")).sum(),
        late=(pl.col("same") & (pl.col("length") < 0)).sum(),
    )


_PORT: Final = ("round", "node_guid", "node_name", "port", "link")


def _ports(piece: Piece) -> pl.LazyFrame:
    low = (pl.col("flags") & _LEAVE_OUT) > 0
    fraction = pl.when(~low).then(pl.col("stall_fraction"))
    return piece.rows.group_by(_PORT, maintain_order=True).agg(
        intervals=fraction.count(),
        nonzero=(fraction > 0).sum(),
        maximum=fraction.max(),
        total_nonzero=fraction.sum(),
        above_one=(fraction > 1).sum(),
        left_out=low.sum(),
        latched=ends_with_full_stall_counter().sum(),
    )


def _add_ports(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.group_by(_PORT, maintain_order=True).agg(
        pl.col("intervals", "nonzero", "total_nonzero", "above_one", "left_out", "latched").sum(),
        pl.col("maximum").max(),
    )


INTERVAL_PASS: Final = Aggregate(
    _ports,
    _add_ports,
    (*_PORT, "flags", "xmit_wait_ticks", "stall_fraction", "latched_stall_ns"),
)
"""Pass of :func:`summarise_intervals`."""


def summary_of_ports(total: pl.DataFrame) -> pl.DataFrame:
    """The summary of :func:`summarise_intervals` from the total of ``INTERVAL_PASS``."""
    return total.with_columns(
        unexplained=pl.lit(0), round=pl.col("round").fill_null(pl.int_range(pl.len()))
    ).select(pl.col(n).cast(t) for n, t in ROUNDS.items())


def summarise_intervals(
    intervals: pl.DataFrame | Archive, engine: Engine = LOCAL_ENGINE
) -> pl.DataFrame:
    """The same summary from intervals; in a sweep every port counts as one round.

    Args:
        intervals: Rows of ``counter_intervals``.
        engine: Where the pieces are worked on.
    """
    if isinstance(intervals, pl.DataFrame):
        intervals = Archive(intervals.lazy())
    return summary_of_ports(engine.add_up(intervals.pieces(), [INTERVAL_PASS])[0])
