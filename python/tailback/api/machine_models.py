"""Models of the machine with which hypotheses are simulated: adapters and routing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tailback.api.network_clues import Slow
from tailback.scenario_engine import Routing
from tailback.simulation import PreparedScenario

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
