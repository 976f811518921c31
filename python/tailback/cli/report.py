"""``tailback report``: the HTML report and the figures of a run or a diagnosis, from its tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import OneOf
from tailback.errors import RunError

if TYPE_CHECKING:
    from tailback.diagnosis import Diagnosis
    from tailback.run.run import Run


@click.command(cls=GroupedHelp)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The HTML file (default FOLDER.html).")
@click.option(
    "--figures",
    type=OneOf(["svg", "pdf", "png"]),
    multiple=True,
    help="Also write every figure in this format, next to the report.",
)
@click.option(
    "--host", metavar="NAME", help="Only what this host received: its view of a run of 'simulate'."
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
def report(
    folder: Path, out: Path | None, figures: tuple[str, ...], host: str | None, force: bool
) -> None:
    """Write the report of FOLDER: a run of 'simulate' or a result of 'diagnose'.

    A bare run is judged by its samples alone; nothing is simulated again.

    \b
    tailback simulate examples/stencil2d/stencil2d.toml --out run
    tailback report run --figures svg
    """
    with loading():
        from tailback.cli.runs import default_output
        from tailback.report import export_figures, write_report
        from tailback.sources.diagnosis_folder import read_measured_tables
    out = out or default_output(folder, ".html")
    where = out.with_name(out.stem + "-figures")
    for path in (out, *([where] if figures else [])):
        if path.exists() and not force:
            raise RunError("already exists", file=path, remedy="choose another --out, or --force")
    diagnosis, run, after, files = _read(folder, host)
    measured = read_measured_tables(folder)
    write_report(out, run, diagnosis, after=after, files=files, measured=measured)
    click.echo(f"report: {out}")
    if figures:
        written = export_figures(run, diagnosis, where, figures, after=after, measured=measured)
        click.echo(f"figures: {len(written)} files in {where}")


def _read(folder: Path, host: str | None) -> tuple[Diagnosis, Run, Run | None, dict[str, str]]:
    from tailback.api.runs import require_packets
    from tailback.cli.runs import read_samples, with_samples
    from tailback.io.input_files import text_content
    from tailback.io.manifest import read_manifest
    from tailback.remedy import diagnose as find_causes
    from tailback.run.run import Run
    from tailback.sources.diagnosis_folder import is_diagnosis, read_diagnosis

    if not is_diagnosis(folder) or host is not None:
        run = read_samples(folder, host)
        require_packets(run, folder, "report")
        return find_causes(run), run, None, {}
    diagnosis = read_diagnosis(folder)
    manifest = read_manifest(folder)
    after = with_samples(Run.read(folder / "after")) if (folder / "after").is_dir() else None
    files = {}
    for name in diagnosis.remedy.files if diagnosis.remedy is not None else ():
        path = folder / Path(name).name
        manifest.check(path.name)
        if path.is_file():
            files[name] = text_content(path, RunError)
    return diagnosis, with_samples(Run.read(folder / "run")), after, files
