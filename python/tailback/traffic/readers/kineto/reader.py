"""PyTorch's Kineto traces (JSON, one file per rank): NCCL kernels and overlapping computation.

Each NCCL kernel names its collective, sizes and process group; kernels of one group with the same
number (``Seq``, else their position) on all ranks belong to one collective. The trace does not show
the algorithm (kernels are named after the first function of their source file): it is taken from
NCCL's log, if there is one in the same folder, else from NCCL's cost model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tailback.errors import TraceError
from tailback.io.delimited import FILES_NAMED, KEYS_NAMED, NotUsed, not_readable, not_used
from tailback.io.input_files import TRACE_MEMORY, content, head_bytes, parsed_json, record_files
from tailback.traffic.nccl.groups import with_dimensions
from tailback.traffic.nccl.joining import join_calls
from tailback.traffic.nccl.rank_calls import RankCall
from tailback.traffic.nccl.recorded import record_calls, single_rank_shows
from tailback.traffic.nccl.steps import GpuProgram, compile_gpu
from tailback.traffic.program import Program, RecordedTimes
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.kineto.calls import RankTrace, rank_trace
from tailback.traffic.readers.nccl.lines import NcclLog, is_log, read_logs
from tailback.traffic.readers.nccl.reader import complete_choice
from tailback.traffic.readers.recorded_run import RecordedRun

CAPABILITIES = Capabilities(
    times="yes, of kernels",
    sources="by NCCL's algorithm, from its log where that is beside the trace",
    completion="yes",
    call_site="no",
    compute="kernels and copies, and gaps between them",
)

_HEAD = re.compile(
    rb'\A\s*\{.*?"(?:schemaVersion|deviceProperties|distributedInfo|traceEvents)"', re.DOTALL
)
_EVENTS = re.compile(rb'"traceEvents"|"deviceProperties"|"distributedInfo"')
_NAME = re.compile(r"rank[-_]?(\d{1,7})(?!\d)")
_MAX_RANKS = 1 << 20
_AGAIN = "copy the trace again or record it again"
NO_LOG = (
    "no NCCL log names the algorithms that ran: those of NCCL's cost model are used; put the log "
    "of NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING beside the trace"
)
"""Note on traces without a log."""


def sniff(path: Path) -> bool:
    """A JSON file with the beginning of a Kineto trace, or a folder with one."""
    if path.is_dir():
        return any(_is_trace(entry) for entry in path.iterdir() if entry.is_file())
    return _is_trace(path)


def read(path: Path) -> Program:
    """Compile the traces of all ranks to a rank program.

    Args:
        path: The folder with the traces of all ranks and any NCCL logs, or the trace of one rank.
            If every collective is of all ranks, ranks without a trace are assumed to do the same
            as another.

    Returns:
        The program; computation that overlaps with a collective still does.

    Raises:
        TraceError: A trace is damaged, missing or of another run, or holds no collective.
    """
    folder = path if path.is_dir() else path.parent
    run = _traces(path)
    traces, world, notes = run.of_rank, run.world, not_readable(run.damaged, run.files, "trace")
    ranks = _complete_traces(run, path, notes)
    files = [entry for entry in sorted(folder.iterdir()) if entry.is_file()]
    logs = [entry for entry in files if is_log(entry)]
    log = read_logs(logs)
    notes += log.notes
    others = [entry.name for entry in files if entry not in logs and not _belongs(entry)]
    if path.is_dir():
        notes += not_used(others, "files that are neither traces nor logs", FILES_NAMED)
    logged = bool(log.choices)
    named = _hosts(traces, world)
    logged_calls = [[_apply_log(log, call) for call in trace.calls] for trace in ranks]
    calls, _ = with_dimensions(logged_calls, named)
    collectives, timeline = join_calls(calls, [trace.after_ps for trace in ranks], notes)
    _note_left_out(ranks, notes)
    if not logged:
        notes.append(NO_LOG)
    if not collectives:
        raise TraceError(
            "holds no collective that all of its ranks recorded",
            file=path,
            remedy="record the same steps on all ranks, with CUDA",
        )
    number: dict[str, int] = {}
    hosts = (
        [number.setdefault(host, len(number)) for host in named]
        if all(named)
        else [rank // ranks[0].devices for rank in range(world)]
    )
    calls_ps = sum(trace.calls_ps for trace in ranks) // world
    between_ps = sum(trace.between_ps for trace in ranks) // world
    program = compile_gpu(
        GpuProgram(
            folder.name if path.is_dir() else path.name.split(".")[0],
            hosts,
            collectives,
            timeline,
            notes,
            RecordedTimes(calls_ps, between_ps),
            log.port_gbps,
            assumes_hosts=not all(named),
        )
    )
    program.hosts = tuple(named) if all(named) else ()
    return program


def has_times(path: Path) -> bool:
    """Whether kernels have times: all traces do."""
    return sniff(path)


def record(path: Path) -> RecordedRun:
    """The kernels of NCCL with their times, for the arguments of :func:`read`.

    Clocks are those of the hosts. Ranks without a trace make no calls.

    Raises:
        TraceError: As :func:`read`.
    """
    run = _traces(path)
    traces, world = run.of_rank, run.world
    return record_calls(
        [traces[rank].calls if rank in traces else [] for rank in range(world)],
        [traces[rank].after_ps if rank in traces else 0 for rank in range(world)],
        _hosts(traces, world),
        path,
        not_recorded=_not_recorded(traces, world),
    )


def system_tree(path: Path) -> list[list[tuple[str, str]]]:
    """Name and class of each rank's host, where the traces name it; raises TraceError."""
    run = _traces(path)
    traces, world = run.of_rank, run.world
    return [
        [(traces[rank].host, "node")] if rank in traces and traces[rank].host else []
        for rank in range(world)
    ]


def _hosts(traces: Mapping[int, RankTrace], world: int) -> list[str]:
    """Host of each rank, empty where the trace does not name it."""
    return [traces[rank].host if rank in traces else "" for rank in range(world)]


def _not_recorded(traces: Mapping[int, RankTrace], world: int) -> str:
    """Which part of the ranks has no trace; empty if all have one."""
    return f"{world - len(traces)} of {world} ranks" if len(traces) < world else ""


@dataclass(frozen=True)
class _Traces:
    """The traces of a run.

    Attributes:
        of_rank: The trace of each recorded rank.
        world: Number of all ranks.
        files: Number of files.
        damaged: Why some of them cannot be read.
    """

    of_rank: dict[int, RankTrace]
    world: int
    files: int
    damaged: list[TraceError]


def _traces(path: Path) -> _Traces:
    """The traces of a folder, or a file; raises TraceError."""
    files = sorted(filter(_belongs, path.iterdir())) if path.is_dir() else [path]
    if not files:
        raise TraceError("holds no trace of Kineto", file=path, remedy="name the trace")
    record_files(files)
    # The program, its times and its hosts are read one after another.
    return _read_traces(path, tuple((file, file.stat().st_mtime_ns) for file in files))


@lru_cache(maxsize=1)
def _read_traces(path: Path, files: tuple[tuple[Path, int], ...]) -> _Traces:
    traces: dict[int, RankTrace] = {}
    damaged: list[TraceError] = []
    for file, _ in files:
        try:
            trace_document = _read_document(file)
        except TraceError as error:  # A process that is ended leaves a file that is cut.
            damaged.append(error)
            continue
        trace = rank_trace(trace_document, file, _rank_in_name(file))
        if trace.rank in traces:
            raise TraceError(
                f"is the trace of rank {trace.rank}, and so is {traces[trace.rank].file.name!r}",
                file=file,
                remedy="keep the traces of one run in a folder, one for each rank",
            )
        first = next((each for each in traces.values() if each.world and trace.world), trace)
        if first.world != trace.world:
            raise TraceError(
                f"is of {trace.world} ranks, and {first.file.name!r} of {first.world}: they are of "
                "two runs",
                file=file,
                remedy="keep the traces of one run in a folder, one for each rank",
            )
        traces[trace.rank] = trace
    if not traces:
        raise damaged[0]
    return _Traces(traces, _count_ranks(traces, path), len(files), damaged)


def _is_trace(path: Path) -> bool:
    head = head_bytes(path)
    return _HEAD.match(head) is not None and _EVENTS.search(head) is not None


def _belongs(path: Path) -> bool:
    """A trace, or a file named like one, so that a damaged trace is not silently ignored."""
    return path.name.endswith((".pt.trace.json", ".pt.trace.json.gz")) or _is_trace(path)


def _read_document(file: Path) -> dict[str, Any]:
    """The JSON object of a file; raises TraceError."""
    document = parsed_json(content(file, TraceError, TRACE_MEMORY), file, TraceError, _AGAIN)
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise TraceError("has no list 'traceEvents'", file=file, remedy=_AGAIN)
    return document


def _rank_in_name(file: Path) -> int | None:
    match = _NAME.search(file.name)
    return int(match[1]) if match else None


def _count_ranks(traces: dict[int, RankTrace], path: Path) -> int:
    """Number of ranks: as recorded, or the largest one in the groups of the collectives."""
    named = [max(call.members) + 1 for trace in traces.values() for call in trace.calls]
    world = max([*traces, *(trace.world for trace in traces.values()), *(n - 1 for n in named), 0])
    world = max(world, max(traces) + 1, *named, 1)
    if world > _MAX_RANKS:
        raise TraceError(
            f"names {world:,} ranks; at most {_MAX_RANKS:,} are read", file=path, remedy=_AGAIN
        )
    if not any(trace.calls for trace in traces.values()):
        raise TraceError(
            "holds no kernel of NCCL with its collective: nothing crosses a network",
            file=path,
            remedy="record a run of several ranks with CUDA activities and PyTorch 2.2 or newer",
        )
    return world


def _complete_traces(run: _Traces, path: Path, notes: list[str]) -> list[RankTrace]:
    """The traces of all ranks; missing ones are copies of another where possible."""
    traces, world = run.of_rank, run.world
    missing = [rank for rank in range(world) if rank not in traces]
    if not missing:
        return [traces[rank] for rank in range(world)]
    parts = any(len(call.members) < world for trace in traces.values() for call in trace.calls)
    if parts and run.damaged:
        raise run.damaged[0]
    if parts:
        first = traces[min(traces)]
        raise TraceError(
            f"the trace of rank {missing[0]} of {world} is missing, and some collectives are of "
            f"groups of ranks. {single_rank_shows(first.rank, first.calls, first.after_ps)}",
            file=path,
            remedy="give the folder with the traces of all ranks",
        )
    model = traces[min(traces)]
    notes.append(
        f"{len(missing)} of {world} ranks have no trace (the first: rank {missing[0]}): "
        f"they are taken to do what rank {model.rank} does"
    )
    return [traces.get(rank, model) for rank in range(world)]


def _apply_log(log: NcclLog, call: RankCall) -> RankCall:
    """A call with the algorithm from NCCL's log for collectives of its size."""
    choice = log.choices.get((call.call, call.nbytes))
    choice, rings = complete_choice(log, call.call, call.nbytes, choice, len(call.members))
    if choice is None:
        return replace(call, rings=rings[: call.channels or 1])
    return replace(call, choice=choice, rings=rings)


def _note_left_out(ranks: Sequence[RankTrace], notes: list[str]) -> None:
    unrecognised = sum(trace.unrecognised for trace in ranks)
    if unrecognised:
        notes.append(
            NotUsed(
                f"{unrecognised} NCCL kernels name no collective that can be expanded "
                "(coalesced calls do not) and are left out"
            )
        )
    arguments = dict.fromkeys(name for trace in ranks for name in trace.unused)
    notes += not_used(list(arguments), "arguments of NCCL's kernels", KEYS_NAMED)
