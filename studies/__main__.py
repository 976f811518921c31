"""Lists the studies with what each reproduces: ``python -m studies``."""

from __future__ import annotations

import ast
from pathlib import Path

HERE = Path(__file__).resolve().parent


def studies() -> dict[str, str]:
    """First line of the docstring of every study that can be run, by the name to run it by."""
    summaries = {}
    for path in sorted(HERE.glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text:
            name = f"studies.{path.parent.name}.{path.stem}"
            summaries[name] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return summaries


if __name__ == "__main__":
    for name, summary in studies().items():
        print(f"  python -m {name:<46} {summary}")
