"""Names of hosts that differ in their domain or in case."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tailback.errors import TailbackError
from tailback.fabric.readers import read_fabric
from tailback.names.hosts import HostNames, expand_hosts, fold_hosts
from tailback.placement.hosts import other_spellings, slots_from_spec
from tailback.port_counters.analysis.port_inventory import from_discovery, name_ports
from tailback.port_counters.schema import READINGS, conform
from tailback.scenario.model import parse
from tailback.simulation import prepare

FABRIC = ["h00", "h01.site", "H02", "h02", "n.a", "n.b", "sw mlx5_0", "10.0.0.1"]


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("h00", "h00"),
        ("H00", "h00"),
        ("h00.cluster.local", "h00"),
        ("h01", "h01.site"),
        ("H01.Site.org", "h01.site"),
        ("h01.other", None),
        ("H02", "H02"),
        ("n.a", "n.a"),
        ("n.c", None),
        ("SW.site mlx5_0", "sw mlx5_0"),
        ("sw.site mlx5_1", None),
        ("10.0.0.2", None),
        ("10", None),
        ("", None),
    ],
)
def test_unique_match_is_found(name: str, same: str | None) -> None:
    assert HostNames(FABRIC).find(name) == same


@pytest.mark.parametrize(
    ("names", "both"),
    [
        (["h02.site"], ("H02", "h02")),
        (["n"], ("n.a", "n.b")),
        (["h00", "H00"], ("h00", "H00")),
        (["h00.x", "h00.y"], ("h00.x", "h00.y")),
    ],
)
def test_ambiguous_names_are_both_named(names: list[str], both: tuple[str, str]) -> None:
    with pytest.raises(TailbackError) as caught:
        HostNames(FABRIC).joined(names)
    assert all(repr(name) in caught.value.message for name in both) and caught.value.remedy


@pytest.fixture
def links(tmp_path: Path) -> Path:
    path = tmp_path / "links.csv"
    rows = [f"h{n},e0,s,p{n},100" for n in range(3)]
    path.write_text("\n".join(["src,src_port,dst,dst_port,rate_gbit", *rows, ""]))
    return path


def test_lists_of_hosts_take_other_spellings(links: Path) -> None:
    fabric = read_fabric(links)
    spec = "H0:2,h[1-2].cluster.local:4"
    assert slots_from_spec(spec, fabric, 1) == ([0, 1, 2], [2, 4, 4])
    (note,) = other_spellings(spec, fabric)
    assert "3, like H0 for h0" in note
    assert other_spellings("h0:2,1-2", fabric) == other_spellings("all", fabric) == []
    with pytest.raises(TailbackError, match=r"'h0' and 'h0\.site' may both be 'h0'"):
        slots_from_spec("h0:1,h0.site:1", fabric, 1)


def test_counters_take_other_spellings(links: Path) -> None:
    def named(*devices: str) -> tuple[list[str], list[str]]:
        frame = pl.DataFrame({"node_name": devices, "interface": "e0", "time_ns": 1, "port": 1})
        ports, notes = name_ports(conform(READINGS, frame), from_discovery(links))
        return ports["node_name"].to_list(), notes

    names, notes = named("H0", "h1.cluster.local", "other")
    assert names == ["h0", "h1", "other"]
    assert "2, like H0 for h0" in notes[0] and "not in the fabric: 1" in notes[-1]
    assert named("h0", "h1") == (["h0", "h1"], [])
    with pytest.raises(TailbackError, match="may both be"):
        named("h0", "H0")


def test_placement_files_take_other_spellings(links: Path, tmp_path: Path) -> None:
    file = tmp_path / "ranks.csv"
    job = {
        "pattern": {"kind": "alltoall", "ranks": 2, "size": "1 KiB"},
        "placement_file": str(file),
    }
    scenario = parse({"fabric": {"file": str(links)}, "job": [job]})
    file.write_text("rank,host\n0,H1\n1,h0.site\n")
    prepared = prepare(scenario)
    assert prepared.observed.node.tolist() == [1, 0]
    assert any("2, like H1 for h1" in note for note in prepared.notes)
    file.write_text("rank,host\n0,h1\n1,H1\n")
    with pytest.raises(TailbackError, match="'h1' and 'H1' may both be 'h1'") as caught:
        prepare(scenario)
    assert caught.value.file == file and caught.value.place == "rank 1"


@pytest.mark.parametrize(
    ("hosts", "folded"),
    [
        (["n08", "n09", "n10", "n12"], "n[08-10,12]"),
        (["n9", "n10", "login"], "n9,n10,login"),
        (["r1i0n0", "r1i0n1", "r2i0n0"], "r1i0n[0-1],r2i0n0"),
        (["n3", "n1", "n2", "n2"], "n[1-3]"),
        ([], ""),
    ],
)
def test_folded_hosts_expand_to_themselves(hosts: list[str], folded: str) -> None:
    assert fold_hosts(hosts) == folded
    assert set(expand_hosts(folded)) == set(hosts)
