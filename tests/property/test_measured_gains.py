"""A remedy gains what the cause costs that it removes, in every view of a measured verdict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailback.cli.render import diagnosis_lines
from tailback.diagnosis.explanation import Cost
from tailback.diagnosis.model import Candidate, Diagnosis, Kind, Remedy, Saves
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.measured_costs import FurtherCosts
from tailback.inference.measured_verdict import explain
from tailback.remedy import recommend
from tailback.report.figure_specs import attainable_bars
from tailback.report.story import story_of
from tailback.units import percent
from tests.factories.diagnosis_runs import placement_run
from tests.factories.explanations import expected, share
from tests.factories.measured_times import MS, measured

CAUSES = ("slow-link", "placement", "other-traffic", "pattern", "routing")
KINDS: dict[str, tuple[Kind, ...]] = {
    "repaired-cables": ("repair",),
    "tile": ("placement",),
    "adaptive-routing": ("routing",),
    "tile + repaired-cables": ("placement", "repair"),
}
RUN = placement_run()
WORDS = re.compile(r"(\S+ %) less time than the measured \S+ \S+ \((\S+ %) to (\S+ %), 95 %\)")

small = st.sampled_from((0.0, 0.02, 0.1, 0.3, 0.5))
drawn_runs = st.fixed_dictionaries(
    {
        "costs": st.fixed_dictionaries(dict.fromkeys(CAUSES, small)).filter(
            lambda costs: sum(costs.values()) <= 0.9
        ),
        "saved": st.fixed_dictionaries(dict.fromkeys(KINDS, small)),
        "spread": st.sampled_from((0.0, 0.01, 0.1)),
        "draws": st.sampled_from((0, 20)),
        "measured": st.sampled_from((80, 95, 100, 110, 130)),
        "slower": st.sampled_from((0, 5, 10)),
        "uneven": st.sampled_from((0, 15, 40)),
        "imbalance": st.sampled_from((0, 15, 30)),
        "lossy": st.booleans(),
    }
)


def tried(drawn: dict[str, Any]) -> list[Candidate]:
    """The unchanged run and each change, simulated."""
    out = [Candidate(name="block", elapsed_ps=100 * MS, low_ps=100 * MS, high_ps=100 * MS)]
    for name, kinds in KINDS.items():
        saved, spread = drawn["saved"][name], drawn["spread"]
        combined = len(kinds) > 1
        after = round((1 - saved) * 100 * MS)
        ensemble = {"gain": saved - spread / 4, "gain_low": saved - spread, "gain_high": saved}
        out.append(
            Candidate(
                name=name,
                kind="combined" if combined else kinds[0],
                parts=tuple(name.split(" + ")) if combined else (),
                part_kinds=kinds if combined else (),
                action="" if kinds == ("placement",) else f"Use {name}.",
                elapsed_ps=after,
                low_ps=after,
                high_ps=after,
                ensemble=drawn["draws"],
                **(ensemble if drawn["draws"] else {}),
            )
        )
    return out


def judged(drawn: dict[str, Any]) -> Diagnosis:
    """The verdict on a run whose causes cost so much, with a remedy of the changes."""
    shares = [share(cause, cost, drawn["spread"]) for cause, cost in drawn["costs"].items() if cost]
    run = expected(100, *shares).model_copy(update={"remedy": None})
    summary = EvidenceSummary(
        slow=("leaf1[5] → spine0 serves 20 of 100 Gb/s",) if drawn["costs"]["slow-link"] else (),
        slow_more_ps=drawn["slower"] * MS,
        lossy=drawn["lossy"],
    )
    uneven = {"routing_ps": (drawn["uneven"] * MS,), "uneven": 1.0} if drawn["uneven"] else {}
    further = FurtherCosts((drawn["imbalance"] * MS,), (0,), **uneven)  # type: ignore[arg-type]

    def advise(diagnosis: Diagnosis, saves: Saves, _without: object) -> Remedy | None:
        return recommend(RUN, diagnosis, tried(drawn), saves=saves)

    return explain(run, measured(drawn["measured"]), summary, further, advise)


def interval(cost: Cost, elapsed_ps: int) -> tuple[float, float, float]:
    return cost.low_ps / elapsed_ps, cost.share, cost.high_ps / elapsed_ps


@given(drawn=drawn_runs)
def test_a_removed_cause_gains_its_cost(drawn: dict[str, Any]) -> None:
    diagnosis = judged(drawn)
    remedy, explanation = diagnosis.remedy, diagnosis.explanation
    assert explanation is not None
    assume(remedy is not None)
    assert remedy is not None
    elapsed, costs = explanation.elapsed_ps, {cost.cause: cost for cost in explanation.costs}
    assert len(costs) == len(explanation.costs)
    # What is repaired, wherever it is stated.
    for candidate in remedy.candidates:
        slow = costs.get("slow-link")
        if candidate.kind == "repair" and candidate.gain is not None and slow is not None:
            stated = candidate.gain_low, candidate.gain, candidate.gain_high
            assert stated == pytest.approx(interval(slow, elapsed))
    gain = remedy.predicted_gain
    if gain is None:
        assert remedy.removes is None and not remedy.name and remedy.gain == 0.0
        return
    assert remedy.gain == gain.value > 0.0 and gain.low <= gain.value <= gain.high
    assert remedy.name or remedy.removes == diagnosis.cause
    if remedy.removes is None:
        return
    cost = costs[remedy.removes]
    low, value, high = interval(cost, elapsed)
    assert (max(gain.low, 0.0), gain.value, gain.high) == pytest.approx((low, value, high))
    assert value <= high
    if remedy.removes == diagnosis.cause:
        assert percent(gain.value) in diagnosis.headline


@given(drawn=drawn_runs)
def test_screen_and_report_state_that_gain(drawn: dict[str, Any]) -> None:
    diagnosis = judged(drawn)
    remedy, explanation = diagnosis.remedy, diagnosis.explanation
    assert explanation is not None
    assume(remedy is not None and remedy.predicted_gain is not None)
    assert remedy is not None
    gain = remedy.predicted_gain
    assert gain is not None
    words = tuple(percent(share) for share in (gain.value, gain.low, gain.high))
    figure = attainable_bars(diagnosis)
    assert figure is not None
    bars = {row["name"]: row for row in figure["rows"]}
    after = bars["with the remedy"]
    assert after["to"] == pytest.approx((1 - gain.value) * explanation.elapsed_ps)
    if not remedy.name:
        # The headline states what the advice gains.
        assert words[0] in diagnosis.headline
        return
    screen = " ".join(" ".join(diagnosis_lines(diagnosis, Path("out"), verbose=True)).split())
    step = story_of(diagnosis, [], [], {})[0]
    for text in (screen, " ".join(item.text for item in step.items)):
        assert words in WORDS.findall(text), (words, text)
    # A change that removes more, or less, than the cause says so.
    at_fault = explanation.cost(diagnosis.cause)
    beside = [", less than the cause costs", ", more than the cause alone costs"]
    if remedy.removes is not None or at_fault is None or diagnosis.cause == "imbalance":
        assert not any(text in remedy.actions[0] for text in beside)
    elif words[0] != percent(at_fault.share):
        assert beside[gain.value > at_fault.share] in remedy.action
