"""A small file of every format that a fabric is read from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric


@dataclass(frozen=True)
class FabricSample:
    """A file and what it describes.

    Attributes:
        text: Its content.
        hosts: Number of hosts.
        switches: Number of switches.
        cables: Number of cables.
        gbps: Sum of the rates of its links, both directions, Gb/s.
        cable_gbps: Rate to state with a file without rates.
    """

    text: str
    hosts: int
    switches: int
    cables: int
    gbps: float
    cable_gbps: float | None = None

    def read(self, folder: Path, text: str | None = None) -> Fabric:
        """The fabric of the file, or of a changed text of it."""
        file = folder / "network"
        file.write_text(self.text if text is None else text)
        return read_fabric(file, cable_gbps=self.cable_gbps)


BLOCKS = """\
Switch\t36 "S-00000000000000a1"\t\t# "leaf1" enhanced port 0 lid 1 lmc 0
[1]\t"H-00000000000000b1"[1](b2) \t\t# "n1 mlx5_0" lid 4 4xEDR
[2]\t"H-00000000000000c1"[1](c2) \t\t# "n2 mlx5_0" lid 5 4xEDR
[4]\t"S-00000000000000a2"[7]\t\t# "spine" lid 2 4xHDR

Switch\t36 "S-00000000000000a2"\t\t# "spine" base port 0 lid 2 lmc 0
[7]\t"S-00000000000000a1"[4]\t\t# "leaf1" lid 1 4xHDR
"""
PORTS = """\
CA   134  1 0x00000000000000b2 4x EDR - SW  1719 10 0x00000000000000a1 ( 'n1 HCA-1' - 'leaf' )
CA   133  1 0x00000000000000c2 4x EDR - SW  1719 11 0x00000000000000a1 ( 'n2 HCA-1' - 'leaf' )
SW  1719  1 0x00000000000000a1 4x HDR - SW  1516  3 0x00000000000000a2 ( 'leaf' - 'top' )
"""


def lldp_neighbour(interface: str, peer: str, port: str, rate: str, kind: str) -> str:
    """What a switch says of a neighbour, as lldpctl prints it."""
    capability = [{"type": kind, "enabled": True}]
    about = {"id": {"type": "mac", "value": "0a:00"}, "capability": capability}
    end = {
        "id": {"type": "ifname", "value": port},
        "auto-negotiation": {"supported": True, "current": rate},
    }
    return json.dumps(
        {"lldp": {"interface": {interface: {"chassis": {peer: about}, "port": end}}}}, indent=1
    )


LLDP = "\n".join(
    [
        "# leaf1",
        lldp_neighbour("swp1", "n1", "eth0", "25GbaseCR", "Station"),
        "# n2",
        lldp_neighbour("eth0", "leaf1", "swp2", "25GbaseCR", "Bridge"),
        "# leaf1",
        lldp_neighbour("swp9", "spine", "swp1", "100GbaseCR4", "Bridge"),
        "",
    ]
)

CONF = """\
# Four hosts at two leaves, two spines.
SwitchName=leaf1 Nodes=cn[01-02]
SwitchName=leaf2 Nodes=cn[03-04]
SwitchName=spine1 Switches=leaf[1-2]
SwitchName=spine2 Switches=leaf1,leaf2
"""
YAML = """\
---
# The same.
- topology: default
  cluster_default: true
  tree:
    switches:
      - switch: leaf1
        nodes: cn[01-02]
      - switch: leaf2
        nodes: cn[03-04]
      - switch: spine1
        children: leaf[1-2]
      - {switch: spine2, children: "leaf1,leaf2"}
- topology: flat
  flat: true
"""


def ufm_port(
    name: str, described: str, label: str, peer: tuple[str, str, str] | None, speed: str = "EDR"
) -> dict[str, object]:
    """A port as UFM returns it; ``peer``: name, description and label of the other end."""
    port: dict[str, object] = {
        "name": name,
        "guid": name.split("_")[0],
        "number": int(name.split("_")[1]),
        "node_description": described,
        "dname": label,
        "logical_state": "Active",
        "active_speed": speed,
        "active_width": "IB_4x",
        "system_name": described.split(":")[0],
    }
    if peer is not None:
        keys = ("peer", "peer_node_description", "peer_port_dname")
        port |= dict(zip(keys, peer, strict=True))
    return port


UFM_PORTS: list[dict[str, object]] = [
    ufm_port("a1_1", "leaf1:1", "1", ("b1_1", "n1 mlx5_0", "HCA-1/1")),
    ufm_port("a1_2", "leaf1:2", "2", ("b2_1", "n2 mlx5_0", "HCA-1/1")),
    ufm_port("a1_9", "leaf1:9", "9", ("a2_1", "spine:1", "1"), "HDR"),
    ufm_port("a1_10", "leaf1:10", "10", None),
    ufm_port("b1_1", "n1 mlx5_0", "HCA-1/1", ("a1_1", "leaf1:1", "1")),
]

LINKINFO = """\
CA: n2 HCA-1:
      0x0002c9030010000d     10    1[  ] ==( 4X 53.125 Gbps Active/  LinkUp)==>  5  2[  ] "leaf" ( )
CA: n1 HCA-1:
      0x0002c90300100009      9    1[  ] ==( 4X 53.125 Gbps Active/  LinkUp)==>  5  1[  ] "leaf" ( )
Switch: 0x0002c90300a00001 spine:
           7    1[  ] ==( 4X       53.125 Gbps Active/  LinkUp)==>       5    9[  ] "leaf" ( )
           7    2[  ] ==(                Down/ Polling)==>             [  ] "" ( )
Switch: 0x0002c90300900000 leaf:
           5    1[  ] ==( 4X       53.125 Gbps Active/  LinkUp)==>       9    1[  ] "n1 HCA-1" ( )
           5    2[  ] ==( 4X       53.125 Gbps Active/  LinkUp)==>      10    1[  ] "n2 HCA-1" ( )
           5    9[  ] ==( 4X       53.125 Gbps Active/  LinkUp)==>       7    1[  ] "spine" ( )
"""

SAMPLES: dict[str, FabricSample] = {
    "edge-list": FabricSample(
        "src,dst,rate_gbit\nn1,leaf1,25\nn2,leaf1,25\nleaf1,spine,100\nspine,n3,25\n",
        3,
        2,
        4,
        350,
    ),
    "iblinkinfo": FabricSample(LINKINFO, 2, 2, 3, 1200),
    "ibnetdiscover": FabricSample(BLOCKS, 2, 2, 3, 800),
    "ibnetdiscover-ports": FabricSample(PORTS, 2, 2, 3, 800),
    "lldp": FabricSample(LLDP, 2, 2, 3, 300),
    "slurm-topology": FabricSample(CONF, 4, 4, 8, 1600, 100),
    "slurm-topology-yaml": FabricSample(YAML, 4, 4, 8, 1600, 100),
    "ufm": FabricSample(json.dumps(UFM_PORTS, indent=1), 2, 2, 3, 800),
}


EQUAL = 100.0
"""Rate of the cables of :func:`cable_tree`, Gb/s."""

Cables = Sequence[tuple[str, str, float]]


def cable_tree(
    leaves: int = 4, spines: int = 2, hosts: int = 4, parallel: int = 1
) -> list[tuple[str, str, float]]:
    """Cables of a tree: lower end, upper end, rate."""
    up = [
        (f"leaf{leaf}", f"spine{spine}", EQUAL)
        for leaf in range(leaves)
        for spine in range(spines)
        for _ in range(parallel)
    ]
    down = [(f"n{host}", f"leaf{host // hosts}", EQUAL) for host in range(leaves * hosts)]
    return up + down


def with_rate(cables: Cables, gbps: float, *numbers: int) -> list[tuple[str, str, float]]:
    """The cables, those with these numbers at another rate."""
    return [(a, b, gbps if at in numbers else rate) for at, (a, b, rate) in enumerate(cables)]


def cable_list(cables: Cables) -> str:
    """The cables as CSV; ports are named after the number of the cable."""
    lines = [f"{a},{b},p{at},q{at},{gbps:g}" for at, (a, b, gbps) in enumerate(cables)]
    return "\n".join(["src,dst,src_port,dst_port,rate_gbps", *lines, ""])
