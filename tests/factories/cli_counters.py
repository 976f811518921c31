"""``tailback counters``: files it reads, what it prints and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tailback.cli.text import SCREEN_LINES
from tests.factories.repository import ROOT

FABRIC = ROOT / "examples" / "demo" / "fabric.ibnetdiscover"

LEAF = [ROOT / "examples" / "counters" / f"leaf06-12h0{n}.txt" for n in (0, 1)]


def plain(path: Path, lid: int, ports: dict[int, tuple[int, int]]) -> Path:
    """The same with counters of 32 bits."""
    text = "".join(
        f"# Port counters: Lid {lid} port {port} (CapMask: 0x1300)\n"
        f"PortXmitData:....{words}\nPortXmitWait:....{wait}\n"
        for port, (words, wait) in ports.items()
    )
    path.write_text(text)
    return path


def print_counters(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """What the command prints; no line is wider than a screen."""
    exit_code = tailback(["counters", *(str(a) for a in arguments)])
    captured = capsys.readouterr()
    assert exit_code == code, captured.err
    if "json" not in arguments:
        assert max(map(len, captured.out.split("\n"))) < 80
        assert captured.out.count("\n") <= (60 if "-v" in arguments else SCREEN_LINES)
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The complaint of a command that must fail."""
    assert tailback(["counters", *(str(a) for a in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    return captured.err
