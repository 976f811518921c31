"""Length of the documentation's pages, and words that tell of a state that users never had.

A word is what stands between blanks, as ``wc -w`` counts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CAPS = {
    "measurements": (5, 14_000),
    "all": (40, 65_000),
}
"""Most pages and words of a folder of docs/, and of all of docs/ with README.md.

An expert reads 65,000 words in a day.
"""

HISTORY = re.compile(
    r"\b(?:today|until now|formerly|recently|(?:earlier|previous|older) versions?)\b", re.IGNORECASE
)
"""Nothing was released, so no user knows another state than the one a page describes."""


def pages(root: Path) -> dict[str, list[Path]]:
    """Pages by the name of their cap."""
    docs = root / "docs"
    out = {name: sorted((docs / name).rglob("*.md")) for name in CAPS if name != "all"}
    return {**out, "all": [root / "README.md", *sorted(docs.rglob("*.md"))]}


def over(root: Path, name: str) -> str:
    """What of a cap is exceeded; empty if it is met."""
    files = pages(root)[name]
    count = len(files)
    words = sum(len(path.read_text(encoding="utf-8").split()) for path in files)
    most_pages, most_words = CAPS[name]
    if count <= most_pages and words <= most_words:
        return ""
    return f"{name}: {count} pages of {most_pages}, {words:,} words of {most_words:,}"


def faults(root: Path = ROOT) -> Iterator[str]:
    """Caps that are exceeded, and words of history."""
    for name in CAPS:
        excess = over(root, name)
        if excess:
            yield excess
    for path in (*pages(root)["all"], *sorted(root.glob("studies/*/README.md"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            for word in HISTORY.findall(line):
                yield f"{path.relative_to(root)}:{number}: {word!r}; remedy: say what is so"


def main() -> int:
    """Print every fault."""
    offences = list(faults())
    print(*offences, sep="\n", end="\n" if offences else "", file=sys.stderr)
    return bool(offences)


if __name__ == "__main__":
    sys.exit(main())
