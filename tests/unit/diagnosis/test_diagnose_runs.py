"""The maker of runs counts what it makes."""

from __future__ import annotations

import polars as pl

from tests.factories.diagnosis_runs import HOSTS, downs, eject, placement_run, ups


def test_the_maker_counts_every_packet_once_a_hop() -> None:
    run = placement_run()
    truth = run.tables["truth"].group_by("link").agg(pl.col("packets").sum())
    sent = sum(run.tables["messages"]["packets"])
    by_link = dict(truth.iter_rows())
    assert sum(by_link[e] for e in ups(0)) == sent
    assert sum(by_link[e] for e in downs(1)) == sent
    assert sum(by_link[eject(HOSTS + n)] for n in range(HOSTS)) == sent
    assert run.tables["samples"]["hop_samples"].sum() == sent
