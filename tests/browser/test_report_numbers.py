"""What the report draws, read off the page, is what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tailback.report import FigureData, scales
from tailback.report.timeline import Timeline
from tests.factories import webdriver
from tests.factories.report_data import make_run

pytestmark = webdriver.needed()


def test_the_course_that_is_drawn_is_that_of_the_tables(
    browser: webdriver.Browser, plain: Path
) -> None:
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
            "return null", frame, len(load.samples),
        )  # fmt: skip
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
@pytest.mark.parametrize(("width", "pitch"), [(1280, 28), (400, 5)])
def test_ten_links_have_the_colour_and_the_number_of_their_estimate(
    browser: webdriver.Browser, plain: Path, width: int, pitch: int
) -> None:
    evidence = FigureData(make_run())
    estimate, error = evidence.load().fraction, evidence.load().error
    names = {evidence.link_name(link): link for link in range(evidence.n_links)}
    with browser.wide(width):
        browser.open(plain)
        found = browser.run(SWEEP, pitch)
    sure = {
        names[name]: said for name, said in found.items()
        # Those that are not striped as uncertain, beyond 20 points.
        if name in names and 1.96 * error[names[name]] < 0.19 and estimate[names[name]] > 0
    }  # fmt: skip
    # From the least congested to the most.
    order = sorted(sure, key=lambda link: estimate[link])
    ten = [order[round(i)] for i in np.linspace(0, len(order) - 1, 10)]
    assert len(set(ten)) == 10 and estimate[ten[-1]] - estimate[ten[0]] > 0.3
    colours = scales.table("congestion")
    for link in ten:
        rgb, words = sure[link]
        # Sixty-five shades: half a shade is 0.8 points.
        shades = [colours[4 * round(64 * estimate[link] + by)] for by in (-1e-3, 1e-3)]
        assert any(rgb == shade.tolist() for shade in shades), (evidence.link_name(link), rgb)
        number = re.search(r"Congested fraction\s*([\d.]+) %", words)
        assert number is not None, words
        assert float(number[1]) == pytest.approx(100 * estimate[link], abs=0.06)
