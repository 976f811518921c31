"""The folder of a parameter study: its points, and one Parquet data set per table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import tailback
from tailback.api.sweep.plan import Point, scenario_at
from tailback.errors import RunError, ScenarioError, TailbackError
from tailback.io.folders import atomic_file, require_owner, require_plain_path
from tailback.io.input_files import content, text_content
from tailback.io.parquet import read_table
from tailback.run.run import Run
from tailback.run.schema import TABLES
from tailback.simulation import prepare, simulate, simulate_fluid

FORMAT = 1
SUMMARY = "summary"
"""The data set with one row per run; a run is done once its row exists."""


@dataclass(frozen=True)
class ParameterStudy:
    """A parameter study on disk.

    Attributes:
        path: Its folder: ``sweep.json``, a folder of Parquet files for each table, ``failed/``.
        base: The base scenario as plain data.
        points: The runs, numbered from 0.
        tables: Tables of each run (docs/reference/tables.md) to store besides the summary.
        model: ``packet`` or ``fluid``.
    """

    path: Path
    base: dict[str, Any]
    points: list[Point]
    tables: tuple[str, ...] = ()
    model: str = "packet"

    def create(self) -> None:
        """Create the folder, unless it has the same study, to be continued.

        Raises:
            RunError: The folder contains something else, belongs to another user or cannot be
                written.
            ScenarioError: A table is unknown, or a key is also a column of a table.
        """
        require_plain_path(self.path)
        for name in self.tables:
            if name not in TABLES:
                raise ScenarioError(
                    f"there is no table {name!r}", remedy=f"choose from: {', '.join(TABLES)}"
                )
            clash = {column.name for column in TABLES[name].columns} & set(self.points[0])
            if clash:
                raise ScenarioError(
                    f"{min(clash)!r} is a column of table {name!r} already",
                    remedy=f"leave {name!r} out, or write the key with its table",
                )
        if (self.path / "sweep.json").exists():
            require_owner(self.path)
            if ParameterStudy.open(self.path) != self:
                raise RunError(
                    "contains another parameter study",
                    file=self.path,
                    remedy="choose another folder, or remove this one",
                )
            return
        if self.path.exists() and any(self.path.iterdir()):
            raise RunError("is not empty", file=self.path, remedy="choose another folder")
        content = {
            "format": FORMAT,
            "tailback": tailback.__version__,
            "scenario": self.base,
            "points": self.points,
            "tables": list(self.tables),
            "model": self.model,
        }
        try:
            for name in (SUMMARY, *self.tables, "failed"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            _replace(self.path / "sweep.json", json.dumps(content, indent=1).encode())
        except OSError as error:
            raise RunError(
                f"cannot write there: {error.strerror}",
                file=self.path,
                remedy="choose a folder you may write to",
            ) from None

    @staticmethod
    def open(path: str | Path) -> ParameterStudy:
        """Read the study of a folder; raises RunError if there is none."""
        path = Path(path)
        try:
            plan = json.loads(content(path / "sweep.json", RunError))
            if plan["format"] != FORMAT:
                raise ValueError(f"format {plan['format']!r}, this version reads {FORMAT}")
            return ParameterStudy(
                path, plan["scenario"], plan["points"], tuple(plan["tables"]), plan["model"]
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"not a parameter study: {error}",
                file=path,
                remedy="give the folder that 'tailback sweep --out' made",
            ) from None

    def pending(self) -> list[int]:
        """Numbers of the runs that are not done yet, failed ones among them."""
        done = {file.stem for file in (self.path / SUMMARY).glob("*.parquet")}
        return [number for number in range(len(self.points)) if _stem(number) not in done]

    def failures(self) -> dict[int, str]:
        """Why runs failed, by number."""
        messages = {}
        for file in sorted((self.path / "failed").glob("*.txt")):
            messages[int(file.stem)] = text_content(file, RunError)
        return messages

    def record_failure(self, number: int, message: str) -> None:
        """Record why a run failed; it is repeated when the study is continued.

        Does nothing if the worker stored its result before it was killed.
        """
        if (self.path / SUMMARY / f"{_stem(number)}.parquet").exists():
            return
        _replace(self.path / "failed" / f"{_stem(number)}.txt", message.encode())

    def run(self, number: int) -> None:
        """Simulate one point on one thread and store its tables.

        A mistake in the scenario is recorded as a failure of the point; any other exception is a
        bug and is raised.
        """
        point = self.points[number]
        try:
            scenario = scenario_at(self.base, point)
            if self.model == "packet":
                run = simulate(scenario, threads=1)
            else:
                run = simulate_fluid(prepare(scenario))
        except TailbackError as error:
            self.record_failure(number, str(error))
            return
        for name in self.tables:
            self._store(name, number, run.tables[name])
        self._store(SUMMARY, number, summary_row(run))
        (self.path / "failed" / f"{_stem(number)}.txt").unlink(missing_ok=True)

    def _store(self, table: str, number: int, rows: pl.DataFrame) -> None:
        """Write rows, preceded by the run's number and parameters, completely or not at all."""
        point = self.points[number]
        types = column_types(self.points)
        columns = [pl.lit(number, dtype=pl.UInt32).alias("run")]
        columns += [
            pl.lit(_cell(point[key], types[key]), dtype=types[key]).alias(key) for key in point
        ]
        rows = rows.drop([name for name in point if name in rows.columns])
        with atomic_file(self.path / table / f"{_stem(number)}.parquet", force=True) as file:
            rows.select(*columns, pl.all()).write_parquet(file)

    def frame(self, table: str = SUMMARY) -> pl.DataFrame:
        """A table of all finished runs, in the order of their numbers.

        Raises:
            RunError: No run is finished yet, or the table is not stored.
        """
        files = sorted((self.path / table).glob("*.parquet"))
        if not files:
            kept = ", ".join((SUMMARY, *self.tables))
            raise RunError(
                f"no run has written table {table!r}",
                file=self.path,
                remedy=f"continue the study; its tables are: {kept}",
            )
        return pl.concat(
            [read_table(file, error=RunError) for file in files], how="diagonal_relaxed"
        )


def run_point(folder: Path, number: int) -> None:
    """Run one point of the study in ``folder``: the task of a worker."""
    ParameterStudy.open(folder).run(number)


def summary_row(run: Run) -> pl.DataFrame:
    """One row with every number, text and flag of a run's summary.

    Of a run with skipped steps it also has their number, and the ends of the 95 % interval of the
    elapsed time.
    """
    scalar = {k: v for k, v in run.summary.items() if isinstance(v, bool | int | float | str)}
    skipped = run.summary.get("skipped")
    if skipped is not None:
        scalar["steps_skipped"] = sum(skipped["steps"]) - sum(skipped["simulated"])
        scalar |= {name: skipped[name] for name in ("elapsed_low_ps", "elapsed_high_ps")}
    return pl.DataFrame([{"elapsed_ps": run.elapsed_ps, **scalar}])


def column_types(points: Sequence[Point]) -> dict[str, pl.DataType | type[pl.DataType]]:
    """The column type that holds all values of each key."""
    types: dict[str, pl.DataType | type[pl.DataType]] = {}
    for key in points[0]:
        values = [point[key] for point in points]
        if all(isinstance(value, bool) for value in values):
            types[key] = pl.Boolean
        elif all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            types[key] = pl.Int64
        elif all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        ):
            types[key] = pl.Float64
        else:
            types[key] = pl.String
    return types


def _cell(value: Any, kind: pl.DataType | type[pl.DataType]) -> Any:
    if kind != pl.String or isinstance(value, str) or value is None:
        return value
    return json.dumps(value)


def _stem(number: int) -> str:
    return f"{number:06}"


def _replace(path: Path, content: bytes) -> None:
    with atomic_file(path, force=True) as file:
        file.write(content)
