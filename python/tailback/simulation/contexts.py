"""The context of messages on both sides: labels for the engine that tell them apart.

The engine adds up samples by the label of a message, which is that of its send. Here each label is
divided by the label of the receive that the message meets and, if the scenario asks for it, by the
receiving node. The engine counts by these finer labels, and its results get the original ones back,
with columns for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback import _core
from tailback.fabric.core_errors import translate_core_error
from tailback.identity_cache import PerObject
from tailback.simulation.prepare import Job, Workload
from tailback.traffic.program import Program
from tailback.traffic.transform import side_by_side

Labels = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class MessageContexts:
    """Meaning of each label by which the engine counts.

    Attributes:
        label: Label of the send, (E,).
        receive_label: Label of the receive, (E,); None if it is unknown.
        receiver: Receiving node, (E,); None if receivers are not told apart.
        job: Job of each, (E,).
    """

    label: Labels
    receive_label: Labels | None
    receiver: Labels | None
    job: Labels

    @staticmethod
    def of_sends(job_of_label: Labels) -> MessageContexts:
        """Labels of sends alone, of these jobs."""
        return MessageContexts(
            np.arange(len(job_of_label), dtype=np.uint32), None, None, job_of_label
        )

    def resolve(self, columns: Mapping[str, Any]) -> pl.DataFrame:
        """A table of the engine with the labels of both sides in place of the engine's.

        Unknown or undistinguished values are null.
        """
        frame = pl.DataFrame(dict(columns))
        at = frame["label"].to_numpy().astype(np.int64)
        columns = {
            "label": self.label,
            "receive_label": self.receive_label,
            "receiver": self.receiver,
        }
        return frame.with_columns(
            pl.lit(None, pl.UInt32).alias(name)
            if labels is None
            else pl.Series(name, labels[at], pl.UInt32)
            for name, labels in columns.items()
        )


def split_contexts(workload: Workload, receivers: bool) -> tuple[Workload, MessageContexts]:
    """Give the messages of a workload labels that tell their contexts apart.

    Args:
        workload: The workload.
        receivers: Whether to tell receiving nodes apart.

    Returns:
        The workload with the finer labels, in order of label, receive label and receiver, and their
        meaning. If every label means one context, it is the workload itself.

    Raises:
        TraceError: Sends and receives do not match.
    """
    parts = [
        _split_labels(job, place if receivers else None)
        for job, place in zip(workload.jobs, workload.places, strict=True)
    ]
    first = np.cumsum([0, *(len(job.program.labels) for job in workload.jobs)]).astype(np.uint32)
    job = np.repeat(np.arange(len(parts), dtype=np.uint32), [len(keys) for _, keys in parts])
    label, receive_label = (
        np.concatenate(
            [keys[:, side] + start for (_, keys), start in zip(parts, first, strict=False)]
        )
        for side in (0, 1)
    )
    receiver = np.concatenate([keys[:, 2] for _, keys in parts]) if receivers else None
    contexts = MessageContexts(label, receive_label, receiver, job)
    if all(
        program is original.program
        for (program, _), original in zip(parts, workload.jobs, strict=True)
    ):
        return workload, contexts
    jobs = [
        replace(original, program=part[0])
        for original, part in zip(workload.jobs, parts, strict=True)
    ]
    merged, job_of_label = side_by_side([split.program for split in jobs])
    return replace(workload, jobs=jobs, program=merged, job_of_label=job_of_label), contexts


def _split_labels(job: Job, place: NDArray[np.uint32] | None) -> tuple[Program, NDArray[np.uint32]]:
    """The program of a job with finer labels, and the context of each, (E, 3)."""
    # Simulations of one program differ in placement, network and settings: receivers alone depend
    # on them.
    split = _by_receive(job.program) if place is None else _refine_labels(job.program, place)
    if split is not None:
        return split
    same = np.arange(len(job.program.labels), dtype=np.uint32)
    return job.program, np.stack([same, same, np.zeros_like(same)], axis=1)


def _refine_labels(
    program: Program, place: NDArray[np.uint32] | None
) -> tuple[Program, NDArray[np.uint32]] | None:
    """The program with finer labels, and their contexts; None if every label means one context."""
    sends = program.sends
    if not sends.any() or (place is None and len(program.labels) == 1):
        return None
    with translate_core_error("[[job]]"):
        received = _core.receive_labels(program)
    sent = program.label[sends]
    if place is None and bool((sent == received).all()):
        return None
    node = np.zeros_like(sent) if place is None else place[program.peer[sends]]
    key = (sent.astype(np.uint64) << np.uint64(32)) | node
    # Sorted by label, receive label and node, which together do not fit into 64 bits.
    of_pair, pair = np.unique(key, return_inverse=True)
    both = (received.astype(np.uint64) << np.uint64(32)) | pair.astype(np.uint64)
    distinct, of_send = np.unique(both, return_inverse=True)
    ends = of_pair[(distinct & np.uint64(0xFFFFFFFF)).astype(np.int64)]
    keys = np.stack(
        [ends >> np.uint64(32), distinct >> np.uint64(32), ends & np.uint64(0xFFFFFFFF)], axis=1
    ).astype(np.uint32)
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    rank = np.empty(len(order), np.uint32)
    rank[order] = np.arange(len(order), dtype=np.uint32)
    label = program.label.copy()
    label[sends] = rank[of_send]
    # The engine counts by the labels of sends alone.
    label[~sends] = 0
    keys = keys[order]
    labels = [program.labels[number] for number in keys[:, 0].tolist()]
    return replace(program, label=label, labels=labels, recompile=None), keys


_by_receive = PerObject[tuple[Program, NDArray[np.uint32]] | None](
    lambda program: _refine_labels(program, None)
)
