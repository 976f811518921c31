"""Readers of benchmarks: what they make of outputs in every format, cut and hostile ones too."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tailback.calibration import BENCHMARKS, CalibrationError, read_benchmark
from tailback.calibration.readers import is_benchmark, read_benchmark_runs
from tailback.errors import TailbackError
from tests.factories import benchmark_outputs as outputs

OUTPUTS: dict[str, tuple[str, Callable[[], str]]] = {
    "osu_latency": ("osu", outputs.osu_latency),
    "osu_latency_7": ("osu", outputs.osu_latency_7),
    "osu_bw": ("osu", outputs.osu_bw),
    "osu_bibw": ("osu", lambda: outputs.osu_bw("Bi-Directional Bandwidth Test", 2)),
    "osu_mbw_mr": ("osu", outputs.osu_mbw_mr),
    "imb_pingpong": ("imb", outputs.imb),
    "imb_pingping": ("imb", lambda: outputs.imb("PingPing")),
    "ib_write_lat": ("perftest", outputs.ib_write_lat),
    "ib_write_bw": ("perftest", outputs.ib_write_bw),
    "ib_write_bw_gbits": ("perftest", lambda: outputs.ib_write_bw(gbits=True)),
    "nccl_text": ("nccl-tests", outputs.nccl_text),
    "nccl_json": ("nccl-tests", outputs.nccl_json),
    "gpcnet": ("gpcnet", outputs.gpcnet),
}


def put(folder: Path, text: str | bytes, name: str = "out.txt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("name", OUTPUTS)
def test_each_output_has_one_reader(name: str) -> None:
    reader, make = OUTPUTS[name]
    assert [entry.name for entry in BENCHMARKS if entry.part.sniff(make())] == [reader]


@pytest.mark.parametrize("name", ["osu_latency", "osu_latency_7", "imb_pingpong"])
def test_mean_times_are_read(tmp_path: Path, name: str) -> None:
    (series,) = read_benchmark(put(tmp_path, OUTPUTS[name][1]())).series
    assert (series.quantity, series.layer) == ("latency", "mpi")
    at = int(np.flatnonzero(series.size_bytes == 65536)[0])
    assert series.time_ps[at] == pytest.approx(outputs.time_us(65536) * 1e6, rel=0.01)
    assert series.resolution_ps[at] == pytest.approx(1e4)


@pytest.mark.parametrize(
    "name", ["osu_bw", "osu_bibw", "osu_mbw_mr", "ib_write_bw", "ib_write_bw_gbits"]
)
def test_rates_of_an_adapter_have_any_unit(tmp_path: Path, name: str) -> None:
    (series,) = read_benchmark(put(tmp_path, OUTPUTS[name][1]())).series
    assert series.quantity == "stream"
    rate = series.size_bytes[-1] / series.time_ps[-1] * 1e6
    assert rate == pytest.approx(outputs.rate_mbs(outputs.SIZES[-1]), rel=0.01)


def test_pairs_of_a_multiple_test_are_told(tmp_path: Path) -> None:
    (series,) = read_benchmark(put(tmp_path, outputs.osu_mbw_mr(pairs=7))).series
    assert series.pairs == 7


def test_verbs_tell_the_mtu_and_the_median(tmp_path: Path) -> None:
    benchmark = read_benchmark(put(tmp_path, outputs.ib_write_lat(mtu=2048)))
    assert benchmark.packet_bytes == 2048
    (series,) = benchmark.series
    assert series.layer == "verbs"
    assert series.time_ps[0] == pytest.approx(0.9e6, rel=0.01)


@pytest.mark.parametrize("make", [outputs.nccl_text, outputs.nccl_json])
def test_nccl_tells_hosts_and_bus_bandwidth(
    tmp_path: Path, make: Callable[[tuple[str, ...]], str]
) -> None:
    benchmark = read_benchmark(put(tmp_path, make(("gpu7", "gpu8"))))
    assert benchmark.hosts == ["gpu7", "gpu8"]
    (series,) = benchmark.series
    assert (series.quantity, series.layer) == ("stream", "nccl")
    rate = series.size_bytes[-1] / series.time_ps[-1] * 1e6
    assert rate == pytest.approx(outputs.RATE, rel=0.02)


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[prterun-n1-7@1,0]<stdout>: ", " 0: "])
def test_tags_of_launchers_are_removed(tmp_path: Path, tag: str) -> None:
    plain = outputs.nccl_text()
    tagged = "".join(tag + line for line in plain.splitlines(keepends=True))
    (expected,) = read_benchmark_runs(put(tmp_path, plain))
    (run,) = read_benchmark_runs(put(tmp_path, f"a line of the launcher\n{tagged}", "tagged.txt"))
    assert is_benchmark(tmp_path / "tagged.txt")
    assert run.hosts == expected.hosts
    assert run.series[0].time_ps.tolist() == expected.series[0].time_ps.tolist()


def test_of_gpcnet_only_the_isolated_latency_is_used(tmp_path: Path) -> None:
    benchmark = read_benchmark(put(tmp_path, outputs.gpcnet("2.3")))
    (series,) = benchmark.series
    assert (series.size_bytes.tolist(), series.time_ps.tolist()) == ([8.0], [2.3e6])
    assert series.resolution_ps.tolist() == pytest.approx([1e5])
    assert "BW+Sync" in benchmark.notes[0]


def test_several_tests_in_one_file(tmp_path: Path) -> None:
    text = outputs.osu_latency() + outputs.osu_bw() + outputs.osu_bw("Allreduce Latency Test")
    benchmark = read_benchmark(put(tmp_path, gzip.compress(text.encode()), "out.txt.gz"))
    assert [series.source for series in benchmark.series] == ["osu_latency", "osu_bw"]
    assert "Allreduce" in benchmark.notes[0]


def test_several_pairs_share_adapters_and_are_left_out(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="PingPong of 4 processes is not used"):
        read_benchmark(put(tmp_path, outputs.imb(processes=4)))


def replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


BAD = {
    "no number": (replaced(outputs.osu_latency(), "1.20\n", "fast\n"), "line 3: 'fast' is not a"),
    "not a number": (replaced(outputs.osu_latency(), "1.20\n", "1.nan\n"), "line 3"),
    "infinite": (replaced(outputs.osu_latency(), "1.20\n", "1e999\n"), "line 3: '1e999'"),
    "zero": (replaced(outputs.osu_latency(), "1.20\n", "0.00\n"), "cannot be a latency"),
    "negative": (replaced(outputs.imb(), "1.20", "-1.2"), "'-1.2' is not a time"),
    "huge size": (replaced(outputs.osu_bw(), "\n4194304", "\n9" + "0" * 17), "not a message size"),
    "half a byte": (replaced(outputs.osu_bw(), "\n4194304", "\n4194304.5"), "not a message size"),
    "a field too many": (replaced(outputs.osu_bw(), "\n4194304", "\n4194304 7"), "3 fields"),
    "no header": ("# OSU MPI Latency Test v5.9\n", "no row below the header"),
    "no rows": ("# OSU MPI Latency Test v5.9\n# Size    Latency (us)\n", "no row below"),
    "other columns": ("# OSU MPI Latency Test v5.9\n# Size    Foo\n1   2\n", "no column of"),
    "nothing of use": (
        outputs.osu_latency().replace("Latency Test", "Bcast Latency Test"),
        "'MPI Bcast Latency Test' is not used",
    ),
    "cut JSON": (outputs.nccl_json()[:-7], "not valid JSON"),
    "JSON of words": (
        outputs.nccl_json().replace('"bus_bw": 5', '"bus_bw": "x", "y": 5'),
        "results, number",
    ),
    "JSON without results": ('{"bus_bw": 1}', "no list of results"),
    "deep JSON": ('{"bus_bw": ' + "[" * 100_000, "not valid JSON"),
    "cells": (replaced(outputs.gpcnet(), "|         usec |", "|"), "3 cells where"),
    "no latency": (outputs.gpcnet().replace("Lat (8 B)", "Lat"), "no latency of random rings"),
    "no words": ("\0\0\0", "no reader recognises"),
    "other text": ("hello\n", "no reader recognises"),
    "empty": (" \n", "the file is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_damage_is_refused_with_file_and_place(tmp_path: Path, name: str) -> None:
    text, says = BAD[name]
    path = put(tmp_path, text)
    with pytest.raises(CalibrationError) as caught:
        read_benchmark(path)
    assert says in str(caught.value)
    assert caught.value.file == path
    assert caught.value.remedy


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_cut_output_gives_no_other_value(tmp_path: Path, name: str) -> None:
    text = OUTPUTS[name][1]()
    complete = {
        (i, size): time
        for i, series in enumerate(read_benchmark(put(tmp_path, text)).series)
        for size, time in zip(series.size_bytes.tolist(), series.time_ps.tolist(), strict=True)
    }
    for end in range(0, len(text), max(1, len(text) // 150)):
        try:
            benchmark = read_benchmark(put(tmp_path, text[:end]))
        except TailbackError:
            continue
        for i, series in enumerate(benchmark.series):
            pairs = zip(series.size_bytes.tolist(), series.time_ps.tolist(), strict=True)
            changed = [key for key, time in pairs if complete.get((i, key)) != time]
            # Of one or two rows it cannot be told how many decimals they should have.
            assert not changed or len(series.size_bytes) < 3


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be read"):
        read_benchmark(tmp_path / "none.txt")
    with pytest.raises(CalibrationError, match="damaged gzip"):
        read_benchmark(put(tmp_path, gzip.compress(b"x" * 999)[:-9], "x.gz"))


@pytest.mark.parametrize("name", ["osu_bw", "nccl_text", "ib_write_bw"])
def test_cut_output_loses_its_last_row_alone(name: str, tmp_path: Path) -> None:
    text = getattr(outputs, name)()
    rows = [line for line in text.splitlines(keepends=True) if line.strip()[:1].isdigit()]
    end = text.index(rows[-1]) + len(rows[-1]) // 2
    benchmark = read_benchmark(put(tmp_path, text[:end]))
    full = read_benchmark(put(tmp_path, text))
    assert len(benchmark.series[0].size_bytes) == len(full.series[0].size_bytes) - 1
    assert "is cut and left out" in benchmark.notes[-1]
