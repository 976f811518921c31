"""One program under three recorders: totals, differences, and what the diagnosis of each lacks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import recorders

from tailback.traffic.readers import read_trace

RANKS, STEPS = 9, 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    missing = [tool for tool in ("mpicc", "mpirun", "eztrace") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    work = tmp_path_factory.mktemp("recorders")
    return work, recorders.recorded(work, RANKS, STEPS)


@pytest.mark.slow
@pytest.mark.tools
def test_three_recorders_agree_in_what_they_record(made: tuple[Path, dict[str, Path]]) -> None:
    _, paths = made
    program = {name: read_trace(path) for name, path in paths.items()}
    pairs = {name: recorders.point_to_point(messages) for name, messages in program.items()}
    # A halo exchange of 4 KiB with two neighbours and MPI_Sendrecv of 8 bytes, in every step.
    totals = {
        name: [sum(pair[k] for pair in pairs_of_recorder.values()) for k in (0, 1)]
        for name, pairs_of_recorder in pairs.items()
    }
    assert totals["record"] == [3 * RANKS * STEPS, (2 * 4096 + 8) * RANKS * STEPS]
    assert pairs["monitoring"] == pairs["record"]
    # EZTrace does not record MPI_Sendrecv, which a note says.
    assert totals["eztrace"] == [2 * RANKS * STEPS, 2 * 4096 * RANKS * STEPS]
    assert any("MPI_Sendrecv left no message record" in note for note in program["eztrace"].notes)


@pytest.mark.slow
@pytest.mark.tools
def test_each_recordings_diagnosis_says_what_it_lacks(
    made: tuple[Path, dict[str, Path]],
) -> None:
    work, paths = made
    verdicts: dict[str, Any] = {name: recorders.verdict(work, path) for name, path in paths.items()}
    lacks = {name: verdict["not_recorded"] for name, verdict in verdicts.items()}
    assert lacks["record"] == []
    assert lacks["eztrace"] == [
        "sources of non-blocking receives",
        "completion of non-blocking calls",
        "call sites",
    ]
    assert lacks["monitoring"][:2] == ["times of calls", "order of messages"]
    # More ranks than processors: no verdict blames the network.
    assert {verdict["cause"] for verdict in verdicts.values()} <= {
        "undetermined",
        "not-network",
        "imbalance",
        "noise",
        "late-partner",
        "healthy",
    }
