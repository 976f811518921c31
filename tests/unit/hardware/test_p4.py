"""The switch port in P4_16: samples equal to the engine's, and the rules of the interpreter."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

HARDWARE = Path(__file__).resolve().parents[3] / "hardware"
MESSAGES = 1


def script(name: str) -> ModuleType:
    sys.path.insert(0, str(HARDWARE))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(HARDWARE))


p4 = script("p4_interpreter")
replay = script("p4_replay")


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    """Visits of some packets with paths of every length."""
    every = script("replay").visits_of(MESSAGES)
    return every.filter(pl.col("packet") % 4 == 0)


@pytest.mark.parametrize("name", ["coordinated", "full"])
def test_programs_write_the_samples_of_the_engine(name: str, visits: pl.DataFrame) -> None:
    row = replay.replay(name, visits, MESSAGES)
    assert 0 < visits["congested"].sum() < visits.height and visits["hop"].max() == 4
    assert row["packets"] > 15 and row["visits"] == visits.height
    assert (row["wrong"], row["damaged"]) == (0, 0)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("word[20:5] < 21845", "word[19:4] < 21845"),
        ("chi ^ (chi >> 7)", "chi ^ (chi >> 6)"),
        ("standard.enq_qdepth > QUEUE_LIMIT", "standard.enq_qdepth >= QUEUE_LIMIT"),
        ("changed_checksum(hdr.udp.checksum, before, after)", "changed_checksum(0, before, after)"),
    ],
)
def test_a_changed_program_is_noticed(
    right: str, wrong: str, visits: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "p4").mkdir()
    for path in (HARDWARE / "p4").iterdir():
        text = path.read_text(encoding="utf-8").replace(right, wrong)
        (tmp_path / "p4" / path.name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(replay, "HERE", tmp_path)
    row = replay.replay("coordinated", visits, MESSAGES)
    assert row["wrong"] + row["damaged"] > 0


def test_constants_are_the_softwares() -> None:
    for path, text in script("parameters").FILES.items():
        assert path.read_text(encoding="utf-8") == text()


def test_other_packets_pass_unchanged() -> None:
    switch = p4.Switch(HARDWARE / "p4" / "coordinated.p4")
    switch.entries = replay.tables_of(replay.PROGRAMS["coordinated"], 1)
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    assert switch.process(arp, 0, 99) == arp
    packet = bytearray(replay.roce_packet(replay.PROGRAMS["coordinated"], 0, 1, 7, 5))
    packet[36:38] = (53).to_bytes(2, "big")
    assert switch.process(bytes(packet), 0, 99) == packet


PROGRAM = """
header byte_t { bit<8> value; }
struct headers_t { byte_t first; byte_t second; }
struct metadata_t { }
parser P(packet_in packet, out headers_t hdr) {
    state start { packet.extract(hdr.first); transition accept; }
}
control None(inout headers_t hdr) { apply { } }
control Out(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.first); packet.emit(hdr.second); }
}
control Egress(inout headers_t hdr) { apply { BODY } }
V1Switch(P(), None(), None(), Egress(), None(), Out()) main;
"""


def result_of(body: str, tmp_path: Path) -> int:
    path = tmp_path / "program.p4"
    path.write_text(PROGRAM.replace("BODY", body), encoding="utf-8")
    (value,) = p4.Switch(path).process(b"\xc5", 0, 0)
    return int(value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("hdr.first.value + 0x7f", 0x44),
        ("hdr.first.value |+| 0x7f", 0xFF),
        ("hdr.first.value[3:0] ++ hdr.first.value[7:4]", 0x5C),
        ("(bit<8>)(hdr.first.value[7:7] ++ 8w9)", 9),
        ("~(hdr.first.value >> 4) - 1", 0xF2),
    ],
)
def test_operators_follow_the_language(expression: str, value: int, tmp_path: Path) -> None:
    assert result_of(f"hdr.first.value = {expression};", tmp_path) == value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("hdr.first.value = hdr.second.value;", "while the header is not valid"),
        ("hdr.first.value = 16w1;", "is not of type"),
        ("hdr.first.value = hdr.first.value + 4w1;", r"operands of \+ have widths 8 and 4"),
        ("hdr.first.value = 256;", "is not of type"),
        ("hdr.first.value = missing;", "unknown name 'missing'"),
        ("hdr.first.value = hdr.first.value[8:1];", "no bits 8:1 in 8"),
        ("recirculate(0);", "recirculate is not an extern of the subset"),
        ("hdr.first.value = hdr.first.value * 2;", r"line 12: unexpected '\*'"),
        ("hdr.first.value = hdr.first.value 2;", "expected ; near"),
        # == binds tighter than &.
        ("if (hdr.first.value & hdr.first.value == 0xc5) { }", "is not bit<W>"),
    ],
)
def test_programs_outside_the_subset_are_errors(body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(p4.P4Error, match=message):
        result_of(body, tmp_path)
