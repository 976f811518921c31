"""From a scenario to a run: the only place where Python meets the engine."""

from tailback.simulate.evaluate import make_evaluate
from tailback.simulate.execute import Watch, simulate
from tailback.simulate.fluid import FluidOptions, make_fluid_evaluate, simulate_fluid
from tailback.simulate.prepare import PreparedScenario, prepare
from tailback.simulate.routes import other_rules

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
