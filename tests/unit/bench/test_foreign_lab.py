"""Cases on real packets of programs that are no halo: what is drawn can be run."""

from __future__ import annotations

from types import ModuleType

import pytest
import run_lab
import run_training

from tailback.lab import causes
from tailback.lab.plan import Plan


@pytest.mark.parametrize("module", [run_lab, run_training])
@pytest.mark.parametrize("number", range(21))
def test_drawn_causes_fit_the_drawn_lab(number: int, module: ModuleType) -> None:
    placed = run_lab.PLACED if module is run_lab else tuple(module.PROGRAMS)
    case = run_lab.draw(number, 7, 0, module.PROGRAMS, placed)
    plan = Plan(case.spec)
    setting = causes.Setting.nominal(plan)
    for text in case.causes:
        causes.apply(text, setting, plan)
    assert case == run_lab.draw(number, 7, 0, module.PROGRAMS, placed)
    assert len(case.causes) == {0: 0, 1: 2}.get(number % 5, 1)
    assert {cause.partition(":")[0] for cause in case.causes} <= set(run_lab.NAMES)
