"""What a recording lacks is told with the diagnosis, and is no evidence for a cause."""

from __future__ import annotations

from pathlib import Path

import pytest

import tailback as tb
from tailback.cli.render import diagnosis_lines
from tailback.diagnosis import Diagnosis
from tailback.traffic.readers import READERS

RANKS = 16
SIZE = 1 << 20


def monitored(folder: Path, pairs: dict[tuple[int, int], int]) -> Path:
    """A profile as Open MPI's monitoring writes it: bytes of one message for each pair of ranks."""
    folder.mkdir()
    for rank in range(RANKS):
        lines = [
            f"E\t{rank}\t{target}\t{size} bytes\t1 msgs sent\t0,0"
            for (source, target), size in pairs.items()
            if source == rank
        ]
        (folder / f"prof.{rank}.prof").write_text("\n".join(["# POINT TO POINT", *lines, ""]))
    return folder


def diagnosed(trace: Path) -> Diagnosis:
    return tb.diagnose(trace, fabric="tapered", seeds=1, methods=["block"]).diagnosis


def screen(diagnosis: Diagnosis) -> str:
    return " ".join(" ".join(diagnosis_lines(diagnosis, Path("out"))).split())


@pytest.mark.slow
def test_a_profile_shows_no_simultaneous_sending(tmp_path: Path) -> None:
    """Everyone sends to everyone: no receiver has more to do than any sender."""
    everyone = {(a, b): SIZE for a in range(RANKS) for b in range(RANKS) if a != b}
    diagnosis = diagnosed(monitored(tmp_path / "all", everyone))
    assert diagnosis.cause == "undetermined"
    assert "The profile has no order of messages" in diagnosis.headline
    assert (
        "not in the recording: times of calls, order of messages, completion of non-blocking "
        "calls, call sites, computation" in screen(diagnosis)
    )


def test_a_receiver_of_most_bytes_is_a_pattern(tmp_path: Path) -> None:
    to_one_rank = {(rank, 0): SIZE for rank in range(1, RANKS)}
    diagnosis = diagnosed(monitored(tmp_path / "one", to_one_rank))
    assert diagnosis.cause == "pattern"


def test_a_pattern_of_a_scenario_lacks_nothing() -> None:
    scenario = {
        "fabric": {"preset": "tapered"},
        "job": [{"pattern": {"kind": "alltoall-naive", "ranks": 8, "size": "64 KiB"}}],
    }
    diagnosis = tb.diagnose(scenario, seeds=1, methods=["block"]).diagnosis
    assert diagnosis.not_recorded == []
    assert "not in the recording" not in screen(diagnosis)


def test_each_format_names_what_its_traces_lack() -> None:
    lacks = {entry.name: entry.part.CAPABILITIES.lacks() for entry in READERS}
    assert lacks["pml-monitoring"] == lacks["mpip"] == lacks["ipm"]
    assert "order of messages" in lacks["pml-monitoring"]
    assert lacks["simgrid-ti"] == ("times of calls", "call sites")
    assert "order of messages" not in lacks["nsight"]
