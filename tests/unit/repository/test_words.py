"""Texts that users see keep to the glossary: no word that it replaces, no number of a source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GLOSSARY = ROOT / "docs" / "glossary.md"

REPLACED = re.compile(
    r"\bcures?\b|\btreatments?\b|\bheeds?\b|\bby heart\b|\btold as\b|\blaid to\b|\btwo looks\b"
    r"|\bput down (?:for|to)\b|\bmakes? (?:it|links) hot\b|\bdocument 0\d\d\b|\btables_002\b"
    r"|\bset to (?:build on|judge by)\b|\bscenarios to build on\b|\bthe screen says\b",
    re.IGNORECASE,
)

PAGES = sorted(p for p in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if p != GLOSSARY)


def prose(page: str) -> str:
    """A page without comments, code and the targets of links."""
    return re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_glossary(page: Path) -> None:
    found = REPLACED.findall(prose(page.read_text(encoding="utf-8")))
    assert not found, f"{page.relative_to(ROOT)}: {found}; docs/glossary.md has the words"


def test_a_replaced_word_is_found() -> None:
    assert REPLACED.findall("The cure is laid to `cure` and document 004.")
