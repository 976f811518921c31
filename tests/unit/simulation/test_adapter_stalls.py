"""Adapters that wait for credit stall, as their hosts' port counters say."""

from __future__ import annotations

import numpy as np

from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare


def test_only_adapters_behind_a_slow_link_stall() -> None:
    """Two of four hosts send through a link of a tenth of their rate: they wait for its buffer."""
    prepared = prepare(
        parse(
            {
                "seed": 1,
                "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 1}},
                "job": [{"pattern": {"kind": "alltoall", "ranks": 8, "size": "1 MiB"}}],
            }
        )
    )
    fabric = prepared.fabric
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    up = int(np.flatnonzero(inner)[0])
    slow = (SlowLink(up, 10.0, both=False),)
    run = make_evaluate(prepared)(Change(slow=slow, measure=True))
    stall = link_totals(run, "stall_ps")
    leaf = fabric.link_src[up]
    sends = np.flatnonzero(fabric.link_src < fabric.n_nodes)
    behind = fabric.link_dst[sends] == leaf
    assert (stall[sends[behind]] > 0.5 * run.elapsed_ps).all()
    assert (stall[sends[~behind]] < 0.2 * run.elapsed_ps).all()
