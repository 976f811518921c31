"""Caps of the documentation's length, and words of history, are kept."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    from tests.factories.repository import ROOT

    monkeypatch.syspath_prepend(ROOT / "scripts")
    module = importlib.import_module("check_pages")
    for folder in ("measurements", "how-to"):
        (tmp_path / "docs" / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("One word more.")
    return module


def test_short_pages_have_no_faults(check, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "docs" / "measurements" / "speed.md").write_text("a b | c " * 3500)
    assert not [*check.faults(tmp_path)]


def test_too_many_words_are_refused(check, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "docs" / "measurements" / "speed.md").write_text("a b | c " * 3501)
    assert [*check.faults(tmp_path)] == ["measurements: 1 pages of 5, 14,004 words of 14,000"]


def test_too_many_pages_are_refused(check, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for number in range(6):
        (tmp_path / "docs" / "measurements" / f"{number}.md").touch()
    assert [*check.faults(tmp_path)] == ["measurements: 6 pages of 5, 0 words of 14,000"]


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("Today it takes a second.", True),
        ("Earlier versions lack it.", True),
        ("It was recently renamed.", True),
        ("The port no longer has credit.", False),
        ("Packets that were sent before this one.", False),
    ],
)
def test_pages_tell_no_history(check, tmp_path: Path, text: str, refused: bool) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "docs" / "how-to" / "x.md").write_text(f"# X\n\n{text}\n")
    faults = [*check.faults(tmp_path)]
    assert bool(faults) == refused and all("docs/how-to/x.md:3" in fault for fault in faults)
