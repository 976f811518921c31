"""Announced simulations that threads of the process do."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from tailback.api.diagnose import diagnose
from tailback.evaluate import Change
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tailback.simulation.parallel import task_threads
from tailback.simulation.parallel.task_threads import TaskThreads

SCENARIO = {
    "name": "tiny",
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [{"pattern": {"kind": "alltoall", "ranks": 16, "size": "64 KiB"}}],
    "engine": {"routing": "adaptive"},
}


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores for this process, and one thread for the engine."""
    monkeypatch.setattr(task_threads, "_cores", lambda: 2)


@pytest.mark.usefixtures("two_cores")
def test_threads_keep_the_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = diagnose(SCENARIO, seeds=2, threads=1).diagnosis.model_dump_json()
    taken = list[int]()
    take = TaskThreads.take

    def counted(self: TaskThreads, number: int) -> Run | None:
        run = take(self, number)
        if run is not None:
            taken.append(number)
        return run

    monkeypatch.setattr(TaskThreads, "take", counted)
    assert diagnose(SCENARIO, seeds=2).diagnosis.model_dump_json() == alone
    assert len(taken) > 5


@pytest.mark.usefixtures("two_cores")
def test_a_failing_thread_leaves_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_change: Change) -> Run:
        raise MemoryError

    monkeypatch.setattr(task_threads, "make_simulation", lambda *_, **__: broken)
    prepared = prepare(parse(SCENARIO))
    with closing(TaskThreads()) as tasks:
        evaluate = make_evaluate(prepared, tasks=tasks)
        changes = [Change(seed_offset=seed) for seed in range(4)]
        evaluate.announce(changes)  # type: ignore[attr-defined]
        assert all(evaluate(change).elapsed_ps > 0 for change in changes)


@pytest.mark.usefixtures("two_cores")
def test_closing_ends_what_runs() -> None:
    prepared = prepare(parse({**SCENARIO, "job": [{**SCENARIO["job"][0], "repeat": 2000}]}))
    tasks = TaskThreads()
    tasks.open(prepared)
    tasks.put(Change())
    begun = threading.active_count()
    tasks.close()
    assert threading.active_count() == begun - 1
    assert tasks.take(0) is None


def test_one_thread_starts_no_others() -> None:
    tasks = TaskThreads(threads=1)
    tasks.open(prepare(parse(SCENARIO)))
    begun = threading.active_count()
    tasks.put(Change())
    assert threading.active_count() == begun
    assert tasks.take(0) is None


@pytest.mark.usefixtures("two_cores")
def test_large_runs_are_left_to_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_threads, "MOST_BYTES", 1)
    with closing(TaskThreads()) as tasks:
        tasks.open(prepare(parse(SCENARIO)))
        numbers = [tasks.put(Change(seed_offset=seed)) for seed in range(3)]
        assert [tasks.take(number) for number in numbers] == [None] * 3
