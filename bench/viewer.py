"""How fast the report's viewer is: ``python bench/viewer.py [--json]``.

A report of 18,432 directed links in 200 frames of time, in a headless Chromium that draws in
software: seconds until it is ready; frames a second while a span of time is dragged over the plot
of links against time with a link chosen, whose estimate is updated visibly (the browser allows at
most 60), and processor time of the page's main thread for each of them, medians of several drags;
the same in a window so tall that the raster of every link is in sight too, and for the change
between two such runs; megabytes of heap, typed arrays included, after a collection of garbage.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from _shared import machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tailback.report import write_comparison, write_report
from tailback.report.timeline import ROWS
from tailback.run.run import Run
from tests.factories import webdriver
from tests.factories.report_data import TAPERED, make_diagnosis, make_run

FRAMES = 200
DRAWN = 80
DRAGS = 5
TALL = 2200

WATCH = """
new MutationObserver(() => {
  if (document.documentElement?.dataset.ready === 'true') window.readyMs ??= performance.now();
}).observe(document, {subtree: true, attributes: true, attributeFilter: ['data-ready']});
"""

DRAG = """
const drawn = arguments[0], done = arguments[1], canvas = document.getElementById('course');
canvas.scrollIntoView({block: 'center'});
canvas.setPointerCapture = () => {};
const box = canvas.getBoundingClientRect(), y = box.top + box.height / 2;
const at = (kind, share) => canvas.dispatchEvent(new PointerEvent(kind, {pointerId: 1,
  bubbles: true, buttons: 1, clientX: box.left + 150 + (box.width - 164) * share, clientY: y}));
const times = [];
const step = (now) => {
  times.push(now);
  const n = times.length;
  if (n > drawn) { at('pointerup', 0.9); done(times.slice(1).map((t, i) => t - times[i])); return; }
  // There and back: a span that grows and shrinks.
  const part = n / drawn;
  at('pointermove', 0.1 + 0.8 * (part < 0.5 ? 2 * part : 2 - 2 * part));
  requestAnimationFrame(step);
};
at('pointerdown', 0.1);
requestAnimationFrame(step);
"""


def large_run(seed: int = 1) -> Run:
    """18,432 links in 200 windows, with as many rows of samples as a report carries."""
    base = make_run(TAPERED)
    draw = np.random.default_rng(seed)
    samples = base.tables["samples"]
    windows = base.tables["windows"].height
    if samples.height > ROWS:
        samples = samples.sample(ROWS, seed=seed)
    spread = samples["window"].to_numpy() + draw.uniform(size=samples.height)
    samples = samples.with_columns(
        window=pl.Series(np.minimum(spread * FRAMES / windows, FRAMES - 1).astype(np.uint32))
    )
    edges = np.linspace(0, int(base.tables["windows"]["end_ps"].max()), FRAMES + 1).astype(  # type: ignore[arg-type, call-overload]
        np.uint64
    )
    frames = pl.DataFrame(
        {
            "window": np.arange(FRAMES, dtype=np.uint32),
            "start_ps": edges[:-1],
            "end_ps": edges[1:],
        }
    )
    # Without the record of the simulator the samples stay in the windows given here.
    tables = {"samples": samples, "windows": frames, "truth": base.tables["truth"].clear()}
    return replace(base, tables=base.tables | tables)


def busy(browser: webdriver.Browser) -> float:
    """Processor seconds of the page's main thread so far: other programs do not count."""
    metrics = browser.command("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))


def measure() -> dict[str, object]:
    """Write the report, open it, drag, and count."""
    run = large_run()
    with tempfile.TemporaryDirectory() as folder, webdriver.Browser() as browser:
        path = write_report(Path(folder) / "large.html", run, make_diagnosis(run))
        browser.command(
            "Emulation.setDeviceMetricsOverride",
            width=1280,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        browser.command("Performance.enable", timeDomain="threadTicks")
        browser.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        browser.open(path)
        ready = float(browser.run("return window.readyMs")) / 1e3
        browser.run("document.querySelector('tr[data-link]').click()")
        usual = drag(browser)
        browser.command("HeapProfiler.collectGarbage")
        heap = browser.command("Runtime.getHeapUsage")
        used = heap["usedSize"] + heap.get("backingStorageSize", 0)
        browser.command(
            "Emulation.setDeviceMetricsOverride",
            width=1280,
            height=TALL,
            deviceScaleFactor=1,
            mobile=False,
        )
        browser.settle()
        tall = drag(browser)
        rows = [("Elapsed", "1 s", "1 s", "0 %")]
        change = write_comparison(Path(folder) / "change.html", run, large_run(seed=2), rows)
        browser.command(
            "Emulation.setDeviceMetricsOverride",
            width=1280,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        browser.open(change)
        browser.run("document.querySelector('tr[data-link]').click()")
        two = drag(browser)
        return {
            **usual,
            **{f"{name}_tall_window": value for name, value in tall.items()},
            **{f"{name}_change": value for name, value in two.items()},
            "drags": DRAGS,
            "ready_s": round(ready, 2),
            "heap_mb": round(used / 1e6, 1),
            "links": run.tables["links"].height,
            "frames": FRAMES,
            "rows": run.tables["samples"].height,
            "report_mb": round(path.stat().st_size / 1e6, 2),
            "drawing": "software, headless Chromium",
            "machine": machine(),
        }


def drag(browser: webdriver.Browser) -> dict[str, float]:
    """Drag several times; the median of each figure."""
    drags = []
    for _ in range(DRAGS):
        before = busy(browser)
        steps = browser.run_async(DRAG, DRAWN)
        spent = busy(browser) - before
        drags.append((1e3 * len(steps) / sum(steps), max(steps), 1e3 * spent / len(steps)))
    names = ("frames_per_s", "slowest_frame_ms", "cpu_ms_per_frame")
    return {
        name: round(statistics.median(each), 1)
        for name, each in zip(names, zip(*drags, strict=True), strict=True)
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if missing := webdriver.missing():
        sys.exit(f"needs the Debian packages {missing}")
    figures = measure()
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:18} {value}")


if __name__ == "__main__":
    main()
