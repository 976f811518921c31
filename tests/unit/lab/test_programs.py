"""The programs of a lab's ports and receivers, run in the kernel on frames that are not sent."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard

from tailback import _core
from tailback.lab import fabric, system, telemetry
from tailback.lab.datapath.kernel import Sums, dry_run, opened, port_table, read_sums
from tailback.lab.datapath.sampling import MAX_SUMS, PacketScheme, link_bits
from tailback.lab.plan import Plan
from tailback.lab.spec import LabSpec, parse
from tailback.simulation.captures import read_captured
from tailback.telemetry.header_counts import sampled_hop
from tailback.telemetry.packet_ids import decision_words, packet_ids, takes_sample
from tests.factories.datapath import why_no_bpf
from tests.factories.frames import Frame, checksum, sample_of, without_sample
from tests.factories.lab import tiny

pytestmark = pytest.mark.skipif(why_no_bpf() is not None, reason=str(why_no_bpf()))

BITS = 5
EACH = 34_000
"""Frames of each kind: more than 10^5 in all."""


@contextmanager
def sampled(spec: LabSpec, scheme: str) -> Iterator[tuple[Plan, Path]]:
    plan = fabric.bring_up(spec, PacketScheme.parse(scheme))
    try:
        yield plan, fabric.folder_of(plan) / telemetry.FOLDER
    finally:
        fabric.take_down(spec.name)


@pytest.fixture(scope="module")
def coordinated() -> Iterator[tuple[Plan, Path]]:
    with sampled(tiny("tbp"), f"coordinated:{BITS}") as lab:
        yield lab


def about(link: int, *, mark: int = 0, segments: int = 0) -> bytes:
    """``struct __sk_buff`` of a packet at the port of a link."""
    context = bytearray(192)
    struct.pack_into("=I", context, 8, mark)
    struct.pack_into("=I", context, 40, 1000 + link)
    struct.pack_into("=I", context, 164, segments)
    return bytes(context)


def frames(kind: str, count: int, seed: int) -> list[Frame]:
    """Random frames between hosts with random addresses."""
    dice = np.random.default_rng(seed)
    numbers = dice.integers(0, 1 << 32, (count, 4), np.uint32)
    hops, samples = dice.integers(0, 5, count), dice.integers(0, 1 << (BITS + 1), count)
    out = []
    for (source, target, first, second), hop, sample in zip(
        numbers.tolist(), hops.tolist(), samples.tolist(), strict=True
    ):
        if kind == "roce":
            first, second = first & 0xFFFFFF, second & 0xFFFFFF
        ends = (
            (
                f"fd10::{n >> 16:x}:{n & 0xFFFF:x}"
                if kind == "v6"
                else ".".join(map(str, (10, *n.to_bytes(4)[1:])))
            )
            for n in (source, target)
        )
        out.append(Frame(*ends, hop, sample, first, second, (source >> 16, target >> 16)))
    return out


def ids_of(sent_frames: list[Frame], *, roce: bool) -> NDArray[np.uint32]:
    """Packet ids, as docs/explanation/validation.md defines them."""

    def end(address: str) -> int:
        return int.from_bytes(ipaddress.ip_address(address).packed[-3:])

    def column(values: list[int]) -> NDArray[np.uint32]:
        return np.array([value & 0xFFFFFF for value in values], np.uint32)

    def key(frame: Frame) -> int:
        if roce:
            return frame.second
        length = 20 + len(frame.payload) + (0 if ":" in frame.source else 20)
        words = (
            frame.ports[0] << 16 | frame.ports[1],
            frame.second,
            1000 << 16 | length,
            frame.first >> 24,
        )
        spread = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)
        return sum(a * b for a, b in zip(words, spread, strict=True)) % 2**32 >> 8

    pairs = [key(frame) for frame in sent_frames]
    return packet_ids(
        column([f.first for f in sent_frames]),
        column([end(f.source) for f in sent_frames]),
        column([end(f.target) for f in sent_frames]),
        column(pairs),
    )


@pytest.mark.parametrize("kind", ["v4", pytest.param("v6", marks=pytest.mark.slow), "roce"])
def test_a_port_writes_only_the_rust_schemes_bits(
    kind: str, coordinated: tuple[Plan, Path]
) -> None:
    plan, pinned = coordinated
    roce, link = kind == "roce", plan.links[8]
    sent_frames = frames(kind, EACH, 11)
    ids = ids_of(sent_frames, roce=roce)
    hash_ = _core.link_hash("gf", ids, np.full(len(ids), link.number, np.uint32), BITS, 24)
    hops = np.array([frame.hop for frame in sent_frames])
    words, replaces = decision_words(ids), np.zeros(len(ids), np.bool_)
    for hop in np.unique(hops).tolist():
        replaces |= takes_sample(ids, words, hop) & (hops == hop)
    came = np.array([0 if frame.hop == 0 else frame.sample for frame in sent_frames])
    expected = np.where(replaces, hash_.astype(np.int64) << 1, came)
    assert 0.3 < replaces.mean() < 0.6
    wrong, context = 0, about(link.number)
    with (
        system.inside(plan.namespace(link.source)),
        opened(pinned / "programs" / "tailback_egress") as program,
    ):
        for frame, sample in zip(sent_frames, expected.tolist(), strict=True):
            before = frame.bytes(roce=roce)
            after, _ = dry_run(program, before, context)
            wrong += sample_of(after, roce=roce) != sample
            assert without_sample(after, roce=roce) == without_sample(before, roce=roce)
            if kind == "v4":
                assert checksum(after[14:34]) == 0
    assert wrong == 0


def test_rocev2_captures_have_sample_and_id(coordinated: tuple[Plan, Path], tmp_path: Path) -> None:
    plan, pinned = coordinated
    link, sent_frames = plan.links[8], frames("roce", 500, 12)
    sent_frames += frames("roce", 500, 13)
    with (
        system.inside(plan.namespace(link.source)),
        opened(pinned / "programs" / "tailback_egress") as program,
    ):
        sent = [
            dry_run(program, sent_frame.bytes(roce=True), about(link.number))[0]
            for sent_frame in sent_frames
        ]
    capture = tmp_path / "port.pcap"
    with capture.open("wb") as out:
        out.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for second, frame in enumerate(sent):
            out.write(struct.pack("=IIII", second, 0, len(frame), len(frame)) + frame)
    packets = read_captured([capture]).packets
    assert packets["sample"].to_list() == [sample_of(frame, roce=True) for frame in sent]
    assert (packets["id"].to_numpy() == ids_of(sent_frames, roce=True)).all()


def test_what_carries_no_sample_is_left_alone(coordinated: tuple[Plan, Path]) -> None:
    plan, pinned = coordinated
    link = plan.links[8]
    frame = Frame("10.0.0.2", "10.1.0.2", 0, 33, 5, 6)
    v4 = frame.bytes()
    others = {
        "may be fragmented": frame.bytes(fragment=0),
        "a fragment": frame.bytes(fragment=0x2010),
        "UDP": v4[:23] + b"\x11" + v4[24:],
        "IP options": v4[:14] + b"\x46" + v4[15:],
        "ARP": bytes(12) + b"\x08\x06" + bytes(46),
        "cut within TCP": v4[:40],
    }
    with (
        system.inside(plan.namespace(link.source)),
        opened(pinned / "programs" / "tailback_egress") as program,
    ):
        assert dry_run(program, v4, about(link.number))[0] != v4
        for name, other in others.items():
            assert dry_run(program, other, about(link.number))[0] == other, name
        truth = telemetry.truth(plan, pinned.parent)
        several = about(link.number, segments=3)
        assert dry_run(program, v4, several)[0] == v4
        counts = telemetry.truth(plan, pinned.parent).since(truth)
    assert (counts.packets.sum(), counts.super_packets[link.number]) == (0, 3)


@pytest.mark.parametrize("scheme", ["coordinated:4", "compact:2", "single-bit:1", "full"])
def test_a_receiver_adds_up_what_arrives(scheme: str) -> None:
    sampling, spec = PacketScheme.parse(scheme), tiny("tbi")
    dice = np.random.default_rng(5)
    with sampled(spec, scheme) as (plan, pinned):
        links = len(plan.links)
        width, link = sampling.sample_bits(link_bits(links)), plan.links[4]
        assert link.source == "h10"
        sent_frames = [
            Frame("10.0.1.2", "10.1.0.2", 3, int(dice.integers(1 << width)), int(first), 9)
            for first in dice.integers(0, 1 << 32, 3000)
        ]
        mark = 6  # rank 5 has sent on this connection before
        answer = Frame("10.1.0.2", "10.0.1.2", 0, 0, 9, 0, ports=(1024, 40000))
        with system.inside(plan.namespace("h10")):
            with opened(pinned / "programs" / "tailback_egress") as program:
                dry_run(program, answer.bytes(), about(link.number, mark=mark))
            with opened(pinned / "programs" / "tailback_ingress") as program:
                for frame in sent_frames:
                    dry_run(program, frame.bytes(), about(link.number))
        sums = read_sums(pinned / "maps", 1 << link_bits(links), MAX_SUMS)
        with port_table(pinned / "maps", 1 << link_bits(links)) as ports:
            assert int(ports["received"][link.number]) == len(sent_frames)
    assert set(sums.keys["mark"].tolist()) == {mark}
    assert set(sums.keys["interface"].tolist()) == {link.number}
    assert set(sums.keys["source"].tolist()) == {plan.address_end("h01")}
    _compare(sampling, link_bits(links), sent_frames, sums)


def _compare(sampling: PacketScheme, bits: int, sent_frames: list[Frame], sums: Sums) -> None:
    """The sums are those of single packets, added up by what the packets say."""
    ids, samples = (
        ids_of(sent_frames, roce=False),
        np.array([frame.sample for frame in sent_frames]),
    )
    seen_bits = sampling.hash_bits or bits
    if sampling.one_reservoir:
        hops = sampled_hop(ids, np.full(len(ids), 4)) if sampling.scheme == "coordinated" else None
        weight = (samples >> (1 + seen_bits) & 7) if hops is None else np.full(len(ids), 4)
        parts = [(samples & 1, samples >> 1, weight, hops)]
    else:
        parts = [
            (np.full(len(ids), kind), part, part >> seen_bits & 7, None)
            for kind in (0, 1)
            for part in (samples >> kind * (seen_bits + 3),)
        ]
    expected: dict[tuple[int, ...], NDArray[np.int64]] = {}
    counted: dict[tuple[int, ...], int] = {}
    matrix = hadamard(1 << bits, dtype=np.int64)
    every = np.arange(1 << bits, dtype=np.uint32)
    for about_, seen, weight, hops in parts:
        for k in np.flatnonzero(weight > 0).tolist():
            key = (int(about_[k]), int(weight[k]), 255 if hops is None else int(hops[k]))
            value = int(seen[k]) & ((1 << seen_bits) - 1)
            score = expected.setdefault(key, np.zeros(1 << bits, np.int64))
            if sampling.hash_bits:
                hashes = _core.link_hash(
                    "gf", np.full(1 << bits, ids[k], np.uint32), every, sampling.hash_bits, 24
                )
                score += (hashes == value).astype(np.int64) * (1 << sampling.hash_bits) - 1
            else:
                score[value] += 1
            counted[key] = counted.get(key, 0) + 1
    scores = {}
    for row, key in enumerate(sums.keys):
        bins = sums.bins[row]
        name = (int(key["congested"]), int(key["weight"]), int(key["hop"]))
        scores[name] = bins @ matrix if sampling.hash_bits else bins
        assert int(sums.samples[row]) == counted[name]
    assert scores.keys() == expected.keys()
    for name, score in expected.items():
        # No link has number 0.
        assert (scores[name][1:] == score[1:]).all(), name


def test_a_receiver_without_room_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailback.lab.datapath.sampling.MAX_SUMS", 2)
    with sampled(tiny("tbo"), "coordinated:4") as (plan, pinned):
        link = plan.links[4]
        with (
            system.inside(plan.namespace("h10")),
            opened(pinned / "programs" / "tailback_ingress") as program,
        ):
            for sender in range(1, 200):
                frame = Frame(f"10.0.{sender}.2", "10.1.0.2", 1, 0, 1, 2)
                dry_run(program, frame.bytes(), about(link.number))
        counts = telemetry.truth(plan, pinned.parent)
    assert counts.received.sum() == 199
    assert 0 < counts.lost.sum() < 199


def test_a_scheme_that_does_not_fit_leaves_nothing() -> None:
    spec = parse({"name": tiny("tbq").name, "fabric": {"leaves": 4}, "job": {"hosts": ["h00"]}})
    with pytest.raises(Exception, match=r"takes 18 bits; IPv4 has 16"):
        fabric.bring_up(spec, PacketScheme.parse("full"))
    assert not fabric.folder_of(Plan(spec)).exists()
    assert system.existing([Plan(spec).namespace("l0")]) == []
