"""The analysis on a cluster of two workers gives what they give in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tailback.cli import run as tailback
from tailback.port_counters.analysis import port_inventory, verdict
from tailback.port_counters.analysis.cluster import Cluster
from tailback.port_counters.analysis.passes import Aggregate, Archive, Piece
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.analysis.survey import AnalysisOptions, analyse
from tailback.port_counters.schema import CounterError
from tailback.workers import dask_client
from tests.factories import torus_archive
from tests.factories.collect_subnet import FILE
from tests.factories.counter_collection import collected

distributed = pytest.importorskip(
    "distributed", reason="Dask is not installed: pip install 'tailback[cluster]'"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A scheduler on the loopback with two workers, each a process of one thread."""
    folder = tmp_path_factory.mktemp("cluster")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        local_directory=str(folder),
        silence_logs=50,
    ) as made:
        yield made.scheduler_address


def process_of(piece: Piece) -> pl.LazyFrame:
    return piece.rows.select(pid=pl.lit(os.getpid()), rows=pl.len().cast(pl.Int64))


def of_processes(parts: pl.LazyFrame) -> pl.LazyFrame:
    return parts.group_by("pid").agg(pl.col("rows").sum())


def split(folder: Path, frame: pl.DataFrame, cuts: list[int]) -> Path:
    """An archive whose files are cut anywhere, in the middle of rounds too."""
    folder.mkdir()
    edges = [0, *cuts, frame.height]
    for number, (start, end) in enumerate(pairwise(edges)):
        frame.slice(start, end - start).write_parquet(folder / f"part-{number:05d}.parquet")
    return folder


def archive(path: Path) -> Archive:
    rows = load([path]).archive
    assert rows is not None
    return rows


@pytest.mark.slow
def test_ports_are_equal_on_a_cluster(tmp_path: Path, address: str) -> None:
    rows = torus_archive.part(0, 9, shape=(4, 4, 4))
    # An empty file, and one of a single row.
    path = split(tmp_path / "a", rows, [1000, 1000, 1001, 2999])
    here = verdict.by_port(archive(path))
    with dask_client(address) as client:
        there = verdict.by_port(archive(path), Cluster(client))
    assert_frame_equal(there, here, rel_tol=1e-11)
    assert_frame_equal(verdict.by_port(rows.lazy()), here, rel_tol=1e-11)


def test_both_workers_work(tmp_path: Path, address: str) -> None:
    rows = torus_archive.part(0, 4, shape=(5, 5, 7))
    path = split(tmp_path / "a", rows, list(range(100, rows.height, 100)))
    pieces = archive(path).pieces()
    with dask_client(address) as client:
        cluster = Cluster(client)
        (table,) = cluster.add_up(pieces, [Aggregate(process_of, of_processes)])
        assert cluster.threads == 2
    assert table["rows"].sum() == rows.height
    assert table.height == 2
    assert os.getpid() not in table["pid"]


def test_the_command_on_a_cluster(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = torus_archive.write(tmp_path / "t", 12, shape=(4, 4, 4))
    outputs = []
    for more in ([], ["--cluster", address]):
        assert tailback(["counters", str(path), *more]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert "X+" in outputs[0]


def test_a_file_unreadable_to_workers_is_an_error(tmp_path: Path, address: str) -> None:
    path = split(tmp_path / "a", torus_archive.part(0, 2, shape=(4, 4, 4)), [300, 500])
    rows = archive(path)
    (path / "part-00001.parquet").write_bytes(b"PAR1 no more")
    with dask_client(address) as client, pytest.raises(CounterError):
        verdict.by_port(rows, Cluster(client))


def test_nobody_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = torus_archive.write(tmp_path / "t", 2, shape=(2, 2, 2))
    assert tailback(["counters", str(path), "--cluster", "what is this"]) == 2
    assert "no Dask scheduler" in capsys.readouterr().err


def test_a_clusters_collection_has_fabric_names(tmp_path: Path, address: str) -> None:
    folder = collected(tmp_path / "c", 5)
    (tmp_path / "fabric").write_text(FILE)
    places = port_inventory.from_discovery(tmp_path / "fabric")
    here = analyse(load([folder]), places, AnalysisOptions(tick_ns=3.0))
    with dask_client(address) as client:
        cluster = Cluster(client)
        there = analyse(load([folder]), places, AnalysisOptions(tick_ns=3.0), cluster)
    assert there.kind == here.kind
    assert_frame_equal(there.ports, here.ports, rel_tol=1e-12)


@pytest.mark.parametrize("scheduler", ["not an address", "http://localhost:8787"])
@pytest.mark.slow
def test_no_scheduler_address_is_refused_at_once(scheduler: str) -> None:
    # In a process of its own: a client that is given up waits when the interpreter ends.
    began = time.monotonic()
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "tailback",
            "counters",
            "leaf06-12h00.txt",
            "leaf06-12h01.txt",
            "--cluster",
            scheduler,
        ],
        capture_output=True,
        text=True,
        cwd="examples/counters",
        timeout=120,
        check=False,
    )
    assert time.monotonic() - began < 30
    assert ended.returncode == 2
    assert f"no Dask scheduler answers at {scheduler!r}" in ended.stderr
    assert "Traceback" not in ended.stderr
