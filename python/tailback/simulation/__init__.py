"""From a scenario to a run: the only place where Python meets the engine."""

from tailback.simulation.evaluate import make_evaluate
from tailback.simulation.execute import Watch, simulate
from tailback.simulation.fluid import FluidOptions, make_fluid_evaluate, simulate_fluid
from tailback.simulation.prepare import PreparedScenario, prepare
from tailback.simulation.routes import other_rules

__all__ = [
    "FluidOptions",
    "PreparedScenario",
    "Watch",
    "make_evaluate",
    "make_fluid_evaluate",
    "other_rules",
    "prepare",
    "simulate",
    "simulate_fluid",
]
