"""A comparison in a real browser: its differences over time are those of the tables."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tailback.report import FigureData, write_comparison, write_report
from tailback.report.attribution import attribute
from tailback.report.timeline import Timeline
from tailback.telemetry.estimate import link_estimates
from tests.factories import webdriver
from tests.factories.report_data import make_diagnosis, make_run

pytestmark = webdriver.needed()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result with its report, and the comparison of its two runs."""
    folder = tmp_path_factory.mktemp("result")
    run, after = make_run(), make_run(tiled=True)
    run.write(folder / "run")
    write_report(folder / "report.html", run, make_diagnosis(run), after=after)
    write_comparison(
        folder / "changes" / "compare.html",
        run,
        after,
        [("Elapsed", "61 µs", "44 µs", "−28 %")],
        reports=("../report.html", "../report.html"),
    )
    return folder


@pytest.mark.slow
def test_the_course_of_change_is_that_of_tables(browser: webdriver.Browser, pages: Path) -> None:
    before, after = FigureData(make_run()), FigureData(make_run(tiled=True))
    frames = after.windows.height
    loads = [
        course.sums((each.tier == 0) & (each.direction == "down"))
        for each, course in ((before, Timeline(before, frames)), (after, Timeline(after, frames)))
    ]
    browser.open(pages / "changes" / "compare.html")
    svg = browser.saved("time_course")
    assert "change of the congested fraction (−1 to 1)" in svg and "% of each run" in svg
    seen = 0
    for frame in range(0, frames, 4):
        browser.run(
            "const c = document.getElementById('time_course'), b = c.getBoundingClientRect();"
            "c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + 150 +"
            " (b.width - 164) * (arguments[0] + 0.5) / arguments[1], clientY: b.top + 90}))",
            frame,
            frames,
        )
        browser.settle()
        lines = browser.run(
            "return document.getElementById('time_course-tip').textContent.split('\\n')"
        )
        line = next(text for text in lines if text.startswith("leaf → host"))
        if any(load.samples[frame] < 10 for load in loads):
            assert "few samples" in line or "no samples" in line
            continue
        figures = re.search(r": ([\d.]+) → ([\d.]+) %, (-?[\d.]+) points", line)
        assert figures is not None, line
        values = [100 * float(load.raw_fraction[frame]) for load in loads]
        wanted = [*values, values[1] - values[0]]
        assert [float(part) for part in figures.groups()] == pytest.approx(wanted, abs=0.06)
        seen += 1
    assert seen >= 3


def test_a_comparison_uses_the_same_viewer(browser: webdriver.Browser, pages: Path) -> None:
    browser.open(pages / "changes" / "compare.html")
    background = "return getComputedStyle(document.body).backgroundColor"
    light = browser.run(background)
    browser.command(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    assert browser.run(background) != light
    # Drawn for paper, so inverted: no white area stays.
    assert "invert" in browser.run(
        "return getComputedStyle(document.querySelector('canvas')).filter"
    )
    browser.command("Emulation.setEmulatedMedia", media="", features=[])
    browser.run("document.querySelectorAll('input[name=dataset]')[1].click()")
    browser.wait("return location.hash.includes('run=after')")
    [link] = browser.run(
        "return [...document.querySelectorAll('nav a')].filter(a => a.textContent === 'Report')"
        ".map(a => a.href)"
    )
    assert link == (pages / "report.html").resolve().as_uri()


@pytest.mark.slow
def test_a_copied_command_computes_what_is_shown(browser: webdriver.Browser, pages: Path) -> None:
    run = make_run()
    estimates = link_estimates(run.tables["samples"].filter(label=2))
    row = estimates.filter(estimates["congested_samples"] > 3).row(0, named=True)
    browser.open(pages / "report.html")
    browser.run(f"location.hash = '#where?phase=%2By&link={row['link']}'")
    browser.reload()
    browser.run("navigator.clipboard.writeText = () => Promise.reject()")
    browser.run("document.getElementById('copy-command').click()")
    browser.wait("return !document.getElementById('command').hidden")
    command = str(browser.run("return document.getElementById('command').textContent"))
    assert command.startswith("python -c ")
    words = command.replace("python", f"'{sys.executable}'", 1)
    output = subprocess.run(
        ["sh", "-c", words], cwd=pages, capture_output=True, text=True, check=True
    ).stdout
    cells = [
        cell.strip()
        for cell in output.splitlines()
        if f"│ {row['link']} " in cell
        for cell in cell.strip("│").split("┆")
    ]
    assert int(cells[1]) == row["samples"]
    assert float(cells[3]) == pytest.approx(row["fraction"], abs=1e-6)
    detail = browser.run("return document.getElementById('detail').innerText")
    alone = re.search(r"From its own samples alone\s*([\d.]+) %", detail)
    assert alone is not None
    assert float(alone[1]) == pytest.approx(100 * float(cells[3]), abs=0.06)


@pytest.mark.slow
def test_every_flame_graph_rank_has_a_name(browser: webdriver.Browser, pages: Path) -> None:
    """Boxes of ranks name them all, and add up to their line."""
    stalled = set().union(*(line.ranks for line in attribute(make_run()).lines))
    browser.open(pages / "report.html")
    seen: set[int] = set()
    tips = browser.run(
        "const c = document.getElementById('flame'), b = c.getBoundingClientRect(), out = [];"
        "for (let x = 0.5; x < b.width; x += 0.5) {"
        "  c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + x,"
        "    clientY: b.top + b.height - 2 - 22 * arguments[0] + 11}));"
        "  out.push(document.getElementById('flame-detail').textContent); }"
        "return [...new Set(out)]",
        4,
    )
    for tip in tips:
        name = tip.rpartition(": ")[0]
        if rank := re.fullmatch(r"rank (\d+)", name):
            seen.add(int(rank[1]))
        elif more := re.fullmatch(r"\d+ more ranks?: (.*)", name):
            for part in more[1].replace(", …", "").split(", "):
                first, _, last = part.partition("–")
                seen |= set(range(int(first), int(last or first) + 1))
    assert seen and seen <= stalled
    assert len(seen) > 0.8 * len(stalled)


SMALL_TEXT = """
const small = new Set();
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const at = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !at.offsetParent) continue;
  const size = parseFloat(getComputedStyle(at).fontSize);
  if (size < 10) small.add(`${size} ${walk.currentNode.data.slice(0, 30)}`);
}
return [...small];
"""


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 500])
def test_no_text_is_smaller_than_ten_pixels(
    browser: webdriver.Browser, pages: Path, width: int
) -> None:
    with browser.wide(width):
        for page in (pages / "report.html", pages / "changes" / "compare.html"):
            browser.open(page)
            browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
            assert browser.run(SMALL_TEXT) == []
            for plot in browser.run(
                "return [...document.querySelectorAll('canvas')]"
                ".filter(c => c.offsetParent).map(c => c.id)"
            ):
                sizes = re.findall(r'font-size="([\d.]+)', browser.saved(plot))
                assert sizes and min(map(float, sizes)) >= 10, plot
