"""The demo's scripts make what it reads: the fabric byte for byte, a trace of the same program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tailback.traffic.program import Op, Program
from tailback.traffic.readers import read_trace
from tests.factories.repository import ROOT

DEMO = ROOT / "examples" / "demo"
FACES = [32 * 1024, 32 * 1024, 256 * 1024]
"""Bytes of a face across x, y and z (README.md of the demo)."""

pytestmark = pytest.mark.tools


def run(script: str, *arguments: str | Path) -> None:
    """Run a script of the demo to its end."""
    words = [DEMO / script, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def need(programs: dict[str, str]) -> None:
    """Skip where a program is missing, and say which Debian package has it."""
    for program, package in programs.items():
        if shutil.which(program) is None and not Path("/usr/sbin", program).exists():
            pytest.skip(f"needs the Debian package {package}")


def faces_sent(program: Program) -> list[int]:
    """Messages of the halo exchange, by the axis whose face they hold."""
    halo = [n for n, label in enumerate(program.labels) if label.call == "MPI_Isend"]
    sends = (program.kind == Op.ISEND) & np.isin(program.label, halo)
    sizes = program.amount[sends]
    assert set(sizes.tolist()) <= set(FACES)
    return [int((sizes == size).sum()) for size in sorted(set(FACES))]


def test_the_fabric_is_discovered_again_as_it_is(tmp_path: Path) -> None:
    need({"ibsim": "ibsim-utils", "opensm": "opensm", "ibnetdiscover": "infiniband-diags"})
    out = tmp_path / "fabric.txt"
    run("discover.sh", out)
    assert out.read_bytes() == (DEMO / "fabric.ibnetdiscover").read_bytes()


@pytest.mark.slow
def test_the_program_is_recorded_again(tmp_path: Path) -> None:
    need(
        {
            "mpicc.openmpi": "libopenmpi-dev",
            "mpirun.openmpi": "openmpi-bin",
            "eztrace": "eztrace",
            "otf2-print": "otf2-tools",
        }
    )
    out = tmp_path / "trace"
    run("record.sh", out, 2, 2, 2, 1)
    again = read_trace(out)
    assert again.n_ranks == 8
    # Every rank sends a face to either side along each axis, the grid being periodic.
    assert faces_sent(again) == [8 * 4, 8 * 2]
    kept = read_trace(DEMO / "trace")
    assert kept.n_ranks == 128 and faces_sent(kept) == [6 * 128 * 4, 6 * 128 * 2]
