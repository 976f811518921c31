"""The smallest fault that a healthy verdict would have shown.

A fault is put into the expected run, and its simulation takes the place of the measurement. The
verdict on that run would not be *healthy* if a fault that no search finds were probable enough, by
the error model and the priors of the search: a search does not try every cable. What a slow cable
costs depends on which it is, so several of each role are simulated, evenly spread over the order of
their load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tailback.arrays import Bools, Floats
from tailback.diagnosis.cable_search import FIRST_SHARES, MAX_SHARE, MIN_SHARE, Outcome
from tailback.diagnosis.confidence import SURE
from tailback.diagnosis.explanation import SmallestFault, VisibleCables
from tailback.diagnosis.topology import link_totals
from tailback.evidence.assumed_traffic import assumed_messages, hosts_of_others
from tailback.fabric.degraded import SlowLink
from tailback.inference.derived_hypotheses import unsimulated_faults
from tailback.inference.hypotheses import FAULT, Hypothesis, Posterior
from tailback.inference.hypothesis_space import SEARCH_EVENTS, HypothesisSpace
from tailback.inference.network_clues import between_switches
from tailback.inference.unknown_job import FIRST_LOAD, draws
from tailback.run.run import Run

STEPS = 2
"""Halvings of the range in which a rate or a load is looked for: they leave a factor of 1.4."""

TRIED = 3
"""Cables of each role that are simulated: the fewest of which most are more than one."""


@dataclass(frozen=True)
class FaultSizes:
    """Sizes of faults that the verdict on a run would have shown.

    Attributes:
        space: The hypotheses.
        posterior: Their probabilities.
    """

    space: HypothesisSpace
    posterior: Posterior

    def smallest(self) -> SmallestFault | None:
        """The smallest faults of each kind; None if simulating them takes too long."""
        events = int(self._alone.summary.get("events", 0))
        simulations = (2 * TRIED + 1) * (STEPS + 1)
        if events * simulations > SEARCH_EVENTS:
            return None
        return SmallestFault(cables=list(self._cables()), job_gbps=self._job_gbps())

    @property
    def _alone(self) -> Run:
        """The run without hidden causes, of the most probable machine model."""
        best = self.posterior.best
        return self.space.alone(best.machine, best.bursts)

    def _cables(self) -> Iterator[VisibleCables]:
        """The largest rate of a slow cable that would have been seen, by role of the cable."""
        machine = self.space.machines[self.posterior.best.machine]
        fabric = machine.prepared.fabric
        load, inside = self._load(), between_switches(fabric)
        scenario = self.space.others.add_to(machine.prepared, self.posterior.best.bursts)

        def shows(link: int, share: float) -> bool:
            slow = (*machine.slow, SlowLink(link, share * float(fabric.link_gbps[link])))
            fault = Hypothesis(machine.name, Outcome(0, {}), slow)
            return self.would_show(self.space.simulated(scenario, slow), fault)

        for role, of_role in (("host", ~inside), ("between switches", inside)):
            links = np.flatnonzero(of_role & (load > 0))
            links = links[np.argsort(-load[links], kind="stable")]
            if not len(links):
                continue
            count = min(TRIED, len(links))
            tried = [int(links[(2 * at + 1) * len(links) // (2 * count)]) for at in range(count)]
            seen: dict[float, int] = {}

            def is_seen(
                share: float, tried: Sequence[int] = tried, seen: dict[float, int] = seen
            ) -> bool:
                seen[share] = sum(shows(link, share) for link in tried)
                return 2 * seen[share] > len(tried)

            share = largest_share(is_seen)
            yield VisibleCables(
                role=role,
                used=len(links),
                tried=count,
                seen=0 if share is None else seen[share],
                rate_share=share,
            )

    def _load(self) -> Floats:
        """Share of the time in which our messages fill each cable, by its first link, shape (L,).

        Of its directions, the one with more counts; 0 for the second link of a cable.
        """
        machine = self.space.machines[self.posterior.best.machine]
        fabric, alone = machine.prepared.fabric, self._alone
        sent = link_totals(self.space.alone(machine.name, None, with_others=False), "bytes")
        busy = sent * 8000.0 / np.asarray(fabric.link_gbps, np.float64) / max(alone.elapsed_ps, 1)
        reverse = fabric.link_reverse.astype(np.int64)
        first: Bools = np.arange(len(busy)) < reverse
        return np.where(first, np.maximum(busy, busy[reverse]), 0.0)

    def _job_gbps(self) -> float | None:
        """Least rate of each free host at which a job on all of them would have been seen, Gb/s.

        None if no load would, or if our job has all hosts.
        """
        machine = self.space.machines[self.posterior.best.machine]
        prepared = machine.prepared
        nodes = hosts_of_others(prepared.fabric, prepared.observed.node)
        if len(nodes) < 2:
            return None
        draw = draws()[0]

        def is_seen(share: float) -> bool:
            load = 1.0 - share
            messages = assumed_messages(
                prepared.fabric,
                nodes,
                load,
                draw.bursts,
                round(1.1 * self.space.inside_ps),
                draw.seed,
            )
            counted = self.space.others.add_to(prepared, None)
            scenario = counted.with_other_traffic("an unknown job", messages)
            job = Hypothesis(
                machine.name, Outcome(0, {}), machine.slow, job=replace(draw, load=load)
            )
            return self.would_show(self.space.simulated(scenario, machine.slow), job)

        idle = largest_share(is_seen, first=1.0 - FIRST_LOAD)
        sending = np.isin(prepared.fabric.link_src, nodes)
        rate = float(np.median(prepared.fabric.link_gbps[sending]))
        return None if idle is None else (1.0 - idle) * rate

    def would_show(self, run: Run, fault: Hypothesis) -> bool:
        """Whether the verdict would not be healthy if a simulation were the measurement.

        The fault itself only tells how faults change the evidence: the verdict is that of a search
        that did not try it.

        Args:
            run: The simulation.
            fault: Its fault; the prediction is that of ``run``.
        """
        space = self.space
        longer = run.elapsed_ps / max(self._alone.elapsed_ps, 1)
        usual = self.posterior.model
        # The model may be too slow by its usual error, which conceals as much of the fault.
        model = replace(
            usual, measured_ps=round(usual.measured_ps * longer * math.exp(-usual.time_error))
        )
        without = []
        for name, machine in space.machines.items():
            healthy = space.alone(name, self.posterior.best.bursts)
            change = space.compare.between(run, [healthy])
            # All agree with the measurement as usual, but for the fault.
            misfits = {kind: error + change.get(kind, 0.0) for kind, error in model.errors.items()}
            outcome = Outcome(healthy.elapsed_ps, misfits, machine.sensitivity)
            without.append(Hypothesis(name, outcome, machine.slow, log_prior=machine.log_prior))
        widest: dict[str, float] = {}
        for hypothesis in without:
            for kind, misfit in hypothesis.outcome.sensitivity.items():
                widest[kind] = max(widest.get(kind, 0.0), misfit)
        unknown = unsimulated_faults(without, model, space.prior(), widest)
        machine, alone = space.machines[fault.machine], self._alone
        change = space.compare.between(run, [alone])
        right = Outcome(run.elapsed_ps, dict(model.errors), machine.sensitivity, change)
        tried = replace(
            fault, outcome=right, alone_ps=alone.elapsed_ps, log_prior=machine.log_prior
        )
        posterior = Posterior([*without, tried, *unknown], model, space.prior())
        others = [
            weighed
            for weighed in posterior.weighed
            if weighed.hypothesis.slow == space.machines[weighed.hypothesis.machine].slow
            and weighed.hypothesis.job is None
        ]
        unexplained = sum(
            weighed.probability
            for weighed in others
            if weighed.hypothesis.unexplained
            and model.off_share(weighed.hypothesis.outcome.elapsed_ps) >= FAULT
        )
        total = sum(weighed.probability for weighed in others)
        return unexplained > (1.0 - SURE) * total


def largest_share(is_seen: Callable[[float], bool], first: float = FIRST_SHARES[0]) -> float | None:
    """The largest share of a rate at which a fault is seen, by :data:`STEPS` halvings.

    None if it is not seen at a share that is tried; smaller shares are larger faults.

    Args:
        is_seen: Whether a fault that leaves this share of the rate would have been seen.
        first: Share that is tried first.
    """
    if is_seen(first):
        low, high = first, MAX_SHARE
    elif is_seen(MIN_SHARE):
        low, high = MIN_SHARE, first
    else:
        return None
    for _ in range(STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_seen(middle) else (low, middle)
    return low
