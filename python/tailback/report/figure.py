"""A figure is a function from a case to a matplotlib figure, registered by name.

A figure that has nothing to draw (no re-simulation, no message log) returns None and is left out.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from tailback.names.display import shorten
from tailback.registry import Registry
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.scales import FAINT, INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Options:
    """How a figure is drawn.

    Attributes:
        phase: Phase to draw, None for the whole run (figures that draw one selection).
        after: Draw the re-simulation with the remedy instead of the observed run.
        compact: Draw dense marks as an image inside the vector figure, to keep files small.
    """

    phase: str | None = None
    after: bool = False
    compact: bool = False

    def evidence(self, case: FigureCase) -> FigureData:
        """The run chosen by these options; the observed one if the other was not measured."""
        if self.after and case.after is not None and case.after.measured:
            return case.after
        return case.observed


FigureFunction = Callable[[FigureCase, Options], "Figure | None"]

FIGURES: Registry[FigureFunction] = Registry("figure", "figures of the report")
PER_PHASE: set[str] = set()
PER_RUN: set[str] = set()


def figure(
    name: str, *, per_phase: bool = False, per_run: bool = False
) -> Callable[[FigureFunction], FigureFunction]:
    """Register a figure; its docstring's first line is its caption.

    Args:
        name: Its name, also the name of its files.
        per_phase: It draws one selection of the samples, and is exported for every phase.
        per_run: It draws one run, and is exported for the observed one and the one with the remedy.
    """
    if per_phase:
        PER_PHASE.add(name)
    if per_run:
        PER_RUN.add(name)
    return FIGURES.register(name)


STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,  # names from files are text, even with dollar signs
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "tailback",
    "pdf.fonttype": 42,
}

_FONT_STACK = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif"


@contextmanager
def style() -> Iterator[None]:
    """The style of every figure, independent of the user's matplotlibrc."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        for name, value in STYLE.items():
            mpl.rcParams[name] = value
        yield


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure of ``width`` × ``height`` inches that lays itself out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    out = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(out)
    return out


def bare(axes: Axes) -> Axes:
    """Remove the frame and the ticks of axes whose units are places, not numbers."""
    axes.set_axis_off()
    return axes


def draw(name: str, case: FigureCase, options: Options | None = None) -> Figure | None:
    """Draw one figure; None if the case has no data for it."""
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # names may be in any script
        options = options or Options()
        drawn = FIGURES[name](case, options)
        if drawn is not None:
            _state_skips(drawn, case, options, of_one=name in PER_RUN)
        return drawn


def _state_skips(drawn: Figure, case: FigureCase, options: Options, *, of_one: bool) -> None:
    """Say below a figure which steps of the runs that it draws were extrapolated."""
    notes = options.evidence(case).run.skip_notes
    if case.after is not None and not of_one:
        runs = zip(case.labels, (case.observed.run, case.after.run), strict=True)
        notes = [f"{label}: {note}" for label, run in runs for note in run.skip_notes]
    if notes:
        size = 6.5
        columns = int(drawn.get_figwidth() * 72 / (0.55 * size))
        lines = [line for note in notes for line in wrap(shorten(note, 400), columns)]
        drawn.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=size, color=MUTED)


def render(drawn: Figure, form: str, dpi: int = 150) -> bytes:
    """A figure as a file: the same bytes for the same case, without dates.

    Args:
        drawn: The figure.
        form: ``svg``, ``pdf`` or ``png``.
        dpi: Resolution of images, in dots per inch.
    """
    metadata: dict[str, dict[str, str | None]] = {
        "svg": {"Date": None, "Creator": "Tailback"},
        "pdf": {"CreationDate": None, "Creator": "Tailback", "Producer": "Tailback"},
        "png": {"Software": "Tailback"},
    }
    out = io.BytesIO()
    with style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        _settle(drawn)
        drawn.savefig(out, format=form, dpi=dpi, metadata=metadata.get(form, {}))
    if form != "svg":
        return out.getvalue()
    text = out.getvalue().decode("utf-8")
    text = re.sub(r"'DejaVu Sans'(?!,)", _FONT_STACK, text)
    return _PATH_DATA.sub(_round_numbers, text).encode("utf-8")


def _settle(drawn: Figure) -> None:
    """Lay the figure out once, to round numbers.

    The constraint solver's last digits depend on addresses in memory. An SVG derives ids from
    coordinates and would show them.
    """
    engine = drawn.get_layout_engine()
    if engine is None:
        return
    engine.execute(drawn)
    drawn.set_layout_engine(None)
    for axes in drawn.axes:
        left, bottom, width, height = (round(v, 6) for v in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))


_PATH_DATA = re.compile(r'(?<= d=")[-MLCQZz0-9. \n]+(?=")')


def _round_numbers(path: re.Match[str]) -> str:
    """Path data to a hundredth of a point: not visible, and it halves the files."""
    numbers = re.sub(r"-?[0-9]+\.[0-9]+", lambda m: f"{float(m[0]):.2f}", path[0])
    return re.sub(r"\s+", " ", numbers).strip()
