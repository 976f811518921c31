"""The studies on a cluster of two workers give what they give in one process."""

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

from studies.archives import torus as torus_archive
from studies.archives import yellowstone as archive
from tailback.cli import run as tailback
from tailback.port_counters.analysis import port_inventory, rounds, study, verdict
from tailback.port_counters.analysis.cluster import Cluster
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Piece
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.analysis.survey import AnalysisOptions, analyse
from tailback.port_counters.schema import CounterError
from tailback.workers import dask_client
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


def test_both_workers_work(tmp_path: Path, address: str) -> None:
    path = split(tmp_path / "a", archive.part(0, 40), list(range(100, 4000, 100)))
    pieces = rounds.archive(path).pieces()
    with dask_client(address) as client:
        cluster = Cluster(client)
        (table,) = cluster.add_up(pieces, [Aggregate(process_of, of_processes)])
        assert cluster.threads == 2
    assert table["rows"].sum() == 4000
    assert table.height == 2
    assert os.getpid() not in table["pid"]


def test_the_infiniband_study_is_the_same_bits(tmp_path: Path, address: str) -> None:
    frame = archive.part(0, 300)
    # cuts within rounds, an empty file, a file of one row
    path = split(tmp_path / "a", frame, [1234, 1234, 1235, 9999, 20_050])
    here = study.infiniband(rounds.archive(path), archive.classes())
    with dask_client(address) as client:
        cluster = Cluster(client)
        there = study.infiniband(rounds.archive(path), archive.classes(), engine=cluster)
    in_one = study.infiniband(frame.lazy(), archive.classes())
    assert set(here.tables) == {f"table_{n}" for n in ("i", "ii", "iii")} | {
        f"figure_{n}" for n in (5, 6, 7)
    }
    for name, table in in_one.tables.items():
        assert_frame_equal(here.tables[name], table, check_exact=True)
        assert_frame_equal(there.tables[name], table, check_exact=True)


def test_the_torus_study_is_the_same(tmp_path: Path, address: str) -> None:
    path = torus_archive.write(tmp_path / "t", 45, shape=(6, 5, 4))
    files = tuple(str(file) for file in sorted(path.glob("part-*.parquet")))
    assert len(files) == 5
    rows = Archive(pl.scan_parquet(list(files)), files)
    where = pl.read_parquet(path / "coordinates.parquet")
    members = where["node_name"].to_list()[::5]
    options = {"io_nodes": members, "threshold": 20.0, "more": {"ports": verdict.PORT_PASS}}
    here = study.torus(rows, where, **options)  # type: ignore[arg-type]
    with dask_client(address) as client:
        cluster = Cluster(client)
        there = study.torus(rows, where, engine=cluster, **options)  # type: ignore[arg-type]
    assert here.evolution is not None and there.evolution is not None
    assert here.slices is not None and there.slices is not None
    assert here.comparison is not None and there.comparison is not None
    for name, table in here.tables.items():
        # Counts are the same bits; sums of floats may differ in the last ones.
        assert_frame_equal(
            there.tables[name], table, check_exact=name.startswith("ccdf"), rel_tol=1e-11
        )
    assert_frame_equal(there.evolution.features, here.evolution.features, rel_tol=1e-12)
    assert there.evolution.edges.equals(here.evolution.edges)
    assert there.slices.equals(here.slices)
    assert there.comparison.p_value == pytest.approx(here.comparison.p_value)
    ports = [verdict.port_table(found.more["ports"]) for found in (here, there)]
    assert_frame_equal(ports[0], ports[1], rel_tol=1e-11, check_row_order=False)
    # and in one process, all rows at once, as they were without any pieces
    whole = study.torus(rows.rows, where, engine=LOCAL_ENGINE, **options)  # type: ignore[arg-type]
    assert_frame_equal(whole.tables["ccdf_credit"], here.tables["ccdf_credit"], check_exact=True)
    assert_frame_equal(whole.tables["table_i"], here.tables["table_i"], rel_tol=1e-11)


def test_the_command_on_a_cluster(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = torus_archive.write(tmp_path / "t", 12, shape=(4, 4, 4))
    said = []
    for more in ([], ["--cluster", address]):
        assert tailback(["counters", str(path), *more]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "X+" in said[0]


def test_a_file_unreadable_to_workers_is_an_error(tmp_path: Path, address: str) -> None:
    path = split(tmp_path / "a", archive.part(0, 20), [700, 1300])
    pieces = rounds.archive(path)
    (path / "part-00001.parquet").write_bytes(b"PAR1 no more")
    with dask_client(address) as client, pytest.raises(CounterError):
        rounds.summarise(pieces, engine=Cluster(client))


def test_nobody_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = torus_archive.write(tmp_path / "t", 2, shape=(2, 2, 2))
    assert tailback(["counters", str(path), "--cluster", "what is this"]) == 2
    assert "no Dask scheduler" in capsys.readouterr().err


@pytest.mark.parametrize("plan", ["sweep", "rounds"])
def test_a_clusters_collection_has_fabric_names(tmp_path: Path, address: str, plan: str) -> None:
    folder = collected(tmp_path / "c", 5, rounds=plan == "rounds")
    (tmp_path / "fabric").write_text(FILE)
    places = port_inventory.from_discovery(tmp_path / "fabric")
    _, here = analyse(load([folder]), places, AnalysisOptions(tick_ns=3.0))
    with dask_client(address) as client:
        cluster = Cluster(client)
        _, there = analyse(load([folder]), places, AnalysisOptions(tick_ns=3.0), cluster)
    assert there.kind == here.kind == "stalls"
    assert_frame_equal(there.ports, here.ports, rel_tol=1e-12)


@pytest.mark.parametrize("given", ["not an address", "http://localhost:8787"])
def test_no_scheduler_address_is_refused_at_once(given: str) -> None:
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
            given,
        ],
        capture_output=True,
        text=True,
        cwd="examples/counters",
        timeout=120,
        check=False,
    )
    assert time.monotonic() - began < 30
    assert ended.returncode == 2
    assert f"no Dask scheduler answers at {given!r}" in ended.stderr
    assert "Traceback" not in ended.stderr
