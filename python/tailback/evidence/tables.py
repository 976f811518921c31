"""Tables of a measured run: schema, units and construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Ints
from tailback.evidence.hosts import Hosts, recorded_hosts
from tailback.evidence.wait_reasons import WaitReasons
from tailback.evidence.waits import KINDS, Waits
from tailback.run.schema import Table
from tailback.traffic.readers.narrow_columns import narrowed, return_freed_memory
from tailback.traffic.readers.otf2.names import OPERATIONS
from tailback.traffic.readers.recorded_run import RecordedRun

MEASURED = "measured"
"""Source of recorded rows."""

INFERRED = "inferred"
"""Source of rows whose match or completion the trace does not record."""

_SOURCE = ("source", pl.String, "measured, or inferred where the trace lacks the match or its end")


TABLES = {
    table.name: table
    for table in (
        Table.of(
            "calls",
            "one MPI call of one rank",
            ("call", pl.UInt32, "number of the call; calls of a rank follow one another"),
            ("rank", pl.UInt32, "world rank"),
            ("name", pl.String, "name of the call"),
            ("path", pl.String, "regions of the program around it, outermost first; may be empty"),
            ("enter_ps", pl.Int64, "when it was entered"),
            ("leave_ps", pl.Int64, "when it was left"),
            ("communicator", pl.String, "communicator of its first record; null without"),
            ("sent_bytes", pl.UInt64, "bytes that its records send"),
            ("received_bytes", pl.UInt64, "bytes that its records receive"),
            ("paused", pl.Boolean, "whether recording was off for a while before it"),
            _SOURCE,
        ),
        Table.of(
            "transfers",
            "one point-to-point message",
            ("src_rank", pl.UInt32, "sender"),
            ("dst_rank", pl.UInt32, "receiver"),
            ("tag", pl.UInt32, "MPI tag"),
            ("communicator", pl.String, "communicator"),
            ("size_bytes", pl.UInt64, "bytes"),
            ("send_call", pl.UInt32, "call that posted the send"),
            ("send_enter_ps", pl.Int64, "when that call was entered"),
            ("send_leave_ps", pl.Int64, "when it was left"),
            ("send_done_call", pl.UInt32, "call in which the send was over; null where unknown"),
            ("send_done_ps", pl.Int64, "when that call was left; null where unknown"),
            ("recv_call", pl.UInt32, "call that posted the receive"),
            ("recv_post_ps", pl.Int64, "when that call was entered"),
            ("recv_done_call", pl.UInt32, "call in which the receive was over; null if unknown"),
            ("recv_enter_ps", pl.Int64, "when that call was entered; null where unknown"),
            (
                "recv_done_ps",
                pl.Int64,
                "when the receive was over: its record or, without, when "
                "that call was left; null where unknown",
            ),
            _SOURCE,
        ),
        Table.of(
            "collectives",
            "one rank in one collective",
            ("instance", pl.UInt32, "number of the collective"),
            ("operation", pl.String, "MPI call that it is, blocking or not"),
            ("communicator", pl.String, "communicator"),
            ("root", pl.UInt32, "world rank of the root; null without"),
            ("rank", pl.UInt32, "world rank"),
            ("call", pl.UInt32, "call in which it was over"),
            ("enter_ps", pl.Int64, "when the call that begins it was entered"),
            ("leave_ps", pl.Int64, "when the call in which it was over was left"),
            ("sent_bytes", pl.UInt64, "bytes sent, as recorded"),
            ("received_bytes", pl.UInt64, "bytes received, as recorded"),
            _SOURCE,
        ),
        Table.of(
            "steps",
            "one step of a collective over the network, by its sender",
            ("src_rank", pl.UInt32, "sender"),
            ("dst_rank", pl.UInt32, "receiver"),
            ("channel", pl.UInt32, "channel of NCCL"),
            ("size_bytes", pl.UInt64, "bytes"),
            ("start_ps", pl.Int64, "when the sender began to wait for its accelerator"),
            ("data_wait_ps", pl.Int64, "wait until the accelerator has written the data"),
            ("credit_wait_ps", pl.Int64, "wait until the receiver has a free buffer"),
            ("network_ps", pl.Int64, "from the send to its completion"),
            _SOURCE,
        ),
        Table.of(
            "waits",
            "one wait state",
            ("call", pl.UInt32, "the call that waited"),
            ("rank", pl.UInt32, "world rank that waited"),
            (
                "kind",
                pl.String,
                "late_sender, late_receiver, wait_nxn, wait_barrier, "
                "late_broadcast, early_reduce, nxn_completion or barrier_completion",
            ),
            ("partner", pl.UInt32, "world rank waited for"),
            ("start_ps", pl.Int64, "when it began"),
            ("value_ps", pl.Int64, "how long; 0 where the clocks cannot tell it from none"),
            ("low_ps", pl.Int64, "at least, by what is known of the clocks"),
            ("high_ps", pl.Int64, "at most"),
            ("imbalance_ps", pl.Int64, "of it, while another rank computed as long as it does"),
            ("noise_ps", pl.Int64, "of it, while another rank computed longer than it does"),
            ("communication_ps", pl.Int64, "of it, while that rank was in MPI and did not wait"),
            ("dependency_ps", pl.Int64, "of imbalance and noise, in a chain of ranks that send on"),
            ("computing_rank", pl.UInt32, "whose computation was waited for most; null without"),
            _SOURCE,
        ),
        Table.of(
            "split",
            "time of one rank in one phase that has one reason",
            ("rank", pl.UInt32, "world rank"),
            ("phase", pl.String, "innermost region of the program, or the call"),
            (
                "part",
                pl.String,
                "computation, imbalance, noise, a wait state, transfer, "
                "not_running or not_recorded",
            ),
            ("value_ps", pl.Int64, "how long; those of a rank add up to the measured time"),
            ("low_ps", pl.Int64, "at least, by what is known of the clocks"),
            ("high_ps", pl.Int64, "at most"),
            _SOURCE,
        ),
        Table.of(
            "hosts",
            "one rank",
            ("rank", pl.UInt32, "world rank"),
            ("host", pl.String, "host it ran on; null where unknown"),
            ("offset_ps", pl.Int64, "added to its clock in the middle of the run"),
            ("drift_ppm", pl.Float64, "and for each million picoseconds from there"),
            ("start_ps", pl.Int64, "when its measured time begins"),
            ("end_ps", pl.Int64, "when it ends"),
            _SOURCE,
        ),
    )
}
"""Tables of a measured run, by name. All times are picoseconds by the common clock."""


def make_tables(
    recorded: RecordedRun,
    waits: Waits,
    reasons: WaitReasons,
    split: pl.DataFrame,
    hosts: Hosts | None,
    offset_ps: Ints,
    drift_ppm: NDArray[np.float64],
) -> dict[str, pl.DataFrame]:
    """Frames of all tables, by name."""
    columns: dict[str, Callable[[], dict[str, Any]]] = {
        "calls": lambda: _calls(recorded),
        "transfers": lambda: _transfers(recorded),
        "collectives": lambda: _collectives(recorded),
        "steps": lambda: _steps(recorded),
        "waits": lambda: _waits(recorded, waits, reasons),
        "split": lambda: {name: split[name] for name in split.columns},
        "hosts": lambda: {
            "rank": np.arange(recorded.n_ranks),
            "host": hosts.of_rank if hosts else recorded_hosts(recorded.system, recorded.n_ranks),
            "offset_ps": offset_ps,
            "drift_ppm": drift_ppm,
            "start_ps": recorded.start_ps,
            "end_ps": recorded.end_ps,
        },
    }
    out = {}
    for name, table in TABLES.items():
        made = columns[name]()
        length = len(made[table.columns[0].name])
        made.setdefault("source", pl.repeat(MEASURED, length, eager=True))
        # Each column is freed once it has its type.
        out[name] = pl.DataFrame(
            [
                pl.Series(column.name, made.pop(column.name), strict=False).cast(column.dtype)
                for column in table.columns
            ]
        )
        return_freed_memory()
    return out


def _steps(recorded: RecordedRun) -> dict[str, Any]:
    if recorded.steps is not None:
        return dict(vars(recorded.steps))
    return {column.name: [] for column in TABLES["steps"].columns[:-1]}


def _names_at(names: Sequence[str], index: Ints) -> pl.Series:
    """Names by index; null for -1."""
    series = pl.Series([*names, None], dtype=pl.String)
    return series.gather(pl.Series(np.where(index >= 0, index, len(names))))


def _null_unless(column: Ints, valid: NDArray[np.bool_]) -> pl.Series:
    """A column with null where ``valid`` is false."""
    return pl.select(pl.when(pl.Series(valid)).then(pl.Series(narrowed(column)))).to_series()


def _communicator(recorded: RecordedRun, comm: Ints) -> pl.Series:
    numbers = sorted(recorded.comms)
    index = np.searchsorted(np.array(numbers, np.int64), comm)
    index = np.minimum(index, max(len(numbers) - 1, 0))
    matches = np.array(numbers, np.int64)[index] == comm if numbers else np.zeros(len(comm), bool)
    return _names_at([recorded.comms[number] for number in numbers], np.where(matches, index, -1))


def _calls(recorded: RecordedRun) -> dict[str, Any]:
    calls = recorded.calls
    return {
        "call": np.arange(len(calls)),
        "rank": calls.rank,
        "name": _names_at(recorded.names, calls.name),
        "path": _names_at(recorded.paths, calls.path),
        "enter_ps": calls.enter_ps,
        "leave_ps": calls.leave_ps,
        "communicator": _communicator(recorded, calls.comm),
        "sent_bytes": calls.sent_bytes,
        "received_bytes": calls.received_bytes,
        "paused": calls.paused,
    }


def _transfers(recorded: RecordedRun) -> dict[str, Any]:
    t, calls = recorded.transfers, recorded.calls

    def at(times: Ints, call: Ints) -> pl.Series:
        return _null_unless(times[np.maximum(call, 0)], call >= 0)

    timed = (t.recv_done_ps >= 0) & (t.recv_done_call >= 0)
    done = np.where(timed, t.recv_done_ps, calls.leave_ps[np.maximum(t.recv_done_call, 0)])
    return {
        "src_rank": t.src_rank,
        "dst_rank": t.dst_rank,
        "tag": t.tag,
        "communicator": _communicator(recorded, t.comm),
        "size_bytes": t.size_bytes,
        "send_call": _null_unless(t.send_call, t.send_call >= 0),
        "send_enter_ps": at(calls.enter_ps, t.send_call),
        "send_leave_ps": at(calls.leave_ps, t.send_call),
        "send_done_call": _null_unless(t.send_done_call, t.send_done_call >= 0),
        "send_done_ps": at(calls.leave_ps, t.send_done_call),
        "recv_call": _null_unless(t.recv_call, t.recv_call >= 0),
        "recv_post_ps": at(calls.enter_ps, t.recv_call),
        "recv_done_call": _null_unless(t.recv_done_call, t.recv_done_call >= 0),
        "recv_enter_ps": at(calls.enter_ps, t.recv_done_call),
        "recv_done_ps": _null_unless(done, t.recv_done_call >= 0),
        "source": np.where(t.guessed, INFERRED, MEASURED),
    }


def _collectives(recorded: RecordedRun) -> dict[str, Any]:
    c, calls = recorded.collectives, recorded.calls
    return {
        "instance": c.instance,
        "operation": _names_at(OPERATIONS, c.operation),
        "communicator": _communicator(recorded, c.comm),
        "root": _null_unless(c.root, c.root >= 0),
        "rank": c.rank,
        "call": c.call,
        "enter_ps": calls.enter_ps[c.start_call],
        "leave_ps": calls.leave_ps[c.call],
        "sent_bytes": c.sent_bytes,
        "received_bytes": c.received_bytes,
    }


def _waits(recorded: RecordedRun, waits: Waits, reasons: WaitReasons) -> dict[str, Any]:
    return {
        "call": waits.call,
        "rank": recorded.calls.rank[waits.call],
        "kind": _names_at(KINDS, waits.kind),
        "partner": waits.partner,
        "start_ps": waits.start_ps,
        "value_ps": waits.value_ps,
        "low_ps": waits.low_ps,
        "high_ps": waits.high_ps,
        "imbalance_ps": reasons.imbalance_ps,
        "noise_ps": reasons.noise_ps,
        "communication_ps": reasons.communication_ps,
        "dependency_ps": reasons.dependency_ps,
        "computing_rank": _null_unless(reasons.computing_rank, reasons.computing_rank >= 0),
    }
