"""mpiP reports (text) with the section of bytes and messages between pairs of ranks.

The versions of mpiP that list pairs head the section ``Aggregate Point-To-Point Stats``, with the
columns source, destination, count (in some versions), bytes and time. Other reports have totals of
call sites and ranks, which do not say who sent to whom.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailback.errors import TraceError
from tailback.io.delimited import shown
from tailback.io.input_files import head
from tailback.traffic.program import Label, Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.pair_totals import Row, program_of_totals
from tailback.traffic.readers.text_lines import Text, read_text

CAPABILITIES = Capabilities(
    times="no",
    sources="totals of every pair of ranks, if the report lists pairs",
    completion="no",
    call_site="no",
    compute="no",
)

_HEAD = re.compile(r"\A@ mpiP\s*$", re.MULTILINE)
_TASK = re.compile(rb"^@ MPI Task Assignment\s*:\s*([0-9]{1,9})\s", re.MULTILINE)
_SECTION = re.compile(rb"^@-+ Aggregate Point-To-Point Stats \(((?:count, )?)bytes,")
_END = re.compile(rb"^@-+ End of Report", re.MULTILINE)
_SENT = re.compile(rb"^\S+ +[0-9]+ +[*] +([0-9]+) +\S+ +\S+ +\S+ +([0-9.e+]+)\s*$", re.MULTILINE)
_LABEL = Label("point-to-point", "point-to-point")
_AGAIN = "copy the report again, or run again and let the program end normally"


def sniff(path: Path) -> bool:
    """A report, or a folder with one."""
    return len(_reports(path)) == 1 if path.is_dir() else _HEAD.match(head(path)) is not None


def read(path: Path) -> Program:
    """Compile a report to a program of messages.

    Args:
        path: The report, plain or gzip, or the folder that holds it.

    Returns:
        The program; its only phase is ``"point-to-point"``.

    Raises:
        TraceError: It is damaged or cut short, or does not list pairs of ranks.
    """
    if path.is_dir():
        reports = _reports(path)
        if len(reports) != 1:
            raise TraceError(
                f"holds {len(reports)} reports of mpiP", file=path, remedy="name the report"
            )
        path = reports[0]
    text = read_text([path])
    data = text.data[0]
    if _END.search(data) is None:
        raise TraceError("has no line 'End of Report': it is cut short", file=path, remedy=_AGAIN)
    n_ranks = 1 + max((int(rank) for rank in _TASK.findall(data)), default=-1)
    if not n_ranks:
        raise TraceError("assigns no MPI task to a node", file=path, remedy=_AGAIN)
    rows, counted = _rows(text, n_ranks, path)
    notes = [] if counted else ["the report does not count messages: one for each pair of ranks"]
    try:
        return program_of_totals(path.name.split(".")[0], n_ranks, rows, [_LABEL], notes)
    except TraceError as error:
        raise error.located(path) from None


def _reports(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if ".mpiP" in entry.suffixes)
    return [file for file in files if file.is_file() and _HEAD.match(head(file))]


def _rows(text: Text, n_ranks: int, path: Path) -> tuple[list[Row], bool]:
    """Totals of all pairs, and whether messages are counted."""
    lines = text.data[0].split(b"\n")
    sections = [(at, match) for at, line in enumerate(lines) if (match := _SECTION.match(line))]
    if len(sections) != 1:
        sites = len(_SENT.findall(text.data[0]))
        raise TraceError(
            f"does not list who sent to whom, only what {sites} call sites of {n_ranks} ranks sent "
            "in total"
            if not sections
            else "lists pairs of ranks twice",
            file=path,
            remedy="record the program as OTF2, or with Open MPI's monitoring: "
            "docs/reference/traffic.md",
        )
    ((first, match),) = sections
    counted = bool(match[1])
    seen: dict[tuple[int, int], Row] = {}
    for at in range(first + 1, len(lines)):
        words = lines[at].split()
        if words and words[0].startswith(b"@"):
            break
        if not words or not words[0].isdigit():
            # Rules and the names of columns; anything else is a line that is damaged.
            if words and not words[0].startswith((b"--", b"Src")):
                raise text.fault(at, f"cannot parse {text.quoted(at)}", _AGAIN)
            continue
        numbers = [int(word) for word in words[:-1] if word.isdigit() and len(word) < 19]
        if len(words) != 4 + counted or len(numbers) != len(words) - 1:
            raise text.fault(at, f"cannot parse {text.quoted(at)}", _AGAIN)
        source, target, count, size = numbers if counted else (*numbers[:2], 1, numbers[2])
        if max(source, target) >= n_ranks or (size and not count) or (source, target) in seen:
            raise text.fault(
                at,
                f"{shown(lines[at].decode('ascii', 'replace'))} does not fit: a rank of "
                f"{n_ranks}, listed once, with messages for its bytes",
                _AGAIN,
            )
        if count:
            seen[source, target] = (source, target, 0, size, count)
    return list(seen.values()), counted
