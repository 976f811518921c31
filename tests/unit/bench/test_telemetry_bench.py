"""Parts of the telemetry benchmarks that a figure could silently be wrong by."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_accuracy import Entry, decoder_table, errors, estimate, measure, scheme_table
from telemetry_traffic import make_traffic

from studies.taffet2019.telemetry_figures import congested_hops, packets_of


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), min_size=5, max_size=5))
def test_hop_counts_with_the_sums_of_a_row(truth: list[int]) -> None:
    g = np.arange(1, 6)
    sums = [int((power * truth).sum()) for power in (g**0, g, g * (g - 1))]
    packets = np.array(congested_hops(*sums))
    assert (packets >= 0).all()
    assert [int((power * packets).sum()) for power in (g**0, g, g * (g - 1))] == sums


def test_packets_keep_sums_and_have_own_ids() -> None:
    rows = pl.DataFrame(
        {
            "label": [7, 7, 9],
            "link": [1, 2, 1],
            "hop_samples": [3, 2, 4],
            "hop_weight": [15, 10, 12],
            "congested_samples": [2, 0, 4],
            "congested_weight": [5, 0, 4],
            "congested_variance": [8, 0, 0],
        }
    )
    hop, congested = packets_of(rows, 1)
    assert sorted(zip(hop.sender, hop.link, hop.weight, strict=True)) == (
        [(7, 1, 5)] * 3 + [(7, 2, 5)] * 2 + [(9, 1, 3)] * 4
    )
    for sender in (7, 9):
        sequence = hop.sequence[hop.sender == sender]
        assert len(set(sequence)) == len(sequence)
        assert set(congested.sequence[congested.sender == sender]) <= set(sequence)
    assert sorted(congested.weight[congested.sender == 7]) == [2, 3]


@pytest.mark.parametrize("network", ["torus", "dragonfly"])
def test_errors_shrink_with_bits_on_other_networks(network: str) -> None:
    traffic = make_traffic(network, "uniform", 20_000, 3)
    single_bit = errors(estimate(traffic, Entry("single_bit", 1, 4), 1, 1, False).counts, traffic)
    ours = errors(estimate(traffic, Entry("coordinated", 5), 1, 1, False).counts, traffic)
    exact = errors(estimate(traffic, Entry("full_int", size=12), 1, 1, False).counts, traffic)
    for tier in traffic.tiers:
        assert exact[tier] == 0 < ours[tier] < single_bit[tier]


def test_tagging_one_in_k_scales_the_error() -> None:
    traffic = make_traffic("tapered", "uniform", 100_000, 3)
    entry = Entry("coordinated", 5)
    every_packet = errors(estimate(traffic, entry, 1, 1, False).counts, traffic)
    some = errors(estimate(traffic, entry, 1, 4, False).counts, traffic)
    # Variance × k, and a little for which packets are tagged.
    assert 1.8 < some["core up"] / every_packet["core up"] < 2.4


@pytest.mark.slow
def test_the_bounds_on_core_links() -> None:
    """Linear decoder: 1 + 4 bits need 1/60 of the packets, 1 + 5 bits 1/110; likelihood less."""
    result = measure("tapered", "uniform", 10_000, 1, 1, 10_000)
    rows = {(row["scheme"], row["hash_bits"]): row for row in result["schemes"]}
    gain = {bits: rows["coordinated", bits]["packets_relative"]["core up"] for bits in (4, 5)}
    assert gain[4] > 60 and gain[5] > 110
    for bits in (1, 4, 5):
        row = rows["coordinated", bits]
        assert row["likelihood_gap_nats"] <= 0.01
        assert row["likelihood_error"]["core up"] < row["relative_error"]["core up"]
    assert "| coordinated, 5-bit hash | 6 |" in scheme_table([result])
    assert decoder_table([result]).count("tapered, uniform, 10000") == 1
