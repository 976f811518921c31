"""Results that are written as folders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tailback.run.run import AtomicDirectory


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
