"""Breakdown of the measured time into parts, for each rank and phase.

Every picosecond of a rank between the start and the end of the measured time belongs to exactly one
part. Waits are split by the reason for the delay (:mod:`tailback.evidence.wait_reasons`): the share
due to computation of the late rank is imbalance or noise; the rest keeps its Scalasca name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tailback.arrays import Ints
from tailback.evidence.clocks import Clocks
from tailback.evidence.one_sided import fences_of, synchronises
from tailback.evidence.wait_reasons import WaitReasons, compute_gaps
from tailback.evidence.waits import KINDS, Waits
from tailback.traffic.readers.otf2.names import moves_data, normalised_call
from tailback.traffic.readers.posts import distinct
from tailback.traffic.readers.recorded_run import RecordedRun

PARTS = (
    "computation",
    "imbalance",
    "noise",
    *KINDS,
    "transfer",
    "one_sided",
    "other_mpi",
    "not_running",
    "not_recorded",
)
"""Parts of the measured time, in display order."""

COMPLETIONS = ("nxn_completion", "barrier_completion")
"""Waits at the end of a call."""

PART_NAMES = {
    "computation": "computation",
    "imbalance": "imbalance of computation",
    "noise": "noise in computation",
    "late_sender": "late sender",
    "late_receiver": "late receiver",
    "wait_nxn": "wait at N×N collective",
    "wait_barrier": "wait at barrier",
    "late_broadcast": "late broadcast",
    "early_reduce": "early reduce",
    "nxn_completion": "completion of N×N collective",
    "barrier_completion": "completion of barrier",
    "transfer": "transfer (rest inside MPI)",
    "one_sided": "one-sided calls, waits included",
    "other_mpi": "MPI calls without data",
    "not_running": "before start or after end",
    "not_recorded": "not recorded",
}
"""Display names of the parts on the screen and in the report."""

OUTSIDE = "(outside of its calls)"
"""Phase of the time before a rank's first call and after its last."""


@dataclass(frozen=True)
class Elapsed:
    """The measured time of the whole job.

    Attributes:
        start_ps: Start of the first rank.
        end_ps: End of the last rank.
        low_ps: Lower bound of the duration, given the uncertainty of the clocks.
        high_ps: Upper bound of the duration.
    """

    start_ps: int
    end_ps: int
    low_ps: int
    high_ps: int

    @property
    def elapsed_ps(self) -> int:
        """Duration."""
        return self.end_ps - self.start_ps


def elapsed(recorded: RecordedRun, clocks: Clocks) -> Elapsed:
    """Time from the start of the first rank to the end of the last, with bounds."""
    ranks = np.flatnonzero(recorded.end_ps > recorded.start_ps)
    ranks = ranks if len(ranks) else np.unique(recorded.calls.rank)
    first = int(ranks[np.argmin(recorded.start_ps[ranks])])
    last = int(ranks[np.argmax(recorded.end_ps[ranks])])
    start, end = int(recorded.start_ps[first]), int(recorded.end_ps[last])
    # The duration of any rank by its own clock is a lower bound, independent of clock offsets.
    longest_rank = int((recorded.end_ps - recorded.start_ps)[ranks].max())
    pair = (np.array([first]), np.array([last]))
    later = float(clocks.later(*pair)[0]) if first != last else 0.0
    earlier = float(clocks.later(*pair[::-1])[0]) if first != last else 0.0
    length = end - start
    low = max(longest_rank, length - int(earlier)) if np.isfinite(earlier) else longest_rank
    high = length + int(later) if np.isfinite(later) else length
    return Elapsed(start, end, min(low, length), max(high, length))


def split(
    recorded: RecordedRun, clocks: Clocks, waits: Waits, reasons: WaitReasons, run_time: Elapsed
) -> pl.DataFrame:
    """Split the measured time.

    Returns:
        One row for each rank, phase and non-empty part: ``rank``, ``phase``, ``part`` and
        picoseconds ``value_ps``, ``low_ps``, ``high_ps``. The values of a rank sum to exactly the
        measured time.
    """
    calls = recorded.calls
    phase, names = phases(recorded)
    begin, computed = compute_gaps(recorded)
    out = _Rows()
    out.add(calls.rank, phase, "computation", computed)
    unknown = np.where(calls.paused, np.maximum(calls.enter_ps - begin, 0), 0)
    out.add(calls.rank, phase, "not_recorded", unknown)
    _add_waits(out, recorded, phase, waits, reasons)
    n = len(calls)
    waited, waited_low, waited_high = (np.zeros(n, np.int64) for _ in range(3))
    for total, column in (
        (waited, waits.value_ps),
        (waited_low, waits.low_ps),
        (waited_high, waits.high_ps),
    ):
        np.add.at(total, waits.call, column)
    inside = recorded.exposed_ps
    remaining = inside - waited
    out.add(calls.rank, phase, "computation", calls.leave_ps - calls.enter_ps - inside)
    kinds = np.array([PARTS.index(kind_of_rest(name)) for name in recorded.names], np.int64)
    # Without its wait, a fence transfers.
    rest_part = np.where(fences_of(recorded) >= 0, PARTS.index("transfer"), kinds[calls.name])
    out.add(
        calls.rank,
        phase,
        rest_part,
        remaining,
        np.clip(inside - waited_high, 0, remaining),
        np.maximum(inside - waited_low, remaining),
    )
    _add_ends(out, recorded, clocks, run_time, len(names))
    return out.frame([*names, OUTSIDE])


def kind_of_rest(name: str) -> str:
    """Part that the time inside a call belongs to, without the waits that the trace shows."""
    if synchronises(name):
        return "one_sided"
    return "transfer" if transfers(name) else "other_mpi"


def transfers(name: str) -> bool:
    """Whether a call moves data or waits for data, unlike MPI_Cart_create or MPI_Comm_split."""
    return moves_data(name) or normalised_call(name).startswith(
        ("mpi_wait", "mpi_test", "mpi_probe")
    )


def phases(recorded: RecordedRun) -> tuple[Ints, list[str]]:
    """Phase of each call and of the computation before it, shape (C,), and names of phases.

    A phase is the innermost region of the program around the call or, if not recorded, the call.
    """
    calls = recorded.calls
    keys, index = np.unique(calls.path * len(recorded.names) + calls.name, return_inverse=True)
    number: dict[str, int] = {}
    phase_of_key = []
    for key in keys.tolist():
        path, name = divmod(key, len(recorded.names))
        text = recorded.innermost[path] or recorded.names[name]
        phase_of_key.append(number.setdefault(text, len(number)))
    return np.array(phase_of_key, np.int64)[index.reshape(-1)], list(number)


class _Rows:
    """Times of ranks, phases and parts, summed as they are added: there may be many calls."""

    _KEYS = ("rank", "phase", "part")

    def __init__(self) -> None:
        self._sums: list[pl.DataFrame] = []

    def add(
        self,
        rank: Ints,
        phase: Ints,
        part: str | Ints,
        value: Ints,
        low: Ints | None = None,
        high: Ints | None = None,
    ) -> None:
        which = np.full(len(rank), PARTS.index(part)) if isinstance(part, str) else part
        low, high = value if low is None else low, value if high is None else high
        rows = np.flatnonzero((value > 0) | (high > 0))
        first, group = distinct([rank[rows], phase[rows], which[rows]])
        columns: dict[str, Ints] = dict(
            zip(self._KEYS, (column[rows[first]] for column in (rank, phase, which)), strict=True)
        )
        for name, amounts in (("value_ps", value), ("low_ps", low), ("high_ps", high)):
            columns[name] = np.zeros(len(first), np.int64)
            np.add.at(columns[name], group, amounts[rows])
        self._sums.append(pl.DataFrame(columns))

    def _summed(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.group_by(*self._KEYS).agg(pl.col("value_ps", "low_ps", "high_ps").sum())

    def frame(self, names: list[str]) -> pl.DataFrame:
        return (
            self._summed(pl.concat(self._sums))
            .sort(*self._KEYS)
            .with_columns(
                pl.col("rank").cast(pl.UInt32),
                pl.col("phase").replace_strict(dict(enumerate(names)), return_dtype=pl.String),
                pl.col("part").replace_strict(dict(enumerate(PARTS)), return_dtype=pl.String),
            )
        )


def _add_waits(
    out: _Rows, recorded: RecordedRun, phase: Ints, waits: Waits, reasons: WaitReasons
) -> None:
    """Split each wait into imbalance, noise and a remainder of its own kind, with bounds."""
    rank, phase_of_wait = recorded.calls.rank[waits.call], phase[waits.call]
    of_kind = np.array([PARTS.index(kind) for kind in KINDS])[waits.kind]
    remaining = waits.value_ps - reasons.imbalance_ps - reasons.noise_ps
    total = np.maximum(waits.value_ps, 1)
    remaining_low, remaining_high = waits.low_ps.copy(), waits.high_ps.copy()
    for part, value in (("imbalance", reasons.imbalance_ps), ("noise", reasons.noise_ps)):
        share = value / total
        low = np.minimum(np.floor(waits.low_ps * share).astype(np.int64), value)
        high = np.maximum(np.ceil(waits.high_ps * share).astype(np.int64), value)
        high = np.where(value > 0, np.minimum(high, remaining_high), 0)
        out.add(rank, phase_of_wait, part, value, low, high)
        remaining_low, remaining_high = remaining_low - low, remaining_high - high
    # A rank that waits for another to start has not begun, either.
    before_start = recorded.start_ps[np.maximum(waits.partner, 0)] - waits.start_ps
    unstarted = np.where(waits.partner >= 0, np.clip(before_start, 0, remaining), 0)
    divisor = np.maximum(remaining, 1)
    for which, duration in (
        (np.full(len(rank), PARTS.index("not_running"), np.int64), unstarted),
        (of_kind, remaining - unstarted),
    ):
        out.add(
            rank,
            phase_of_wait,
            which,
            duration,
            np.clip(np.floor(remaining_low * (duration / divisor)).astype(np.int64), 0, duration),
            np.maximum(np.ceil(remaining_high * (duration / divisor)).astype(np.int64), duration),
        )


def _add_ends(
    out: _Rows, recorded: RecordedRun, clocks: Clocks, run_time: Elapsed, outside: int
) -> None:
    """Add the time before a rank starts and after it ends, and the time of ranks without calls."""
    ranks = np.arange(recorded.n_ranks)
    start = np.where(recorded.start_ps < 0, run_time.start_ps, recorded.start_ps)
    start = np.where(recorded.end_ps > recorded.start_ps, recorded.start_ps, start)
    last = np.full(recorded.n_ranks, np.iinfo(np.int64).min)
    np.maximum.at(last, recorded.calls.rank, recorded.calls.leave_ps)
    called = last > np.iinfo(np.int64).min
    start = np.where(called, start, run_time.end_ps)
    last = np.where(called, np.maximum(last, start), start)
    end = np.where(called, np.maximum(recorded.end_ps, last), start)
    phase = np.full(len(ranks), outside)
    # Between the last call and MPI_Finalize a rank computes.
    out.add(ranks, phase, "computation", end - last)
    value = (start - run_time.start_ps) + (run_time.end_ps - end)
    error = np.zeros(len(ranks))
    first = np.full(len(ranks), int(ranks[np.argmin(start)]))
    both = clocks.later(first, ranks), clocks.later(ranks, first)
    error = np.where(ranks == first, 0, np.maximum(*both))
    wide = np.rint(np.where(np.isfinite(error), error, value)).astype(np.int64)
    out.add(ranks, phase, "not_running", value, np.maximum(value - wide, 0), value + wide)
