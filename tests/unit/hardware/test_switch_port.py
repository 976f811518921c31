"""The switch port in SystemVerilog: parameters, and headers equal to the engine's."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HARDWARE = Path(__file__).resolve().parents[3] / "hardware"


def without(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program) is None, reason=f"no {program} (Debian package)"
    )


def script(name: str, folder: str = "hardware") -> ModuleType:
    path = str(HARDWARE.parent / folder)
    sys.path.insert(0, path)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(path)


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    return script("replay")


def test_the_round_constants_are_the_softwares(replay: ModuleType) -> None:
    written = (HARDWARE / "rtl" / "parameters.svh").read_text(encoding="utf-8")
    assert written == sys.modules["parameters"].header()


@without("iverilog")
def test_the_port_gives_the_engines_headers(replay: ModuleType) -> None:
    visits = replay.visits_of(2)
    hot = visits["congested"].sum()
    assert 0 < hot < visits.height and visits["hop"].max() == 4
    for name in ("coordinated 1+5", "coordinated 1+5, pipeline", "single bit"):
        row = replay.replay(name, visits, 2, "iverilog")
        assert row["packets"] > 150 and row["visits"] == visits.height
        assert row["wrong"] == 0, row["first"]


@without("iverilog")
def test_the_vcrc_is_that_of_fresh_encoding() -> None:
    checks = script("check_vcrc")
    cases = checks.cases(200)
    assert any(change for change, *_ in cases) and len({words for _, words, *_ in cases}) > 40
    assert checks.check(200) == (200, 0)


def test_a_polynomial_tells_a_circuit() -> None:
    prove = script("prove")
    ports = {
        "a": {"direction": "input", "bits": [2, 3]},
        "y": {"direction": "output", "bits": [4, 6]},
    }

    def gate(kind: str, a: int | str, b: int | str, y: int) -> dict[str, object]:
        return {"type": f"$_{kind}_", "connections": {"A": [a], "B": [b], "Y": [y]}}

    # Inclusive or by its definition, and by De Morgan's law.
    cells = {
        "one": gate("OR", 2, 3, 4),
        "left": {"type": "$_NOT_", "connections": {"A": [2], "Y": [7]}},
        "right": gate("XOR", 3, "1", 8),
        "both": gate("AND", 7, 8, 5),
        "two": {"type": "$_NOT_", "connections": {"A": [5], "Y": [6]}},
    }
    polynomials = prove.polynomials({"ports": ports, "cells": cells})["y"]
    assert polynomials[0] == polynomials[1] == frozenset({1, 2, 3})
    cells["both"] = gate("XOR", 7, 8, 5)
    wrong = prove.polynomials({"ports": ports, "cells": cells})["y"]
    assert wrong[0] != wrong[1]


@without("yosys")
@pytest.mark.parametrize("module", ["prove_round", "prove_hash", "prove_update", "prove_vcrc"])
def test_circuits_are_proved(module: str) -> None:
    prove = script("prove")
    method, _ = prove.PROOFS[module]
    assert prove.METHODS[method](module)


@without("yosys")
def test_a_port_of_six_bits_stays_small() -> None:
    ports = script("switch_port", "bench")
    name, module, sizes = ports.DESIGNS[0]
    gates, depth, _ = ports.count(module, sizes)
    assert "1+5" in name and gates <= 400 and depth <= 20


@without("verilator")
@pytest.mark.parametrize(
    "top",
    [
        "telemetry_port -GSCHEME=0 -GBITS=5",
        "telemetry_port -GSCHEME=1 -GBITS=1 -GRANDOM=1",
        "telemetry_port -GSCHEME=2 -GBITS=1 -GRANDOM=2",
        "telemetry_port -GSCHEME=3 -GBITS=1",
        "coordinated_pipeline",
        "random_sender",
        "vcrc_update",
    ],
)
def test_the_sources_have_no_warnings(top: str) -> None:
    sources = [str(path) for path in sorted((HARDWARE / "rtl").glob("*.sv"))]
    # Files hold several modules each.
    options = ["--lint-only", "-Wall", "-Wno-DECLFILENAME", f"-I{HARDWARE / 'rtl'}"]
    command = ["verilator", *options, "--top-module", *top.split(), *sources]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
