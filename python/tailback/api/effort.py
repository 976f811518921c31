"""How many simulations a diagnosis makes, given the size of one and the time budget."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tailback.api.candidates import DEFAULT_METHODS
from tailback.budget import affordable, current, fits, leave_out
from tailback.diagnosis.waterfall import ENGINE_VARIATIONS
from tailback.diagnosis.waterfall_steps import ADAPTIVE
from tailback.errors import option
from tailback.evaluate import Change, EngineVariation, Evaluate
from tailback.remedy.optimiser import CHEAP_EVENTS
from tailback.run import run as base
from tailback.traffic.program import SENDS, Op, Program

REPETITIONS = 3
"""Repetitions of every re-simulation."""

AFTER_SEARCH, AFTER_REMEDIES = 14, 6
"""Simulations that a diagnosis with one repetition and no other placement makes after the search
for causes, and after that for remedies, at least: an instant network, four routings, six steps and
two removals of the waterfall; balanced and noiseless computation, two orders of adapters, two
causes together, and the run with the remedy."""

OF_PLACEMENT = 3
"""Simulations of a placement: alone with even spreading, without contention, and in the run."""

MANY_EVENTS = 20_000_000
"""Simulations of more events than this are not repeated unless asked: a repetition takes seconds,
and random choices average out. Repetitions of a stencil on 4608 ranks (4 million events) differ by
2 %, those of miniGhost on 27,648 (52 million) by 0.2 % (docs/measurements/speed.md)."""


def time_simulations(evaluate: Evaluate) -> None:
    """Simulate two steps that every diagnosis needs, so that a budget knows how long that takes.

    Nothing is simulated without a budget. The first simulation takes longer: it has telemetry, and
    computes the routes.

    Args:
        evaluate: Simulates a change, and keeps the run.
    """
    if current() is None:
        return
    for change in (ADAPTIVE.change, Change(network="star", background=False)):
        evaluate(change)


def repetitions(asked: int | None, run: base.Run) -> int:
    """Number of repetitions.

    Args:
        asked: What the user asked for; None for the number that fits the size of the simulation.
        run: The run to diagnose.
    """
    if asked is not None:
        return asked
    if is_large(run):
        return 1
    # Repetitions tell how sure a result is: other placements come first.
    first = len(DEFAULT_METHODS) * OF_PLACEMENT
    if not fits(REPETITIONS * AFTER_SEARCH + first):
        leave_out("repetitions", 1, (REPETITIONS - 1) * AFTER_SEARCH)
        return 1
    return REPETITIONS


def is_large(run: base.Run) -> bool:
    """Whether a simulation of a run takes so long that as few as possible are made."""
    return int(run.summary.get("events", 0)) > MANY_EVENTS


def proves_all(run: base.Run) -> bool:
    """Whether every placement is simulated in packets: beside other jobs, if that is quick.

    Full buffers of others, which the fluid model does not know, may decide there.
    """
    return len(run.scenario.job) > 1 and int(run.summary.get("events", 0)) < CHEAP_EVENTS


DRAWS, DRAWN_EVENTS = 20, 4_000_000
"""Draws in which the best remedies are compared, and events that the draws of one may take: one of
20 is a twentieth."""


def draws(seeds: int, run: base.Run) -> int:
    """Number of draws of routing seeds and others' traffic in which remedies are compared.

    Args:
        seeds: Repetitions of every re-simulation.
        run: The run to diagnose.
    """
    affordable = DRAWN_EVENTS // max(int(run.summary.get("events", 0)), 1)
    return max(seeds, min(DRAWS, 7 * seeds - 1, affordable))


def other_settings(run: base.Run, program: Program) -> dict[str, EngineVariation]:
    """Settings of the engine to which a remedy may be sensitive, as words of a sentence.

    Args:
        run: The run to diagnose.
        program: Traffic of its job: settings that concern none of its messages are left out.
    """
    engine = run.scenario.engine
    weighs_credit = engine.adaptive.load == "queue-and-credit"
    named = {
        "buffers of half the size": EngineVariation(buffers=0.5),
        "buffers of twice the size": EngineVariation(buffers=2.0),
        "packets of twice the size": EngineVariation(packets=2.0),
        f"adaptive routing by queues {'alone' if weighs_credit else 'and missing credit'}": (
            EngineVariation(other_adaptive=True)
        ),
    }
    if engine.injection != "per-destination":
        turns = engine.injection == "round-robin"
        order = "one message after another" if turns else "messages in turns"
        named[f"adapters that send {order}"] = EngineVariation(other_injection=True)
    sizes = program.amount[np.isin(program.kind, SENDS)]
    if (sizes <= engine.eager).any():
        done = "copied" if engine.eager_sends == "sent" else "sent"
        named[f"small sends that are complete when {done}"] = EngineVariation(other_sends=True)
    computes = program.amount[program.kind == Op.COMPUTE].any()
    if computes and (sizes > engine.eager).any():
        when = "only in calls" if engine.progress == "always" else "at once"
        named[f"handshakes answered {when}"] = EngineVariation(other_progress=True)
    return named


FEWER_VARIATIONS = ENGINE_VARIATIONS[1::2]
"""Other engine settings with which the steps of a large run are simulated: half of all. Buffers and
the adapters' order of sending differ between them."""


def engine_variations(run: base.Run, seeds: int) -> Sequence[EngineVariation]:
    """Other engine settings with which every step of the waterfall is simulated, if that fits.

    Args:
        run: The run to diagnose.
        seeds: Repetitions of every step.
    """
    choices = [FEWER_VARIATIONS] if is_large(run) else [ENGINE_VARIATIONS, FEWER_VARIATIONS]
    for variations in choices:
        if fits((seeds + len(variations)) * AFTER_SEARCH):
            return variations
        leave_out("engine settings", 0, len(variations) * AFTER_SEARCH)
    return ()


def placements_that_fit(most: int) -> int:
    """Number of placements, up to ``most``, whose simulations fit the time budget.

    Those that do not are noted as left out.
    """
    count = affordable(most, OF_PLACEMENT, AFTER_SEARCH)
    if count < most:
        leave_out("placements", count, (most - count) * OF_PLACEMENT)
    return count


def note_on_effort(asked: int | None, run: base.Run) -> list[str]:
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


def worth_screening(run: base.Run) -> bool:
    """Whether the fluid model estimates a placement faster than the packet engine proves it.

    It does not if a large simulation consists of short messages; placements are then compared
    without contention, and no other remedy is estimated before it is simulated.
    """
    events, messages = (int(run.summary.get(name, 0)) for name in ("events", "messages"))
    return not is_large(run) or events > EVENTS_A_FLOW * messages
