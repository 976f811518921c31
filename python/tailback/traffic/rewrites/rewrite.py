"""Interface of rewrites, which change how a program communicates."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from tailback.errors import TailbackError
from tailback.registry import Registry
from tailback.traffic.program import Program

MIN_SENDERS = 4
"""Minimum number of ranks sending to one at the same time for a rewrite: two or three may be
neighbours that coincide."""

Keeps = Literal["messages", "bytes", "result"]


class DoesNotApplyError(TailbackError):
    """The rewrite does not apply to the program; the message says why."""


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A program that communicates in another way.

    Attributes:
        program: The changed program.
        action: What to change in the code, one sentence that names call and phase.
        keeps: What stays the same: ``messages`` (all of them, in another order or at another time),
            ``bytes`` (between each pair of ranks, in each phase), or only the ``result`` (other
            messages replace them).
        assumes: Condition under which the program computes the same result; empty if there is none.
        openmpi: Options of Open MPI's ``mpirun`` that change the program so; empty if none do.
    """

    program: Program
    action: str
    keeps: Keeps
    assumes: str = ""
    openmpi: str = ""


Focus = frozenset[int]
"""Numbers of the labels whose messages may be changed."""

Rewrite = Callable[[Program, Focus], Rewritten]
"""Rewrites a program, or raises DoesNotApplyError."""

REWRITES: Registry[Rewrite] = Registry("rewrite", "other ways to communicate the same")


def labels_of_phases(program: Program, phases: Collection[str]) -> Focus:
    """Labels of the given phases; all labels if none of the phases is known."""
    focus = frozenset(i for i, label in enumerate(program.labels) if label.phase in phases)
    return focus or frozenset(range(len(program.labels)))


def whole_exchange(program: Program, focus: Focus) -> Focus:
    """The focus and the other phases of its calls: neighbours' phases follow one another."""
    calls = {(program.labels[i].call, program.labels[i].communicator) for i in focus}
    return frozenset(
        i for i, label in enumerate(program.labels) if (label.call, label.communicator) in calls
    )


def describe(program: Program, focus: Focus) -> str:
    """The call and phases of ``focus`` as text for a sentence."""
    used = [program.labels[i] for i in sorted(focus)]
    calls = list(dict.fromkeys(label.call for label in used if label.call))
    phases = list(dict.fromkeys(label.phase for label in used if label.phase))
    call = calls[0] if len(calls) == 1 else "the sends"
    if not phases:
        return call
    named = ", ".join(repr(phase) for phase in phases[:4]) + (", …" if len(phases) > 4 else "")
    return f"{call} in phase{'s' if len(phases) > 1 else ''} {named}"
