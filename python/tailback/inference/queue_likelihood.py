"""Likelihood of the readings of queues for slow links of networks that drop packets.

Packets wait in the queue of a link only while it sends. So the share of readings with a queue is at
most the share of the time that the bytes of the link take, which is the longer, the slower the link
is. How much less it is depends on what arrives together, and is unknown: any share up to that is
equally probable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.evidence.link_counters import LinkCounters
from tailback.fabric.degraded import SlowLink
from tailback.fabric.model import Fabric


@dataclass(frozen=True)
class QueueLikelihood:
    """The readings of the queues of a network, as arrays of length L, NaN where there are none.

    Attributes:
        queued: Share of readings with a queue.
        busy: Share of the time that the bytes take at the nominal rate.
        readings: Number of independent readings.
        nominal: Nominal rates, Gb/s.
    """

    queued: Floats
    busy: Floats
    readings: Floats
    nominal: Floats

    @classmethod
    def of(cls, counters: LinkCounters | None, fabric: Fabric) -> QueueLikelihood | None:
        """The readings during a job; None without any, and where full queues stop senders."""
        if counters is None or not counters.lossy or counters.queue_readings.is_empty():
            return None
        rows = counters.queue_readings
        columns = {name: np.full(fabric.n_links, np.nan) for name in rows.columns[1:]}
        for name, column in columns.items():
            column[rows["link"].to_numpy()] = rows[name].to_numpy()
        rated = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
        return cls(**columns, nominal=np.asarray(rated, np.float64))

    def log_ratio(self, slow: SlowLink, reverse: int) -> float:
        """Logarithm of the likelihood ratio of a slow link, or cable, to one at its nominal rate.

        Args:
            slow: The link and its rate.
            reverse: The other direction of its cable.
        """
        ends = (slow.link, reverse) if slow.both else (slow.link,)
        return sum(self._log_ratio(end, slow.gbps / float(self.nominal[end])) for end in ends)

    def _log_ratio(self, link: int, share: float) -> float:
        busy = float(self.busy[link])
        if math.isnan(busy) or busy <= 0.0 or share >= 1.0:
            return 0.0
        return self._log_likelihood(link, busy / share) - self._log_likelihood(link, busy)

    def _log_likelihood(self, link: int, busy: float) -> float:
        """That of the readings of a link that sends for a share of the time."""
        from scipy.special import betainc  # takes a third of a second to import

        most, readings = min(busy, 1.0), float(self.readings[link])
        with_queue = float(self.queued[link]) * readings
        below = betainc(with_queue + 1.0, readings - with_queue + 1.0, most)
        return math.log(max(float(below), 1e-300) / most)

    def suspects(self, cables: Iterable[int], reverse: NDArray[np.uint32]) -> list[SlowLink]:
        """The cables, or single directions, that the readings favour as slow, the likeliest first.

        Each with the rate at which its bytes take as long as it had a queue.

        Args:
            cables: Cables to choose from, by one link of each.
            reverse: The other direction of each link, length L.
        """
        likely = list[tuple[float, SlowLink]]()
        for link in cables:
            ends = [link, int(reverse[link])]
            tried = [slow for end in ends if (slow := self.slow_link(end)) is not None]
            if not tried:
                continue
            mean = float(np.mean([slow.gbps for slow in tried]))
            likely.append(
                max(
                    (self.log_ratio(slow, int(reverse[slow.link])), slow)
                    for slow in (*tried, SlowLink(link, mean))
                )
            )
        likely.sort(key=lambda pair: -pair[0])
        return [slow for ratio, slow in likely if ratio > 0.0]

    def slow_link(self, link: int) -> SlowLink | None:
        """A link with the rate at which its bytes take as long as it has a queue.

        None if that is no less than its nominal rate.
        """
        queued, busy = float(self.queued[link]), float(self.busy[link])
        if not queued > busy > 0.0:
            return None
        return SlowLink(link, busy / queued * float(self.nominal[link]), both=False)
