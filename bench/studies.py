"""The two measurement studies of production networks, seen by simulation, theirs beside ours.

    python bench/studies.py                          all three parts
    python bench/studies.py --study yellowstone      one of them; may be repeated
    python bench/studies.py --write                  also docs/studies.md and its figures

Everything in the column "ours" is computed; what is "theirs" is in the papers' text and tables.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable
from dataclasses import asdict

from study_blue_waters import blue_waters
from study_counters import ROOT, Found, save
from study_curves import questions
from study_yellowstone import yellowstone

from tailback.report.figure import style

PAGE = ROOT / "docs" / "studies.md"

STUDIES: dict[str, Callable[[], Found]] = {
    "yellowstone": yellowstone,
    "blue-waters": blue_waters,
    "questions": questions,
}


def cpu_seconds() -> float:
    """Processor time of this process."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def section(found: Found) -> str:
    """One study in Markdown."""
    lines = ["| quantity | theirs | ours | why they differ |", "|---|---|---|---|"]
    lines += [f"| {r.quantity} | {r.theirs} | {r.ours} | {r.why} |" for r in found.rows]
    return "\n".join([*lines, "", f"The whole part: {found.seconds:.0f} s of processor time."])


def write(found: Found) -> None:
    """Replace the study's part of the page and draw its figures."""
    for stem, make in found.figures.items():
        with style():
            drawn = make()
        if drawn is not None:
            save(drawn, PAGE.with_suffix("") / f"{stem}.png")
    text = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {found.name} -->\n", f"<!-- end {found.name} -->"
    head, rest = text.split(begin, 1)
    tail = rest.split(end, 1)[1]
    PAGE.write_text(f"{head}{begin}{section(found)}\n{end}{tail}", encoding="utf-8")


def main() -> None:
    """Print the tables; write the page and its figures on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", action="append", choices=list(STUDIES), help="default: all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="update docs/studies.md and figures")
    arguments = parser.parse_args()
    done = []
    for name in arguments.study or list(STUDIES):
        began = cpu_seconds()
        found = STUDIES[name]()
        found.seconds = cpu_seconds() - began
        done.append(found)
        if not arguments.json:
            print(f"## {name}\n\n{section(found)}\n", flush=True)
        if arguments.write:
            write(found)
    if arguments.json:
        print(json.dumps([{"study": found.name, "seconds": found.seconds,
                           "rows": [asdict(row) for row in found.rows]} for found in done],
                         indent=2, ensure_ascii=False))  # fmt: skip


if __name__ == "__main__":
    main()
