"""Which job held up which: named when time or place tells, and not otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.cli import run
from tailback.evidence.culprits import HostCourse, JobHarm, explain_stalls, host_course
from tailback.evidence.jobs import JOBS, JobList
from tailback.evidence.route_overlap import RouteOverlap
from tailback.fabric.lft import FabricForwarding
from tailback.fabric.readers import read_fabric
from tailback.port_counters.schema import INTERVALS, conform
from tests.factories.cli_counters import FABRIC

SECOND = 10**9
WINDOWS = 300
Course = np.ndarray[Any, np.dtype[np.float64]]


def bursts(seed: int, windows: int = WINDOWS) -> Course:
    """1 in bursts of about eight windows, 0 in pauses of twelve."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(1 + rng.exponential(10, windows).astype(int))
    return (np.searchsorted(ends, np.arange(windows)) % 2).astype(float)


def explained(
    stall: Course,
    sent: dict[str, Course],
    full: dict[str, Course] | None = None,
    **options: Any,
) -> tuple[dict[str, Any], JobHarm]:
    """What is said of job ``v``, which stalls; each job has one host with its name."""
    names = ["v", *sent]
    noise = np.random.default_rng(9).normal(0, 0.01, len(stall))
    stalls = np.zeros((len(names), len(stall)))
    stalls[0] = np.clip(stall + noise, 0, 1)
    bytes_sent = np.array([np.full(len(stall), 1e9), *(1e10 * course for course in sent.values())])
    receivers = np.array([(full or {}).get(name, 0 * stall) for name in names])
    course = HostCourse(
        names,
        np.arange(len(stall) + 1) * 10.0 * SECOND,
        bytes_sent,
        stalls,
        np.full(len(names), 100.0),
        receivers,
    )
    rows = [(name, 0, None, [name]) for name in names]
    listed = JobList(pl.DataFrame(rows, schema=JOBS.polars_schema, orient="row"))
    harm = explain_stalls(course, listed, **options)
    return harm.jobs.filter(pl.col("job") == "v").row(0, named=True), harm


def test_the_job_whose_bursts_agree_is_named() -> None:
    a, b = bursts(1), bursts(2)
    said, harm = explained(0.05 + 0.3 * a, {"a": a, "b": b})
    assert said["culprit"] == "a" and said["p"] <= 0.05
    truth = 0.3 * a.mean() / (0.05 + 0.3 * a.mean())
    pair = harm.pairs.filter(pl.col("aggressor") == "a").row(0, named=True)
    assert pair["share_low"] <= truth <= pair["share_high"]
    assert said["share"] == pytest.approx(truth, abs=0.05)
    assert pair["lost_gbps"] == pytest.approx(30 * a.mean(), rel=0.1)


def rare_waits(course: Course, rng: np.random.Generator, times: float) -> Course:
    """Stall as a sum of few waits of very different lengths, so many times as often in bursts."""
    often = rng.poisson(0.5 * np.where(course > 0, times, 1.0))
    return np.array([0.02 * rng.lognormal(0, 1.5, count).sum() for count in often])


@pytest.mark.parametrize(("times", "least", "most"), [(2.5, 22, 30), (1.0, 0, 2)])
def test_few_long_waits_do_not_decide(times: float, least: int, most: int) -> None:
    named = []
    for seed in range(30):
        others = {f"o{n}": bursts(100 * seed + n) for n in range(3)}
        stall = rare_waits(others["o0"], np.random.default_rng(seed), times)
        named.append(explained(np.clip(stall, 0, 1), others)[0]["culprit"])
    assert least <= named.count("o0") <= most
    assert len([name for name in named if name not in ("o0", None)]) <= 2


def test_unrelated_jobs_are_not_named() -> None:
    named = 0
    for seed in range(40):
        others = {f"o{n}": bursts(100 * seed + n) for n in range(4)}
        said, _ = explained(0.3 * bursts(9000 + seed), others)
        named += said["culprit"] is not None
    assert named <= 4, "at most one in ten, where p says one in twenty"


def test_jobs_with_one_course_cannot_be_told_apart() -> None:
    a = bursts(3)
    said, _ = explained(0.3 * a, {"a": a, "b": a})
    assert said["culprit"] is None and "cannot be told apart" in said["why"]


def test_a_full_receiver_tells_by_place() -> None:
    always = np.ones(WINDOWS)
    said, _ = explained(0.4 * always, {"a": always, "b": always}, {"a": always})
    assert said["culprit"] == "a" and said["p"] is None and "no other job" in said["why"]
    both, _ = explained(0.4 * always, {"a": always, "b": always}, {"a": always, "b": always})
    assert both["culprit"] is None
    self_made, _ = explained(0.4 * always, {"a": always}, {"a": always, "v": always})
    assert self_made["culprit"] is None, "it may fill its own receivers"


def test_a_job_without_common_links_is_left_out() -> None:
    a = bursts(1)
    said, harm = explained(0.3 * a, {"a": a}, overlaps=lambda mine, others: False)
    assert said["culprit"] is None and harm.pairs.is_empty()


@pytest.mark.parametrize(
    ("stall", "why"),
    [(0.001 * bursts(1), "too little"), (0.3 * bursts(1, 20), "ran for 20 readings")],
)
def test_too_little_is_not_explained(stall: Course, why: str) -> None:
    said, _ = explained(stall, {"a": bursts(1, len(stall))})
    assert said["culprit"] is None and why in said["why"]


def test_the_course_adds_up_ports_and_readings() -> None:
    frame = pl.DataFrame(
        {
            "time_ns": [10 * SECOND, 20 * SECOND] * 3,
            "interval_ns": 10 * SECOND,
            "node_name": ["h HCA-1"] * 2 + ["h HCA-2"] * 2 + ["leaf"] * 2,
            "port": [1, 1, 1, 1, 7, 7],
            "data_bytes": [100, 200, 10, 20, 5, 5],
            "stall_fraction": [0.2, 0.0, 0.4, 0.2, 0.9, 0.9],
            "utilization": [0.1, 0.1, 0.1, 0.1, 0.95, 0.5],
            "capacity_gbps": 100.0,
        }
    )
    hosts = {"h HCA-1": "h", "h HCA-2": "h"}
    course = host_course(conform(INTERVALS, frame).lazy(), hosts, {("leaf", 7): "h"})
    assert course is not None and course.hosts == ["h"] and course.gbps.tolist() == [200.0]
    assert course.sent.tolist() == [[110.0, 220.0]]
    assert np.allclose(course.stall, [[0.3, 0.1]]) and course.full.tolist() == [[1.0, 0.0]]


def test_routes_share_links_or_not(tmp_path: Path) -> None:
    links = "src,dst,rate_gbps,src_kind,dst_kind\n" + "".join(
        f"leaf{n // 2},h{n},100,switch,host\n" for n in range(4)
    )
    links += "".join(f"leaf{n},spine{m},100,switch,switch\n" for n in (0, 1) for m in (0, 1))
    path = tmp_path / "links.csv"
    path.write_text(links)
    fabric = read_fabric(path)
    name = {fabric.vertex_name(v): v for v in range(fabric.n_nodes + fabric.n_switches)}
    ends = {
        (int(a), int(b)): link
        for link, (a, b) in enumerate(zip(fabric.link_src, fabric.link_dst, strict=True))
    }
    table = np.zeros((fabric.n_switches, fabric.n_nodes), np.uint32)
    for switch in range(fabric.n_switches):
        here = fabric.vertex_name(fabric.n_nodes + switch)
        for node in range(fabric.n_nodes):
            leaf = f"leaf{int(fabric.vertex_name(node)[1:]) // 2}"
            spine = f"spine{int(fabric.vertex_name(node)[1:]) % 2}"
            far = leaf if here.startswith("spine") else spine
            far = fabric.vertex_name(node) if here == leaf else far
            table[switch, node] = ends[name[here], name[far]]
    forwarding = FabricForwarding(table, np.arange(1, fabric.n_nodes + 1, dtype=np.uint32), [])
    overlap = RouteOverlap(fabric, forwarding)
    assert overlap(["h0", "h2"], ["h1", "h3"]) is False, "even by one spine, odd by the other"
    assert overlap(["h0", "h3"], ["h1", "h3"]) is True
    assert overlap(["h0", "h1"], ["h0", "h2"]) is False, "a leaf alone uses no link"


def test_the_command_lists_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabric = read_fabric(FABRIC)
    hosts, adapters = fabric.host_name[:2], [fabric.vertex_name(n) for n in range(2)]
    a = bursts(1)
    frames = [
        pl.DataFrame(
            {
                "time_ns": (1_700_000_000 + 10 * np.arange(1, WINDOWS + 1)) * SECOND,
                "interval_ns": 10 * SECOND,
                "node_name": adapter,
                "port": 1,
                "data_bytes": (10**10 * sent).astype(np.uint64),
                "stall_fraction": stall,
                "utilization": 0.1,
                "capacity_gbps": 100.0,
            }
        )
        for adapter, sent, stall in zip(adapters, (0 * a + 0.1, a), (0.3 * a, 0 * a), strict=True)
    ]
    archive = tmp_path / "archive.parquet"
    conform(INTERVALS, pl.concat(frames)).write_parquet(archive)
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(
        "job,start,end,hosts\n"
        + "".join(f"{n},1700000000,1700003000,{host}\n" for n, host in enumerate(hosts, start=71))
    )
    asked = ["counters", str(archive), "--fabric", str(FABRIC), "--jobs", str(jobs)]
    assert run(asked) == 0
    text = capsys.readouterr().out
    assert "held up by" in text and "71: its stall follows what this job sent" in text
    assert run([*asked, "--format", "json"]) == 0
    (first, _) = json.loads(capsys.readouterr().out)["jobs"]
    assert (first["job"], first["culprit"]) == ("71", "72") and first["share"] > 0.9
    for wrong, words in (
        (["--jobs", str(archive)], "not text"),
        (["--forwarding", str(jobs)], "no effect without --jobs"),
    ):
        assert run(["counters", str(archive), "--fabric", str(FABRIC), *wrong]) == 2
        assert words in capsys.readouterr().err
