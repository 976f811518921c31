"""Remedies: placements tried by a simulator that answers by table."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.model import Candidate, Remedy
from tailback.errors import PlacementError, RunError
from tailback.evaluate import Change, Evaluate
from tailback.placement.variant import HostChoice, PlacementVariant
from tailback.remedy import REMEDIES, Proposal, RemedyContext, diagnose, recommend
from tailback.remedy.proof import CONFIRMED, is_improvement, prove
from tailback.run.run import Run
from tests.factories.diagnosis_runs import NODES, endpoint_run, other_run, placement_run, quiet_run

NODE = np.arange(NODES, dtype=np.uint32)
PLACES: dict[str, NDArray[np.uint32]] = {"tile": NODE[::-1].copy(), "random": np.roll(NODE, 3)}


def try_placements(
    run: Run, evaluate: Evaluate, candidates: dict[str, NDArray[np.uint32]], seeds: int = 3
) -> list[Candidate]:
    """Each placement, and the one there is, proved."""
    ideas = [
        Proposal("placement", name, Change(placement=nodes, placement_name=name))
        for name, nodes in candidates.items()
    ]
    return prove([Proposal("placement", "block"), *ideas], evaluate, unchanged="block", seeds=seeds)


def simulator(
    run: Run, times: dict[str, int], spread: int = 0, asked: list[Change] | None = None
) -> Evaluate:
    def evaluate(change: Change) -> Run:
        if asked is not None:
            asked.append(change)
        if change.placement is not None and change.placement_name not in times:
            raise PlacementError(f"placement {change.placement_name!r} does not fit")
        elapsed = times[change.placement_name] if change.placement is not None else times["block"]
        summary = {**run.summary, "elapsed_ps": elapsed + change.seed_offset * spread}
        summary["average_path_length"] = 1.5 if change.placement is not None else 3.0
        return dataclasses.replace(run, summary=summary)

    return evaluate


def test_candidates_are_sorted_with_failures_last() -> None:
    run = placement_run()
    tried = try_placements(run, simulator(run, {"block": 100, "tile": 60}), PLACES, seeds=2)
    assert [c.name for c in tried] == ["tile", "block", "random"]
    assert "does not fit" in tried[-1].reason and tried[-1].elapsed_ps == 0
    assert (tried[0].path_length, tried[1].path_length) == (1.5, 3.0)
    truth = run.tables["truth"]
    share = truth["observed_congested_packets"].sum() / truth["observed_packets"].sum()
    assert tried[0].congested_fraction == pytest.approx(share)


def test_only_the_first_repetition_is_measured() -> None:
    run, asked = placement_run(), []
    evaluate = simulator(run, {"block": 9, "tile": 8, "random": 9}, asked=asked)
    tried = try_placements(run, evaluate, PLACES)
    # "random" is so much slower than "tile" that repetitions cannot change the order, and "tile"
    # so much faster than "block" that a third cannot change the gain.
    assert {c.name: c.repetitions for c in tried} == {"tile": 2, "block": 3, "random": 1}
    assert len(asked) == 6
    assert {(c.seed_offset, c.measure) for c in asked} == {(0, True), (1, False), (2, False)}
    assert all(c.background and c.network == "as-is" and c.routing is None for c in asked)


@pytest.mark.parametrize(("block", "repetitions"), [(130, 2), (104, 3)])
def test_placements_are_repeated_until_their_gain_is_clear(block: int, repetitions: int) -> None:
    run = placement_run()
    times = {"block": block, "tile": 100, "random": 103}
    tried = try_placements(run, simulator(run, times, spread=1), PLACES)
    # Repetitions differ by 1, so a difference of 3 says nothing.
    high = repetitions - 1
    assert [(c.name, c.low_ps, c.high_ps) for c in tried] == [
        ("tile", 100, 100 + high),
        ("random", 103, 103 + high),
        ("block", block, block + 2),
    ]


def test_the_best_placement_is_recommended_with_its_gain() -> None:
    run = placement_run()
    evaluate = simulator(run, {"block": 100_000, "tile": 60_000, "random": 120_000}, 10)
    tried = try_placements(run, evaluate, PLACES)
    remedy = recommend(
        run, diagnose_cause(run), tried, files={"hosts": "one host a rank"}, commands=["mpirun …"]
    )
    assert remedy is not None and remedy.placement == "tile"
    assert remedy.gain == pytest.approx(0.4, abs=0.001)
    assert (remedy.before_ps, remedy.after_ps) == (100_010, 60_005)
    assert "40 %" in remedy.action and remedy.files and remedy.commands == ["mpirun …"]


@pytest.mark.parametrize(("tile", "spread"), [(99_000, 0), (95_000, 6_000)])
def test_small_or_uncertain_gains_are_not_recommended(tile: int, spread: int) -> None:
    run = placement_run()
    evaluate = simulator(run, {"block": 100_000, "tile": tile, "random": 200_000}, spread)
    tried = try_placements(run, evaluate, PLACES)
    remedy = recommend(run, diagnose_cause(run), tried, files={"hosts": "x"})
    assert remedy is not None and remedy.placement == "" and remedy.gain == 0.0
    assert remedy.files == {} and "None of the 2 placements" in remedy.action
    # What was tried is shown against the placement as it is, re-simulated like them.
    block = next(candidate for candidate in tried if candidate.name == "block")
    assert remedy.before_ps == remedy.after_ps == block.elapsed_ps != run.elapsed_ps


def test_only_placements_are_counted_as_placements_tried() -> None:
    run = placement_run()
    same = [
        Candidate(name=name, kind=kind, elapsed_ps=100, low_ps=100, high_ps=100)
        for name, kind in (
            ("block", "placement"),
            ("tile", "placement"),
            ("max-min-rates", "rate-control"),
            ("adaptive-routing", "routing"),
        )
    ]
    remedy = recommend(run, diagnose_cause(run), same)
    assert remedy is not None and remedy.action.startswith("The one placement tried gains no more")
    none = recommend(run, diagnose_cause(run), [same[0], *same[2:]])
    assert none is not None and "placements tried" not in none.action


def test_pattern_advice_precedes_placement() -> None:
    run = endpoint_run()
    same = [Candidate(name=n, elapsed_ps=100, low_ps=100, high_ps=100) for n in ("block", "tile")]
    remedy = recommend(run, diagnose_cause(run), same)
    assert remedy is not None and remedy.placement == "" and "MPI_Reduce" in remedy.action
    better = [same[0], same[1].model_copy(update={"elapsed_ps": 50, "low_ps": 50, "high_ps": 50})]
    helped = recommend(run, diagnose_cause(run), better)
    assert helped is not None and helped.placement == "tile"
    assert helped.action.startswith(remedy.action) and "Meanwhile" in helped.action


@pytest.mark.parametrize(
    ("variant", "expected"),
    [
        (None, "placement mine-compact instead"),
        (PlacementVariant("tile"), "placement mine-compact instead"),
        (
            PlacementVariant("tile", HostChoice.FEWEST_SWITCHES),
            "placement mine-compact (on allowed hosts, under few switches)",
        ),
        (
            PlacementVariant("tile", recomputed=True),
            "placement mine-compact (recomputed with default options",
        ),
        (
            PlacementVariant("shift", HostChoice.AWAY_FROM_CONGESTION),
            "placement mine-compact (ranks shifted, on allowed hosts",
        ),
    ],
)
def test_a_placements_variant_decides_what_it_is(
    variant: PlacementVariant | None, expected: str
) -> None:
    run, nodes = placement_run(), {"mine-compact": np.arange(4, dtype=np.uint32)}
    variants = {} if variant is None else {"mine-compact": variant}
    means = RemedyContext(lambda change: run, placements=nodes, variants=variants)
    (idea,) = REMEDIES["placement"](run, diagnose_cause(run), means)
    assert idea.variant is variant
    now = Candidate(name="block", elapsed_ps=100, low_ps=100, high_ps=100)
    tried = now.model_copy(
        update={
            "name": idea.name,
            "variant": idea.variant,
            "elapsed_ps": 50,
            "low_ps": 50,
            "high_ps": 50,
        }
    )
    remedy = recommend(run, diagnose_cause(run), [now, tried])
    assert remedy is not None and expected in remedy.action
    assert Remedy.model_validate_json(remedy.model_dump_json()).candidates == remedy.candidates


def test_hosts_in_order_come_before_equal_placements() -> None:
    run = placement_run()
    places = {"tile": PLACES["tile"], "by-switch": PLACES["random"]}
    times = {"block": 1000, "tile": 600, "by-switch": 605}
    tried = try_placements(run, simulator(run, times), places)
    remedy = recommend(run, diagnose_cause(run), tried)
    assert remedy is not None
    assert (remedy.name, remedy.placement) == ("by-switch", "by-switch")


def test_a_slow_cable_is_checked_first() -> None:
    run = placement_run()
    tried = try_placements(run, simulator(run, {"block": 100, "tile": 60}), PLACES)
    repair = tried[0].model_copy(
        update={
            "name": "repaired-cables",
            "kind": "repair",
            "action": "Ask the operators to check the cable a → b.",
            "elapsed_ps": 80,
            "low_ps": 80,
            "high_ps": 80,
        }
    )
    placed = diagnose_cause(run)
    findings = [each.model_copy(update={"cause": "slow-link"}) for each in placed.findings]
    slow = placed.model_copy(
        update={"cause": "slow-link", "slow_links": ["a → b"], "findings": findings}
    )
    remedy = recommend(run, slow, [*tried, repair])
    assert remedy is not None and remedy.name == "tile"
    first, second = remedy.actions[:2]
    assert first.startswith(repair.action) and "20 % less time" in first
    assert "placement tile" in second


def test_other_traffic_names_links_to_avoid() -> None:
    remedy = diagnose(other_run()).remedy
    assert remedy is not None and "another time" in remedy.action
    assert "→ leaf1" in remedy.action


def test_a_healthy_network_needs_no_remedy() -> None:
    assert recommend(quiet_run(), diagnose_cause(quiet_run()), []) is None


def test_diagnose_tries_the_placements_it_is_given() -> None:
    run = placement_run()

    def evaluate(change: Change) -> Run:
        share = {"no-contention": 0.4, "star": 0.45}.get(change.network, 1.0)
        if change.placement_name == "tile":
            share = 0.5
        elapsed = round(share * run.elapsed_ps)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    only = frozenset({"placement"})
    remedy = diagnose(run, evaluate, placements=PLACES, seeds=1, kinds=only).remedy
    assert remedy is not None and remedy.placement == "tile" and remedy.gain == pytest.approx(0.5)
    assert [c.name for c in remedy.candidates] == ["tile", "block", "random"]


def test_seeds_must_be_given() -> None:
    run = placement_run()
    with pytest.raises(RunError, match="seeds = 0"):
        try_placements(run, simulator(run, {"block": 1}), {}, seeds=0)


@pytest.mark.parametrize("seed", range(8))
def test_chance_of_one_repetition_is_no_gain(seed: int) -> None:
    """All placements take the same time, but for the choices of each repetition."""
    rng, run = np.random.default_rng(seed), placement_run()
    times: dict[tuple[str, int], int] = {}

    def evaluate(change: Change) -> Run:
        key = change.placement_name, change.seed_offset
        ps = times.setdefault(key, round(1e6 * rng.uniform(1.0, 1.2)))
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": ps})

    many = {f"p{n}": np.roll(NODE, n) for n in range(1, 7)}
    tried = try_placements(run, evaluate, many, seeds=1)
    before = next(candidate for candidate in tried if candidate.name == "block")
    better = [
        candidate
        for candidate in tried
        if candidate is not before and is_improvement(candidate, before)
    ]
    assert all(min(candidate.repetitions, before.repetitions) >= 2 for candidate in better[:1])
    # What is clear needs no third repetition, and what is not has one.
    for candidate in better[:1]:
        clear = before.low_ps - candidate.high_ps > 2 * (candidate.high_ps - candidate.low_ps)
        assert clear or candidate.repetitions >= CONFIRMED


def test_a_clear_gain_is_stated_after_two_repetitions() -> None:
    run = placement_run()
    evaluate = simulator(run, {"block": 200, "tile": 100, "random": 300}, spread=1)
    tried = {
        candidate.name: candidate.repetitions
        for candidate in try_placements(run, evaluate, PLACES, seeds=1)
    }
    assert tried == {"tile": 2, "block": 2, "random": 1}
