"""Iterations of a measured run, from the calls of its ranks."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tailback.evidence.iterations import CallSequence

US = 1_000_000


def calls_of(
    durations_us: list[int], ranks: int = 2, offset_us: int = 0, polls: bool = False
) -> pl.DataFrame:
    """A barrier, then a send and a wait an iteration; odd ranks poll, if any does."""
    rows = []
    for rank in range(ranks):
        now = rank * offset_us
        names = [("MPI_Barrier", 0, 5)]
        for number, took in enumerate(durations_us):
            names.append(("MPI_Isend", 64, 1))
            if polls and rank % 2:
                names += [("MPI_Test", 0, 1)] * (number % 3)
            names.append(("MPI_Wait", 0, took))
        for name, sent, took in names:
            rows.append((rank, name, sent, now * US, (now + took) * US))
            now += took + 2
    schema = ["rank", "name", "sent_bytes", "enter_ps", "leave_ps"]
    return pl.DataFrame(rows, schema, orient="row").with_row_index("call")


def test_iterations_last_from_end_to_end() -> None:
    took = [10 + number % 7 for number in range(30)]
    times = CallSequence.of(calls_of(took), 2).iteration_times()
    # A gap of 2 µs before each of the two calls, and 1 µs of the send.
    assert times.tolist() == [(duration + 5) * US for duration in took]


def test_clock_offsets_do_not_change_iterations() -> None:
    took = [10 + number % 7 for number in range(30)]
    shifted = CallSequence.of(calls_of(took, offset_us=900), 2).iteration_times()
    assert np.array_equal(shifted, CallSequence.of(calls_of(took), 2).iteration_times())


def test_few_repetitions_are_no_iterations() -> None:
    assert len(CallSequence.of(calls_of([10] * 23), 2).iteration_times()) == 0
    assert len(CallSequence.of(calls_of([10] * 24), 2).iteration_times()) == 24


@pytest.mark.parametrize("polls", [False, True])
def test_polls_belong_to_no_program(polls: bool) -> None:
    sequence = CallSequence.of(calls_of([10] * 30, polls=polls), 2)
    assert sequence.equals(CallSequence.of(calls_of([12] * 30), 2))
    assert len(sequence.iteration_times()) == 30


def test_other_bytes_are_another_program() -> None:
    calls = calls_of([10] * 30)
    sequence = CallSequence.of(calls, 2)
    larger = calls.with_columns(pl.col("sent_bytes") * 2)
    assert not sequence.equals(CallSequence.of(larger, 2))
    assert not sequence.equals(CallSequence.of(calls_of([10] * 31), 2))
