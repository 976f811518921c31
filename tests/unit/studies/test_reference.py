"""The engine against the reference simulator, which was written from the documentation alone."""

from __future__ import annotations

import numpy as np
import pytest

from studies.conformance import agreement, reference


@pytest.mark.parametrize("first", [0, 20])
def test_fixed_routes_agree_to_the_picosecond(first: int) -> None:
    differences = {
        seed: comparison.differences
        for seed in range(first, first + 20)
        if (comparison := agreement.compare(agreement.drawn(seed))).differences
    }
    assert not differences


def test_untied_adaptive_rules_agree_to_the_picosecond() -> None:
    drawn = [agreement.drawn(seed, "lowest") for seed in range(20)]
    rules = {(p.scenario.engine.adaptive.load, p.scenario.engine.adaptive.per) for p in drawn}
    assert len(rules) == 6
    assert not [diffs for p in drawn if (diffs := agreement.compare(p).differences)]


def test_acknowledged_sends_agree_to_the_picosecond() -> None:
    plain = [agreement.drawn(seed) for seed in range(12)]
    sends = [agreement.acknowledged(program) for program in plain]
    assert not [diffs for p in sends if (diffs := agreement.compare(p).differences)]
    # They take longer than sends that complete on delivery, or there is nothing to compare.
    pairs = zip(map(reference.simulate, sends), map(reference.simulate, plain), strict=True)
    assert sum(a.elapsed_ps > b.elapsed_ps for a, b in pairs) > 3


def test_a_choice_per_chunk_agrees_to_the_picosecond() -> None:
    drawn = [agreement.drawn(seed, "chunk") for seed in range(12)]
    assert not [diffs for p in drawn if (diffs := agreement.compare(p).differences)]


def test_draws_reach_what_they_are_for() -> None:
    drawn = [agreement.drawn(seed) for seed in range(20)]
    engines = [prepared.scenario.engine for prepared in drawn]
    assert {engine.injection for engine in engines} == {"fifo", "round-robin", "per-destination"}
    assert {engine.buffering for engine in engines} == {"input", "output"}
    assert {engine.switching for engine in engines} == {"cut-through", "store-and-forward"}
    assert len({engine.packet for engine in engines}) > 3
    results = [reference.simulate(prepared) for prepared in drawn[:10]]
    assert sum(int(result.stall_ps.sum() > 0) for result in results) >= 5
    assert sum(int(result.congested.sum() > 0) for result in results) >= 5


def test_a_difference_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    free_buffer = reference.Reference.free_buffer

    def late(
        self: reference.Reference, packet: reference.Packet, booked: int, tail_left: int
    ) -> None:
        free_buffer(self, packet, booked, tail_left + 1)

    monkeypatch.setattr(reference.Reference, "free_buffer", late)
    differences = [agreement.compare(agreement.drawn(seed)).differences for seed in (0, 20)]
    assert all(differences)
    assert differences[0][0].startswith("arrival_ps: ")


def test_adaptive_link_means_agree() -> None:
    scores = np.concatenate(
        [agreement.deviations(agreement.drawn(seed, "adaptive"), 16) for seed in (1, 9, 12)]
    )
    assert len(scores) > 50
    assert np.abs(scores).max() < 5
    assert np.sqrt((scores**2).mean()) == pytest.approx(1, abs=0.35)
