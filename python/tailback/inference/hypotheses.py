"""Posterior over hypotheses on a measured run, by the evidence that they predict.

A hypothesis is a change of the expected run: an adapter model, slow cables, traffic of other jobs,
or time lost to an unknown cause. Its probability is proportional to its prior times the likelihood
of the evidence (:mod:`tailback.inference.error_model`); free parameters are charged (Schwarz 1978).
Anything unusual has a prior of :data:`UNUSUAL`, shared among the cables that it may concern.
Hypotheses that differ only in a free parameter count once, with the best value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.diagnosis.cable_search import Outcome
from tailback.fabric.degraded import SlowLink
from tailback.inference.error_model import ErrorModel
from tailback.inference.queue_likelihood import QueueLikelihood
from tailback.inference.unknown_job import DRAWS, Draw
from tailback.log_probability import probabilities

UNUSUAL = 0.1
"""Prior probability of anything unusual: a slow cable on our paths, an unknown job, a fault that no
search finds, a cable that is slow in one direction only, routing other than usual. Of 103 runs of
blind cases that were called healthy, 9 had a fault: (9 + 1)/(103 + 2)."""

FAULT = 0.06
"""Smallest share of the measured time at which a cause counts as a fault: run-to-run variation is
smaller, and a smaller cost would not justify a change."""

HIDDEN_SHARE, NOT_FOUND_SHARE = 0.25, 0.1
"""Mean share of the time that a hidden cause costs, of an exponential distribution: slow cables and
jobs of blind cases cost 0.08 to 0.52, 0.23 on average; those that no search found, 0.1 to 0.24,
because what costs more shows."""

NAMED = 5
"""Maximum number of places of a slow link that a verdict names: if more fit, none is evident."""

IDLE = 2.0
"""Least ratio of the rate of a link to that which it reached, if it never had a queue: with less,
messages that arrive together would have waited."""

LIKELY = 0.5
"""Probability from which something is said, or taken, to be so: more likely than not."""

CREDIBLE = 0.95
"""Total probability of the hypotheses that are named as candidates or examined further."""


USUAL_DELAYS = 10.0
"""Factor within which delays are of those assumed, with 95 %, where no message shows them: software
takes a microsecond before a message with RDMA and ten or more with kernels between, and switches
take 0.1 to 1 µs."""

_DELAY_SPREAD = math.log(USUAL_DELAYS) / NormalDist().inv_cdf(0.975)
"""Standard deviation of the logarithm of that factor."""


MachineName = tuple[str, ...]
"""Adapter model, routing and progress of a machine model, and whether its buffers are small."""


@dataclass(frozen=True)
class SlowerMachine:
    """All of the machine is slower than modelled: a fault of the model, or of the whole network.

    Attributes:
        rates: Share of their stated rates that all links reach.
        delays: Factor of the delays of switches, of software before a message, and within a host.
    """

    rates: float = 1.0
    delays: float = 1.0

    @property
    def kind(self) -> str:
        """What is slower, regardless of how much."""
        return "rates" if self.rates < 1.0 else "delays"

    @property
    def is_usual(self) -> bool:
        """Whether it may be so without a fault: only delays are longer, as on many machines."""
        return self.kind == "delays" and self.delays <= USUAL_DELAYS


@dataclass(frozen=True)
class Hypothesis:
    """A change of the expected run.

    Attributes:
        machine: The machine model with which it is simulated.
        outcome: Prediction of its simulation.
        slow: Slow cables.
        bursts: Bursts per window of counted traffic of other jobs; None if it is even or absent.
        job: Traffic of an unknown job.
        unexplained: The remaining time was lost to a fault that was not found, or the simulation
            takes longer than the run for an unknown reason.
        otherwise: The bursts of counted traffic, or the rate of a cable, differ from the simulated
            ones so that the run takes as long as measured.
        log_prior: Logarithm of the prior of the machine and the bursts.
        alone_ps: Time of the run without its hidden causes, ps; None if it has none.
        slower: How the whole machine is slower than modelled; None if it is not.
        unsimulated: A fault that no hypothesis contains, and that would agree with the evidence.
        noise_ps: Part of the time that interruptions inside calls take, which no simulation has.
    """

    machine: MachineName
    outcome: Outcome
    slow: tuple[SlowLink, ...] = ()
    bursts: int | None = None
    job: Draw | None = None
    unexplained: bool = False
    otherwise: bool = False
    log_prior: float = 0.0
    alone_ps: int | None = None
    slower: SlowerMachine | None = None
    unsimulated: bool = False
    noise_ps: int = 0

    @property
    def simulated_ps(self) -> int:
        """Its time without interruptions inside calls, ps."""
        return self.outcome.elapsed_ps - self.noise_ps

    @property
    def cause(self) -> str:
        """Its hidden cause: ``slow-link``, ``other-traffic``, or empty."""
        if self.slow:
            return "slow-link"
        return "other-traffic" if self.job is not None else ""

    def hidden_share(self, model: ErrorModel) -> float:
        """Share of the measured time that the slow cables or the unknown job cost."""
        alone = self.simulated_ps if self.alone_ps is None else self.alone_ps
        return max(self.simulated_ps - alone, 0) / model.measured_ps

    def places(self, reverse: NDArray[np.uint32]) -> tuple[Hashable, ...]:
        """Its slow cables without their rates, and the direction if only one is slow."""
        ends = ((min(s.link, int(reverse[s.link])), None if s.both else s.link) for s in self.slow)
        return tuple(sorted(ends, key=str))


@dataclass(frozen=True)
class Weighed:
    """A hypothesis with its probability, and the logarithm of that but for the measured time."""

    probability: float
    hypothesis: Hypothesis
    log_weight: float


@dataclass(frozen=True)
class Prior:
    """Prior probabilities of hypotheses.

    Attributes:
        cables: Number of cables that may be slow: those that carry our traffic.
        reverse: The other direction of each link, length L.
        elsewhere: Links of cables that carry none of our traffic: one of these delays us only if
            packets of others that wait for it fill buffers on our paths, which is unusual.
        served_gbps: Rate that each link serves at least by its counters, shape (L,); None without.
        sound: Links that limit nothing by the counters of their queues, shape (L,); None without.
        faulty: Cables that are suspected for rising errors, by their first links.
        queues: Readings of queues where they drop packets; None without.
        alike: Number of cables for which one stands that is tried, by its first link: the evidence
            cannot tell them apart. Others stand for themselves.
        jobs_unseen: Traffic of other jobs is neither counted nor searched for, so that it is among
            the faults that no search finds.
    """

    cables: int
    reverse: NDArray[np.uint32]
    elsewhere: Collection[int] = ()
    served_gbps: NDArray[np.float64] | None = None
    sound: NDArray[np.bool_] | None = None
    faulty: Collection[int] = ()
    queues: QueueLikelihood | None = None
    alike: Mapping[int, int] = field(default_factory=dict)
    jobs_unseen: bool = False

    def is_suspect(self, link: int) -> bool:
        """Whether the cable of a link is suspected for its errors."""
        return min(link, int(self.reverse[link])) in self.faulty

    def log_place(self, link: int) -> float:
        """Logarithm of the prior odds that the cable of a link is slow.

        Errors that rise while the job runs favour neither: that one of the suspect cables is slow
        is as likely as not, whichever it is. Any other slow cable is unusual.
        """
        if self.is_suspect(link):
            return -math.log(len(self.faulty))
        alike = self.alike.get(min(link, int(self.reverse[link])), 1)
        return math.log(UNUSUAL * alike) - math.log(max(self.cables, 1))

    def least_rate(self, link: int, *, both: bool) -> float:
        """Lowest rate of a slow link by its counters, Gb/s; infinite if it is not slow.

        ``both``: both directions of its cable are slow. One that limits nothing may have too little
        traffic to show that. A cable with errors may be slow at times only: the highest rate that
        it reached is no bound of its mean rate.
        """
        if self.served_gbps is None or self.sound is None or self.is_suspect(link):
            return 0.0
        ends = [link, int(self.reverse[link])] if both else [link]
        served, sound = self.served_gbps[ends], self.sound[ends]
        return math.inf if sound.all() else float(np.where(sound, IDLE * served, served).max())

    def log(self, hypothesis: Hypothesis, model: ErrorModel) -> float:
        """Logarithm of the prior, less the charge for free parameters.

        A parameter that only sets the cost of a cause (the rate of a cable, the load of a job) is
        charged as that cost (:func:`log_cost`).
        """
        unusual = math.log(UNUSUAL)
        total = hypothesis.log_prior
        if hypothesis.cause:
            total += log_cost(hypothesis.hidden_share(model), HIDDEN_SHARE, model)
        if hypothesis.slower is not None and hypothesis.slower.is_usual:
            total += log_delays(hypothesis, hypothesis.slower.delays, model)
        elif hypothesis.slower is not None:
            # All of the network at once: as unusual as two faults.
            total += 2.0 * unusual + log_cost(hypothesis.hidden_share(model), HIDDEN_SHARE, model)
        for slow in hypothesis.slow:
            total += self.log_place(slow.link)
            total += 0.0 if slow.both else unusual
            total += unusual if slow.link in self.elsewhere else 0.0
            if self.queues is not None:
                total += self.queues.log_ratio(slow, int(self.reverse[slow.link]))
        if hypothesis.job is not None:
            total += unusual - math.log(DRAWS)
            if hypothesis.job.place:
                total -= math.log(max(self.cables, 1))
        if hypothesis.unexplained:
            off = model.off_share(hypothesis.outcome.elapsed_ps)
            total += log_unexplained(off, model) + (math.log(2.0) if self.jobs_unseen else 0.0)
        return total


def log_cost(share: float, mean: float, model: ErrorModel) -> float:
    """Logarithm of the prior of a cost, integrated over the error of the measured time.

    Costs are exponentially distributed: the density at this cost, times the width of the error.
    """
    return math.log(math.sqrt(2.0 * math.pi) * model.time_error / mean) - share / mean


def log_delays(hypothesis: Hypothesis, delays: float, model: ErrorModel) -> float:
    """Logarithm of the prior of longer delays, integrated over the error of the measured time.

    The logarithm of their factor is normally distributed.

    Args:
        hypothesis: The run with these delays.
        delays: Their factor, above 1.
        model: The error model.
    """
    factor, alone_ps = math.log(delays), max(hypothesis.alone_ps or 1, 1)
    growth = max(math.log(hypothesis.outcome.elapsed_ps / alone_ps), 0.0) / factor
    density = NormalDist(0.0, _DELAY_SPREAD).pdf(factor)
    width = math.sqrt(2.0 * math.pi) * model.time_error / max(growth, 1e-3)
    return min(math.log(density * width), 0.0)


def log_spread(width: float | Floats, model: ErrorModel) -> Floats:
    """Logarithm of the prior of a time that is uniformly distributed over a range.

    Args:
        width: Logarithm of the longest time over the shortest.
        model: The error model.
    """
    spread = np.log(math.sqrt(2.0 * math.pi) * model.time_error / np.asarray(width, np.float64))
    return np.asarray(np.minimum(spread, 0.0), np.float64)


def log_unexplained(off: float, model: ErrorModel) -> float:
    """Logarithm of the prior of a fault that no search finds.

    The simulation differs from the run by this share of the time.
    """
    return math.log(UNUSUAL) + log_cost(off, NOT_FOUND_SHARE, model)


class Posterior:
    """Probabilities of hypotheses.

    Attributes:
        model: The error model.
        reverse: The other direction of each link.
        weighed: The hypotheses, most probable first; of those that differ only in a free parameter,
            the best.
    """

    def __init__(self, hypotheses: Sequence[Hypothesis], model: ErrorModel, prior: Prior) -> None:
        self.model = model
        self.reverse = prior.reverse
        self._any_place = False
        best: dict[Hashable, tuple[float, Hypothesis]] = {}
        for hypothesis in _with_unexplained(hypotheses, model):
            score = log_probability(hypothesis, model, prior)
            job = hypothesis.job and (hypothesis.job.seed, hypothesis.job.place)
            slower = hypothesis.slower and hypothesis.slower.kind
            noisy = hypothesis.noise_ps > 0
            free = (job, hypothesis.otherwise, hypothesis.unexplained, slower, noisy)
            key = (hypothesis.machine, hypothesis.places(prior.reverse), hypothesis.bursts, *free)
            if key not in best or score > best[key][0]:
                best[key] = score, hypothesis
        ranked = sorted(best.values(), key=lambda pair: -pair[0])
        shares = probabilities([score for score, _ in ranked]).tolist()
        self.weighed = tuple(
            Weighed(share, hypothesis, _log_weight(hypothesis, model, prior))
            for share, (_, hypothesis) in zip(shares, ranked, strict=True)
        )

    @cached_property
    def best(self) -> Hypothesis:
        """The most probable hypothesis of the most probable hidden cause."""
        causes = dict.fromkeys(self._cause_of(weighed.hypothesis) for weighed in self.weighed)
        cause = max(causes, key=self.of_cause)
        # Unless counters show slow cables, which every hypothesis then has.
        if self.slower_machine[0] >= LIKELY and not self.in_any_place and "" in causes:
            cause = ""
        mine = [
            weighed
            for weighed in self.weighed
            if weighed.hypothesis.cause == cause
            and weighed.hypothesis.slower is None
            and not (weighed.hypothesis.slow and weighed.hypothesis.otherwise)
        ]
        total: dict[Hashable, float] = {}
        for weighed in mine:
            key = _added(weighed.hypothesis)
            total[key] = total.get(key, 0.0) + weighed.probability
        most = max(mine, key=lambda weighed: total[_added(weighed.hypothesis)]).hypothesis
        same = [weighed for weighed in mine if _added(weighed.hypothesis) == _added(most)]
        # Of the arrangements of counted traffic, a credible one with about the mean cost.
        weight = sum(weighed.probability for weighed in same)
        mean = (
            sum(weighed.probability * weighed.hypothesis.simulated_ps for weighed in same) / weight
        )
        as_simulated = [
            weighed
            for weighed in same
            if not (weighed.hypothesis.otherwise or weighed.hypothesis.noise_ps)
        ]
        return min(
            _credible(as_simulated or same),
            key=lambda weighed: abs(weighed.hypothesis.simulated_ps - mean),
        ).hypothesis

    @property
    def unexplained(self) -> float:
        """Probability of a fault that was not found.

        This includes slow cables whose place is not evident.
        """
        return sum(
            weighed.probability
            for weighed in self.weighed
            if self._left_open(weighed.hypothesis) >= FAULT
        )

    @property
    def slow_cable_agrees(self) -> bool:
        """Whether a credible hypothesis with slow cables agrees with all evidence as usual."""
        return any(
            self.model.agrees(weighed.hypothesis.outcome)
            for weighed in self.credible()
            if weighed.hypothesis.slow and not weighed.hypothesis.unexplained
        )

    @property
    def worth_a_search(self) -> float:
        """Probability of a fault that was not found, whatever it seems to cost.

        With the wrong adapters a run may take as long as measured for another reason; the times of
        its calls and sends then disagree.
        """
        return sum(
            weighed.probability
            for weighed in self.weighed
            if weighed.hypothesis.unexplained or self._left_open(weighed.hypothesis) >= FAULT
        )

    @property
    def agrees(self) -> bool:
        """Whether a credible hypothesis without unknown faults agrees with all evidence."""
        return any(
            self.model.agrees(weighed.hypothesis.outcome)
            for weighed in self.credible()
            if not weighed.hypothesis.unexplained
        )

    def _left_open(self, hypothesis: Hypothesis) -> float:
        """Share of the measured time to which a hypothesis assigns no evident cause."""
        if not self.is_named(hypothesis):
            return hypothesis.hidden_share(self.model)
        elapsed = hypothesis.outcome.elapsed_ps
        return self.model.off_share(elapsed) if hypothesis.unexplained else 0.0

    def of_cause(self, cause: str) -> float:
        """Probability of the hypotheses with this hidden cause; an empty name stands for none.

        Slow links count if their place is evident.
        """
        return sum(
            weighed.probability
            for weighed in self.weighed
            if self._cause_of(weighed.hypothesis) == cause and self.is_named(weighed.hypothesis)
        )

    def counting_any_place(self) -> Posterior:
        """The same where slow links count as one cause wherever they are.

        That is for evidence that cannot show their place, or whether all are slow alike.
        """
        other = copy(self)
        for name in ("best", "in_any_place", "_named"):
            other.__dict__.pop(name, None)
        other._any_place = not self.model.lossy
        return other

    @cached_property
    def in_any_place(self) -> bool:
        """Whether slow links count as one cause wherever they are: some slow cable is credible."""
        slow = sum(w.probability for w in self.weighed if w.hypothesis.slow)
        return self._any_place and slow >= 1.0 - CREDIBLE

    def all_links_slow(self, hypothesis: Hypothesis) -> bool:
        """Whether all links are slow alike, and that counts as a slow link."""
        slower = hypothesis.slower
        return self.in_any_place and slower is not None and slower.kind == "rates"

    def _cause_of(self, hypothesis: Hypothesis) -> str:
        return "slow-link" if self.all_links_slow(hypothesis) else hypothesis.cause

    def is_named(self, hypothesis: Hypothesis) -> bool:
        """Whether it has no slow cables, or their places are among those that a verdict names.

        A machine that is slower everywhere than modelled is not a cause that a verdict names,
        unless slow links count wherever they are. Usual delays need no cause.
        """
        if self.in_any_place and (hypothesis.slow or self.all_links_slow(hypothesis)):
            return True
        slower = hypothesis.slower
        if slower is not None:
            return slower.is_usual
        return hypothesis.places(self.reverse) in self._named

    @property
    def unknown_timing(self) -> float:
        """Probability of cables with errors whose delays have another timing than was simulated."""
        return sum(
            weighed.probability
            for weighed in self.weighed
            if weighed.hypothesis.unsimulated and weighed.hypothesis.otherwise
        )

    @property
    def noise_in_calls_ps(self) -> tuple[int, int]:
        """Time that interruptions inside calls take, ps: mean, and the most that is credible."""
        mean = sum(weighed.probability * weighed.hypothesis.noise_ps for weighed in self.weighed)
        most = max((weighed.hypothesis.noise_ps for weighed in self.credible()), default=0)
        return round(mean), most

    @property
    def hidden_among_simulated(self) -> float:
        """Probability of a hidden cause if a simulated hypothesis is the right one.

        A fault that was not tried agrees with all evidence by assumption, so its probability says
        nothing of what the simulations themselves show.
        """
        simulated = [weighed for weighed in self.weighed if not weighed.hypothesis.unsimulated]
        total = sum(weighed.probability for weighed in simulated)
        hidden = sum(weighed.probability for weighed in simulated if weighed.hypothesis.cause)
        return hidden / total if total > 0.0 else 0.0

    @property
    def slower_machine(self) -> tuple[float, tuple[SlowerMachine, ...]]:
        """Probability that the whole machine is slower than modelled, and how, likeliest first."""
        all_slower = [weighed for weighed in self.weighed if weighed.hypothesis.slower is not None]
        total = sum(weighed.probability for weighed in all_slower)
        likely = [
            weighed for weighed in all_slower if weighed.probability >= total * (1.0 - CREDIBLE)
        ]
        slowdowns = dict.fromkeys(weighed.hypothesis.slower for weighed in likely)
        return total, tuple(slowdown for slowdown in slowdowns if slowdown is not None)

    @property
    def usual_delays(self) -> float:
        """Factor of longer delays that many machines have, if they are likely; otherwise 0."""
        usual = [(w.probability, w.hypothesis.slower) for w in self.weighed if w.hypothesis.slower]
        usual = [(probability, slower) for probability, slower in usual if slower.is_usual]
        if sum(probability for probability, _ in usual) < LIKELY:
            return 0.0
        return usual[0][1].delays

    @property
    def slow_somewhere(self) -> tuple[float, int]:
        """Probability that links are slow, and on how many cables.

        The number is 0 if the places of slow cables are evident: those that a verdict names are
        more probable than all others together.
        """
        cables = [weighed for weighed in self.weighed if weighed.hypothesis.slow]
        named = self.of_cause("slow-link")
        total = sum(weighed.probability for weighed in cables)
        places = {weighed.hypothesis.places(self.reverse)[0][0] for weighed in _credible(cables)}  # type: ignore[index]
        many = total >= max(1.0 - CREDIBLE, 2.0 * named)
        return total + self.slower_machine[0], len(places) if many else 0

    @cached_property
    def _named(self) -> set[Hashable]:
        """The most probable places of slow cables, and no place."""
        places = [weighed.hypothesis.places(self.reverse) for weighed in self.weighed]
        return {(), *list(dict.fromkeys(place for place in places if place))[:NAMED]}

    def credible(self) -> list[Weighed]:
        """The smallest set of hypotheses with a total probability of :data:`CREDIBLE`."""
        return _credible(self.weighed)


def _credible(ranked: Sequence[Weighed]) -> list[Weighed]:
    """The first hypotheses that together have most of the probability."""
    out, covered = list[Weighed](), 0.0
    total = sum(weighed.probability for weighed in ranked)
    for weighed in ranked:
        if covered >= CREDIBLE * total:
            break
        out.append(weighed)
        covered += weighed.probability
    return out


def _added(hypothesis: Hypothesis) -> Hashable:
    """Hidden causes of a hypothesis, regardless of the bursts of counted traffic."""
    return hypothesis.machine, hypothesis.slow, hypothesis.job


def log_probability(hypothesis: Hypothesis, model: ErrorModel, prior: Prior) -> float:
    """Logarithm of prior and likelihood."""
    time = 0.0 if hypothesis.unexplained else model.log_time(hypothesis.outcome.elapsed_ps)
    return _log_weight(hypothesis, model, prior) + time


def _log_weight(hypothesis: Hypothesis, model: ErrorModel, prior: Prior) -> float:
    return prior.log(hypothesis, model) + model.log_shape(hypothesis.outcome)


def _with_unexplained(hypotheses: Sequence[Hypothesis], model: ErrorModel) -> Iterable[Hypothesis]:
    """Each hypothesis, with and without a fault that was not found.

    Such a fault changes the evidence in a way that nobody knows, and makes it as sensitive to
    unknown settings, as much as those that were simulated. That all times only grow by the same
    factor is unusual.
    """
    change = typical_of_faults(hypotheses, model, lambda outcome: outcome.change)
    varied = typical_of_faults(hypotheses, model, lambda outcome: outcome.sensitivity)
    for hypothesis in hypotheses:
        yield hypothesis
        off = model.off_share(hypothesis.outcome.elapsed_ps)
        # Slower links everywhere explain the time or they do not: their share is free.
        if off <= 0 or hypothesis.unexplained or hypothesis.slower is not None:
            continue
        if hypothesis.cause and not model.missing_share(hypothesis.outcome.elapsed_ps):
            continue  # A cause that costs more than was lost is not the right one.
        sensitivity = hypothesis.outcome.sensitivity
        same = {
            kind: max(sensitivity.get(kind, 0.0), varied.get(kind, 0.0) * off**2)
            for kind in model.kinds
        }
        changed = {kind: error + change.get(kind, 0.0) * off**2 for kind, error in same.items()}
        for errors, prior in ((changed, 0.0), (same, math.log(UNUSUAL))):
            outcome = replace(hypothesis.outcome, sensitivity=errors)
            log_prior = hypothesis.log_prior + prior
            yield replace(hypothesis, outcome=outcome, unexplained=True, log_prior=log_prior)


def typical_of_faults(
    hypotheses: Sequence[Hypothesis],
    model: ErrorModel,
    misfit: Callable[[Outcome], Mapping[str, float]],
) -> dict[str, float]:
    """A misfit of simulated faults over the square of their share of the time, by kind.

    The median over the faults; none without them.

    Args:
        hypotheses: The hypotheses.
        model: The error model.
        misfit: Takes it from the prediction of a simulation.
    """
    faults = [
        (misfit(hypothesis.outcome), share)
        for hypothesis in hypotheses
        if hypothesis.outcome.change and (share := hypothesis.hidden_share(model)) >= FAULT
    ]
    out = {}
    for kind in model.kinds:
        ratios = [misfits[kind] / share**2 for misfits, share in faults if kind in misfits]
        if ratios:
            out[kind] = float(np.median(ratios))
    return out
