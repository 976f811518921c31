"""Fabrics from the JSON of NVIDIA UFM: ports, which have all, and links, which have no speeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailback.errors import FabricError
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric
from tests.factories.fabric_files import UFM_PORTS, ufm_port


def read(folder: Path, content: object, cable_gbps: float | None = None) -> Fabric:
    file = folder / "ports.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_fabric(file, cable_gbps=cable_gbps)


def link(source: str, destination: str, *described: str, label: str = "HCA-1/1") -> dict[str, str]:
    """A link as UFM returns it: both ends like ``a1_1``, and their descriptions if given."""
    ends = {"source": source, "destination": destination}
    out = {"width": "IB_4x", "severity": "Info", "name": f"{source}:{destination}"}
    for side, end in ends.items():
        out[f"{side}_guid"], out[f"{side}_port"] = end.split("_")
    for side, text in zip(ends, described, strict=False):
        out[f"{side}_port_node_description"] = text
        out[f"{side}_port_dname"] = text.rpartition(":")[2] if ":" in text else label
    return out


LINKS = [
    link("a1_1", "b1_1", "leaf1:1", "n1 mlx5_0"),
    link("b2_1", "a1_2", "n2 mlx5_0", "leaf1:2"),
    link("a1_9", "a2_1", "leaf1:9", "spine:1"),
]


@pytest.mark.parametrize("wrapped", [False, True])
def test_ports_have_names_rates_and_peers(wrapped: bool, tmp_path: Path) -> None:
    content = {"total_resources": 5, "data": UFM_PORTS} if wrapped else UFM_PORTS
    fabric = read(tmp_path, content)
    assert fabric.host_name == ["n1", "n2"] and fabric.node_name == ["n1 mlx5_0", "n2 mlx5_0"]
    assert fabric.switch_name == ["leaf1", "spine"]
    rates = {fabric.link_name(i): fabric.link_gbps[i] for i in range(fabric.n_links)}
    assert rates["leaf1[1] → n1 mlx5_0[1]"] == 100 and rates["spine[1] → leaf1[9]"] == 200


def test_links_need_a_rate(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="no line states the speed") as caught:
        read(tmp_path, LINKS)
    assert caught.value.remedy is not None and "/ufmRest/resources/ports" in caught.value.remedy
    fabric = read(tmp_path, LINKS, cable_gbps=400)
    assert fabric.host_name == ["n1", "n2"] and fabric.switch_name == ["leaf1", "spine"]
    assert set(fabric.link_gbps) == {400} and fabric.n_links == 6


def test_links_without_descriptions_as_older_versions_return_them(tmp_path: Path) -> None:
    bare = [link("a1_1", "b1_1"), link("a1_2", "b2_1"), link("a1_9", "a2_1"), link("a2_2", "b3_1")]
    fabric = read(tmp_path, bare, cable_gbps=100)
    assert (fabric.n_hosts, fabric.n_switches) == (3, 2)
    assert any("devices without a description" in note for note in fabric.notes)


def test_boards_of_a_director_have_their_own_names(tmp_path: Path) -> None:
    ports = [
        ufm_port("c1_1", "orca1:L05/U1/1", "1", ("b1_1", "n1 mlx5_0", "HCA-1/1")),
        ufm_port("c1_19", "orca1:L05/U1/19", "19", ("c2_1", "orca1:S01/U1/1", "1")),
        ufm_port("c3_1", "orca1:L06/U1/1", "1", ("b2_1", "n2 mlx5_0", "HCA-1/1")),
        ufm_port("c3_19", "orca1:L06/U1/19", "19", ("c2_2", "orca1:S01/U1/2", "2")),
    ]
    assert read(tmp_path, ports).switch_name == ["orca1/L05/U1", "orca1/L06/U1", "orca1/S01/U1"]


def test_a_peer_by_guid_and_label_is_accepted(tmp_path: Path) -> None:
    ports = [dict(port) for port in UFM_PORTS]
    for port in ports:
        if "peer" in port:
            port["peer_node_guid"] = str(port.pop("peer")).split("_")[0]
    assert read(tmp_path, ports).n_links == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "xyz"}, "name 'xyz' is not a GUID and a port"),
        ({"name": "a1_0"}, "port '0' of name 'a1' is not 1 to 254"),
        ({"peer": "b1_9999"}, "port '9999' of peer 'b1' is not 1 to 254"),
        ({"peer": "zz", "name": "a1_1"}, "peer 'zz' is not a GUID and a port"),
        ({"name": None}, "name '' is not a GUID and a port"),
    ],
)
def test_an_element_that_cannot_be_read_is_named(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FabricError, match=message) as caught:
        read(tmp_path, [*UFM_PORTS[1:], {**UFM_PORTS[0], **change}])
    assert caught.value.place == "element 5" and caught.value.remedy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(UFM_PORTS)[:-40], "this is not JSON"),
        ([{**UFM_PORTS[3], "peer": "N/A"}], "no port has a peer"),
        ([*UFM_PORTS, 3], "'3' is not an object"),
        ({"resource": UFM_PORTS}, "there is no list of ports"),
        ('[{"source_guid": 1, "destination_guid": 2, "x": ' + "[" * 100_000, "too deeply|not JSON"),
        ('[{"source_guid": 1, "destination_guid": ' + "9" * 5000 + "}]", "more than 308 digits"),
        ([{"system_guid": "a1", "type": "switch", "name": "a1"}], "UFM's list of systems"),
        ("System,GUID,Port,Peer Node,Peer GUID,Speed\ns1,0x1,1,n1,0x2,50G\n", "a CSV table as UFM"),
        (
            "Severity,Source System,Source Port,Destination System,Destination Port,Width\n",
            "a CSV table as UFM",
        ),
        ("0x98039b0300867bba,1,0xb83fd2030080302e,1,Any,Active\n", "static topology of OpenSM"),
    ],
)
def test_what_is_not_a_network_is_refused(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=message) as caught:
        read(tmp_path, content)
    assert caught.value.file == tmp_path / "ports.json" and caught.value.remedy


def test_ufm_tables_must_be_saved_as_json(tmp_path: Path) -> None:
    with pytest.raises(FabricError) as caught:
        read(tmp_path, "source_guid,source_port,destination_guid,destination_port,width\n")
    assert caught.value.remedy is not None and "/ufmRest/resources/ports" in caught.value.remedy
