"""Shares of jobs in the bytes of links: right where jobs vary, nothing where they do not."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from tailback.evaluate import Change
from tailback.evidence.job_shares import OURS, SPARE_WINDOWS, job_shares
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tests.factories.counted_links import UTC, small_tree

FABRIC = small_tree(8)
INNER = np.flatnonzero((FABRIC.link_src >= FABRIC.n_nodes) & (FABRIC.link_dst >= FABRIC.n_nodes))
WINDOWS = 30
EDGES = UTC + np.arange(WINDOWS + 1) * 1e9
JOBS = (OURS, "21", "22", "unknown")


def rates(varying: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Bytes of each job by window: the same on average, varying by so much of it."""
    each = 1e11 * np.maximum(1.0 + varying * rng.standard_normal((len(JOBS), WINDOWS)), 0.0)
    return dict(zip(JOBS, each, strict=True))


def counted(carried: np.ndarray) -> pl.DataFrame:
    """Intervals of links whose bytes by window are given, shape (links, windows)."""
    parts = [
        pl.DataFrame(
            {
                "start_ns": EDGES[:-1].astype(np.int64),
                "end_ns": EDGES[1:].astype(np.int64),
                "data_bytes": bytes_,
            }
        ).with_columns(link=pl.lit(int(link), pl.UInt32))
        for link, bytes_ in zip(INNER.tolist(), carried, strict=True)
    ]
    return pl.concat(parts)


def case(varying: float, seed: int, noise: float = 0.02) -> tuple[np.ndarray, pl.DataFrame]:
    """True shares, shape (links, jobs), and those found."""
    rng = np.random.default_rng(seed)
    injected = rates(varying, rng)
    part = rng.random((len(INNER), len(JOBS))) * (rng.random((len(INNER), len(JOBS))) < 0.6) / 8
    carried = part @ np.stack([injected[job] for job in JOBS])
    carried *= 1.0 + noise * rng.standard_normal(carried.shape)
    truth = part * np.array([injected[job].sum() for job in JOBS])
    truth /= np.maximum(truth.sum(axis=1, keepdims=True), 1.0)
    return truth, job_shares(counted(carried), FABRIC, EDGES, injected)


@pytest.mark.parametrize(("varying", "right", "answered"), [(0.3, 0.95, 0.9), (0.1, 0.95, 0.5)])
def test_the_largest_job_is_named_where_jobs_vary(
    varying: float, right: float, answered: float
) -> None:
    hits, asked, inside, intervals = 0, 0, 0, 0
    for seed in range(8):
        truth, shares = case(varying, seed)
        busy = int((truth.sum(axis=1) > 0).sum())
        links = shares.select("link").n_unique()
        assert links >= answered * busy
        row = {int(link): place for place, link in enumerate(INNER.tolist())}
        for (link,), part in shares.group_by("link"):
            mine = truth[row[int(link)]]  # type: ignore[call-overload]
            share = np.array([part.filter(job=job)["share"][0] for job in JOBS])
            error = np.array([part.filter(job=job)["error"][0] for job in JOBS])
            asked += 1
            hits += int(mine[share.argmax()] >= mine.max() - 2 * error.max())
            inside += int((np.abs(share - mine) <= 1.96 * error + 1e-9).sum())
            intervals += len(JOBS)
    assert hits >= right * asked
    assert inside >= 0.92 * intervals


def test_nothing_is_said_where_jobs_inject_evenly() -> None:
    n_shares = sum(case(0.02, seed)[1].height for seed in range(8))
    assert n_shares == 0


def test_too_few_windows_say_nothing() -> None:
    injected = {
        job: sent[: SPARE_WINDOWS + 2] for job, sent in rates(0.3, np.random.default_rng(1)).items()
    }
    few = EDGES[: SPARE_WINDOWS + 3]
    assert job_shares(counted(np.ones((len(INNER), WINDOWS))), FABRIC, few, injected).is_empty()


def test_host_ports_and_unread_links_are_left_out() -> None:
    injected = rates(0.3, np.random.default_rng(2))
    carried = np.tile(sum(injected.values()) / 20, (len(INNER), 1))
    rows = counted(carried)
    late = int(INNER[3])
    rows = rows.filter((pl.col("link") != late) | (pl.col("end_ns") < EDGES[20]))
    host = rows.filter(link=int(INNER[0])).with_columns(link=pl.lit(0, pl.UInt32))
    shares = job_shares(pl.concat([rows, host]), FABRIC, EDGES, injected)
    links = set(shares["link"].to_list())
    assert links == set(INNER.tolist()) - {late} and FABRIC.link_src[0] < FABRIC.n_nodes
    assert shares.filter(job=OURS)["share"].to_numpy() == pytest.approx(0.25, abs=0.05)


def bursts_between(nodes: list[int], seed: int) -> list[tuple[int, int, int, int]]:
    """Time, source, destination and bytes of messages in twelve bursts."""
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.random(12)) * 2e9
    return sorted(
        (
            int(starts[k % 12] + rng.random() * 8e7),
            *map(int, rng.choice(nodes, 2, replace=False)),
            int(rng.integers(100_000, 400_000)),
        )
        for k in range(400)
    )


def test_shares_are_those_of_adaptive_simulation() -> None:
    tree = {"hosts_per_leaf": 4, "leaves": 8, "aggregation": 4}
    halo = {"kind": "stencil2d", "dims": [4, 4], "size": "64 KiB", "rounds": 40, "compute": "20 us"}
    job = {"pattern": halo, "placement": "random"}
    scenario = {"fabric": {"fat_tree": tree}, "engine": {"routing": "adaptive"}, "job": [job]}
    alone = prepare(parse(scenario))
    free = [n for n in range(32) if n not in alone.observed.node.tolist()]
    both = alone.with_other_traffic("a", bursts_between(free[:8], 1))
    both = both.with_other_traffic("b", bursts_between(free[8:], 2))
    run = make_evaluate(both)(Change(measure=True))
    truth, fabric = run.tables["truth"], both.fabric
    edges = np.linspace(0.0, run.elapsed_ps / 1000.0, 25)
    step = edges[-1] / (int(truth["window"].max()) + 1)  # type: ignore[arg-type]
    rows = truth.group_by(
        pl.col("link"), window=((pl.col("window") + 0.5) * step / edges[1]).cast(pl.Int64)
    ).agg(data_bytes=pl.col("bytes").sum().cast(pl.Float64))
    every = pl.DataFrame({"window": np.arange(24)}).join(rows.select("link").unique(), how="cross")
    rows = every.join(rows, on=("link", "window"), how="left").with_columns(
        pl.col("data_bytes").fill_null(0.0),
        start_ns=(pl.col("window") * edges[1]).cast(pl.Int64),
        end_ns=((pl.col("window") + 1) * edges[1]).cast(pl.Int64),
    )
    messages = run.tables["messages"].join(
        run.tables["ranks"].select("job", src_rank="rank"), on="src_rank"
    )
    injected = {
        OURS if job == 0 else str(job): np.histogram(
            (part["start_ps"] + part["arrival_ps"]).to_numpy() / 2000.0,
            edges,
            weights=part["size_bytes"].to_numpy(),
        )[0].astype(np.float64)
        for (job,), part in messages.group_by("job", maintain_order=True)
    }
    shares = job_shares(rows, fabric, edges, injected)
    true_shares = truth.group_by("link").agg(
        truth=pl.col("observed_packets").sum() / pl.col("packets").sum()
    )
    ours = shares.filter(job=OURS).join(true_shares, on="link")
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    assert ours.height > 0.75 * inner.sum()
    off = (ours["share"] - ours["truth"]).to_numpy()
    assert np.sqrt((off**2).mean()) < 0.07
    assert (np.abs(off) <= 1.96 * ours["error"].to_numpy()).mean() >= 0.93
