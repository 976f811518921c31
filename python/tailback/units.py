"""Quantities with units: text such as ``"128 KiB"`` to and from plain numbers.

Inside Tailback the name of every number has its unit (``_ps``, ``_ns``, ``_bytes``, ``_gbps``).
Text with a unit occurs only in scenarios and on the command line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from difflib import get_close_matches

from tailback.errors import InvalidValueError

_NUMBER = re.compile(r"^\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([^\s].*?)?\s*$")

TIME_PS = {"ps": 1, "ns": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**9, "s": 10**12}
BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
MEMORY = BYTES | {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""Units of an amount of memory: single letters are powers of 1024, as in systemd and Docker."""
GBPS = {
    "b/s": 1e-9,
    "kb/s": 1e-6,
    "Mb/s": 1e-3,
    "Gb/s": 1.0,
    "Tb/s": 1e3,
    "kbit/s": 1e-6,
    "Mbit/s": 1e-3,
    "Gbit/s": 1.0,
    "Tbit/s": 1e3,
    "B/s": 8e-9,
    "kB/s": 8e-6,
    "MB/s": 8e-3,
    "GB/s": 8.0,
    "TB/s": 8e3,
    "KiB/s": 8 * 2**10 / 1e9,
    "MiB/s": 8 * 2**20 / 1e9,
    "GiB/s": 8 * 2**30 / 1e9,
    "TiB/s": 8 * 2**40 / 1e9,
}

_COLUMN_UNIT = re.compile(
    r"(?:^|[^a-z0-9])([kmgt]?)(i?)(bits?|bytes?|b)"
    r"((?:ps|[/_ ]?(?:per[_ ])?s(?:ec(?:ond)?)?)?)[)\]\s]*$",
    re.IGNORECASE,
)
_UNITS = ("bit", "bps", "b_s", "bs", "b_sec", "bits", "bit_s", "bits_s", "bit_per_s", "byte_s")
RATE_UNITS = tuple(
    f"{prefix}{unit}"
    for unit in (*_UNITS, "bits_per_second", "bytes", "bytes_s", "byte_per_s", "bytes_per_second")
    for prefix in ("g", "m", "k", "t", "", "gi", "mi", "ki", "ti")
)
"""Endings of the names of columns of rates, in lower case and with underscores."""

LONGEST_PS = 2**62
"""Longest time in a scenario, 53 days: sums with it still fit the engine's clock."""
MAX_SIZE_BYTES = 2**62
"""Largest size in a scenario."""


def _split(text: str, units: dict[str, int] | dict[str, float], what: str) -> tuple[str, str]:
    match = _NUMBER.match(text)
    if match and match.group(2) is not None and match.group(2) in units:
        return match.group(1).replace("_", ""), match.group(2)
    example = {"a time": "'60 ns'", "a size": "'128 KiB'", "a rate": "'100 Gb/s'"}[what]
    remedy = f"units: {', '.join(units)}; write it like {example}"
    if _NUMBER.match(text.strip().removeprefix("-")) and not match:
        raise InvalidValueError(f"{text!r} is below 0", f"write it like {example}")
    if match and (close := _nearest_units(match.group(2) or "", units)):
        meant = " or ".join(f"'{match.group(1)} {unit}'" for unit in close)
        remedy = f"did you mean {meant}? {remedy}"
    raise InvalidValueError(f"{text!r} is not {what} with a unit", remedy)


def _nearest_units(word: str, units: Iterable[str]) -> list[str]:
    """The units most like a word in any case: bits and bytes differ only by theirs."""
    spellings = dict[str, list[str]]()
    for unit in units:
        spellings.setdefault(unit.lower(), []).append(unit)
    close = get_close_matches(word.lower(), spellings, n=1, cutoff=0.6)
    return spellings[close[0]] if close else []


def parse_time_ps(value: object) -> int:
    """Picoseconds of ``"60 ns"``; raises ValueError that names the valid units."""
    if isinstance(value, str):
        number, unit = _split(value, TIME_PS, "a time")
        return _whole(value, number, TIME_PS[unit], LONGEST_PS, ("time", "53 days", "ps"))
    if _is_zero(value):
        return 0
    raise InvalidValueError(f"{value!r} has no unit", "write a time as text, like '60 ns'")


def parse_bytes(value: object) -> int:
    """Bytes of ``"128 KiB"``; raises ValueError that names the valid units."""
    if isinstance(value, str):
        number, unit = _split(value, BYTES, "a size")
        return _whole(value, number, BYTES[unit], MAX_SIZE_BYTES, ("size", "4 EiB", "B"))
    if _is_zero(value):
        return 0
    raise InvalidValueError(f"{value!r} has no unit", "write a size as text, like '128 KiB'")


def parse_memory(text: str) -> int:
    """Bytes of ``"1.7 GiB"``, ``"8G"`` or ``"1500 MB"``, rounded down to whole bytes.

    Raises:
        ValueError: The text is not an amount of memory; the message names what is accepted.
    """
    match = _NUMBER.match(text)
    if not match or match.group(2) not in MEMORY:
        raise InvalidValueError(
            f"{text!r} is not an amount of memory",
            f"give a number, decimals allowed, with one "
            f"of the units {', '.join(MEMORY)} (K, M, G and T mean KiB, MiB, GiB and TiB), "
            "like '1.7 GiB', '8G' or '1500 MB'",
        )
    number = _EXACT_DECIMAL.create_decimal(match.group(1).replace("_", ""))
    amount = _EXACT_DECIMAL.multiply(number, Decimal(MEMORY[match.group(2)]))
    if not 1 <= amount <= MAX_SIZE_BYTES:
        raise InvalidValueError(f"{text!r} is out of range", "give at least 1 B and at most 4 EiB")
    return int(amount)


def parse_gbps(value: object) -> float:
    """Gigabits per second of ``"100 Gb/s"`` (``"GB/s"`` is bytes); raises ValueError."""
    if isinstance(value, str):
        number, unit = _split(value, GBPS, "a rate")
        rate = float(number) * GBPS[unit]
        if not math.isfinite(rate):
            raise InvalidValueError(f"{value!r} is out of range", "write it like '100 Gb/s'")
        return rate
    raise InvalidValueError(f"{value!r} has no unit", "write a rate as text, like '100 Gb/s'")


def column_gbps(name: str) -> float | None:
    """Gigabits per second of a 1 in a column whose name ends in a unit of rates; None without one.

    ``rate_gbps`` and ``rate (Gb/s)`` are in bits, ``rate_GBps`` and ``rate_GiB/s`` in bytes.

    Raises:
        InvalidValueError: The unit is in capitals, so that bits and bytes look the same.
    """
    match = _COLUMN_UNIT.search(name)
    if match is None:
        return None
    prefix, binary, unit, per = match.groups()
    if unit == "B" and f"{prefix}{per}".isupper():
        raise InvalidValueError(
            f"the unit of {name!r} may be bits or bytes", "write Gb/s for bits and GB/s for bytes"
        )
    size = (1024 if binary else 1000) ** " kmgt".index(prefix.lower() or " ")
    return float(size) * (8 if is_in_bytes(name) else 1) / 1e9


def is_in_bytes(name: str) -> bool:
    """Whether a column name ends in a unit of bytes: ``rate_GBps``."""
    match = _COLUMN_UNIT.search(name)
    return match is not None and (match[3] == "B" or match[3].lower().startswith("byte"))


def _is_zero(value: object) -> bool:
    """Whether a value is the number 0, which needs no unit; ``false`` does not count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value == 0


_EXACT_DECIMAL = Context(prec=80, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
"""Decimal context that is exact within the limits and overflows to infinity beyond them."""


def _whole(text: str, number: str, unit: int, most: int, words: tuple[str, str, str]) -> int:
    """A number of units as a whole number of the smallest; refuses fractions of it."""
    kind, limit, smallest = words
    amount = _EXACT_DECIMAL.multiply(_EXACT_DECIMAL.create_decimal(number), Decimal(unit))
    if not amount <= most:
        raise InvalidValueError(f"{text!r} is out of range", f"give at most {limit}")
    integer = amount.to_integral_value(context=_EXACT_DECIMAL)
    if integer != amount:
        raise InvalidValueError(
            f"{text!r} is {amount.normalize(_EXACT_DECIMAL):.12g} {smallest}, and a {kind} is a "
            f"whole number of {smallest}",
            f"write {max(int(integer), 1)} {smallest}, say",
        )
    return int(integer)


def transfer_ps(size_bytes: int, gbps: float) -> int:
    """Picoseconds to transfer ``size_bytes`` at a rate.

    Raises:
        ValueError: The rate is not above 0, or the time is more than :data:`LONGEST_PS`.
    """
    time_ps = size_bytes * 8000 / gbps if gbps > 0 else math.inf
    if not time_ps <= LONGEST_PS:
        raise InvalidValueError(
            f"{format_bytes(size_bytes)} at {gbps:g} Gb/s take more than 53 days",
            "give a higher rate or a smaller size",
        )
    return round(time_ps)


def exact_rate(gbps: float) -> str:
    """A rate with enough digits to restore it bit for bit."""
    short = f"{gbps:g}"
    return f"{short if float(short) == gbps else repr(gbps)} Gb/s"


def utc(time_ns: int) -> str:
    """An instant in UTC nanoseconds since 1970, as ``"2026-03-02 14:05:09 UTC"``."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


FIRST_DATE_NS = 365 * 86_400 * 10**9
"""Earlier instants are those of readings without dates, which begin at 0."""


def instant(time_ns: int) -> str:
    """An instant as :func:`utc`; without a date as the time since the first: ``"+60 s"``."""
    return utc(time_ns) if time_ns >= FIRST_DATE_NS else f"+{format_time(1000 * time_ns)}"


def percent(share: float, digits: int | None = None, sign: str = "") -> str:
    """A share as per cent, 0.24 as ``"24 %"``; with ``sign="+"`` a change: ``"+24 %"``.

    Without ``digits`` (after the point): whole per cent from 10 % on and one digit below, so that
    0.004 is ``"0.4 %"`` and only 0 itself is ``"0 %"``. There is no negative zero.
    """
    if digits is None:
        digits = 0 if share == 0 or abs(share) >= 0.0995 else 1
    return f"{100 * share:{sign}z.{digits}f} %"


def counted(number: int, word: str, form: str = "") -> str:
    """A number of things: 1 port, 2 ports; with ``form=","`` 12,000 ports."""
    return f"{number:{form}} {word}" if number == 1 else f"{number:{form}} {word}s"


def format_time(ps: float) -> str:
    """Human-readable time: ``44 µs``; four digits, or whole seconds if there are more."""
    return " ".join(time_in_unit(ps))


def format_times(low_ps: float, high_ps: float) -> str:
    """Human-readable range of times: ``0–417 ms``, ``767.3 µs–1.238 ms``."""
    low, unit = time_in_unit(low_ps)
    return f"{low if low == '0' else f'{low} {unit}'}–{format_time(high_ps)}"


def time_in_unit(ps: float) -> tuple[str, str]:
    """The number and the unit of :func:`format_time`."""
    return _scaled(
        ps, (("ps", 1), ("ns", 1e3), ("µs", 1e6), ("ms", 1e9), ("s", 1e12)), integral=True
    )


def format_bytes(size: float) -> str:
    """Human-readable size in binary units: ``128 KiB``."""
    return " ".join(bytes_in_unit(size))


def bytes_in_unit(size: float) -> tuple[str, str]:
    """The number and the unit of :func:`format_bytes`."""
    return _scaled(size, (("B", 1), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)))


def _scaled(
    amount: float, units: tuple[tuple[str, float], ...], *, integral: bool = False
) -> tuple[str, str]:
    """An amount in the largest unit of which it is one or more *as written*: 999.96 ns is 1 µs.

    Args:
        amount: In the first unit.
        units: Names and sizes, smallest first.
        integral: Whether the first unit has no fractions.
    """
    for (name, size), larger in zip(units, (*units[1:], None), strict=True):
        value = amount / size
        digits = abs(value) >= 9999.5 or (integral and name == units[0][0])
        text = f"{value:z,.0f}" if digits else f"{value:z.4g}"
        if larger is None or abs(float(text.replace(",", ""))) < larger[1] / size:
            break
    return text, name


def _exact(value: int, units: dict[str, int], order: tuple[str, ...]) -> str:
    for unit in order if value else order[-1:]:
        if value % units[unit] == 0:
            return f"{value // units[unit]} {unit}"
    return f"{value} {order[-1]}"


def exact_time(ps: int) -> str:
    """A time as a scenario states it, without rounding: ``1500 ns``."""
    return _exact(ps, TIME_PS, ("s", "ms", "us", "ns", "ps"))


def exact_bytes(size: int) -> str:
    """A size as a scenario states it, without rounding: ``64 KiB``."""
    return _exact(size, BYTES, ("GiB", "MiB", "KiB", "B"))


def rate_of_rate(served_gbps: float, nominal_gbps: float) -> str:
    """Both rates in the unit of the larger: ``10 of 40 Mb/s``."""
    units = (("Tb/s", 1e3), ("Gb/s", 1.0), ("Mb/s", 1e-3), ("kb/s", 1e-6))
    unit, size = next((pair for pair in units if nominal_gbps >= pair[1]), units[-1])
    return f"{served_gbps / size:.3g} of {nominal_gbps / size:.4g} {unit}"
