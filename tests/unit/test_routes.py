"""Routes on real fabrics: every parallel way is used."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tailback.scenario import parse
from tailback.simulate import simulate

SELENE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "selene"


@pytest.mark.data
@pytest.mark.skipif(not SELENE.is_dir(), reason="the public data sets are not beside the checkout")
def test_a_stray_management_switch_does_not_take_the_cores_away() -> None:
    # Four pairs of Selene's management leaves have no common ancestor. Compute traffic must still
    # spread over the cores, not be sent through the root of a breadth-first tree.
    run = simulate(
        parse(
            {
                "fabric": {"file": SELENE / "selene.compute.txt"},
                "job": [{"pattern": {"kind": "uniform", "ranks": 460, "size": "64 KiB"}}],
            }
        )
    )
    traffic = run.tables["truth"].group_by("link").agg(pl.col("packets").sum())
    links = run.tables["links"].join(traffic, on="link")
    into_cores = links.filter((pl.col("tier") == 2) & (pl.col("direction") == "up"))
    share = into_cores.group_by("dst").agg(pl.col("packets").sum())["packets"]
    assert len(share) > 50
    assert float(share.max()) < 0.1 * float(share.sum())
