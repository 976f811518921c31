"""What receivers make of headers: table ``samples`` of every scheme, and the diagnosis from it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.cli import run as command
from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.rules.tb005_samples import too_few_samples
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.wording import met_congestion
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import simulate
from tailback.simulation.decode import BOTTLENECKS_ONLY, decode_link_counts, decode_samples
from tailback.telemetry.estimate import link_estimates
from tests.factories.forwarding_tables import DISCOVERY, LEFT, RIGHT
from tests.factories.probed_runs import SCHEMES, TORUS, run_of, truth_of
from tests.factories.unchecked_runs import without_manifest


def decoded(telemetry: dict[str, Any], fabric: dict[str, Any] | None = None, **more: Any) -> Run:
    return decode_samples(run_of(telemetry, fabric, **more))


def against_truth(run: Run) -> pl.DataFrame:
    """Estimates of every link beside what really crossed it."""
    estimates = link_estimates(run.tables["samples"]).rename({"packets": "estimated"})
    truth = truth_of(run).filter(~pl.col("from_node"))
    return truth.join(estimates, on="link", how="left").with_columns(
        pl.col("estimated", "packets_se", "congested", "congested_se").fill_null(0.0)
    )


@pytest.mark.parametrize("telemetry", SCHEMES[1:], ids=lambda t: "-".join(map(str, t.values())))
@pytest.mark.parametrize(
    "fabric",
    [None, pytest.param({"topology": TORUS}, marks=pytest.mark.slow)],
    ids=["tree", "torus"],
)
def test_samples_of_every_scheme_are_the_truth(
    telemetry: dict[str, Any], fabric: dict[str, Any] | None
) -> None:
    """No bias of packets or of congested packets, and no more noise than is stated."""
    run = decoded(telemetry, fabric)
    both = against_truth(run)
    for name, error, true in (
        ("estimated", "packets_se", "observed_packets"),
        ("congested", "congested_se", "observed_congested_packets"),
    ):
        # A variance that one or two samples state is itself too random for a square.
        some = both.filter(pl.col(error) ** 2 > 2.0)
        off = ((some[name] - some[true]) / some[error]).to_numpy()
        assert abs(off.mean()) < 0.5, (name, off.mean())
        assert (off**2).mean() < 1.7, (name, (off**2).mean())
    assert both["estimated"].sum() == pytest.approx(both["observed_packets"].sum(), rel=0.03)
    rows = run.tables["samples"]
    assert set(rows["window"].unique()) <= set(run.tables["windows"]["window"])
    keys = ("window", "label", "receive_label", "receiver", "link")
    assert rows.select(keys).is_duplicated().sum() == 0


def test_a_packet_counts_in_its_arrival_window() -> None:
    run = decoded({"scheme": "coordinated", "hash_bits": 5})
    full = run_of({})
    windows = [
        sampled.tables["samples"].group_by("window").agg(pl.col("hop_samples").sum()).sort("window")
        for sampled in (run, full)
    ]
    assert windows[0]["hop_samples"].to_list() == windows[1]["hop_samples"].to_list()


def test_fewer_bits_need_more_packets() -> None:
    """The variance of decoded counts includes what a hash leaves open."""
    width = {}
    for bits in (1, 5):
        both = against_truth(decoded({"scheme": "coordinated", "hash_bits": bits}))
        width[bits] = float((both["fraction_high"] - both["fraction_low"]).median() or 0)  # type: ignore[arg-type]
    assert width[1] > 1.2 * width[5]


def test_hop_counting_schemes_count_detoured_packets() -> None:
    telemetry = {"scheme": "compact", "hash_bits": 6}
    run = decoded(telemetry, {"topology": TORUS, "routes": "valiant"})
    assert run.tables["packets"]["hops"].null_count() > 0 and not run.notes
    counts, both = decode_link_counts(run), against_truth(run)
    inner = both.filter(~pl.col("to_node"))
    true = inner["observed_packets"].to_numpy()
    assert counts.packets is not None
    unbiased = counts.packets.packets[inner["link"].to_numpy()]
    for estimated in (inner["estimated"].to_numpy(), unbiased):
        assert estimated.sum() == pytest.approx(true.sum(), rel=0.05)
        assert np.corrcoef(estimated, true)[0, 1] > 0.7


def test_a_scheme_that_cannot_be_decoded_says_why() -> None:
    fabric = {"topology": TORUS, "routes": "valiant"}
    run = decoded({"scheme": "coordinated", "hash_bits": 5}, fabric)
    assert not run.tables["samples"].height and "length of paths" in run.notes[-1]
    diagnosis = diagnose_cause(run)
    assert diagnosis.cause == "undetermined" and not diagnosis.sampling.sufficient
    assert any("length of paths" in warning for warning in diagnosis.warnings)
    # Telemetry is on, and packets carried samples: nothing to switch on.
    finding = next(f for f in diagnosis.findings if f.code == "TB005")
    assert "cannot be decoded" in finding.title and "that note" in finding.advice
    assert "Switch telemetry on" not in diagnosis.sampling.note


def test_bottlenecks_are_called_a_lower_bound() -> None:
    run = decoded({"scheme": "csig"})
    both = against_truth(run)
    assert (both["congested"] <= both["observed_congested_packets"]).all()
    assert both["estimated"].sum() == pytest.approx(both["observed_packets"].sum(), rel=0.01)
    diagnosis = diagnose_cause(run)
    assert any("bottleneck of each packet" in warning for warning in diagnosis.warnings)
    assert diagnosis.sampling.packets == run.tables["packets"].height


@pytest.mark.parametrize("scheme", ["compact", "single-bit"])
def test_one_bit_hashes_draw_no_false_congestion(scheme: str) -> None:
    """It varies on links without a congested packet too: their lower bounds are 0 all the same."""
    low_counts, true = [], []
    for seed in (1, 2, 3):
        pattern = {"kind": "uniform", "ranks": 36, "messages": 10, "size": "16 KiB"}
        run = decode_samples(run_of({"scheme": scheme}, job=[{"pattern": pattern}], seed=seed))
        truth = truth_of(run).filter(~pl.col("from_node") & (pl.col("observed_packets") > 0))
        share = truth["observed_congested_packets"] / truth["observed_packets"]
        low_counts.append(RunAnalysis(run).whole.low[truth["link"].to_numpy()])
        true.append(share.to_numpy())
    low, fraction = np.concatenate(low_counts), np.concatenate(true)
    assert (fraction == 0).sum() > 10
    assert (low > fraction).mean() <= 0.025


@pytest.mark.parametrize(
    ("telemetry", "exact"),
    [({}, True), ({"count_injection": True}, False), ({"scheme": "compact"}, False)],
    ids=str,
)
def test_over_all_links_whole_counts_are_no_estimate(
    telemetry: dict[str, Any], exact: bool
) -> None:
    run = decoded(telemetry)
    evidence = RunAnalysis(run)
    overall = evidence.overall
    sums = truth_of(run).filter(~pl.col("from_node")).sum()
    share = sums["observed_congested_packets"][0] / sums["observed_packets"][0]
    assert (overall.low == overall.high) == (overall.standard_error == 0.0) == exact
    assert ("with 95 % confidence" in met_congestion(overall.value, overall.high)) != exact
    if exact:
        assert overall.value == overall.high == pytest.approx(share, rel=1e-12)
    else:
        assert overall.low < share < overall.high


def test_messages_within_hosts_leave_whole_counts_exact() -> None:
    """They count among the packets sent, and carry nothing."""
    pattern = {"kind": "uniform", "ranks": 36, "messages": 10, "size": "32 KiB"}
    run = run_of({}, job=[{"pattern": pattern, "ranks_per_host": 3}])
    log = run.tables["messages"]
    assert (log["switch_hops"] == 0).any() and (log["switch_hops"] > 0).any()
    overall = RunAnalysis(run).overall
    sums = truth_of(run).filter(~pl.col("from_node")).sum()
    share = sums["observed_congested_packets"][0] / sums["observed_packets"][0]
    assert overall.low == overall.value == overall.high == pytest.approx(share)
    assert 0 < share < 1


def test_runs_without_headers_come_back_as_they_are() -> None:
    for telemetry in ({}, {"scheme": "off"}):
        run = run_of(telemetry, messages=1)
        assert decode_samples(run) is run


FABRIC = """
[fabric.fat_tree]
hosts_per_leaf = 8
leaves = 8
aggregation = {up}
"""

OURS, OTHERS = (",".join(str(node) for node in range(first, 64, 2)) for first in (0, 1))

THESIS = {
    "placement": FABRIC.format(up=4) + '[[job]]\npattern = {kind = "stencil2d", dims = [8, 8], '
    'size = "128 KiB"}\nplacement = "random"',
    "pattern": FABRIC.format(up=8) + '[[job]]\npattern = {kind = "reduce-naive", ranks = 64, '
    'size = "4 KiB", arrays = 50}',
    "other-traffic": FABRIC.format(up=4) + '[[job]]\nname = "ring"\nhosts = "' + OURS + '"\n'
    'pattern = {kind = "ring", ranks = 32, size = "128 KiB", messages = 8}\n[[job]]\n'
    'name = "noise"\nobserved = false\nhosts = "' + OTHERS + '"\nplacement = "random"\npattern = '
    '{kind = "uniform", ranks = 32, size = "128 KiB", messages = 30, post = "all"}',
}
"""The three cases of the thesis in small: stencil, reduction, and a ring among other traffic."""


@pytest.mark.slow
@pytest.mark.parametrize("cause", THESIS)
def test_six_bits_give_the_verdict_of_links(
    cause: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line, and by the same rule on the same evidence."""
    verdicts = {}
    for scheme in ("full", "coordinated"):
        path = tmp_path / f"{scheme}.toml"
        telemetry = f'\n[telemetry]\nscheme = "{scheme}"\nhash_bits = 5\n'
        path.write_text(THESIS[cause] + telemetry)
        arguments = ["diagnose", str(path), "--out", str(tmp_path / scheme), "--method", "block"]
        assert command([*arguments, "--seeds", "1", "--quiet", "--format", "json"]) in (0, 3)
        verdicts[scheme] = json.loads(capsys.readouterr().out)
    full, six = verdicts["full"], verdicts["coordinated"]
    assert full["cause"] == six["cause"] and six["sampling"]["sufficient"]
    # Beside other traffic, static routes save as much as its absence.
    most = {max(d["chances"], key=d["chances"].get) for d in (full, six)}
    assert most in ({cause}, {"routing"} if cause == "other-traffic" else set())
    assert all(cause in sorted(d["chances"], key=d["chances"].get)[-2:] for d in (full, six))
    of_rules = [[f for f in d["findings"] if f["code"] != "TB000"] for d in (full, six)]
    assert of_rules[0][0]["code"] == of_rules[1][0]["code"]
    assert of_rules[1][0]["cause"] == cause
    assert (six["sampling"]["scheme"], six["sampling"]["header_bits"]) == ("coordinated", 6)
    assert "(coordinated, 6 bits)" in six["sampling"]["note"]
    assert "coordinated" in (tmp_path / "coordinated" / "report.html").read_text()
    assert Run.read(tmp_path / "coordinated" / "run").tables["samples"].height > 0


@pytest.mark.parametrize("cause", THESIS)
def test_bottlenecks_lead_to_the_verdict_of_whole_links(cause: str) -> None:
    scenario = tomllib.loads(THESIS[cause])
    diagnoses = {}
    for scheme in ("full", "csig"):
        run = simulate(parse({**scenario, "telemetry": {"scheme": scheme}}))
        diagnoses[scheme] = diagnose_cause(decode_samples(run))
    assert diagnoses["csig"].cause == diagnoses["full"].cause == cause
    assert diagnoses["csig"].sampling.header_bits == 32


@pytest.mark.parametrize(
    ("scheme", "bits", "messages", "seed"),
    [
        ("full", 1, 1, 1),
        ("full", 1, 1, 3),
        ("compact", 1, 2, 1),
        ("compact", 1, 2, 2),
        ("compact", 2, 2, 2),
        ("coordinated", 1, 1, 1),
    ],
)
def test_what_is_asked_for_settles_it(scheme: str, bits: int, messages: int, seed: int) -> None:
    """TB005 asks for so many packets: with them it is silent, whatever packets carry."""

    def evidence(repeat: int) -> RunAnalysis:
        pattern = {"kind": "uniform", "ranks": 32, "messages": messages, "size": "64 KiB"}
        tree = {"hosts_per_leaf": 8, "leaves": 4, "aggregation": 3}
        job = [{"pattern": pattern, "repeat": repeat}]
        telemetry = {"scheme": scheme, "hash_bits": bits}
        run = run_of(telemetry, {"fat_tree": tree}, job=job, seed=seed, engine={})
        return RunAnalysis(decode_samples(run))

    few = evidence(1)
    assert too_few_samples(few) is not None
    enough = evidence(1 + -(-few.packets_needed() // few.received))
    assert too_few_samples(enough) is None
    assert enough.unsure_share < 0.7 * few.unsure_share


@pytest.mark.parametrize("scheme", ["compact", "coordinated", "xor-digest", "node-marking", "csig"])
def test_nodes_of_a_switch_have_their_own_candidates(scheme: str, tmp_path: Path) -> None:
    """Each node has candidates of its own: those of another node of its switch are not its."""
    (tmp_path / "fabric.txt").write_text(DISCOVERY)
    (tmp_path / "lfts.txt").write_text(LEFT + RIGHT)
    scenario = {
        "fabric": {"file": str(tmp_path / "fabric.txt"), "forwarding": str(tmp_path / "lfts.txt")},
        "job": [{"pattern": {"kind": "alltoall", "ranks": 3, "size": "256 KiB", "rounds": 20}}],
        "telemetry": {"scheme": scheme, "hash_bits": 8},
    }
    run = decode_samples(simulate(parse(scenario)))
    both = against_truth(run).filter(pl.col("src_name") == "right", ~pl.col("to_node"))
    assert both["observed_packets"].to_list() == [1280, 1280]
    # What chance leaves of 1280 packets over two hops at the worst: five deviations.
    assert both["estimated"].to_list() == pytest.approx([1280, 1280], rel=0.3)
    counts = decode_link_counts(run).packets
    if counts is not None:
        low, high = (bound[both["link"].to_numpy()] for bound in counts.interval(5.0))
        assert ((low < 1280) & (high > 1280)).all()


@pytest.mark.parametrize("scheme", ["compact", "coordinated"])
def test_static_routes_leave_one_way_to_each_node(scheme: str) -> None:
    """Of two jobs one after the other none is charged with links that only the other one used."""
    hosts = [",".join(str(n) for n in range(36) if n % 4 // 2 == part) for part in (0, 1)]
    jobs = [
        {
            "name": name,
            "hosts": where,
            "start": start,
            "pattern": {"kind": "uniform", "ranks": 18, "messages": 20, "size": "64 KiB"},
        }
        for name, where, start in zip("ab", hosts, ("0 ps", "20 ms"), strict=True)
    ]
    engine = {"buffer": "32 KiB", "eager": "1 MiB", "routing": "deterministic"}
    run = decode_samples(run_of({"scheme": scheme}, job=jobs, engine=engine))
    log = run.tables["messages"].join(run.tables["labels"], on="label")
    first_ends = log.filter(pl.col("job") == 0)["arrival_ps"].max()
    windows = run.tables["windows"].with_columns(
        job=(pl.col("start_ps") > first_ends).cast(pl.UInt32)
    )
    used = (
        run.tables["truth"]
        .join(windows, on="window")
        .filter(pl.col("observed_packets") > 0)
        .select("job", "link")
        .unique()
    )
    charged = run.tables["samples"].select("job", "link").unique()
    assert charged.height > 100
    assert charged.join(used, on=["job", "link"], how="anti").height == 0
    counts, truth = decode_link_counts(run).packets, truth_of(run)
    assert counts is not None
    assert not counts.packets[truth["observed_packets"].to_numpy() == 0].any()


@pytest.mark.parametrize("scheme", ["single-bit", "compact", "coordinated"])
def test_one_bit_hashes_never_overcount_packets(
    scheme: str,
) -> None:
    """Of few packets: what a hash varies by does not vanish with the packets of a link."""
    low, true = [], []
    for seed in range(1, 9):
        pattern = {"kind": "uniform", "ranks": 36, "messages": 1, "size": "16 KiB"}
        run = decode_samples(run_of({"scheme": scheme}, job=[{"pattern": pattern}], seed=seed))
        estimates = link_estimates(run.tables["samples"], hashed=True)
        both = (
            truth_of(run).filter(~pl.col("from_node")).join(estimates, on="link", suffix="_found")
        )
        low.append(both["packets_low"].to_numpy())
        true.append(both["observed_packets"].to_numpy())
        plain = link_estimates(run.tables["samples"])["packets_low"].to_numpy()
        assert (estimates["packets_low"].to_numpy() <= plain).all()
    assert (np.concatenate(low) > np.concatenate(true)).mean() <= 0.04


@pytest.mark.parametrize("scheme", ["compact", pytest.param("coordinated", marks=pytest.mark.slow)])
def test_intervals_of_one_reservoir_hold_the_fraction(scheme: str) -> None:
    """Every link with congestion of ten runs, against what really met congestion there."""
    inside, width, wide = [], [], []
    for seed in range(1, 11):
        run = decoded({"scheme": scheme, "hash_bits": 4}, seed=seed)
        links = truth_of(run).filter(~pl.col("from_node") & (pl.col("observed_packets") > 0))
        own_reservoir, usual = (
            links.join(
                link_estimates(run.tables["samples"], hashed=True, shared=shared), on="link"
            ).filter(pl.col("observed_congested_packets") > 0)
            for shared in (True, False)
        )
        real = own_reservoir["observed_congested_packets"] / own_reservoir["observed_packets"]
        inside.append(
            (
                (own_reservoir["fraction_low"] <= real) & (real <= own_reservoir["fraction_high"])
            ).to_numpy()
        )
        width.append((own_reservoir["fraction_high"] - own_reservoir["fraction_low"]).to_numpy())
        wide.append((usual["fraction_high"] - usual["fraction_low"]).to_numpy())
    assert np.concatenate(inside).mean() >= 0.94
    assert np.concatenate(width).mean() < 0.75 * np.concatenate(wide).mean()


def test_weights_that_are_no_whole_numbers_add_up() -> None:
    """Chance 0.7 makes weights of 1.43, and rows of one packet each: rounded singly all are 1."""
    run = run_of({"scheme": "node-marking", "probability": 0.7}, messages=3)
    counts, rows = decode_link_counts(run).packets, decode_samples(run).tables["samples"]
    assert counts is not None and (rows["hop_samples"] == 1).mean() > 0.5
    sums = rows.group_by("link").agg(pl.col("hop_weight").sum())
    link = sums["link"].to_numpy()
    assert np.abs(sums["hop_weight"].to_numpy() - counts.packets[link]).max() <= 0.5


def dragonfly(groups: int) -> dict[str, Any]:
    shape = {"nodes_per_router": 2, "routers": 4, "global_ports": 2, "groups": groups}
    return {"topology": {"kind": "dragonfly", **shape}}


@pytest.mark.parametrize(
    ("fabric", "scheme"),
    [
        (dragonfly(9), "coordinated"),
        (dragonfly(9), "csig"),
        (dragonfly(5), "compact"),
        (dragonfly(5), "edge-marking"),
        ({"topology": TORUS | {"dims": [5, 4]}, "routes": "up-down"}, "coordinated"),
        ({"topology": TORUS | {"dims": [5, 4]}, "routes": "up-down"}, "compact"),
    ],
    ids=str,
)
def test_routes_need_not_be_the_shortest(fabric: dict[str, Any], scheme: str) -> None:
    """Local, global, local where two global links would be nearer; up and down where a ring is."""
    run = run_of({"scheme": scheme, "hash_bits": 8}, fabric)
    decoded = decode_samples(run)
    assert [note for note in decoded.notes if note != BOTTLENECKS_ONLY] == run.notes
    both = against_truth(decoded)
    assert both["estimated"].sum() == pytest.approx(both["observed_packets"].sum(), rel=0.02)
    counts = decode_link_counts(run).packets
    if counts is not None:
        low, high = (bound[both["link"].to_numpy()] for bound in counts.interval())
        true = both["observed_packets"].to_numpy()
        assert ((low <= true) & (true <= high)).mean() > 0.9


@pytest.mark.parametrize(
    "fabric",
    [dragonfly(5), {"topology": {"kind": "modified-k-ary-n-tree", "k": 3, "n": 3, "width": 2}}],
    ids=["dragonfly", "modified tree"],
)
def test_one_way_to_each_node_has_one_length(fabric: dict[str, Any]) -> None:
    """Other ways of the rule may be shorter or longer: D-mod-k takes none of them."""
    pattern = {"kind": "uniform", "ranks": 24, "messages": 60, "size": "32 KiB"}
    engine = {"buffer": "32 KiB", "eager": "1 MiB", "routing": "deterministic"}
    telemetry = {"scheme": "coordinated", "hash_bits": 8}
    run = run_of(telemetry, fabric, job=[{"pattern": pattern}], engine=engine)
    counts, truth = decode_link_counts(run).packets, truth_of(run).filter(~pl.col("from_node"))
    assert counts is not None
    low, high = (bound[truth["link"].to_numpy()] for bound in counts.interval())
    true = truth["observed_packets"].to_numpy()
    assert ((low <= true) & (true <= high)).mean() > 0.9
    assert not counts.packets[truth["link"].to_numpy()][true == 0].any()


def test_paths_of_several_lengths_are_told() -> None:
    """Two groups of a small dragonfly have several links: who counts no hops knows no length."""
    run = decode_samples(run_of({"scheme": "coordinated", "hash_bits": 5}, dragonfly(5)))
    assert not run.tables["samples"].height
    assert "different lengths" in run.notes[-1] and "compact" in run.notes[-1]


@pytest.mark.parametrize(
    ("scheme", "column", "value", "says"),
    [
        ("coordinated", "hops", 7, "passed 7 switches, and its routes have"),
        ("node-marking", "header", 1 << 24, "names link 8388607, and there are"),
        ("csig", "header", 1 << 7, "carries locator 0, which no link on its routes has"),
    ],
)
def test_damaged_packets_are_refused(
    scheme: str,
    column: str,
    value: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = without_manifest(run_of({"scheme": scheme}, messages=2).write(tmp_path / "run"))
    file = folder / "packets.parquet"
    packets = pl.read_parquet(file)
    packets.with_columns(pl.lit(value).cast(packets[column].dtype).alias(column)).write_parquet(
        file
    )
    assert command(["export", "counts", str(folder), str(tmp_path / "counts.csv")]) != 0
    error = " ".join(capsys.readouterr().err.split())
    assert (
        says in error and "packets.parquet" in error and str(folder) in error and "again" in error
    )


def test_several_path_lengths_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Candidates cannot be told apart by hop there: the error names whose."""
    pattern = {"kind": "uniform", "ranks": 20, "messages": 20, "size": "32 KiB"}
    telemetry = {"scheme": "coordinated", "hash_bits": 5}
    shape = {"kind": "dragonfly", "groups": 5, "routers": 4, "nodes_per_router": 2}
    fabric = {"topology": {**shape, "global_ports": 2}}
    folder = run_of(telemetry, fabric, job=[{"pattern": pattern}]).write(tmp_path / "run")
    assert command(["export", "counts", str(folder)]) != 0
    error = capsys.readouterr().err
    assert str(folder) in error.replace("\n", "") and "different lengths" in error
