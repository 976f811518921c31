"""The optimiser: combinations, and what an ensemble of paired draws says of a gain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.model import Candidate, Remedy
from tailback.evaluate import Change, EngineVariation, Evaluate
from tailback.remedy import RemedyContext, RemedySearch, find_remedy, recommend
from tailback.run.run import Run
from tests.factories.diagnosis_runs import NODES, other_run, placement_run

NODE = np.arange(NODES, dtype=np.uint32)
PLACES = {"tile": NODE[::-1].copy(), "slow": np.roll(NODE, 3)}

Time = Callable[[frozenset[str], Change], int]
"""Time of a run, given the names of what is changed, and the change."""


def parts_of(change: Change) -> frozenset[str]:
    """Names of what a change changes."""
    names = (change.placement_name, change.routing, change.rule, change.rates)
    return frozenset(name for name in names if name)


def by_parts(run: Run, time: Time, asked: list[Change] | None = None) -> Evaluate:
    """An evaluator whose times depend on what is changed."""

    def evaluate(change: Change) -> Run:
        if asked is not None:
            asked.append(change)
        summary = {**run.summary, "elapsed_ps": time(parts_of(change), change)}
        return dataclasses.replace(run, summary=summary)

    return evaluate


def table(times: Mapping[str, int], otherwise: int = 200) -> Time:
    """Times by the sorted names of the parts; ``now`` if nothing is changed."""
    return lambda parts, _: times.get("+".join(sorted(parts)) or "now", otherwise)


def search(run: Run, time: Time, **options: object) -> RemedySearch:
    """The result of a search whose changes take the given times."""
    context = RemedyContext(by_parts(run, time), **options)  # type: ignore[arg-type]
    return find_remedy(run, diagnose_cause(run), context, seeds=1)


def remedy_of(result: RemedySearch) -> Remedy:
    """The remedy, which there is."""
    assert result.remedy is not None
    return result.remedy


def test_three_kinds_are_combined_if_fastest() -> None:
    times = {"now": 100, "tile": 90, "adaptive": 90, "max-min": 95}
    times |= {"adaptive+tile": 70, "adaptive+max-min+tile": 50}
    result = search(placement_run(routing="deterministic"), table(times, 120), placements=PLACES)
    name, gain = result.best
    assert name == "tile + max-min-rates + adaptive-routing" and gain == pytest.approx(0.5)
    best = next(candidate for candidate in result.candidates if candidate.name == name)
    assert best.kinds == {"placement", "rate-control", "routing"} and not best.by_users
    # Users cannot route: they are told of the placement, and what operators could do.
    remedy = remedy_of(result)
    assert remedy.name == "tile" and f"operators could use {name}" in remedy.action


def test_combinations_that_save_together_are_extended() -> None:
    """Of the single changes, three would take 113; with the combination of two, 48."""
    times = {"now": 100, "tile": 99, "adaptive": 99, "max-min": 115, "adaptive+tile": 42}
    times |= {"adaptive+max-min+tile": 30}
    result = search(placement_run(routing="deterministic"), table(times, 140), placements=PLACES)
    assert result.best[0] == "tile + max-min-rates + adaptive-routing"


def test_a_combination_without_gain_is_not_recommended() -> None:
    times = {"now": 100, "tile": 60, "adaptive": 80, "adaptive+tile": 90}
    result = search(placement_run(routing="deterministic"), table(times), placements=PLACES)
    worse = next(c for c in result.candidates if c.name == "tile + adaptive-routing")
    assert worse.elapsed_ps == 90 and result.best[0] == "tile" == remedy_of(result).name


def test_a_slow_placement_may_be_combined() -> None:
    times = {"now": 100, "tile": 95, "slow": 180, "adaptive": 80, "adaptive+slow": 40}
    run = placement_run(routing="deterministic")
    fluid = {**times, "slow": 170}
    result = search(
        run,
        table(times),
        quick=by_parts(run, table(fluid)),
        placements={"tile": PLACES["tile"]},
        ruled_out={"slow": PLACES["slow"]},
        estimates={"tile": 95, "slow": 170},
    )
    assert result.best[0] == "slow + adaptive-routing"
    # Its time alone is shown beside it.
    assert next(c for c in result.candidates if c.name == "slow").elapsed_ps == 180


@pytest.mark.parametrize(("losers", "recommended"), [(1, "tile"), (2, "")])
def test_a_remedy_gains_in_19_of_20_draws(losers: int, recommended: str) -> None:
    def time(parts: frozenset[str], change: Change) -> int:
        loses = 20 - losers <= change.seed_offset
        return 100 if not parts else 110 if loses or parts != {"tile"} else 70

    result = search(placement_run(), time, placements=PLACES, draws=20)
    remedy = remedy_of(result)
    assert remedy.name == recommended
    tile = next(candidate for candidate in result.candidates if candidate.name == "tile")
    # What loses in two is compared in 60, and loses in all further ones.
    assert tile.ensemble == (20 if recommended else 60)
    assert (tile.gain_low is not None and tile.gain_low > 0) == bool(recommended)
    if recommended:
        assert remedy.gain == tile.gain == pytest.approx(0.3 - 0.02 * losers)


@pytest.mark.parametrize(("losers", "ensemble"), [(3, 60), (4, 20)])
def test_more_draws_decide_where_nothing_helps(losers: int, ensemble: int) -> None:
    """It loses in the last of 20 draws, and in none of 40 others."""

    def time(parts: frozenset[str], change: Change) -> int:
        loses = 20 - losers <= change.seed_offset < 20
        return 100 if not parts else 110 if loses or parts != {"tile"} else 70

    result = search(placement_run(), time, placements=PLACES, draws=20)
    tile = next(candidate for candidate in result.candidates if candidate.name == "tile")
    assert tile.ensemble == ensemble
    assert remedy_of(result).name == ("tile" if ensemble == 60 else "")


def test_all_draws_decide_among_the_fastest() -> None:
    """What is fastest with the traffic as observed is not with other draws of it."""

    def time(parts: frozenset[str], change: Change) -> int:
        lucky = 60 if not change.others_draw else 90
        return 100 if not parts else lucky if parts == {"slow"} else 65

    result = search(placement_run(), time, placements=PLACES, draws=20)
    assert remedy_of(result).name == "tile"


def test_other_draws_reach_beyond_the_fastest() -> None:
    """The 26th of 30 as observed is the only one that gains with other traffic of others."""
    places = {f"p{n:02}": np.roll(NODE, n + 1) for n in range(30)}

    def time(parts: frozenset[str], change: Change) -> int:
        if not parts:
            return 100
        number = min(int(name[1:]) for name in parts) if parts <= set(places) else 40
        return 60 + number if not change.others_draw or number == 25 else 110

    result = search(placement_run(), time, placements=places, draws=20)
    assert remedy_of(result).name == "p25"


def test_others_are_drawn_anew_in_later_draws() -> None:
    run, asked = placement_run(), list[Change]()
    evaluate = by_parts(run, table({"now": 100, "tile": 50}), asked)
    context = RemedyContext(evaluate, placements=PLACES, draws=8)
    find_remedy(run, diagnose_cause(run), context, seeds=1)
    drawn = {(change.seed_offset, change.others_draw) for change in asked}
    assert {(7, 7), (0, 0)} <= drawn and all(draw in (0, seed) for seed, draw in drawn)


@pytest.mark.parametrize(
    ("varied", "says"),
    [
        (40, ""),
        (60, "with packets of twice the size it is 20 points less"),
        (120, "would flip with packets of twice the size: the change then takes 20 % more time"),
    ],
)
def test_the_most_sensitive_setting_is_named(varied: int, says: str) -> None:
    packets, buffers = EngineVariation(packets=2.0), EngineVariation(buffers=0.5)

    def time(parts: frozenset[str], change: Change) -> int:
        if parts != {"tile"}:
            return 100
        return varied if change.variation == packets else 40

    settings = {"buffers of half the size": buffers, "packets of twice the size": packets}
    result = search(placement_run(), time, placements=PLACES, settings=settings)
    action = remedy_of(result).action
    assert (says in action) if says else ("sensitive" not in action and "flip" not in action)


def test_operators_changes_are_told_only_if_faster() -> None:
    run = other_run()
    names = {"tile": "placement", "adaptive-routing": "routing", "block": "placement"}
    for time, is_told in ((90, False), (40, True)):
        times = {"block": 100, "tile": 60, "adaptive-routing": time}
        tried = [
            Candidate(name=n, kind=names[n], elapsed_ps=t, low_ps=t, high_ps=t)  # type: ignore[arg-type]
            for n, t in times.items()
        ]
        remedy = recommend(run, diagnose_cause(run), tried)
        assert remedy is not None and ("operators could" in remedy.action) is is_told


def test_changes_by_users_are_proved_first() -> None:
    """A budget may end the proofs at any time."""
    times = {"now": 100, "tile": 90, "slow": 95, "adaptive": 80, "max-min": 85}
    run, asked = placement_run(routing="deterministic"), list[Change]()
    estimates = {"tile": 70, "slow": 60}
    context = RemedyContext(
        by_parts(run, table(times), asked),
        by_parts(run, table({**times, **estimates})),
        PLACES,
        estimates,
    )
    find_remedy(run, diagnose_cause(run), context, seeds=1)
    first = list(dict.fromkeys(parts_of(change) for change in asked))
    assert first[:3] == [frozenset(), {"slow"}, {"tile"}]
