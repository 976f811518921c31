"""The contract between diagnosis and simulation: change one thing, get the run that results.

Diagnosis and remedy never import the engine. They are handed an :data:`Evaluate` and ask it
"what if"; who answers, and how, is not their business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.degraded import SlowLink
from tailback.run import Run
from tailback.traffic.program import Program

Rates = Literal["max-min", "assignment"]
"""Who decides the rates of flows; both follow as flows come and go (docs/explanation/rates.md)."""


@dataclass(frozen=True, eq=False)
class Change:
    """What differs from the scenario as it is.

    Attributes:
        placement: Node of each rank of the observed job, shape (R,); None keeps its placement.
        placement_name: What to call that placement.
        network: ``as-is``; ``healthy`` (every link serves the rate it is meant to have); and, both
            of healthy links, ``star`` (one ideal switch with the same host links: only endpoints
            can be contended) and ``no-contention`` (every message at its own line rate, nothing
            shared); and ``instant``, without latency and with infinite bandwidth, as POP's
            efficiencies want it.
        routing: Another choice among the candidates of a route, None keeps the scenario's.
        rule: Another routing rule of the topology, None keeps the scenario's.
        program: Another program of the observed job, None keeps its own.
        rates: Every message of every job at an explicit rate, computed so; None: at no rate.
        slow: Links that serve less than they should.
        limits: Links whose traffic is limited to less than they serve, without being slow: number
            of the link, of this direction alone, and the rate in gigabits per second.
        fair_adapters: Adapters share their link among messages, whatever the scenario says.
        background: False removes jobs that are not observed.
        seed_offset: Added to the seed: a repetition with other random choices.
        measure: False skips telemetry where only the time is wanted.
        computations: Record when ranks compute, in ``computations`` of the run.
    """

    placement: NDArray[np.uint32] | None = None
    placement_name: str = ""
    network: Literal["as-is", "healthy", "star", "no-contention", "instant"] = "as-is"
    routing: Literal["adaptive", "random", "deterministic", "vc"] | None = None
    rule: str | None = None
    program: Program | None = None
    rates: Rates | None = None
    slow: tuple[SlowLink, ...] = ()
    limits: tuple[tuple[int, float], ...] = ()
    fair_adapters: bool = False
    background: bool = True
    seed_offset: int = 0
    measure: bool = False
    computations: bool = False


Evaluate = Callable[[Change], Run]
