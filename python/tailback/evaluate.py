"""The interface between diagnosis and simulation: change one thing, get the resulting run.

Diagnosis and remedy never import the engine. They receive a function, :data:`Evaluate`, that
answers "what if": packet by packet or with the fluid model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.degraded import SlowLink
from tailback.run.run import Run
from tailback.scenario.engine import LocalRates
from tailback.traffic.program import Program

Rates = Literal["max-min", "assignment"]
"""How the fluid model sets rates of flows. Both ways adjust as flows start and end."""


@dataclass(frozen=True)
class EngineVariation:
    """Other values of engine settings that are rarely known exactly.

    Attributes:
        buffers: Factor of the buffer at the far end of each link. At least a packet always fits.
        delays: Factor of the delays of switches, of software before a message, and within a host.
        local_rates: Rates within hosts at a bound of their errors.
        other_injection: Adapters take turns among messages if the scenario has them send one after
            another, and vice versa. Adapters with a queue per destination are unchanged.
        packets: Factor of the size of packets.
        other_adaptive: Adaptive routing compares ports by their queues and missing credit if the
            scenario has it compare queues alone, and vice versa.
        other_sends: Sends up to the eager limit are complete when copied if the scenario has them
            complete when sent, and vice versa.
        other_progress: Ranks answer handshakes of larger messages only in calls if the scenario has
            them answer at once, and vice versa.
    """

    buffers: float = 1.0
    delays: float = 1.0
    local_rates: LocalRates = "as-is"
    other_injection: bool = False
    packets: float = 1.0
    other_adaptive: bool = False
    other_sends: bool = False
    other_progress: bool = False


@dataclass(frozen=True, eq=False)
class Change:
    """A difference from the scenario.

    Attributes:
        placement: Node of each rank of the observed job, shape (R,); None keeps its placement.
        placement_name: Its name.
        network: ``as-is``; ``healthy``: every link at its nominal rate; with healthy links also
            ``star``, one ideal switch with the same host links, where only endpoints are
            contended, and ``no-contention``, every message at line rate with nothing shared; or
            ``instant``, without latency and with infinite bandwidth, as POP's efficiencies assume.
        routing: Another choice among the candidates of a route; None keeps the scenario's.
        rule: Another routing rule of the topology; None keeps the scenario's.
        queue_pairs: Queue pairs over which packets of a message are spread; None keeps the
            scenario's.
        program: Another program of the observed job; None keeps its own.
        rates: Give every flow of every job a rate, as ``[engine.pacing] rates`` does; None keeps
            the scenario's pacing.
        slow: Links that carry less than their nominal rate.
        limits: Links whose traffic is limited although they are not slow: number of the directed
            link, and the rate in gigabits per second.
        in_host: ``free``: messages within a host take no time but their latency.
        fair_adapters: Adapters share their link among messages, whatever the scenario says.
        variation: Other engine settings; None keeps the scenario's.
        background: False removes jobs that are not observed.
        seed_offset: Added to the seed, for a repetition with other random choices.
        others_draw: Added to the seed of the patterns of jobs that are not observed, for other
            traffic of the same kind. Traces and stated messages have one draw only.
        measure: False skips telemetry if only the time is needed.
        totals_only: With telemetry, only what each link did over the whole run: no samples, and one
            window.
        computations: Record when ranks compute, in ``computations`` of the run.
    """

    placement: NDArray[np.uint32] | None = None
    placement_name: str = ""
    network: Literal["as-is", "healthy", "star", "no-contention", "instant"] = "as-is"
    routing: Literal["adaptive", "random", "ecmp", "deterministic", "vc"] | None = None
    rule: str | None = None
    queue_pairs: int | None = None
    program: Program | None = None
    rates: Literal["assigned", "max-min"] | None = None
    slow: tuple[SlowLink, ...] = ()
    limits: tuple[tuple[int, float], ...] = ()
    in_host: Literal["as-is", "free"] = "as-is"
    fair_adapters: bool = False
    variation: EngineVariation | None = None
    background: bool = True
    seed_offset: int = 0
    others_draw: int = 0
    measure: bool = False
    totals_only: bool = False
    computations: bool = False


Evaluate = Callable[[Change], Run]


@runtime_checkable
class Announced(Protocol):
    """An evaluation that can simulate several changes at the same time."""

    def announce(self, changes: Iterable[Change]) -> None:
        """Start to simulate changes that will be requested later."""
        ...


def announce(evaluate: Evaluate, changes: Iterable[Change]) -> None:
    """Announce the next changes, so that they can be simulated at the same time.

    Results do not depend on this. Without workers it does nothing.
    """
    target: object = evaluate
    if isinstance(target, Announced):
        target.announce(changes)
