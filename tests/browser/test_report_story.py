"""The first screen, and the measured run: what the tables say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tailback as tb
from tailback.report import FigureData, write_report
from tailback.report.attribution import attribute, by_call_site
from tailback.report.scales import KIND_COLOURS
from tests.factories import webdriver
from tests.factories.measured_verdict import PARTS, as_measured
from tests.factories.report_data import make_diagnosis, make_run
from tests.factories.repository import ROOT

pytestmark = webdriver.needed()

STEPS = r"""
const text = (part) => (part?.textContent ?? '').replaceAll('\u00a0', ' ');
return [...document.querySelectorAll('.story li')].map((step) => ({
  name: text(step.querySelector('h2')), bottom: step.getBoundingClientRect().bottom,
  items: [...step.querySelectorAll('p:not(.note)')].map(text),
  note: text(step.querySelector('.note'))}));
"""


def steps(browser: webdriver.Browser) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in browser.run(STEPS)}


def test_the_first_screen_leads_from_remedy_to_cause(
    browser: webdriver.Browser, plain: Path
) -> None:
    run = make_run()
    diagnosis = make_diagnosis(run)
    browser.open(plain)
    parts = steps(browser)
    assert list(parts) == ["What to do", "Root links", "Phase and call", "Why"]
    assert max(step["bottom"] for step in parts.values()) < 720
    assert parts["Why"]["items"] == [diagnosis.findings[0].title]
    assert parts["Why"]["note"] == "86 % of the congested packets"
    estimate = FigureData(run).load().shrunk
    assert estimate is not None
    # The surest of the roots of this cause.
    roots = sorted(diagnosis.findings[0].links, key=lambda link: -estimate.low[link.link])
    assert parts["Root links"]["items"] == [link.name for link in roots[:2]]
    lines = by_call_site(attribute(run))[:2]
    assert parts["Phase and call"]["items"] == [line.line for line in lines]
    assert diagnosis.remedy is not None
    assert parts["What to do"]["items"] == list(diagnosis.remedy.actions)
    assert "28 % less time" in parts["What to do"]["note"]
    # Steps lead to what they name.
    browser.run("document.querySelectorAll('.story a:not(.button)')[0].click()")
    browser.wait(f"return document.getElementById('detail').dataset.link === '{roots[0].link}'")
    browser.run("document.querySelectorAll('.story a:not(.button)')[2].click()")
    browser.wait("return document.getElementById('phase').value !== '0'")
    phase = browser.run("return document.getElementById('phase').selectedOptions[0].textContent")
    assert phase == f"Phase {lines[0].phase}"
    name, address = browser.run(
        "const at = document.querySelector('.story a[download]'); return [at.download, at.href]"
    )
    assert name == "rankfile" and address.startswith("data:text/plain")


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a measured run with evidence beside its trace."""
    run = make_run()
    evidence = FigureData(run)
    links = [(number, evidence.link_names[number]) for number in (300, 301, 302)]
    folder = tmp_path_factory.mktemp("explained")
    return write_report(folder / "report.html", run, as_measured(make_diagnosis(run), links))


TIPS = """
const c = document.getElementById(arguments[0]);
c.focus();
const out = [];
for (let i = 0; i < arguments[1]; i++) {
  c.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}));
  out.push(document.getElementById(`${c.id}-tip`).textContent.split('\\n'));
}
return out;
"""


def test_the_measured_time_is_divided_as_diagnosed(
    browser: webdriver.Browser, explained: Path
) -> None:
    browser.open(explained)
    tips = browser.run(TIPS, "measured_parts", 6)
    # The bounds of what is small are wide enough to show, or it is added up.
    assert [tip[0] for tip in tips] == [
        "computation",
        "late sender",
        "wait at N×N collective",
        "transfer (rest inside MPI)",
        "smaller parts",
        "measured",
    ]
    assert tips[1][1] == "30 ms (30 %)" and tips[4][1].startswith("300 µs")
    shown = [float(re.match(r"[\d.]+", tip[1])[0]) for tip in tips[:4]]  # type: ignore[index]
    named = ("computation", "late_sender", "wait_nxn", "transfer")
    assert shown == pytest.approx([PARTS[name] for name in named])
    assert KIND_COLOURS["late_sender"] in browser.saved("measured_parts")
    # On the scale of the measured time: the cost that the table and the headline give.
    tips = browser.run(TIPS, "attainable", 3)
    assert tips == [
        ["measured", "100 ms"],
        ["Placement", "−25 ms (25 %)", "range: 70 ms – 80 ms"],
        ["not explained", "19.8 ms (20 %)"],
    ]
    text = browser.run("return document.querySelector('main').textContent").replace("\u00a0", " ")
    for part in ("Load balance", "80 %", "rank 7", "h07", "job 21 50 %", "± 4"):
        assert part in text, part
    assert browser.run("return window.hacked === undefined")


def test_links_of_real_packets_stand_beside_expected_ones(
    browser: webdriver.Browser, explained: Path
) -> None:
    fraction = FigureData(make_run()).load().fraction
    browser.open(explained)
    rows = browser.run(
        "return [...document.querySelectorAll('#sampled tr[data-link]')].map(row =>"
        " [row.dataset.link, ...[...row.cells].map(cell => cell.textContent)])"
    )
    assert [row[0] for row in rows] == ["300", "301", "302"]
    for link, _, _, measured, expected in rows:
        i = int(link) - 300
        assert measured.startswith(f"{50 / (i + 1):.1f}".removesuffix(".0"))
        assert float(expected.split()[0]) == pytest.approx(100 * fraction[int(link)], abs=0.06)
    browser.run("document.querySelector('#sampled tr[data-link]').click()")
    browser.wait("return document.getElementById('detail').dataset.link === '300'")
    # What the verdict says of a link leads to it.
    place = steps(browser)["Root links"]["items"][0]
    assert place.endswith("is full")
    browser.run("document.querySelector('.story a:not(.button)').click()")
    browser.wait("return location.hash.includes('link=300')")


def test_the_network_is_on_the_first_screen(browser: webdriver.Browser, plain: Path) -> None:
    """Beside the answer, where the page is wide enough; below it on a narrow one."""
    boxes = (
        "const box = (at) => document.querySelector(at).getBoundingClientRect().toJSON();"
        "return [box('h1'), box('#fabric')]"
    )
    with browser.wide(1280):
        browser.open(plain)
        answer, network = browser.run(boxes)
        assert network["bottom"] <= 800 and network["left"] >= answer["right"]
    with browser.wide(500):
        # Plots follow the width of the window in the next frame.
        browser.settle()
        answer, network = browser.run(boxes)
        assert network["top"] >= answer["bottom"] and network["right"] <= 500


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of ``make demo``."""
    folder = tmp_path_factory.mktemp("demo") / "report"
    tb.diagnose(ROOT / "examples" / "lab" / "placement" / "before").write(folder)
    return folder / "report.html"


def test_the_demo_is_short_and_in_six_sections(browser: webdriver.Browser, demo: Path) -> None:
    with browser.wide(1280):
        browser.open(demo)
        browser.settle()
        tall, sections = browser.run(
            "return [document.documentElement.scrollHeight,"
            " document.querySelectorAll('main > section').length]"
        )
    assert tall <= 5000 and sections <= 6
