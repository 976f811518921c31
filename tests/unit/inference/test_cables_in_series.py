"""Links over which exactly the same messages travel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.inference.measured_cables import links_in_series
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tests.factories.forwarding_tables import DISCOVERY, LEFT, RIGHT


@pytest.mark.parametrize("tables", [True, False])
def test_links_of_equal_host_pairs_are_in_series(tmp_path: Path, tables: bool) -> None:
    (tmp_path / "fabric.txt").write_text(DISCOVERY)
    (tmp_path / "lfts.txt").write_text(LEFT + RIGHT)
    files = {"file": str(tmp_path / "fabric.txt")}
    if tables:
        files["forwarding"] = str(tmp_path / "lfts.txt")
    job = {"pattern": {"kind": "alltoall", "ranks": 3, "size": "4 KiB"}}
    prepared = prepare(parse({"fabric": files, "job": [job]}))
    run = simulate(prepared.scenario)
    fabric = prepared.fabric
    name = {fabric.link_name(link): link for link in range(fabric.n_links)}

    def in_series(link: str) -> set[str]:
        return {fabric.link_name(number) for number in links_in_series(name[link], prepared, run)}

    # All that c receives crosses one cable between the switches; what it sends takes two.
    to_c = next(link for link in name if link.startswith("right[1]"))
    assert in_series(to_c) == ({"left[4] → right[4]"} if tables else set())
    from_c = next(link for link in name if link.startswith("c "))
    assert in_series(from_c) == set()
    # Only one pair uses this cable.
    assert in_series("right[3] → left[3]") == set()
