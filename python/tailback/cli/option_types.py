"""Numbers on the command line, and options that several commands have."""

from __future__ import annotations

import math
from typing import Any

import click

from tailback.budget import Budget
from tailback.errors import InvalidValueError
from tailback.units import parse_time_ps


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


class TimeBudget(click.ParamType[Budget]):
    """A wall-clock time with its unit, which begins to run when the option is read."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Budget:
        """The budget; refuses a time without a unit, and none at all."""
        if isinstance(value, Budget):
            return value
        try:
            time_ps = parse_time_ps(value)
        except InvalidValueError as error:
            self.fail(str(error), param, ctx)
        if time_ps <= 0:
            self.fail(f"{value} is no time, give '60 s' for example", param, ctx)
        return Budget(time_ps / 1e12)


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
