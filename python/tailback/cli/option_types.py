"""Numbers on the command line, and options that several commands have."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import click

from tailback.errors import InvalidValueError
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
        try:
            time_ps = parse_time_ps(value)
        except InvalidValueError as error:
            self.fail(str(error), param, ctx)
        if time_ps <= 0:
            self.fail(f"{value} is no time, give '60 s' for example", param, ctx)
        return Budget(time_ps / 1e12)


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
            if not 0 < nanoseconds < 2**63:
                self.fail(f"{value!r} is out of range", param, ctx)
            return nanoseconds
        try:
            picoseconds = parse_time_ps(value)
        except ValueError as error:
            more = ", or '7 d' (min, h, d)" if self._long else ""
            self.fail(f"{error}{more}", param, ctx)
        if picoseconds < (1000 if self._least == "nanosecond" else 1):
            self.fail(f"{value!r} is less than a {self._least}", param, ctx)
        return picoseconds / 1000


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
