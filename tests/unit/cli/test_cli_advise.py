"""``tailback advise``: hosts for the next job beside those that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailback.cli import run as tailback

NEXT = """
name = "next"
[fabric.fat_tree]
hosts_per_leaf = 8
leaves = 6
aggregation = 2
[[job]]
[job.pattern]
kind = "stencil2d"
dims = [2, 4]
size = "32 KiB"
"""

JOBS = """job,start,end,hosts
old,2026-01-01T00:00:00Z,2026-01-01T01:00:00Z,"n[32-47]"
1,2026-01-02T00:00:00Z,,"n[00-05,16-20]"
2,2026-01-02T00:00:00Z,,"n[08-11,24-31]"
3,2026-01-02T00:00:00Z,,n12
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The next job, and the list of those that run, as arguments."""
    (tmp_path / "next.toml").write_text(NEXT)
    (tmp_path / "jobs.csv").write_text(JOBS)
    jobs = str(tmp_path / "jobs.csv")
    return [str(tmp_path / "next.toml"), "--jobs", jobs, "--seeds", "1", "--quiet"]


def test_the_next_job_avoids_busy_switches(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ranks"
    more = ["--slow-cable", "leaf4[8]=10 Gb/s", "--out", str(out)]
    assert tailback(["advise", *files, *more, "--format", "json"]) == 0
    advice: dict[str, Any] = json.loads(capsys.readouterr().out)
    best, *others = advice["placements"]
    first = next(row for row in others if row["placement"] == "block")
    # The first free hosts have neighbours; hosts of the job that has ended are free.
    assert first["hosts"] == ["n06", "n07", "n13", "n14", "n15", "n21", "n22", "n23"]
    assert best["placement"] == advice["best"] and best["elapsed_ps"] < first["elapsed_ps"]
    assert best["gain"] >= 0.02 and best["gain_low"] > 0
    leaves = {int(host[1:]) // 8 for host in best["hosts"]}
    assert leaves <= {4, 5}
    # Times and gain are one number, and the commands name files that are there.
    assert 1 - best["elapsed_ps"] / first["elapsed_ps"] == pytest.approx(best["gain"], abs=1e-6)
    assert str(out / "hosts.openmpi-seq") in advice["commands"]["openmpi-seq"]
    assert json.loads((out / "advice.json").read_text()) == advice
    lines = (out / "hosts.openmpi-seq").read_text().splitlines()
    assert sorted(line for line in lines if not line.startswith("#")) == best["hosts"]
    (cable,) = advice["slow_cables"]
    assert cable["rate_gbps"] == 10 and cable["next_job"] >= 0
    assert "2 other jobs" in advice["notes"][0]


def test_advice_is_printed_with_its_range(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tailback(["advise", *files]) == 0
    text = capsys.readouterr().out
    verdict = " ".join(text.partition("\n\n")[0].split())
    assert verdict.startswith("ADVICE Use placement ")
    assert "less time than on the first free hosts" in verdict
    assert "8 hosts of 24 free, beside 2 jobs" in verdict
    assert "give --out" in text and "hosts.openmpi-seq" not in text
    assert "--load 0.2" in text and len(text.splitlines()) <= 30


@pytest.mark.parametrize(
    ("cable", "says"),
    [
        ("leaf4[8]", "'leaf4[8]': has no rate"),
        ("leaf9[8]=1 Gb/s", "--slow-cable leaf9[8]: there is no node or switch 'leaf9'"),
        ("leaf4[8]=900 Gb/s", "not a slow rate of a cable of 100 Gb/s"),
    ],
)
def test_invalid_cables_are_refused(
    cable: str, says: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tailback(["advise", *files, "--slow-cable", cable]) == 2
    assert says in capsys.readouterr().err


def test_a_full_machine_is_reported(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.csv").write_text('job,start,end,hosts\n1,2026-01-02T00:00:00Z,,"n[00-43]"\n')
    assert tailback(["advise", *files]) == 2
    assert "4 hosts are free; the next job needs 8" in capsys.readouterr().err


def test_jobs_of_another_machine_are_refused(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[2]).write_text(JOBS.replace('"n[', '"gpu[').replace("n12", "gpu12"))
    assert tailback(["advise", *files]) == 2
    error = capsys.readouterr().err
    assert "has none of the hosts that the job list names: gpu00" in error and "n00" in error


@pytest.mark.parametrize(
    ("hosts", "place", "message"),
    [
        ('"n00,N00"', "line 3", "may both be 'n00' of the fabric"),
        ('"m[1-3]"', "line 2", "the network has none of the hosts that the job list names: m1"),
    ],
)
def test_bad_job_lists_are_named(
    hosts: str,
    place: str,
    message: str,
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = [
        "job,start,end,hosts",
        "1,2026-01-02T00:00:00Z,,n03",
        f"2,2026-01-02T00:00:00Z,,{hosts}",
    ]
    lines = lines if place == "line 3" else [lines[0], lines[2]]
    (tmp_path / "jobs.csv").write_text("\n".join(lines) + "\n")
    assert tailback(["advise", *files]) == 2
    error = capsys.readouterr().err
    assert f"jobs.csv: {place}" in error and message in error
