"""What the core complains of reaches the user by its kind, not by its wording."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback import _core
from tailback.errors import FabricError, ScenarioError, TailbackError, TraceError
from tailback.fabric.builders import fat_tree, network_of
from tailback.fabric.core_errors import translate_core_error
from tailback.fabric.model import Fabric, in_port_order
from tailback.scenario.model import FatTree, parse
from tailback.simulation import prepare, simulate
from tailback.traffic.program import Op


def two_islands() -> Fabric:
    """Two leaves of two hosts without their cables to the one above them."""
    fabric = fat_tree(FatTree(hosts_per_leaf=2, leaves=2, aggregation=1))
    keep = (fabric.link_src < fabric.n_nodes) | (fabric.link_dst < fabric.n_nodes)
    place = np.cumsum(keep) - 1
    changed = {
        name: getattr(fabric, name)[keep]
        for name in (
            "link_src",
            "link_dst",
            "link_src_port",
            "link_dst_port",
            "link_gbps",
            "link_delay_ps",
        )
    }
    reverse = place[fabric.link_reverse[keep]].astype(np.uint32)
    return in_port_order(replace(fabric, **changed, link_reverse=reverse))


def test_places_without_a_path_have_user_names() -> None:
    fabric = two_islands()
    routing = _core.NetworkRouting.of_network(network_of(fabric))
    with pytest.raises(FabricError) as caught, translate_core_error("[engine]", fabric=fabric):
        routing.path(0, 3, 0, 0)
    first, other = fabric.switch_name[:2]
    assert f"no path from switch {first!r} to switch {other!r}" in caught.value.message
    assert caught.value.remedy is not None and "cables" in caught.value.remedy


@pytest.mark.parametrize(
    ("kind", "becomes"),
    [
        (_core.DeadlockError, FabricError),
        (_core.BadProgramError, TraceError),
        (ValueError, ScenarioError),
        (OverflowError, ScenarioError),
    ],
)
def test_the_wording_does_not_matter(kind: type[Exception], becomes: type[TailbackError]) -> None:
    file = Path("fabric.txt")
    text = "rank 3 sends on a network that is not connected, deadlocked, blocked for ever"
    with pytest.raises(TailbackError) as caught, translate_core_error("[engine]", file=file):
        raise kind(text)
    assert type(caught.value) is becomes
    assert text in caught.value.message and caught.value.remedy
    assert caught.value.place == ("[engine]" if becomes is ScenarioError else None)


def test_ranks_waiting_for_ever_are_the_traffics_fault() -> None:
    scenario = parse(
        {
            "fabric": {"fat_tree": {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}},
            "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "64 KiB"}}],
        }
    )
    prepared = prepare(scenario)
    # No receive takes what is sent, as in a trace that was cut.
    program = prepared.observed.program
    program.tag[program.kind == Op.IRECV] += 1
    with pytest.raises(TraceError, match="rank"):
        simulate(prepared.with_program(program))


def test_nodes_switches_and_links_are_named() -> None:
    fabric = fat_tree(FatTree(hosts_per_leaf=2, leaves=2, aggregation=1))
    error = _core.BadFabricError("node 1, switch 2, link 0")
    error.parts = [("node", 1), ", ", ("switch", 2), ", ", ("link", 0)]
    with pytest.raises(FabricError) as caught, translate_core_error("[engine]", fabric=fabric):
        raise error
    node, switch = fabric.node_name[1], fabric.switch_name[2]
    assert caught.value.message == f"{node!r}, {switch!r}, {fabric.link_name(0)}"


def test_a_node_with_two_cables_gets_a_remedy() -> None:
    fabric = fat_tree(FatTree(hosts_per_leaf=2, leaves=2, aggregation=1))
    twice = replace(fabric, link_src=fabric.link_src.copy(), link_dst=fabric.link_dst.copy())
    # The second node's cable, plugged into the first node as well.
    twice.link_src[1], twice.link_dst[fabric.link_reverse[1]] = 0, 0
    with pytest.raises(FabricError, match=f"{fabric.node_name[0]!r} has 2 cables") as caught:
        network_of(twice)
    assert caught.value.remedy is not None and "one cable" in caught.value.remedy


@pytest.mark.parametrize(
    ("section", "place"),
    [
        (
            {
                "fat_tree": {
                    "hosts_per_leaf": 2,
                    "leaves": 2,
                    "aggregation": 1,
                    "leaf_delay": "5 ms",
                }
            },
            "[fabric.fat_tree] leaf_delay",
        ),
        (
            {"topology": {"kind": "torus", "dims": [2, 2], "delay": "5 ms"}},
            "[fabric.topology] delay",
        ),
    ],
)
def test_a_delay_in_a_wrong_unit_is_named(section: dict[str, Any], place: str) -> None:
    job = {"pattern": {"kind": "ring", "ranks": 4, "size": "64 KiB"}}
    scenario = parse({"fabric": section, "job": [job]})
    with pytest.raises(FabricError, match=r"\[\d+\] → .* has a delay of 5 ms") as caught:
        simulate(prepare(scenario))
    assert caught.value.place == place and "5 ns per metre" in str(caught.value.remedy)
