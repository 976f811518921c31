"""Forwarding tables: real ones lead every node to every other; broken ones are explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback import _core
from tailback.errors import FabricError
from tailback.fabric.builders import forwarding_network, require_deadlock_free
from tailback.fabric.lft import NO_ENTRY, forwarding, read_lfts
from tailback.fabric.model import Fabric, in_port_order
from tailback.fabric.readers import read_fabric
from tailback.fabric.topologies import build
from tailback.scenario.model import Scenario, parse
from tailback.simulation import prepare, simulate, simulate_fluid
from tests.factories.forwarding_tables import DISCOVERY, LEFT, RIGHT
from tests.factories.public_data import real


@pytest.fixture
def fabric(tmp_path: Path) -> Fabric:
    file = tmp_path / "fabric.txt"
    file.write_text(DISCOVERY)
    return in_port_order(read_fabric(file))


def _tables(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "lfts.txt"
    file.write_text(text)
    return file


def _all_to_all(ranks: int, lfts: Path) -> Scenario:
    """Everybody to everybody by these tables, beside which the fabric's file is."""
    job = {"pattern": {"kind": "alltoall", "ranks": ranks, "size": "4 KiB"}}
    files = {"file": str(lfts.parent / "fabric.txt"), "forwarding": str(lfts)}
    return parse({"fabric": files, "job": [job]})


def test_tables_say_which_of_two_cables(fabric: Fabric, tmp_path: Path) -> None:
    tables = forwarding(fabric, read_lfts(_tables(tmp_path, LEFT + RIGHT)))
    assert tables.notes == []
    assert tables.node_lid.tolist() == [3, 4, 5]
    left, right = fabric.switch_name.index("left"), fabric.switch_name.index("right")
    assert fabric.link_name(int(tables.link[left, 2])) == "left[4] → right[4]"
    assert fabric.link_name(int(tables.link[right, 0])) == "right[3] → left[3]"
    routing = _core.NetworkRouting.of_network(forwarding_network(fabric, tables.link))
    require_deadlock_free(fabric, routing)
    assert [fabric.link_name(link) for link, _ in routing.path(2, 1, 0, 0)] == [
        "right[4] → left[4]"
    ]


def test_a_missing_table_leaves_its_switch_without_routes(fabric: Fabric, tmp_path: Path) -> None:
    tables = forwarding(fabric, read_lfts(_tables(tmp_path, LEFT)))
    assert any("without a forwarding table" in note and "right" in note for note in tables.notes)
    right = fabric.switch_name.index("right")
    assert (tables.link[right] == NO_ENTRY).all()
    # No table of its own switch leads to node c: its name does.
    assert tables.node_lid.tolist() == [3, 4, 5]
    routing = _core.NetworkRouting.of_network(forwarding_network(fabric, tables.link))
    assert len(routing.path(0, 2, 0, 0)) == 1
    with pytest.raises(ValueError, match="not connected"):
        routing.path(2, 0, 0, 0)


def test_a_table_ending_elsewhere_is_no_route(fabric: Fabric, tmp_path: Path) -> None:
    text = LEFT.replace("0x0005 004", "0x0005 002") + RIGHT
    tables = forwarding(fabric, read_lfts(_tables(tmp_path, text)))
    routing = _core.NetworkRouting.of_network(forwarding_network(fabric, tables.link))
    with pytest.raises(ValueError, match="not connected"):
        routing.path(0, 2, 0, 0)


def test_circles_are_refused() -> None:
    ring = build({"kind": "torus", "dims": [3]})

    def link(source: int, to: int) -> int:
        ends = zip(ring.link_src.tolist(), ring.link_dst.tolist(), strict=True)
        return list(ends).index((3 + source, 3 + to))

    forward = np.full((3, 3), NO_ENTRY, np.uint32)
    forward[0, 2], forward[1, 2] = link(0, 1), link(1, 0)
    with pytest.raises(FabricError, match=r"for 'n2' in a loop through 'r[01]'"):
        forwarding_network(ring, forward)


def test_a_byte_order_mark_belongs_to_no_table(fabric: Fabric, tmp_path: Path) -> None:
    tables = forwarding(fabric, read_lfts(_tables(tmp_path, "\ufeff" + LEFT + RIGHT)))
    assert tables.notes == [] and tables.node_lid.tolist() == [3, 4, 5]


def test_tables_that_do_not_arrive_are_named(fabric: Fabric, tmp_path: Path) -> None:
    lfts = _tables(tmp_path, LEFT)
    scenario = _all_to_all(fabric.n_nodes, lfts)
    message = "no path from switch 'right' to switch 'left': the forwarding tables do not lead"
    with pytest.raises(FabricError, match=message) as caught:
        simulate(scenario)
    assert caught.value.file == lfts and "tables" in str(caught.value.remedy)


def test_rates_over_broken_tables_name_both_ends(fabric: Fabric, tmp_path: Path) -> None:
    lfts = _tables(tmp_path, LEFT)
    scenario = _all_to_all(fabric.n_nodes, lfts)
    message = "no path from node 'c HCA-1' to node '. HCA-1': the forwarding tables do not lead"
    with pytest.raises(FabricError, match=message) as caught:
        simulate_fluid(prepare(scenario))
    assert caught.value.file == lfts and "tables" in str(caught.value.remedy)


def test_the_node_name_decides_between_disagreeing_tables(fabric: Fabric, tmp_path: Path) -> None:
    """The left switch leads LID 5 to its own host a, the right one to c, whose label it bears."""
    text = LEFT.replace("0x0005 004", "0x0005 001") + RIGHT
    tables = forwarding(fabric, read_lfts(_tables(tmp_path, text)))
    lid = dict(zip(fabric.node_name, tables.node_lid.tolist(), strict=True))
    assert {name.split()[0]: number for name, number in lid.items()} == {"a": 3, "b": 4, "c": 5}


def test_port_guids_distinguish_hosts_of_one_name(tmp_path: Path) -> None:
    """A label has the GUID of the port, one or two above the adapter's; no cable leads there."""
    file = tmp_path / "fabric.txt"
    file.write_text(
        DISCOVERY.replace("a HCA-1", "twin")
        .replace("b HCA-1", "twin")
        .replace("[1](21)", "[1](22)")
    )
    twins = in_port_order(read_fabric(file))
    text = RIGHT.replace("a HCA-1", "twin").replace("b HCA-1", "twin")
    text = text.replace("0000000021", "0000000022")
    tables = forwarding(twins, read_lfts(_tables(tmp_path, text)))
    lid = dict(zip(twins.node_name, tables.node_lid.tolist(), strict=True))
    assert lid["twin 0x0000000000000010"] == 3 and lid["twin 0x0000000000000020"] == 4


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_tables_in_utf16_are_told_as_such(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "lfts.txt"
    file.write_bytes(("\ufeff" if encoding.endswith("be") else "").encode(encoding))
    file.write_bytes(file.read_bytes() + LEFT.encode(encoding))
    with pytest.raises(FabricError, match="UTF-16") as caught:
        read_lfts(file)
    assert caught.value.file == file and "iconv" in str(caught.value.remedy)


def test_tables_in_a_circle_are_named_with_place(tmp_path: Path) -> None:
    (tmp_path / "fabric.txt").write_text(
        DISCOVERY.replace('[4] "S-0000000000000002"[4]', '[4] "S-0000000000000003"[4]')
        + '[4] "S-0000000000000003"[3] # "far" lid 6 4xFDR\n'
        + 'Switch 36 "S-0000000000000003" # "far" base port 0 lid 6 lmc 0\n'
        + '[1] "H-0000000000000040"[1](41) # "d HCA-1" lid 7 4xFDR\n'
    )
    to_d = "0x0007 003 : (Channel Adapter portguid 0x0000000000000041: 'd HCA-1')\n"
    lfts = _tables(tmp_path, LEFT + to_d + RIGHT + to_d)
    scenario = _all_to_all(4, lfts)
    with pytest.raises(FabricError, match="for 'd HCA-1' in a loop through 'left'") as caught:
        simulate(scenario)
    assert caught.value.file == lfts


def test_lmc_unreachable_and_tool_errors_are_noted(fabric: Fabric, tmp_path: Path) -> None:
    text = LEFT.replace(
        "5 valid",
        "0x0006 001 : (Channel Adapter portguid 0x11: 'a HCA-1')\n"
        "0x0007 255 : (Channel Adapter portguid 0x99: 'gone')\n"
        "0x0008 009 : (Channel Adapter portguid 0x98: 'away')\n5 valid",
    )
    text += RIGHT + "/usr/sbin/ibroute: iberror: failed: dump tables\n" + LEFT
    tables = forwarding(fabric, read_lfts(_tables(tmp_path, text)))
    notes = "\n".join(tables.notes)
    for part in (
        "LMC",
        "without a port",
        "errors of the tool",
        "more than once",
        "not nodes of the fabric",
    ):
        assert part in notes, notes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no forwarding table"),
        ("hello\n", "no forwarding table"),
        ("0x0001 001 : (x)\n", "line 1: an entry before any switch"),
        (LEFT.replace("0x0003 001", "0x00zz 001"), "line 6"),
        ("Unicast lids of what\n", "line 1"),
        (
            LEFT.replace("(left)", "(\x1b[31mother)").replace("left", "other"),
            "none of the 1 tables",
        ),
    ],
)
def test_broken_files_are_explained(fabric: Fabric, tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(FabricError) as error:
        forwarding(fabric, read_lfts(_tables(tmp_path, text)))
    assert says in str(error.value)
    assert "\x1b" not in str(error.value)


def test_a_missing_file_is_explained(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match="cannot be read"):
        read_lfts(tmp_path / "absent")


@pytest.mark.data
@pytest.mark.parametrize(("site", "nodes", "switches"), [("plafrim", 125, 9), ("avakas", 281, 25)])
def test_real_tables_lead_everybody_everywhere(site: str, nodes: int, switches: int) -> None:
    folder = real(f"netloc/{site}/ib-raw")
    fabric = in_port_order(read_fabric(next(folder.glob("ib-subnet*"))))
    tables = read_lfts(next(folder.glob("ibroutes*")))
    routes = forwarding(fabric, tables)
    assert len(tables.switches) == fabric.n_switches == switches
    assert (routes.node_lid > 0).sum() == fabric.n_nodes == nodes
    assert (routes.link != NO_ENTRY).all()
    # What the tables deliver by cable agrees with what they say by name.
    for node, lid in enumerate(routes.node_lid.tolist()):
        assert tables.owner[lid][0] in fabric.node_name[node]
    routing = _core.NetworkRouting.of_network(forwarding_network(fabric, routes.link))
    require_deadlock_free(fabric, routing)
    source = np.arange(nodes)
    for node in range(0, nodes, 7):
        assert all(len(routing.path(int(s), node, 0, 0)) <= 6 for s in source)
