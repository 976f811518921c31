"""Settings cross to the engine as dataclasses: each field under its name, with its type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest

from tailback.errors import ScenarioError
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tailback.simulation.execute import THREADS_VARIABLE, execute, thread_count
from tailback.simulation.probes import ProbeSettings
from tailback.simulation.settings import CongestionSettings, EngineSettings, PacingSettings

SCENARIO = {
    "fabric": {"topology": {"kind": "k-ary-n-tree", "k": 2, "n": 2}},
    "job": [{"pattern": {"kind": "alltoall", "ranks": 4, "size": "64 KiB", "compute": "0 ns"}}],
}


def run(**changes: Any) -> Run:
    return execute(prepare(parse(SCENARIO)), threads=1, **changes)


def test_every_kind_of_field_reaches_the_engine() -> None:
    plain = run()
    assert run(switch_delay_ps=5_000_000).elapsed_ps > plain.elapsed_ps + 5_000_000
    assert run(contention=False).elapsed_ps < plain.elapsed_ps
    assert run(measure=False).tables["samples"].is_empty() and plain.tables["samples"].height
    assert run(probes=ProbeSettings(counters_ps=1_000_000)).tables["counters"].height
    paced = run(injection="per-destination", pacing=PacingSettings("elastic", percent=25))
    assert paced.elapsed_ps > 0


@dataclass(frozen=True)
class Misspelt(PacingSettings):
    percents: int = 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pacing": Misspelt("elastic", percent=25)}, "pacing: unknown field `percents`"),
        ({"pacing": PacingSettings("fast")}, r"pacing.kind: unknown variant `fast`"),
        ({"routing": "by-hand"}, "routing: unknown variant `by-hand`"),
        ({"packet_bytes": "many"}, "packet_bytes: invalid type: string"),
        ({"buffer_bytes": -1}, "buffer_bytes: .*negative"),
        ({"probes": ProbeSettings(counters_ps="soon")}, r"probes.counters_ps: invalid type"),
        ({"packet_bytes": None}, "missing field `packet_bytes`"),
    ],
)
def test_settings_unknown_to_the_engine_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        run(**changes)


def test_a_scheme_has_its_own_parameters_alone() -> None:
    base = parse(SCENARIO)
    control = {"scheme": "rgbcc", "threshold": "16 KiB", "green": "4 KiB"}
    scenario = parse(
        SCENARIO | {"engine": {"injection": "per-destination", "congestion_control": control}}
    )
    settings = EngineSettings.of(scenario)
    assert isinstance(settings.congestion_control, CongestionSettings)
    scheme = settings.congestion_control.scheme
    assert (scheme.kind, scheme.green_bytes, scheme.hold_ps) == ("rgbcc", 4096, None)
    assert replace(settings, congestion_control=None, injection="fifo") == EngineSettings.of(base)
    assert simulate(scenario, threads=1).elapsed_ps > 0


def test_empty_pauses_mark_without_reaction() -> None:
    pattern = {"kind": "reduce-naive", "ranks": 4, "size": "256 KiB", "arrays": 4, "root": 0}
    scenario: dict[str, Any] = SCENARIO | {"job": [{"pattern": pattern}]}
    engine = {"injection": "per-destination", "arbitration": "round-robin"}
    free, marked, paused = (
        simulate(
            parse(
                scenario
                | {"engine": engine | control}
                | ({"telemetry": {"rule": "fecn"}} if control else {})
            ),
            threads=1,
        )
        for control in (
            {},
            {"congestion_control": {"table": [0]}},
            {"congestion_control": {}},
        )
    )
    assert marked.summary["marked_packets"] > 10
    assert marked.elapsed_ps == pytest.approx(free.elapsed_ps, rel=0.01)
    assert paused.elapsed_ps > 1.1 * free.elapsed_ps
    assert marked.tables["truth"]["congested_packets"].sum() > 10


def test_threads_follow_request_or_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(THREADS_VARIABLE, "3")
    assert (thread_count(2), thread_count()) == (2, 3)
    assert simulate(parse(SCENARIO), threads=2).performance["threads"] == 2
    with pytest.raises(ScenarioError, match="threads = 0 is less than 1"):
        simulate(parse(SCENARIO), threads=0)


def test_small_networks_have_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(THREADS_VARIABLE, raising=False)
    module = import_module("tailback.simulation.execute")
    monkeypatch.setattr(module, "_idle_cores", lambda: 4)
    assert [thread_count(None, nodes) for nodes in (1, 511, 512, 5000)] == [1, 1, 2, 4]
    assert (thread_count(), thread_count(3, 1)) == (4, 3)
    assert simulate(parse(SCENARIO)).performance["threads"] == 1
