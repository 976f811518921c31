"""Run the tutorials, and check or write the output that their pages show.

    .venv/bin/python scripts/tutorial.py            fails where a page shows something else
    .venv/bin/python scripts/tutorial.py --write    writes output and pictures into the pages

The Python blocks of a page run one after the other, in a folder that holds ``examples/``. What a
block prints is the ``text`` block below it. A picture that it saves belongs to the page if the page
shows ``images/`` and its name.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.M | re.S)
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
            if write:
                page.write_text(text, encoding="utf-8")
                for picture in PICTURE.findall(text):
                    # A palette is a third of the bytes.
                    small = Image.open(folder / picture).convert("RGB").quantize(128)
                    small.save(TUTORIALS / "images" / picture, optimize=True)
            elif text != page.read_text(encoding="utf-8"):
                stale.append(page.name)
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; remedy: scripts/tutorial.py --write")


if __name__ == "__main__":
    main()
