"""Readers of benchmark outputs: one benchmark per module; all return the same series.

A reader is a module with ``sniff(text)`` (is this its format?) and ``read(text, path)``. To add
one, write one module and add one line below.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailback.calibration.model import BenchmarkData, BenchmarkReader, CalibrationError, Series
from tailback.calibration.readers import gpcnet, imb, nccl_tests, osu, perftest
from tailback.io.input_files import content, head
from tailback.registry import Registry

BENCHMARKS: Registry[BenchmarkReader] = Registry("benchmark", "benchmarks that a calibration reads")

BENCHMARKS.register("gpcnet")(gpcnet)
BENCHMARKS.register("imb")(imb)
BENCHMARKS.register("nccl-tests")(nccl_tests)
BENCHMARKS.register("osu")(osu)
BENCHMARKS.register("perftest")(perftest)

_MAX_BYTES = 64 << 20
_SNIFFED = 1 << 16
_LONGEST_PS = 3.6e15
"""An hour: benchmarks repeat each message many times."""


_TAG = re.compile(r"^(?:[^<\n]{0,80}<std(?:out|err)>: ?|\[\d+,\d+\]: ?| *\d+: )", re.MULTILINE)
"""What launchers put before each line of output: mpirun --tag-output, mpiexec -l, srun -l."""


def without_tags(text: str) -> str:
    """The output of a benchmark without the tags of a launcher before each of its lines."""
    lines = sum(not line.isspace() for line in text.splitlines(keepends=True))
    tagged = len(_TAG.findall(text))
    # Lines of the launcher itself have none.
    return _TAG.sub("", text) if tagged > lines / 2 else text


def is_benchmark(path: Path) -> bool:
    """Whether a reader recognises a file."""
    text = without_tags(head(path, _SNIFFED))
    return any(entry.part.sniff(text) for entry in BENCHMARKS)


def files_of(path: Path) -> list[Path]:
    """The files of a folder, sorted, or the file that it is."""
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]


def holds_benchmarks(path: Path) -> bool:
    """Whether a path is the output of a benchmark, or a folder of such outputs alone."""
    if path.is_dir():
        return any(is_benchmark(file) for file in files_of(path)[:4])
    return path.is_file() and is_benchmark(path)


def read_benchmark_runs(path: Path) -> list[BenchmarkData]:
    """The runs of a benchmark whose outputs are in one file, as :func:`read_benchmark`.

    A damaged run is left out with a note if there are others.
    """
    text = without_tags(content(path, CalibrationError).decode("utf-8-sig", errors="replace"))
    if not nccl_tests.sniff(text[:_SNIFFED]) or text.lstrip().startswith("{"):
        return [read_benchmark(path)]
    out: list[BenchmarkData] = []
    problems: list[CalibrationError] = []
    lines = 0
    for run in nccl_tests.split_runs(text):
        try:
            out.append(nccl_tests.read("\n" * lines + run, path))
        except CalibrationError as error:
            problems.append(error)
        lines += run.count("\n")
    if not out:
        raise problems[0]
    out[0].notes += [f"a run is left out: {error.place}: {error.message}" for error in problems]
    return out


def read_benchmark(path: Path) -> BenchmarkData:
    """Read a benchmark's output, plain or gzip.

    Args:
        path: A file in one of the formats of :data:`BENCHMARKS`.

    Raises:
        CalibrationError: It cannot be read, no reader recognises it, or it is cut or damaged.
    """
    data = content(path, CalibrationError)
    if not data.strip():
        raise CalibrationError(
            "the file is empty", file=path, remedy="leave it out; the benchmark may have failed"
        )
    if len(data) > _MAX_BYTES:
        raise CalibrationError(
            f"{len(data):,} bytes are not the output of a benchmark",
            file=path,
            remedy="give the output alone",
        )
    text = data.decode("utf-8-sig", errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    text = without_tags(text)
    reader = next((entry.part for entry in BENCHMARKS if entry.part.sniff(text[:_SNIFFED])), None)
    if reader is None:
        raise CalibrationError(
            "no reader recognises this format",
            file=path,
            remedy=f"give what one of these printed: {', '.join(BENCHMARKS.names())}; or a "
            "trace with times (OTF2, DUMPI, Nsight Systems)",
        )
    out = reader.read(text, path)
    for series in out.series:
        _require_possible(series, path)
    if not out.series and out.packet_bytes is None:
        raise CalibrationError(
            f"holds nothing that a calibration uses ({'; '.join(out.notes) or 'no result'})",
            file=path,
            remedy="run a point-to-point test: latency, bandwidth or ping-pong",
        )
    return out


def _require_possible(series: Series, path: Path) -> None:
    """Refuse a time that no message takes: a fit through it has no meaning."""
    impossible = ~((series.time_ps >= 1) & (series.time_ps <= _LONGEST_PS))
    impossible |= ~(series.resolution_ps <= _LONGEST_PS)
    if impossible.any():
        row = int(impossible.argmax())
        raise CalibrationError(
            f"messages of {series.size_bytes[row]:.0f} B cannot take {series.time_ps[row]:.3g} ps",
            file=path,
            place=series.source,
            remedy="the output is damaged: run the benchmark again",
        )


__all__ = [
    "BENCHMARKS",
    "files_of",
    "holds_benchmarks",
    "is_benchmark",
    "read_benchmark",
    "read_benchmark_runs",
]
