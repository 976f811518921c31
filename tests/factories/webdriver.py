"""A headless Chromium that opens reports: Selenium, with what the tests of this viewer need."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

HOSTILE = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=2</script>"
"""A name that would run if it were taken for markup."""

RIGHT, DOWN, LEFT, UP = Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.ARROW_UP
ESCAPE, ENTER = Keys.ESCAPE, Keys.ENTER

OUTSIDE = """
const plots = new DOMParser().parseFromString(arguments[0], 'image/svg+xml').documentElement;
const here = document.body.appendChild(document.importNode(plots, true));
const width = Number(here.getAttribute('width'));
const out = [...here.querySelectorAll('text')].filter((text) => {
  const box = text.getBBox();
  return box.x < -1 || box.x + box.width > width + 1;
}).map((text) => text.textContent);
here.remove();
return out;
"""
"""Texts of a saved plot that reach beyond its edges."""

SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,720",
)


def missing() -> str:
    """What must be installed for the browser tests, empty when all is there."""
    packages = {"chromium": "chromium", "chromedriver": "chromium-driver"}
    return ", ".join(package for tool, package in packages.items() if not shutil.which(tool))


def needed() -> list[pytest.MarkDecorator]:
    """The marks of a module of browser tests: they skip, saying so, where there is no browser."""
    packages = missing()
    return [
        pytest.mark.tools,
        pytest.mark.skipif(bool(packages), reason=f"needs the Debian packages {packages}"),
    ]


class Browser:
    """One headless Chromium; use as a context manager."""

    def __init__(self, *switches: str) -> None:
        self._switches = [*SWITCHES, *switches]

    def __enter__(self) -> Browser:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = webdriver.ChromeOptions()
        # Debian's own; Selenium would look for others, and fetch them.
        options.binary_location = str(shutil.which("chromium"))
        for switch in (*self._switches, f"--user-data-dir={self._folder.name}"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        self._driver = webdriver.Chrome(options, service)
        self._driver.set_script_timeout(60)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._driver.quit()
        finally:
            self._folder.cleanup()

    def open(self, path: Path, *, script: bool = True) -> None:
        """Open a file and wait until its viewer is ready."""
        self._driver.get(path.resolve().as_uri())
        if script:
            self.wait("return document.documentElement.dataset.ready === 'true'")
            self.settle()

    def reload(self) -> None:
        """Load the page again, as at the address it has now, and wait until its viewer is ready."""
        self._driver.refresh()
        self.wait("return document.documentElement.dataset.ready === 'true'")
        self.settle()

    def run(self, script: str, *arguments: object) -> Any:
        """Run JavaScript in the page and return what it returns."""
        return self._driver.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def run_async(self, script: str, *arguments: object) -> Any:
        """Run JavaScript whose last argument is a function to call with the result."""
        return self._driver.execute_async_script(script, *arguments)  # type: ignore[no-untyped-call]

    def wait(self, script: str) -> None:
        """Wait until the script returns something true."""
        WebDriverWait(self._driver, 60, poll_frequency=0.05).until(
            lambda _: self.run(script), message=script
        )

    def settle(self) -> None:
        """Wait for two frames, after which everything asked for is drawn."""
        self.run_async(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))"
        )

    def press(self, selector: str, key: str) -> None:
        """Focus an element and press a key, as a keyboard would."""
        self.run("document.querySelector(arguments[0]).focus()", selector)
        ActionChains(self._driver, duration=0).key_down(key).key_up(key).perform()
        self.settle()

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Entries of the log ``browser`` or ``performance`` since the last call."""
        entries: list[dict[str, Any]] = self._driver.get_log(kind)
        return entries

    def command(self, name: str, **parameters: object) -> Any:
        """Send a DevTools command."""
        return self._driver.execute_cdp_cmd(name, parameters)

    @contextmanager
    def wide(self, width: int) -> Iterator[None]:
        """A window of a width in CSS pixels."""
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        try:
            yield
        finally:
            self.command("Emulation.clearDeviceMetricsOverride")

    def saved(self, plot: str) -> str:
        """A plot as the SVG that its button saves."""
        self.settle()
        self.run(
            "window.saved = null; const make = URL.createObjectURL;"
            "URL.createObjectURL = (blob) => { blob.text().then(t => window.saved = t);"
            " return make.call(URL, blob); };"
            "HTMLAnchorElement.prototype.click = () => {};"
            "document.getElementById('save-' + arguments[0]).click();"
            "URL.createObjectURL = make",
            plot,
        )
        self.wait("return window.saved !== null")
        return str(self.run("return window.saved"))
