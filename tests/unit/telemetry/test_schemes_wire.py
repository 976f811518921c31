"""Samples on the wire: the specification's own packet, switches that rewrite, captures."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailback.errors import TraceError
from tailback.scenario.model import RESERVED_BITS
from tailback.telemetry.pcap import write_pcap
from tailback.telemetry.wire import (
    LRH_BYTES,
    VCRC_BYTES,
    IbPacket,
    encode,
    invariant_crc,
    variant_crc,
)
from tests.factories.infiniband_captures import decode, read_pcap

SPECIFICATION = bytes.fromhex(
    "7012375c000e17d20a2024870087b1b3000dec2a01710a1c015d400238f27a05"
    "0000000ebb884d85fd5cfba4728bc0690ed40000"
)
"""Sample packet of the InfiniBand specification, section 7.8, from LRH to payload."""

PACKETS = st.builds(
    IbPacket,
    source_lid=st.integers(0, 0xFFFF),
    destination_lid=st.integers(0, 0xFFFF),
    psn=st.integers(0, 0xFFFFFF),
    sample=st.integers(0, 63),
    payload=st.binary(max_size=40),
    fecn=st.booleans(),
    becn=st.booleans(),
    destination_qp=st.integers(0, 0xFFFFFF),
    service_level=st.integers(0, 15),
    virtual_lane=st.integers(0, 15),
    partition=st.integers(0, 0xFFFF),
)


def rewrite_sample(wire: bytes, sample: int) -> bytes:
    """What a switch does: new reserved bits, new variant CRC, the invariant CRC as it was.

    Raises:
        TraceError: More than six bits.
    """
    if not 0 <= sample < 1 << RESERVED_BITS:
        raise TraceError(f"a sample of {sample} does not fit {RESERVED_BITS} bits")
    at = LRH_BYTES + 4
    changed = wire[:at] + bytes([(wire[at] & 0xC0) | sample]) + wire[at + 1 : -VCRC_BYTES]
    return changed + variant_crc(changed)


def test_the_specifications_packet_has_its_invariant_crc() -> None:
    assert invariant_crc(SPECIFICATION).hex() == "9625b75a"


@given(PACKETS)
def test_there_and_back(packet: IbPacket) -> None:
    assert decode(encode(packet)) == packet


@given(PACKETS, st.integers(0, 63))
def test_a_switch_changes_bits_and_variant_crc(packet: IbPacket, sample: int) -> None:
    before = encode(packet)
    after = rewrite_sample(before, sample)
    assert decode(after) == replace(packet, sample=sample)
    # The invariant CRC, and all else but byte 4 of the BTH, are as they were.
    assert after[:12] == before[:12] and after[13:-2] == before[13:-2]
    assert after == encode(replace(packet, sample=sample))


@given(PACKETS, st.data())
def test_damage_is_found(packet: IbPacket, data: st.DataObject) -> None:
    wire = bytearray(encode(packet))
    bit = data.draw(st.integers(0, 8 * len(wire) - 1))
    wire[bit // 8] ^= 1 << (bit % 8)
    with pytest.raises(TraceError):
        decode(bytes(wire))


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="sample is 64, which does not fit 6 bits"):
        encode(IbPacket(1, 2, 3, 64))
    with pytest.raises(TraceError, match="sample of 64"):
        rewrite_sample(encode(IbPacket(1, 2, 3, 0)), 64)
    with pytest.raises(TraceError, match="payload of 5000"):
        encode(IbPacket(1, 2, 3, 0, bytes(5000)))
    path = tmp_path / "a.pcap"
    assert write_pcap(path, [(5, IbPacket(1, 2, 3, 4)), (7, IbPacket(1, 2, 4, 5))]) == 2
    with pytest.raises(TraceError, match="exists"):
        write_pcap(path, [])
    contents = path.read_bytes()
    path.write_bytes(contents[:48] + bytes([2]) + contents[49:])
    with pytest.raises(TraceError, match="ERF record type 2"):
        list(read_pcap(path))
    for cut, message in ((10, "no little-endian pcap"), (30, "record header"), (50, "in a packet")):
        path.write_bytes(contents[:cut])
        with pytest.raises(TraceError, match=message):
            list(read_pcap(path))
    path.write_bytes(contents[:60] + bytes([contents[60] ^ 1]) + contents[61:])
    with pytest.raises(TraceError, match="packet 0"):
        list(read_pcap(path))
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_pcap(tmp_path / "none"))


def made() -> list[tuple[int, IbPacket]]:
    return [
        (1_500_000_000 + 40 * n, IbPacket(10 + n, 99, 7000 + n, n % 64, bytes(n), fecn=n % 3 == 0))
        for n in range(70)
    ]


def test_captures_keep_everything(tmp_path: Path) -> None:
    path = tmp_path / "run.pcap"
    assert write_pcap(path, made()) == 70
    assert list(read_pcap(path)) == made()
    write_pcap(path, [], force=True)
    assert list(read_pcap(path)) == []


@pytest.mark.tools
def test_tshark_dissects_it(tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("needs tshark (Debian package tshark)")
    path = tmp_path / "run.pcap"
    write_pcap(path, made())
    # Without guesses at what the payload might be.
    command = [tshark, "-r", str(path), "-T", "json", "--disable-protocol", "rpcordma"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    dissected = json.loads(shown.stdout)
    assert len(dissected) == 70
    for row, (_, packet) in zip(dissected, made(), strict=True):
        text = json.dumps(row["_source"]["layers"])
        assert "infiniband" in row["_source"]["layers"]["frame"]["frame.protocols"], text
        assert '"_ws.malformed"' not in text
        fields = leaves(row["_source"]["layers"]["infiniband"])
        assert int(fields["infiniband.bth.psn"]) == packet.psn
        assert int(fields["infiniband.lrh.slid"], 0) == packet.source_lid
        assert int(fields["infiniband.lrh.dlid"], 0) == packet.destination_lid
        wire = encode(packet)
        assert int(fields["infiniband.bth"].split(":")[4], 16) == wire[12]
        assert int(fields["infiniband.invariant.crc"], 0) == int.from_bytes(wire[-6:-2])
        assert int(fields["infiniband.variant.crc"], 0) == int.from_bytes(wire[-2:])


def leaves(tree: object) -> dict[str, str]:
    """All texts of a tree by name."""
    out: dict[str, str] = {}
    if isinstance(tree, dict):
        for name, value in tree.items():
            if isinstance(value, str):
                out[name] = value
            else:
                out.update(leaves(value))
    return out
