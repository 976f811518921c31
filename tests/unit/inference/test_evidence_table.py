"""The table of evidence: its rows, what they say of causes, and its views."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.api.diagnose import DiagnosisResult, diagnose
from tailback.cli import run as tailback
from tailback.cli.evidence_screen import SHOWN, evidence_lines
from tailback.diagnosis.cable_search import Outcome
from tailback.diagnosis.evidence_rows import by_weight, evidence_table
from tailback.diagnosis.explanation import EvidenceRow
from tailback.fabric.model import Fabric
from tailback.fabric.slower_cables import MissingCables
from tailback.inference.comparisons import PortBytes, PortStalls
from tailback.inference.error_model import OBSERVATIONS, ErrorModel
from tailback.inference.evidence_table import (
    Evidence,
    divided,
    rows_of_fabric,
    rows_of_other_jobs,
    rows_of_port_events,
)
from tailback.names.display import display_width
from tests.factories.cli import scenario
from tests.factories.counted_links import small_tree

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> DiagnosisResult:
    """A recording of real packets with counters and samples, in which a cable was slowed down."""
    folder = tmp_path_factory.mktemp("lab") / "slow-cable"
    shutil.copytree(EXAMPLES / "lab" / "slow-cable", folder)
    return diagnose(folder, seeds=1, methods=("block",), remedies=("placement",))


def row(**fields: object) -> EvidenceRow:
    stated: dict[str, object] = {
        "subject": "a[1] → b[2]",
        "kind": "link",
        "start_ps": 0,
        "end_ps": 10**12,
        "quantity": "stall time",
        "value": 1e9,
        "unit": "ps",
        "source": "counters",
    }
    return EvidenceRow.model_validate(stated | fields)


# --- likelihood ratios -------------------------------------------------------------------------


@pytest.mark.parametrize("after", [[0.1, 0.02, 0.0], [0.3, 0.2, 0.1], [0.5, 0.4, 0.1]])
def test_rows_add_up_to_their_kind(after: list[float]) -> None:
    before = np.array([0.3, 0.2, 0.1])
    parts = divided(np.array(after), before, 0.01)
    with_cause, without = (
        Outcome(100, {"calls": misfit}) for misfit in (sum(after), float(before.sum()))
    )
    model = ErrorModel(100, {"calls": 0.01})
    assert parts.sum() == pytest.approx(model.log_ratios(with_cause, without)["calls"])
    assert (parts[before > np.array(after)] > 0).all()


def test_log_ratios_are_differences_of_likelihoods() -> None:
    model = ErrorModel(1000, {"calls": 0.003, "sends": 0.01})
    well = Outcome(1000, {"calls": 0.001, "sends": None}, {"calls": 0.02})
    badly = Outcome(700, {"calls": 0.3, "sends": 0.4})
    ratios = model.log_ratios(well, badly)
    assert ratios.pop("time") == pytest.approx(model.log_time(1000) - model.log_time(700))
    assert sum(ratios.values()) == pytest.approx(model.log_shape(well) - model.log_shape(badly))
    assert ratios["calls"] > 0.5 * OBSERVATIONS > 0 > ratios["sends"]


def test_parts_of_links_add_up_to_the_misfit(recorded: DiagnosisResult) -> None:
    run = recorded.run
    n_links = run.tables["links"].height
    seen = np.linspace(1.0, 2.0, n_links) * 1e12
    seen[3] = np.nan
    stalls = PortStalls(seen, np.zeros(n_links, np.bool_), 10**12, np.zeros(n_links))
    sent = PortBytes(seen, np.arange(n_links) % 2 == 0)
    for comparison in (stalls, sent):
        parts = comparison.parts(run)
        assert parts is not None and len(parts) == len(comparison.links)
        assert parts.sum() == pytest.approx(comparison(run))


# --- rows --------------------------------------------------------------------------------------


def test_all_sources_have_rows(recorded: DiagnosisResult) -> None:
    rows = recorded.diagnosis.evidence
    assert {row.source for row in rows} >= {"trace", "counters", "samples"}
    assert {row.kind for row in rows} >= {"run", "link", "rank", "call"}
    assert rows == by_weight(rows)


def test_slow_cables_are_favoured_by_their_rows(recorded: DiagnosisResult) -> None:
    rows = recorded.diagnosis.evidence
    time = next(row for row in rows if row.quantity == "measured time")
    assert time.value == recorded.diagnosis.elapsed_ps and time.log_ratios["slow-link"] > 10
    served = {
        row.subject: row.says["slow-link"] for row in rows if row.quantity == "rate with a queue"
    }
    assert set(served) == {"l2[s1] → s1[l2]", "s1[l2] → l2[s1]"}
    assert set(served.values()) == {"for: in the verdict"}
    sampled = max(
        (row for row in rows if row.quantity == "congestion"),
        key=lambda row: row.log_ratios.get("slow-link", 0.0),
    )
    assert sampled.subject == "s1[l2] → l2[s1]"


def test_sound_links_rule_out_slow_cables(recorded: DiagnosisResult) -> None:
    said = {
        row.subject: row.says["slow-link"]
        for row in recorded.diagnosis.evidence
        if row.quantity == "rate reached"
    }
    assert said["l0[s0] → s0[l0]"] == "rules out: its queue limits nothing"
    assert said["l2[s1] → s1[l2]"].startswith("rules out rates below ")


def test_decisive_rows_come_first() -> None:
    rows = [
        row(value=0.0),
        row(value=1.0, says={"noise": "for: 1 s"}),
        row(value=2.0, log_ratios={"slow-link": 0.2}),
        row(value=3.0, log_ratios={"slow-link": -4.0, "other-traffic": 1.5}),
        row(value=4.0, log_ratios={"slow-link": 2.0}),
    ]
    assert [each.value for each in by_weight(rows)] == [3.0, 4.0, 1.0, 2.0, 0.0]


def test_forecasts_have_rows_of_rules_and_costs(tmp_path: Path) -> None:
    demo = EXAMPLES / "demo" / "demo.toml"
    result = diagnose(demo, seeds=1, methods=("block",), remedies=("placement",))
    diagnosis = result.diagnosis
    quantities = {row.quantity for row in diagnosis.evidence}
    assert "congestion, TB002" in quantities and "cost of network" in quantities
    cost = next(row for row in diagnosis.evidence if row.quantity == "cost of network")
    assert cost.source == "model" and cost.says["capacity"].startswith("for: ")


# --- views -------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 160])
def test_the_screen_fits_the_terminal(
    recorded: DiagnosisResult, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = evidence_lines(recorded.diagnosis.evidence)
    assert max(map(display_width, lines)) < columns
    more = len(recorded.diagnosis.evidence) - SHOWN
    assert any(f"{more} more rows in evidence.parquet" in line for line in lines)
    assert "slow link, for: in the verdict" in "\n".join(lines)


def test_hostile_names_do_not_reach_the_terminal() -> None:
    (_, _, _, line, *_) = evidence_lines([row(subject="l0\x1b[2J", log_ratios={"slow-link": 1.5})])
    assert "\x1b" not in line and "+1.5" in line


def test_the_table_is_a_file_of_the_diagnosis(recorded: DiagnosisResult, tmp_path: Path) -> None:
    recorded.write(tmp_path / "out")
    table = pl.read_parquet(tmp_path / "out" / "evidence.parquet")
    assert table.equals(evidence_table(recorded.diagnosis.evidence))
    written = json.loads((tmp_path / "out" / "diagnosis.json").read_text())["evidence"]
    assert table["for_slow_link"].to_list() == [
        each["log_ratios"].get("slow-link") for each in written
    ]
    assert "All evidence" in (tmp_path / "out" / "report.html").read_text()


def test_the_option_prints_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = scenario(tmp_path)
    for options, there in (((), False), (("--evidence",), True)):
        out = tmp_path / f"out{there}"
        arguments = ["diagnose", str(file), "--out", str(out), "--quiet", "--seeds", "1"]
        assert tailback([*arguments, "--method", "block", *options]) in (0, 3)
        assert ("EVIDENCE, the most decisive first" in capsys.readouterr().out) is there


# --- sources -----------------------------------------------------------------------------------


def stated_evidence(fabric: Fabric, **of_network: Any) -> Evidence:
    """Evidence without a search: what files state of a fabric, and what ports counted."""
    measured: Any = SimpleNamespace(measured=SimpleNamespace(elapsed_ps=10**12))
    network: Any = SimpleNamespace(link_events=None, others=None, jobs=None)
    network.__dict__.update(of_network)
    space: Any = SimpleNamespace(
        evidence=network, measured=measured, others=SimpleNamespace(traffic=None)
    )
    return Evidence(space, fabric, {}, {}, {}, None)


def test_missing_cables_are_evidence_of_the_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = small_tree(leaves=4)
    assert not list(rows_of_fabric(stated_evidence(fabric)))
    leaf = fabric.n_nodes
    few = [MissingCables(leaf, 3, 4)]
    monkeypatch.setattr("tailback.inference.evidence_table.missing_cables", lambda _: few)
    (lacking,) = rows_of_fabric(stated_evidence(fabric))
    assert (lacking.subject, lacking.value) == (fabric.vertex_name(leaf), 3.0)
    assert lacking.quantity == "up-links, of 4 elsewhere" and lacking.source == "fabric"


def test_slow_cables_of_the_file_are_rows() -> None:
    fabric = small_tree()
    gbps = fabric.link_gbps.copy()
    gbps[0] = 25.0
    slower = replace(fabric, link_gbps=gbps, nominal_gbps=fabric.link_gbps)
    (stated,) = rows_of_fabric(stated_evidence(slower))
    assert (stated.subject, stated.value) == (fabric.link_name(0), 25.0)
    assert stated.says == {"slow-link": "for: 25 of 100 Gb/s"}


def test_errors_and_jobs_are_rows() -> None:
    fabric = small_tree()
    events = pl.DataFrame(
        {
            "link": [3, 4],
            "finding": ["errors", "paused"],
            "counters": [["symbol_error"], ["rx_pause"]],
            "count": [12, 0],
        }
    )
    jobs: Any = SimpleNamespace(jobs=(SimpleNamespace(job="17", hosts=("a", "b"), sent_bytes=9.0),))
    evidence = stated_evidence(fabric, link_events=events, others=jobs, jobs=("17",))
    (errors,) = rows_of_port_events(evidence)
    assert (errors.subject, errors.value) == (fabric.link_name(3), 12.0)
    sent, listed = rows_of_other_jobs(evidence)
    assert (sent.subject, sent.value, sent.unit) == ("job 17", 9.0, "B")
    assert sent.says == {"other-traffic": "against: too little to matter"}
    assert (listed.source, listed.value) == ("jobs", 1.0)
