"""Figures of the report as matplotlib figures: ``run.plot.NAME()``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import polars as pl
from matplotlib.figure import Figure

from tailback.api.runs import with_samples
from tailback.diagnosis.model import Diagnosis
from tailback.errors import RunError, TailbackError
from tailback.report import FIGURES, Options, draw, make_case
from tailback.run.run import Run


class Plot(Protocol):
    """Draws one figure."""

    def __call__(self, *, phase: str | None = None, after: bool = False) -> Figure:
        """Draw it, optionally for one phase or for the run with the remedy."""


@dataclass(frozen=True, eq=False)
class Plots:
    """The figures of a run, as methods by the names that ``tailback list figure`` prints.

    Attributes:
        run: The run to draw.
        diagnosis: Its diagnosis, which figures of verdict and remedy need.
        after: The run with the remedy, or the second of two runs to compare.
        measured: Tables of the measured run whose expected run is ``run``.
    """

    run: Run
    diagnosis: Diagnosis | None = None
    after: Run | None = None
    measured: Mapping[str, pl.DataFrame] | None = None

    def __getattr__(self, name: str) -> Plot:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            FIGURES[name]
        except TailbackError as error:
            # An AttributeError, so that hasattr() and notebooks' completion work.
            raise AttributeError(f"{error.message}; {error.remedy}") from None
        return partial(self._draw, name)

    def __dir__(self) -> list[str]:
        return FIGURES.names()

    def _draw(self, name: str, *, phase: str | None = None, after: bool = False) -> Figure:
        """Draw the figure ``name``.

        Raises:
            RunError: The run has no data for this figure, or cannot be drawn at all.
        """
        other = None if self.after is None else with_samples(self.after)
        case = make_case(with_samples(self.run), self.diagnosis, None, other, self.measured)
        options = Options(phase=phase, after=after)
        phases = options.evidence(case).phases
        if phase is not None and phase not in phases:
            raise RunError(
                f"has no phase {phase!r}", remedy=f"its phases: {', '.join(phases) or 'none'}"
            )
        drawn = draw(name, case, options)
        if drawn is None:
            raise RunError(
                f"there is no data for figure {name!r}",
                remedy="docs/how-to/report.md lists what each figure needs; figures of verdict and "
                "remedy need a diagnosis: tb.diagnose(…).plot",
            )
        return drawn
