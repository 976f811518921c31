"""Lists the studies with what each reproduces, and makes their tables again.

    python -m studies                     every study, and tables whose inputs changed
    python -m studies make                make tables again whose inputs or product changed
    python -m studies make --quick        only the quick ones, in a copy: what differs
    python -m studies mark                mark tables whose inputs changed, of benchmarks, too,
                                          and their numbers in the index

Each table is recorded when it is written (``measuring.records``), so ``make`` can be stopped and
started again: it runs only the commands of tables that are not current.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import cpu_seconds
from measuring.records import (
    ROOT,
    Record,
    mark_tables,
    read_records,
    recorded_tables,
    table_text,
)

HERE = Path(__file__).resolve().parent
INDEX = "python -m studies.published.index --write"
"""Made last: it reads the other tables."""

QUICK_SECONDS = 20.0
"""Most processor time of a command of the quick sample."""

COPIED = ("studies", "measuring", "bench", "docs", "examples", "scripts")
"""What a study reads and writes."""

Records = dict[str, Record]


def studies() -> dict[str, str]:
    """First line of the docstring of every study that can be run, by the name to run it by."""
    summaries = {}
    for path in sorted(HERE.glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text:
            name = f"studies.{path.parent.name}.{path.stem}"
            summaries[name] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return summaries


def study_records() -> Records:
    """Records of the commands of studies: those of benchmarks may hold times of this machine."""
    return {
        command: record
        for command, record in read_records().items()
        if command.startswith("python -m studies.")
    }


def stale_commands(records: Records) -> list[str]:
    """Commands of tables that are not current, longest first."""
    stale = [
        record for record in records.values() if record.changed_inputs() or record.changed_product()
    ]
    ordered = sorted(stale, key=lambda record: -record.seconds)
    return [record.command for record in ordered if record.command != INDEX]


def run_command(command: str, folder: Path = ROOT) -> tuple[str, str]:
    """Run a command of a study in a copy of the repository; it, and what it said if it failed."""
    path = os.pathsep.join([str(folder), str(ROOT / "python")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *shlex.split(command)[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
    print(f"{'made  ' if done.returncode == 0 else 'FAILED'} {command}", flush=True)
    return command, said if done.returncode else ""


def run_commands(commands: list[str], jobs: int, folder: Path = ROOT) -> dict[str, str]:
    """Run commands side by side, then the index; what each that failed said."""
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        said = dict(pool.map(lambda command: run_command(command, folder), commands))
    said |= dict([run_command(INDEX, folder)])
    seconds = time.monotonic() - began
    print(f"{len(said)} commands: {seconds:.0f} s, {cpu_seconds():.0f} s of processor time")
    return {command: text for command, text in said.items() if text}


def comparable_lines(text: str) -> list[str]:
    """Lines of a table without the processor time that they state."""
    return [re.sub(r"\(?\d+ s\b( of processor time)?\)?", "", line) for line in text.splitlines()]


def changed_lines(before: Path, after: Path, records: Records) -> Iterator[str]:
    """Lines of tables that differ between two copies of the pages."""
    for page, name in recorded_tables(records):
        place = page.relative_to(ROOT)
        texts = [
            comparable_lines(table_text((root / place).read_text(encoding="utf-8"), name) or "")
            for root in (before, after)
        ]
        lost = [f"- {line}" for line in texts[0] if line not in texts[1]]
        added = [f"+ {line}" for line in texts[1] if line not in texts[0]]
        if lost or added:
            yield "\n".join([f"{place}, {name}:", *lost, *added])


def make_quick(records: Records, jobs: int) -> list[str]:
    """Make the quick tables in a copy of the repository; what differs, and what failed."""
    quick = {
        command: record
        for command, record in records.items()
        if record.seconds <= QUICK_SECONDS and command != INDEX
    }
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name)
        failed = run_commands(list(quick), jobs, copy)
        differing = list(changed_lines(ROOT, copy, quick))
    tables = sum(len(record.tables) for record in quick.values())
    print(f"{len(quick)} commands, {tables} tables, {len(differing)} of them differ")
    return [*differing, *(f"{command}: {said}" for command, said in failed.items())]


def print_state(records: Records) -> None:
    """Every study, and every table whose inputs or product changed."""
    for name, summary in studies().items():
        print(f"  python -m {name:<46} {summary}")
    print()
    for record in records.values():
        for kind, changed in (
            ("inputs", record.changed_inputs()),
            ("product", record.changed_product()),
        ):
            if changed:
                tables = ", ".join(place.partition("#")[2] for place in record.tables)
                print(f"{record.command}\n  {tables}: made at {record.commit}")
                print(f"  {kind} changed since: {', '.join(changed)}")


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", nargs="?", default="list", choices=["list", "make", "mark"])
    parser.add_argument("--quick", action="store_true", help="compare the quick tables in a copy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="commands at a time")
    arguments = parser.parse_args()
    if arguments.action == "list":
        # Who reads the list through `head` closes the pipe early.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        print_state(read_records())
        return 0
    if arguments.action == "mark":
        for page, name in mark_tables(read_records()):
            print(f"{page.relative_to(ROOT)}: {name}")
        run_command(INDEX)
        return 0
    records = study_records()
    if arguments.quick:
        faults = make_quick(records, arguments.jobs)
    else:
        failed = run_commands(stale_commands(records), arguments.jobs)
        faults = [f"{command}: {said}" for command, said in failed.items()]
    print(*faults, sep="\n", end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
