"""Runs a program with the recorder in its ranks, and writes the folder a diagnosis starts from."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailback.errors import TailbackError
from tailback.io.folders import AtomicDirectory, check_writable
from tailback.recorder.archive import residual_ns, write_archive
from tailback.recorder.build import build
from tailback.recorder.calls import SPECIAL
from tailback.recorder.endings import ended, notes_on_end, notes_on_missing
from tailback.recorder.job_list import JobWatch
from tailback.recorder.launch import FOLDER, compiler_for, with_variables
from tailback.recorder.rank_files import (
    RankRecord,
    RecordError,
    clock_numbers,
    rates_within_hosts,
    read_rank_files,
)
from tailback.recorder.surroundings import (
    changed_statistics,
    job_variables,
    write_fabric,
    write_job,
)
from tailback.traffic.readers.otf2.reader import library_path, load
from tailback.traffic.readers.recorded_bytes import BYTE_RANGES
from tailback.traffic.readers.recorded_cores import sharing_ranks
from tailback.units import counted

_PREFIX = "program-"


_UTC = re.compile(rb"^utc \d+ (\d+)$", re.MULTILINE)


_NEVER = 1 << 63

NO_HOST = "unknown"
"""Host of ranks that are not recorded."""

_UNFINISHED = ".unfinished"
_START = "started.json"
_META = "program-*/rank-*.meta"


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        command: The program and its launcher, as given.
        exit_code: Theirs; negative: the signal that ended the launcher; None if the recording was
            finished later.
        ranks: Number of ranks.
        not_recorded: Those of them that left no files.
        hosts: Recorded ranks on each host.
        mpi_library: The MPI library, as it names itself.
        calls: Recorded MPI calls.
        communicating: Those of them that neither begin nor end MPI.
        clock_residual_ns: How far the clocks of hosts may be apart where they were measured.
        clock_measurements: How often they were measured: at start and end, and in between; 0 if a
            host's clock was not.
        unfinished: Ranks that did not get to MPI_Finalize.
        within_hosts_gbps: As :func:`tailback.recorder.rank_files.rates_within_hosts` returns.
        notes: What is missing.
    """

    command: list[str]
    exit_code: int | None
    ranks: int
    not_recorded: list[int]
    hosts: dict[str, int]
    mpi_library: str
    calls: int
    communicating: int
    clock_residual_ns: int
    clock_measurements: int
    unfinished: int
    within_hosts_gbps: dict[str, tuple[float, float]]
    notes: list[str]


def record(
    command: Sequence[str],
    out: Path,
    *,
    mpicc: str | None = None,
    force: bool = False,
    clocks_every_s: float = 30,
    wait_s: float = 10,
    byte_ranges: bool = False,
    step: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Run a program and record it.

    The files of the ranks are in ``OUT.unfinished`` until the recording is written and its trace
    has been read back. They stay there if anything fails: :func:`finish`.

    Args:
        command: Launcher, its arguments, program, its arguments.
        out: Folder to write; on a file system that all hosts share.
        mpicc: Compiler of the MPI library; the one that belongs to the launcher when None.
        force: Replace the folder if Tailback wrote it.
        clocks_every_s: Seconds after which the clocks of hosts are compared again, at the next
            collective in which all ranks wait for each other; up to three times as seldom if it
            takes more than a thousandth of the time.
        wait_s: Seconds that a rank waits in MPI_Init for all ranks to load the recorder, and 2 ms
            more for each rank; where some do not, the others are recorded.
        byte_ranges: Record which bytes of its TCP connections each call writes
            (:mod:`tailback.recorder.byte_ranges`).
        step: Called with the current step.

    Raises:
        RecordError: The program cannot be started, no rank was recorded, the recording cannot be
            written, or an earlier one with this name is not finished.
        RunError: The folder cannot be written.
    """
    check_writable(out, force=force)
    # Before anything is compiled.
    with_variables(command, {})
    built = build(mpicc or compiler_for(command))
    if built.fresh:
        step("compiled the recorder for this MPI library (once)")
    raw = unfinished_folder(out)
    with _new_raw_folder(raw, command, built.converter, byte_ranges) as started:
        with JobWatch.of(os.environ, command) as jobs:
            libraries = [built.recorder, *([built.writes] if byte_ranges else [])]
            code = _run(command, libraries, raw.resolve(), clocks_every_s, wait_s)
        if not any(raw.glob(_META)):
            raise RecordError(
                f"no rank loaded the recorder: {command[0]} ended {ended(code)}",
                remedy=_why_nothing(code),
            )
        step("writing the trace")
        return _write(started, raw, out, force=force, code=code, jobs=jobs)


def finish(
    folder: Path,
    out: Path | None = None,
    *,
    force: bool = False,
    step: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Finish a recording whose recorder was killed, or could not write it.

    Args:
        folder: ``OUT.unfinished``, or ``OUT``.
        out: Folder to write; the one that :func:`record` was to write when None.
        force: Replace the folder if Tailback wrote it.
        step: Called with the current step.

    Raises:
        RecordError: It is no unfinished recording, it is being recorded, or it cannot be written.
        RunError: The folder cannot be written.
    """
    raw = folder if (folder / _START).is_file() else unfinished_folder(folder)
    try:
        with (raw / _START).open("r+", encoding="utf-8") as file:
            _lock(file.fileno(), raw)
            started = json.load(file)
            if not (isinstance(started, dict) and isinstance(started.get("command"), list)):
                raise ValueError
            target = finished_folder(raw) if out is None else out
            if target == raw:
                raise RecordError("needs a folder to write", file=raw, remedy="add --out")
            if not any(raw.glob(_META)):
                raise RecordError(
                    "no rank wrote anything in it",
                    file=raw,
                    remedy="remove the folder, and record the program again",
                )
            step("writing the trace")
            return _write(started, raw, target, force=force, code=None, jobs=None)
    except FileNotFoundError:
        raise RecordError(
            "is not an unfinished recording",
            file=raw,
            remedy=f"give the folder OUT{_UNFINISHED} that tailback record --out OUT left",
        ) from None
    except ValueError:
        raise RecordError(
            f"{_START} is damaged",
            file=raw,
            remedy='write {"command": ["PROGRAM"]} into it: the files of the ranks are separate',
        ) from None


def unfinished_folder(out: Path) -> Path:
    """Folder of the files of the ranks, until the recording ``out`` is written."""
    target = Path(os.path.realpath(out))
    return target.with_name(target.name + _UNFINISHED)


def finished_folder(raw: Path) -> Path:
    """The recording whose files of ranks a folder holds."""
    return raw.with_name(raw.name.removesuffix(_UNFINISHED))


@contextmanager
def _new_raw_folder(
    raw: Path, command: Sequence[str], converter: Path, byte_ranges: bool
) -> Iterator[dict[str, Any]]:
    """A new folder for the files of the ranks, with what :func:`finish` needs to know; locked."""
    try:
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.mkdir(mode=0o700)
    except FileExistsError:
        raise RecordError(
            "holds an earlier recording that is not finished",
            file=raw,
            remedy=f"finish it: tailback record --recover {shlex.quote(str(raw))}; or remove it, "
            "or choose another --out",
        ) from None
    except OSError as error:
        raise RecordError(
            f"cannot be made: {error.strerror}",
            file=raw,
            remedy="choose a folder you may write to with --out",
        ) from None
    started: dict[str, Any] = {
        "command": list(command),
        "converter": str(converter),
        "job": job_variables(os.environ),
        "byte_ranges": byte_ranges,
    }
    with (raw / _START).open("x", encoding="utf-8") as file:
        _lock(file.fileno(), raw)
        json.dump(started, file)
        file.flush()
        try:
            yield started
        finally:
            if raw.is_dir() and not any(raw.glob(_META)):
                shutil.rmtree(raw)


def _lock(file: int, raw: Path) -> None:
    """Keep others from finishing a recording; the system frees the lock of a killed process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordError(
            "is being recorded", file=raw, remedy="wait until tailback record ends"
        ) from None
    except OSError:
        # Some file systems have no locks.
        return


def _write(
    started: dict[str, Any],
    raw: Path,
    out: Path,
    *,
    force: bool,
    code: int | None,
    jobs: JobWatch | None,
) -> Recording:
    """Write the recording, read its trace back, and only then remove the files of the ranks."""
    try:
        with AtomicDirectory(out, force=force, sources=[raw]) as folder:
            recording = _finish(started, raw, folder, code, jobs)
    except KeyboardInterrupt:
        raise RecordError(
            "interrupted while writing the recording", file=out, remedy=_recover(raw)
        ) from None
    except (TailbackError, OSError, MemoryError) as error:
        # The files of the ranks are worth more than a clean folder.
        message = error.message if isinstance(error, TailbackError) else str(error)
        remedy = error.remedy if isinstance(error, TailbackError) and error.remedy else ""
        raise RecordError(
            message or type(error).__name__,
            file=out,
            remedy="; ".join(filter(None, (remedy, _recover(raw)))),
        ) from None
    shutil.rmtree(raw, ignore_errors=True)
    return recording


def _recover(raw: Path) -> str:
    return f"the files of the ranks are kept: tailback record --recover {shlex.quote(str(raw))}"


def _why_nothing(code: int) -> str:
    return (
        "see the launcher's output above; if the program is linked to another MPI library than "
        "that of mpicc, which makes it crash, name its compiler with --mpicc"
        if code
        else "check that the program calls MPI_Init, that it is linked to the shared library of "
        "the MPI that mpicc belongs to (--mpicc), not statically, and that --out is on a file "
        "system all hosts share"
    )


def _run(
    command: Sequence[str],
    libraries: Sequence[Path],
    folder: Path,
    clocks_every_s: float,
    wait_s: float,
) -> int:
    preload = ":".join(filter(None, (*map(str, libraries), os.environ.get("LD_PRELOAD"))))
    variables = {
        "LD_PRELOAD": preload,
        FOLDER: str(folder),
        "TAILBACK_RECORD_CLOCKS": f"{clocks_every_s:g}",
        "TAILBACK_RECORD_WAIT": f"{wait_s:g}",
    }
    words, inherited = with_variables(command, variables)
    environment = {**os.environ, **variables} if inherited else None
    process = subprocess.Popen(words, env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            # The launcher gets the signal too and ends its ranks; a batch system signals only us.
            process.send_signal(signal.SIGTERM)


def _finish(
    started: dict[str, Any], raw: Path, folder: Path, code: int | None, jobs: JobWatch | None
) -> Recording:
    notes: list[str] = []
    program = first_program(raw, notes)
    assert program is not None, "a rank has left its text file"
    ranks = read_rank_files(program)
    recorded = [rank for rank in ranks if rank.recorded]
    if not recorded:
        raise RecordError(
            "no rank wrote more than the name of its file",
            file=raw,
            remedy="remove the folder, and record the program again",
        )
    converter = Path(str(started.get("converter", "")))
    if not converter.is_file():
        converter = build(compiler_for(started["command"])).converter
    calls = write_archive(ranks, folder, library_path(), converter, notes)
    if started.get("byte_ranges") and not (folder / BYTE_RANGES).is_file():
        notes.append("no byte ranges: in no MPI call did the C library write to a TCP connection")
    communicating = _verify(folder, calls)
    notes[:0] = [*notes_on_end(code, ranks, communicating), *notes_on_missing(ranks)]
    _write_hosts(ranks, folder)
    if sharing := sharing_ranks(folder):
        notes.append(
            f"{sharing}: a diagnosis of this recording is a forecast, by their messages and "
            "processor times; to explain a measured run, record with one core per rank"
        )
    # srun outside a job makes one, which only its ranks know.
    job = {"SLURM_JOB_ID": recorded[0].slurm_job} if recorded[0].slurm_job else {}
    write_job({**job, **started.get("job", {})}, folder, notes)
    if jobs is not None:
        jobs.write(folder, notes)
    write_fabric(folder, notes)
    kinds = ("ethernet", "infiniband", "ethtool")
    counters = [file for kind in kinds for file in sorted(program.glob(f"{kind}-*.csv"))]
    if counters:
        (folder / "counters").mkdir()
    for file in counters:
        shutil.copyfile(file, folder / "counters" / file.name)
        _drop_half_line(folder / "counters" / file.name)
    notes.extend(changed_statistics(sorted((folder / "counters").glob("ethtool-*.csv"))))
    recording = Recording(
        list(started["command"]),
        code,
        len(ranks),
        [rank.rank for rank in ranks if not rank.recorded],
        dict(Counter(rank.host for rank in recorded)),
        recorded[0].mpi_library,
        calls,
        communicating,
        residual_ns(recorded),
        min(0 if rank.by_utc else len(rank.offsets) for rank in recorded),
        sum(rank.end != "end" for rank in recorded),
        rates_within_hosts(recorded),
        notes,
    )
    text = json.dumps(asdict(recording), indent=1, ensure_ascii=False)
    (folder / "recording.json").write_text(text + "\n", encoding="utf-8")
    return recording


def _verify(folder: Path, calls: int) -> int:
    """Read the trace back: a disk may report that it is full only after it has taken the data.

    Returns:
        Calls besides those that begin and end MPI.
    """
    if not calls:
        # The reader refuses a trace without events.
        return 0
    trace = load(folder)
    read = len(trace.calls.rank)
    if read != calls:
        raise RecordError(
            f"its trace has {read:,} calls, and {calls:,} were written",
            file=folder,
            remedy="check the disk of --out",
        )
    special = [number for number, name in trace.regions.items() if name in SPECIAL]
    return int((~np.isin(trace.calls.region, special)).sum())


def _drop_half_line(file: Path) -> None:
    """Cut a table after its last whole line: a host that failed may have left half of one."""
    with file.open("rb+") as table:
        size = table.seek(0, os.SEEK_END)
        tail_start = max(size - 65536, 0)
        table.seek(tail_start)
        tail = table.read()
        if tail and not tail.endswith(b"\n"):
            table.truncate(tail_start + tail.rfind(b"\n") + 1)


def _write_hosts(ranks: list[RankRecord], folder: Path) -> None:
    with (folder / "rank_host.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            ("rank", "host", "slot", "cores", "clock", "physical_cores", "openmp_threads")
        )
        before: Counter[str] = Counter()
        clocks = clock_numbers(ranks)
        for rank in ranks:
            if not rank.recorded:
                writer.writerow((rank.rank, NO_HOST, 0, "", rank.rank, 0, 0))
                continue
            # Its order among the ranks of its host.
            writer.writerow(
                (
                    rank.rank,
                    rank.host,
                    before[rank.host],
                    rank.cores,
                    clocks[rank.rank],
                    rank.physical_cores,
                    rank.openmp_threads,
                )
            )
            before[rank.host] += 1


def first_program(folder: Path, notes: list[str]) -> Path | None:
    """The folder of the MPI program that started first; None if no rank left a file.

    Args:
        folder: The folder that the ranks were given.
        notes: Gets a line if there were other programs.
    """
    started = {}
    for program in sorted(folder.glob(f"{_PREFIX}*/")):
        if ranks := sorted(program.glob("rank-*.meta")):
            started[program] = (min(_start(file) for file in ranks), len(ranks))
    programs = sorted(started, key=lambda program: started[program][0])
    if programs[1:]:
        more = sum(started[program][1] for program in programs[1:])
        notes.append(
            f"{counted(len(programs) - 1, 'other MPI program')} of this command "
            f"({counted(more, 'rank')}) left out: the one that started first is in the trace; "
            "processes that it spawned are programs of their own"
        )
    return programs[0] if programs else None


def _start(file: Path) -> int:
    """UTC at which a rank began to record, ns."""
    with file.open("rb") as lines:
        utc = _UTC.search(lines.read(65536))
    return int(utc[1]) if utc else _NEVER
