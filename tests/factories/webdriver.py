"""A thin client of chromedriver: the W3C WebDriver protocol is JSON over HTTP."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HOSTILE = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=2</script>"
"""A name that would run if it were taken for markup."""

RIGHT, DOWN, ESCAPE, ENTER = "\ue014", "\ue015", "\ue00c", "\ue007"
LEFT, UP = "\ue012", "\ue013"

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
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,720",
)  # fmt: skip


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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._base = f"http://127.0.0.1:{port}"
        options = {
            "args": [*self._switches, f"--user-data-dir={self._folder.name}"],
            "binary": shutil.which("chromium"),
        }
        logging = {"browser": "ALL", "performance": "ALL"}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": logging}
        try:
            self._wait_until_up()
            reply = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._base += f"/session/{reply['sessionId']}"
        except BaseException:
            self._driver.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(10)
            self._folder.cleanup()

    def _wait_until_up(self) -> None:
        for _ in range(200):
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("chromedriver does not answer")

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())["value"]

    def open(self, path: Path, *, script: bool = True) -> None:
        """Open a file and wait until its viewer is ready."""
        self._call("POST", "/url", {"url": path.resolve().as_uri()})
        if script:
            self.wait("return document.documentElement.dataset.ready === 'true'")
            self.settle()

    def reload(self) -> None:
        """Load the page again, as at the address it has now, and wait until its viewer is ready."""
        self._call("POST", "/refresh", {})
        self.wait("return document.documentElement.dataset.ready === 'true'")
        self.settle()

    def run(self, script: str, *arguments: object) -> Any:
        """Run JavaScript in the page and return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: object) -> Any:
        """Run JavaScript whose last argument is a function to call with the result."""
        return self._call("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def wait(self, script: str) -> None:
        """Wait until the script returns something true."""
        for _ in range(200):
            if self.run(script):
                return
            time.sleep(0.05)
        raise TimeoutError(script)

    def settle(self) -> None:
        """Wait for two frames, after which everything asked for is drawn."""
        self._call("POST", "/execute/async", {"script": (
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))"
        ), "args": []})  # fmt: skip

    def press(self, selector: str, key: str) -> None:
        """Focus an element and press a key, as a keyboard would."""
        self.run("document.querySelector(arguments[0]).focus()", selector)
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._call("POST", "/actions", {"actions": [
            {"type": "key", "id": "keyboard", "actions": keys}]})  # fmt: skip
        self.settle()

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Entries of the log ``browser`` or ``performance`` since the last call."""
        found: list[dict[str, Any]] = self._call("POST", "/se/log", {"type": kind})
        return found

    def command(self, name: str, **parameters: object) -> Any:
        """Send a DevTools command."""
        body = {"cmd": name, "params": parameters}
        return self._call("POST", "/goog/cdp/execute", body)

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
            "URL.createObjectURL = make", plot,
        )  # fmt: skip
        self.wait("return window.saved !== null")
        return str(self.run("return window.saved"))
