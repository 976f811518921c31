"""The scenarios the diagnosis is measured on, and how what is observed of them is made."""

from __future__ import annotations

import diagnosis
import diagnosis_observe
import diagnosis_suite
import polars as pl
import pytest

from tailback.run.run import Run
from tailback.simulation.decode import decode_samples
from tailback.telemetry.estimate import link_estimates


@pytest.fixture(scope="module")
def case() -> diagnosis_suite.Case:
    """Placement on a three-level tree: several candidates at every hop."""
    case_16 = diagnosis_suite.make(16)
    assert case_16.kind == "fat tree, 3 levels"
    return case_16


@pytest.fixture(scope="module")
def joined_run(case: diagnosis_suite.Case) -> Run:
    return diagnosis_observe.join(diagnosis_observe.observe(case, 60_000), case.as_known())


def test_a_scenario_follows_from_its_number() -> None:
    assert diagnosis_suite.make(15) == diagnosis_suite.make(15)
    labels = [diagnosis_suite.LABELS[n // 2 % 7] for n in range(28)]
    assert {labels.count(label) for label in diagnosis_suite.LABELS} == {4}
    for split in (0, 1):
        assert set(labels[split::2]) == set(diagnosis_suite.LABELS)


def test_labels_need_counterfactuals_that_confirm_them() -> None:
    clear = {
        "lost": 0.5,
        "pattern": 0.0,
        "placement": 0.45,
        "other-traffic": 0.0,
        "routing": 0.0,
        "slow-link": 0.0,
        "rates": 0.2,
        "wire": 0.3,
    }
    assert diagnosis_suite.confirm("placement", clear)
    assert not diagnosis_suite.confirm("routing", clear)
    assert not diagnosis_suite.confirm("placement", {**clear, "other-traffic": 0.3})
    assert not diagnosis_suite.confirm("placement", {**clear, "placement": 0.2})
    counterfactuals = {**dict.fromkeys(clear, 0.0), "wire": 0.9, "rates": 0.45}
    assert diagnosis_suite.confirm("injection", counterfactuals)
    assert not diagnosis_suite.confirm("not-network", counterfactuals)


def test_a_user_knows_no_job_cable_or_truth() -> None:
    other, slow = diagnosis_suite.make(4), diagnosis_suite.make(8)
    assert len(other.scenario.job) == 2 and len(other.as_known().job) == 1
    assert slow.scenario.fabric.degraded and not slow.as_known().fabric.degraded
    seen = diagnosis_observe.join(diagnosis_observe.observe(other, 1), other.as_known())
    seen = diagnosis_observe.known_to_user(seen)
    assert seen.tables["jobs"]["name"].to_list() == ["app"] and not seen.tables["truth"].height
    assert set(seen.tables["samples"]["job"].to_list()) == {0}
    ranks = set(seen.tables["ranks"]["rank"].to_list())
    assert set(seen.tables["messages"]["src_rank"].to_list()) <= ranks


def test_executions_are_joined_one_after_the_other(
    case: diagnosis_suite.Case, joined_run: Run
) -> None:
    runs = diagnosis_observe.observe(case, 60_000)
    assert joined_run.elapsed_ps == sum(run.elapsed_ps for run in runs)
    windows = joined_run.tables["windows"]
    assert (windows["start_ps"][1:] >= windows["end_ps"][:-1]).all()
    sent = sum(int(run.tables["samples"]["hop_samples"].sum()) for run in runs)
    assert int(joined_run.tables["samples"]["hop_samples"].sum()) == sent


def test_thinned_samples_estimate_the_same_packets(joined_run: Run) -> None:
    thin = diagnosis_observe.thin(joined_run, 10_000, 1)
    assert thin.tables["samples"]["hop_samples"].sum() == pytest.approx(10_000, rel=0.05)
    full, part = (link_estimates(run.tables["samples"]) for run in (joined_run, thin))
    both = full.join(part, on="link", suffix="_thin").filter(pl.col("packets") > 500)
    assert both.height > 50
    off = (both["packets_thin"] - both["packets"]) / (both["packets_se_thin"])
    assert abs(float(off.mean() or 0)) < 0.3 and 0.8 < float(off.std() or 0) < 1.2  # type: ignore[arg-type]


def test_every_scheme_sees_the_same_packets(case: diagnosis_suite.Case, joined_run: Run) -> None:
    full = link_estimates(joined_run.tables["samples"])
    for scheme in ("coordinated", "compact"):
        runs = diagnosis_observe.observe(case, 60_000, scheme)
        scenario = diagnosis_observe.carrying(case.as_known(), scheme)
        joined = diagnosis_observe.join(runs, scenario)
        assert joined.elapsed_ps == joined_run.elapsed_ps
        assert joined.tables["packets"]["packet"].is_unique().all()
        six = link_estimates(decode_samples(joined).tables["samples"])
        both = full.join(six, on="link", suffix="_six").filter(pl.col("packets") > 300)
        off = (both["packets_six"] - both["packets"]) / both["packets_se_six"].clip(lower_bound=1)
        assert both.height > 50 and float(off.abs().median() or 9) < 1.2  # type: ignore[arg-type]
        total = float(six["packets"].sum()) / float(full["packets"].sum())
        assert total == pytest.approx(1.0, abs=0.02)
        hot = both.filter(pl.col("fraction") > 0.3)
        assert float((hot["fraction"] - hot["fraction_six"]).abs().median() or 0) < 0.15  # type: ignore[arg-type]
        thin = decode_samples(diagnosis_observe.thin(joined, 10_000, 1))
        assert thin.tables["samples"]["hop_samples"].sum() == pytest.approx(10_000, rel=0.1)
        less = link_estimates(thin.tables["samples"])["packets"].sum()
        assert less == pytest.approx(float(six["packets"].sum()), rel=0.1)


def test_figures_count_what_was_right() -> None:
    def said(number: int, cause: str, confidence: float) -> diagnosis.Answer:
        return diagnosis.Answer(
            number,
            "pattern",
            "torus",
            "adaptive",
            "full",
            1000,
            "own",
            cause,
            confidence,
            "samples",
            "H.",
            0.1,
            {},
            0,
        )

    answers = [said(1, "pattern", 0.95), said(3, "pattern", 0.95), said(5, "placement", 0.6)]
    f = diagnosis.figures(answers)
    assert f["accuracy"] == pytest.approx(2 / 3) and f["right"] == 2
    assert f["confusion"]["pattern"] == {"pattern": 2, "placement": 1}  # type: ignore[index]
    assert [miss["number"] for miss in f["misses"]] == [5]  # type: ignore[attr-defined]
    bins = diagnosis.calibration(answers)
    assert [(b["answers"], b["right"]) for b in bins] == [(1, 0.0), (2, 1.0)]
    assert diagnosis.expected_error(bins) == pytest.approx((0.6 + 2 * 0.05) / 3)
    low, high = diagnosis.wilson(97, 100)
    assert low == pytest.approx(0.915, abs=0.002) and high == pytest.approx(0.990, abs=0.002)
