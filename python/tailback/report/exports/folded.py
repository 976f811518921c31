"""Folded stacks, for speedscope (https://speedscope.app), flamegraph.pl and inferno."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from tailback.evidence.split import PART_NAMES
from tailback.report.exports.model import EXPORTS, Exported, Result
from tailback.report.flame import Frame, title


@EXPORTS.register("folded")
def folded(result: Result) -> Exported:
    """Time of measured ranks by call and wait; of a simulated run the stall of its messages."""
    opened = "open it in https://speedscope.app, or run flamegraph.pl FILE > flame.svg"
    if result.measured is not None:
        lines = list(_measured_stacks(result.measured))
        text = f"{len(lines):,} stacks of calls and waits, values in nanoseconds"
        return Exported(text, opened, lines)
    attribution = result.attribution
    unit = "nanoseconds of stall" if attribution.unit == "ps" else "congested packets"
    scale = 1000 if attribution.unit == "ps" else 1
    lines = list(_stacks(attribution.flame, (), scale))
    return Exported(f"{len(lines):,} stacks, values in {unit}", opened, lines)


def _measured_stacks(tables: Mapping[str, pl.DataFrame]) -> Iterator[str]:
    """A line for each rank, region and call: its waits by kind, and the remaining time."""
    calls = tables["calls"].with_columns(ps=pl.col("leave_ps") - pl.col("enter_ps"))
    waits = (
        tables["waits"]
        .filter(pl.col("value_ps") > 0)
        .group_by("call", "kind")
        .agg(pl.col("value_ps").sum())
        .join(calls.select("call", "ps"), on="call")
        .with_columns(value_ps=pl.min_horizontal("value_ps", "ps"))
    )
    waited = waits.group_by("call").agg(waited_ps=pl.col("value_ps").sum())
    place = ["rank", "path", "name"]
    inside = (
        calls.join(waited, on="call", how="left")
        .with_columns(ps=pl.col("ps") - pl.min_horizontal(pl.col("waited_ps").fill_null(0), "ps"))
        .group_by(place)
        .agg(pl.col("ps").sum())
        .with_columns(kind=pl.lit(""))
    )
    outside = (
        waits.select("call", "kind", ps="value_ps")
        .join(calls.select("call", *place), on="call")
        .group_by(*place, "kind")
        .agg(pl.col("ps").sum())
    )
    columns = [*place, "kind", "ps"]
    rows = pl.concat([inside.select(columns), outside.select(columns)]).sort(*place, "kind")
    for rank, path, name, kind, ps in rows.iter_rows():
        boxes = [f"rank {rank}", *(path or "").split(" > "), name]
        if kind:
            boxes.append(PART_NAMES[kind])
        if ps > 0:
            yield f"{';'.join(_box(box) for box in boxes if box)} {max(round(ps / 1000), 1)}"


def _stacks(frame: Frame, below: tuple[str, ...], scale: int) -> Iterator[str]:
    """A line for each box whose value is not all in the boxes above it."""
    path = below if frame.kind == "all" else (*below, _name(frame))
    stall_of_box = frame.value - sum(child.value for child in frame.children)
    # What is left of sums of the same numbers in another order is no time.
    if path and stall_of_box > 1e-9 * frame.value:
        yield f"{';'.join(path)} {max(round(stall_of_box / scale), 1)}"
    for child in frame.children:
        yield from _stacks(child, path, scale)


def _name(frame: Frame) -> str:
    return _box(title(frame))


def _box(name: str) -> str:
    """The name of a box: semicolons separate boxes, and line ends separate stacks."""
    return " ".join(name.replace(";", ",").split()) or "?"
