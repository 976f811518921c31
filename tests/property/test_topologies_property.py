"""For topologies of any shape: counts by formula, routes arrive in bounded hops, no deadlock."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailback.errors import FabricError
from tailback.fabric.builders import network_of, require_deadlock_free
from tailback.fabric.lft import NO_ENTRY, ForwardingTables, _parse
from tailback.fabric.topologies import parse

small = st.integers(1, 4)


@st.composite
def grids(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["torus", "mesh", "hyperx"]))
    dims = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(_at_most_60))
    return {"kind": kind, "dims": dims, "nodes_per_switch": draw(st.integers(1, 2))}


def _at_most_60(dims: list[int]) -> bool:
    product = 1
    for size in dims:
        product *= size
    return product <= 60


@st.composite
def dragonflies(draw: st.DrawFn) -> dict[str, Any]:
    plus = draw(st.booleans())
    switches, ports = draw(small), draw(small)
    groups = draw(st.integers(1, min(switches * ports + 1, 7)))
    arrangement = draw(st.sampled_from(["palmtree", "consecutive"]))
    common = {"global_ports": ports, "groups": groups, "global_cables": arrangement}
    if plus:
        sizes = {"nodes_per_leaf": draw(small), "leaves": draw(small), "spines": switches}
        return {"kind": "dragonfly-plus", **common, **sizes}
    return {"kind": "dragonfly", **common, "nodes_per_router": draw(small), "routers": switches}


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Any]:
    h = draw(st.integers(1, 3))
    level = st.lists(st.integers(1, 3), min_size=h - 1, max_size=h - 1)
    children = draw(st.lists(small, min_size=h, max_size=h))
    parents, cables = [1, *draw(level)], [1, *draw(level)]
    return {"kind": "pgft", "children": children, "parents": parents, "cables": cables}


@given(st.one_of(grids(), dragonflies(), trees()), st.integers(0, 2**16))
def test_routes_arrive_and_never_deadlock(options: dict[str, Any], pick: int) -> None:
    topology = parse(options)
    fabric = topology.fabric()
    assert (fabric.n_nodes, fabric.n_switches, fabric.n_links // 2) == topology.counts()
    network = network_of(fabric)
    for rule in topology.rules():
        routing = topology.routing(network, rule)
        require_deadlock_free(fabric, routing)
        bound = 2 * fabric.n_switches if rule == "up-down" else 2 * (2 + sum(_lengths(options)))
        for source in {0, fabric.n_nodes // 2, fabric.n_nodes - 1}:
            for node in {0, fabric.n_nodes // 3, fabric.n_nodes - 1}:
                via = pick % routing.detours if routing.detours else NO_ENTRY
                path = routing.path(source, node, via, pick)
                assert len(path) <= bound
                assert all(lane < routing.lanes for _, lane in path)


def _lengths(options: dict[str, Any]) -> list[int]:
    """What bounds a minimal route: sizes of a grid, three hops of a dragonfly, levels of a tree."""
    return list(options.get("dims", [3]))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["Unicast lids [0x0-0x5] of switch Lid 1 guid 0x1 (a):", "0x0001 001 : (Switch)"]
            ),
            st.from_regex(r"0x[0-9a-f]{1,5} [0-9U]{1,4}( : \(.{0,20})?", fullmatch=True),
            st.text(max_size=40),
        ),
        max_size=8,
    )
)
def test_any_text_is_tables_or_a_fabric_error(lines: list[str]) -> None:
    try:
        _parse("\n".join(lines), ForwardingTables(), {})
    except FabricError as error:
        assert error.place is not None
