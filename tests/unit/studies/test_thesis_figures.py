"""Figures of the thesis against cases worked out by hand, and formulas against simulation."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from studies.taffet2019 import (
    bloom_filters,
    hash_patterns,
    networks_and_circuits,
    one_reservoir,
    packet_marking,
    polyominoes,
    reproduction,
)


def test_polyominoes_are_as_many_as_known() -> None:
    """Fixed polyominoes, OEIS A001168."""
    counts = [len(set(polyominoes.polyominoes(area))) for area in range(1, 8)]
    assert counts == [1, 2, 6, 19, 63, 216, 760]


def test_the_least_perimeter_is_as_in_figure() -> None:
    assert polyominoes.best_rectangle(5) == 12
    assert polyominoes.least_perimeter(5) == 10
    for area in range(1, 8):
        every = map(polyominoes.perimeter, polyominoes.polyominoes(area))
        assert min(every) == polyominoes.least_perimeter(area)
    assert polyominoes.figure().count("■") == 5


def test_messages_that_leave_a_leaf_are_the_perimeter() -> None:
    """144 tiles of 8 × 4, less the border of the grid of 64 × 72, in a simulated round."""
    assert polyominoes.simulated("tiled") == polyominoes.leaving(144 * 24) == 3184


def test_the_closed_form_of_ones_is_the_count() -> None:
    for step, values in ((11, 100), (7, 256), (200, 1000), (1, 130)):
        d = np.arange(values)
        assert hash_patterns.ones(step, values, 8) == int((step * d % 256 >= 128).sum())


def test_figure_5_1_has_the_thesis_runs() -> None:
    d = np.arange(1, 901, dtype=np.uint64)
    bits = hash_patterns.mult(hash_patterns.PUBLISHED_ID, d)
    assert set(hash_patterns.runs(bits)) == {3, 4}
    assert set(hash_patterns.after_long_runs(bits)) == {3, 4}
    assert hash_patterns.first_early_row(bits) == 9
    assert round(float(hash_patterns.period(hash_patterns.PUBLISHED_ID)), 1) == 6.4
    assert hash_patterns.windows(hash_patterns.PUBLISHED_ID, 13, 4096) == (6, 7)


def test_two_ids_share_two_thirds_of_the_links() -> None:
    """Ids 2 and 6 in words of 12 bits, near 2/3 as in words of 32; ids 2 and 4 share half."""
    assert abs(hash_patterns.agreement(2, 6, 12) - Fraction(2, 3)) < Fraction(1, 1000)
    assert hash_patterns.agreement(2, 4, 12) == Fraction(1, 2)


@pytest.mark.parametrize("p", [0.2, 0.04])
def test_expected_packets_are_those_of_inclusion_and_exclusion(p: float) -> None:
    chances = packet_marking.fixed(p)
    exact = sum(
        (-1) ** (size + 1) / sum(some)
        for size in range(1, 6)
        for some in combinations(chances, size)
    )
    scheme = packet_marking.Scheme("node", chances)
    assert packet_marking.expected(scheme) == pytest.approx(exact, rel=1e-3)


def test_a_reservoir_collects_coupons() -> None:
    """5 (1 + 1/2 + 1/3 + 1/4 + 1/5), and 8 (1 + … + 1/8) fragments of a path of one hop."""
    plain = packet_marking.Scheme("reservoir", packet_marking.reservoir())
    assert packet_marking.expected(plain) == pytest.approx(137 / 12, rel=1e-3)
    parts = packet_marking.Scheme("fragments", (1.0,), 8)
    assert packet_marking.expected(parts, (3,)) == pytest.approx(761 / 35, rel=1e-3)
    assert packet_marking.least_fragment_bits(32) == (6, [16, 32])


@pytest.mark.parametrize("number", [0, 2, 3, 6, 7])
def test_packets_of_a_path_are_as_expected(number: int) -> None:
    scheme, _ = packet_marking.SCHEMES[number]
    needed = packet_marking.measured(scheme, np.random.default_rng(3), 600)
    error = needed.std() / np.sqrt(len(needed))
    assert abs(needed.mean() - packet_marking.expected(scheme)) < 4 * error


def test_false_positives_of_small_filters() -> None:
    """Worked out by hand: two functions in two bits set one bit half the time."""
    rate = bloom_filters.false_positive
    assert rate(bloom_filters.Scheme("one element", 2, 1)) == 0.5
    # One bit set (1/2): the other must hit it twice (1/4). Both set (1/2): anything fits.
    assert rate(bloom_filters.Scheme("one element", 2, 2)) == pytest.approx(0.5 * 0.25 + 0.5)
    assert rate(bloom_filters.Scheme("hash", 3)) == 0.125
    assert rate(bloom_filters.Scheme("one element", 8, 1)) == 0.125
    scheme = bloom_filters.Scheme("whole path", 8, 1)
    assert rate(scheme) == pytest.approx(1 - (7 / 8) ** 5)


def test_errors_of_counts_are_those_of_the_formulas() -> None:
    for scheme in (
        bloom_filters.best("hash", 3),
        bloom_filters.best("one element", 3),
        bloom_filters.best("whole path", 6),
    ):
        measured, formula = bloom_filters.error(scheme, runs=3)
        assert measured == pytest.approx(formula, rel=0.2), scheme


def test_variances_of_one_reservoir_are_the_closed_forms() -> None:
    traffic = one_reservoir.make_traffic(0.7)
    ratio = one_reservoir.ratios(traffic, one_reservoir.algorithm_9(traffic, runs=40))
    for name in ("Var W, stated", "Var Ŵ, stated"):
        assert ratio[name] == pytest.approx(1.0, abs=0.02), name
    for name in ("Var W, measured", "Var Ŵ, measured", "Cov, measured", "fraction"):
        assert ratio[name] == pytest.approx(1.0, abs=0.25), name
    # As the diagnosis has it, without the covariance: far too wide where much is congested.
    assert ratio["fraction, as if independent"] < 0.25


def test_a_row_has_five_cells() -> None:
    text = reproduction.table([reproduction.Row("a", "1", "2", "+1", "because")])
    assert text.splitlines()[2] == "| a | 1 | 2 | +1 | because |"


def test_presets_are_the_networks_of_table_3_1() -> None:
    for preset, published in networks_and_circuits.PUBLISHED.items():
        assert networks_and_circuits.shape(preset) == published


def test_circuits_of_figures_5_6_and_5_7() -> None:
    """A ring of 3 read every 3, 6 and 9 clocks shows one bit; the register has every value once."""
    assert networks_and_circuits.stuck_spacings(3, range(1, 10)) == 3
    values = networks_and_circuits.lfsr_values()
    assert sorted(values) == list(range(1, 1 << 16))
    worst, bound = networks_and_circuits.circuit_error()
    assert 0 < worst <= bound * (1 + 1e-9)


def test_the_talks_hash_is_balanced_and_independent() -> None:
    assert networks_and_circuits.hash_shares((14, 15)) == (0.5, 0.5, 0.5)
    product = networks_and_circuits.field_hash(3, np.array([1 << 9, 1 << 8]))
    # 3 x^9 = x^10 + x^9 = x^9 + x^3 + 1, 3 x^8 = x^9 + x^8: both have x^9.
    assert product.tolist() == [1, 1]
