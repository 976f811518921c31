"""What counters alone say of ports and of classes of ports."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest

from tailback.fabric.builders import PRESETS, fat_tree
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric
from tailback.port_counters.analysis import classes, verdict
from tailback.port_counters.analysis.limits import Origins, limits, origins, roots
from tailback.port_counters.analysis.port_inventory import Wiring
from tailback.port_counters.findings.port_events import READINGS as EVENTS
from tailback.port_counters.findings.port_events import port_events
from tailback.port_counters.schema import INTERVALS, CounterError, conform
from tailback.scenario.model import FatTree
from tests.factories.public_data import real

MINUTE = 60 * 10**9


def hour(name: str, stall: list[float | None], used: list[float | None]) -> pl.DataFrame:
    """Minutes of a port."""
    return conform(
        INTERVALS,
        pl.DataFrame(
            {
                "node_name": name,
                "port": 1,
                "direction": "up",
                "stall_fraction": stall,
                "utilization": used,
                "interval_ns": MINUTE,
                "capacity_gbps": 100.0,
                "time_ns": [MINUTE * (1 + n) for n in range(len(stall))],
            }
        ),
    )


def classed(ports: pl.DataFrame) -> pl.DataFrame:
    return ports.with_columns(category=pl.lit("ToR"), port_type=pl.lit("up"))


def test_a_port_counts_by_its_known_time() -> None:
    latched: list[float | None] = [1.0, *[None] * 59]
    rows = pl.concat(
        [
            hour("a", latched, [0.5] * 60),
            hour("b", [0.0] * 60, [0.1, *[None] * 59]),
            hour("c", [None] * 60, [None] * 60),
        ]
    )
    ports = verdict.by_port(rows.lazy())
    by_name = {row["node_name"]: row for row in ports.iter_rows(named=True)}
    assert [by_name[n]["stall_known_intervals"] for n in "abc"] == [1, 60, 0]
    stall_s = [by_name[n]["stall_known_seconds"] for n in "abc"]
    use_s = [by_name[n]["use_known_seconds"] for n in "abc"]
    assert (stall_s, use_s) == (pytest.approx([60, 3600, 0]), pytest.approx([3600, 60, 0]))
    group = verdict.by_group(classed(ports)).row(0, named=True)
    assert group["intervals"] == 180
    assert group["stall_fraction"] == pytest.approx(1 / 61)
    assert group["stalled_percent"] == pytest.approx(100 / 61)
    assert group["utilization"] == pytest.approx((60 * 0.5 + 0.1) / 61)
    nothing = verdict.by_group(classed(ports.filter(pl.col("node_name") == "c")))
    for column in ("stall_fraction", "stalled_percent", "utilization"):
        assert nothing[column].to_list() == [None]


def tree() -> Fabric:
    """Two leaves of two hosts each below two spines."""
    return fat_tree(FatTree(hosts_per_leaf=2, leaves=2, aggregation=2))


def judged(
    fabric: Fabric, stalled: dict[str, float], used: dict[str, float], unread: tuple[str, ...] = ()
) -> verdict.Verdict:
    """A minute of every port; ports are given as ``device → peer``."""
    names = link_names(fabric)
    assert set(stalled) | set(used) | set(unread) <= set(names)
    rows = conform(
        INTERVALS,
        pl.DataFrame(
            {
                "node_name": [name.split(" → ")[0] for name in names],
                "port": fabric.link_src_port,
                "stall_fraction": [stalled.get(name, 0.0) for name in names],
                "utilization": [used.get(name, 0.1) for name in names],
                "interval_ns": MINUTE,
                "time_ns": MINUTE,
                "capacity_gbps": 100.0,
            }
        ),
    )
    rows = rows.filter(~pl.Series([name in unread for name in names]))
    return verdict.assess(verdict.by_port(rows.lazy()), classes.classify(fabric), threshold=0.01)


def link_names(fabric: Fabric) -> list[str]:
    ends = zip(fabric.link_src, fabric.link_dst, strict=True)
    return [f"{fabric.vertex_name(int(a))} → {fabric.vertex_name(int(b))}" for a, b in ends]


def full_names(queue_origins: Origins, fabric: Fabric) -> list[str]:
    return [link_names(fabric)[link] for link in queue_origins.full["link"]]


@pytest.mark.parametrize(
    ("stalled", "used", "unread", "expected"),
    [
        # The far side of the tree: leaf 0 waits for spine 2, which is full towards leaf 1.
        ({"leaf0 → agg2": 0.3}, {"agg2 → leaf1": 0.9}, (), ["agg2 → leaf1"]),
        # Spine 2 waits as well: the start is the port to the host behind it.
        (
            {"leaf0 → agg2": 0.3, "agg2 → leaf1": 0.2},
            {"leaf1 → n2": 0.9, "leaf1 → n3": 0.2},
            (),
            ["leaf1 → n2"],
        ),
        # A port that was not read may pass the waiting on.
        ({"leaf0 → agg2": 0.3}, {"leaf1 → n2": 0.9}, ("agg2 → leaf1",), ["leaf1 → n2"]),
        # One that was read and does not wait passes nothing on.
        ({"leaf0 → agg2": 0.3}, {"leaf1 → n2": 0.9}, (), []),
        # Ports beside and before the stalled one are full, none after it.
        (
            {"leaf0 → agg2": 0.3},
            {
                "leaf0 → agg3": 0.9,
                "n0 → leaf0": 0.9,
                "leaf0 → n1": 0.9,
                "agg3 → leaf1": 0.9,
                "agg2 → leaf0": 0.9,
            },
            (),
            [],
        ),
        # No route goes up again after it went down.
        ({"agg2 → leaf1": 0.3}, {"leaf1 → agg3": 0.9}, (), []),
        ({"leaf0 → n0": 0.3}, {"leaf0 → agg2": 0.9, "agg2 → leaf1": 0.9}, (), []),
    ],
)
def test_waiting_begins_only_downstream_of_ports_that_wait(
    stalled: dict[str, float], used: dict[str, float], unread: tuple[str, ...], expected: list[str]
) -> None:
    fabric = tree()
    analysis = judged(fabric, stalled, used, unread)
    places = origins(analysis, Wiring.of(fabric))
    assert full_names(places, fabric) == expected
    assert places.at_hosts.height == ("leaf0 → n0" in stalled)
    text = roots(analysis, Wiring.of(fabric))
    if "leaf0 → n0" in stalled:
        assert "1 waiting port, like leaf0[1], leads to a host" in text
    else:
        assert text.startswith("1 port downstream" if expected else "no port that was read")
    assert "give fabric=" in roots(analysis, None) and origins(analysis, None).full.is_empty()


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        # The switch says so itself, whatever the use; what waits behind it is not followed.
        (("agg2 → leaf1",), ["agg2 → leaf1"]),
        (("leaf1 → n2",), ["leaf1 → n2"]),
        # Beside the path of what waits.
        (("agg3 → leaf1", "leaf0 → n1"), []),
    ],
)
def test_waiting_begins_at_ports_in_congested_state(
    declared: tuple[str, ...], expected: list[str]
) -> None:
    fabric = tree()
    names = link_names(fabric)
    counted = [
        (at, 0, name.split(" → ")[0], int(fabric.link_src_port[names.index(name)]), None, ticks)
        for name in declared
        for at, ticks in ((0, 0), (MINUTE, 7000))
    ]
    schema = {name: dtype for name, dtype in EVENTS.items() if name != "counter"}
    readings = pl.DataFrame(counted, schema=schema, orient="row")
    analysis = dataclasses.replace(
        judged(fabric, {"leaf0 → agg2": 0.3, "agg2 → leaf1": 0.2}, {"leaf1 → n2": 0.2}),
        events=port_events(readings.with_columns(counter=pl.lit("PortXmitTimeCong"))),
    )
    places = origins(analysis, Wiring.of(fabric))
    assert [names[link] for link in places.declared["link"]] == expected
    assert ("in the congested state" in roots(analysis, Wiring.of(fabric))) == bool(expected)
    assert [row["node_name"] for row in limits(analysis, Wiring.of(fabric))["congested_ports"]] == [
        name.split(" → ")[0] for name in expected
    ]


def test_an_unreachable_full_port_is_not_named() -> None:
    """Drawn stalls: every port that is named lies on an up/down path from a waiting port."""
    draw = np.random.default_rng(5)
    fabric = tree()
    names = link_names(fabric)
    up = fabric.link_up
    for _ in range(50):
        stalled = {name: 0.3 for name in names if draw.random() < 0.2}
        used = {name: 0.9 for name in names if draw.random() < 0.4}
        queue_origins = origins(judged(fabric, stalled, used), Wiring.of(fabric))
        reached = {names.index(name) for name in stalled}
        for _ in range(4):  # no path is longer
            reached |= {
                after
                for link in reached
                for after in range(fabric.n_links)
                if fabric.link_src[after] == fabric.link_dst[link]
                and fabric.link_dst[after] != fabric.link_src[link]
                and fabric.link_dst[link] >= fabric.n_nodes
                and not (up[link] < 0 < up[after])
            }
        assert set(queue_origins.full["link"].to_list()) <= reached


def test_classes_of_a_fat_tree() -> None:
    fabric = fat_tree(PRESETS["tapered"])
    table = classes.classify(fabric)
    assert table.height == fabric.n_links
    kinds = {(c, t) for c, t in table.select("category", "port_type").rows()}
    assert kinds == {
        ("Host", "up"),
        ("ToR", "down"),
        ("ToR", "up"),
        ("Leaf", "down"),
        ("Leaf", "up"),
        ("Spine", "down"),
    }
    named = classes.classify(fabric, {"Glade": f"^{fabric.node_name[0][:2]}"})
    assert any(c.startswith("Glade") for c in named["category"].unique())
    with pytest.raises(CounterError, match="not a regular expression"):
        classes.classify(fabric, {"X": "("})


def test_rows_of_unknown_ports_are_noted() -> None:
    table = pl.DataFrame([("tor000", 1, 0, "ToR", "down")], schema=classes.CLASSES, orient="row")
    frame = pl.DataFrame(
        {"node_name": ["tor000", "<script>"], "port": [1, 1], "link": [None, None]},
        schema_overrides={"port": pl.UInt16, "link": pl.UInt32},
    )
    out, notes = classes.attach(frame, table)
    assert out["category"].to_list() == ["ToR", None]
    assert out["link"].to_list() == [0, None]
    assert "1 rows" in notes[0]


@pytest.mark.data
def test_classes_of_a_discovery_match_its_counters() -> None:
    from tailback.port_counters.readers import read_counters

    fabric = read_fabric(real("ibsim-samples/ys135.ibnetdiscover.txt"))
    counters = read_counters(real("ibsim-samples/ys135.ibqueryerrors-data.txt")).readings
    out, notes = classes.attach(counters, classes.classify(fabric))
    assert notes == []
    assert set(out["category"].unique()) == {"Host", "ToR", "Leaf", "Spine"}
