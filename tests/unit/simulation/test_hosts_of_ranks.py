"""Rings and trees of accelerators follow the placement where their trace names no host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.scenario.model import parse
from tailback.simulation.prepare import PreparedScenario, prepare
from tests.factories.flight_recorder import document, operation, write

FABRIC = {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 2}}
RANKS = tuple(range(8))
TRAINING = {
    "kind": "training",
    "data": 8,
    "activation": "1 MiB",
    "gradient": "8 MiB",
    "compute": "1 ms",
    "algorithm": "ring",
    "channels": 1,
}


def prepared(**job: Any) -> PreparedScenario:
    return prepare(parse({"fabric": FABRIC, "job": [job]}))


def hops_between_hosts(scenario: PreparedScenario) -> int:
    """Pairs of ranks on different hosts that exchange messages."""
    src, dst, _ = scenario.observed.program.traffic_matrix()
    host = scenario.fabric.node_host[scenario.observed.node]
    return int(np.count_nonzero(host[src] != host[dst]))


def dumps(folder: Path) -> Path:
    groups = {"0": ("default_pg", RANKS)}
    entries = [operation(1, elements=1 << 22)]
    return write(folder, {rank: document(entries, groups) for rank in RANKS})


@pytest.mark.parametrize(("per_host", "hops"), [(1, 8), (2, 4), (4, 2)])
def test_ring_of_a_pattern_follows_hosts(per_host: int, hops: int) -> None:
    scenario = prepared(pattern=TRAINING, ranks_per_host=per_host)
    assert hops_between_hosts(scenario) == hops


def test_ring_of_dumps_follows_rank_file(tmp_path: Path) -> None:
    """Ranks of a host are apart; a ring by their numbers would cross hosts at each hop."""
    trace = dumps(tmp_path)
    file = tmp_path / "hosts"
    file.write_text("".join(f"n{rank % 4}\n" for rank in RANKS))
    job = {"trace": str(trace), "placement": "file", "placement_file": str(file)}
    scenario = prepared(**job, ranks_per_host=2, nccl={"algorithm": "ring", "channels": 1})
    assert hops_between_hosts(scenario) == 4
    assert not any("names no host" in note for note in scenario.notes)


def test_trace_without_hosts_asks_for_them(tmp_path: Path) -> None:
    scenario = prepared(trace=str(dumps(tmp_path)))
    assert any("ranks_per_host= or rankfile= states" in note for note in scenario.notes)
