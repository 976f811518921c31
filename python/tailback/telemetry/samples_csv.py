"""Samples that receivers counted, from CSV, as table ``samples``.

Each packet carries one hop of its path, drawn uniformly, and whether that hop was congested. Hops
count from 1 at the sender's own egress, so on a path of l links each has probability 1/l.
Three forms are read, plain or gzip:

- *by flow*: ``src, dst, link, congested, hops, samples``: samples of one source, destination and
  link, congested or not (0 or 1), with the length of the path;
- *cumulative*: ``time, link, samples_uncongested, samples_congested, hops_uncongested,
  hops_congested``: sums over all packets so far, by link; ``hops`` adds up path lengths;
- *by rank*: ``time, rank, link, samples, packets, packets_variance, bytes, congested_samples,
  congested, congested_variance``: estimates over all packets so far, by receiving rank and link, of
  any scheme. Rows that are missing at a time mean what they said before. A column ``call`` divides
  them by the MPI call in which the rank was when packets arrived, empty outside.

In the first two forms there is one reservoir: the congested samples are a subset of the hop
samples. The variance of a congested fraction f is then f (1 − f) (l − 1) / N, where every hop may
be congested; with the two reservoirs of scheme ``full`` it is f (1 + f) (l − 1) / N.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import polars as pl

from tailback.errors import TailbackError, nearest
from tailback.fabric.model import Fabric
from tailback.io.delimited import Delimited, header_of, not_used, parse
from tailback.io.input_files import content, head, is_input_file
from tailback.io.manifest import require_unchanged
from tailback.registry import Registry
from tailback.run.schema import TABLES

_FLOWS: Final = {
    "source": ("src_ip", "src", "source", "src_host"),
    "destination": ("dst_ip", "dst", "destination", "dst_host"),
    "link": ("link", "link_id"),
    "congested": ("congested",),
    "hops": ("hops", "path_length"),
    "samples": ("samples", "count"),
}
_SUMS: Final = {
    "time": ("time_utc", "time", "timestamp", "time_unix_s"),
    "link": ("link", "link_id"),
    "free_samples": ("samples_uncongested",),
    "congested_samples": ("samples_congested",),
    "free_hops": ("hops_uncongested",),
    "congested_hops": ("hops_congested",),
}
_RANKS: Final = {
    "time": ("time_utc", "time", "timestamp", "time_unix_s"),
    "rank": ("rank",),
    "call": ("call",),
    "link": ("link", "link_id"),
    "samples": ("samples",),
    "packets": ("packets",),
    "packets_variance": ("packets_variance",),
    "bytes": ("bytes",),
    "congested_samples": ("congested_samples",),
    "congested": ("congested",),
    "congested_variance": ("congested_variance",),
}
_OPTIONAL: Final = frozenset({"call"})
MAX_HOPS: Final = 255
"""Longest path that the hop field of an IP header can count."""
_KEYS: Final = ("window", "job", "label", "link")


Form = Callable[[Delimited, pl.Series], "Sampled"]
"""Reads a table with resolved links."""

FORMS: Registry[Form] = Registry("sample-source", "samples that receivers counted")


CALLS: Final = {
    "link": pl.UInt32,
    "call": pl.String,
    "packets": pl.Float64,
    "congested": pl.Float64,
}
"""Columns of samples by the call of their receiver."""


class SampleError(TailbackError):
    """Samples that cannot be read."""


@dataclass
class Sampled:
    """Samples of links.

    Attributes:
        samples: Rows of table ``samples``: all of job 0 and label 0; ``hop_bytes`` is null where
            samples contain no sizes.
        windows: ``window, start_ns, end_ns`` of cumulative samples, UTC; empty for flows.
        flows: The same sums by ``source, destination, link`` as the file names the ends; of samples
            by rank ``destination`` is the rank, and ``source`` null. Empty for sums by link alone.
        calls: ``link, call, packets, congested`` of samples by rank and call, at the end; ``call``
            is empty outside of calls. Empty for other samples.
        one_reservoir: Whether both counts come from one reservoir; samples by rank do not say.
        notes: Tolerated irregularities.
    """

    samples: pl.DataFrame
    windows: pl.DataFrame
    flows: pl.DataFrame
    calls: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CALLS))
    one_reservoir: bool = True
    notes: list[str] = field(default_factory=list)


def is_samples(path: Path) -> bool:
    """Whether a file has the columns of one of the forms."""
    if not is_input_file(path):
        return False
    text = head(path)
    return any(
        set(form) - _OPTIONAL <= set(header_of(text, form) or {})
        for form in (_FLOWS, _SUMS, _RANKS)
    )


def read_samples(path: Path, fabric: Fabric) -> Sampled:
    """Read the samples of one file.

    Args:
        path: The file, plain or gzip.
        fabric: The fabric; links are named by its ``link_id``, else by their index.

    Raises:
        SampleError: The file is damaged or names a link that the fabric does not have, counts fall,
            or a path has no hop; with line and column.
    """
    path = Path(path)
    require_unchanged(path)
    data = content(path, SampleError)
    text = data[: 1 << 16].decode("utf-8", errors="replace")
    form, columns = "by-flow", _FLOWS
    if "free_samples" in (header_of(text, _SUMS) or {}):
        form, columns = "cumulative", _SUMS
    elif "packets_variance" in (header_of(text, _RANKS) or {}):
        form, columns = "by-rank", _RANKS
        # A writer that was killed may have left an incomplete last line.
        data = data[: data.rfind(b"\n") + 1]
    needed = tuple(role for role in columns if role not in _OPTIONAL)
    table = parse(data, columns, needed, path=path, error_type=SampleError)
    sampled = FORMS[form](table, _links(table, fabric))
    sampled.notes.extend(not_used(table.unused))
    return sampled


def _links(table: Delimited, fabric: Fabric) -> pl.Series:
    """Index of the link of each row."""
    names = fabric.link_id or [str(link) for link in range(fabric.n_links)]
    number = {name: link for link, name in enumerate(names) if name}
    texts = table.need("link")
    out = texts.replace_strict(number, default=None, return_dtype=pl.UInt32)
    if out.null_count():
        row = int(out.is_null().arg_true()[0])
        name = str(texts[row])[:40]
        raise table.error_at(
            "link",
            int(table.rows["line"][row]),
            f"the fabric has no link {name!r}",
            nearest(name, number)[:200],
        )
    return out.alias("link")


def _sums(hops: pl.Expr, count: pl.Expr, congested: pl.Expr) -> dict[str, pl.Expr]:
    """The sums of table ``samples`` over rows of ``count`` samples of paths of ``hops`` links."""
    hot = pl.when(congested).then(count).otherwise(0)
    return {
        "hop_samples": count.sum(),
        "hop_weight": (count * hops).sum(),
        "hop_variance": (count * hops * (hops - 1)).sum(),
        "congested_samples": hot.sum(),
        "congested_weight": (hot * hops).sum(),
        "congested_variance": (hot * hops * (hops - 1)).sum(),
    }


@FORMS.register("by-flow")
def _by_flow(table: Delimited, links: pl.Series) -> Sampled:
    """CSV of samples by source, destination and link."""
    hops, flag = table.number("hops", integer=True), table.number("congested", integer=True)
    _check_range(table, "hops", hops, 1, MAX_HOPS, "a path has 1 to 255 links")
    _check_range(table, "congested", flag, 0, 1, "write 1 for congested and 0 for not")
    counts = table.number("samples", integer=True)
    _check_range(table, "samples", counts, 0, 2**48, "is the file damaged?")
    rows = pl.DataFrame(
        [table.need("source"), table.need("destination"), links, hops, flag, counts]
    )
    sums = _sums(pl.col("hops"), pl.col("samples"), pl.col("congested") == 1)
    flows = rows.group_by("source", "destination", "link").agg(**sums)
    total = rows.group_by("link").agg(**sums).with_columns(window=pl.lit(0, pl.UInt32))
    windows = pl.DataFrame(schema={"window": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64})
    return Sampled(_conform(total), windows, flows.sort("source", "destination", "link"))


def _check_range(
    table: Delimited, role: str, values: pl.Series, low: int, high: int, remedy: str
) -> None:
    bad = values.is_null() | (values < low) | (values > high)
    if bad.any():
        row = int(bad.arg_true()[0])
        text = table.rows[role][row]
        raise table.error_at(
            role,
            int(table.rows["line"][row]),
            f"{str(text)[:40]!r} is not {low} to {high}",
            remedy,
        )


def _conform(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of table ``samples``."""
    schema = TABLES["samples"].polars_schema
    constant = {"job": 0, "label": 0, "hop_bytes": None}
    return frame.select(
        pl.col(name).cast(dtype)
        if name in frame.columns
        else pl.lit(constant.get(name), dtype).alias(name)
        for name, dtype in schema.items()
    ).sort(*_KEYS)


@FORMS.register("cumulative")
def _cumulative(table: Delimited, links: pl.Series) -> Sampled:
    """CSV of sums since the start, by time and link.

    The file contains sums of path lengths l, not of l (l − 1). For given minimum and maximum
    lengths the latter sum is largest if only these two occur (Bhatia and Davis, 2000); this upper
    bound is used, which is exact in a tree of two tiers.
    """
    table.need("time")
    names = ("free_samples", "congested_samples", "free_hops", "congested_hops")
    rows = pl.DataFrame(
        [table.rows["line"], table.instants("time"), links]
        + [table.number(name, integer=True).fill_null(0).cast(pl.Int64) for name in names]
    ).sort("link", "time", maintain_order=True)
    # Counting began at 0: the first row of a link contains all earlier samples.
    steps = rows.with_columns(
        *(pl.col(name) - pl.col(name).shift(1).over("link").fill_null(0) for name in names)
    )
    fell = steps.filter(pl.any_horizontal(pl.col(name) < 0 for name in names)).sort("line")
    if fell.height:
        row = fell.row(0, named=True)
        role = next(name for name in names if row[name] < 0)
        raise table.error_at(
            role,
            row["line"],
            "is less than before: these are sums since the start",
            "give one recording, from its start",
        )
    rank = pl.col("time").rank("dense").cast(pl.UInt32)
    steps = steps.with_columns(window=rank - 1)
    times = steps["time"].unique().sort()
    windows = pl.DataFrame(
        {"start_ns": times.shift(1).fill_null(times.min() if len(times) else 0), "end_ns": times}
    ).with_row_index("window")
    free, hot = pl.col("free_samples"), pl.col("congested_samples")
    free_hops, hot_hops = pl.col("free_hops"), pl.col("congested_hops")
    steps = steps.with_columns(n=free + hot, weight=free_hops + hot_hops)
    # A path leads through a switch, so it has at least two links, unless a mean is below that.
    mean = steps.filter(pl.col("n") > 0).select(m=pl.col("weight") / pl.col("n"))["m"]
    low = min(2.0, float(mean.min() or 2.0))  # type: ignore[arg-type]
    high = max(low, float(mean.ceil().max() or low))  # type: ignore[arg-type]

    def most(count: pl.Expr, weight: pl.Expr) -> pl.Expr:
        # Of Σ l² with Σ l = weight and low ≤ l ≤ high: (low + high) Σ l − n low high.
        return ((low + high - 1) * weight - count * low * high).clip(lower_bound=0).round()

    total = steps.filter(pl.col("n") > 0).select(
        "window",
        "link",
        hop_samples="n",
        hop_weight="weight",
        hop_variance=most(pl.col("n"), pl.col("weight")),
        congested_samples=hot,
        congested_weight=hot_hops,
        congested_variance=most(hot, hot_hops),
    )
    flows = pl.DataFrame(schema={"source": pl.String, "destination": pl.String, "link": pl.UInt32})
    return Sampled(_conform(total), windows.cast({"window": pl.UInt32}), flows)


_AMOUNTS: Final = {
    "samples": "hop_samples",
    "packets": "hop_weight",
    "packets_variance": "hop_variance",
    "bytes": "hop_bytes",
    "congested_samples": "congested_samples",
    "congested": "congested_weight",
    "congested_variance": "congested_variance",
}
"""Columns of table ``samples`` by those of samples by rank."""


@FORMS.register("by-rank")
def _by_rank(table: Delimited, links: pl.Series) -> Sampled:
    """CSV of estimates since the start, by time, receiving rank and link.

    Estimates from hashes may be negative or decrease by chance, which table ``samples`` does not
    allow: an earlier sum is reduced to the smallest later one, the last sum is kept, and negative
    sums count as zero.
    """
    rank = table.number("rank", integer=True)
    _check_range(table, "rank", rank.fill_null(0), 0, 2**31, "ranks are numbered from 0")
    called = "call" in table.header
    call = (
        table.rows["call"].fill_null("")
        if called
        else pl.Series("call", [""]).new_from_index(0, len(rank))
    )
    rows = pl.DataFrame(
        [table.instants("time"), rank.cast(pl.Int64).fill_null(-1), call.alias("call"), links]
        + [table.number(name).fill_null(0.0) for name in _AMOUNTS]
    ).rename(_AMOUNTS)
    table.need("time")
    names, ends = list(_AMOUNTS.values()), rows["time"].unique().sort()
    last = rows.sort("time").group_by("rank", "call", "link").last()
    flows = (
        last.group_by("rank", "link")
        .agg(pl.col(names).sum())
        .select(
            source=pl.lit(None, pl.String),
            destination=pl.when(pl.col("rank") >= 0).then(pl.format("{}", "rank")),
            link=pl.col("link"),
            **{name: pl.col(name).clip(0).round() for name in names},
        )
    )
    calls = last.group_by("link", "call").agg(
        packets=pl.col("hop_weight").sum(), congested=pl.col("congested_weight").sum()
    )
    # A row that is missing at a time is unchanged since the previous one: changes are summed.
    once = rows.unique(["time", "rank", "call", "link"], keep="last", maintain_order=True).sort(
        "time"
    )
    changes = once.with_columns(
        *(
            pl.col(name) - pl.col(name).shift(1).fill_null(0.0).over("rank", "call", "link")
            for name in names
        )
    )
    sums = changes.group_by("link", "time").agg(pl.col(names).sum()).sort("link", "time")
    sums = sums.with_columns(pl.col(names).cum_sum().over("link")).with_columns(
        pl.col(names).clip(0).round().cast(pl.Int64).reverse().cum_min().reverse().over("link")
    )
    windows = pl.DataFrame(
        {"start_ns": ends.shift(1).fill_null(ends.min() if len(ends) else 0), "end_ns": ends}
    ).with_row_index("window")
    steps = sums.with_columns(
        pl.col(name) - pl.col(name).shift(1).fill_null(0).over("link") for name in names
    ).join(windows.select("window", time="end_ns"), on="time")
    steps = steps.filter(pl.any_horizontal(pl.col(name) > 0 for name in names))
    return Sampled(
        _conform(steps),
        windows.cast({"window": pl.UInt32}),
        flows.sort("destination", "link"),
        calls.sort("link", "call") if called else pl.DataFrame(schema=CALLS),
        one_reservoir=False,
    )


__all__ = ["FORMS", "SampleError", "Sampled", "is_samples", "read_samples"]
