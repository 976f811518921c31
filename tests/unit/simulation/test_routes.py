"""Routes on real fabrics: every parallel way is used."""

from __future__ import annotations

import polars as pl
import pytest

from tailback.scenario.model import parse
from tailback.simulation import simulate
from tests.factories.public_data import real


@pytest.mark.data
@pytest.mark.slow
def test_a_stray_management_switch_keeps_the_cores() -> None:
    # Four pairs of Selene's management leaves have no common ancestor. Compute traffic must still
    # spread over the cores, not be sent through the root of a breadth-first tree.
    run = simulate(
        parse(
            {
                "fabric": {"file": real("selene/selene.compute.txt")},
                "job": [{"pattern": {"kind": "uniform", "ranks": 458, "size": "64 KiB"}}],
            }
        )
    )
    traffic = run.tables["truth"].group_by("link").agg(pl.col("packets").sum())
    links = run.tables["links"].join(traffic, on="link")
    into_cores = links.filter((pl.col("tier") == 2) & (pl.col("direction") == "up"))
    share = into_cores.group_by("dst").agg(pl.col("packets").sum())["packets"]
    assert len(share) > 50
    assert float(share.max()) < 0.1 * float(share.sum())
