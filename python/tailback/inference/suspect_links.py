"""Suspect links: the evidence against them, and what each of them costs at most.

A link is suspected for a stated rate below nominal, a queue that it served below its rate, errors,
a fall of its speed, pauses, drops, or samples of congestion. Each one that the job's messages cross
is in the verdict or is ruled out with a reason in values.

A cable with errors may be slow, at any rate. Its cost has a distribution
(:func:`cost_of_cable`), and it is ruled out if 97.5 % of that are below the smallest cost of a
fault. Pauses, drops and samples show a queue, which the expected run has, too, or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl

from tailback.arrays import Floats
from tailback.diagnosis.cable_search import MIN_SHARE
from tailback.diagnosis.congestion_trees import CONGESTED_FRACTION
from tailback.diagnosis.explanation import SuspectLink, SuspicionKind
from tailback.diagnosis.topology import link_totals
from tailback.fabric.degraded import SlowLink
from tailback.fabric.model import Fabric
from tailback.inference.comparisons import MAX_STALL_RATIO, MIN_STALL_SHARE
from tailback.inference.error_model import OBSERVATIONS
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import (
    FAULT,
    HIDDEN_SHARE,
    UNUSUAL,
    Hypothesis,
    Posterior,
    Prior,
    Weighed,
    log_probability,
    log_spread,
)
from tailback.log_probability import log_sum
from tailback.port_counters.findings.port_events import normal_name
from tailback.run.run import Run
from tailback.units import counted, format_time, percent, rate_of_rate

BIT_ERROR_RATE: Final = 1e-12
"""Share of bits that a link within its specification may transfer wrongly (InfiniBand Architecture,
vol. 2, and IEEE 802.3 for 10 to 100 Gb/s)."""

_OF_BITS: Final = frozenset({"symbol_error", "rcv_errors", "rx_errors", "rx_crc_errors"})
"""Counters of single errors. Others count what a link does after many: recover, or go down."""

_COSTS: Final = np.linspace(0.0, 1.0, 501)[1:]
"""Costs of a cable, as shares of the measured time, at which its distribution is evaluated."""

_TAIL: Final = 0.025
"""Probability below, and above, the interval of a cost."""


@dataclass(frozen=True)
class CostRange:
    """Cost of a link as a share of the measured time: mean and 95 % interval."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, link: SuspectLink) -> CostRange | None:
        """That of a suspect link; None if it is unknown."""
        if link.share is None or link.low is None or link.high is None:
            return None
        return cls(link.share, link.low, link.high)

    @property
    def is_excluded(self) -> bool:
        """Whether it is below the smallest cost of a fault."""
        return self.high < FAULT

    def __str__(self) -> str:
        bounds = [f"{100 * share:.0f}" for share in (self.low, self.high)]
        return f"{percent(self.mean)} ({'–'.join(bounds)} %)"


@dataclass(frozen=True)
class Charge:
    """What one kind of evidence says against a link.

    Attributes:
        link: The link that leaves the port, or the congested one.
        kind: Kind of evidence.
        evidence: What was counted, as a clause.
        excluded: Why it cannot be the cause, as a clause; empty if the evidence itself does not
            tell.
        queued_share: Share of the time, or of our packets, for which there was a queue; None for
            evidence against the cable itself.
    """

    link: int
    kind: SuspicionKind
    evidence: str
    excluded: str = ""
    queued_share: float | None = None

    @property
    def of_cable(self) -> bool:
        """Whether the cable may be slow: the others show queues, wherever they come from."""
        return self.kind in ("rate", "errors", "slower")


def charges(evidence: NetworkEvidence, fabric: Fabric, sent: Floats) -> list[Charge]:
    """All that the evidence says against links that the job's messages cross.

    Args:
        evidence: The evidence.
        fabric: The fabric.
        sent: Bytes of the job on each link, shape (L,).
    """
    reverse = fabric.link_reverse
    crossed, either = sent > 0, (sent > 0) | (sent[reverse] > 0)
    made = (
        *_of_rates(evidence, fabric),
        *_of_events(evidence, fabric),
        *_of_queues(evidence),
        *_of_samples(evidence),
    )
    return [charge for charge in made if (either if charge.of_cable else crossed)[charge.link]]


def suspected_cables(evidence: NetworkEvidence, fabric: Fabric, sent: Floats) -> tuple[int, ...]:
    """Cables whose errors rose, or whose speed fell, in the time of the job, by their first link.

    Those with most of the job's bytes come first.
    """
    reverse = fabric.link_reverse
    carried = sent + sent[reverse]
    links = [
        charge.link
        for charge in _of_events(evidence, fabric)
        if charge.kind in ("errors", "slower") and not charge.excluded and carried[charge.link] > 0
    ]
    cables = {min(link, int(reverse[link])) for link in links}
    return tuple(sorted(cables, key=lambda cable: (-carried[cable], cable)))


def _of_rates(evidence: NetworkEvidence, fabric: Fabric) -> Iterable[Charge]:
    """Cables stated below their nominal rate, and ports that served less than theirs."""
    gbps = np.asarray(fabric.link_gbps, np.float64)
    if fabric.nominal_gbps is not None:
        nominal = np.asarray(fabric.nominal_gbps, np.float64)
        for link in np.flatnonzero(gbps < nominal).tolist():
            rate = rate_of_rate(float(gbps[link]), float(nominal[link]))
            yield Charge(link, "rate", f"its stated rate is {rate}")
    counters = evidence.counters
    if counters is None:
        return
    slow = counters.findings.filter(
        (pl.col("finding") == "degraded") & pl.col("link").is_not_null()
    )
    for link, served in slow.select("link", "served_gbps").iter_rows():
        rate = rate_of_rate(served, float(gbps[link]))
        yield Charge(int(link), "rate", f"it served {rate} while packets were queued")


def _of_events(evidence: NetworkEvidence, fabric: Fabric) -> Iterable[Charge]:
    """Errors, falls of speed, pauses and discards that ports counted."""
    events = evidence.link_events
    for row in () if events is None else events.iter_rows(named=True):
        link, finding = int(row["link"]), row["finding"]
        if finding == "errors":
            yield _of_errors(row, float(fabric.link_gbps[link]))
        elif finding == "slower":
            excluded = "" if row["count"] else "it did not while the job ran"
            changes = ", ".join(row["counters"])
            yield Charge(link, "slower", f"its speed fell {changes}", excluded)
        elif finding == "paused" and (row["paused_share"] or row["count"]):
            share = row["paused_share"]
            if share is not None and share < MIN_STALL_SHARE:
                continue
            shown = f"for {percent(min(share, 1.0))} of the time" if share is not None else ""
            frames = f"by {counted(row['count'], 'pause frame')}"
            yield Charge(link, "pauses", f"was paused {shown or frames}", queued_share=share)
        elif finding in ("discarded", "discarded-sent") and row["count"]:
            # What an end discards on arrival was sent over the link that enters it.
            at = link if finding == "discarded-sent" else int(fabric.link_reverse[link])
            yield Charge(at, "drops", f"{counted(row['count'], 'packet')} discarded")


def _of_queues(evidence: NetworkEvidence) -> Iterable[Charge]:
    """Packets that full queues dropped."""
    if evidence.counters is not None:
        drops = np.nan_to_num(evidence.counters.drops)
        for link in np.flatnonzero(drops >= 1.0).tolist():
            yield Charge(link, "drops", f"{counted(round(drops[link]), 'packet')} dropped")


def _of_errors(row: Mapping[str, Any], gbps: float) -> Charge:
    """Errors of a port in the time of the job, or before and after it."""
    link, count, names = int(row["link"]), row["count"] or 0, ", ".join(row["counters"][:2])
    if row["full"]:
        text = f"{row['full'][0]} is at its largest value, so that rises are not counted"
        return Charge(link, "errors", text)
    if not count:
        outside = counted(row["in_files"], "error")
        return Charge(link, "errors", f"{outside} ({names})", "it counted none while the job ran")
    text = f"{counted(count, 'error')} ({names})"
    seconds = count / row["per_second"] if row["per_second"] else 0.0
    allowed = BIT_ERROR_RATE * gbps * 1e9 * seconds
    text += f" in {format_time(round(seconds * 1e12))}" if seconds else ""
    if count <= allowed and all(normal_name(name) in _OF_BITS for name in row["counters"]):
        excluded = f"its specification allows {allowed:,.0f} errors in that time (1 in 10¹² bits)"
        return Charge(link, "errors", text, excluded)
    return Charge(link, "errors", text)


def _of_samples(evidence: NetworkEvidence) -> Iterable[Charge]:
    """Links on which samples in our packets show congestion."""
    estimates = evidence.estimates
    if estimates is None:
        return
    rows = estimates.filter(pl.col("fraction_low") > CONGESTED_FRACTION)
    for link, fraction in rows.select("link", "fraction").iter_rows():
        text = f"{percent(fraction)} of our packets met congestion there"
        yield Charge(int(link), "samples", text, queued_share=float(fraction))


# --- what a cable costs ------------------------------------------------------------------------


@dataclass(frozen=True)
class CableCosts:
    """Distribution of what each suspected cable costs.

    Attributes:
        posterior: Probabilities of the hypotheses.
        prior: Prior probabilities.
        hypotheses: All that were simulated.
        known_slow: Slow cables that counters show, of the most probable machine model.
        nominal: Rates of the links, Gb/s, shape (L,).
        noise_ps: The most that interruptions inside calls cost beside it.
    """

    posterior: Posterior
    prior: Prior
    hypotheses: Sequence[Hypothesis]
    known_slow: frozenset[SlowLink]
    nominal: Floats
    noise_ps: int = 0

    def of(self, cable: int) -> CostRange:
        """What a cable costs; it may be slow at rates between those that were simulated, too.

        A cost grows the misfit with its square, so between two simulations the misfit of each kind
        of evidence is linear in the square of the cost. Every other account of the run is one
        without this cost.
        """
        without = self._without
        if without is None:
            return CostRange(0.0, 0.0, 1.0)
        other = sum(w.probability for w in self.posterior.weighed if not self._has(w, cable))
        # In units of the probability of the run without hidden causes.
        others = math.log(max(other, 1e-300) / max(without.probability, 1e-300))
        start = log_probability(without.hypothesis, self.posterior.model, self.prior)
        curves = [self._curve(cable, both=both) - start for both in (True, False)]
        step = math.log(_COSTS[1] - _COSTS[0])
        total = float(log_sum([others, *(np.logaddexp(*curves) + step).tolist()]))
        chance = np.exp(np.logaddexp(*curves) + step - total)
        # Each cost is exceeded with the probability of those above it.
        above = chance[::-1].cumsum()[::-1]
        mean = float((chance * _COSTS).sum())
        low = float(_COSTS[above >= 1.0 - _TAIL].max(initial=0.0))
        high = float(_COSTS[above >= _TAIL].max(initial=0.0))
        # A small probability of a large cost moves the mean out of the interval.
        return CostRange(mean, min(low, mean), max(high, mean))

    @cached_property
    def _without(self) -> Weighed | None:
        """The run without hidden causes, of the most probable machine model; None if unknown."""
        machine = self.posterior.best.machine
        return next(
            (
                weighed
                for weighed in self.posterior.weighed
                if weighed.hypothesis.machine == machine
                and frozenset(weighed.hypothesis.slow) == self.known_slow
                and weighed.hypothesis.job is None
                and weighed.hypothesis.slower is None
                and not (weighed.hypothesis.unexplained or weighed.hypothesis.otherwise)
                and not weighed.hypothesis.noise_ps
            ),
            None,
        )

    def _has(self, weighed: Weighed, cable: int) -> bool:
        added = set(weighed.hypothesis.slow) - self.known_slow
        return any(self._cable(slow) == cable for slow in added)

    def _cable(self, slow: SlowLink) -> int:
        return min(slow.link, int(self.prior.reverse[slow.link]))

    def _tried(self, cable: int) -> list[tuple[SlowLink, Hypothesis]]:
        """Simulations in which this cable alone is slow, as far as they can be compared."""
        assert self._without is not None
        base, out = self._without.hypothesis, []
        for hypothesis in self.hypotheses:
            added = list(set(hypothesis.slow) - self.known_slow)
            alike = hypothesis.machine == base.machine and hypothesis.bursts == base.bursts
            alone = len(added) == 1 and hypothesis.job is None
            if alike and alone and self._cable(added[0]) == cable:
                out.append((added[0], hypothesis))
        return out

    def _curve(self, cable: int, *, both: bool) -> Floats:
        """Logarithm of the probability density of each cost of a cable, shape (C,)."""
        assert self._without is not None
        model, base = self.posterior.model, self._without.hypothesis
        tried = self._tried(cable)
        # A direction that was not tried is taken to predict what both predict.
        same = [hypothesis for slow, hypothesis in tried if slow.both == both]
        misfits_at = {0.0: base.outcome.misfits} | {
            hypothesis.hidden_share(model): hypothesis.outcome.misfits
            for hypothesis in same or [hypothesis for _, hypothesis in tried]
        }
        shares = np.array(sorted(misfits_at))
        shape = np.zeros(len(_COSTS))
        for kind, usual in model.usual(base.outcome).items():
            by_share = [misfits_at[share].get(kind) for share in shares]
            misfits = [1.0 if misfit is None else misfit for misfit in by_share]
            between = np.interp(_COSTS**2, shares**2, misfits)
            shape += np.log((usual + between) / model.errors[kind])
        elapsed = base.outcome.elapsed_ps + _COSTS * model.measured_ps
        timed = self._log_time(elapsed)
        place = self.prior.log_place(cable) + (0.0 if both else math.log(UNUSUAL))
        cost = -_COSTS / HIDDEN_SHARE - math.log(HIDDEN_SHARE)
        density = base.log_prior + place + cost - 0.5 * OBSERVATIONS * shape + timed
        slowest = any(slow.gbps <= MIN_SHARE * self.nominal[slow.link] for slow, _ in tried)
        # What no rate costs is impossible.
        return np.where(shares.max() < _COSTS, -np.inf, density) if slowest else density

    def _log_time(self, elapsed_ps: Floats) -> Floats:
        """Logarithm of the likelihood of the measured time, with or without noise in calls."""
        model = self.posterior.model

        def log_time(ps: Floats) -> Floats:
            off = np.log(model.measured_ps / model.usual_times(ps)) / model.time_error
            return np.asarray(-0.5 * off**2, np.float64)

        alone = log_time(elapsed_ps)
        if self.noise_ps <= 0:
            return alone
        target = model.simulated_ps(model.measured_ps)
        noisy = np.maximum(np.minimum(elapsed_ps + self.noise_ps, target), elapsed_ps)
        spread = log_spread(np.log1p(self.noise_ps / elapsed_ps), model)
        return np.asarray(np.logaddexp(alone, log_time(noisy) + spread), np.float64)


# --- the list ----------------------------------------------------------------------------------


def suspect_links(
    made: Sequence[Charge], fabric: Fabric, run: Run, costs: CableCosts, lacking: float
) -> tuple[SuspectLink, ...]:
    """Each suspect cable with all evidence against it; whether it is ruled out, and why.

    Args:
        made: What the evidence says.
        fabric: The fabric.
        run: The expected run with everything found.
        costs: What suspected cables cost.
        lacking: Share of the measured time that the expected run lacks, with everything found.
    """
    cables: dict[int, list[Charge]] = {}
    for charge in made:
        cable = min(charge.link, int(fabric.link_reverse[charge.link]))
        cables.setdefault(cable, []).append(charge)
    out = []
    for cable, against in cables.items():
        cost: CostRange | None = None
        if any(c.kind in ("errors", "slower") and not c.excluded for c in against):
            cost = costs.of(cable)
        reasons = [_excluded(charge, run, cost, lacking) for charge in against]
        is_open, first = not all(reasons), against[0].link
        out.append(
            SuspectLink(
                link=first,
                name=fabric.link_name(first),
                suspected_for=tuple(dict.fromkeys(c.kind for c in against)),
                evidence=_by_direction(against),
                status="candidate" if is_open else "ruled-out",
                reason=not_excluded(cost) if is_open else "; ".join(dict.fromkeys(reasons)),
                share=None if cost is None else cost.mean,
                low=None if cost is None else cost.low,
                high=None if cost is None else cost.high,
            )
        )
    return tuple(out)


def _by_direction(against: Sequence[Charge]) -> str:
    """What the evidence against a cable shows, first that against its first direction."""
    first = against[0].link
    one_way, back = (
        "; ".join(dict.fromkeys(c.evidence for c in against if (c.link == first) is is_first))
        for is_first in (True, False)
    )
    return f"{one_way}; the other direction: {back}" if back else one_way


def _excluded(charge: Charge, run: Run, cost: CostRange | None, lacking: float) -> str:
    """Why evidence against a link shows no cause, as a clause; empty if it may show one."""
    if charge.excluded:
        return charge.excluded
    if charge.of_cable:
        return no_shorter(cost) if cost is not None and cost.is_excluded else ""
    queued = charge.queued_share
    if charge.kind == "pauses" and queued is not None and queued < FAULT:
        return f"it costs at most the {percent(queued)} of the time for which it was paused"
    expected = _expected_share(charge, run)
    if queued is not None and expected * MAX_STALL_RATIO >= queued:
        of = "of the time" if charge.kind == "pauses" else "of the packets"
        return f"the expected run has that queue, too, for {percent(expected)} {of}"
    if lacking < FAULT:
        return f"the expected run lacks only {percent(lacking)} of the time"
    return ""


def no_shorter(cost: CostRange) -> str:
    """Why a cable is ruled out that costs less than a fault."""
    return f"the run is no shorter without it: costs {cost}"


def _expected_share(charge: Charge, run: Run) -> float:
    """Share of the time, or of our packets, for which a link has a queue in the expected run."""
    truth = run.tables["truth"]
    if charge.kind == "pauses":
        if not truth.height or truth["stall_ps"].is_null().all():
            return 0.0
        return float(link_totals(run, "stall_ps")[charge.link]) / max(run.elapsed_ps, 1)
    if not truth.height or truth["observed_packets"].is_null().all():
        return 0.0
    sent = max(float(link_totals(run, "observed_packets")[charge.link]), 1.0)
    return float(link_totals(run, "observed_congested_packets")[charge.link]) / sent


def not_excluded(cost: CostRange | None) -> str:
    """Why a suspect link is a candidate."""
    return "what it costs is open" if cost is None else f"not excluded: costs {cost}"
