"""Reading the one-line-a-port form of a discovery, `ibnetdiscover -p`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.errors import FabricError
from tailback.fabric.model import Fabric
from tailback.fabric.rates import LinkSpeed
from tailback.fabric.readers import READERS, read_fabric
from tests.factories.public_data import real

SMALL = """\
CA   134  1 0x00000000000000b2 4x EDR - SW  1719 10 0x00000000000000a1 ( 'o0010 HCA-1' - 'leaf' )
CA   133  1 0x00000000000000c2 4x EDR - SW  1719 11 0x00000000000000a1 ( 'o0002 HCA-1' - 'leaf' )
CA   133  2 0x00000000000000c3 4x ???                                    'o0002 HCA-1'
SW  1719 10 0x00000000000000a1 4x EDR - CA   134  1 0x00000000000000b2 ( 'leaf' - 'o0010 HCA-1' )
SW  1719 11 0x00000000000000a1 4x EDR - CA   133  1 0x00000000000000c2 ( 'leaf' - 'o0002 HCA-1' )
SW  1719  1 0x00000000000000a1 4x HDR - SW  1516  3 0x00000000000000a2 ( 'leaf' - 'top' )
SW  1719  2 0x00000000000000a1 4x SDR                                    'leaf'
SW  1516  3 0x00000000000000a2 4x HDR - SW  1719  1 0x00000000000000a1 ( 'top' - 'leaf' )
"""


def read(tmp_path: Path, text: str) -> Fabric:
    file = tmp_path / "ports.txt"
    file.write_text(text)
    fabric = read_fabric(file)
    fabric.check()
    return fabric


def test_the_small_file(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL)
    assert fabric.node_name == ["o0002 HCA-1", "o0010 HCA-1"]
    assert fabric.host_name == ["o0002", "o0010"]
    assert fabric.switch_name == ["leaf", "top"]
    assert fabric.switch_tier.tolist() == [0, 1]
    assert sorted(fabric.link_gbps.tolist()) == [100, 100, 100, 100, 200, 200]
    assert fabric.notes == []
    up = next(i for i in range(6) if fabric.link_name(i).startswith("leaf[1]"))
    assert (fabric.link_name(up), fabric.link_dst_port[up]) == ("leaf[1] → top[3]", 3)


@pytest.mark.parametrize(
    ("words", "gbps"), [("1x EDR", 25.0), ("2x HDR", 100.0), ("12x QDR", 96.0), ("4x FDR10", 40.0)]
)
def test_lanes_and_their_speed_make_the_rate(tmp_path: Path, words: str, gbps: float) -> None:
    fabric = read(tmp_path, SMALL.replace("4x HDR", words))
    assert sorted(set(fabric.link_gbps.tolist())) == sorted({100.0, gbps})


def test_ends_have_width_speed_and_local_identifier() -> None:
    discovery = READERS["ibnetdiscover-ports"].parse(SMALL.replace("4x HDR", "2x HDR"))
    assert {str(discovery.speed[end.key, end.port]) for end in discovery.ends} == {"4xEDR", "2xHDR"}
    assert discovery.speed["SW 00000000000000a1", 1] == LinkSpeed(lanes=2, speed="HDR")
    lids = {discovery.lid_of(end.key, end.port) for end in discovery.ends}
    assert lids == {133, 134, 1516, 1719}


def test_two_ports_of_an_adapter_have_one_host(tmp_path: Path) -> None:
    text = SMALL.replace(
        "CA   133  2 0x00000000000000c3 4x ???                                    'o0002 HCA-1'",
        "CA   133  2 0x00000000000000c3 4x EDR - SW  1719  2 0x00000000000000a1"
        " ( 'o0002 HCA-1' - 'leaf' )",
    )
    fabric = read(tmp_path, text)
    assert fabric.node_name == ["o0002 HCA-1/P1", "o0002 HCA-1/P2", "o0010 HCA-1"]
    assert fabric.host_name == ["o0002", "o0010"]


@pytest.mark.parametrize("name", ["o'brien", "a ( 'b' )", '"q"', "漢字", "\x1b[2J"])
def test_odd_names_survive_as_text(tmp_path: Path, name: str) -> None:
    fabric = read(tmp_path, SMALL.replace("o0010 HCA-1", name))
    assert name in fabric.node_name
    assert fabric.n_links == 6


def test_an_unconnected_switch_is_kept_however_quoted(tmp_path: Path) -> None:
    for name in ("'Infiniscale-IV Mellanox Technologies'", "Infiniscale-IV Mellanox Technologies"):
        fabric = read(tmp_path, SMALL + f"SW 478 22 0x0002c9020040f160 4x QDR     {name}\n")
        assert fabric.n_switches == 3
        assert "Infiniscale-IV Mellanox Technologies" in fabric.switch_name


def test_repeated_lines_count_once(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL + SMALL)
    assert fabric.n_links == 6
    assert [n for n in fabric.notes if n.startswith("port lines given more than once: 8 (")]


def test_a_foreign_line_is_noted(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL + "ibwarn: [123] mad_rpc: timeout\nDR path slid 0; 0,1\n")
    note = "lines that are not in the format: 1 ('ibwarn: [123] mad_rpc: timeout')"
    assert fabric.notes == [note]


@pytest.mark.parametrize(
    "bad",
    [
        "CA   134  1",
        "CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719",
        "CA   134  1 0x7cfe9003003b4bde 4x EDR -",
        "CA   134  1 0xzz 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'a' - 'b' )",
        "CA   134  1 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'a' - 'b",
        "CA   134  999 0x7cfe9003003b4bde 4x EDR - SW  1719 10 0x7cfe9003009ce5b0 ( 'a' - 'b' )",
    ],
)
def test_broken_lines_are_named(tmp_path: Path, bad: str) -> None:
    with pytest.raises(FabricError) as caught:
        read(tmp_path, SMALL + bad + "\n")
    message = str(caught.value)
    assert "ports.txt: line 9: " in message
    assert "remedy" in message


@pytest.mark.data
def test_exporter_fixtures() -> None:
    fabric = read_fabric(real("exporter-fixtures/ibnetdiscover/test.out"))
    assert fabric.host_name == ["o0001", "o0002", "p0001"]
    assert (fabric.n_switches, fabric.n_links) == (4, 8)
    sharp = read_fabric(real("exporter-fixtures/ibnetdiscover/test2.out"))
    assert sharp.host_name == ["worker20"]
    assert "5FB0406-spine-IB02" in sharp.switch_name
    bare = read_fabric(real("exporter-fixtures/ibnetdiscover/test3.out"))
    assert (bare.n_nodes, bare.n_switches, bare.n_links) == (0, 1, 0)


@pytest.mark.data
def test_avakas_director() -> None:
    where = "netloc/avakas/ib-raw/ib-subnet-fe80:0000:0000:0000.txt"
    fabric = read_fabric(real(where))
    assert (fabric.n_nodes, fabric.n_switches) == (281, 25)
    for name, tier in zip(fabric.switch_name, fabric.switch_tier, strict=True):
        assert tier == (0 if name.split()[-1].startswith("L") else 1), name


@pytest.mark.data
def test_plafrim_hosts_are_all_on_leaves() -> None:
    where = "netloc/plafrim/ib-raw/ib-subnet-fe80:0000:0000:0000.txt"
    fabric = read_fabric(real(where))
    assert (fabric.n_nodes, fabric.n_switches) == (125, 9)
    spines = [n for n, t in zip(fabric.switch_name, fabric.switch_tier, strict=True) if t]
    assert spines == ["Voltaire 4036 # 4036-8500", "Voltaire 4036 # 4036-8548"]
