"""Counters of ports whose far ends are others than those of the fabric."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tailback.evidence.counter_alignment import JoinError
from tailback.inference.evidence import _without_contradicted
from tailback.port_counters.far_ends import Contradiction
from tests.factories.counted_links import egress, small_tree


def test_contradicted_ports_name_no_cable() -> None:
    """Refused where the job used the cable; else both of its ports are left out, which is said."""
    fabric = small_tree()
    link = egress(fabric, 0)
    back = int(fabric.link_reverse[link])
    name, port = fabric.vertex_name(int(fabric.link_src[link])), int(fabric.link_src_port[link])
    moved = Contradiction(name, port, f"{name}[{port}]", "leaf1", fabric.port_name(back))
    rows = pl.DataFrame({"link": [link, back, egress(fabric, 1), None]}, schema={"link": pl.UInt32})
    with pytest.raises(JoinError, match=r"is connected to leaf1 by the counters and to") as caught:
        _without_contradicted(rows, [moved], [back, link], fabric, Path("c.csv"))
    assert caught.value.file == Path("c.csv") and "fabric" in str(caught.value.remedy)
    kept, (note,) = _without_contradicted(rows, [moved], [], fabric, Path("c.csv"))
    assert kept["link"].to_list() == [egress(fabric, 1), None]
    assert note.startswith("ports of 1 cable not used: counters and cabling contradict each other")
    assert _without_contradicted(rows, [], [link], fabric, Path("c.csv"))[1] == []
