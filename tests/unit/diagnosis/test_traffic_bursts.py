"""How traffic of others came: the arrangement that agrees with what was measured."""

from __future__ import annotations

import pytest

from tailback.diagnosis.traffic_bursts import BURSTS, BurstFit, Outcome, fit_bursts

MS = 10**9


TIMES = {None: 105, 4: 160, 8: 140, 16: 122, 32: 110, 64: 106}
"""Milliseconds that a run takes beside so many bursts a window."""


def fitted(measured_ms: int, stalled: dict[int | None, float] | None = None) -> BurstFit:
    at = stalled or dict.fromkeys(BURSTS, 0.5)

    def beside(bursts: int | None) -> Outcome:
        return Outcome(TIMES[bursts] * MS, (at[bursts], None))

    return fit_bursts(Outcome(100 * MS, (1.0, None)), beside, measured_ms * MS)


@pytest.mark.parametrize(("measured", "bursts"), [(101, None), (123, 16), (141, 8), (500, 4)])
def test_the_arrangement_that_takes_as_long_as_measured_is_taken(
    measured: int, bursts: int | None
) -> None:
    fit = fitted(measured)
    assert (fit.bursts, fit.elapsed_ps) == (bursts, TIMES[bursts] * MS)
    assert fit.low_ps <= fit.elapsed_ps <= fit.high_ps
    assert fit.misfit == pytest.approx(0.5)


def test_arrangements_that_agree_as_well_give_the_interval() -> None:
    # 106, 105 and 110 ms are all within two standard errors of 107.
    fit = fitted(107)
    assert (fit.low_ps, fit.high_ps) == (105 * MS, 110 * MS)
    alone = fitted(141)
    assert alone.low_ps == alone.high_ps == 140 * MS


def test_stalls_decide_where_the_times_agree_as_well() -> None:
    unlike = dict.fromkeys(BURSTS, 0.9) | {64: 0.1}
    assert fitted(105, unlike).bursts == 64
