"""The interval in which a simulation of packets would end, of a run of the fluid model.

Nothing queues in that model, and a flow that chooses one path keeps it, so packets take longer
where messages collide. Where many ranks send to one at a time they take less, because buffers let
senders go on. How much was measured on drawn scenarios (``bench/fluid_bound.py``,
docs/measurements/rates.md), by choice of paths and with fan-in.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

LEAST_SHARE = 0.02
"""Least share of the time that counts as communication: latency alone takes some."""

FAN_IN = 3.0
"""Messages in flight at a time to a rank, over those of a rank, above which ranks take turns in
sending to one."""

ERRORS = {
    "deterministic": (-0.112, 0.273),
    "least-flows": (-0.126, 0.407),
    "pooled": (-0.034, 0.491),
    "random": (-0.117, 0.418),
    "split": (-0.169, 0.279),
    "spread": (-0.099, 0.267),
}
"""By choice of paths: 2.5 and 97.5 % quantile of the error of the time outside computation, as a
share of it: ``bench/fluid_bound.py``, 2026-11-27."""

FAN_IN_ERRORS = (-0.636, 0.007)
"""The same with fan-in, for every choice of paths."""


def message_fan_in(messages: pl.DataFrame) -> float:
    """Mean number of messages in flight to a rank over that from a rank, at times with any.

    Args:
        messages: Table ``messages`` of a run.
    """
    log = messages.filter(pl.col("arrival_ps") > pl.col("start_ps"))
    if log.is_empty():
        return 1.0
    start, end = (log[name].cast(pl.Int64).to_numpy() for name in ("start_ps", "arrival_ps"))
    took = float((end - start).sum())
    covered = [_covered(log[name].to_numpy(), start, end) for name in ("src_rank", "dst_rank")]
    return (took / covered[1]) / (took / covered[0])


def _covered(rank: NDArray[np.integer], start: NDArray[np.int64], end: NDArray[np.int64]) -> float:
    """Total time in which each rank has a message in flight."""
    stretch = int(end.max()) + 1
    base = rank.astype(np.int64) * stretch
    order = np.argsort(base + start, kind="stable")
    begin, finish = (base + start)[order], (base + end)[order]
    before = np.concatenate([[0], np.maximum.accumulate(finish)[:-1]])
    return float(np.maximum(finish - np.maximum(begin, before), 0).sum())


def packet_interval(
    elapsed_ps: int, compute_ps: int, paths: str, messages: pl.DataFrame
) -> tuple[int, int] | None:
    """95 % interval of the time that packets take.

    Args:
        elapsed_ps: Time by the fluid model, at max-min rates.
        compute_ps: Longest computation of a rank.
        paths: Choice of paths.
        messages: Table ``messages``; may be empty.

    Returns:
        Low and high end; None for a choice of paths that was not measured.
    """
    if paths not in ERRORS:
        return None
    low, high = FAN_IN_ERRORS if message_fan_in(messages) > FAN_IN else ERRORS[paths]
    communication = max(elapsed_ps - compute_ps, LEAST_SHARE * elapsed_ps)
    return (
        round(max(elapsed_ps + low * communication, 0)),
        round(elapsed_ps + high * communication),
    )
