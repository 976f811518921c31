"""Whether a diagnosis can be repeated bit for bit: ``tb.verify`` and ``tailback verify``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tailback.api.diagnose import diagnose
from tailback.errors import known_keywords, option
from tailback.io.manifest import read_manifest
from tailback.io.progress import Progress
from tailback.simulation import Watch
from tailback.sources.diagnosis_folder import DIAGNOSE_AGAIN, is_diagnosis, read_diagnosis
from tailback.sources.request import REQUEST_FILE, DiagnosisRequest, LocatedRequest
from tailback.sources.verification import (
    Outcome,
    Verification,
    check_files,
    compared_files,
    differences,
)
from tailback.version import version


@known_keywords()
def verify(
    folder: str | Path,
    *,
    inputs: str | Path | None = None,
    threads: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Verification:
    """Repeat a diagnosis and compare every number with those in its folder.

    Args:
        folder: Folder that ``tailback diagnose`` or :meth:`DiagnosisResult.write` wrote.
        inputs: Folder to which its inputs were moved; default: they are where they were.
        threads: Threads of the engine; default: idle cores.
        workers: Number of processes that simulate besides this one.
        progress: Called with the current step and its progress, 0–1.
        watch: As for :func:`diagnose`.

    Returns:
        Whether it stands, and each number that came out differently.

    Raises:
        RunError: It is no diagnosis, or a file of it is missing or has changed.

    Example:
        >>> tb.verify("diagnosis").outcome
    """
    folder = Path(folder)
    # All changed files are named before the diagnosis alone is.
    checked = check_files(folder) if is_diagnosis(folder) else 0
    diagnosis = read_diagnosis(folder)
    facts: dict[str, Any] = {
        "headline": diagnosis.headline,
        "remedy": "" if diagnosis.remedy is None else diagnosis.remedy.name,
        "checked": checked,
    }
    outcome: Outcome = "not-repeatable"
    if reason := _other_version(folder):
        return Verification(outcome=outcome, reason=reason, **facts)
    request = DiagnosisRequest.read(folder)
    located = request.at(None if inputs is None else Path(inputs))
    facts["inputs"] = request.inputs
    if reason := _limited(request) or _unusable(located):
        return Verification(outcome=outcome, reason=reason, **facts)
    with TemporaryDirectory() as place:
        again = Path(place) / "again"
        _repeat(located, again, threads=threads, workers=workers, progress=progress, watch=watch)
        names, left_out = compared_files(folder, again)
        differing = differences(folder, again, names)
    return Verification(
        outcome="differs" if differing else "stands",
        compared=len(names),
        differences=differing,
        not_compared=left_out,
        **facts,
    )


def _repeat(located: LocatedRequest, folder: Path, **effort: Any) -> None:
    """Diagnose again and write the result to a folder."""
    result = diagnose(located.source, **located.options, **effort)
    for run in (result.run, result.after):
        if run is not None:
            located.restore(run)
    replace(result, request=located.restored(result.request)).write(folder)


def _other_version(folder: Path) -> str:
    """Why this version cannot repeat a diagnosis; empty if it can."""
    made = read_manifest(folder).version
    if made != version():
        return f"Tailback {made} made it, and this is {version()}: install that version"
    if not (folder / REQUEST_FILE).is_file():
        return f"it has no {REQUEST_FILE}, as older versions wrote none: {DIAGNOSE_AGAIN}"
    return ""


def _limited(request: DiagnosisRequest) -> str:
    """Why a diagnosis within a time budget cannot be repeated; empty without a budget."""
    limit = request.options.get("budget")
    if limit is None:
        return ""
    return f"it was limited to {limit}, and what fits into that depends on the machine"


def _unusable(located: LocatedRequest) -> str:
    """Why its inputs cannot be used; empty if they can."""
    reasons = located.unusable()
    if not reasons:
        return ""
    path, reason = next(iter(reasons.items()))
    more = f" ({len(reasons) - 1} more like it)" if len(reasons) > 1 else ""
    where = located.inputs[path]
    return (
        f"input {str(where)!r} {reason}{more}; if the inputs were moved, name the folder that "
        f"corresponds to {str(located.request.base)!r}: {option('inputs', 'FOLDER')}"
    )
