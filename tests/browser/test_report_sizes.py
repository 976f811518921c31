"""The report at narrow widths and on paper: nothing is cut, and axes say the time there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.report import write_report
from tests.factories import webdriver
from tests.factories.measured_verdict import as_measured
from tests.factories.report_data import make_diagnosis, make_run

pytestmark = webdriver.needed()

TEXTS = """
const plots = new DOMParser().parseFromString(arguments[0], 'image/svg+xml').documentElement;
return [...plots.querySelectorAll('text')].map((text) =>
  [text.textContent, Number(text.getAttribute('x')), Number(text.getAttribute('y'))]);
"""


@pytest.mark.parametrize("width", [400, 800])
@pytest.mark.parametrize("run", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_words_of_the_plots_stay_inside_them(
    browser: webdriver.Browser, plain: Path, width: int, run: int
) -> None:
    with browser.wide(width):
        browser.open(plain)
        browser.run("document.querySelectorAll('input[name=dataset]')[arguments[0]].click()", run)
        for plot in ("fabric", "raster", "course", "matrix", "flame"):
            assert browser.run(webdriver.OUTSIDE, browser.saved(plot)) == [], plot


def test_ticks_of_histograms_are_edges_of_their_classes(
    browser: webdriver.Browser, plain: Path
) -> None:
    browser.open(plain)
    ticks = []
    for plot in ("samples", "change_how_sure"):
        texts = browser.run(TEXTS, browser.saved(plot))
        title = next(y for text, _, y in texts if "samples of a link" in text or "errors" in text)
        ticks.append([text for text, _, y in texts if 10 < title - y < 20])
    powers = [int(text.replace(",", "")) for text in ticks[0]]
    assert powers[0] == 1 and all(power & (power - 1) == 0 for power in powers)
    edges = [int(text.replace("−", "-")) for text in ticks[1]]
    assert 0 in edges and edges == [-each for each in reversed(edges)]


def test_times_below_a_narrow_raster_do_not_overlap(
    browser: webdriver.Browser, plain: Path
) -> None:
    with browser.wide(400):
        browser.open(plain)
        texts = browser.run(TEXTS, browser.saved("course"))
        axis = max(y for text, _, y in texts if text == "20")
        times = sorted((x, text) for text, x, y in texts if y == axis)
        assert len(times) >= 3 and times[0][1] == "0"
        pitch = min(b - a for (a, _), (b, _) in pairwise(times))
        assert pitch > 20


@pytest.mark.slow
def test_cells_with_less_than_before_have_a_dot(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    for plot in ("raster", "course"):
        dots = []
        for run in (0, 2):
            browser.run(
                "document.querySelectorAll('input[name=dataset]')[arguments[0]].click()", run
            )
            dots.append(browser.saved(plot).count("h2v2h-2z"))
        assert dots[0] == 0 and dots[1] > 0, plot


def test_a_narrow_window_reaches_every_part(browser: webdriver.Browser, plain: Path) -> None:
    with browser.wide(400):
        browser.open(plain)
        bar = browser.run(
            "const bar = document.querySelector('nav > div');"
            "bar.scrollLeft = 10000;"
            "const last = [...bar.querySelectorAll('a')].pop().getBoundingClientRect();"
            "return [getComputedStyle(bar).overflowX, last.right <= innerWidth]"
        )
        assert bar == ["auto", True]


def test_costs_need_no_scrolling_when_narrow(browser: webdriver.Browser, tmp_path: Path) -> None:
    run = make_run()
    diagnosis = as_measured(make_diagnosis(run), [(0, "root"), (1, "waiting")])
    page = write_report(tmp_path / "measured.html", run, diagnosis)
    with browser.wide(500):
        browser.open(page)
        rows = browser.run(
            "return [...document.querySelectorAll('.costs tbody td')].map((cell) => {"
            "  const { left, right } = cell.getBoundingClientRect();"
            "  return left >= 0 && right <= innerWidth; })"
        )
        assert rows and all(rows)


@pytest.mark.slow
def test_time_runs_evenly_where_windows_do_not(browser: webdriver.Browser, tmp_path: Path) -> None:
    """A long window is wide: the last one of a run is mostly shorter than the others."""
    run = make_run()
    windows = pl.DataFrame(
        {"window": [0, 1], "start_ps": [0, 45_000_000], "end_ps": [45_000_000, 61_000_000]}
    )
    first = pl.when(pl.col("window") < 45).then(0).otherwise(1)
    tables = {**run.tables, "windows": windows.cast(dict(run.tables["windows"].schema))}
    for name in ("samples", "truth"):
        kind = tables[name].schema["window"]
        tables[name] = tables[name].with_columns(window=first.cast(kind))
    uneven = replace(run, tables=tables)
    path = write_report(tmp_path / "uneven.html", uneven, make_diagnosis(uneven))
    browser.open(path)
    # The middle of the axis, at 30.5 µs, is in the first window.
    browser.run(
        "const c = document.getElementById('course'); c.setPointerCapture = () => {};"
        "const b = c.getBoundingClientRect(); const x = b.left + 150 + (b.width - 164) * 0.6;"
        "const y = b.top + 150; const at = (kind, x) => c.dispatchEvent("
        " new PointerEvent(kind, {pointerId: 1, clientX: x, clientY: y}));"
        "at('pointerdown', x); at('pointermove', b.right - 20); at('pointermove', x);"
        "at('pointerup', x)"
    )
    browser.settle()
    shown = browser.run("return document.getElementById('time').textContent")
    assert shown == "Time 0 – 45 µs"


def test_every_column_is_on_paper(browser: webdriver.Browser, plain: Path) -> None:
    """A4 between its margins is narrower than a small window, and paper does not scroll."""
    browser.open(plain)
    # Plots are drawn anew as wide as paper: those of a wide window would be too small to read.
    wide = browser.run(
        "dispatchEvent(new Event('beforeprint')); const wide = [...document.querySelectorAll("
        "'canvas')].filter(c => c.offsetParent).map(c => parseFloat(c.style.width));"
        "dispatchEvent(new Event('afterprint')); return wide"
    )
    assert len(wide) > 8 and max(wide) <= 662
    browser.command("Emulation.setEmulatedMedia", media="print")
    try:
        with browser.wide(717):
            browser.open(plain)
            cut: list[Any] = browser.run(
                "return [...document.querySelectorAll('table')].filter(t => t.offsetParent)"
                ".filter(t => t.scrollWidth > t.clientWidth || getComputedStyle(t).overflowX !="
                " 'visible').map(t => t.innerText.slice(0, 40))"
            )
            assert cut == []
            # A closed part would leave its title alone on a page, and a table its last rows.
            titles = "return [...document.querySelectorAll('summary')].filter(s => s.offsetParent)"
            assert browser.run(f"{titles}.every(s => s.parentElement.open)")
            breaks = browser.run(
                "return [...document.querySelectorAll('table')].filter(t => t.offsetParent)"
                ".map(t => getComputedStyle(t).breakInside)"
            )
            assert set(breaks) == {"avoid-page"}
            page = "return [document.documentElement.scrollWidth, innerWidth]"
            within, paper = browser.run(page)
            assert within <= paper
    finally:
        browser.command("Emulation.setEmulatedMedia", media="")
