"""Tests that differ between hosts are not fitted together, and the host in common is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import tailback as tb
from tailback.calibration.disagreement import agreeing
from tailback.calibration.fitted_series import Placed
from tailback.calibration.model import latency, stream
from tailback.calibration.routes import LOCAL, Route
from tailback.cli import run as tailback
from tests.factories import benchmark_outputs as outputs
from tests.factories.public_data import real

NETWORK = """
[fabric.fat_tree]
hosts_per_leaf = 4
leaves = 2
aggregation = 2
[[job]]
pattern = { kind = "ring", size = "1 KiB" }
"""
PAIRS = [*combinations(("n0", "n1", "n2", "n3"), 2)]
FORMATS: dict[str, tuple[Callable[[], str], str]] = {
    "osu_latency": (outputs.osu_latency, "rate"),
    "osu_bw": (outputs.osu_bw, "rate"),
    "osu_latency at small sizes": (outputs.osu_latency, "latency"),
    "imb": (outputs.imb, "rate"),
    "imb at small sizes": (outputs.imb, "latency"),
    "ib_write_lat": (outputs.ib_write_lat, "rate"),
    "ib_write_bw": (outputs.ib_write_bw, "rate"),
    "nccl": (outputs.nccl_text, "rate"),
    "nccl -J": (outputs.nccl_json, "rate"),
}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.toml"
    path.write_text(NETWORK)
    return path


def files_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, form: str, slow: Callable[[str, str], bool]
) -> list[str]:
    """Outputs of a test between all pairs of four hosts, of which some are slow by a third."""
    write, regime = FORMATS[form]
    constant, worse = ("RATE", 12.5e3 / 1.5) if regime == "rate" else ("LATENCY_US", 1.8)
    usual = getattr(outputs, constant)
    out = []
    for a, b in PAIRS:
        monkeypatch.setattr(outputs, constant, worse if slow(a, b) else usual)
        # Default arguments were taken from the constant when the module was loaded.
        time = lambda size: outputs.time_us(size, outputs.LATENCY_US)  # noqa: E731
        text = write(time) if write is outputs.osu_latency else write()  # type: ignore[call-arg]
        if write is outputs.imb and regime == "latency":
            text = outputs.imb(time=time)
        path = folder / f"{a}{b}.txt"
        path.write_text(text)
        out.append(f"{path}@{a},{b}")
    return out


@pytest.mark.parametrize("form", FORMATS)
def test_the_host_that_slow_pairs_share_is_named(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    files = files_of(tmp_path, monkeypatch, form, lambda a, b: "n3" in (a, b))
    calibration = tb.calibrate(files, fabric=network)
    (disagreement,) = calibration.disagreements
    assert disagreement.regime == FORMATS[form][1] and disagreement.suspects == ("n3",)
    slow = {value.hosts for value in disagreement.values if value.slow}
    assert slow == {pair for pair in PAIRS if "n3" in pair}
    assert "n3 or its cable is slow" in disagreement.text()
    fitted = {parameter.name for parameter in [*calibration.engine, *calibration.measured]}
    assert not fitted & ({"rate", "header"} if disagreement.regime == "rate" else {"send_delay"})


@pytest.mark.parametrize("form", FORMATS)
def test_pairs_that_agree_are_fitted_together(
    tmp_path: Path, network: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    files = files_of(tmp_path, monkeypatch, form, lambda a, b: False)
    calibration = tb.calibrate(files, fabric=network)
    assert not calibration.disagreements
    assert any(parameter.name == "rate" for parameter in calibration.measured)


def series(rate_gbps: float, noise: float = 0.003, seed: int = 1, sizes: int = 6) -> tuple:
    rng = np.random.default_rng(seed)
    size = 2.0 ** np.arange(18, 18 + sizes)
    rates = rate_gbps / 8 * 1e9 * np.exp(noise * rng.standard_normal(sizes))
    return tuple(zip(size.tolist(), rates.tolist(), [1e3] * sizes, strict=True))


def bandwidths(
    rates: dict[tuple[str, ...], float], noise: float = 0.003, sizes: int = 6
) -> list[Placed]:
    """A bandwidth test between some hosts, in this order."""
    return [
        Placed(
            stream("mpi", series(rate, noise, seed, sizes), 10, "osu_bw"),
            LOCAL if len(hosts) == 1 else Route(1, 1e4, 100.0),
            hosts,
        )
        for seed, (hosts, rate) in enumerate(rates.items())
    ]


@pytest.mark.parametrize(
    ("rates", "suspects", "role"),
    [
        ({("a", "b"): 90, ("b", "a"): 60, ("b", "c"): 60, ("c", "b"): 90}, ("b",), "sends"),
        ({("a", "b"): 60, ("b", "a"): 90, ("b", "c"): 90, ("c", "b"): 60}, ("b",), "receives"),
        ({("a",): 400, ("b",): 200, ("c",): 400}, ("b",), ""),
        ({("a", "b"): 90, ("c", "d"): 60}, ("c", "d"), ""),
        ({("a", "b"): 60, ("c", "d"): 60, ("a", "c"): 90, ("b", "d"): 90}, (), ""),
    ],
)
def test_directions_and_hosts_are_told_apart(
    rates: dict[tuple[str, ...], float], suspects: tuple[str, ...], role: str
) -> None:
    kept, (disagreement,) = agreeing(bandwidths(rates))
    assert not kept
    assert (disagreement.suspects, disagreement.role) == (suspects, role)
    assert all(name in disagreement.text() for name in suspects)
    values = {value.hosts: value.value for value in disagreement.values}
    assert values == pytest.approx(rates, rel=0.02)


def test_noise_is_no_disagreement() -> None:
    """Of 200 machines whose times scatter by 2 or 20 %, hosts are said to differ on two at most."""
    rng = np.random.default_rng(3)
    differ = 0
    for number in range(200):
        noise = 0.02 if number % 2 else 0.2
        rates = {pair: 90.0 * float(np.exp(0.01 * rng.standard_normal())) for pair in PAIRS}
        placed = [
            Placed(
                stream("mpi", series(rate, noise, 1000 * number + i, 5), 9, "osu_bw"),
                Route(1, 0.0, 100.0),
                pair,
            )
            for i, (pair, rate) in enumerate(rates.items())
        ]
        differ += bool(agreeing(placed)[1])
    assert differ <= 2


def test_one_size_needs_a_large_difference() -> None:
    assert not agreeing(bandwidths({("a", "b"): 90, ("a", "c"): 80}, sizes=1))[1]
    assert agreeing(bandwidths({("a", "b"): 90, ("a", "c"): 50}, sizes=1))[1]


def test_small_messages_stay_where_only_rates_differ() -> None:
    sizes = [8.0, 64.0, 1024.0, 65536.0, 1048576.0]
    placed = [
        Placed(
            latency("mpi", [(s, 1.0 + s / per_us, 1e-3) for s in sizes], 9, "osu_latency"),
            Route(1, 0.0, 100.0),
            ("a", host),
        )
        for host, per_us in (("b", 12e3), ("c", 4e3), ("d", 12e3))
    ]
    kept, (disagreement,) = agreeing(placed)
    assert disagreement.suspects == ("c",)
    assert [times.series.size_bytes.max() for times in kept] == [1024.0] * 3


def test_unknown_distances_may_differ_in_latency() -> None:
    placed = [
        Placed(
            latency("mpi", [(8.0, us, 0.01), (64.0, us, 0.01)], 9, "osu_latency"), None, ("a", host)
        )
        for host, us in (("b", 1.0), ("c", 3.0))
    ]
    assert not agreeing(placed)[1]


def test_recorded_pairs_name_the_slow_host(capsys: pytest.CaptureFixture[str]) -> None:
    folder = real("cases") / "calibrate-pairs"
    files = [str(path) for path in sorted(folder.glob("*.log"))]
    assert tailback(["calibrate", *files, "--fabric", str(folder / "links.csv")]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "n1–n4 and n2–n4 reach 40 Gb/s" in screen and "n4 or its cable is slow" in screen
    assert "header" not in screen.split("NOT IDENTIFIED")[0]
    assert tailback(["calibrate", *files, "--format", "json"]) == 0
    (disagreement,) = json.loads(capsys.readouterr().out)["disagreements"]
    assert disagreement["suspects"] == ["n4"]
