"""``export counts`` on the screen, with and without congestion, and of schemes that count less."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factories.cli import tailback

SCENARIO = """
[fabric.fat_tree]
hosts_per_leaf = 2
leaves = 2
aggregation = 1
[[job]]
pattern = {{ kind = "uniform", ranks = 4, messages = {messages}, size = "2 KiB" }}
[telemetry]
scheme = "{scheme}"
rule = "queue"
rule_bytes = "{congested_from}"
"""


@pytest.mark.parametrize(
    ("scheme", "congested_from", "says", "columns"),
    [
        ("full", "1 B", "", ["port", "packets", "congested"]),
        ("full", "1 GiB", "No packet met congestion.", ["port", "packets", "congested"]),
        ("compact", "1 GiB", "No packet met congestion.", ["port", "packets", "congested"]),
        (
            "csig",
            "1 B",
            "are not counted by the samples",
            ["port", "packets", "congested", "bottleneck"],
        ),
    ],
)
def test_links_are_listed_whatever_is_counted(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    scheme: str,
    congested_from: str,
    says: str,
    columns: list[str],
) -> None:
    text = SCENARIO.format(scheme=scheme, congested_from=congested_from, messages=40)
    (tmp_path / "s.toml").write_text(text)
    run = str(tmp_path / "run")
    assert tailback(["simulate", str(tmp_path / "s.toml"), "--out", run, "--quiet"]) == 0
    capsys.readouterr()
    assert tailback(["export", "counts", run]) == 0
    lines = capsys.readouterr().out.splitlines()
    header = next(number for number, line in enumerate(lines) if line.split() == columns)
    assert says in " ".join(lines[:header]) and bool(says) == (header > 0)
    assert 1 <= len(lines[header + 1 :]) <= 10
