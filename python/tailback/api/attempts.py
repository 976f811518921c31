"""Search for an explanation of a measured run: hypotheses are proposed, simulated and compared.

Every hypothesis is simulated at packet level. The posterior over all of them
(:mod:`tailback.diagnosis.hypotheses`) gives the probability of each, and that of a fault which none
of them contains. Hypotheses are added while the latter is large. The constants below bound the
number of simulations; they decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tailback.api.evidence import NetworkEvidence
from tailback.api.machine_models import (
    OTHER_ROUTING,
    SETTINGS,
    MachineModel,
    slower_network,
    with_routing,
    without_tables,
)
from tailback.api.network_clues import (
    OtherJobs,
    Slow,
    all_queues_counted,
    counted_slow,
    is_lossy,
    modelled_part_ps,
    queued_more_than_busy,
)
from tailback.api.unknown_hosts import unknown_hosts
from tailback.diagnosis.comparisons import Comparisons
from tailback.diagnosis.error_model import MISFIT_ERROR, ErrorModel, Outcome
from tailback.diagnosis.hidden_cables import CableSearch, CableTrials, Trial
from tailback.diagnosis.hypotheses import (
    FAULT,
    UNUSUAL,
    Hypothesis,
    Posterior,
    Prior,
    at_other_rates,
    came_otherwise,
    log_probability,
    not_tried,
    over_arrangements,
)
from tailback.diagnosis.measured_suspects import ahead_of_stalls, cable_suspects, carrying_cables
from tailback.diagnosis.unknown_job import Draw, draws, try_unknown_job
from tailback.diagnosis.waterfall import Progress
from tailback.evaluate import Change
from tailback.evidence import MeasuredRun
from tailback.evidence.assumed_traffic import MAX_HOSTS, assumed_messages, hosts_of_others
from tailback.evidence.call_profile import CallProfile
from tailback.run import Run
from tailback.simulation import PreparedScenario, make_evaluate

BURSTS = (None, 4, 8, 16, 32, 64)
"""Bursts per counter window with which counted traffic of other jobs is simulated: counters give
the bytes of a window, not their timing within it. More bursts are equivalent to even spreading
(None)."""

WORTH_A_SEARCH = 0.15
"""Probability of a fault that was not found above which hidden causes are searched for: about 8 %
of the time is missing then. A search takes as long as the rest of the diagnosis."""

BETWEEN = 2
"""Maximum number of further bursts tried between two whose simulated times enclose the measured
one."""

SEARCH_EVENTS = 200_000_000
"""Events that a search for slow cables, or for unknown jobs, may simulate: about a minute. A limit
in events, not in time, makes a diagnosis the same on every machine."""

MIN_TRIALS, MAX_TRIALS = 12, 160
"""Minimum and maximum number of simulations in that search, however long each takes."""

SUSPECTS_PER_ROUTING = 12
"""Cables to try with each of them, and with the second kind of adapters. With up to three
simulations per cable, this takes less than half as long as the first search; the right cable is
among the best of the first search even if its adapters or its routing are wrong."""

TRIALS_PER_SUSPECT = 3
"""Simulations per suspect in that search, over rates and directions: one to screen it, and on
average two for the few that are examined further."""

MIN_STRETCHES = 50
"""Minimum number of intervals in MPI calls, over all ranks, to look for a slow cable by times
alone: with fewer, some cable nearly always fits."""

VARIED_CABLES = 2
"""Slow cables, the most probable with each machine model, that are simulated with them, too."""

JOBS_PER_MACHINE = 4
"""Unknown jobs to try with a second machine model, of those tried with the first."""

COMPARED_JOBS = 4
"""Unknown jobs that are compared with each other."""

WHERE_IT_SENDS = ("calls", "sends", "stalls")
"""Kinds of evidence that depend on where an unknown job sends, which is unknown."""


@dataclass
class ExplanationSearch:
    """The search for an explanation of one measured run."""

    others: OtherJobs
    profile: CallProfile
    compare: Comparisons
    measured: MeasuredRun
    evidence: NetworkEvidence
    progress: Progress
    threads: int | None
    machines: dict[tuple[str, str], MachineModel] = field(default_factory=dict)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    runs: dict[tuple[tuple[str, str], int | None, bool], Run] = field(default_factory=dict)
    """Runs without hidden causes, by machine model, bursts, and with or without
    counted traffic."""
    job_spread: float = 0.0
    """Mean misfit in the spread of sends between unknown jobs that cost about the same."""

    @property
    def inside_ps(self) -> int:
        """Measured time that a simulation covers, ps."""
        return modelled_part_ps(self.measured)

    def recorded_on(self, prepared: PreparedScenario) -> bool:
        """Whether the run was recorded on this fabric, so that its times are evidence on the links.

        A trace that does not say where its ranks ran may come from any machine, often a single
        host. Where ranks waited for a processor, times in calls say nothing about links. Counters
        always come from the machine that the run used.
        """
        if self.evidence.counters is not None or self.evidence.congested is not None:
            return True
        recording = prepared.observed.program.recording
        if recording is not None and recording.oversubscribed_ps:
            return False
        return not unknown_hosts(prepared, self.measured)

    def explained(self, round_robin: PreparedScenario, fifo: PreparedScenario | None) -> Posterior:
        """Add hypotheses until it is probable that the right one is among them.

        Args:
            round_robin: The scenario with the job alone and adapters that serve messages in turn.
            fifo: The same with adapters that send messages one after another; None if the scenario
                states how adapters share their link.
        """
        if is_lossy(self.evidence, round_robin.fabric):
            fifo = None  # Hosts share their link between sockets.
        given = [round_robin] if fifo is None else [round_robin, fifo]
        for prepared in given:
            self._add_machine(prepared, -math.log(len(given)))
        if round_robin.scenario.fabric.forwarding is not None and self._takes_too_long:
            for prepared in given:
                self._add_machine(without_tables(prepared), math.log(UNUSUAL / len(given)))
        if not self.recorded_on(round_robin):
            return self.posterior()
        for machine in self.machines.values():
            self._try_slower_network(machine)
        self._look_for_causes(self.machines.values(), MAX_TRIALS)
        self._confirm()
        if self._open:
            self._vary_settings_with_cables()
        self._look_for_jobs_beside_other_adapters()
        if self._routing_is_open(round_robin):
            for routing in OTHER_ROUTING:
                if self._open:
                    prior = math.log(UNUSUAL / len(given))
                    machine = self._add_machine(with_routing(round_robin, routing), prior)
                    self._look_for_causes([machine], SUSPECTS_PER_ROUTING)
        return self.posterior()

    def posterior(self) -> Posterior:
        """Probabilities of all hypotheses simulated so far."""
        lossy = is_lossy(self.evidence, next(iter(self.machines.values())).prepared.fabric)
        known = [
            one for one in self.hypotheses
            if one.slow == self.machines[one.machine].slow and one.job is None
            and one.network_share == 1.0
        ]  # fmt: skip
        alone = {name: [one for one in known if one.machine == name] for name in self.machines}
        outcomes = [[one.outcome for one in ways] for ways in alone.values()]
        model, prior = ErrorModel.of(self.inside_ps, outcomes, lossy=lossy), self._prior()
        simulated = [
            one for name, ways in alone.items()
            for one in over_arrangements(
                [each for each in self.hypotheses if each.machine == name], ways, model, prior
            )
        ]  # fmt: skip
        otherwise = [
            one for name, machine in self.machines.items()
            for one in self._came_otherwise(name, machine.slow, model)
        ]  # fmt: skip
        cables = [one for one in simulated if one.slow != self.machines[one.machine].slow]
        otherwise += at_other_rates(cables, model, prior)
        others = not_tried(known, model, prior, self._widest())
        return Posterior([*simulated, *otherwise, *others], model, prior)

    def _widest(self) -> dict[str, float]:
        """The largest sensitivity of all hypotheses, by kind of evidence.

        Which hosts an unknown job has, and when it sends, changes the spread of sends as unknown
        settings do.
        """
        out: dict[str, float] = {}
        for one in self.hypotheses:
            out |= {k: max(out.get(k, 0.0), m) for k, m in one.outcome.sensitivity.items()}
        return {**out, "spread": max(out.get("spread", 0.0), self.job_spread)}

    def _came_otherwise(
        self, name: tuple[str, str], slow: Slow, model: ErrorModel
    ) -> list[Hypothesis]:
        """Hypotheses in which counted traffic costs other than simulated, with ``slow`` cables."""
        if self.others.traffic is None:
            return []
        ways = [
            one for one in self.hypotheses
            if one.machine == name and one.slow == slow and one.network_share == 1.0
        ]  # fmt: skip
        without = self.alone(name, None, with_others=False).elapsed_ps
        return came_otherwise(ways, without, model)

    def alone(self, name: tuple[str, str], bursts: int | None, *, with_others: bool = True) -> Run:
        """The run without hidden causes, with or without counted traffic of other jobs."""
        with_others = with_others and self.others.traffic is not None
        key = (name, bursts, with_others)
        if key not in self.runs:
            machine = self.machines[name]
            scenario = (
                self.others.add_to(machine.prepared, bursts) if with_others else machine.prepared
            )
            self.runs[key] = self.simulated(scenario, machine.slow)
        return self.runs[key]

    @property
    def _takes_too_long(self) -> bool:
        """Whether our job alone takes longer than measured with each machine model."""
        model = self.posterior().model
        longest = (1.0 + FAULT) * self.inside_ps / model.usual_ratio
        return all(
            self.alone(name, None, with_others=False).elapsed_ps > longest for name in self.machines
        )

    @property
    def _open(self) -> bool:
        """Whether a fault that was not found is probable enough to search for it."""
        return self.posterior().unexplained > WORTH_A_SEARCH

    def _prior(self) -> Prior:
        name = next(iter(self.machines))
        fabric = self.machines[name].prepared.fabric
        return Prior(len(carrying_cables(self.alone(name, None), fabric)), fabric.link_reverse)

    def _most_probable(self, machines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Machine models by their probability, the most probable first."""
        total = dict.fromkeys(machines, 0.0)
        for one in self.posterior().weighed:
            if one.hypothesis.machine in total:
                total[one.hypothesis.machine] += one.probability
        return sorted(total, key=lambda name: -total[name])

    def _add_machine(self, prepared: PreparedScenario, log_prior: float) -> MachineModel:
        """Simulate the run without hidden causes, with each arrangement of counted traffic."""
        slow, _ = counted_slow(self.evidence, prepared.fabric)
        machine = MachineModel(prepared, log_prior, slow)
        self.machines[machine.name] = machine
        machine = replace(machine, sensitivity=self._sensitivity(machine, slow))
        self.machines[machine.name] = machine
        for bursts in self._arrangements:
            self._add(machine, self.alone(machine.name, bursts), slow, bursts)
        for _ in range(BETWEEN if len(self._arrangements) > 1 else 0):
            between = self._between(machine)
            if between is None:
                break
            self._add(machine, self.alone(machine.name, between), slow, between)
        return machine

    def _sensitivity(self, machine: MachineModel, slow: Slow) -> dict[str, float]:
        """Misfit that unknown engine settings cause with these slow cables, by kind of evidence."""
        if not self.recorded_on(machine.prepared):
            return {}
        evaluate = make_evaluate(machine.prepared, threads=self.threads)
        change = Change(slow=slow, computations=True, measure=True)
        as_stated = (
            self.alone(machine.name, None, with_others=False) if slow == machine.slow
            else evaluate(change)
        )  # fmt: skip
        others = [evaluate(replace(change, variation=one)) for one in SETTINGS]
        return self.compare.between(as_stated, others)

    def _outcome(self, machine: MachineModel, run: Run) -> Outcome:
        """Prediction of a simulation with this machine model."""
        return replace(self.compare(run), sensitivity=machine.sensitivity)

    def _with_cause(self, machine: MachineModel, bursts: int | None, run: Run) -> Outcome:
        """The same for a simulation with a hidden cause."""
        change = self.compare.between(run, [self.alone(machine.name, bursts)])
        return replace(self._outcome(machine, run), change=change)

    def _between(self, machine: MachineModel) -> int | None:
        """Number of bursts between two whose simulated times enclose the measured time.

        One of the two is the most probable number; None if there is no number between them.
        """
        mine = [one for one in self.hypotheses if one.machine == machine.name and one.bursts]
        mine.sort(key=lambda one: one.bursts or 0)
        likely = self._likely_bursts(machine)
        for few, many in pairwise(mine):
            assert few.bursts is not None and many.bursts is not None
            between = round(math.sqrt(few.bursts * many.bursts))
            shorter, longer = sorted((few.outcome.elapsed_ps, many.outcome.elapsed_ps))
            crosses = shorter < self.inside_ps < longer
            if (
                crosses
                and likely in (few.bursts, many.bursts)
                and few.bursts < between < many.bursts
            ):
                return between
        return None

    @property
    def _arrangements(self) -> tuple[int | None, ...]:
        return (None,) if self.others.traffic is None else BURSTS

    def _add(
        self, machine: MachineModel, found: Outcome | Run, slow: Slow, bursts: int | None,
        job: Draw | None = None,
    ) -> None:  # fmt: skip
        outcome = found if isinstance(found, Outcome) else self._outcome(machine, found)
        prior = machine.log_prior - math.log(len(self._arrangements))
        alone = self.alone(machine.name, bursts).elapsed_ps
        self.hypotheses.append(
            Hypothesis(
                machine.name, outcome, slow, bursts, job, log_prior=prior, alone_ps=alone
            )
        )  # fmt: skip

    def _likely_bursts(self, machine: MachineModel) -> int | None:
        """Most probable number of bursts of counted traffic with a machine model."""
        mine = [one for one in self.posterior().weighed if one.hypothesis.machine == machine.name]
        return mine[0].hypothesis.bursts if mine else None

    def _try_slower_network(self, machine: MachineModel) -> None:
        """Add a network whose links all are slower than stated, if all evidence agrees with it."""
        bursts = self._likely_bursts(machine)
        alone = self.alone(machine.name, bursts)
        if not self._open or alone.elapsed_ps >= self.inside_ps:
            return
        prepared, model = self.others.add_to(machine.prepared, bursts), self.posterior().model
        simulate = make_evaluate(prepared, threads=self.threads)
        for share, run in slower_network(prepared, alone.elapsed_ps, self.inside_ps, simulate):
            outcome = self._outcome(machine, run)
            if model.kinds and model.agrees(outcome):
                self._add(machine, outcome, machine.slow, bursts)
                self.hypotheses[-1] = replace(self.hypotheses[-1], network_share=share)

    def _look_for_causes(self, machines: Iterable[MachineModel], max_suspects: int) -> None:
        """Add slow cables and an unknown job to the hypotheses.

        Cables are screened with each machine model before any is examined further: with the right
        adapters, the right cable stands out immediately. With the others it is at least among the
        best.
        """
        names = self._most_probable(machine.name for machine in machines)
        searches: dict[tuple[str, str], CableSearch] = {}
        among: tuple[int, ...] = ()
        for name in names:
            machine = self.machines[name]
            search = self._cable_search(machine, max_suspects, among) if self._open else None
            if search is None:
                continue
            searches = {**searches, name: search}
            self._add_trials(machine, search, search.screen(self.progress))
            among = search.likeliest(SUSPECTS_PER_ROUTING)
            if search.is_conclusive:
                searches = {name: search}
                break
        for name in self._most_probable(names):
            search = searches.get(name)
            if search is not None and (self._open or search.is_conclusive):
                self._add_trials(self.machines[name], search, search.refine())
            # A cable that another job loads looks like a slow one: both are tried.
            if self._open or search is not None:
                self._look_for_job(self.machines[name])

    def _add_trials(
        self, machine: MachineModel, search: CableSearch, trials: Iterable[Trial]
    ) -> None:
        for trial in trials:
            self._add(machine, trial.outcome, trial.cables, search.trials.bursts)

    def _cable_search(
        self, machine: MachineModel, max_suspects: int, among: tuple[int, ...] = ()
    ) -> CableSearch | None:
        """Search for slow cables together with counted traffic; only ``among`` some, if given."""
        if self.evidence.counters is None and self.profile.count.sum() < MIN_STRETCHES:
            return None
        bursts = self._likely_bursts(machine)
        run = self.alone(machine.name, bursts)
        if machine.slow or run.elapsed_ps >= self.inside_ps:
            return None
        fabric = machine.prepared.fabric
        each = max(int(run.summary["events"]), 1)
        budget = min(max(SEARCH_EVENTS // each, MIN_TRIALS), max_suspects)
        ahead = ahead_of_stalls(self.evidence.counters, run, fabric)
        suspects = list(among) or cable_suspects(self.measured, run, ahead, fabric, budget)
        if not among and all_queues_counted(self.evidence, fabric):
            queued = queued_more_than_busy(self.evidence, fabric)
            suspects = [cable for cable in suspects if cable in queued]
        if not suspects:
            return None
        scenario = self.others.add_to(machine.prepared, bursts)
        trials = CableTrials(
            make_evaluate(scenario, threads=self.threads),
            partial(self._with_cause, machine, bursts),
            self.posterior().model, self._prior(), self._outcome(machine, run),
            np.asarray(fabric.link_gbps, np.float64), bursts=bursts,
            most_trials=TRIALS_PER_SUSPECT * max(len(suspects), MIN_TRIALS),
        )  # fmt: skip
        return CableSearch(trials, suspects, fabric, ahead)

    def _look_for_job(self, machine: MachineModel) -> None:
        """Add traffic of an unknown job to the hypotheses.

        With counters there is no need, as they show other traffic, unless their intervals are so
        long that more of it may have fallen into the run than in proportion: then the unknown job
        sends that, from hosts that the counters show. In a lossy network there is no evidence:
        retransmissions scatter the repetitions of healthy runs as much.
        """
        prepared = machine.prepared
        if is_lossy(self.evidence, prepared.fabric):
            return
        nodes = self._hosts_of_unknown_job(prepared)
        alone = self.compare(self.alone(machine.name, None))
        if len(nodes) < 2 or alone.misfits.get("spread") is None:
            return
        # Either any place fits as well as the one drawn, or some place fits, which is charged.
        somewhere = {
            kind: MISFIT_ERROR[kind] + machine.sensitivity.get(kind, 0.0)
            for kind in WHERE_IT_SENDS if kind in alone.misfits
        }  # fmt: skip
        runs: dict[int, Run] = {}
        events = list[int]()

        def placed(one: Outcome) -> Outcome:
            return replace(one, misfits={**one.misfits, **somewhere})

        def with_job(draw: Draw) -> Outcome:
            messages = assumed_messages(
                prepared.fabric, nodes, draw.load, draw.bursts, round(1.1 * self.inside_ps),
                draw.seed, draw.hosts,
            )  # fmt: skip
            counted = self.others.add_to(prepared, None)
            scenario = counted.with_other_traffic("an unknown job", messages)
            run = self.simulated(scenario, machine.slow)
            events.append(int(run.summary["events"]))
            if draw.seed in runs or len(runs) < COMPARED_JOBS:
                runs[draw.seed] = run
            return self._with_cause(machine, None, run)

        self.progress("searching for traffic of other jobs", 0.0)
        tried = try_unknown_job(
            with_job, self._jobs_to_try(), alone.elapsed_ps, self.inside_ps,
            more=lambda: sum(events) < SEARCH_EVENTS,
        )  # fmt: skip
        if len(runs) > 1:
            first, *others = runs.values()
            between = self.compare.between(first, others).get("spread", 0.0)
            self.job_spread = max(self.job_spread, between)
        for one in tried:
            self._add(machine, one.outcome, machine.slow, None, one.draw)
            self._add(
                machine, placed(one.outcome), machine.slow, None, replace(one.draw, place=True)
            )

    def _hosts_of_unknown_job(self, prepared: PreparedScenario) -> NDArray[np.int64]:
        """Nodes that an unknown job may use; none if the counters would show it."""
        counters, counted = self.evidence.counters, self.others.traffic
        if counters is None:
            return hosts_of_others(prepared.fabric, prepared.observed.node)
        if counted is None or not counters.mostly_outside:
            return np.zeros(0, np.int64)
        return np.flatnonzero((counted.egress > 0) | (counted.ingress > 0))[:MAX_HOSTS]

    def _look_for_jobs_beside_other_adapters(self) -> None:
        """Try an unknown job with each kind of adapters with which time is missing.

        Adapters that send messages one after another often explain the time that a job costs. That
        the one agrees must not keep the other from being weighed against it.
        """
        for name, machine in self.machines.items():
            tried = any(one.job is not None and one.machine == name for one in self.hypotheses)
            missing = self.posterior().model.missing_share(self.alone(name, None).elapsed_ps)
            if missing >= FAULT and not tried:
                self._look_for_job(machine)

    def _jobs_to_try(self) -> list[Draw]:
        """Random jobs; with a second machine model only those that fit best with the first."""
        fits = [
            one.hypothesis.job for one in self.posterior().weighed
            if one.hypothesis.job is not None and one.hypothesis.job.place
        ]  # fmt: skip
        best = {job.seed: replace(job, place=False) for job in reversed(fits)}
        return list(reversed(best.values()))[:JOBS_PER_MACHINE] or draws()

    def _confirm(self) -> None:
        """Simulate the most probable slow cables with other machine models and other bursts.

        If the search is still open, the best are tried even if they are not credible: the right
        cable may agree badly with the wrong adapters.
        """
        posterior, still_open = self.posterior(), self._open
        likely = posterior.weighed if still_open else posterior.credible()
        reverse = posterior.reverse
        cables = [
            one.hypothesis for one in likely
            if one.hypothesis.slow and not self.machines[one.hypothesis.machine].slow
        ]  # fmt: skip
        if still_open:
            places = {one.places(reverse): one for one in reversed(cables)}
            cables = [one for one in cables if places[one.places(reverse)] is one][:VARIED_CABLES]
        if not cables:
            return
        links = dict.fromkeys(min(s.link, int(reverse[s.link])) for one in cables for s in one.slow)
        for name, machine in self.machines.items():
            tried = {
                min(s.link, int(reverse[s.link]))
                for one in self.hypotheses if one.machine == name for s in one.slow
            }  # fmt: skip
            untried = tuple(link for link in links if link not in tried)
            if not untried or (tried and not still_open):
                continue
            search = self._cable_search(machine, MAX_TRIALS, untried)
            if search is not None:
                self._add_trials(machine, search, [*search.screen(), *search.refine()])
        best = cables[0]
        machine = self.machines[best.machine]
        for bursts in self._arrangements:
            if bursts != best.bursts:
                scenario = self.others.add_to(machine.prepared, bursts)
                run = self.simulated(scenario, best.slow)
                self._add(machine, run, best.slow, bursts)

    def _vary_settings_with_cables(self) -> None:
        """Measure how sensitive runs with the most probable slow cables are to unknown settings.

        Ranks that wait for a slow cable send at other moments, so in another order.
        """
        reverse = self._prior().reverse
        for name, machine in self.machines.items():
            likely = dict.fromkeys(
                one.hypothesis.places(reverse) for one in self.posterior().weighed
                if one.hypothesis.machine == name and one.hypothesis.slow != machine.slow
            )  # fmt: skip
            tried = [self._at(name, place)[0] for place in list(likely)[:VARIED_CABLES]]
            found = [self._sensitivity(machine, one.slow) for one in tried]
            if not found:
                continue
            mean = {
                kind: max(sum(one.get(kind, 0.0) for one in found) / len(found), least)
                for kind, least in machine.sensitivity.items()
            }
            self.hypotheses = [
                replace(one, outcome=replace(one.outcome, sensitivity=mean))
                if one.machine == name and one.slow != machine.slow else one
                for one in self.hypotheses
            ]  # fmt: skip

    def _at(self, name: tuple[str, str], place: Hashable) -> list[Hypothesis]:
        """Hypotheses with slow cables at these places, the most probable first."""
        model, prior = self.posterior().model, self._prior()
        mine = [
            one for one in self.hypotheses
            if one.machine == name and one.places(prior.reverse) == place
        ]  # fmt: skip
        return sorted(mine, key=lambda one: -log_probability(one, model, prior))

    def _routing_is_open(self, prepared: PreparedScenario) -> bool:
        """Whether switches may route differently than simulated, and counters can show it."""
        scenario = prepared.scenario
        stated = scenario.fabric.forwarding is not None or not (
            scenario.engine.model_fields_set.isdisjoint(("routing", "adaptive"))
        )
        counted = self.evidence.counters is not None and not is_lossy(
            self.evidence, prepared.fabric
        )
        return counted and not stated

    def simulated(self, prepared: PreparedScenario, slow: Slow) -> Run:
        """Simulate a scenario with slow cables."""
        evaluate = make_evaluate(prepared, threads=self.threads)
        return evaluate(Change(slow=slow, computations=True, measure=True))
