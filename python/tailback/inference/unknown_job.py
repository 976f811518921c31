"""Traffic of an unknown job that may explain the times of messages: proposes its load.

Other jobs send in bursts: they delay some repetitions of a message and not others, and only on
links that both jobs use. A slow cable delays every repetition equally, and so does an error of the
model. An unknown job is a hypothesis: it is simulated on the hosts that our job does not use, at
the load that gives the measured time of our run. Its destinations are unknown, so the comparison is
with the distribution of times over senders, not with each sender.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tailback.diagnosis.cable_search import Outcome

DRAWS = 12
"""Number of random jobs that are tried. Their hosts, partners and bursts are unknown, so the
probability of an unknown job is the mean over them."""

BURSTS = (8, 96)
"""Range of the number of bursts per run, with a uniform prior of its logarithm: the period of the
other program is unknown."""

LEAST_HOSTS = 0.25
"""Smallest share of the free hosts that an unknown job has; uniformly distributed up to 1."""

MAX_TRIALS = 5
"""Maximum number of loads tried for each draw."""

FIRST_LOAD = 0.3
"""Load tried first: the median of the loads fitted to hidden jobs on simulated machines."""

MIN_EFFECT = 0.02
"""Share of the measured time that the job must cost at full load; below that, it shares no
important link with our job, and is not tried further."""


@dataclass(frozen=True)
class UnknownJob:
    """Fitted traffic of an unknown job.

    Attributes:
        ps: Time by which it delays our run.
        low_ps: Minimum over draws of its traffic.
        high_ps: Maximum: all the missing time.
        load: Share of the time in which its hosts send.
        spread: Difference in distribution of the times of messages, 0 for none.
        spread_alone: The same for our job alone.
    """

    ps: int
    low_ps: int
    high_ps: int
    load: float
    spread: float
    spread_alone: float

    @property
    def costs_ps(self) -> tuple[int, int, int]:
        """Its cost with the lower and the upper bound."""
        return self.ps, self.low_ps, self.high_ps


@dataclass(frozen=True)
class Draw:
    """Hypothetical traffic of a job.

    Attributes:
        load: Share of the time in which its hosts send.
        bursts: Bursts while our job runs.
        seed: Seed for its hosts and their partners.
        hosts: Share of the free hosts that it has.
        place: It sends somewhere else, such that calls and sends agree; otherwise to the partners
            drawn.
    """

    load: float
    bursts: int
    seed: int
    hosts: float = 1.0
    place: bool = False


@dataclass(frozen=True)
class Tried:
    """A simulated unknown job, and the prediction of that simulation."""

    draw: Draw
    outcome: Outcome


def draws() -> list[Draw]:
    """Random jobs; the first has all free hosts, so that it delays ours if any job does."""
    rng = np.random.default_rng(DRAWS)
    least, most = (math.log(bursts) for bursts in BURSTS)
    out = [
        Draw(
            FIRST_LOAD,
            round(math.exp(rng.uniform(least, most))),
            seed,
            float(rng.uniform(LEAST_HOSTS, 1.0)),
        )
        for seed in range(DRAWS)
    ]
    return [replace(out[0], hosts=1.0), *out[1:]]


def try_unknown_job(
    simulate: Callable[[Draw], Outcome],
    among: Sequence[Draw],
    alone_ps: int,
    measured_ps: int,
    more: Callable[[], bool] = lambda: True,
) -> Iterator[Tried]:
    """Fit the load of random jobs to the measured time.

    Args:
        simulate: Simulates our job together with one that has such traffic.
        among: The jobs, with the load to try first.
        alone_ps: Simulated time of our job alone.
        measured_ps: Time measured in and between calls.
        more: Whether further simulations are allowed; those left untried have no probability.

    Yields:
        Those that delay ours, with the load at which the run takes about as long as measured; none
        if the first does not.
    """
    if measured_ps <= alone_ps:
        return
    search = _Search(simulate, alone_ps, measured_ps, more)
    none_delays = True
    for draw in among:
        fit = search.fit(draw) if more() else None
        if fit is not None:
            none_delays = False
            yield fit
        elif none_delays:
            return


@dataclass(frozen=True)
class _Search:
    simulate: Callable[[Draw], Outcome]
    alone_ps: int
    measured_ps: int
    more: Callable[[], bool]

    def fit(self, draw: Draw) -> Tried | None:
        """Fit the load to the measured time of our run; None if no load delays it.

        The time grows with the load, about linearly between two known points.
        """
        low, high = (0.0, self.alone_ps), (1.0, 0)
        load, best = draw.load, None
        for _ in range(MAX_TRIALS):
            now = replace(draw, load=load)
            came = self.simulate(now)
            off = abs(came.elapsed_ps - self.measured_ps)
            if best is None or off < abs(best.outcome.elapsed_ps - self.measured_ps):
                best = Tried(now, came)
            if off <= 0.02 * self.measured_ps or load >= 1.0 > high[0] or not self.more():
                break
            if came.elapsed_ps < self.measured_ps:
                if load >= 1.0:
                    break
                low = load, came.elapsed_ps
            else:
                high = load, came.elapsed_ps
            load = self._next(low, high)
        if best is None or best.outcome.elapsed_ps - self.alone_ps < MIN_EFFECT * self.measured_ps:
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
