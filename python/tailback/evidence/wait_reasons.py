"""Why the rank that was waited for was late: delay analysis (Böhme et al. 2016).

A wait shows which rank was late, not why. Both ranks are compared since they last synchronised: the
late rank computed longer, was in MPI longer, or waited longer itself. The wait is divided among
these in proportion to their excess. If its own waits made the rank late, they are traced back to
their reasons.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.evidence.recorded import RecordedRun
from tailback.evidence.waits import NXN_COMPLETION, PREFIX, Waits
from tailback.traffic.readers.otf2_names import OPERATIONS, ROOTED

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_CHAIN = 64
"""Length of the chain of waits that is followed; the rest counts as communication."""

_BACK = 8
"""Number of synchronisations searched for one that both ranks took part in."""

_REPEATS = 3
"""A computation has a usual length from this many occurrences on."""


@dataclass(frozen=True)
class WaitReasons:
    """Why the rank that each wait is for was late, shape (W,) each; they add up to its value.

    Attributes:
        imbalance_ps: It had computed more than the rank that waits, and does so usually.
        noise_ps: It had computed more because a computation took longer than it usually does.
        communication_ps: It had been in MPI longer, transferring, or had begun later.
        computing_rank: The rank whose computation that was, -1 without.
    """

    imbalance_ps: Ints
    noise_ps: Ints
    communication_ps: Ints
    computing_rank: Ints


def compute_gaps(recorded: RecordedRun) -> tuple[Ints, Ints]:
    """Time outside of MPI before each call, by its beginning and its length, shape (C,).

    Time without recording does not count.
    """
    calls = recorded.calls
    before = np.append(0, calls.leave_ps[:-1])[: len(calls)]
    begin = np.where(calls.first_of_rank, recorded.start_ps[calls.rank], before)
    return begin, np.where(calls.paused, 0, np.maximum(calls.enter_ps - begin, 0))


def irregular_gaps(recorded: RecordedRun) -> Ints:
    """How much longer than usual each computation before a call was, shape (C,).

    Usual is the median over the repetitions of the same place of the program on the same rank. A
    place is the call before, the call after and its call path. Excess common to both compared ranks
    causes no wait.
    """
    calls = recorded.calls
    _, length = compute_gaps(recorded)
    previous = np.where(calls.first_of_rank, -1, np.append(-1, calls.name[:-1])[: len(calls)])
    frame = pl.DataFrame(
        {"rank": calls.rank, "before": previous, "after": calls.name, "path": calls.path,
         "length": length}
    )  # fmt: skip
    place = ("rank", "before", "after", "path")
    usual = frame.select(
        pl.when(pl.len().over(*place) >= _REPEATS)
        .then(pl.col("length").quantile(0.5, "lower").over(*place))
        .otherwise(pl.col("length"))
    )
    median: Ints = usual.to_series().to_numpy().astype(np.int64)
    return np.asarray(np.clip(length - median, 0, None))


def wait_reasons(recorded: RecordedRun, waits: Waits) -> WaitReasons:
    """Find the reasons for each wait."""
    n = len(waits)
    begins = np.flatnonzero((waits.kind < NXN_COMPLETION) & (waits.value_ps > 0))
    held = _of_calls(recorded, waits.call[begins], waits.value_ps[begins])
    delay = _delays(recorded, waits, begins, held)
    value = waits.value_ps[begins].astype(np.float64)
    own, noise = value * delay.computed, value * delay.irregular
    imbalance, odd = own.copy(), noise.copy()
    for _ in range(_CHAIN):
        # The reasons for the rank's own waits, weighted by their share of its delay.
        before = imbalance, odd
        imbalance = own + value * delay.waited * delay.share_of(recorded, waits, begins, before[0])
        odd = noise + value * delay.waited * delay.share_of(recorded, waits, begins, before[1])
        if max(np.abs(imbalance - before[0]).max(initial=0),
               np.abs(odd - before[1]).max(initial=0)) < 1:  # fmt: skip
            break
    zero = np.zeros(n, np.int64)
    out = WaitReasons(zero, zero.copy(), zero.copy(), np.full(n, -1, np.int64))
    out.imbalance_ps[begins] = np.floor(imbalance)
    out.noise_ps[begins] = np.minimum(
        np.floor(odd), waits.value_ps[begins] - out.imbalance_ps[begins]
    )
    out.communication_ps[:] = waits.value_ps - out.imbalance_ps - out.noise_ps
    some = out.imbalance_ps[begins] + out.noise_ps[begins] > 0
    out.computing_rank[begins[some]] = _computing(recorded, waits, begins, delay)[some]
    return out


def _of_calls(recorded: RecordedRun, call: Ints, amount: NDArray[np.generic]) -> Floats:
    """Amounts of calls summed up to before each call, shape (C + 1,)."""
    each = np.zeros(len(recorded.calls))
    each[call] = amount
    return np.append(0.0, np.cumsum(each))


@dataclass(frozen=True)
class _Delays:
    """Shares of waits, (B,) each: activities that took the late rank longer than the waiting one.

    ``since`` and ``until`` are the calls between which it is compared: the first one whose wait
    counts and the call that was waited for.
    """

    computed: Floats
    irregular: Floats
    waited: Floats
    since: Ints
    until: Ints
    held: Floats

    def share_of(self, recorded: RecordedRun, waits: Waits, begins: Ints, amount: Floats) -> Floats:
        """Share that ``amount`` of each wait has in the waits since the last synchronisation."""
        total = _of_calls(recorded, waits.call[begins], amount)
        whole = self.held[self.until] - self.held[self.since]
        part = total[self.until] - total[self.since]
        return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def _delays(recorded: RecordedRun, waits: Waits, begins: Ints, held: Floats) -> _Delays:
    calls = recorded.calls
    _, length = compute_gaps(recorded)
    computed, odd = np.cumsum(length), np.cumsum(irregular_gaps(recorded))
    own_call, late_call = waits.call[begins], waits.partner_call[begins]
    own_sync, late_sync, at_leave = _synchronised(recorded, own_call, late_call)
    first_call = np.searchsorted(calls.rank, np.arange(recorded.n_ranks))

    def since(call: Ints, sync: Ints, leave: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints, Ints]:
        """Computation, its irregular part, first call whose wait counts, and the instant."""
        first = first_call[calls.rank[call]]
        at = np.maximum(sync, 0)
        none = sync < 0
        base = np.where(none, computed[first] - length[first], computed[at])
        base_odd = np.where(none, odd[first], odd[at])
        instant = np.where(leave, calls.leave_ps[at], calls.enter_ps[at])
        return (
            computed[call] - base,
            odd[call] - base_odd,
            np.where(none, first, at + leave),
            np.where(none, recorded.start_ps[calls.rank[call]], instant),
        )

    own = since(own_call, own_sync, np.ones(len(begins), np.bool_))
    late = since(late_call, late_sync, at_leave)
    waited_own = held[own_call] - held[own[2]]
    waited_late = held[late_call] - held[late[2]]
    moved_own = calls.enter_ps[own_call] - own[3] - own[0] - waited_own
    moved_late = calls.enter_ps[late_call] - late[3] - late[0] - waited_late
    # Without a common synchronisation, that one began later than the other counts too.
    moved_late = moved_late + np.where(late_sync < 0, late[3] - own[3], 0)
    more = np.maximum(late[0] - own[0], 0).astype(np.float64)
    strange = np.clip(late[1] - own[1], 0, more)
    waited = np.maximum(waited_late - waited_own, 0)
    moved = np.maximum(moved_late - moved_own, 0)
    # Each activity explains at most its own excess.
    whole = np.maximum(more + waited + moved, waits.value_ps[begins])
    return _Delays(
        (more - strange) / whole, strange / whole, waited / whole, late[2], late_call, held
    )


def _synchronised(
    recorded: RecordedRun, own_call: Ints, late_call: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Calls in which two ranks last synchronised before the given ones, -1 without.

    A synchronisation is a collective that no rank leaves before all have entered, or a message
    between the two.

    Returns:
        The call of the rank that waits, which counts from where it is left; that of the rank waited
        for; and whether that one counts from where it is left, shape (B,) each.
    """
    own_best, late_best = _in_collectives(recorded, own_call, late_call)
    at_leave = np.ones(len(own_call), np.bool_)
    own_row, late_row, leaves = _in_messages(recorded, own_call, late_call)
    later = late_row > late_best
    return (
        np.where(later, own_row, own_best),
        np.where(later, late_row, late_best),
        np.where(later, leaves, at_leave),
    )


def _in_collectives(recorded: RecordedRun, own_call: Ints, late_call: Ints) -> tuple[Ints, Ints]:
    c, calls = recorded.collectives, recorded.calls
    one_way = np.isin(c.operation, [OPERATIONS.index(name) for name in (*ROOTED, *PREFIX)])
    c = c.take(~one_way & (c.call == c.start_call))
    own, late = np.full(len(own_call), -1, np.int64), np.full(len(own_call), -1, np.int64)
    if not len(c):
        return own, late
    by_call = np.argsort(c.call)
    in_order = c.call[by_call]
    key = c.instance * recorded.n_ranks + c.rank
    by_key = np.argsort(key)
    keys = key[by_key]
    at = np.searchsorted(in_order, own_call) - 1
    for back in range(_BACK):
        row = by_call[np.maximum(at - back, 0)]
        same = (at - back >= 0) & (c.rank[row] == calls.rank[own_call]) & (own < 0)
        wanted = c.instance[row] * recorded.n_ranks + calls.rank[late_call]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        other = c.call[by_key[place]]
        good = same & (keys[place] == wanted) & (other < late_call)
        own[good], late[good] = c.call[row[good]], other[good]
    return own, late


def _in_messages(
    recorded: RecordedRun, own_call: Ints, late_call: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    t, calls = recorded.transfers, recorded.calls
    t = t.take((t.send_call >= 0) & (t.recv_done_call >= 0))
    n = recorded.n_ranks
    # A message to the rank that waits, and one from it.
    mine = np.concatenate([t.recv_done_call, t.send_call])
    theirs = np.concatenate([t.send_call, t.recv_done_call])
    leaves = np.repeat([False, True], len(t))
    pair = calls.rank[mine] * n + calls.rank[theirs]
    span = len(calls) + 1
    order = np.argsort(pair * span + mine, kind="stable")
    ordered = (pair * span + mine)[order]
    wanted = calls.rank[own_call] * n + calls.rank[late_call]
    at = np.searchsorted(ordered, wanted * span + own_call) - 1
    own, late = np.full(len(own_call), -1, np.int64), np.full(len(own_call), -1, np.int64)
    at_leave = np.ones(len(own_call), np.bool_)
    if not len(order):
        return own, late, at_leave
    for back in range(_BACK):
        row = order[np.maximum(at - back, 0)]
        good = (at - back >= 0) & (pair[row] == wanted) & (own < 0) & (theirs[row] < late_call)
        own[good], late[good] = mine[row[good]], theirs[row[good]]
        at_leave[good] = leaves[row[good]]
    return own, late, at_leave


def _computing(recorded: RecordedRun, waits: Waits, begins: Ints, delay: _Delays) -> Ints:
    """Rank whose computation caused each wait: the rank waited for, or one that it waited for."""
    who = waits.partner[begins].copy()
    passed = delay.waited > delay.computed + delay.irregular
    order = np.argsort(waits.call[begins])
    in_order = waits.call[begins][order]
    at = np.maximum(np.searchsorted(in_order, delay.until) - 1, 0)
    before = order[at] if len(order) else at
    passed &= in_order[at] >= delay.since if len(order) else passed
    for _ in range(_CHAIN):
        new = np.where(passed, who[before], who) if len(order) else who
        if (new == who).all():
            break
        who = new
    return who
