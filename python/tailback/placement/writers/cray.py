"""Cray MPICH's rank order."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace

import numpy as np

from tailback.errors import PlacementError
from tailback.placement.writers.model import WRITERS, Binding, RankAssignment, RankFile

NODES = "# nodes in this order:"
"""First line of the comment that names the nodes, which the reader of placements parses."""

_PER_LINE = 16
_LAST_NUMBER = re.compile(r"(.*?)(\d*)\Z")


@WRITERS.register("cray")
def render(assignment: RankAssignment, file: str) -> RankFile:
    """Cray MPICH_RANK_ORDER: ranks in the order in which they fill the nodes."""
    used = _in_slurm_order(sorted(set(assignment.host)))
    position = {host: i for i, host in enumerate(used)}
    at = np.array([position[host] for host in assignment.host], np.int64)
    filled = np.bincount(at, minlength=len(used))
    each = int(filled[0])
    wrong = np.flatnonzero(filled != each)
    if len(wrong):
        # srun ignores the file and spreads ranks evenly over its nodes.
        raise PlacementError(
            "a Cray rank order needs the same number of ranks on every node, as srun spreads them "
            f"evenly, but host {used[int(wrong[0])]!r} has {filled[wrong[0]]} ranks and "
            f"{used[0]!r} {each}",
            remedy="place the same number of ranks on each host, or use another rank file",
        )
    order = np.lexsort((assignment.slot, at)).tolist()
    # Slurm sorts the nodes of a step, and Cray's start-up supports no other distribution: nodes can
    # be selected, but not ordered.
    binding = assignment.binding or Binding()
    cores = f"--cpus-per-task={binding.cores} " if binding.cores else ""
    command = (
        f"srun --nodes={len(used)} --nodelist={shlex.quote(_node_list(used))} "
        f"--ntasks={assignment.n_ranks} --ntasks-per-node={each} {cores}./app"
    )
    command = f"{binding.variables}MPICH_RANK_REORDER_METHOD=3 {command}"
    unwritten = RankFile("cray", file, "", "", command, read_as="MPICH_RANK_ORDER")
    lines = [
        f"# {unwritten.command}",
        "# valid if Slurm orders these nodes by name",
        NODES,
    ]
    for start in range(0, len(used), _PER_LINE):
        lines.append("# " + " ".join(used[start : start + _PER_LINE]))
    for start in range(0, len(order), _PER_LINE):
        lines.append(",".join(str(rank) for rank in order[start : start + _PER_LINE]))
    return replace(unwritten, text="\n".join(lines) + "\n")


def _in_slurm_order(names: list[str]) -> list[str]:
    """Names in Slurm's order: numerically by the number at the end.

    Raises:
        PlacementError: Further numbers in the names make the order ambiguous.
    """
    ends = sorted(names, key=lambda name: (_split(name)[0], int(_split(name)[1] or -1), name))
    natural = sorted(names, key=_natural)
    if ends != natural:
        first, other = next((a, b) for a, b in zip(ends, natural, strict=True) if a != b)
        raise PlacementError(
            f"a Cray rank order depends on the order in which Slurm lists the nodes, and their "
            f"names do not determine whether {first!r} or {other!r} is first",
            remedy="place on hosts whose names differ in one number, or use another rank file",
        )
    return ends


def _split(name: str) -> tuple[str, str]:
    """``("node", "007")`` of ``"node007"``."""
    match = _LAST_NUMBER.match(name)
    assert match is not None
    return match[1], match[2]


def _natural(name: str) -> tuple[list[tuple[str, int]], str]:
    parts = re.split(r"(\d+)", name)
    numbers = [int(number) for number in parts[1::2]] + [-1]
    return list(zip(parts[0::2], numbers, strict=True)), name


def _node_list(names: list[str]) -> str:
    """``node[000-015],login1`` for sorted names."""
    runs: list[tuple[str, list[str]]] = []
    for name in names:
        stem, number = _split(name)
        if runs and number and runs[-1][0] == stem and _follows(runs[-1][1][-1], number):
            runs[-1][1].append(number)
        else:
            runs.append((stem, [number]))
    groups: dict[str, list[str]] = {}
    out: list[str] = []
    for stem, numbers in runs:
        if not numbers[0]:
            out.append(stem)
            continue
        text = numbers[0] if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"
        groups.setdefault(stem, []).append(text)
    for stem, texts in groups.items():
        single = len(texts) == 1 and "-" not in texts[0]
        out.append(f"{stem}{texts[0]}" if single else f"{stem}[{','.join(texts)}]")
    return ",".join(out)


def _follows(before: str, number: str) -> bool:
    """Whether a number continues a range: 009, 010, and 9, 10, but not 9, 010."""
    if int(number) != int(before) + 1:
        return False
    return len(before) == len(number) or not (before.startswith("0") or number.startswith("0"))
