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

from tailback.run import Run


@dataclass(frozen=True, eq=False)
class Change:
    """What differs from the scenario as it is.

    Attributes:
        placement: Node of each rank of the observed job, shape (R,); None keeps its placement.
        placement_name: What to call that placement.
        network: ``as-is``; ``healthy`` (every link serves the rate it is meant to have); and, both
            of healthy links, ``star`` (one ideal switch with the same host links: only endpoints
            can be contended) and ``no-contention`` (every message at its own line rate, nothing
            shared).
        routing: Another routing, None keeps the scenario's.
        slow: Links that serve less: number of a link, which stands for its cable, and the rate in
            gigabits per second that both directions have.
        background: False removes jobs that are not observed.
        seed_offset: Added to the seed: a repetition with other random choices.
        measure: False skips telemetry where only the time is wanted.
    """

    placement: NDArray[np.uint32] | None = None
    placement_name: str = ""
    network: Literal["as-is", "healthy", "star", "no-contention"] = "as-is"
    routing: Literal["adaptive", "random", "deterministic"] | None = None
    slow: tuple[tuple[int, float], ...] = ()
    background: bool = True
    seed_offset: int = 0
    measure: bool = False


Evaluate = Callable[[Change], Run]
