"""Distance of a simulation from the measurements: one class for each kind of evidence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.diagnosis.cable_search import Outcome
from tailback.diagnosis.topology import link_totals
from tailback.evidence.call_profile import CallProfile
from tailback.evidence.send_times import SendProfile
from tailback.evidence.step_times import StepProfile
from tailback.run.run import Run
from tailback.traffic.program import Program


class EvidenceComparison(Protocol):
    """Distance of a simulation from one kind of evidence."""

    @property
    def kind(self) -> str:
        """Name of the kind of evidence in the error model."""

    @property
    def of_links(self) -> bool:
        """Whether it compares what links did: simulations without telemetry do not tell."""

    def __call__(self, run: Run) -> float | None:
        """The misfit of a run; 0 for no difference, None if they cannot be compared."""

    def at_times(self, run: Run, slow: Run, share: float) -> float | None:
        """The misfit of a run that is like another one for a share of the time."""

    def parts(self, run: Run) -> Floats | None:
        """What each subject adds to the misfit of a run; None if it has no subjects."""

    def to(self, run: Run) -> EvidenceComparison | None:
        """The same with a simulation in place of the measurement; None if it predicts nothing."""


@dataclass(frozen=True)
class Comparisons:
    """All kinds of evidence on a run.

    Attributes:
        each: One comparison for each kind.
    """

    each: Sequence[EvidenceComparison]

    @property
    def sends(self) -> SendProfile | None:
        """Measured times of sends; None if there are none."""
        return next(
            (comparison.profile for comparison in self.each if isinstance(comparison, SendTimes)),
            None,
        )

    @property
    def steps(self) -> StepProfile | None:
        """Measured times of network steps; None if there are none."""
        steps = (each.profile for each in self.each if isinstance(each, NetworkStepTimes))
        return next(steps, None)

    @property
    def of_links(self) -> bool:
        """Whether any compares what links did."""
        return any(comparison.of_links for comparison in self.each)

    def __call__(self, run: Run) -> Outcome:
        """The prediction of a simulation."""
        return Outcome(
            run.elapsed_ps, {comparison.kind: comparison(run) for comparison in self.each}
        )

    def at_times(self, run: Run, slow: Run, share: float) -> Outcome:
        """The prediction for a run that is like another one for a share of the time."""
        elapsed = (1.0 - share) * run.elapsed_ps + share * slow.elapsed_ps
        return Outcome(
            round(elapsed), {each.kind: each.at_times(run, slow, share) for each in self.each}
        )

    def between(self, run: Run, others: Sequence[Run]) -> dict[str, float]:
        """Mean misfit of other simulations to one simulation, by kind of evidence."""
        out = {}
        for comparison in self.each:
            like = comparison.to(run)
            misfits = [] if like is None else [like(other) for other in others]
            predicted = [misfit for misfit in misfits if misfit is not None]
            if predicted:
                out[comparison.kind] = sum(predicted) / len(predicted)
        return out


MIN_SCALE, MAX_SCALE = 0.95, 3.0
"""Range of a common factor between measured and simulated call times that is attributed to model
error: protocol overhead usually exceeds that of the model (TCP takes 1.2 times as long in the
real-packet lab). If all calls take longer by the same factor, that is not evidence of a cause."""

MIN_STALL_SHARE = 0.005
"""Stall fraction of the most stalled port below which no port stalls: a simulation disagrees as far
as it has stalls of more than that."""

MAX_STALL_RATIO = 3.0
"""Largest factor between measured and simulated stalls, in either direction, that is attributed to
model error: stall time depends on the buffer sizes of switches."""


@dataclass(frozen=True)
class CallTimes:
    """Time in calls, by rank and site.

    Attributes:
        profile: Measured times.
        program: The program that was simulated.
    """

    profile: CallProfile
    program: Program
    kind: ClassVar[str] = "calls"
    of_links: ClassVar[bool] = False

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured times, after the best scale; 0 for none."""
        simulated = self.profile.of_run(run, self.program)
        return _misfit(self.profile.count, self.profile.quantiles_ps, simulated)

    def at_times(self, run: Run, slow: Run, share: float) -> float | None:
        """The same for a share of the repetitions as in another simulation."""
        simulated = self.profile.of_alternating(run, slow, share, self.program)
        return _misfit(self.profile.count, self.profile.quantiles_ps, simulated)

    def parts(self, run: Run) -> Floats | None:
        """What each site adds to the misfit, shape (K,)."""
        return _parts(
            self.profile.count, self.profile.quantiles_ps, self.profile.of_run(run, self.program)
        )

    def to(self, run: Run) -> CallTimes | None:
        """The same with the times of a simulation in place of the measured ones."""
        simulated = self.profile.of_run(run, self.program)
        if simulated is None:
            return None
        return replace(self, profile=replace(self.profile, quantiles_ps=simulated))


@dataclass(frozen=True)
class SendTimes:
    """Time of sends, by sender and partners: distinguishes ranks that wait for one another.

    Attributes:
        profile: Measured times.
    """

    profile: SendProfile
    kind: ClassVar[str] = "sends"
    of_links: ClassVar[bool] = False

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured times, after the best scale; 0 for none.

        Mean over both times of a call, from the first send and from the last post: all ranks soon
        wait equally long, so the first alone hardly distinguishes slow links.
        """
        return self._mean_misfit(self.profile.of_run(run), self.profile.of_run(run, posted=True))

    def at_times(self, run: Run, slow: Run, share: float) -> float | None:
        """The same for a share of the repetitions as in another simulation."""
        began, posted = (
            self.profile.of_alternating(run, slow, share, posted=posted) for posted in (False, True)
        )
        return self._mean_misfit(began, posted)

    def _mean_misfit(self, began: Floats | None, posted: Floats | None) -> float | None:
        profile = self.profile
        misfits = (
            _misfit(profile.count, profile.quantiles_ps, began),
            _misfit(profile.count, profile.posted_quantiles_ps, posted),
        )
        predicted = [misfit for misfit in misfits if misfit is not None]
        return sum(predicted) / len(predicted) if predicted else None

    def parts(self, run: Run) -> Floats | None:
        """What each site adds to the mean misfit, shape (K,)."""
        profile = self.profile
        times = (
            _parts(profile.count, profile.quantiles_ps, profile.of_run(run)),
            _parts(profile.count, profile.posted_quantiles_ps, profile.of_run(run, posted=True)),
        )
        predicted = [parts for parts in times if parts is not None]
        return np.asarray(sum(predicted) / len(predicted), np.float64) if predicted else None

    def to(self, run: Run) -> SendTimes | None:
        """The same with the times of a simulation in place of the measured ones."""
        simulated = _simulated_sends(self.profile, run)
        return None if simulated is None else SendTimes(simulated)


def _simulated_sends(profile: SendProfile, run: Run) -> SendProfile | None:
    began, posted = profile.of_run(run), profile.of_run(run, posted=True)
    if began is None or posted is None:
        return None
    return replace(profile, quantiles_ps=began, posted_quantiles_ps=posted)


class _Profile(Protocol):
    """Times of a measured run that a simulation predicts."""

    def of_run(self, run: Run) -> Floats | None:
        """Times in a simulation, by site first; None if it does not predict them."""

    def of_alternating(self, run: Run, other: Run, share: float) -> Floats | None:
        """The same with a share of the repetitions as in another simulation."""


class _OfProfile(ABC):
    """Squared difference over squared measured times, after the best scale; 0 for none."""

    profile: _Profile

    def __call__(self, run: Run) -> float | None:
        """The misfit of a simulation."""
        return self._misfit_of(self.profile.of_run(run))

    def at_times(self, run: Run, slow: Run, share: float) -> float | None:
        """The same for a share of the repetitions as in another simulation."""
        return self._misfit_of(self.profile.of_alternating(run, slow, share))

    @abstractmethod
    def _misfit_of(self, simulated: Floats | None) -> float | None:
        """The misfit of a simulated profile."""


@dataclass(frozen=True)
class NetworkStepTimes(_OfProfile):
    """Network time of the steps of collectives, by sender and receiver.

    Attributes:
        profile: Measured times.
    """

    profile: StepProfile
    kind: ClassVar[str] = "steps"
    of_links: ClassVar[bool] = False

    def _misfit_of(self, simulated: Floats | None) -> float | None:
        return _misfit(self.profile.count, self._seen, self._scaled(simulated))

    @property
    def _seen(self) -> Floats:
        """Measured means as a column, shape (K, 1)."""
        return self.profile.mean_ps[:, None]

    def _scaled(self, simulated: Floats | None) -> Floats | None:
        """Simulated times of the same sum: how many steps are under way at once is unknown."""
        if simulated is None or not simulated.any():
            return None
        weight, seen = self.profile.count, self.profile.mean_ps
        total, sum_ps = (float((weight * times).sum()) for times in (seen, simulated))
        return np.asarray(simulated[:, None] * (total / sum_ps), np.float64)

    def parts(self, run: Run) -> Floats | None:
        """What each pair adds to the misfit, shape (K,)."""
        simulated = self._scaled(self.profile.of_run(run))
        return _parts(self.profile.count, self._seen, simulated)

    def to(self, run: Run) -> NetworkStepTimes | None:
        """The same with the times of a simulation in place of the measured ones."""
        simulated = self.profile.with_times_of(run)
        return None if simulated is None else NetworkStepTimes(simulated)


@dataclass(frozen=True)
class SendSpread(_OfProfile):
    """Distribution of the times of sends over senders, regardless of which ones are slow.

    Each quantile of the times is sorted over senders: this keeps the variation between senders and
    between repetitions, but not the senders' identity.

    Attributes:
        profile: Measured times.
    """

    profile: SendProfile
    kind: ClassVar[str] = "spread"
    of_links: ClassVar[bool] = False

    def _misfit_of(self, simulated: Floats | None) -> float | None:
        if simulated is None:
            return None
        seen = np.sort(self.profile.quantiles_ps, axis=0)
        return _misfit(np.ones(len(seen)), seen, np.sort(simulated, axis=0))

    def parts(self, run: Run) -> Floats | None:
        """None: the times are compared regardless of whose they are."""
        return None

    def to(self, run: Run) -> SendSpread | None:
        """The same with the times of a simulation in place of the measured ones."""
        simulated = _simulated_sends(self.profile, run)
        return None if simulated is None else SendSpread(simulated)


def _misfit(count: Floats, seen: Floats, simulated: Floats | None) -> float | None:
    """Squared difference over squared measured times, after the best scale.

    ``count``: repetitions, shape (K,); the times are quantiles of them, shape (K, Q).
    """
    squares = _squares(count, seen, simulated)
    return None if squares is None else float(squares[0].sum()) / squares[1]


def _parts(count: Floats, seen: Floats, simulated: Floats | None) -> Floats | None:
    """What each row of times adds to the misfit, shape (K,)."""
    squares = _squares(count, seen, simulated)
    return None if squares is None else np.asarray(squares[0].sum(axis=1) / squares[1], np.float64)


def _squares(
    count: Floats, seen: Floats, simulated: Floats | None
) -> tuple[NDArray[np.float64], float] | None:
    """Squared differences after the best scale, shape (K, Q), and the sum of squared times."""
    if simulated is None or not len(simulated):
        return None
    weight = count[:, None]
    total = float((weight * seen**2).sum())
    norm = float((weight * simulated**2).sum())
    if total <= 0 or norm <= 0:
        return None
    scale = float(np.clip((weight * seen * simulated).sum() / norm, MIN_SCALE, MAX_SCALE))
    return weight * (seen - scale * simulated) ** 2, total


def _has(run: Run, column: str) -> bool:
    """Whether a simulation measured this column of its links."""
    truth = run.tables["truth"]
    return bool(truth.height) and not truth[column].is_null().all()


def _mixed(run: Run, slow: Run, share: float, column: str) -> Floats:
    """Totals of each link if a run is like another one for a share of the time, shape (L,)."""
    totals = (1.0 - share) * link_totals(run, column) + share * link_totals(slow, column)
    return np.asarray(totals, np.float64)


@dataclass(frozen=True)
class PortStalls:
    """Time that the ports of a lossless network stalled.

    Attributes:
        stall_ps: Measured stall time, NaN if unknown, shape (L,).
        at_least: Links whose counter saturated, so the stall time is a lower bound, shape (L,).
        elapsed_ps: Measured time.
        error_ps: Error of simulated stalls due to unknown buffer sizes, shape (L,).
        counts: Whether counters that did not rise would have. Devices that do not count waits show
            none, too.
    """

    stall_ps: Floats
    at_least: NDArray[np.bool_]
    elapsed_ps: int
    error_ps: Floats
    counts: bool = False
    kind: ClassVar[str] = "stalls"
    of_links: ClassVar[bool] = True

    @property
    def links(self) -> NDArray[np.int64]:
        """Links whose stalls are compared."""
        return np.flatnonzero(~np.isnan(self.stall_ps))

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured stalls; None if no counter rose."""
        return self._misfit_of(link_totals(run, "stall_ps")) if _has(run, "stall_ps") else None

    def at_times(self, run: Run, slow: Run, share: float) -> float | None:
        """The same for a share of the time as in another simulation."""
        if not (_has(run, "stall_ps") and _has(slow, "stall_ps")):
            return None
        return self._misfit_of(_mixed(run, slow, share, "stall_ps"))

    def parts(self, run: Run) -> Floats | None:
        """What each counted link adds to the misfit, in the order of links."""
        squares = self._squares(link_totals(run, "stall_ps")) if _has(run, "stall_ps") else None
        return None if squares is None else squares[0] / squares[1]

    def _misfit_of(self, stall_ps: Floats) -> float | None:
        squares = self._squares(stall_ps)
        return None if squares is None else float(squares[0].sum() / squares[1])

    def _squares(self, stall_ps: Floats) -> tuple[Floats, float] | None:
        """Squared differences of counted links, and the sum of squared stalls."""
        counted = ~np.isnan(self.stall_ps)
        if not counted.any():
            return None
        seen = self.stall_ps[counted]
        if not self.counts and seen.max() <= 0.0:
            return None
        simulated = stall_ps[counted]
        norm = float((simulated**2).sum())
        if norm > 0:
            scale = float((seen * simulated).sum()) / norm
            simulated = simulated * np.clip(scale, 1.0 / MAX_STALL_RATIO, MAX_STALL_RATIO)
        gap = np.where(
            self.at_least[counted], np.maximum(seen - simulated, 0.0), np.abs(seen - simulated)
        )
        gap = np.maximum(gap - self.error_ps[counted], 0.0)
        least = MIN_STALL_SHARE * self.elapsed_ps
        if seen.max() >= least:
            return gap**2, float((seen**2).sum())
        # No port stalls: at most 1, where a simulation has much more than that.
        return gap**2, float((gap**2).sum()) + least**2

    def to(self, run: Run) -> PortStalls | None:
        """The same with the stalls of a simulation in place of the counted ones."""
        if not _has(run, "stall_ps"):
            return None
        stall = np.where(np.isnan(self.stall_ps), np.nan, link_totals(run, "stall_ps"))
        return replace(self, stall_ps=stall, at_least=np.zeros_like(self.at_least))


@dataclass(frozen=True)
class PortBytes:
    """Bytes on the links between switches: they show how messages are spread over parallel links.

    Attributes:
        sent_bytes: Counted bytes, NaN if unknown, shape (L,).
        between: Links between switches, shape (L,).
    """

    sent_bytes: Floats
    between: NDArray[np.bool_]
    kind: ClassVar[str] = "bytes"
    of_links: ClassVar[bool] = True

    @property
    def links(self) -> NDArray[np.int64]:
        """Links whose bytes are compared."""
        return np.flatnonzero(self.between & ~np.isnan(self.sent_bytes))

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared counted bytes, after the best scale; 0 for none.

        The scale is that of headers and of the time that the counters cover.
        """
        return self._misfit_of(link_totals(run, "bytes"))

    def at_times(self, run: Run, slow: Run, share: float) -> float | None:
        """The same for a share of the time as in another simulation."""
        return self._misfit_of(_mixed(run, slow, share, "bytes"))

    def parts(self, run: Run) -> Floats | None:
        """What each counted link between switches adds to the misfit, in the order of links."""
        squares = self._squares(link_totals(run, "bytes"))
        return None if squares is None else squares[0] / squares[1]

    def _misfit_of(self, simulated_bytes: Floats) -> float | None:
        squares = self._squares(simulated_bytes)
        return None if squares is None else float(squares[0].sum()) / squares[1]

    def _squares(self, simulated_bytes: Floats) -> tuple[Floats, float] | None:
        """Squared differences of counted links, and the sum of squared bytes."""
        counted = self.between & ~np.isnan(self.sent_bytes)
        seen, sent = self.sent_bytes[counted], simulated_bytes[counted]
        total, norm = float((seen**2).sum()), float((sent**2).sum())
        if total <= 0 or norm <= 0:
            return None
        scale = float((seen * sent).sum()) / norm
        return (seen - scale * sent) ** 2, total

    def to(self, run: Run) -> PortBytes:
        """The same with the bytes of a simulation in place of the counted ones."""
        sent = link_totals(run, "bytes")
        return replace(self, sent_bytes=np.where(np.isnan(self.sent_bytes), np.nan, sent))


def stall_error_ps(
    sent_bytes: Floats, link_gbps: Floats, buffer_bytes: float, message_bytes: float
) -> Floats:
    """Error of simulated stalls due to unknown buffer sizes, shape (L,).

    A port stalls once the buffer at the other end of its cable is full. Buffer sizes of switches
    are rarely published: anything from zero to twice the simulated size is possible. So each
    message, or each buffer's worth of smaller ones, may stall a port for the time of one buffer
    more or less.

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
    """Congested fraction of links, estimated from the samples in our packets.

    Attributes:
        fraction: Congested fraction of our packets on each link, NaN if unknown, shape (L,).
        packets: Our packets on each link, shape (L,).
        from_node: Injection links, whose queue is in the host, shape (L,).
    """

    fraction: Floats
    packets: Floats
    from_node: NDArray[np.bool_]
    kind: ClassVar[str] = "samples"
    of_links: ClassVar[bool] = True

    @property
    def links(self) -> NDArray[np.int64]:
        """Links whose samples are compared."""
        return np.flatnonzero(~np.isnan(self.fraction) & ~self.from_node)

    def __call__(self, run: Run) -> float | None:
        """Squared difference over squared measured fractions, weighted by packets."""
        return self.at_times(run, run, 0.0)

    def at_times(self, run: Run, slow: Run, share: float) -> float | None:
        """The same for a share of the time as in another simulation."""
        squares = self._squares(run, slow, share)
        return None if squares is None else float(squares[0].sum()) / squares[1]

    def parts(self, run: Run) -> Floats | None:
        """What each sampled link adds to the misfit, in the order of links."""
        squares = self._squares(run, run, 0.0)
        return None if squares is None else squares[0] / squares[1]

    def _squares(self, run: Run, slow: Run, share: float) -> tuple[Floats, float] | None:
        """Weighted squared differences of sampled links, and the weighted sum of squares."""
        sampled = ~np.isnan(self.fraction) & ~self.from_node
        total = float((self.packets[sampled] * self.fraction[sampled] ** 2).sum())
        if total <= 0 or not all(_has(each, "observed_packets") for each in (run, slow)):
            return None
        sent = np.maximum(_mixed(run, slow, share, "observed_packets"), 1.0)
        simulated = _mixed(run, slow, share, "observed_congested_packets") / sent
        weight, seen, simulated = (x[sampled] for x in (self.packets, self.fraction, simulated))
        norm = float((weight * simulated**2).sum())
        if norm > 0:
            scale = float((weight * seen * simulated).sum()) / norm
            simulated = simulated * np.clip(scale, 1.0 / MAX_STALL_RATIO, MAX_STALL_RATIO)
        return weight * (seen - simulated) ** 2, total

    def to(self, run: Run) -> LinkSamples | None:
        """The same with the congestion of a simulation in place of the sampled one."""
        if not _has(run, "observed_packets"):
            return None
        sent = np.maximum(link_totals(run, "observed_packets"), 1.0)
        simulated = link_totals(run, "observed_congested_packets") / sent
        return replace(self, fraction=np.where(np.isnan(self.fraction), np.nan, simulated))
