"""A result in a folder that is one JSON file: those of pairs of hosts, and of a run that hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field

from tailback.errors import RunError
from tailback.frozen_model import FrozenModel
from tailback.io.folders import AtomicDirectory
from tailback.io.input_files import content
from tailback.sources.diagnosis_folder import DIAGNOSE_AGAIN
from tailback.sources.request import DiagnosisRequest


class StoredResult(FrozenModel):
    """A result that ``diagnosis.json`` holds.

    Attributes:
        request: What was asked for; in a file of its own.
    """

    request: DiagnosisRequest | None = Field(default=None, exclude=True, repr=False)

    def facts(self) -> dict[str, Any]:
        """The result as plain values, for JSON."""
        return self.model_dump(mode="json")

    def write(self, out: str | Path, *, force: bool = False) -> None:
        """Write ``diagnosis.json`` and ``request.json`` into a folder; raises RunError."""
        with AtomicDirectory(out, force=force) as folder:
            text = self.model_dump_json(indent=2)
            (folder / "diagnosis.json").write_text(text + "\n", encoding="utf-8")
            if self.request is not None:
                self.request.write(folder)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The result in a folder; raises RunError if it is damaged."""
        file = folder / "diagnosis.json"
        try:
            return cls.model_validate_json(content(file, RunError))
        except ValueError as error:
            raise RunError(
                f"damaged diagnosis: {str(error).splitlines()[0]}", file=file, remedy=DIAGNOSE_AGAIN
            ) from None
