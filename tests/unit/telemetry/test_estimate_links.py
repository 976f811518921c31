"""Estimates from samples: hand-worked sums, intervals and utilization."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
import pytest

from tailback.errors import RunError
from tailback.run.schema import TABLES
from tailback.telemetry.estimate import (
    Selection,
    capacity_bytes,
    contrast_excess,
    count_interval,
    fraction_interval,
    fraction_lower_bound,
    link_estimates,
    packets_to_settle,
    select,
    usual_excess,
    utilization,
)
from tests.factories.diagnosis_runs import (
    LINE_PACKETS,
    LINK,
    Flow,
    eject,
    leaf,
    make_run,
    placement_run,
)


def link_utilization(
    tables: Mapping[str, pl.DataFrame],
    selection: Selection,
    header_bytes: int = 0,
    *,
    hashed: bool = False,
) -> pl.DataFrame:
    """Utilization of each link by the selected traffic over the selected windows.

    Args:
        tables: Tables of a run; ``samples``, ``labels``, ``links`` and ``windows`` are read.
        selection: Traffic and windows; the time is that of the windows (all, when None).
        header_bytes: Bytes a packet costs on the wire on top of its size.
        hashed: Whether the samples were hashes.

    Returns:
        One row a link with samples: ``link``, ``utilization``, ``utilization_se``,
        ``utilization_low``, ``utilization_high`` (share of the line rate) and ``gbps``.
    """
    windows = tables["windows"]
    if selection.windows is not None:
        keep = pl.Series(list(selection.windows), dtype=pl.UInt32)
        windows = windows.filter(pl.col("window").is_in(keep.implode()))
    time = float((windows["end_ps"] - windows["start_ps"]).sum())
    rates = tables["links"].select("link", "rate_gbps")
    frame = link_estimates(select(tables, selection)).join(
        rates, on="link", how="inner", maintain_order="left"
    )
    rate = column(frame, "rate_gbps")
    packets, variance = column(frame, "packets"), column(frame, "packets_variance")
    value, error, low, high = utilization(
        column(frame, "bytes"),
        packets,
        variance,
        column(frame, "path_excess"),
        usual_excess(column(frame, "samples"), packets, variance),
        capacity_bytes(rate, np.full_like(rate, time)),
        header_bytes,
        hashed=hashed,
    )
    return frame.select(
        "link",
        utilization=pl.Series(value),
        utilization_se=pl.Series(error),
        utilization_low=pl.Series(low),
        utilization_high=pl.Series(high),
        gbps=pl.Series(value * rate),
    )


def column(frame: pl.DataFrame, name: str) -> np.ndarray:
    return frame[name].cast(pl.Float64).to_numpy()


def samples(*rows: tuple[int, ...]) -> pl.DataFrame:
    sides = ("receive_label", "receiver")
    names = [c.name for c in TABLES["samples"].columns if c.name not in sides]
    return pl.DataFrame(
        [dict(zip(names, row, strict=True)) for row in rows],
        schema=TABLES["samples"].polars_schema,
    )


def test_sums_and_errors_match_section_3_3() -> None:
    # Two windows of link 7: 10 samples of 3-hop packets, 4 of 5-hop ones; congested 6 × g = 2.
    frame = link_estimates(
        samples(
            (0, 0, 0, 7, 10, 30, 60, 3000, 6, 12, 12),
            (1, 0, 0, 7, 4, 20, 80, 2000, 0, 0, 0),
        )
    )
    row = frame.row(0, named=True)
    assert (row["samples"], row["packets"], row["bytes"], row["congested"]) == (14, 50, 5000, 12)
    assert row["packets_se"] == pytest.approx(np.sqrt(140))
    assert row["fraction"] == pytest.approx(0.24)
    # Var[F] = F² (Var Ŵ/Ŵ² + Var W/W²)
    variance = 0.24**2 * (12 / 12**2 + 140 / 50**2)
    assert row["fraction_se"] == pytest.approx(np.sqrt(variance))
    assert row["bytes_se"] == pytest.approx(100 * np.sqrt(140))


def test_congested_samples_alone_leave_the_fraction_unknown() -> None:
    row = link_estimates(samples((0, 0, 0, 3, 0, 0, 0, 0, 2, 4, 4))).row(0, named=True)
    assert row["fraction"] == 0.0
    assert (row["fraction_low"], row["fraction_high"]) == (0.0, 1.0)


def test_paths_of_one_hop_leave_nothing_to_chance() -> None:
    row = link_estimates(samples((0, 0, 0, 3, 40, 40, 0, 400, 0, 0, 0))).row(0, named=True)
    assert (row["packets_low"], row["packets_high"]) == (40, 40)
    assert (row["fraction_low"], row["fraction_high"]) == (0.0, 0.0)


def test_longer_paths_may_be_missed_at_one_hop() -> None:
    # Link 3: 8 one-hop samples. Link 4: 12 of five hops.
    seen = samples((0, 0, 0, 3, 8, 8, 0, 80, 0, 0, 0), (0, 0, 0, 4, 12, 60, 240, 600, 0, 0, 0))
    single, five = link_estimates(seen).iter_rows(named=True)
    # (N − 8)² = z² (N − 8) e: e from 8 packets of l−1 = 0 and 5 imagined of l−1 = 4.
    assert single["packets_low"] == 8
    assert single["packets_high"] == pytest.approx(8 + 1.959963984540054**2 * 5 * 4 / 13)
    # A path as long as any elsewhere is as it was.
    low, high = count_interval(np.array([60.0]), np.array([240.0]), np.array([4.0]), 0.0)
    assert (five["packets_low"], five["packets_high"]) == pytest.approx((low[0], high[0]))


def test_interval_without_congested_samples_is_no_point() -> None:
    row = link_estimates(samples((0, 0, 0, 3, 20, 60, 120, 600, 0, 0, 0))).row(0, named=True)
    assert row["fraction_se"] == 0.0  # what section 3.3 says there
    # All f with f² W ≤ z² (2 f + 2 f²): f = 2c / (1 − 2c), c = z²/60.
    c = 1.959963984540054**2 / 60
    assert row["fraction_high"] == pytest.approx(2 * c / (1 - 2 * c))


def test_too_few_packets_bound_nothing_from_above() -> None:
    low, high = fraction_interval(
        np.array([0.0]), np.array([3.0]), np.array([2.0]), np.array([2.0])
    )
    assert (low[0], high[0]) == (0.0, 1.0)


def test_the_hashed_lower_bound_holds_the_variances() -> None:
    z, m, w, var_m, var = 1.959963984540054, 60.0, 200.0, 500.0, 900.0
    low = fraction_lower_bound(*(np.array([x]) for x in (m, w, var_m, var)))[0]
    assert (m - low * w) ** 2 == pytest.approx(z * z * (var_m + low**2 * var))
    assert 0.0 < low < m / w
    arrays = (np.array([x]) for x in (m, w, var_m, var))
    less = fraction_lower_bound(*arrays, shared=True)[0]
    spread = (1 - 2 * less) * var_m + less**2 * var
    assert (m - less * w) ** 2 == pytest.approx(z * z * spread)
    assert low < less < m / w
    # Ŵ, or W, within chance of 0.
    assert fraction_lower_bound(*(np.array([x]) for x in (40.0, w, var_m, var)))[0] == 0.0
    assert fraction_lower_bound(*(np.array([x]) for x in (40.0, 50.0, 1.0, var)))[0] == 0.0


def coverage(packets: int, fraction: float, hops: int, met: int, seed: int = 5) -> float:
    """Share of 40,000 repetitions whose interval holds the true fraction."""
    rng = np.random.default_rng(seed)
    hot = round(packets * fraction)
    w = hops * rng.binomial(packets, 1 / hops, 40_000).astype(float)
    m = met * rng.binomial(hot, 1 / met, 40_000).astype(float)
    rows = pl.DataFrame(
        {
            "link": np.arange(40_000),
            "hop_samples": w / hops,
            "hop_weight": w,
            "hop_variance": w * (hops - 1),
            "hop_bytes": w,
            "congested_samples": m / met,
            "congested_weight": m,
            "congested_variance": m * (met - 1),
        }
    )
    frame = link_estimates(rows)
    truth = hot / packets
    inside = (frame["fraction_low"] <= truth + 1e-12) & (truth - 1e-12 <= frame["fraction_high"])
    return float(inside.mean())  # type: ignore[arg-type]


@pytest.mark.parametrize("packets", [100, 200, 1000])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.6, 0.95])
@pytest.mark.parametrize(("hops", "met"), [(3, 2), (5, 3), (5, 5)])
def test_intervals_cover_95_percent(packets: int, fraction: float, hops: int, met: int) -> None:
    assert 0.93 <= coverage(packets, fraction, hops, met) <= 0.975


@pytest.mark.parametrize(("packets", "fraction"), [(20, 0.3), (50, 0.1), (50, 0.95), (200, 0.02)])
def test_intervals_cover_with_few_samples(packets: int, fraction: float) -> None:
    # Where F ± 1.96 standard errors covers 56 to 90 %.
    assert 0.92 <= coverage(packets, fraction, 5, 3) <= 0.995


@pytest.mark.parametrize("packets", [200, 1000])
@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.6, 0.95])
def test_intervals_of_one_reservoir_cover_95_percent(packets: int, fraction: float) -> None:
    """Section 5.7: the congested samples are among all samples. Section 3.3 would cover 99.9 %."""
    rng = np.random.default_rng(6)
    hops, hot = 5, round(packets * fraction)
    met = rng.binomial(hot, 1 / hops, 40_000)
    n = met + rng.binomial(packets - hot, 1 / hops, 40_000)
    rows = pl.DataFrame(
        {
            "link": np.arange(40_000),
            "hop_samples": n,
            "hop_weight": hops * n,
            "hop_variance": hops * (hops - 1) * n,
            "hop_bytes": n,
            "congested_samples": met,
            "congested_weight": hops * met,
            "congested_variance": hops * (hops - 1) * met,
        }
    )
    covered, width = [], []
    for shared in (True, False):
        frame, truth = link_estimates(rows, shared=shared), hot / packets
        low, high = frame["fraction_low"].to_numpy(), frame["fraction_high"].to_numpy()
        covered.append(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean())
        width.append((high - low).mean())
    assert 0.93 <= covered[0] <= 0.975 and width[0] < 0.9 * width[1]
    if fraction >= 0.6:
        assert covered[1] > 0.99 and width[0] < 0.6 * width[1]


def test_the_variance_of_one_reservoir_is_never_negative() -> None:
    b, a = np.array([4.0, 4.0, 4.0]), np.array([1.0, 4.0, 9.0])
    assert contrast_excess(b, a, shared=True).tolist() == [2.0, -4.0, -9.0]
    assert contrast_excess(b, a, shared=False) is b


def test_no_congestion_is_always_covered() -> None:
    assert coverage(200, 0.0, 5, 3) == 1.0


@pytest.mark.parametrize("packets", [20, 100, 1000])
def test_packet_counts_cover_95_percent(packets: int) -> None:
    rng = np.random.default_rng(3)
    w = 5.0 * rng.binomial(packets, 0.2, 40_000)
    low, high = count_interval(w, 4.0 * w, np.full(40_000, 4.0), 4.0)
    inside = ((low <= packets) & (packets <= high)).mean()
    assert 0.93 <= inside <= 0.97


def test_packet_counts_cover_two_path_lengths() -> None:
    # 300 packets that stay on one switch, so are always sampled, and 60 over 5 hops.
    rng = np.random.default_rng(4)
    few = rng.binomial(60, 0.2, 40_000).astype(float)
    rows = pl.DataFrame(
        {
            "link": np.arange(40_000),
            "hop_samples": 300 + few,
            "hop_weight": 300 + 5 * few,
            "hop_variance": 20 * few,
            "hop_bytes": few,
            "congested_samples": 0,
            "congested_weight": 0,
            "congested_variance": 0,
        }
    )
    frame = link_estimates(rows)
    inside = ((frame["packets_low"] <= 360) & (frame["packets_high"] >= 360)).mean()
    assert 0.93 <= float(inside) <= 0.97  # type: ignore[arg-type]


def test_packets_to_settle_settle_it() -> None:
    need = packets_to_settle(np.array([0.2]), 0.1, np.array([1.0]), np.array([2.0]))
    f, n = np.array([0.2]), need
    low, _ = fraction_interval(f * n, n, np.array([1.0]), np.array([2.0]))
    fewer, _ = fraction_interval(f * n / 2, n / 2, np.array([1.0]), np.array([2.0]))
    assert low[0] == pytest.approx(0.1, abs=0.005)
    assert fewer[0] < 0.095


@pytest.mark.parametrize("fraction", [0.13, 0.2, 0.5, 0.95])
def test_packets_of_hashes_settle_it_too(fraction: float) -> None:
    """The bound of hashes is the wider one: V̂ is that of the fraction there is, not of 10 %."""
    f, a, b = (np.array([x]) for x in (fraction, 12.0, 8.0))

    def low(n: np.ndarray) -> float:
        return float(fraction_lower_bound(f * n, n, f * n * a, n * b)[0])

    need = packets_to_settle(f, 0.1, a, b, hashed=True)
    assert low(need) >= 0.1 - 1e-9
    assert low(0.9 * need) < 0.1
    assert packets_to_settle(f, 0.1, a, b)[0] < need[0]
    assert packets_to_settle(f, 0.1, a, b, hashed=True, shared=True)[0] < need[0]


def test_selection_by_phase_window_and_job() -> None:
    run = make_run([Flow(0, 8, 100, "a"), Flow(1, 9, 100, "b", first=10)], {})
    assert select(run.tables, Selection(phases=["a"]))["hop_samples"].sum() == 100
    assert select(run.tables, Selection(windows=range(10)))["phase"].unique().to_list() == ["a"]
    assert select(run.tables, Selection(jobs=[1])).height == 0
    assert select(run.tables, Selection(labels=[1]))["hop_samples"].sum() == 100


def test_unknown_phase_is_named() -> None:
    run = make_run([Flow(0, 8, 4, "a")], {})
    with pytest.raises(RunError, match="no phase 'z'") as caught:
        select(run.tables, Selection(phases=["z"]))
    assert "'a'" in str(caught.value)


def test_utilization_of_a_full_link_is_one() -> None:
    run = placement_run()
    injected = LINK[leaf(0), 8 * 4 + 4]  # leaf 0 to spine 0
    frame = link_utilization(run.tables, Selection())
    row = frame.filter(pl.col("link") == injected).row(0, named=True)
    assert row["utilization_low"] < 1.0 < row["utilization_high"]
    assert row["gbps"] == pytest.approx(100 * row["utilization"])
    # Half the windows, all the rate: the share is of the time chosen.
    half = link_utilization(run.tables, Selection(windows=range(10)))
    assert half.filter(pl.col("link") == injected)["utilization"][0] == pytest.approx(1.0, abs=0.25)


def test_header_bytes_count_on_the_wire() -> None:
    run = make_run([Flow(0, 1, round(LINE_PACKETS * 10))], {})
    plain = link_utilization(run.tables, Selection())
    more = link_utilization(run.tables, Selection(), header_bytes=4096)
    at = pl.col("link") == eject(1)
    assert more.filter(at)["utilization"][0] == pytest.approx(
        2 * plain.filter(at)["utilization"][0]
    )


def test_an_empty_table_gives_an_empty_frame() -> None:
    assert link_estimates(samples()).height == 0
