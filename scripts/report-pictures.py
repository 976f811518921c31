"""Pictures of the report for README.md and docs/how-to/report.md: the demo in a headless Chromium.

    .venv/bin/python scripts/report-pictures.py

Needs the Debian packages chromium and chromium-driver, as the browser tests do.
"""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT))
from tests.factories import webdriver  # noqa: E402

WIDE = 1280


def shoot(browser: webdriver.Browser, name: str, top: float, tall: float) -> None:
    """Write a part of the page, as a small PNG with a palette."""
    browser.settle()
    clip = {"x": 0, "y": top, "width": WIDE, "height": tall, "scale": 1}
    found = browser.command("Page.captureScreenshot", format="png", clip=clip,
                            captureBeyondViewport=True)  # fmt: skip
    image = Image.open(io.BytesIO(base64.b64decode(found["data"]))).convert("RGB")
    image.quantize(128).save(IMAGES / name, optimize=True)


def top_of(browser: webdriver.Browser, selector: str) -> float:
    """Where an element begins on the page."""
    return float(browser.run(
        "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY",
        selector,
    ))  # fmt: skip


def main() -> None:
    """Diagnose the demo and photograph its report."""
    with tempfile.TemporaryDirectory() as folder, webdriver.Browser() as browser:
        out = Path(folder) / "demo"
        tailback = Path(sys.executable).with_name("tailback")
        demo = ROOT / "examples" / "demo" / "demo.toml"
        subprocess.run([tailback, "diagnose", demo, "--out", out, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        browser.command("Emulation.setDeviceMetricsOverride", width=WIDE, height=900,
                        deviceScaleFactor=1, mobile=False)  # fmt: skip
        browser.open(out / "report.html")
        end = top_of(browser, "#remedy .command") + 60
        shoot(browser, "report.png", 0, end)
        browser.run("document.querySelector('#where tr[data-link]').click()")
        top = top_of(browser, "#where")
        shoot(browser, "report-where.png", top, top_of(browser, "#where h3:nth-of-type(2)") - top)
        top = top_of(browser, "#when")
        shoot(browser, "report-when.png", top, top_of(browser, "#figure-time_course") - top - 20)


if __name__ == "__main__":
    main()
