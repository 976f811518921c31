"""The published simulator's traffic, and how near our engine comes to its times and congestion."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from studies.conformance import compare, published_links, thesis_cases, traffic, verdict
from tailback import Run, Scenario, load_scenario, simulate
from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.waterfall import ENGINE_VARIATIONS
from tailback.simulation import make_evaluate, prepare

CASES = list(compare.PUBLISHED)


def test_the_files_are_what_the_script_writes(tmp_path: Path) -> None:
    traffic.write(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["background.csv", "background.hosts", "random.hosts", "ring.hosts"]
    for name in names:
        assert (tmp_path / name).read_text() == (traffic.HERE / name).read_text(), name


def test_the_random_mapping_is_a_permutation() -> None:
    nodes = traffic.random_mapping()
    assert sorted(nodes) == list(range(4608))
    # 2411, 2411² = 5812921 = 1257 · 4621 + 4324, …
    assert nodes[:2] == [2410, 4323]


def test_the_background_is_the_published_draw() -> None:
    assert len(traffic.ring_nodes()) == 2173
    messages = list(traffic.background_messages())
    assert len(messages) == 3 * (4608 - 2173)
    # One rank draws itself; the node after it belongs to the ring.
    assert [pair for pair in messages if traffic.in_ring(pair[1])] == [(862, 863)]
    received = Counter(to for _, to in messages)
    # Its 106.24 µs are ten messages at line rate; the two hot nodes of leaf 37 are in the thesis.
    assert max(received.values()) == 10
    assert (received[1204], received[1213]) == (10, 9)


def test_generator_streams_are_independent_of_access() -> None:
    generator = traffic.Clcg4(1)
    numbers = [generator.uniform() for _ in range(2000)]
    assert min(numbers) > 0 and max(numbers) < 1
    assert abs(np.mean(numbers) - 0.5) < 0.03
    assert traffic.Clcg4(0).state == list(traffic.SEEDS)


def test_all_scenarios_have_the_same_engine() -> None:
    cases = [*CASES, "reduction", "reduction-tree"]
    engines = [compare.scenario(case).engine for case in cases]
    assert all(engine == engines[0] for engine in engines)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """The cheap cases."""
    return {case: simulate(compare.scenario(case)) for case in ("row-major", "tiled", "ring")}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["row-major", "tiled", "ring"])
def test_times_and_congestion_are_as_published(runs: dict[str, Run], case: str) -> None:
    run, published = runs[case], compare.PUBLISHED[case]
    (theirs,) = published.elapsed_ns.values()
    assert run.elapsed_ps / 1000 == pytest.approx(theirs, rel=compare.TIME_AIM)
    for tier, fraction in published.congested.items():
        ours = compare.congested_fraction(run, tier)
        assert ours == pytest.approx(fraction, abs=compare.FRACTION_AIM), tier


@pytest.mark.slow
def test_path_lengths_and_forced_bytes_are_exact(runs: dict[str, Run]) -> None:
    for case, path in (("row-major", 2.087), ("tiled", 1.433)):
        assert round(runs[case].summary["average_path_length"], 3) == path
    for case, run in runs.items():
        messages, ranks = run.tables["messages"], run.tables["ranks"].select("rank", "node")
        totals = run.tables["truth"].group_by("link").agg(pl.col("bytes").sum())
        links = run.tables["links"].join(totals, on="link")
        for rank, end, forced in (("src_rank", "src", "from_node"), ("dst_rank", "dst", "to_node")):
            expected = (
                messages.join(ranks, left_on=rank, right_on="rank")
                .group_by("node")
                .agg(pl.col("size_bytes").sum().cast(pl.Int64))
                .sort("node")
            )
            forced_bytes = (
                links.filter(forced).select(end, pl.col("bytes").cast(pl.Int64)).sort(end)
            )
            assert forced_bytes.rows() == expected.rows(), (case, forced)


def test_a_row_says_whether_it_meets_the_aim() -> None:
    ours = compare.Measured(
        {"stencil": 61_213 * 1.04}, {"leaf-up": 0.735, "agg-down": 0.0, "leaf-down": 0.29}
    )
    rows = compare.table("row-major", ours)
    assert rows[0] == "| `row-major` | stencil: time | 61,213 ns | 63,662 ns | +4.0 % | no |"
    assert rows[1] == "| `row-major` | leaf-up: congested | 0.7300 | 0.7350 | +0.0050 | yes |"
    assert rows[2].endswith("| -0.0150 | no |")
    unknown = compare.table("rcm", compare.Measured({"stencil": 89_386.0}, {"leaf-up": 0.8}))
    assert len(unknown) == 1
    described = compare.Measured({"background": 106_000.0}, {"leaf-down": 0.3})
    (_, alone) = compare.table("background", described)
    assert alone == "| `background` | leaf-down: congested | – | 0.3000 | – | – |"


def test_half_of_the_row_major_pairs_are_far() -> None:
    distance = thesis_cases.neighbour_distances(np.arange(4608))
    assert set(distance) == {1, 64} and len(distance) == 63 * 72 + 64 * 71
    assert round((distance >= thesis_cases.LEAF).mean(), 1) == 0.5


def test_bandwidths_are_over_the_whole_run() -> None:
    """Two ranks of a leaf send one message each to a third; its link carries both in the run."""
    pattern = {"kind": "reduce-naive", "ranks": 3, "size": "64 KiB", "arrays": 1}
    fabric = {"topology": {"kind": "k-ary-n-tree", "k": 4, "n": 2}}
    run = simulate(load_scenario({"fabric": fabric, "job": [{"pattern": pattern}]}))
    switches = run.tables["switches"]["name"].to_list()
    (row,) = (
        row
        for name in switches
        for row in thesis_cases.out_of_leaf(run, name).iter_rows(named=True)
    )
    assert row["gbps"] == pytest.approx(2 * 65536 * 8000 / run.elapsed_ps, rel=0.05)


def test_binary_tree_sends_each_array_once() -> None:
    program = thesis_cases.binary_tree(2)
    source, destination, size = program.traffic_matrix()
    assert (destination == (source - 1) // 2).all() and len(source) == thesis_cases.RANKS - 1
    assert (size == thesis_cases.ARRAYS * thesis_cases.ARRAY_BYTES).all()


def test_chunks_are_counted_by_switch_and_port(tmp_path: Path) -> None:
    """Node 3 belongs to the ring, node 1 does not."""
    program = tmp_path / "synthetic"
    lines = (
        "Packet,-5,0,1,0,0,1,7,0.1,0.2,9,3,1,1",
        "Node 1",
        "Packet,43,2,1,0,0,0,7,0.1,0.2,9,3,0,1",
        "Packet,43,2,1,0,0,1,8,0.1,0.2,9,1,1,2",
    )
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)
    counts = published_links.published_counts(str(program), published_links.CASES[0])
    assert counts[published_links.ALL, :, 43, 2].tolist() == [2, 1]
    assert counts[published_links.OWN, :, 43, 2].tolist() == [1, 0] and counts.sum() == 4


def test_correlation_is_of_links_that_carry_packets() -> None:
    theirs, ours = np.zeros((2, 1, 4), np.int64), np.zeros((2, 1, 4), np.int64)
    theirs[:, 0] = [10, 10, 10, 0], [1, 5, 9, 0]
    ours[:, 0] = [20, 20, 20, 5], [2, 10, 18, 5]
    number, fractions, packets = published_links.correlation(theirs, ours, np.ones((1, 4), bool))
    assert number == 3 and fractions == pytest.approx(1) and packets == pytest.approx(1)


def whole_packets(model: Scenario) -> Run:
    """A run of a scenario in packets of 512 B, which takes a quarter of the time."""
    model.engine.packet = compare.WHOLE_PACKET
    return simulate(model)


def test_ring_is_slowed_by_the_published_tree() -> None:
    run = whole_packets(thesis_cases.unobserved_background())
    evaluate = make_evaluate(prepare(run.scenario))
    answer = diagnose_cause(run, evaluate, seeds=1, engines=ENGINE_VARIATIONS[:1])
    assert answer.cause == "other-traffic"
    assert thesis_cases.root_of_tree(run) == "leaf037"
    (named,) = answer.findings
    assert named.cause == "other-traffic"
    assert all("→ leaf037[" in link.name for link in named.links[:3])


def test_published_nodes_of_the_root_are_hottest() -> None:
    run = whole_packets(compare.scenario("both"))
    nodes = thesis_cases.out_of_leaf(run, "leaf037").sort("fraction", descending=True)
    assert sorted(nodes["dst_name"][:2]) == ["n1204", "n1213"]
    assert nodes["fraction"][1] > 0.85


@pytest.mark.slow
def test_congestion_is_at_the_published_nodes() -> None:
    rows = {row.quantity: row.ours for row in thesis_cases.background().rows}
    assert rows["own packets: root of the tree"] == "leaf037"
    assert float(rows["own packets: most over a link out of that leaf"].split()[0]) < 30
    assert rows["all packets: the two most congested nodes of leaf 37"] == "n1204, n1213"
    for node, gbps in (("n1204", 98.5), ("n1213", 88.6)):
        assert float(rows[f"all packets: {node}, congested fraction"]) > 0.87
        ours = float(rows[f"all packets: {node}, bandwidth"].split()[0])
        assert ours == pytest.approx(gbps, rel=0.03)


@pytest.mark.parametrize(("leaf", "difference"), [("leaf037", "none"), ("leaf015", "see ours")])
def test_links_elsewhere_are_not_the_published_tree(leaf: str, difference: str) -> None:
    links = [
        SimpleNamespace(name=f"agg16{n}[14] → {name}[3]")
        for n, name in enumerate(("leaf037", leaf))
    ]
    answer = SimpleNamespace(
        cause="other-traffic", confidence=0.9, findings=[SimpleNamespace(links=links)]
    )
    cause, into = verdict.rows(answer)  # type: ignore[arg-type]
    assert (cause.ours, cause.difference) == ("other-traffic, 90 % sure", "none")
    assert into.difference == difference


@pytest.mark.slow
def test_the_diagnosis_is_that_of_the_thesis() -> None:
    answer = verdict.diagnosed(("repair",))
    assert answer.cause == "other-traffic" and (answer.confidence or 0) > 0.9
    links = [link.name for finding in answer.findings for link in finding.links]
    assert all("→ leaf037[" in name for name in links[:3])
