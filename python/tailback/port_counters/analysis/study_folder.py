"""A study on disk: tables, figures, the evolution graph and ``counters.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tailback.io.delimited import for_spreadsheets
from tailback.port_counters.analysis.dot import dot_text
from tailback.port_counters.analysis.figures import COUNTER_FIGURES, draw, render
from tailback.port_counters.analysis.study import Study, summary_json
from tailback.run.run import AtomicDirectory


def write_study(
    study: Study,
    path: Path,
    *,
    form: str = "svg",
    force: bool = False,
    csv: bool = False,
    more: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write every table as Parquet, every figure, the graph as dot and ``counters.json``.

    Args:
        study: What to write.
        path: A folder; it is created atomically.
        form: ``svg``, ``pdf`` or ``png``.
        force: Replace an existing folder.
        csv: Also write every table as CSV.
        more: Further entries of ``counters.json``.

    Returns:
        The files.

    Raises:
        RunError: The folder exists or cannot be written.
    """
    with AtomicDirectory(path, force=force) as folder:
        for name, frame in study.tables.items():
            frame.write_parquet(folder / f"{name}.parquet")
            if csv:
                for_spreadsheets(frame).write_csv(folder / f"{name}.csv")
        for entry in COUNTER_FIGURES:
            drawn = draw(entry.name, study)
            if drawn is not None:
                (folder / f"{entry.name}.{form}").write_bytes(render(drawn, form))
        if study.evolution is not None:
            (folder / "evolution.dot").write_text(dot_text(study.evolution), encoding="utf-8")
        text = json.dumps({**summary_json(study), **(more or {})}, indent=2, sort_keys=True)
        (folder / "counters.json").write_text(text + "\n", encoding="utf-8")
    return sorted(path.iterdir())
