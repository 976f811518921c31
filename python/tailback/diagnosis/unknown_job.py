"""Tests whether traffic of an unknown job explains the times of messages.

Other jobs send in bursts: they delay some repetitions of a message and not others, and only on
links that both jobs use. A slow cable delays every repetition equally, and so does an error of the
model. An unknown job is a hypothesis: it is simulated on the hosts that our job does not use, at
the load that gives the measured time of our run. Its destinations are unknown, so the comparison is
with the distribution of times over senders, not with each sender.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailback.run import Run

BURSTS = (12, 24, 48, 96)
"""Numbers of bursts per run that are tried: the period of the other program is unknown."""

DRAWS = 3
"""Random draws of partners and bursts; the best one is used, as the real ones are unknown."""

MAX_TRIALS = 5
"""Maximum number of loads tried for each draw."""

FIRST_LOAD = 0.3
"""Load tried first: the median of the loads fitted to hidden jobs on simulated machines."""

MIN_EFFECT = 0.02
"""Share of the measured time that the job must cost at full load; below that, it shares no
important link with our job."""

MIN_REDUCTION = 0.5
"""Share of the difference in distribution that it must remove: hidden jobs of simulated machines
remove 0.52 to 0.97."""


@dataclass(frozen=True)
class UnknownJob:
    """Fitted traffic of an unknown job.

    Attributes:
        ps: Time by which it delays our run.
        low_ps: Minimum over draws of its traffic.
        high_ps: Maximum: all the missing time.
        load: Share of the time in which its hosts send.
        spread: Difference in distribution of the times of messages, 0 for none.
        spread_alone: The same for our job alone, up to a common factor for the error of the model.
    """

    ps: int
    low_ps: int
    high_ps: int
    load: float
    spread: float
    spread_alone: float


@dataclass(frozen=True)
class Draw:
    """Hypothetical traffic of a job.

    Attributes:
        load: Share of the time in which its hosts send.
        bursts: Bursts while our job runs.
        seed: Seed for its partners.
    """

    load: float
    bursts: int
    seed: int


@dataclass(frozen=True)
class _Fit:
    draw: Draw
    elapsed_ps: int
    spread: float


def fit_unknown_job(
    simulate: Callable[[Draw], Run],
    spread: Callable[[Run], float | None],
    alone_ps: int,
    measured_ps: int,
    spread_alone: float,
) -> UnknownJob | None:
    """Fit the traffic of an unknown job to the missing time.

    Args:
        simulate: Simulates our job together with one that has such traffic.
        spread: Difference in distribution of the times of messages.
        alone_ps: Simulated time of our job alone.
        measured_ps: Time measured in and between calls.
        spread_alone: Difference in distribution of our job alone.

    Returns:
        None if such a job does not delay ours, or does not explain the variation between
        repetitions.
    """
    missing = measured_ps - alone_ps
    if missing <= 0:
        return None
    search = _Search(simulate, spread, alone_ps, measured_ps)
    first = search.fit(Draw(FIRST_LOAD, BURSTS[0], 0))
    if first is None:
        return None
    fits = [first]
    for bursts in BURSTS[1:]:
        fits.append(search.fit(Draw(fits[-1].draw.load, bursts, 0)) or fits[-1])
    best = min(fits, key=lambda fit: fit.spread)
    others = (search.fit(Draw(best.draw.load, best.draw.bursts, seed)) for seed in range(1, DRAWS))
    drawn = [best, *(fit for fit in others if fit is not None)]
    best = min(drawn, key=lambda fit: fit.spread)
    if best.spread > (1.0 - MIN_REDUCTION) * spread_alone:
        return None
    costs = [min(max(fit.elapsed_ps - alone_ps, 0), missing) for fit in drawn]
    return UnknownJob(
        costs[drawn.index(best)],
        min(costs),
        missing,
        best.draw.load,
        best.spread,
        spread_alone,
    )


@dataclass(frozen=True)
class _Search:
    simulate: Callable[[Draw], Run]
    spread: Callable[[Run], float | None]
    alone_ps: int
    measured_ps: int

    def fit(self, draw: Draw) -> _Fit | None:
        """Fit the load to the measured time of our run; None if no load delays it.

        The time grows with the load, about linearly between two known points.
        """
        low, high = (0.0, self.alone_ps), (1.0, 0)
        load, best = draw.load, None
        for _ in range(MAX_TRIALS):
            run = self.simulate(Draw(load, draw.bursts, draw.seed))
            spread = self.spread(run)
            error = abs(run.elapsed_ps - self.measured_ps)
            if spread is not None and (
                best is None or error < abs(best.elapsed_ps - self.measured_ps)
            ):
                best = _Fit(Draw(load, draw.bursts, draw.seed), run.elapsed_ps, spread)
            if error <= 0.02 * self.measured_ps or load >= 1.0 > high[0]:
                break
            if run.elapsed_ps < self.measured_ps:
                if load >= 1.0:
                    break
                low = load, run.elapsed_ps
            else:
                high = load, run.elapsed_ps
            load = self._next(low, high)
        if best is None or best.elapsed_ps - self.alone_ps < MIN_EFFECT * self.measured_ps:
            return None
        return best

    def _next(self, low: tuple[float, int], high: tuple[float, int]) -> float:
        """The next load: interpolated between two, or extrapolated if there is no upper one."""
        if not high[1]:
            delay = low[1] - self.alone_ps
            if delay < MIN_EFFECT * self.measured_ps:
                return 1.0
            return min(low[0] * min((self.measured_ps - self.alone_ps) / delay, 2.5), 1.0)
        share = (self.measured_ps - low[1]) / max(high[1] - low[1], 1)
        return low[0] + (high[0] - low[0]) * min(max(share, 0.15), 0.85)
