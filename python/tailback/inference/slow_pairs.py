"""The slow host, adapter, cable or rail that benchmarks between pairs of hosts show.

A fault slows every pair that uses it and no other. So each suspect (a host, an adapter, the uplinks
of a leaf switch, a rail, the path between two hosts) predicts which pairs are slow, all by the same
factor. Its likelihood is compared with that of no fault; what it explains is taken out, and the
next fault is searched for among the rest. Each is then judged once more on the tests that the other
faults leave, so that their order does not matter. Suspects that the same pairs use cannot be told
apart.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tailback.arrays import Bools, Floats

LEAST_SLOWDOWN: Final = 0.05
"""Relative excess of the time below which no pair counts as slow: repetitions differ by as much."""

_LEAST_NOISE: Final = 0.01
"""Smallest standard deviation of a logarithm of a time between repetitions of a test."""

_ERRATIC: Final = 0.02
"""Share of tests whose time says nothing: an interrupted run, another job at that time."""

_WIDTH: Final = 6.0
"""Range of the logarithm of their times."""

_SPREAD: Final = 0.15
"""Relative deviation of the slowdowns of the pairs that one fault slows."""

_PRIOR: Final = 0.1
"""Prior probability of a fault of each kind of suspect: pairs are measured where one is feared."""

_MOST_FAULTS: Final = 8


@dataclass(frozen=True)
class PairTime:
    """One benchmark between two hosts, or within one.

    Attributes:
        hosts: The hosts; of a test in one direction the sender first.
        rail: Number of the adapter that it used on each; -1 unknown.
        leaves: Leaf switch of each adapter; empty names where unknown.
        gbps: Rate at the largest size.
        log_time: Mean logarithm of the time at the sizes that all tests have.
        directed: Whether only the first host sends.
    """

    hosts: tuple[str, ...]
    rail: int
    leaves: tuple[str, ...]
    gbps: float
    log_time: float
    directed: bool = False


@dataclass(frozen=True)
class Suspect:
    """Something that several pairs share.

    Attributes:
        kind: ``host``, ``inside``, ``sends``, ``receives``, ``adapter``, ``rail``, ``uplinks`` or
            ``path``.
        names: The host or hosts, or the switch or switches.
        rail: Number of the adapter, -1 for all.
    """

    kind: str
    names: tuple[str, ...]
    rail: int = -1


@dataclass(frozen=True)
class PairFault:
    """A fault, with what it explains.

    Attributes:
        suspects: What may be at fault: all that the same pairs use, the most probable first.
        probability: Of the fault, given the other faults and what else the tests allow, 0–1.
        slow: Tests that use it, shape (M,).
        alone: Those of them that no other fault slows, shape (M,).
        slowdown: Factor of the times of these.
        rivals: Other explanations and their probabilities, the most probable first.
    """

    suspects: tuple[Suspect, ...]
    probability: float
    slow: Bools
    alone: Bools
    slowdown: float
    rivals: tuple[tuple[Suspect, float], ...] = ()


class PairFaults(NamedTuple):
    """What tests of pairs show.

    Attributes:
        faults: The faults, those that the most tests show first.
        noise: Standard deviation of the logarithm of a healthy time.
        healthy: Probability that there is no fault, 0–1.
    """

    faults: list[PairFault]
    noise: float
    healthy: float


_Group = tuple[Suspect, ...]
"""Suspects that the same tests use."""


@dataclass
class _FaultSearch:
    """Faults that explain slow tests.

    Attributes:
        excess: Logarithm of each time over the usual one, shape (M,).
        noise: Its standard deviation between healthy tests.
        users: Tests that use each group of suspects, shape (M,), by its suspects.
    """

    excess: Floats
    noise: float
    users: dict[_Group, Bools]

    def faults(self) -> list[_Group]:
        """The faults that together explain the slow tests best."""
        chosen: list[_Group] = []
        while len(chosen) < _MOST_FAULTS and (best := self._best(chosen)) is not None:
            chosen.append(best)
        # What was chosen first was judged while tests that later faults slow were still its own.
        for _ in range(len(chosen)):
            before = list(chosen)
            for group in before:
                others = [each for each in chosen if each != group]
                best = self._best(others)
                at = chosen.index(group)
                chosen[at : at + 1] = [] if best is None else [best]
            if chosen == before:
                break
        return [
            group
            for group in chosen
            if (self.users[group] & self._without([g for g in chosen if g != group])).any()
        ]

    def fault(self, group: _Group, others: Sequence[_Group]) -> PairFault:
        """A fault with its probability beside the others."""
        chance, _ = self.chances(others)
        ranked = sorted(chance, key=lambda s: -chance[s])
        slow = self.users[group]
        alone = slow & self._without(others)
        slowdown = math.exp(float(np.median(self.excess[alone])))
        rivals = [each for each in ranked if each != group and chance[each] >= 0.01]
        shown = tuple((each[0], chance[each]) for each in rivals[:3])
        return PairFault(group, chance[group], slow, alone, slowdown, shown)

    def chances(self, others: Sequence[_Group]) -> tuple[dict[_Group, float], float]:
        """Probability of each next fault beside others, and that there is none."""
        remaining = self._without(others)
        scores = {group: self._score(group, mine & remaining) for group, mine in self.users.items()}
        most = max(0.0, *scores.values()) if scores else 0.0
        total = math.exp(-most) + sum(math.exp(score - most) for score in scores.values())
        chance = {group: math.exp(score - most) / total for group, score in scores.items()}
        return chance, math.exp(-most) / total

    def _best(self, others: Sequence[_Group]) -> _Group | None:
        """The most probable next fault beside others; None if there is rather none."""
        chance, none = self.chances(others)
        best = max(chance, key=lambda group: chance[group], default=None)
        return best if best is not None and chance[best] > none else None

    def _without(self, faults: Sequence[_Group]) -> Bools:
        """Tests that none of some faults slows."""
        out = np.ones(len(self.excess), np.bool_)
        for group in faults:
            out &= ~self.users[group]
        return out

    def _score(self, suspects: _Group, tests: Bools) -> float:
        """Logarithm of the posterior odds against none of a fault that slows these tests."""
        mine = self.excess[tests]
        if not len(mine):
            return -math.inf
        middle = float(np.median(mine))
        if middle < math.log1p(LEAST_SLOWDOWN):
            return -math.inf
        width = math.hypot(self.noise, _SPREAD * middle)
        gain = float(
            (_log_density(mine, middle, width) - _log_density(mine, 0.0, self.noise)).sum()
        )
        kinds = {suspect.kind for suspect in suspects}
        alike = sum(bool(kinds & {s.kind for s in group}) for group in self.users)
        prior = math.log(_PRIOR * len(suspects) / max(alike, 1))
        # The factor is free: its prior is flat over the range of erratic times.
        return gain + prior - math.log(_WIDTH / width) + 0.5 * math.log(2 * math.pi / len(mine))


def find_pair_faults(tests: Sequence[PairTime]) -> PairFaults:
    """Explain slow pairs by faults.

    Args:
        tests: Benchmarks of one kind, M ≥ 2.
    """
    times = np.array([test.log_time for test in tests])
    apart = np.array([len(set(test.hosts)) > 1 for test in tests])
    excess = times.copy()
    noise = _LEAST_NOISE
    for group in (apart, ~apart):
        if group.any():
            usual, deviation = _usual(times[group])
            excess[group] -= usual
            noise = max(noise, deviation)
    search = _FaultSearch(excess, noise, _users(tests))
    groups = search.faults()
    faults = [search.fault(each, [g for g in groups if g != each]) for each in groups]
    return PairFaults(faults, noise, search.chances([])[1])


def quickest(tests: int) -> int:
    """Number of the quickest tests, a third, from which the usual time is taken."""
    return max(2, -(-tests // 3))


def _usual(times: Floats) -> tuple[float, float]:
    """Logarithm of the time of healthy tests, and its deviation: those of the quickest third.

    Faults only ever slow a test, and may slow most of them; the quickest third is healthy unless
    more than two thirds of the tests use what is at fault.
    """
    ordered = np.sort(times)
    quick = ordered[: quickest(len(times))]
    middle = float(np.median(quick))
    near = ordered[ordered <= middle + math.log1p(LEAST_SLOWDOWN)]
    return float(np.median(near)), float(np.std(near))


def _log_density(values: Floats, middle: float, width: float) -> Floats:
    """Logarithm of the density of times; erratic ones are longer, as no test outruns a fault."""
    usual = -0.5 * ((values - middle) / width) ** 2 - math.log(width * math.sqrt(2 * math.pi))
    erratic = np.where(values > middle, math.log(_ERRATIC / _WIDTH), -np.inf)
    return np.asarray(np.logaddexp(usual + math.log1p(-_ERRATIC), erratic))


def _users(tests: Sequence[PairTime]) -> dict[_Group, Bools]:
    """Tests that use each suspect; suspects with the same tests together, the likeliest first."""
    members: dict[Suspect, list[int]] = {}
    for number, test in enumerate(tests):
        for suspect in _used_by(test):
            members.setdefault(suspect, []).append(number)
    groups: dict[Hashable, list[Suspect]] = {}
    for suspect, mine in members.items():
        groups.setdefault(tuple(mine), []).append(suspect)
    out = {}
    for suspects in groups.values():
        users = np.zeros(len(tests), np.bool_)
        users[members[suspects[0]]] = True
        if not users.all():
            out[tuple(sorted(suspects, key=lambda s: _ORDER.index(s.kind)))] = users
    return out


_ORDER: Final = ("inside", "host", "adapter", "sends", "receives", "uplinks", "rail", "path")


def _used_by(test: PairTime) -> list[Suspect]:
    hosts = tuple(dict.fromkeys(test.hosts))
    if len(hosts) < 2:
        return [Suspect("inside", hosts)]
    ends = hosts[0], hosts[-1]
    out = [Suspect("host", (host,)) for host in ends]
    if test.rail >= 0:
        out += [Suspect("adapter", (host,), test.rail) for host in ends]
        out.append(Suspect("rail", (), test.rail))
    if test.directed:
        out += [Suspect("sends", ends[:1]), Suspect("receives", ends[1:])]
    leaves = tuple(leaf for leaf in dict.fromkeys(test.leaves) if leaf)
    if len(leaves) > 1:
        out += [Suspect("uplinks", (leaf,)) for leaf in leaves]
        out.append(Suspect("uplinks", tuple(sorted(leaves))))
    out.append(Suspect("path", tuple(sorted(ends))))
    return out
