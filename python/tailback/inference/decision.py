"""The verdict on a measured run and its confidence, from an ensemble of possible runs.

Each member of the ensemble draws one hypothesis by its probability
(:mod:`tailback.inference.hypotheses`), and perturbs the simulated costs by their errors. Time that
the hypothesis lacks is either model error, which scales all costs alike, or the cost of a fault
that was not found. The verdict is the most frequent main cause, and its confidence is that cause's
share of the members, if it is at least
:data:`tailback.diagnosis.confidence.SURE`. Otherwise the candidates are listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tailback.arrays import Floats
from tailback.diagnosis.confidence import MODELLED, SURE
from tailback.diagnosis.explanation import Cost
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.inference.error_model import ErrorModel
from tailback.inference.hypotheses import FAULT, UNUSUAL
from tailback.inference.interruptions import Interruptions
from tailback.log_probability import probabilities

DRAWS, SEED = 4000, 20

COST_ERROR, RELATIVE_COST_ERROR = 0.012, 0.2
"""Standard error of the cost of a cause, as shares of the measured time and of the cost: in 50
blind cases, absent causes have a root mean square cost of 0.011 (405 costs), and half of the 92
costs of present causes are off by at most 0.03, at a mean of 0.25."""

COMPUTATION_ERROR = 0.1
"""The same of costs of computation: half as much. How long ranks compute is measured, but not
whether messages progress meanwhile: `bench/foreign` has machines on which they do not, where
imbalance costs 14 and 22 % more than the model says, and others on which it is exact."""

ORDINARY: Mapping[str, float] = {
    "pattern": 0.09,
    "capacity": 0.09,
    "placement": 0.04,
    "late-partner": 0.09,
}
"""Share of the time that each cause costs in fault-free programs. Exchanging with several partners
at once always costs something, at their adapters and between switches (healthy halo exchanges: 0.02
to 0.04 in the real-packet lab, up to 0.08 on simulated machines), programs with dependencies always
wait a little, and path hashing makes runs with the same placement differ as much as runs with
different placements."""

SAVED_WHOLE = ("placement",)
"""Causes whose repair also saves what they cost in fault-free programs. An exchange with several
partners remains one, and so do dependencies; but the best placement saves all that the present one
costs, so it is compared with other causes by its whole cost."""

NO_FAULTS = frozenset({"capacity"})
"""Causes that no change of placement, routing or program removes: the main one only of a run
without a fault."""

ASSUMED = 0.6
"""The same for causes that rest on an untested assumption: those in the network if the hosts of the
ranks are assumed, and slow links of a lossy network without counters, which could show other
jobs."""

COMPUTATION = ("imbalance", "noise")
"""Causes whose waits may conceal a fault of communication on other ranks: repaired alone, neither
saves what ranks wait for the slower of the two. Which is slower is unknown if the fault was not
found, so it has any part of that time, with equal probability."""

MEASURED = (*COMPUTATION, "late-partner")
"""Causes whose costs are in measured time: the trace shows how long ranks compute, so a simulation
that is too fast or too slow does not scale them."""

UNEXPLAINED = "unexplained"
HEALTHY = "healthy"


@dataclass(frozen=True)
class Alternative:
    """One possible account of the measured time: a hypothesis.

    Attributes:
        log_weight: Logarithm of its prior and of the likelihood of all evidence except the time.
        elapsed_ps: Simulated time, ps.
        hidden_ps: Cost of each hidden cause, ps.
        unexplained: The remaining time was lost to a fault that was not found, or the simulation
            takes longer for an unknown reason; otherwise the difference is model error.
        concealed: Probability that a fault which was not found costs more than the time that is
            missing, because ranks that wait for the computation of others conceal it.
        noise_ps: Time that interruptions inside calls take, ps.
    """

    log_weight: float
    elapsed_ps: int
    hidden_ps: Mapping[str, int] = field(default_factory=dict)
    unexplained: bool = False
    concealed: float = 0.0
    noise_ps: int = 0


@dataclass(frozen=True)
class Ensemble:
    """Alternatives with their probability.

    Attributes:
        elapsed_ps: Measured time, ps.
        alternatives: The alternatives; that of the expected run comes first.
        probability: Probability of each alternative, shape (H,).
        scale: Factor from simulated to measured time for all causes, by alternative, shape (H,).
        missing: Share of the measured time lost to a fault that was not found, or by which the
            simulation takes longer for an unknown reason, shape (H,).
        model: The error model.
    """

    elapsed_ps: int
    alternatives: Sequence[Alternative]
    probability: Floats
    scale: Floats
    missing: Floats
    model: ErrorModel

    @classmethod
    def of(
        cls, alternatives: Sequence[Alternative], model: ErrorModel, elapsed_ps: int
    ) -> Ensemble:
        """Weigh alternatives by the measured time.

        Args:
            alternatives: The alternatives; that of the expected run comes first.
            model: The error model.
            elapsed_ps: Measured time, including what the simulation does not model, ps.
        """
        logs, scales, missing = [], [], []
        for alternative in alternatives:
            usual_ps = model.usual_ps(alternative.elapsed_ps)
            lacks = model.measured_ps - usual_ps
            # Of a run that takes the measured time, nothing is left to explain.
            unexplained = alternative.unexplained and lacks != 0
            time = 0.0 if unexplained else model.log_time(alternative.elapsed_ps)
            logs.append(alternative.log_weight + time)
            takes_ps = usual_ps if unexplained else model.measured_ps
            scales.append(takes_ps / max(alternative.elapsed_ps, 1))
            missing.append(abs(lacks) / elapsed_ps if unexplained else 0.0)
        weights = probabilities(logs)
        return cls(elapsed_ps, alternatives, weights, np.array(scales), np.array(missing), model)

    def hides(self, cause: str) -> float:
        """Probability that a cause is there; 1 for those that are not hidden."""
        costs = [alternative.hidden_ps.get(cause) for alternative in self.alternatives]
        if all(cost is None for cost in costs):
            return 1.0
        return float(self.probability[[cost is not None and cost > 0 for cost in costs]].sum())

    @property
    def mean_scale(self) -> float:
        """The mean scale over all alternatives."""
        return float((self.probability * self.scale).sum())


@dataclass(frozen=True)
class Decision:
    """A verdict.

    Attributes:
        cause: A cause, ``healthy`` or ``undetermined``.
        confidence: Probability that the verdict is correct; 0 if undetermined.
        chances: Probability that each cause is the main one, of ``healthy``, and of
            ``unexplained``: a cause that is not among them.
    """

    cause: str
    confidence: float
    chances: Mapping[str, float]

    @property
    def helps_either_way(self) -> str:
        """``placement`` if the verdict is open between it and no fault at all; otherwise empty.

        Whether others would pay as much or not, a better placement saves what it saves.
        """
        sound = sum(self.chances.get(name, 0.0) for name in (*NO_FAULTS, HEALTHY))
        placement = self.chances.get("placement", 0.0)
        is_open = self.cause == "undetermined" and placement > 0.0
        return "placement" if is_open and sound + placement >= SURE else ""


def fault_share(cause: str) -> float:
    """Smallest share of the time at which a cause counts as a fault."""
    return FAULT + ORDINARY.get(cause, 0.0)


def decide(
    costs: Sequence[Cost],
    ensemble: Ensemble,
    validity: Mapping[str, float] | None = None,
    interruptions: Interruptions | None = None,
    change: ChangeOverTime | None = None,
    *,
    no_faults: frozenset[str] = NO_FAULTS,
) -> Decision:
    """Draw the ensemble and return its verdict.

    Where queues drop packets, the time of a run without late ranks, or without a slow link, has the
    error of such a network, and so has what they cost.

    Args:
        costs: Cost of each cause in the expected run, at the mean scale.
        ensemble: The alternatives.
        validity: Probability that the assumptions behind a cause hold; defaults to 1.
        interruptions: Interruptions in every computation, which are noise; defaults to none.
        change: A part of the run in which calls take longer than the expected run explains: a fault
            that was not found.
        no_faults: Causes that are the main one only where no other costs as much as a fault.
    """
    rng, lossy, time_error = (
        np.random.default_rng(SEED),
        ensemble.model.lossy,
        ensemble.model.time_error,
    )
    member = rng.choice(len(ensemble.probability), DRAWS, p=ensemble.probability)
    names = _names(costs, ensemble.alternatives)
    hidden_noise = (interruptions or Interruptions.none()).draw(rng, DRAWS)
    in_calls = np.array([each.noise_ps for each in ensemble.alternatives]) / ensemble.elapsed_ps
    if hidden_noise.any() or in_calls.any():
        names = list(dict.fromkeys([*names, "noise"]))
    stated = {cost.cause: cost for cost in costs}
    concealed = np.array([alternative.concealed for alternative in ensemble.alternatives])[member]
    # Drawn only where needed, so that other verdicts do not change.
    part = np.zeros(DRAWS)
    if concealed.any():
        part = np.where(rng.random(DRAWS) < concealed, rng.random(DRAWS), 0.0)
    columns, behind = [], np.zeros(DRAWS)
    for name in names:
        shares = np.array(
            [
                _share(name, stated.get(name), alternative, ensemble)
                for alternative in ensemble.alternatives
            ]
        )
        scale = 1.0 if name in MEASURED else ensemble.scale / ensemble.mean_scale
        mean = (shares * scale)[member]
        if name == "noise":
            mean = np.maximum(mean, hidden_noise) + in_calls[member]
        if name in COMPUTATION and lossy:
            errors, spread = rng.standard_normal(DRAWS), time_error * (1.0 - mean)
            # Computation hides behind retransmissions, so that what costs little costs less.
            errors = np.where(mean < FAULT, -np.abs(errors), errors)
            most = np.where(errors > 0.0, np.clip(mean - FAULT, 0.0, spread), spread)
            mean = np.maximum(mean + errors * most, 0.0)
        if name == "slow-link" and lossy:
            # The model delays the packets that such a link drops.
            spread = time_error * (1.0 - mean) * (mean > 0.0)
            mean = np.maximum(mean + spread * rng.standard_normal(DRAWS), 0.0)
        if name in COMPUTATION:
            behind += part * mean
            mean = (1.0 - part) * mean
        error = np.sqrt(
            COST_ERROR**2 + (RELATIVE_COST_ERROR * mean) ** 2 + _spread(stated.get(name)) ** 2
        )
        columns.append(mean + error * rng.standard_normal(DRAWS) - ORDINARY.get(name, 0.0))
    missing = ensemble.missing[member] + behind
    columns.append(missing if change is None else np.maximum(missing, change.draw(rng, DRAWS)))
    excess = np.stack(columns, axis=1)
    ordinary = np.array([ORDINARY.get(name, 0.0) * (name in SAVED_WHOLE) for name in [*names, ""]])
    above = np.where(excess >= FAULT, excess + ordinary, -np.inf)
    is_fault = np.array([name not in no_faults for name in names], np.bool_)
    has_fault = np.asarray((above[:, :-1][:, is_fault] > 0.0).any(axis=1), np.bool_)
    above[:, :-1][has_fault[:, None] & ~is_fault] = -np.inf
    largest = above.argmax(axis=1)
    first = np.where(excess.max(axis=1) >= FAULT, largest, len(columns))
    share = np.bincount(first, minlength=len(columns) + 1) / DRAWS
    chances = dict(zip([*names, UNEXPLAINED, HEALTHY], share.tolist(), strict=True))
    return _verdict(chances, validity or {})


def _verdict(chances: Mapping[str, float], validity: Mapping[str, float]) -> Decision:
    """The most probable main cause, or none at all, if its probability is :data:`SURE`.

    That nothing is at fault has one probability, whether links are full or not.

    Args:
        chances: Share of the members in which each is the main cause.
        validity: Probability that the assumptions behind a cause hold; otherwise it is unknown.
    """
    # Faults also occur in runs with no unexplained time.
    sound = NO_FAULTS | {HEALTHY}
    most = {name: 1.0 - UNUSUAL if name in sound else MODELLED for name in chances}
    probable = {
        name: min(chance, most[name]) * validity.get(name, 1.0)
        for name, chance in chances.items()
        if name != UNEXPLAINED
    }
    probable[UNEXPLAINED] = max(1.0 - sum(probable.values()), 0.0)
    cause = max(probable, key=lambda name: probable[name])
    sure = sum(probable.get(name, 0.0) for name in (sound if cause in sound else {cause}))
    if cause == UNEXPLAINED or sure < SURE:
        return Decision("undetermined", 0.0, probable)
    return Decision(cause, round(min(sure, most[cause]), 3), probable)


def _names(costs: Sequence[Cost], alternatives: Sequence[Alternative]) -> list[str]:
    """The causes of all alternatives, those of the expected run first."""
    hidden = [name for alternative in alternatives for name in alternative.hidden_ps]
    return list(dict.fromkeys([*(cost.cause for cost in costs), *hidden]))


def _share(name: str, stated: Cost | None, alternative: Alternative, ensemble: Ensemble) -> float:
    """Cost of a cause under an alternative, as a share of the time, at the mean scale.

    A cause that is not hidden costs the same under every alternative. A hidden cause costs nothing
    under alternatives without it.
    """
    if name in alternative.hidden_ps:
        return ensemble.mean_scale * max(alternative.hidden_ps[name], 0) / ensemble.elapsed_ps
    added = name in ensemble.alternatives[0].hidden_ps
    return 0.0 if added or stated is None else stated.share


def _spread(stated: Cost | None) -> float:
    """Standard error of a cost, from its range over repetitions."""
    if stated is None or stated.share <= 0:
        return 0.0
    total = stated.ps / stated.share
    return (stated.high_ps - stated.low_ps) / (2 * 1.96 * total)


# --- errors of costs -------------------------------------------------------------------------


def with_model_error(costs: Sequence[Cost], elapsed_ps: int, model: ErrorModel) -> list[Cost]:
    """Costs with 95 % intervals that include the error of the model, as the verdict does.

    Where queues drop packets, that is the error of the time of a run without the late ranks.

    Args:
        costs: Cost of each cause, with its range over simulations.
        elapsed_ps: The measured time.
        model: The error model.
    """
    lossy, out = model.lossy, []
    spread = _spread_of(model)
    for cost in costs:
        least, most = float(cost.low_ps), float(cost.high_ps)
        relative = COMPUTATION_ERROR if cost.cause in COMPUTATION else RELATIVE_COST_ERROR
        timed_ps = (elapsed_ps - cost.ps) * (lossy and cost.cause == "slow-link")
        errors = COST_ERROR * elapsed_ps, relative * cost.ps, model.time_error * timed_ps
        half = 1.96 * math.hypot(*errors)
        least, most = min(least, cost.ps - half), max(most, cost.ps + half)
        if lossy and cost.cause in COMPUTATION:
            without_ps = elapsed_ps - cost.ps
            least = min(least, elapsed_ps - spread * without_ps)
            more = min(without_ps * (1.0 - 1.0 / spread), 1.96 * (cost.ps - FAULT * elapsed_ps))
            most = max(most, cost.ps + more)
        low, high = max(round(least), 0), min(round(most), max(elapsed_ps, cost.high_ps))
        out.append(cost.model_copy(update={"low_ps": low, "high_ps": high}))
    return out


# --- costs where queues drop packets -----------------------------------------------------------

# The model delays packets instead of dropping them, so that runs that lack nothing take longer
# than it expects (:data:`tailback.inference.error_model.LOSSY_TIME_RATIO`). A cable that is the
# bottleneck has little of that, because it, not TCP, limits the run; without the cause, the run
# would. So the cost is not what the model saves but the measured time less the usual time of a
# run without it. Nor does a run that waits for late ranks have much of it: they send when the
# network is idle.

HIDDEN = ("slow-link", "other-traffic")
"""Causes of which the program shows nothing, and that another placement may avoid."""


def more_by_load_ps(busy_ps: int, model: ErrorModel, simulated_ps: int) -> int:
    """How much longer a run takes than its simulation, because of the bytes on a slow link.

    A run takes no less than any link needs for its bytes. What a run of this kind takes longer than
    its simulation in any case is not due to the link.

    Args:
        busy_ps: Time that the link needed for the bytes that it counted, ps.
        model: The error model.
        simulated_ps: Simulated time with the slow link, ps.
    """
    return max(min(busy_ps, round(model.simulated_ps(model.measured_ps))) - simulated_ps, 0)


def with_lossy_costs(
    costs: Sequence[Cost], model: ErrorModel, expected_ps: int, scale: float
) -> list[Cost]:
    """Costs of a lossy network, with the range that the error of its times leaves.

    If several causes are at fault, the run without one of them is still limited by the others, and
    the costs are left as they are.

    Args:
        costs: Cost of each cause.
        model: The error model.
        expected_ps: Simulated time with all causes, ps.
        scale: Factor from simulated to measured times in ``costs``.
    """
    faults = [cost for cost in costs if cost.cause in HIDDEN and cost.share >= FAULT]
    faults = faults or [cost for cost in costs if cost.cause in COMPUTATION and cost.share >= FAULT]
    if len(faults) != 1:
        return list(costs)
    (fault,) = faults
    if fault.cause in COMPUTATION:
        # The model took the whole network to be as much slower as the run took longer.
        without_ps = (model.measured_ps - fault.ps) / max(
            model.measured_ps / max(expected_ps, 1), 1.0
        )
        # What ranks wait for late ones, they wait without a network, too.
        model = replace(model, instant_ps=max(model.instant_ps - fault.ps, 0))
    else:
        without_ps = expected_ps - fault.ps / scale
    bounded = _bounded(fault, model, max(without_ps, 0.0))
    made = [bounded if cost is fault else cost for cost in costs]
    return sorted(made, key=lambda cost: (-cost.ps, cost.cause))


def _bounded(cost: Cost, model: ErrorModel, without_ps: float) -> Cost:
    """A cost, at most what a run without the cause usually takes less than the measured one."""
    usual, spread = model.usual_ps(without_ps), _spread_of(model)
    saved, least, most = (
        model.measured_ps - usual * factor for factor in (1.0, spread, 1.0 / spread)
    )
    ps = max(min(cost.ps, round(saved)), 0)
    return cost.model_copy(
        update={
            "ps": ps,
            "low_ps": max(min(round(least), ps), 0),
            "high_ps": max(round(most), ps),
            "share": cost.share * ps / cost.ps,
        }
    )


def _spread_of(model: ErrorModel) -> float:
    """Factor of a 95 % interval of the time of a run."""
    return math.exp(1.96 * model.time_error)
