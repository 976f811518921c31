"""The view of the evolution graph in a real browser: draws, answers, asks nobody."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.port_counters.analysis.evolution import Evolution, evolve, torus_neighbours
from tailback.report.evolution import torus_panels, write_evolution
from tests.factories import webdriver
from tests.factories.webdriver import DOWN, ESCAPE, HOSTILE, LEFT, RIGHT, UP

pytestmark = webdriver.needed()


def written(path: Path, prefix: str = "") -> Path:
    """A page of a 4×4×2 torus in which a feature grows, splits and merges."""
    xyz = np.array([[x, y, z] for z in range(2) for y in range(4) for x in range(4)])
    hot = [[0, 1, 2, 5], [0, 2, 5], [0, 1, 2, 20], []]
    values = np.full((4, 32), 3.0)
    for step, places in enumerate(hot):
        values[step, places] = 45.0 + 10 * step
    names = [f"{prefix}r{n}" for n in range(32)]
    full = np.zeros((4, 32), np.bool_)
    full[0, 5] = True
    minutes = np.repeat(np.arange(1, 5) * 60 * 10**9, 32)
    rows = pl.DataFrame({"time_ns": minutes}).with_columns(interval_ns=60 * 10**9)
    graph: Evolution = evolve(
        rows,
        np.tile(np.arange(32), 4),
        values.ravel(),
        torus_neighbours(xyz, (4, 4, 2), 0),
        names,
        full=full.ravel(),
    )
    where = pl.DataFrame({"node_name": names, "x": xyz[:, 0], "y": xyz[:, 1], "z": xyz[:, 2]})
    return write_evolution(
        path, graph, torus_panels(where, names), values, full=full, title=prefix + "t"
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("evolution") / "plain.html")


def picture(browser: webdriver.Browser, canvas: str) -> str:
    browser.settle()
    return str(browser.run("return document.getElementById(arguments[0]).toDataURL()", canvas))


def chosen(browser: webdriver.Browser) -> int:
    return int(browser.run("return document.getElementById('detail').dataset.feature"))


def test_opens_without_complaint_and_draws(browser: webdriver.Browser, page: Path) -> None:
    browser.log("browser")
    browser.open(page)
    assert [e for e in browser.log("browser") if e["level"] in ("SEVERE", "WARNING")] == []
    for canvas in ("heat", "graph", "network"):
        shades = browser.run(
            "const c = document.getElementById(arguments[0]);"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "const s = new Set(); for (let i = 0; i < d.length; i += 4)"
            " s.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return s.size",
            canvas,
        )
        assert shades > 10, canvas


def test_the_worst_feature_is_chosen_and_keys_follow(
    browser: webdriver.Browser, page: Path
) -> None:
    browser.open(page)
    assert "65.0 %" in browser.run("return document.getElementById('detail').innerText")
    before = {canvas: picture(browser, canvas) for canvas in ("graph", "network")}
    browser.press("#graph", ESCAPE)
    assert chosen(browser) == -1
    browser.press("#graph", RIGHT)
    first = chosen(browser)
    browser.press("#graph", DOWN)
    assert first == 0 and chosen(browser) > first
    assert all(picture(browser, canvas) != old for canvas, old in before.items())


def test_the_slider_moves_the_network(browser: webdriver.Browser, page: Path) -> None:
    browser.open(page)
    seen = set()
    for step in ("0", "1", "3"):
        browser.run(
            "const s = document.getElementById('step'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('input'))",
            step,
        )
        seen.add(picture(browser, "network"))
    assert len(seen) == 3
    assert browser.run("return document.getElementById('now').textContent").startswith("3")


def test_keyboard_and_clicks_read_the_network(browser: webdriver.Browser, page: Path) -> None:
    """Arrow keys go from link to link, and what is said is of the step that is shown."""
    place_text = "return document.getElementById('place').textContent"
    browser.open(page)
    assert browser.run(place_text) == ""
    before = picture(browser, "network")
    for key, place in (
        (RIGHT, "r12"),
        (RIGHT, "r13"),
        (DOWN, "r9"),
        (UP, "r13"),
        (LEFT, "r12"),
        (LEFT, "r12"),
        (UP, "r12"),
    ):
        browser.press("#network", key)
        assert browser.run(place_text).startswith(f"{place}: "), (key, place)
    assert picture(browser, "network") != before
    for _ in range(16):
        browser.press("#network", RIGHT)
    assert browser.run(place_text).startswith("r28: "), "the next panel follows"
    browser.press("#network", UP)
    assert browser.run(place_text).startswith("r3: "), "and the one before, from its end"
    for _ in range(3):
        browser.press("#network", LEFT)
    amounts = []
    for step in ("0", "3"):
        browser.run(
            "const s = document.getElementById('step'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('input'))",
            step,
        )
        amounts.append(browser.run(place_text))
    assert amounts == ["r0: 45.0 %", "r0: 3.0 %"]
    browser.press("#network", ESCAPE)
    assert browser.run(place_text) == ""
    browser.run(
        "const c = document.getElementById('network'), b = c.getBoundingClientRect();"
        "const at = {clientX: b.left + 6, clientY: b.top + 20, bubbles: true};"
        "c.dispatchEvent(new MouseEvent('click', at));"
        "c.dispatchEvent(new PointerEvent('pointerleave', at))"
    )
    assert browser.run(place_text).startswith("r12: ")


@pytest.mark.slow
def test_a_full_counter_is_a_lower_bound(browser: webdriver.Browser, page: Path) -> None:
    browser.open(page)
    browser.run(
        "const s = document.getElementById('step'); s.value = '0';"
        "s.dispatchEvent(new Event('input'))"
    )
    place_text, seen = "return document.getElementById('place').textContent", set()
    for key in (RIGHT, RIGHT, DOWN, DOWN, DOWN, LEFT):
        browser.press("#network", key)
        seen.add(browser.run(place_text))
    assert "r5: ≥ 45.0 %" in seen and "r0: 45.0 %" in seen, seen
    browser.press("#graph", ESCAPE)
    details = set()
    for key in (RIGHT, LEFT, UP, UP, UP, LEFT, RIGHT):
        browser.press("#graph", key)
        details |= set(
            browser.run("return document.getElementById('detail').innerText").splitlines()
        )
    assert any(re.fullmatch(r"largest ≥ 45\.0 %, mean ≥ [\d.]+ %", line) for line in details)
    assert any(line.startswith("largest 45.0 %") for line in details), details


def test_one_link_is_one_link(browser: webdriver.Browser, page: Path) -> None:
    browser.open(page)
    detail = "return document.getElementById('detail').innerText"
    seen = set()
    for key in (ESCAPE, RIGHT, RIGHT, DOWN, RIGHT, DOWN, LEFT):
        browser.press("#graph", key)
        seen |= {line for line in browser.run(detail).splitlines() if re.match(r"\d+ link", line)}
        seen |= set(re.findall(r"from 1 features? before", browser.run(detail)))
    assert "1 link" in seen and any(re.fullmatch(r"[2-9] links", line) for line in seen)
    assert "from 1 feature before" in seen and "from 1 features before" not in seen


def test_links_stand_in_the_order_of_their_congestion(
    browser: webdriver.Browser, page: Path
) -> None:
    browser.open(page)
    tip = "return document.getElementById('heat-tip').textContent.split('\\n')"
    browser.run(
        "window.at = (kind, row, step) => { const c = document.getElementById('heat');"
        "const b = c.getBoundingClientRect();"
        "c.dispatchEvent(new PointerEvent(kind, {bubbles: true,"
        "clientX: b.left + 150 + (b.width - 164) * (step + 0.5) / 4, "
        "clientY: b.top + 11 + 10 * row})); }"
    )
    seen = []
    for row in range(4):
        browser.run("at('pointermove', arguments[0], 0)", row)
        browser.settle()
        seen.append(browser.run(tip))
    assert {name for name, *_ in seen} == {"r0", "r1", "r2", "r5"}
    assert ["r5", "≥ 45.0 % of the step at 0.000 min", "first from 40 % at 0.000 min"] in seen
    # A cell chooses its step and the feature its link is part of, and both are in the address.
    browser.run("at('click', arguments[0], 2)", [name for name, *_ in seen].index("r0"))
    browser.wait("return location.hash.startsWith('#step=2&feature=')")
    assert "65.0 %" in browser.run("return document.getElementById('detail').innerText")
    last = chosen(browser)
    browser.press("#heat", LEFT)
    browser.wait("return location.hash.startsWith('#step=1&feature=')")
    browser.run("history.back()")
    browser.wait(f"return document.getElementById('detail').dataset.feature === '{last}'")
    browser.reload()
    assert chosen(browser) == last
    browser.command(
        "Emulation.setEmulatedMedia",
        media="",
        features=[{"name": "prefers-color-scheme", "value": "dark"}],
    )
    dark = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.command("Emulation.setEmulatedMedia", media="", features=[])
    assert dark != browser.run("return getComputedStyle(document.body).backgroundColor")


def test_a_narrow_window_cuts_nothing(browser: webdriver.Browser, page: Path) -> None:
    with browser.wide(400):
        browser.open(page)
        for plot in ("heat", "graph", "network"):
            assert browser.run(webdriver.OUTSIDE, browser.saved(plot)) == [], plot
        sides = browser.run(
            "return [...document.querySelectorAll('.columns > section')]"
            ".map(s => s.getBoundingClientRect().left)"
        )
        assert sides[0] == sides[1], "the graph stands above the network, not beside it"


def test_hostile_names_stay_text(browser: webdriver.Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path / "hostile.html", HOSTILE))
    assert browser.run("return window.hacked === undefined")
    assert browser.run("return document.querySelectorAll('img[src=x]').length") == 0
    assert HOSTILE in browser.run("return document.getElementById('detail').innerText")


def test_readable_without_javascript(browser: webdriver.Browser, page: Path) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page, script=False)
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    text = browser.run("return document.body.innerText")
    assert "Features with the largest stall" in text and "65.0" in text
    assert re.search(r"z = 0\s+0\s+4 of 16\s+4\s+0\s+2", text), "where congestion spreads, and when"


def test_plots_are_saved_as_images_and_terms_explained(
    browser: webdriver.Browser, page: Path
) -> None:
    browser.open(page)
    for plot in ("heat", "graph", "network"):
        assert browser.saved(plot).startswith("<svg")
        browser.run(
            "window.kind = null; const make = URL.createObjectURL;"
            "URL.createObjectURL = (blob) => { window.kind = [blob.type, blob.size];"
            " return make.call(URL, blob); };"
            "HTMLAnchorElement.prototype.click = () => {};"
            "document.getElementById(`save-${arguments[0]}-png`).click()",
            plot,
        )
        browser.wait("return window.kind !== null")
        kind, size = browser.run("return window.kind")
        assert kind == "image/png" and size > 1000
    titles = browser.run("return [...document.querySelectorAll('th.term')].map(h => h.title)")
    assert any("congested in the same step" in title for title in titles)


def test_parts_without_congestion_share_a_line(browser: webdriver.Browser, tmp_path: Path) -> None:
    xyz = np.array([[x, y, z] for z in range(4) for y in range(4) for x in range(4)])
    values = np.full((3, 64), 3.0)
    values[:, 1] = 60.0
    names = [f"r{n}" for n in range(64)]
    rows = pl.DataFrame({"time_ns": np.repeat(np.arange(1, 4) * 60 * 10**9, 64)})
    graph = evolve(
        rows.with_columns(interval_ns=60 * 10**9),
        np.tile(np.arange(64), 3),
        values.ravel(),
        torus_neighbours(xyz, (4, 4, 4), 0),
        names,
    )
    where = pl.DataFrame({"node_name": names, "x": xyz[:, 0], "y": xyz[:, 1], "z": xyz[:, 2]})
    browser.open(write_evolution(tmp_path / "calm.html", graph, torus_panels(where, names), values))
    svg = browser.saved("heat")
    assert svg.count("none of") == 1 and "none of 48 links" in svg and "z = 1 … z = 3" in svg
