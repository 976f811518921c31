"""Search for an explanation of a measured run: hypotheses are proposed, simulated and compared.

Every hypothesis is simulated at packet level. The posterior over all of them
(:mod:`tailback.inference.hypotheses`) gives the probability of each, and that of a fault which none
of them contains. Hypotheses are added while the latter is large. The constants below bound the
number of simulations; they decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from tailback.budget import fits, leave_out, optional
from tailback.diagnosis.cable_search import (
    FIRST_SHARES,
    MAX_SHARE,
    MIN_SHARE,
    CableSearch,
    Outcome,
    no_alternatives,
)
from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink, within_engine
from tailback.fabric.model import Fabric
from tailback.inference.coarse_ranking import (
    MIN_SUSPECTS,
    CoarseRanking,
    coarse_size,
    one_stands_out,
    rank,
)
from tailback.inference.derived_hypotheses import WITHIN_ERROR
from tailback.inference.error_model import MISFIT_ERROR
from tailback.inference.hashed_flows import add_hashed_flows
from tailback.inference.hypotheses import (
    FAULT,
    UNUSUAL,
    Hypothesis,
    MachineName,
    Posterior,
    SlowerMachine,
)
from tailback.inference.hypothesis_space import OWN_SUSPECTS, SEARCH_EVENTS, HypothesisSpace
from tailback.inference.machine_models import (
    DELAYS,
    OTHER_ALGORITHMS,
    OTHER_ROUTING,
    MachineModel,
    at_nominal_rates,
    longer_delays,
    slower_network,
    with_algorithm,
    with_progress_in_calls,
    with_routing,
    with_small_buffers,
    without_tables,
)
from tailback.inference.measured_cables import (
    MeasuredCableTrials,
    MessagePaths,
    busy_cables_ps,
    cable_suspects,
    links_in_series,
    parallel_links,
    stall_clues,
)
from tailback.inference.network_clues import (
    Slow,
    is_lossy,
    routing_is_stated,
)
from tailback.inference.unknown_job_search import UnknownJobSearch
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.evaluate import make_simulation
from tailback.simulation.routes import forwarded_links

MIN_TRIALS, MAX_TRIALS = 12, 160
"""Minimum and maximum number of simulations in that search, however long each takes."""

SUSPECTS_PER_ROUTING = 12
"""Cables to try with each of them, and with the second kind of adapters. With up to three
simulations per cable, this takes less than half as long as the first search; the right cable is
among the best of the first search even if its adapters or its routing are wrong."""

AVOIDED_FITTED = 3
"""Links that adaptive routing seems to avoid whose rates are fitted as soon as they are tried: half
of :data:`OWN_SUSPECTS`."""

TRIALS_PER_SUSPECT, REFINING_TRIALS = 2, 72
"""Maximum number of simulations to screen a suspect, and, of all searches with one machine model,
to fit rates: for the best six cables, four to reach the measured time and four around it, and as
many for single directions."""

DOUBTFUL_TRIALS = 18
"""The same as the latter if the time is explained and only the times of calls and sends disagree:
enough for the rates of the best four or so, as most such runs have no slow cable."""

MIN_STRETCHES = 50
"""Minimum number of intervals in MPI calls, over all ranks, to look for a slow cable by times
alone: with fewer, some cable nearly always fits."""

VARIED_CABLES = 2
"""Slow cables, the most probable with each machine model, that are simulated with them, too."""

LOW_SHARES = (0.25, 0.1)
"""Shares of its rate at which a cable with errors is tried for part of the time: a link of four
lanes that retrains may come up with one, and that at a lower speed (QDR for EDR: a tenth)."""


class ExplanationSearch:
    """The search for an explanation of one measured run.

    Args:
        space: The hypotheses, to which the search adds.
        flows_are_hashed: Whether switches are stated to hash flows to paths.
    """

    def __init__(self, space: HypothesisSpace, *, flows_are_hashed: bool = False) -> None:
        self.space = space
        self.flows_are_hashed = flows_are_hashed
        self.unknown_jobs = UnknownJobSearch(space)

    def explained(self, round_robin: PreparedScenario, fifo: PreparedScenario | None) -> Posterior:
        """Add hypotheses until it is probable that the right one is among them.

        Args:
            round_robin: The scenario with the job alone and adapters that serve messages in turn.
            fifo: The same with adapters that send messages one after another; None if the scenario
                states how adapters share their link.
        """
        scenarios = [round_robin] if fifo is None else [round_robin, fifo]
        self.space.progress("comparing kinds of adapters", 0.0)
        for prepared in scenarios:
            if self.space.machines and not self._machine_fits:
                leave_out("other adapters", 0, self.space.simulations_of_machine)
                continue
            self.space.add_machine(prepared, -math.log(len(scenarios)))
        self._add_progress_in_calls(scenarios)
        self._add_other_algorithms(scenarios)
        self._add_unusual_machines(scenarios)
        if not self.space.recorded_on(round_robin):
            return self.space.posterior()
        for machine in list(self.space.machines.values()):
            with optional("slower machine"):
                self._try_slower_machine(machine)
        self.space.progress("searching for slow cables", 0.0)
        self._look_for_causes(self.space.machines.values(), MAX_TRIALS)
        self.space.progress("comparing slow cables", 0.5)
        with optional("slow cables"):
            self._confirm()
        with optional("rates of slow cables"):
            self._try_suspect_cables()
            self._try_cables_with_queues()
            for machine in list(self.space.machines.values()):
                self._try_slow_at_times(machine)
            self._try_cables_in_series()
        if self.space.is_open:
            with optional("engine settings"):
                self._vary_settings_with_cables()
        self.unknown_jobs.try_with_other_adapters()
        self.space.progress("searching for flows that collide", 0.9)
        add_hashed_flows(self.space, scenarios, stated=self.flows_are_hashed)
        if self._routing_is_open(round_robin) and not self.flows_are_hashed:
            self._try_other_routing(round_robin, len(scenarios))
        # Only then: what noise may explain, too, is searched for all the same.
        self.space.add_noise_in_calls()
        return self.space.posterior()

    @property
    def _machine_fits(self) -> bool:
        """Whether the simulations of another machine model fit the budget."""
        return fits(self.space.simulations_of_machine)

    def _add_progress_in_calls(self, scenarios: Sequence[PreparedScenario]) -> None:
        """Add machines whose ranks answer handshakes only in calls, where the evidence can tell.

        Libraries of both kinds are common.
        """
        first = scenarios[0]
        if "progress" in first.scenario.engine.model_fields_set:
            return
        if not self._is_told_apart(with_progress_in_calls(first)):
            return
        for prepared in scenarios:
            if not self._machine_fits:
                leave_out("other adapters", 0, self.space.simulations_of_machine)
                continue
            self.space.add_machine(with_progress_in_calls(prepared), -math.log(len(scenarios)))

    def _add_other_algorithms(self, scenarios: Sequence[PreparedScenario]) -> None:
        """Add machines whose library runs a collective in another way, where evidence can tell."""
        for name in OTHER_ALGORITHMS:
            for number, prepared in enumerate(scenarios):
                other = with_algorithm(prepared, name)
                if other is None or (number == 0 and not self._is_told_apart(other)):
                    break
                if not self._machine_fits:
                    leave_out("other adapters", 0, self.space.simulations_of_machine)
                    continue
                prior = -math.log(len(scenarios))
                self.space.add_machine(other, prior, algorithm=name)

    def _is_told_apart(self, prepared: PreparedScenario) -> bool:
        """Whether the evidence tells a machine from the first one.

        What each predicts differs, or what they differ from the measured run by.
        """
        expected = self.space.alone(next(iter(self.space.machines)), None, with_others=False)
        changed = self.space.simulated(prepared, ())
        misfits = self.space.compare.between(expected, [changed])
        if any(misfit > MISFIT_ERROR[kind] for kind, misfit in misfits.items()):
            return True
        compare, model = self.space.compare, self.space.posterior().model
        ratios = model.log_ratios(compare(changed), compare(expected))
        return any(abs(ratio) > model.charge for ratio in ratios.values())

    def _add_unusual_machines(self, scenarios: Sequence[PreparedScenario]) -> None:
        """Add machines without the stated forwarding tables, or without slow rates.

        Only if the run takes longer than measured with what is stated.
        """
        round_robin = scenarios[0]
        if round_robin.scenario.fabric.forwarding is not None and self.space.takes_too_long:
            for prepared in scenarios:
                self.space.add_machine(without_tables(prepared), math.log(UNUSUAL / len(scenarios)))
        stated = round_robin.fabric.nominal_gbps is not None and self.space.takes_too_long
        if stated or self.space.slowed_too_much:
            for prepared in scenarios:
                prior = math.log(UNUSUAL / len(scenarios))
                self.space.add_machine(at_nominal_rates(prepared), prior, at_nominal_rates=True)

    def _try_other_routing(self, prepared: PreparedScenario, machines: int) -> None:
        """Look for slow cables with other routing, which may not avoid them.

        ``machines``: number of machine models that share the prior probability.
        """
        for routing in OTHER_ROUTING:
            if not (self.space.is_open or self._cable_disagrees):
                continue
            if not self._machine_fits:
                leave_out("other routing", 0, self.space.simulations_of_machine)
                continue
            prior = math.log(UNUSUAL / machines)
            machine = self.space.add_machine(with_routing(prepared, routing), prior)
            with optional("slower machine"):
                self._try_slower_machine(machine)
            self._look_for_causes([machine], SUSPECTS_PER_ROUTING)

    def _try_slower_machine(self, machine: MachineModel) -> None:
        """Add a machine whose links or delays are all slower than stated.

        Where one rank sends or receives nearly all, its cable explains what they explain, and only
        the evidence tells them apart. Delays that the scenario states are taken as known.
        """
        bursts = self.space.likely_bursts(machine)
        alone = self.space.alone(machine.name, bursts).elapsed_ps
        if not self.space.is_open or alone >= self.space.inside_ps:
            return
        prepared = self.space.others.add_to(machine.prepared, bursts)
        evaluate = make_simulation(prepared, threads=self.space.threads)

        def predict(change: Change) -> Outcome:
            return self.space.predicted(machine, bursts, change, evaluate, causes=False)

        tried = [
            (SlowerMachine(rates=share), outcome)
            for share, outcome in slower_network(prepared, alone, self.space.inside_ps, predict)
        ]
        if prepared.scenario.engine.model_fields_set.isdisjoint(DELAYS):
            tried += [
                (SlowerMachine(delays=factor), outcome)
                for factor, outcome in longer_delays(alone, self.space.inside_ps, predict)
            ]
        for slower, outcome in tried if self.space.posterior().model.kinds else ():
            self.space.add(machine, outcome, machine.slow, bursts)
            self.space.hypotheses[-1] = replace(self.space.hypotheses[-1], slower=slower)

    def _try_cables_in_series(self) -> None:
        """Try the links that carry the same messages as the most probable slow one, too.

        Only packets that wait in buffers between them tell them apart, and sizes of buffers are
        unknown: all are tried in a machine model without room for waiting packets.
        """
        posterior = self.space.posterior()
        best = posterior.best
        machine = self.space.machines[best.machine]
        if len(best.slow) != 1 or best.slow == machine.slow:
            return
        (slow,) = best.slow
        run = self.space.alone(best.machine, best.bursts)
        links = links_in_series(slow.link, machine.prepared, run)
        if not links:
            return
        prior = machine.log_prior - posterior.model.charge
        small = self.space.add_machine(
            with_small_buffers(machine.prepared), prior, small_buffers=True
        )
        # The size of buffers is charged as a parameter, so it is no error of the prediction, too.
        small = replace(small, sensitivity=machine.sensitivity)
        for link in (slow.link, *links):
            for both in (True, False):
                self._add_slow(small, (SlowLink(link, slow.gbps, both),), best.bursts)

    def _try_suspect_cables(self) -> None:
        """Try cables with errors that no search tried, so that their cost is known.

        A search has no need of them if the run takes no longer than expected. The rate falls until
        it shows what a fault of the cable would change.
        """
        posterior = self.space.posterior()
        best, model = posterior.best, posterior.model
        machine, reverse = self.space.machines[best.machine], posterior.reverse
        nominal = machine.prepared.fabric.link_gbps

        def shows_a_fault(cable: int) -> bool:
            return any(
                hypothesis.hidden_share(model) >= FAULT
                for hypothesis in self.space.hypotheses
                if hypothesis.machine == machine.name and hypothesis.bursts == best.bursts
                if cable in {min(s.link, int(reverse[s.link])) for s in hypothesis.slow}
            )

        for cable in self.space.suspected_cables:
            for share in (*reversed(FIRST_SHARES), MIN_SHARE):
                if shows_a_fault(cable):
                    break
                slow = SlowLink(cable, share * float(nominal[cable]))
                self._add_slow(machine, (*machine.slow, slow), best.bursts)

    def _try_cables_with_queues(self) -> None:
        """Try cables that had a queue more often than they send at their rates.

        The time alone may need none of them: a program that waits for its computation, or for the
        start of a connection, takes little longer with one.
        """
        queues, best = self.space.prior().queues, self.space.posterior().best
        if queues is None:
            return
        machine, reverse = self.space.machines[best.machine], self.space.prior().reverse
        carrying = np.flatnonzero(
            ~np.isin(np.arange(len(reverse)), list(self.space.prior().elsewhere))
        )
        slow_ends = {end for s in machine.slow for end in (s.link, int(reverse[s.link]))}
        cables = {min(link, int(reverse[link])) for link in carrying.tolist()} - slow_ends
        for slow in queues.suspects(sorted(cables), reverse)[:AVOIDED_FITTED]:
            nominal = float(queues.nominal[slow.link])
            for gbps in (slow.gbps, math.sqrt(slow.gbps * nominal)):
                self._add_slow(machine, (*machine.slow, slow._replace(gbps=gbps)), best.bursts)

    def _try_slow_at_times(self, machine: MachineModel) -> None:
        """Try cables with errors that serve a low rate for a share of the time, as they retrain.

        The prediction is that of two simulations, one with the low rate: of each call's repetitions
        the share that gives the measured time is as with it. That share is a free parameter.
        """
        bursts, reverse = self.space.likely_bursts(machine), self.space.prior().reverse
        run, model = self.space.alone(machine.name, bursts), self.space.posterior().model
        target_ps = model.simulated_ps(self.space.inside_ps)
        if run.elapsed_ps >= target_ps:
            return
        scenario = self.space.others.add_to(machine.prepared, bursts)
        nominal = machine.prepared.fabric.link_gbps
        for cable in self.space.suspected_cables[:OWN_SUSPECTS]:
            directions = ((cable, True), (cable, False), (int(reverse[cable]), False))
            for (link, both), share in product(directions, LOW_SHARES):
                low = SlowLink(link, share * float(nominal[link]), both)
                slow_run = self.space.simulated(scenario, (*machine.slow, low))
                if slow_run.elapsed_ps <= target_ps:
                    continue
                added_ps = slow_run.elapsed_ps - run.elapsed_ps
                at_times = (target_ps - run.elapsed_ps) / added_ps
                outcome = replace(
                    self.space.compare.at_times(run, slow_run, at_times),
                    sensitivity=machine.sensitivity,
                )
                steady = self._steady(machine, low, at_times, target_ps)
                if steady is None:
                    continue
                self.space.add(machine, outcome, steady.slow, bursts)
                last = self.space.hypotheses[-1]
                self.space.hypotheses[-1] = replace(last, log_prior=last.log_prior - model.charge)

    def _steady(
        self, machine: MachineModel, low: SlowLink, at_times: float, target_ps: float
    ) -> Hypothesis | None:
        """The cable at the one rate with which the run takes as long, which stands for it.

        None if no such rate is found: adaptive routing avoids a cable that is always slow.
        """
        space, model = self.space, self.space.posterior().model
        bursts = space.likely_bursts(machine)
        nominal = float(machine.prepared.fabric.link_gbps[low.link])
        # That of a cable that always has packets to send.
        mean = 1.0 / ((1.0 - at_times) / nominal + at_times / low.gbps)
        slow = (*machine.slow, low._replace(gbps=mean))
        place = Hypothesis(machine.name, Outcome(0, {}), slow).places(space.prior().reverse)
        tried = space.at_places(machine.name, place)
        if not any(model.log_time(trial.outcome.elapsed_ps) >= WITHIN_ERROR for trial in tried):
            self._add_slow(machine, slow, bursts)
            tried = space.at_places(machine.name, place)
        nearest = min(tried, key=lambda each: abs(each.outcome.elapsed_ps - target_ps))
        within = model.log_time(nearest.outcome.elapsed_ps) >= WITHIN_ERROR
        return nearest if within else None

    def _look_for_causes(self, machines: Iterable[MachineModel], max_suspects: int) -> None:
        """Add slow cables and an unknown job to the hypotheses.

        Cables are screened with each machine model before any is examined further: with the right
        adapters, the right cable stands out immediately. With the others it is at least among the
        best. A few suspects come first, with each machine model.
        """
        names = self.space.most_probable(machine.name for machine in machines)
        # The time alone says little: adapters of another kind may cost as much as one slow cable.
        # Where packets are dropped, calls of healthy runs disagree as much: see unsimulated.
        posterior = self.space.posterior()
        doubtful = not (posterior.agrees or posterior.model.lossy)
        n_suspects = len(self.space.suspected_cables)
        first = OWN_SUSPECTS + n_suspects if doubtful or self.space.is_open else n_suspects
        searches = self._screened(names if first else [], first)
        if not any(search.is_conclusive for search in searches.values()):
            searches |= self._screened(names, max_suspects, only_if_open=True)
        for name in self.space.most_probable(names):
            search = searches.get(name)
            if search is not None and (doubtful or self.space.is_open or self._likely_slow(name)):
                with optional("rates of slow cables"):
                    search.refine()
                self._add_trials(self.space.machines[name], search)
            # A cable that another job loads looks like a slow one: both are tried.
            if self.space.is_open or search is not None:
                self.unknown_jobs.try_with(self.space.machines[name])

    def _screened(
        self, names: Sequence[MachineName], max_suspects: int, *, only_if_open: bool = False
    ) -> dict[MachineName, CableSearch]:
        """Screen slow cables with machine models in this order, until one is conclusive.

        Args:
            names: The machine models.
            max_suspects: Maximum number of cables to try with each.
            only_if_open: Whether to stop when a fault that was not found is improbable.

        Returns:
            The searches by machine model; only the conclusive one if there is one.
        """
        searches: dict[MachineName, CableSearch] = {}
        among: tuple[int, ...] = ()
        for name in names:
            machine = self.space.machines[name]
            if only_if_open and not self.space.is_open:
                break
            search = None
            with optional("slow cables"):
                search = self._cable_search(machine, max_suspects, among, OWN_SUSPECTS)
            if search is None:
                continue
            searches[name] = search
            with optional("slow cables"):
                search.screen(self.space.progress)
            self._add_trials(machine, search)
            among = search.likeliest(SUSPECTS_PER_ROUTING)
            if search.is_conclusive:
                return {name: search}
        return searches

    def _likely_slow(self, name: MachineName) -> bool:
        """Whether slow cables are credible with a machine model."""
        slow = self.space.machines[name].slow
        likely = [weighed.hypothesis for weighed in self.space.posterior().credible()]
        return any(hypothesis.machine == name and hypothesis.slow != slow for hypothesis in likely)

    def _add_trials(self, machine: MachineModel, search: CableSearch) -> None:
        """Add what a search tried since this was last called."""
        for trial in search.latest():
            self.space.add(machine, trial.outcome, trial.cables, search.trials.bursts)

    def _cable_search(
        self,
        machine: MachineModel,
        max_suspects: int,
        among: tuple[int, ...] = (),
        n_likeliest: int = 0,
    ) -> CableSearch | None:
        """Search for slow cables together with counted traffic.

        Args:
            machine: The machine model.
            max_suspects: Maximum number of cables to try.
            among: The only cables to try, and the most likely ones with this machine model; empty:
                all.
            n_likeliest: Number of the most likely ones.
        """
        if self.space.evidence.counters is None and self.space.profile.count.sum() < MIN_STRETCHES:
            return None
        bursts = self.space.likely_bursts(machine)
        run = self.space.alone(machine.name, bursts)
        if machine.slow or run.elapsed_ps >= self.space.inside_ps:
            return None
        fabric = machine.prepared.fabric
        each = max(int(run.summary["events"]), 1)
        budget = min(max(SEARCH_EVENTS // each, MIN_TRIALS), max_suspects)
        clues = stall_clues(self.space.evidence.counters, run, fabric)
        if machine.prepared.scenario.fabric.forwarding is not None:
            clues = replace(clues, avoided=())  # Static routes avoid nothing.
        paths = MessagePaths(fabric, forwarded_links(machine.prepared.scenario, fabric))
        faulty = self.space.suspected_cables
        sends, late = self.space.compare.sends, self.space.late_groups
        suspects = cable_suspects(sends, run, clues, paths, budget, faulty, late)
        if among:
            suspects = list(dict.fromkeys([*suspects[:n_likeliest], *among]))
        alike = self.space.first_alike
        suspects = list(dict.fromkeys(alike.get(cable, cable) for cable in suspects))
        prior = self.space.prior()
        suspects = [
            cable
            for cable in suspects
            if prior.least_rate(cable, both=True) < MAX_SHARE * fabric.link_gbps[cable]
        ]
        if not suspects:
            return None
        considered, most = len(suspects), TRIALS_PER_SUSPECT * len(suspects)
        ranking = self._ranked(machine, run, suspects, most)
        if ranking is not None:
            self.space.rankings.append(ranking)
            suspects, most = ranking.suspects, most - ranking.trials
        evaluate = make_simulation(
            self.space.others.add_to(machine.prepared, bursts), threads=self.space.threads
        )
        trials = MeasuredCableTrials(
            predict=partial(self.space.predicted, machine, bursts, evaluate=evaluate),
            model=self.space.posterior().model,
            prior=self.space.prior(),
            healthy=self.space.outcome_of(machine, run),
            nominal=np.asarray(fabric.link_gbps, np.float64),
            bursts=bursts,
            most_trials=most + (REFINING_TRIALS if self.space.is_open else DOUBTFUL_TRIALS),
            avoided=_cables(clues.avoided[:AVOIDED_FITTED], fabric),
            busy_ps=busy_cables_ps(run, fabric),
        )
        return CableSearch(
            trials,
            suspects,
            np.asarray(fabric.link_reverse, np.int64),
            no_alternatives if alike else partial(parallel_links, fabric),
            [*clues.avoided[:AVOIDED_FITTED], *clues.ahead],
            considered,
        )

    def _ranked(
        self, machine: MachineModel, run: Run, suspects: list[int], most_trials: int
    ) -> CoarseRanking | None:
        """The likely ones of many suspects, by simulations in coarse packets.

        None if they are few, or if no cable tried so far clearly fits better than none: then
        coarse packets would not tell them apart.
        """
        size = coarse_size(run, machine.prepared.scenario.engine)
        if size is None or len(suspects) <= MIN_SUSPECTS:
            return None
        model, healthy = self.space.posterior().model, self.space.outcome_of(machine, run)
        tried = [
            hypothesis.outcome
            for hypothesis in self.space.hypotheses
            if hypothesis.machine == machine.name and hypothesis.slow != machine.slow
        ]
        if not one_stands_out(tried, healthy, model):
            return None
        bursts = self.space.likely_bursts(machine)
        scenario = self.space.others.add_to(machine.prepared, bursts).with_coarse_packets(size)
        evaluate = make_simulation(scenario, threads=self.space.threads)
        predict = partial(
            self.space.predicted, machine, bursts, evaluate=evaluate, causes=False, coarse=size
        )
        trials = MeasuredCableTrials(
            predict=predict,
            model=model,
            prior=self.space.prior(),
            healthy=predict(Change(computations=True)),
            nominal=np.asarray(machine.prepared.fabric.link_gbps, np.float64),
            most_trials=most_trials,
            busy_ps=busy_cables_ps(run, machine.prepared.fabric),
        )
        return rank(trials, suspects, size, self.space.progress)

    def _confirm(self) -> None:
        """Simulate the most probable slow cables with other machine models and other bursts.

        If the search is still open, the best are tried even if they are not credible: the right
        cable may agree badly with the wrong adapters.
        """
        posterior, still_open = self.space.posterior(), self.space.is_open
        likely = posterior.weighed if still_open else posterior.credible()
        reverse = posterior.reverse
        cables = [
            weighed.hypothesis
            for weighed in likely
            if weighed.hypothesis.slow and not self.space.machines[weighed.hypothesis.machine].slow
        ]
        if still_open:
            places = {hypothesis.places(reverse): hypothesis for hypothesis in reversed(cables)}
            cables = [
                hypothesis
                for hypothesis in cables
                if places[hypothesis.places(reverse)] is hypothesis
            ][:VARIED_CABLES]
        if not cables:
            return
        links = dict.fromkeys(
            min(s.link, int(reverse[s.link])) for hypothesis in cables for s in hypothesis.slow
        )
        for name, machine in self.space.machines.items():
            tried = {
                min(s.link, int(reverse[s.link]))
                for hypothesis in self.space.hypotheses
                if hypothesis.machine == name
                for s in hypothesis.slow
            }
            untried = tuple(link for link in links if link not in tried)
            if not untried or (tried and not still_open):
                continue
            search = self._cable_search(machine, MAX_TRIALS, untried)
            if search is not None:
                try:
                    search.screen()
                    search.refine()
                finally:
                    self._add_trials(machine, search)
        best = cables[0]
        machine = self.space.machines[best.machine]
        for bursts in self.space.arrangements:
            if bursts != best.bursts:
                self._add_slow(machine, best.slow, bursts)

    def _add_slow(self, machine: MachineModel, slow: Slow, bursts: int | None) -> None:
        """Add slow cables at these rates to the hypotheses, unless counters contradict them."""
        slow, prior = within_engine(slow), self.space.prior()
        if any(link.gbps < prior.least_rate(link.link, both=link.both) for link in slow):
            return
        evaluate = make_simulation(
            self.space.others.add_to(machine.prepared, bursts), threads=self.space.threads
        )
        change = Change(slow=slow, computations=True)
        self.space.add(
            machine, self.space.predicted(machine, bursts, change, evaluate), slow, bursts
        )

    def _vary_settings_with_cables(self) -> None:
        """Measure how sensitive runs with the most probable slow cables are to unknown settings.

        Ranks that wait for a slow cable send at other moments, so in another order.
        """
        reverse = self.space.prior().reverse
        for name, machine in self.space.machines.items():
            likely = dict.fromkeys(
                weighed.hypothesis.places(reverse)
                for weighed in self.space.posterior().weighed
                if weighed.hypothesis.machine == name and weighed.hypothesis.slow != machine.slow
            )
            tried = [self.space.at_places(name, place)[0] for place in list(likely)[:VARIED_CABLES]]
            misfits = [
                self.space.sensitivity_to_settings(machine, hypothesis.slow) for hypothesis in tried
            ]
            if not misfits:
                continue
            mean = {
                kind: max(sum(misfit.get(kind, 0.0) for misfit in misfits) / len(misfits), least)
                for kind, least in machine.sensitivity.items()
            }
            self.space.hypotheses = [
                replace(hypothesis, outcome=replace(hypothesis.outcome, sensitivity=mean))
                if hypothesis.machine == name and hypothesis.slow != machine.slow
                else hypothesis
                for hypothesis in self.space.hypotheses
            ]

    @property
    def _cable_disagrees(self) -> bool:
        """Whether the run is explained by slow cables of which none agrees as well as usual."""
        posterior = self.space.posterior()
        added = posterior.best.slow != self.space.machines[posterior.best.machine].slow
        return added and not posterior.slow_cable_agrees

    def _routing_is_open(self, prepared: PreparedScenario) -> bool:
        """Whether switches may route differently than simulated, and counters can show it."""
        counted = self.space.evidence.counters is not None and not is_lossy(
            self.space.evidence, prepared.fabric
        )
        return counted and not routing_is_stated(prepared)


def _cables(links: Iterable[int], fabric: Fabric) -> frozenset[int]:
    """The cables of links, by the first link of each."""
    return frozenset(min(link, int(fabric.link_reverse[link])) for link in links)
