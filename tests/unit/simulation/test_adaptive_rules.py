"""How adaptive routing compares ports: which port must be taken, worked out by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tailback import Scenario, TailbackError
from tailback.scenario.model import parse
from tailback.simulation import simulate

PACKETS = 8


def scenario(adaptive: dict[str, Any], **engine: Any) -> Scenario:
    """Host 0 sends 8 packets of 4096 B to the other leaf over two spines, 5 us away.

    At 100 Gb/s a packet takes 327.68 ns, so the last leaves the first switch 2.7 us after the first
    one and before any credit has come back, which takes 10 us.
    """
    return parse(
        {
            "fabric": {
                "fat_tree": {
                    "hosts_per_leaf": 1,
                    "leaves": 2,
                    "aggregation": 2,
                    "leaf_delay": "5 us",
                }
            },
            "job": [
                {"pattern": {"kind": "timed", "ranks": 2, "messages": [[0, 0, 1, PACKETS * 4096]]}}
            ],
            "engine": {
                "packet": "4 KiB",
                "buffer": "64 KiB",
                "send_delay": "0 s",
                "eager": "1 MiB",
                **engine,
                "adaptive": adaptive,
            },
        }
    )


def up_links(case: Scenario) -> list[int]:
    """Packets on each of the first leaf's links to the spines."""
    run = simulate(case, threads=1)
    links = run.tables["links"].filter((pl.col("tier") == 1) & (pl.col("direction") == "up"))
    links = links.filter(pl.col("src") == pl.col("src").min())
    counts = run.tables["truth"].group_by("link").agg(pl.col("packets").sum())
    return links.join(counts, on="link", how="left").sort("link")["packets"].fill_null(0).to_list()


@pytest.mark.parametrize(
    ("adaptive", "engine", "expected"),
    [
        # Each packet arrives as the one before has left: both queues are empty.
        ({"ties": "lowest"}, {}, [8, 0]),
        # Its credit has not come back: the other port, and of equal ones the lowest again.
        ({"ties": "lowest", "load": "queue-and-credit"}, {}, [4, 4]),
        # The first packet chooses for all.
        ({"ties": "lowest", "load": "queue-and-credit", "per": "message"}, {}, [8, 0]),
        # Chunks of 3, 3 and 2 packets, each by the port with less unreturned credit.
        (
            {"ties": "lowest", "load": "queue-and-credit", "per": "chunk", "chunk": "12 KiB"},
            {},
            [5, 3],
        ),
        # A packet belongs to the chunk of its first byte: 3, 2, 3. The last chunk takes the port of
        # the second, which has less to be returned.
        (
            {"ties": "lowest", "load": "queue-and-credit", "per": "chunk", "chunk": "10 KiB"},
            {},
            [3, 5],
        ),
        # A packet each 655.36 ns: each is a flowlet, or all are one.
        (
            {"ties": "lowest", "load": "queue-and-credit", "per": "flowlet", "gap": "655 ns"},
            {"injection_rate": "50 Gb/s"},
            [4, 4],
        ),
        (
            {"ties": "lowest", "load": "queue-and-credit", "per": "flowlet", "gap": "656 ns"},
            {"injection_rate": "50 Gb/s"},
            [8, 0],
        ),
    ],
)
def test_the_port_is_that_calculated_by_hand(
    adaptive: dict[str, Any], engine: dict[str, Any], expected: list[int]
) -> None:
    assert up_links(scenario(adaptive, **engine)) == expected


def test_a_flow_keeps_its_path() -> None:
    """Six messages of one flow, one after another; without a flow, each chooses anew."""
    for per, ports in (("flow", 1), ("message", 2)):
        several = scenario({"per": per}).model_dump(exclude_unset=True)
        times = range(0, 600_000_000, 100_000_000)
        several["job"][0]["pattern"]["messages"] = [[at, 0, 1, 4096] for at in times]
        assert len([packets for packets in up_links(parse(several)) if packets]) == ports


def test_ties_are_random_by_default() -> None:
    packets_by_seed = [
        up_links(scenario({}).model_copy(update={"seed": seed})) for seed in range(4)
    ]
    assert any(0 < packets < PACKETS for packets, _ in packets_by_seed)
    per_message = [
        up_links(scenario({"per": "message"}).model_copy(update={"seed": seed}))
        for seed in range(8)
    ]
    assert {tuple(packets) for packets in per_message} == {(8, 0), (0, 8)}


def test_a_loaded_drawn_port_yields_to_the_lowest() -> None:
    """Eight packets and 16 ports, none of whose credit returns in time.

    Of the ports with a packet one is drawn with chance k/16 for packet k, and the lowest of those
    without one is taken. So port 0 stays free with chance (15 · 14 · … · 8) / 16^8 = 0.06; if the
    next port from the drawn one on were taken, with 8/16.
    """
    used = []
    for seed in range(20):
        rule = {"ties": "random-or-lowest", "load": "queue-and-credit"}
        case = scenario(rule).model_copy(update={"seed": seed})
        tree = case.fabric.fat_tree
        assert tree is not None
        case.fabric.fat_tree = tree.model_copy(update={"aggregation": 16})
        packets = up_links(case)
        assert sorted(packets) == [0] * 8 + [1] * 8
        used.append(packets[0])
    assert sum(used) >= 17


def test_the_number_of_threads_changes_nothing() -> None:
    for per in ("packet", "message", "chunk", "flowlet"):
        case = scenario({"load": "queue-and-credit", "per": per})
        case.fabric.fat_tree = parse(
            {
                "fabric": {
                    "fat_tree": {
                        "hosts_per_leaf": 4,
                        "leaves": 4,
                        "aggregation": 3,
                        "leaf_delay": "50 ns",
                    }
                },
                "job": [{"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}],
            }
        ).fabric.fat_tree
        case.job[0].pattern = {
            "kind": "uniform",
            "ranks": 16,
            "size": "40 KiB",
            "messages": 3,
            "post": "all",
        }
        single, parallel = (simulate(case, threads=threads) for threads in (1, 2))
        for table in ("truth", "messages"):
            assert single.tables[table].equals(parallel.tables[table]), (per, table)


def test_rules_without_effect_are_refused() -> None:
    with pytest.raises(TailbackError, match="no effect with routing = random") as refused:
        scenario({"ties": "lowest"}, routing="random")
    assert refused.value.remedy == 'set routing = "adaptive", or leave [engine.adaptive] out'
    with pytest.raises(TailbackError, match="gap has no effect with per = packet"):
        scenario({"gap": "1 us"})
    with pytest.raises(TailbackError, match="chunk has no effect with per = packet"):
        scenario({"chunk": "1 KiB"})
