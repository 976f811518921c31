"""Forwarding tables: of two switches and three hosts, and of any fabric."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.model import Fabric

DISCOVERY = """\
Switch 36 "S-0000000000000001" # "left" base port 0 lid 1 lmc 0
[1] "H-0000000000000010"[1](11) # "a HCA-1" lid 3 4xFDR
[2] "H-0000000000000020"[1](21) # "b HCA-1" lid 4 4xFDR
[3] "S-0000000000000002"[3] # "right" lid 2 4xFDR
[4] "S-0000000000000002"[4] # "right" lid 2 4xFDR
Switch 36 "S-0000000000000002" # "right" base port 0 lid 2 lmc 0
[1] "H-0000000000000030"[1](31) # "c HCA-1" lid 5 4xFDR
"""

LEFT = """\
Unicast lids [0x0-0x5] of switch Lid 1 guid 0x0000000000000001 (left):
  Lid  Out   Destination
       Port     Info
0x0001 000 : (Switch portguid 0x0000000000000001: 'left')
0x0002 003 : (Switch portguid 0x0000000000000002: 'right')
0x0003 001 : (Channel Adapter portguid 0x0000000000000011: 'a HCA-1')
0x0004 002 : (Channel Adapter portguid 0x0000000000000021: 'b HCA-1')
0x0005 004 : (Channel Adapter portguid 0x0000000000000031: 'c HCA-1')
5 valid lids dumped
"""

RIGHT = """\
Unicast lids [0x0-0x5] of switch DR path slid 0; dlid 0; 0,1 guid 0x0000000000000002 (right):
  Lid  Out   Destination
       Port     Info
0x0003 003 : (Channel Adapter portguid 0x0000000000000011: 'a HCA-1')
0x0004 004 : (Channel Adapter portguid 0x0000000000000021: 'b HCA-1')
0x0005 001 : (Channel Adapter portguid 0x0000000000000031: 'c HCA-1')
3 valid lids dumped
"""


def discovery_of(fabric: Fabric) -> str:
    """What ``ibnetdiscover`` prints of a fabric: the blocks of its switches are enough."""
    lines = []
    for switch, name in enumerate(fabric.switch_name):
        vertex = fabric.n_nodes + switch
        lines.append(f'Switch 64 "S-{_guid(vertex)}" # "{name}" base port 0 lid {vertex + 1} lmc 0')
        for link in np.flatnonzero(fabric.link_src == vertex).tolist():
            port, there = int(fabric.link_src_port[link]), int(fabric.link_dst[link])
            far = int(fabric.link_dst_port[link])
            if there < fabric.n_nodes:
                end = (
                    f'"H-{_guid(there)}"[{far}]({there + 1:x}1) # "{fabric.node_name[there]} HCA-1"'
                )
            else:
                far_name = fabric.switch_name[there - fabric.n_nodes]
                end = f'"S-{_guid(there)}"[{far}] # "{far_name}"'
            lines.append(f"[{port}] {end} lid {there + 1} 4xEDR")
    return "\n".join(lines) + "\n"


def tables_of(fabric: Fabric, forward: NDArray[np.uint32]) -> str:
    """What ``dump_lfts`` prints of the link that each switch takes to each node, shape (S, N)."""
    lines = []
    for switch, name in enumerate(fabric.switch_name):
        vertex = fabric.n_nodes + switch
        lines.append(
            f"Unicast lids [0x0-0x5] of switch Lid {vertex + 1} guid 0x{_guid(vertex)} ({name}):"
        )
        lines += ["  Lid  Out   Destination", "       Port     Info"]
        for node, host in enumerate(fabric.node_name):
            port = int(fabric.link_src_port[forward[switch, node]])
            about = f"(Channel Adapter portguid 0x{node + 1:x}1: '{host} HCA-1')"
            lines.append(f"0x{node + 1:04x} {port:03d} : {about}")
    return "\n".join(lines) + "\n"


def _guid(vertex: int) -> str:
    return f"{(vertex + 1) * 16:016x}"


def clumped(fabric: Fabric) -> NDArray[np.uint32]:
    """The link of each switch of a tree of two levels to each node, shape (S, N).

    Leaves send everything up to the first switch above them.
    """
    n_switches = len(fabric.switch_name)
    forward = np.zeros((n_switches, fabric.n_nodes), np.uint32)
    for switch in range(n_switches):
        leaving = np.flatnonzero(fabric.link_src == fabric.n_nodes + switch)
        ups = leaving[fabric.link_up[leaving] > 0]
        for node in range(fabric.n_nodes):
            leaf = fabric.n_nodes + int(fabric.node_switch[node])
            there = leaving[np.isin(fabric.link_dst[leaving], (node, leaf))]
            forward[switch, node] = there[0] if len(there) else ups[0]
    return forward


def write_clumped(folder: Path, fabric: Fabric) -> dict[str, str]:
    """Write cabling and such tables of a fabric; returns ``[fabric]`` of a scenario with them."""
    (folder / "fabric.txt").write_text(discovery_of(fabric))
    (folder / "lfts.txt").write_text(tables_of(fabric, clumped(fabric)))
    return {"file": str(folder / "fabric.txt"), "forwarding": str(folder / "lfts.txt")}
