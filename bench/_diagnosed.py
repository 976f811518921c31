"""Diagnoses in processes of their own, with their processor time."""

from __future__ import annotations

import argparse
import json
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _machine import machine
from blind import options_known


def diagnose_here(command: list[str], folder: Path) -> None:
    """Diagnose in this process; writes ``out`` and ``cpu.json`` to the folder."""
    sys.argv = [
        "tailback",
        "diagnose",
        *command,
        "--out",
        str(folder / "out"),
        "--quiet",
        "--threads",
        "1",
        "--profile",
    ]
    began = time.process_time()
    try:
        runpy.run_module("tailback", run_name="__main__")
    except SystemExit as end:
        if end.code not in (0, 3, None):
            raise
    used = time.process_time() - began
    (folder / "cpu.json").write_text(json.dumps(used), encoding="utf-8")


def diagnosed(script: str, command: list[str], *, changed: bool) -> dict[str, Any]:
    """Diagnose by ``script --child FOLDER [--changed] -- command``.

    Returns:
        Contents of ``diagnosis.json`` and ``profile.json``, user and system CPU seconds without the
        start of the interpreter, and the number of simulations.
    """
    with tempfile.TemporaryDirectory() as made:
        call = [sys.executable, script, "--child", made, "--", *command]
        if changed:
            call.insert(2, "--changed")
        done = subprocess.run(call, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr.strip()[-500:])
        folder = Path(made)
        read, profile, cpu_s = (
            json.loads((folder / name).read_text(encoding="utf-8"))
            for name in ("out/diagnosis.json", "out/profile.json", "cpu.json")
        )
    engine = next(one for one in profile["stages"] if one["stage"] == "packet engine")
    return {
        "diagnosis": read,
        "profile": profile,
        "cpu_s": cpu_s,
        "simulations": engine["calls"],
    }


def compare_cases(
    description: str | None,
    child: Callable[[list[str], Path, bool], None],
    measure: Callable[[Path, str, list[str], int], dict[str, Any]],
    table: Callable[[list[dict[str, Any]]], str],
) -> int:
    """Diagnose the cases of the command line in two ways.

    Args:
        description: Help of the command.
        child: Diagnoses in a process of its own: command, folder, whether ``--changed`` was given.
        measure: Compares a case: its folder, evidence, known options, number of pairs.
        table: Text of all rows.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="+", help="folders of blind cases")
    parser.add_argument("--trace-only", action="store_true", help="without counters and job list")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--changed", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.cases, given.child, given.changed)
        return 0
    evidence, known = "trace" if given.trace_only else "all", options_known()
    rows = [measure(Path(case), evidence, known, given.pairs) for case in given.cases]
    print(json.dumps({"machine": machine(), "cases": rows}) if given.json else table(rows))
    return 0
