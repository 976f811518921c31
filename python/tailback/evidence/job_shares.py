"""Attribute the traffic on links between switches to jobs, by regression over time windows.

In each window a link carries a fixed fraction of the bytes that each job injects, because pairs of
hosts keep their paths. So the bytes of the link are regressed on the bytes injected by each job,
including ours, with non-negative coefficients (non-negative least squares). This needs no
forwarding tables, and holds on average under adaptive routing. Jobs that inject at constant rates
cannot be distinguished: links for which a share has a large standard error are omitted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.fabric.model import Fabric

OURS = "ours"
"""Name of our own job among the injecting jobs."""

MAX_SHARE_ERROR = 0.1
"""Maximum standard error of a job's share of the bytes of a link; links above it are omitted."""

MIN_LINK_LOAD = 0.01
"""Minimum utilization of a link for its traffic to be attributed."""

SPARE_WINDOWS = 4
"""Minimum number of windows in excess of the number of jobs: residual degrees of freedom."""

SCHEMA = pl.Schema(
    {
        "link": pl.UInt32,
        "job": pl.String,
        "sent_bytes": pl.Float64,
        "share": pl.Float64,
        "error": pl.Float64,
    }
)


def job_shares(
    intervals: pl.DataFrame, fabric: Fabric, edges: Floats, injected: Mapping[str, Floats]
) -> pl.DataFrame:
    """Bytes of each job on each link between switches, where the jobs can be distinguished.

    Args:
        intervals: ``link, start_ns, end_ns, data_bytes`` of the counters.
        fabric: The fabric.
        edges: Edges of the windows, UTC nanoseconds, shape (W + 1,).
        injected: Bytes that each job injected in each window, shape (W,), by job name.

    Returns:
        ``link, job, sent_bytes, share, error``: bytes of a job, their share of the bytes of all
        jobs, and the standard error of the share. Empty if there are too few windows.
    """
    from scipy.optimize import nnls  # takes half a second to import: only where it is needed

    jobs = [job for job, sent in injected.items() if sent.sum() > 0]
    if len(edges) - 1 < len(jobs) + SPARE_WINDOWS or not jobs:
        return pl.DataFrame(schema=SCHEMA)
    totals = np.array([injected[job].sum() for job in jobs])
    # Columns are normalised, so that no job is lost to rounding.
    design = np.stack([injected[job] for job in jobs], axis=1) / totals
    inverse = np.linalg.pinv(design.T @ design, rcond=1e-9, hermitian=True)
    links, sent = _sent_by_window(intervals, fabric, edges)
    seconds = (edges[-1] - edges[0]) * 1e-9
    rows: list[tuple[int, str, float, float, float]] = []
    for link, counted in zip(links.tolist(), sent, strict=True):
        if counted.sum() < MIN_LINK_LOAD * fabric.link_gbps[link] / 8e-9 * seconds:
            continue
        job_bytes, residual = nnls(design, counted)
        if job_bytes.sum() <= 0:
            continue  # No job sent in these windows: all bytes are those of others.
        variance = residual**2 / (len(counted) - len(jobs)) * np.diag(inverse)
        share, error = job_bytes / job_bytes.sum(), np.sqrt(variance) / job_bytes.sum()
        # For nearly collinear columns only the sum of their coefficients is known.
        if error.max() > MAX_SHARE_ERROR or np.linalg.matrix_rank(design, tol=1e-6) < len(jobs):
            continue
        rows += [(link, *row) for row in zip(jobs, job_bytes, share, error, strict=True)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _sent_by_window(
    intervals: pl.DataFrame, fabric: Fabric, edges: Floats
) -> tuple[Ints, list[Floats]]:
    """Links between switches with counters for the whole time, and their bytes in each window."""
    between_switches = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    rows = intervals.filter(pl.col("data_bytes").is_not_null()).sort("link", "end_ns")
    links: list[int] = []
    sent: list[NDArray[np.float64]] = []
    for (link,), part in rows.group_by("link", maintain_order=True):
        first, last = part["start_ns"].min(), part["end_ns"].max()
        slack = (edges[1] - edges[0]) * 0.5
        if not between_switches[int(link)] or first > edges[0] + slack or last < edges[-1] - slack:
            continue
        time_ns = np.append(part["start_ns"][0], part["end_ns"].to_numpy()).astype(np.float64)
        total = np.append(0.0, np.cumsum(part["data_bytes"].to_numpy()))
        links.append(int(link))
        sent.append(np.diff(np.interp(edges, time_ns, total)))
    return np.array(links, np.int64), sent
