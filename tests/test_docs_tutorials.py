"""The tutorials show what their code prints and draws."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
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


def test_notebook_runs_as_the_page_does(tutorial: ModuleType, tmp_path: Path) -> None:
    page = "A\n\n```python\nx = 2\n```\n\nB\n\n```python\nprint(x)\n```\n\n```text\n2\n```\n"
    cells = json.loads(tutorial.notebook(page))["cells"]
    assert [cell["cell_type"] for cell in cells] == ["code", "markdown", "code", "markdown", "code"]
    names: dict[str, object] = {}
    printed = io.StringIO()
    folder = tmp_path / "docs" / "tutorial"
    folder.mkdir(parents=True)
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
        assert Path.cwd() == tmp_path
    assert ["".join(out["text"]) for cell in cells for out in cell.get("outputs", ())] == ["2\n"]
    assert printed.getvalue() == "2\n"


def test_an_unsaved_picture_is_an_error(tutorial: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("![a](images/a.png)\n\n```python\nopen('b.png', 'w').close()\n```\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(SystemExit, match=r"no block saves a\.png"):
        tutorial.run(page, folder)
