"""A budget of wall-clock time: what fits, what is left out, and what that does to a verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import tailback as tb
from tailback import budget
from tailback.budget import Budget
from tailback.cli import cli
from tailback.cli.progress import Meter
from tailback.cli.render import diagnosis_lines
from tailback.diagnosis.model import Diagnosis
from tests.factories.traced_simulations import traced

STATIC = {"routing": "deterministic"}


class Clock:
    """A clock that runs only while something is simulated."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def simulate(self, seconds: float = 1.0) -> None:
        with budget.simulation():
            self.now_s += seconds


def test_steps_end_before_simulations_that_exceed_the_budget() -> None:
    clock, done = Clock(), list[int]()
    limit = Budget(5.0, clock)
    with budget.limited_to(limit):
        clock.simulate(2.0)
        with budget.optional("slow cables"):
            for number in count():
                clock.simulate(1.0)
                done.append(number)
    # After 2 s and three of 1 s, another would end at 6 s: the first one is no measure of the next.
    assert (done, clock.now_s) == ([0, 1, 2], 5.0)
    (left,) = limit.use.left_out
    assert (left.step, left.done, left.estimate_s) == ("slow cables", 3, 1.0)


def test_time_of_later_steps_is_kept() -> None:
    clock = Clock()
    limit = Budget(10.0, clock)
    with budget.limited_to(limit):
        clock.simulate()
        with budget.reserved(6):
            assert budget.fits(3) and not budget.fits(4)
        assert budget.fits(9) and not budget.fits(10)


def test_writing_takes_as_long_as_reading() -> None:
    clock = Clock()
    limit = Budget(10.0, clock)
    clock.now_s = 3.0
    with budget.limited_to(limit):
        budget.end_input()
        clock.simulate()
        assert budget.fits(3) and not budget.fits(4)


def test_loading_the_program_is_not_reading() -> None:
    clock = Clock()
    limit = Budget(10.0, clock)
    clock.now_s = 3.0
    with budget.limited_to(limit):
        limit.begin_input()
        clock.now_s = 4.0
        budget.end_input()
        clock.simulate()
        # Of 10 s, 5 are over and 1 is kept to write.
        assert budget.fits(4) and not budget.fits(5)


def test_required_steps_are_completed() -> None:
    clock = Clock()
    with budget.limited_to(Budget(0.5, clock)):
        for _ in range(3):
            clock.simulate()
    assert clock.now_s == 3.0


def test_inner_steps_end_alone() -> None:
    clock, steps = Clock(), list[str]()
    limit = Budget(1.5, clock)
    with budget.limited_to(limit), budget.optional("remedies"):
        clock.simulate()
        with budget.optional("intervals of gains"):
            clock.simulate()
            steps.append("inner")
        steps.append("outer")
    assert steps == ["outer"] and list(limit.left_out) == ["intervals of gains"]


def test_without_a_budget_everything_fits() -> None:
    with budget.optional("slow cables"), budget.reserved(10**9), budget.simulation():
        assert budget.fits(10**9) and not budget.is_left_out("slow cables")


def test_parts_of_a_step_begin_while_they_fit() -> None:
    clock = Clock()
    with budget.limited_to(Budget(11.0, clock)):
        clock.simulate()
        assert budget.affordable(9, 2, 4) == 3 and budget.affordable(2, 2, 4) == 2
        assert budget.affordable(9, 2, 9) == 0
    assert budget.affordable(9, 2, 10**9) == 9


def test_the_most_decisive_step_is_named_first() -> None:
    limit = Budget(1.0, Clock())
    for step in ("engine settings", "repetitions", "placements", "slow cables"):
        limit.leave_out(step, 0)
    named = [left.step for left in limit.use.left_out]
    assert named == ["slow cables", "placements", "repetitions", "engine settings"]


def test_progress_shows_the_time_left() -> None:
    clock, shown = Clock(), list[dict[str, Any]]()
    bar = SimpleNamespace(
        add_task=lambda *_, **__: 0, update=lambda _, **fields: shown.append(fields)
    )
    meter = Meter(bar, Budget(60.0, clock))  # type: ignore[arg-type]
    clock.now_s = 15.0
    meter.step("searching for slow cables", 0.5)
    assert shown[-1]["detail"] == "45 s left"


# --- diagnoses ---------------------------------------------------------------------------------


def ticking() -> Callable[[], float]:
    """A clock that advances with every reading, so that budgets do not depend on the machine."""
    readings = count()
    return lambda: float(next(readings))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run with a slow cable, whose search tries many cables."""
    data, _ = traced(tmp_path_factory.mktemp("slow"), (16,), 0.4, engine=STATIC)
    return data


def diagnosed(data: dict[str, Any], limit: Budget | None = None) -> Diagnosis:
    result = tb.diagnose(data, methods=["block"], remedies=["placement"], seeds=1, budget=limit)
    return result.diagnosis


@pytest.fixture(scope="module")
def complete(slow: dict[str, Any]) -> Diagnosis:
    return diagnosed(slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    "readings",
    [60, 200, 300],
)
def test_a_search_cut_short_is_less_certain(
    slow: dict[str, Any], complete: Diagnosis, readings: int
) -> None:
    short = diagnosed(slow, Budget(float(readings), ticking()))
    assert short.budget is not None and short.budget.left_out
    assert short.confidence <= complete.confidence
    assert short.chances["unexplained"] >= complete.chances["unexplained"]
    searched = {left.step for left in short.budget.left_out}
    if short.cause != complete.cause:
        assert short.cause == "undetermined" and "slow cables" in searched


@pytest.mark.slow
def test_a_large_budget_changes_nothing(slow: dict[str, Any], complete: Diagnosis) -> None:
    ample = diagnosed(slow, Budget(1e9, ticking()))
    assert ample.budget is not None and not ample.budget.left_out
    said = {"budget", "warnings", "assumptions"}
    assert ample.model_dump(exclude=said) == complete.model_dump(exclude=said)


def test_what_is_left_out_is_shown_with_values(slow: dict[str, Any], tmp_path: Path) -> None:
    limit = Budget(60.0, ticking())
    result = tb.diagnose(slow, methods=["block"], remedies=["placement"], seeds=1, budget=limit)
    short = result.diagnosis
    assert short.budget is not None
    first = short.budget.left_out[0]
    result.write(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "time budget 60\u00a0s" in page
    screen = " ".join(" ".join(diagnosis_lines(short, tmp_path)).split())
    assert "time budget 60 s" in screen
    # None is cut off, however many there are.
    steps = ", ".join(left.step for left in short.budget.left_out)
    assert f"left out or cut short: {steps}" in screen
    written = json.loads(short.model_dump_json())["budget"]
    assert written["left_out"][0]["step"] == first.step and written["asked_s"] == 60.0


def test_without_a_budget_results_have_none(complete: Diagnosis) -> None:
    assert "budget" not in complete.model_dump() and "budget" not in complete.model_dump_json()


def test_a_budget_needs_a_unit() -> None:
    result = CliRunner().invoke(cli, ["diagnose", "trace", "--budget", "60"])
    assert result.exit_code != 0 and "'60' is not a time with a unit" in result.output


@pytest.mark.parametrize(("readings", "is_cut"), [(40, True), (10**6, False)])
def test_forecasts_keep_to_a_budget(readings: int, is_cut: bool) -> None:
    tree = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}
    ring = {"kind": "ring", "ranks": 4, "messages": 1, "size": "16 KiB"}
    scenario = {"fabric": {"fat_tree": tree}, "job": [{"pattern": ring}]}
    limit = Budget(float(readings), ticking())
    diagnosis = tb.diagnose(scenario, methods=["block"], budget=limit).diagnosis
    assert diagnosis.forecast is not None and diagnosis.budget is not None
    left_out = {left.step for left in diagnosis.budget.left_out}
    assert ("repetitions" in left_out and "engine settings" in left_out) is is_cut
