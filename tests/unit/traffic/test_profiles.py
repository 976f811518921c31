"""Profiles of IPM and mpiP: which messages they state, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.traffic.readers import read_trace
from tests.factories.foreign_traces import IPM, MPIP


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_an_ipm_report_states_each_size_of_message(tmp_path: Path) -> None:
    program = read_trace(written(tmp_path, "a.xml", IPM))
    sends = program.sends
    assert sorted(program.amount[sends].tolist()) == [8, 9, 64, 64, 64]
    assert sorted(label.call for label in program.labels) == ["MPI_Isend", "MPI_Send"]
    assert any("9 MPI_Allreduce" in note for note in program.notes)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('orank="1" region="1" count="3"', 'orank="2" region="1" count="3"', "to rank 2 of 2"),
        ('bytes="64"', 'bytes="-1"', "of -1 B"),
        ('count="3"', 'count="9e9"', "not a whole number"),
        ('count="3"', 'count="999999999999999999"', "messages makes"),
        ('mpi_rank="1"', 'mpi_rank="0"', "a second task of rank 0"),
        ('mpi_size="2" username="u" ', 'mpi_size="3" ', "rank 1 of a run of 3"),
        ("<ipm_job", '<!DOCTYPE x [<!ENTITY a "b">]>\n<ipm_job', "declares an entity"),
    ],
)
def test_a_hostile_ipm_report_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, "a.xml", IPM.replace(old, new, 1))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(file, format="ipm")
    assert caught.value.file == file and caught.value.remedy


def test_a_terse_ipm_report_names_missing_parts(tmp_path: Path) -> None:
    lines = [line for line in IPM.splitlines() if "hent" not in line]
    with pytest.raises(TraceError, match="only totals of each rank") as caught:
        read_trace(written(tmp_path, "a.xml", "\n".join(lines)))
    assert "IPM_REPORT=full" in str(caught.value.remedy)


def test_mpip_without_counts_has_one_message_per_pair(tmp_path: Path) -> None:
    text = MPIP.replace("(count, bytes,", "(bytes,").replace("Total-Count ", "")
    text = text.replace(" 2         31", " 31").replace(" 1          4", " 4")
    program = read_trace(written(tmp_path, "a.mpiP", text))
    assert sorted(program.amount[program.sends].tolist()) == [4, 31]
    assert any("does not count messages" in note for note in program.notes)


def test_a_usual_mpip_report_names_missing_parts(tmp_path: Path) -> None:
    first, last = MPIP.index("@--- Aggregate"), MPIP.index("@--- End")
    sent = """@--- Callsite Message Sent statistics (all, sent bytes) -------------------
Name              Site Rank   Count       Max      Mean       Min       Sum
Send                 5    0      80      6000      6000      6000   4.8e+05
Send                 5    *     320      6000      6000      6000  1.92e+06
"""
    with pytest.raises(TraceError, match="only what 1 call sites of 2 ranks sent") as caught:
        read_trace(written(tmp_path, "a.mpiP", MPIP[:first] + sent + MPIP[last:]))
    assert "monitoring" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("       0         1           2", "       0         2           2", "does not fit"),
        ("       1         0           1", "       0         1           1", "does not fit"),
        ("         31      0.005", "     -31      0.005", "cannot parse"),
        ("       0         1           2", "       0 1 2 3 2", "cannot parse"),
        ("           2         31", " 999999999999999999 31", "messages makes"),
        ("Src-Rank", "Rank", "cannot parse"),
    ],
)
def test_a_hostile_mpip_report_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    file = written(tmp_path, "a.mpiP", MPIP.replace(old, new, 1))
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(file)
    assert caught.value.file == file and caught.value.remedy
