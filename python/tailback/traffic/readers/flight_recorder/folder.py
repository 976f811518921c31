"""The dumps of all ranks, with what some of them lack.

A hang is diagnosed from what a crashed job left behind, so a dump that is cut or empty is named and
left out, and process groups that dumps do not list are taken from their calls.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from tailback.errors import TraceError
from tailback.io.delimited import FILES_NAMED, NotUsed, not_readable, not_used
from tailback.io.input_files import head_bytes, record_files
from tailback.traffic.readers.flight_recorder.dump import (
    ProcessGroup,
    RankDump,
    is_dump,
    read_dump,
)
from tailback.units import counted

_NAMED: Final = re.compile(r"_trace_rank_\d+")
_DEFAULT_GROUP: Final = "default_pg"
"""What PyTorch calls the group of all ranks."""


@dataclass(frozen=True)
class DumpFolder:
    """The dumps of a run.

    Attributes:
        of_rank: The dumps by rank.
        notes: What could not be read or was assumed.
    """

    of_rank: dict[int, RankDump]
    notes: tuple[str, ...]


def read_dumps(path: Path) -> DumpFolder:
    """The dumps of a folder, or a file.

    Raises:
        TraceError: None can be read, or two are of one rank.
    """
    entries = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [entry for entry in entries if entry.is_file() and _belongs(entry, path)]
    if not files:
        raise TraceError("holds no dump of the Flight Recorder", file=path, remedy="name the dump")
    record_files(files)
    others = [entry.name for entry in entries if entry not in files]
    # The program, its times and who holds it up are read one after another.
    return _read_files(
        tuple((file, file.stat().st_mtime_ns) for file in files),
        tuple(not_used(others, "files that are no dumps", FILES_NAMED)),
    )


def is_cut_dump(file: Path) -> bool:
    """Whether a file is named like a dump, and holds the begin of a pickle or nothing."""
    return _NAMED.search(file.name) is not None and head_bytes(file)[:1] in (b"", b"\x80")


def _belongs(file: Path, path: Path) -> bool:
    """A dump, or a file named like one, so that a damaged dump is not silently ignored."""
    return file == path or _NAMED.search(file.name) is not None or is_dump(file)


@lru_cache(maxsize=1)
def _read_files(files: tuple[tuple[Path, int], ...], notes: tuple[str, ...]) -> DumpFolder:
    dumps: dict[int, RankDump] = {}
    damaged: list[TraceError] = []
    for file, _ in files:
        try:
            dump = read_dump(file)
        except TraceError as error:
            damaged.append(error)
            continue
        if dump.rank in dumps:
            raise TraceError(
                f"is the dump of rank {dump.rank}, and so is {dumps[dump.rank].file.name!r}",
                file=file,
                remedy="keep the dumps of one time in a folder, one for each rank",
            )
        dumps[dump.rank] = dump
    if not dumps:
        raise damaged[0]
    _require_one_world(dumps)
    made = [*notes, *not_readable(damaged, len(files), "dump")]
    return DumpFolder(_with_groups(dumps, made), tuple(made))


def _require_one_world(dumps: Mapping[int, RankDump]) -> None:
    """Raise TraceError if dumps have different groups of all ranks."""
    first: tuple[RankDump, ProcessGroup] | None = None
    for dump in dumps.values():
        for group in dump.groups.values():
            if group.label != _DEFAULT_GROUP:
                continue
            first = first or (dump, group)
            if group.members != first[1].members:
                raise TraceError(
                    f"is of {len(group.members)} ranks, and {first[0].file.name!r} of "
                    f"{len(first[1].members)}: they are of two runs",
                    file=dump.file,
                    remedy="keep the dumps of one time in a folder, one for each rank",
                )


def _with_groups(dumps: Mapping[int, RankDump], notes: list[str]) -> dict[int, RankDump]:
    """Dumps with the groups of all of their operations; others are left out, and counted."""
    listed: dict[str, set[ProcessGroup]] = defaultdict(set)
    for dump in dumps.values():
        for group in dump.groups.values():
            listed[group.name].add(group)
    assumed = _groups_of_calls(dumps, listed)
    out, n_lost = {}, 0
    for rank, dump in dumps.items():
        groups = dict(dump.groups)
        for name in dict.fromkeys(call.group for call in dump.operations):
            of_others = [group for group in listed[name] if rank in group.members]
            if name not in groups and name in assumed:
                groups[name] = assumed[name]
            elif name not in groups and len(of_others) == 1:
                groups[name] = of_others[0]
        kept = [call for call in dump.operations if call.group in groups]
        n_lost += len(dump.operations) - len(kept)
        out[rank] = replace(dump, groups=groups, operations=kept)
    if assumed:
        notes.append(
            f"no dump lists the ranks of {counted(len(assumed), 'process group')} (pg_config): "
            "those whose dumps have calls of a group are taken for its ranks, so one that never "
            "called is overlooked"
        )
    if n_lost:
        notes.append(NotUsed(f"{counted(n_lost, 'operation')} of groups whose ranks are unknown"))
    return out


def _groups_of_calls(
    dumps: Mapping[int, RankDump], listed: Mapping[str, object]
) -> dict[str, ProcessGroup]:
    """Groups that no dump lists, by name: the ranks that called them; the default one has all."""
    members: dict[str, set[int]] = defaultdict(set)
    labels: dict[str, str] = {}
    for rank, dump in dumps.items():
        for call in dump.operations:
            if call.group not in listed:
                members[call.group].add(rank)
                labels.setdefault(call.group, call.group_label)
    out = {}
    for name, ranks in members.items():
        if labels[name] == _DEFAULT_GROUP:
            ranks = set(range(max(dumps) + 1))
        label = labels[name] or f"group {name[:80]}"
        out[name] = ProcessGroup(name, label, tuple(sorted(ranks)))
    return out
