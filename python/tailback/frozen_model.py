"""Base of the models in ``diagnosis.json``: validated on creation, then immutable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """An immutable model without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, validated again, which pydantic's own copy is not."""
        copied = super().model_copy(deep=deep)
        return type(self).model_validate({**dict(copied), **(update or {})})
