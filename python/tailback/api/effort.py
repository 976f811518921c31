"""Effort of a diagnosis by the size of a simulation: repetitions, and estimates before proofs."""

from __future__ import annotations

from tailback.run import Run

REPETITIONS = 3
"""Repetitions of every re-simulation."""

MANY_EVENTS = 20_000_000
"""Simulations of more events than this are not repeated unless asked: a repetition takes seconds,
and random choices average out. Repetitions of a stencil on 4608 ranks (4 million events) differ by
2 %, those of miniGhost on 27,648 (52 million) by 0.2 % (docs/measurements/end_to_end.md)."""


def repetitions(asked: int | None, run: Run) -> int:
    """Number of repetitions.

    Args:
        asked: What the user asked for; None for the number that fits the size of the simulation.
        run: The run to diagnose.
    """
    if asked is not None:
        return asked
    return 1 if int(run.summary.get("events", 0)) > MANY_EVENTS else REPETITIONS


def note_on_repetitions(asked: int | None, run: Run) -> list[str]:
    """A note if the size of the simulation reduces the number of repetitions."""
    if repetitions(asked, run) == REPETITIONS or asked is not None:
        return []
    millions = round(int(run.summary["events"]) / 1e6)
    return [
        f"a simulation of this run has {millions} million events, so each is made once: "
        f"--seeds {REPETITIONS} repeats them with other random choices"
    ]


EVENTS_A_FLOW = 50
"""A message costs the fluid model about 2.5 µs, as much as 25 to 50 events cost the packet engine
(docs/measurements/end_to_end.md)."""


def worth_screening(run: Run) -> bool:
    """Whether the fluid model estimates a placement faster than the packet engine proves it.

    It does not if a large simulation consists of short messages; every placement is then simulated
    packet by packet.
    """
    events, messages = (int(run.summary.get(name, 0)) for name in ("events", "messages"))
    return events <= MANY_EVENTS or events > EVENTS_A_FLOW * messages
