"""The 6-bit scheme on the packets of a run: hashes in place of links, and their decoding.

The engine hands out one sampled hop of every packet, drawn uniformly. That is what the coordinated
scheme draws, too, so each sampled hop becomes one header: a 5-bit hash of packet id and link, and
one bit that says whether the packet met congestion *there*, drawn with the share of our packets
that did, on that link in that window. The receiver knows which hop it is, so the link is one of
those that traffic of the same ends may use there (:func:`candidate_classes`). Decoding is the
product's: ``decode_classes`` of the core, and the projection of its counts to what adds up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback import _core
from tailback.run import Run

HASH_BITS = 5
FIELD_BITS = 24
KAPPA = 1.0 / (2**HASH_BITS - 1)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def candidate_classes(run: Run) -> Ints:
    """Number of the class of every link, shape (L,): links a receiver cannot tell apart by itself.

    In a tree the up-links of a leaf, those between a pod and the cores, and the same down; with
    detours (ugal) all links that leave a group; elsewhere routes are single-path and a link is
    alone, as is every link of a node.
    """
    links = run.tables["links"].sort("link")
    n = run.tables["nodes"].height
    switches = run.tables["switches"].sort("switch")
    tier = np.concatenate([np.full(n, -1), switches["tier"].to_numpy()])
    pod = np.concatenate([np.full(n, -1), switches["pod"].to_numpy()])
    src, dst = links["src"].to_numpy().astype(np.int64), links["dst"].to_numpy().astype(np.int64)
    key = np.zeros((len(src), 3), np.int64)
    key[:, 0], key[:, 1] = 1, np.arange(len(src))
    inner = (src >= n) & (dst >= n)
    up, down = inner & (tier[dst] > tier[src]), inner & (tier[dst] < tier[src])
    for way, low, kind in ((up, src, 2), (down, dst, 3)):
        leaf = tier[low] == 0
        # A leaf counts by itself; above it a pod does, and a switch without a pod by itself.
        group = np.where(leaf | (pod[low] < 0), low, -1 - pod[low])
        key[way] = np.column_stack([np.full(len(src), kind), group, tier[low]])[way]
    if run.scenario.fabric.routes in ("ugal", "valiant"):
        flat = inner & ~up & ~down
        key[flat] = np.column_stack([np.full(len(src), 4), pod[src], np.zeros(len(src))])[flat]
    return np.unique(key, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def coordinated(run: Run, seed: int) -> Run:
    """The run with samples as decoded from 6-bit headers.

    Args:
        run: With table ``truth``, from which congestion bits are drawn.
        seed: Of packet ids and congestion bits.
    """
    rng = np.random.Generator(np.random.Philox(key=[seed, HASH_BITS]))
    classes = candidate_classes(run)
    rows = _rows(run)
    order, cell, cells = _cells(rows, classes)
    rows = rows[order]
    count = rows["hop_samples"].cast(pl.Int64).to_numpy()
    of_packet = np.repeat(np.arange(len(count)), count)
    link = rows["link"].to_numpy().astype(np.int64)[of_packet]
    met = rng.random(len(of_packet)) < rows["met"].to_numpy()[of_packet]
    ids = rng.integers(1, 1 << FIELD_BITS, len(of_packet), dtype=np.uint32)
    table = _Table(classes, cells[:, 2])
    hashes = _core.link_hash("gf", ids, (link + 1).astype(np.uint32), HASH_BITS, FIELD_BITS)
    in_cell = cell[of_packet]
    every = table.decode(ids, hashes, in_cell)
    hot = table.decode(ids[met], hashes[met], in_cell[met])
    return replace(run, tables={**run.tables, "samples": table.rows(rows, cell, cells, every, hot)})


def _rows(run: Run) -> pl.DataFrame:
    """Sampled hops, with the share of our packets that met congestion there and then."""
    truth = run.tables["truth"]
    met = truth.select(
        "window",
        "link",
        met=pl.col("observed_congested_packets") / pl.col("observed_packets").clip(lower_bound=1),
    )
    whole = truth.group_by("link").agg(
        always=pl.col("observed_congested_packets").sum()
        / pl.col("observed_packets").sum().clip(lower_bound=1)
    )
    # A packet that left in one window and arrived in the next finds no row of its own there.
    return (
        run.tables["samples"]
        .filter(pl.col("hop_samples") > 0)
        .join(met, on=["window", "link"], how="left")
        .join(whole, on="link", how="left")
        .with_columns(pl.coalesce("met", "always", pl.lit(0.0)).clip(0.0, 1.0).alias("met"))
        .drop("always")
    )


def _cells(rows: pl.DataFrame, classes: Ints) -> tuple[Ints, Ints, Ints]:
    """Order of the rows by (window, label, class), the cell of each then, and the cells' keys."""
    key = np.column_stack(
        [
            rows["window"].to_numpy().astype(np.int64),
            rows["label"].to_numpy().astype(np.int64),
            classes[rows["link"].to_numpy().astype(np.int64)],
        ]
    )
    order = np.lexsort(key.T[::-1])
    cells, cell = np.unique(key[order], axis=0, return_inverse=True)
    return order.astype(np.int64), cell.reshape(-1).astype(np.int64), cells


class _Table:
    """Every candidate of every cell, one entry each."""

    def __init__(self, classes: Ints, class_of_cell: Ints) -> None:
        members = np.argsort(classes, kind="stable")
        sizes = np.bincount(classes)
        first = np.cumsum(sizes) - sizes
        self.size = sizes[class_of_cell]
        self.start = np.concatenate([[0], np.cumsum(self.size)])
        within = np.arange(self.start[-1]) - np.repeat(self.start[:-1], self.size)
        self.link = members[np.repeat(first[class_of_cell], self.size) + within]
        self.cell = np.repeat(np.arange(len(self.size)), self.size)

    def decode(self, ids: NDArray[np.uint32], hashes: NDArray[np.uint8], cell: Ints) -> Floats:
        """Packets of every entry: unbiased counts, projected to sum to the packets of its cell."""
        score = _core.decode_classes(
            ids, hashes, np.ones(len(ids), np.uint8), cell.astype(np.uint32),
            self.start.astype(np.uint64), np.arange(len(self.link), dtype=np.uint32),
            (self.link + 1).astype(np.uint32), HASH_BITS, FIELD_BITS,
        )  # fmt: skip
        return self._project(score * KAPPA, np.bincount(cell, minlength=len(self.size)))

    def _project(self, counts: Floats, total: Ints) -> Floats:
        """Nearest counts that are not negative and sum to ``total`` in each cell."""
        out = np.zeros(len(counts))
        for size in np.unique(self.size):
            at = np.flatnonzero(self.size == size)
            where = self.start[at][:, None] + np.arange(size)
            values, goal = counts[where], total[at].astype(np.float64)[:, None]
            descending = -np.sort(-values, axis=1)
            shifts = (np.cumsum(descending, axis=1) - goal) / np.arange(1, size + 1)
            kept = np.maximum((descending > shifts).sum(axis=1), 1) - 1
            shift = np.take_along_axis(shifts, kept[:, None], axis=1)
            out[where] = np.maximum(values - shift, 0.0)
        return out

    def rows(
        self, rows: pl.DataFrame, cell: Ints, cells: Ints, every: Floats, hot: Floats
    ) -> pl.DataFrame:
        """Table ``samples``: counts times the mean weight of their cell, with collisions' noise."""

        def mean(name: str) -> Floats:
            sums = np.bincount(cell, weights=rows[name].cast(pl.Float64).to_numpy())
            return sums / np.bincount(cell, weights=rows["hop_samples"].cast(pl.Float64).to_numpy())

        weight, variance, size = mean("hop_weight"), mean("hop_variance"), mean("hop_bytes")
        square = (variance + weight)[self.cell]

        def spread(counts: Floats) -> Floats:
            others = np.bincount(self.cell, weights=counts)[self.cell] - counts
            return counts * variance[self.cell] + KAPPA * others * square

        columns = {
            "hop_samples": every, "hop_weight": every * weight[self.cell],
            "hop_variance": spread(every), "hop_bytes": every * size[self.cell],
            "congested_samples": hot, "congested_weight": hot * weight[self.cell],
            "congested_variance": spread(hot),
        }  # fmt: skip
        frame = pl.DataFrame(
            {
                "window": cells[self.cell, 0].astype(np.uint32),
                "job": np.zeros(len(self.cell), np.uint32),
                "label": cells[self.cell, 1].astype(np.uint32),
                "link": self.link.astype(np.uint32),
                **{name: np.round(values).astype(np.uint64) for name, values in columns.items()},
            }
        )
        return frame.filter((pl.col("hop_weight") > 0) | (pl.col("congested_weight") > 0))
