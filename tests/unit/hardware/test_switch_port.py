"""The switch port in SystemVerilog: parameters, and headers equal to the engine's."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

HARDWARE = Path(__file__).resolve().parents[3] / "hardware"


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    sys.path.insert(0, str(HARDWARE))
    try:
        return importlib.import_module("replay")
    finally:
        sys.path.remove(str(HARDWARE))


def test_the_round_constants_are_the_softwares(replay: ModuleType) -> None:
    written = (HARDWARE / "rtl" / "parameters.svh").read_text(encoding="utf-8")
    assert written == sys.modules["parameters"].header()


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="no iverilog (Debian package)")
def test_the_port_gives_every_header_that_the_engine_gives(replay: ModuleType) -> None:
    visits = replay.visits_of(2)
    hot = visits["congested"].sum()
    assert 0 < hot < visits.height and visits["hop"].max() == 4
    for name in ("coordinated 1+5",):
        row = replay.replay(name, visits, 2, "iverilog")
        assert row["packets"] > 150 and row["visits"] == visits.height
        assert row["wrong"] == 0, row["first"]
