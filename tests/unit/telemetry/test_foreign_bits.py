"""Reserved bits that are no samples, and how sure it is that samples are recognised as such."""

from __future__ import annotations

from collections.abc import Callable
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
from tailback.simulation.captures import why_tags_are_foreign
from tailback.simulation.decode import COMPILED_DECODER, decode_samples, route_candidates
from tailback.simulation.prepare import load_fabric
from tailback.sources.captures import read_captures
from tailback.telemetry.bottlenecks import writable
from tailback.telemetry.candidates import PairCandidates
from tailback.telemetry.capture import packets_of
from tailback.telemetry.pcap import write_pcap
from tailback.telemetry.receiver import HashAgreement, hash_agreement
from tailback.telemetry.wire import IbPacket
from tests.factories.captures import Frames, address, pcap, rocev2
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


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(scheme, id=name, marks=pytest.mark.slow if "," in name else ())
        for name, scheme in SCHEMES.items()
    ],
)
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
        bit_agreement = agreement(sampled, packets.sample(500, seed=seed))
        refused += not bit_agreement.are_samples
        doubted += bit_agreement.some_are_foreign
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


@pytest.mark.slow
def test_chance_of_agreement_is_that_of_the_hash(sampled: tuple[Run, PairCandidates]) -> None:
    """Agreeing pairs of random bits vary as the binomial distribution does that is assumed."""
    packets, bits = sampled[0].tables["packets"], sampled[0].scenario.telemetry.header_bits
    draw, deviation = np.random.default_rng(3), []
    for _ in range(100):
        header = draw.integers(1 << bits, size=packets.height).astype(np.uint64)
        bit_agreement = agreement(sampled, packets.with_columns(header=pl.Series(header)))
        chance = 2.0**-bit_agreement.bits
        spread = np.sqrt(bit_agreement.pairs * chance * (1 - chance))
        deviation.append((bit_agreement.agreeing - bit_agreement.pairs * chance) / spread)
    # Standard errors of mean and standard deviation of 100 draws, times four.
    assert abs(np.mean(deviation)) < 0.4 and 0.7 < np.std(deviation) < 1.3


def test_switches_that_write_nothing_are_noticed(sampled: tuple[Run, PairCandidates]) -> None:
    packets = sampled[0].tables["packets"]
    if sampled[0].scenario.telemetry.hash_bits < 4:
        pytest.skip("few bits: half of the hashes of other links agree by chance")
    half = pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.col("header")).otherwise(0)
    bit_agreement = agreement(sampled, packets.with_columns(header=half))
    assert bit_agreement.are_samples and bit_agreement.some_are_foreign
    assert bit_agreement.share == pytest.approx(0.5, abs=0.05)


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


# --- tags of scheme csig
# ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, Frames]:
    """A run of scheme csig, its folder, and its packets over Ethernet, without tags."""
    folder = tmp_path_factory.mktemp("csig")
    run = simulate(parse(scenario({"scheme": "csig"})))
    table = run.tables["packets"].sort("time_ps", "packet")
    run = replace(run, tables={**run.tables, "packets": table})
    columns = ("time_ps", "src_node", "dst_node", "sequence", "queue_pair")
    packets = (
        (time // 1000, IbPacket(src + 1, dst + 1, psn, 0, bytes(64), destination_qp=pair))
        for time, src, dst, psn, pair in table.select(columns).iter_rows()
    )
    write_pcap(folder / "all.pcap", packets)
    nodes = run.tables["nodes"].select("node", "name").iter_rows()
    rows = "".join(f"{address(node + 1, 4)},{name}\n" for node, name in nodes)
    (folder / "addresses.csv").write_text("address,node\n" + rows)
    text = "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 2\n[[job]]\npattern ="
    text += ' { kind = "uniform", ranks = 16 }\n[telemetry]\nscheme = "csig"\n'
    (folder / "s.toml").write_text(text)
    return run, folder, rocev2(folder / "all.pcap", 4)


CSIG, VLAN = b"\x99\0", b"\x81\0\0\5"


def with_tags(tagged: tuple[Run, Path, Frames], tags: list[bytes]) -> Run:
    """The run of a capture whose packets have these tags behind the Ethernet addresses."""
    _, folder, frames = tagged
    changed = [
        (time, frame[:12] + tag + frame[12:])
        for (time, frame), tag in zip(frames, tags, strict=True)
    ]
    file = pcap(folder / "tagged.pcap", changed, 1)
    return read_captures([file], folder / "s.toml", contexts=folder)


def genuine(tagged: tuple[Run, Path, Frames]) -> np.ndarray:
    return tagged[0].tables["packets"]["header"].to_numpy().astype(np.int64)


def as_bytes(tags: np.ndarray) -> list[bytes]:
    return [CSIG + int(tag).to_bytes(2) for tag in tags]


@pytest.mark.parametrize(("before", "after"), [(b"", b""), (VLAN, b""), (b"", VLAN), (VLAN, VLAN)])
def test_genuine_tags_are_read_beside_vlan_tags(
    tagged: tuple[Run, Path, Frames], before: bytes, after: bytes
) -> None:
    run = with_tags(tagged, [before + tag + after for tag in as_bytes(genuine(tagged))])
    assert "without_samples" not in run.summary
    sums = [
        table.tables["samples"].group_by("link").agg(pl.col("congested_weight").sum()).sort("link")
        for table in (run, decode_samples(tagged[0]))
    ]
    assert sums[0].equals(sums[1]) and sums[0]["congested_weight"].sum() > 0


def foreign_tags(tagged: tuple[Run, Path, Frames]) -> dict[str, np.ndarray]:
    """Contents of tags that are not those of switches: constant, by host, counted, random."""
    draw = np.random.default_rng(7)
    packets, true = tagged[0].tables["packets"], genuine(tagged)
    height, source = packets.height, packets["src_node"].to_numpy()
    nqd = 3 << 13
    kinds = {
        f"constant {locator}": np.full(height, nqd | 9 << 7 | locator)
        for locator in range(0, 128, 3)
    }
    for seed in range(20):
        by_source = draw.integers(1 << 12, size=source.max() + 1)[source]
        kinds[f"by source {seed}"] = nqd | by_source
        kinds[f"random {seed}"] = nqd | draw.integers(1 << 12, size=height)
        kinds[f"any bits {seed}"] = draw.integers(1 << 16, size=height)
    numbers = packets["sequence"].to_numpy()
    kinds |= {f"counted {shift}": nqd | (numbers >> shift) % (1 << 12) for shift in range(4)}
    locator = true & 127
    return kinds | {
        "empty": np.full(height, nqd),
        "shuffled": draw.permutation(true),
        "reserved bit": true | 1 << 12,
        "other signal": true & 0x1FFF,
        "value without locator": true & ~127 | (locator == 0),
        "locator out of range": np.where(locator > 0, true & ~127 | 127, true),
    }


def test_tags_of_foreign_switches_are_refused(tagged: tuple[Run, Path, Frames]) -> None:
    run = tagged[0]
    fabric = load_fabric(run.scenario.fabric)
    pairs = route_candidates(run, fabric)
    assert fabric.n_links < 127 and (writable(run.tables["packets"], pairs) > 0).all()
    for kind, tags in foreign_tags(tagged).items():
        packets = run.tables["packets"].with_columns(
            header=pl.Series(tags.astype(np.uint64)), csig=pl.Series(tags) | 1 << 16
        )
        for part in (packets, packets.head(300)):
            assert why_tags_are_foreign(part, pairs), kind


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        (lambda true: [b""] * len(true), "none of"),
        (lambda true: [b"\x99\1" + tag[2:] for tag in as_bytes(true)], "none of"),
        (lambda true: as_bytes(true & 0x1FFF), "signal type must be 2 or 3"),
        (lambda true: as_bytes(np.full(len(true), 3 << 13)), "are empty"),
        (lambda true: as_bytes(true | 127), "locator that of a link on the packet's path"),
    ],
    ids=["no tag", "other type", "other signal", "empty", "locator out of range"],
)
def test_capture_without_csig_tags_has_no_verdict(
    tagged: tuple[Run, Path, Frames],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tags: Callable[[np.ndarray], list[bytes]],
    says: str,
) -> None:
    _, folder, _ = tagged
    run = with_tags(tagged, tags(genuine(tagged)))
    assert run.tables["samples"].height == 0
    command = ["diagnose", str(folder / "tagged.pcap"), "--fabric", str(folder / "s.toml")]
    command += ["--contexts", str(folder), "--out", str(tmp_path / "out"), "--quiet"]
    assert tailback(command) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "UNDETERMINED" in shown and says in shown
    assert "Ethernet type 0x9900 is assumed" in shown


def test_unread_csig_tags_are_named(tagged: tuple[Run, Path, Frames]) -> None:
    _, folder, _ = tagged
    with_tags(tagged, as_bytes(genuine(tagged)))
    text = (folder / "s.toml").read_text().replace('"csig"', '"coordinated"\nhash_bits = 5')
    (folder / "other.toml").write_text(text)
    run = read_captures([folder / "tagged.pcap"], folder / "other.toml", contexts=folder)
    assert any("packets have CSIG tags, which are not read" in note for note in run.notes)
