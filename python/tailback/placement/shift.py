"""Shifted placement: block placement from a later host, avoiding some hosts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, nearest
from tailback.placement import options as read
from tailback.placement.assign import PLACEMENTS
from tailback.placement.options import Options
from tailback.placement.problem import PlacementProblem, first_appearance

MAX_WORK = 200_000_000
"""Maximum number of rank pairs times shifts to examine; beyond it, only evenly spaced shifts."""


@PLACEMENTS.register("shift")
def place(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Ranks as in ``block``, but from a later host, wrapping around the allocation.

    Groups of communicating ranks then begin at other hosts: with the right shift each is within one
    leaf and unaffected by congestion on links between leaves. This sped up pF3D (Taffet and
    Mellor-Crummey, SC'19).

    Options: ``by`` (hosts to shift by; when absent, the shift that sends least between leaves, by
    bytes, congested leaves counting ``1 + congestion_weight · c`` times), ``congestion_weight``
    (default 4), ``avoid`` (names of hosts that are used last, so left out if others suffice).
    """
    read.refuse_unknown("shift", options, ("by", "congestion_weight", "avoid"))
    weight = read.number(options, "congestion_weight", 4.0)
    host = first_appearance(problem.slot_host)
    last = np.isin(problem.slot_host, _avoided(problem, options))
    if "by" in options:
        by = read.integer(options, "by", 0, least=0)
    else:
        by = _best(problem, host, last, weight)
    return _order(problem, host, last, by)


def _avoided(problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    value = options.get("avoid", [])
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise PlacementError(
            f"avoid = {value!r:.80} is not a list of host names",
            place="placement_options",
            remedy='give names, like avoid = ["node017"]',
        )
    number = {name: at for at, name in enumerate(problem.host_name)}
    for name in value:
        if name not in number:
            raise PlacementError(
                f"avoid: there is no host {name!r}",
                place="placement_options",
                remedy=nearest(name, number)[:400],
            )
    return np.array([number[name] for name in value], np.int64)


def _order(
    problem: PlacementProblem, host: NDArray[np.int64], last: NDArray[np.bool_], by: int
) -> NDArray[np.int64]:
    """Slots in the order of their hosts from number ``by`` on, those to avoid at the end."""
    count = int(host.max(initial=0)) + 1
    if not last.any() and (np.diff(host) >= 0).all():
        first = int(np.searchsorted(host, by % count))
        return np.roll(np.arange(problem.n_slots), -first)[: problem.n_ranks]
    turn = (host - by) % count
    return np.lexsort((np.arange(problem.n_slots), turn, last))[: problem.n_ranks]


def _best(
    problem: PlacementProblem, host: NDArray[np.int64], last: NDArray[np.bool_], weight: float
) -> int:
    """Shift with the least traffic between leaves; the smallest of several."""
    source, target, size = problem.traffic
    count = int(host.max(initial=0)) + 1
    step = max(1, len(source) * count // MAX_WORK)
    hot = np.zeros(int(problem.slot_leaf.max(initial=0)) + 1)
    if problem.congestion is not None:
        hot = np.nan_to_num(problem.congestion)
    bytes_ = np.maximum(size.astype(np.float64), 1.0)
    cost = {}
    # Small numbers are gathered faster.
    slot_leaf = problem.slot_leaf.astype(np.int32)
    for by in range(0, count, step):
        leaf = slot_leaf.take(_order(problem, host, last, by))
        # take() is a fifth faster than an index.
        a, b = leaf.take(source), leaf.take(target)
        away = np.flatnonzero(a != b)
        heat = np.maximum(hot.take(a.take(away)), hot.take(b.take(away)))
        cost[by] = float((bytes_.take(away) * (1.0 + weight * heat)).sum())
    return min(cost, key=lambda by: (cost[by], by))
