"""Senders to one rank take turns, so that their queue does not extend into the network."""

from __future__ import annotations

import numpy as np

from tailback.arrays import Ints
from tailback.traffic.collectives import CollectiveStep
from tailback.traffic.program import Label, Program
from tailback.traffic.rewrites.edit import (
    MessageSet,
    ProgramEdit,
    fan_in_receivers,
    format_ranks,
    fresh_tag,
    messages_of,
    waited_at,
)
from tailback.traffic.rewrites.rewrite import (
    REWRITES,
    DoesNotApplyError,
    Focus,
    Rewritten,
    describe,
)

AT_ONCE = 2
"""Senders admitted at a time: one sends while the permission of the other is in flight, so the
receiver's link is never idle."""


@REWRITES.register("taken-turns")
def taken_turns(program: Program, focus: Focus) -> Rewritten:
    """Many send to one at once: the receiver admits two at a time, in the order of their ranks.

    Applies where at least four ranks send to one that posts its receives before it waits for any of
    them and sends nothing there itself. The receiver's link limits the time as before; other
    traffic gains, because it no longer waits in its queue. A permission is an empty message, as in
    the synchronised gather of MPI libraries.
    """
    messages = messages_of(program, focus)
    receivers = fan_in_receivers(program, messages)
    needed = waited_at(program)
    for receiver in receivers.tolist():
        posts = messages.receive[messages.dst == receiver]
        if posts.max() > needed[posts].min():
            raise DoesNotApplyError(
                f"rank {receiver} already receives from one sender at a time: it posts a receive "
                "once the previous one is complete"
            )
    edit = ProgramEdit(program)
    tag = fresh_tag(program)
    for receiver in receivers.tolist():
        _add_permissions(edit, messages.only(messages.dst == receiver), receiver, needed, tag)
    return Rewritten(
        edit.build(),
        f"Have {format_ranks(receivers)} admit the senders of {describe(program, focus)} {AT_ONCE} "
        "at a time: each sender waits for an empty message from its receiver before it sends.",
        "messages",
    )


def _add_permissions(
    edit: ProgramEdit, group: MessageSet, receiver: int, needed: Ints, tag: int
) -> None:
    """Permissions of one receiver: two at the start, then one for each completed sender."""
    old = edit.labels[int(group.label[0])]
    label = edit.label(Label(old.phase, "permission", communicator=old.communicator, path=old.path))
    at = int(needed[group.receive].min())
    senders = np.unique(group.src)
    members = np.array([receiver], np.int64)
    for number, sender in enumerate(senders.tolist()):
        if number >= AT_ONCE:
            through = group.receive[group.src == senders[number - AT_ONCE]]
            edit.wait_for(through, np.full(len(through), at))
        edit.insert_steps(
            receiver, at, [CollectiveStep(((0, 0),), ())], np.array([sender]), tag, label
        )
        first = int(group.send[group.src == sender].min())
        edit.insert_steps(sender, first, [CollectiveStep((), ((0, 0),))], members, tag, label)
