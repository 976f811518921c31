"""The command line on uneven ground: odd paths, dead pipes, poor terminals."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import polars as pl
import pytest

from tailback.cli import COMMANDS, cli
from tailback.cli import run as tailback
from tailback.cli.text import command_lines, wrap
from tailback.io import atomic_exchange
from tailback.run.run import AtomicDirectory
from tailback.units import percent
from tests.factories.cli import process, refused, scenario
from tests.factories.repository import DEMO, ROOT
from tests.factories.unchecked_runs import without_manifest

MAIN = "from tailback.cli import main; main()"


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["diagnos"]])
def test_what_needs_no_command_loads_none(arguments: list[str]) -> None:
    look = (
        f"import sys; from tailback.cli import run; run({arguments!r}); "
        "print(sorted({'numpy', 'polars', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ended.stderr.endswith("[]\n"), ended.stderr


def test_commands_load_modules_when_they_use_them() -> None:
    """Statistics and plots take a second to load: most runs of these commands need neither."""
    look = (
        "import sys, tailback.cli.counters, tailback.cli.diagnose, tailback.cli.place; "
        "import tailback.cli.simulate; "
        "print({'matplotlib', 'scipy.optimize', 'scipy.special', 'scipy.stats'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


def test_a_package_registers_its_kind_at_once() -> None:
    # In a process of its own: here most of them have been imported.
    look = """
from importlib import import_module
from tailback.cli.lists import PACKAGES
from tailback.registry import kinds
seen = {}
for package in PACKAGES:
    import_module(package)
    now = {kind: registry.names() for kind, registry in kinds().items()}
    assert all(now[kind] == names for kind, names in seen.items()), (package, seen, now)
    seen = now
"""
    subprocess.run([sys.executable, "-c", look], check=True)


def test_list_of_a_kind_loads_only_that(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "tailback", "list", "placement"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert tailback(["list", "placement"]) == 0
    assert ended.stdout == capsys.readouterr().out and "tile" in ended.stdout
    assert "tailback.placement" in ended.stderr and "matplotlib" not in ended.stderr


def test_every_command_is_where_the_table_says() -> None:
    assert list(COMMANDS) == sorted(COMMANDS)
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None and command.name == name
    folder = Path(str(sys.modules[cli.__module__].__file__)).parent
    written = {path.stem for path in folder.glob("*.py") if "@click.command" in path.read_text()}
    assert {"lists" if name == "list" else name for name in COMMANDS} >= written


def test_a_run_in_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "a run"
    assert tailback(["simulate", str(scenario(tmp_path)), "--out", str(run)]) == 0
    assert f"NEXT  tailback report '{run}'" in capsys.readouterr().out
    monkeypatch.chdir(run)
    assert tailback(["report", "."]) == 0
    assert (tmp_path / "a run.html").is_file()
    capsys.readouterr()
    refused(capsys, ["report", "."], "a run.html", "already exists")
    refused(capsys, ["evolution", "nowhere"], "nowhere", "does not exist")
    # The figures of an earlier report are not written over, whatever the report is called.
    (tmp_path / "other-figures").mkdir()
    arguments = ["report", ".", "--out", tmp_path / "other.html", "--figures", "png"]
    refused(capsys, arguments, "other-figures", "already exists")


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    path, link, real = scenario(tmp_path), tmp_path / "link", tmp_path / "real"
    link.symlink_to("real")
    for force in ([], ["--force"]):
        assert tailback(["simulate", str(path), "--out", str(link), *force]) == 0
        assert link.is_symlink() and (real / "run.json").is_file()
    assert {file.name for file in tmp_path.iterdir()} == {"small.toml", "link", "real"}


def test_an_old_folder_returns_if_the_new_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with AtomicDirectory(out) as part:
        (part / "run.json").write_text("old")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if target == out and not self.name.endswith(atomic_exchange.OLD):
            raise PermissionError(13, "Permission denied", str(target))
        return rename(self, target)

    # A file system that cannot exchange two names in one step.
    monkeypatch.setattr(atomic_exchange, "_exchange", lambda _one, _other: False)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(Exception, match="Permission denied"), AtomicDirectory(out, force=True):
        pass
    assert (out / "run.json").read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_nowhere_to_print(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    with Path("/dev/full").open("w") as full:
        child = process(["simulate", path], stdout=full)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 2, err
    assert "No space left" in err and "remedy" in err and "Traceback" not in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        pytest.param(["list", "rule"], marks=pytest.mark.slow),
        ["list", "--format", "json"],
    ],
)
def test_a_reader_that_has_enough(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", MAIN, *arguments]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_reader_that_stops_keeps_the_verdict(form: str) -> None:
    """One look at counters is no rate: exit code 3, which a script may wait for."""
    sweep = ROOT / "examples" / "counters" / "leaf06-12h00.txt"
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tailback", "counters", str(sweep), "--format", form]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (3, b"")


def test_a_scenario_is_recognised_by_its_jobs(tmp_path: Path) -> None:
    path = scenario(tmp_path).rename(tmp_path / "small.scenario")
    assert tailback(["simulate", str(path), "--quiet"]) == 0


def test_mistakes_name_scenarios_of_any_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path, options="dims = [400, 4]").rename(tmp_path / "small")
    refused(capsys, ["simulate", path, "--quiet"], f"{path}: ", "--ranks-per-host")


def test_a_file_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scenario(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("tailback.scenario.model.tomllib.loads", fail)
    refused(capsys, ["simulate", path], "small.toml", "Input/output error", "remedy")


@pytest.mark.slow
def test_a_terminal_that_knows_latin_letters_alone(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = ["diagnose", path, "--out", tmp_path / "d", "--seeds", "1", "--method", "block"]
    ended = subprocess.run(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        capture_output=True,
        check=False,
        env={**os.environ, **poor, "PYTHONIOENCODING": "latin-1"},
    )
    assert ended.returncode in (0, 3), ended.stderr
    assert ended.stdout.startswith(b"FORECAST") and b"ideal" in ended.stdout
    assert b" \xb5s  ???" in ended.stdout, ended.stdout
    assert "→" in (tmp_path / "d" / "diagnosis.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["a" * 50, "a folder/" + "b" * 60])
def test_a_long_command_is_shown_whole(folder: str) -> None:
    command = f"mpirun -np 128 --rankfile {shlex.quote(f'{folder}/rankfile.openmpi')} ./app"
    shown = "\n".join(command_lines(command)).removeprefix("  $ ")
    assert shlex.split(shown.replace("\\\n", "")) == shlex.split(command)


def test_no_line_ends_before_a_per_cent_sign() -> None:
    text = " ".join(f"{'x' * long} takes {percent(0.24)}," for long in range(1, 40))
    lines = wrap(text)
    assert " ".join(line.strip() for line in lines) == text and max(map(len, lines)) <= 80
    assert len(lines) > 9 and not any(line.lstrip().startswith("%") for line in lines)


def test_a_missing_host_lists_no_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["place", DEMO / "demo.toml", "--hosts", "zzz", "--quiet"]
    refused(capsys, arguments, "no host 'zzz'", "'node001' to 'node128'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1]", "run format None"),
        ('{"format": 1, "summary": {}, "notes": []}', "lacks 'elapsed_ps'"),
        ('{"format": 1, "summary": 3, "notes": 4}', "is damaged"),
        ('{"format": 1, "summ', "damaged run directory"),
    ],
)
def test_a_damaged_run_says_what_to_do(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert tailback(["simulate", str(scenario(tmp_path)), "--out", str(run)]) == 0
    capsys.readouterr()
    (without_manifest(run) / "run.json").write_text(text)
    for command in (["report", run], ["compare", run, run], ["diagnose", run]):
        refused(capsys, command, "run", expected, "run the scenario again")


def test_a_scenarios_name_reaches_the_terminal_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path)
    path.write_text(path.read_text().replace('"small"', r'"a\u202E\u009B31m\nb"'))
    assert tailback(["simulate", str(path), "--quiet"]) == 0
    assert capsys.readouterr().out.startswith(r"RUN  a\x202e\x9b31m\x0ab" + "\n")


def test_counts_hold_no_formula_for_a_spreadsheet(tmp_path: Path) -> None:
    path = scenario(tmp_path)
    path.write_text(path.read_text() + '[telemetry]\nscheme = "compact"\n')
    run = tmp_path / "run"
    assert tailback(["simulate", str(path), "--out", str(run), "--quiet"]) == 0
    links = pl.read_parquet(without_manifest(run) / "links.parquet")
    hostile = links.with_columns(src_name=pl.lit("=HYPERLINK(1)"))
    hostile.write_parquet(run / "links.parquet")
    assert tailback(["export", "counts", str(run), str(tmp_path / "counts.csv")]) == 0
    ports = pl.read_csv(tmp_path / "counts.csv")["port"]
    assert ports.str.starts_with("'=HYPERLINK(1)").all()


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path, ranks = scenario(tmp_path), tmp_path / "ranks.txt"
    ranks.write_text("\n".join(f"n{rank:02d}" for rank in range(16)), encoding="utf-8-sig")
    path.write_text(path.read_text(), encoding="utf-8-sig")
    words = ["simulate", str(path), "--placement", str(ranks), "--quiet"]
    assert tailback(words) == 0


def test_a_run_fits_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tailback(["simulate", str(scenario(tmp_path)), "--model", "fluid", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "95 %" in shown and max(map(len, shown.splitlines())) <= 80


def test_a_limit_below_the_libraries_need_is_refused() -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (700_000 << 10, 700_000 << 10))

    child = process(["list"], preexec_fn=limit)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 2
    assert "ulimit -v: the limit on address space is" in err and "remedy:" in err


IMPORTING = """
import ctypes
import tailback.cli as cli

def load(name):
    print("importing", flush=True)
    while True:
        ctypes.PyDLL(None).pause()

cli.import_module = load
cli.main(["list"])
"""
"""A library whose initialisation holds Python's lock and does not end."""


def test_sigterm_ends_the_loading_of_libraries() -> None:
    child = process([], IMPORTING)
    assert child.stdout is not None and child.stdout.readline() == "importing\n"
    child.terminate()
    child.communicate(timeout=20)
    assert child.returncode == -signal.SIGTERM


def test_ports_read_once_leave_the_verdict_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second file was cut: the ports that stall are no longer in it."""
    first, second = (
        ROOT / "examples" / "counters" / f"leaf06-12h0{minute}.txt" for minute in (0, 1)
    )
    cut = tmp_path / "cut.txt"
    cut.write_text(second.read_text()[:1500])
    tailback(["counters", str(first), str(cut), "--every", "60 s"])
    out = " ".join(capsys.readouterr().out.split())
    assert out.startswith("VERDICT UNDETERMINED")
    assert "no rate of 15 other ports, read once at most" in out


def test_port_at_a_cut_is_not_called_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the file ends: in a number, after a field, or between two ports."""
    first, second = (
        ROOT / "examples" / "counters" / f"leaf06-12h0{minute}.txt" for minute in (0, 1)
    )
    fabric = str(ROOT / "examples" / "demo" / "fabric.ibnetdiscover")
    cut, text = tmp_path / "cut.txt", second.read_text()
    last = text.rindex("# Port")
    for length in (*range(last - 60, len(text), 23), len(text) - 1, len(text)):
        cut.write_text(text[:length])
        command = ["counters", str(first), str(cut), "--every", "60 s", "--fabric", fabric]
        # No port stalls for so much of its time.
        tailback([*command, "--threshold", "99"])
        out = " ".join(capsys.readouterr().out.split())
        if length == len(text):
            assert out.startswith("VERDICT LITTLE STALL none of 20 ports")
        elif length == last:
            assert out.startswith("VERDICT LITTLE STALL IN 19 OF 20 PORTS")
        else:
            assert out.startswith("VERDICT UNDETERMINED"), text[last:length]
            assert "other port" in out and "read once at most" in out
            assert "left out: 1 damaged port (cut.txt, line" in out
            assert "NEXT correct what was left out, or collect it again" in out
