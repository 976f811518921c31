"""What each cause costs in a measured run.

The cost of a cause is the time that the expected run saves without it, scaled to the measured time:
a model error that scales all times alike (such as an unmodelled protocol) scales every cost too,
except for those of computation, which the trace shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tailback.diagnosis.explanation import Cost, Origin
from tailback.diagnosis.model import Cause, CauseShare, Diagnosis
from tailback.diagnosis.wording import late_ranks
from tailback.evidence.model import Measured
from tailback.inference import measured_wording as wording
from tailback.inference.decision import HIDDEN, fault_share
from tailback.inference.decision import MEASURED as IN_MEASURED_TIME
from tailback.inference.error_model import ErrorModel
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.hypotheses import FAULT, UNUSUAL
from tailback.inference.interruptions import Interruptions
from tailback.log_probability import probabilities

_ExpectedCost = tuple[str, float, float, float, str, str, tuple[Origin, ...]]
"""Cause; its cost in the expected run, or in the measured one if it is of computation, with its
least and greatest value, ps; subject; evidence, and what it rests on."""

MIN_TABLE_UNEVENNESS = 0.5
"""Smallest destination-weighted deviation of parallel up-links from their mean number of
destinations that is said of forwarding tables: tables of real fabrics of 125 and 281 hosts deviate
by 0.14 and 0.03; with all destinations on one of two links, the deviation is 1."""

_INSIDE = ("capacity", "placement", "routing")
"""Causes of congestion between switches by our own traffic."""


@dataclass(frozen=True)
class FurtherCosts:
    """Time that the expected run saves without causes that are not part of the waterfall.

    Each tuple holds one value per repetition, in picoseconds.

    Attributes:
        imbalance_ps: Saved if computation is balanced across ranks, of the measured time.
        noise_ps: Saved if no repetition of a computation exceeds its usual time, likewise.
        routing_ps: Saved if traffic is balanced over parallel links, where a few carried most of
            it; not part of the expected time, so it is added to it.
        uneven: Mean deviation of the load of parallel links from their mean, 0–2.
        hot_receivers: Share of the congestion between switches due to traffic to few receivers.
        placement_ps: Saved by the best placement, with our job alone on the healthy network, by
            even forwarding tables if the scenario has tables; empty if no placement was simulated.
        in_order_ps: The same with ranks in host order, switch by switch.
        tables_ps: Saved by even paths; empty without forwarding tables or hashed flows.
        tables_alone_ps: The same, mean of our job without other traffic.
        uneven_tables: Mean deviation from the mean of the number of destinations that forwarding
            tables assign to parallel up-links, 0–2; 0 without tables.
        adapter_order_ps: Saved on an ideal switch by adapters that share their link among messages;
            empty if they already do.
        interruptions: Interruptions that every computation contains, so that no repetition shows
            its time without noise.
        without: Simulates the expected run without several causes at once.
        placement_limited_ps: As ``placement_ps``, with parallel links used as unevenly as counted:
            what another placement saves by that as well. Empty without uneven use.
        in_order_limited_ps: As ``in_order_ps``, likewise.
        by_order: Whether ranks compute for the same time in all, but wait for one another's parts.
        hashed_ps: What the run loses if switches hash flows to paths; empty if that is known.
        hash_chance: Share of the hashes of switches that use links as unevenly as the paths that
            counters show; None if those are not known.
        routing_likely_ps: What routing costs by the measured time: its mean and 95 % interval;
            None before that is weighed.
    """

    imbalance_ps: tuple[int, ...]
    noise_ps: tuple[int, ...]
    routing_ps: tuple[int, ...] = ()
    uneven: float = 0.0
    hot_receivers: float = 0.0
    placement_ps: tuple[int, ...] = ()
    in_order_ps: tuple[int, ...] = ()
    tables_ps: tuple[int, ...] = ()
    tables_alone_ps: int = 0
    uneven_tables: float = 0.0
    adapter_order_ps: tuple[int, ...] = ()
    interruptions: Interruptions = field(default_factory=Interruptions.none)
    without: Without | None = None
    placement_limited_ps: tuple[int, ...] = ()
    in_order_limited_ps: tuple[int, ...] = ()
    by_order: bool = False
    hashed_ps: tuple[int, ...] = ()
    hash_chance: float | None = None
    routing_likely_ps: tuple[float, float, float] | None = None

    @property
    def paths_are_usual(self) -> bool:
        """Whether a hash leads to paths as uneven as these, so that nothing is at fault."""
        return self.hash_chance is not None and self.hash_chance > USUAL_PATHS

    @property
    def paths_at_fault(self) -> float:
        """Probability that uneven paths are no chance of a hash; 1 where nothing was hashed."""
        if self.hash_chance is None:
            return 1.0
        return UNUSUAL / (UNUSUAL + (1.0 - UNUSUAL) * self.hash_chance)

    @property
    def separable(self) -> frozenset[str]:
        """Causes that ``without`` can take out together."""
        return SEPARABLE | {"routing"} if self.tables_ps else SEPARABLE

    @property
    def routing_range_ps(self) -> tuple[float, float, float]:
        """What routing costs, with its 95 % interval; before times are weighed, as simulated."""
        if self.routing_likely_ps is not None:
            return self.routing_likely_ps
        saved = self.routing_ps or (0,)
        return _mean(saved), min(saved), max(saved)

    @property
    def routing_mean_ps(self) -> int:
        """What is added to the expected time for routing; 0 if ``routing_ps`` is empty."""
        return round(self.routing_range_ps[0])

    def is_in_order(self, expected_ps: int) -> bool:
        """Whether ranks are in host order, or as well placed; False if that was not simulated."""
        return bool(self.in_order_ps) and _mean(self.in_order_ps) < FAULT * max(expected_ps, 1)

    def within(self, expected_ps: int, model: ErrorModel) -> FurtherCosts:
        """The same with the costs of routing and placement weighed by the measured time.

        Counters show how unevenly parallel links were used, not that the run waited for them. It
        did so as simulated, or for any part of that; and to the same part, a placement that keeps
        messages off these links saves what they cost.

        Args:
            expected_ps: The expected time with even use of parallel links.
            model: Error model of the measured time.
        """
        if not self.routing_ps:
            return self
        cost = np.linspace(0.0, _mean(self.routing_ps), _STEPS)
        prior = np.full(_STEPS, (1.0 - AS_SIMULATED) / _STEPS)
        prior[-1] += AS_SIMULATED
        times = [model.log_time(expected_ps + ps) for ps in cost.tolist()]
        weight = probabilities(np.log(prior) + times)
        low, high = np.interp((_TAIL, 1.0 - _TAIL), np.cumsum(weight), cost)
        mean = float(cost @ weight)
        part = mean / max(float(cost[-1]), 1.0)

        def mixed(alone: tuple[int, ...], limited: tuple[int, ...]) -> tuple[int, ...]:
            pairs = zip(alone, limited or alone, strict=True)
            return tuple(round(less + part * (more - less)) for less, more in pairs)

        return replace(
            self,
            placement_ps=mixed(self.placement_ps, self.placement_limited_ps),
            in_order_ps=mixed(self.in_order_ps, self.in_order_limited_ps),
            routing_likely_ps=(mean, float(low), float(high)),
        )


USUAL_PATHS: Final = 0.05
"""Share of the hashes with paths as uneven above which these are what a hash leads to."""

_TAIL: Final = 0.025
"""Probability that a 95 % interval leaves out at either end."""

_STEPS: Final = 201
"""Number of costs that are weighed."""

AS_SIMULATED: Final = 0.5
"""Prior probability that a run waits for unevenly used links as simulated: as likely as not."""


def _mean(ps: Sequence[float]) -> float:
    """Mean of repetitions; 0 of none."""
    return sum(ps) / max(len(ps), 1)


def costs_of_causes(
    diagnosis: Diagnosis,
    measured: Measured,
    summary: EvidenceSummary,
    further: FurtherCosts,
    scale: float,
    surplus: int,
) -> list[Cost]:
    """Cost of each cause in the measured run, largest first."""
    total, expected = max(measured.elapsed_ps, 1), diagnosis.modelled_ps
    out: list[_ExpectedCost] = []
    inside = sum(s.charged for s in diagnosis.shares if s.cause in _INSIDE)
    beside = any(s.cause in HIDDEN and (s.removed or 0.0) >= FAULT for s in diagnosis.shares)
    for share in diagnosis.shares:
        if share.cause == "in-host":
            continue  # The rates of hosts are as stated: a part of the time, and no fault.
        if share.cause == "routing" and further.tables_ps:
            continue  # Of forwarding tables, what even ones save is known.
        alone, low, high = _own_cost(share, further, expected, inside, beside=beside)
        less = more = 0
        if share.cause == "other-traffic":
            alone, low, high = (x - surplus / max(expected, 1) for x in (alone, low, high))
            less, more = summary.others_range
        busier = summary.slow_more_ps if share.cause == "slow-link" else 0
        subject, shown, rests = _described(share.cause, summary)
        out.append(
            (
                share.cause,
                alone * expected + busier,
                low * expected + less + busier,
                high * expected + more + busier,
                subject,
                shown,
                rests,
            )
        )
    out += _costs_of_computation(measured, further)
    out += _costs_of_routes(further, _others_factor(diagnosis, summary), summary.collisions)
    if further.paths_are_usual:
        out = _with_usual_collisions(out, further.tables_alone_ps)
    if summary.unknown_job is not None:
        # Counters of long intervals show a part of it, which the expected run contains.
        counted = [row[1:4] for row in out if row[0] == "other-traffic"]
        job = summary.unknown_job.costs_ps
        cost, least, most = map(sum, zip(job, *counted, strict=True))
        out = [row for row in out if row[0] != "other-traffic"]
        out.append(("other-traffic", cost, least, most, *_described("other-traffic", summary)))
    return _in_measured_time(out, scale, total, summary)


def _with_usual_collisions(costs: Sequence[_ExpectedCost], alone_ps: int) -> list[_ExpectedCost]:
    """Costs of which capacity has what flows lose that share links as most hashes let them.

    ``alone_ps``: what they lose without other traffic, whose paths are less certain.
    """
    row = next((row for row in costs if row[0] == "capacity"), None)
    left = [each for each in costs if each[0] not in ("capacity", "routing")]
    cost, low, high = (0.0, 0.0, 0.0) if row is None else row[1:4]
    if alone_ps <= 0:
        return left if row is None else [*left, row]
    by: tuple[Origin, ...] = ("counters", "model")
    shared = cost + alone_ps, low + alone_ps, high + alone_ps
    return [*left, ("capacity", *shared, "", wording.USUAL_COLLISIONS, by)]


def _others_factor(diagnosis: Diagnosis, summary: EvidenceSummary) -> float:
    """Cost of other traffic over that in the expected run, if it costs more than simulated."""
    removed = next((s.removed for s in diagnosis.shares if s.cause == "other-traffic"), None)
    simulated_ps = (removed or 0.0) * diagnosis.modelled_ps
    more_ps = summary.others_more_ps + summary.unknown_job_ps
    return 1.0 + max(more_ps, 0) / simulated_ps if simulated_ps > 0 else 1.0


def _costs_of_routes(
    further: FurtherCosts, others_factor: float, collisions: str
) -> list[_ExpectedCost]:
    """Costs of routing by what counters, forwarding tables or collisions show of the routes.

    Uneven tables hurt more beside other traffic. Where that costs more than simulated, by
    ``others_factor``, so does what it adds to the cost of the tables.
    """
    alone_ps = further.tables_alone_ps
    spread = [alone_ps + others_factor * (ps - alone_ps) for ps in further.tables_ps]
    by: tuple[Origin, ...]
    out: list[_ExpectedCost] = []
    if further.routing_ps:
        shown, by = wording.uneven_links(further.uneven), ("counters", "model")
        out.append(("routing", *further.routing_range_ps, "", shown, by))
    if spread:
        shown, by = wording.FASTER_WITH_EVEN_TABLES, ("trace", "model")
        if further.uneven_tables >= MIN_TABLE_UNEVENNESS:
            shown = wording.uneven_tables(further.uneven_tables)
        shown = wording.HASHED_TOGETHER if collisions else shown
        if further.hash_chance is not None:
            shown, by = wording.collide_more(further.hash_chance), ("counters", "model")
        out.append(("routing", _mean(spread), min(spread), max(spread), collisions, shown, by))
    return out


def _costs_of_computation(measured: Measured, further: FurtherCosts) -> list[_ExpectedCost]:
    """Costs of imbalance, noise and late partners in the measured run."""
    even, quiet = _mean(further.imbalance_ps), _mean(further.noise_ps)
    everywhere = further.interruptions.likely_share() * measured.elapsed_ps
    slow_waits = 0 if further.by_order else measured.slow_rank_waits_ps
    imbalance = _imbalance(measured, even, slow_waits)
    turns = TurnWaits.of(measured, further)
    rests_on: tuple[Origin, ...] = ("trace", "model")
    out: list[_ExpectedCost] = []
    for cause, saved, mean, most in (
        ("imbalance", further.imbalance_ps, imbalance, slow_waits),
        ("noise", further.noise_ps, max(quiet, everywhere), everywhere),
    ):
        low, high = min(saved, default=0), max([*saved, most])
        out.append((cause, mean, low, high, *_computation(cause, measured), rests_on))
    late = (turns.late_ps, turns.late_low_ps, turns.late_high_ps)
    return [*out, ("late-partner", *late, "", wording.TAKEN_TURNS, rests_on)]


def _in_measured_time(
    costs: Sequence[_ExpectedCost], scale: float, total_ps: int, summary: EvidenceSummary
) -> list[Cost]:
    """Costs in the expected run, scaled to the measured one, largest first."""
    made = []
    for cause, ps, low, high, subject, shown, rests in costs:
        factor = 1.0 if cause in IN_MEASURED_TIME else scale
        value = max(round(ps * factor), 0)
        if value == 0:
            continue
        named = cause == "slow-link" and not summary.place_open
        made.append(
            Cost(
                cause=cause,
                ps=value,
                low_ps=max(round(low * min(factor, 1.0)), 0),
                high_ps=max(round(high * max(factor, 1.0)), value),
                share=min(value / total_ps, 1.0),
                subject=subject,
                links=summary.slow_links if named else (),
                one_of_links=named and bool(summary.candidates),
                evidence=shown,
                rests_on=rests,
            )
        )
    return sorted(made, key=lambda cost: (-cost.ps, cost.cause))


def _imbalance(measured: Measured, saved_ps: float, slow_waits_ps: int) -> float:
    """Cost of imbalance, ps, where the replay with balanced computation saves so much.

    A rank that computes does not progress its messages, which no model has. But what waits for a
    slow rank may wait for other messages, too. So the cost lies between what the replay saves and
    all waits for slow ranks. If the replay saves as much as a fault, it is believed; otherwise the
    middle is.
    """
    if saved_ps >= FAULT * measured.elapsed_ps:
        return saved_ps
    return (saved_ps + max(slow_waits_ps, saved_ps)) / 2.0


def _own_cost(
    share: CauseShare, further: FurtherCosts, expected: int, inside: float, *, beside: bool
) -> tuple[float, float, float]:
    """Cost of a cause by itself with its lower and upper bound, as shares of the expected time.

    ``inside`` is the share charged to placement and routing together; ``beside``: slow links or
    other traffic cost as much as a fault.
    """
    if share.cause == "placement" and further.placement_ps:
        return _own_cost_of_placement(share, further, expected, beside=beside)
    # Other routes and placements also avoid slow links and other traffic, and another program may
    # avoid more than the pattern's cost: what these cost is what our job loses to them.
    if share.removed is not None and share.cause not in ("routing", "placement", "pattern"):
        alone, low = share.removed, share.removed_low or 0.0
        high = share.removed_high or alone
    else:
        alone = share.charged
        low, high = min(share.low, alone), max(share.high, alone)
    if share.cause == "routing" and further.placement_ps:
        # Collisions that another placement avoids by the same routes are the placement's.
        placement_cost = _mean(further.placement_ps) / max(expected, 1)
        alone, low, high = (max(x - placement_cost, 0.0) for x in (alone, low, high))
    if share.cause == "pattern":
        # Without the hot receivers, their traffic would not collide between switches either:
        # between none and all of that cost belongs to the pattern.
        shared = further.hot_receivers * inside
        alone, high = alone + shared / 2, high + shared
    return alone, low, high


def _own_cost_of_placement(
    share: CauseShare, further: FurtherCosts, expected: int, *, beside: bool
) -> tuple[float, float, float]:
    """Cost of placement with its bounds.

    With static routes, flows collide on a link because of placement and routes together. What even
    forwarding tables save is the routes'; what another placement saves by such tables is its own.

    A placement in host order, or as good as that, is not at fault because another one avoids a slow
    link or other traffic: its cost is what it costs our job alone. A worse placement costs what the
    run saves without it.
    """
    saved = [ps / max(expected, 1) for ps in further.placement_ps]
    cost = sum(saved) / len(saved), min(saved), max(saved)
    in_order = _mean(further.in_order_ps) < FAULT * max(expected, 1)
    # With hashed flows, what the waterfall removes is of one hash.
    of_one_hash = further.hash_chance is not None and not beside
    if in_order or of_one_hash or share.removed is None or share.removed < cost[0]:
        return cost
    return share.removed, min(cost[1], share.removed), max(share.removed_high or 0.0, cost[2])


@dataclass(frozen=True)
class TurnWaits:
    """Waits for computation that would remain with balanced computation: ranks compute in turn.

    The trace shows how long ranks wait for the computation of others. What the expected run saves
    with balanced computation or without noise is imbalance or noise, as are waits for slow ranks.
    The others are due to dependencies, if ranks receive, compute and send on, and else due to late
    partners. Which of them the expected run saves is unknown: between all and none of each.

    Attributes:
        late_ps: Waits for partners that could send before they compute.
        late_low_ps: Lower bound.
        late_high_ps: Upper bound.
        dependency_ps: Waits for what depends on messages by the order of calls.
    """

    late_ps: float
    late_low_ps: float
    late_high_ps: float
    dependency_ps: float

    @classmethod
    def of(cls, measured: Measured, further: FurtherCosts) -> TurnWaits:
        """Waits of a measured run, averaged over its ranks."""
        even, quiet = _mean(further.imbalance_ps), _mean(further.noise_ps)
        waits = measured.part("imbalance") + measured.part("noise")
        slow_waits = 0 if further.by_order else measured.slow_rank_waits_ps
        saved = max(even, slow_waits) + max(quiet, 0.0)
        turns = max(waits - saved, 0.0)
        chained = min(measured.dependency_waits_ps, waits)
        dependency = turns * chained / max(waits, 1)
        low, high = max(turns - chained, 0.0), min(turns, waits - chained)
        return cls(turns - dependency, low, high, dependency)


def _described(cause: Cause, summary: EvidenceSummary) -> tuple[str, str, tuple[Origin, ...]]:
    """Subject of a cause, its evidence, and the kinds of evidence."""
    if cause == "slow-link":
        which = (
            wording.one_of(summary.candidates, summary.slow_anywhere)
            if summary.candidates
            else "; ".join(summary.slow)
        )
        which = wording.PATHS_UNKNOWN if summary.place_open else which
        return which, summary.slow_shown_by, summary.rests_on.get(cause, ("model",))
    if cause == "other-traffic":
        return summary.others, summary.others_shown_by, summary.rests_on.get(cause, ("model",))
    return "", wording.SHOWN_BY_MODEL.get(cause, ""), ("trace", "model")


def _computation(cause: str, measured: Measured) -> tuple[str, str]:
    """The late ranks, and the evidence for them."""
    ranks = late_ranks(measured.latecomers, cause)
    return ranks + wording.slow_side(measured.latecomers, cause), wording.waits_for_computation(
        cause
    )


# --- costs that cannot be told apart -----------------------------------------------------------

SEPARABLE: Final = frozenset({"imbalance", "noise", "slow-link", "other-traffic"})
"""Causes that can be taken out of any expected run together."""

Without = Callable[[frozenset[str]], int]
"""Expected time without several causes of :data:`SEPARABLE`, ps, by one simulation."""


def with_cost_together(
    costs: Sequence[Cost],
    expected_ps: int,
    without: Without | None,
    scale: float,
    surplus_ps: int,
    separable: frozenset[str] = SEPARABLE,
) -> list[Cost]:
    """The costs; the evidence of the largest says what the run saves without the second as well.

    Each cost is what the run saves without that cause alone. Two causes that hide each other save
    more together than their sum, and two that delay the same messages save less.

    Args:
        costs: Cost of each cause, largest first.
        expected_ps: Time of the expected run, ps.
        without: Simulates it without several causes; None if that is not possible.
        scale: Factor from expected to measured time.
        surplus_ps: Part of the simulated cost of other traffic that the measured time excludes, ps.
        separable: Causes that ``without`` can take out.
    """
    faults = [cost for cost in costs if cost.share >= fault_share(cost.cause)][:2]
    names = frozenset(cost.cause for cost in faults)
    if len(names) < 2 or not names <= separable or without is None:
        return list(costs)
    excluded = max(surplus_ps, 0) if "other-traffic" in names else 0
    saved = max(expected_ps - without(names) - excluded, 0) * scale
    first, second = faults
    share = saved * first.share / first.ps
    said = wording.cost_together(second.cause, round(saved), share)
    evidence = f"{first.evidence}; {said}"
    return [first.model_copy(update={"evidence": evidence}), *(c for c in costs if c is not first)]


def with_unknown_timing(costs: Sequence[Cost], probability: float, elapsed_ps: int) -> list[Cost]:
    """Costs where a cable with errors may delay messages at other times than was simulated.

    Then it costs as little as a fault does, or what the run lacks without it, or anything between.

    Args:
        costs: Cost of each cause.
        probability: Probability that it does so.
        elapsed_ps: The measured time.
    """
    if probability <= _TAIL:
        return list(costs)
    least = round(FAULT * elapsed_ps)
    return [
        cost.model_copy(update={"low_ps": min(cost.low_ps, least)})
        if cost.cause == "slow-link"
        else cost
        for cost in costs
    ]


def with_noise_in_calls(
    costs: Sequence[Cost], mean_ps: int, most_ps: int, elapsed_ps: int
) -> list[Cost]:
    """Costs where interruptions inside calls add to those of computations, largest first.

    Args:
        costs: Cost of each cause.
        mean_ps: Time that interruptions inside calls take, ps.
        most_ps: The most that is credible.
        elapsed_ps: The measured time.
    """
    said = f"; {wording.noise_in_calls(mean_ps)}" if mean_ps >= FAULT * elapsed_ps else ""
    made = [
        cost.model_copy(
            update={
                "ps": cost.ps + mean_ps,
                "high_ps": cost.high_ps + max(most_ps, mean_ps),
                "share": min((cost.ps + mean_ps) / max(elapsed_ps, 1), 1.0),
                "evidence": f"{cost.evidence}{said}",
            }
        )
        if cost.cause == "noise"
        else cost
        for cost in costs
    ]
    return sorted(made, key=lambda cost: (-cost.ps, cost.cause))


def with_interval(costs: Sequence[Cost], half_ps: int, most_ps: int) -> list[Cost]:
    """Costs whose range includes the interval of extrapolated steps.

    A cost is the difference of two runs with such an interval. Their errors are alike, as both lack
    the same steps, so the interval of one is added.
    """
    return [
        cost.model_copy(
            update={
                "low_ps": max(cost.low_ps - half_ps, 0),
                "high_ps": max(cost.high_ps, min(cost.high_ps + half_ps, most_ps)),
            }
        )
        for cost in costs
    ]
