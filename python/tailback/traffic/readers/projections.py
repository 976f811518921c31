"""Charm++ Projections logs: messages between processors and the entry methods that they start.

``NAME.sts`` names the entry methods, ``NAME.PE.log`` (or ``.log.gz``) has a line for each event of
a processor: a message is created (``1 mtype entry time event pe bytes …``, ``20`` for broadcasts,
``21`` for multicasts), an entry method begins (``2 mtype entry time event pe bytes …``, with the
processor and event that created its message) or ends (``3``), the processor is idle (``14`` to
``15``). Times are microseconds. A processor becomes a rank.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tailback.errors import TraceError
from tailback.io.delimited import shown
from tailback.io.input_files import TRACE_MEMORY, content, head
from tailback.traffic.program import Label, Program, RecordedTimes
from tailback.traffic.readers.assembly import Computes, ImpliedWaits, compile_posts
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.posts import UNKNOWN, Posts

CAPABILITIES = Capabilities(
    times="yes, in µs",
    sources="yes, of messages that were traced",
    completion="by the entry method that a message starts",
    call_site="the entry method",
    compute="time in entry methods",
)

_STS = re.compile(r"\APROJECTIONS_ID")
_LOG = re.compile(r"^(?P<stem>.+)\.(?P<pe>[0-9]{1,7})\.log(?:\.gz)?$")
_ENTRY = re.compile(r'^ENTRY CHARE ([0-9]{1,9}) "(.*)" ([0-9]{1,9}) [0-9]+$', re.MULTILINE)
_CHARE = re.compile(r'^CHARE ([0-9]{1,9}) "(.*)" -?[0-9]+$', re.MULTILINE)
_PROCESSORS = re.compile(r"^PROCESSORS ([0-9]{1,7})$", re.MULTILINE)
_CREATE, _BEGIN, _END, _BROADCAST, _MULTICAST = b"1", b"2", b"3", b"20", b"21"
_IDLE, _BUSY, _LAST = b"14", b"15", b"7"
_PS_PER_US = 1_000_000
_LONGEST_US = 1 << 42
_AGAIN = "copy the logs again, or run again with -tracemode projections and let the program end"


@dataclass
class _Events:
    """What the logs of all processors hold.

    Attributes:
        created: Position of the creation of a message, by (processor, event, entry).
        begun: (processor, position, source, event, entry, bytes) of each entry method.
        computes: (processor, position, microseconds) of each stretch in entry methods.
        idle_us: Microseconds of all processors in which they were idle.
    """

    created: dict[tuple[int, int, int], int] = field(default_factory=dict)
    begun: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    computes: list[tuple[int, int, int]] = field(default_factory=list)
    idle_us: int = 0


def sniff(path: Path) -> bool:
    """The ``.sts`` file, or its folder."""
    if path.is_dir():
        return len(_sts_files(path)) == 1
    return path.suffix == ".sts" and _STS.match(head(path)) is not None


def read(path: Path) -> Program:
    """Compile the logs of all processors to a rank program.

    A message is sent where it was created and waited for where its entry method begins; it can
    arrive before. Messages of a processor to itself, and those whose creation was not traced, are
    left out.

    Args:
        path: The ``.sts`` file, or the folder of it and its logs.

    Returns:
        The program; phases are entry methods.

    Raises:
        TraceError: A log is missing, damaged or cut short.
    """
    if path.is_dir():
        files = _sts_files(path)
        if len(files) != 1:
            raise TraceError(
                f"holds {len(files)} .sts files", file=path, remedy="name the .sts file of the run"
            )
        path = files[0]
    text = content(path, TraceError, TRACE_MEMORY).decode("utf-8", "replace")
    processors = _PROCESSORS.search(text)
    if processors is None or not text.rstrip().endswith("END"):
        raise TraceError(
            "does not state PROCESSORS, or has no END: it is cut short", file=path, remedy=_AGAIN
        )
    chares = dict(_CHARE.findall(text))
    entries = {
        int(number): f"{chares.get(chare, '?')}::{name.split('(')[0]}"[:80]
        for number, name, chare in _ENTRY.findall(text)
    }
    n_ranks = int(processors[1])
    logs = {
        int(match["pe"]): entry
        for entry in path.parent.iterdir()
        if (match := _LOG.match(entry.name)) and match["stem"] == path.name.removesuffix(".sts")
    }
    events = _Events()
    for rank in range(n_ranks):
        if rank not in logs:
            raise TraceError(
                f"the log of processor {rank} of {n_ranks} is missing",
                file=path.parent,
                remedy="copy all logs into one folder",
            )
        _read_log(logs[rank], rank, events)
    return _compile(path.name.split(".")[0], n_ranks, events, entries)


def _sts_files(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if entry.suffix == ".sts")
    return [file for file in files if file.is_file() and _STS.match(head(file))]


def _read_log(file: Path, rank: int, events: _Events) -> None:
    """Add the events of a processor."""
    data = content(file, TraceError, TRACE_MEMORY)
    lines = data.split(b"\n")
    if not lines[0].startswith(b"PROJECTIONS-RECORD"):
        raise TraceError("does not begin with PROJECTIONS-RECORD", file=file, remedy=_AGAIN)
    since: int | None = None
    idle_since: int | None = None
    ended = False
    for position, line in enumerate(lines[1:], 1):
        words = line.split()
        kind = words[0] if words else b""
        try:
            if kind in (_CREATE, _BEGIN, _END, _BROADCAST, _MULTICAST):
                entry, time, event, source, size = (int(word) for word in words[2:7])
                _require(time, size)
                if since is not None and time > since:
                    events.computes.append((rank, position, time - since))
                if kind in (_CREATE, _BROADCAST, _MULTICAST):
                    events.created[rank, event, entry] = position
                    since = None if since is None else time
                elif kind == _BEGIN:
                    events.begun.append((rank, position, source, event, entry, size))
                    since = time
                else:
                    since = None
            elif kind in (_IDLE, _BUSY, _LAST):
                time = int(words[1])
                _require(time, 0)
                if kind == _BUSY and idle_since is not None:
                    events.idle_us += max(time - idle_since, 0)
                idle_since = time if kind == _IDLE else None
                ended = ended or kind == _LAST
        except (ValueError, IndexError):
            raise TraceError(
                f"cannot parse {shown(line.decode('utf-8', 'replace'))}",
                file=file,
                place=f"line {position + 1}",
                remedy=_AGAIN,
            ) from None
    if not ended or lines[-1]:
        raise TraceError(
            "has no end of computation: the log is cut short",
            file=file,
            place=f"line {len(lines)}",
            remedy=_AGAIN,
        )


def _require(time: int, size: int) -> None:
    if not 0 <= time <= _LONGEST_US or not 0 <= size < 1 << 48:
        raise ValueError


def _compile(name: str, n_ranks: int, events: _Events, entries: dict[int, str]) -> Program:
    rows: list[tuple[int, int, bool, int, int, int, int, int]] = []
    labels: dict[Label, int] = {}
    untraced = to_self = 0
    for rank, position, source, event, entry, size in events.begun:
        if source == rank:
            to_self += 1
            continue
        sent = events.created.get((source, event, entry))
        if sent is None or not 0 <= source < n_ranks:
            untraced += 1
            continue
        text = entries.get(entry, f"entry {entry}")
        label = labels.setdefault(Label(text, text, -1, "Charm++"), len(labels))
        rows.append((source, sent, True, rank, len(rows), size, label, UNKNOWN))
        # The runtime takes a message whenever it arrives: the receive is posted from the start.
        rows.append((rank, 0, False, source, len(rows) - 1, size, label, position))
    columns = np.array(rows, np.int64).reshape(-1, 8).T
    n = columns.shape[1]
    wait = columns[7]
    posts = Posts(
        rank=columns[0],
        thread=np.zeros(n, np.int64),
        position=columns[1],
        step=np.ones(n, np.int64),
        is_send=columns[2].astype(np.bool_),
        peer=columns[3],
        channel=columns[4],
        size=columns[5].astype(np.uint64),
        label=columns[6],
        wait_position=wait,
        wait_step=np.ones(n, np.int64),
        collective=np.zeros(n, np.bool_),
        peer_known=np.ones(n, np.bool_),
    )
    notes = ["ranks are processors of Charm++; messages include its envelopes"]
    if to_self:
        notes.append(f"{to_self} messages of processors to themselves move nothing")
    if untraced:
        notes.append(f"{untraced} entry methods were started by messages that were not traced")
    stretches = np.array(events.computes, np.int64).reshape(-1, 3).T
    computes = Computes(
        stretches[0], stretches[1], stretches[2].astype(np.uint64) * np.uint64(_PS_PER_US)
    )
    none = np.zeros(0, np.int64)
    program = compile_posts(
        name, n_ranks, posts, list(labels), ImpliedWaits(none, none, none), computes, notes
    )
    program.recording = RecordedTimes(
        events.idle_us * _PS_PER_US // max(n_ranks, 1),
        int(computes.ps.sum()) // max(n_ranks, 1),
    )
    return program
