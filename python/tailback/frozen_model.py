"""Base of the models in ``diagnosis.json``: validated on creation, then immutable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """An immutable model without unknown fields."""

    # Validators are built at first use: most commands use few models.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, validated again, which pydantic's own copy is not."""
        copied = super().model_copy(deep=deep)
        return type(self).model_validate({**dict(copied), **(update or {})})
