"""The report in a real browser: it draws, answers to mouse and keyboard, and asks nobody."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.report import FigureData, write_comparison, write_report
from tailback.telemetry.estimate import link_estimates
from tests.factories import webdriver
from tests.factories.report_data import make_diagnosis, make_run
from tests.factories.webdriver import DOWN, ENTER, ESCAPE, HOSTILE, RIGHT

pytestmark = webdriver.needed()

SHOWN = """
return [document.querySelector('input[name=dataset]:checked').value,
  document.getElementById('phase').value, document.getElementById('quantity').value,
  document.getElementById('time').textContent, document.getElementById('detail').innerText];
"""
"""What the selectors and the panel show."""

VIEWS = ("fabric", "raster", "course", "matrix", "flame")


def picture(browser: webdriver.Browser, canvas: str) -> str:
    browser.settle()
    url = browser.run("return document.getElementById(arguments[0]).toDataURL()", canvas)
    assert isinstance(url, str)
    return url


def choose(browser: webdriver.Browser, control: str, value: str) -> None:
    browser.run(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change'))",
        control,
        value,
    )


def complaints(browser: webdriver.Browser) -> list[dict[str, Any]]:
    return [entry for entry in browser.log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_opens_offline_without_complaint(browser: webdriver.Browser, plain: Path) -> None:
    browser.log("performance")
    browser.command("Network.enable")
    browser.command(
        "Network.emulateNetworkConditions",
        offline=True,
        latency=0,
        downloadThroughput=0,
        uploadThroughput=0,
    )
    browser.open(plain)
    assert complaints(browser) == []
    asked = set()
    for entry in browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        # The start page of the browser may still be loading.
        if message["method"] == "Network.requestWillBeSent" and not message["params"][
            "documentURL"
        ].startswith("chrome:"):
            asked.add(message["params"]["request"]["url"])
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}
    assert [url for url in asked if url.startswith("file")] == [plain.resolve().as_uri()]


@pytest.mark.parametrize("canvas", ["fabric", "raster", "course"])
def test_canvas_is_not_blank(browser: webdriver.Browser, plain: Path, canvas: str) -> None:
    browser.open(plain)
    shades = browser.run(
        "const c = document.getElementById(arguments[0]);"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const s = new Set(); for (let i = 0; i < d.length; i += 4)"
        " s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size",
        canvas,
    )
    assert shades > 40


def test_phase_selector_changes_what_is_drawn(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    options = browser.run(
        "return [...document.querySelectorAll('#phase option')].map(o => o.textContent)"
    )
    assert options == ["All phases", "Phase +x", "Phase -x", "Phase +y", "Phase -y"]
    before = {canvas: picture(browser, canvas) for canvas in ("fabric", "raster")}
    choose(browser, "phase", "3")
    for canvas, old in before.items():
        assert picture(browser, canvas) != old, canvas
    choose(browser, "phase", "0")
    assert {canvas: picture(browser, canvas) for canvas in before} == before


def test_before_after_toggle_changes_what_is_drawn(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    choose(browser, "phase", "3")
    before = picture(browser, "fabric")
    browser.run("document.querySelectorAll('input[name=dataset]')[1].click()")
    assert picture(browser, "fabric") != before
    assert browser.run("return document.getElementById('phase').value") == "3"


def test_quantities_do_not_share_a_scale(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    seen = {picture(browser, "raster")}
    for quantity in ("utilization", "stall"):
        choose(browser, "quantity", quantity)
        seen.add(picture(browser, "raster"))
    assert len(seen) == 3


def test_selection_joins_table_and_plots(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    before = {canvas: picture(browser, canvas) for canvas in ("fabric", "raster")}
    name = browser.run(
        "const row = document.querySelectorAll('tr[data-link]')[2]; row.click();"
        "return row.cells[0].textContent"
    )
    # In every table that has it, alone or in a group.
    names = browser.run(
        "return [...document.querySelectorAll('tr.selected')].map(row => row.cells[0].textContent)"
    )
    assert name in names and len(names) < 5
    detail = browser.run("return document.getElementById('detail').innerText")
    assert name in detail
    assert "Congested fraction" in detail and "Hop samples" in detail
    assert re.search(r"[\d.]+ % \(95 %: [\d.]+ to [\d.]+ %\)", detail)
    for canvas, old in before.items():
        assert picture(browser, canvas) != old, f"{canvas} does not show the selection"


@pytest.mark.slow
def test_no_congested_sample_is_an_upper_bound(browser: webdriver.Browser, plain: Path) -> None:
    estimates = link_estimates(FigureData(make_run()).samples)
    row = estimates.filter(pl.col("congested_samples") == 0).sort("samples").row(-1, named=True)
    browser.open(plain)
    browser.run(f"location.hash = '#where?link={row['link']}'")
    browser.reload()
    detail = browser.run("return document.getElementById('detail').innerText")
    bound = f"≤ {100 * row['fraction_high']:.1f} % (95 %): none of {row['samples']} samples"
    assert bound in detail, detail


def test_a_time_span_has_its_own_interval(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    browser.run("document.querySelectorAll('tr[data-link]')[2].click()")
    seen = set()
    for span in (None, (0.3, 0.9)):
        if span is not None:
            drag(browser, "course", *span, 0.5)
            browser.settle()
        detail = browser.run("return document.getElementById('detail').innerText")
        ends = re.search(r"\(95 %: ([\d.]+) to ([\d.]+) %\)", detail)
        assert ends is not None, detail
        assert float(ends[1]) < float(ends[2])
        seen.add(ends[0])
    assert len(seen) == 2


def pictures(browser: webdriver.Browser) -> dict[str, str]:
    return {canvas: picture(browser, canvas) for canvas in VIEWS}


def differ(first: dict[str, str], other: dict[str, str]) -> set[str]:
    return {canvas for canvas in VIEWS if first[canvas] != other[canvas]}


def drag(browser: webdriver.Browser, canvas: str, start: float, end: float, down: float) -> None:
    """Drag over a canvas from one share of its width to another, at a share of its height."""
    browser.run(
        "const c = document.getElementById(arguments[0]); c.scrollIntoView({block: 'center'});"
        "const b = c.getBoundingClientRect(); c.setPointerCapture = () => {};"
        "const at = (kind, x) => c.dispatchEvent(new PointerEvent(kind, {pointerId: 1, clientX:"
        " b.left + x * b.width, clientY: b.top + arguments[3] * b.height}));"
        "at('pointerdown', arguments[1]); at('pointermove', arguments[2]);"
        "at('pointerup', arguments[2]); at('pointerleave', arguments[2])",
        canvas,
        start,
        end,
        down,
    )


def hop_samples(detail: str) -> int:
    return int(detail.split("Hop samples\n")[1].split("\n")[0].replace(",", ""))


def marks(browser: webdriver.Browser) -> int:
    browser.settle()
    return int(browser.run("return document.getElementById('flame').dataset.marked"))


def choose_waited_for_link(browser: webdriver.Browser) -> None:
    """Choose the most congested link that others wait for: the flame graph has it."""
    rows = browser.run("return document.querySelectorAll('#where tr[data-link]').length")
    for row in range(rows):
        browser.run("document.querySelectorAll('#where tr[data-link]')[arguments[0]].click()", row)
        if marks(browser) > 0:
            return
    pytest.fail("no link of the table is in the flame graph")


def test_a_link_chosen_anywhere_is_marked_everywhere(
    browser: webdriver.Browser, plain: Path
) -> None:
    browser.open(plain)
    before = pictures(browser)
    choose_waited_for_link(browser)
    assert differ(before, pictures(browser)) == set(VIEWS)
    browser.press("#course", ESCAPE)
    assert differ(before, pictures(browser)) == set()


def test_a_time_span_changes_the_links(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    before = pictures(browser)
    drag(browser, "course", 0.6, 0.9, 0.5)
    shown = browser.run("return document.getElementById('time').textContent")
    assert shown.startswith("Time ") and "µs" in shown
    assert {"fabric", "raster", "course"} <= differ(before, pictures(browser))
    browser.run("document.querySelector('#where tr[data-link]').click()")
    text = browser.run("return document.getElementById('detail').innerText")
    browser.run("document.getElementById('all-time').click()")
    run_detail = browser.run("return document.getElementById('detail').innerText")
    samples = [
        int(t.split("Hop samples\n")[1].split("\n")[0].replace(",", "")) for t in (text, run_detail)
    ]
    assert 0 < samples[0] < samples[1]
    browser.press("#course", ESCAPE)
    assert differ(before, pictures(browser)) == set()


@pytest.mark.slow
def test_every_frame_together_is_the_whole_run(browser: webdriver.Browser, plain: Path) -> None:
    """What the frames carry sums to what the whole run shows, link by link."""
    browser.open(plain)
    rows = browser.run("return document.querySelectorAll('tr[data-link]').length")
    details = []
    for span in ((0.05, 0.999), (0.5, 0.6)):
        texts = []
        for row in range(0, rows, 4):
            browser.run("document.querySelectorAll('tr[data-link]')[arguments[0]].click()", row)
            texts.append(browser.run("return document.getElementById('detail').innerText"))
        run_texts = texts if not details else details[0][0]
        drag(browser, "course", *span, 0.5)
        span_texts = []
        for row in range(0, rows, 4):
            browser.run("document.querySelectorAll('tr[data-link]')[arguments[0]].click()", row)
            span_texts.append(browser.run("return document.getElementById('detail').innerText"))
        details.append((run_texts, span_texts))
    samples = [
        [hop_samples(text) for text in texts]
        for texts in (details[0][0], details[0][1], details[1][1])
    ]
    assert samples[0] == samples[1] != samples[2]


def test_a_phase_in_the_strip_is_chosen_everywhere(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    before = pictures(browser)
    drag(browser, "course", 0.5, 0.5, 40 / 500)
    phase = browser.run("return document.getElementById('phase').selectedOptions[0].textContent")
    assert phase.startswith("Phase ")
    assert {"fabric", "raster", "course", "flame"} <= differ(before, pictures(browser))
    assert browser.run("return document.querySelectorAll('tr.in-phase').length") > 0
    assert marks(browser) > 0


@pytest.mark.slow
def test_a_pair_of_ranks_marks_its_hosts(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    before = pictures(browser)
    browser.press("#matrix", RIGHT)
    browser.press("#matrix", RIGHT)
    assert {"fabric", "raster", "matrix"} <= differ(before, pictures(browser))
    assert browser.run("return document.getElementById('detail').dataset.nodes") == "0 1"
    assert "node0000" in browser.run("return document.getElementById('pair').textContent")


def test_time_by_keyboard(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    browser.press("#course", RIGHT)
    assert int(browser.run("return document.getElementById('detail').dataset.link")) >= -1
    browser.press("#course", ENTER)
    assert browser.run("return document.getElementById('time').textContent").startswith("Time 0")
    browser.press("#course", ESCAPE)
    assert browser.run("return document.getElementById('all-time').hidden")


@pytest.mark.slow
def test_the_change_is_a_run_of_its_own(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    before = pictures(browser)
    browser.run("document.querySelectorAll('input[name=dataset]')[2].click()")
    assert differ(before, pictures(browser)) == set(VIEWS)
    browser.run("document.querySelector('#where tr[data-link]').click()")
    detail = browser.run("return document.getElementById('detail').innerText")
    assert "→" in detail and "percentage points" in detail
    after = picture(browser, "fabric")
    choose(browser, "phase", "3")
    assert picture(browser, "fabric") != after


def test_a_comparison_opens_on_the_change(browser: webdriver.Browser, tmp_path: Path) -> None:
    phases = (HOSTILE, "-x", "+y", "-y")
    before, after = (make_run(prefix=HOSTILE, phases=phases, tiled=t) for t in (False, True))
    path = write_comparison(
        tmp_path / "compare.html",
        before,
        after,
        [(HOSTILE, "1 µs", "2 µs", "+100 %")],
        names=(HOSTILE, "after"),
    )
    browser.log("browser")
    browser.open(path)
    assert complaints(browser) == []
    assert browser.run("return document.querySelector('input[name=dataset]:checked').value") == "2"
    old = pictures(browser)
    browser.run("document.querySelectorAll('input[name=dataset]')[0].click()")
    assert differ(old, pictures(browser)) == set(VIEWS)
    browser.press("#matrix", RIGHT)
    browser.press("#course", RIGHT)
    assert browser.run("return window.hacked === undefined")
    assert browser.run("return document.querySelectorAll('img[onerror], img[src=x]').length") == 0


@pytest.mark.slow
def test_no_change_is_neither_more_nor_less(browser: webdriver.Browser, tmp_path: Path) -> None:
    run = make_run()
    path = write_comparison(tmp_path / "same.html", run, make_run(), [("a", "b", "c", "d")])
    browser.open(path)
    browser.settle()
    colours = browser.run(
        "const c = document.getElementById('course'); const d = c.width / c.clientWidth;"
        "const to = c.clientWidth - 20, at = c.getContext('2d');"
        "const p = at.getImageData(160 * d, 100 * d, (to - 160) * d, 40 * d).data;"
        "const s = new Set(); for (let i = 0; i < p.length; i += 4)"
        " s.add(p[i] + ',' + p[i + 1] + ',' + p[i + 2]); return [...s]"
    )
    # Nothing has changed: #fafafa, or grey hatching where there are too few samples.
    assert "250,250,250" in colours
    for colour in colours:
        r, _, b = map(int, colour.split(","))
        assert r <= b, "brown means more"


def test_click_in_a_plot_selects_a_link(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    browser.run(
        "const c = document.getElementById('raster');"
        "c.scrollIntoView({block: 'center'});"
        "const b = c.getBoundingClientRect();"
        "c.dispatchEvent(new MouseEvent('click', {clientX: b.left + 104, clientY: b.top + 24}))"
    )
    browser.settle()
    assert "agg" in browser.run("return document.getElementById('detail').innerText")


def test_keyboard_reaches_everything(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    browser.press("#fabric", RIGHT)
    first = browser.run("return document.getElementById('detail').dataset.link")
    browser.press("#fabric", RIGHT)
    second = browser.run("return document.getElementById('detail').dataset.link")
    assert int(first) >= 0 and first != second
    browser.press("#raster", DOWN)
    third = browser.run("return document.getElementById('detail').dataset.link")
    assert third != second
    browser.press("#raster", ESCAPE)
    assert browser.run("return document.getElementById('detail').dataset.link") == "-1"
    browser.press("tr[data-link]", ENTER)
    # The row, and rows of other tables that are of the same link.
    chosen = "return [...document.querySelectorAll('tr.selected')].map(row => row.ariaCurrent)"
    assert set(browser.run(chosen)) == {"true"} and len(browser.run(chosen)) < 5
    first_row = "return document.querySelector('tr[data-link]').classList.contains('selected')"
    assert browser.run(first_row)
    # A screen reader hands its arrow keys to an application, not to an image.
    roles = "return [...document.querySelectorAll('canvas')].map(c => c.getAttribute('role'))"
    assert set(browser.run(roles)) == {"application"}


@pytest.mark.slow
def test_a_choice_survives_a_reload_and_is_shareable(
    browser: webdriver.Browser, plain: Path
) -> None:
    browser.open(plain)
    opened = pictures(browser)
    browser.run("document.querySelectorAll('input[name=dataset]')[1].click()")
    choose(browser, "phase", "3")
    choose(browser, "quantity", "utilization")
    choose_waited_for_link(browser)
    drag(browser, "course", 0.6, 0.9, 0.5)
    browser.run("location.hash = '#when'")  # as the bar of parts does
    chosen, panel = pictures(browser), browser.run(SHOWN)
    assert differ(opened, chosen) == set(VIEWS)
    browser.wait("return location.hash.startsWith('#when?') && location.hash.includes('frames=')")
    browser.reload()
    assert browser.run(SHOWN) == panel
    assert differ(pictures(browser), chosen) == set()
    address = browser.run("return location.hash")
    browser.open(plain)
    browser.run("location.hash = arguments[0]", address)
    browser.settle()
    assert browser.run(SHOWN) == panel
    below = browser.run(
        "return document.getElementById('when').getBoundingClientRect().top"
        " - document.getElementById('tools').getBoundingClientRect().bottom"
    )
    assert abs(below) < 20, "the part stands right below the choices"


@pytest.mark.slow
def test_an_address_of_another_report_is_passed_over(
    browser: webdriver.Browser, plain: Path
) -> None:
    browser.log("browser")
    browser.open(plain)
    opened = pictures(browser)
    browser.run(
        "location.hash = '#where?run=x&phase=%3Cimg%3E&frames=9-3&link=99999999'"
        " + '&hosts=1-99999&cell=z'"
    )
    assert differ(pictures(browser), opened) == set()
    assert complaints(browser) == []


def test_zoom_and_back(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    before = picture(browser, "fabric")
    browser.run("document.querySelector('button[data-zoom=in]').click()")
    assert picture(browser, "fabric") != before
    browser.run("document.querySelector('button[data-zoom=all]').click()")
    assert picture(browser, "fabric") == before


def test_plots_are_saved_as_svg(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    browser.run(
        "window.saved = []; const make = URL.createObjectURL;"
        "URL.createObjectURL = (blob) => { blob.text().then(t => window.saved.push(t));"
        " return make(blob); };"
        "HTMLAnchorElement.prototype.click = () => {};"
        "document.getElementById('save-fabric').click();"
        "document.getElementById('save-raster').click();"
    )
    browser.wait("return window.saved.length === 2")
    for text in browser.run("return window.saved"):
        assert text.startswith("<svg") and text.count("<path") > 20
        assert browser.run(
            "return new DOMParser().parseFromString(arguments[0], 'image/svg+xml')"
            ".querySelector('parsererror') === null",
            text,
        )
    buttons = browser.run(
        "return [...document.querySelectorAll('canvas')].map(c => ['', '-png'].map(form =>"
        " !!document.getElementById(`save-${c.id}${form}`)))"
    )
    assert len(buttons) >= 12 and all(all(both) for both in buttons)


def test_fits_1280_by_720(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    wide, view = browser.run(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= view
    bottom = browser.run("return document.querySelector('h1').getBoundingClientRect().bottom")
    assert bottom < 300, "the verdict must be on the first screen"
    tall = browser.run("return document.getElementById('fabric').clientHeight")
    assert tall < 600


def test_a_narrow_window_scrolls_tables_only(browser: webdriver.Browser, plain: Path) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.command("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.open(plain)
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        wide, view = browser.run(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= view
    finally:
        browser.command("Emulation.clearDeviceMetricsOverride")


def test_hostile_names_stay_text(browser: webdriver.Browser, tmp_path: Path) -> None:
    run = make_run(prefix=HOSTILE, phases=(HOSTILE, "-x", "+y", "-y"))
    path = write_report(
        tmp_path / "hostile.html",
        run,
        make_diagnosis(run, hostile=HOSTILE),
        files={"rankfile" + HOSTILE: "x"},
    )
    browser.log("browser")
    browser.open(path)
    browser.run("document.querySelector('tr[data-link]').click()")
    choose(browser, "phase", "1")
    browser.settle()
    assert browser.run("return window.hacked === undefined")
    assert browser.run("return document.querySelectorAll('img[onerror], img[src=x]').length") == 0
    assert HOSTILE in browser.run("return document.getElementById('detail').innerText")
    assert HOSTILE in browser.run("return document.getElementById('phase').textContent")
    assert complaints(browser) == []


def test_readable_without_javascript_and_in_print(browser: webdriver.Browser, plain: Path) -> None:
    shown = (
        "return [...document.querySelectorAll('canvas')]"
        ".filter(c => c.getBoundingClientRect().height > 50).map(c => c.id)"
    )
    browser.open(plain)
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert {"waterfall", "fabric", "raster", "course", "time_course"} <= set(browser.run(shown))
    browser.command("Emulation.setEmulatedMedia", media="")
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(plain, script=False)
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.run(shown) == []
    text = browser.run("return document.body.innerText")
    for part in (
        "Placement: neighbours",
        "mpirun -np",
        "Links waiting on it",
        "All changes that were tried",
    ):
        assert part in text, part


@pytest.mark.slow
def test_the_search_box_finds_what_has_a_name(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    browser.press("body", "/")
    assert browser.run("return document.activeElement.id") == "find"
    for query, kind in (("node0003", "host"), ("leaf000[17]", "link")):
        first_match = browser.run(
            "const box = document.getElementById('find'); box.value = arguments[0];"
            "box.dispatchEvent(new Event('input'));"
            "const first = document.querySelector('#found li').textContent;"
            "box.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'})); return first",
            query,
        )
        assert first_match.startswith(kind) and query in first_match
        browser.settle()
        assert query in browser.run("return document.getElementById('detail').innerText")
        # The arrow keys go on from there.
        assert browser.run("return document.activeElement.id") == "raster"


def test_a_long_table_is_folded(browser: webdriver.Browser, plain: Path) -> None:
    rows = (
        "const t = document.querySelector('table.folding tr[data-link]').closest('table');"
        "const seen = () => [...t.tBodies[0].rows].filter(r => r.offsetParent);"
    )
    browser.open(plain)
    every = browser.run(rows + "return t.tBodies[0].rows.length")
    assert every >= 12
    assert browser.run(rows + "return seen().length") == 6
    # What is chosen, or looked for, is seen.
    assert (
        browser.run(
            rows
            + "t.tBodies[0].rows[every].click(); return seen().length".replace(
                "every", str(every - 1)
            )
        )
        == 7
    )
    name = browser.run(rows + f"return t.tBodies[0].rows[{every - 2}].cells[0].textContent")
    rows_seen = browser.run(
        rows + "const box = t.previousElementSibling; box.value = arguments[0];"
        "box.dispatchEvent(new Event('input')); const out = seen().map(r => r.textContent);"
        "box.value = ''; box.dispatchEvent(new Event('input')); return out",
        name,
    )
    assert any(name in text for text in rows_seen)
    browser.run(rows + "t.nextElementSibling.click()")
    assert browser.run(rows + "return seen().length") == every


def test_tables_sort_and_filter(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    column = (
        "const t = [...document.querySelectorAll('table.sortable')]"
        ".find(t => t.querySelector('tr[data-link]'));"
        "const head = [...t.tHead.rows[0].cells].find(c => c.textContent.startsWith('Samples'));"
    )
    values = (
        "return [...t.tBodies[0].rows].filter(r => !r.hidden)"
        ".map(r => Number(r.cells[head.cellIndex].dataset.value))"
    )
    opened = browser.run(column + values)
    descending = browser.run(column + "head.querySelector('button').click();" + values)
    assert descending == sorted(opened, reverse=True) != opened
    browser.run(column + "head.querySelector('button').click();")
    assert browser.run(column + "head.querySelector('button').click();" + values) == opened
    left = browser.run(
        column + "const box = t.previousElementSibling; box.value = 'root';"
        "box.dispatchEvent(new Event('input'));" + values
    )
    assert 0 < len(left) < len(opened)


@pytest.mark.slow
def test_hidden_plots_follow_when_the_pointer_is_released(
    browser: webdriver.Browser, plain: Path
) -> None:
    browser.open(plain)
    browser.run("document.getElementById('course').scrollIntoView()")
    browser.settle()
    before = picture(browser, "fabric")
    browser.run(
        "const c = document.getElementById('course'); c.setPointerCapture = () => {};"
        "const b = c.getBoundingClientRect(); window.at = (kind, share) => c.dispatchEvent("
        " new PointerEvent(kind, {pointerId: 1, bubbles: true, clientY: b.top + 150,"
        "  clientX: b.left + 150 + (b.width - 164) * share}));"
        "at('pointerdown', 0.1); at('pointermove', 0.2)"
    )
    assert picture(browser, "fabric") == before
    browser.run("at('pointerup', 0.2)")
    assert picture(browser, "fabric") != before
