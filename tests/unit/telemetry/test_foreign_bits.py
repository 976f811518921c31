"""Reserved bits that are no samples, and how sure it is that samples are recognised as such."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.errors import TailbackError
from tailback.inference.evidence import NetworkEvidence, with_samples
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tailback.simulation.decode import COMPILED_DECODER, route_candidates
from tailback.simulation.prepare import load_fabric
from tailback.sources.captures import read_captures
from tailback.telemetry.candidates import PairCandidates
from tailback.telemetry.capture import packets_of
from tailback.telemetry.pcap import write_pcap
from tailback.telemetry.receiver import HashAgreement, hash_agreement
from tests.factories.cli import tailback
from tests.factories.public_data import real

SCHEMES = {
    "coordinated": {"scheme": "coordinated", "hash_bits": 5},
    "coordinated, two slots": {"scheme": "coordinated", "hash_bits": 2, "slots": 2},
    "compact": {"scheme": "compact", "hash_bits": 3, "count_bits": 2, "stamping": "leaf"},
    "compact, lost headers": {
        "scheme": "compact",
        "hash_bits": 2,
        "count_bits": 3,
        "header_loss": 0.2,
    },
    "single-bit": {"scheme": "single-bit", "hash_bits": 1, "count_bits": 2, "stamping": "leaf"},
    "xor-digest": {"scheme": "xor-digest", "hash_bits": 5},
}


def scenario(telemetry: dict[str, object]) -> dict[str, object]:
    """Uniform traffic of 16 hosts on a tree with several paths."""
    return {
        "name": "sampled",
        "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
        "job": [{"pattern": {"kind": "uniform", "ranks": 16, "messages": 40, "size": "2 KiB"}}],
        "telemetry": {**telemetry, "rule": "queue", "rule_bytes": "512 B"},
    }


@pytest.fixture(scope="module", params=SCHEMES.values(), ids=SCHEMES)
def sampled(request: pytest.FixtureRequest) -> tuple[Run, PairCandidates]:
    """A run of a scheme whose packets carry samples, and the links they may have crossed."""
    run = simulate(parse(scenario(request.param)))
    return run, route_candidates(run, load_fabric(run.scenario.fabric))


def agreement(sampled: tuple[Run, PairCandidates], packets: pl.DataFrame) -> HashAgreement:
    run, pairs = sampled
    run = replace(run, tables={**run.tables, "packets": packets})
    return hash_agreement(run, pairs, COMPILED_DECODER)


def test_captures_of_every_scheme_are_recognised(sampled: tuple[Run, PairCandidates]) -> None:
    """None of 100 captures of 500 packets is refused: a rate below 3 % (95 %)."""
    packets = sampled[0].tables["packets"]
    assert agreement(sampled, packets).are_samples
    refused = doubted = 0
    for seed in range(100):
        found = agreement(sampled, packets.sample(500, seed=seed))
        refused += not found.are_samples
        doubted += found.some_are_foreign
    assert refused == 0
    assert doubted == 0


def foreign_bits(packets: pl.DataFrame, bits: int) -> list[np.ndarray]:
    """Contents of a header field that are no samples: constant, by host, counted, random."""
    draw = np.random.default_rng(7)
    height, source = packets.height, packets["src_node"].to_numpy()
    values = 1 << bits
    constant = [np.full(height, value) for value in range(values)]
    by_source = [draw.integers(values, size=source.max() + 1)[source] for _ in range(40)]
    counted = [(packets["sequence"].to_numpy() >> shift) % values for shift in range(4)]
    return constant + by_source + counted + [draw.integers(values, size=height) for _ in range(40)]


def test_other_bits_are_not_taken_for_samples(sampled: tuple[Run, PairCandidates]) -> None:
    """Of some 140 kinds of foreign bits none passes, on all packets and on few."""
    packets, bits = sampled[0].tables["packets"], sampled[0].scenario.telemetry.header_bits
    for header in foreign_bits(packets, bits):
        other = packets.with_columns(header=pl.Series(header.astype(np.uint64)))
        for part in (other, other.head(300)):
            assert not agreement(sampled, part).are_samples


def test_chance_of_agreement_is_that_of_the_hash(sampled: tuple[Run, PairCandidates]) -> None:
    """Agreeing pairs of random bits vary as the binomial distribution does that is assumed."""
    packets, bits = sampled[0].tables["packets"], sampled[0].scenario.telemetry.header_bits
    draw, deviation = np.random.default_rng(3), []
    for _ in range(100):
        header = draw.integers(1 << bits, size=packets.height).astype(np.uint64)
        found = agreement(sampled, packets.with_columns(header=pl.Series(header)))
        chance = 2.0**-found.bits
        spread = np.sqrt(found.pairs * chance * (1 - chance))
        deviation.append((found.agreeing - found.pairs * chance) / spread)
    # Standard errors of mean and standard deviation of 100 draws, times four.
    assert abs(np.mean(deviation)) < 0.4 and 0.7 < np.std(deviation) < 1.3


def test_switches_that_write_nothing_are_noticed(sampled: tuple[Run, PairCandidates]) -> None:
    packets = sampled[0].tables["packets"]
    if sampled[0].scenario.telemetry.hash_bits < 4:
        pytest.skip("few bits: half of the hashes of other links agree by chance")
    half = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.col("header")).otherwise(0)
    found = agreement(sampled, packets.with_columns(header=half))
    assert found.are_samples and found.some_are_foreign
    assert found.share == pytest.approx(0.5, abs=0.05)


def test_few_packets_do_not_tell() -> None:
    assert not HashAgreement(samples=3, pairs=3, agreeing=3, bits=5).are_samples
    assert not HashAgreement(samples=3, pairs=3, agreeing=3, bits=5).enough
    assert HashAgreement(samples=4, pairs=4, agreeing=4, bits=5).are_samples


def capture(folder: Path, header: int | None) -> tuple[Path, Path]:
    """A capture and its scenario; ``header`` replaces the samples of all packets."""
    run = simulate(parse(scenario(SCHEMES["coordinated"])))
    if header is not None:
        packets = run.tables["packets"].with_columns(header=pl.lit(header, pl.UInt64))
        run = replace(run, tables={**run.tables, "packets": packets})
    write_pcap(folder / "all.pcap", packets_of(run, payload=4096))
    text = (
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 2\n[[job]]\npattern ="
        ' { kind = "uniform", ranks = 16 }\n'
    )
    (folder / "s.toml").write_text(text + '[telemetry]\nscheme = "coordinated"\nhash_bits = 5\n')
    return folder / "all.pcap", folder / "s.toml"


@pytest.mark.parametrize(
    ("header", "code", "says"),
    [
        (None, 0, "VERDICT"),
        (0, 3, "have reserved bits of 0"),
        (1, 3, "do not depend on"),
        (0x21, 3, "do not depend on"),
    ],
)
def test_capture_without_samples_has_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: int | None, code: int, says: str
) -> None:
    path, network = capture(tmp_path, header)
    command = ["diagnose", str(path), "--fabric", str(network), "--out", str(tmp_path / "out")]
    assert tailback([*command, "--quiet"]) == code
    shown = " ".join(capsys.readouterr().out.split())
    assert says in shown and ("UNDETERMINED" in shown) == (code == 3)
    run = read_captures([path], network)
    assert (run.tables["samples"].height == 0) == (code == 3)
    if code == 3:
        with pytest.raises(TailbackError, match="has no samples"):
            with_samples(NetworkEvidence(), path, prepare(parse(scenario(SCHEMES["coordinated"]))))


@pytest.mark.data
@pytest.mark.parametrize("name", ["resv00", "resv01"])
def test_assumed_telemetry_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = real(f"cases/plain-roce-capture/{name}.pcap")
    network = real("cases/plain-roce-capture/links.csv")
    command = ["diagnose", str(path), "--fabric", str(network), "--out", str(tmp_path / "out")]
    assert tailback([*command, "--quiet"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "The capture has no samples" in shown
    assert "scheme 'coordinated' with 5 hash bits is assumed" in shown
