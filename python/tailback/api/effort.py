"""Effort of a diagnosis by the size of a simulation: repetitions, variations, and estimates."""

from __future__ import annotations

from collections.abc import Sequence

from tailback.diagnosis.waterfall import ENGINE_VARIATIONS
from tailback.errors import option
from tailback.evaluate import EngineVariation
from tailback.run.run import Run

REPETITIONS = 3
"""Repetitions of every re-simulation."""

MANY_EVENTS = 20_000_000
"""Simulations of more events than this are not repeated unless asked: a repetition takes seconds,
and random choices average out. Repetitions of a stencil on 4608 ranks (4 million events) differ by
2 %, those of miniGhost on 27,648 (52 million) by 0.2 % (docs/measurements/speed.md)."""


def repetitions(asked: int | None, run: Run) -> int:
    """Number of repetitions.

    Args:
        asked: What the user asked for; None for the number that fits the size of the simulation.
        run: The run to diagnose.
    """
    if asked is not None:
        return asked
    return 1 if is_large(run) else REPETITIONS


def is_large(run: Run) -> bool:
    """Whether a simulation of a run takes so long that as few as possible are made."""
    return int(run.summary.get("events", 0)) > MANY_EVENTS


FEWER_VARIATIONS = ENGINE_VARIATIONS[1::2]
"""Other engine settings with which the steps of a large run are simulated: half of all. Buffers and
the adapters' order of sending differ between them."""


def engine_variations(run: Run) -> Sequence[EngineVariation]:
    """Other engine settings with which every step of the waterfall is simulated."""
    return FEWER_VARIATIONS if is_large(run) else ENGINE_VARIATIONS


def note_on_effort(asked: int | None, run: Run) -> list[str]:
    """A note if the size of the simulation reduces the number of simulations."""
    if not is_large(run):
        return []
    millions = round(int(run.summary["events"]) / 1e6)
    variations = (
        f"with {len(FEWER_VARIATIONS)} other settings of the engine, not {len(ENGINE_VARIATIONS)}"
    )
    once = (
        ""
        if asked is not None
        else (f" once ({option('seeds', REPETITIONS)} repeats it with other random choices) and")
    )
    return [
        f"a simulation of this run has {millions} million events, so each is made{once} "
        f"{variations}"
    ]


EVENTS_A_FLOW = 50
"""A message costs the fluid model about 2.5 µs, as much as 25 to 50 events cost the packet
engine."""


def worth_screening(run: Run) -> bool:
    """Whether the fluid model estimates a placement faster than the packet engine proves it.

    It does not if a large simulation consists of short messages; placements are then compared
    without contention, and no other remedy is estimated before it is simulated.
    """
    events, messages = (int(run.summary.get(name, 0)) for name in ("events", "messages"))
    return not is_large(run) or events > EVENTS_A_FLOW * messages
