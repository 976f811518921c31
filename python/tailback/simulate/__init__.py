"""From a scenario to a run: the only place where Python meets the engine."""

from tailback.simulate.evaluate import make_evaluate
from tailback.simulate.execute import Watch, simulate
from tailback.simulate.prepare import Prepared, prepare

__all__ = ["Prepared", "Watch", "make_evaluate", "prepare", "simulate"]
