"""Runs a program with the recorder in its ranks, and writes the folder a diagnosis starts from."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tailback.folders import AtomicDirectory
from tailback.recorder.archive import residual_ns, write_archive
from tailback.recorder.build import build
from tailback.recorder.endings import ended, notes_on_end, notes_on_missing
from tailback.recorder.job_list import JobWatch
from tailback.recorder.launch import FOLDER, PROGRAMS, compiler_for, with_variables
from tailback.recorder.programs import take_first_program
from tailback.recorder.rank_files import RankRecord, RecordError, clock_numbers, read_rank_files
from tailback.recorder.surroundings import changed_statistics, write_fabric, write_job
from tailback.traffic.readers.otf2 import library_path
from tailback.traffic.readers.recorded_cores import shared_cores

NO_HOST = "unknown"
"""Host of ranks that are not recorded."""

_RAW = ("*.meta", "*.events", "*.sizes", PROGRAMS)


@dataclass(frozen=True)
class Recording:
    """What was recorded.

    Attributes:
        command: The program and its launcher, as given.
        exit_code: Theirs; negative: the signal that ended the launcher.
        ranks: Number of ranks.
        not_recorded: Those of them that left no files.
        hosts: Recorded ranks on each host.
        mpi_library: The MPI library, as it names itself.
        calls: Recorded MPI calls.
        clock_residual_ns: How far the clocks of hosts may be apart where they were measured.
        clock_measurements: How often they were measured: at start and end, and in between; 0 if a
            host's clock was not.
        unfinished: Ranks that did not get to MPI_Finalize.
        notes: What is missing.
    """

    command: list[str]
    exit_code: int
    ranks: int
    not_recorded: list[int]
    hosts: dict[str, int]
    mpi_library: str
    calls: int
    clock_residual_ns: int
    clock_measurements: int
    unfinished: int
    notes: list[str]


def record(
    command: Sequence[str], out: Path, *, mpicc: str | None = None, force: bool = False,
    clocks_every_s: float = 30, wait_s: float = 10, step: Callable[[str], None] = lambda _: None,
) -> Recording:  # fmt: skip
    """Run a program and record it.

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
        step: Called with the current step.

    Raises:
        RecordError: The program cannot be started, or no rank was recorded.
        RunError: The folder cannot be written.
    """
    problem: RecordError | None = None
    with AtomicDirectory(out, force=force) as folder:
        # Before anything is compiled.
        with_variables(command, {})
        built = build(mpicc or compiler_for(command))
        if built.fresh:
            step("compiled the recorder for this MPI library (once)")
        inside = folder.resolve()
        with JobWatch.of(os.environ, command) as jobs:
            code = _run(command, built.recorder, inside, clocks_every_s, wait_s)
        step("writing the trace")
        notes: list[str] = []
        if not take_first_program(inside, notes):
            raise RecordError(f"no rank loaded the recorder: {command[0]} ended {ended(code)}",
                              remedy=_why_nothing(code))  # fmt: skip
        try:
            recording = _finish(command, code, inside, built.converter, jobs, notes)
        except RecordError as error:
            # Keep the files of the ranks: they are worth more than a clean folder.
            problem = error
    if problem is not None:
        problem.remedy = f"{problem.remedy}; what the ranks wrote is kept in {out}"
        raise problem
    return recording


def _why_nothing(code: int) -> str:
    return (
        "see the launcher's output above; if the program is linked to another MPI library than "
        "that of mpicc, which makes it crash, name its compiler with --mpicc" if code else
        "check that the program calls MPI_Init, that it is linked to the shared library of the MPI "
        "that mpicc belongs to (--mpicc), not statically, and that --out is on a file system all "
        "hosts share"
    )  # fmt: skip


def _run(
    command: Sequence[str], recorder: Path, folder: Path, clocks_every_s: float, wait_s: float
) -> int:
    preload = ":".join(filter(None, (str(recorder), os.environ.get("LD_PRELOAD"))))
    variables = {"LD_PRELOAD": preload, FOLDER: str(folder),
                 "TAILBACK_RECORD_CLOCKS": f"{clocks_every_s:g}",
                 "TAILBACK_RECORD_WAIT": f"{wait_s:g}"}  # fmt: skip
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
    command: Sequence[str], code: int, folder: Path, converter: Path, jobs: JobWatch,
    notes: list[str],
) -> Recording:  # fmt: skip
    ranks = read_rank_files(folder)
    recorded = [one for one in ranks if one.recorded]
    notes[:0] = [*notes_on_end(code, ranks), *notes_on_missing(ranks)]
    calls = write_archive(ranks, folder, library_path(), converter, notes)
    full = next((one for one in ranks if one.full), None)
    if full is not None:
        notes.append(f"rank {full.rank} stopped recording: {full.full}")
    _write_hosts(ranks, folder)
    notes.extend(shared_cores(folder))
    # srun outside a job makes one, which only its ranks know.
    job = {"SLURM_JOB_ID": recorded[0].slurm_job} if recorded[0].slurm_job else {}
    write_job({**job, **os.environ}, folder, notes)
    jobs.write(folder, notes)
    write_fabric(folder, notes)
    notes.extend(changed_statistics(sorted(folder.glob("ethtool-*.csv"))))
    recording = Recording(
        list(command), code, len(ranks), [one.rank for one in ranks if not one.recorded],
        dict(Counter(one.host for one in recorded)), recorded[0].mpi_library, calls,
        residual_ns(recorded), min(0 if one.by_utc else len(one.offsets) for one in recorded),
        sum(one.end != "end" for one in recorded), notes,
    )  # fmt: skip
    text = json.dumps(asdict(recording), indent=1, ensure_ascii=False)
    (folder / "recording.json").write_text(text + "\n", encoding="utf-8")
    kinds = ("ethernet", "infiniband", "ethtool")
    counters = [file for kind in kinds for file in sorted(folder.glob(f"{kind}-*.csv"))]
    if counters:
        (folder / "counters").mkdir()
        for file in counters:
            _drop_half_line(file)
            file.rename(folder / "counters" / file.name)
    for pattern in _RAW:
        for file in folder.glob(pattern):
            file.unlink()
    return recording


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
        writer.writerow(("rank", "host", "slot", "cores", "clock"))
        before: Counter[str] = Counter()
        clocks = clock_numbers(ranks)
        for one in ranks:
            if not one.recorded:
                writer.writerow((one.rank, NO_HOST, 0, "", one.rank))
                continue
            # Its order among the ranks of its host.
            writer.writerow((one.rank, one.host, before[one.host], one.cores, clocks[one.rank]))
            before[one.host] += 1
