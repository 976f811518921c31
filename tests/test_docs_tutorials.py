"""The tutorials show what their code prints and draws."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "tutorial.py"


@pytest.fixture
def tutorial() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tutorials_show_what_they_print() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_output_that_changed_is_seen(tutorial: ModuleType) -> None:
    page = "A\n\n```python\nx = 2\n```\n\nB\n\n```python\nprint(x)\n```\n\n```text\n3\n```\n\nC\n"
    assert tutorial.executed(page, "page.md") == page.replace("3", "2")


def test_an_unsaved_picture_is_an_error(tutorial: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("![a](images/a.png)\n\n```python\nopen('b.png', 'w').close()\n```\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(SystemExit, match=r"no block saves a\.png"):
        tutorial.run(page, folder)
