"""The remedy of a measured run: what the model summary, or which evidence to collect first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from tailback.diagnosis.cause_wording import ADVICE, CODE, NOT_SIMULATED, beside_cost
from tailback.diagnosis.explanation import Cost
from tailback.diagnosis.model import (
    MIN_GAIN,
    Candidate,
    Cause,
    Diagnosis,
    Estimate,
    Kind,
    Remedy,
    Saves,
)
from tailback.evidence.model import Measured
from tailback.inference import measured_wording as wording
from tailback.inference.error_model import error_model
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.measured_costs import FurtherCosts

NOT_OF_THE_NETWORK: tuple[Cause, ...] = ("imbalance", "noise", "late-partner")
"""Causes that do not depend on the placement of the ranks."""


def remedy_for(
    diagnosis: Diagnosis,
    remedy: Remedy | None,
    summary: EvidenceSummary,
    missing: Sequence[str],
) -> Remedy | None:
    """The remedy summary by re-simulation, or an action if the model has no remedy.

    A healthy run needs none. If the cause is undetermined, the action is to collect the missing
    evidence.

    Args:
        diagnosis: The diagnosis.
        remedy: The remedy found by re-simulation.
        summary: Results from evidence other than the trace.
        missing: Evidence that is missing, the most useful first.
    """
    cause = diagnosis.cause
    unknown = cause == "other-traffic" and summary.unknown_job is not None
    if cause == "healthy":
        return None
    if cause in NOT_OF_THE_NETWORK:
        late = () if diagnosis.measured is None else diagnosis.measured.latecomers
        side = wording.check_side(late) if cause == "imbalance" else ""
        actions: tuple[str, ...] = (side or ADVICE[cause],)
        if cause == "late-partner":
            actions += (NOT_SIMULATED,)
    elif cause == "slow-link" and summary.candidates:
        open_place = summary.place_open
        actions = (
            (wording.find_paths if open_place else wording.check_each_of)(summary.candidates),
        )
    elif cause == "undetermined":
        # What helps a model that does not describe the run need not help the run.
        actions = _find_cause(diagnosis, summary, missing)
    elif unknown and not (remedy is not None and remedy.name):
        actions = wording.find_first(cause, missing)
    else:
        return remedy
    if remedy is not None and remedy.name and cause in NOT_OF_THE_NETWORK:
        return remedy.model_copy(update={"actions": (*actions, *remedy.actions), "avoid": []})
    if remedy is not None and cause != "undetermined":
        # A placement that avoids one candidate cable has been verified for that cable only.
        return _without_change(remedy, actions).model_copy(update={"avoid": []})
    elapsed = diagnosis.modelled_ps
    return Remedy(
        actions=actions,
        placement="",
        before_ps=elapsed,
        after_ps=elapsed,
        gain=0.0,
        candidates=[],
        files={},
        commands=[],
    )


def _without_change(remedy: Remedy, actions: tuple[str, ...]) -> Remedy:
    """The remedy with other actions instead of the recommended change."""
    return remedy.model_copy(
        update={
            "actions": actions,
            "name": "",
            "parts": (),
            "placement": "",
            "predicted_gain": None,
            "removes": None,
            "after_ps": remedy.before_ps,
            "gain": 0.0,
            "files": {},
            "commands": [],
        }
    )


def _find_cause(
    diagnosis: Diagnosis, summary: EvidenceSummary, missing: Sequence[str]
) -> tuple[str, ...]:
    """The actions that show the cause of a run whose cause is undetermined."""
    if summary.ranks_missing:
        accelerated = diagnosis.measured is not None and bool(diagnosis.measured.not_recorded)
        return (wording.TRACE_ALL if accelerated else wording.RECORD_ALL,)
    if summary.impossible or (diagnosis.not_explained_ps or 0) < 0:
        return (wording.make_model_fit(),)
    if summary.change is not None and summary.change.is_fault:
        return (wording.look_around(summary.change),)
    hosts = diagnosis.measured.hosts if diagnosis.measured is not None else None
    if hosts is not None and hosts.hosts == 1:
        return (wording.LOOK_AT_THE_HOST,)
    # The headline names the same links.
    slow = () if summary.slow_anywhere else summary.candidates
    return wording.find_first("undetermined", missing, slow)


def advised(diagnosis: Diagnosis, remedy: Remedy | None) -> Diagnosis:
    """The diagnosis with its remedy, which is also the advice of an undetermined cause."""
    findings = diagnosis.findings
    if diagnosis.cause == "undetermined" and remedy is not None:
        texts = {"title": wording.UNDETERMINED, "advice": remedy.action}
        findings = [
            finding.model_copy(update=texts)
            if (finding.code, finding.cause) == (CODE, "undetermined")
            else finding
            for finding in findings
        ]
    return diagnosis.model_copy(update={"remedy": remedy, "findings": findings})


@dataclass(frozen=True)
class MeasuredGains:
    """What candidates gain of the measured time.

    Attributes:
        measured: The measured run.
        costs: Cost of each cause.
        cause: The verdict.
        lossy: Whether queues drop packets.
        is_located: Whether the advice is to remove the cause, not to find it first.
    """

    measured: Measured
    costs: Sequence[Cost]
    cause: Cause
    lossy: bool
    is_located: bool = True

    def of(self, candidate: Candidate, before_ps: int) -> Estimate:
        """The gain of a candidate that was simulated.

        A change that removes one cause and nothing else gains what this cause costs: to compute it
        twice would give two numbers for one time.

        Args:
            candidate: The candidate.
            before_ps: Simulated time without it, ps.
        """
        cost = self.removed(candidate)
        if cost is None:
            return predicted_gain(candidate, before_ps, self.measured, lossy=self.lossy)
        return self.of_cost(cost)

    def of_cost(self, cost: Cost) -> Estimate:
        """The gain of what removes a cause and nothing else."""
        elapsed_ps = max(self.measured.elapsed_ps, 1)
        low, high = (min(ps / elapsed_ps, 1.0) for ps in (cost.low_ps, cost.high_ps))
        return Estimate(
            value=cost.share, standard_error=(high - low) / (2 * 1.96), low=low, high=high
        )

    def removed(self, candidate: Candidate) -> Cost | None:
        """Cost of the cause that a candidate removes without changing anything else, if any."""
        return self.cost(
            "routing" if candidate.name == EVEN_ROUTES else REMOVED.get(candidate.kind)
        )

    def said(self, candidate: Candidate, before: Candidate) -> str:
        """What a candidate gains, in words, and whether the cause costs more or less.

        Empty if less is predicted than re-simulation tells from nothing.
        """
        gain = self.of(candidate, before.elapsed_ps)
        if gain.value < MIN_GAIN:
            return ""
        text = wording.gain_of_measured(gain, self.measured.elapsed_ps)
        of_cause = self.cost(self.cause)
        removes = self.removes(candidate)
        if of_cause is None or removes is not None or self.cause in NOT_OF_THE_NETWORK:
            return text
        return text + beside_cost(gain.value, of_cause.share)

    def removes(self, candidate: Candidate) -> Cause | None:
        """The cause that a candidate removes without changing anything else; None for others."""
        if candidate.kind == self.cause == "placement":
            return self.cause
        cost = self.removed(candidate)
        return None if cost is None else cast("Cause", cost.cause)

    def stated(self, remedy: Remedy | None) -> Remedy | None:
        """The remedy with all gains as shares of the measured time.

        A change of which no gain is predicted is not recommended.

        Args:
            remedy: The remedy, with gains of simulated times.
        """
        if remedy is None:
            return None
        tried = [self._of_measured(each, remedy.before_ps) for each in remedy.candidates]
        stated = remedy.model_copy(update={"candidates": tried})
        if not remedy.name:
            removed = self.is_located and self.cause in REMOVED_BY_ADVICE
            cost = self.cost(self.cause if removed else None)
            return stated if cost is None else self._gaining(stated, self.of_cost(cost), self.cause)
        candidate = _candidate(remedy, remedy.name)
        predicted = self.of(candidate, remedy.before_ps)
        if predicted.value < MIN_GAIN:
            return _without_change(stated, (wording.NO_PREDICTED_GAIN,))
        return self._gaining(stated, predicted, self.removes(candidate))

    def _gaining(self, remedy: Remedy, gain: Estimate, removes: Cause | None) -> Remedy:
        update = {"gain": gain.value, "predicted_gain": gain, "removes": removes}
        return remedy.model_copy(update=update)

    def cost(self, cause: Cause | None) -> Cost | None:
        """Cost of a cause; None if it has none."""
        return next((cost for cost in self.costs if cost.cause == cause), None)

    def _of_measured(self, candidate: Candidate, before_ps: int) -> Candidate:
        if candidate.gain is None:
            return candidate
        gain = self.of(candidate, before_ps)
        update = {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
        if candidate.sensitive_gain is not None:
            update["sensitive_gain"] = gain.value + candidate.sensitive_gain - candidate.gain
        return candidate.model_copy(update=update)


REMOVED: Mapping[Kind, Cause] = {"repair": "slow-link"}
"""The cause that each kind of remedy removes without changing anything else."""

REMOVED_BY_ADVICE: tuple[Cause, ...] = ("slow-link", "other-traffic", "imbalance", "noise")
"""Causes that advice without a simulated change removes as their cost was simulated: repair the
cable, stop the other job, balance the work, keep the hosts quiet."""

EVEN_ROUTES = "even-routes"
"""The remedy of routes that use some of several parallel links more than others."""


def with_even_routes(
    remedy: Remedy | None, diagnosis: Diagnosis, further: FurtherCosts, saves: Saves
) -> Remedy | None:
    """The remedy; for routes that use parallel links unevenly, to use them evenly.

    The expected run uses them evenly, as its other candidates do: only its difference to the run
    with the counted traffic of each link shows a gain.

    Args:
        remedy: The remedy found by re-simulation.
        diagnosis: The diagnosis.
        further: Costs of the routes by simulation.
        saves: Says what the remedy saves.
    """
    if diagnosis.cause != "routing" or further.routing_mean_ps <= 0:
        return remedy
    even_ps, before_ps = diagnosis.modelled_ps, diagnosis.modelled_ps + further.routing_mean_ps
    gains = [1.0 - even_ps / (even_ps + more) for more in further.routing_range_ps]
    candidate = Candidate(
        name=EVEN_ROUTES,
        kind="routing",
        action="Ask the operators to let the switches use all parallel links evenly: some carried "
        "most of the traffic.",
        elapsed_ps=even_ps,
        low_ps=even_ps,
        high_ps=even_ps,
        repetitions=len(further.routing_ps),
        gain=1.0 - even_ps / before_ps,
        gain_low=min(gains),
        gain_high=max(gains),
        ensemble=len(further.routing_ps),
    )
    unchanged = candidate.model_copy(update={"elapsed_ps": before_ps})
    return Remedy(
        actions=(candidate.action, f"This takes {saves(candidate, unchanged)}."),
        name=EVEN_ROUTES,
        parts=(EVEN_ROUTES,),
        placement="",
        before_ps=before_ps,
        after_ps=even_ps,
        gain=1.0 - even_ps / before_ps,
        candidates=[candidate],
        files={},
        commands=[],
    )


def with_gain_as_cost(gains: MeasuredGains, remedy: Remedy | None) -> MeasuredGains:
    """The gains and costs; a placement at fault costs what the best one gains.

    Args:
        gains: What candidates gain, with the cost of each cause.
        remedy: The remedy by re-simulation, which names the best placement, if one helps.
    """
    if gains.cause != "placement" or remedy is None or not remedy.placement:
        return gains
    elapsed_ps = gains.measured.elapsed_ps
    gain = gains.of(_candidate(remedy, remedy.placement), remedy.before_ps)
    value, low, high = (round(share * elapsed_ps) for share in (gain.value, gain.low, gain.high))
    if value <= 0:
        return gains
    stated = {"ps": value, "low_ps": max(low, 0), "high_ps": high, "share": gain.value}
    made = [
        cost.model_copy(update=stated) if cost.cause == "placement" else cost
        for cost in gains.costs
    ]
    return replace(gains, costs=sorted(made, key=lambda cost: (-cost.ps, cost.cause)))


def _candidate(remedy: Remedy, name: str) -> Candidate:
    return next(candidate for candidate in remedy.candidates if candidate.name == name)


DRAWS, SEED = 20_000, 20
"""Draws for the gain: the 2.5 % at each end of its interval are 500 of them; and their seed."""


def predicted_gain(
    candidate: Candidate, before_ps: int, measured: Measured, *, lossy: bool
) -> Estimate:
    """Share of the measured time that a candidate saves, with the error of the model.

    The measured time differs from the simulated one without the remedy. A share w of that
    difference is due to what the simulation lacks, and recurs with the remedy; the remainder is an
    error that the next run draws anew, log-normal with the standard error of simulated times
    (:mod:`tailback.inference.error_model`) times √(1 − w²). One run does not show w: all values
    from 0 to 1 are equally likely. If the simulation takes longer than the run, the difference
    recurs in proportion to the time that the remedy leaves. The range of the gain over repetitions
    of the simulation is taken as its 95 % interval, as those of costs are.

    Args:
        candidate: A candidate that was simulated.
        before_ps: Simulated time without it, ps.
        measured: The measured run.
        lossy: Whether queues drop packets.
    """
    elapsed, outside = max(measured.elapsed_ps, 1), measured.outside_model_ps
    inside = max(elapsed - outside, 1)
    model = error_model(measured, lossy=lossy)
    low, mean, high = candidate.gain_low, candidate.gain, candidate.gain_high
    if low is None or mean is None or high is None:
        after_ps, spread = float(candidate.elapsed_ps), float(candidate.high_ps - candidate.low_ps)
    else:
        after_ps, spread = (1.0 - mean) * before_ps, (high - low) * before_ps
    rng = np.random.default_rng(SEED)
    normal, repeated = rng.standard_normal((2, DRAWS))
    shared = rng.random(DRAWS)
    error = np.exp(model.time_error * np.sqrt(1.0 - shared**2) * normal)
    simulated = after_ps + spread / (2 * 1.96) * repeated
    lacking = inside - model.usual_ps(before_ps)
    if lacking < 0:
        lacking *= after_ps / max(before_ps, 1)
    after = outside + model.usual_times(simulated) * error + shared * lacking
    return Estimate.of_draws(1.0 - np.maximum(after, outside) / elapsed)
