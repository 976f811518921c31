"""Common parts of the case studies: rows of their tables, and the diagnosis as users run it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from measuring import cpu_seconds
from studies.taffet2019.case_figures import Drawing
from tailback import Diagnosis, Run, Scenario, load_scenario, simulate
from tailback.telemetry import Selection, link_estimates, select
from tailback.units import percent

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@dataclass(frozen=True)
class Row:
    """One line of a case's table."""

    quantity: str
    theirs: str
    ours: str


@dataclass(frozen=True)
class DiagnoseAnswer:
    """The output of ``tailback diagnose`` for one scenario."""

    command: str
    seconds: float
    expected: str
    cause: str
    headline: str
    findings: list[str]
    remedy: str
    warnings: list[str]


@dataclass
class Found:
    """Results of one case."""

    name: str
    rows: list[Row] = field(default_factory=list)
    answers: list[DiagnoseAnswer] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)
    seconds: float = 0.0


def diagnose(path: str, expected: str, *options: str) -> tuple[DiagnoseAnswer, Run, Diagnosis]:
    """Run the command on an example and return what it says and the run it made."""
    tailback = Path(sys.executable).with_name("tailback")
    began = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = [str(EXAMPLES / path), *options, "--out", str(out), "--format", "json", "--quiet"]
        done = subprocess.run([tailback, "diagnose", *words], capture_output=True, text=True)
        if done.returncode not in (0, 3):
            raise SystemExit(f"tailback diagnose {path} failed:\n{done.stderr}")
        seconds = cpu_seconds() - began
        run = Run.read(out / "run")
    answer = Diagnosis.model_validate_json(done.stdout)
    remedy = answer.remedy
    said = DiagnoseAnswer(
        command=" ".join(["tailback diagnose", f"examples/{path}", *options]),
        seconds=seconds,
        expected=expected,
        cause=answer.cause,
        headline=answer.headline,
        findings=[f"{f.code} {percent(f.share)}: {f.title}" for f in answer.findings],
        remedy="none" if remedy is None else remedy.action,
        warnings=[text for text in answer.warnings if text not in run.notes],
    )
    return said, run, answer


def example(path: str, seed: int | None = None) -> Scenario:
    """An example scenario without telemetry, because only its times are needed."""
    scenario = load_scenario(EXAMPLES / path)
    scenario.telemetry.scheme = "off"
    if seed is not None:
        scenario.seed = seed
    return scenario


def elapsed(scenario: Scenario) -> int:
    """Time of the first observed job, picoseconds."""
    return simulate(scenario).elapsed_ps


def estimates(run: Run, *, phase: str | None = None) -> pl.DataFrame:
    """Sampled estimates of every link with its description."""
    selection = Selection(phases=None if phase is None else [phase])
    return link_estimates(select(run.tables, selection)).join(run.tables["links"], on="link")


def busy_gbps(run: Run, links: pl.DataFrame) -> pl.DataFrame:
    """Estimated bandwidth of links over the windows from their first packet to their last."""
    windows = run.tables["windows"]
    span = (
        run.tables["samples"]
        .filter(pl.col("hop_samples") > 0)
        .join(windows, on="window")
        .group_by("link")
        .agg(ps=pl.col("end_ps").max() - pl.col("start_ps").min())
    )
    return links.join(span, on="link").with_columns(gbps=pl.col("bytes") * 8000 / pl.col("ps"))
