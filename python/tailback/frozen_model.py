"""The base of what is written to ``diagnosis.json``: checked when it is made, and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """A model whose fields cannot be assigned and that takes no unknown ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, checked as a new one is; pydantic's own is not."""
        copied = super().model_copy(deep=deep)
        return type(self).model_validate({**dict(copied), **(update or {})})
