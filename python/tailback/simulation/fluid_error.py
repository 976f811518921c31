"""The interval in which a simulation of packets would end, of a run of the fluid model.

Nothing queues in that model, and a flow that chooses one path keeps it, so packets take longer
where messages collide. Where many ranks send to one at a time they take less, because buffers let
senders go on. How much was measured on drawn scenarios of one job (``bench/fluid_bound.py``,
docs/measurements/accuracy.md), by how many messages are in flight to a rank.

Beside other jobs packets took from a tenth of the time to sixty times as long: there is no useful
interval.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

LEAST_SHARE = 0.02
"""Least share of the time that counts as communication: latency alone takes some."""

BUFFERS = (16 << 10, 256 << 10)
"""Smallest and largest buffer that was drawn; with smaller ones packets take longer."""

FAN_IN = 1.5
"""Messages in flight at a time to a rank, over those of a rank, above which some ranks are sent to
by many while others wait."""

ERRORS = ((-0.226, 0.46), (-0.644, 0.176))
"""Without and with fan-in: 1.5 and 98.5 % quantile of the error of the time outside computation, as
a share of it (``bench/fluid_bound.py``, 2026-11-28). Of scenarios that were not fitted 97 % are
inside, and 95 % of those of a pattern that was left out of the fit."""


def has_fan_in(messages: pl.DataFrame) -> bool:
    """Whether some ranks of a run are sent to by many.

    Args:
        messages: Table ``messages`` of the run.
    """
    return message_fan_in(messages) > FAN_IN


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


def packet_interval(elapsed_ps: int, compute_ps: int, messages: pl.DataFrame) -> tuple[int, int]:
    """95 % interval of the time that packets take.

    Args:
        elapsed_ps: Time by the fluid model, at max-min rates, of one job alone.
        compute_ps: Longest computation of a rank.
        messages: Table ``messages``; may be empty.

    Returns:
        Low and high end.
    """
    low, high = ERRORS[has_fan_in(messages)]
    communication = max(elapsed_ps - compute_ps, LEAST_SHARE * elapsed_ps)
    return (
        round(max(elapsed_ps + low * communication, 0)),
        round(elapsed_ps + high * communication),
    )
