"""Numbers as people read them: one rule for the terminal, the pages and the figures."""

from __future__ import annotations

import pytest

from tailback.units import format_bytes, format_time, format_times, percent


@pytest.mark.parametrize(
    ("ps", "text"),
    [
        (0, "0 ps"),
        (-0.3, "0 ps"),
        (999, "999 ps"),
        (44_000_000, "44 µs"),
        (999.94e3, "999.9 ns"),
        (999.96e3, "1 µs"),
        (-999.96e3, "-1 µs"),
        (999.96e9, "1 s"),
        (2.993e9, "2.993 ms"),
        (9999e12, "9999 s"),
        (12345e12, "12,345 s"),
        (2**62, "4,611,686 s"),
    ],
)
def test_a_time_has_its_written_unit(ps: float, text: str) -> None:
    assert format_time(ps) == text


def test_a_range_from_zero_has_one_unit() -> None:
    assert format_times(0, 417e9) == "0–417 ms"
    assert format_times(767.3e6, 1.238e9) == "767.3 µs–1.238 ms"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (131072, "128 KiB"),
        (1023.97 * 1024, "1 MiB"),
        (12 * 2**40, "12,288 GiB"),
    ],
)
def test_a_size_has_its_written_unit(size: float, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.004, "0.4 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.423, "42 %"),
        (1, "100 %"),
        (-0.001, "-0.1 %"),
        (-0.0001, "0.0 %"),
        (-0.2, "-20 %"),
    ],
)
def test_a_small_share_is_not_nothing(share: float, text: str) -> None:
    assert percent(share) == text


def test_what_rounds_to_zero_has_no_minus() -> None:
    assert percent(-0.001, 0) == "0 %" and percent(-0.0001, 1, "+") == "+0.0 %"
    assert percent(0.2396, sign="+") == "+24 %" and percent(-0.2396, sign="+") == "-24 %"
