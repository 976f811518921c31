"""Pictures of reports, in a headless Chromium.

    .venv/bin/python scripts/report-pictures.py
    .venv/bin/python scripts/report-pictures.py --review FOLDER report.html compare.html …

Without arguments it makes those of README.md and docs/how-to/report.md: the demo is diagnosed and
compared, and screenshots are taken, also of the evolution of examples/blue-waters.
``--kept FOLDER`` keeps their results there and uses them the next time. With
``--review`` each page is written in full, in pieces of viewable size, 1280 and 500 pixels wide:
light, dark and without colour, and on A4 paper as a PDF. Needs the Debian packages chromium and
chromium-driver, as the browser tests do.
"""

from __future__ import annotations

import argparse
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

WIDE, NARROW = 1280, 500
PIECE = 1500
"""Height of the pieces of a reviewed page, CSS pixels."""

MODES = {"light": "light", "dark": "dark", "grey": "light"}

CLICK = """
const c = document.getElementById(arguments[0]), b = c.getBoundingClientRect();
c.setPointerCapture = () => {};
for (const kind of ['pointermove', 'pointerdown', 'pointerup', 'click', 'pointerleave'])
  c.dispatchEvent(new PointerEvent(kind, {pointerId: 1, bubbles: true,
    clientX: b.left + arguments[1] * b.width, clientY: b.top + arguments[2] * b.height}));
"""


def look(browser: webdriver.Browser, width: int, mode: str = "light") -> None:
    """A browser window of a given width in which pages are light, dark or without colour."""
    scheme = {"name": "prefers-color-scheme", "value": MODES[mode]}
    browser.command("Emulation.setEmulatedMedia", media="", features=[scheme])
    sight = "achromatopsia" if mode == "grey" else "none"
    browser.command("Emulation.setEmulatedVisionDeficiency", type=sight)
    browser.command(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )


def photograph(browser: webdriver.Browser, top: float, tall: float, width: int) -> Image.Image:
    """A part of the page as it is."""
    browser.settle()
    clip = {"x": 0, "y": top, "width": width, "height": tall, "scale": 1}
    screenshot = browser.command(
        "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
    )
    return Image.open(io.BytesIO(base64.b64decode(screenshot["data"]))).convert("RGB")


def shoot(
    browser: webdriver.Browser, name: str, top: float, tall: float, width: int = WIDE
) -> None:
    """Write a part of the page for the documentation, as a small PNG with a palette."""
    image = photograph(browser, top, tall, width)
    image.quantize(224).save(IMAGES / name, optimize=True)


def top_of(browser: webdriver.Browser, selector: str) -> float:
    """Where an element begins on the page."""
    return float(
        browser.run(
            "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY",
            selector,
        )
    )


def results(folder: Path) -> None:
    """Diagnose and compare the demo, and track congestion in another run; keep what exists."""
    tailback = Path(sys.executable).with_name("tailback")
    examples = ROOT / "examples"
    commands: dict[str, list[str | Path]] = {
        "demo": ["diagnose", examples / "demo" / "demo.toml", "--quiet"],
        "slow-cable": ["diagnose", examples / "lab" / "slow-cable", "--quiet"],
        "compare": ["compare", folder / "demo" / "run", folder / "demo" / "after"],
        "blue-waters": ["simulate", examples / "blue-waters" / "blue-waters.toml", "--quiet"],
        "evolution.html": ["evolution", folder / "blue-waters"],
    }
    for name, command in commands.items():
        if not (folder / name).exists():
            subprocess.run(
                [tailback, *command, "--out", folder / name], check=True, stdout=subprocess.DEVNULL
            )


def document(folder: Path) -> None:
    """The pictures of the documentation."""
    results(folder)
    with webdriver.Browser("--hide-scrollbars") as browser:
        look(browser, WIDE)
        browser.open(folder / "demo" / "report.html")
        browser.run("document.querySelector('#where tr[data-link]').click()")
        top = top_of(browser, "#where")
        shoot(browser, "report-where.png", top, top_of(browser, "#waiting") - top - 10)
        # The demo is a forecast: ranks and times are those of a measured run.
        browser.open(folder / "slow-cable" / "report.html")
        shoot(browser, "report.png", 0, top_of(browser, "#cost") - 2)
        browser.run(CLICK, "ranks", 0.45, 0.3)
        top = top_of(browser, "#when")
        shoot(browser, "report-when.png", top, top_of(browser, "#figure-time_course") - top - 50)
        browser.open(folder / "compare" / "compare.html")
        top = top_of(browser, "#where")
        shoot(browser, "report-change.png", top, top_of(browser, "#waiting") - top - 10)
        browser.open(folder / "evolution.html")
        shoot(browser, "report-evolution.png", 46, top_of(browser, ".columns") - 56)


def review(pages: list[Path], folder: Path) -> None:
    """Each page in full, in every style."""
    folder.mkdir(parents=True, exist_ok=True)
    with webdriver.Browser("--hide-scrollbars") as browser:
        for page in pages:
            name = page.stem if page.stem != "report" else page.resolve().parent.name
            for width in (WIDE, NARROW):
                for mode in ("light", "dark", "grey"):
                    look(browser, width, mode)
                    browser.open(page)
                    tall = int(browser.run("return document.documentElement.scrollHeight"))
                    for i, top in enumerate(range(0, tall, PIECE)):
                        part = photograph(browser, top, min(PIECE, tall - top), width)
                        part.save(folder / f"{name}-{width}-{mode}-{i:02d}.png")
            look(browser, WIDE)
            paper = browser.command(
                "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True
            )["data"]
            (folder / f"{name}.pdf").write_bytes(base64.b64decode(paper))


def main() -> None:
    """Take screenshots for the documentation, or of the given pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kept", type=Path, help="folder of results to keep and use again")
    parser.add_argument("--review", type=Path, metavar="FOLDER", help="where to write PAGEs to")
    parser.add_argument("pages", type=Path, nargs="*", metavar="PAGE")
    options = parser.parse_args()
    if options.review:
        review(options.pages, options.review)
    elif options.kept:
        options.kept.mkdir(parents=True, exist_ok=True)
        document(options.kept)
    else:
        with tempfile.TemporaryDirectory() as folder:
            document(Path(folder))


if __name__ == "__main__":
    main()
