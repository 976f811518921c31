"""From a scenario to a run; the only package that calls the engine."""

from tailback.simulation.decode import (
    COMPILED_DECODER,
    decode_published,
    decode_samples,
    link_hash,
)
from tailback.simulation.evaluate import make_evaluate
from tailback.simulation.execute import Watch, execute, simulate
from tailback.simulation.fluid import (
    FluidOptions,
    busiest_link_ps,
    communication_of,
    make_fluid_evaluate,
    simulate_fluid,
)
from tailback.simulation.prepare import PreparedScenario, fitting_size, load_fabric, prepare
from tailback.simulation.probes import ProbeSettings
from tailback.simulation.routes import Routes, other_rules, routes_for
from tailback.simulation.settings import (
    CongestionSchemeSettings,
    CongestionSettings,
    DcqcnSettings,
    EngineSettings,
    FlowControlSettings,
    PacingSettings,
)

__all__ = [
    "COMPILED_DECODER",
    "CongestionSchemeSettings",
    "CongestionSettings",
    "DcqcnSettings",
    "EngineSettings",
    "FlowControlSettings",
    "FluidOptions",
    "PacingSettings",
    "PreparedScenario",
    "ProbeSettings",
    "Routes",
    "Watch",
    "busiest_link_ps",
    "communication_of",
    "decode_published",
    "decode_samples",
    "execute",
    "fitting_size",
    "link_hash",
    "load_fabric",
    "make_evaluate",
    "make_fluid_evaluate",
    "other_rules",
    "prepare",
    "routes_for",
    "simulate",
    "simulate_fluid",
]
