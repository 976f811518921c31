"""Search for traffic of an unknown job that explains what a run lacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tailback.budget import optional
from tailback.diagnosis.cable_search import Outcome
from tailback.evidence.assumed_traffic import MAX_HOSTS, assumed_messages, hosts_of_others
from tailback.inference.error_model import MISFIT_ERROR, nearest_of
from tailback.inference.hypotheses import FAULT
from tailback.inference.hypothesis_space import SEARCH_EVENTS, HypothesisSpace
from tailback.inference.machine_models import MachineModel
from tailback.inference.network_clues import is_lossy
from tailback.inference.unknown_job import Draw, Tried, draws, try_unknown_job
from tailback.run.run import Run
from tailback.simulation import PreparedScenario

JOBS_PER_MACHINE = 4
"""Unknown jobs to try with a second machine model, of those tried with the first."""

COMPARED_JOBS = 4
"""Unknown jobs that are compared with each other."""

WHERE_IT_SENDS = ("calls", "sends", "stalls", "bytes")
"""Kinds of evidence that depend on where an unknown job sends, which is unknown."""


class UnknownJobSearch:
    """The search for an unknown job.

    Args:
        space: The hypotheses, to which the search adds.
    """

    def __init__(self, space: HypothesisSpace) -> None:
        self.space = space

    def try_with(self, machine: MachineModel) -> None:
        """Add traffic of an unknown job to the hypotheses.

        With counters there is no need, as they show other traffic, unless their intervals are so
        long that more of it may have fallen into the run than in proportion: then the unknown job
        sends that, from hosts that the counters show. In a lossy network there is no evidence:
        retransmissions scatter the repetitions of healthy runs as much.
        """
        prepared = machine.prepared
        if is_lossy(self.space.evidence, prepared.fabric):
            return
        nodes = self._hosts(prepared)
        alone = self.space.compare(self.space.alone(machine.name, None))
        if len(nodes) < 2 or alone.misfits.get("spread") is None:
            return
        runs: dict[int, Run] = {}
        events = list[int]()

        def with_job(draw: Draw) -> Outcome:
            messages = assumed_messages(
                prepared.fabric,
                nodes,
                draw.load,
                draw.bursts,
                round(1.1 * self.space.inside_ps),
                draw.seed,
                draw.hosts,
            )
            counted = self.space.others.add_to(prepared, None)
            scenario = counted.with_other_traffic("an unknown job", messages)
            run = self.space.simulated(scenario, machine.slow)
            events.append(int(run.summary["events"]))
            if draw.seed in runs or len(runs) < COMPARED_JOBS:
                runs[draw.seed] = run
            return self.space.with_cause(machine, None, run)

        self.space.progress("searching for traffic of other jobs", 0.0)
        tried = list[Tried]()
        with optional("other jobs"):
            for trial in try_unknown_job(
                with_job,
                self._candidates(),
                alone.elapsed_ps,
                self.space.inside_ps,
                more=lambda: sum(events) < SEARCH_EVENTS,
            ):
                tried.append(trial)
        if not tried:
            return
        first, *other_runs = runs.values()
        between = self.space.compare.between(first, other_runs)
        self.space.job_spread = max(self.space.job_spread, between.get("spread", 0.0))
        # Either any place fits as well as the one drawn, or the nearest of all places is right.
        nearest = nearest_of(self.space.prior().cables)
        somewhere = {
            kind: MISFIT_ERROR[kind]
            + machine.sensitivity.get(kind, 0.0)
            + nearest * between.get(kind, 0.0)
            for kind in WHERE_IT_SENDS
            if kind in alone.misfits
        }
        for trial in tried:
            placed = replace(trial.outcome, misfits={**trial.outcome.misfits, **somewhere})
            self.space.add(machine, trial.outcome, machine.slow, None, trial.draw)
            self.space.add(machine, placed, machine.slow, None, replace(trial.draw, place=True))

    def try_with_other_adapters(self) -> None:
        """Try an unknown job with each kind of adapters with which time is missing.

        Adapters that send messages one after another often explain the time that a job costs. That
        the one agrees must not keep the other from being weighed against it.
        """
        for name, machine in self.space.machines.items():
            tried = any(
                hypothesis.job is not None and hypothesis.machine == name
                for hypothesis in self.space.hypotheses
            )
            missing = self.space.posterior().model.missing_share(
                self.space.alone(name, None).elapsed_ps
            )
            if missing >= FAULT and not tried:
                self.try_with(machine)

    def _candidates(self) -> list[Draw]:
        """Random jobs; with a second machine model only those that fit best with the first."""
        fits = [
            weighed.hypothesis.job
            for weighed in self.space.posterior().weighed
            if weighed.hypothesis.job is not None and weighed.hypothesis.job.place
        ]
        best = {job.seed: replace(job, place=False) for job in reversed(fits)}
        return list(reversed(best.values()))[:JOBS_PER_MACHINE] or draws()

    def _hosts(self, prepared: PreparedScenario) -> NDArray[np.int64]:
        """Nodes that an unknown job may use: those without counters, which would show it."""
        counters, counted = self.space.evidence.counters, self.space.others.traffic
        fabric = prepared.fabric
        nodes = hosts_of_others(fabric, prepared.observed.node)
        if counters is None:
            return nodes
        with_counters = ~np.isnan(counters.sent_bytes)
        seen = np.concatenate([fabric.link_src[with_counters], fabric.link_dst[with_counters]])
        unseen = nodes[~np.isin(nodes, seen)]
        if len(unseen) >= 2:
            return unseen
        if counted is None or not counters.mostly_outside:
            return np.zeros(0, np.int64)
        return np.flatnonzero((counted.egress > 0) | (counted.ingress > 0))[:MAX_HOSTS]
