"""The data path's C code does bit for bit what the Rust schemes and the Python receiver do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import hadamard

from tailback import _core
from tailback.lab.datapath.kernel import dry_run, opened
from tailback.lab.datapath.sampling import PacketScheme, SamplingError, hash_masks, link_bits
from tailback.telemetry.header_counts import sampled_hop
from tailback.telemetry.packet_ids import packet_ids
from tests.factories.datapath import (
    RECORD,
    Visits,
    address,
    kernel_build,
    library,
    private_folder,
    why_no_bpf,
)

compiled = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
kernel = pytest.mark.skipif(why_no_bpf() is not None, reason=str(why_no_bpf()))

SCHEMES = (
    "single-bit:1",
    "single-bit:3",
    "compact:1",
    "compact:2",
    "coordinated:4",
    "coordinated:5",
    "full",
)
LINKS, HOPS = 40, 5
PACKETS = 20_000
"""Times five hops: 10^5 visits a scheme."""


@compiled
@pytest.mark.parametrize("scheme", SCHEMES)
def test_user_space_ports_follow_the_rust_scheme(scheme: str, tmp_path: Path) -> None:
    sampling = PacketScheme.parse(scheme)
    code, visits = library(sampling, LINKS, tmp_path), Visits(sampling, LINKS, PACKETS, HOPS, 7)
    samples = np.zeros(PACKETS, np.uint32)
    for hop in range(HOPS):
        records = visits.records(hop, samples)
        code.visit_records(address(records), PACKETS)
        samples = records["sample"].copy()
    assert int(samples.max()) < 1 << sampling.sample_bits(link_bits(LINKS))
    assert visits.concluded(samples, link_bits(LINKS)) == visits.received()


@kernel
@pytest.mark.parametrize("scheme", SCHEMES)
def test_kernel_ports_follow_the_rust_scheme(scheme: str, tmp_path: Path) -> None:
    sampling, built, batch = PacketScheme.parse(scheme), tmp_path / "visits.o", 24
    assert kernel_build(sampling, LINKS, built) == ""
    visits, samples = Visits(sampling, LINKS, PACKETS, HOPS, 8), np.zeros(PACKETS, np.uint32)
    with private_folder() as (folder, problem):
        assert not problem
        subprocess.run(["bpftool", "prog", "load", built, folder / "visits"], check=True)
        with opened(folder / "visits") as program:
            for hop in range(HOPS):
                records, parts = visits.records(hop, samples), []
                for first in range(0, PACKETS, batch):
                    packet = bytes(14) + records[first : first + batch].tobytes()
                    parts.append(dry_run(program, packet)[0][14:])
                samples = np.frombuffer(b"".join(parts), RECORD)["sample"].copy()
    assert visits.concluded(samples, link_bits(LINKS)) == visits.received()


@compiled
def test_ids_and_surviving_hops_are_the_receivers(tmp_path: Path) -> None:
    code, dice = (
        library(PacketScheme.parse("coordinated"), LINKS, tmp_path),
        np.random.default_rng(3),
    )
    flows = dice.integers(0, 1 << 32, (100_000, 4), np.uint32)
    ids = np.zeros(len(flows), np.uint32)
    code.ids(address(flows), address(ids), len(flows))
    source, destination, pair, psn = (np.ascontiguousarray(part) for part in flows.T)
    assert (ids == packet_ids(psn, source, destination, pair)).all()
    hops = dice.integers(1, 16, len(ids), np.uint32)
    hop = np.zeros(len(ids), np.uint32)
    code.survivors(address(ids), address(hops), address(hop), len(ids))
    assert (hop == sampled_hop(ids, hops.astype(np.int64))).all()
    assert hop.max() == 14


@compiled
@pytest.mark.parametrize("bits", [1, 2, 4, 5])
@pytest.mark.parametrize("links", [15, 40, 200])
def test_the_binned_transform_is_the_decoders_score(bits: int, links: int, tmp_path: Path) -> None:
    code, dice = (
        library(PacketScheme("coordinated", bits), links, tmp_path),
        np.random.default_rng(bits),
    )
    ids = dice.integers(0, 1 << 24, 100_000, np.uint32)
    hashes = dice.integers(0, 1 << bits, len(ids), np.uint32)
    bins = np.zeros(1 << link_bits(links), np.int64)
    code.bins(address(ids), address(hashes), address(bins), len(ids))
    scores = bins @ hadamard(len(bins), dtype=np.int64)
    numbers = np.arange(1, links + 1, dtype=np.uint32)
    expected = _core.decode(
        ids, hashes.astype(np.uint8), np.ones(len(ids), np.uint8), numbers, bits, 24, "direct"
    )
    assert (scores[1 : links + 1] == expected).all()


@pytest.mark.parametrize("link", [1, 2, 39, 4095])
def test_masks_are_those_of_the_rust_hash(link: int) -> None:
    ids = np.random.default_rng(link).integers(0, 1 << 24, 1000, np.uint32)
    masks = hash_masks(link, 5)
    expected = _core.link_hash("gf", ids, np.full(len(ids), link, np.uint32), 5, 24)
    hashes = sum(np.bitwise_count(ids & np.uint32(mask)) % 2 << k for k, mask in enumerate(masks))
    assert (hashes == expected).all()


def test_a_scheme_is_written_as_it_is_read() -> None:
    for text in SCHEMES:
        assert str(PacketScheme.parse(text)) == text
    assert [str(PacketScheme.parse(name)) for name in ("single-bit", "compact", "coordinated")] == [
        "single-bit:1",
        "compact:2",
        "coordinated:4",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("coordinate", "did you mean 'coordinated'"),
        ("xor-digest", "is not built for real packets"),
        ("coordinated:9", "write 1 to 5"),
        ("compact:", ""),
        ("full:3", "has no hash"),
    ],
)
def test_what_is_not_built_is_refused(text: str, says: str) -> None:
    if not says:
        assert PacketScheme.parse(text).hash_bits == 2
        return
    with pytest.raises(SamplingError) as caught:
        PacketScheme.parse(text)
    assert says in str(caught.value)


def test_a_sample_must_fit_its_packet_field() -> None:
    full = PacketScheme.parse("full")
    full.check(31, 4)
    full.check(127, 6)
    for links, ip in ((32, 4), (128, 6)):
        with pytest.raises(SamplingError, match=f"IPv{ip} has"):
            full.check(links, ip)
    PacketScheme.parse("single-bit:5").check(400, 4)
