"""Lists the benchmarks in bench/ with what each measures, or runs one of them by name."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent / "bench"


def summary(path: Path) -> str:
    """First line of a benchmark's docstring."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "(no description)"
    return doc.splitlines()[0]


def main(arguments: list[str]) -> int:
    """List the benchmarks without an argument, run the one named otherwise."""
    # What several benchmarks share has no command line.
    benchmarks = {p.stem: p for p in sorted(BENCH.glob("*.py")) if "__main__" in p.read_text()}
    benchmarks |= {p.parent.name: p for p in sorted(BENCH.glob("*/run.py"))}
    if not arguments:
        for name, path in benchmarks.items():
            print(f"  make bench BENCH={name:<20} {summary(path)}")
        return 0
    name, *options = arguments
    if name not in benchmarks:
        print(f"no benchmark {name!r}; there are: {', '.join(benchmarks)}", file=sys.stderr)
        return 2
    sys.argv = [str(benchmarks[name]), *options]
    sys.path.insert(0, str(benchmarks[name].parent))
    runpy.run_path(str(benchmarks[name]), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
