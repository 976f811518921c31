"""CPU time and memory of whole diagnoses: ``python bench/end_to_end.py [--case NAME] [--write]``.

Cases ``measured-RANKS`` are measured runs with a hidden slow cable (``measured_case``). With
``--budget "60 s"`` they keep to a time budget; the output then says what that left out.

Each case is ``tailback diagnose --profile`` in a separate process, from the start of the
interpreter to the written report. Prints user CPU seconds, wall-clock seconds, peak memory and the
command's own table of stages. Compiled Python files are kept between cases, as an installed package
has them; the first, uncounted start makes them. The engine has one thread: more take less time and
more processor time. ``--write`` puts every case that has a target into its page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _shared import machine, put
from measured_case import GRIDS, options_of

ROOT = Path(__file__).parent.parent
CASES = {
    "demo": "examples/demo/demo.toml",
    "stencil2d": "examples/stencil2d/stencil2d.toml",
    "minighost": "examples/minighost/minighost.toml",
    "stencil-65536": "",
}
MEASURED = {f"measured-{ranks}": ranks for ranks in GRIDS}
"""Number of ranks of each measured run."""

DEFAULT = ("demo", "stencil2d")
PAGE = ROOT / "docs" / "measurements" / "speed.md"
TARGETS = {
    "demo": ("`examples/demo`, 128 ranks", 3),
    "stencil2d": ("`examples/stencil2d`, 4,608 ranks", 10),
    "minighost": ("`examples/minighost`, 27,648 ranks", 60),
    "stencil-65536": ("stencil on 65,536 hosts", 120),
    "measured-512": ("hidden slow cable, 512 ranks, counters", 120),
    "measured-4096": ("hidden slow cable, 4,096 ranks, counters", 600),
}
"""What the page calls a case, and the most user CPU seconds that it should take."""
STENCIL = """
name = "stencil-65536"
[fabric.fat_tree]
hosts_per_leaf = 32
leaves = 32
aggregation = 32
pods = 64
cores = 512
aggregation_uplinks = 16
[[job]]
pattern = { kind = "stencil2d", dims = [256, 256] }
"""


def arguments_of(name: str, folder: Path) -> list[str]:
    """Arguments of ``diagnose`` for a case, whose files are made where they are missing."""
    source = folder / f"{name}-files"
    if name in MEASURED:
        if not source.exists():
            maker = Path(__file__).with_name("measured_case.py")
            subprocess.run([sys.executable, maker, str(MEASURED[name]), source], check=True)
        return options_of(source)
    if not CASES[name]:
        source = folder / f"{name}.toml"
        source.write_text(STENCIL)
        return [str(source)]
    return [str(ROOT / CASES[name])]


def measure(
    name: str, folder: Path, environment: dict[str, str], budget: str = ""
) -> dict[str, Any]:
    """Diagnose one case in a separate process, within a time budget if one is given."""
    source, out = arguments_of(name, folder), folder / f"{name}-{budget}"
    command = [sys.executable, "-m", "tailback", "diagnose", *source, "--out", str(out)]
    command += ["--quiet", "--profile", "--threads", "1"]
    command += ["--budget", budget] if budget else []
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    error = process.stderr.read()
    # RUSAGE_CHILDREN covers the largest child so far; wait4 gives this one.
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    row: dict[str, Any] = {
        "case": name,
        "exit": process.returncode,
        "user_cpu_s": round(used.ru_utime, 2),
        "system_cpu_s": round(used.ru_stime, 2),
        "wall_s": round(wall, 2),
        "peak_mb": round(used.ru_maxrss * 1024 / 1e6),
    }
    stages = out / "profile.json"
    row["stages"] = json.loads(stages.read_text())["stages"] if stages.is_file() else []
    if process.returncode not in (0, 3):
        row["error"] = error
        return row
    diagnosis = json.loads((out / "diagnosis.json").read_text(encoding="utf-8"))
    row |= {name: diagnosis[name] for name in ("cause", "confidence", "headline")}
    row |= {"budget": diagnosis["budget"]} if budget else {}
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """CPU time and memory by case, in Markdown."""
    lines = ["| case | user CPU s | peak memory, GB | target, CPU s |", "|---|---:|---:|---:|"]
    for row in rows:
        title, target = TARGETS[row["case"]]
        lines.append(
            f"| {title} | {row['user_cpu_s']:.1f} | {row['peak_mb'] / 1000:.2f} | {target} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=[*CASES, *MEASURED])
    parser.add_argument("--budget", action="append", default=[])
    parser.add_argument("--files", type=Path, help="folder to keep the files of measured runs in")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.files or Path(made)
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")
        }
        environment["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        warm = [sys.executable, "-c", "import tailback.cli.diagnose"]
        subprocess.run(warm, env=environment, check=True)
        rows = [
            measure(name, folder, environment, budget)
            for name in options.case or (TARGETS if options.write else DEFAULT)
            for budget in options.budget or [""]
        ]
    if options.write:
        put(PAGE, {"diagnoses": table(rows)}, "--write")
    if options.json:
        print(json.dumps({"machine": machine(), "cases": rows}, indent=2))
        return
    print(machine())
    for row in rows:
        print(
            f"{row['case']}: {row['user_cpu_s']} user CPU s, {row['wall_s']} s, "
            f"{row['peak_mb']} MB, exit {row['exit']}: {row.get('cause', row.get('error'))}"
        )
        for left in (row.get("budget") or {}).get("left_out", []):
            print(f"  left out: {left['step']}, after {left['done']} simulations")
        for stage in row["stages"]:
            print(f"  {stage['stage']:<26} {stage['calls']:>6} {stage['cpu_s']:8.2f} s")


if __name__ == "__main__":
    main()
