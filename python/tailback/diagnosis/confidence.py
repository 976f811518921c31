"""The main cause of an expected run, and how probably it is the main one.

Every step of the waterfall is simulated in several repetitions, and with other engine settings
(:data:`tailback.diagnosis.waterfall.ENGINE_VARIATIONS`). Each is a variation of the model with its
own costs and its own main cause, chosen by the same rule as the verdict. How the costs vary gives
the probability of each cause. Nothing here is fitted to scenarios with known causes
(docs/explanation/verdict.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.model import Agreement, Cause, CauseShare
from tailback.diagnosis.waterfall import VariedTimes

DRAWS, SEED = 4000, 20
"""Number of draws, for a probability to half a per cent, and their seed."""

NO_CONTENTION_CAUSES: tuple[Cause, ...] = ("not-network", "injection", "in-host")

OUTSIDE_NETWORK: tuple[Cause, ...] = ("in-host", "imbalance")
"""Causes of simulated runs that cost time outside the network."""

WORTH_FIXING = 0.05
"""A cause that costs this share of the total time is always worth fixing."""

MIN_WORTH = 0.02
"""A cause that costs this share (the smallest gain for which a placement is recommended) is worth
fixing if contention takes :data:`WORTH_OF_COMMUNICATION` of the communication time: the network is
then slow, and computation only masks it. Smaller costs are within run-to-run variation."""

WORTH_OF_COMMUNICATION = 0.20
"""Smallest share of the communication time at which contention is more than a few short queues."""

SURE = 0.8
"""Smallest probability of a verdict: an administrator who follows five wastes the time of one."""

LINE_BOUND = 0.5
"""Injection limits the run from this share of the total time that the busiest adapter needs at line
rate: no change of placement, routing or neighbours can save the larger part of it."""


@dataclass(frozen=True)
class TimeUse:
    """What is the same in all variations.

    Attributes:
        communication: Share of rank time blocked in communication, 0–1.
        wire: Share of the time that the busiest adapter needs at its line rate, 0–1.
        contention: Share of the time that contention costs, whether or not it can be gained, 0–1.
    """

    communication: float
    wire: float
    contention: float = 0.0


@dataclass(frozen=True)
class Unexplained:
    """Time of the run that no simulated cause explains.

    Attributes:
        share: Its share of the time.
        slow: Probability that slow cables cost it, and not other traffic.
    """

    share: float = 0.0
    slow: float = 0.0

    @property
    def real(self) -> float:
        """Probability that it has a cause, and is no error of the simulated time.

        Both are equally likely beforehand. An error is normal (:data:`TIME_ERROR`); a cause may
        cost any share of the time.
        """
        error = NormalDist(0.0, TIME_ERROR).pdf(self.share)
        return 1.0 / (1.0 + error)

    @property
    def cause(self) -> Cause:
        """The more probable of the two."""
        return "slow-link" if self.slow > 0.5 else "other-traffic"

    def added_to(self, cost: Mapping[Cause, float]) -> dict[Cause, float]:
        """The costs with this time charged to its cause."""
        return {**cost, self.cause: cost.get(self.cause, 0.0) + self.share}


def main_cause(cost: Mapping[Cause, float], use: TimeUse) -> Cause:
    """The most expensive cause, or what remains if none is worth fixing.

    Args:
        cost: Share of the time that each cause costs; ``in-host`` is the main cause if it costs
            :data:`WORTH_FIXING`, more than any cause of contention, and no less than the line rate
            of the adapters where that limits the run. ``imbalance`` is if it costs that, and most.
        use: Communication and line rate of the run.
    """
    contention, within = in_network(cost), cost.get("in-host", 0.0)
    largest = max(contention.values(), default=0.0)
    if cost.get("imbalance", 0.0) >= max(largest, within, WORTH_FIXING):
        return "imbalance"
    worth = is_worth_fixing(contention, use)
    if worth and largest >= within:
        return max(contention, key=lambda cause: contention[cause])
    if within >= WORTH_FIXING and (worth or within >= use.wire or use.wire < LINE_BOUND):
        return "in-host"
    return cause_without_contention(use.wire)


def in_network(cost: Mapping[Cause, float]) -> dict[Cause, float]:
    """The costs without those of transfers within hosts and of computation: no contention."""
    return {cause: share for cause, share in cost.items() if cause not in OUTSIDE_NETWORK}


def is_worth_fixing(cost: Mapping[Cause, float], use: TimeUse) -> bool:
    """Whether contention costs enough of the total time or of the communication time."""
    largest = max(cost.values(), default=0.0)
    if largest >= WORTH_FIXING:
        return True
    contention, busy = max(sum(cost.values()), use.contention), use.communication
    return largest >= MIN_WORTH and busy > 0 and contention >= WORTH_OF_COMMUNICATION * busy


def cause_without_contention(wire: float) -> Cause:
    """The cause if there is no contention: the adapters' line rate, or not the network.

    Args:
        wire: Share of the time that the busiest adapter needs at its line rate, 0–1.
    """
    return "injection" if wire >= LINE_BOUND else "not-network"


BEYOND_OWN_COST = 0.9
"""What counts of a gain beyond the own cost of a cause: another placement, say, also avoids a slow
link. Causes whose gains differ by a tenth are as good as equal, and the one that costs most itself
comes first (a blind case accepts both)."""


class Attainable(NamedTuple):
    """How much can be gained of what a cause costs: a part of it, and what another cause costs.

    Attributes:
        part: The part, 0–1.
        beyond: What is gained beyond it, as a share of the time.
    """

    part: float = 1.0
    beyond: float = 0.0

    def of(self, cost: float) -> float:
        """What can be gained of a cost, as a share of the time."""
        return self.part * cost + self.beyond


def attainable(shares: Sequence[CauseShare], use: TimeUse) -> dict[Cause, Attainable]:
    """What can be gained of each cause that was removed; what all others cost.

    Empty if no single change gains anything worth it, although causes cost time together.

    Args:
        shares: Cost of each cause, charged in order and removed alone.
        use: Communication and line rate of the run.
    """
    out = dict[Cause, Attainable]()
    for share in shares:
        if share.removed is None:
            continue
        more = share.removed - share.charged
        if more > 0:
            out[share.cause] = Attainable(beyond=BEYOND_OWN_COST * more)
        else:
            out[share.cause] = Attainable(part=share.removed / max(share.charged, 1e-12))
    gained = {share.cause: attained(out, share.cause, share.charged) for share in shares}
    return {} if main_cause(gained, use) in NO_CONTENTION_CAUSES else out


def attained(parts: Mapping[Cause, Attainable], cause: Cause, cost: float) -> float:
    """What can be gained of the cost of a cause: all of it, where that is not known."""
    return parts.get(cause, Attainable()).of(cost)


def alternatives(cause: Cause, shares: Sequence[CauseShare]) -> tuple[Cause, ...]:
    """Other causes whose removal saves mostly the time that is saved without ``cause``.

    Moving our ranks and stopping the job beside them, say, both end the contention between the two.
    Which of them is the main cause is then no question about the run: either may be removed. So
    their probabilities add up, and a verdict names both.

    The run saves without two causes what both are charged in order. What both save alone beyond
    that, either saves: the larger part of what the lesser gains. An alternative saves time in every
    repetition and draw of its removal.

    Args:
        cause: A cause.
        shares: Cost of each cause, charged in order and removed alone.
    """
    of = {share.cause: share for share in shares if (share.removed_low or 0.0) > 0.0}
    first = of.get(cause)
    if first is None:
        return ()

    def removed(share: CauseShare) -> float:
        return share.removed or 0.0

    def shared(other: CauseShare) -> float:
        pair = (first, other)
        return sum(map(removed, pair)) - sum(share.charged for share in pair)

    others = [share for share in of.values() if share is not first]
    same = [each for each in others if 2 * shared(each) > min(removed(first), removed(each))]
    return tuple(share.cause for share in sorted(same, key=removed, reverse=True))


def costs_in(
    variations: Sequence[VariedTimes], parts: Mapping[Cause, Attainable]
) -> list[dict[Cause, float]]:
    """Share of the time that each simulated cause costs in every variation of the model.

    Args:
        variations: Times of the steps in every variation.
        parts: What can be gained of that cost in the run itself, from :func:`attainable`.
    """
    return [
        scaled(
            {cause: attained(parts, cause, share) for cause, share in varied.charged.items()},
            contention_scale(varied.steps, varied.run_ps),
        )
        for varied in variations
    ]


def count_agreement(
    causes: Sequence[Cause],
    costs: Sequence[Mapping[Cause, float]],
    hidden: Unexplained,
    use: TimeUse,
) -> Agreement:
    """Count the variations in which the main cause is one of several.

    Args:
        causes: The verdict, and its alternatives.
        costs: Cost of each cause in every variation.
        hidden: Time that the model does not explain.
        use: Communication and line rate of the run.
    """
    counts = Counter(main_cause(hidden.added_to(cost), use) for cost in costs)
    others = [name for name, _ in counts.most_common() if name not in causes]
    return Agreement(
        holds=sum(counts[cause] for cause in causes),
        of=len(costs),
        otherwise=others[0] if others else None,
    )


def chances(
    costs: Sequence[Mapping[Cause, float]], hidden: Unexplained, use: TimeUse
) -> dict[Cause, float]:
    """Probability that each cause is the main one, given its cost in every variation.

    The costs on a machine whose settings are not known are one more draw from the distribution of
    which the variations are a sample (:func:`_drawn`). In each draw the main cause is chosen as in
    the run itself. All have the probability :data:`MODELLED` together: the cause may be another.

    Args:
        costs: Cost of each cause in every variation.
        hidden: Time that the model does not explain.
        use: Communication and line rate of the run.
    """
    rng = np.random.default_rng(SEED)
    names = list(costs[0])
    drawn = _drawn(np.array([[cost[name] for name in names] for cost in costs]), rng)
    real, slow = rng.random(DRAWS) < hidden.real, rng.random(DRAWS) < hidden.slow
    counts: Counter[Cause] = Counter()
    for row, is_real, is_slow in zip(drawn.tolist(), real, slow, strict=True):
        left = Unexplained(hidden.share * is_real, float(is_slow))
        counts[main_cause(left.added_to(dict(zip(names, row, strict=True))), use)] += 1
    return {cause: MODELLED * count / DRAWS for cause, count in counts.items()}


def _drawn(seen: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws of the costs in another variation, shape (:data:`DRAWS`, K).

    A multivariate normal distribution of unknown mean and covariance predicts Student's
    distribution (Gelman et al. 2013, section 3.6). Beforehand, its covariance is known as from one
    variation in which every cost differs independently, by the relative standard deviation of all
    costs together (by their own size, if there is one variation): so costs that happen to vary
    alike in a few variations may still differ.

    Args:
        seen: Cost of every cause in every variation, shape (N, K).
        rng: Random numbers.
    """
    n, mean = len(seen), seen.mean(axis=0)
    off = seen - mean
    relative = (off**2).sum() / max((n - 1) * (mean**2).sum(), 1e-12) if n > 1 else 1.0
    normal = rng.standard_normal((DRAWS, n)) @ off
    normal += np.sqrt(relative) * mean * rng.standard_normal((DRAWS, len(mean)))
    spread = np.sqrt((1.0 + 1.0 / n) / rng.chisquare(n, (DRAWS, 1)))
    return np.asarray(np.maximum(mean + spread * normal, 0.0), np.float64)


def scaled(charged: Mapping[Cause, float], scale: float) -> dict[Cause, float]:
    """The costs with those of contention times ``scale``; see :func:`contention_scale`."""
    return {
        cause: share if cause in OUTSIDE_NETWORK else share * scale
        for cause, share in charged.items()
    }


def contention_scale(time: Mapping[str, int], run_ps: int) -> float:
    """Share of the simulated contention that fits into the observed time, 0–1.

    The simulation may take longer than the run because its contention differs from the real one.
    Contention can cost at most the observed time minus the contention-free time of adapters and
    computation; with another placement, fewer messages may need the adapters.

    Args:
        time: Times of the steps ``injection`` and ``other traffic``, and ``network`` if simulated.
        run_ps: Time of the run.
    """
    if not time or time["other traffic"] <= run_ps:
        return 1.0
    free = min(time["injection"], time.get("network", time["injection"]))
    return min(max(run_ps - free, 0) / max(time["other traffic"] - free, 1), 1.0)


# --- likelihood --------------------------------------------------------------------------------

UNINFORMATIVE = 0.05
"""Probability that a piece of evidence says nothing about the cause, and any share is as likely as
any other. So no piece excludes a cause, and none speaks for one more than 39 to one. One in twenty
is the usual error of a test."""

MODELLED = 0.97
"""Probability that the right cause is among the hypotheses: of 341 causes reported in blind cases
337 were present."""

TIME_ERROR = 0.05
"""Standard error of a simulated time, as a share of it: unknown settings of the machine change the
time of blind cases without a hidden cause this much (docs/measurements/accuracy.md)."""


def likelihood(share: float) -> float:
    """Likelihood of a share of the evidence, 0–1, if the hypothesis predicts all of it.

    Half the density 2x of a share that is predicted to be 1, mixed with half that of any share,
    which is 1: the likelihood of a share about which the hypothesis says nothing is ½.
    """
    return 0.5 * UNINFORMATIVE + (1.0 - UNINFORMATIVE) * min(max(share, 0.0), 1.0)


def time_agreement(ratio: float) -> float:
    """Agreement of simulated and observed time, 0–1, from their ratio."""
    return math.exp(-0.5 * (math.log(max(ratio, 1e-9)) / TIME_ERROR) ** 2)
