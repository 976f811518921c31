"""Placements by measured congestion: from runs, counts of samples, captures and port counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tailback as tb
from tailback.cli import run as tailback
from tailback.errors import TailbackError
from tailback.fabric.builders import fat_tree
from tailback.fabric.model import Fabric
from tailback.scenario.model import FatTree

TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}
SCENARIO: dict[str, Any] = {
    "fabric": {"fat_tree": TREE},
    "job": [{"pattern": {"kind": "stencil2d", "dims": [2, 8], "size": "64 KiB"}}],
}
"""A strip of eight rows of two ranks, two rows under each leaf: the ends send half as much away."""

HOT = 1
"""The congested leaf, under which a middle part is without notice of it."""


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return fat_tree(FatTree(**TREE))


def links_of_hot_leaf(fabric: Fabric) -> list[int]:
    """Links between the congested leaf and the tier above."""
    leaf = fabric.n_nodes + HOT
    return [
        link
        for link in range(fabric.n_links)
        if fabric.link_src[link] == leaf and fabric.link_dst[link] >= fabric.n_nodes
    ]


def ranks_under_hot_leaf(placed: tb.PlacementResult, fabric: Fabric) -> set[int]:
    node = placed.nodes["incremental"]
    return set(np.flatnonzero(fabric.node_switch[node] == HOT).tolist())


def sent_away(ranks: set[int]) -> int:
    """Pairs of neighbours in the strip of which one rank is under the leaf."""
    pairs = [(rank, rank + 2) for rank in range(14)] + [
        (rank, rank + 1) for rank in range(0, 16, 2)
    ]
    return sum((a in ranks) != (b in ranks) for a, b in pairs)


def is_end(ranks: set[int]) -> bool:
    return ranks in ({0, 1, 2, 3}, {12, 13, 14, 15})


def samples_csv(folder: Path, fabric: Fabric) -> Path:
    hot = links_of_hot_leaf(fabric)
    rows = [f"a,b,{link},{int(link in hot)},4,100" for link in range(fabric.n_links)]
    path = folder / "samples.csv"
    path.write_text("\n".join(["src,dst,link,congested,hops,samples", *rows, ""]))
    return path


def counters_csv(folder: Path, fabric: Fabric) -> Path:
    """Two samples of UFM of every switch port, ten seconds apart."""
    lines = ["timestamp,node_guid,port_num,node_description,PortXmitWaitExtended"]
    hot = links_of_hot_leaf(fabric)
    for at in (0, 10):
        for link in range(fabric.n_links):
            source = int(fabric.link_src[link])
            if source >= fabric.n_nodes:
                ticks = at * 10**8 if link in hot else 0
                name, port = fabric.vertex_name(source), fabric.link_src_port[link]
                lines.append(f"{1_800_000_000 + at},0x{source + 1:x},{port},{name},{ticks}")
    path = folder / "ufm.csv"
    path.write_text("\n".join([*lines, ""]))
    return path


def test_without_congestion_a_middle_part_stays(fabric: Fabric) -> None:
    placed = tb.place(SCENARIO, methods=["incremental"])
    assert not is_end(ranks_under_hot_leaf(placed, fabric))


@pytest.mark.parametrize("source", [samples_csv, counters_csv])
def test_congestion_that_was_measured_is_avoided(
    source: Any, fabric: Fabric, tmp_path: Path
) -> None:
    measured = source(tmp_path, fabric)
    placed = tb.place(SCENARIO, methods=["incremental"], congestion=measured)
    assert is_end(ranks_under_hot_leaf(placed, fabric))


def test_a_run_among_other_traffic_tells_its_congestion(fabric: Fabric, tmp_path: Path) -> None:
    """Hosts under the leaf send to one another's neighbours; its samples are 5 + 1 bits."""
    pairs = [
        {"hosts": "4,8", "ranks": 2},
        {"hosts": "5,12", "ranks": 2},
        {"hosts": "6,9", "ranks": 2},
    ]
    others = [
        {
            "hosts": pair["hosts"],
            "pattern": {"kind": "ring", "ranks": 2, "size": "1 MiB", "messages": 4},
            "name": f"other{number}",
        }
        for number, pair in enumerate(pairs)
    ]
    scenario = {
        **SCENARIO,
        "job": others,
        "telemetry": {"scheme": "coordinated", "hash_bits": 5},
        "engine": {"routing": "deterministic"},
    }
    tb.simulate(scenario).write(tmp_path / "run")
    placed = tb.place(SCENARIO, methods=["incremental"], congestion=tmp_path / "run")
    unaware = tb.place(SCENARIO, methods=["incremental"])
    assert sent_away(ranks_under_hot_leaf(placed, fabric)) < sent_away(
        ranks_under_hot_leaf(unaware, fabric)
    )


def test_the_command_takes_it_and_refuses_another_fabric(
    fabric: Fabric, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = samples_csv(tmp_path, fabric)
    stencil = tmp_path / "stencil.toml"
    stencil.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 4\nleaves = 4\naggregation = 2\n"
        '[[job]]\n[job.pattern]\nkind = "stencil2d"\ndims = [2, 8]\nsize = "64 KiB"\n'
    )
    words = ["place", str(stencil), "--method", "incremental", "--congestion", str(measured)]
    assert tailback([*words, "--out", str(tmp_path / "ranks"), "--quiet"]) == 0
    capsys.readouterr()
    smaller = {**SCENARIO, "fabric": {"fat_tree": {**TREE, "aggregation": 1}}}
    with pytest.raises(TailbackError, match="no link"):
        tb.place(smaller, methods=["incremental"], congestion=measured)
    (tmp_path / "empty.csv").write_text("src,dst,link,congested,hops,samples\n")
    with pytest.raises(TailbackError, match="tells no congestion"):
        tb.place(SCENARIO, methods=["incremental"], congestion=tmp_path / "empty.csv")
