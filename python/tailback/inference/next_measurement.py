"""The measurement that would tell most about the cause of a run, by expected information.

Each possible measurement is a channel: the probability of every outcome under every account of the
run. Outcomes that depend on which cable is slow are simulated. The information that a measurement
is expected to give is the mutual information of account and outcome (Lindley 1956): by how many
bits the entropy over the accounts would fall on average. What the measurement costs is left aside.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.budget import optional
from tailback.diagnosis.explanation import MeasurementKind, NextMeasurement
from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink
from tailback.fabric.model import Fabric
from tailback.inference import explain_wording as wording
from tailback.inference.comparisons import PortBytes, PortStalls, stall_error_ps
from tailback.inference.decision import ASSUMED, UNEXPLAINED
from tailback.inference.error_model import MISFIT_ERROR, OBSERVATIONS
from tailback.inference.hypotheses import LIKELY, NAMED, UNUSUAL, Hypothesis, Posterior
from tailback.inference.hypothesis_space import SEARCH_EVENTS, HypothesisSpace
from tailback.inference.machine_models import with_routing
from tailback.inference.network_clues import between_switches, is_lossy, routing_is_stated
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.evaluate import make_simulation

SLOW_ELSEWHERE, UNSEEN_TRAFFIC, SLOWER, OTHERWISE = (
    "slow elsewhere",
    "unseen traffic",
    "slower machine",
    "otherwise",
)
"""What a cause may be that the evidence does not show. Nothing says which of the first two and the
last is more likely, so they are equally so; the third has a probability."""

AS_ALONE: Final = "as alone"
"""Outcome of a measurement that shows nothing: that of the run without hidden causes."""

DIGITS: Final = 2
"""Digits of information after the point: of measurements that tell as much, the first is taken."""


@dataclass(frozen=True)
class Measurement:
    """A measurement that may be made.

    Attributes:
        kind: What is measured.
        text: What it shows and how to pass it, as a clause.
        command: The command that makes it, as words.
        output: File for what the command prints; empty if it writes its own.
        subjects: Names of the links or hosts that it is of; empty for all.
        asked: Whether it is worth making whatever the verdict is.
    """

    kind: MeasurementKind
    text: str
    command: tuple[str, ...]
    output: str = ""
    subjects: tuple[str, ...] = ()
    asked: bool = False


@dataclass(frozen=True)
class Account:
    """One account of the run: a cause, a place of a slow cable, or what the evidence does not show.

    Attributes:
        name: Its cause, or one of those that the evidence does not show.
        probability: Its probability.
        hypothesis: The simulated hypothesis of a slow cable; None for other accounts.
    """

    name: str
    probability: float
    hypothesis: Hypothesis | None = None

    @property
    def label(self) -> Hashable:
        """What identifies it among the outcomes of measurements."""
        return (self.name, self.hypothesis.slow) if self.hypothesis is not None else self.name


def possible_measurements(
    space: HypothesisSpace,
    prepared: PreparedScenario,
    *,
    assumed_hosts: bool,
    candidates: Sequence[SlowLink],
    counted: bool,
    pairs: str,
) -> list[Measurement]:
    """Measurements that were not made, those that take least effort first.

    Args:
        space: The hypotheses, with the evidence.
        prepared: The scenario of the most probable machine model.
        assumed_hosts: Whether the hosts of the ranks are an assumption.
        candidates: Cables of which one may be slow, by a link of each, the likeliest first.
        counted: Whether counters are of the cables that may be slow.
        pairs: Why hosts should be measured in pairs, as a clause; empty: nothing in particular.
    """
    evidence, fabric = space.evidence, prepared.fabric
    others = evidence.others
    cables = tuple(fabric.link_name(cable.link) for cable in candidates)
    infiniband = fabric.link_interface is None
    numbers = dict.fromkeys(fabric.node_host[prepared.observed.node].tolist())
    hosts = tuple(fabric.host_name[host] for host in numbers)
    out: list[Measurement] = []
    if assumed_hosts:
        out.append(
            Measurement(
                "hosts",
                wording.missing_evidence("hosts"),
                ("srun", "-l", "hostname"),
                "hosts.txt",
                asked=True,
            )
        )
    if evidence.jobs is None:
        unnamed = others is not None and bool(others.jobs)
        text = wording.missing_evidence("jobs")
        out.append(Measurement("jobs", text, LIST_JOBS, "jobs.txt", asked=unnamed))
    section = prepared.scenario.fabric
    several = section.topology is None and bool(between_switches(fabric).any())
    if infiniband and section.forwarding is None and several:
        text, asked = wording.missing_evidence("forwarding"), bool(cables)
        out.append(Measurement("forwarding", text, ("dump_lfts.sh",), "lfts.txt", asked=asked))
    if infiniband and evidence.link_events is None and cables:
        read, text = ("ibqueryerrors", "--data"), wording.ERRORS_OF_CABLES
        out.append(Measurement("errors", text, read, "errors.txt", cables))
    if evidence.counters is None:
        text = wording.missing_evidence("counters")
        out.append(Measurement("counters", text, COLLECT, asked=True))
    elif not counted:
        text = wording.COUNTERS_OF_CABLES
        out.append(Measurement("counters", text, COLLECT, subjects=cables, asked=True))
    if len(hosts) > 1:
        text = pairs or wording.SLOW_SOMEWHERE
        suspects = [host for host in _hosts_of(candidates, fabric) if host in hosts]
        tested = suspects[0] if suspects else hosts[1]
        test = ("ib_write_bw",) if infiniband else ("iperf3", "-c")
        out.append(Measurement("pairs", text, (*test, tested), subjects=hosts, asked=bool(pairs)))
        moved = (*hosts[1:], hosts[0])
        again = ("tailback", "record", "--out", "shifted", "--", "mpirun", "--host")
        command = (*again, ",".join(moved), "PROGRAM")
        out.append(Measurement("second-run", wording.SECOND_RUN, command, subjects=moved))
    return out


def _hosts_of(cables: Iterable[SlowLink], fabric: Fabric) -> list[str]:
    """Names of the hosts at the ends of cables, in their order."""
    ends = [int(end[cable.link]) for cable in cables for end in (fabric.link_src, fabric.link_dst)]
    return [fabric.host_name[fabric.node_host[end]] for end in ends if end < fabric.n_nodes]


LIST_JOBS: Final = (
    *("env", "SLURM_TIME_FORMAT=%s", "sacct", "-a", "-X", "--parsable2"),
    *("-o", "JobID,Start,End,State,NodeList"),
)
"""Command that lists the jobs of a machine."""

COLLECT: Final = ("tailback", "collect", "--out", "counters", "--interval", "1 s")
"""Command that reads the counters of all ports."""


@dataclass(frozen=True)
class MeasurementChoice:
    """Chooses among measurements by what each would tell about the cause.

    Attributes:
        space: The hypotheses.
        posterior: Their probabilities.
        possible: The measurements, those that take least effort first.
    """

    space: HypothesisSpace
    posterior: Posterior
    possible: Sequence[Measurement] = ()
    runs: dict[Hashable, Run] = field(default_factory=dict)
    """Simulations of outcomes, by measurement and slow cables."""

    def ranked(self, chances: Mapping[str, float]) -> list[tuple[float, Measurement]]:
        """The measurements by expected information in bits, the largest first.

        Args:
            chances: Probability that each cause is the main one, of ``healthy``, and of
                ``unexplained``.
        """
        accounts = self.accounts(chances)
        probability = np.array([account.probability for account in accounts])
        bits = [
            round(information(probability, self._channel(measurement.kind, accounts)), DIGITS)
            for measurement in self.possible
        ]
        return sorted(zip(bits, self.possible, strict=True), key=lambda pair: -pair[0])

    def best(self, ranked: Sequence[tuple[float, Measurement]]) -> NextMeasurement | None:
        """The measurement with most information; None if none tells anything."""
        if not ranked or ranked[0][0] <= 0.0:
            return None
        bits, measurement = ranked[0]
        return NextMeasurement(
            kind=measurement.kind,
            subjects=list(measurement.subjects),
            bits=bits,
            command=list(measurement.command),
            output=measurement.output,
            text=measurement.text,
        )

    def accounts(self, chances: Mapping[str, float]) -> list[Account]:
        """All accounts of the run with their probabilities, which sum to 1."""
        out = [
            Account(name, chance)
            for name, chance in chances.items()
            if name not in ("slow-link", UNEXPLAINED)
        ]
        slow, places = chances.get("slow-link", 0.0), self._places
        total = sum(weight for weight, _ in places)
        out += [Account("slow-link", slow * weight / total, each) for weight, each in places]
        if not places:
            out.append(Account("slow-link", slow))
        unexplained = chances.get(UNEXPLAINED, 0.0)
        slower = min(self.posterior.slower_machine[0], unexplained)
        out.append(Account(SLOWER, slower))
        out += [
            Account(name, (unexplained - slower) / 3.0)
            for name in (SLOW_ELSEWHERE, UNSEEN_TRAFFIC, OTHERWISE)
        ]
        return out

    @cached_property
    def _places(self) -> list[tuple[float, Hypothesis]]:
        """The most probable places of slow cables: probability, and a simulated hypothesis."""
        weight: dict[Hashable, float] = {}
        hypotheses: dict[Hashable, Hypothesis] = {}
        machine = self.posterior.best.machine
        for weighed in self.posterior.weighed:
            hypothesis = weighed.hypothesis
            place = hypothesis.places(self.posterior.reverse)
            if not place or not self.posterior.is_named(hypothesis):
                continue
            weight[place] = weight.get(place, 0.0) + weighed.probability
            if hypothesis.machine == machine:
                hypotheses.setdefault(place, hypothesis)
        likely = sorted(hypotheses, key=lambda place: -weight[place])[:NAMED]
        return [(max(weight[place], 1e-12), hypotheses[place]) for place in likely]

    def _channel(self, kind: MeasurementKind, accounts: Sequence[Account]) -> Floats:
        """Probability of each outcome of a measurement under each account, shape (A, O)."""
        if kind == "jobs":
            # Other jobs that are not the cause are listed as likely as not.
            traffic = [account.name in ("other-traffic", UNSEEN_TRAFFIC) for account in accounts]
            listed = np.where(traffic, 1.0 - UNUSUAL, LIKELY)
            return np.stack([listed, 1.0 - listed], axis=1)
        labels = [self._label(kind, account) for account in accounts]
        outcomes = list(dict.fromkeys([AS_ALONE, *(label for label in labels if label)]))
        likeness = self._likeness(kind, accounts)
        nothing = np.array([float(other == AS_ALONE) for other in outcomes])
        rows = []
        for account, label in zip(accounts, labels, strict=True):
            if label is None:
                rows.append(np.ones(len(outcomes)) / len(outcomes))
                continue
            row = np.array(
                [likeness.get((label, other), float(label == other)) for other in outcomes]
            )
            row /= row.sum()
            if self._may_be_missed(kind, account):
                row = LIKELY * row + (1.0 - LIKELY) * nothing
            rows.append(row)
        right = (1.0 - UNUSUAL) * (ASSUMED if self._hosts_are_open and kind != "hosts" else 1.0)
        return right * np.stack(rows) + (1.0 - right) / len(outcomes)

    @property
    def _hosts_are_open(self) -> bool:
        """Whether the hosts of the ranks are an assumption, without which links say little."""
        return any(measurement.kind == "hosts" for measurement in self.possible)

    def _may_be_missed(self, kind: MeasurementKind, account: Account) -> bool:
        """Whether a measurement shows what is the cause only as likely as not.

        Not every damaged cable counts errors, a trace alone does not show every cause, and the
        packets of a pair of hosts may take other ones of parallel cables.
        """
        if kind != "pairs" or account.hypothesis is None:
            return kind in ("errors", "hosts")
        fabric = self.space.machines[self.posterior.best.machine].prepared.fabric
        links = [slow.link for slow in account.hypothesis.slow]
        return bool(between_switches(fabric)[links].any())

    def _label(self, kind: MeasurementKind, account: Account) -> Hashable:
        """Outcome of a measurement under an account; None if anything may come of it."""
        name = account.name
        if name == OTHERWISE or (name == SLOW_ELSEWHERE and kind in ("forwarding", "second-run")):
            return None
        if name in ("slow-link", SLOW_ELSEWHERE):
            return account.label
        if name in ("other-traffic", UNSEEN_TRAFFIC):
            # It is counted while it flows, and another run is without it.
            shown = kind in ("hosts", "counters", "second-run")
            return "other-traffic" if shown else AS_ALONE
        if name == SLOWER and kind == "pairs":
            return SLOWER
        return AS_ALONE

    def _likeness(
        self, kind: MeasurementKind, accounts: Sequence[Account]
    ) -> dict[tuple[Hashable, Hashable], float]:
        """How likely one slow cable, or none, is taken for another by a measurement.

        The likelihood of the outcome that one predicts under the other. Empty where each shows
        itself: in queues of a lossy network, in errors, and where pairs are tested. Too large
        simulations, and those beyond a budget, are not made: then, too, each is taken to show
        itself.
        """
        cables = [account for account in accounts if account.hypothesis is not None]
        machine = self.space.machines[self.posterior.best.machine]
        lossy = is_lossy(self.space.evidence, machine.prepared.fabric)
        simulated = kind in ("forwarding", "second-run") or (kind == "counters" and not lossy)
        alone = self.space.alone(machine.name, None, with_others=False)
        events = int(alone.summary.get("events", 0)) * (len(cables) + 1)
        if not (simulated and cables) or events > SEARCH_EVENTS:
            return {}
        runs: dict[Hashable, Run] = {}
        with optional("next measurement"):
            runs[AS_ALONE] = self._outcome(kind, None)
            for account in cables:
                runs[account.label] = self._outcome(kind, account.hypothesis)
        if len(runs) <= len(cables):
            return {}
        return {
            (truth, other): self._likelihood(kind, runs[truth], runs[other])
            for truth, other in product(runs, runs)
        }

    def _outcome(self, kind: MeasurementKind, hypothesis: Hypothesis | None) -> Run:
        """The run as it would be when the measurement is made."""
        name = self.posterior.best.machine
        prepared = self.space.machines[name].prepared
        slow = self.space.machines[name].slow if hypothesis is None else hypothesis.slow
        placement = None
        if kind == "forwarding":
            prepared = with_routing(prepared, "deterministic")
        elif kind == "second-run":
            placement = shifted(prepared)
        key = kind, slow
        if key not in self.runs:
            simulate = make_simulation(prepared, threads=self.space.threads)
            change = Change(
                slow=slow,
                placement=placement,
                placement_name="shifted" if placement is not None else "",
                computations=True,
                measure=True,
                totals_only=True,
            )
            self.runs[key] = simulate(change)
        return self.runs[key]

    def _likelihood(self, kind: MeasurementKind, truth: Run, other: Run) -> float:
        """Likelihood of what one run would show under another one, 1 for the same."""
        if truth is other:
            return 1.0
        if kind == "counters":
            misfits = self._of_ports(truth, other)
        else:
            misfits = self.space.compare.between(truth, [other])
            misfits = {name: misfits[name] for name in ("calls", "sends") if name in misfits}
        log = sum(
            -0.5 * OBSERVATIONS * float(np.log1p(misfit / MISFIT_ERROR[name]))
            for name, misfit in misfits.items()
        )
        if kind == "second-run":
            model = replace(self.posterior.model, measured_ps=truth.elapsed_ps, lossy=False)
            log += model.log_time(other.elapsed_ps)
        return float(np.exp(log))

    def _of_ports(self, truth: Run, other: Run) -> dict[str, float]:
        """Misfit of a run to what counters of all ports would show of another one."""
        prepared = self.space.machines[self.posterior.best.machine].prepared
        stalls = link_totals(truth, "stall_ps").astype(np.float64)
        sizes = truth.tables["messages"]["size_bytes"]
        error = stall_error_ps(
            link_totals(truth, "bytes"),
            np.asarray(prepared.fabric.link_gbps, np.float64),
            prepared.scenario.engine.buffer,
            float(sizes.mean() or 0.0),  # type: ignore[arg-type]
        )
        counted = PortStalls(stalls, np.zeros(len(stalls), np.bool_), truth.elapsed_ps, error)
        compared = {"stalls": counted(other)}
        if not routing_is_stated(prepared):
            sent = PortBytes(link_totals(truth, "bytes"), between_switches(prepared.fabric))
            compared["bytes"] = sent(other)
        return {kind: misfit for kind, misfit in compared.items() if misfit is not None}


def shifted(prepared: PreparedScenario) -> NDArray[np.uint32]:
    """Node of each rank if every host has the ranks of the one before it, shape (R,)."""
    node, fabric = prepared.observed.node, prepared.fabric
    hosts = list(dict.fromkeys(fabric.node_host[node].tolist()))
    nodes = {host: node[fabric.node_host[node] == host] for host in hosts}
    following = dict(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
    out, taken = node.copy(), dict.fromkeys(hosts, 0)
    for rank, host in enumerate(fabric.node_host[node].tolist()):
        there = nodes[following[host]]
        out[rank] = there[taken[host] % len(there)]
        taken[host] += 1
    return out


def information(probability: Floats, channel: Floats) -> float:
    """Mutual information of an account and the outcome of a measurement, bits.

    Args:
        probability: Probability of each account, shape (A,).
        channel: Probability of each outcome under each account, shape (A, O); rows sum to 1.
    """
    outcome = probability @ channel
    joint = probability[:, None] * channel
    there = joint > 0
    ratio = np.divide(channel, outcome[None, :], out=np.ones_like(channel), where=there)
    return float((joint * np.log2(ratio))[there].sum())
