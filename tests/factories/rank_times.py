"""Tables of a fabricated measured run, whose waits are known in closed form."""

from __future__ import annotations

import numpy as np
import polars as pl

from tailback.run.run import Run

STEP_PS = 20_000_000
"""Measured time of one step: 5 µs of computation, a wait, and a transfer until the step ends."""

STEPS = 10


def wait_ps(rank: int, step: int) -> int:
    """How long a rank waits in a step, picoseconds: less than 12 µs."""
    return 1_000_000 * ((3 * rank + 5 * step) % 12)


def make_measured(run: Run, ranks: int = 16, prefix: str = "") -> dict[str, pl.DataFrame]:
    """Tables of a measured run that posts as many messages as ``run``, evenly in time.

    Every rank receives once a step; odd ranks wait for late senders, even ones at collectives.
    """
    rank = np.repeat(np.arange(ranks), STEPS)
    step = np.tile(np.arange(STEPS), ranks)
    enter = step * STEP_PS + 5_000_000
    collective = rank % 2 == 0
    waits = [wait_ps(*pair) for pair in zip(rank.tolist(), step.tolist(), strict=True)]
    call = np.arange(len(rank))
    total = STEP_PS * STEPS
    sent = run.tables["messages"].join(run.tables["labels"], on="label", maintain_order="left")
    messages = sent.height
    posted = total * np.arange(messages) // max(messages, 1)
    return {
        "calls": pl.DataFrame(
            {
                "call": call,
                "rank": rank,
                "enter_ps": enter,
                "leave_ps": (step + 1) * STEP_PS,
                "name": np.where(collective, "MPI_Allreduce", prefix + "MPI_Recv"),
                "paused": np.zeros(len(rank), np.bool_),
            }
        ),
        "waits": pl.DataFrame(
            {
                "call": call,
                "kind": np.where(collective, "wait_nxn", "late_sender"),
                "start_ps": enter,
                "value_ps": waits,
            }
        ),
        "hosts": pl.DataFrame(
            {
                "rank": np.arange(ranks),
                "host": [f"{prefix}host{i:02d}" for i in range(ranks)],
                "start_ps": np.zeros(ranks, np.int64),
                "end_ps": np.full(ranks, total),
            }
        ),
        "transfers": pl.DataFrame(
            {
                "send_enter_ps": posted,
                "recv_enter_ps": posted,
                "recv_done_ps": np.minimum(posted + STEP_PS // 2, total - 1),
                **{
                    name: sent[name]
                    for name in ("src_rank", "dst_rank", "size_bytes", "tag", "communicator")
                },
            }
        ),
    }
