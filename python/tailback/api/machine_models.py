"""Models of the machine with which hypotheses are simulated: adapters and routing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tailback.api.network_clues import Slow
from tailback.evaluate import Change, EngineVariation
from tailback.run import Run
from tailback.scenario_engine import Routing
from tailback.simulation import PreparedScenario

SETTINGS = (EngineVariation(buffers=0.5, delays=1.5), EngineVariation(buffers=1.5, delays=0.5))
"""Other engine settings with which the run is simulated to learn what unknown settings change: the
range within which blind cases draw those of machines."""

OTHER_ROUTING: tuple[Routing, ...] = ("random", "deterministic")
"""Routing to try if nothing explains the time with adaptive routing and the scenario does not state
the routing: adaptive traffic avoids slow links, so that they cost little."""

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
    """

    prepared: PreparedScenario
    log_prior: float
    slow: Slow
    sensitivity: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> tuple[str, str]:
        """Adapter model and routing."""
        engine = self.prepared.scenario.engine
        tables = self.prepared.scenario.fabric.forwarding is not None
        return engine.injection, FORWARDING if tables else engine.routing


def without_tables(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with adaptive routing in place of forwarding tables.

    Switches with adaptive routing keep their tables, and tools print them.
    """
    fabric = prepared.scenario.fabric.model_copy(update={"forwarding": None})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"fabric": fabric}))


def with_routing(prepared: PreparedScenario, routing: Routing) -> PreparedScenario:
    """The scenario with another choice among the paths of a route."""
    engine = prepared.scenario.engine.model_copy(update={"routing": routing})
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": engine}))


NETWORK_TRIALS = 4
"""Maximum number of rates tried for a network that is slower everywhere than stated."""

CLOSE = 0.02
"""Difference from the measured time at which no further rate is tried."""


def slower_network(
    prepared: PreparedScenario, alone_ps: int, measured_ps: int, simulate: Callable[[Change], Run]
) -> list[tuple[float, Run]]:
    """Runs with all links at a share of their rates, until one takes as long as measured.

    The rates in a file may be wrong, TCP may stand in for RDMA, or a clock may have another unit:
    then all messages take longer by about the same factor, which no single link does.

    Args:
        prepared: The scenario.
        alone_ps: Time at the stated rates.
        measured_ps: Time measured in and between calls.
        simulate: Simulates a change of the scenario.
    """
    out: list[tuple[float, Run]] = []
    share = alone_ps / measured_ps
    while share < 1.0 and len(out) < NETWORK_TRIALS:
        rates = enumerate(prepared.fabric.link_gbps.tolist())
        limits = tuple((link, rate * share) for link, rate in rates)
        run = simulate(Change(limits=limits, computations=True, measure=True))
        out.append((share, run))
        ratio = run.elapsed_ps / measured_ps
        if abs(ratio - 1.0) < CLOSE:
            break
        share = min(max(share * ratio**1.5, 0.01), 0.99)
    return out
