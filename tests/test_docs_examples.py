"""Every command the documentation shows is run, and every example scenario is valid.

``docs/how-to/development.md``, "Commands in the docs", says how a page has to be written for this.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tailback.cli import COMMANDS, cli
from tailback.cli import run as tailback
from tailback.scenario.model import load

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "studies").glob("*/README.md")),
]
SLOW_PAGES = {
    "README.md": "diagnoses the laboratory's run at length, docs/how-to/diagnose.md briefly",
    "docs/how-to/captures.md": "writes and reads the packets of a run",
    "docs/how-to/counters.md": "collects, analyses and draws counters",
    "docs/how-to/forecast.md": "searches placements by simulation",
    "docs/how-to/parallel.md": "starts workers",
    "docs/how-to/report.md": "searches all remedies",
    "docs/how-to/training.md": "diagnoses several training runs",
}
"""Pages whose commands take more than 5 s."""
FENCE = re.compile(r"^( *)(`{3,})(\S*)(.*)$")
EXIT = re.compile(r"\s+# exit (\d+)\s*$")
TIMEOUT_S = 300


@dataclass(frozen=True)
class Command:
    """One ``$`` line of a console block."""

    line: int
    text: str
    exit_code: int


def commands(page: str) -> list[Command]:
    """The commands of a page's console blocks, in order.

    A command ending in a backslash goes on in the next line; ``# exit N`` at its end says that it
    must fail with that code. A block opened with ``console no-run`` is not run.
    """
    found_commands: list[Command] = []
    fence = ""
    runs = False
    pending: tuple[int, str] | None = None
    for number, raw in enumerate(page.splitlines(), start=1):
        mark = FENCE.match(raw)
        if mark and (not fence or (mark[2] == fence and not mark[3])):
            fence = "" if fence else mark[2]
            runs = bool(fence) and mark[3] == "console" and "no-run" not in mark[4].split()
            continue
        if not runs:
            continue
        text = raw.strip()
        if pending is not None:
            pending = (pending[0], f"{pending[1]} {text}")
        elif text.startswith("$ "):
            pending = (number, text[2:])
        else:
            continue
        if pending[1].endswith("\\"):
            pending = (pending[0], pending[1][:-1].rstrip())
            continue
        stated = EXIT.search(pending[1])
        found_commands.append(
            Command(pending[0], EXIT.sub("", pending[1]), int(stated[1]) if stated else 0)
        )
        pending = None
    return found_commands


def make_targets() -> set[str]:
    """Targets that the Makefile defines."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {name for line in re.findall(r"^([a-z][a-z -]*):", text, re.M) for name in line.split()}


def run_here(command: Command, folder: Path) -> str:
    """Run one command in ``folder`` in this process; return what went wrong, or nothing."""
    _, *arguments = shlex.split(command.text)
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with pytest.MonkeyPatch.context() as here:
        here.setenv("COLUMNS", "100")
        here.setenv("NO_COLOR", "1")
        here.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = tailback(arguments)
    output = out.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    return problem(command, code, output)


def problem(command: Command, code: int, output: str) -> str:
    """What went wrong if a command ended with this code, or nothing."""
    if code == command.exit_code:
        return ""
    return f"exit code {code}, expected {command.exit_code}\n{output[-3000:]}"


def run_in_shell(command: Command, folder: Path) -> str:
    """Run one command in ``folder`` as a reader does; return what went wrong, or nothing."""
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    # A shell, as the reader has one: the pages are ours, and pipes and redirections are allowed.
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return problem(command, done.returncode, done.stdout)


def missing_data(command: Command) -> bool:
    """Whether the command reads public data sets that are not there."""
    return "shared/data/" in command.text and not DATA.is_dir()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            path,
            id=str(path.relative_to(ROOT)),
            marks=[pytest.mark.slow] * (str(path.relative_to(ROOT)) in SLOW_PAGES),
        )
        for path in PAGES
    ],
)
def test_commands_of_the_page_run(page: Path, tmp_path: Path) -> None:
    """The commands of one page, one after the other, as a reader would type them.

    What starts nothing but Tailback runs in this process, which has it loaded; those of the README
    run in a shell.
    """
    folder = tmp_path / "tailback"
    folder.mkdir()
    if (ROOT / "examples").is_dir():
        shutil.copytree(ROOT / "examples", folder / "examples")
    if DATA.is_dir():
        (tmp_path / "shared").symlink_to(DATA.parent)
    targets = make_targets()
    skipped = []
    for command in commands(page.read_text(encoding="utf-8")):
        place = f"{page.relative_to(ROOT)}:{command.line}: $ {command.text}"
        program, *arguments = shlex.split(command.text)
        if program == "make":
            unknown = {word for word in arguments if "=" not in word and word[0] != "-"} - targets
            assert not unknown, f"{place}\nthe Makefile has no target {', '.join(unknown)}"
        elif program == "tailback":
            if missing_data(command):
                skipped.append(place)
                continue
            plain = page.name != "README.md" and not set(command.text) & set("|<>&;$`*?")
            wrong = (run_here if plain else run_in_shell)(command, folder)
            assert not wrong, f"{place}\n{wrong}"
    if skipped:
        pytest.skip(f"the public data sets are not beside the checkout: {'; '.join(skipped)}")


def test_every_dependency_is_argued_for() -> None:
    """docs/reference/dependencies.md names each direct dependency: Python, Rust, npm and Debian."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    npm = json.loads((ROOT / "web" / "package.json").read_text(encoding="utf-8"))
    required = [*project["project"]["dependencies"]]
    for group in project["dependency-groups"].values():
        required += [entry for entry in group if isinstance(entry, str)]
    names = {re.split(r"[\s<>=!~;\[]", requirement)[0] for requirement in required}
    names |= {name for name in cargo["workspace"]["dependencies"] if "tailback" not in name}
    names |= {*npm.get("dependencies", {}), *npm.get("devDependencies", {})}
    script = (ROOT / "scripts" / "debian-packages.sh").read_text(encoding="utf-8")
    lists = "".join(re.findall(r"packages=\(([^)]*)\)", script))
    debian = re.sub(r"#.*", "", lists).split()
    assert "chromium" in debian
    names |= set(debian)
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text(encoding="utf-8")
    argued = {name for row in re.findall(r"^\| ([^|]*) \|", page, re.M) for name in row.split(", ")}
    assert names <= argued, f"dependencies.md does not name {', '.join(sorted(names - argued))}"


def command(name: str) -> click.Command:
    """A command of the command line."""
    subcommand = cli.get_command(click.Context(cli), name)
    assert subcommand is not None, name
    return subcommand


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_a_help_name_existing_things(name: str) -> None:
    """Files below examples/ exist, commands and options are known."""
    lines = [line.split() for line in (command(name).help or "").split("\n")]
    for words in (line for line in lines if line[:1] == ["tailback"]):
        called = command(words[1])
        if isinstance(called, click.Group):
            assert words[2] in called.commands, words
            called = called.commands[words[2]]
        options = {option for part in called.params for option in part.opts} | {"--"}
        assert {word for word in words if word.startswith("--")} <= options, words
        missing = [w for w in words if w.startswith("examples/") and not (ROOT / w).exists()]
        assert not missing, f"'tailback {name} --help' names {missing}"


LABS = ROOT / "examples" / "lab"
SCENARIOS = sorted(set((ROOT / "examples").glob("**/*.toml")) - set(LABS.glob("*.toml")))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: str(path.relative_to(ROOT)))
def test_example_scenario_is_valid(path: Path) -> None:
    """Each scenario under examples/ loads, and so does what it names."""
    scenario = load(path)
    for file in (scenario.fabric.file, *(job.trace for job in scenario.job)):
        assert file is None or file.exists() or "shared" in file.parts, f"{path} names {file}"


def test_the_reader_of_pages_sees_what_is_meant() -> None:
    """Continuations, expected exit codes, other blocks and ``no-run`` are told apart."""
    page = """\
```console
$ tailback list \\
    topology
output
$ tailback bad # exit 2
```
```sh
$ tailback not-run
```
```console no-run
$ tailback neither
```
````console
```
$ tailback nested
````
"""
    assert commands(page) == [
        Command(2, "tailback list topology", 0),
        Command(5, "tailback bad", 2),
        Command(15, "tailback nested", 0),
    ]


def test_a_command_that_ends_otherwise_is_reported(tmp_path: Path) -> None:
    """An unexpected exit code is a failure that shows the output."""
    assert not run_in_shell(Command(1, "exit 3", 3), tmp_path)
    wrong = run_in_shell(Command(1, "echo why; exit 3", 0), tmp_path)
    assert "exit code 3, expected 0\nwhy" in wrong
    assert not run_here(Command(1, "tailback list nothing", 2), tmp_path)
    wrong = run_here(Command(1, "tailback list nothing", 0), tmp_path)
    assert wrong.startswith("exit code 2, expected 0\n") and "'nothing'" in wrong
