"""Shared by the counter figures: registry, style and rendering to files.

This package may not import the report, so it repeats the report's style: no frame, units on every
axis, legible in greyscale.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tailback.names.display import shorten_names
from tailback.port_counters.analysis.study import Study
from tailback.registry import Registry

FigureFunction = Callable[[Study], Figure | None]

COUNTER_FIGURES: Registry[FigureFunction] = Registry("counter-figure", "figures of port counters")

INK: Final = "#1b2430"
MUTED: Final = "#5d6875"
FAINT: Final = "#d9dee4"
DOWN: Final = "#8a4fa3"
UP: Final = "#d9b3dd"
_STEPS: Final = ("#3d1a5b", "#b96cc4", "#7f8893")
_STROKES: Final = ("-", (0, (5, 2)), (0, (1.2, 1.6)))
_KINDS: Final = (("X", "Y", "Z"), ("down", "up", "flat"))
GROUPS: Final = {name: colour for kind in _KINDS for name, colour in zip(kind, _STEPS, strict=True)}
"""Colours of directions. They differ in lightness and dash, so they are legible in greyscale."""
DASHES: Final = {name: dash for kind in _KINDS for name, dash in zip(kind, _STROKES, strict=True)}

_STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "tailback",
    "pdf.fonttype": 42,
}


def figure(name: str) -> Callable[[FigureFunction], FigureFunction]:
    """Register a figure; its docstring's first line is its caption."""
    return COUNTER_FIGURES.register(name)


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure of ``width`` × ``height`` inches that lays itself out."""
    out = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(out)
    return out


def class_labels(categories: list[str], types: list[str]) -> list[str]:
    """Labels of classes: category over port type."""
    return [f"{c}\n{t}" for c, t in zip(shorten_names(categories, 14), types, strict=True)]


def draw(name: str, study: Study) -> Figure | None:
    """Draw one figure; None when the study holds nothing for it."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        return COUNTER_FIGURES[name](study)


def render(drawn: Figure, form: str, dpi: int = 150) -> bytes:
    """A figure as a file: the same bytes for the same study, without dates."""
    metadata: dict[str, dict[str, str | None]] = {
        "svg": {"Date": None, "Creator": "Tailback"},
        "pdf": {"CreationDate": None, "Creator": "Tailback", "Producer": "Tailback"},
        "png": {"Software": "Tailback"},
    }
    out = io.BytesIO()
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        drawn.savefig(out, format=form, dpi=dpi, metadata=metadata.get(form, {}))
    return out.getvalue()
