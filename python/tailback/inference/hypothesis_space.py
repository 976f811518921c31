"""Hypotheses on a measured run that were simulated, and their probabilities."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from tailback.budget import Step, is_left_out, steps_left_out
from tailback.diagnosis.cable_search import MAX_ONE_WAY, Outcome
from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change, EngineVariation, Evaluate
from tailback.evidence import MeasuredRun
from tailback.evidence.call_profile import CallProfile
from tailback.fabric.degraded import within_engine
from tailback.inference.coarse_ranking import CoarseRanking
from tailback.inference.comparisons import Comparisons
from tailback.inference.derived_hypotheses import (
    at_other_rates,
    came_otherwise,
    of_unknown_timing,
    over_arrangements,
    unsimulated_faults,
    untried_faults,
    with_interruptions,
)
from tailback.inference.error_model import ErrorModel
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import (
    FAULT,
    UNUSUAL,
    Hypothesis,
    MachineName,
    Posterior,
    Prior,
    log_probability,
)
from tailback.inference.machine_models import (
    OTHER_ROUTING,
    SETTINGS,
    MachineModel,
    PredictionCache,
    raised_rates,
    routing_choice,
)
from tailback.inference.measured_cables import (
    MessagePaths,
    carrying_cables,
    equally_busy,
    late_groups,
    late_sends,
)
from tailback.inference.network_clues import (
    OtherJobs,
    Slow,
    counted_slow,
    is_lossy,
    modelled_part_ps,
    sound_links,
    unknown_hosts,
)
from tailback.inference.queue_likelihood import QueueLikelihood
from tailback.inference.suspect_links import suspected_cables
from tailback.inference.unknown_job import Draw
from tailback.io.progress import Progress
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.evaluate import make_simulation
from tailback.simulation.routes import forwarded_links
from tailback.traffic.computation import without_noise

BURSTS = (None, 1, 2, 4, 8, 16, 32, 64)
"""Bursts per counter window with which counted traffic of other jobs is simulated: counters give
the bytes of a window, not their timing within it. More bursts are equivalent to even spreading
(None)."""

WORTH_A_SEARCH = 0.15
"""Probability of a fault that was not found above which hidden causes are searched for: about 8 %
of the time is missing then. A search takes as long as the rest of the diagnosis."""

SEARCH_EVENTS = 200_000_000
"""Events that a search for slow cables, or for unknown jobs, may simulate: about a minute. A limit
in events, not in time, makes a diagnosis the same on every machine."""

OWN_SUSPECTS, AMONG_FIRST = 6, 45 / 58
"""Cables to try first with each machine model: those that explain best which sends are late. In 45
of 58 such rankings of blind cases, the slow cable was among the first six."""

UNUSUAL_STEPS: Mapping[Step, int] = {
    "rates of slow cables": 2 * MAX_ONE_WAY,
    "other routing": len(OTHER_ROUTING),
    "slower machine": 2,
    "engine settings": 1,
}
"""Steps of a search that try what is unusual in addition to a hidden cause, and in how many ways:
each direction of the likeliest cables alone, other choices among paths, lower rates and longer
delays."""

BETWEEN = 2
"""Maximum number of further bursts tried between two whose simulated times enclose the measured
one."""


_State = tuple[Hashable, list[MachineModel | Hypothesis]]
"""What a posterior depends on: values, and machine models and hypotheses, which never change."""


def _is_same(before: _State, after: _State) -> bool:
    same = before[0] == after[0] and len(before[1]) == len(after[1])
    return same and all(a is b for a, b in zip(before[1], after[1], strict=True))


@dataclass
class HypothesisSpace:
    """Machine models and hypotheses on one measured run, with their simulations."""

    others: OtherJobs
    profile: CallProfile
    compare: Comparisons
    measured: MeasuredRun
    evidence: NetworkEvidence
    progress: Progress
    threads: int | None
    expected: Run | None = None
    """The job alone on the first machine, with computations, where that was simulated already."""
    places_hidden: bool = False
    """Whether the evidence cannot tell cables apart that are equally busy."""
    machines: dict[MachineName, MachineModel] = field(default_factory=dict)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    rankings: list[CoarseRanking] = field(default_factory=list)
    """Rankings of suspected cables in coarse packets."""
    job_spread: float = 0.0
    """Mean misfit in the spread of sends between unknown jobs that cost about the same."""
    noise_in_calls_ps: dict[MachineName, int] = field(default_factory=dict)
    """The most that interruptions inside calls cost with each machine model."""
    predictions: PredictionCache = field(default_factory=PredictionCache)
    """Runs without hidden causes, outcomes with one and sensitivities to engine settings."""
    _weighed: tuple[_State, Posterior] | None = None
    """The posterior, which is asked for more often than it changes, and what it depends on."""

    @property
    def inside_ps(self) -> int:
        """Measured time that a simulation covers, ps."""
        return modelled_part_ps(self.measured)

    @property
    def counted_paths(self) -> bool:
        """Whether counters show which paths flows took."""
        return self.measured.measured.counted_paths

    @property
    def instant_ps(self) -> int:
        """Time on a network without delay, ps; 0 if it was not simulated."""
        return self.measured.measured.instant_ps

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

    def posterior(self) -> Posterior:
        """Probabilities of all hypotheses simulated so far."""
        state: _State = (
            (self.job_spread, tuple(self.noise_in_calls_ps.items()), steps_left_out()),
            [*self.machines.values(), *self.hypotheses],
        )
        if self._weighed is None or not _is_same(self._weighed[0], state):
            self._weighed = state, self._posterior()
        return self._weighed[1]

    def _posterior(self) -> Posterior:
        lossy = is_lossy(self.evidence, next(iter(self.machines.values())).prepared.fabric)
        without_causes = [
            hypothesis
            for hypothesis in self.hypotheses
            if hypothesis.slow == self.machines[hypothesis.machine].slow
            and hypothesis.job is None
            and hypothesis.slower is None
        ]
        alone = {
            name: [hypothesis for hypothesis in without_causes if hypothesis.machine == name]
            for name in self.machines
        }
        outcomes = [
            [hypothesis.outcome for hypothesis in arrangements] for arrangements in alone.values()
        ]
        model, prior = (
            ErrorModel.of(
                self.inside_ps,
                outcomes,
                lossy=lossy,
                instant_ps=self.instant_ps,
                counted_paths=self.counted_paths,
            ),
            self.prior(),
        )
        simulated = [
            hypothesis
            for name, arrangements in alone.items()
            for hypothesis in over_arrangements(
                [each for each in self.hypotheses if each.machine == name],
                arrangements,
                model,
                prior,
            )
        ]
        otherwise = [
            hypothesis
            for name, machine in self.machines.items()
            for hypothesis in self._came_otherwise(name, machine.slow, model)
        ]
        cables = [
            hypothesis
            for hypothesis in simulated
            if hypothesis.slow != self.machines[hypothesis.machine].slow
        ]
        otherwise += at_other_rates(cables, model, prior)
        others = [
            *unsimulated_faults(without_causes, model, prior, self._widest(), simulated),
            *untried_faults(
                without_causes, model, prior, self._untried_places(model, prior), self._widest()
            ),
            *of_unknown_timing(
                cables, without_causes, model, prior, self._log_lateness, self._widest()
            ),
        ]
        noisy = with_interruptions(simulated, self.noise_in_calls_ps, model)
        return Posterior([*simulated, *otherwise, *others, *noisy], model, prior)

    def _untried_places(self, model: ErrorModel, prior: Prior) -> float:
        """Number of places not tried for lack of time at which a cause would agree; 0 with all.

        Of the cables that were not tried, as many agree as of the others, but at least one. Jobs
        are charged for a place in the same way. Other steps try what is unusual in addition.
        Another kind of adapters has the prior of the first, whatever the number of cables.
        """
        places = UNUSUAL * sum(UNUSUAL_STEPS[step] * is_left_out(step) for step in UNUSUAL_STEPS)
        if is_left_out("slow cables"):
            agrees: dict[Hashable, bool] = {}
            for hypothesis in self.hypotheses:
                place = hypothesis.places(prior.reverse)
                if hypothesis.slow != self.machines[hypothesis.machine].slow:
                    agrees[place] = agrees.get(place, False) or model.agrees(hypothesis.outcome)
            untried = max(prior.cables - len(agrees), 1)
            places += max(untried * sum(agrees.values()) / max(len(agrees), 1), 1.0)
        places += is_left_out("other jobs")
        return places + is_left_out("other adapters") * prior.cables / UNUSUAL

    @property
    def simulations_of_machine(self) -> int:
        """Number of simulations with which a machine model is added, at most."""
        arrangements = len(self.arrangements) + BETWEEN if len(self.arrangements) > 1 else 0
        return 1 + len(SETTINGS) + arrangements

    def _widest(self) -> dict[str, float]:
        """The largest sensitivity of all hypotheses, by kind of evidence.

        Which hosts an unknown job has, and when it sends, changes the spread of sends as unknown
        settings do.
        """
        out: dict[str, float] = {}
        for hypothesis in self.hypotheses:
            out |= {k: max(out.get(k, 0.0), m) for k, m in hypothesis.outcome.sensitivity.items()}
        return {**out, "spread": max(out.get("spread", 0.0), self.job_spread)}

    def _came_otherwise(self, name: MachineName, slow: Slow, model: ErrorModel) -> list[Hypothesis]:
        """Hypotheses in which counted traffic costs other than simulated, with ``slow`` cables."""
        if self.others.traffic is None:
            return []
        arrangements = [
            hypothesis
            for hypothesis in self.hypotheses
            if hypothesis.machine == name and hypothesis.slow == slow and hypothesis.slower is None
        ]
        without = self.alone(name, None, with_others=False).elapsed_ps
        return came_otherwise(arrangements, without, model)

    def alone(self, name: MachineName, bursts: int | None, *, with_others: bool = True) -> Run:
        """The run without hidden causes, with or without counted traffic of other jobs."""
        with_others = with_others and self.others.traffic is not None
        machine = self.machines[name]
        conditions = machine.conditions.with_change("alone", bursts, with_others, machine.slow)

        def simulate() -> tuple[Run, bool]:
            prepared = machine.prepared
            first = name == next(iter(self.machines)) and not (with_others or machine.slow)
            if first and self.expected is not None:
                return self.expected, self.expected.adapters_shared
            scenario = self.others.add_to(prepared, bursts) if with_others else prepared
            run = self.simulated(scenario, machine.slow, measure=True)
            return run, run.adapters_shared

        return self.predictions.find_or(conditions, simulate)

    def healthy(self, name: MachineName) -> Run:
        """The run of our job alone, with every link at its nominal rate."""
        machine = self.machines[name]
        if not machine.slow and not machine.prepared.scenario.fabric.degraded:
            return self.alone(name, None, with_others=False)
        evaluate = make_simulation(machine.prepared, threads=self.threads)
        return evaluate(Change(network="healthy", background=False, computations=True))

    @property
    def takes_too_long(self) -> bool:
        """Whether our job alone takes longer than measured with each machine model."""
        model = self.posterior().model
        longest = (1.0 + FAULT) * model.simulated_ps(self.inside_ps)
        return all(
            self.alone(name, None, with_others=False).elapsed_ps > longest for name in self.machines
        )

    @property
    def slowed_too_much(self) -> bool:
        """Whether slow cables of counters make every run longer than the measured one.

        Counters that say so may be wrong, or of another time.
        """
        return all(
            machine.slow
            and self.alone(name, None, with_others=False).elapsed_ps
            > (1.0 + FAULT) * self.inside_ps
            for name, machine in self.machines.items()
        )

    @property
    def is_open(self) -> bool:
        """Whether a fault that was not found is probable enough to search for it."""
        return self.posterior().worth_a_search > WORTH_A_SEARCH

    def prior(self) -> Prior:
        """Prior probabilities of hypotheses on this run."""
        return self._prior

    @cached_property
    def _prior(self) -> Prior:
        name = next(iter(self.machines))
        fabric = self.machines[name].prepared.fabric
        ours = carrying_cables(self.alone(name, None, with_others=False), fabric)
        reverse = fabric.link_reverse
        carrying = {end for link in ours for end in (int(link), int(reverse[link]))}
        elsewhere = frozenset(range(len(reverse))) - carrying
        return Prior(
            len(ours),
            reverse,
            elsewhere,
            self.evidence.served_gbps,
            sound_links(self.evidence, fabric),
            self.suspected_cables,
            QueueLikelihood.of(self.evidence.counters, fabric),
            Counter(self.first_alike.values()),
            jobs_unseen=self.evidence.counters is None and is_lossy(self.evidence, fabric),
        )

    @cached_property
    def first_alike(self) -> dict[int, int]:
        """The cable that is tried for each that the evidence cannot tell from it; else empty."""
        if not self.places_hidden:
            return {}
        name = next(iter(self.machines))
        run = self.alone(name, None, with_others=False)
        return equally_busy(run, self.machines[name].prepared.fabric)

    @cached_property
    def late_groups(self) -> list[int]:
        """Cables of groups whose collectives are late, as :func:`.late_groups` returns them."""
        name = next(iter(self.machines))
        run = self.alone(name, None, with_others=False)
        return late_groups(self.measured.tables, run, self.machines[name].prepared.fabric)

    @cached_property
    def suspected_cables(self) -> tuple[int, ...]:
        """Cables with our messages that are suspected for errors, by their first links."""
        if self.evidence.link_events is None:
            return ()
        name = next(iter(self.machines))
        sent = link_totals(self.alone(name, None, with_others=False), "bytes")
        return suspected_cables(self.evidence, self.machines[name].prepared.fabric, sent)

    @cached_property
    def _log_lateness(self) -> dict[int, float]:
        """Logarithm of the likelihood ratio of late sends, for each suspected cable.

        A slow cable is among the first in the order of what explains late sends in 45 of 58 cases
        (:data:`OWN_SUSPECTS`); any other cable is there by chance.
        """
        sends, cables = self.compare.sends, self.prior().cables
        if sends is None or cables <= OWN_SUSPECTS or not self.suspected_cables:
            return {}
        name = next(iter(self.machines))
        prepared = self.machines[name].prepared
        paths = MessagePaths(prepared.fabric, forwarded_links(prepared.scenario, prepared.fabric))
        first = late_sends(sends, self.alone(name, None), paths)[:OWN_SUSPECTS]
        if not first:
            return {}
        by_chance = OWN_SUSPECTS / cables
        return {
            cable: math.log(AMONG_FIRST / by_chance)
            if cable in first
            else math.log((1.0 - AMONG_FIRST) / (1.0 - by_chance))
            for cable in self.suspected_cables
        }

    def most_probable(self, machines: Iterable[MachineName]) -> list[MachineName]:
        """Machine models by their probability, the most probable first."""
        total = dict.fromkeys(machines, 0.0)
        for weighed in self.posterior().weighed:
            if weighed.hypothesis.machine in total:
                total[weighed.hypothesis.machine] += weighed.probability
        return sorted(total, key=lambda name: -total[name])

    def add_machine(
        self,
        prepared: PreparedScenario,
        log_prior: float,
        *,
        small_buffers: bool = False,
        at_nominal_rates: bool = False,
        evenly: MachineName | None = None,
        algorithm: str = "",
    ) -> MachineModel:
        """Simulate the run without hidden causes, with each arrangement of counted traffic.

        Args:
            prepared: The scenario with the job alone.
            log_prior: Logarithm of the prior probability of the machine model.
            small_buffers: The scenario has smaller buffers than stated, or than the default.
            at_nominal_rates: The scenario has nominal rates where slower ones are stated, or
                counted.
            evenly: As in :class:`.MachineModel`.
            algorithm: As in :class:`.MachineModel`.
        """
        slow = () if at_nominal_rates else counted_slow(self.evidence, prepared.fabric)
        machine = MachineModel(
            prepared,
            log_prior,
            slow,
            small_buffers=small_buffers,
            at_nominal_rates=at_nominal_rates,
            evenly=evenly,
            algorithm=algorithm,
        )
        self.machines[machine.name] = machine
        slow = self._slow_as_measured(machine)
        machine = replace(machine, slow=slow)
        self.machines[machine.name] = machine
        machine = replace(machine, sensitivity=self.sensitivity_to_settings(machine, slow))
        self.machines[machine.name] = machine
        for bursts in self.arrangements:
            self.add(machine, self.alone(machine.name, bursts), slow, bursts)
        for _ in range(BETWEEN if len(self.arrangements) > 1 else 0):
            between = self._between(machine)
            if between is None:
                break
            self.add(machine, self.alone(machine.name, between), slow, between)
        return machine

    def _slow_as_measured(self, machine: MachineModel) -> Slow:
        """Slow cables of counters, no slower than the measured time allows.

        Rates that counters show have intervals, in which they rise as far as the time asks.
        """
        alone_ps = self.alone(machine.name, None, with_others=False).elapsed_ps
        if not machine.slow or alone_ps <= self.inside_ps:
            return machine.slow
        fabric = machine.prepared.fabric

        def elapsed_ps(upwards: float) -> int:
            slow = counted_slow(self.evidence, fabric, upwards)
            return self.simulated(machine.prepared, slow).elapsed_ps

        upwards = raised_rates(alone_ps, self.inside_ps, elapsed_ps)
        return counted_slow(self.evidence, fabric, upwards)

    def sensitivity_to_settings(self, machine: MachineModel, slow: Slow) -> dict[str, float]:
        """Misfit that unknown engine settings cause with these slow cables, by kind of evidence."""
        if not self.recorded_on(machine.prepared):
            return {}

        def simulate() -> tuple[dict[str, float], bool]:
            prepared = machine.prepared
            as_stated = (
                self.alone(machine.name, None, with_others=False)
                if slow == machine.slow
                else self.simulated(prepared, slow)
            )
            # Where a message keeps its path, chance decides which messages meet.
            drawn = routing_choice(prepared) in ("per message", "ecmp")
            others = [
                self.simulated(prepared, slow, settings, seed_offset=number * drawn)
                for number, settings in enumerate(SETTINGS, 1)
            ]
            shared = any(run.adapters_shared for run in (as_stated, *others))
            return self.compare.between(as_stated, others), shared

        conditions = machine.conditions.with_change("settings", slow)
        return self.predictions.find_or(conditions, simulate)

    def add_noise_in_calls(self) -> None:
        """Let every hypothesis have interruptions inside calls, as computations show them.

        They take the same share of the transfers in calls as of computations: a rank that waits
        for another loses nothing by one.
        """
        computing = self.measured.measured.part("computation")
        calling = self.measured.measured.part("transfer")
        for name, machine in self.machines.items():
            noise = max(
                self.alone(name, None, with_others=False).elapsed_ps - self._quiet(machine), 0
            )
            self.noise_in_calls_ps[name] = round(noise * calling / max(computing, 1))

    def _quiet(self, machine: MachineModel) -> int:
        """Time of our job alone with every computation at its undisturbed time, ps."""

        def simulate() -> tuple[int, bool]:
            quiet = without_noise(machine.prepared.observed.program)
            evaluate = make_simulation(machine.prepared, threads=self.threads)
            run = evaluate(Change(slow=machine.slow, program=quiet))
            return run.elapsed_ps, run.adapters_shared

        return self.predictions.find_or(machine.conditions.with_change("quiet"), simulate)

    def outcome_of(self, machine: MachineModel, run: Run) -> Outcome:
        """Prediction of a simulation with this machine model."""
        return replace(self.compare(run), sensitivity=machine.sensitivity)

    def with_cause(self, machine: MachineModel, bursts: int | None, run: Run) -> Outcome:
        """The same for a simulation with a hidden cause."""
        change = self.compare.between(run, [self.alone(machine.name, bursts)])
        return replace(self.outcome_of(machine, run), change=change)

    def predicted(
        self,
        machine: MachineModel,
        bursts: int | None,
        change: Change,
        evaluate: Evaluate,
        *,
        causes: bool = True,
        coarse: int | None = None,
    ) -> Outcome:
        """Prediction of a change of this machine model, simulated unless known.

        Args:
            machine: The machine model.
            bursts: Bursts of counted traffic of other jobs.
            change: The change: slow links, limited ones, or other engine settings.
            evaluate: Simulates changes of the machine model with that traffic.
            causes: Whether to predict what the change brings about, too.
            coarse: Size of coarse packets in ``evaluate``, bytes; None: full ones.
        """
        without = self.alone(machine.name, bursts) if causes else None

        def simulate() -> tuple[Outcome, bool]:
            run = evaluate(replace(change, measure=self.compare.of_links, totals_only=True))
            outcome = self.compare(run)
            if without is not None:
                outcome = replace(outcome, change=self.compare.between(run, [without]))
            return outcome, run.adapters_shared

        # Runs without hidden causes are kept, so no other has the number of one.
        conditions = machine.conditions.with_change(
            "outcome",
            bursts,
            coarse,
            None if without is None else id(without),
            change.slow,
            change.limits,
            change.variation,
            change.computations,
        )
        outcome = self.predictions.find_or(conditions, simulate)
        return replace(outcome, sensitivity=machine.sensitivity)

    def _between(self, machine: MachineModel) -> int | None:
        """Number of bursts between two whose simulated times enclose the measured time.

        One of the two is the most probable number; None if there is no number between them.
        """
        mine = [
            hypothesis
            for hypothesis in self.hypotheses
            if hypothesis.machine == machine.name and hypothesis.bursts
        ]
        mine.sort(key=lambda hypothesis: hypothesis.bursts or 0)
        likely = self.likely_bursts(machine)
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
    def arrangements(self) -> tuple[int | None, ...]:
        """Bursts with which counted traffic is simulated; only None if there is none."""
        return (None,) if self.others.traffic is None else BURSTS

    def add(
        self,
        machine: MachineModel,
        prediction: Outcome | Run,
        slow: Slow,
        bursts: int | None,
        job: Draw | None = None,
    ) -> None:
        """Add a hypothesis without an unexplained fault.

        Args:
            machine: The machine model.
            prediction: Its simulation, or what that predicts.
            slow: Its slow cables.
            bursts: The bursts of counted traffic.
            job: Its unknown job.
        """
        outcome = (
            prediction if isinstance(prediction, Outcome) else self.outcome_of(machine, prediction)
        )
        prior = machine.log_prior - math.log(len(self.arrangements))
        alone = self.alone(machine.name, bursts).elapsed_ps
        self.hypotheses.append(
            Hypothesis(machine.name, outcome, slow, bursts, job, log_prior=prior, alone_ps=alone)
        )

    def likely_bursts(self, machine: MachineModel) -> int | None:
        """Most probable number of bursts of counted traffic with a machine model."""
        mine = [
            weighed
            for weighed in self.posterior().weighed
            if weighed.hypothesis.machine == machine.name
        ]
        return mine[0].hypothesis.bursts if mine else None

    def at_places(self, name: MachineName, place: Hashable) -> list[Hypothesis]:
        """Hypotheses with slow cables at these places, the most probable first."""
        model, prior = self.posterior().model, self.prior()
        mine = [
            hypothesis
            for hypothesis in self.hypotheses
            if hypothesis.machine == name and hypothesis.places(prior.reverse) == place
        ]
        return sorted(mine, key=lambda hypothesis: -log_probability(hypothesis, model, prior))

    def simulated(
        self,
        prepared: PreparedScenario,
        slow: Slow,
        settings: EngineVariation | None = None,
        *,
        measure: bool = False,
        seed_offset: int = 0,
    ) -> Run:
        """Simulate a scenario with slow cables, and with other settings of the engine.

        ``measure``: with all telemetry, not only what evidence is compared with. ``seed_offset``:
        how far the seed of chance is from that of the scenario.
        """
        simulate = make_simulation(prepared, threads=self.threads)
        change = Change(
            slow=within_engine(slow),
            variation=settings,
            seed_offset=seed_offset,
            computations=True,
            measure=measure or self.compare.of_links,
            totals_only=not measure,
        )
        return simulate(change)
