"""Pairs of ranks in order of their hosts: the bytes between them, and how far these travel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.report.figure_data import FigureData
from tailback.telemetry.left_out import copies

BINS = 256

MAX_HOP_CHANGE = 4.0
"""Switches at the ends of the scale: from within a leaf to across the pods of a fat tree."""


@dataclass(frozen=True, eq=False)
class RankOrder:
    """The ranks of our jobs in order of where they run; arrays have shape (n,).

    Attributes:
        rank: The ranks (numbers over all jobs).
        node: Node of each.
        leaf: Leaf of each, -1 for none.
        pod: Pod of each, -1 for none.
        width: Ranks of one row or column of the matrix.
    """

    rank: NDArray[np.int64]
    node: NDArray[np.int64]
    leaf: NDArray[np.int64]
    pod: NDArray[np.int64]
    width: int

    @property
    def size(self) -> int:
        """Rows and columns of the matrix, BINS at most."""
        return -(-len(self.rank) // self.width)

    @property
    def cell(self) -> NDArray[np.int64]:
        """Row and column of each rank."""
        return np.arange(len(self.rank)) // self.width


def order_of(evidence: FigureData) -> RankOrder:
    """The observed ranks by pod, leaf, node and number."""
    tables = evidence.run.tables
    ours = tables["jobs"].filter(pl.col("observed")).select("job")
    where = (
        tables["ranks"]
        .join(ours, on="job", how="semi")
        .join(tables["nodes"].select("node", "switch"), on="node", how="left")
        .join(
            tables["switches"].select(pl.col("switch").cast(pl.Int64), "pod"),
            on="switch",
            how="left",
        )
        .sort(pl.col("pod").fill_null(-1), "switch", "node", "rank")
    )
    rank, node, leaf, pod = (
        where[name].fill_null(-1).to_numpy().astype(np.int64)
        for name in ("rank", "node", "switch", "pod")
    )
    return RankOrder(rank, node, leaf, pod, max(1, -(-len(rank) // BINS)))


def binned(evidence: FigureData) -> tuple[NDArray[np.float64], RankOrder] | None:
    """Bytes between observed ranks in order of placement.

    Returns:
        ``(cells, order)``: bytes of each cell, and where the ranks stand. None without a message
        log.
    """
    order = order_of(evidence)
    messages = evidence.run.tables["messages"]
    messages_of_all = messages.with_columns(
        size_bytes=pl.col("size_bytes") * copies(evidence.run.tables)
    )
    pairs = messages_of_all.group_by("src_rank", "dst_rank").agg(pl.col("size_bytes").sum())
    place = pl.DataFrame({"rank": order.rank.astype(np.uint32), "cell": order.cell})
    pairs = pairs.join(place, left_on="src_rank", right_on="rank").join(
        place, left_on="dst_rank", right_on="rank", suffix="_dst"
    )
    if pairs.height == 0:
        return None
    cells = np.zeros((order.size, order.size))
    at = (pairs["cell"].to_numpy(), pairs["cell_dst"].to_numpy())
    np.add.at(cells, at, pairs["size_bytes"].to_numpy().astype(np.float64))
    return cells, order


def byte_limits(most: float) -> tuple[float, float]:
    """Ends of a logarithmic scale of bytes whose largest value is ``most``."""
    largest = max(most, 10.0)
    return max(largest / 1e4, 1.0), largest


def moved(pairs: pl.DataFrame, order: RankOrder) -> NDArray[np.float64]:
    """Mean change of switches visited in each cell of the matrix, NaN where no pair talks."""
    place = pl.DataFrame({"rank": order.rank.astype(np.uint32), "cell": order.cell})
    cells = (
        pairs.join(place, left_on="src_rank", right_on="rank")
        .join(place, left_on="dst_rank", right_on="rank", suffix="_dst")
        .with_columns(weight=pl.col("size_bytes").cast(pl.Float64).clip(lower_bound=1.0))
        .group_by("cell", "cell_dst")
        .agg(
            ((pl.col("after") - pl.col("before")) * pl.col("weight")).sum() / pl.col("weight").sum()
        )
    )
    out = np.full((order.size, order.size), np.nan)
    row, column, value = (cells.to_series(i).to_numpy() for i in range(3))
    out[row, column] = value
    return out


def distances(pairs: pl.DataFrame) -> tuple[list[int], NDArray[np.float64]]:
    """Switches visited, and the change of the share of bytes that visit so many."""
    total = max(float(pairs["size_bytes"].sum()), 1.0)
    shares = [
        dict(
            pairs.group_by(pl.col(name).round().cast(pl.Int64))
            .agg(pl.col("size_bytes").sum() / total)
            .iter_rows()
        )
        for name in ("before", "after")
    ]
    hops = sorted({*shares[0], *shares[1]})
    return hops, np.array([shares[1].get(h, 0.0) - shares[0].get(h, 0.0) for h in hops])
