"""Fabrics from a CSV of links or cables with rates."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from tailback.errors import FabricError
from tailback.fabric.model import Fabric, in_port_order
from tailback.fabric.readers import largest_component, read_fabric
from tailback.units import parse_gbps
from tests.factories.public_data import real

DIRECTED = """\
link,src,dst,iface,rate_mbit,queue_limit_bytes
1,h0,l0,e0,50,400000
2,l0,h0,h0,50,400000
3,h1,l1,e0,50,400000
4,l1,h1,h1,50,400000
5,l0,s0,s0,40,400000
6,s0,l0,l0,30,400000
7,l1,s0,s0,40,400000
8,s0,l1,l1,40,400000
"""
CABLES = """\
"Device A";"Interface A";"Device B";"Interface B";"Speed"
leaf1;swp2;n1;eth0;25G
leaf1;swp10;n2;eth0;25 Gb/s
leaf1;swp31;spine;1;100GbE
leaf1;swp32;spine;2;100000 Mb/s
leaf2;swp31;spine;3;100G
leaf2;swp1;n3;eth0;25Gbit/s
"""


def read(folder: Path, text: str | bytes, name: str = "links.csv") -> Fabric:
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_fabric(folder / name)


def rates(fabric: Fabric) -> dict[str, float]:
    return {fabric.link_name(i): fabric.link_gbps[i] for i in range(fabric.n_links)}


def test_directed_links_with_rates_of_each_direction(tmp_path: Path) -> None:
    fabric = read(tmp_path, DIRECTED)
    assert (fabric.host_name, fabric.switch_name) == (["h0", "h1"], ["l0", "l1", "s0"])
    assert fabric.switch_tier.tolist() == [0, 0, 1]
    gbps = rates(fabric)
    assert gbps["l0[s0] → s0[l0]"] == pytest.approx(0.04)
    assert gbps["s0[l0] → l0[s0]"] == pytest.approx(0.03)
    assert fabric.notes[0] == (
        "lossy network: queues drop packets beyond 400,000 B; the model has back-pressure "
        "instead of drops"
    )


def test_names_and_identifiers_follow_their_links(tmp_path: Path) -> None:
    fabric = in_port_order(
        largest_component(read(tmp_path, DIRECTED + "9,h9,l9,e0,50,1\n10,l9,h9,h9,50,1\n"))
    )
    assert fabric.link_id is not None and fabric.n_links == 8
    ends = {
        fabric.link_id[i]: (fabric.link_name(i), fabric.link_interface[i])  # type: ignore[index]
        for i in range(fabric.n_links)
    }
    assert ends["6"] == ("s0[l0] → l0[s0]", "l0")
    assert ends["1"] == ("h0[e0] → l0[h0]", "e0")


def test_a_cable_takes_one_line_with_inventory_names(tmp_path: Path) -> None:
    fabric = read(tmp_path, CABLES)
    gbps = rates(fabric)
    assert fabric.host_name == ["n1", "n2", "n3"]
    assert gbps["leaf1[swp31] → spine[1]"] == gbps["spine[2] → leaf1[swp32]"] == 100.0
    assert gbps["n2[eth0] → leaf1[swp10]"] == gbps["leaf2[swp1] → n3[eth0]"] == 25.0
    # swp10 comes after swp2; interfaces that are numbers are the ports' numbers.
    port = {fabric.link_name(i): int(fabric.link_src_port[i]) for i in range(fabric.n_links)}
    assert port["leaf1[swp2] → n1[eth0]"] == 1 and port["leaf1[swp10] → n2[eth0]"] == 2
    assert port["spine[3] → leaf2[swp31]"] == 3


def test_roles_say_what_a_host_is(tmp_path: Path) -> None:
    text = "src,dst,rate_gbit,src_role,dst_role\n" + "".join(
        f"n{i},leaf{k},10,Compute Node,ToR-switch\n" for i in range(2) for k in range(2)
    )
    fabric = read(tmp_path, text)
    assert fabric.host_name == ["n0", "n1"] and fabric.n_nodes == 4
    with pytest.raises(FabricError, match="no device is a host"):
        read(tmp_path, "\n".join(",".join(row.split(",")[:3]) for row in text.split("\n")[:5]))


def test_a_compressed_list(tmp_path: Path) -> None:
    assert rates(read(tmp_path, gzip.compress(CABLES.encode()), "l.csv.gz")) == rates(
        read(tmp_path, CABLES)
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("src,dst,rate\na,s,10\n", "line 2, column 3 (rate): '10' has no unit"),
        ("src,dst,rate\na,s,5 GB\n", "line 2, column 3 (rate): the unit of 'GB' may be bits or by"),
        ("src,dst,RATE_GBPS\na,s,5\n", "column 3 (RATE_GBPS): the unit of 'RATE_GBPS' may be"),
        ("src,dst,rate\na,s,5 pears\n", "line 2, column 3 (rate): '5 pears' is not a rate"),
        ("src,dst,rate_gbit,state\na,s,1,down\n", "line 2, column 4 (state): every link is down"),
        ("src,dst,rate_mbit\na,s,0\n", "line 2, column 3 (rate_mbit): '0' is not a rate of a link"),
        ("src,dst,rate_mbit\na,s,-4\n", "'-4' is not a rate"),
        ("src,dst,rate_mbit\na,s,1e30\n", "'1e30' is not a rate of a link"),
        ("src,dst,rate_mbit\na,s,\n", "line 2, column 3 (rate_mbit): the field is empty"),
        ("src,dst,rate_mbit\na,s,1\n,s,1\n", "line 3, column 1 (src): the field is empty"),
        ("src,dst,iface\na,s,e0\n", "line 1, column 1: no column for the rate"),
        ("src,dst,rate_mbit\na,s,1\nb,s", "line 3, column 3: 2 fields where the header has 3"),
        (
            "src,dst,rate_mbit\na,s,1\nb,s,1,1\n",
            "line 3, column 4: 4 fields where the header has 3",
        ),
        ("src,dst,rate_mbit\n", "a header and no links"),
        ("src,dst,rate_mbit\na,s,1\ns,a,1\nb,s,1\n", "line 4, column 1 (src): the link from 'b'"),
        ("src,dst,iface,rate_mbit\na,s,e,1\na,t,e,1\n", "interface 'e' of 'a' is in another"),
        ("src,dst,rate_mbit,src_role\na,s,1,pear\n", "'pear' is neither a host nor a switch"),
        (
            "src,dst,rate_mbit,src_role\na,s,1,host\na,t,1,leaf\n",
            "an earlier line says 'a' is of another kind",
        ),
        ("src,dst,rate_mbit\n\x1b[31m,s,é\n", "line 2, column 3 (rate_mbit): 'é' is not a rate"),
        ("src,dst,rate_mbit\na\0,s,1\n", "zero byte"),
    ],
)
def test_wrong_lists_are_refused_with_their_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(FabricError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert says in message and "remedy: " in message
    assert str(tmp_path / "links.csv") in message and "\x1b" not in message


NETWORK = """\
src,dst,{head}
n0,l0,{usual}
n1,l0,{usual}
n2,l1,{usual}
n3,l1,{usual}
l0,s0,{usual}
l0,s1,{usual}
l1,s0,{usual}
l1,s1,{odd}
"""
PREFIXES = {"": 1e-9, "k": 1e-6, "K": 1e-6, "M": 1e-3, "G": 1.0, "g": 1.0, "T": 1e3}
BITS = ("bps", "b/s", "bit/s", "bits/s", "bit", "bits", "bits_per_second", "b/sec")
BYTES = ("Bps", "B/s", "Byte/s", "bytes/s", "bytes", "bytes_per_second", "B/sec")


@pytest.mark.parametrize(
    ("units", "bits"), [(BITS, 1), pytest.param(BYTES, 8, marks=pytest.mark.slow)]
)
def test_units_mean_the_same_in_header_and_field(
    tmp_path: Path, units: tuple[str, ...], bits: int
) -> None:
    for prefix, gbps in PREFIXES.items():
        for unit in units:
            number = 1 / gbps
            tables = [
                NETWORK.format(head=f"rate{mark}", usual=f"{number:g}", odd=f"{number:g}")
                for mark in (f"_{prefix}{unit}", f" ({prefix}{unit})", f" [{prefix}{unit}]")
            ]
            value = f"{number:g} {prefix}{unit}"
            tables.append(NETWORK.format(head="speed", usual=value, odd=value))
            for table in tables:
                assert read(tmp_path, table).link_gbps == pytest.approx(bits), table


@pytest.mark.parametrize("unit", ["Gib/s", "GiB/s"])
def test_binary_prefixes_are_powers_of_1024(tmp_path: Path, unit: str) -> None:
    fabric = read(tmp_path, NETWORK.format(head=f"rate_{unit}", usual="1", odd="1"))
    assert fabric.link_gbps[0] == pytest.approx(parse_gbps("1 GiB/s") / (8 if "b" in unit else 1))


def test_rates_in_bytes_are_noted(tmp_path: Path) -> None:
    fabric = read(tmp_path, NETWORK.format(head="rate_GBps", usual="12.5", odd="12.5"))
    assert fabric.notes[0] == "rates in bytes: column 'rate_GBps', where 1 is 8 Gb/s"


@pytest.mark.parametrize("column", ["status", "oper_status", "Link State", "ifOperStatus"])
@pytest.mark.parametrize("state", ["down", "DOWN", "2", "down(2)", "Disabled", "err-disabled"])
def test_down_cable_is_left_out_with_note(tmp_path: Path, column: str, state: str) -> None:
    text = NETWORK.format(head=f"rate_gbps,{column}", usual="100,up", odd=f",{state}")
    fabric = read(tmp_path, text)
    assert fabric.n_links == 14 and fabric.switch_name == ["l0", "l1", "s0", "s1"]
    assert f"cables that are down, left out: 1 ('l1' to 's1': {state!r})" in fabric.notes


def test_one_down_direction_takes_the_cable(tmp_path: Path) -> None:
    rows = [line.split(",") for line in DIRECTED.split()]
    states = ["state", *("up" if row[1:3] != ["s0", "l1"] else "down" for row in rows[1:])]
    text = "\n".join(",".join([*row, s]) for row, s in zip(rows, states, strict=True))
    fabric = read(tmp_path, text.replace(",s0,s0,s0,", ",s0,s0,"))
    assert fabric.n_links == 6


def test_unknown_status_is_noted(tmp_path: Path) -> None:
    text = NETWORK.format(head="rate_gbps,status", usual="100,active", odd="100,spare")
    fabric = read(tmp_path, text)
    assert fabric.n_links == 16
    assert "statuses not known, taken for up: 1 ('spare')" in fabric.notes


@pytest.mark.parametrize("head", ["rate_gbps,actual_gbps", "speed_gbps,negotiated_speed_gbps"])
def test_negotiated_rate_below_nominal_is_slow(tmp_path: Path, head: str) -> None:
    fabric = read(tmp_path, NETWORK.format(head=head, usual="100,100", odd="100,25"))
    assert fabric.nominal_gbps is not None
    slow = fabric.link_gbps < fabric.nominal_gbps
    assert set(fabric.link_gbps[slow]) == {25.0} and set(fabric.nominal_gbps) == {100.0}
    assert fabric.notes[0] == (
        "1 cable slower than its nominal rate: l1[4] → s1[2]: 25 Gb/s of 100"
    )
    # Of its own, the stated nominal rate marks links that no equal ones betray.
    fabric = read(tmp_path, NETWORK.format(head=head, usual="100,25", odd="100,25"))
    assert fabric.nominal_gbps is not None and set(fabric.nominal_gbps / fabric.link_gbps) == {4.0}


def test_negotiated_rate_replaces_missing_nominal(tmp_path: Path) -> None:
    text = NETWORK.format(head="oper_speed_mbps", usual="1000", odd="1000")
    assert set(read(tmp_path, text).link_gbps) == {1.0}
    text = NETWORK.format(head="speed,actual speed", usual="10G,", odd=",1G")
    assert set(read(tmp_path, text).link_gbps) == {10.0, 1.0}
    text = NETWORK.format(head="speed,actual speed", usual="10G,10G", odd="10G,40G")
    fabric = read(tmp_path, text)
    assert "links that run at more than their nominal rate: 1 ('l1' to 's1')" in fabric.notes


def test_every_truncated_list_is_read_or_refused(tmp_path: Path) -> None:
    for end in range(len(DIRECTED)):
        try:
            read(tmp_path, DIRECTED[:end])
        except FabricError as error:
            assert error.remedy


@pytest.mark.data
def test_the_list_of_a_real_network(tmp_path: Path) -> None:
    with tarfile.open(real("real-lab/r8.tar.gz")) as archive:
        archive.extract("r8/links.csv", tmp_path, filter="data")
    fabric = read_fabric(tmp_path / "r8" / "links.csv")
    assert (fabric.n_hosts, fabric.n_switches, fabric.n_links) == (12, 6, 40)
    assert fabric.switch_tier.tolist() == [0, 0, 0, 0, 1, 1]
