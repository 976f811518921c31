"""Rates between the ranks of a host that differ from host to host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.errors import FabricError, ScenarioError
from tailback.evaluate import Change
from tailback.fabric.readers import read_fabric
from tailback.run import Run
from tailback.scenario import parse
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.simulation.fluid import simulate_fluid

SIZE = 2**20
TREE = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}
EDGES = """\
src,dst,rate_gbit
h0,l0,100
h1,l0,100
h0,h0,3600
"""


def pairs(**fabric: Any) -> dict[str, Any]:
    """Two ranks on each of two hosts; ranks 0 → 1 and 2 → 3 send 1 MiB within their hosts."""
    return {
        "fabric": {"fat_tree": TREE, **fabric},
        "job": [{"pattern": {"kind": "timed", "ranks": 4, "messages": [
            [0, 0, 1, SIZE], [0, 2, 3, SIZE]]}, "ranks_per_host": 2}],
        "engine": {"local_delay": 0, "send_delay": 0, "local_rate": "800 Gb/s"},
    }  # fmt: skip


def took(run: Run) -> list[int]:
    """Time of each message within its host, by sending rank."""
    log = run.tables["messages"].sort("src_rank")
    return (log["arrival_ps"] - log["start_ps"]).to_list()


@pytest.mark.parametrize("model", [simulate, lambda scenario: simulate_fluid(prepare(scenario))])
def test_each_host_has_its_own_rate(model: Any) -> None:
    rates = [{"hosts": "1", "rate": "200 Gb/s"}]
    assert took(model(parse(pairs()))) == pytest.approx([SIZE * 10] * 2, abs=1)
    assert took(model(parse(pairs(in_host=rates)))) == pytest.approx([SIZE * 10, SIZE * 40], abs=1)


def test_what_if_transfers_within_hosts_took_no_time() -> None:
    prepared = prepare(parse(pairs(in_host=[{"hosts": "all", "rate": "200 Gb/s"}])))
    evaluate = make_evaluate(prepared)
    assert took(evaluate(Change())) == pytest.approx([SIZE * 40] * 2, abs=1)
    assert took(evaluate(Change(in_host="free"))) == [1, 1]
    # On the ideal switch, which is another fabric, hosts keep their rates.
    assert took(evaluate(Change(network="star"))) == pytest.approx([SIZE * 40] * 2, abs=1)


def test_an_edge_list_states_the_rate_of_a_host(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(EDGES)
    fabric = read_fabric(tmp_path / "edges.csv")
    assert fabric.host_gbps is not None
    np.testing.assert_equal(fabric.host_gbps, [3600.0, np.nan])
    given = pairs(fat_tree=None, file=str(tmp_path / "edges.csv"))
    assert took(simulate(parse(given))) == pytest.approx([SIZE * 8 / 3.6, SIZE * 10], abs=1)
    # What the scenario says comes first.
    given["fabric"]["in_host"] = [{"hosts": "h0", "rate": "1600 Gb/s"}]
    assert took(simulate(parse(given))) == pytest.approx([SIZE * 5, SIZE * 10], abs=1)


@pytest.mark.parametrize(
    ("line", "error"),
    [("l0,l0,900\n", r"'l0' has a rate within itself, and is no host"),
     ("h0,h0,900\n", r"line 5.*'h0' has another rate within itself already")],
)  # fmt: skip
def test_wrong_lines_of_an_edge_list_are_refused(tmp_path: Path, line: str, error: str) -> None:
    (tmp_path / "edges.csv").write_text(EDGES + line)
    with pytest.raises(FabricError, match=error):
        read_fabric(tmp_path / "edges.csv")


@pytest.mark.parametrize(
    ("rates", "error"),
    [([{"hosts": "0-1", "rate": "1 Gb/s"}, {"hosts": "1", "rate": "2 Gb/s"}],
      r"\[\[fabric.in_host\]\] hosts: host .* has two rates"),
     ([{"hosts": "nowhere", "rate": "1 Gb/s"}], r"\[\[fabric.in_host\]\] hosts.*nowhere"),
     ([{"hosts": "0", "rate": "1e-13 Gb/s"}], r"\[\[fabric.in_host\]\] rate")],
)  # fmt: skip
def test_wrong_rates_are_refused(rates: list[dict[str, str]], error: str) -> None:
    with pytest.raises(ScenarioError, match=error):
        prepare(parse(pairs(in_host=rates)))
