"""Blind cases: what they leave on disk is what happened; answers are held against the truth."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import blind
import blind_case
import blind_counters
import blind_draw
import blind_programs
import blind_reality
import polars as pl
import pytest
from blind_draw import Case

from tailback import _core
from tailback.evidence.jobs import read_jobs
from tailback.evidence.measure import measure
from tailback.fabric.builders import forwarding_network, require_deadlock_free
from tailback.fabric.lft import NO_ENTRY, forwarding, read_lfts
from tailback.port_counters.readers import read_counters
from tailback.port_counters.readers.model import united
from tailback.run.run import Run

pytest.importorskip("otf2.writer", reason="it writes the traces")

NUMBER, SEED, CAUSE = 16, 21, "placement"
"""A small case: 24 badly placed ranks on a machine of 48 hosts."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("blind") / "case"
    blind_case.write_case(NUMBER, "build", SEED, path)
    return path


@pytest.fixture(scope="module")
def truth(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "truth" / "truth.json").read_text())
    return facts


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return blind_draw.draw(NUMBER, "build", SEED, tmp_path_factory.mktemp("drawn"))


@pytest.fixture(scope="module")
def counted(case: Case) -> Run:
    """What happened, with its counters."""
    return blind_reality.run(case.reality, counters_ps=case.interval_ps // blind_counters.STEPS)


@pytest.mark.slow
def test_the_traces_measured_time_is_the_true_one(folder: Path, truth: dict[str, Any]) -> None:
    measured = measure(folder / "seen" / "trace").measured
    # Clocks drift by 20 ppm, ticks are nanoseconds.
    slack = truth["elapsed_ps"] * 40e-6 + 2_000
    assert measured.low_ps - slack <= truth["elapsed_ps"] <= measured.high_ps + slack
    assert measured.n_ranks == truth["drawn"]["ranks"]
    assert measured.hosts is not None
    assert measured.hosts.source == "the trace"


@pytest.mark.slow
def test_host_clocks_are_apart_as_drawn(folder: Path, truth: dict[str, Any]) -> None:
    run = measure(folder / "seen" / "trace")
    offset = truth["clock_offset_ps"]
    hosts = run.tables["hosts"]
    if run.measured.clocks.recorded_offsets:
        pytest.skip("the case has records of its clocks' offsets")
    by_host = {f"node{n + 1:03d}": ps for n, ps in enumerate(offset)}
    true = [by_host[host] for host in hosts["host"].to_list()]
    offsets = hosts["offset_ps"].to_list()
    # Corrections are known but for a constant, and as well as messages compare clocks.
    apart = [f + t for f, t in zip(offsets, true, strict=True)]
    most = max(run.measured.clocks.largest_error_ps, 10_000_000)
    assert max(apart) - min(apart) <= most + truth["elapsed_ps"] * 40e-6


def test_what_is_seen_holds_nothing_of_the_truth(folder: Path, truth: dict[str, Any]) -> None:
    seen = {path.name for path in (folder / "seen").iterdir()}
    assert seen == {
        "trace",
        "fabric.ibnetdiscover",
        "forwarding",
        "counters",
        "jobs.csv",
        "case.json",
    }
    case_files = json.loads((folder / "seen" / "case.json").read_text())
    assert set(case_files) == {"trace", "fabric", "counters", "jobs", "forwarding", "routing"}
    assert truth["main"] == CAUSE


@pytest.mark.slow
def test_marks_delay_nobody(case: Case) -> None:
    marked = blind_reality.run(case.reality, marked=True)
    plain = blind_reality.run(case.reality)
    assert marked.elapsed_ps == plain.elapsed_ps
    scripts = case.reality.scripts()
    times = blind_programs.call_times(marked, scripts)
    assert all((t[:, 1] >= t[:, 0]).all() and (t[1:, 0] == t[:-1, 1]).all() for t in times)
    last = max(int(t[-1, 1]) for t in times)
    assert last - case.reality.start_ps == marked.elapsed_ps


@pytest.mark.slow
@pytest.mark.parametrize("form", blind_counters.FORMS)
@pytest.mark.parametrize("narrow", [False, True])
def test_counters_of_every_form_count_sent_data(
    case: Case, counted: Run, tmp_path: Path, form: str, narrow: bool
) -> None:
    sampling = blind_counters.Sampling(form, case.interval_ps, 3_000_000, True, narrow, 0.2, 5)
    path = tmp_path / "counters"
    totals = blind_counters.write_counters(
        path, counted, case.reality.fabric_file, sampling, 10**18
    )
    files = [path] if form == "collect" else sorted(path.iterdir())
    counters = united([read_counters(file) for file in files])
    intervals = counters.all_intervals()
    names = {}
    if form == "perfquery":  # it knows ports by LID alone
        targets = blind_counters.read_targets(case.reality.fabric_file).targets
        names = {f"lid {target.lid}": target.node_name for target in targets}
    intervals = intervals.with_columns(pl.col("node_name").replace(names))
    assert blind_counters.counted_bytes(intervals) == totals["bytes_between_first_and_last_reading"]
    # Our hosts send nothing before the first reading and after the last.
    last = counted.tables["counters"].sort("time_ps").group_by("link").last()
    links = counted.tables["links"].join(last, on="link").filter("from_node")
    ours = links.filter(pl.col("src").is_in(case.reality.node.tolist()))
    assert ours.height == len(set(case.reality.node.tolist()))
    for name, port, sent in ours.select("src_name", "src_port", "data_bytes").iter_rows():
        assert totals["bytes_between_first_and_last_reading"][f"{name}[{port}]"] == sent // 4 * 4
    assert ours["data_bytes"].sum() > blind_programs.bytes_sent(case.reality.scripts())["bytes"]


@pytest.mark.slow
def test_a_narrow_wait_counter_stops_at_all_ones(case: Case, counted: Run, tmp_path: Path) -> None:
    sampling = blind_counters.Sampling("collect", case.interval_ps, 0, True, True, 1.0, 5)
    blind_counters.write_counters(
        tmp_path / "counters", counted, case.reality.fabric_file, sampling, 10**18
    )
    readings = pl.read_parquet(tmp_path / "counters" / "readings" / "*.parquet")
    assert readings["xmit_wait_ticks"].max() == blind_counters.TOP_32


def test_forwarding_tables_lead_everywhere(folder: Path, case: Case) -> None:
    tables = forwarding(case.reality.fabric, read_lfts(folder / "seen" / "forwarding"))
    assert not tables.notes
    assert (tables.link != NO_ENTRY).all()
    network = forwarding_network(case.reality.fabric, tables.link)
    require_deadlock_free(case.reality.fabric, _core.NetworkRouting.of_network(network))


def test_the_job_list_has_our_job_and_hosts(folder: Path, truth: dict[str, Any]) -> None:
    jobs = read_jobs(folder / "seen" / "jobs.csv").jobs
    ours = jobs.filter(pl.col("job") == "4711").row(0, named=True)
    start = truth["utc_ns"] + truth["start_ps"] // 1000
    assert ours["start_ns"] < start
    assert ours["end_ns"] > start + truth["elapsed_ps"] // 1000
    assert len(ours["hosts"]) * truth["drawn"]["ranks_per_host"] == truth["drawn"]["ranks"]


def test_the_truth_is_the_run_without_its_cause(case: Case, truth: dict[str, Any]) -> None:
    without = blind_reality.run(case.reality, [CAUSE]).elapsed_ps
    assert truth["causes"][CAUSE]["removed_ps"] == truth["elapsed_ps"] - without
    assert truth["causes"][CAUSE]["removed_ps"] >= blind_draw.WORTH * truth["elapsed_ps"]
    assert truth["clean_ps"] == without


@pytest.mark.slow
def test_a_case_follows_from_its_number(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "case"
    blind_case.write_case(NUMBER, "build", SEED, again)
    for name in ("truth/truth.json", "seen/jobs.csv", "seen/forwarding/lfts.txt"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()
    for name in sorted(os.listdir(folder / "seen" / "trace" / "traces")):
        path = f"seen/trace/traces/{name}"
        assert (again / path).read_bytes() == (folder / path).read_bytes()


def test_shapley_shares_add_up() -> None:
    both = blind_reality.Counterfactual.__new__(blind_reality.Counterfactual)
    both.reality = type("R", (), {"causes": ("noise", "slow_link")})()
    both.elapsed = {
        frozenset(): 100,
        frozenset({"noise"}): 90,
        frozenset({"slow_link"}): 60,
        frozenset({"noise", "slow_link"}): 40,
    }
    assert both.removed_ps() == {"noise": 10, "slow_link": 40}
    shares = both.shares_ps()
    assert shares == {"noise": 15.0, "slow_link": 45.0}
    assert sum(shares.values()) == 100 - both.clean_ps


# --- the scorer ------------------------------------------------------------------------------


def _truth(**changes: Any) -> dict[str, Any]:
    truth: dict[str, Any] = {
        "number": 1,
        "kind": "slow_cable",
        "long": False,
        "main": "slow_link",
        "accepted": ["slow_link"],
        "fit_trace_alone": ["slow_link", "other_traffic"],
        "elapsed_ps": 100,
        "causes": {"slow_link": {"removed_ps": 30}},
    }
    return truth | changes


def _diagnosis(cause: str, confidence: float = 0.9, **shares: float) -> dict[str, Any]:
    costs = [{"cause": name.replace("_", "-"), "share": share} for name, share in shares.items()]
    return {"cause": cause, "confidence": confidence, "explanation": {"costs": costs}}


def test_not_determined_needs_two_causes_that_fit() -> None:
    unsure = _diagnosis("undetermined")
    assert blind.judge(_truth(), unsure, "trace").right
    assert not blind.judge(_truth(), unsure, "all").right
    assert not blind.judge(_truth(fit_trace_alone=["slow_link"]), unsure, "trace").right
    assert blind.judge(_truth(), _diagnosis("slow-link"), "all").right
    assert not blind.judge(_truth(), _diagnosis("other-traffic"), "all").right


def test_figures_of_answers() -> None:
    healthy = _truth(number=2, kind="healthy", main="healthy", accepted=["healthy"], causes={})
    mixed = _truth(number=3, causes={"slow_link": {"removed_ps": 30}, "noise": {"removed_ps": 10}})
    answers = [
        blind.judge(_truth(), _diagnosis("slow-link"), "all"),
        blind.judge(healthy, _diagnosis("healthy"), "all"),
        blind.judge(healthy | {"number": 4}, _diagnosis("placement"), "all"),
        blind.judge(mixed, _diagnosis("slow-link", slow_link=0.25, noise=0.25), "all"),
    ]
    made = blind.figures(answers)
    assert made["scenarios"] == 4
    assert made["accuracy"] == 0.75
    assert made["accuracy_trace_only"] is None
    assert made["false_alarms"] == 0.5
    assert made["share_error"] == pytest.approx(0.1)
    assert made["calibration_error"] is None, "no bin has ten answers"
    many = [answers[0]] * 9 + [answers[2]] * 3
    assert blind.figures(many)["calibration_error"] == pytest.approx(0.15)
    assert "slow_cable" in blind.text(answers)


def test_a_fifth_of_cases_is_healthy() -> None:
    sequence = blind_draw.SEQUENCE
    assert set(sequence) == set(blind_draw.KINDS)
    assert sequence.count("healthy") / len(sequence) >= 0.2
