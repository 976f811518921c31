"""The types that _core.pyi declares are those that the compiled module returns."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tailback import _core
from tailback.fabric.builders import network_of
from tailback.fabric.topologies import build
from tailback.fluid import RankModel
from tailback.scenario.model import parse
from tailback.simulation import EngineSettings
from tailback.traffic import Label, PlacedProgram, ProgramBuilder
from tests.factories.repository import ROOT

TREE = build({"kind": "modified-k-ary-n-tree", "k": 2, "n": 2, "width": 0})
STUB = ast.parse((ROOT / "python/tailback/_core.pyi").read_text(encoding="utf-8"))
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}


def fields(name: str) -> dict[str, str]:
    """Fields of a class of the stub and their types, those it inherits included."""
    node = CLASSES[name]
    out: dict[str, str] = {}
    for base in node.bases:
        out |= fields(base.id) if isinstance(base, ast.Name) and base.id in CLASSES else {}
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            out[line.target.id] = ast.unparse(line.annotation)
    return out


def check(values: Mapping[str, Any], name: str) -> None:
    declared = fields(name)
    optional = {key for key, text in declared.items() if text.startswith("NotRequired[")}
    assert set(declared) - optional <= set(values) <= set(declared), name
    for key, value in values.items():
        declaration = declared[key].removeprefix("NotRequired[")
        if key in optional:
            declaration = declaration.removesuffix("]")
        if declaration in CLASSES:
            check(value, declaration)
        elif declaration.startswith("NDArray["):
            kind = declaration.removeprefix("NDArray[").removesuffix("]")
            assert isinstance(value, np.ndarray), (name, key)
            assert kind == "Any" or value.dtype == np.dtype(kind.rstrip("_")), (name, key)
        elif declaration == "_Unsigned":
            assert value.dtype.kind == "u", (name, key)
        else:
            plain = declaration.partition("[")[0].partition(" ")[0]
            assert value is None or type(value).__name__ == plain, (name, key)


def attributes(instance: object, name: str) -> None:
    check({key: getattr(instance, key) for key in fields(name)}, name)


def test_fabrics_paths_flows_and_permutations() -> None:
    check(_core.modified_tree_fabric((2, 2, 0), [100.0] * 3, [0] * 3), "FabricArrays")
    network = network_of(TREE)
    ends = np.array([0, 1], np.uint32), np.array([3, 2], np.uint32)
    paths = _core.fluid_paths(network, *ends, "deterministic", 1)
    check(paths, "PathColumns")
    links = (paths["start"], paths["link"], paths["share"])
    capacity, zero = np.full(100, 100.0), np.zeros(2, np.uint64)
    size = np.full(2, 1000, np.uint64)
    flows = _core.fluid_flows(
        capacity, start_ps=zero, bytes=size, weight=np.ones(2), paths=links, rates="max-min"
    )
    check(flows, "FlowColumns")
    common = {"table": "d-mod-k", "adaptive": True, "margin": 1, "copies": 1, "seed": 1}
    met = _core.tree_permutations((2, 2, 0), first=0, runs=2, **common)  # type: ignore[arg-type]
    check(met, "PermutationColumns")
    laid = _core.tree_paths((2, 2, 0), run=0, **common)  # type: ignore[arg-type]
    check(laid, "SuperposedColumns")
    levels = np.zeros((2, 1), np.uint8)
    ids = np.array([1, 2], np.uint32)
    sent = _core.run_scheme("full", ids, np.ones(2, np.uint8), ids.reshape(2, 1), levels, 1)
    check(sent, "SchemeColumns")


def test_what_comes_of_runs() -> None:
    network = network_of(TREE)
    builder = ProgramBuilder("two", 2)
    label = builder.label(Label("p", "c"))
    builder.wait(0, builder.isend(0, 1, 4096, 0, label))
    builder.wait(1, builder.irecv(1, 0, 4096, 0, label))
    program = builder.build()
    nodes = np.array([0, 3], np.uint32)
    placed = PlacedProgram(
        program,
        node=nodes,
        host=nodes,
        start_ps=np.zeros(2, np.uint64),
        label_observed=[True],
        label_service=[0],
    )
    settings = EngineSettings.of(
        parse({"fabric": {"preset": "tapered"}, "job": [{"pattern": {"kind": "alltoall"}}]})
    )
    attributes(_core.simulate(network, settings, placed), "PacketOutcome")
    attributes(_core.fluid_program(network, RankModel(), placed), "FluidOutcome")


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_arguments_are_named_as_declared(name: str) -> None:
    declared = FUNCTIONS[name].args
    positional = [argument.arg for argument in declared.args]
    named = [argument.arg for argument in declared.kwonlyargs]
    real = inspect.signature(getattr(_core, name)).parameters.values()
    assert [p.name for p in real if p.kind is p.POSITIONAL_OR_KEYWORD] == positional
    assert [p.name for p in real if p.kind is p.KEYWORD_ONLY] == named
    assert len(positional) <= 7
