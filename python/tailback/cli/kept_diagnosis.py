"""The diagnosis that a folder holds already, in place of the same one once more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailback.cli.result import EXIT_OK, EXIT_UNDETERMINED, show
from tailback.cli.text import wrap
from tailback.errors import RunError
from tailback.io.manifest import read_manifest
from tailback.names.display import printable

if TYPE_CHECKING:
    from tailback.diagnosis.model import Diagnosis
    from tailback.placement import RankFile
    from tailback.sources.request import DiagnosisRequest


def is_up_to_date(out: Path, asked: DiagnosisRequest, *, update: bool) -> bool:
    """Whether the diagnosis in a folder is the one that is asked for.

    Args:
        out: The folder.
        asked: What is asked for.
        update: Whether another result there may be replaced.

    Raises:
        RunError: It is not, and may not be replaced.
    """
    from tailback.sources.diagnosis_folder import is_diagnosis
    from tailback.sources.request import why_outdated

    if not is_diagnosis(out):
        return False
    try:
        if read_manifest(out).sha256 is None:
            raise RunError("already holds a diagnosis, and it has no manifest.json", file=out)
        reason = why_outdated(out, asked)
    except RunError as error:
        # Only what a manifest lists is replaced.
        error.remedy = "choose another folder, or remove this one yourself"
        raise
    if not reason:
        return True
    if update:
        return False
    raise RunError(
        f"already holds a diagnosis, and {reason}",
        file=out,
        remedy="choose another folder, or replace it with --force",
    )


def show_kept(out: Path, form: str, *, verbose: bool, evidence: bool) -> int:
    """Print the diagnosis in a folder, and that it is kept; returns the exit code.

    Raises:
        RunError: A file of it is damaged or missing.
    """
    from tailback.sources.diagnosis_folder import read_diagnosis

    diagnosis = read_diagnosis(out)
    code = EXIT_UNDETERMINED if diagnosis.cause == "undetermined" else EXIT_OK
    if form == "json":
        return show_json_kept(diagnosis.model_dump_json(indent=2), out, code)
    lines = _lines(diagnosis, out, verbose=verbose, evidence=evidence)
    return show("\n".join([*lines, *kept_lines(out)]), code)


def show_json_kept(text: str, out: Path, code: int) -> int:
    """The JSON of a result on stdout, and on stderr that it is kept; returns the exit code."""
    import click

    click.echo(f"KEPT  {_kept_note(out)}", err=True)
    return show(text, code)


def kept_lines(out: Path) -> list[str]:
    """That the diagnosis in a folder is kept."""
    return wrap(_kept_note(out), indent=" " * 6, first="KEPT  ")


def _kept_note(out: Path) -> str:
    return (
        f"{printable(str(out))} was made from the same inputs with the same options by this "
        "version; --force diagnoses again"
    )


def _lines(diagnosis: Diagnosis, out: Path, *, verbose: bool, evidence: bool) -> list[str]:
    from tailback.cli.evidence_screen import evidence_lines
    from tailback.cli.render import diagnosis_lines

    call_sites = list[str]()
    if verbose:
        from tailback.cli.hot_lines import hot_lines
        from tailback.io.input_files import text_content
        from tailback.report.attribution import from_json

        call_sites = hot_lines(from_json(text_content(out / "attribution.json", RunError)))
    lines = diagnosis_lines(diagnosis, out, call_sites, _rank_files(diagnosis), verbose=verbose)
    return lines + (evidence_lines(diagnosis.evidence) if evidence else [])


def _rank_files(diagnosis: Diagnosis) -> list[RankFile]:
    """The rank files of the remedy with their commands, without their texts."""
    from tailback.placement import RankFile

    remedy = diagnosis.remedy
    if remedy is None:
        return []
    out = []
    for (file, purpose), command in zip(remedy.files.items(), remedy.commands, strict=False):
        writer = purpose.rpartition("for ")[2]
        before, name, after = command.partition(file)
        if name:
            out.append(RankFile(writer, file, "", before, after))
        else:
            # The launcher reads the file by this name in the working folder.
            out.append(RankFile(writer, file, "", "", command, read_as=file))
    return out
