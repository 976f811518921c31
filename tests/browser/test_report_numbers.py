"""What the report draws, read off the page, is what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.report import FigureData, scales, write_report
from tailback.report.timeline import Timeline
from tailback.run.run import Run
from tests.factories import webdriver
from tests.factories.probed_runs import stencil
from tests.factories.report_data import make_diagnosis, make_run

pytestmark = webdriver.needed()


@pytest.mark.slow
def test_the_drawn_course_is_that_of_the_tables(browser: webdriver.Browser, plain: Path) -> None:
    """Numbers read off the tip of the time course, against the samples of that window."""
    evidence = FigureData(make_run())
    # Both runs of the report have as many frames as the shorter one has windows.
    course = Timeline(evidence, FigureData(make_run(tiled=True)).windows.height)
    load = course.sums((evidence.tier == 0) & (evidence.direction == "down"))
    browser.open(plain)
    seen = 0
    for frame in range(0, course.frames, 4):
        tip = browser.run(
            "const c = document.getElementById('time_course'), b = c.getBoundingClientRect();"
            "c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + 150 +"
            " (b.width - 164) * (arguments[0] + 0.5) / arguments[1], clientY: b.top + 90}));"
            "return null",
            frame,
            len(load.samples),
        )
        browser.settle()
        tip = browser.run(
            "return document.querySelector('#time_course ~ .tip').textContent.split('\\n')"
        )
        line = next(text for text in tip if text.startswith("leaf → host"))
        if load.samples[frame] < 10 or load.congested_samples[frame] == 0:
            continue
        number = re.search(r": ([\d.]+) %", line)
        assert number is not None, line
        assert float(number[1]) == pytest.approx(100 * load.raw_fraction[frame], abs=0.06)
        assert line.endswith(f"{load.samples[frame]:.0f} samples")
        seen += 1
    assert seen >= 3


POINT = """
const c = document.getElementById('time_course'), b = c.getBoundingClientRect();
c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + 150 +
  (b.width - 164) * arguments[0], clientY: b.top + 90}));
"""


def reached_and_met(run: Run, links: list[int]) -> tuple[list[float], list[float]]:
    """Packets that reached the queues of some links in each window, and that met congestion there.

    The record counts packets as they leave, and those that meet congestion as they reach the
    queue, which sends them first.
    """
    windows = run.tables["windows"].height
    reached, met = np.zeros(windows), np.zeros(windows)
    for of in run.tables["truth"].filter(pl.col("link").is_in(links)).partition_by("link"):
        waiting = 0.0
        for window, left, congested in (
            of.sort("window")
            .select("window", "observed_packets", "observed_congested_packets")
            .iter_rows()
        ):
            gone = min(left, waiting + congested)
            waiting += congested - gone
            reached[window] += congested + left - gone
            met[window] += congested
    return reached.tolist(), met.tolist()


@pytest.mark.slow
def test_the_drawn_course_is_that_of_the_simulator(
    browser: webdriver.Browser, tmp_path: Path
) -> None:
    """Within 2 percent of table truth; by time of arrival it is more than 10 percent off."""
    run = stencil("full")
    write_report(tmp_path / "report.html", run, make_diagnosis(run))
    evidence = FigureData(run)
    up = np.flatnonzero((evidence.tier == 1) & (evidence.direction == "up"))
    reached, met = reached_and_met(run, up.tolist())
    edges = run.tables["windows"].sort("window")
    start, end = int(edges["start_ps"][0]), int(edges["end_ps"][-1])
    browser.open(tmp_path / "report.html")
    apart, held = 0.0, []
    for window, first, last in edges.select("window", "start_ps", "end_ps").iter_rows():
        browser.run(POINT, ((first + last) / 2 - start) / (end - start))
        browser.settle()
        tip = browser.run("return document.querySelector('#time_course ~ .tip').textContent")
        line = next(row for row in tip.split("\n") if row.startswith("leaf → aggregation"))
        figures = re.search(r": ([\d.]+) % \(95 %: ([\d.]+) to ([\d.]+) %\)", line)
        share, low, high = (
            (float(part) / 100 for part in figures.groups()) if figures else (0, 0, 0)
        )
        apart += abs(share * reached[window] - met[window])
        if figures:
            held.append(low - 1e-3 <= met[window] / reached[window] <= high + 1e-3)
    assert len(held) > 20 and sum(met) > 10_000
    assert apart / sum(met) < 0.02
    assert np.mean(held) > 0.9


SWEEP = """
const canvas = document.getElementById('raster'), box = canvas.getBoundingClientRect();
const scale = canvas.width / box.width, ctx = canvas.getContext('2d'), found = {};
for (let y = 9; y < box.height; y += 14) for (let x = 125; x < box.width; x += arguments[0]) {
  // The panel above grows with what it says.
  const {left, top} = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: left + x, clientY: top + y}));
  const detail = document.getElementById('detail'), name = detail.querySelector('dd')?.textContent;
  if (!name || name in found) continue;
  // Well inside the cell: the pixels around are of one colour.
  const around = ctx.getImageData(x * scale - 1, y * scale - 1, 3, 3).data;
  const rgb = [...around.slice(0, 3)];
  const even = around.every((value, i) => i % 4 === 3 || value === rgb[i % 4]);
  if (even) found[name] = [rgb, detail.textContent];
}
return found;
"""
"""Colour and words of every link that the pointer finds in the fabric raster."""


# In a narrow window cells are small, and are drawn as one picture.
@pytest.mark.parametrize(
    ("width", "pitch"), [pytest.param(1280, 28, marks=pytest.mark.slow), (400, 5)]
)
def test_ten_links_have_the_colour_of_their_estimate(
    browser: webdriver.Browser, plain: Path, width: int, pitch: int
) -> None:
    evidence = FigureData(make_run())
    estimate, error = evidence.load().fraction, evidence.load().error
    names = {name: link for link, name in enumerate(evidence.link_names)}
    with browser.wide(width):
        browser.open(plain)
        tips = browser.run(SWEEP, pitch)
    sure = {
        names[name]: tip_text
        for name, tip_text in tips.items()
        # Those that are not striped as uncertain, beyond 20 points.
        if name in names and 1.96 * error[names[name]] < 0.19 and estimate[names[name]] > 0
    }
    # From the least congested to the most.
    order = sorted(sure, key=lambda link: estimate[link])
    ten = [order[round(i)] for i in np.linspace(0, len(order) - 1, 10)]
    assert len(set(ten)) == 10 and estimate[ten[-1]] - estimate[ten[0]] > 0.3
    colours = scales.table("congestion")
    for link in ten:
        rgb, words = sure[link]
        # Sixty-five shades: half a shade is 0.8 points.
        shades = [colours[4 * round(64 * estimate[link] + by)] for by in (-1e-3, 1e-3)]
        assert any(rgb == shade.tolist() for shade in shades), (evidence.link_names[link], rgb)
        number = re.search(r"Congested fraction\s*([\d.]+) %", words)
        assert number is not None, words
        assert float(number[1]) == pytest.approx(100 * estimate[link], abs=0.06)
