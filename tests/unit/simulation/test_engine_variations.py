"""Variations of the engine: which settings they change, and that they change the time."""

from __future__ import annotations

from typing import Any

import pytest

from tailback.evaluate import Change, EngineVariation
from tailback.scenario.model import parse
from tailback.simulation import evaluate as module
from tailback.simulation import make_evaluate, prepare

TREE = {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 1}
JOB = {"pattern": {"kind": "permutation", "ranks": 8, "size": "64 KiB", "messages": 2}}


def settings_for(
    monkeypatch: pytest.MonkeyPatch, variation: EngineVariation, **engine: Any
) -> dict[str, Any]:
    """Settings that the engine gets for a variation, besides those of every what-if run."""
    seen: dict[str, Any] = {}
    real = module.execute

    def counted(*args: Any, **changes: Any) -> Any:
        seen.update(changes)
        return real(*args, **changes)

    monkeypatch.setattr(module, "execute", counted)
    scenario = parse({"fabric": {"fat_tree": TREE}, "job": [JOB], "engine": engine})
    make_evaluate(prepare(scenario))(Change(variation=variation))
    return seen


def test_buffers_and_delays_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = settings_for(
        monkeypatch,
        EngineVariation(buffers=0.5, delays=1.5),
        buffer="64 KiB",
        switch_delay="100 ns",
        send_delay="1 us",
        local_delay="400 ns",
    )
    assert seen["buffer_bytes"] == 32 << 10 and "injection" not in seen
    delays = [seen[f"{name}_delay_ps"] for name in ("switch", "send", "local")]
    assert delays == [150_000, 1_500_000, 600_000]


def test_packets_and_adaptive_choice_are_varied(monkeypatch: pytest.MonkeyPatch) -> None:
    larger = EngineVariation(packets=2.0, other_adaptive=True)
    seen = settings_for(monkeypatch, larger, buffer="6 KiB", packet="4 KiB")
    assert seen["packet_bytes"] == 8192 and seen["buffer_bytes"] >= 8192
    assert seen["adaptive"].load == "queue-and-credit"


def test_a_packet_always_fits_into_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    half = EngineVariation(buffers=0.5)
    assert settings_for(monkeypatch, half, buffer="4 KiB", packet="4 KiB")["buffer_bytes"] == 4096
    seen = settings_for(monkeypatch, half, buffer="5000 B", packet="4 KiB", header="100 B")
    assert seen["buffer_bytes"] == 4196


@pytest.mark.parametrize(
    ("injection", "other"),
    [
        ("fifo", "round-robin"),
        ("round-robin", "fifo"),
        ("per-destination", "per-destination"),
    ],
)
def test_adapters_send_in_the_other_order(
    monkeypatch: pytest.MonkeyPatch, injection: str, other: str
) -> None:
    seen = settings_for(monkeypatch, EngineVariation(other_injection=True), injection=injection)
    assert seen["injection"] == other


@pytest.mark.parametrize(
    ("setting", "values"),
    [("eager_sends", ("sent", "copied")), ("progress", ("always", "calls"))],
)
def test_sends_and_handshakes_are_varied(
    monkeypatch: pytest.MonkeyPatch, setting: str, values: tuple[str, str]
) -> None:
    other = EngineVariation(other_sends=True, other_progress=True)
    for now, then in (values, values[::-1]):
        assert settings_for(monkeypatch, other, **{setting: now})[setting] == then


def test_a_variation_is_simulated_itself() -> None:
    evaluate = make_evaluate(prepare(parse({"fabric": {"fat_tree": TREE}, "job": [JOB]})))
    times = [
        evaluate(Change(variation=variation)).elapsed_ps
        for variation in (None, EngineVariation(delays=0.5), EngineVariation(delays=1.5))
    ]
    assert times[1] < times[0] < times[2]


def test_pausing_buffers_keep_their_headroom(monkeypatch: pytest.MonkeyPatch) -> None:
    pausing = {"kind": "pfc", "xoff": "23500 B"}
    seen = settings_for(
        monkeypatch,
        EngineVariation(buffers=0.5),
        buffer="47 kB",
        packet="1 KiB",
        flow_control=pausing,
    )
    assert seen["buffer_bytes"] == 47_000
