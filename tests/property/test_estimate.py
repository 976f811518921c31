"""Properties of the estimators for any sums a receiver can hold."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tailback.run.schema import TABLES
from tailback.telemetry.estimate import count_interval, fraction_interval, link_estimates

HOPS = st.integers(1, 12)
RECEIVED = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), HOPS, st.integers(0, 12)),
    min_size=1,
    max_size=60,
)


def table(received: list[tuple[int, int, int, int]]) -> pl.DataFrame:
    """One row a packet: window, link, hops, congested hops (at most the hops)."""
    sides = ("receive_label", "receiver")
    names = [c.name for c in TABLES["samples"].columns if c.name not in sides]
    rows = []
    for window, link, hops, met in received:
        g = min(met, hops)
        values = (
            window,
            0,
            0,
            link,
            1,
            hops,
            hops * (hops - 1),
            64 * hops,
            int(g > 0),
            g,
            g * max(g - 1, 0),
        )
        rows.append(dict(zip(names, values, strict=True)))
    return pl.DataFrame(rows, schema=TABLES["samples"].polars_schema)


@given(RECEIVED)
def test_estimates_add_up_and_bounds_hold_the_estimate(
    received: list[tuple[int, int, int, int]],
) -> None:
    frame = link_estimates(table(received))
    assert frame["packets"].sum() == sum(hops for _, _, hops, _ in received)
    assert frame["link"].is_sorted()
    for row in frame.iter_rows(named=True):
        assert 0 <= row["fraction_low"] <= row["fraction"] + 1e-12
        assert row["fraction"] <= row["fraction_high"] + 1e-12 <= 1 + 2e-12
        assert row["packets_low"] <= row["packets"] + 1e-9
        assert row["packets"] <= row["packets_high"] + 1e-9


@given(RECEIVED)
def test_windows_and_links_add_in_any_order(
    received: list[tuple[int, int, int, int]],
) -> None:
    estimates = link_estimates(table(received))
    merged = (
        table(received)
        .group_by("window", "link")
        .agg(pl.exclude("window", "link", "job", "label").sum())
    )
    again = link_estimates(merged)
    assert estimates.equals(again)


@given(st.floats(0, 1), st.floats(1, 1e6), st.floats(0, 10), st.floats(0, 10), st.floats(1.01, 50))
def test_more_packets_never_widen_the_interval(
    fraction: float, packets: float, met: float, hops: float, factor: float
) -> None:
    a, b = np.array([met]), np.array([hops])

    def width(n: float) -> float:
        low, high = fraction_interval(np.array([fraction * n]), np.array([n]), a, b)
        return float(high[0] - low[0])

    assert width(packets * factor) <= width(packets) + 1e-9


@given(st.floats(0, 1e9), st.floats(0, 12))
def test_bounds_of_a_count_satisfy_the_score_equation(weight: float, excess: float) -> None:
    w, b = np.array([weight]), np.array([excess])
    low, high = count_interval(w, w * b, b, excess)
    for bound in (low[0], high[0]):
        gap, z = (weight - bound) ** 2, 1.959963984540054
        assert abs(gap - z * z * bound * excess) <= 1e-6 * (1 + gap + weight * (1 + excess))
