"""Scenarios and processes of the command line, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailback.cli import run as tailback

SMALL = """
name = "small"
[fabric.fat_tree]
hosts_per_leaf = 4
leaves = 4
aggregation = 2
[[job]]
pattern = {{ kind = "{kind}", {options} }}
"""


def scenario(folder: Path, kind: str = "stencil2d", options: str = "dims = [4, 4]") -> Path:
    """A scenario that runs in milliseconds."""
    path = folder / "small.toml"
    path.write_text(SMALL.format(kind=kind, options=options))
    return path


def simulated(folder: Path, telemetry: str) -> Path:
    """A run of that scenario with these keys of ``[telemetry]``."""
    path = scenario(folder)
    path.write_text(path.read_text().replace("[[job]]", f"[telemetry]\n{telemetry}\n[[job]]"))
    assert tailback(["simulate", str(path), "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str | Path], *expected: str
) -> None:
    """Assert the command fails with exit code 2 and a message that holds ``expected``."""
    code = tailback([str(a) for a in arguments])
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert "Traceback" not in captured.err
    for text in expected:
        assert text in captured.err, captured.err
    assert captured.out == ""


MAIN = """
import sys
from tailback.cli import cli, main
cli.get_command(None, sys.argv[1])
print('ready', file=sys.stderr, flush=True)
main()
"""


def process(
    arguments: list[str | Path], code: str = MAIN, **options: object
) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},  # type: ignore[call-overload]
    )
