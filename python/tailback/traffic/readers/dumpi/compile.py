"""From the calls of SST DUMPI to a rank program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tailback import _core
from tailback.errors import TraceError
from tailback.io.delimited import NotUsed, shown
from tailback.io.input_files import TRACE_MEMORY, content
from tailback.io.progress import report
from tailback.traffic.collectives_of_counts import Counts
from tailback.traffic.program import Label, Program, RecordedTimes
from tailback.traffic.readers.assembly import (
    Computes,
    ImpliedWaits,
    columns_of,
    compile_posts,
    messages_notes,
    scatters,
)
from tailback.traffic.readers.collective_posts import Calls, collective_posts
from tailback.traffic.readers.dumpi.header import MAGIC
from tailback.traffic.readers.otf2.names import OPERATIONS, communicates, is_synchronising
from tailback.traffic.readers.otf2.recording import SMALL_BYTES, oversubscribed_ps, shortest_stays
from tailback.traffic.readers.posts import Posts, dense, guess_sources
from tailback.units import LONGEST_PS

_DAMAGED = "the trace is damaged: copy it again or record it again"
_REMEDIES = {
    "cut": "the trace is cut short: copy it again, or record it again and let the program end "
    "normally",
    "damaged": _DAMAGED,
    "line": _DAMAGED,
    "old": "convert it: dumpi2ascii FILE > FILE.txt, for each rank",
    "unknown": "convert the files to text: dumpi2ascii FILE > FILE.txt",
    "world": "copy the files of all ranks into one folder",
    "large": "record a shorter run",
}


def compile_files(name: str, files: Sequence[Path], path: Path) -> Program:
    """Compile the files of all ranks.

    Args:
        name: What to call the application.
        files: The files by rank.
        path: The trace, for errors that concern no single file.

    Returns:
        The program, with the time that the calls took.

    Raises:
        TraceError: A file is damaged or cut short, or has an impossible call.
    """
    reader, decoded = read_files(files)
    notes = _notes_on_calls(decoded)
    if decoded["lost_posts"]:
        notes.append(
            NotUsed(
                f"{decoded['lost_posts']} sends and receives on communicators whose members the "
                f"trace does not record are left out"
            )
        )
    if decoded["unknown_sources"]:
        program = _compile_guessed(name, reader, decoded, len(files), notes, path)
    else:
        program = _compile_complete(name, reader, decoded, notes, path)
    inside_ns = sum(ns for call, ns in decoded["inside_ns"] if communicates(call))
    n_ranks = len(files)
    program.recording = RecordedTimes(
        inside_ns * 1000 // n_ranks,
        decoded["between_ps"] // n_ranks,
        _oversubscribed_ps(decoded, n_ranks),
    )
    return program


def _oversubscribed_ps(decoded: dict[str, Any], n_ranks: int) -> int:
    """Time of the last rank to enter small collectives of all ranks, 0 if it is plausible."""
    c = decoded["collectives"]
    of_all = [number for number, members in decoded["members"] if len(members) == n_ranks]
    synchronising = [at for at, name in enumerate(OPERATIONS) if is_synchronising(name)]
    small = np.maximum(c["sent"], c["received"]) <= SMALL_BYTES
    counts = small & np.isin(c["comm"], of_all) & np.isin(c["operation"], synchronising)
    return oversubscribed_ps(shortest_stays(c["instance"], c["stay_ns"], counts) * 1000, n_ranks)


def _compile_complete(
    name: str, reader: _core.DumpiReader, decoded: dict[str, Any], notes: list[str], path: Path
) -> Program:
    """The program of a trace that has the source of every receive."""
    labels = [_label(*fields) for fields in decoded["labels"]]
    posts = _expand_collectives(decoded, decoded["channels"], notes, path)
    columns, used, lost, differing = reader.compile(*columns_of(posts), scatters(labels))
    notes += messages_notes(labels, lost, differing)
    used_labels = [labels[number] for number in used] or [Label("all", "none")]
    program = Program(name=name, labels=used_labels, notes=notes, **columns)
    program.check()
    return program


def _compile_guessed(
    name: str,
    reader: _core.DumpiReader,
    decoded: dict[str, Any],
    n_ranks: int,
    notes: list[str],
    path: Path,
) -> Program:
    """The program of a trace that lacks the sources of some receives."""
    columns, computes = reader.posts()
    n = len(columns["rank"])
    posts = Posts(thread=np.zeros(n, np.int64), collective=np.zeros(n, np.bool_), **columns)
    guessed, _ = guess_sources(posts, n_ranks)
    if guessed:
        notes.append(
            f"{guessed} receives from any source have no status: matched to the messages "
            "no other receive takes"
        )
    channels, posts.channel = dense(posts.channel)
    expanded = _expand_collectives(decoded, len(channels), notes, path)
    none = np.zeros(0, np.int64)
    return compile_posts(
        name,
        n_ranks,
        Posts.join([posts, expanded]),
        [_label(*fields) for fields in decoded["labels"]],
        ImpliedWaits(none, none, none),
        Computes(**computes),
        notes,
    )


def read_files(
    files: Sequence[Path], *, times: bool = False
) -> tuple[_core.DumpiReader, dict[str, Any]]:
    """The calls of all ranks; raises TraceError if a file cannot be read.

    Args:
        files: The files by rank.
        times: Whether to return every call with its times, which a program does not need.
    """
    reader = _core.DumpiReader(len(files), LONGEST_PS, times)
    try:
        for number, file in enumerate(files):
            report(f"reading {file.name}", number / len(files))
            data = content(file, TraceError, TRACE_MEMORY)
            if file.suffix == ".bin" and not data.startswith(MAGIC):
                raise TraceError(
                    "does not begin as a DUMPI file", file=file, place="byte 0", remedy=_DAMAGED
                )
            reader.file(data)
        return reader, reader.finish()
    except ValueError as error:
        rank, kind, place, text = error.args
    message = f"cannot parse {shown(text)}" if kind == "line" else text
    raise TraceError(message, file=files[rank], place=place, remedy=_REMEDIES[kind])


def _notes_on_calls(decoded: dict[str, Any]) -> list[str]:
    """Notes on calls that move no data or are left out."""
    counted = (
        ("cancelled", "cancelled requests are left out"),
        ("proc_null", "sends and receives of MPI_PROC_NULL move nothing"),
        ("of_unknown_type", "sends and receives of a type of unknown size move nothing"),
    )
    return [f"{decoded[name]} {what}" for name, what in counted if decoded[name]]


def _label(call: str, collective: bool, tag: int, communicator: str) -> Label:
    if collective:
        return Label(call, call, -1, communicator)
    return Label(f"tag {tag}", call, tag, communicator)


def _expand_collectives(
    decoded: dict[str, Any], first_channel: int, notes: list[str], path: Path
) -> Posts:
    """Messages of the collectives that all members of a communicator take part in."""
    if decoded["lost_collectives"]:
        notes.append(
            NotUsed(
                f"{decoded['lost_collectives']} collectives that were not recorded by all "
                "members of their communicator are left out"
            )
        )
    columns = {name: column for name, column in decoded["collectives"].items() if name != "stay_ns"}
    position = columns["position"]
    calls = Calls(thread=np.zeros(len(position), np.int64), wait_position=position, **columns)
    members = {number: np.array(ranks, np.int64) for number, ranks in decoded["members"]}
    counts = [Counts(tuple(sent), tuple(received)) for sent, received in decoded["counts"]]
    return collective_posts(calls, OPERATIONS, members, first_channel, path, counts)
