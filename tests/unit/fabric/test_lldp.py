"""Fabrics from the LLDP neighbours of all switches, as lldpctl prints them in JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailback.errors import FabricError
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric


def neighbour(
    interface: str,
    peer: str,
    port: str,
    rate: str | None,
    *,
    kind: str = "Bridge",
    id_type: str = "ifname",
) -> dict[str, object]:
    about = {
        "id": {"type": "mac", "value": "0a:00"},
        "capability": [{"type": kind, "enabled": True}],
    }
    end = {
        "id": {"type": id_type, "value": port if id_type == "ifname" else "0b:00"},
        "descr": port,
    }
    if rate:
        end["auto-negotiation"] = {"supported": True, "current": f"{rate} - four lanes"}
    return {interface: {"via": "LLDP", "chassis": {peer: about}, "port": end}}


def output(*neighbours: dict[str, object]) -> str:
    # A single interface is printed as an object, several as a list.
    inside = neighbours[0] if len(neighbours) == 1 else list(neighbours)
    return json.dumps({"lldp": {"interface": inside}}, indent=2)


def host(interface: str, name: str) -> dict[str, object]:
    return neighbour(interface, name, "eth0", "25GbaseCR", kind="Station", id_type="mac")


TREE = "\n".join(
    [
        "# leaf1",
        output(
            host("swp1", "n1"),
            host("swp2", "n2"),
            neighbour("swp10", "spine", "swp1", "100GbaseCR4"),
        ),
        "# leaf2",
        output(
            host("swp1", "n3"),
            host("swp2", "n4"),
            neighbour("swp10", "spine", "swp2", "100GbaseCR4"),
        ),
        "# spine",
        output(
            neighbour("swp1", "leaf1", "swp10", "100GbaseCR4"),
            neighbour("swp2", "leaf2", "swp10", None),
        ),
        "# n1",
        output(neighbour("eth0", "leaf1", "swp1", "25GbaseCR")),
        "",
    ]
)


def read(folder: Path, text: str) -> Fabric:
    (folder / "fabric.txt").write_text(text)
    return read_fabric(folder / "fabric.txt")


def test_neighbours_become_hosts_switches_and_rates(tmp_path: Path) -> None:
    fabric = read(tmp_path, TREE)
    assert sorted(fabric.host_name) == ["n1", "n2", "n3", "n4"]
    assert fabric.switch_name == ["leaf1", "leaf2", "spine"]
    assert fabric.switch_tier.tolist() == [0, 0, 1]
    rates = {fabric.link_name(i): fabric.link_gbps[i] for i in range(fabric.n_links)}
    # Six cables, two of which both ends listed, in two directions.
    assert len(rates) == 12
    assert rates["leaf1[swp10] → spine[swp1]"] == 100 and rates["spine[swp2] → leaf2[swp10]"] == 100
    assert sorted(set(rates.values())) == [25, 100]


def test_neighbours_without_rates_get_a_remedy_for_lldp(tmp_path: Path) -> None:
    text = TREE.replace("auto-negotiation", "power")
    with pytest.raises(FabricError, match="no line states the speed") as error:
        read(tmp_path, text)
    remedy = str(error.value.remedy)
    assert "auto-negotiation" in remedy and "cable_rate=" in remedy
    assert not any(word in str(error.value) for word in ("ibnetdiscover", "4xEDR", "UFM"))
    (tmp_path / "fabric.txt").write_text(text)
    assert set(read_fabric(tmp_path / "fabric.txt", cable_gbps=25).link_gbps) == {25}


def test_rates_below_a_gigabit_are_in_megabits(tmp_path: Path) -> None:
    fabric = read(tmp_path, TREE.replace("100GbaseCR4", "1000baseT"))
    assert sorted(set(fabric.link_gbps.tolist())) == [1, 25]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (output(host("swp1", "n1"), host("swp2", "n2")), "does not say which device"),
        (TREE[:400], "cannot be read"),
        (TREE.replace("chassis", "chariot"), "other elements than lldpctl"),
        (TREE.replace('"value"', '"worth"'), "other elements than lldpctl"),
        ('# a\n{"lldp": ' + "[" * 100_000, "nested too deeply|cannot be read"),
        ('# a\n{"lldp": {}}\n', "no device has a neighbour"),
        (TREE.replace("Gbase", "?base").replace("GbaseCR", "?"), "speed"),
        ("LocalPort    RemoteDevice    RemotePortID\n", "SONiC's LLDP table"),
    ],
)
def test_what_cannot_be_a_fabric_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=message) as caught:
        read(tmp_path, text)
    assert caught.value.file == tmp_path / "fabric.txt" and caught.value.remedy


def test_a_truncated_file_is_read_or_refused(tmp_path: Path) -> None:
    for length in range(1, len(TREE), 61):
        try:
            read(tmp_path, TREE[:length])
        except FabricError as error:
            assert error.remedy, length
