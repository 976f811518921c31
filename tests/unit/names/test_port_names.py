"""One name for a port and a link, wherever a user meets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.api.diagnose import diagnose
from tailback.fabric.degraded import degrade
from tailback.fabric.readers import read_fabric
from tailback.names.ports import link_name, links_by_port, port_name, some_ports, split_port
from tailback.scenario.model import Degraded
from tests.factories.repository import ROOT

CABLES = """\
link,src,src_iface,dst,dst_iface,rate
1,h0,eth0,l0,swp1,10G
2,h1,eth0,l0,swp2,10G
3,h2,eth0,l1,swp1,10G
4,h3,eth0,l1,swp2,10G
5,l0,swp31,s0,a,10G
6,l1,swp31,s0,b,10G
"""


def test_names() -> None:
    assert port_name("leaf3", 7) == "leaf3[7]"
    assert port_name("l2", 5, "swp5") == "l2[swp5]"
    assert link_name("l2[swp5]", "s1[2]") == "l2[swp5] → s1[2]"
    assert link_name("l2[5]", None) == "l2[5]"
    assert split_port(" a[b][swp5] ") == ("a[b]", "swp5")
    assert split_port("leaf3") is None


def test_a_table_names_ports_by_interface() -> None:
    table = pl.DataFrame({"node_name": ["a", "b"], "port": [1, 2], "interface": ["e1", None]})
    assert some_ports(table) == "a[e1], b[2]"
    assert some_ports(table.drop("interface"), 1) == "a[1]"


@pytest.mark.parametrize("port", ["l0[swp31]", "l0[3]"])
def test_a_slow_cable_has_its_interface_or_number(tmp_path: Path, port: str) -> None:
    (tmp_path / "links.csv").write_text(CABLES)
    fabric = read_fabric(tmp_path / "links.csv")
    slow = degrade(fabric, [Degraded(link=port, rate="1 Gb/s")])  # type: ignore[arg-type]
    [link] = [link for link in range(fabric.n_links) if slow.link_gbps[link] < 5]
    assert fabric.link_name(link) == "l0[swp31] → s0[a]"


def test_a_link_has_one_name_throughout_a_diagnosis(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text(CABLES)
    scenario: dict[str, Any] = {
        "fabric": {
            "file": str(tmp_path / "links.csv"),
            "degraded": [{"cable": "l0[swp31]", "rate": "2 Gb/s"}],
        },
        "job": [{"pattern": {"kind": "alltoall", "ranks": 4, "size": "32 KiB"}}],
    }
    diagnosis = diagnose(scenario, methods=["block"], remedies=["rate-control"], seeds=1)
    assert "l0[swp31] → s0" in diagnosis.headline
    diagnosis.write(tmp_path / "out")
    written = (tmp_path / "out" / "diagnosis.json").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    for text in (written, page):
        assert "l0[swp31]" in text and "l0[3]" not in text
    ports = links_by_port(diagnosis.run.tables["links"])
    assert ports["l0[3]"] == ports["l0[swp31]"]


def test_only_port_names_put_ports_in_brackets() -> None:
    sources = (ROOT / "python/tailback").rglob("*.py")
    elsewhere = {path.name for path in sources if "}[{" in path.read_text(encoding="utf-8")}
    # Host lists of batch systems are written with brackets, too: nid[0001-0004].
    assert elsewhere == {"ports.py", "hosts.py", "cray.py"}
