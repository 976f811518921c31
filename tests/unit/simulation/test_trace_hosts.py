"""Hosts of the ranks from a trace: by its definitions, without its events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tailback._core as core
from tailback import load_scenario
from tailback.errors import TraceError
from tailback.simulation import load_fabric
from tailback.simulation.trace_hosts import trace_hosts
from tailback.traffic.readers.otf2 import reader as otf2
from tests.factories.evidence_traces import late_sender
from tests.factories.otf2_traces import writing


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return writing(tmp_path)(late_sender(), hosts=["n1", "n0"])


def test_hosts_follow_the_system_tree_by_rank(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert otf2.system_tree(trace) == otf2.load(trace).system
    (tmp_path / "net.csv").write_text("src,dst,rate_gbit\nn0.cluster,s,100\nn1.cluster,s,100\n")
    (tmp_path / "s.toml").write_text(f'[fabric]\nfile = "net.csv"\n[[job]]\ntrace = "{trace}"\n')
    scenario = load_scenario(tmp_path / "s.toml")

    def reads_events(*_: Any) -> None:
        raise AssertionError("all events of the trace are read")

    monkeypatch.setattr(core, "read_otf2", reads_events)
    hosts = trace_hosts(scenario.job[0], load_fabric(scenario.fabric), 2)
    assert hosts is not None and hosts.of_rank == ["n1.cluster", "n0.cluster"]
    assert trace_hosts(scenario.job[0], load_fabric(scenario.fabric), 3) is None


def test_damaged_definitions_are_named(trace: Path) -> None:
    definitions = otf2.find_anchor(trace).with_suffix(".def")
    contents = definitions.read_bytes()
    for length in range(0, len(contents), 61):
        definitions.write_bytes(contents[:length])
        with pytest.raises(TraceError) as caught:
            otf2.system_tree(trace)
        assert caught.value.file is not None and caught.value.remedy
