"""Why the rank that was waited for was late: delay analysis (Böhme et al. 2016).

A wait state shows which rank was late, not why. The two ranks are compared since their last common
synchronisation: the late rank computed longer, spent longer in MPI, or waited longer itself. The
wait is split among these in proportion to their excess. Waits of the late rank are in turn
attributed to their own reasons.

Computation that follows what a rank received may need it. In a pipeline or a wavefront each rank
receives, computes and sends on; such waits are dependencies between ranks. A trace shows the order
of calls, not data, so it does not prove a dependency, but only its absence: what a rank could send
before it computed, as it had received nothing, did not depend on others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.evidence.waits import (
    EARLY_REDUCE,
    LATE_SENDER,
    NXN_COMPLETION,
    PREFIX,
    TO_ROOT,
    WAIT_BARRIER,
    WAIT_NXN,
    Waits,
)
from tailback.traffic.readers.otf2.names import OPERATIONS, ROOTED
from tailback.traffic.readers.posts import distinct
from tailback.traffic.readers.recorded_run import RecordedRun

_CHAIN = 64
"""Maximum length of chains of waits that are followed; the rest counts as communication."""

_BACK = 8
"""Number of preceding synchronisations searched for one of both ranks."""

_REPEATS = 3
"""Minimum number of repetitions of a computation for its usual length to be known."""


@dataclass(frozen=True)
class WaitReasons:
    """Breakdown of each wait by the reason for the delay; the times sum to the wait.

    Attributes:
        imbalance_ps: The late rank computes more than the waiting rank, shape (W,).
        noise_ps: A computation of the late rank took longer than usual, shape (W,).
        communication_ps: The late rank spent longer in transfers or started later, shape (W,).
        dependency_ps: Part of imbalance and noise in a chain of ranks that receive, compute and
            send on, shape (W,).
        computing_rank: Rank whose computation caused the delay, -1 if none did, shape (W,).
    """

    imbalance_ps: Ints
    noise_ps: Ints
    communication_ps: Ints
    dependency_ps: Ints
    computing_rank: Ints


def compute_gaps(recorded: RecordedRun) -> tuple[Ints, Ints]:
    """Start and length of the computation before each call, shape (C,) each.

    Length 0 where recording was paused.
    """
    calls = recorded.calls
    before = np.append(0, calls.leave_ps[:-1])[: len(calls)]
    begin = np.where(calls.first_of_rank, recorded.start_ps[calls.rank], before)
    return begin, np.where(calls.paused, 0, np.maximum(calls.enter_ps - begin, 0))


def irregular_gaps(recorded: RecordedRun) -> Ints:
    """Excess of the computation before each call over its usual length, shape (C,).

    The usual length is the median over repetitions at the same place of the program on the same
    rank: same preceding call, following call and call path. Excess common to both compared ranks
    causes no wait.
    """
    calls = recorded.calls
    _, length = compute_gaps(recorded)
    previous = np.where(calls.first_of_rank, -1, np.append(-1, calls.name[:-1])[: len(calls)])
    first, place = distinct([calls.rank, previous, calls.name, calls.path])
    order = np.lexsort((length, place))
    number = np.bincount(place, minlength=len(first))
    # The lower of the two middle ones, of an even number.
    middle = np.cumsum(number) - number + np.maximum(number - 1, 0) // 2
    usual = length[order[middle]]
    excess = np.maximum(length - usual[place], 0)
    return np.where((number >= _REPEATS)[place], excess, 0)


def wait_reasons(recorded: RecordedRun, waits: Waits) -> WaitReasons:
    """Attribute each wait to reasons."""
    n = len(waits)
    begins = np.flatnonzero((waits.kind < NXN_COMPLETION) & (waits.value_ps > 0))
    waited_before = _cumulative_before_calls(recorded, waits.call[begins], waits.value_ps[begins])
    delay = _delays(recorded, waits, begins, waited_before)
    value = waits.value_ps[begins].astype(np.float64)
    computed, noise = value * delay.computed, value * delay.irregular
    direct = np.stack([computed, noise, (computed + noise) * delay.dependent])
    reasons = direct
    for _ in range(_CHAIN):
        # Reasons for the waits of the late rank itself, weighted by their share in its delay.
        previous = reasons
        waited = [delay.share_of(recorded, waits, begins, amount) for amount in previous]
        reasons = direct + value * delay.waited * np.stack(waited)
        if np.abs(reasons - previous).max(initial=0) < 1:
            break
    imbalance, irregular, dependency = reasons
    zero = np.zeros(n, np.int64)
    out = WaitReasons(zero, zero.copy(), zero.copy(), zero.copy(), np.full(n, -1, np.int64))
    out.imbalance_ps[begins] = np.floor(imbalance)
    out.noise_ps[begins] = np.minimum(
        np.floor(irregular), waits.value_ps[begins] - out.imbalance_ps[begins]
    )
    out.dependency_ps[begins] = np.minimum(
        np.floor(dependency), (out.imbalance_ps + out.noise_ps)[begins]
    )
    out.communication_ps[:] = waits.value_ps - out.imbalance_ps - out.noise_ps
    has_computation = out.imbalance_ps[begins] + out.noise_ps[begins] > 0
    out.computing_rank[begins[has_computation]] = _computing(recorded, waits, begins, delay)[
        has_computation
    ]
    return out


def _cumulative_before_calls(
    recorded: RecordedRun, call: Ints, amount: NDArray[np.generic]
) -> Floats:
    """Sum of the amounts of all calls before each call, shape (C + 1,)."""
    each = np.zeros(len(recorded.calls))
    each[call] = amount
    return np.append(0.0, np.cumsum(each))


@dataclass(frozen=True)
class _Delays:
    """Excess activities of the late rank as shares of each wait, shape (B,) each.

    ``dependent`` is the share of its computation that belongs to a chain of ranks. ``since`` and
    ``until`` delimit the compared calls of the late rank: the first call whose wait counts, and the
    call that was waited for. ``held`` is the cumulative waiting time before each call,
    shape (C + 1,).
    """

    computed: Floats
    irregular: Floats
    waited: Floats
    dependent: Floats
    since: Ints
    until: Ints
    held: Floats

    def share_of(self, recorded: RecordedRun, waits: Waits, begins: Ints, amount: Floats) -> Floats:
        """Share of ``amount`` in the late rank's waits since the last synchronisation."""
        cumulative = _cumulative_before_calls(recorded, waits.call[begins], amount)
        all_waits = self.held[self.until] - self.held[self.since]
        attributed = cumulative[self.until] - cumulative[self.since]
        return np.divide(attributed, all_waits, out=np.zeros(len(all_waits)), where=all_waits > 0)


def _delays(recorded: RecordedRun, waits: Waits, begins: Ints, held: Floats) -> _Delays:
    calls = recorded.calls
    _, length = compute_gaps(recorded)
    computed, irregular = np.cumsum(length), np.cumsum(irregular_gaps(recorded))
    own_call, late_call = waits.call[begins], waits.partner_call[begins]
    own_sync, late_sync, at_leave = _last_sync(recorded, own_call, late_call)
    first_call = np.searchsorted(calls.rank, np.arange(recorded.n_ranks))

    def since(call: Ints, sync: Ints, leave: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints, Ints]:
        """Computation since a synchronisation, its irregular part, first call and start time."""
        first = first_call[calls.rank[call]]
        sync_call = np.maximum(sync, 0)
        unsynchronised = sync < 0
        base = np.where(unsynchronised, computed[first] - length[first], computed[sync_call])
        irregular_base = np.where(unsynchronised, irregular[first], irregular[sync_call])
        instant = np.where(leave, calls.leave_ps[sync_call], calls.enter_ps[sync_call])
        return (
            computed[call] - base,
            irregular[call] - irregular_base,
            np.where(unsynchronised, first, sync_call + leave),
            np.where(unsynchronised, recorded.start_ps[calls.rank[call]], instant),
        )

    waiting = since(own_call, own_sync, np.ones(len(begins), np.bool_))
    late = since(late_call, late_sync, at_leave)
    waited_own = held[own_call] - held[waiting[2]]
    waited_late = held[late_call] - held[late[2]]
    transfer_own = calls.enter_ps[own_call] - waiting[3] - waiting[0] - waited_own
    transfer_late = calls.enter_ps[late_call] - late[3] - late[0] - waited_late
    # Without a common synchronisation, a later start counts too.
    transfer_late = transfer_late + np.where(late_sync < 0, late[3] - waiting[3], 0)
    excess_computed = np.maximum(late[0] - waiting[0], 0).astype(np.float64)
    excess_irregular = np.clip(late[1] - waiting[1], 0, excess_computed)
    excess_waited = np.maximum(waited_late - waited_own, 0)
    excess_transfer = np.maximum(transfer_late - transfer_own, 0)
    # Each activity explains at most its own excess.
    total = np.maximum(excess_computed + excess_waited + excess_transfer, waits.value_ps[begins])
    return _Delays(
        (excess_computed - excess_irregular) / total,
        excess_irregular / total,
        excess_waited / total,
        _dependent_share(recorded, waits, begins, late[0]),
        late[2],
        late_call,
        held,
    )


# --- dependencies between ranks ----------------------------------------------------------------


def _dependent_share(
    recorded: RecordedRun, waits: Waits, begins: Ints, computed_ps: Ints
) -> Floats:
    """Share of the late rank's computation that belongs to a chain of ranks, 0–1, shape (B,).

    Since the last collective in which both ranks took part, the late rank

    - received before it computed, and then sent what the waiting rank waits for;
    - received before it computed, and then entered a collective: this is the end of a chain if its
      sender had received and computed, too. A pair in which one computes, sends, and the other then
      computes is no chain: they take turns;
    - received nothing, but the waiting rank computes and then sends to a third: the start of a
      chain. It is as long as the shorter of the two computations.

    Args:
        recorded: The trace on a common clock.
        waits: Its waits.
        begins: Those at the start of a call, shape (B,).
        computed_ps: Computation of the late rank until it was no longer waited for, shape (B,).
    """
    messages = _Messages.of(recorded)
    waiting, late, kind = waits.call[begins], waits.partner_call[begins], waits.kind[begins]
    since = np.maximum(_sync_in_collectives(recorded, waiting, late)[1], messages.before_rank(late))
    first, last = messages.first_receipt(since), messages.last_receipt(late)
    after_receipt = np.where(first < late, messages.computed(first, late), 0)
    end_of_chain = np.minimum(messages.computed(last, late), messages.relayed_ps[last])
    collective = np.isin(kind, (WAIT_NXN, WAIT_BARRIER, EARLY_REDUCE))
    part = np.where(collective, np.where(last > since, end_of_chain, 0), after_receipt)
    onwards = messages.next_send_to_third(waiting, late)
    sent = onwards >= 0
    returned = _sync_in_collectives(
        recorded, np.where(sent, onwards, waiting), messages.last_of_rank(late)
    )[0]
    starts = (kind == LATE_SENDER) & (first >= late) & sent & (returned <= waiting)
    part = np.where(starts, messages.computed(waiting, np.where(sent, onwards, waiting)), part)
    share = np.zeros(len(begins))
    np.divide(np.clip(part, 0, computed_ps), computed_ps, out=share, where=computed_ps > 0)
    return share


@dataclass(frozen=True)
class _Messages:
    """Order of receipts, sends and computation on each rank; calls are rows of the calls.

    A receipt is a call in which messages are complete, or in which a root has collected them.

    Attributes:
        rank: Rank of each call, shape (C,).
        until_ps: Computation of all ranks up to each call, shape (C,).
        next_receipt: First receipt from each call on, C if none, shape (C + 1,).
        previous_receipt: Last receipt up to each call, 0 if none, shape (C,).
        relayed_ps: For each receipt, computation of a sender between what it had received, since
            its last collective, and its send, shape (C,).
        send_call: Call of each send, in order, shape (S,).
        send_to: Its receiver, shape (S,).
    """

    rank: Ints
    until_ps: Ints
    next_receipt: Ints
    previous_receipt: Ints
    relayed_ps: Ints
    send_call: Ints
    send_to: Ints

    @classmethod
    def of(cls, recorded: RecordedRun) -> _Messages:
        """Collect them from a trace."""
        calls, c, t = recorded.calls, recorded.collectives, recorded.transfers
        n, index = len(calls), np.arange(len(calls))
        until = np.cumsum(compute_gaps(recorded)[1])
        t = t.take((t.src_rank != t.dst_rank) & (t.send_call >= 0))
        complete = t.recv_done_call >= 0
        received = np.zeros(n, np.bool_)
        received[t.recv_done_call[complete]] = True
        collects = np.isin(c.operation, [OPERATIONS.index(name) for name in TO_ROOT])
        received[c.call[collects & (c.rank == c.root)]] = True
        following = np.append(np.where(received, index, n), n)
        following = np.minimum.accumulate(following[::-1])[::-1]
        # Index 0 stands for none: what precedes it belongs to no receipt.
        previous = np.maximum.accumulate(np.where(received, index, 0))
        one_way = np.isin(c.operation, [OPERATIONS.index(name) for name in (*ROOTED, *PREFIX)])
        common = calls.first_of_rank.copy()
        common[c.call[~one_way]] = True
        began = np.maximum.accumulate(np.where(common, index, 0))
        sender = t.send_call[complete]
        first = following[began[sender]]
        relayed = np.where(first < sender, until[sender] - until[np.minimum(first, n - 1)], 0)
        relayed_ps = np.zeros(n, np.int64)
        np.maximum.at(relayed_ps, t.recv_done_call[complete], relayed)
        order = np.argsort(t.send_call, kind="stable")
        return cls(
            calls.rank,
            until,
            following,
            previous,
            relayed_ps,
            t.send_call[order],
            t.dst_rank[order],
        )

    def before_rank(self, call: Ints) -> Ints:
        """Call before the first one of the rank of each call."""
        return np.searchsorted(self.rank, self.rank[call]) - 1

    def last_of_rank(self, call: Ints) -> Ints:
        """Last call of the rank of each call."""
        return np.searchsorted(self.rank, self.rank[call], side="right") - 1

    def first_receipt(self, since: Ints) -> Ints:
        """First receipt after each call, on any rank."""
        return self.next_receipt[since + 1]

    def last_receipt(self, until: Ints) -> Ints:
        """Last receipt before each call, on any rank."""
        return self.previous_receipt[np.maximum(until - 1, 0)]

    def computed(self, first: Ints, last: Ints) -> Ints:
        """Computation of a rank between two of its calls, ps."""
        return self.until_ps[last] - self.until_ps[np.minimum(first, len(self.rank) - 1)]

    def next_send_to_third(self, waiting: Ints, late: Ints) -> Ints:
        """Next call after each in which its rank sends to another rank than the late one, or -1."""
        out = np.full(len(waiting), -1, np.int64)
        at = np.searchsorted(self.send_call, waiting, side="right")
        for step in range(_BACK):
            row = np.minimum(at + step, max(len(self.send_call) - 1, 0))
            if not len(self.send_call):
                break
            call = self.send_call[row]
            same_rank = (at + step < len(self.send_call)) & (self.rank[call] == self.rank[waiting])
            accepted = (out < 0) & same_rank & (self.send_to[row] != self.rank[late])
            out[accepted] = call[accepted]
        return out


def _last_sync(
    recorded: RecordedRun, own_call: Ints, late_call: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Calls of the last synchronisation of two ranks before the given calls, -1 if there is none.

    A synchronisation is a collective that no rank leaves before all have entered, or a message
    between the two ranks.

    Returns:
        Shape (B,) each: the call of the waiting rank, which is compared from the end of that call;
        the call of the late rank; and whether the late rank is compared from the end of its call
        (else from its start).
    """
    own_collective, late_collective = _sync_in_collectives(recorded, own_call, late_call)
    at_leave = np.ones(len(own_call), np.bool_)
    own_message, late_message, leaves = _sync_in_messages(recorded, own_call, late_call)
    message_is_later = late_message > late_collective
    return (
        np.where(message_is_later, own_message, own_collective),
        np.where(message_is_later, late_message, late_collective),
        np.where(message_is_later, leaves, at_leave),
    )


def _sync_in_collectives(
    recorded: RecordedRun, own_call: Ints, late_call: Ints
) -> tuple[Ints, Ints]:
    c, calls = recorded.collectives, recorded.calls
    one_way = np.isin(c.operation, [OPERATIONS.index(name) for name in (*ROOTED, *PREFIX)])
    c = c.take(~one_way & (c.call == c.start_call))
    own_calls, late_calls = (
        np.full(len(own_call), -1, np.int64),
        np.full(len(own_call), -1, np.int64),
    )
    if not len(c):
        return own_calls, late_calls
    by_call = np.argsort(c.call)
    in_order = c.call[by_call]
    key = c.instance * recorded.n_ranks + c.rank
    by_key = np.argsort(key)
    keys = key[by_key]
    at = np.searchsorted(in_order, own_call) - 1
    for back in range(_BACK):
        row = by_call[np.maximum(at - back, 0)]
        candidate = (at - back >= 0) & (c.rank[row] == calls.rank[own_call]) & (own_calls < 0)
        wanted = c.instance[row] * recorded.n_ranks + calls.rank[late_call]
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        other = c.call[by_key[place]]
        accepted = candidate & (keys[place] == wanted) & (other < late_call)
        own_calls[accepted], late_calls[accepted] = c.call[row[accepted]], other[accepted]
    return own_calls, late_calls


def _sync_in_messages(
    recorded: RecordedRun, own_call: Ints, late_call: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    t, calls = recorded.transfers, recorded.calls
    t = t.take((t.send_call >= 0) & (t.recv_done_call >= 0))
    n = recorded.n_ranks
    # Messages to the waiting rank, and messages from it.
    own_side = np.concatenate([t.recv_done_call, t.send_call])
    late_side = np.concatenate([t.send_call, t.recv_done_call])
    leaves = np.repeat([False, True], len(t))
    pair = calls.rank[own_side] * n + calls.rank[late_side]
    span = len(calls) + 1
    order = np.argsort(pair * span + own_side, kind="stable")
    ordered = (pair * span + own_side)[order]
    wanted = calls.rank[own_call] * n + calls.rank[late_call]
    at = np.searchsorted(ordered, wanted * span + own_call) - 1
    own_calls, late_calls = (
        np.full(len(own_call), -1, np.int64),
        np.full(len(own_call), -1, np.int64),
    )
    at_leave = np.ones(len(own_call), np.bool_)
    if not len(order):
        return own_calls, late_calls, at_leave
    for back in range(_BACK):
        row = order[np.maximum(at - back, 0)]
        accepted = (
            (at - back >= 0)
            & (pair[row] == wanted)
            & (own_calls < 0)
            & (late_side[row] < late_call)
        )
        own_calls[accepted], late_calls[accepted] = (
            own_side[row[accepted]],
            late_side[row[accepted]],
        )
        at_leave[accepted] = leaves[row[accepted]]
    return own_calls, late_calls, at_leave


def _computing(recorded: RecordedRun, waits: Waits, begins: Ints, delay: _Delays) -> Ints:
    """Rank whose computation caused each wait: the late rank, or a rank that it waited for."""
    rank = waits.partner[begins].copy()
    forwarded = delay.waited > delay.computed + delay.irregular
    order = np.argsort(waits.call[begins])
    in_order = waits.call[begins][order]
    at = np.maximum(np.searchsorted(in_order, delay.until) - 1, 0)
    before = order[at] if len(order) else at
    forwarded &= in_order[at] >= delay.since if len(order) else forwarded
    for _ in range(_CHAIN):
        updated = np.where(forwarded, rank[before], rank) if len(order) else rank
        if (updated == rank).all():
            break
        rank = updated
    return rank
