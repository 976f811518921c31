"""A diagnosis of the expected run, compared with the measured run."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.evidence.model import Measured


def with_measured(diagnosis: Diagnosis, measured: Measured, changed: str = "") -> Diagnosis:
    """Add the measured times and the part that the model does not explain.

    The model replays the recorded computation, so waits for it are explained. The confidence of a
    cause in the expected run is at most the share of the measured time that the model explains or,
    if the expected time is longer, the ratio of measured to expected time.

    Args:
        diagnosis: Diagnosis of the expected run.
        measured: The measured run.
        changed: Settings of the expected run that differ from the recorded one; the two are then
            not compared.
    """
    expected = diagnosis.modelled_ps
    times = {"elapsed_ps": measured.elapsed_ps, "expected_ps": expected, "measured": measured}
    if changed:
        return diagnosis.model_copy(update={**times, "changed": changed})
    rest = measured.elapsed_ps - expected
    return diagnosis.model_copy(
        update={
            **times,
            "not_explained_ps": rest,
            "not_explained_low_ps": measured.low_ps - expected,
            "not_explained_high_ps": measured.high_ps - expected,
            "confidence": min(diagnosis.confidence, agreement(expected, measured)),
        }
    )


def agreement(expected_ps: int, measured: Measured) -> float:
    """Agreement of expected and measured time, 0–1; 1 within the error of the clocks."""
    nearest = min(max(expected_ps, measured.low_ps), measured.high_ps)
    return min(expected_ps, nearest) / max(expected_ps, nearest, 1)
