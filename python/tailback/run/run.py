"""A run: the tables of one simulation or measurement, its scenario and its provenance, on disk.

A run directory has one Parquet file per table (``tailback.run.schema``), ``scenario.json`` (the
scenario with all defaults), ``run.json`` (summary and provenance) and ``manifest.json`` (the list
of files with their SHA-256). The same scenario, seed and version give the same bytes, except for
wall-clock times, which are in ``performance.json`` alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from tailback.errors import RunError
from tailback.io.atomic_exchange import recover
from tailback.io.folders import AtomicDirectory, atomic_file, check_writable, require_plain_path
from tailback.io.input_files import content
from tailback.io.manifest import MANIFEST, read_manifest
from tailback.io.parquet import read_table
from tailback.run.consistency import check_summary, check_tables
from tailback.run.schema import TABLES, conform
from tailback.scenario.model import Scenario
from tailback.version import version

__all__ = [
    "FORMAT",
    "MANIFEST",
    "AtomicDirectory",
    "Run",
    "atomic_file",
    "check_writable",
    "run_folder",
]

FORMAT = 1

ROW_GROUP = 1 << 18
"""Rows of a group in the files of tables. Without a number, groups follow the chunks in memory,
which depend on whether a worker process simulated the run."""

_RERUN = "run the scenario again"


@dataclass
class Run:
    """Tables, scenario and summary of one run.

    Attributes:
        scenario: The scenario, with all defaults.
        tables: Frame of every table in ``schema.TABLES``.
        summary: ``elapsed_ps`` (from the first start of an observed job until the last of its
            ranks finishes), ``job_elapsed_ps`` (the same for each job), ``packets``,
            ``packet_hops``, ``events``, ``average_path_length`` (switches that a packet of the
            observed jobs visits), ``observed_packets``, ``complete``, ``vc_refused`` (how often a
            switch had no free entry for a flow, with routing ``vc``), ``marked_packets`` (by
            congestion control), ``congestion_notifications`` (CNPs, with DCQCN), ``pauses`` and
            ``paused_ps`` (of all links together, with PFC), ``remedy`` (applied by a diagnosis and
            not part of the scenario) …
        performance: Wall-clock times, which need not be reproducible.
        notes: Irregularities in the input that were accepted.
        computations: ``rank, start_ps`` of every computation, by rank and time, if requested; not
            written to disk.
        adapters_shared: False if no adapter that had sent part of a message had others to send, so
            that adapters which take turns and those which send one message after another give the
            same run; not written to disk.
    """

    scenario: Scenario
    tables: dict[str, pl.DataFrame]
    summary: dict[str, Any]
    performance: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    computations: pl.DataFrame | None = None
    adapters_shared: bool = True

    @property
    def elapsed_ps(self) -> int:
        """Time from the first start of an observed job to its last rank's finish, picoseconds."""
        return int(self.summary["elapsed_ps"])

    @property
    def complete(self) -> bool:
        """False if the run was interrupted; its tables end at that time."""
        return bool(self.summary["complete"])

    @property
    def compute_scale(self) -> float | None:
        """Factor that the scenario states for the computation of the observed job, None without."""
        return next((job.compute_scale for job in self.scenario.job if job.observed), None)

    @property
    def assumptions(self) -> list[str]:
        """The notes that every verdict shows: steps extrapolated, and rates within hosts."""
        return [note for kind in self.summary.get("assumptions", {}).values() for note in kind]

    @property
    def skip_notes(self) -> list[str]:
        """The notes that state which steps were extrapolated, one for each job with any.

        Whatever shows times, bytes or stalls of a run shows these.
        """
        return list(self.summary.get("assumptions", {}).get("skipped", []))

    @property
    def extrapolated_ps(self) -> int:
        """Half of the 95 % interval of the time, where steps were extrapolated, ps; otherwise 0."""
        facts = self.summary.get("skipped")
        if facts is None:
            return 0
        return int(facts["elapsed_high_ps"] - facts["elapsed_low_ps"]) // 2

    def write(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the run directory, completely or not at all.

        Raises:
            RunError: The directory exists (without ``force``) or cannot be written.
        """
        with AtomicDirectory(path, force=force) as part:
            for name, frame in self.tables.items():
                conform(name, frame).write_parquet(
                    part / f"{name}.parquet", row_group_size=ROW_GROUP
                )
            scenario = self.scenario.model_dump_json(indent=2)
            (part / "scenario.json").write_text(scenario + "\n", encoding="utf-8")
            provenance = {
                "format": FORMAT,
                "tailback": version(),
                "scenario_sha256": hashlib.sha256(scenario.encode()).hexdigest(),
                "summary": self.summary,
                "notes": self.notes,
            }
            _write_json(part / "run.json", provenance)
            _write_json(part / "performance.json", self.performance)
        return Path(path)

    @staticmethod
    def read(path: str | Path) -> Run:
        """Read a run directory; raises RunError naming what is missing or damaged.

        Every file is checked against its SHA-256 in the manifest before it is decoded. A folder
        without a manifest is read with a note.
        """
        path = Path(path)
        require_plain_path(path)
        recover(Path(os.path.realpath(path)))
        if not path.exists():
            raise RunError("does not exist", file=path, remedy="check the path")
        if not (path / "run.json").is_file():
            raise RunError(
                "not a run directory (it has no run.json)",
                file=path,
                remedy="give a folder that 'tailback diagnose' or 'tailback simulate' wrote",
            )
        manifest = read_manifest(path)
        for name in ("run.json", "scenario.json", "performance.json"):
            manifest.check(name)
        try:
            provenance = json.loads(content(path / "run.json", RunError))
            text = content(path / "scenario.json", RunError)
            scenario = Scenario.model_validate_json(text)
            performance = json.loads(content(path / "performance.json", RunError))
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"damaged run directory: {str(error).splitlines()[0]}", file=path, remedy=_RERUN
            ) from None
        stated = provenance.get("format") if isinstance(provenance, dict) else None
        if stated != FORMAT:
            raise RunError(
                f"run format {stated!r}, this version reads {FORMAT}",
                file=path / "run.json",
                remedy=_RERUN,
            )
        tables = {}
        for name in TABLES:
            file = path / f"{name}.parquet"
            manifest.check(file.name)
            frame = read_table(file, error=RunError, remedy=_RERUN)
            try:
                tables[name] = conform(name, frame)
            except pl.exceptions.PolarsError as error:
                raise RunError(f"damaged table: {error}", file=file, remedy=_RERUN) from None
            except RunError as error:
                raise error.located(file) from None
        summary, notes = provenance.get("summary"), provenance.get("notes")
        checks = (
            (path / "run.json", partial(check_summary, summary, notes)),
            (path, partial(check_tables, tables)),
        )
        for file, check in checks:
            try:
                check()
            except RunError as error:
                error.remedy = _RERUN
                raise error.located(file) from None
        # The digest leaves out the final newline.
        digest = hashlib.sha256(text.removesuffix(b"\n")).hexdigest()
        if provenance.get("scenario_sha256") != digest:
            raise RunError(
                "is not the scenario of this run: its SHA-256 differs from the one in run.json",
                file=path / "scenario.json",
                remedy=_RERUN,
            )
        return Run(scenario, tables, summary, performance, [*notes, *manifest.notes])


def run_folder(folder: Path) -> Path:
    """The folder of a run: ``folder``, or ``run`` in it if it is a result of ``diagnose``."""
    recover(Path(os.path.realpath(folder)))
    return folder / "run" if (folder / "diagnosis.json").is_file() else folder


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
