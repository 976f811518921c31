"""Benchmarks of one kind that differ between hosts by more than their noise.

A rate fitted to pairs of hosts of which some are slow is one that no pair reaches. So the same test
between different hosts is compared before it is fitted: the logarithm of each time is an effect of
its size plus one of its hosts, and what neither explains is noise. Where the effects of hosts
differ by more, the test is not fitted, and the hosts that all slow ones have in common are named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.calibration.fitted_series import (
    MIN_STREAM_BYTES,
    SMALL_BYTES,
    Placed,
)
from tailback.units import format_time

_LEAST_DIFFERENCE: Final = 0.05
"""Relative difference below which hosts are fitted together: the value is then off by 2.5 % at
most, less than one run of a benchmark differs from the next."""

_UNKNOWN_NOISE: Final = 0.25
"""The same where times of one or two sizes hardly show the noise: as for a slope, a quarter is too
much error."""

_MIN_FREEDOM: Final = 5
"""Degrees of freedom from which the noise counts as known: its quantile of Student's t is within
three times the normal one."""

_WRONG: Final = 0.001
"""Probability that some of the hosts of a healthy machine are said to differ."""

Hosts = tuple[str, ...]
Regime = Literal["rate", "latency"]


@dataclass(frozen=True)
class HostValue:
    """What a test reached between some hosts.

    Attributes:
        hosts: The hosts; of a test in one direction, the sender first.
        value: Gb/s of the largest messages, or ps of the smallest.
        slow: Whether it is one of the slow ones.
    """

    hosts: Hosts
    value: float
    slow: bool


@dataclass(frozen=True)
class Disagreement:
    """A test whose results differ between hosts.

    Attributes:
        source: The test.
        regime: Whether rates differ, or latencies.
        local: Whether it ran within hosts.
        values: What it reached between each group of hosts, in the order of the files.
        suspects: Hosts that all slow groups have in common and no other has.
        role: What the suspects do in all slow groups and not in others, if taking part is not
            enough: ``sends`` or ``receives``.
    """

    source: str
    regime: Regime
    local: bool
    values: tuple[HostValue, ...]
    suspects: Hosts
    role: str = ""

    def text(self) -> str:
        """Sentences that name the hosts that differ, by how much, and the suspects."""
        what = "rates" if self.regime == "rate" else "latencies of small messages"
        groups = []
        for slow in (True, False):
            mine = [value for value in self.values if value.slow == slow]
            names = " and ".join("–".join(value.hosts) for value in mine)
            groups.append(
                f"{names} {'reach' if self.regime == 'rate' else 'take'} {self._range_text(mine)}"
            )
        return (
            f"{self.source}: {what} differ between hosts and are not fitted together: "
            f"{groups[0]}, {groups[1]}. {self._conclusion()}"
        )

    def _range_text(self, values: Sequence[HostValue]) -> str:
        low, high = min(value.value for value in values), max(value.value for value in values)
        if self.regime == "latency":
            ends = [format_time(round(end)) for end in (low, high)]
        else:
            ends = [f"{end:.4g} Gb/s" for end in (low, high)]
        return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"

    def _conclusion(self) -> str:
        if not self.suspects:
            return "The slow ones have no host in common that the others lack"
        names = " or ".join(self.suspects)
        if self.local:
            return f"{names} is slow inside"
        if self.role:
            return f"What {names} {self.role} is slow: one direction of its adapter or cable"
        if len(self.suspects) > 1:
            return f"{names}, or what lies between, is slow: measure each with another host"
        return f"{names} or its cable is slow"


def agreeing(placed: Sequence[Placed]) -> tuple[list[Placed], list[Disagreement]]:
    """Series on which the hosts agree, and the disagreements.

    Where only rates differ, latencies of small messages stay.
    """
    groups: dict[object, list[int]] = {}
    for row, member in enumerate(placed):
        groups.setdefault(_group_key(member), []).append(row)
    kept, disagreements = list(placed), list[Disagreement]()
    for rows in groups.values():
        # Hosts at unknown distances may differ in latency.
        regimes: tuple[Regime, ...] = ("rate", "latency") if placed[rows[0]].route else ("rate",)
        for regime in regimes:
            disagreement = _compare_hosts([kept[row] for row in rows], regime)
            if disagreement is None:
                continue
            disagreements.append(disagreement)
            for row in rows:
                kept[row] = _drop_regime(kept[row], regime)
    return [member for member in kept if len(member.series.size_bytes)], disagreements


def _group_key(member: Placed) -> object:
    """Key of the series that have equal times on a healthy machine."""
    s = member.series
    return s.quantity, s.layer, s.source, s.pairs, len(member.hosts), member.route


def _in_regime(size: Floats, regime: Regime) -> NDArray[np.bool_]:
    return np.asarray(size >= MIN_STREAM_BYTES if regime == "rate" else size <= SMALL_BYTES)


def _drop_regime(member: Placed, regime: Regime) -> Placed:
    """The series without the sizes at which hosts differ; empty if latencies differ."""
    s = member.series
    keep = np.zeros(len(s.size_bytes), np.bool_)
    if regime == "rate":
        keep = ~_in_regime(s.size_bytes, regime)
    arrays = {
        name: getattr(s, name)[keep]
        for name in ("size_bytes", "time_ps", "resolution_ps", "error_ps", "deviation_ps")
        if getattr(s, name) is not None
    }
    return replace(member, series=replace(s, **arrays))


def _compare_hosts(members: Sequence[Placed], regime: Regime) -> Disagreement | None:
    """How the times of one kind of test differ between hosts; None if they agree."""
    if regime == "latency" and members[0].series.quantity != "latency":
        return None
    by_hosts: dict[Hosts, list[Placed]] = {}
    for member in members:
        if member.hosts:
            by_hosts.setdefault(member.hosts, []).append(member)
    names = list(by_hosts)
    if len(names) < 2:
        return None
    sizes = _common_sizes(members, regime)
    if not sizes:
        return None
    # The mean over repeated runs, shape (hosts, sizes).
    times = np.array(
        [
            [np.mean([_log_time(run, size) for run in runs]) for size in sizes]
            for runs in by_hosts.values()
        ]
    )
    effect = times.mean(axis=1)
    if np.ptp(effect) <= _noise(times):
        return None
    order = np.argsort(effect)
    at = int(np.argmax(np.diff(effect[order])))
    limit = effect[order[at : at + 2]].mean()
    end = sizes[-1] if regime == "rate" else sizes[0]
    values = []
    for name, row, mean in zip(names, times, effect, strict=True):
        time = math.exp(row[sizes.index(end)])
        values.append(
            HostValue(name, end * 8000 / time if regime == "rate" else time, bool(mean > limit))
        )
    suspects, role = _find_suspects(values)
    route = members[0].route
    local = route is not None and route.switches == 0
    return Disagreement(members[0].series.source, regime, local, tuple(values), suspects, role)


def _common_sizes(members: Sequence[Placed], regime: Regime) -> list[float]:
    """Sizes of the regime that all series with hosts have, in order."""
    each = [
        set(member.series.size_bytes[_in_regime(member.series.size_bytes, regime)].tolist())
        for member in members
        if member.hosts
    ]
    return sorted(set.intersection(*each))


def _log_time(member: Placed, size: float) -> float:
    return float(np.log(member.series.time_ps[member.series.size_bytes == size]).mean())


def _noise(times: Floats) -> float:
    """Range of the effects of hosts that noise alone does not exceed, as a share of the times."""
    hosts, sizes = times.shape
    freedom = (hosts - 1) * (sizes - 1)
    if freedom < _MIN_FREEDOM:
        return _UNKNOWN_NOISE
    left = times - times.mean(axis=0) - times.mean(axis=1, keepdims=True) + times.mean()
    error = math.sqrt(2.0 * float((left**2).sum()) / freedom / sizes)
    from scipy.special import stdtrit  # takes a third of a second to import

    pairs = hosts * (hosts - 1) / 2
    noise = error * float(stdtrit(freedom, 1.0 - _WRONG / 2.0 / pairs))
    return math.hypot(_LEAST_DIFFERENCE, noise)


def _find_suspects(values: Sequence[HostValue]) -> tuple[Hosts, str]:
    """Hosts that only the slow groups share, and their role if only one end is shared."""
    slow = [value.hosts for value in values if value.slow]
    others = [value.hosts for value in values if not value.slow]

    def only(slow: Sequence[Hosts], others: Sequence[Hosts]) -> Hosts:
        common = set.intersection(*(set(hosts) for hosts in slow))
        return tuple(name for name in slow[0] if name in common.difference(*others))

    if suspects := only(slow, others):
        return suspects, ""
    for role, end in (("sends", slice(0, 1)), ("receives", slice(-1, None))):
        if suspects := only([hosts[end] for hosts in slow], [hosts[end] for hosts in others]):
            return suspects, role
    return (), ""
