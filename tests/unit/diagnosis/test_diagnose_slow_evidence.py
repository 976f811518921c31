"""A cable is called slow on proof only: healthy ones among uneven traffic of others are not."""

from __future__ import annotations

from typing import Any

import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.model import Finding
from tests.factories.slow_cables import seen_by_user, with_slow

TWO_LEVELS = {"hosts_per_leaf": 16, "leaves": 8, "aggregation": 8}
THREE_LEVELS = {
    "hosts_per_leaf": 8,
    "leaves": 4,
    "aggregation": 4,
    "pods": 4,
    "cores": 8,
    "aggregation_uplinks": 2,
}


def shared(tree: dict[str, int], seed: int) -> dict[str, Any]:
    """A ring on every other host, among uniform random traffic of a job that we cannot see."""
    jobs = [
        {
            "name": name,
            "hosts": ",".join(map(str, range(first, 128, 2))),
            "observed": first == 0,
            "pattern": {
                "kind": kind,
                "ranks": 64,
                "messages": 3,
                "size": "128 KiB",
                "post": "sequence",
            },
        }
        for first, (name, kind) in enumerate((("ring", "ring"), ("others", "uniform")))
    ]
    engine = {
        "packet": "2 KiB",
        "buffer": "64 KiB",
        "buffering": "output",
        "routing": "adaptive",
        "eager": "1 MiB",
    }
    return {"seed": seed, "fabric": {"fat_tree": tree}, "job": jobs, "engine": engine}


def slow_links(data: dict[str, Any]) -> Finding | None:
    """What TB007 says of a bare run: nothing is simulated again."""
    findings = diagnose_cause(seen_by_user(data)[0]).findings
    return next((finding for finding in findings if finding.code == "TB007"), None)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("tree", [TWO_LEVELS, THREE_LEVELS], ids=["two levels", "three levels"])
def test_traffic_of_others_makes_no_healthy_cable_suspect(tree: dict[str, int], seed: int) -> None:
    assert slow_links(shared(tree, seed)) is None


@pytest.mark.parametrize(
    ("cable", "routing"), [("leaf2[7]", "random"), ("leaf1[5]", "adaptive"), ("leaf3[2]", "random")]
)
def test_a_slow_cable_is_named_and_no_other(cable: str, routing: str) -> None:
    """Up-links, and the cable of a host."""
    finding = slow_links(with_slow((cable, "10 Gb/s"), engine={"routing": routing}))
    assert finding is not None and finding.links
    switch = cable.partition("[")[0]
    ends = {name for link in finding.links for name in link.name.split(" → ")}
    assert all(cable in link.name or switch in link.name for link in finding.links), ends
    assert len(finding.links) <= 2
