"""Scheme entropy-ecn: paths that headers tell, and which of their links marked."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_matrix

from tailback.diagnosis import diagnose_cause
from tailback.errors import RunError, ScenarioError
from tailback.run.run import Run
from tailback.scenario.model import load
from tailback.simulation import simulate
from tailback.simulation.decode import decode_link_counts, decode_samples
from tailback.sources.captures import read_captures
from tailback.telemetry.capture import packets_of
from tailback.telemetry.hashed import HashedCounts
from tailback.telemetry.marked_paths import MarkedPaths, MarkRates, infer_marks, least_marked
from tailback.telemetry.path_hash import PATH_HASHES, TCP, UDP, Flows, siphash
from tailback.telemetry.pcap import write_pcap
from tests.factories import captures as made
from tests.factories.probed_runs import TORUS, run_of, truth_of

QUEUE = {"scheme": "entropy-ecn", "rule": "queue", "rule_bytes": "8 KiB"}


def marked_run(routing: str, fabric: dict[str, Any] | None = None, **more: Any) -> Run:
    engine = {"buffer": "32 KiB", "eager": "1 MiB", "routing": routing}
    return run_of(QUEUE, fabric, engine=engine, **more)


@pytest.mark.parametrize("fabric", [None, {"topology": TORUS}], ids=["tree", "torus"])
@pytest.mark.parametrize("routing", ["spray", "deterministic"])
def test_packets_of_links_are_counted_exactly(routing: str, fabric: dict[str, Any] | None) -> None:
    run = marked_run(routing, fabric)
    counts, truth = decode_link_counts(run), truth_of(run)
    inner = ~truth["from_node"].to_numpy()
    assert counts.packets is not None
    assert (counts.packets.packets == truth["observed_packets"].to_numpy())[inner].all()
    samples = decode_samples(run).tables["samples"]
    sums = samples.group_by("link").agg(pl.col("hop_weight").sum(), pl.col("hop_variance").sum())
    both = truth.filter(~pl.col("from_node")).join(sums, on="link", how="left").fill_null(0)
    assert (both["hop_weight"] == both["observed_packets"]).all()
    assert both["hop_variance"].sum() == 0


def test_marks_find_both_ends_of_a_slow_cable() -> None:
    """Also which senders it holds up, but not how many packets of each other link."""
    tree = {"hosts_per_leaf": 4, "leaves": 9, "aggregation": 4}
    slow = [{"cable": "leaf03[5]", "rate": "10 Gb/s"}]
    engine = {"buffer": "32 KiB", "eager": "1 MiB", "routing": "spray", "injection_rate": "40 Gb/s"}
    run = run_of(
        {"scheme": "entropy-ecn"}, {"fat_tree": tree, "degraded": slow}, messages=240, engine=engine
    )
    counts, truth = decode_link_counts(run).congested, truth_of(run)
    assert counts is not None
    share = pl.Series(counts.packets) / truth["observed_packets"]
    worst = truth.with_columns(share=share)
    worst = worst.filter(~pl.col("from_node"), pl.col("observed_packets") > 0).sort("share")[-2:]
    assert set(worst["src_name"]) | set(worst["dst_name"]) == {"leaf03", "agg09"}
    true = worst["observed_congested_packets"] / worst["observed_packets"]
    assert worst["share"].to_list() == pytest.approx(true.to_list(), rel=0.05)


def tree_of(leaves: int, spines: int) -> csr_matrix:
    """Paths of up-link and down-link between all leaves of a leaf-spine network."""
    rows = []
    for spine in range(spines):
        for near in range(leaves):
            for far in range(leaves):
                if near != far:
                    row = np.zeros(2 * leaves * spines)
                    row[[spine * leaves + near, (spines + spine) * leaves + far]] = 1
                    rows.append(row)
    return csr_matrix(np.array(rows))


def test_bounds_hold_where_hops_mark_independently() -> None:
    """Which links marked is drawn again and again: an up-link and a down-link of a spine."""
    dice, paths = np.random.default_rng(5), tree_of(8, 2)
    rate = np.zeros(paths.shape[1])
    rate[[1, 20]] = 0.3, 0.2
    packets, off, held = np.full(paths.shape[0], 200), [], []
    for _ in range(40):
        hot = np.zeros(paths.shape[1])
        marked = np.zeros(len(packets))
        for path, links in enumerate(np.split(paths.indices, paths.indptr[1:-1])):
            draws = dice.random((packets[path], len(links))) < rate[links]
            hot[links] += draws.sum(axis=0)
            marked[path] = draws.any(axis=1).sum()
        inferred = infer_marks(MarkedPaths(paths, packets.astype(float), marked))
        some = rate > 0
        off.append((inferred.congested / hot.clip(1) - 1)[some])
        held.append((inferred.low[some] <= hot[some]) & (hot[some] <= inferred.high[some]))
        assert (inferred.low[some] > 0.7 * hot[some]).all()
        assert inferred.low[~some].max() < 0.01 and inferred.congested[~some].max() < 20
    assert np.abs(np.mean(off, axis=0)).max() < 0.02
    assert np.mean(held) > 0.95


def test_bounds_hold_where_hops_mark_together() -> None:
    """All packets that the down-link marks were marked by the up-link before."""
    paths = csr_matrix(np.array([[1.0, 1, 0], [1, 0, 1]]))
    inferred = infer_marks(MarkedPaths(paths, np.full(2, 1000.0), np.array([400.0, 400.0])))
    for hot in ([800, 400, 0], [800, 0, 400], [0, 400, 400], [800, 400, 400]):
        assert (inferred.low <= hot).all() and (hot <= inferred.high).all()


SATURATED = [
    {"kind": "uniform", "ranks": 32, "messages": 60, "size": "32 KiB"},
    {"kind": "stencil2d", "dims": [8, 4], "size": "256 KiB", "rounds": 3, "post": "all"},
    {"kind": "reduce-naive", "ranks": 32, "size": "32 KiB", "arrays": 6, "root": 5},
]


@pytest.mark.parametrize("pattern", SATURATED, ids=lambda pattern: str(pattern["kind"]))
def test_intervals_hold_in_saturated_lossless_networks(pattern: dict[str, Any]) -> None:
    """On links that met congestion; in networks that nothing was chosen by."""
    held, proved = [], []
    for seed, up in ((31, 2), (32, 4)):
        run = marked_run(
            "spray",
            {"fat_tree": {"hosts_per_leaf": 4, "leaves": 8, "aggregation": up}},
            job=[{"pattern": pattern, "placement": "random"}],
            seed=seed,
        )
        counts, truth = decode_link_counts(run).congested, truth_of(run)
        assert counts is not None
        hot, n = (
            truth[f"observed_{name}"].to_numpy().astype(float)
            for name in ("congested_packets", "packets")
        )
        some = (hot > 0) & ~truth["from_node"].to_numpy()
        low, high = counts.interval()
        held += list((low - 0.5 <= hot)[some] & (hot <= high + 0.5)[some])
        proved += list(hot[some & (low > 0.05 * n)] > 0.05 * n[some & (low > 0.05 * n)])
    assert len(held) > 40 and np.mean(held) >= 0.95
    # A link whose lower bound is above 5 % is congested.
    assert all(proved)


def test_one_possible_link_has_all_marks() -> None:
    paths = csr_matrix(np.array([[1.0, 1, 0], [1, 0, 1], [0, 1, 1]]))
    marks = np.array([3000.0, 2000.0, 0.0])
    inferred = infer_marks(MarkedPaths(paths, np.full(3, 10_000.0), marks))
    assert inferred.congested == pytest.approx([5000, 0, 0], abs=0.1)
    # The first path has more marks than the first link's rate in the second explains.
    assert 3900 < inferred.low[0] <= 5000 and inferred.low[1:] == pytest.approx([0, 0])
    assert inferred.high.tolist() == [5000, 3000, 2000]


def test_other_links_explain_what_they_can() -> None:
    """Each as much as its cleanest path has marks."""
    paths = tree_of(3, 1)
    data = MarkedPaths(paths, np.full(6, 100.0), np.zeros(6))
    assert least_marked(data, np.array([0.3, 0.3, 0.3, 0.1, 0.1, 0.1])).max() == 0
    # Clean links in both directions determine all.
    rate = np.array([0, 0, 0.3, 0, 0, 0.2])
    assert least_marked(data, rate) == pytest.approx(200 * rate)


def test_score_interval_of_terms_has_both_bounds() -> None:
    inferred = MarkRates(
        np.zeros(4), *np.array([[40, 40, 90, 0], [10, 39, 20, 0], [90, 90, 100, 7]])
    )
    counts = HashedCounts(inferred.congested, inferred.variance, *inferred.score_terms)
    low, high = counts.interval()
    assert low[[0, 3]] == pytest.approx(inferred.low[[0, 3]])
    assert (low <= inferred.low + 1e-9).all() and (high >= inferred.high - 1e-9).all()


def test_known_hashes_follow_their_definitions() -> None:
    key = [int.from_bytes(bytes(range(at, at + 8)), "little") for at in (0, 8)]
    assert siphash(bytes(range(15)), *key) == 0xA129CA6149BE45E5  # of the paper's appendix
    addresses = np.array([["10.0.0.1", "10.0.0.2"]])
    flows = Flows(np.zeros(1, int), np.ones(1, int), np.array([50000]), addresses)
    fields = bytes([10, 0, 0, 1, 10, 0, 0, 2, 17]) + (50000).to_bytes(2) + (4791).to_bytes(2)
    expected = zlib.crc32((7).to_bytes(4) + fields) % 5
    rows, five = np.zeros(1, int), np.array([5])
    assert PATH_HASHES["crc32"](flows, rows, 0, five, 7)[0] == expected
    plain = Flows(np.zeros(1, int), np.ones(1, int), np.array([50000]))
    with pytest.raises(RunError, match="needs IP addresses"):
        PATH_HASHES["linux"](plain, rows, 0, five, 7)


KERNEL = [
    # Seed 77, 3 next hops: source, destination, ports, and what a Linux 6.18 router chose.
    ("10.0.0.61", "10.1.4.140", 9571, 25269, 2),
    ("10.0.0.155", "10.1.3.161", 39090, 5318, 0),
    ("10.0.0.156", "10.1.0.121", 18021, 37120, 1),
    ("10.0.0.60", "10.1.1.184", 31843, 36477, 2),
    ("10.0.0.141", "10.1.3.102", 42905, 57451, 0),
    ("10.0.0.39", "10.1.1.163", 10960, 57912, 0),
    ("10.0.0.134", "10.1.3.190", 2016, 45025, 0),
    ("10.0.0.199", "10.1.0.41", 50715, 63774, 2),
]


def test_the_hash_of_linux_is_the_kernels() -> None:
    source, target, near, far, hop = zip(*KERNEL, strict=True)
    rows, three = np.arange(len(KERNEL)), np.full(len(KERNEL), 3)
    ends, protocol = np.array([source, target]).T, np.full(len(KERNEL), TCP)
    flows = Flows(rows, rows, np.array(near), ends, np.array(far), protocol)
    assert PATH_HASHES["linux"](flows, rows, 0, three, 77).tolist() == list(hop)
    # Of a flow of UDP the hash is another one, whatever the others are.
    protocol[3] = UDP
    alone = Flows(rows[:1], rows[:1], np.array(near[3:4]), ends[3:4], far[3], UDP)
    seeds = range(20)
    chosen = [PATH_HASHES["linux"](flows, rows[3:4], 0, three[:1], seed)[0] for seed in seeds]
    assert chosen == [PATH_HASHES["linux"](alone, rows[:1], 0, three[:1], s)[0] for s in seeds]


def test_paths_that_headers_do_not_tell_are_refused() -> None:
    with pytest.raises(ScenarioError, match="paths that headers tell"):
        marked_run("adaptive")
    with pytest.raises(RunError, match="which packets do not carry"):
        decode_link_counts(marked_run("ecmp", messages=1))


SCENARIO = """
[fabric.fat_tree]
hosts_per_leaf = 4
leaves = 4
aggregation = 3
[engine]
routing = "{routing}"
[[job]]
pattern = {{ kind = "uniform", ranks = 16, messages = 40, size = "512 B" }}
[telemetry]
scheme = "entropy-ecn"
rule = "queue"
rule_bytes = "512 B"
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("entropy") / "s.toml"
    path.write_text(SCENARIO.format(routing="spray"))
    return path


def contexts_of(folder: Path, run: Run, version: int = 4) -> Path:
    folder.mkdir()
    names = run.tables["nodes"]["name"].to_list()
    lines = [f"{made.address(node + 1, version)},{name}" for node, name in enumerate(names)]
    (folder / "addresses.csv").write_text("\n".join(["address,node", *lines]) + "\n")
    return folder


def counted(run: Run) -> pl.DataFrame:
    columns = ["hop_samples", "hop_weight", "congested_weight", "congested_variance"]
    return run.tables["samples"].group_by("link").agg(pl.col(columns).sum()).sort("link")


@pytest.mark.parametrize("version", [4, 6])
def test_captures_of_unmodified_switches_give_the_same_sums(
    scenario: Path, tmp_path: Path, version: int
) -> None:
    run = simulate(load(scenario))
    table = run.tables["packets"].sort("time_ps", "packet")
    contexts = contexts_of(tmp_path / "contexts", run, version)
    capture = made.pcap(tmp_path / "a.pcap", made.marked_rocev2(table, version), 1)
    captured = read_captures([capture], scenario, contexts=contexts)
    assert captured.notes == ["s.toml: sections not used: job"]
    assert captured.tables["samples"]["hop_weight"].sum() == table["hops"].sum()
    exact = ["link", "hop_samples", "hop_weight"]
    assert counted(captured)[exact].equals(counted(decode_samples(run))[exact])
    hot = counted(captured)["congested_weight"].sum()
    assert hot == pytest.approx(counted(decode_samples(run))["congested_weight"].sum(), rel=0.02)


@pytest.mark.parametrize("version", [4, 6])
def test_packets_of_tcp_are_samples_of_calls(tmp_path: Path, version: int) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text(SCENARIO.format(routing="deterministic"))
    run = simulate(load(scenario))
    # Ports do not matter to these routes: a connection for each pair of nodes.
    table = run.tables["packets"].sort("time_ps", "packet")
    table = table.with_columns(header=pl.col("header") % 2 + 2 * 7000)
    contexts = contexts_of(tmp_path / "contexts", run, version)
    calls = "first_byte,bytes,call,destination_port\n0,700,MPI_Send,5001\n700,99999,MPI_Isend,\n"
    (contexts / "calls.csv").write_text(calls)
    frames = made.marked_tcp(table, version)
    capture = made.pcap(tmp_path / "a.pcap", frames, 1)
    captured = read_captures([capture], scenario, contexts=contexts)
    starts = len(frames) - table.height
    assert captured.notes[0] == (
        f"{starts} packets left out: switches may not mark them (not ECN-capable)"
    )
    exact = ["link", "hop_samples", "hop_weight"]
    assert counted(captured)[exact].equals(counted(decode_samples(run))[exact])
    byte = pl.col("size_bytes").cum_sum().over("src_node", "dst_node", pl.col("header") // 2)
    begins = table.with_columns(byte=byte - pl.col("size_bytes"))
    names = dict(captured.tables["labels"].select("label", "call").iter_rows())
    hops = captured.tables["samples"].group_by("label").agg(pl.col("hop_weight").sum())
    assert {names[label]: hops for label, hops in hops.iter_rows()} == {
        "MPI_Send": begins.filter(pl.col("byte") < 700)["hops"].sum(),
        "MPI_Isend": begins.filter(pl.col("byte") >= 700)["hops"].sum(),
    }


def test_tcp_without_its_start_is_told(scenario: Path, tmp_path: Path) -> None:
    run = simulate(load(scenario))
    frames = made.marked_tcp(run.tables["packets"].head(50), 4)
    data = [frame for frame in frames if frame[1][15]]
    contexts = contexts_of(tmp_path / "contexts", run)
    (contexts / "calls.csv").write_text("first_byte,bytes,call\n0,99999,MPI_Send\n")
    capture = made.pcap(tmp_path / "a.pcap", data, 1)
    captured = read_captures([capture], scenario, contexts=contexts)
    assert any(
        note.startswith("50 packets are of TCP connections whose start is not in their capture")
        for note in captured.notes
    )


def test_measured_paths_replace_an_unknown_hash(scenario: Path, tmp_path: Path) -> None:
    text = scenario.read_text().replace("spray", "ecmp")
    (tmp_path / "s.toml").write_text(text)
    run = simulate(load(tmp_path / "s.toml"))
    table = run.tables["packets"].sort("time_ps", "packet")
    contexts = contexts_of(tmp_path / "contexts", run)
    flows = table.with_columns(entropy=pl.col("header") // 2).unique(
        ["src_node", "dst_node", "entropy"], maintain_order=True
    )
    nodes, links = run.tables["nodes"]["name"].to_list(), run.tables["links"].sort("link")
    leaf = {row["dst_name"]: row["src_name"] for row in links.iter_rows(named=True)}
    lines = []
    for row in flows.iter_rows(named=True):
        near, far = (leaf[nodes[row[end]]] for end in ("src_node", "dst_node"))
        spines = links.filter(pl.col("src_name") == near, ~pl.col("to_node"))["dst_name"]
        via = [] if near == far else [spines.sort()[0], far]
        path = " ".join([near, *via])
        lines.append(f"{nodes[row['src_node']]},{nodes[row['dst_node']]},{row['entropy']},{path}")
    (contexts / "paths.csv").write_text(
        "\n".join(["source,destination,entropy,path", *lines[1:]]) + "\n"
    )
    capture = made.pcap(tmp_path / "a.pcap", made.marked_rocev2(table, 4), 1)
    captured = read_captures([capture], tmp_path / "s.toml", contexts=contexts)
    assert "paths.csv has no path of theirs" in captured.notes[0]
    used = captured.tables["samples"].join(links, on="link")
    assert used.filter(~pl.col("to_node"))["dst_name"].n_unique() == 1 + 4


def test_fecn_marks_paths_of_forwarding_tables(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO.format(routing="deterministic"))
    run = simulate(load(tmp_path / "s.toml"))
    write_pcap(tmp_path / "a.pcap", packets_of(run, payload=4096))
    captured = read_captures([tmp_path / "a.pcap"], tmp_path / "s.toml")
    exact = ["link", "hop_samples", "hop_weight"]
    assert counted(captured)[exact].equals(counted(decode_samples(run))[exact])
    assert counted(captured)["congested_weight"].sum() > 0
    with pytest.raises(RunError, match="which InfiniBand packets do not have"):
        packets_of(simulate(load(scenario)))


@pytest.mark.parametrize(
    ("ecn", "why"), [(0, "ECN-capable"), (2, "no port was congested, or no switch marks")]
)
def test_a_capture_without_marks_has_no_verdict(
    scenario: Path, tmp_path: Path, ecn: int, why: str
) -> None:
    run = simulate(load(scenario))
    frames = [
        (time, frame[:15] + bytes([ecn]) + frame[16:])
        for time, frame in made.marked_rocev2(run.tables["packets"].head(50), 4)
    ]
    capture = made.pcap(tmp_path / "a.pcap", frames, 1)
    contexts = contexts_of(tmp_path / "contexts", run)
    captured = read_captures([capture], scenario, contexts=contexts)
    assert why in captured.summary["without_samples"]
    assert not captured.tables["samples"].height


def test_undecided_marks_name_the_links_they_accuse() -> None:
    run = marked_run(
        "spray",
        {"fat_tree": {"hosts_per_leaf": 4, "leaves": 8, "aggregation": 4}},
        job=[{"pattern": SATURATED[0], "placement": "random"}],
    )
    diagnosis = diagnose_cause(decode_samples(run))
    (finding,) = (f for f in diagnosis.findings if f.code == "TB005")
    assert diagnosis.cause == "undetermined" and finding.title == "Marks do not tell links apart"
    assert diagnosis.headline.startswith("Marks show that packets met congestion")
    link = max(diagnosis.top_links, key=lambda link: link.congested_fraction.low)
    assert f"Marks accuse most: {link.name} (" in finding.explanation
    assert "more packets of this traffic" not in finding.explanation
