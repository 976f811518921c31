"""Which model a run comes from, what may be said of it, and its samples."""

from __future__ import annotations

from pathlib import Path

from tailback.errors import RunError
from tailback.remedy.proof import congested_hops
from tailback.run import Run


def with_samples(run: Run) -> Run:
    """The run with table ``samples`` decoded from its packets, unless that has been done before.

    Where that cannot be done a note of the run returned says why.
    """
    if run.tables["samples"].height:
        return run
    # Deferred: most runs are of scheme full, whose samples the engine sums up.
    from tailback.simulation.decode import decode_samples

    return decode_samples(run)


def model_of(run: Run) -> str:
    """``fluid`` or ``packet``."""
    return str(run.summary.get("model", "packet"))


def model_description(run: Run) -> str:
    """The model and its settings in a few words."""
    if model_of(run) == "packet":
        return "packet engine"
    return f"fluid: {run.summary['rates']} rates, {run.summary['paths']} paths; an estimate"


def congestion_of(run: Run) -> float | None:
    """Congested packet-hops over packet-hops, 0–1; None where nobody counted them.

    The fluid model knows no queues, and with scheme ``off`` the packet engine does not look.
    """
    return congested_hops(run) if model_of(run) == "packet" else None


def require_packets(run: Run, folder: Path, purpose: str) -> None:
    """Refuse a run that has no packets.

    Raises:
        RunError: It is of the fluid model.
    """
    if model_of(run) != "packet":
        raise RunError(
            f"this run is of the fluid model: it has no samples and no congestion to {purpose}",
            file=folder,
            remedy=f"simulate it with packets: tailback diagnose {folder}; or compare it with "
            f"another run: tailback compare",
        )
