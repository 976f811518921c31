"""Figures as files for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

import tailback.report.figures  # noqa: F401 - registers the figures
from tailback.diagnosis.model import Diagnosis
from tailback.diagnosis.wording import run_label, times_of
from tailback.errors import RunError, TailbackError
from tailback.io.folders import atomic_file
from tailback.report.figure import FIGURES, PER_PHASE, PER_RUN, Options, draw, render
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.rank_timeline import rank_timeline
from tailback.run.run import Run

FORMATS = ("svg", "pdf", "png")
PHASES_EXPORTED = 24


def make_case(
    run: Run,
    diagnosis: Diagnosis | None,
    before: Run | None = None,
    after: Run | None = None,
    measured: Mapping[str, pl.DataFrame] | None = None,
) -> FigureCase:
    """Derive the data of figures from runs.

    Args:
        run: The observed run.
        diagnosis: Its diagnosis.
        before: Re-simulation of things as they are.
        after: Re-simulation with the remedy.
        measured: Tables of the measured run that ``run`` is the expected one of.

    Raises:
        RunError: A run cannot be drawn, or the runs are not of one fabric.
    """
    observed = FigureData(run)
    others = [
        None if other is None or other is run else FigureData(other) for other in (before, after)
    ]
    for name, other in zip(("before", "after"), others, strict=True):
        if other is not None and not same_fabric(observed, other):
            raise RunError(
                f"the run {name!r} is not of the same fabric as the observed run",
                remedy="compare runs of one fabric",
            )
    labels = (run_label(times_of(run)), FigureCase.labels[1])
    ranks = None if measured is None else rank_timeline(measured)
    return FigureCase(observed, diagnosis, others[0], others[1], labels=labels, ranks=ranks)


def same_fabric(first: FigureData, other: FigureData) -> bool:
    """Whether links of one number join the same ports in both runs."""
    columns = ("src_name", "src_port", "dst_name", "dst_port")
    return first.links.select(columns).equals(other.links.select(columns))


def export_figures(
    run: Run,
    diagnosis: Diagnosis | None,
    folder: str | Path,
    formats: Sequence[str] = ("svg", "pdf"),
    *,
    before: Run | None = None,
    after: Run | None = None,
    names: tuple[str, str] | None = None,
    measured: Mapping[str, pl.DataFrame] | None = None,
) -> list[Path]:
    """Write every figure that the data allow, one file for each format.

    Args:
        run: The observed run.
        diagnosis: Its diagnosis; without it the figures about verdict and remedy are left out.
        folder: Output folder; created if it does not exist.
        formats: Of ``svg``, ``pdf`` and ``png``.
        before: Re-simulation of things as they are.
        after: Re-simulation with the remedy.
        names: Names of the observed run and ``after``, if that is not a remedy.
        measured: Tables of the measured run, where there is one.

    Returns:
        The files, in order of their names. The same input gives the same bytes.

    Raises:
        TailbackError: An unknown format.
        RunError: A run cannot be drawn or a file not written.
    """
    for form in formats:
        if form not in FORMATS:
            raise TailbackError(
                f"unknown figure format {form!r}", remedy="valid choices: " + ", ".join(FORMATS)
            )
    case = make_case(run, diagnosis, before, after, measured)
    if names is not None:
        case = replace(case, names=names, labels=names)
    folder = Path(folder)
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, stem, options in _variants(case):
            drawn = draw(name, case, options)
            for form in formats if drawn is not None else ():
                assert drawn is not None
                path = folder / f"{stem}.{form}"
                with atomic_file(path, force=True) as file:
                    file.write(render(drawn, form))
                written.append(path)
    except OSError as error:
        raise RunError(
            f"cannot write the figures: {error.strerror}",
            file=folder,
            remedy="choose a folder you may write to",
        ) from None
    return sorted(written)


def _variants(case: FigureCase) -> Iterator[tuple[str, str, Options]]:
    """Name, file stem and options of every drawing of the case."""
    for entry in FIGURES:
        both = entry.name in PER_RUN and case.after is not None and case.after.measured
        runs = [False, True] if both else [False]
        for after in runs:
            stem = f"{entry.name}-after" if after else entry.name
            yield entry.name, stem, Options(after=after)
            if entry.name in PER_PHASE:
                evidence = Options(after=after).evidence(case)
                for number, phase in enumerate(evidence.phases[:PHASES_EXPORTED], start=1):
                    yield (
                        entry.name,
                        f"{stem}-phase{number:02d}{_slug(phase)}",
                        Options(phase=phase, after=after),
                    )


def _slug(text: str) -> str:
    """A phase in a file name: plain letters and digits only, since phases come from files."""
    words = text.replace("+", "plus ").replace("-", "minus ") if len(text) <= 3 else text
    plain = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-").lower()[:24].strip("-")
    return f"-{plain}" if plain else ""
