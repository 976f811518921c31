"""Numbers on the command line, and options that several commands have."""

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

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What to print.",
)

quiet_option = click.option("--quiet", is_flag=True, help="Print no progress on stderr.")
