"""Records of NCCL Inspector that contradict themselves, or the others of their file.

A record states its duration up to three times: directly, by its bytes and bandwidths, and by the
times of its kernels. Where these disagree, the record is damaged. Where they disagree by the same
factor in a file and not in others, its times are in another unit.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tailback.arrays import Bools, Floats
from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.traffic.nccl.messages import bus_factor
from tailback.traffic.readers.inspector.records import CALLS, PER_RANK, Record, damaged_value
from tailback.units import LONGEST_PS, counted

_FACTOR: Final = math.log(2.0)
"""Logarithm of the ratio from which durations contradict each other: a bandwidth with one digit is
rounded by less."""

_UNIT: Final = math.log(1000.0)
"""The same of two units of time."""

_ALIKE: Final = 0.75
"""Share of records with one ratio from which it is that of all: damage is rarer."""

_FEWEST: Final = 3
"""Records of which most can be alike."""

_STRAY: Final = 0.25
"""Share of a file's other records below which those with another rank are damaged: accelerators of
one process take part in the same collectives."""

_POLLED_US: Final = 1000.0
"""Error of the times of kernels: hosts poll for them, and may be late by a millisecond."""

_LEAST_US: Final = 1e-3
"""Shortest duration that counts; 0 has no logarithm."""

_LONGEST_US: Final = LONGEST_PS // 10**6


def without_strays(records: Sequence[Record], damaged: list[TraceError]) -> list[Record]:
    """The records without those whose process, rank or size of communicator few others have.

    Args:
        records: Those of all files.
        damaged: Gets an error for each record that is left out.
    """
    kinds: tuple[tuple[Callable[[Record], Hashable], Callable[[Record], Hashable], str], ...] = (
        (lambda r: r.file, lambda r: r.process, "hostname and pid"),
        (lambda r: (r.process, r.comm.id), lambda r: r.comm.rank, "rank"),
        (lambda r: r.comm.id, lambda r: r.comm.n_ranks, "n_ranks"),
    )
    kept = list(records)
    for subject, value, field in kinds:
        counts: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
        for record in kept:
            counts[subject(record)][value(record)] += 1
        usual_value = {key: max(alike, key=alike.__getitem__) for key, alike in counts.items()}
        usual = []
        for record in kept:
            alike, mine = counts[subject(record)], value(record)
            most = usual_value[subject(record)]
            if alike[mine] < _STRAY * alike[most]:
                text = f"{field} {_shown(mine)}, where others have {_shown(most)}"
                damaged.append(damaged_value(record, text))
            else:
                usual.append(record)
        kept = usual
    return kept


def _shown(value: Hashable) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class _Stated:
    """Durations that a record states, µs: its own, and others by the names of their fields."""

    took: float
    others: dict[str, float]


@dataclass(frozen=True)
class _Agreement:
    """How durations of all records compare with what another field gives.

    Attributes:
        name: The field.
        log_ratio: Logarithm of the duration over that of the field, NaN without it, shape (R,).
        slack: Whether they differ by less than the error of the field, shape (R,).
    """

    name: str
    log_ratio: Floats
    slack: Bools

    @property
    def is_known(self) -> Bools:
        """Records with the field, shape (R,)."""
        return ~np.isnan(self.log_ratio)

    def agrees(self, typical: float) -> Bools:
        """Records that have a typical ratio, shape (R,)."""
        near = np.abs(np.nan_to_num(self.log_ratio) - typical) < _FACTOR
        return np.asarray(near | (self.slack & (typical == 0.0)))

    def typical(self, chosen: Bools) -> float | None:
        """Logarithm of the ratio that most of the chosen records have; None if they have none.

        0 if at least half of them have that.
        """
        compared = chosen & self.is_known
        n = int(compared.sum())
        if not n or 2 * int(self.agrees(0.0)[compared].sum()) >= n:
            return 0.0
        middle = float(np.median(self.log_ratio[compared]))
        return middle if n >= _FEWEST and self.agrees(middle)[compared].mean() >= _ALIKE else None


KERNELS: Final = "kernel_start_ts and kernel_stop_ts"
"""Name of the fields with the times of kernels."""
RANKS: Final = "the records of other ranks"
"""Name of what other ranks state of a collective. Single ranks may wait long, but not always."""


def contradicting(
    records: Sequence[Record], damaged: list[TraceError], notes: list[str]
) -> tuple[set[int], bool]:
    """Records whose durations contradict their bandwidths or the times of their kernels.

    Args:
        records: Collectives, sends and receives of all files, R.
        damaged: Gets an error for each record that contradicts itself or has an impossible value.
        notes: Gets a line on fields that most records contradict.

    Returns:
        Numbers of these records, and whether the times of kernels can be used.

    Raises:
        TraceError: The times or bandwidths of a file are in another unit.
    """
    stated = list(_stated(records, damaged))
    durations = np.array([np.nan if each is None else each.took for each in stated])
    files: dict[Path, int] = {}
    of_file = np.array([files.setdefault(record.file, len(files)) for record in records], np.int64)
    keep, use_kernels = ~np.isnan(durations), True
    confirmed = np.zeros(len(records), np.bool_)
    names = {name for each in stated if each for name in each.others} - {RANKS}
    for name in sorted(names, key=lambda each: (each != KERNELS, each)):
        other = np.array([each.others.get(name, np.nan) if each else np.nan for each in stated])
        agreement = _compared(name, durations, other)
        typical = agreement.typical(keep)
        # Where kernels took as long, it is the bandwidths that are in another unit.
        doubtful = keep & ~confirmed
        if typical is not None:
            for number in range(len(files)):
                chosen = doubtful & (of_file == number)
                _require_same_unit(agreement, chosen, typical, records, stated)
        if typical == 0.0:
            bad = keep & agreement.is_known & ~agreement.agrees(0.0)
            damaged += [
                _contradiction(records[k], stated[k], name) for k in np.flatnonzero(bad).tolist()
            ]
            keep &= ~bad
            confirmed |= keep & agreement.is_known
            continue
        if typical is not None and typical > 0.0:
            # Times that are too long would be taken for waits.
            _require_same_unit(agreement, doubtful, 0.0, records, stated)
        use_kernels &= name != KERNELS
        factor = "" if typical is None else f" by a factor of {math.exp(abs(typical)):.3g}"
        notes.append(NotUsed(f"{name}, which contradict the durations of most records{factor}"))
    if (doubtful := keep & ~confirmed).any():
        by_ranks = _compared(RANKS, durations, _add_other_ranks(records, stated))
        for number in range(len(files)):
            _require_same_unit(by_ranks, doubtful & (of_file == number), 0.0, records, stated)
    return set(np.flatnonzero(~keep).tolist()), use_kernels


def _add_other_ranks(records: Sequence[Record], stated: Sequence[_Stated | None]) -> Floats:
    """Median duration of each collective on the other ranks, also added to what records state.

    Returns:
        NaN for a send or receive, and where no other rank recorded the collective, shape (R,).
    """
    rows: dict[Hashable, list[tuple[float, int]]] = defaultdict(list)
    for k, (record, each) in enumerate(zip(records, stated, strict=True)):
        if each is not None and record.kind == "coll_perf":
            rows[record.comm.id, record.integer("coll_sn")].append((each.took, k))
    out = np.full(len(records), np.nan)
    for alike in rows.values():
        alike.sort()
        middle = (len(alike) - 2) // 2
        for position, (_, k) in enumerate(alike if len(alike) > 1 else ()):
            out[k] = alike[middle + (position <= middle)][0]
    for each, value in zip(stated, out.tolist(), strict=True):
        if each is not None:
            each.others[RANKS] = value
    return out


def _compared(name: str, durations: Floats, other: Floats) -> _Agreement:
    # Durations are whole microseconds.
    near = np.nan_to_num(np.abs(durations - other)) <= (_POLLED_US if name == KERNELS else 1.0)
    return _Agreement(name, np.log(np.maximum(durations, 1.0) / np.maximum(other, _LEAST_US)), near)


def _require_same_unit(
    agreement: _Agreement,
    chosen: Bools,
    expected: float,
    records: Sequence[Record],
    stated: Sequence[_Stated | None],
) -> None:
    """Raise TraceError if the ratio of some records is a thousand times the expected one."""
    typical, compared = agreement.typical(chosen), chosen & agreement.is_known
    if not compared.any() or typical is None or abs(typical - expected) < _UNIT - _FACTOR:
        return
    alike = np.flatnonzero(compared & agreement.agrees(typical))
    first = int(alike[0])
    error = _contradiction(records[first], stated[first], agreement.name)
    raise TraceError(
        f"{error.message}, and alike in {counted(len(alike), 'record')}: one of them is in another "
        "unit",
        file=error.file,
        place=error.place,
        remedy="give times in µs and bandwidths in GB/s, as NCCL Inspector writes them, or leave "
        "the file out",
    )


def _contradiction(record: Record, stated: _Stated | None, name: str) -> TraceError:
    assert stated is not None
    kind = "p2p" if record.kind == "p2p_perf" else "coll"
    value, other = record.body.get(name), stated.others[name]
    source = name if value is None else f"{name} {value} and its bytes"
    digits = ",.0f" if other >= 10.0 else ".3g"
    return damaged_value(
        record, f"{kind}_exec_time_us is {stated.took:,.0f}, where {source} give {other:{digits}}"
    )


def _stated(records: Sequence[Record], damaged: list[TraceError]) -> Iterator[_Stated | None]:
    """The durations of each record; None if a value is impossible."""
    for record in records:
        try:
            yield _durations(record)
        except TraceError as error:
            damaged.append(error)
            yield None


def _durations(record: Record) -> _Stated:
    """The durations that a record states; raises TraceError for an impossible value."""
    kind = "p2p" if record.kind == "p2p_perf" else "coll"
    took = float(record.integer(f"{kind}_exec_time_us"))
    size = record.integer(f"{kind}_msg_size_bytes")
    record.integer("p2p_peer" if kind == "p2p" else "coll_sn")
    call = CALLS.get(str(record.body.get("coll", "")).lower(), "")
    n = record.comm.n_ranks
    traffic = float(size * (n if call in PER_RANK else 1))
    others = {}
    for name, factor in ((f"{kind}_algobw_gbs", 1.0), (f"{kind}_busbw_gbs", bus_factor(call, n))):
        gbytes = record.body.get(name)
        is_defined = (call or kind == "p2p") and traffic * factor > 0
        if is_defined and isinstance(gbytes, int | float) and 0 < gbytes < math.inf:
            others[name] = traffic * factor / gbytes / 1000.0
    if (span := _kernel_us(record, kind)) is not None:
        others[KERNELS] = span
    return _Stated(took, others)


def _kernel_us(record: Record, kind: str) -> float | None:
    """Time from the first begin to the last end of the kernels; None if it is not stated."""
    trace = record.body.get("event_trace_ts")
    events: Any = trace.get("kernel_events") if isinstance(trace, dict) else None
    listed = [event for event in events if isinstance(event, dict)] if events else []
    begun, ended = (
        [record.integer(f"kernel_{end}_ts", 0, event) for event in listed]
        for end in ("start", "stop")
    )
    for at in filter(None, ended):
        if record.dumped_us and abs(at - record.dumped_us) > _LONGEST_US:
            raise damaged_value(
                record, f"kernel_stop_ts is {at}, where dump_timestamp_us is {record.dumped_us}"
            )
    # The host's duration begins before the kernels.
    if timed_by_host(record) or not all(begun) or not any(ended):
        return None
    return float(max(ended) - min(begun))


def timed_by_host(record: Record) -> bool:
    """Whether the host measured the duration of a record instead of the accelerator."""
    prefix = record.kind.partition("_")[0]
    return "cpu" in str(record.body.get(f"{prefix}_timing_source", ""))


def require_sound_files(damaged: Sequence[TraceError], counts: Mapping[Path, int]) -> None:
    """Raise TraceError for a file most of whose records are damaged: its unit or format is another.

    Args:
        damaged: The errors of records, with their files.
        counts: Number of records of each file, with the damaged ones.
    """
    bad = Counter(error.file for error in damaged if error.file is not None)
    for error in damaged:
        if error.file is not None and bad[error.file] > max(
            _ALIKE * counts[error.file], _FEWEST - 1
        ):
            n, total = bad[error.file], counts[error.file]
            raise TraceError(
                f"{error.message}; {n:,} of {total:,} records are as wrong",
                file=error.file,
                place=error.place,
                remedy="compare its values and units with those of the other files; copy it again, "
                "or leave it out",
            )
