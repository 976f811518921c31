"""Two runs as differences: links, lines, pairs of ranks, frames of time, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.api.compare import compare_runs, why_unrelated
from tailback.cli import run as tailback
from tailback.cli.result import EXIT_UNDETERMINED
from tailback.report import (
    FigureData,
    attribute,
    call_site_changes,
    change_table,
    make_case,
    same_fabric,
    scales,
)
from tailback.report.difference import LinkChange, flame_change, link_change, pair_changes
from tailback.report.figure_data import LinkLoad
from tailback.report.timeline import (
    Timeline,
    band_changes,
    embedded_samples,
    timelines_with_equal_frames,
)
from tailback.run.run import Run
from tailback.run.schema import DERIVED
from tests.factories.cli import simulated
from tests.factories.report_data import make_run


@pytest.fixture(scope="module")
def runs() -> tuple[Run, Run]:
    return make_run(), make_run(tiled=True)


@pytest.fixture(scope="module")
def both(runs: tuple[Run, Run]) -> tuple[FigureData, FigureData]:
    return FigureData(runs[0]), FigureData(runs[1])


def _load(samples: list[float], weight: list[float], congested: list[float]) -> LinkLoad:
    """Links alone in their bundles, packets of four hops."""
    n, w, m = (np.array(column, np.float64) for column in (samples, weight, congested))
    alone = np.arange(len(n))
    return LinkLoad(n, w, 3 * w, w, m / 4, m, 3 * m, 1e6, alone, np.zeros(len(n), np.int64))


def test_a_link_the_run_left_counts_zero() -> None:
    """Unused, or too few samples to tell and under a twentieth of the other run's packets."""
    used = _load([200, 0, 0, 200, 200], [800, 0, 0, 800, 800], [400, 0, 0, 160, 400])
    other = _load([0, 200, 0, 2, 9], [0, 800, 0, 8, 400], [0, 200, 0, 0, 200])
    change = LinkChange(used, other)
    assert change.value[:2].tolist() == pytest.approx([-0.5, 0.25])
    assert np.isnan(change.value[2]) and change.value[3] == pytest.approx(-0.2)
    # Half the packets went there and too few were sampled: nothing is known of the change.
    assert np.isnan(change.value[4])


def test_the_change_has_both_errors(
    both: tuple[FigureData, FigureData],
) -> None:
    change = link_change(*both, "+y")
    before, after = (evidence.load("+y") for evidence in both)
    estimated = np.flatnonzero(~np.isnan(before.fraction) & ~np.isnan(after.fraction))
    assert len(estimated) > 10
    assert np.allclose(
        change.value[estimated], after.fraction[estimated] - before.fraction[estimated]
    )
    assert np.allclose(
        change.error[estimated], np.hypot(before.error[estimated], after.error[estimated])
    )
    turned = link_change(both[1], both[0], "+y")
    assert np.allclose(change.value, -turned.value, equal_nan=True)


def test_links_are_ranked_by_their_least_change() -> None:
    """Nine samples of ten changed by more than a thousand of a thousand did, but not surely."""
    before = _load([12, 2000], [12, 2000], [10, 900])
    after = _load([12, 2000], [12, 2000], [1, 300])
    change = LinkChange(before, after)
    assert abs(change.value[0]) > abs(change.value[1])
    assert abs(change.certain_change[0]) < abs(change.certain_change[1])


def test_a_run_does_not_differ_from_itself(both: tuple[FigureData, FigureData]) -> None:
    assert np.nanmax(np.abs(link_change(both[0], both[0]).value)) == 0
    pairs = pair_changes(both[0], both[0])
    assert pairs is not None and (pairs["before"] == pairs["after"]).all()


def test_the_table_has_links_of_either_run(both: tuple[FigureData, FigureData]) -> None:
    table = change_table(*both)
    assert dict(table.schema) == DERIVED["changes"].polars_schema
    total_rows = table.filter(pl.col("phase").is_null())
    used = np.flatnonzero((both[0].load().weight > 0) | (both[1].load().weight > 0))
    assert total_rows["link"].to_list() == used.tolist()
    assert set(table["phase"].drop_nulls().unique()) == {"+x", "-x", "+y", "-y"}
    estimated = table.drop_nulls(["before_fraction", "after_fraction"])
    assert estimated.height > 20
    change = estimated["after_fraction"] - estimated["before_fraction"]
    assert np.allclose(estimated["change"], change)


def test_lines_that_wait_less(runs: tuple[Run, Run]) -> None:
    attributions = [attribute(run) for run in runs]
    changes = {line.line: line.after - line.before for line in call_site_changes(*attributions)}
    totals = [sum(line.stall for line in attribution.lines) for attribution in attributions]
    assert sum(changes.values()) == pytest.approx(totals[1] - totals[0])
    packets = replace(
        runs[0], tables={**runs[0].tables, "messages": runs[0].tables["messages"][:0]}
    )
    assert call_site_changes(attributions[0], attribute(packets)) == []


def test_two_flame_graphs_in_one_keep_both_sums(runs: tuple[Run, Run]) -> None:
    first, other = (attribute(run).flame for run in runs)
    merged = flame_change(first, other)
    assert merged.value == pytest.approx(first.value + other.value)
    assert merged.change == pytest.approx(other.value - first.value)
    below = sum(child.change for child in merged.children)
    assert below == pytest.approx(merged.change, abs=1e-6 * merged.value)


def test_frames_agree_on_shares_of_time(both: tuple[FigureData, FigureData]) -> None:
    courses = timelines_with_equal_frames(list(both))
    assert courses[0].frames == courses[1].frames == both[1].windows.height
    for course in courses:
        step = np.diff(course.edges_ps)
        assert step.min() > 0.9 * step.max()
    bands = band_changes(*courses)
    assert all(np.nanmax(np.abs(band.cells), initial=0) <= 1 for band in bands)
    up, late = next(b for b in courses[0].bands if (b.tier, b.direction) == (1, "up")), bands[0]
    only_before = ~np.isnan(up.cells) & ~courses[1].bands[0].used
    assert only_before.any() and (late.cells[only_before] == -up.cells[only_before]).all()
    assert np.isnan(late.cells[~late.used]).all()


def test_frames_hold_all_samples_or_name_gaps(
    both: tuple[FigureData, FigureData], monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Timeline(both[0], 10)
    rows, left_out = embedded_samples(course)
    assert left_out == 0
    assert rows["hop_weight"].sum() == both[0].samples["hop_weight"].sum()
    monkeypatch.setattr("tailback.report.timeline.ROWS", 200)
    fewer, left_out = embedded_samples(course)
    assert 0 < fewer.height <= 200 and left_out > 0
    met = course.samples.group_by("link").agg(pl.col("congested_weight").sum())
    kept = met.filter(pl.col("link").is_in(fewer["link"].unique().implode()))
    assert kept["congested_weight"].max() == met["congested_weight"].max()


def test_the_scale_of_changes_is_centred_at_zero() -> None:
    table = scales.table(scales.CHANGE, 255)
    light = scales.luminance(table)
    assert light[127] > 0.9 and light[127] == light.max()
    assert (np.diff(light[:128]) > -5e-4).all() and (np.diff(light[127:]) < 5e-4).all()
    # Blue against brown: told apart without red or green cones by their blue.
    less, more = table[30].astype(int), table[-31].astype(int)
    assert less[2] - less[0] > 80 and more[0] - more[2] > 80
    assert float(scales.norm(scales.CHANGE)(0.0)) == 0.5


@pytest.mark.slow
def test_compare_writes_page_table_and_facts(
    runs: tuple[Run, Run],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, run in zip(("a", "b"), runs, strict=True):
        run.write(tmp_path / name)
    out = tmp_path / "out"
    words = ["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(out)]
    assert tailback(words) == 0
    screen = capsys.readouterr().out
    assert "-27.9 %" in screen and "stall by line" in screen and "phase +y" in screen
    assert max(len(line) for line in screen.splitlines() if str(out) not in line) <= 80
    facts = json.loads((out / "compare.json").read_text())
    assert facts["elapsed_ps"] == [61_000_000, 44_000_000] and facts["line_unit"] == "ps"
    table = pl.read_parquet(out / "changes.parquet")
    assert table.equals(change_table(*(FigureData(run) for run in runs)))
    page = (out / "compare.html").read_text()
    assert "after takes 27.9 % less time than before" in page
    assert tailback(words) == 2
    # Which figures are written, not what they look like.
    monkeypatch.setattr("tailback.report.export.render", lambda *_, **__: b"")
    assert tailback([*words, "--force", "--figures", "svg"]) == 0
    figures = {path.stem for path in (out / "figures").iterdir()}
    assert {"change_congested_fraction", "change_back_pressure-after"} & figures
    assert tailback([*words[:3], "--figures", "svg"]) == 2


@pytest.mark.slow
def test_compare_names_what_it_cannot_draw(
    runs: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs[0].write(tmp_path / "a")
    tables = {**runs[1].tables, "samples": runs[1].tables["samples"][:0]}
    replace(runs[1], tables=tables).write(tmp_path / "b")
    make_run(prefix="other-").write(tmp_path / "c")
    of_one_run = EXIT_UNDETERMINED
    for other, code, word in (("b", 0, "no samples"), ("c", of_one_run, "same fabric")):
        words = ["compare", str(tmp_path / "a"), str(tmp_path / other)]
        assert tailback(words) == code
        assert tailback([*words, "--out", str(tmp_path / "out")]) == 2
        assert word in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_no_samples_are_not_no_congestion(
    runs: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = {**runs[0].tables, "samples": runs[0].tables["samples"][:0]}
    unsampled = replace(runs[0], tables=without)
    facts = compare_runs(runs[0], unsampled)
    assert facts["tiers"] and all(
        before is not None and after is None
        for before, after in (tier["congested_fraction"] for tier in facts["tiers"])
    )
    assert facts["links"] == [] and facts["lines"] == []
    for name, run in (("a", runs[0]), ("b", unsampled)):
        run.write(tmp_path / name)
    assert tailback(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    screen = capsys.readouterr().out
    assert "tier 1 up" in screen and "–" in screen and "-100 %" not in screen


def test_unrelated_runs_are_said_first(
    runs: tuple[Run, Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = runs[0].tables
    fewer = replace(runs[0], tables={**tables, "ranks": tables["ranks"][1:]})
    phases = tables["labels"].with_columns(pl.lit("elsewhere").alias("phase"))
    other = replace(runs[1], tables={**runs[1].tables, "labels": phases})
    assert why_unrelated(*runs) == ""
    assert why_unrelated(runs[0], fewer).startswith("These are not runs of one program: ")
    assert why_unrelated(runs[0], other).endswith("share no call.")
    runs[0].write(tmp_path / "a")
    assert tailback(["compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 3
    assert capsys.readouterr().out.startswith("COMPARE  Both are the same run.")


def test_a_link_without_samples_has_no_number(
    runs: tuple[Run, Run],
) -> None:
    worst = compare_runs(*runs)["links"][0]
    left = runs[1].tables["samples"].filter(pl.col("link") != worst["link"])
    after = replace(runs[1], tables={**runs[1].tables, "samples": left})
    rows = {row["link"]: row for row in compare_runs(runs[0], after)["links"]}
    assert rows[worst["link"]]["congested_fraction"] == [worst["congested_fraction"][0], None]


def test_two_wirings_are_two_fabrics(runs: tuple[Run, Run]) -> None:
    links = runs[0].tables["links"]
    first, other = links.filter(pl.col("direction") == "up", tier=1)["link"].to_list()[:2]
    end = pl.col("dst_name", "dst_port")
    swapped = links.with_columns(
        pl.when(link=first)
        .then(end.get(other))
        .when(link=other)
        .then(end.get(first))
        .otherwise(end)
    )
    rewired = replace(runs[0], tables={**runs[0].tables, "links": swapped})
    assert not same_fabric(FigureData(runs[0]), FigureData(rewired))
    facts = compare_runs(runs[1], rewired)
    assert facts["tiers"] and facts["links"] == [] and facts["lines"] == []


def test_congestion_nobody_counted_is_not_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(simulated(tmp_path, 'scheme = "off"'))
    assert "not counted" in capsys.readouterr().out
    assert tailback(["compare", run, run, "--format", "json"]) == EXIT_UNDETERMINED
    assert json.loads(capsys.readouterr().out)["congested_hop_fraction"] == [None, None]


def test_without_a_second_run_there_is_no_change(runs: tuple[Run, Run]) -> None:
    from tailback.report import draw  # deferred: registers the figures

    assert draw("change_congested_fraction", make_case(runs[0], None)) is None
