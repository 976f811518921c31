"""What `tailback confirm` says of a recording with a remedy, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tailback as tb
from tailback.cli import run as tailback
from tests.factories.evidence_traces import Script, collective, receive, send
from tests.factories.otf2_traces import Build, writing

FABRIC = """
name = "small"
seed = 1
[fabric.fat_tree]
hosts_per_leaf = 4
leaves = 2
aggregation = 1
[[job]]
trace = "{trace}"
placement_file = "{ranks}"
"""

SIZE = 1 << 20
SPLIT, TOGETHER = (0, 4, 1, 5, 2, 6, 3, 7), tuple(range(8))
"""Hosts of the ranks: pairs on two leaves, and on the same."""


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


def scripts(exchange_us: int, turns: int = 30) -> list[Script]:
    """Eight ranks: 0.1 ms of computation, 1 MiB to the neighbour and back, a barrier; repeated."""
    out: list[Script] = [[] for _ in range(8)]
    now = 0
    for turn in range(turns):
        begin = now + 100_000
        # Repetitions differ by a few per cent.
        half = begin + (exchange_us + turn % 3) * 500
        end = 2 * half - begin
        for rank, script in enumerate(out):
            pair = rank ^ 1
            if rank % 2:
                script += receive(begin, half, source=pair, size=SIZE)
                script += send(half, end, to=pair, size=SIZE)
            else:
                script += send(begin, half, to=pair, size=SIZE)
                script += receive(half, end, source=pair, size=SIZE)
            script += collective(end, end + 5_000)
        now = end + 5_000
    return out


def diagnosed(folder: Path, trace: Path, hosts: tuple[int, ...]) -> Path:
    """The folder of a diagnosis of ranks on these hosts."""
    scenario, ranks = folder / f"{trace.name}.toml", folder / f"{trace.name}.csv"
    rows = [f"{rank},n{host}" for rank, host in enumerate(hosts)]
    ranks.write_text("\n".join(["rank,host", *rows]) + "\n")
    scenario.write_text(FABRIC.format(trace=trace, ranks=ranks))
    out = folder / f"diagnosis-{trace.name}"
    words = ["diagnose", str(scenario), "--out", str(out), "--seeds", "1", "--quiet"]
    assert tailback([*words, "--method", "block", "--remedy", "placement"]) in (0, 3)
    return out


@pytest.fixture
def before(write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A diagnosis whose remedy is another placement."""
    folder = diagnosed(tmp_path, write(scripts(700)), SPLIT)
    capsys.readouterr()
    return folder


def screen(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    """Exit code and lines of `tailback confirm`."""
    code = tailback(["confirm", *map(str, arguments)])
    out = capsys.readouterr().out.splitlines()
    assert len(out) <= 30 and all(len(line) <= 80 for line in out)
    return code, out


@pytest.mark.parametrize(
    ("exchange_us", "code", "outcome"),
    [
        (185, 0, "CONFIRMED"),
        pytest.param(600, 1, "REFUTED", marks=pytest.mark.slow),
        pytest.param(900, 1, "REFUTED", marks=pytest.mark.slow),
    ],
)
def test_exit_code_follows_the_outcome(
    before: Path,
    write: Build,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    exchange_us: int,
    code: int,
    outcome: str,
) -> None:
    after = diagnosed(tmp_path, write(scripts(exchange_us)), TOGETHER)
    capsys.readouterr()
    returned, lines = screen(capsys, before, after)
    assert returned == code and lines[0].startswith(f"{outcome}  The remedy is block.")
    bars = {line.split()[0]: line for line in lines if "█" in line}
    assert list(bars) == ["before", "predicted", "after"]
    longer = bars["after"].count("█") > bars["before"].count("█")
    assert longer == (exchange_us == 900) == ("is slower" in " ".join(lines))
    assert ("which agrees" in " ".join(lines)) == (code == 0)
    checked = tb.confirm(before, after)
    assert tailback(["confirm", str(before), str(after), "--format", "json"]) == code
    assert json.loads(capsys.readouterr().out) == checked.model_dump(mode="json")
    # The parts are all of the time.
    assert sum(part.before_ps for part in checked.parts) == checked.before_ps
    assert sum(part.after_ps for part in checked.parts) == checked.after_ps


@pytest.mark.slow
def test_run_on_the_same_hosts_is_undetermined(
    before: Path, write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = diagnosed(tmp_path, write(scripts(650)), SPLIT)
    capsys.readouterr()
    code, lines = screen(capsys, before, after)
    assert code == 3 and "Ranks were not placed as block says" in lines[0]


@pytest.mark.slow
def test_recordings_are_read_without_diagnosis(
    before: Path, write: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = [write(scripts(exchange)) for exchange in (160, 165)]
    code, lines = screen(capsys, before, *traces)
    assert code == 0 and "differences of 2 recordings" in " ".join(lines)
    short = write(scripts(160, turns=12))
    code, lines = screen(capsys, before, short)
    assert code == 3 and "different programs or inputs" in " ".join(lines)


def test_invalid_input_ends_with_two(
    before: Path, write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(scripts(160))
    assert tailback(["confirm", str(trace), str(trace)]) == 2
    assert "is no diagnosis" in capsys.readouterr().err
    assert tailback(["confirm", str(before), str(tmp_path / "missing")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert tailback(["confirm", str(before), str(trace), f"{trace}/."]) == 2
    assert "named twice" in capsys.readouterr().err
    file = before / "diagnosis.json"
    file.write_text(file.read_text().replace("placement", "pattern"))
    assert tailback(["confirm", str(before), str(trace)]) == 2
    assert "diagnosis.json" in capsys.readouterr().err
