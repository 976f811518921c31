"""OTF2 traces whose events become sends and receives as they are read, location by location.

Neither events nor calls are kept, so a trace takes a fraction of the memory of its columns. Only
traces of the common kind can be read so: one thread of each rank calls MPI, and every message has a
record of its partner and its completion. The program is the one that
:mod:`tailback.traffic.readers.otf2.compile` makes of the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.traffic.program import Program
from tailback.traffic.readers.assembly import columns_of, messages_notes, scatters
from tailback.traffic.readers.otf2.collectives import expand
from tailback.traffic.readers.otf2.columns import NONE, PathTable, Trace, number_paths
from tailback.traffic.readers.otf2.compile import (
    call_names,
    grid_of,
    note_calls,
    proc_null_note,
    what_lacks,
)
from tailback.traffic.readers.otf2.names import Labels, is_synchronising
from tailback.traffic.readers.otf2.recording import RegionCalls, recording
from tailback.traffic.readers.posts import Posts, dense


def read_posts(
    library: Path, anchor: Path, threads: int, progress: Callable[[float], None] | None
) -> Program | None:
    """Compile a trace to a rank program without keeping its events.

    Args:
        library: The OTF2 library.
        anchor: The anchor file.
        threads: Number of reading threads.
        progress: Called now and then with the share of locations that have been read.

    Returns:
        The program; None if the trace must be read to columns: it is damaged, or not of the common
        kind.

    Raises:
        TraceError: A rank took part in a collective of a communicator it is not a member of.
    """
    tables = _core.read_otf2_posts(library, anchor, threads, progress)
    if tables is None:
        return None
    posts, raw = tables
    trace = Trace.from_core(raw)
    regions = raw["regions"]
    # Times of synchronising calls are needed one by one, but calls without a collective record are
    # not kept.
    lost = any(
        left and is_synchronising(trace.regions[at]) for at, (_, _, left, _) in regions.items()
    )
    if lost or not (regions or raw["posts"] or len(trace.messages.kind)):
        return None
    return _compile_program(posts, raw, trace, anchor)


def _compile_program(
    posts: _core.Otf2Posts, raw: _core.PostTables, trace: Trace, anchor: Path
) -> Program:
    notes = [proc_null_note(raw["proc_null"])] if raw["proc_null"] else []
    labels = Labels(trace)
    numbers = _label_numbers(raw, trace, labels)
    used_channels, channels = dense(raw["channels"])
    collectives = _relative_positions(expand(trace, labels, len(used_channels), notes, anchor), raw)
    columns, used, lost, differing = posts.compile(
        channels.astype(np.uint32),
        numbers.astype(np.uint32),
        *columns_of(collectives),
        scatters(labels.all()),
    )
    notes += messages_notes(labels.all(), lost, differing)
    calls = {
        region: RegionCalls(number, recorded, ticks)
        for region, (number, recorded, _, ticks) in raw["regions"].items()
    }
    note_calls(trace, calls, len(used), notes)
    used_labels = [labels.all()[number] for number in used] or labels.none()
    program = Program(
        name=anchor.stem,
        labels=used_labels,
        grid=grid_of(trace),
        notes=notes,
        lacks=what_lacks(trace, used_labels),
        **columns,
    )
    program.recording = recording(trace, calls, raw["between_ps"])
    program.check()
    return program


def _label_numbers(raw: _core.PostTables, trace: Trace, labels: Labels) -> NDArray[np.int64]:
    """Number of each label of each location."""
    table, counts = raw["labels"], raw["label_counts"]
    paths = number_paths(raw["locations"], table["path"], counts, PathTable(raw["definitions"]))
    phase = table["phase"].astype(np.int64)
    phase[phase == NONE] = -1
    return labels.number(
        phase, paths, table["call"], table["tag"], table["comm"], call_names(trace)
    )


def _relative_positions(posts: Posts, raw: _core.PostTables) -> Posts:
    """The posts of collectives, with positions counted from the beginning of each location."""
    length = np.array([location["records"] + 1 for location in raw["locations"]], np.int64)
    before = (np.cumsum(length) - length)[posts.thread]
    posts.position = posts.position - before
    posts.wait_position = posts.wait_position - before
    return posts
