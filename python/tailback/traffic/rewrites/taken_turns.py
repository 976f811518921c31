"""Senders to one rank take turns, so that their queue does not reach back into the network."""

from __future__ import annotations

import numpy as np

from tailback.traffic.collectives import CollectiveStep
from tailback.traffic.program import Label, Program
from tailback.traffic.rewrites.edit import (
    Ints,
    MessageSet,
    ProgramEdit,
    fresh_tag,
    messages_of,
    ranks_named,
    sent_to_by_many,
    waited_at,
)
from tailback.traffic.rewrites.rewrite import (
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    where,
)

AT_ONCE = 2
"""Senders whose turn it is: one sends while the other one's permission is under way, so the
receiver's link does not idle."""


@REWRITES.register("taken-turns")
def taken_turns(program: Program, focus: Focus) -> Rewritten:
    """Many send to one at once: the receiver lets them, two at a time, in the order of their ranks.

    Applies where at least four ranks send to one that posts its receives before it waits for any of
    them and sends nothing there itself. The receiver's link bounds the time as before; what gains
    is everything else, which no longer stands in its queue. A permission is an empty message, as in
    the synchronised gather of MPI libraries.
    """
    found = messages_of(program, focus)
    receivers = sent_to_by_many(program, found)
    needed = waited_at(program)
    for receiver in receivers.tolist():
        posts = found.receive[found.dst == receiver]
        if posts.max() > needed[posts].min():
            raise DoesNotApplyError(
                f"rank {receiver} already receives from one sender at a time: it posts a receive "
                "once the previous one is complete"
            )
    edit = ProgramEdit(program)
    tag = fresh_tag(program)
    for receiver in receivers.tolist():
        _turns(edit, found.only(found.dst == receiver), receiver, needed, tag)
    return Rewritten(
        edit.build(),
        f"Have {ranks_named(receivers)} admit the senders of {where(program, focus)} {AT_ONCE} at "
        "a time: each sender waits for an empty message from its receiver before it sends.",
        "messages",
    )


def _turns(edit: ProgramEdit, group: MessageSet, receiver: int, needed: Ints, tag: int) -> None:
    """Permissions of one receiver: two to begin with, one for each sender that is through."""
    old = edit.labels[int(group.label[0])]
    label = edit.label(Label(old.phase, "permission", communicator=old.communicator, path=old.path))
    at = int(needed[group.receive].min())
    senders = np.unique(group.src)
    members = np.array([receiver], np.int64)
    for number, sender in enumerate(senders.tolist()):
        if number >= AT_ONCE:
            through = group.receive[group.src == senders[number - AT_ONCE]]
            edit.wait_for(through, np.full(len(through), at))
        edit.steps(receiver, at, [CollectiveStep(((0, 0),), ())], np.array([sender]), tag, label)
        first = int(group.send[group.src == sender].min())
        edit.steps(sender, first, [CollectiveStep((), ((0, 0),))], members, tag, label)
