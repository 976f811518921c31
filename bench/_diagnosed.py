"""Diagnoses in processes of their own, with their processor time."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def diagnose_here(command: list[str], folder: Path) -> None:
    """Diagnose in this process; writes ``out`` and ``cpu.json`` to the folder."""
    sys.argv = ["tailback", "diagnose", *command, "--out", str(folder / "out"), "--quiet",
                "--threads", "1", "--profile"]  # fmt: skip
    began = time.process_time()
    try:
        runpy.run_module("tailback", run_name="__main__")
    except SystemExit as end:
        if end.code not in (0, 3, None):
            raise
    used = time.process_time() - began
    (folder / "cpu.json").write_text(json.dumps(used), encoding="utf-8")


def diagnosed(script: str, options: list[str], command: list[str]) -> dict[str, Any]:
    """Diagnose by ``script --child FOLDER options -- command``.

    Returns:
        Contents of ``diagnosis.json`` and ``profile.json``, user and system CPU seconds without the
        start of the interpreter, and the number of simulations.
    """
    with tempfile.TemporaryDirectory() as made:
        call = [sys.executable, script, "--child", made, *options, "--", *command]
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
        "diagnosis": read, "profile": profile, "cpu_s": cpu_s, "simulations": engine["calls"],
    }  # fmt: skip
