"""Placements are ordered by the time that the busiest link needs for its bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tailback as tb
from tailback.simulation import busiest_link_ps, prepare, routes_for
from tests.factories.cli import tailback

LINKS = """src,dst,iface,rate_gbit
n0,leaf0,1,100
n1,leaf0,2,100
n2,leaf1,1,100
n3,leaf1,2,100
leaf0,spine,3,{rate}
leaf1,spine,3,100
"""


def scenario(folder: Path, rate: int, pattern: dict[str, object]) -> tb.Scenario:
    (folder / "links.csv").write_text(LINKS.format(rate=rate))
    return tb.load_scenario(
        {"fabric": {"file": str(folder / "links.csv")}, "job": [{"pattern": pattern}]}
    )


@pytest.mark.parametrize(
    ("node", "rate", "messages", "gbps"),
    [
        # Each rank sends to the next; an up-link has one or two of these messages.
        ([0, 1, 2, 3], 100, 1, 100),
        ([0, 2, 1, 3], 100, 2, 100),
        ([0, 1, 2, 3], 50, 1, 50),
        ([0, 2, 1, 3], 20, 2, 20),
    ],
    ids=["neighbours", "crossing", "slow up-link", "crossing a slow up-link"],
)
def test_busiest_link_is_that_of_the_formula(
    tmp_path: Path, node: list[int], rate: int, messages: int, gbps: int
) -> None:
    """Bytes over rate, the largest over all links (Hoefler and Snir 2011)."""
    pattern = {"kind": "ring", "ranks": 4, "size": "1 MiB"}
    prepared = prepare(scenario(tmp_path, rate, pattern))
    sent = prepared.observed.program.traffic_matrix()[2]
    assert len(set(sent.tolist())) == 1
    routes = routes_for(prepared.scenario, prepared.fabric, prepared.slots().tolist())
    busiest_ps = busiest_link_ps(prepared, routes, np.array(node, np.uint32))
    assert busiest_ps == pytest.approx(messages * int(sent[0]) * 8000 / gbps)


def test_order_without_simulation_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pattern = {"kind": "ring", "ranks": 4, "size": "1 MiB"}
    placed = tb.place(scenario(tmp_path, 100, pattern), methods=["random", "block"])
    busiest = placed.frame["busiest_link_ps"].to_list()
    assert busiest == sorted(busiest) and placed.best == placed.frame["placement"][0]
    job = '[[job]]\npattern = { kind = "ring", ranks = 4, size = "1 MiB" }\n'
    (tmp_path / "s.toml").write_text('[fabric]\nfile = "links.csv"\n' + job)
    assert tailback(["place", str(tmp_path / "s.toml"), "--quiet"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "busiest link" in shown and "--simulate orders by simulated time" in shown
