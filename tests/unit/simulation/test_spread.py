"""Diagnoses whose simulations workers do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailback.api.diagnose import diagnose
from tailback.cli import run as cli
from tailback.errors import RunError
from tailback.evaluate import Change
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tailback.simulation.parallel import task_folder
from tailback.simulation.parallel.spread import SCRIPT, serve, spread, write_script
from tailback.simulation.parallel.task_folder import (
    TaskFiles,
    TaskFolder,
    TaskResult,
    claim,
    decode,
)
from tailback.workers import dask_client

SCENARIO = {
    "name": "tiny",
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [
        {
            "pattern": {"kind": "stencil2d", "dims": [4, 4], "size": "64 KiB"},
            "repeat": 2,
            "placement": "random",
        }
    ],
    "engine": {"routing": "deterministic"},
}


@pytest.fixture(scope="module")
def alone() -> str:
    """The diagnosis without workers."""
    return diagnose(SCENARIO, seeds=2).diagnosis.model_dump_json()


@contextmanager
def serving(folder: Path) -> Iterator[None]:
    """A worker in a thread of this process."""
    worker = threading.Thread(target=serve, args=(folder,), kwargs={"idle_s": 60.0}, daemon=True)
    worker.start()
    yield
    worker.join(60)
    assert not worker.is_alive()


@pytest.mark.slow
def test_a_workers_tasks_keep_the_diagnosis(
    tmp_path: Path, alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[int]()
    take = TaskFolder.take

    def counted(self: TaskFolder, number: int) -> Any:
        run = take(self, number)
        done.append(number) if run is not None else None
        return run

    monkeypatch.setattr(TaskFolder, "take", counted)
    with serving(tmp_path / "tasks"):
        diagnosed = diagnose(SCENARIO, seeds=2, tasks=tmp_path / "tasks")
    assert diagnosed.diagnosis.model_dump_json() == alone
    assert len(done) > 10
    assert not (tmp_path / "tasks").exists()


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same(
    tmp_path: Path, alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert diagnose(SCENARIO, seeds=2, dask=client).diagnosis.model_dump_json() == alone
    assert list(tmp_path.iterdir()) == []


def test_a_killed_worker_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task is claimed and never done: the diagnosis does it itself."""
    monkeypatch.setattr(task_folder, "STALE_S", 0.1)
    monkeypatch.setattr(task_folder, "PATIENCE_S", 0.0)
    prepared = prepare(parse(SCENARIO))
    tasks = TaskFolder.create(tmp_path / "tasks")
    evaluate = make_evaluate(prepared, tasks=tasks)
    changes = [Change(seed_offset=1), Change(seed_offset=2), Change(network="star")]
    evaluate.announce(changes)  # type: ignore[attr-defined]
    killed = claim(tasks.folder)
    assert killed == TaskFiles.of(0)
    plain = make_evaluate(prepared)
    for change in changes:
        assert evaluate(change).elapsed_ps == plain(change).elapsed_ps
    assert claim(tasks.folder) is None


def test_a_failing_worker_leaves_its_task(tmp_path: Path) -> None:
    tasks = TaskFolder.create(tmp_path / "tasks")
    tasks.open(prepare(parse(SCENARIO)))
    number = tasks.put(Change())

    def broken(_change: Change) -> Any:
        tasks.close()
        raise MemoryError

    task_folder.work(tasks.folder, broken, 1.0)
    assert tasks.take(number) is None


def test_worker_processes_end_with_the_diagnosis(tmp_path: Path) -> None:
    with spread(2, None, tmp_path / "tasks") as tasks:
        assert tasks is not None
        evaluate = make_evaluate(prepare(parse(SCENARIO)), tasks=tasks)
        evaluate.announce([Change()])  # type: ignore[attr-defined]
        assert evaluate(Change()).elapsed_ps > 0
    assert not (tmp_path / "tasks").exists()


def test_a_folder_that_exists_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="exists already"), spread(None, None, tmp_path):
        pass


@pytest.mark.slow
def test_a_batch_script_starts_workers(tmp_path: Path) -> None:
    with spread(None, None, TaskFolder.create(tmp_path / "out.tasks")) as tasks:
        assert tasks is not None
        script = write_script(tasks, "out.tasks", 3)
        assert "#SBATCH --array=0-2\n" in script.read_text()
        env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        worker = subprocess.Popen(["bash", str(script)], env=env)
        tasks.open(prepare(parse(SCENARIO)))
        number = tasks.put(Change())
        done = TaskFiles.of(number).done
        while done not in tasks.folder.names():
            assert worker.poll() is None
            time.sleep(0.02)
        result = decode(tasks.folder.read(done), TaskResult)
        assert result.run is not None and result.run.elapsed_ps > 0 and result.cost_s > 0
    assert worker.wait(60) == 0


def test_a_worker_that_comes_too_late_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailback.simulation.parallel.spread.ABSENT_S", 0.1)
    began = time.monotonic()
    serve(tmp_path / "removed", idle_s=60.0)
    assert time.monotonic() - began < 30.0


@pytest.mark.slow
def test_the_command_line_offers_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "tiny.toml"
    scenario.write_text(
        'name = "tiny"\n[fabric]\ntopology = {kind = "k-ary-n-tree", k = 2, n = 2}\n'
        '[[job]]\npattern = {kind = "ring", ranks = 4, size = "4 KiB"}\n'
    )
    out = tmp_path / "out"
    arguments = ["diagnose", str(scenario), "--out", str(out), "--seeds", "1", "--quiet"]
    assert cli([*arguments, "--slurm", "2"]) in (0, 3)
    assert f"sbatch {out}.tasks/{SCRIPT}\n" in capsys.readouterr().err
    assert (out / "report.html").exists() and not (tmp_path / "out.tasks").exists()


def test_tls_is_that_of_the_configuration_of_dask(tmp_path: Path) -> None:
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-days",
            "1",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    roles = ("scheduler", "worker", "client")
    files = {
        f"tls_{role}_{what}": str(path)
        for role in roles
        for what, path in (("key", key), ("cert", certificate))
    }
    security = distributed.Security(tls_ca_file=str(certificate), require_encryption=True, **files)
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        dashboard_address=None,
        protocol="tls",
        security=security,
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with pytest.raises(RunError, match=r"distributed\.comm\.tls"), dask_client(address):
            pass
        settings = {
            "distributed.comm.tls.ca-file": str(certificate),
            "distributed.comm.tls.client.cert": str(certificate),
            "distributed.comm.tls.client.key": str(key),
        }
        with dask.config.set(settings), dask_client(address) as client:
            assert client.submit(sum, [1, 2]).result() == 3


@pytest.mark.parametrize("address", ["", "not an address", "http://localhost:8787"])
def test_dask_rejects_an_invalid_address_before_it_connects(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would wait for 40 s before it gives up."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(distributed, "Client", pytest.fail)
    with pytest.raises(RunError, match="no Dask scheduler answers"), dask_client(address):
        pass
