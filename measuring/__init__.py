"""What benchmarks and studies share: measured parts of pages, processor time, and the machine.

A measured part of a page stands between ``<!-- name -->`` and ``<!-- end name -->``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from measuring.records import exclusive_pages, record_tables, watch_reads

watch_reads()


def cpu_seconds() -> float:
    """Processor time of this process and the commands it ran: the time on an idle core."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in both)


def processor() -> str:
    """Name of the processor, as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> str:
    """The processor and how many cores there are."""
    return f"{processor()}, {os.cpu_count()} cores"


def put(
    page: Path,
    parts: Mapping[str, str],
    arguments: str | None = None,
    seconds: float | None = None,
) -> None:
    """Replace parts of a page, by name, and record how they were made.

    Args:
        page: The page.
        parts: New text of each part.
        arguments: Options that make these parts again, where those of this process make more.
        seconds: Their processor time; None: all of this process.
    """
    with exclusive_pages():
        text = page.read_text(encoding="utf-8")
        for name, part in parts.items():
            begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
            head, opened, body = text.partition(begin)
            _, closed, tail = body.partition(end)
            if not (opened and closed):
                raise SystemExit(f"{page} has no place for {begin}")
            text = f"{head}{begin}\n{part}\n{end}{tail}"
        page.write_text(text, encoding="utf-8")
        record_tables(page, parts, arguments, cpu_seconds() if seconds is None else seconds)


class Part(Protocol):
    """The results for one part of a page."""

    name: str
    seconds: float


Found = TypeVar("Found", bound=Part)


def run_parts(
    doc: str,
    kind: str,
    parts: Mapping[str, Callable[[], Found]],
    *,
    page: Path,
    section: Callable[[Found], str],
    draw: Callable[[Found], None],
    facts: Callable[[Found], dict[str, Any]],
) -> None:
    """Command line of a page of parts: print their tables; write them and their figures on request.

    Args:
        doc: Docstring of the benchmark.
        kind: What a part is called: ``--kind`` chooses some.
        parts: Makes each part.
        page: The page.
        section: A part in Markdown.
        draw: Writes a part's figures.
        facts: What ``--json`` says of a part besides its name and processor seconds.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument(
        f"--{kind}", dest="names", action="append", choices=list(parts), help="default: all"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"update docs/{page.name}, figures")
    arguments = parser.parse_args()
    done = []
    for name in arguments.names or list(parts):
        began = cpu_seconds()
        part = parts[name]()
        part.seconds = cpu_seconds() - began
        done.append({kind: part.name, "seconds": part.seconds, **facts(part)})
        if not arguments.json:
            print(f"## {name}\n\n{section(part)}\n", flush=True)
        if arguments.write:
            put(page, {part.name: section(part)}, f"--{kind} {name} --write", part.seconds)
            draw(part)
    if arguments.json:
        print(json.dumps(done, indent=2, ensure_ascii=False))
