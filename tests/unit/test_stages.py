"""What ``--profile`` shows of a command's own time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tailback.stages import REST, START, WORKERS, record_stages, recorded_stages, stage


def test_a_stage_within_a_stage_is_charged_once() -> None:
    with record_stages() as table:
        with stage("outer"):
            before = dict(table.costs["outer"].__dict__)
            for _ in range(2):
                with stage("inner"):
                    inner = sum(range(200_000))
        rows = table.rows()
    assert inner and before["calls"] == 1
    named = {str(row["stage"]): row for row in rows}
    assert list(named) == [START, REST, "outer", "inner"]
    assert named["inner"]["calls"] == 2 and named["inner"]["cpu_s"] > named["outer"]["cpu_s"]
    assert named["inner"]["peak_mb"] > 1


def test_the_lines_end_with_the_sums() -> None:
    with record_stages() as table, stage("work"):
        pass
    *stages, total = table.lines()[1:]
    assert [line.split()[0] for line in stages] == ["start", "everything", "work"]
    cpu = sum(cost.cpu_s for cost in table.costs.values())
    assert total.split()[0] == "total" and float(total.split()[2]) == pytest.approx(cpu, abs=0.01)


def test_a_failing_stage_is_closed() -> None:
    with record_stages() as table:
        with pytest.raises(ValueError, match="why"), stage("fails"):
            raise ValueError("why")
        with stage("next"):
            pass
        assert recorded_stages() is table
    assert table.costs["next"].calls == 1 and table._open == []
    assert recorded_stages() is None
    with stage("unasked"):
        pass
    assert "unasked" not in table.costs


def test_simultaneous_processes_are_in_the_table() -> None:
    with record_stages() as table:
        subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    last = table.rows()[-1]
    assert last["stage"] == WORKERS
    assert float(last["cpu_s"]) > 0.05 and float(last["peak_mb"]) > 1
    assert table.lines()[-2].split()[:2] == ["worker", "processes"]
    with record_stages() as later:
        pass
    assert WORKERS not in [row["stage"] for row in later.rows()]
