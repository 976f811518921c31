"""One figure of a parameter study: a result over a key."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure

from tailback.errors import ScenarioError, nearest
from tailback.report.figure_specs import time_unit


def plot_sweep(frame: pl.DataFrame, x: str, y: str, by: str | None) -> Figure:
    """Mean, lowest and highest ``y`` over ``x``, one curve for each value of ``by``.

    A column in picoseconds is drawn in a unit that suits its size.

    Raises:
        ScenarioError: There is no such column.
    """
    for name in (x, y, *([by] if by else [])):
        if name not in frame.columns:
            raise ScenarioError(
                f"the study has no column {name!r}", remedy=nearest(name, frame.columns)
            )
    unit, size = ("", 1.0)
    if y.endswith("_ps") and not frame.is_empty():
        unit, size = time_unit(float(frame[y].max() or 0))  # type: ignore[arg-type]
        frame = frame.with_columns(pl.col(y) / size)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    groups = frame.partition_by(by, as_dict=True, maintain_order=True) if by else {(): frame}
    numeric = frame.schema[x].is_numeric()
    for value, rows in groups.items():
        summary = rows.group_by(x, maintain_order=True).agg(
            pl.col(y).mean().alias("mean"),
            pl.col(y).min().alias("low"),
            pl.col(y).max().alias("high"),
        )
        summary = summary.sort(x) if numeric else summary
        at = summary[x].to_list() if numeric else [str(value) for value in summary[x]]
        label = f"{by} = {value[0]}" if by else None
        (line,) = axes.plot(at, summary["mean"].to_list(), marker="o", label=label)
        axes.fill_between(
            at,
            summary["low"].to_list(),
            summary["high"].to_list(),
            alpha=0.2,
            color=line.get_color(),
        )
    axes.set_xlabel(x)
    axes.set_ylabel(f"{y.removesuffix('_ps')}, {unit}" if unit else y)
    axes.set_ylim(bottom=0)
    if by:
        axes.legend()
    return figure
