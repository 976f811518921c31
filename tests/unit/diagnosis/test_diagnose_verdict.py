"""The verdict: rules reconciled with a waterfall that answers by table."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.diagnosis import diagnose_cause, verdict
from tailback.diagnosis.cause_wording import VERDICTS
from tailback.diagnosis.confidence import SURE
from tailback.diagnosis.headline import LISTED
from tailback.diagnosis.model import Diagnosis
from tailback.diagnosis.sampled_verdict import SampledVerdict
from tailback.diagnosis.verdict import UNTRIED
from tailback.diagnosis.waterfall import ENGINE_VARIATIONS
from tailback.errors import RunError
from tailback.evaluate import Change, Evaluate
from tailback.remedy import diagnose, recommend
from tailback.run.run import Run
from tailback.scenario.model import Degraded, load, parse
from tailback.simulation import make_evaluate, prepare, simulate
from tests.factories.diagnosis_runs import (
    TOTAL,
    endpoint_run,
    line_run,
    other_run,
    placement_run,
    quiet_run,
    routing_run,
    slow_run,
    sparse_run,
)
from tests.factories.repository import ROOT

EXAMPLES = ROOT / "examples"


def answers(
    run: Run, ideal: float, pattern: float, placement: float, routing: float, everything: float
) -> tuple[Evaluate, list[Change]]:
    """An evaluate that takes so many shares of the observed time for each step."""
    asked: list[Change] = []

    def evaluate(change: Change) -> Run:
        asked.append(change)
        if change.network == "no-contention":
            share = ideal
        elif change.network == "star":
            share = pattern
        elif change.background:
            share = everything
        else:
            share = placement if change.routing == "adaptive" else routing
        elapsed = round(share * TOTAL) + change.seed_offset * 1000
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": elapsed})

    return evaluate, asked


def likeliest(diagnosis: Diagnosis) -> str:
    """The most probable cause."""
    return max(
        diagnosis.chances, key=lambda cause: diagnosis.chances[cause], default="undetermined"
    )


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (endpoint_run, "pattern"),
        (placement_run, "placement"),
        (other_run, "other-traffic"),
        (quiet_run, "not-network"),
        (sparse_run, "undetermined"),
        (routing_run, "routing"),
        (slow_run, "slow-link"),
        (line_run, "injection"),
    ],
)
def test_rules_alone_give_the_cause(make, cause: str) -> None:  # type: ignore[no-untyped-def]
    diagnosis = diagnose(make())
    assert cause in ("undetermined", likeliest(diagnosis))
    chance = diagnosis.chances.get(cause, 0.0)
    assert diagnosis.cause == (cause if chance >= SURE else "undetermined")
    assert diagnosis.waterfall == [] and diagnosis.headline.endswith(".")
    assert (diagnosis.remedy is None) == (cause in ("not-network", "injection"))
    assert diagnosis.confidence == (chance if chance >= SURE else 0.0)
    assert diagnosis.basis.startswith("samples") and diagnosis.confidence < 1
    assert diagnosis.sampling.sufficient == (cause != "undetermined")


def test_candidates_of_an_open_verdict_are_listed() -> None:
    diagnosis = diagnose(slow_run())
    likely = [cause for cause, chance in diagnosis.chances.items() if chance >= LISTED]
    assert diagnosis.cause == "undetermined" and len(likely) > 1
    assert all(VERDICTS[cause].lower() in diagnosis.headline for cause in likely)  # type: ignore[index]


def test_equally_fitting_causes_are_no_lack_of_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    equal = SampledVerdict("undetermined", {"pattern": 0.3, "placement": 0.3})
    monkeypatch.setattr(verdict, "sampled_verdict", lambda _: equal)
    diagnosis = diagnose(placement_run())
    assert diagnosis.headline.endswith("communication pattern (30 %), placement (30 %).")
    assert diagnosis.confidence == 0.0
    assert diagnose(sparse_run()).headline.endswith("see TB005 for how many more are needed.")


def test_the_waterfall_adds_up_without_empty_steps() -> None:
    run = placement_run()
    evaluate, asked = answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)
    bars = diagnose_cause(run, evaluate, seeds=3).waterfall
    assert [bar.name for bar in bars] == [
        "ideal",
        "paths",
        "injection",
        "pattern",
        "placement",
        "routing",
        "slow links",
        "other traffic",
        "observed",
    ]
    assert bars[0].delta_ps == bars[0].elapsed_ps
    assert sum(bar.delta_ps for bar in bars) == run.elapsed_ps
    assert "no other routing" in bars[5].meaning and "no other job" in bars[7].meaning
    assert "no slow link" in bars[6].meaning
    unvaried = [change for change in asked if change.variation is None]
    # Three steps, and the routings that might spread better.
    assert len(unvaried) == 3 * 3 + 2 and len(asked) == 3 * 3 + 2 + 3 * len(ENGINE_VARIATIONS)
    assert sorted({change.seed_offset for change in unvaried}) == [0, 1, 2]
    assert not any(change.measure or change.background for change in asked)


def test_all_five_steps_with_static_routing_and_background() -> None:
    run = placement_run(background=True, routing="deterministic")
    evaluate, asked = answers(run, 0.4, 0.45, 0.5, 0.9, 1.0)
    diagnosis = diagnose_cause(run, evaluate, seeds=2)
    deltas = {bar.name: bar.delta_ps / TOTAL for bar in diagnosis.waterfall}
    assert deltas["routing"] == pytest.approx(0.4) and deltas["other traffic"] == pytest.approx(0.1)
    # Adaptive routes beside the other jobs save nothing.
    assert diagnosis.cause == "other-traffic"
    assert "10 % of the run time is saved" in diagnosis.headline
    # Five steps, and the routing taken away alone; taking the jobs away alone is a step already.
    # Of those, the routings that might spread better were simulated first.
    assert len([change for change in asked if change.variation is None]) == 6 * 2 + 2


def test_deltas_are_taken_within_a_repetition() -> None:
    run = placement_run()
    bars = diagnose_cause(run, answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)[0], seeds=3).waterfall
    placement = next(bar for bar in bars if bar.name == "placement")
    assert placement.low_ps == placement.high_ps == placement.delta_ps


def test_shorter_paths_of_the_ideal_are_no_gain() -> None:
    run = placement_run()
    bars = diagnose_cause(run, answers(run, 0.5, 0.45, 1.0, 1.0, 1.0)[0], seeds=1).waterfall
    step = {bar.name: bar.delta_ps for bar in bars}
    assert step["pattern"] == 0 and step["placement"] == pytest.approx(0.5 * TOTAL)


def test_a_full_receiver_without_contention_limits_the_run() -> None:
    run = endpoint_run()
    diagnosis = diagnose(run, answers(run, 0.97, 0.98, 1.0, 1.0, 1.0)[0], seeds=1)
    assert diagnosis.cause == "injection" and diagnosis.remedy is None
    assert [finding.code for finding in diagnosis.findings] == ["TB000", "TB001"]
    assert diagnosis.findings[0].cause == "injection"
    assert any("TB001" in warning for warning in diagnosis.warnings)
    assert "just to receive its data" in diagnosis.headline


def test_time_decides_where_it_contradicts_the_trees() -> None:
    run = endpoint_run()
    diagnosis = diagnose_cause(run, answers(run, 0.4, 0.5, 1.0, 1.0, 1.0)[0], seeds=1)
    assert diagnosis.cause == "placement"
    warning_of_time = next(
        warning for warning in diagnosis.warnings if "follows the time" in warning
    )
    # What the rules say rests on the message log, where there is one, as much as on trees.
    assert warning_of_time.startswith("Congestion trees and message log point to pattern")
    bare = dataclasses.replace(run, tables={**run.tables, "messages": run.tables["messages"][:0]})
    warnings = diagnose_cause(bare, answers(bare, 0.4, 0.5, 1.0, 1.0, 1.0)[0], seeds=1).warnings
    assert any(text.startswith("Congestion trees point to") for text in warnings), warnings
    assert "50 %" in diagnosis.headline


def test_time_decides_without_any_tree() -> None:
    run = quiet_run()
    small = diagnose_cause(run, answers(run, 0.96, 0.96, 1.0, 1.0, 1.0)[0], seeds=1)
    large = diagnose_cause(run, answers(run, 0.9, 0.9, 1.0, 1.0, 1.0)[0], seeds=1)
    assert (small.cause, large.cause) == ("not-network", "placement")
    # Placement costs latency, too, where a path visits more switches.
    assert "too short" in large.headline and "longer paths" in large.headline


def test_a_rule_without_congestion_contradicts_no_verdict() -> None:
    """Where few packets meet congestion TB004 fires, and the time may say otherwise."""
    scenario = load(EXAMPLES / "congestion" / "hot-spot.toml")
    prepared = prepare(scenario)
    diagnosis = diagnose_cause(simulate(prepared), make_evaluate(prepared), seeds=1)
    assert likeliest(diagnosis) == "other-traffic"
    # The finding of the verdict takes its place.
    assert [(f.code, f.cause) for f in diagnosis.findings] == [("TB000", diagnosis.cause)]
    notes = [
        text for text in diagnosis.warnings if text.startswith("The samples show little congestion")
    ]
    assert len(notes) == 1 and notes[0].endswith("of the time to other-traffic.")


def test_compute_bound_runs_are_not_the_network() -> None:
    diagnosis = diagnose(placement_run(wait=0.02))
    assert diagnosis.cause == "not-network"
    assert diagnosis.communication_fraction == pytest.approx(0.02)


def test_a_large_share_of_communication_counts() -> None:
    # The miniGhost case: contention takes 4.2 % of a time step that is nearly all computation.
    busy, idle = placement_run(wait=0.1), placement_run(wait=0.9)
    some = diagnose_cause(busy, answers(busy, 0.958, 0.977, 1.0, 1.0, 1.0)[0], seeds=1)
    little = diagnose_cause(idle, answers(idle, 0.958, 0.977, 1.0, 1.0, 1.0)[0], seeds=1)
    assert (some.cause, little.cause) == ("placement", "not-network")
    least = diagnose_cause(busy, answers(busy, 0.985, 0.985, 1.0, 1.0, 1.0)[0], seeds=1)
    assert least.cause == "not-network"


def test_the_best_placement_is_its_own_step() -> None:
    run = placement_run()
    before, _ = answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)

    def evaluate(change: Change) -> Run:
        if change.placement is None:
            return before(change)
        share = {"good": 0.6, "bad": 1.1}[change.placement_name]
        summary = {**run.summary, "elapsed_ps": round(share * TOTAL)}
        return dataclasses.replace(run, summary=summary)

    nodes = np.arange(32, dtype=np.uint32)
    diagnosis = diagnose_cause(run, evaluate, placements={"bad": nodes, "good": nodes}, seeds=1)
    deltas = {bar.name: bar.delta_ps / TOTAL for bar in diagnosis.waterfall}
    assert deltas["network"] == pytest.approx(0.05) and deltas["placement"] == pytest.approx(0.4)
    share = next(share for share in diagnosis.shares if share.cause == "placement")
    assert share.removed == pytest.approx(0.4) and share.charged == pytest.approx(0.4)
    capacity = next(share for share in diagnosis.shares if share.cause == "capacity")
    assert capacity.charged == pytest.approx(0.05) and capacity.removed is None


def test_the_best_placement_tried_is_not_to_blame() -> None:
    """What others would cost is charged to nobody: nothing is in the way of the one in use."""
    run = placement_run()
    before, _ = answers(run, 0.98, 0.98, 0.99, 0.99, 1.0)

    def evaluate(change: Change) -> Run:
        if change.placement is None:
            return before(change)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": round(1.2 * TOTAL)})

    nodes = np.arange(32, dtype=np.uint32)
    diagnosis = diagnose_cause(run, evaluate, placements={"worse": nodes}, seeds=2)
    assert diagnosis.cause == "not-network"
    bars = {bar.name: bar for bar in diagnosis.waterfall}
    assert bars["network"].elapsed_ps == bars["placement"].elapsed_ps
    share = {share.cause: share for share in diagnosis.shares}
    assert share["placement"].charged == share["placement"].removed == 0.0
    assert share["capacity"].charged == pytest.approx(0.01)


def test_the_network_is_not_called_the_placement() -> None:
    """An all-to-all on a tapered tree: the best placement tried costs what the one in use does."""
    run = placement_run()
    before, _ = answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)
    nodes = np.arange(32, dtype=np.uint32)
    for share, cause, words in (
        (0.995, "capacity", "under the best placement tried, too"),
        (0.6, "placement", "ranks are placed so"),
    ):

        def evaluate(change: Change, share: float = share) -> Run:
            if change.placement is None:
                return before(change)
            summary = {**run.summary, "elapsed_ps": round(share * TOTAL)}
            return dataclasses.replace(run, summary=summary)

        diagnosis = diagnose_cause(run, evaluate, placements={"other": nodes}, seeds=1)
        assert diagnosis.cause == cause and words in diagnosis.headline


def test_the_placement_in_use_is_none_tried() -> None:
    run = placement_run()
    nodes = np.arange(32, dtype=np.uint32)
    evaluate, _ = answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)
    only = diagnose_cause(run, evaluate, placements={"block": nodes}, seeds=1)
    assert "placement" in only.headline and "best placement tried" not in only.headline
    both = diagnose_cause(run, evaluate, placements={"block": nodes, "tile": nodes}, seeds=1)
    assert "under the best placement tried, too" in both.headline


def test_slow_cables_that_a_scenario_states_are_named() -> None:
    """Where no congestion tree names them, verdict and remedy do."""
    run = line_run()
    ports = ["leaf1[36]", "leaf2[40]", "node3[3]"]
    stated = [Degraded.model_validate({"cable": port, "rate": "10 Gb/s"}) for port in ports]
    fabric = run.scenario.fabric.model_copy(update={"degraded": stated})
    scenario = run.scenario.model_copy(update={"fabric": fabric})
    run = dataclasses.replace(run, scenario=scenario)

    def evaluate(change: Change) -> Run:
        share = 0.6 if change.network != "as-is" else 1.0
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": round(share * TOTAL)})

    diagnosis = diagnose_cause(run, evaluate, seeds=1)
    assert diagnosis.cause == "slow-link"
    assert [name.split(" ")[0] for name in diagnosis.slow_links] == ports
    assert "run slower than they should (" in diagnosis.headline
    remedy = recommend(run, diagnosis, [])
    assert remedy is not None and remedy.avoid == diagnosis.slow_links
    assert all(name in remedy.action for name in diagnosis.slow_links)
    assert "above" not in remedy.action


def test_shares_show_that_the_order_matters() -> None:
    run = placement_run(background=True, routing="deterministic")

    def evaluate(change: Change) -> Run:
        # Static routes hurt only among the traffic of others, and the other way round.
        both = change.background and change.routing is None
        share = {"no-contention": 0.5, "star": 0.5}.get(change.network, 1.0 if both else 0.6)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": round(share * TOTAL)})

    shares = {share.cause: share for share in diagnose_cause(run, evaluate, seeds=1).shares}
    assert shares["routing"].charged == 0 and shares["routing"].removed == pytest.approx(0.4)
    assert shares["other-traffic"].charged == pytest.approx(0.4)
    assert shares["other-traffic"].removed == pytest.approx(0.4)


def test_an_unknown_cause_goes_to_the_samples() -> None:
    run = other_run(log=False)
    diagnosis = diagnose_cause(run, answers(run, 0.5, 0.5, 0.6, 0.6, 0.6)[0], seeds=1)
    assert likeliest(diagnosis) == "other-traffic" and diagnosis.basis == "hypothesis"
    # Nor is a cable called slow without a message log: others may fill one link of several.
    slow = slow_run(log=False)
    diagnosis = diagnose_cause(slow, answers(slow, 0.5, 0.5, 0.6, 0.6, 0.6)[0], seeds=1)
    assert likeliest(diagnosis) == "other-traffic"


def test_a_model_slower_than_the_run_is_wrong() -> None:
    run = placement_run()
    slow = diagnose_cause(run, answers(run, 0.5, 0.55, 1.3, 1.3, 1.3)[0], seeds=2)
    assert any("30 % longer than the run" in warning for warning in slow.warnings)
    assert slow.waterfall[-1].delta_ps < 0
    wrong = diagnose_cause(run, answers(run, 0.5, 0.55, 1.11, 1.11, 1.11)[0], seeds=2)
    assert any("11 % longer than the run" in warning for warning in wrong.warnings)
    good = diagnose_cause(run, answers(run, 0.5, 0.55, 1.09, 1.09, 1.09)[0], seeds=2)
    assert not any("longer than the run" in warning for warning in good.warnings)


def test_time_that_nothing_explains_is_said() -> None:
    run = quiet_run(log=False)
    diagnosis = diagnose_cause(run, answers(run, 0.5, 0.5, 0.6, 0.6, 0.6)[0], seeds=1)
    assert any("40 % of the time is unexplained" in warning for warning in diagnosis.warnings)


def test_progress_goes_from_nothing_to_nearly_done() -> None:
    run, seen = placement_run(), []
    evaluate, _ = answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)
    diagnose_cause(run, evaluate, seeds=2, progress=lambda text, share: seen.append((text, share)))
    assert seen[0][1] == 0.0 and all(0 <= share < 1 for _, share in seen)
    assert any("placement" in text for text, _ in seen)


def test_the_diagnosis_goes_to_json_and_back() -> None:
    diagnosis = diagnose(endpoint_run())
    text = diagnosis.model_dump_json()
    assert Diagnosis.model_validate_json(text) == diagnosis
    assert json.loads(text)["cause"] == "pattern"


def test_the_same_run_gives_the_same_diagnosis() -> None:
    assert diagnose(placement_run()) == diagnose(placement_run())


def test_background_packets_are_never_looked_at() -> None:
    run = placement_run(background=True)
    other = run.tables["samples"].with_columns(
        job=pl.lit(1, pl.UInt32),
        link=pl.lit(3, pl.UInt32),
        congested_weight=pl.lit(10**6, pl.UInt64),
    )
    before = diagnose(run)
    run.tables["samples"] = pl.concat([run.tables["samples"], other])
    assert diagnose(run).findings == before.findings


def test_an_interrupted_run_says_so() -> None:
    run = placement_run()
    run.summary["complete"] = False
    assert any("interrupted" in warning for warning in diagnose(run).warnings)


def test_mistakes_are_told() -> None:
    run = placement_run()
    with pytest.raises(RunError, match="seeds = 0"):
        diagnose(run, seeds=0)
    run.tables["jobs"] = run.tables["jobs"].with_columns(observed=pl.lit(False))
    with pytest.raises(RunError, match="no job"):
        diagnose(run)


@pytest.mark.parametrize(
    ("slow", "factor", "cause"),
    [((5,), 3.0, "imbalance"), ((), 1.0, "not-network"), ((5, 6), 1.5, "imbalance")],
)
def test_late_ranks_of_a_simulated_run_are_named(
    tmp_path: Path, slow: tuple[int, ...], factor: float, cause: str
) -> None:
    """A ring of eight ranks computes 10 ms between exchanges, and some ranks longer."""
    ranks, rounds, lines = 8, 4, ["num_ranks 8"]
    for rank in range(ranks):
        work = round(10_000_000 * (factor if rank in slow else 1.0))
        lines.append(f"rank {rank} {{")
        for turn in range(rounds):
            n = 3 * turn
            lines += [
                f"l{n + 1}: calc {work}",
                f"l{n + 2}: send 1000b to {(rank + 1) % ranks} tag {turn}",
                f"l{n + 2} requires l{n + 1}",
                f"l{n + 3}: recv 1000b from {(rank - 1) % ranks} tag {turn}",
                f"l{n + 3} requires l{n + 1}",
            ]
            lines += [f"l{n + 1} requires l{n}"] if turn else []
        lines.append("}")
    trace = tmp_path / "ring.goal"
    trace.write_text("\n".join(lines) + "\n")
    tree = {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 2}
    case = parse({"fabric": {"fat_tree": tree}, "job": [{"trace": str(trace)}]})
    prepared = prepare(case)
    program = prepared.observed.program
    diagnosis = diagnose_cause(simulate(case), make_evaluate(prepared), seeds=1, program=program)
    assert diagnosis.cause == cause
    shares = {share.cause: share.charged for share in diagnosis.shares}
    if not slow:
        assert "imbalance" not in shares
        return
    # The others wait for the slow ranks: balanced, each of the rounds takes as long as one of them.
    assert shares["imbalance"] == pytest.approx(1.0 - 1.0 / factor, abs=0.05)
    assert all(f"rank {rank} on n{rank}" in diagnosis.headline for rank in slow)
    assert any(finding.cause == "imbalance" for finding in diagnosis.findings)
    # Without the program nothing is known of computation.
    assert diagnose_cause(simulate(case), make_evaluate(prepared), seeds=1).cause != "imbalance"


@pytest.mark.parametrize(
    ("best", "cause", "number"),
    [(1.0, "capacity", "45 %"), (0.94, "capacity", "39 %"), (0.6, "placement", "40 %")],
)
def test_headline_names_capacity_where_placements_gain_less(
    best: float, cause: str, number: str
) -> None:
    """The network costs 45 % of the time, of which the best placement saves ``1 - best``."""
    run = placement_run()
    unchanged, _ = answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)

    def evaluate(change: Change) -> Run:
        if change.placement is None:
            return unchanged(change)
        return dataclasses.replace(run, summary={**run.summary, "elapsed_ps": round(best * TOTAL)})

    placements = {"other": np.arange(32, dtype=np.uint32)}
    diagnosis = diagnose_cause(run, evaluate, placements=placements, seeds=1)
    assert diagnosis.cause == cause and number in diagnosis.headline
    assert (
        not any(finding.cause == "placement" for finding in diagnosis.findings)
        or cause == "placement"
    )
    assert "TB002" in [finding.code for finding in diagnosis.findings]


def test_untried_placements_leave_capacity_open() -> None:
    run = placement_run()
    evaluate, _ = answers(run, 0.5, 0.55, 1.0, 1.0, 1.0)
    nodes = np.arange(32, dtype=np.uint32)
    alone, both = (
        diagnose_cause(run, evaluate, placements=dict.fromkeys(names, nodes), seeds=1)
        for names in (["block"], ["block", "tile"])
    )
    assert alone.cause == "undetermined" and both.cause == "capacity"
    assert alone.chances["capacity"] == pytest.approx(both.confidence * UNTRIED, abs=0.02)
    assert alone.chances["placement"] >= alone.chances["capacity"]


@pytest.mark.parametrize(("wait", "words"), [(0.1, "not the bottleneck"), (0.9, "fewer bytes")])
def test_transfers_without_contention_do_not_clear_the_network(wait: float, words: str) -> None:
    run = placement_run(wait=wait)
    diagnosis = diagnose_cause(run, answers(run, 0.99, 0.99, 1.0, 1.0, 1.0)[0], seeds=1)
    assert diagnosis.cause == "not-network" and words in diagnosis.headline
