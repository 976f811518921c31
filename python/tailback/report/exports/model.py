"""What an export is made of, and the registry of formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import polars as pl

from tailback.diagnosis.model import Diagnosis
from tailback.errors import RunError
from tailback.names.ports import link_names
from tailback.registry import Registry
from tailback.report.attribution import Attribution, attribute
from tailback.run.run import Run
from tailback.traffic.program import Program

OURS = pl.col("observed")
"""Rows of jobs that were observed."""


def _no_programs() -> Sequence[Program]:
    raise RunError("the programs of its jobs are not known")


@dataclass(frozen=True)
class Result:
    """A run of ``simulate``, or a result of ``diagnose``.

    Attributes:
        run: The run; of a diagnosis, the expected one.
        diagnosis: Its diagnosis, None without.
        measured: Tables of the measured run (docs/reference/tables.md), None without.
        programs: Gives the program of each job of the run; raises TailbackError where the inputs of
            the run are gone.
    """

    run: Run
    diagnosis: Diagnosis | None = None
    measured: Mapping[str, pl.DataFrame] | None = None
    programs: Callable[[], Sequence[Program]] = _no_programs

    @cached_property
    def attribution(self) -> Attribution:
        """Stall by congested link, line of the program and rank."""
        return attribute(self.run)

    @cached_property
    def link_names(self) -> list[str]:
        """Names of the directed links by number, length L."""
        return link_names(self.run.tables["links"].sort("link"))

    @cached_property
    def loads(self) -> pl.DataFrame:
        """Load of each link in each window, sorted by link and window.

        Columns ``link``, ``start_ps``, ``end_ps``; ``congested``, the congested share of our
        packets, 0-1, null without a sample; ``busy`` and ``stalled``, shares of the window, 0-1,
        null unless the run was simulated.
        """
        tables = self.run.tables
        ours = tables["jobs"].filter(OURS).select("job")
        met = (
            tables["samples"]
            .join(ours, on="job", how="semi")
            .group_by("link", "window")
            .agg(pl.col("congested_weight").sum(), pl.col("hop_weight").sum())
            .select(
                "link",
                "window",
                congested=(pl.col("congested_weight") / pl.col("hop_weight")).clip(0, 1),
            )
        )
        times = tables["truth"].select("link", "window", "busy_ps", "stall_ps")
        length = pl.col("end_ps").cast(pl.Float64) - pl.col("start_ps").cast(pl.Float64)
        return (
            met.join(times, on=["link", "window"], how="full", coalesce=True)
            .join(tables["windows"], on="window")
            .select(
                "link",
                "start_ps",
                "end_ps",
                pl.when(pl.col("congested").is_finite()).then("congested").alias("congested"),
                # A packet counts in the window in which it began, so a share may exceed 1.
                busy=(pl.col("busy_ps") / length).clip(0, 1),
                stalled=(pl.col("stall_ps") / length).clip(0, 1),
            )
            .sort("link", "start_ps")
        )


@dataclass(frozen=True)
class Exported:
    """A file or a folder in the format of another tool.

    Attributes:
        contents: What it holds, in words.
        opened_by: How it is opened, in words.
        lines: Text of a file, line by line, without the ends of lines.
        fill: Writes the files of a folder, for formats that are folders; else None.
        write: Writes a file that is no text; else None.
    """

    contents: str
    opened_by: str
    lines: Iterable[str] = ()
    fill: Callable[[Path], None] | None = None
    write: Callable[[IO[bytes]], None] | None = None


EXPORTS: Registry[Callable[[Result], Exported]] = Registry(
    "export", "formats of other tools that results are exported in"
)
