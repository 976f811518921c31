"""The views of a measured verdict agree, whatever hidden cause slowed the run.

A run is the engine's own, with a cause that the diagnosis does not know; its files are what a
tracer, an inventory and a collector of counters write.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

import tailback as tb
from tailback.diagnosis.confidence import SURE
from tailback.diagnosis.model import Diagnosis
from tailback.units import percent
from tests.factories.measured_runs import Hidden, MeasuredFiles, measured_files

EXAMPLES = settings().max_examples
FEW = settings(max_examples=EXAMPLES if EXAMPLES > 25 else 1)
"""A diagnosis takes seconds: the gate draws one, and has those that failed once."""

CAUSE_OF_PART = {
    "pattern": "pattern",
    "network": "capacity",
    "placement": "placement",
    "routing": "routing",
    "slow links": "slow-link",
    "other traffic": "other-traffic",
}

share = st.floats(0.0, 1.0, exclude_max=True)
hidden_causes = st.builds(
    Hidden,
    cause=st.sampled_from(("none", "slow cable", "other job", "imbalance", "noise")),
    size=st.sampled_from((0.1, 0.3, 0.6, 0.9)),
    place=share,
    faulty=st.lists(share, max_size=2).map(tuple),
    seed=st.integers(1, 1000),
)


def diagnosed(files: MeasuredFiles, fabric: Path, counters: tuple[Path, ...]) -> Diagnosis:
    return tb.diagnose(
        files.trace,
        fabric=fabric,
        counters=counters,
        methods=["block"],
        remedies=["placement", "repair"],
        seeds=1,
        threads=1,
    ).diagnosis


def require_agreement(diagnosis: Diagnosis, files: MeasuredFiles) -> None:
    """Fail unless the parts of a measured verdict agree."""
    explanation = diagnosis.explanation
    assert explanation is not None
    total = explanation.elapsed_ps
    assert total == diagnosis.elapsed_ps == sum(explanation.parts.values())
    assert sum(bar.delta_ps for bar in diagnosis.waterfall) == diagnosis.modelled_ps
    assert explanation.not_explained_ps == diagnosis.not_explained_ps
    for cost in explanation.costs:
        assert 0 <= cost.low_ps <= cost.ps <= cost.high_ps <= total, cost
        assert abs(cost.share - cost.ps / total) < 1e-9
    assert len({cost.cause for cost in explanation.costs}) == len(explanation.costs)
    for name in CAUSE_OF_PART:
        assert explanation.parts.get(name, 0) >= 0, (name, explanation.parts)
    low, high = diagnosis.not_explained_low_ps, diagnosis.not_explained_high_ps
    assert low is not None and high is not None and explanation.not_explained_ps is not None
    assert low <= explanation.not_explained_ps <= high
    require_probable_headline(diagnosis)
    remedy = diagnosis.remedy
    if remedy is not None and remedy.predicted_gain is not None:
        gain = remedy.predicted_gain
        assert gain.low <= gain.value <= gain.high
        removed = None if remedy.removes is None else explanation.cost(remedy.removes)
        assert removed is None or gain.value == removed.share
    suspects = {link.name: link for link in explanation.suspect_links}
    for link in suspects.values():
        assert link.status == "named" or link.reason
        if link.share is not None and link.low is not None and link.high is not None:
            assert 0.0 <= link.low <= link.share <= link.high <= 1.0
    named = {link.name for cost in explanation.costs for link in cost.links}
    for cable in files.faulty:
        assert cable & (suspects.keys() | named), (cable, sorted(suspects))
    for link in suspects.values():
        if link.status == "named":
            cable = next((each for each in files.faulty if link.name in each), {link.name})
            assert cable & named, (link, named)


def require_probable_headline(diagnosis: Diagnosis) -> None:
    """Fail unless the headline names the most probable cause with its cost."""
    chances, explanation = diagnosis.chances, diagnosis.explanation
    assert explanation is not None
    assert abs(sum(chances.values()) - 1.0) < 1e-6 and min(chances.values()) >= 0.0
    if diagnosis.cause == "undetermined":
        assert diagnosis.confidence == 0.0
        return
    assert diagnosis.confidence >= SURE
    assert chances[diagnosis.cause] == max(chances.values())
    cost = explanation.cost(diagnosis.cause)
    if cost is not None:
        assert percent(cost.share) in diagnosis.headline


@FEW
@given(hidden=hidden_causes, counters=st.booleans())
# Counters cover less than half of the job, but count the errors of a cable that it crosses.
@example(hidden=Hidden("slow cable", 0.3, 0.37, (0.581,), 621), counters=True)
# The run is faster with the slow cable that was put in than without it.
@example(hidden=Hidden("none", 0.6, 0.703, (0.1364,), 110), counters=True)
def test_views_of_a_measured_verdict_agree(hidden: Hidden, counters: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = measured_files(Path(folder), hidden, counters=counters)
        fabric = files.fabric(Path(folder) / "links.csv")
        require_agreement(diagnosed(files, fabric, files.counters), files)


def told(diagnosis: Diagnosis) -> dict[str, Any]:
    """What a diagnosis says, without numbers of links, which the order of a file sets."""
    explanation = diagnosis.explanation
    assert explanation is not None
    return {
        "cause": diagnosis.cause,
        "headline": diagnosis.headline,
        "chances": diagnosis.chances,
        "parts": explanation.parts,
        "costs": [(cost.cause, cost.ps, cost.low_ps, cost.high_ps) for cost in explanation.costs],
        "suspects": sorted((link.name, link.status) for link in explanation.suspect_links),
    }


@FEW
@given(hidden=hidden_causes, order=st.randoms(use_true_random=False))
def test_order_of_inputs_changes_nothing(hidden: Hidden, order: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = measured_files(folder, hidden, counters=True)
        lines, counters = list(range(len(files.links))), list(files.counters)
        order.shuffle(lines)
        order.shuffle(counters)
        first = diagnosed(files, files.fabric(folder / "links.csv"), files.counters)
        again = diagnosed(files, files.fabric(folder / "other.csv", lines), tuple(counters))
    assert told(again) == told(first)
