"""Fits to any times: one size, two sizes, constant times, one sample, several distances."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailback.calibration import FittedValue, Placed, Series, estimate
from tailback.calibration.model import DRAWS
from tailback.calibration.routes import LOCAL, Route

SIZES = (0, 1, 64, 256, 4096, 32 << 10, 128 << 10, 1 << 20, 16 << 20)
ROUTES = (None, LOCAL, Route(1, 1000.0, 100.0), Route(3, 5000.0, 100.0), Route(3, 5000.0, 50.0))


@st.composite
def series(draw: st.DrawFn, of_trace: bool) -> Series:
    """Times of a benchmark, or of a trace, which knows their errors."""
    size = np.array(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=12)), np.float64)
    kind = draw(st.sampled_from(("constant", "linear", "scattered", "heavy")))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time = np.full(len(size), draw(st.sampled_from((1.0, 1e6, 1e12))))
    if kind == "linear":
        time += 80.0 * size
    elif kind == "scattered":
        time *= rng.lognormal(0.0, 1.0, len(size))
    elif kind == "heavy":
        time *= 1.0 + rng.pareto(0.5, len(size))
    step = np.full(len(size), draw(st.sampled_from((0.0, 1.0, 1e4))))
    error = deviation = None
    if of_trace:
        error = time * draw(st.sampled_from((0.0, 1e-3, 1.0)))
        if draw(st.booleans()):
            deviation = error[:, None] * rng.standard_normal((len(size), DRAWS))
    quantity = "latency" if of_trace else draw(st.sampled_from(("latency", "stream")))
    return Series(
        quantity,
        "mpi",
        size,
        time,
        step,
        len(size),
        "trace" if of_trace else "drawn",
        error_ps=error,
        deviation_ps=deviation,
    )


@st.composite
def measurements(draw: st.DrawFn) -> list[Placed]:
    of_trace = draw(st.booleans())
    routes = draw(st.lists(st.sampled_from(ROUTES), min_size=1, max_size=5, unique=of_trace))
    return [Placed(draw(series(of_trace)), route) for route in routes]


thresholds = st.sampled_from(
    (None, FittedValue("eager", "size", 8192, 8192, 16383, "sends to late receivers", 9))
)


@given(measurements(), thresholds, st.sampled_from((None, 100.0)))
def test_any_times_give_finite_intervals(
    placed: list[Placed], eager: FittedValue | None, adapter_gbps: float | None
) -> None:
    fitted = estimate(placed, adapter_gbps=adapter_gbps, eager=eager)
    for value in (*fitted.engine, *fitted.measured):
        assert all(math.isfinite(x) for x in (value.low, value.value, value.high)), value
        assert 0 <= value.low <= value.value <= value.high, value
