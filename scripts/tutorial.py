"""Run the tutorials, and check or write the output that their pages show.

    .venv/bin/python scripts/tutorial.py            fails where a page shows something else
    .venv/bin/python scripts/tutorial.py --write    writes output and pictures into the pages,
                                                    and each page as a notebook beside it

The Python blocks of a page run one after the other, in a folder that holds ``examples/``. What a
block prints is the ``text`` block below it. A picture that it saves belongs to the page if the page
shows ``images/`` and its name.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
PICTURE = re.compile(r"\]\(images/([\w.-]+)\)")


def executed(page: str, name: str) -> str:
    """A page with the current output of its blocks, which run in the working directory."""
    names: dict[str, Any] = {"__name__": "__main__"}

    def with_output(block: re.Match[str]) -> str:
        line = page[: block.start(1)].count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + block[1], name, "exec"), names)
        output = printed.getvalue().rstrip()
        return f"```python\n{block[1]}```\n" + (f"\n```text\n{output}\n```\n" if output else "")

    return BLOCK.sub(with_output, page)


def run(page: Path, folder: Path) -> str:
    """Run a page in ``folder``; return it with its output.

    Raises:
        SystemExit: The page shows a picture that its code does not make.
    """
    (folder / "examples").symlink_to(ROOT / "examples")
    with contextlib.chdir(folder):
        text = executed(page.read_text(encoding="utf-8"), str(page))
    for picture in PICTURE.findall(text):
        if not (folder / picture).is_file():
            raise SystemExit(f"{page}: no block saves {picture}")
    return text


def notebook(page: str) -> str:
    """A page as a Jupyter notebook (format 4.5): its text, its blocks, and what they print."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, text: str, **more: Any) -> None:
        if text.strip():
            source = text.strip("\n").splitlines(keepends=True)
            cell = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": source}
            cells.append(cell | more)

    # A notebook stands in its own folder, the commands of a page in the root of the repository.
    add("code", 'import os\n\nos.chdir("../..")', execution_count=None, outputs=[])
    end = 0
    for block in BLOCK.finditer(page):
        add("markdown", page[end : block.start()])
        printed = (block[2] or "").splitlines(keepends=True)
        outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
        add("code", block[1], execution_count=None, outputs=outputs)
        end = block.end()
    add("markdown", page[end:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    document = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _holds(file: Path, text: str) -> bool:
    return file.is_file() and file.read_text(encoding="utf-8") == text


def main() -> None:
    """Check or write every tutorial."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write output and pictures")
    write = parser.parse_args().write
    os.environ["MPLBACKEND"] = "agg"
    stale = []
    for page in sorted(TUTORIALS.glob("*.md")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            text = run(page, folder)
            book = page.with_suffix(".ipynb")
            if write:
                book.write_text(notebook(text), encoding="utf-8")
                page.write_text(text, encoding="utf-8")
                for picture in PICTURE.findall(text):
                    # A palette is a third of the bytes.
                    small = Image.open(folder / picture).convert("RGB").quantize(128)
                    small.save(TUTORIALS / "images" / picture, optimize=True)
                continue
            shown = {page: text, book: notebook(text)}
            stale += [file.name for file, now in shown.items() if not _holds(file, now)]
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; remedy: scripts/tutorial.py --write")


if __name__ == "__main__":
    main()
