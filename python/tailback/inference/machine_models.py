"""Models of the machine with which hypotheses are simulated: adapters, MPI library and routing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np

from tailback.diagnosis.cable_search import Outcome
from tailback.evaluate import Change, EngineVariation
from tailback.fabric.degraded import nominal
from tailback.inference.hypotheses import MachineName
from tailback.inference.network_clues import Slow, routing_is_stated
from tailback.scenario.engine import Routing
from tailback.scenario.model import NcclSection
from tailback.simulation import PreparedScenario
from tailback.traffic.program import Op
from tailback.traffic.rewrites import REWRITES, DoesNotApplyError
from tailback.traffic.rewrites.other_collectives import ALGORITHMS

SETTINGS = (EngineVariation(buffers=0.5, delays=1.5), EngineVariation(buffers=1.5, delays=0.5))
"""Other engine settings with which the run is simulated to learn what unknown settings change: the
range within which blind cases draw those of machines."""

RoutingChoice = Routing | Literal["per message", "per flow"]
"""How packets choose among the paths of a route; ``per message``: adaptively, all of a message the
same; ``per flow``: all from one rank to another."""

HASHED: RoutingChoice = "ecmp"
"""Routing that hashes flows to paths."""

ONE_PATH: tuple[RoutingChoice, ...] = (HASHED, "deterministic", "per message", "per flow")
"""Routing that keeps a message on one path."""

OTHER_ROUTING: tuple[RoutingChoice, ...] = ("per message", "random", "deterministic")
"""Routing to try if nothing explains the time with adaptive routing and the scenario does not state
the routing. Adaptive traffic avoids slow links, so that they cost little, and packets that choose
one by one collide less than whole messages."""

FORWARDING = "forwarding tables"
"""Routing of a machine model whose scenario has forwarding tables."""


@dataclass(frozen=True)
class MachineModel:
    """Adapter model and routing with which hypotheses are simulated.

    Attributes:
        prepared: The scenario with the job alone.
        log_prior: Logarithm of the prior probability of the adapter model and the routing.
        slow: Slow cables according to counters of queues.
        sensitivity: Misfit of simulations with other engine settings to one with these, by kind of
            evidence.
        small_buffers: Whether its buffers are smaller than stated, or than the default.
        at_nominal_rates: Whether cables run at their nominal rates that are stated, or counted, as
            slow.
        evenly: Name of the machine model that differs in spreading evenly what this one hashes to
            paths; None if it hashes nothing.
        algorithm: Rewrite by which the program's collectives run; empty: as their sizes suggest.
    """

    prepared: PreparedScenario
    log_prior: float
    slow: Slow
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    small_buffers: bool = False
    at_nominal_rates: bool = False
    evenly: MachineName | None = None
    algorithm: str = ""

    @cached_property
    def conditions(self) -> Conditions:
        """What determines its simulations without a change."""
        return Conditions.of(self.prepared)

    @property
    def name(self) -> MachineName:
        """Adapter model, routing, and how the library, buffers or rates differ from the usual."""
        engine = self.prepared.scenario.engine
        tables = self.prepared.scenario.fabric.forwarding is not None
        buffers = ("small buffers",) if self.small_buffers else ()
        rates = ("nominal rates",) if self.at_nominal_rates else ()
        progress = ("progress in calls",) if engine.progress == "calls" else ()
        routing = FORWARDING if tables else routing_choice(self.prepared)
        paths = (f"paths {engine.path_seed}",) if routing == HASHED else ()
        algorithm = (self.algorithm,) if self.algorithm else ()
        return engine.injection, routing, *progress, *algorithm, *buffers, *rates, *paths


def without_tables(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with adaptive routing in place of forwarding tables.

    Switches with adaptive routing keep their tables, and tools print them.
    """
    fabric = prepared.scenario.fabric.model_copy(update={"forwarding": None})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"fabric": fabric}))


def at_nominal_rates(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with every cable at its nominal rate.

    A discovery may be older or younger than the run, and a slow cable replaced in between.
    """
    section = prepared.scenario.fabric.model_copy(update={"degraded": []})
    scenario = prepared.scenario.model_copy(update={"fabric": section})
    return replace(prepared, scenario=scenario, fabric=nominal(prepared.fabric))


def routing_choice(prepared: PreparedScenario) -> RoutingChoice:
    """The choice among the paths of a route in a scenario."""
    engine = prepared.scenario.engine
    if engine.routing == "adaptive" and engine.adaptive.per in ("message", "flow"):
        return "per message" if engine.adaptive.per == "message" else "per flow"
    return engine.routing


def with_routing(prepared: PreparedScenario, routing: RoutingChoice) -> PreparedScenario:
    """The scenario with another choice among the paths of a route."""
    engine = prepared.scenario.engine
    update: dict[str, Any] = {"routing": routing}
    if routing == "per message":
        adaptive = engine.adaptive.model_copy(update={"per": "message"})
        update = {"routing": "adaptive", "adaptive": adaptive}
    engine = engine.model_copy(update=update)
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": engine}))


def with_hashed_flows(prepared: PreparedScenario, seed: int) -> PreparedScenario:
    """The scenario with each flow on one path, by the hash with this seed."""
    return prepared.with_engine(routing=HASHED, path_seed=seed)


def with_flow_seeds(
    prepared: PreparedScenario, seeds: list[tuple[int, int, int]]
) -> PreparedScenario:
    """The scenario with each flow on one path, by a seed of its own, which counts as not stated.

    Args:
        prepared: The scenario.
        seeds: Rank that sends, rank that receives, and seed.
    """
    return _not_stated(prepared, {"routing": HASHED, "flow_seeds": seeds})


def hashes_at_random(prepared: PreparedScenario) -> bool:
    """Whether flows are stated to be hashed to paths, and by which hash is not."""
    engine = prepared.scenario.engine
    seeded = engine.path_seed is not None or bool(engine.flow_seeds)
    return routing_choice(prepared) == HASHED and not seeded


def with_even_flows(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with its flows spread evenly and no stated paths, where a hash is unknown."""
    return _spread_evenly(prepared, "packet") if hashes_at_random(prepared) else prepared


def with_whole_flows(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with each flow on one path, evenly, which counts as not stated.

    Switches that hash flows keep the packets of one in order: it is no faster than a link, however
    many are parallel to it.
    """
    return _spread_evenly(prepared, "flow")


def chosen_by_chance(prepared: PreparedScenario) -> bool:
    """Whether which of several parallel links a flow takes is assumed, not known."""
    return routing_choice(prepared) == "per flow" and not routing_is_stated(prepared)


def _spread_evenly(prepared: PreparedScenario, per: Literal["packet", "flow"]) -> PreparedScenario:
    adaptive = prepared.scenario.engine.adaptive.model_copy(update={"per": per})
    return _not_stated(prepared, {"routing": "adaptive", "adaptive": adaptive})


def _not_stated(prepared: PreparedScenario, update: Mapping[str, Any]) -> PreparedScenario:
    """The scenario with other settings of the engine, which count as not stated."""
    engine = prepared.scenario.engine
    values = {name: getattr(engine, name) for name in type(engine).model_fields}
    stated = engine.model_fields_set - set(update)
    assumed = type(engine).model_construct(stated, **{**values, **update})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": assumed}))


def with_progress_in_calls(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with ranks that answer the handshake of large messages only in calls.

    MPI libraries without a thread for progress do so, and adapters that match no messages. A
    message then waits while one of its ranks computes (Hoefler & Lumsdaine 2008).
    """
    engine = prepared.scenario.engine.model_copy(update={"progress": "calls"})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": engine}))


TREES_IN_TURN = "nccl-trees-in-turn"
"""Trees of NCCL in which sums come down only after all went up."""

OTHER_ALGORITHMS = (*ALGORITHMS, TREES_IN_TURN)
"""Other ways in which a library may run a collective."""


def with_acknowledged_sends(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with large sends that are complete when their receiver acknowledges them.

    Reliable connections of RDMA complete a send by the acknowledgement of its last packet, which
    waits in buffers ahead of a slow link. Accelerators have buffers of their own.
    """
    program = prepared.observed.program
    large = (program.kind == Op.ISEND) & (program.amount > prepared.scenario.engine.eager)
    if program.recompile is not None or not large.any():
        return prepared
    kind = np.where(large, Op.ACKNOWLEDGED_SEND, program.kind).astype(program.kind.dtype)
    return prepared.with_program(replace(program, kind=kind))


def with_copied_sends(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with small sends that are complete at once, unless it states when they are.

    TCP completes a send when its bytes are in a socket's buffer. Accelerators have buffers of their
    own.
    """
    engine = prepared.scenario.engine
    if prepared.observed.program.recompile is not None or "eager_sends" in engine.model_fields_set:
        return prepared
    engine = engine.model_copy(update={"eager_sends": "copied"})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": engine}))


def with_algorithm(prepared: PreparedScenario, name: str) -> PreparedScenario | None:
    """The scenario with a collective of its program run by another algorithm; None without it.

    MPI libraries choose algorithms by tables of their own, which differ between versions.

    Args:
        prepared: The scenario.
        name: One of :data:`OTHER_ALGORITHMS`.
    """
    program = prepared.observed.program
    if name == TREES_IN_TURN:
        if program.recompile is None:
            return None
        other = program.recompile(NcclSection(trees="in-turn"))
        order = [(p.kind, p.peer, p.request) for p in (program, other)]
        return None if all(map(np.array_equal, *order)) else prepared.with_program(other)
    try:
        rewritten = REWRITES[name](program, frozenset(range(len(program.labels))))
    except DoesNotApplyError:
        return None
    return prepared.with_program(rewritten.program)


SMALL_BUFFERS = 0.1
"""Share of their size that buffers have in a network without room for waiting packets. Sizes are
rarely published; with so little, all packets of a flow wait in the host, whichever of its links is
slow."""


def with_small_buffers(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with buffers of :data:`SMALL_BUFFERS` of their size, but at least a packet."""
    engine = prepared.scenario.engine
    packet = engine.packet + prepared.scenario.packet_header_bytes
    buffer = max(round(engine.buffer * SMALL_BUFFERS), packet)
    engine = engine.model_copy(update={"buffer": buffer})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": engine}))


DELAYS = frozenset({"switch_delay", "send_delay", "local_delay"})
"""Delays of the engine that are tried with a common factor."""

MAX_DELAYS = 100.0
"""Largest factor of delays that is tried: 0.1 ms before a message."""

NETWORK_TRIALS = 4
"""Maximum number of rates, and of delays, tried for a machine that is slower than modelled."""

SHARES = (0.01, 0.99)
"""Shares of the stated rates that are tried: below, the unit of the file is wrong; above, it makes
no difference that could be measured."""

CLOSE = 0.02
"""Difference from the measured time at which no further rate or delay is tried."""


def slower_network(
    prepared: PreparedScenario,
    alone_ps: int,
    measured_ps: int,
    predict: Callable[[Change], Outcome],
) -> list[tuple[float, Outcome]]:
    """Predictions with all links at a share of their rates, until one takes as long as measured.

    The rates in a file may be wrong, TCP may stand in for RDMA, or a clock may have another unit:
    then all messages take longer by about the same factor, which no single link does.

    Args:
        prepared: The scenario.
        alone_ps: Time at the stated rates.
        measured_ps: Time measured in and between calls.
        predict: Simulates a change of the scenario, and compares it with the evidence.
    """
    out: list[tuple[float, Outcome]] = []
    share = alone_ps / measured_ps
    while share < 1.0 and len(out) < NETWORK_TRIALS:
        rates = enumerate(prepared.fabric.link_gbps.tolist())
        limits = tuple((link, rate * share) for link, rate in rates)
        outcome = predict(Change(limits=limits, computations=True))
        out.append((share, outcome))
        ratio = outcome.elapsed_ps / measured_ps
        if abs(ratio - 1.0) < CLOSE:
            break
        # Only part of the time is transfers, so the share changes more than the time does.
        share = float(np.clip(share * ratio**1.5, *SHARES))
    return out


def raised_rates(alone_ps: int, measured_ps: int, elapsed_ps: Callable[[float], int]) -> float:
    """How far slow cables of counters rise in their intervals for a run to take the measured time.

    Args:
        alone_ps: Time with the rates as counted, which is longer than measured.
        measured_ps: Time measured in and between calls.
        elapsed_ps: Time with the rates so far towards their upper bounds, 0–1.

    Returns:
        That part of the way, 0–1; 1 if the upper bounds are too slow as well.
    """
    slow, fast, upwards = (0.0, alone_ps), (1.0, elapsed_ps(1.0)), 1.0
    for _ in range(NETWORK_TRIALS if fast[1] < measured_ps else 0):
        upwards = float(np.interp(-measured_ps, [-slow[1], -fast[1]], [slow[0], fast[0]]))
        tried = upwards, elapsed_ps(upwards)
        if abs(tried[1] / measured_ps - 1.0) < CLOSE:
            break
        slow, fast = (tried, fast) if tried[1] > measured_ps else (slow, tried)
    return upwards


def longer_delays(
    alone_ps: int, measured_ps: int, predict: Callable[[Change], Outcome]
) -> list[tuple[float, Outcome]]:
    """Predictions with all delays a multiple of the stated, until one takes as long as measured.

    Software before a message takes a microsecond with RDMA and tens of microseconds with TCP. If
    the trace has no uncontended messages, its calls show the delay nevertheless.

    Args:
        alone_ps: Time with the stated delays.
        measured_ps: Time measured in and between calls.
        predict: Simulates a change of the scenario, and compares it with the evidence.
    """
    out: list[tuple[float, Outcome]] = []
    before, factor = (1.0, alone_ps), 2.0
    while 1.0 < factor <= MAX_DELAYS and len(out) < NETWORK_TRIALS:
        variation = EngineVariation(delays=factor)
        outcome = predict(Change(variation=variation, computations=True))
        out.append((factor, outcome))
        slope = (outcome.elapsed_ps - before[1]) / (factor - before[0])
        if abs(outcome.elapsed_ps / measured_ps - 1.0) < CLOSE or slope <= 0:
            break
        before = factor, outcome.elapsed_ps
        factor += (measured_ps - outcome.elapsed_ps) / slope
    return out


# --- predictions, each simulated once ----------------------------------------------------------

# A search for slow cables repeats itself: the cables that it tries first come again among all
# others, rates that are fitted meet rates tried before, and each is tried with adapters that take
# turns and with adapters that send one message after another. Where calls block, no adapter ever
# has a choice, and both give the same run. Of runs with a cause only predictions are kept,
# a few numbers each.

V = TypeVar("V")

TAKING_TURNS = frozenset({"fifo", "round-robin"})
"""Injection of adapters that differ only in which of several messages they send from next."""


@dataclass(frozen=True)
class Conditions:
    """All that determines a simulation of a hypothesis.

    Attributes:
        key: All of it but the next.
        injection: How adapters share their link.
        keeps: Objects that ``key`` names by their identity.
    """

    key: Hashable
    injection: str
    keeps: tuple[object, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, prepared: PreparedScenario) -> Conditions:
        """The conditions of a scenario without a change."""
        scenario = prepared.scenario
        engine = scenario.engine.model_copy(update={"injection": "fifo"})
        text = scenario.model_copy(update={"engine": engine}).model_dump_json()
        keeps = (prepared.fabric, *(job.program for job in prepared.jobs))
        nodes = tuple(job.node.tobytes() for job in prepared.jobs)
        key = text, tuple(map(id, keeps)), nodes
        return cls(key, scenario.engine.injection, keeps)

    def with_change(self, *change: Hashable) -> Conditions:
        """The same with something changed."""
        return Conditions((self.key, *change), self.injection, self.keeps)


@dataclass(eq=False)
class PredictionCache:
    """Predictions by the conditions of their simulation.

    A :class:`.RunCache` cannot serve here: it is for changes of one scenario, whose equality is
    known before they are simulated. Whether two adapter models predict the same is known after.
    """

    _found: dict[Hashable, dict[str, tuple[Any, Conditions]]] = field(default_factory=dict)
    _unshared: dict[Hashable, Any] = field(default_factory=dict)

    def find_or(self, conditions: Conditions, simulate: Callable[[], tuple[V, bool]]) -> V:
        """The prediction under these conditions, simulated unless known.

        Args:
            conditions: The conditions, with the kind of prediction among them.
            simulate: Simulates; returns the prediction, and whether adapters had several messages
                to choose from (``Run.adapters_shared``).
        """
        same: dict[str, tuple[V, Conditions]] = self._found.setdefault(conditions.key, {})
        unshared: dict[Hashable, V] = self._unshared
        if conditions.injection in same:
            return same[conditions.injection][0]
        if conditions.injection in TAKING_TURNS and conditions.key in unshared:
            return unshared[conditions.key]
        prediction, shared = simulate()
        same[conditions.injection] = prediction, conditions
        if conditions.injection in TAKING_TURNS and not shared:
            unshared[conditions.key] = prediction
        return prediction
