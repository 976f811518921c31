"""A case: the files of a lab run that a diagnosis may read and, apart from them, the truth."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tailback.io.folders import AtomicDirectory
from tailback.lab import causes, counters, fabric, job, system, telemetry
from tailback.lab.causes import Setting
from tailback.lab.datapath.background import BackgroundRecorder
from tailback.lab.plan import Plan
from tailback.lab.remedies import RecommendedChange, apply_change
from tailback.lab.spec import LabError
from tailback.traffic.readers.otf2.reader import load

QUIET_S = 1.5
"""Counters are read for this long before the program starts: other traffic is running by then."""

_AFTERWARDS_S = 0.5


@dataclass(frozen=True)
class RankNotes:
    """Times measured by one rank of a program, seconds.

    Attributes:
        rank: The rank.
        first_barrier: UTC time just before its first MPI_Barrier.
        start: UTC time when its loop began.
        end: UTC time when it ended.
        computed: Time spent computing.
        waited: Time spent in the exchange.
        agreed: Time spent in the collective.
    """

    rank: int
    first_barrier: float
    start: float
    end: float
    computed: float
    waited: float
    agreed: float


def record(
    plan: Plan,
    written: Sequence[str],
    program: Sequence[str],
    out: Path,
    *,
    force: bool = False,
    path_seed: int | None = None,
    rankfile: Path | None = None,
    remedy: RecommendedChange | None = None,
    step: Callable[[str], None] = lambda _: None,
) -> None:
    """Run a program in a lab and write the case.

    Args:
        plan: A lab that is up.
        written: Causes, as :func:`tailback.lab.causes.apply` takes them; none: nothing is wrong.
        program: The MPI program and its arguments.
        out: Folder to write.
        force: Replace the folder if Tailback wrote it.
        path_seed: Seed of ECMP; None: that of the specification.
        rankfile: Where the ranks run; None: where the specification or a cause puts them.
        remedy: What a diagnosis recommends, which the run is to have.
        step: Called with the current step.

    Raises:
        LabError: A cause, the machine or the program is wrong.
        RunError: The folder cannot be written.
    """
    setting = Setting.nominal(plan)
    for text in written:
        causes.apply(text, setting, plan)
    if rankfile is not None:
        causes.place_ranks(rankfile, setting, plan)
    if remedy is not None:
        apply_change(remedy, setting, plan)
    seed = plan.spec.fabric.ecmp_seed if path_seed is None else path_seed
    system.require(system.FABRIC_TOOLS | system.JOB_TOOLS)
    program_path = shutil.which(program[0])
    if program_path is None:
        raise LabError(
            f"{program[0]!r} is not a program", remedy="give its path, like ./halo, after --"
        )
    command = [str(Path(program_path).resolve()), *program[1:]]
    with AtomicDirectory(out, force=force) as folder, fabric.in_use(plan) as work:
        fabric.seed_paths(plan, seed)
        fabric.settle(plan, setting.rates_bps, setting.spines, static=setting.static)
        step("running the program")
        sampled = fabric.sampling_of(plan)
        with ExitStack() as recorders:
            recorders.enter_context(
                BackgroundRecorder(
                    "lab counters",
                    lambda wait: counters.record_until(plan, folder / "counters.csv.gz", wait),
                )
            )
            if sampled is not None:
                recorders.enter_context(
                    telemetry.recorded(plan, sampled, fabric.folder_of(plan), folder)
                )
            with job.other_traffic(plan, setting):
                time.sleep(QUIET_S)
                calls = telemetry.calls_map(fabric.folder_of(plan)) if sampled else None
                trace = job.run(plan, setting, command, work, calls=calls)
                time.sleep(_AFTERWARDS_S)
            # Let queues drain, so that the last readings include their packets.
            time.sleep(_AFTERWARDS_S)
        step("writing the case")
        shutil.copytree(trace, folder / "trace")
        write_links(plan, folder / "links.csv")
        _write_ranks(plan, setting, folder)
        notes = _notes(work / job.NOTES)
        if notes:
            _write_clock(notes, folder)
        _write_truth(setting, seed, notes, [Path(command[0]).name, *program[1:]], folder)


def _write_csv(file: Path, header: str, rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows(rows)


def write_links(plan: Plan, file: Path) -> None:
    """Write the links with their nominal rates and queues, as a diagnosis reads them."""
    shape = plan.spec.fabric
    _write_csv(
        file,
        "link,src,dst,iface,rate_mbit,burst_bytes,queue_limit_bytes",
        [
            (
                link.number,
                link.source,
                link.target,
                link.interface,
                link.mbit,
                shape.burst,
                shape.queue,
            )
            for link in plan.links
        ],
    )


def _write_ranks(plan: Plan, setting: Setting, folder: Path) -> None:
    ranks = [(rank, host, plan.address(host)) for rank, host in enumerate(setting.hosts)]
    _write_csv(folder / "rank_host.csv", "rank,host,ip", ranks)


def _notes(folder: Path) -> list[RankNotes]:
    """Notes written by the ranks; empty if the program writes none."""
    notes = []
    for file in folder.iterdir():
        try:
            rank, *times = file.read_text().split()
            notes.append(RankNotes(int(rank), *map(float, times)))
        except (ValueError, TypeError) as error:
            raise LabError(
                f"not what a rank notes: {error}",
                file=file.name,
                remedy="write it as examples/lab/halo.c does",
            ) from None
    return sorted(notes, key=lambda entry: entry.rank)


def _write_clock(notes: list[RankNotes], folder: Path) -> None:
    """UTC time of each rank's trace zero.

    The program prints the time of its first MPI_Barrier, and the trace records the same call.
    """
    trace = load(folder / "trace")
    barrier = [number for number, name in trace.regions.items() if name == "MPI_Barrier"]
    rows = []
    for rank in notes:
        mine = (trace.calls.rank == rank.rank) & np.isin(trace.calls.region, barrier)
        if mine.any():
            traced = int(trace.calls.enter[mine].min()) / trace.ticks_per_second
            rows.append((rank.rank, f"{rank.first_barrier - traced:.6f}"))
    _write_csv(folder / "clock.csv", "rank,trace_zero_unix_s", rows)


def _write_truth(
    setting: Setting, path_seed: int, notes: list[RankNotes], program: Sequence[str], folder: Path
) -> None:
    truth: dict[str, Any] = {
        "causes": setting.causes,
        "remedies": setting.remedies,
        "path_seed": path_seed,
        "program": list(program),
        "ranks": len(setting.hosts),
    }
    if notes:
        start, end = min(rank.start for rank in notes), max(rank.end for rank in notes)
        truth |= {
            "loop_start_unix": start,
            "loop_end_unix": end,
            "loop_s": end - start,
            "computed_s": [rank.computed for rank in notes],
            "waited_s": [rank.waited for rank in notes],
            "agreed_s": [rank.agreed for rank in notes],
        }
    (folder / "truth").mkdir(exist_ok=True)
    (folder / "truth" / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
