"""Ranks suspected cables in coarse packets, so that only the likely ones are simulated in full.

A run in which one slow cable already fits far better than none still has to be compared with all
other cables that might fit as well. Simulations in coarse packets show most of them to fit far
worse, for a half to a quarter of the cost (docs/measurements/approximations.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailback.diagnosis.cable_search import CableTrials, Outcome, Trial
from tailback.inference.error_model import ErrorModel
from tailback.run.run import Run
from tailback.scenario.engine import EngineSection

FEWEST_KEPT = 12
"""Cables that are always simulated in full: no later step of a search looks at more of them
(:data:`tailback.inference.search.SUSPECTS_PER_ROUTING`)."""

MIN_SUSPECTS = 2 * FEWEST_KEPT
"""Up to so many, a ranking at half of the cost would save nothing."""

CLEAR = 9.0
"""Logarithm of a ratio of likelihoods that is clear: e⁹ = 8000. In coarse packets the logarithms
of two cables differ by up to 5 more, or less, than in full. The best one is at its fitted rate, the
others at the first one, so those left out may be closer (docs/measurements/approximations.md)."""

SIZES = ((1 << 20, 32 << 10), (256 << 10, 16 << 10))
"""Smallest message, bytes, of which most bytes must be, and size of coarse packets for these."""

MIN_GAIN = 4
"""Smallest ratio of coarse to full packets that pays: with 4, a simulation takes half as long."""


@dataclass(frozen=True)
class CoarseRanking:
    """What a ranking in coarse packets left.

    Attributes:
        suspects: Cables to simulate in full, in their former order.
        considered: Number of cables before.
        size_bytes: Size of the coarse packets.
        trials: Number of simulations.
    """

    suspects: list[int]
    considered: int
    size_bytes: int
    trials: int


def coarse_size(run: Run, engine: EngineSection) -> int | None:
    """Size of coarse packets in which to rank, bytes; None if that does not pay.

    Args:
        run: A run of the program, with the messages of other jobs.
        engine: Its settings.
    """
    if engine.congestion_control is not None or engine.pacing.kind != "off":
        return None  # These act on single packets.
    sent = run.tables["messages"]["size_bytes"]
    total = int(sent.sum())
    for least, size in SIZES:
        if int(sent.filter(sent >= least).sum()) * 2 > total:
            return size if size >= MIN_GAIN * engine.simulated_packet else None
    return None


def one_stands_out(tried: Sequence[Outcome], healthy: Outcome, model: ErrorModel) -> bool:
    """Whether evidence is clearly more probable with one of these slow cables than with none.

    Otherwise cables differ by less than their errors in coarse packets.
    """
    shapes = [model.log_shape(outcome) for outcome in tried]
    return bool(shapes) and max(shapes) >= model.log_shape(healthy) + CLEAR


def rank(
    trials: CableTrials,
    suspects: Sequence[int],
    size_bytes: int,
    progress: Callable[[str, float], None],
) -> CoarseRanking:
    """Leave out cables that clearly fit worse than the best one.

    Args:
        trials: Simulates slow cables in coarse packets.
        suspects: One link of each cable, most likely first.
        size_bytes: Size of the coarse packets.
        progress: Called with the step and its progress, 0–1.
    """
    ranked = sorted(trials.screen(suspects, progress), key=_shape, reverse=True)
    kept = {
        trial.cables[0].link
        for number, trial in enumerate(ranked)
        if number < FEWEST_KEPT or trial.shape >= ranked[0].shape - CLEAR
    }
    # Where one explains all evidence, those after it were not simulated.
    seen = {trial.cables[0].link for trial in trials.trials}
    left = [link for link in suspects if link in kept or link not in seen]
    return CoarseRanking(left, len(suspects), size_bytes, len(trials.trials))


def _shape(trial: Trial) -> float:
    return trial.shape
