"""How far a simulation is from what was measured, one kind of evidence a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.topology import link_totals
from tailback.evidence.call_profile import CallProfile
from tailback.evidence.send_times import SendProfile
from tailback.run import Run
from tailback.traffic.program import Program

Floats = NDArray[np.float64]

MIN_SCALE, MAX_SCALE = 0.95, 3.0
"""Measured over simulated time in calls that passes for the model's own error, the same for
all calls: protocols take more than the model knows (TCP in the real-packet lab 1.2 times), hardly
ever less. A run all of whose calls take so many times as long is no evidence of any cause."""

MIN_STALL_SHARE = 0.005
"""Share of the measured time that the most stalled port stalled under which stalls tell nothing."""

MAX_STALL_RATIO = 3.0
"""Measured over simulated stall that passes for the model's error, either way: how long a port
stalls hangs on the buffers of its switch."""


@dataclass(frozen=True)
class CallTimes:
    """Time in calls, by rank and site.

    Attributes:
        profile: What was measured.
        program: The program that was simulated.
    """

    profile: CallProfile
    program: Program

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured times, after the best scale; 0 for none."""
        simulated = self.profile.of_run(run, self.program)
        return _misfit(self.profile.count, self.profile.quantiles_ps, simulated)


@dataclass(frozen=True)
class SendTimes:
    """Time of sends, by sender and partners: tells ranks apart that wait for one another.

    Attributes:
        profile: What was measured.
    """

    profile: SendProfile

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured times, after the best scale; 0 for none.

        The mean of both times of a call, from the first send and from the last post: all ranks
        soon wait as long as each other, so the first is hardly off where another link is slow.
        """
        seen, simulated = self.profile.quantiles_ps, self.profile.of_run(run)
        posted, then = self.profile.posted_quantiles_ps, self.profile.of_run(run, posted=True)
        both = (
            _misfit(self.profile.count, seen, simulated),
            _misfit(self.profile.count, posted, then),
        )
        known = [one for one in both if one is not None]
        return sum(known) / len(known) if known else None

    def spread(self, run: Run, max_scale: float = 1.0) -> float | None:
        """The same of the distribution over senders, whoever is fast or slow.

        Each quantile of the times is sorted over senders: what remains is how much senders differ,
        and how much their repetitions do.

        Args:
            run: A simulation.
            max_scale: Measured over simulated time that passes for the model's error.
        """
        simulated = self.profile.of_run(run)
        if simulated is None:
            return None
        seen = np.sort(self.profile.quantiles_ps, axis=0)
        return _misfit(np.ones(len(seen)), seen, np.sort(simulated, axis=0), max_scale)


def _misfit(
    count: Floats, seen: Floats, simulated: Floats | None, max_scale: float = MAX_SCALE
) -> float | None:
    """Squared difference over squared measured times, after the best scale.

    ``count``: repetitions, shape (K,); the times are quantiles of them, shape (K, Q).
    """
    if simulated is None or not len(simulated):
        return None
    weight = count[:, None]
    whole = float((weight * seen**2).sum())
    norm = float((weight * simulated**2).sum())
    if whole <= 0 or norm <= 0:
        return None
    scale = float(np.clip((weight * seen * simulated).sum() / norm, MIN_SCALE, max_scale))
    return float((weight * (seen - scale * simulated) ** 2).sum()) / whole


@dataclass(frozen=True)
class PortStalls:
    """Time that the ports of a lossless network stalled.

    Attributes:
        stall_ps: What was counted, NaN unknown, shape (L,).
        at_least: Links whose counter was full, so that more may be true, shape (L,).
        elapsed_ps: Measured time.
        error_ps: How far simulated stalls may be off for the unknown size of buffers, shape (L,).
    """

    stall_ps: Floats
    at_least: NDArray[np.bool_]
    elapsed_ps: int
    error_ps: Floats
    per_link: bool = True
    """Which links stalled is known: a cable that does not fit that is not the slow one."""

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured stalls; None where nothing stalled."""
        known = ~np.isnan(self.stall_ps)
        truth = run.tables["truth"]
        if not truth.height or truth["stall_ps"].is_null().all() or not known.any():
            return None
        seen = self.stall_ps[known]
        if seen.max() < MIN_STALL_SHARE * self.elapsed_ps:
            return None
        found = link_totals(run, "stall_ps")[known]
        norm = float((found**2).sum())
        if norm > 0:
            scale = float((seen * found).sum()) / norm
            found = found * np.clip(scale, 1.0 / MAX_STALL_RATIO, MAX_STALL_RATIO)
        off = np.where(self.at_least[known], np.maximum(seen - found, 0.0), np.abs(seen - found))
        off = np.maximum(off - self.error_ps[known], 0.0)
        return float((off**2).sum() / (seen**2).sum())


def stall_error_ps(
    sent_bytes: Floats, link_gbps: Floats, buffer_bytes: float, message_bytes: float
) -> Floats:
    """How far simulated stalls may be off because nobody says how large buffers are, shape (L,).

    A port stalls once the buffer behind its cable is full. Sizes of switches are hardly ever
    published: anything from none to twice the simulated size may be true, so each message, or each
    buffer's worth of smaller ones, may stall a port by the time of one buffer more or less.

    Args:
        sent_bytes: Bytes on each link, shape (L,).
        link_gbps: Rate of each, shape (L,).
        buffer_bytes: Buffer of a link in the simulation.
        message_bytes: Mean size of messages.
    """
    episodes = sent_bytes / max(buffer_bytes, message_bytes, 1.0)
    each = buffer_bytes * 8000.0 / np.asarray(link_gbps, np.float64)
    return np.asarray(episodes * each, np.float64)


@dataclass(frozen=True)
class LinkSamples:
    """Congested fraction of links, as samples in our packets tell it.

    Attributes:
        fraction: Congested over all packets of ours on each link, NaN unknown, shape (L,).
        packets: Packets of ours on each, shape (L,).
        from_node: Links that leave nodes, whose queue is the host's own, shape (L,).
    """

    fraction: Floats
    packets: Floats
    from_node: NDArray[np.bool_]
    weight: float = 0.3
    """Against the time in calls: switches and the model differ in what they call congested."""

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured fractions, weighted by packets."""
        truth = run.tables["truth"]
        known = ~np.isnan(self.fraction) & ~self.from_node
        whole = float((self.packets[known] * self.fraction[known] ** 2).sum())
        if not truth.height or truth["observed_packets"].is_null().all() or whole <= 0:
            return None
        sent = np.maximum(link_totals(run, "observed_packets"), 1.0)
        simulated = link_totals(run, "observed_congested_packets") / sent
        weight, seen, found = (x[known] for x in (self.packets, self.fraction, simulated))
        norm = float((weight * found**2).sum())
        if norm > 0:
            scale = float((weight * seen * found).sum()) / norm
            found = found * np.clip(scale, 1.0 / MAX_STALL_RATIO, MAX_STALL_RATIO)
        return float((weight * (seen - found) ** 2).sum()) / whole
