"""Runs a placement by name and checks its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, option
from tailback.placement.options import Options
from tailback.placement.problem import PlacementProblem
from tailback.registry import Registry
from tailback.units import counted

Placement: TypeAlias = Callable[[PlacementProblem, Options], NDArray[np.int64]]
"""Gives the slot of each rank, shape (R,)."""

PLACEMENTS: Registry[Placement] = Registry("placement", "how ranks are put on nodes")


def require_slots(n_ranks: int, n_slots: int, n_hosts: int, *, recorded: bool = False) -> None:
    """Raise PlacementError if the chosen hosts have too few slots.

    ``recorded``: whether the ranks are of a trace, so that a file may tell where they ran.
    """
    if n_ranks > n_slots:
        fitting = option("ranks_per_host", -(-n_ranks // max(n_hosts, 1)))
        where = f"tell where the ranks ran ({option('rankfile')}), " if recorded else ""
        raise PlacementError(
            f"job has {n_ranks} ranks, the chosen hosts hold {n_slots} slots",
            remedy=f"{where}add {fitting}, or choose more than these {counted(n_hosts, 'host')} "
            f"({option('hosts')})",
        )


def check_slots(name: str, problem: PlacementProblem, slots: NDArray[np.int64]) -> None:
    """Raise PlacementError unless every rank has one existing slot that no other rank has."""
    slots = np.asarray(slots)
    if slots.shape != (problem.n_ranks,):
        raise PlacementError(
            f"placement {name!r} gives {slots.size} slots for {problem.n_ranks} ranks",
            remedy="a placement gives one slot for each rank",
        )
    bad = np.flatnonzero((slots < 0) | (slots >= problem.n_slots))
    if len(bad):
        raise PlacementError(
            f"placement {name!r} puts rank {bad[0]} on slot {slots[bad[0]]} of {problem.n_slots}",
            remedy=f"slots are 0 to {problem.n_slots - 1}",
        )
    order = np.argsort(slots, kind="stable")
    twice = np.flatnonzero(np.diff(slots[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise PlacementError(
            f"placement {name!r} puts ranks {first} and {second} on the same slot {slots[first]}",
            remedy="a slot holds one rank",
        )


def assign_slots(name: str, problem: PlacementProblem, options: Options) -> NDArray[np.int64]:
    """Slot of each rank under placement ``name``, checked.

    Raises:
        TailbackError: There is no such placement.
        PlacementError: The job does not fit, or an option is wrong.
    """
    part = PLACEMENTS[name]
    require_slots(problem.n_ranks, problem.n_slots, len(np.unique(problem.slot_host)))
    slots = np.asarray(part(problem, options), np.int64)
    check_slots(name, problem, slots)
    return slots


def place(
    name: str, problem: PlacementProblem, options: Options | None = None
) -> NDArray[np.uint32]:
    """Node (adapter) of each rank under placement ``name``, shape (R,).

    Args:
        name: One of ``tailback list placement``.
        problem: See :func:`tailback.placement.problem_for`.
        options: The placement's options; none when absent.

    Raises:
        TailbackError: There is no such placement.
        PlacementError: The job does not fit the hosts, or an option is wrong.
    """
    slots = assign_slots(name, problem, options or {})
    return problem.slot_node[slots].astype(np.uint32)
