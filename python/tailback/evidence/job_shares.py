"""Which jobs' traffic links between switches carried, by regression in time.

In each window a link carried a fixed share of what each job injected, because the pairs of hosts
that send to each other use the same paths throughout. So the bytes of the link are regressed on the
bytes that jobs injected, ours among them, with coefficients of at least zero. This needs no
forwarding tables, and holds under adaptive routing on average. Jobs that inject at an even rate
cannot be told apart in this way: where the standard error of a share is large, nothing is said of
the link.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.evidence.counter_alignment import Floats, Ints
from tailback.fabric.model import Fabric

OURS = "ours"
"""Name of our own job among those that inject."""

MAX_SHARE_ERROR = 0.1
"""Standard error of a share of the bytes of a link above which nothing is said of the link."""

MIN_LINK_LOAD = 0.01
"""Load of a link from which its traffic is attributed."""

SPARE_WINDOWS = 4
"""Windows that there must be beyond the number of jobs, to know how well the regression fits."""

SCHEMA = pl.Schema(
    {"link": pl.UInt32, "job": pl.String, "sent_bytes": pl.Float64, "share": pl.Float64,
     "error": pl.Float64}
)  # fmt: skip


def job_shares(
    intervals: pl.DataFrame, fabric: Fabric, edges: Floats, injected: Mapping[str, Floats]
) -> pl.DataFrame:
    """What each job sent over each link between switches, where that can be told.

    Args:
        intervals: ``link, start_ns, end_ns, data_bytes`` of what was counted.
        fabric: The fabric.
        edges: Edges of the windows, UTC nanoseconds, shape (W + 1,).
        injected: Bytes that each job injected in each window, shape (W,), by its name.

    Returns:
        ``link, job, sent_bytes, share, error``: bytes of a job, their share of those of all jobs,
        and its standard error. Without rows where there are too few windows.
    """
    from scipy.optimize import nnls  # takes half a second to import: only where it is needed

    jobs = [job for job, sent in injected.items() if sent.sum() > 0]
    if len(edges) - 1 < len(jobs) + SPARE_WINDOWS or not jobs:
        return pl.DataFrame(schema=SCHEMA)
    totals = np.array([injected[job].sum() for job in jobs])
    # Columns of like size, so that no job is lost to rounding.
    design = np.stack([injected[job] for job in jobs], axis=1) / totals
    inverse = np.linalg.pinv(design.T @ design, rcond=1e-9, hermitian=True)
    links, sent = _sent_by_window(intervals, fabric, edges)
    seconds = (edges[-1] - edges[0]) * 1e-9
    rows: list[tuple[int, str, float, float, float]] = []
    for link, seen in zip(links.tolist(), sent, strict=True):
        if seen.sum() < MIN_LINK_LOAD * fabric.link_gbps[link] / 8e-9 * seconds:
            continue
        carried, rest = nnls(design, seen)
        variance = rest**2 / (len(seen) - len(jobs)) * np.diag(inverse)
        share, error = carried / carried.sum(), np.sqrt(variance) / carried.sum()
        # Columns that hardly differ have no inverse: then only their sum is known.
        if error.max() > MAX_SHARE_ERROR or np.linalg.matrix_rank(design, tol=1e-6) < len(jobs):
            continue
        rows += [(link, *row) for row in zip(jobs, carried, share, error, strict=True)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _sent_by_window(
    intervals: pl.DataFrame, fabric: Fabric, edges: Floats
) -> tuple[Ints, list[Floats]]:
    """Links between switches that were counted throughout, and their bytes in each window."""
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    rows = intervals.filter(pl.col("data_bytes").is_not_null()).sort("link", "end_ns")
    links: list[int] = []
    sent: list[NDArray[np.float64]] = []
    for (link,), part in rows.group_by("link", maintain_order=True):
        first, last = part["start_ns"].min(), part["end_ns"].max()
        slack = (edges[1] - edges[0]) * 0.5
        if not inner[int(link)] or first > edges[0] + slack or last < edges[-1] - slack:
            continue
        at = np.append(part["start_ns"][0], part["end_ns"].to_numpy()).astype(np.float64)
        total = np.append(0.0, np.cumsum(part["data_bytes"].to_numpy()))
        links.append(int(link))
        sent.append(np.diff(np.interp(edges, at, total)))
    return np.array(links, np.int64), sent
