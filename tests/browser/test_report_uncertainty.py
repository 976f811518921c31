"""What is not known is not shown as if it were: on the page, against the tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.report import FigureData, write_report
from tailback.run.run import Run
from tests.factories import webdriver
from tests.factories.report_data import make_diagnosis, make_run

pytestmark = webdriver.needed()

DETAIL = "return document.getElementById('detail').innerText"


def changed(run: Run, **tables: pl.DataFrame) -> Run:
    return replace(run, tables={**run.tables, **tables})


def written(folder: Path, run: Run) -> Path:
    return write_report(folder / "report.html", run, make_diagnosis(make_run()))


@pytest.mark.slow
def test_more_congested_packets_than_packets_is_unknown(
    browser: webdriver.Browser, tmp_path: Path
) -> None:
    """16 congested packets of 3, as in samples that contradict one another."""
    run = make_run()
    samples = run.tables["samples"]
    link = int(samples.filter(pl.col("congested_weight") > 0)["link"][0])
    mine = pl.col("link") == link
    path = written(
        tmp_path,
        changed(
            run,
            samples=samples.with_columns(
                pl.when(mine)
                .then(16 * pl.col("hop_weight") + 400)
                .otherwise("congested_weight")
                .cast(samples.schema["congested_weight"])
                .alias("congested_weight"),
            ),
        ),
    )
    browser.open(path)
    browser.run(f"location.hash = '#where?link={link}'")
    browser.reload()
    detail = browser.run(DETAIL)
    assert "unknown: significantly more congested packets than packets" in detail
    assert "not possible" in detail and "100.0 %" not in detail
    fraction = FigureData(changed(run, samples=samples)).load().fraction
    assert not np.isnan(fraction[link]), "with its own samples it is known"


@pytest.mark.slow
def test_intervals_that_break_their_promise_are_red(
    browser: webdriver.Browser, tmp_path: Path
) -> None:
    run = make_run()
    browser.open(written(tmp_path, run))
    coverage = browser.run("return document.getElementById('coverage').textContent")
    # Of the fabricated run; nothing in it is off by more than chance.
    assert "95\u00a0% intervals" in coverage
    colours = "return getComputedStyle(document.getElementById('coverage')).color"
    usual = browser.run(colours)
    # Half of the truth moved by 20 points: most intervals miss it.
    truth = run.tables["truth"]
    kind = truth.schema["observed_congested_packets"]
    moved = truth.with_columns(
        pl.when(pl.col("link") % 2 == 1)
        .then(
            (pl.col("observed_congested_packets") + pl.col("observed_packets") // 3).clip(
                upper_bound=pl.col("observed_packets")
            )
        )
        .otherwise("observed_congested_packets")
        .cast(kind)
        .alias("observed_congested_packets")
    )
    browser.open(written(tmp_path, changed(run, truth=moved)))
    coverage = browser.run("return document.getElementById('coverage').textContent")
    shares = [float(share) for share in re.findall(r"([\d.]+)\s% of", coverage)]
    assert shares and min(shares) < 90
    assert "fewer than 95 % by more than chance explains" in coverage
    assert browser.run(colours) != usual == "rgb(93, 104, 117)"


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """A run with a sample in 30, as captured packets: nobody knows when they met congestion."""
    run = make_run()
    samples = run.tables["samples"]
    kept = samples.filter(pl.int_range(pl.len()) % 30 == 0)
    few = changed(run, samples=kept, truth=run.tables["truth"].clear())
    return written(tmp_path_factory.mktemp("sparse"), few), few


@pytest.mark.slow
def test_windows_with_few_samples_are_in_no_figure(
    browser: webdriver.Browser, sparse: tuple[Path, Run]
) -> None:
    path, run = sparse
    evidence = FigureData(run)
    browser.open(path)
    point = (
        "const c = document.getElementById(arguments[0]), b = c.getBoundingClientRect();"
        "c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + 150 +"
        " (b.width - 164) * arguments[1], clientY: b.top + arguments[2]}));"
    )
    tip = "return document.getElementById(`${arguments[0]}-tip`).textContent.split('\\n')"
    counts = (
        run.tables["samples"]
        .join(run.tables["links"].select("link", "tier", "direction"), on="link")
        .group_by("window", "tier", "direction")
        .agg(pl.col("hop_samples").sum())
    )
    windows = evidence.windows.height
    few = 0
    for window in range(0, windows, 6):
        browser.run(point, "time_course", (window + 0.5) / windows, 120)
        browser.settle()
        for line in browser.run(tip, "time_course")[2:]:
            name, _, estimate = line.partition(": ")
            tier, direction = {
                "leaf → host": (0, "down"),
                "leaf → aggregation": (1, "up"),
                "aggregation → leaf": (1, "down"),
            }[name]
            n = counts.filter(window=window, tier=tier, direction=direction)["hop_samples"].sum()
            assert ("few" in estimate or "no samples" in estimate) == (n < 10), (line, n)
            few += n < 10
    assert few > 5
    # Links against time: no row of links has ten samples in a window, so a line of text is enough.
    axis = browser.saved("course")
    assert axis.count("too few samples in any window") == len(evidence.tier_directions)
    assert "arrival of the packets" in axis and "at the link" not in axis
    assert "arrival of the packets" in browser.saved("time_course")


def test_links_without_congested_samples_have_an_upper_bound(
    browser: webdriver.Browser, sparse: tuple[Path, Run]
) -> None:
    path, run = sparse
    load = FigureData(run).load()
    link = int(np.flatnonzero((load.samples > 3) & (load.congested_samples == 0))[0])
    browser.open(path)
    browser.run(f"location.hash = '#where?link={link}'")
    browser.reload()
    detail = browser.run(DETAIL)
    assert re.search(r"≤ [\d.]+ % \(95 %\): none of \d+ samples", detail), detail
    assert "0.0 % ±" not in detail


@pytest.mark.slow
def test_steps_that_were_not_simulated_are_marked(
    browser: webdriver.Browser, tmp_path: Path
) -> None:
    run = make_run()
    schema = run.tables["skips"].schema
    skips = pl.DataFrame(
        {
            "job": [0],
            "first_step": [9],
            "steps": [177],
            "basis": [25],
            "step_ps": [10**6],
            "time_ps": [177 * 10**6],
            "half_ps": [10**6],
            "exact": [False],
            "window": [30],
        },
        schema=schema,
    )
    browser.open(written(tmp_path, changed(run, skips=skips)))
    assert "extrapolated" in browser.saved("course")
    browser.run(
        "const c = document.getElementById('time_course'), b = c.getBoundingClientRect();"
        "c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + 150 +"
        " (b.width - 164) * 30.5 / 61, clientY: b.top + 90}))"
    )
    browser.settle()
    tip = browser.run("return document.getElementById('time_course-tip').textContent")
    assert "extrapolated: 177 steps that were not simulated" in tip
    table = browser.run("return document.querySelector('#provenance table').textContent")
    table = table.replace("\u00a0", " ")
    assert "177 from step 9 on, from 25 simulated ones: 177 µs ± 1 µs (95 %)" in table
