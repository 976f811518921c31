"""Small inputs that stand for a great deal are refused by an estimate, before anything is made."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback import _core
from tailback.available import INPUT_BYTES, MEMORY_VARIABLE, available_memory, memory_for_input
from tailback.errors import FabricError, PlacementError, ScenarioError, TailbackError, TraceError
from tailback.fabric.builders import fat_tree
from tailback.fabric.topologies import build as build_topology
from tailback.fabric.topologies import parse as parse_topology
from tailback.scenario.model import FatTree, parse
from tailback.simulation import prepare
from tailback.traffic.patterns import build as build_pattern
from tailback.traffic.readers import read_trace
from tailback.traffic.transform import repeat


def profiles(folder: Path, messages: int) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in (0, 1):
        (folder / f"p.{rank}.prof").write_text(
            f"# POINT TO POINT\nE\t{rank}\t{1 - rank}\t{messages} bytes\t{messages} msgs sent\t0\n"
        )
    return folder


def test_a_profile_is_refused_before_it_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "repeat", pytest.fail)
    with pytest.raises(TraceError) as caught:
        read_trace(profiles(tmp_path / "run", 10_000_000))
    text = str(caught.value)
    for part in (
        "run: ",
        "20,000,000 messages",
        "about 4.657 GiB",
        "the limit is",
        MEMORY_VARIABLE,
    ):
        assert part in text
    monkeypatch.undo()
    monkeypatch.setenv(MEMORY_VARIABLE, "1 MiB")
    with pytest.raises(TraceError, match="the limit is 1 MiB"):
        read_trace(profiles(tmp_path / "run", 10_000))
    monkeypatch.setenv(MEMORY_VARIABLE, "8 MiB")
    assert len(read_trace(tmp_path / "run").kind) == 40_002


def test_one_variable_is_the_limit_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "3 MiB")
    assert memory_for_input() == available_memory() == 3 << 20
    monkeypatch.delenv(MEMORY_VARIABLE)
    there = available_memory()
    if there is not None:
        assert memory_for_input() is not None
        assert (memory_for_input() or 0) <= min(INPUT_BYTES, available_memory() or there)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "ring", "ranks": 1000, "messages": 1000, "size": "1 B"},
        {"kind": "alltoall-naive", "ranks": 1000, "size": "1 B"},
        {"kind": "stencil2d", "dims": [1000, 1000]},
        {"kind": "reduce-tree", "ranks": 100_000},
    ],
)
def test_a_pattern_is_refused_by_the_same_limit(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "8 MiB")
    with pytest.raises(ScenarioError, match=r"operations, which take about .* limit is 8 MiB"):
        build_pattern(options, None, 1)


def test_repetitions_are_refused_by_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    program = build_pattern({"kind": "ring", "ranks": 100, "size": "1 B"}, None, 1)
    monkeypatch.setenv(MEMORY_VARIABLE, "8 MiB")
    with pytest.raises(ScenarioError, match=r"repeat = 1000 makes .* limit is 8 MiB"):
        repeat(program, 1000)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("hosts", {"hosts_per_leaf": 1_000_000, "leaves": 2, "aggregation": 2}),
        ("cables", {"hosts_per_leaf": 1, "leaves": 2, "aggregation": 2, "leaf_cables": 70_000}),
        (
            "up",
            {
                "hosts_per_leaf": 1,
                "leaves": 1,
                "aggregation": 1,
                "pods": 2,
                "cores": 1,
                "aggregation_uplinks": 40_000,
            },
        ),
    ],
)
def test_a_switch_too_large_is_refused_unbuilt(
    kind: str, shape: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_core, "fat_tree", pytest.fail)
    with pytest.raises(FabricError, match="ports; the engine's limit is 65,535"):
        fat_tree(FatTree(**shape))


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "torus", "dims": [2], "nodes_per_switch": 70_000},
        {"kind": "pgft", "children": [70_000, 2], "parents": [1, 500]},
        {
            "kind": "dragonfly",
            "nodes_per_router": 70_000,
            "routers": 2,
            "global_ports": 1,
            "groups": 2,
        },
    ],
)
def test_a_topology_too_large_is_refused_unbuilt(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(parse_topology(options)), "_build", pytest.fail)
    with pytest.raises(FabricError, match="ports; the engine's limit is 65,535"):
        build_topology(options)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "pgft", "children": [3, 4, 2], "parents": [1, 2, 5], "cables": [1, 2, 1]},
        {"kind": "k-ary-n-tree", "k": 3, "n": 3},
        {"kind": "torus", "dims": [4, 3], "nodes_per_switch": 2},
        {"kind": "hyperx", "dims": [4, 4]},
        {"kind": "dragonfly", "nodes_per_router": 2, "routers": 4, "global_ports": 2, "groups": 9},
    ],
)
def test_ports_by_formula_are_those_of_the_fabric(options: dict[str, Any]) -> None:
    topology = parse_topology(options)
    fabric = topology.fabric()
    ports = np.bincount(fabric.link_src.astype(np.int64))[fabric.n_nodes :]
    assert topology.max_ports() == ports.max()


def test_a_million_ranks_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["tailback.simulation.prepare"], "load_traffic", pytest.fail)
    tree = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 2}
    for pattern in (
        {"kind": "ring", "ranks": 1_000_000, "size": "1 B"},
        {"kind": "stencil2d", "dims": [1000, 1000]},
    ):
        with pytest.raises(PlacementError, match="1000000 ranks, the chosen hosts hold 4 slots"):
            prepare(parse({"fabric": {"fat_tree": tree}, "job": [{"pattern": pattern}]}))


def test_limits_are_told_with_what_raises_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MEMORY_VARIABLE, "1 MiB")
    with pytest.raises(TailbackError) as caught:
        fat_tree(FatTree(hosts_per_leaf=1000, leaves=10, aggregation=2))
    assert f"{MEMORY_VARIABLE}='1 GiB'" in str(caught.value)
    assert os.environ[MEMORY_VARIABLE] == "1 MiB"
