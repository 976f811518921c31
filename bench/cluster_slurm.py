"""Diagnoses and sweeps with a real Slurm: are results the same, and how much faster are they?

python bench/cluster_slurm.py                     the cases, alone and with 1 and 2 workers
python bench/cluster_slurm.py --case demo --rounds 5
python bench/cluster_slurm.py --write             writes its table into docs/measurements/speed.md

Needs ``sbatch``. Each run is a separate process; the workers of a run are an array of jobs that is
submitted just before it begins, all tasks of a sweep are. The numbers of workers alternate, so that
other work of the machine affects all of them. Results are compared byte by byte, without the files
that state times.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _shared import cpu_seconds, machine, put

import tailback as tb
from tailback.simulation.parallel.spread import write_script
from tailback.simulation.parallel.task_folder import TaskFolder

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "speed.md"
TIMES = {"performance.json", "manifest.json"}
"""Files that state times, or hashes of such files."""


def digest(folder: Path, pattern: str) -> str:
    """SHA-256 over names and contents of the files of a result, without those that state times."""
    sha = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and path.name not in TIMES:
            sha.update(path.relative_to(folder).as_posix().encode() + b"\0")
            sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()


def submit(script: Path) -> str:
    """Submit a batch script; returns the number of its job."""
    command = ["sbatch", "--parsable", str(script)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def wait_for(job: str) -> None:
    """Wait until no task of a job is waiting or running."""
    command = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}"]
    ended = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"}
    while True:
        states = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        if ended.issuperset(states):
            return
        time.sleep(0.25)


def diagnosed(source: str, seeds: int, workers: int, folder: Path) -> dict[str, Any]:
    """Diagnose with an array of workers, or alone."""
    tasks = TaskFolder.create(folder / "tasks") if workers else None
    job = submit(write_script(tasks, "bench", workers)) if tasks else ""
    began = time.monotonic()
    out = folder / "result"
    tb.diagnose(source, seeds=seeds, threads=1, tasks=tasks).write(out)
    wall_s = time.monotonic() - began
    if job:
        wait_for(job)
    return {
        "wall_s": wall_s,
        "by_workers": len(tasks.costs) if tasks else 0,
        "workers_s": sum(tasks.costs.values()) if tasks else 0.0,
        "digest": digest(out, "**/*"),
    }


def swept(source: str, seeds: int, workers: int, folder: Path) -> dict[str, Any]:
    """Sweep over seeds with an array of workers, or on one process of this machine."""
    out = folder / "study"
    command = [
        sys.executable,
        "-m",
        "tailback",
        "sweep",
        source,
        "--over",
        f"seed=1..{seeds}",
        "--table",
        "truth",
        "--out",
        str(out),
        "--quiet",
    ]
    where = ["--slurm", str(workers)] if workers else ["--workers", "1"]
    began = time.monotonic()
    subprocess.run([*command, *where], check=True, capture_output=True)
    if workers:
        wait_for(submit(out / "sweep.sbatch"))
    return {
        "wall_s": time.monotonic() - began,
        "by_workers": seeds if workers else 0,
        "digest": digest(out, "*/*.parquet"),
    }


DEMO, STENCIL = "examples/demo/demo.toml", "examples/stencil2d/stencil2d.toml"
Measure = Callable[[str, int, int, Path], dict[str, Any]]
CASES: dict[str, tuple[Measure, str, int]] = {
    "demo": (diagnosed, DEMO, 3),
    "stencil2d": (diagnosed, STENCIL, 3),
    "stencil2d, 16 seeds": (diagnosed, STENCIL, 16),
    "sweep of demo, 24 seeds": (swept, DEMO, 24),
}
"""How each case is measured, its scenario and number of seeds."""


def run_once(name: str, workers: int) -> dict[str, Any]:
    """One run of a case in this process."""
    measure, source, seeds = CASES[name]
    # Workers on other machines see the current folder, not /tmp.
    folder = Path(tempfile.mkdtemp(prefix="cluster-slurm-", dir="."))
    try:
        row = measure(source, seeds, workers, folder.absolute())
    finally:
        shutil.rmtree(folder)
    return {**row, "own_s": cpu_seconds()}


def compared(name: str, numbers: list[int], rounds: int) -> list[dict[str, Any]]:
    """Medians of a case for each number of workers, from alternating runs."""
    runs: dict[int, list[dict[str, Any]]] = {number: [] for number in numbers}
    for _ in range(rounds):
        for number in numbers:
            command = [sys.executable, __file__, "--one", name, str(number)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            runs[number].append(json.loads(output))
    reference = runs[numbers[0]][0]["digest"]
    rows = []
    for number, attempts in runs.items():
        ratios = [
            a["wall_s"] / b["wall_s"] for a, b in zip(runs[numbers[0]], attempts, strict=True)
        ]
        rows.append(
            {
                "case": name,
                "workers": number,
                "rounds": rounds,
                "wall_s": statistics.median(run["wall_s"] for run in attempts),
                "own_s": statistics.median(run["own_s"] for run in attempts),
                "by_workers": statistics.median_low(run["by_workers"] for run in attempts),
                "faster": statistics.median(ratios),
                "ratios": ratios,
                "same": all(run["digest"] == reference for run in attempts),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The cases in Markdown."""
    lines = [
        "| case | workers | rounds | on the clock | faster (median; all) | CPU s of the diagnosis "
        "or command | simulations by workers | results |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = f"{min(row['ratios']):.2f}–{max(row['ratios']):.2f}"
        faster = f"{row['faster']:.2f} × ({ratios})" if row["workers"] else ""
        lines.append(
            f"| {row['case']} | {row['workers'] or 'none'} | {row['rounds']} "
            f"| {row['wall_s']:.1f} s | {faster} | {row['own_s']:.1f} | {row['by_workers']} "
            f"| {'same' if row['same'] else 'DIFFERENT'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=list(CASES), help="default: all")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help=f"update docs/{PAGE.name}")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_once(options.one[0], int(options.one[1]))))
        return
    if shutil.which("sbatch") is None:
        raise SystemExit("sbatch is missing: this benchmark needs Slurm")
    rows = []
    for name in [options.case] if options.case else CASES:
        rows += compared(name, [0, *options.workers], options.rounds)
        print(table(rows[-1 - len(options.workers) :]), flush=True)
    print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    if options.write:
        put(PAGE, {"slurm": table(rows)})


if __name__ == "__main__":
    main()
