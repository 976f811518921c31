"""Choices and places in the report's address: back, forward, and a step a drag."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories import webdriver
from tests.factories.webdriver import ESCAPE

pytestmark = webdriver.needed()


def test_back_and_forward_step_through_choices(browser: webdriver.Browser, plain: Path) -> None:
    browser.open(plain)
    for row in (0, 3):
        browser.run("document.querySelectorAll('tr[data-link]')[arguments[0]].click()", row)
        link = browser.run(
            "return document.querySelectorAll('tr[data-link]')[arguments[0]].dataset.link", row
        )
        browser.wait(f"return location.hash.endsWith('link={link}')")
    first = browser.run("return document.querySelectorAll('tr[data-link]')[0].dataset.link")
    browser.run("history.back()")
    browser.wait(f"return document.getElementById('detail').dataset.link === '{first}'")
    browser.run("history.back()")
    browser.wait("return document.getElementById('detail').dataset.link === '-1'")
    browser.run("history.forward()")
    browser.wait(f"return document.getElementById('detail').dataset.link === '{first}'")


@pytest.mark.slow
def test_an_address_holds_the_scroll_position(browser: webdriver.Browser, plain: Path) -> None:
    place = (
        "const part = document.getElementById('when').getBoundingClientRect();"
        "return (document.getElementById('tools').getBoundingClientRect().bottom - part.top)"
        " / part.height"
    )
    browser.open(plain)
    browser.run(
        "document.querySelectorAll('tr[data-link]')[1].click();"
        "document.getElementById('time_course').scrollIntoView()"
    )
    browser.wait("return location.hash.startsWith('#when?at=') && location.hash.includes('link=')")
    scrolled, address = browser.run(place), browser.run("return location.hash")
    assert scrolled > 0.3
    # Both choices stay in sight in every part of the page.
    for part in ("when", "placement", "evidence"):
        browser.run("document.getElementById(arguments[0]).scrollIntoView()", part)
        top, bottom = browser.run(
            "const box = document.getElementById('tools').getBoundingClientRect();"
            "return [box.top, box.bottom]"
        )
        assert 0 < top < 60 and bottom < 300, part
    # However long a drag takes, it is one step.
    browser.run(
        "const c = document.getElementById('course'); c.setPointerCapture = () => {};"
        "window.steps = history.length; const b = c.getBoundingClientRect();"
        "window.at = (kind, share) => c.dispatchEvent(new PointerEvent(kind, {pointerId: 1,"
        " bubbles: true, clientX: b.left + b.width * share, clientY: b.top + b.height / 2}));"
        "at('pointerdown', 0.4); at('pointermove', 0.5)"
    )
    browser.run_async(
        "setTimeout(() => { at('pointermove', 0.6); setTimeout(arguments[0], 300) }, 300)"
    )
    assert browser.run("return [history.length - steps, location.hash.includes('frames')]") == [
        0,
        False,
    ]
    browser.run("at('pointerup', 0.6)")
    browser.wait("return location.hash.includes('frames=') && history.length === steps + 1")
    browser.press("#course", ESCAPE)
    browser.run("location.hash = arguments[0]", address)
    browser.settle()
    # Only choices are steps back, and a step back has its place on the page.
    browser.run("document.querySelectorAll('tr[data-link]')[0].click()")
    browser.wait(
        "return !location.hash.includes(arguments[0])".replace(
            "arguments[0]", repr("link=" + address.partition("link=")[2])
        )
    )
    browser.run("history.back()")
    browser.wait(f"return location.hash.endsWith('{address.partition('link=')[2]}')")
    with browser.wide(1000):
        browser.open(plain)
        browser.run("location.hash = arguments[0]", address)
        browser.settle()
        assert browser.run(place) == pytest.approx(scrolled, abs=0.05)
