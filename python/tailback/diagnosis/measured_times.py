"""A diagnosis of the model's run, compared with the measured run."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.evidence.model import Measured


def with_measured(diagnosis: Diagnosis, measured: Measured, changed: str = "") -> Diagnosis:
    """Add what was measured, and the part that the model does not explain.

    The model replays the recorded computation, so waits for it are explained. A cause of what the
    model expects cannot be surer than the share of the measured time that the model explains; where
    the model expects more than was measured, than the share of the model's that was.

    Args:
        diagnosis: Of the expected run.
        measured: The measured run.
        changed: What the expected run was asked to change of the recorded one: then the two are not
            compared.
    """
    expected = diagnosis.modelled_ps
    both = {"elapsed_ps": measured.elapsed_ps, "expected_ps": expected, "measured": measured}
    if changed:
        return diagnosis.model_copy(update={**both, "changed": changed})
    rest = measured.elapsed_ps - expected
    return diagnosis.model_copy(
        update={
            **both,
            "not_explained_ps": rest,
            "not_explained_low_ps": measured.low_ps - expected,
            "not_explained_high_ps": measured.high_ps - expected,
            "confidence": min(diagnosis.confidence, agreement(expected, measured)),
        }
    )


def agreement(expected_ps: int, measured: Measured) -> float:
    """How far the expected time agrees with the measured one, 0–1; 1 within the clocks' error."""
    nearest = min(max(expected_ps, measured.low_ps), measured.high_ps)
    return min(expected_ps, nearest) / max(expected_ps, nearest, 1)
