"""Reservoirs of several slots, and decisions that the sender draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.errors import RunError, ScenarioError
from tailback.scenario.model import TelemetrySection, parse
from tailback.simulation.decode import decode_link_counts, decode_samples
from tailback.telemetry.estimate import link_estimates
from tailback.telemetry.header_fields import decisions_taken
from tests.factories.probed_runs import closed_variance, run_of, scenario, truth_of


def squared_error(telemetry: dict[str, Any], seeds: int = 3) -> float:
    """Squared error of the packets of links between switches, relative to their variance stated."""
    off = []
    for seed in range(1, seeds + 1):
        run = run_of(telemetry, seed=seed)
        counts, truth = decode_link_counts(run), truth_of(run)["observed_packets"].to_numpy()
        assert counts.packets is not None
        sure = counts.counted & (counts.packets.variance > 1e-6)
        error = (counts.packets.packets - truth)[sure]
        off.append(error**2 / counts.packets.variance[sure])
    return float(np.concatenate(off).mean())


@pytest.mark.parametrize(
    "telemetry",
    [
        {"scheme": "full", "slots": 2},
        {"scheme": "single-bit", "slots": 2, "hash_bits": 1},
        {"scheme": "compact", "slots": 3, "hash_bits": 2},
        {"scheme": "coordinated", "slots": 2, "hash_bits": 3},
    ],
    ids=str,
)
def test_the_stated_variance_is_that_of_the_errors(telemetry: dict[str, Any]) -> None:
    # About 400 squares, of which links of one path share packets: ±0.25 is four deviations.
    assert squared_error(telemetry) == pytest.approx(1.0, abs=0.25)


def test_another_slot_reduces_the_variance_as_derived() -> None:
    """N (l/m − 1): paths of five switches have variances 4, 3/2, 2/3 and 1/4 a packet, and 0."""
    variances = []
    for slots in (1, 2, 3, 4, 5):
        run = run_of({"scheme": "full", "slots": slots, "packets": 10**6})
        counts = decode_link_counts(run)
        assert counts.packets is not None
        middle = run.tables["links"].sort("link")["tier"].to_numpy() == 2
        # Links to and from cores only occur on paths of five switches.
        packets, variance = counts.packets.packets[middle], counts.packets.variance[middle]
        variances.append(variance.sum() / packets.sum())
        assert counts.packets.packets[middle].sum() > 0
    assert variances == pytest.approx([4.0, 1.5, 2 / 3, 0.25, 0.0])
    truth = truth_of(run)["observed_packets"].to_numpy()
    assert (counts.packets.packets == truth)[counts.counted].all()


def test_samples_of_slots_add_up_to_the_hops() -> None:
    """Whole links: every packet accounts for all its hops, and samples are decoded from packets."""
    run = run_of({"scheme": "full", "slots": 2}, messages=20)
    assert run.tables["samples"].height == 0
    samples = decode_samples(run).tables["samples"]
    hops = run.tables["packets"]["hops"].sum()
    assert samples["hop_weight"].sum() == pytest.approx(hops, abs=run.tables["links"].height)
    estimated = link_estimates(samples)
    truth = truth_of(run)
    both = truth.join(estimated, on="link").filter(pl.col("observed_packets") > 60)
    off = (both["packets_right"] - both["observed_packets"]) / both["packets_se"]
    assert abs(off.mean() or 0.0) < 0.5 and (off**2).mean() < 2.0  # type: ignore[operator]
    counted = decode_link_counts(run).congested
    assert counted is not None and counted.packets.sum() == pytest.approx(
        both["congested"].sum() + 0.0, rel=0.2
    )


def test_hashes_in_slots_have_the_closed_variance() -> None:
    """One link's packets among many: l N + κ (l² Q − l N) − N with l/m for l and m Q for Q."""
    n, q, length, slots, bits = 100.0, 900.0, 5.0, 2, 3
    w = length / slots
    by_slot = closed_variance(n, slots * q, w, bits, hop_known=False)
    kappa = 1.0 / (2**bits - 1)
    assert by_slot == pytest.approx(w * n + kappa * (length**2 / slots * q - w * n) - n)
    assert by_slot < closed_variance(n, q, length, bits, hop_known=False)


@pytest.mark.parametrize("scheme", ["compact", "single-bit"])
def test_the_sender_decides_as_random_numbers_do(scheme: str) -> None:
    telemetry = {"scheme": scheme, "hash_bits": 4, "count_bits": 6, "randomness": "sender"}
    assert squared_error(telemetry) == pytest.approx(1.0, abs=0.25)
    run = run_of(telemetry, messages=20)
    samples = decode_samples(run).tables["samples"]
    assert samples["hop_weight"].sum() == run.tables["packets"]["hops"].sum()


def test_a_decision_field_is_too_short_for_paths() -> None:
    """Five decisions need six bits: the sentinel is one."""
    telemetry = {"scheme": "compact", "hash_bits": 3, "count_bits": 5, "randomness": "sender"}
    with pytest.raises(RunError, match="no more than 4 hops") as refused:
        decode_link_counts(run_of(telemetry, messages=5))
    assert "count_bits = 6" in refused.value.remedy


def test_the_sentinel_tells_how_many_decisions_were_taken() -> None:
    fields = np.array([0, 0b1, 0b1011, 0b0110, 0b1000, 1 << 15], np.uint32)
    assert decisions_taken(fields).tolist() == [0, 0, 0, 1, 3, 15]


@pytest.mark.parametrize(
    ("telemetry", "words"),
    [
        ({"scheme": "xor-digest", "slots": 2}, "no reservoir"),
        ({"scheme": "compact", "slots": 9}, "slots"),
        ({"scheme": "compact", "slots": 8, "count_bits": 3}, "count_bits = 4"),
        ({"scheme": "compact", "slots": 8, "hash_bits": 8}, "76 bits"),
        ({"scheme": "compact", "slots": 2, "randomness": "lfsr"}, "one slot"),
        ({"scheme": "coordinated", "slots": 2, "stamping": "leaf"}, "compact or full"),
        ({"scheme": "full", "slots": 2, "packets": 0}, "individual packets"),
        ({"scheme": "full", "randomness": "sender"}, "use compact or single-bit"),
        ({"scheme": "compact", "count_bits": 9}, "sender"),
        ({"scheme": "compact", "count_bits": 1, "randomness": "sender"}, "2 to 16"),
    ],
)
def test_mistakes_are_explained(telemetry: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse(scenario(telemetry))
    assert words in f"{refused.value}", f"{refused.value}"


def test_header_bits_are_charged() -> None:
    def section(**keys: Any) -> TelemetrySection:
        return TelemetrySection(charge_header=True, **keys)

    assert section(scheme="full", slots=2).header_bytes == 14
    assert section(scheme="coordinated", slots=2, hash_bits=2).header_bytes == 0
    assert section(scheme="compact", slots=2, hash_bits=1, count_bits=3).header_bytes == 1
    assert section(scheme="compact", count_bits=6, randomness="sender").header_bytes == 1
