"""Fitting the engine to a machine: ``tb.calibrate`` and ``tailback calibrate``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailback.calibration.estimates import Estimates, FittedValue, Placed, estimate
from tailback.calibration.file import Calibration
from tailback.calibration.model import CalibrationError
from tailback.calibration.places import host_names, placed, split_hosts
from tailback.calibration.readers import read_benchmark
from tailback.calibration.routes import Machine
from tailback.calibration.trace import trace_times
from tailback.errors import known_keywords, option
from tailback.evidence.measure import has_times, measure
from tailback.fabric.degraded import degrade
from tailback.placement.rank_hosts import rank_hosts
from tailback.simulation.prepare import load_fabric
from tailback.sources.recording import measured_local_rates
from tailback.sources.source import (
    ScenarioOptions,
    network_section,
    notes_on_options,
)


@dataclass
class _FileContents:
    """Contents of the files."""

    placed: list[Placed] = field(default_factory=list)
    packet_bytes: dict[int, str] = field(default_factory=dict)
    eager: FittedValue | None = None
    overhead: FittedValue | None = None
    copy_rate: FittedValue | None = None
    notes: list[str] = field(default_factory=list)


@known_keywords()
def calibrate(
    files: Sequence[str | Path] | str | Path,
    *,
    fabric: str | Path | None = None,
    hosts: str | None = None,
    rankfile: str | Path | None = None,
) -> Calibration:
    """Fit settings of the engine to a machine.

    Args:
        files: Outputs of benchmarks (``tailback list benchmark``), and traces that have times
            (OTF2, DUMPI, Nsight Systems); ``FILE@HOSTS`` names the hosts: two, or one that both
            ranks share.
        fabric: Network of the machine: a file, the name of a preset, or a scenario that describes
            it. Without it, settings that depend on distance are not fitted.
        hosts: Hosts, in rank order, for files without ``@HOSTS``.
        rankfile: The same from a file: a CSV of ranks and hosts, a rank file or a host list.

    Returns:
        Settings with their 95 % intervals, and what could not be determined.

    Raises:
        TailbackError: A file cannot be read, or a host is not in the fabric.

    Example:
        >>> machine = tb.calibrate(["near.txt@n1,n2", "far.txt@n1,n99"], fabric="fabric.txt")
        >>> machine.frame
        >>> machine.write("machine.toml")
    """
    file_list = [files] if isinstance(files, (str, Path)) else list(files)
    if not file_list:
        raise CalibrationError("no file to read", remedy="give at least one")
    if hosts is not None and rankfile is not None:
        raise CalibrationError(
            f"{option('rankfile')} and {option('hosts')} both state where ranks ran",
            file=rankfile,
            remedy="give one of the two",
        )
    machine = None
    if fabric is not None:
        machine = Machine(
            degrade(load_fabric(section := network_section(fabric)), section.degraded)
        )
    ranks = [] if rankfile is None else rank_hosts(Path(rankfile))
    if hosts is not None:
        ranks = host_names(hosts, machine.fabric if machine else None)
    read = _FileContents()
    for file in file_list:
        _add_file(file, ranks, machine, read)
    if len(read.packet_bytes) > 1:
        sizes = ", ".join(f"{size} B in {name}" for size, name in read.packet_bytes.items())
        raise CalibrationError(
            f"benchmarks ran with different MTUs: {sizes}", remedy="calibrate from one of them"
        )
    estimates = estimate(
        read.placed,
        packet_bytes=next(iter(read.packet_bytes), None),
        adapter_gbps=None if machine is None else machine.adapter_gbps,
        eager=read.eager,
        overhead=read.overhead,
        copy_rate=read.copy_rate,
    )
    estimates.engine += _recorded_rates([split_hosts(file)[0] for file in file_list], estimates)
    files_given: ScenarioOptions = {"fabric": fabric, "rankfile": rankfile}
    estimates.notes[:0] = [*read.notes, *notes_on_options(files_given, ("fabric",))]
    return Calibration.of(estimates, [str(file) for file in file_list])


def _recorded_rates(paths: list[Path], estimates: Estimates) -> list[FittedValue]:
    """Rates within hosts that ``tailback record`` timed, as far as messages do not show them."""
    measured = [rates for path in paths if (rates := measured_local_rates(path))]
    out = []
    for name in ("local_rate", "memory_rate") if measured else ():
        if any(fitted_value.name == name for fitted_value in estimates.engine):
            continue
        low = min(rates[name][0] for rates in measured)
        high = max(rates[name][1] for rates in measured)
        middle, source = math.sqrt(low * high), "timed by tailback record"
        out.append(FittedValue(name, "rate", middle, low, high, source, len(measured)))
        estimates.not_identified.pop(name, None)
    # A single message has the full memory bandwidth.
    fitted = {fitted_value.name: fitted_value.value for fitted_value in (*estimates.engine, *out)}
    least = fitted.get("local_rate", 0.0)
    return [
        replace(
            fitted_value, value=max(fitted_value.value, least), high=max(fitted_value.high, least)
        )
        if fitted_value.name == "memory_rate"
        else fitted_value
        for fitted_value in out
    ]


def _add_file(
    file: str | Path, ranks: list[str], machine: Machine | None, out: _FileContents
) -> None:
    """Add the contents of one file."""
    path, hosts = split_hosts(file)
    if hosts is not None:
        ranks = host_names(hosts, machine.fabric if machine else None)
    if has_times(path):
        _add_trace(path, ranks, machine, out)
        return
    data = read_benchmark(path)
    if data.corrupted:
        raise CalibrationError(
            f"data arrived damaged: {data.corrupted}",
            file=path,
            remedy="find out why before you calibrate: tailback diagnose names the pairs of hosts",
        )
    if data.packet_bytes is not None:
        out.packet_bytes.setdefault(data.packet_bytes, str(path))
    out.placed += placed(data, ranks, machine, path)
    out.notes += [f"{path}: {note}" for note in data.notes]


def _add_trace(path: Path, ranks: list[str], machine: Machine | None, out: _FileContents) -> None:
    """Add the times of a trace's messages."""
    run = measure(path)
    hosts: list[str | None] = run.tables["hosts"]["host"].to_list()
    if ranks:
        if len(ranks) != len(hosts):
            raise CalibrationError(
                f"the trace has {len(hosts)} ranks, but hosts of {len(ranks)} are given",
                file=path,
                remedy="name the host of each rank, like "
                f"{option('hosts', 'node[001-004]:16')}, or {option('rankfile')}",
            )
        hosts = list(ranks)
    times = trace_times(run.tables["transfers"], run.tables["calls"], hosts, machine)
    out.placed += times.placed
    out.eager = out.eager or times.eager
    out.overhead = out.overhead or times.overhead
    out.copy_rate = out.copy_rate or times.copy_rate
    out.notes += [f"{path}: {note}" for note in [*run.measured.notes, *times.notes]]
