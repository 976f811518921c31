"""The interval in which a simulation of packets would end, of a run of the fluid model.

Packets cannot be faster than the link that takes longest for its bytes. Nothing queues in the
model, so packets take longer where messages collide. They take less where it keeps ranks in step,
because buffers let senders go on. So the interval begins near the time of the busiest link, and
not before that of the busiest adapter.

How far packets end beside these limits was measured on drawn scenarios of one job
(``bench/fluid_bound.py``, docs/measurements/accuracy.md). Beside other jobs packets took from a
tenth of the time to sixty times as long: there is no useful interval. There is also none where many
ranks send to one at a time while most links are idle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.run.run import Run

LEAST_SHARE = 0.02
"""Least share of the time that counts as communication: latency alone takes some."""

BUFFERS = (16 << 10, 256 << 10)
"""Smallest and largest buffer drawn for the comparison. With smaller ones packets take longer."""

FAN_IN = 1.5
"""Messages in flight at a time to a rank, over those of a rank, above which some ranks are sent to
by many while others wait."""

LEAST_BUSY = 0.75
"""With fan-in, least time of the busiest link as a share of the communication. Below it ranks wait
for each other, and small differences add up: on a tree of 16 hosts that all send to one rank after
the other, packets took up to 67 % more than the model where this share was 0.47 to 0.70."""

BEYOND = (-0.05, 0.40)
"""Excess of packets over the two limits of the model: the 1 % quantile of the time below the lower
limit, as a share of the communication, and the 99 % quantile of the time above the upper limit, as
a share of that limit (``bench/fluid_bound.py --fit``, 2026-11-28, docs/measurements/accuracy.md).
"""


@dataclass(frozen=True)
class Communication:
    """Communication of a run in the fluid model.

    Attributes:
        elapsed_ps: Time of the run, at max-min rates, of one job alone.
        flight_ps: Part of it with a message in flight.
        busiest_ps: Time that the busiest link needs for its bytes
            (:func:`tailback.simulation.busiest_link_ps`).
        adapter_ps: Time that the busiest link of a node with no other link needs for its bytes.
            No packet can avoid it.
        fan_in: Mean number of messages in flight to a rank over that from a rank, at times with
            any.
    """

    elapsed_ps: int
    flight_ps: float
    busiest_ps: float
    adapter_ps: float
    fan_in: float

    @staticmethod
    def of(
        run: Run, busiest_ps: float, adapter_ps: float = 0.0, repetitions: int = 1
    ) -> Communication:
        """Those of a run.

        Args:
            run: A run of the fluid model.
            busiest_ps: Time of the busiest link in one repetition.
            adapter_ps: Time of the busiest link of a node in one repetition.
            repetitions: Number of repetitions of the messages in table ``messages``.
        """
        busiest_ps, adapter_ps = busiest_ps * repetitions, adapter_ps * repetitions
        log = run.tables["messages"].filter(pl.col("arrival_ps") > pl.col("start_ps"))
        if log.is_empty():
            return Communication(run.elapsed_ps, 0.0, busiest_ps, adapter_ps, 1.0)
        start, end = (log[name].cast(pl.Int64).to_numpy() for name in ("start_ps", "arrival_ps"))
        source, target = (log[name].to_numpy() for name in ("src_rank", "dst_rank"))
        fan_in = _time_in_flight(source, start, end) / _time_in_flight(target, start, end)
        flight = _time_in_flight(np.zeros_like(source), start, end) * repetitions
        return Communication(run.elapsed_ps, flight, busiest_ps, adapter_ps, fan_in)

    @property
    def ps(self) -> float:
        """Time that counts as communication."""
        return max(self.flight_ps, LEAST_SHARE * self.elapsed_ps)

    @property
    def is_waiting(self) -> bool:
        """Whether ranks mostly wait for each other, so that no interval was found to hold."""
        return self.fan_in > FAN_IN and self.busiest_ps < LEAST_BUSY * self.ps

    def beyond(self, packets_ps: int) -> tuple[float, float]:
        """How far packets end beside the limits, as :data:`BEYOND` has it."""
        took = packets_ps - self.elapsed_ps + self.ps
        least, most = min(self.busiest_ps, self.ps), max(self.busiest_ps, self.ps)
        return (took - least) / self.ps, took / most - 1

    def packet_interval(self) -> tuple[int, int]:
        """Low and high end of the 95 % interval of the time that packets take."""
        least, most = min(self.busiest_ps, self.ps), max(self.busiest_ps, self.ps)
        outside = self.elapsed_ps - self.ps
        low, high = (
            outside + least + BEYOND[0] * self.ps,
            outside + most * (1 + BEYOND[1]),
        )
        return round(max(low, self.adapter_ps)), round(high)


def _time_in_flight(
    rank: NDArray[np.integer], start: NDArray[np.int64], end: NDArray[np.int64]
) -> float:
    """Total time in which each rank has a message in flight."""
    stretch = int(end.max()) + 1
    base = rank.astype(np.int64) * stretch
    order = np.argsort(base + start, kind="stable")
    begin, finish = (base + start)[order], (base + end)[order]
    before = np.concatenate([[0], np.maximum.accumulate(finish)[:-1]])
    return float(np.maximum(finish - np.maximum(begin, before), 0).sum())
