"""Figures of the case studies: congested-fraction plots of a run, a phase or a slice of time."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from PIL import Image

from tailback.report.export import make_case
from tailback.report.figure import Options, draw, render
from tailback.run import Run

DPI = 90
COLOURS = 96


@dataclass(frozen=True, eq=False)
class Drawing:
    """One figure to draw: its file stem, title, and what part of which run it shows.

    ``pods`` leaves out what lies right of so many pods; 0 shows everything; ``first_pod`` leaves
    out what lies left of that one. ``figure`` is a figure of the report, ``after`` the run with the
    remedy for those that compare two.
    """

    stem: str
    title: str
    run: Run
    phase: str | None = None
    pods: int = 0
    first_pod: int = 0
    figure: str = "congested_fraction"
    after: Run | None = None


def slices(stem: str, run: Run, spans_ms: Iterable[tuple[float, float]]) -> list[Drawing]:
    """One drawing for each span of time, from the samples of the windows that begin in it."""
    out = []
    for number, (start, end) in enumerate(spans_ms, start=1):
        windows = run.tables["windows"].filter(
            (pl.col("start_ps") >= start * 1e9) & (pl.col("start_ps") < end * 1e9)
        )
        samples = run.tables["samples"].join(windows.select("window"), on="window", how="semi")
        part = replace(run, tables={**run.tables, "samples": samples})
        out.append(Drawing(f"{stem}-{number}", f"{start:g}–{end:g} ms", part))
    return out


def write_figures(drawings: Iterable[Drawing], folder: Path) -> None:
    """Write each drawing as a small PNG with a palette."""
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in drawings:
        case = make_case(drawing.run, None, after=drawing.after)
        drawn = draw(drawing.figure, case, Options(phase=drawing.phase))
        if drawn is None:
            continue
        axes = drawn.axes[0]
        if drawing.pods:
            left = case.observed.layout.pods[drawing.first_pod][1]
            right = case.observed.layout.pods[drawing.pods - 1][2]
            axes.set_xlim(left - 0.9, right + 0.9)
            for text in axes.texts:
                text.set_visible(left - 1 <= text.get_position()[0] <= right)
        for part, title in zip(drawn.axes, drawing.title.split(" | "), strict=False):
            part.set_title(title)
        for text in (text for part in drawn.axes for text in part.texts):
            text.set_text(text.get_text().replace("whole run.", f"{drawing.title}."))
        image = Image.open(io.BytesIO(render(drawn, "png", dpi=DPI))).convert("RGB")
        image.quantize(COLOURS).save(folder / f"{drawing.stem}.png", optimize=True)
