"""What ``tailback diagnose`` wrote, read back: the diagnosis, its measured run, its rank file."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl

from tailback.diagnosis.model import Diagnosis
from tailback.errors import RunError
from tailback.evidence.tables import TABLES
from tailback.io.atomic_exchange import recover
from tailback.io.input_files import content
from tailback.io.manifest import read_manifest
from tailback.io.parquet import read_table
from tailback.version import version

DIAGNOSE_AGAIN = "diagnose again"

RANK_FILES = ("hosts.openmpi-seq", "rankfile.openmpi", "hosts.slurm", "hosts.mpich")
"""Rank files of a diagnosis that name the host of every rank, the plainest first."""

RATES_FILE = "rates.csv"
"""Rates of pairs of ranks, as ``[engine.pacing] rates_file`` reads them."""


def is_diagnosis(folder: Path) -> bool:
    """Whether a folder is what ``tailback diagnose`` wrote."""
    recover(Path(os.path.realpath(folder)))
    return (folder / "diagnosis.json").is_file()


def read_diagnosis(folder: Path) -> Diagnosis:
    """The diagnosis in a folder.

    Raises:
        RunError: There is none, or it is damaged or was changed.
    """
    file = folder / "diagnosis.json"
    if not is_diagnosis(folder):
        raise RunError(
            "is no diagnosis (it has no diagnosis.json)",
            file=folder,
            remedy="name a folder that 'tailback diagnose SOURCE --out FOLDER' wrote",
        )
    manifest = read_manifest(folder)
    manifest.check(file.name)
    try:
        return Diagnosis.model_validate_json(content(file, RunError))
    except ValueError as error:
        if manifest.version == version() and "run" not in manifest.files:
            raise RunError(
                "is the diagnosis of pairs of hosts or of a run that hangs, and holds no run",
                file=folder,
                remedy="print it by the command that made it, or read its diagnosis.json",
            ) from None
        raise RunError(
            f"damaged diagnosis: {str(error).splitlines()[0]}", file=file, remedy=DIAGNOSE_AGAIN
        ) from None


def read_measured_tables(folder: Path) -> dict[str, pl.DataFrame] | None:
    """Tables of the measured run of a diagnosis; None without.

    Raises:
        RunError: A table is damaged or was changed.
    """
    if not (folder / "measured").is_dir():
        return None
    manifest = read_manifest(folder)
    out = {}
    for name in TABLES:
        path = folder / "measured" / f"{name}.parquet"
        manifest.check(f"measured/{path.name}")
        out[name] = read_table(path, error=RunError, remedy=DIAGNOSE_AGAIN)
    return out
