"""The model of a run, its congestion and its samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tailback.errors import RunError
from tailback.remedy.proof import congested_hops
from tailback.run.run import AtomicDirectory, Run
from tailback.units import format_time


def with_samples(run: Run) -> Run:
    """The run with table ``samples`` decoded from its packets, unless it has samples already.

    If they cannot be decoded, a note of the returned run says why.
    """
    if run.tables["samples"].height:
        return run
    # Deferred: most runs use scheme full, whose samples the engine adds up itself.
    from tailback.simulation.decode import decode_samples

    return decode_samples(run)


def model_of(run: Run) -> str:
    """``fluid`` or ``packet``."""
    return str(run.summary.get("model", "packet"))


def model_description(run: Run) -> str:
    """The model and its settings in a few words."""
    if model_of(run) == "packet":
        return "packet engine" + skipped_part(run)
    description = f"fluid: {run.summary['rates']} rates, {run.summary['paths']} paths; an estimate"
    if "packets_low_ps" not in run.summary:
        return description
    low, high = (format_time(run.summary[f"packets_{end}_ps"]) for end in ("low", "high"))
    return f"{description} (packets: {low} to {high}, 95 %)"


def skipped_part(run: Run) -> str:
    """The extrapolated part of a run in a few words; empty if all of it was simulated."""
    facts = run.summary.get("skipped")
    if facts is None:
        return ""
    steps, simulated = sum(facts["steps"]), sum(facts["simulated"])
    low, high = format_time(facts["elapsed_low_ps"]), format_time(facts["elapsed_high_ps"])
    return (
        f"; {steps - simulated:,} of {steps:,} steps extrapolated: elapsed {low} to {high} (95 %)"
    )


def congestion_of(run: Run) -> float | None:
    """Congested packet-hops over packet-hops, 0–1; None if they were not counted.

    The fluid model has no queues, and with scheme ``off`` the packet engine does not count.
    """
    return congested_hops(run) if model_of(run) == "packet" else None


def require_packets(run: Run, folder: Path, purpose: str) -> None:
    """Refuse a run without packets.

    Raises:
        RunError: It is a run of the fluid model.
    """
    if model_of(run) != "packet":
        raise RunError(
            f"a run of the fluid model has no samples and no congestion to {purpose}",
            file=folder,
            remedy=f"simulate it with packets: tailback diagnose {folder}; or compare it with "
            f"another run: tailback compare",
        )


# --- folders of results ------------------------------------------------------------------------


class FolderResult(ABC):
    """A result that :meth:`write` stores like the command of the same name."""

    def write(
        self, folder: str | Path, *, force: bool = False, figures: Sequence[str] = ()
    ) -> Path:
        """Write the result; the class says which files.

        Args:
            folder: A new folder; written completely or not at all.
            force: Replace that folder if Tailback wrote it.
            figures: Formats (``svg``, ``pdf``, ``png``) in which to write every figure too.

        Raises:
            RunError: The folder exists (without ``force``) or cannot be written, or a run of the
                fluid model has nothing to draw.
        """
        with AtomicDirectory(folder, force=force) as part:
            self._write_parts(part, tuple(figures))
        return Path(folder)

    @abstractmethod
    def _write_parts(self, folder: Path, figures: Sequence[str]) -> None:
        """Write all files into the folder."""
