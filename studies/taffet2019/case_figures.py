"""Figures of the case studies: congested-fraction plots of a run, a phase or a slice of time."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image

from tailback import Run
from tailback.report import (
    FAINT,
    INK,
    FigureData,
    Options,
    canvas,
    colormap,
    draw,
    draw_congestion,
    make_case,
    render,
    style,
)

DPI = 90
COLOURS = 96


@dataclass(frozen=True, eq=False)
class Drawing:
    """One figure to draw: its file stem, title, and what part of which run it shows.

    ``pods`` is the number of pods to show, 0 for all; ``first_pod`` leaves out all pods to the left
    of that one. ``figure`` is a figure of the report, ``after`` the run with the remedy for those
    that compare two. The figure ``tags`` draws the fabric once for each of ``phases`` (a phase and
    a title, in rows), ``layers`` the table of that name.
    """

    stem: str
    title: str
    run: Run
    phase: str | None = None
    pods: int = 0
    first_pod: int = 0
    figure: str = "congested_fraction"
    after: Run | None = None
    phases: list[list[tuple[str, str]]] = field(default_factory=list)
    layers: pl.DataFrame = field(default_factory=pl.DataFrame)


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
    makers = {"tags": tags_figure, "layers": layers_figure}
    for drawing in drawings:
        with style():
            drawn = makers.get(drawing.figure, report_figure)(drawing)
        if drawn is not None:
            save(drawn, folder / f"{drawing.stem}.png")


def save(drawn: Figure, path: Path) -> None:
    """Write a figure as a small PNG with a palette."""
    image = Image.open(io.BytesIO(render(drawn, "png", dpi=DPI))).convert("RGB")
    image.quantize(COLOURS).save(path, optimize=True)


def report_figure(drawing: Drawing) -> Figure | None:
    """A figure of the report, with a title of its own."""
    case = make_case(drawing.run, None, after=drawing.after)
    drawn = draw(drawing.figure, case, Options(phase=drawing.phase))
    if drawn is None:
        return None
    crop(drawn.axes[0], case.observed, drawing)
    for part, title in zip(drawn.axes, drawing.title.split(" | "), strict=False):
        part.set_title(title)
    for text in (text for part in drawn.axes for text in part.texts):
        text.set_text(text.get_text().replace("whole run.", f"{drawing.title}."))
    return drawn


def crop(axes: Axes, evidence: FigureData, drawing: Drawing) -> None:
    """Leave out the pods that the drawing does not show."""
    if not drawing.pods:
        return
    left = evidence.layout.pods[drawing.first_pod][1]
    right = evidence.layout.pods[drawing.pods - 1][2]
    axes.set_xlim(left - 0.9, right + 0.9)
    for text in axes.texts:
        text.set_visible(left - 1 <= text.get_position()[0] <= right)


def tags_figure(drawing: Drawing) -> Figure:
    """The fabric once for each phase, all with the same widths and colours."""
    evidence = FigureData(drawing.run)
    shown = [panel for row in drawing.phases for panel in row]
    halves = evidence.layout.halves
    most = max(float(evidence.load(name).weight[halves].max(initial=0)) for name, _ in shown)
    drawn = canvas(4.6 * len(drawing.phases[0]), 2.5 * len(drawing.phases) + 0.6)
    panels = drawn.subplots(len(drawing.phases), len(drawing.phases[0]), squeeze=False)
    for axes, (name, title) in zip(panels.ravel(), shown, strict=True):
        # Traffic of a single pod does not reach the cores.
        draw_congestion(axes, evidence, name, most=most, tiers=2)
        crop(axes, evidence, drawing)
        for text in axes.texts:
            text.set_visible(False)
        axes.set_title(f"{drawing.title}: {title}")
    bar = drawn.colorbar(
        ScalarMappable(Normalize(0, 1), colormap("congestion")),
        ax=list(panels.ravel()),
        location="bottom",
        fraction=0.03,
        pad=0.02,
        aspect=70,
        shrink=0.5,
    )
    bar.outline.set_visible(False)
    bar.set_label(
        "congested fraction (0–1); above: aggregation, below: leaves and their hosts; width: "
        "packets"
    )
    return drawn


def layers_figure(drawing: Drawing) -> Figure:
    """Congestion of links into nodes by layer along each axis and by tag."""
    drawn = canvas(11.5, 3.4)
    panels = drawn.subplots(1, 3, sharey=True)
    lines = ((INK, "-", "o"), ("#c2571a", (0, (4, 1.5)), "s"))
    for axes, axis in zip(panels, "xyz", strict=True):
        mine = drawing.layers.filter(pl.col("axis") == axis)
        for (tag,), part in sorted(mine.group_by("tag")):
            # No node sends in direction +x into the first layer.
            up = 0 not in part["layer"].to_list()
            colour, dash, mark = lines[0 if up else 1]
            axes.plot(
                part["layer"],
                part["fraction"],
                color=colour,
                linestyle=dash,
                marker=mark,
                markersize=4,
                label=f"tag {tag}, to {'+' if up else '−'}{axis}",
            )
        axes.set_title(f"{drawing.title}, phase {axis}")
        axes.set_xlabel(f"layer of nodes along {axis}")
        axes.set_ylim(0, 1)
        axes.grid(axis="y", color=FAINT)
        axes.legend()
    panels[0].set_ylabel("congested fraction of the\nlinks into the nodes (0–1)")
    return drawn
