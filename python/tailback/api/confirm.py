"""Whether a remedy gained what was predicted: ``tb.confirm`` and ``tailback confirm``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailback.api.rankfiles import FILE_NAME
from tailback.diagnosis.model import Diagnosis
from tailback.errors import RunError, known_keywords
from tailback.evidence import measure
from tailback.evidence.iterations import CallSequence
from tailback.inference.confirmation import Confirmation, MeasuredTimes, confirm_gain
from tailback.io.manifest import require_unchanged
from tailback.placement.rank_hosts import rank_hosts
from tailback.sources.diagnosis_folder import (
    DIAGNOSE_AGAIN,
    is_diagnosis,
    read_diagnosis,
    read_measured_tables,
)
from tailback.sources.lab_case import LabCase


@known_keywords()
def confirm(before: str | Path, after: str | Path | Sequence[str | Path]) -> Confirmation:
    """Compare the predicted gain of a remedy with the measured one.

    Args:
        before: Folder of the diagnosis of a measured run.
        after: Recording of the run with the remedy, or its diagnosis; or several, which also show
            how much runs differ. A recording is a trace with times, or a folder of ``tailback
            record`` or ``tailback lab run``.

    Raises:
        RunError: ``before`` is no diagnosis of a measured run, or a folder is damaged or named
            twice.
        TraceError: A recording cannot be read, or has no times.

    Example:
        >>> checked = tb.confirm("diagnosis", ["after-1", "after-2", "after-3"])
        >>> checked.outcome, checked.predicted, checked.measured
    """
    diagnosis = read_diagnosis(Path(before))
    recordings = [after] if isinstance(after, str | Path) else list(after)
    if not recordings:
        raise RunError("no recording with the remedy", remedy="give one or more")
    folders = [Path(recording).resolve() for recording in recordings]
    for path, folder in zip(recordings, folders, strict=True):
        if folders.count(folder) > 1:
            raise RunError(
                "named twice: only different runs show how much runs differ",
                file=path,
                remedy="name each recording once",
            )
    return confirm_gain(
        diagnosis,
        _measured_times(Path(before)),
        [_measured_times(Path(recording)) for recording in recordings],
        _placed(Path(before), diagnosis),
    )


def _placed(folder: Path, diagnosis: Diagnosis) -> list[str]:
    """Host of each rank by the rank file of the remedy; empty without a placement."""
    remedy, file = diagnosis.remedy, folder / FILE_NAME["openmpi"]
    if remedy is None or remedy.placement not in remedy.parts or not file.is_file():
        return []
    return rank_hosts(file)


def _measured_times(path: Path) -> MeasuredTimes:
    """Measured times of a recording, or of the run of a diagnosis."""
    if is_diagnosis(path):
        measured, tables = read_diagnosis(path).measured, read_measured_tables(path)
        if measured is None or tables is None:
            raise RunError(
                "is a diagnosis of a run of which no times were measured",
                file=path,
                remedy=f"record the program (tailback record), and {DIAGNOSE_AGAIN}",
            )
    else:
        require_unchanged(path)
        case = LabCase.of(path)
        run = measure(path) if case is None else measure(case.trace, rank_file=case.rankfile)
        measured, tables = run.measured, run.tables
    hosts = tables["hosts"].sort("rank")["host"].to_list()
    return MeasuredTimes(measured, CallSequence.of(tables["calls"], measured.n_ranks), hosts)
