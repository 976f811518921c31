"""NVIDIA Selene's discovery, written as UFM and Slurm would describe it, is the same network."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tailback.fabric.ibnetdiscover import BlockFormat, Device, Kind
from tailback.fabric.model import Fabric
from tailback.fabric.rates import data_rate_gbps
from tailback.fabric.readers import read_fabric
from tests.factories.public_data import real

pytestmark = pytest.mark.data
SELENE = "selene/selene.compute.txt"


def ufm_ports(text: str) -> list[dict[str, str]]:
    """The ports of a discovery as UFM returns them."""
    subnet = BlockFormat().parse(text)
    speeds = {
        data_rate_gbps(f"{width}x", speed): (f"IB_{width}x", speed)
        for width in (1, 2, 4)
        for speed in ("EDR", "HDR")
    }

    def end(key: str, port: int, prefix: str, name: str) -> dict[str, str]:
        device: Device = subnet.devices[key]
        switch = device.kind is Kind.SWITCH
        return {
            name: f"{key.partition('-')[2]}_{port}",
            f"{prefix}node_description": f"{device.name}:{port}" if switch else device.name,
            f"{prefix}port_dname" if prefix else "dname": str(port) if switch else f"HCA-1/{port}",
        }

    return [
        end(cable.key, cable.port, "", "name")
        | end(cable.peer, cable.peer_port, "peer_", "peer")
        | dict(zip(("active_width", "active_speed"), speeds[cable.gbps], strict=True))
        for cable in subnet.ends
    ]


def slurm_lines(fabric: Fabric) -> str:
    """The switches of a fabric as lines of topology.conf."""
    hosts, below = defaultdict(list), defaultdict(list)
    for link in np.flatnonzero(fabric.link_up > 0):
        low, high = int(fabric.link_src[link]), fabric.vertex_name(int(fabric.link_dst[link]))
        if low < fabric.n_nodes:
            hosts[high].append(fabric.host_name[int(fabric.node_host[low])])
        else:
            below[high].append(fabric.vertex_name(low))

    def plain(names: list[str]) -> str:
        return ",".join(re.sub(r"[^\w.-]", "_", name) for name in dict.fromkeys(names))

    return "\n".join(
        f"SwitchName={plain([name])}"
        + (f" Nodes={plain(hosts[name])}" if hosts[name] else "")
        + (f" Switches={plain(below[name])}" if below[name] else "")
        for name in fabric.switch_name
    )


@pytest.mark.slow
def test_selene_from_ufm_is_selene(tmp_path: Path) -> None:
    discovered = read_fabric(real(SELENE))
    (tmp_path / "ports.json").write_text(json.dumps(ufm_ports(real(SELENE).read_text())))
    fabric = read_fabric(tmp_path / "ports.json")
    assert (fabric.n_hosts, fabric.n_nodes, fabric.n_links) == (469, 3675, 24_372)
    assert fabric.node_name == discovered.node_name
    assert fabric.switch_name == discovered.switch_name
    for column in ("link_src", "link_dst", "link_src_port", "link_gbps", "switch_tier"):
        assert np.array_equal(getattr(fabric, column), getattr(discovered, column)), column


def test_slurm_gives_selene_its_switches_and_cables(tmp_path: Path) -> None:
    discovered = read_fabric(real(SELENE))
    (tmp_path / "topology.conf").write_text(slurm_lines(discovered))
    fabric = read_fabric(tmp_path / "topology.conf", cable_gbps=200)
    assert (fabric.n_hosts, fabric.n_nodes, fabric.n_switches) == (469, 3675, 666)
    assert np.bincount(fabric.switch_tier).tolist() == [204, 322, 140]
    # Hosts with an adapter for each rail, and as many cables upwards as below: 3 % are missing.
    assert 0.95 * discovered.n_links < fabric.n_links < discovered.n_links
