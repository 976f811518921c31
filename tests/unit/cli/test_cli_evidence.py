"""`tailback diagnose` with evidence of the network: real packets with known causes; refusals."""

from __future__ import annotations

import csv
import gzip
import json
import tarfile
from pathlib import Path

import polars as pl
import pytest

from tailback.api.candidates import make_candidates
from tailback.api.diagnose import DiagnosisResult, diagnose
from tailback.cli import run as tailback
from tailback.cli.render import diagnosis_lines
from tailback.diagnosis.model import Candidate, Diagnosis
from tailback.inference.hypotheses import FAULT
from tailback.remedy.advice import Gains, saves_in_simulation, use_placement
from tailback.scenario.model import load
from tailback.simulation import prepare
from tests.factories.cli import refused, scenario
from tests.factories.evidence_traces import late_sender
from tests.factories.otf2_traces import Build, writing
from tests.factories.public_data import real

QUICK = {"seeds": 1, "methods": ("block",), "remedies": ("placement",)}


def lab(folder: Path, name: str) -> Path:
    """A run of the real-packet laboratory, unpacked, without what is held back for judging."""
    with tarfile.open(real(f"real-lab/{name}.tar.gz")) as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def diagnosed(run: Path, *, counters: bool) -> DiagnosisResult:
    evidence = {"counters": [run / "counters.csv.gz"]} if counters else {}
    return diagnose(
        run / "trace",
        fabric=str(run / "links.csv"),
        rankfile=str(run / "rank_host.csv"),
        **evidence,
        **QUICK,  # type: ignore[arg-type]
    )


def contradictions(diagnosis: Diagnosis) -> list[str]:
    """Findings of the rules whose cause has no place in the explanation of the measured time."""
    assert diagnosis.explanation is not None
    return [
        f"{finding.code}: {finding.cause}"
        for finding in diagnosis.findings
        if finding.cause in ("slow-link", "other-traffic")
        and not diagnosis.explanation.cost(finding.cause)
    ]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab(tmp_path_factory.mktemp("slow"), "r8")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lab(tmp_path_factory.mktemp("healthy"), "r9")


def with_errors(run: Path, node: str, iface: str, errors: int) -> None:
    """Let an interface count errors between any two readings of its counters."""
    file = run / "counters.csv.gz"
    rows = pl.read_csv(gzip.decompress(file.read_bytes()), infer_schema=False)
    port = (pl.col("node") == node) & (pl.col("iface") == iface)
    count = pl.when(port).then(errors * pl.int_range(pl.len()).over("node", "iface")).otherwise(0)
    text = rows.with_columns(rx_errors=count).write_csv()
    file.write_bytes(gzip.compress(text.encode()))


@pytest.mark.data
@pytest.mark.slow
def test_errors_that_cost_no_fault_are_ruled_out(tmp_path: Path) -> None:
    """Real packets show that the cable costs less than a fault."""
    run = lab(tmp_path, "r9")
    with_errors(run, "l1", "s0", 40)
    result = diagnosed(run, counters=True)
    assert result.diagnosis.cause == "healthy" and result.diagnosis.explanation is not None
    (suspect,) = result.diagnosis.explanation.suspect_links
    assert suspect.name == "l1[s0] → s0[l1]" and suspect.suspected_for == ("errors",)
    assert suspect.status == "ruled-out" and suspect.high is not None and suspect.high < FAULT
    screen = " ".join(" ".join(diagnosis_lines(result.diagnosis, run, verbose=True)).split())
    assert f"suspect link {suspect.statement}" in screen


@pytest.mark.data
def test_the_labs_slow_cable_is_named_with_cost(slow: Path) -> None:
    diagnosis = diagnosed(slow, counters=True).diagnosis
    truth = json.loads((slow / "truth" / "truth.json").read_text())
    assert "l2" in str(truth) and "s1" in str(truth)
    assert diagnosis.cause == "slow-link" and diagnosis.explanation is not None
    cost = diagnosis.explanation.cost("slow-link")
    assert cost is not None and 0.4 <= cost.share <= 0.75
    assert contradictions(diagnosis) == []
    # One cable, that one, and at about a quarter of its 40 Mb/s.
    # By the direction that queued for longest.
    assert cost.subject.startswith(("l2[s1] → s1[l2] serves ", "s1[l2] → l2[s1] serves "))
    assert ";" not in cost.subject
    assert cost.subject in diagnosis.headline
    assert cost.rests_on == ("counters", "model") and diagnosis.confidence >= 0.7
    assert diagnosis.explanation.cost("other-traffic") is None
    assert any("lossy network" in line for line in diagnosis.explanation.sources)
    queued = [row for row in diagnosis.evidence if row.quantity == "readings with a queue"]
    likeliest = max(queued, key=lambda row: row.log_ratios["slow-link"])
    assert {*likeliest.subject.split(" → ")} == {"l2[s1]", "s1[l2]"}
    screen = "\n".join(diagnosis_lines(diagnosis, slow, verbose=True))
    assert "COST OF EACH CAUSE  of the measured time" in screen
    assert screen.index("MEASURED  11.18 s on 16 ranks") < screen.index("VERDICT  SLOW LINK")


@pytest.mark.data
def test_the_labs_healthy_run_is_open_without_counters(healthy: Path) -> None:
    diagnosis = diagnosed(healthy, counters=False).diagnosis
    assert diagnosis.cause == "undetermined"
    assert max(diagnosis.chances, key=lambda cause: diagnosis.chances[cause]) == "healthy"
    assert contradictions(diagnosis) == []


@pytest.mark.data
@pytest.mark.slow
def test_counters_show_the_labs_healthy_run(healthy: Path) -> None:
    diagnosis = diagnosed(healthy, counters=True).diagnosis
    # Whether links are full or not, nothing is at fault.
    sound = diagnosis.chances["healthy"] + diagnosis.chances["capacity"]
    assert diagnosis.cause in ("healthy", "undetermined") and sound > 0.75
    assert contradictions(diagnosis) == []
    assert diagnosis.explanation is not None
    assert diagnosis.explanation.cost("slow-link") is None
    assert diagnosis.explanation.cost("other-traffic") is None
    assert diagnosis.slow_links == [] and "→" not in diagnosis.headline


@pytest.mark.data
@pytest.mark.slow
def test_port_errors_on_the_jobs_path_are_evidence(healthy: Path, tmp_path: Path) -> None:
    rows = pl.read_csv(gzip.decompress((healthy / "counters.csv.gz").read_bytes()))
    faulty = pl.col("node").eq("l2") & pl.col("iface").eq("s1")
    elsewhere = rows.filter(faulty).with_columns(node=pl.lit("store9"), iface=pl.lit("eth0"))
    both = pl.concat([rows, elsewhere]).with_columns(
        rx_crc_errors=pl.when(faulty | pl.col("node").eq("store9"))
        .then(pl.col("tx_bytes") // 1000)
        .otherwise(0)
    )
    (tmp_path / "counters.csv").write_text(both.write_csv())
    diagnosis = diagnose(
        healthy / "trace",
        fabric=str(healthy / "links.csv"),
        rankfile=str(healthy / "rank_host.csv"),
        counters=[tmp_path / "counters.csv"],
        **QUICK,
    ).diagnosis  # type: ignore[arg-type]
    assert diagnosis.explanation is not None
    (events,) = diagnosis.explanation.port_events
    assert events.finding == "errors" and [port.device for port in events.ports] == ["l2"]
    assert "l2[s1] counted" in events.statement
    assert events.statement in " ".join(" ".join(diagnosis_lines(diagnosis, healthy)).split())


@pytest.mark.slow
@pytest.mark.data
def test_the_trace_alone_is_certain_of_no_cable(slow: Path) -> None:
    diagnosis = diagnosed(slow, counters=False).diagnosis
    assert diagnosis.explanation is not None
    named = diagnosis.headline
    if diagnosis.cause == "slow-link" and "does not tell which" not in named:
        assert "l2[s1] → s1[l2]" in named or "s1[l2] → l2[s1]" in named
    elif diagnosis.cause == "slow-link":
        assert "l2[s1]" in named or "s1[l2]" in named
        assert diagnosis.confidence <= 0.6
    else:
        assert diagnosis.cause == "undetermined" and diagnosis.confidence == 0.0
    assert diagnosis.explanation.missing


@pytest.mark.data
def test_counters_of_another_fabric_are_refused(
    slow: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "counters.csv"
    with gzip.open(slow / "counters.csv.gz", "rt") as source, other.open("w") as target:
        rows = csv.reader(source)
        out = csv.writer(target)
        out.writerow(next(rows))
        for row in rows:
            out.writerow(
                [
                    f"x{cell}" if cell and cell[0] in "hls" and cell[1:2].isdigit() else cell
                    for cell in row
                ]
            )
    refused(
        capsys,
        [
            "diagnose",
            slow / "trace",
            "--fabric",
            slow / "links.csv",
            "--rankfile",
            slow / "rank_host.csv",
            "--counters",
            other,
            "--out",
            tmp_path / "out",
            "--quiet",
        ],
        "no counter belongs to a link of the fabric",
        "remedy: ",
    )
    assert not (tmp_path / "out").exists()


def test_evidence_without_a_measured_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = tmp_path / "counters.csv"
    counted.write_text("time_utc,node,iface,tx_bytes\n1,a,eth0,1\n2,a,eth0,2\n")
    for option in ("--counters", "--jobs"):
        refused(
            capsys,
            ["diagnose", scenario(tmp_path), option, counted, "--out", tmp_path / "out"],
            f"{option}: needs a measured run",
            "remedy: give an unchanged trace with times",
        )


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


TREE = "[fabric.fat_tree]\nhosts_per_leaf = {hosts}\nleaves = 2\naggregation = 4\n"


def traced(folder: Path, trace: Path, keys: str = "", hosts: int = 4) -> Path:
    path = folder / "traced.toml"
    path.write_text(f'{TREE.format(hosts=hosts)}[[job]]\ntrace = "{trace}"\n{keys}\n')
    return path


def test_a_trace_is_placed_on_its_hosts(
    write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(late_sender(), hosts=["n6", "n2"])
    ran = {}
    for name, keys in (("own", ""), ("said", 'hosts = "0-1"')):
        out = tmp_path / name
        arguments = ["diagnose", str(traced(tmp_path, trace, keys)), "-v", "--out", str(out)]
        code = tailback(
            [*arguments, "--seeds", "1", "--method", "block", "--quiet", "--remedy", "placement"]
        )
        captured = capsys.readouterr()
        assert code in (0, 3), captured.err
        ran[name] = captured.out
        node = pl.read_parquet(out / "run" / "ranks.parquet").sort("rank")["node"].to_list()
        assert node == ([6, 2] if name == "own" else [0, 1]), name
        (job,) = pl.read_parquet(out / "run" / "jobs.parquet").to_dicts()
        assert job["placement"] == ("recorded" if name == "own" else "block")
    assert "2, from the trace" in " ".join(ran["own"].split())


def test_the_recorded_placement_is_a_named_candidate(write: Build, tmp_path: Path) -> None:
    ready = prepare(load(traced(tmp_path, write(late_sender(), hosts=["n6", "n2"]))))
    made, errors = make_candidates(ready, ["block"], None, lambda *_: None)
    # Block changes nothing: hosts are in the order in which the ranks ran on them.
    assert not errors
    assert {variant.name: node.tolist() for variant, node in made.items()} == {"recorded": [6, 2]}


def test_advice_names_the_placement_in_use() -> None:
    tiled = Candidate(name="tile", elapsed_ps=80)
    for name, words in (
        ("recorded", "the recorded one"),
        ("file", "that of the rank file"),
        ("block", "block"),
    ):
        gains = Gains(Candidate(name=name, elapsed_ps=100), saves_in_simulation)
        text = use_placement(tiled, gains)
        assert text == f"Use placement tile instead of {words}: 20 % less time by re-simulation."


def test_hosts_missing_from_the_fabric_leave_the_default(write: Build, tmp_path: Path) -> None:
    trace = write(late_sender(), hosts=["elsewhere1", "elsewhere2"])
    assert prepare(load(traced(tmp_path, trace))).observed.node.tolist() == [0, 1]
    domain = write(late_sender(), hosts=["n6.cluster.example", "n2.cluster.example"])
    assert prepare(load(traced(tmp_path, domain))).observed.node.tolist() == [6, 2]


@pytest.mark.data
def test_a_trace_with_slow_calls_gets_another_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    screens = {}
    for name in ("fast", "slow"):
        out = tmp_path / name
        path = traced(tmp_path, real(f"repro/stretched/{name}"), hosts=8)
        code = tailback(
            [
                "diagnose",
                str(path),
                "--out",
                str(out),
                "--seeds",
                "1",
                "--method",
                "block",
                "--remedy",
                "placement",
                "--quiet",
            ]
        )
        captured = capsys.readouterr()
        assert code in (0, 3), captured.err
        screens[name] = captured.out.replace(str(out), "")
        explanation = json.loads((out / "diagnosis.json").read_text())["explanation"]
        assert sum(explanation["parts"].values()) == explanation["elapsed_ps"]
    assert screens["fast"] != screens["slow"]
    # Receives of 10 ms for a few kilobytes: no cause with evidence explains them.
    assert "VERDICT  UNDETERMINED" in screens["slow"]
    assert ("is not explained by any cause with evidence") in " ".join(screens["slow"].split())
