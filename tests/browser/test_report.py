"""The report in a real browser: it draws, answers to mouse and keyboard, and asks nobody."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import webdriver
from webdriver import DOWN, ENTER, ESCAPE, HOSTILE, RIGHT

from report_data import make_diagnosis, make_run
from tailback.report import write_report

pytestmark = webdriver.needed()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run()
    return write_report(
        tmp_path_factory.mktemp("report") / "plain.html", run, make_diagnosis(run),
        after=make_run(tiled=True), files={"rankfile": "rank 0=a slot=0\n"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Browser]:
    with webdriver.Browser() as found:
        yield found


def picture(browser: webdriver.Browser, canvas: str) -> str:
    browser.settle()
    found = browser.run("return document.getElementById(arguments[0]).toDataURL()", canvas)
    assert isinstance(found, str)
    return found


def choose(browser: webdriver.Browser, control: str, value: str) -> None:
    browser.run(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change'))", control, value,
    )  # fmt: skip


def complaints(browser: webdriver.Browser) -> list[dict[str, Any]]:
    return [entry for entry in browser.log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def test_opens_offline_without_complaint(browser: webdriver.Browser, plain: Path) -> None:
    browser.log("performance")
    browser.command("Network.enable")
    browser.command("Network.emulateNetworkConditions", offline=True, latency=0,
                    downloadThroughput=0, uploadThroughput=0)  # fmt: skip
    browser.open(plain)
    assert complaints(browser) == []
    asked = set()
    for entry in browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}
    assert [url for url in asked if url.startswith("file")] == [plain.resolve().as_uri()]


def test_printed_figures_load_under_the_policy(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    broken = browser.run(
        "return [...document.images].filter(i => !i.complete || i.naturalWidth < 50).map(i => i.id)"
    )
    assert broken == []


@pytest.mark.parametrize("canvas", ["fabric", "raster"])
def test_canvas_is_not_blank(browser: webdriver.Browser, plain: Path, canvas: str) -> None:
    browser.open(plain)
    shades = browser.run(
        "const c = document.getElementById(arguments[0]);"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const s = new Set(); for (let i = 0; i < d.length; i += 4)"
        " s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size", canvas,
    )  # fmt: skip
    assert shades > 40


def test_phase_selector_changes_what_is_drawn(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    options = browser.run(
        "return [...document.querySelectorAll('#phase option')].map(o => o.textContent)"
    )
    assert options == ["Whole run", "Phase +x", "Phase -x", "Phase +y", "Phase -y"]
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
    assert browser.run("return document.querySelectorAll('tr.selected').length") == 1
    detail = browser.run("return document.getElementById('detail').innerText")
    assert name in detail
    assert "Congested fraction" in detail and "Hop samples" in detail and "±" in detail
    for canvas, old in before.items():
        assert picture(browser, canvas) != old, f"{canvas} does not show the selection"


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
    assert browser.run("return document.querySelectorAll('tr.selected').length") == 1


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
            ".querySelector('parsererror') === null", text,
        )  # fmt: skip
    hrefs = browser.run("return [...document.querySelectorAll('a[data-figure]')].map(a => a.href)")
    assert len(hrefs) >= 8 and all(h.startswith("data:image/svg+xml") for h in hrefs)


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


def test_hostile_names_stay_text(browser: webdriver.Browser, tmp_path: Path) -> None:
    run = make_run(prefix=HOSTILE, phases=(HOSTILE, "-x", "+y", "-y"))
    path = write_report(
        tmp_path / "hostile.html", run, make_diagnosis(run, hostile=HOSTILE),
        files={"rankfile" + HOSTILE: "x"},
    )  # fmt: skip
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
        "return [...document.images].filter(i => i.getBoundingClientRect().height > 50)"
        ".map(i => i.id)"
    )
    printed = {"figure-congested_fraction", "figure-fabric_raster", "figure-waterfall"}
    browser.open(plain)
    assert not {"figure-congested_fraction"} & set(browser.run(shown))
    browser.command("Emulation.setEmulatedMedia", media="print")
    assert printed <= set(browser.run(shown))
    assert browser.run("return document.getElementById('fabric').clientHeight") == 0
    browser.command("Emulation.setEmulatedMedia", media="")
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(plain, script=False)
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert printed <= set(browser.run(shown))
    assert "Placement: neighbours" in browser.run("return document.body.innerText")
