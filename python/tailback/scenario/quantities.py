"""Types of quantities in a scenario: text with a unit outside, plain numbers inside."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from tailback.units import (
    exact_bytes,
    exact_rate,
    exact_time,
    parse_bytes,
    parse_gbps,
    parse_time_ps,
)

TimePs = Annotated[
    int,
    BeforeValidator(parse_time_ps),
    PlainSerializer(exact_time, return_type=str),
]
"""A time in a scenario: text with a unit outside, integer picoseconds inside."""

SizeBytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    PlainSerializer(exact_bytes, return_type=str),
]
"""A size in a scenario: text with a unit outside, integer bytes inside."""

RateGbps = Annotated[
    float, BeforeValidator(parse_gbps), PlainSerializer(exact_rate, return_type=str)
]
"""A data rate in a scenario: text with a unit outside, gigabits per second inside."""

LinkGbps = Annotated[RateGbps, Field(gt=0)]
"""The data rate of a link, which is above 0."""
