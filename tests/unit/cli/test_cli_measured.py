"""What `tailback diagnose` says of a trace that recorded times: the measured run comes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tailback as tb
from tailback.cli import run as tailback
from tailback.diagnosis.model import Diagnosis
from tailback.errors import TailbackError
from tailback.inference.measured_run import agreement
from tailback.recorder.archive import PROCESSOR_TIME
from tailback.units import format_time
from tests.factories.evidence_traces import Script, collective, receive, send, stretched
from tests.factories.otf2_traces import Build, writing
from tests.factories.public_data import real
from tests.factories.repository import ROOT

FABRIC = """
name = "small"
seed = 1
[fabric.fat_tree]
hosts_per_leaf = 2
leaves = 2
aggregation = 2
[[job]]
trace = "{trace}"
{keys}
"""


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


def scripts(receives_ns: int = 100_000, turns: int = 3) -> list[Script]:
    """Four ranks: 0.1 ms of computation, 64 KiB to the neighbour, a barrier; repeated."""
    out: list[Script] = [[] for _ in range(4)]
    for turn in range(turns):
        time = turn * (200_000 + receives_ns)
        for rank, script in enumerate(out):
            pair, begin = rank ^ 1, time + 100_000
            half = begin + receives_ns // 2
            size = 1 << 16
            if rank % 2:
                script += [
                    *receive(begin, half, source=pair, size=size),
                    *send(half, begin + receives_ns, to=pair, size=size),
                ]
            else:
                script += [
                    *send(begin, half, to=pair, size=size),
                    *receive(half, begin + receives_ns, source=pair, size=size),
                ]
            script += collective(begin + receives_ns, begin + receives_ns + 5_000)
    return out


def diagnosed(
    folder: Path, trace: Path, capsys: pytest.CaptureFixture[str], keys: str = "", *options: str
) -> tuple[Diagnosis, str, Path]:
    """The diagnosis of a trace as JSON and as the screen says it, and its folder."""
    scenario = folder / "small.toml"
    scenario.write_text(FABRIC.format(trace=trace, keys=keys))
    out = folder / f"out-{trace.name}{len(keys)}"
    arguments = [
        "diagnose",
        str(scenario),
        "--out",
        str(out),
        "--seeds",
        "1",
        "--quiet",
        "-v",
        *options,
    ]
    code = tailback([*arguments, "--method", "block", "--remedy", "placement"])
    captured = capsys.readouterr()
    assert code in (0, 3), captured.err
    return Diagnosis.model_validate_json((out / "diagnosis.json").read_bytes()), captured.out, out


def test_calls_that_last_longer_give_another_diagnosis(
    write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, fast_screen, folder = diagnosed(tmp_path, write(scripts()), capsys)
    slow, slow_screen, _ = diagnosed(tmp_path, write(scripts(10_000_000)), capsys)
    five = [stretched(script, 5) for script in scripts()]
    longer, longer_screen, _ = diagnosed(tmp_path, write(five), capsys)
    # Enter of the first send to leave of the last barrier, by hand.
    assert fast.elapsed_ps == (2 * 300_000 + 105_000) * 1_000
    assert slow.elapsed_ps == (2 * 10_200_000 + 10_005_000) * 1_000
    assert fast_screen.startswith("MEASURED  705 µs on 4 ranks")
    assert slow_screen.startswith("MEASURED  30.41 ms on 4 ranks")
    # With computation and calls five times as long, the screen says so.
    assert longer.elapsed_ps == 5 * fast.elapsed_ps
    assert longer_screen.startswith("MEASURED  3.525 ms on 4 ranks")
    # The model knows nothing of how long calls lasted.
    assert fast.expected_ps == slow.expected_ps
    assert slow.not_explained_ps == slow.elapsed_ps - slow.modelled_ps
    assert slow.measured is not None and slow.measured.part("transfer") > 29 * 10**9
    # It explains little of the slow run: it cannot be sure of its cause.
    assert slow.confidence <= slow.modelled_ps / slow.elapsed_ps + 1e-9
    assert (slow.cause, slow.confidence) == ("undetermined", 0.0)
    assert slow.explanation is not None and fast.explanation is not None
    unexplained = [
        diagnosis.explanation.not_explained_ps / diagnosis.elapsed_ps for diagnosis in (fast, slow)
    ]
    assert unexplained[0] < 0.4 and unexplained[1] > 0.98
    assert "is not explained by any cause with evidence" in slow_screen
    tables = {file.stem for file in (folder / "measured").iterdir()}
    assert tables == {"calls", "transfers", "collectives", "waits", "split", "hosts", "steps"}
    calls = pl.read_parquet(folder / "measured" / "calls.parquet")
    assert set(calls["source"].to_list()) == {"measured"}
    assert calls.height == 4 * 3 * 3


def shared(trace: Path, cores: str) -> Path:
    """The trace as a recording on one host, whose four ranks may use these cores."""
    rows = [f'{rank},a,"{cores}"' for rank in range(4)]
    (trace / "rank_host.csv").write_text("\n".join(["rank,host,cores", *rows]) + "\n")
    (trace / "recording.json").write_text("{}\n")
    return trace


def with_processor_time(script: Script, ns: int) -> Script:
    """The script with this processor time before each call."""
    return [(*event, {"value": ns}) if event[1] == "enter" else event for event in script]


@pytest.mark.parametrize(
    ("recorded", "keys", "options", "alone", "reason"),
    [
        ("", "compute_scale = 0.5", (), False, "not compared with the forecast"),
        ("", "compute_scale = 1.0", (), False, "not compared with the forecast"),
        ("", "compute_scale = 0.0", (), True, "not compared with the forecast"),
        ("", "repeat = 2", (), False, "not compared with the forecast"),
        ("", "", ("--forecast",), False, "not compared with the forecast"),
        ("shared", "", (), True, "4 ranks share 2 cores on a: its times"),
        ("shared", "compute_scale = 0.5", (), False, "4 ranks share 2 cores on a: its times"),
        ("processor", "", (), False, "computation is their processor time"),
        ("processor", "", ("--forecast",), False, "computation is their processor time"),
    ],
)
def test_forecast_never_shows_recorded_beside_expected_times(
    write: Build,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    recorded: str,
    keys: str,
    options: tuple[str, ...],
    alone: bool,
    reason: str,
) -> None:
    texts, attribute = scripts(10_000_000), {}
    if recorded == "processor":
        attribute = {"attribute": PROCESSOR_TIME, "attribute_type": "UINT64"}
        texts = [with_processor_time(script, 40_000) for script in texts]
    trace = write(texts, **attribute)
    if recorded:
        shared(trace, "0-1")
    diagnosis, screen, folder = diagnosed(tmp_path, trace, capsys, keys, *options)
    assert screen.startswith(
        f"FORECAST  {format_time(diagnosis.elapsed_ps)} on fat tree, 4 ranks, "
    )
    assert diagnosis.forecast is not None and diagnosis.forecast.communication_alone == alone
    assert diagnosis.measured is None and diagnosis.not_explained_ps is None
    assert diagnosis.elapsed_ps == diagnosis.expected_ps
    page = " ".join((folder / "report.html").read_text().split())
    assert f"Forecast {diagnosis.forecast}</dt><dd>{format_time(diagnosis.elapsed_ps)}</dd>" in page
    (line,) = [note for note in diagnosis.warnings if note.startswith("recording: ")]
    text = " ".join(screen.split())
    assert reason in line and line in text
    assert not any(word in screen for word in ("MEASURED", "times what", "model expects"))
    assert not (folder / "measured").exists()
    unknown = recorded == "shared" and not keys
    assert ("computation is unknown" in text) == unknown
    assert ("of the communication time" in screen) <= alone
    # By hand: the first two barriers are followed by 195 µs, or by that processor time. Each of
    # three turns moves 64 KiB twice at 100 Gb/s, and takes less than 20 µs.
    computed, turns = 2 * (40 if recorded == "processor" else 195), 6 if "repeat" in keys else 3
    scale = 0.0 if alone else 0.5 if "0.5" in keys else turns / 3
    assert computed * scale < diagnosis.elapsed_ps / 1e6 < computed * scale + 20 * turns


def test_shared_cores_exclude_evidence_of_a_measured_run(
    write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = shared(write(scripts()), "0-1")
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job,start,end,hosts\n")
    code = tailback(["diagnose", str(trace), "--fabric", "tapered", "--jobs", str(jobs)])
    error = capsys.readouterr().err
    assert code == 2 and "--jobs" in error and "4 ranks share 2 cores on a" in error
    assert "one core per rank" in error


def test_ranks_with_cores_of_their_own_are_measured(
    write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosis, screen, _ = diagnosed(tmp_path, shared(write(scripts()), "0-3"), capsys)
    assert screen.startswith("MEASURED") and diagnosis.forecast is None


def test_nothing_is_measured_without_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "pattern.toml"
    pattern = 'pattern = {kind = "ring", ranks = 4, size = "64 KiB"}'
    scenario.write_text(FABRIC.replace('trace = "{trace}"\n{keys}', pattern))
    out = tmp_path / "out"
    code = tailback(["diagnose", str(scenario), "--out", str(out), "--seeds", "1", "--quiet"])
    screen = capsys.readouterr()
    assert code in (0, 3), screen.err
    assert "MEASURED" not in screen.out
    diagnosis: dict[str, Any] = json.loads((out / "diagnosis.json").read_text())
    assert diagnosis["measured"] is None and diagnosis["not_explained_ps"] is None
    assert diagnosis["elapsed_ps"] == diagnosis["expected_ps"]
    assert not (out / "measured").exists()


@pytest.mark.data
def test_equal_messages_with_other_times_are_distinguished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tailback.evidence import measure

    parts = [
        measure(real(f"repro/stretched/{name}"), environment={}).measured
        for name in ("fast", "slow")
    ]
    # Five receives of 0.1 ms and of 10 ms.
    assert [round(split.part("transfer") / 1e9, 1) for split in parts] == [0.5, 50.0]
    assert parts[0].part("computation") == parts[1].part("computation")


def test_agreement_is_complete_within_the_clock_error(write: Build) -> None:
    from tailback.evidence import measure

    measured = measure(write(scripts()), environment={}).measured
    wide = measured.model_copy(update={"low_ps": 600_000_000, "high_ps": 800_000_000})
    assert agreement(650_000_000, wide) == 1.0
    assert agreement(300_000_000, wide) == pytest.approx(0.5)
    assert agreement(1_600_000_000, wide) == pytest.approx(0.5)


def test_comparisons_with_skipped_steps_say_what_is_missing(
    write: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(scripts(turns=60))
    keys = '[engine]\nrouting = "deterministic"\nskip_repeats = {}'
    _, complete, _ = diagnosed(tmp_path, trace, capsys, keys.format("false"))
    diagnosis, screen, _ = diagnosed(tmp_path, trace, capsys, keys.format("true"))
    assert any(note.startswith("skipped: 50 of the 62 steps") for note in diagnosis.warnings), (
        diagnosis.warnings
    )
    remark = "single calls and sends of the measured run are not compared with the simulated one"
    assert remark in " ".join(screen.split())
    assert remark not in " ".join(complete.split())


@pytest.mark.slow
def test_a_folder_of_the_lab_can_be_forecast() -> None:
    """Its own counters are no evidence of a forecast; those that a user gives are refused."""
    folder = ROOT / "examples" / "lab" / "slow-cable"
    only = {"methods": ["block"], "remedies": ["placement"], "seeds": 1}
    diagnosis = tb.diagnose(folder, forecast=True, **only)
    assert diagnosis.forecast is not None and diagnosis.measured is None
    with pytest.raises(TailbackError, match="counters=: needs a measured run"):
        tb.diagnose(folder, forecast=True, counters=[folder / "counters.csv.gz"], **only)
