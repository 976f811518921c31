"""The two measurement studies of production networks: published results and simulations.

    python -m studies.production_networks.compare                        all three parts
    python -m studies.production_networks.compare --study yellowstone    one of them
    python -m studies.production_networks.compare --write                also its page

Everything in the column "ours" is computed; what is "theirs" is in the papers' text and tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from measuring import run_parts
from studies.production_networks.blue_waters import blue_waters
from studies.production_networks.questions import questions
from studies.production_networks.simulated import Found, save
from studies.production_networks.yellowstone import yellowstone
from tailback.report import style

PAGE = Path(__file__).resolve().with_name("README.md")

STUDIES: dict[str, Callable[[], Found]] = {
    "yellowstone": yellowstone,
    "blue-waters": blue_waters,
    "questions": questions,
}


def section(study: Found) -> str:
    """One study in Markdown."""
    lines = ["| quantity | theirs | ours | why they differ |", "|---|---|---|---|"]
    lines += [f"| {r.quantity} | {r.theirs} | {r.ours} | {r.why} |" for r in study.rows]
    return "\n".join([*lines, "", f"The whole part: {study.seconds:.0f} s of processor time."])


def draw(study: Found) -> None:
    """Draw the study's figures beside the page."""
    for stem, make in study.figures.items():
        with style():
            save(make(), PAGE.with_name("figures") / f"{stem}.png")


def main() -> None:
    """Print the tables; write the page and its figures on request."""
    run_parts(
        __doc__,
        "study",
        STUDIES,
        page=PAGE,
        section=section,
        draw=draw,
        facts=lambda study: {"rows": [asdict(row) for row in study.rows]},
    )


if __name__ == "__main__":
    main()
