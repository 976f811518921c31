"""Reading discovery files: the block form, what is tolerated, and what is refused."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tailback.errors import FabricError
from tailback.fabric.ibnetdiscover import BlockFormat
from tailback.fabric.model import Fabric
from tailback.fabric.rates import LANE_SIGNAL_GBPS, WIDTHS, LinkSpeed, data_rate_gbps
from tailback.fabric.readers import (
    READERS,
    connected_components,
    largest_component,
    natural,
    read_fabric,
)
from tests.factories.public_data import real

SMALL = """\
# Topology file: generated on Tue Feb 23 14:02:06 2021

vendid=0x2c9
sysimgguid=0xa1
switchguid=0xa1(a1)
Switch\t36 "S-00000000000000a1"\t\t# "leaf" enhanced port 0 lid 1 lmc 0
[1]\t"H-00000000000000b1"[1](b2) \t\t# "luna-10 mlx5_0" lid 4 4xEDR
[2]\t"H-00000000000000c1"[1](c2) \t\t# "luna-2 mlx5_1 " lid 5 4xFDR
[3]\t"H-00000000000000d1"[1](d2) \t\t# "luna-2 mlx5_0" lid 6 4xEDR
[4]\t"S-00000000000000a2"[7]\t\t# "top" lid 2 12xQDR

Switch\t36 "S-00000000000000a2"\t\t# "top" base port 0 lid 2 lmc 0
[7]\t"S-00000000000000a1"[4]\t\t# "leaf" lid 1 12xQDR

Ca\t1 "H-00000000000000b1"\t\t# "luna-10 mlx5_0"
[1](b2) \t"S-00000000000000a1"[1]\t\t# lid 4 lmc 0 "leaf" lid 1 4xEDR
devid=0x1011
Ca\t1 "H-00000000000000c1"\t\t# "luna-2 mlx5_1 "
[1](c2) \t"S-00000000000000a1"[2]\t\t# lid 5 lmc 0 "leaf" lid 1 4xFDR
Ca\t1 "H-00000000000000d1"\t\t# "luna-2 mlx5_0"
[1](d2) \t"S-00000000000000a1"[3]\t\t# lid 6 lmc 0 "leaf" lid 1 4xEDR
"""


def read(tmp_path: Path, text: str | bytes, **how: object) -> Fabric:
    file = tmp_path / "fabric.txt"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    fabric = read_fabric(file, **how)  # type: ignore[arg-type]
    fabric.check()
    return fabric


def refused(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(FabricError) as caught:
        read(tmp_path, text)
    assert caught.value.file == tmp_path / "fabric.txt"
    assert caught.value.remedy
    return str(caught.value)


def rate(fabric: Fabric, a: str, b: str) -> float:
    names = fabric.node_name + fabric.switch_name
    ends = {names.index(a), names.index(b)}
    pairs = zip(fabric.link_src, fabric.link_dst, fabric.link_gbps, strict=True)
    rates = {float(gbps) for src, dst, gbps in pairs if {int(src), int(dst)} == ends}
    assert len(rates) == 1
    return rates.pop()


def test_a_system_belongs_to_the_following_block() -> None:
    """Boards of a director share it: an own one of 0 is none, nor is that of the block before."""
    subnet = BlockFormat().parse(
        'sysimgguid=0x00a1\nSwitch 36 "S-01" # "a"\nSwitch 36 "S-02" # "b"\n'
        'sysimgguid=0x0\nSwitch 36 "S-03" # "c"\nsysimgguid=0xa1\nSwitch 36 "S-04" # "d"\n'
    )
    assert [device.chassis for device in subnet.devices.values()] == ["a1", None, None, "a1"]


def test_an_untold_speed_is_the_slower_common_one(
    tmp_path: Path,
) -> None:
    """Once 4xFDR and once 12xQDR: 54.5 Gb/s and not 96."""
    text = re.sub(r" 4xEDR", "", SMALL)
    fabric = read(tmp_path, text)
    assert rate(fabric, "luna-10 mlx5_0", "leaf") == pytest.approx(4 * 14.0625 * 64 / 66)
    assert rate(fabric, "leaf", "top") == 96.0


def same(a: Fabric, b: Fabric) -> bool:
    arrays = [n for n, v in vars(a).items() if isinstance(v, np.ndarray)]
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in arrays) and (
        a.node_name,
        a.host_name,
        a.switch_name,
    ) == (b.node_name, b.host_name, b.switch_name)


@pytest.mark.parametrize(
    ("speed", "four_lanes"),
    [
        ("SDR", 8),
        ("DDR", 16),
        ("QDR", 32),
        ("FDR10", 40),
        ("FDR", 600 / 11),
        ("EDR", 100),
        ("HDR", 200),
        ("NDR", 400),
        ("XDR", 800),
    ],
)
def test_rates_after_line_coding(speed: str, four_lanes: float) -> None:
    assert data_rate_gbps("4x", speed) == four_lanes
    assert data_rate_gbps("1x", speed) == pytest.approx(four_lanes / 4, rel=1e-15)
    assert data_rate_gbps("12x", speed.lower()) == pytest.approx(four_lanes * 3, rel=1e-15)


def test_every_known_width_and_speed_has_a_rate() -> None:
    for width, lanes in WIDTHS.items():
        for speed in LANE_SIGNAL_GBPS:
            lane_gbps = data_rate_gbps("1x", speed)
            assert lane_gbps and data_rate_gbps(width, speed) == pytest.approx(lane_gbps * lanes)
    assert data_rate_gbps("4x", "???") is None
    assert data_rate_gbps("3x", "EDR") is None


def test_ends_have_width_speed_local_identifier_and_model() -> None:
    discovery = BlockFormat().parse(SMALL)
    leaf, adapter = "S-00000000000000a1", "H-00000000000000c1"
    assert discovery.speed[leaf, 4] == LinkSpeed(lanes=12, speed="QDR")
    assert str(discovery.speed[adapter, 1]) == "4xFDR"
    assert [discovery.lid_of(leaf, port) for port in (1, 4)] == [1, 1]
    assert discovery.lid_of(adapter, 1) == 5
    models = {key: device.device_id for key, device in discovery.devices.items()}
    assert models.pop(adapter) == 0x1011 and set(models.values()) == {None}
    assert BlockFormat().parse("devid=0xcb20\n" + SMALL).devices[leaf].device_id == 0xCB20


@pytest.mark.parametrize("kept", ["Switch", "Ca"])
def test_one_cable_end_tells_speed_and_identifier(kept: str) -> None:
    blocks = re.split(r"(?m)^(?=Switch|Ca\t)", SMALL)
    discovery = BlockFormat().parse("".join(b for b in blocks if b.startswith(kept)))
    adapters = [key for key in discovery.devices if key.startswith("H-")]
    assert [discovery.lid_of(key, 1) for key in sorted(adapters)] == [4, 5, 6]
    assert {str(discovery.speed[key, 1]) for key in adapters} == {"4xEDR", "4xFDR"}
    assert discovery.lid_of("S-00000000000000a1", 2) == 1


def test_identifier_beyond_16_bits_is_not_read() -> None:
    text = SMALL.replace("lid 4 ", f"lid {'9' * 4400} ")
    discovery = BlockFormat().parse(text)
    assert discovery.lid_of("H-00000000000000b1", 1) is None
    assert str(discovery.speed["H-00000000000000b1", 1]) == "4xEDR"


def test_the_small_file(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL)
    assert fabric.node_name == ["luna-2 mlx5_0", "luna-2 mlx5_1", "luna-10 mlx5_0"]
    assert fabric.host_name == ["luna-2", "luna-10"]
    assert fabric.node_host.tolist() == [0, 0, 1]
    assert fabric.switch_name == ["leaf", "top"]
    assert fabric.switch_tier.tolist() == [0, 1]
    assert fabric.node_switch.tolist() == [0, 0, 0]
    assert fabric.n_links == 8
    assert rate(fabric, "leaf", "top") == 96
    assert rate(fabric, "luna-2 mlx5_1", "leaf") == 600 / 11
    assert set(fabric.link_delay_ps.tolist()) == {10_000}
    ports = {fabric.link_name(i): int(fabric.link_dst_port[i]) for i in range(8)}
    assert ports["leaf[4] → top[7]"] == 7
    assert ports["luna-10 mlx5_0[1] → leaf[1]"] == 1
    assert fabric.notes == []


def test_format_and_delay_can_be_given(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL, format="ibnetdiscover", cable_delay_ps=25_000)
    assert set(fabric.link_delay_ps.tolist()) == {25_000}
    with pytest.raises(FabricError, match="did you mean 'ibnetdiscover'"):
        read(tmp_path, SMALL, format="ibnetdiscovr")
    with pytest.raises(FabricError, match="negative"):
        read(tmp_path, SMALL, cable_delay_ps=-1)
    assert [entry.name for entry in READERS] == [
        "edge-list",
        "iblinkinfo",
        "ibnetdiscover",
        "ibnetdiscover-ports",
        "lldp",
        "slurm-topology",
        "slurm-topology-yaml",
        "ufm",
    ]
    assert all(entry.summary for entry in READERS)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n\n", "\n"),
        lambda text: text.replace("\n", "   \n"),
        lambda text: "\ufeff" + text,
        lambda text: "DR path slid 0; dlid 0; 0,1 -> new Switch {a1} portnum 0 lid 0-0\n" + text,
        lambda text: text.replace("[1]\t", "[1][ext 13]\t"),
        lambda text: text.replace("4xEDR", "4xEDR s=32 w=2"),
    ],
)
def test_shapes_that_change_nothing(tmp_path: Path, change: object) -> None:
    plain, odd = read(tmp_path, SMALL), read(tmp_path, change(SMALL))  # type: ignore[operator]
    assert same(plain, odd)
    assert odd.notes == []


def test_odd_names_survive_as_text(tmp_path: Path) -> None:
    names = ['o"brien', "<b>x</b>", "é‑ß 漢", "\x1b[31mred", "a # b", "[5]", "$(id)", "x' - 'y"]
    for name in names:
        fabric = read(tmp_path, SMALL.replace("luna-10 mlx5_0", name))
        assert name in fabric.node_name
        assert name in fabric.host_name
        assert fabric.n_links == 8


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL.encode().replace(b"luna-10", b"l\xfcna-10"))
    assert "lüna-10" in fabric.host_name
    assert "not UTF-8 (first in line 7); read as Latin-1" in fabric.notes


def test_guids_distinguish_generic_and_shared_names(tmp_path: Path) -> None:
    text = SMALL.replace("luna-10 mlx5_0", "MT25408 ConnectX Mellanox Technologies")
    assert read(tmp_path, text).host_name == [
        "MT25408 ConnectX Mellanox Technologies 0x00000000000000b1",
        "luna-2",
    ]
    text = SMALL.replace("luna-10 mlx5_0", "node HCA-1").replace("luna-2 mlx5_0", "node HCA-1")
    fabric = read(tmp_path, text)
    assert fabric.n_hosts == 3
    assert "node HCA-1 0x00000000000000b1" in fabric.host_name
    assert any("distinguished by GUID: 1" in note for note in fabric.notes)
    assert read(tmp_path, SMALL.replace('"top"', '"leaf"')).switch_name == [
        "leaf 0x00000000000000a1",
        "leaf 0x00000000000000a2",
    ]


def test_a_two_port_adapter_is_two_nodes(tmp_path: Path) -> None:
    text = SMALL.replace(
        '[3]\t"H-00000000000000d1"[1](d2) \t\t# "luna-2 mlx5_0"',
        '[3]\t"H-00000000000000b1"[2](b3) \t\t# "luna-10 mlx5_0"',
    )
    text = text[: text.index('Ca\t1 "H-00000000000000d1"')]
    fabric = read(tmp_path, text)
    assert fabric.node_name == ["luna-2 mlx5_1", "luna-10 mlx5_0/P1", "luna-10 mlx5_0/P2"]
    assert fabric.host_name == ["luna-2", "luna-10"]


def test_a_one_sided_link_is_completed_and_noted(tmp_path: Path) -> None:
    text = SMALL.replace("4xFDR", "4xEDR")
    fabric = read(tmp_path, text[: text.index("Ca\t1")])
    assert same(fabric, read(tmp_path, text))
    assert [n for n in fabric.notes if "seen from one side only, the other completed: 3" in n]


@pytest.mark.parametrize(("word", "gbps"), [("4xFDR10", 40), ("2xHDR", 100), ("4x NDR", 400)])
def test_rates_as_printed(tmp_path: Path, word: str, gbps: float) -> None:
    fabric = read(tmp_path, SMALL.replace("4xFDR", word))
    assert rate(fabric, "luna-2 mlx5_1", "leaf") == gbps
    assert fabric.notes == []


def test_the_slower_speed_wins(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL.replace('"leaf" lid 1 4xEDR', '"leaf" lid 1 4xSDR', 1))
    assert rate(fabric, "luna-10 mlx5_0", "leaf") == 8
    assert any("speed, the slower taken: 1 ('leaf[1]')" in note for note in fabric.notes)


def test_an_unknown_speed_is_inferred_from_others(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL.replace('"leaf" lid 1 4xFDR', '"leaf" lid 1 4x???'))
    assert rate(fabric, "luna-2 mlx5_1", "leaf") == 600 / 11
    fabric = read(tmp_path, SMALL.replace("4xFDR", "4x???"))
    assert rate(fabric, "luna-2 mlx5_1", "leaf") == 100
    assert any("of unknown speed, assumed to be 100 Gb/s: 1" in note for note in fabric.notes)
    assert "ports with an unknown rate: 2 ('4x ???', '4x ???')" in fabric.notes
    assert "states the speed of a link" in refused(tmp_path, re.sub(r"\d+x[A-Z]+", "", SMALL))


def test_contradictions_and_loops_are_left_out_and_noted(tmp_path: Path) -> None:
    extra = '[9]\t"S-00000000000000a1"[4]\t\t# "leaf" lid 1 4xEDR\n'
    mark = '[7]\t"S-00000000000000a1"[4]\t\t# "leaf" lid 1 12xQDR\n'
    fabric = read(tmp_path, SMALL.replace(mark, mark + extra))
    assert same(fabric, read(tmp_path, SMALL))
    assert any("contradicted by their partners, left out: 1 ('top[9]')" in n for n in fabric.notes)
    for peer, word in ((9, "themselves"), (10, "their own device")):
        loop = f'[9]\t"S-00000000000000a2"[{peer}]\t\t# "top" lid 2 4xEDR\n'
        fabric = read(tmp_path, SMALL.replace(mark, mark + loop))
        assert same(fabric, read(tmp_path, SMALL))
        assert any(f"cabled to {word}, left out: 1 ('top[9]')" in n for n in fabric.notes)
    clash = '[7]\t"S-00000000000000a1"[30]\t\t# "leaf" lid 1 12xQDR\n'
    fabric = read(tmp_path, SMALL.replace(mark, mark + clash))
    assert any("two partners, the first kept: 1 ('top[7]')" in n for n in fabric.notes)


def test_blocks_given_twice_count_once(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL + SMALL)
    assert same(fabric, read(tmp_path, SMALL))
    assert fabric.notes == [
        "blocks given more than once: 5 ('leaf', 'top', 'luna-10 mlx5_0', …)",
    ]


def test_aggregation_nodes_are_no_hosts_unless_asked_for(tmp_path: Path) -> None:
    text = SMALL.replace("luna-10 mlx5_0", "Mellanox Technologies Aggregation Node")
    fabric = read(tmp_path, text)
    assert fabric.node_name == ["luna-2 mlx5_0", "luna-2 mlx5_1"]
    assert "aggregation nodes (SHARP) inside switches left out: 1" in fabric.notes
    assert read(tmp_path, text, keep_aggregation=True).n_nodes == 3


def test_routers_are_kept_as_hosts_and_noted(tmp_path: Path) -> None:
    text = SMALL.replace("H-00000000000000b1", "R-00000000000000b1").replace(
        'Ca\t1 "R-', 'Rt\t1 "R-'
    )
    fabric = read(tmp_path, text)
    assert fabric.n_nodes == 3
    assert "routers kept as hosts: 1 ('luna-10 mlx5_0')" in fabric.notes


def test_adapters_without_links_are_left_out_and_noted(tmp_path: Path) -> None:
    fabric = read(tmp_path, SMALL + 'Ca\t1 "H-00000000000000e1"\t\t# "idle HCA-1"\n')
    assert fabric.n_nodes == 3
    assert "adapters without a link left out: 1 ('idle HCA-1')" in fabric.notes


def test_two_adapters_back_to_back(tmp_path: Path) -> None:
    text = (
        'Ca\t1 "H-0a"\t# "n1 HCA-1"\n[1](b) \t"H-0c"[1](d) \t# lid 1 lmc 0 "n2 HCA-1" lid 2 4xQDR'
    )
    fabric = read(tmp_path, text)
    assert (fabric.n_nodes, fabric.n_switches, fabric.n_links) == (2, 0, 2)


@pytest.mark.parametrize(
    ("line", "bad", "says"),
    [
        (7, '[1]\t"H-00000000000000b1', "starts like a port but is not one"),
        (7, '[x]\t"H-00000000000000b1"[1](b2)', "starts like a port but is not one"),
        (7, '[1]\t"H-00000000000000b1"[1](b2) garbage', "starts like a port but is not one"),
        (7, '[255]\t"H-00000000000000b1"[1](b2)', "port number '255' is not one of 1 to 254"),
        (7, '[1]\t"H-00000000000000b1"[0](b2)', "port number '0' is not one of 1 to 254"),
        (7, f'[{"9" * 5000}]\t"H-00000000000000b1"[1](b2)', "more than 308 digits"),
        (6, 'Switch\tmany "S-00000000000000a1"', "starts like a block but is not one"),
        (6, "", "comes before any Switch, Ca or Rt line"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, line: int, bad: str, says: str) -> None:
    lines = SMALL.split("\n")
    lines[line - 1] = bad
    message = refused(tmp_path, "\n".join(lines))
    assert says in message
    assert f"fabric.txt: line {line if bad else 7}: " in message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"\x7fELF\0\0", "line 1: this is a binary file"),
        (gzip.compress(SMALL.encode())[:-12], "damaged gzip file"),
        (SMALL.encode("utf-16"), "UTF-16"),
        (b"<!DOCTYPE html>\n<html>", "an HTML page"),
        (b"<?xml version='1.0'?>", "an XML file"),
        (b"# c\nSwitchName=s1 Nodes=n[1-4]\n", "line 2: no line states the speed"),
        (b'{"switches": []}', "JSON"),
        (b"# only\n# comments\n", "not a known fabric discovery"),
        (b"DR path slid 0; dlid 0; 0 -> new Switch {01}\n", "the steps of a discovery"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes, says: str) -> None:
    assert says in refused(tmp_path, content)


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "fabric.gz").write_bytes(gzip.compress(SMALL.encode()))
    assert read_fabric(tmp_path / "fabric.gz").n_links == read(tmp_path, SMALL).n_links


def test_a_directory_or_foreign_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="this is a directory"):
        read_fabric(tmp_path)
    with pytest.raises(FabricError, match="No such file"):
        read_fabric(tmp_path / "none")
    with pytest.raises(FabricError, match="not a known fabric discovery"):
        read(tmp_path, SMALL, format="ibnetdiscover-ports")


def test_islands_are_kept_noted_and_removable(tmp_path: Path) -> None:
    island = (
        '\nSwitch\t36 "S-00000000000000f1"\t# "alone"\n'
        '[1]\t"H-00000000000000f2"[1](f3) # "far HCA-1" lid 9 4xEDR\n'
    )
    fabric = read(tmp_path, SMALL + island)
    assert fabric.n_nodes == 4
    assert any(
        "parts without a connection to the rest: 1 (1 nodes and 1" in n for n in fabric.notes
    )
    assert [len(part) for part in connected_components(fabric)] == [5, 2]
    main = largest_component(fabric)
    main.check()
    assert len(connected_components(main)) == 1
    assert same(main, read(tmp_path, SMALL))
    assert main.notes[-1] == "only the largest part is kept; 2 nodes and switches left out"
    assert largest_component(main) is main


def test_natural_order() -> None:
    names = ["luna-10", "luna-2", "luna-2b", "a" + "9" * 5000, "", "7"]
    assert sorted(names, key=natural)[:2] == ["", "7"]
    assert sorted(names, key=natural)[3:] == ["luna-2", "luna-2b", "luna-10"]


# --- real files --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.data
def test_selene() -> None:
    path = real("selene/selene.compute.txt")
    everything = read_fabric(path, keep_aggregation=True)
    assert (everything.n_switches, everything.n_nodes) == (666, 4341)
    fabric = read_fabric(path)
    assert (fabric.n_switches, fabric.n_nodes, fabric.n_hosts) == (666, 3675, 469)
    assert fabric.host_name[:2] == ["luna-0001", "luna-0002"]
    assert set(fabric.link_gbps.tolist()) == {200}
    assert len(connected_components(fabric)) == 1
    # The names give the truth: LG leaf group, SPINE, CORE.
    for kept in (fabric, everything):
        for name, tier in zip(kept.switch_name, kept.switch_tier, strict=True):
            truth = 2 if "CCORE" in name else 1 if "SPINE" in name else 0
            assert tier == truth, name
    tiers = Counter(fabric.switch_tier.tolist())
    assert tiers == {0: 204, 1: 322, 2: 140}
    assert (abs(fabric.link_up) == 1).all()


@pytest.mark.data
def test_ys135_in_both_orders() -> None:
    fabric = read_fabric(real("ibsim-samples/ys135.ibnetdiscover.txt"))
    assert (fabric.n_switches, fabric.n_nodes, fabric.n_links) == (135, 972, 5832)
    for name, tier in zip(fabric.switch_name, fabric.switch_tier, strict=True):
        assert tier == (0 if name.startswith("tor") else 1 if "/L" in name else 2), name
    assert set(fabric.link_gbps.tolist()) == {600 / 11}
    assert same(fabric, read_fabric(real("ibsim-samples/ys135.net")))


@pytest.mark.data
def test_psmn_x5_spines() -> None:
    listed = real("psmn-x5/X5.spine").read_text().split("\n")
    spines = {line[-4:] for line in listed if line.startswith("S-")}
    fabric = read_fabric(real("psmn-x5/X5.topofile"))
    above = {
        name[-4:].lower()
        for name, tier in zip(fabric.switch_name, fabric.switch_tier, strict=True)
        if tier > 0
    }
    assert above == spines
    assert len(set(fabric.host_name)) == fabric.n_nodes == 89
    assert Counter(fabric.link_gbps.tolist()) == {32: 272, 16: 46}
