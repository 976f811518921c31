"""Numbers and renamed options on the command line."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number within limits that is one: ``nan`` is within all of them, as click compares."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; refuses ``nan`` and ``inf``."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


profile_option = click.option(
    "--profile",
    is_flag=True,
    help="Show Tailback's own CPU time and memory by stage, on stderr.",
)
