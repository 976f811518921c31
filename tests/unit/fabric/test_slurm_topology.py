"""Fabrics from Slurm's topology.conf and topology.yaml: what they say and what must be assumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback.errors import FabricError
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric
from tests.factories.fabric_files import CONF, YAML


def read(folder: Path, text: str, taper: float | None = None) -> Fabric:
    (folder / "topology").write_text(text)
    return read_fabric(folder / "topology", cable_gbps=200, taper=taper)


def cables(fabric: Fabric) -> dict[tuple[str, str], int]:
    """Number of cables from each device to each device above it."""
    out: dict[tuple[str, str], int] = {}
    for link in np.flatnonzero(fabric.link_up > 0):
        ends = (int(fabric.link_src[link]), int(fabric.link_dst[link]))
        key = (fabric.vertex_name(ends[0]), fabric.vertex_name(ends[1]))
        out[key] = out.get(key, 0) + 1
    return out


@pytest.mark.parametrize("text", [CONF, YAML])
def test_both_forms_describe_the_same_network(text: str, tmp_path: Path) -> None:
    fabric = read(tmp_path, text)
    assert fabric.host_name == ["cn01", "cn02", "cn03", "cn04"]
    assert fabric.switch_name == ["leaf1", "leaf2", "spine1", "spine2"]
    assert fabric.switch_tier.tolist() == [0, 0, 1, 1]
    assert set(fabric.link_gbps) == {200}
    n_cables = cables(fabric)
    assert n_cables["cn01", "leaf1"] == n_cables["cn04", "leaf2"] == 1
    assert n_cables["leaf1", "spine1"] == n_cables["leaf1", "spine2"] == 1
    assert "numbers of cables are not in the file: 8 assumed" in fabric.notes[0]


def test_uplinks_are_downlinks_divided_by_the_taper(tmp_path: Path) -> None:
    text = (
        "SwitchName=leaf1 Nodes=n[1-18]\nSwitchName=leaf2 Nodes=n[19-36]\n"
        "SwitchName=mid Switches=leaf[1-2]\nSwitchName=leaf3 Nodes=n[37-40]\n"
        "SwitchName=top1 Switches=mid,leaf3\nSwitchName=top2 Switches=mid,leaf3\n"
    )
    n_cables = cables(read(tmp_path, text))
    assert (n_cables["leaf1", "mid"], n_cables["mid", "top1"], n_cables["mid", "top2"]) == (
        18,
        18,
        18,
    )
    fabric = read(tmp_path, text, taper=4)
    n_cables = cables(fabric)
    assert (n_cables["leaf1", "mid"], n_cables["mid", "top1"] + n_cables["mid", "top2"]) == (5, 3)
    assert n_cables["leaf3", "top1"] == n_cables["leaf3", "top2"] == 1
    # Level by level as stated, though a leaf is cabled to the top.
    assert fabric.switch_tier.tolist() == [0, 0, 0, 1, 2, 2]
    assert fabric.switch_pod.tolist() == [0, 0, 1, 0, -1, -1]
    assert "taper 4" in fabric.notes[0]


def test_odd_cables_are_spread_over_the_switches_above(tmp_path: Path) -> None:
    leaves = "".join(f"SwitchName=l{i} Nodes=n{i}[1-3]\n" for i in range(8))
    n_cables = cables(
        read(tmp_path, leaves + "SwitchName=a Switches=l[0-7]\nSwitchName=b Switches=l[0-7]\n")
    )
    above = {name: sum(n_cables[f"l{i}", name] for i in range(8)) for name in "ab"}
    assert above == {"a": 12, "b": 12}


def test_what_scontrol_show_topology_prints_is_read(tmp_path: Path) -> None:
    fabric = read(
        tmp_path,
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=dev[0-5]\n"
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=dev[6-11]\n"
        "SwitchName=s3 Level=1 LinkSpeed=1 Nodes=dev[0-11] Switches=s[0-1]\n",
    )
    assert (fabric.n_hosts, fabric.n_switches, fabric.n_links) == (12, 3, 2 * 24)
    assert fabric.switch_tier.tolist() == [0, 0, 1]


def test_notation_of_slurm(tmp_path: Path) -> None:
    fabric = read(
        tmp_path,
        '# all\nswitchname=a nodes="n[1-2]" # two\n  SWITCHNAME = b\tNodes=n3,\\\n    n4\n'
        "SwitchName=top LinkSpeed=40 \\\nSwitches=a,b\n",
    )
    assert fabric.host_name == ["n1", "n2", "n3", "n4"]
    assert fabric.switch_name == ["a", "b", "top"]
    assert any("LinkSpeed, which has no unit in Slurm" in note for note in fabric.notes)


def test_a_host_at_two_switches_has_two_adapters(tmp_path: Path) -> None:
    fabric = read(
        tmp_path,
        "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[1-2]\nSwitchName=top Switches=a,b\n",
    )
    assert fabric.n_hosts == 2 and fabric.node_name == ["n1/P1", "n1/P2", "n2/P1", "n2/P2"]


def test_blocks_become_leaves_below_one_switch(tmp_path: Path) -> None:
    conf = "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n"
    yaml = (
        "- topology: t\n  block:\n    block_sizes: [4, 8]\n    blocks:\n"
        "      - block: b1\n        nodes: n[1-4]\n      - block: b2\n        nodes: n[5-8]\n"
    )
    for text in (conf, yaml):
        fabric = read(tmp_path, text)
        assert fabric.switch_name == ["b1", "b2", "between blocks"]
        assert cables(fabric)["b1", "between blocks"] == 4
        assert any("not how they are cabled" in note for note in fabric.notes)


def test_the_default_topology_is_read_others_are_named(tmp_path: Path) -> None:
    text = YAML.replace("cluster_default: true", "cluster_default: false") + (
        "- topology: other\n  cluster_default: yes\n  tree:\n    switches:\n"
        "      - switch: only\n        nodes: n[1-2]\n"
    )
    fabric = read(tmp_path, text.replace("yes", "True"))
    assert fabric.switch_name == ["only"]
    assert any("'other' is read" in note and "'flat'" in note for note in fabric.notes)


def test_a_flat_default_does_not_hide_the_tree(tmp_path: Path) -> None:
    text = (
        "- topology: all\n  cluster_default: true\n  flat: {alpha_step_rank: true}\n"
        "- topology: gpu\n  node_order: [a]\n  tree:\n    switches:\n"
        "      - {switch: only, nodes: 'n[1-2]'}\n"
    )
    fabric = read(tmp_path, text)
    assert fabric.host_name == ["n1", "n2"]
    assert any("'gpu' is read" in note for note in fabric.notes)


TREE = "- topology: t\n  tree:\n    switches:\n      - switch: a\n"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SwitchName=a Nodes=n[1-", "unmatched bracket", "line 1"),
        ("SwitchName=a Nodes=n[3-1]", "runs backwards", "line 1"),
        ("SwitchName=a Nodes=n[1-99999999]", "more than 1,048,576 hosts", "line 1"),
        ("SwitchName=a Nodes=ALL", "without their names", "line 1"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "given already in line 1", "line 2"),
        ("SwitchName=a Nodes=n1\n\nSwitchName=b Switches=c", "there is no switch 'c'", "line 3"),
        (
            "SwitchName=t Switches=a\nSwitchName=a Switches=b Nodes=n\nSwitchName=b Switches=a",
            "'a' is below itself",
            "line 2",
        ),
        ("SwitchName=a Switches=a Nodes=n", "'a' is below itself", "line 1"),
        ("SwitchName=a Nods=n1", "has no 'Nods'", "line 1"),
        ("SwitchName=a Nodes=n1 Nodes=n2", "given twice", "line 1"),
        ("SwitchName= Nodes=n1", "SwitchName has no value", "line 1"),
        ("SwitchName=a Nodes=n1 oops", "'oops' is not a setting", "line 1"),
        ("Include other.conf\nSwitchName=a Nodes=n1", "refers to another file", "line 1"),
        ("SwitchName=a Nodes=n1\nBlockName=b Nodes=n1", "switches and blocks", "line 2"),
        ("RingName=r Nodes=n[1-4]", "not a network", "line 1"),
        ("SwitchName=a\nSwitchName=b Switches=a", "no switch has hosts", "line 1"),
        (TREE + "        nodes: [n1, n2]\n", "there is a list", "line 5"),
        (TREE + "        nodez: n1\n", "'nodez' is no key of switches", "line 5"),
        (TREE + "        nodes: n1\n        nodes: n2\n", "nodes is given twice", "line 6"),
        (TREE + "        nodes: 'n1\n", "this is not YAML", "line 6"),
        (TREE + "        nodes: \x01\n", "is not allowed", "line 5"),
        (TREE + "\tnodes: n1\n", "this is not YAML", "line 5"),
        ("- topology: t\n  tree:\n    switches: a\n", "is not a list", "line 3"),
        ("- topology: t\n  tree: {}\n", "tree has no switches", "line 2"),
        ("- topology: t\n  flat: true\n", "has no switches", "line 1"),
        ("- topology: t\n  torus3d: {}\n", "torus of Slurm", "line 1"),
        ("- topology: t\n", "no tree or blocks", "line 1"),
        ("- topology: " + "[" * 5000, "nested too deeply|not YAML", None),
    ],
)
def test_mistakes_are_refused_with_line_and_remedy(
    text: str, message: str, place: str | None, tmp_path: Path
) -> None:
    with pytest.raises(FabricError, match=message) as caught:
        read(tmp_path, text)
    assert caught.value.file == tmp_path / "topology" and caught.value.remedy
    assert place is None or caught.value.place == place
    assert len(str(caught.value)) < 600


@pytest.mark.slow
def test_too_many_hosts_are_refused_before_allocation(tmp_path: Path) -> None:
    text = "".join(f"SwitchName=s{i} Nodes=n[1-500000]\n" for i in range(3))
    with pytest.raises(FabricError, match="more than") as caught:
        read(tmp_path, text)
    assert caught.value.remedy


def test_a_taper_is_refused_where_cables_are_listed(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text("src,dst,rate_gbit\na,s,10\nb,s,10\n")
    with pytest.raises(FabricError, match="lists its cables"):
        read_fabric(tmp_path / "links.csv", taper=2)
