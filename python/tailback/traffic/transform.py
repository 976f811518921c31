"""Transformations of programs: repeated, with scaled compute times, several jobs as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tailback.available import available_memory
from tailback.errors import ScenarioError
from tailback.scenario.model import NcclSection
from tailback.traffic.program import Label, Op, Program, RecordedTimes, require_memory
from tailback.units import LONGEST_PS, format_time


def scale_compute(program: Program, factor: float) -> Program:
    """The same program with every compute time multiplied by ``factor``.

    Raises:
        ScenarioError: A compute time exceeds the largest time that can be represented.
    """
    if factor == 1.0:
        return program
    amount = program.amount.copy()
    compute = program.kind == Op.COMPUTE
    longest = float(amount[compute].max(initial=0)) * factor
    if longest > LONGEST_PS:
        raise ScenarioError(
            f"compute_scale = {factor:g} makes a compute time of {format_time(longest)}",
            place="[[job]]",
            remedy="choose a smaller compute_scale",
        )
    amount[compute] = np.rint(amount[compute] * factor).astype(np.uint64)
    changed = _with_amount(program, amount=amount)
    changed.recompile = _recompile_with(program, partial(scale_compute, factor=factor))
    return changed


def repeat(program: Program, times: int) -> Program:
    """Repeat the operations of every rank ``times`` times.

    Raises:
        ScenarioError: The operations do not fit in memory.
    """
    if times == 1:
        return program
    require_memory(
        len(program.kind) * times,
        available_memory(),
        what=f"repeat = {times}",
        error=ScenarioError,
        place="[[job]]",
        remedy="choose a smaller repeat",
    )
    start = program.rank_start.astype(np.int64)
    counts = np.diff(start)
    # Rank after rank, that rank's operations `times` times.
    rank = np.repeat(np.arange(program.n_ranks), counts * times)
    new_start = np.concatenate([[0], np.cumsum(counts * times)])
    within = np.arange(len(rank)) - new_start[rank]
    index = start[rank] + within % np.maximum(counts[rank], 1)
    turn = within // np.maximum(counts[rank], 1)
    requests = int(program.request.max(initial=-1)) + 1
    request = program.request[index].astype(np.int64)
    request = np.where(request >= 0, request + turn * requests, -1).astype(np.int32)
    return Program(
        name=program.name,
        rank_start=new_start.astype(np.uint64),
        kind=program.kind[index],
        peer=program.peer[index],
        amount=program.amount[index],
        tag=program.tag[index],
        request=request,
        label=program.label[index],
        labels=program.labels,
        grid=program.grid,
        notes=program.notes,
        recording=_multiply_times(program.recording, times),
        recompile=_recompile_with(program, partial(repeat, times=times)),
    )


def _recompile_with(
    program: Program, change: Callable[[Program], Program]
) -> Callable[[NcclSection], Program] | None:
    """A ``recompile`` function that also applies a change."""
    if program.recompile is None:
        return None
    return partial(_recompile_changed, program.recompile, change)


def _recompile_changed(
    recompile: Callable[[NcclSection], Program],
    change: Callable[[Program], Program],
    chosen: NcclSection,
) -> Program:
    return change(recompile(chosen))


def _multiply_times(once: RecordedTimes | None, times: int) -> RecordedTimes | None:
    """Recorded times multiplied by the number of executions."""
    if once is None:
        return None
    return replace(once, calls_ps=once.calls_ps * times, between_ps=once.between_ps * times)


def side_by_side(programs: Sequence[Program]) -> tuple[Program, NDArray[np.uint32]]:
    """All programs as one, with consecutive numbers of ranks and labels.

    Returns:
        The program, and the job of each label, shape (number of labels,). One program is returned
        as it is: what is known of it (:class:`tailback.identity_cache.PerObject`) stays known.
    """
    if len(programs) == 1:
        return programs[0], np.zeros(len(programs[0].labels), np.uint32)
    start: list[NDArray[np.uint64]] = [np.zeros(1, np.uint64)]
    peer, label = [], []
    ranks = labels = operations = 0
    every_label: list[Label] = []
    job_of_label: list[int] = []
    for job, program in enumerate(programs):
        start.append(program.rank_start[1:] + np.uint64(operations))
        peer.append(np.where(program.peer >= 0, program.peer + ranks, -1).astype(np.int32))
        label.append(program.label + np.uint32(labels))
        every_label += program.labels
        job_of_label += [job] * len(program.labels)
        ranks += program.n_ranks
        labels += len(program.labels)
        operations += len(program.kind)
    merged = Program(
        name=" + ".join(program.name for program in programs),
        rank_start=np.concatenate(start),
        kind=np.concatenate([program.kind for program in programs]),
        peer=np.concatenate(peer),
        amount=np.concatenate([program.amount for program in programs]),
        tag=np.concatenate([program.tag for program in programs]),
        request=np.concatenate([program.request for program in programs]),
        label=np.concatenate(label).astype(np.uint32),
        labels=every_label,
    )
    return merged, np.array(job_of_label, np.uint32)


def _with_amount(program: Program, amount: NDArray[np.uint64]) -> Program:
    return Program(
        program.name,
        program.rank_start,
        program.kind,
        program.peer,
        amount,
        program.tag,
        program.request,
        program.label,
        program.labels,
        program.grid,
        program.notes,
        program.recording,
    )
