"""Numbers on the command line, and options that several commands have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

from tailback.cli.result import RefusedValueError
from tailback.errors import InvalidValueError, nearest
from tailback.units import parse_time_ps

if TYPE_CHECKING:
    from tailback.budget import Budget


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


class OneOf(click.Choice[str]):
    """One of several words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word; of an unknown one the error names the nearest."""
        if value not in self.choices:
            remedy = nearest(str(value), self.choices)
            raise RefusedValueError(f"unknown value {str(value)!r}", remedy, param, ctx)
        return str(value)


_LONG_UNITS_NS = {"min": 60e9, "h": 3600e9, "d": 86400e9}


class Duration(click.ParamType[float]):
    """A time with its unit, as nanoseconds.

    Args:
        least: Smallest time, in words of the error: a nanosecond or a picosecond.
        long: Minutes, hours and days are units, too.
    """

    name = "time"

    def __init__(self, least: str = "picosecond", *, long: bool = False) -> None:
        self._least, self._long = least, long

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Nanoseconds; refuses a time without a unit, and one that is too short."""
        if isinstance(value, int | float):
            return value
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(min|h|d)\s*", value)
        if match and self._long:
            nanoseconds = float(match[1]) * _LONG_UNITS_NS[match[2]]
        else:
            try:
                nanoseconds = parse_time_ps(value) / 1000
            except InvalidValueError as error:
                remedy = "write it like '60 s', '10 min', '2 h' or '7 d'"
                remedy = remedy if self._long else error.remedy
                raise RefusedValueError(error.message, remedy, param, ctx) from None
        if nanoseconds < (1 if self._least == "nanosecond" else 1e-3):
            remedy = f"give a {self._least} or more"
            raise RefusedValueError(f"{value!r} is too short", remedy, param, ctx)
        if nanoseconds >= 2**63:
            remedy = "give less than 292 years"
            raise RefusedValueError(f"{value!r} is out of range", remedy, param, ctx)
        return nanoseconds


class TimeBudget(click.ParamType["Budget"]):
    """A wall-clock time with its unit, which begins to run when the option is read."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Budget:
        """The budget; refuses a time without a unit, and none at all."""
        from tailback.budget import Budget

        if isinstance(value, Budget):
            return value
        return Budget(Duration(long=True).convert(value, param, ctx) / 1e9)


profile_option = click.option(
    "--profile",
    is_flag=True,
    help="Show Tailback's own CPU time and memory by stage, on stderr.",
)

verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Print everything, not one screen."
)

format_option = click.option(
    "--format",
    "form",
    type=OneOf(["text", "json"]),
    default="text",
    show_default=True,
    help="What to print.",
)

quiet_option = click.option("--quiet", is_flag=True, help="Print no progress on stderr.")
