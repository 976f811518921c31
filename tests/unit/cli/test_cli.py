"""The command line as a user meets it: results, exit codes, and every mistake explained."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tailback.cli.progress import Lines
from tailback.run.run import Run
from tailback.run.schema import TABLES
from tests.factories.cli import process, refused, scenario, simulated
from tests.factories.otf2_traces import call, writing
from tests.factories.public_data import real
from tests.factories.repository import DEMO

SIMULATING = """
import sys
from tailback.cli import main
from tailback.cli.progress import Meter
watch = Meter.watch
def told(meter, *how_far):
    Meter.watch = watch
    print('simulating', file=sys.stderr, flush=True)
    watch(meter, *how_far)
Meter.watch = told
main()
"""


@dataclass(frozen=True)
class Diagnosed:
    """A diagnosis: the folder it was made in, the one that was written there, what was printed."""

    place: Path
    folder: Path
    screen: str


@pytest.fixture(scope="module")
def diagnosed_demo(tmp_path_factory: pytest.TempPathFactory) -> Diagnosed:
    """The demo, diagnosed once, into the folder that it gets by default."""
    place = tmp_path_factory.mktemp("cli")
    with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()) as screen:
        assert tailback(["diagnose", str(DEMO / "demo.toml"), "--seeds", "2"]) == 0
    return Diagnosed(place, place / "tailback-demo", screen.getvalue())


@pytest.fixture
def demo(diagnosed_demo: Diagnosed) -> Path:
    """The folder of the diagnosed demo."""
    return diagnosed_demo.folder


def test_the_demo_finds_and_improves_the_placement(demo: Path) -> None:
    diagnosis = json.loads((demo / "diagnosis.json").read_text())
    assert diagnosis["cause"] == "placement"
    assert diagnosis["remedy"]["gain"] > 0.1
    assert diagnosis["remedy"]["after_ps"] < diagnosis["remedy"]["before_ps"]
    for name in diagnosis["remedy"]["files"]:
        assert (demo / name).stat().st_size > 0
    assert (demo / "rankfile.openmpi").read_text().count("rank ") >= 128
    assert "<html" in (demo / "report.html").read_text()


def test_text_fits_eighty_columns_and_one_screen(diagnosed_demo: Diagnosed) -> None:
    lines = diagnosed_demo.screen.splitlines()
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    # What is to be typed can be typed where one is.
    (start,) = (at for at, line in enumerate(lines) if line.startswith("  $ "))
    end = next(at for at in range(start, len(lines)) if not lines[at].endswith("\\"))
    command = " ".join(line.rstrip("\\").strip() for line in lines[start : end + 1])
    assert "--map-by seq --bind-to none --hostfile tailback-demo/hosts.openmpi-seq" in command
    assert (diagnosed_demo.place / "tailback-demo/hosts.openmpi-seq").is_file()
    # Who has another launcher learns that there is a file for it.
    named = " ".join(lines[end + 1 :])
    assert "for openmpi, slurm, mpich, cray: same folder, commands in the report" in named
    assert len(lines) <= 30
    assert lines[0].startswith("FORECAST ") and "VERDICT  PLACEMENT, " in lines[2]


@pytest.mark.slow
def test_a_remedy_without_rank_file_says_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DEMO / "fabric.ibnetdiscover").read_text()
    name = "MT4119 ConnectX5   Mellanox Technologies at row 7, rack"
    text = re.sub(r'"node(\d+) mlx5_0"', rf'"{name} \1"', text) + "some other words\n"
    Path("fabric.txt").write_text(text)
    words = ["diagnose", str(DEMO / "trace"), "--fabric", "fabric.txt", "--compute-scale", "0.3"]
    assert tailback([*words, "--quiet", "--seeds", "1", "--method", "tile"]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert "Use placement tile" in screen
    assert f"note: no rank file: host '{' '.join(name.split())} 001" in screen


def test_json_is_the_diagnosis(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, drawn = scenario(tmp_path), list[Path]()
    monkeypatch.setattr(
        "tailback.api.diagnose.export_figures",
        lambda _run, _diagnosis, folder, forms, **_: drawn.append(folder / forms[0]),
    )
    arguments = ["diagnose", str(path), "--out", str(tmp_path / "d"), "--format", "json"]
    assert tailback([*arguments, "--seeds", "1", "--remedy", "placement", "--figures", "svg"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "d" / "diagnosis.json").read_text())
    assert [path.parts[-2:] for path in drawn] == [("figures", "svg")]


def test_compare_and_report_read_what_diagnose_wrote(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tailback(["compare", str(demo / "run"), str(demo / "after"), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["elapsed_ps"][1] < facts["elapsed_ps"][0]
    assert facts["links"] and facts["tiers"]
    assert tailback(["compare", str(demo / "run"), str(demo / "after")]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    out = tmp_path / "again.html"
    assert tailback(["report", str(demo), "--out", str(out)]) == 0
    assert out.read_bytes() == (demo / "report.html").read_bytes()


def test_a_bare_run_has_report_and_figures(tmp_path: Path) -> None:
    run = simulated(tmp_path, 'scheme = "full"')
    assert tailback(["report", str(run), "--figures", "png"]) == 0
    assert (tmp_path / "run.html").stat().st_size > 10_000
    assert list((tmp_path / "run-figures").glob("*.png"))


def test_a_run_repeats_bit_for_bit(tmp_path: Path) -> None:
    path = scenario(tmp_path, "uniform", 'ranks = 16, messages = 20, size = "16 KiB"')
    for name, threads in (("a", "1"), ("b", "3")):
        arguments = ["simulate", str(path), "--out", str(tmp_path / name), "--threads", threads]
        assert tailback(arguments) == 0
    names = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert len(names) == len(TABLES) + 4
    for name in names:
        if name not in ("performance.json", "manifest.json"):
            first, second = ((tmp_path / run / name).read_bytes() for run in ("a", "b"))
            assert first == second, name


def test_a_trace_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", str(DEMO / "trace"), "--fabric", str(DEMO / "fabric.ibnetdiscover")]
    assert tailback([*arguments, "--placement", "tile", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] > 9000


def test_what_a_trace_lacks_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else a run without its messages looks like a run without messages."""
    trace = writing(tmp_path)([call("MPI_Sendrecv", 1), call("MPI_Sendrecv", 1)])
    assert tailback(["simulate", str(trace), "--fabric", "tapered", "--quiet"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "note: 2 calls of MPI_Sendrecv left no message record" in out


def test_unrecorded_messages_are_no_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counters would show them as traffic of other jobs."""
    trace = writing(tmp_path)([call("MPI_Sendrecv", 1), call("MPI_Sendrecv", 1)])
    arguments = ["diagnose", str(trace), "--fabric", "tapered", "--quiet", "--out"]
    assert tailback([*arguments, str(tmp_path / "measured")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "the messages of 2 of MPI_Sendrecv are not recorded" in error
    assert "record with tailback record or Score-P" in error
    assert tailback([*arguments, str(tmp_path / "forecast"), "--forecast"]) == 0


def test_place_writes_rank_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ranks"
    path = scenario(tmp_path)
    arguments = ["place", str(path), "--method", "tile", "--method", "block", "--out", str(out)]
    assert tailback(arguments) == 0
    assert {"rankfile.openmpi", "hosts.slurm", "hosts.openmpi-seq", "MPICH_RANK_ORDER"} <= {
        file.name for file in out.iterdir()
    }
    assert "BEST  tile" in capsys.readouterr().out


def test_place_weighs_by_packets(capsys: pytest.CaptureFixture[str]) -> None:
    """As the run does, whose sums of eight bytes hardly count beside its faces."""
    demo = str(DEMO / "demo.toml")
    assert tailback(["place", demo, "--format", "json", "--quiet"]) == 0
    placements = json.loads(capsys.readouterr().out)["placements"]
    length = {row["placement"]: row["path_length"] for row in placements}
    assert max(length, key=length.__getitem__) == "block"
    for placement, expected in (("block", 2.569), ("tile", 1.323)):
        arguments = ["simulate", demo, "--placement", placement, "--format", "json", "--quiet"]
        assert tailback(arguments) == 0
        simulated = json.loads(capsys.readouterr().out)["average_path_length"]
        assert length[placement] == pytest.approx(simulated, rel=1e-9)
        assert simulated == pytest.approx(expected, abs=5e-4)


def test_place_judges_hosts_without_usable_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = tmp_path / "fabric.txt"
    text = (DEMO / "fabric.ibnetdiscover").read_text()
    fabric.write_text(re.sub(r"node(\d+) mlx5_0", r"some host \1", text))
    words = ["place", str(scenario(tmp_path)), "--fabric", str(fabric), "--method", "block"]
    words += ["--format", "json"]
    assert tailback([*words, "--simulate"]) == 0
    captured = capsys.readouterr()
    ranking = json.loads(captured.out)
    assert ranking["placements"] and ranking["commands"] == {}
    assert "no rank file: host 'some host" in captured.err
    # Where the files are wanted, that is known before anything is simulated.
    monkeypatch.setattr("tailback.api.place.make_evaluate", lambda *_: pytest.fail("simulated"))
    refused(capsys, [*words, "--simulate", "--out", tmp_path / "ranks"], "some host")


def test_place_judges_the_file_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = tmp_path / "ranks.txt"
    hosts = [f"n{4 * (rank % 4) + rank // 4:02d}" for rank in range(16)]
    ranks.write_text("\n".join(hosts))
    words = ["place", str(scenario(tmp_path)), "--format", "json"]
    for more in (["--placement", ranks], ["--placement", ranks, "--method", "file"]):
        assert tailback([*words, *map(str, more)]) == 0
        ranking = json.loads(capsys.readouterr().out)
        assert "file" in [row["placement"] for row in ranking["placements"]]
    refused(capsys, [*words, "--method", "file"], "--placement FILE")


def test_place_says_which_method_fits_no_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ring.toml"
    job = (
        '[fabric]\npreset = "tapered"\n[[job]]\nplacement = "tile"\n{}\n'
        'pattern = {{ kind = "uniform", ranks = 64, size = "8 B" }}\n'
    )
    path.write_text(job.format("").replace('"tile"', '"block"'))
    words: list[str | Path] = ["place", path, "--method", "tile", "--quiet"]
    refused(capsys, words, f"{path}: --method tile: ", "placement_options = { grid =")
    # What the remedy says can be done.
    path.write_text(job.format("placement_options = { grid = [8, 8] }"))
    assert tailback([str(word) for word in words]) == 0


def test_list_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert tailback(["list", "--format", "json"]) == 0
    kinds = json.loads(capsys.readouterr().out)
    assert {"pattern", "placement", "reader", "rule", "figure", "fabric", "table"} <= set(kinds)
    for kind in kinds:
        assert tailback(["list", kind, "--format", "json"]) == 0
        listed = json.loads(capsys.readouterr().out).values()
        summaries = [row["summary"] if isinstance(row, dict) else row for row in listed]
        assert tailback(["list", kind]) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= 80
        text = " ".join(shown.split())
        assert [summary for summary in summaries if summary not in text] == []


# --- mistakes --------------------------------------------------------------------------------


def test_unknown_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert tailback(["diagnos"]) == 2
    assert "did you mean 'diagnose'?" in capsys.readouterr().err
    refused(capsys, ["list", "paterns"], "did you mean 'pattern'?")
    refused(capsys, ["simulate", tmp_path / "nothing.toml"], "nothing.toml", "does not exist")
    path = scenario(tmp_path, "stencil2")
    refused(capsys, ["simulate", path], "stencil2", "did you mean 'stencil2d'?")
    for command in ("report", "compare"):
        paths = [tmp_path / "nothing"] * (2 if command == "compare" else 1)
        refused(capsys, [command, *paths], "nothing: does not exist", "check the path")
    trace = [DEMO / "trace", "--fabric", "tappered"]
    refused(capsys, ["simulate", *trace], "'tappered' is neither", "preset: full, tapered")


def test_scenario_with_wrong_unit_key_or_syntax(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = scenario(tmp_path)
    text = path.read_text()
    path.write_text(text + '[engine]\nbuffer = "64 GHz"\n')
    refused(capsys, ["simulate", path], "small.toml", "[engine] buffer", "'64 GHz'", "KiB")
    path.write_text(text + "[engine]\nbuffer = 64\n")
    refused(capsys, ["simulate", path], "[engine] buffer", "64 has no unit")
    path.write_text(text + '[engine]\nbufer = "64 KiB"\n')
    refused(capsys, ["simulate", path], "[engine] bufer", "did you mean 'buffer'?")
    path.write_text(text + '[engine]\nbuffer = "1 KiB"\n')
    refused(capsys, ["simulate", path], "buffer", "less than a packet with its header")
    path.write_text("[fabric\n")
    refused(capsys, ["simulate", path], "small.toml", "not valid TOML")
    path.write_bytes(b"\xff\xfe\x00")
    refused(capsys, ["simulate", path], "not a text file")


def test_a_trace_with_more_ranks_than_hosts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = scenario(tmp_path, options="dims = [8, 8]")
    refused(
        capsys,
        ["diagnose", path, "--out", tmp_path / "d"],
        "job 'app'",
        "job has 64 ranks",
        "16 slots",
        "--ranks-per-host",
    )
    assert not (tmp_path / "d").exists()


def test_a_fabric_that_is_not_connected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # Without its cables to the spines every leaf is an island.
    text = (DEMO / "fabric.ibnetdiscover").read_text()
    cut = re.sub(r'^\[\d+\]\t"S-.*\n', "", text, flags=re.MULTILINE)
    file = tmp_path / "cut.ibnetdiscover"
    file.write_text(cut)
    refused(
        capsys,
        ["diagnose", DEMO / "trace", "--fabric", file, "--out", tmp_path / "d"],
        "cut.ibnetdiscover",
        "from switch 'leaf01' to switch",
        "not connected",
        "remedy",
    )
    assert not (tmp_path / "d").exists()


def test_a_fabric_file_that_is_something_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, content in {
        "page.html": b"<html><body>hello</body></html>",
        "image.png": b"\x89PNG\r\n\x1a\n\x00\x00",
        "empty.txt": b"",
        "notes.txt": b"these are notes, not a network\n",
    }.items():
        file = tmp_path / name
        file.write_bytes(content)
        refused(capsys, ["diagnose", DEMO / "trace", "--fabric", file], name, "remedy")


def test_a_trace_without_a_fabric(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, ["diagnose", DEMO / "trace"], "needs a network", "--fabric", "tapered")


def test_a_truncated_and_a_corrupted_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for damage in ("truncated", "corrupted"):
        trace = tmp_path / damage
        shutil.copytree(DEMO / "trace", trace)
        victim = sorted(trace.rglob("*.evt"))[3]
        data = bytearray(victim.read_bytes())
        if damage == "truncated":
            data = data[: len(data) // 2]
        else:
            data[len(data) // 3 : len(data) // 3 + 64] = os.urandom(64)
        victim.write_bytes(data)
        out = tmp_path / f"{damage}-out"
        arguments = ["diagnose", trace, "--fabric", DEMO / "fabric.ibnetdiscover", "--out", out]
        if damage == "truncated":
            refused(capsys, arguments, victim.name, "remedy")
        else:
            # Random bytes may happen to read as records; then ranks cannot match, or it still runs.
            assert tailback([*map(str, arguments), "--seeds", "1"]) in (0, 2, 3)
            assert "Traceback" not in capsys.readouterr().err


def test_nothing_is_overwritten_without_force(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, out = scenario(tmp_path), tmp_path / "run"
    assert tailback(["simulate", str(path), "--out", str(out)]) == 0
    before = (out / "run.json").stat().st_mtime_ns
    capsys.readouterr()
    refused(capsys, ["simulate", path, "--out", out], "already exists", "--force")
    assert (out / "run.json").stat().st_mtime_ns == before
    assert tailback(["simulate", str(path), "--out", str(out), "--force"]) == 0
    capsys.readouterr()
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    refused(capsys, ["simulate", path, "--out", foreign, "--force"], "did not write")
    assert (foreign / "thesis.tex").read_text() == "precious"


def test_a_folder_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    path = scenario(tmp_path)
    refused(
        capsys,
        ["simulate", path, "--out", tmp_path / "file" / "run"],
        "cannot write",
        "another folder",
    )
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        refused(capsys, ["simulate", path, "--out", locked / "run"], "Permission denied")


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    # A limit on the size of files makes every larger write fail, as a full disk does.
    path = scenario(tmp_path, "uniform", 'ranks = 16, messages = 200, size = "16 KiB"')

    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    there = set(tmp_path.iterdir())
    child = process(["simulate", path, "--out", tmp_path / "run"], preexec_fn=limit)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 2, err
    assert "could not be written" in err and "Traceback" not in err
    assert set(tmp_path.iterdir()) == there
    child = process(["diagnose", path, "--out", tmp_path / "d", "--seeds", "1"], preexec_fn=limit)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 2, err
    assert f"{tmp_path / 'd'}" in err and f"{tmp_path / '.d'}" not in err, err
    assert set(tmp_path.iterdir()) == there


def test_signals_end_a_command_cleanly(tmp_path: Path) -> None:
    path = scenario(tmp_path, "uniform", 'ranks = 16, messages = 20000, size = "1 MiB"')
    there = set(tmp_path.iterdir())
    for command, number, says in (
        ("diagnose", signal.SIGTERM, "interrupted"),
        ("simulate", signal.SIGINT, "INTERRUPTED"),
    ):
        child = process([command, path, "--out", tmp_path / "run"], SIMULATING)
        assert child.stderr is not None and child.stderr.readline() == "simulating\n"
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 130, err
        assert says in err and "nothing was written" not in err and "Traceback" not in err
        if command == "diagnose":
            assert set(tmp_path.iterdir()) == there
    # What there is of a single run is kept, and says so.
    run = Run.read(tmp_path / "run")
    assert not run.complete
    messages = run.tables["messages"]
    assert 0 < messages["arrival_ps"].null_count() < messages.height


DEAF = """
import hashlib, os, sys, threading
from tailback.cli.interrupt import end_on_signals
from tailback.io.folders import AtomicDirectory
end_on_signals()
with AtomicDirectory(sys.argv[1]) as folder:
    (folder / "table").write_text("half")
    threading.Timer(0.2, os.kill, (os.getpid(), int(sys.argv[2]))).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
"""Minutes in one call of compiled code, which lets other threads run; soon, a signal."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_deaf_compiled_code(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", DEAF, tmp_path / "run", str(int(number))]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (130, "tailback: error: interrupted\n")
    assert not list(tmp_path.iterdir())


def test_hostile_names_reach_the_terminal_as_text(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (DEMO / "fabric.ibnetdiscover").read_text().replace('"leaf01"', '"\x1b[31m<b>leaf01"')
    file = tmp_path / "hostile.ibnetdiscover"
    file.write_text(text)
    arguments = ["diagnose", str(DEMO / "trace"), "--fabric", str(file), "--seeds", "1"]
    arguments += ["--remedy", "placement"]
    assert tailback([*arguments, "--out", str(tmp_path / "d")]) in (0, 2, 3)
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    "trace", ["tracer-otf2-stencil4d/examples/stencil4d-otf/traces-64", "eztrace-stencil64"]
)
def test_real_traces_on_the_real_selene_fabric(
    trace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    fabric = real("selene/selene.compute.txt")
    out = Path("d")
    arguments = ["diagnose", str(real(trace)), "--fabric", str(fabric), "--out", str(out)]
    assert tailback([*arguments, "--seeds", "1", "--method", "metis"]) in (0, 3)
    diagnosis = json.loads((out / "diagnosis.json").read_text())
    assert diagnosis["sampling"]["packets"] > 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_long_steps_are_said_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter([0.0, 4.0, 11.0, 15.0, 30.0])
    monkeypatch.setattr("tailback.cli.progress.time.monotonic", lambda: next(seconds))
    lines = Lines()
    for share in (0.0, 0.25, 0.5, 0.75):
        lines.step("searching", share)
    assert capsys.readouterr().err.splitlines() == [
        "11 s: searching, 25%, about 21 s left of this",
        "30 s: searching, 75%, about 9 s left of this",
    ]
