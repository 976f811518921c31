"""Costs of imbalance, noise, routes and placement of a measured run, by simulation without each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.fanin import hot_receiver_share
from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change, Evaluate
from tailback.evidence.measured_routes import (
    Capacities,
    limited_by_routes,
    unevenness_of_tables,
)
from tailback.inference.counted_paths import chance_of_paths
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import FAULT
from tailback.inference.interruptions import Interruptions
from tailback.inference.machine_models import (
    HASHED,
    ONE_PATH,
    chosen_by_chance,
    routing_choice,
)
from tailback.inference.measured_costs import FurtherCosts
from tailback.inference.network_clues import flows_of, routing_is_stated
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.apply_change import UP_DOWN
from tailback.simulation.routes import tables_of
from tailback.traffic.computation import (
    balanced,
    with_computation,
    with_equal_totals,
    without_noise,
)
from tailback.traffic.program import Program


def further_costs(
    prepared: PreparedScenario,
    evidence: NetworkEvidence,
    run: Run,
    evaluate: Evaluate,
    placements: Mapping[str, NDArray[np.uint32]],
    seeds: int,
    lossy_ps: int = 0,
) -> FurtherCosts:
    """Costs of imbalance, noise, routes and placement in the expected run.

    Where queues drop packets, transfers take longer than in the simulation, and more computation
    hides behind them. So for imbalance and noise all of the network is as much slower as the run
    took longer than expected: computation is shortened by this factor and all times are stretched.

    Args:
        prepared: The scenario with all findings.
        evidence: Counters, which show how evenly parallel links were used.
        run: The expected run, with decoded samples.
        evaluate: Simulates changes of it.
        placements: Placements on the same hosts: node of each rank, shape (R,), by name.
        seeds: Repetitions.
        lossy_ps: Measured time that the simulation covers, if queues drop packets; otherwise 0.
    """
    program = prepared.observed.program
    even, quiet, equal = balanced(program), without_noise(program), with_equal_totals(program)
    if np.array_equal(even.amount, quiet.amount):
        even = quiet
    limits, uneven = _route_limits(prepared, evidence, run)
    times = [evaluate(Change(seed_offset=seed)).elapsed_ps for seed in range(seeds)]
    routing = []
    if limits:
        routing = [
            max(evaluate(Change(limits=limits, seed_offset=seed)).elapsed_ps - now, 0)
            for seed, now in enumerate(times)
        ]
    expected_ps = (sum(times) + sum(routing)) / seeds
    slower = max(lossy_ps / max(expected_ps, 1.0), 1.0)

    def time_of(changed: Program, seed: int) -> float:
        """Time of the program on a network that is slower by the factor, ps."""
        change = Change(program=with_computation(changed, 1.0 / slower), seed_offset=seed)
        return slower * evaluate(change).elapsed_ps

    saved: tuple[list[int], list[int], list[int]] = ([], [], [])
    for seed, now in enumerate(times):
        before = now if slower == 1.0 else time_of(program, seed)
        for out, other in zip(saved, (even, quiet, equal), strict=True):
            out.append(round(before - time_of(other, seed)))
    by_order = sum(saved[0]) >= FAULT * expected_ps * seeds and sum(saved[2]) < sum(saved[0]) / 2
    tables = tables_of(prepared.scenario, prepared.fabric)
    even_paths = EVEN_TABLES if tables is not None else _even_flows(prepared)
    beside = _placement_costs(evaluate, placements, seeds, Change(limits=limits)) if limits else ()
    own_routes = even_paths or _without_chance(prepared)
    hashed = bool(prepared.scenario.engine.flow_seeds)
    own_placement = (
        _placement_costs(
            evaluate,
            placements,
            HASHES,
            OTHER_HASH,
            find_by=own_routes,
            most_ps=evaluate(Change(network="healthy", background=False)).elapsed_ps,
        )
        if hashed
        else _placement_costs(evaluate, placements, seeds, own_routes)
    )
    return FurtherCosts(
        tuple(saved[2 if by_order else 0]),
        tuple(saved[1]),
        tuple(routing),
        uneven,
        hot_receiver_share(run),
        *own_placement,
        () if even_paths is None else _saved_by_paths(prepared, evaluate, even_paths, times),
        0 if even_paths is None else _saved_alone(evaluate, even_paths, healthy=hashed),
        0.0 if tables is None else unevenness_of_tables(tables.link, prepared.fabric),
        adapter_order_costs(prepared, evaluate, seeds),
        Interruptions.of(program, run.elapsed_ps),
        partial(_time_without, prepared, evaluate, even_paths or EVEN_TABLES),
        *(beside or ((), ())),
        by_order=by_order,
        hashed_ps=_hashed_costs(prepared, evidence, evaluate, times) if lossy_ps else (),
        hash_chance=chance_of_paths(prepared, run) if hashed else None,
    )


EVEN_TABLES = Change(routing="deterministic", rule=UP_DOWN)
"""Forwarding tables that spread destinations evenly over up-links (D-mod-k; Zahavi, 2010)."""


OTHER_HASH, HASHES = Change(routing="ecmp"), 4
"""Other paths by a hash, and how many times they are drawn: ranks on other hosts have others."""


def _even_flows(prepared: PreparedScenario) -> Change | None:
    """Flows that are spread evenly, where switches hash them to paths."""
    return Change(routing="adaptive") if routing_choice(prepared) == HASHED else None


def _without_chance(prepared: PreparedScenario) -> Change | None:
    """Packets spread over all paths, where flows keep to one each by chance.

    The best of several placements is that whose flows happen to meet least: no merit of its own.
    """
    return Change(routing="random") if chosen_by_chance(prepared) else None


def _saved_by_paths(
    prepared: PreparedScenario, evaluate: Evaluate, even_paths: Change, times: Sequence[int]
) -> tuple[int, ...]:
    """Time that even paths save in each repetition, ps.

    Other paths may take our messages around a slow cable by chance, which is no merit of theirs:
    they save no more than they do at nominal rates.

    Args:
        prepared: The scenario, with forwarding tables or hashed flows.
        evaluate: Simulates changes of it.
        even_paths: Spreads messages evenly.
        times: Time of the run as it is in each repetition, ps.
    """
    slow = bool(prepared.scenario.fabric.degraded)
    saved = []
    for seed, now in enumerate(times):
        even = replace(even_paths, seed_offset=seed)
        least = now - evaluate(even).elapsed_ps
        if slow:
            healthy = Change(network="healthy", seed_offset=seed)
            then = evaluate(replace(even, network="healthy")).elapsed_ps
            least = min(least, evaluate(healthy).elapsed_ps - then)
        saved.append(max(least, 0))
    return tuple(saved)


def _hashed_costs(
    prepared: PreparedScenario, evidence: NetworkEvidence, evaluate: Evaluate, times: Sequence[int]
) -> tuple[int, ...]:
    """What the run loses in each repetition if switches hash flows to paths, ps.

    Empty if the routes are stated, or counters show what each link carried.
    """
    if evidence.counters is not None or routing_is_stated(prepared):
        return ()
    return tuple(
        max(evaluate(Change(routing="ecmp", seed_offset=seed)).elapsed_ps - now, 0)
        for seed, now in enumerate(times)
    )


def _saved_alone(evaluate: Evaluate, change: Change, *, healthy: bool) -> int:
    """Time that a change saves our job without other traffic, or slow cables either, ps."""
    now, then = (
        evaluate(
            replace(each, background=False, network="healthy" if healthy else "as-is")
        ).elapsed_ps
        for each in (Change(), change)
    )
    return max(now - then, 0)


def _time_without(
    prepared: PreparedScenario, evaluate: Evaluate, even_paths: Change, causes: frozenset[str]
) -> int:
    """Expected time without several causes at once, ps; names as in ``SEPARABLE``."""
    program = prepared.observed.program
    if "noise" in causes:
        program = without_noise(program)
    if "imbalance" in causes:
        program = balanced(program)
    change = replace(
        even_paths if "routing" in causes else Change(),
        program=None if causes.isdisjoint(("noise", "imbalance")) else program,
        network="healthy" if "slow-link" in causes else "as-is",
        background="other-traffic" not in causes,
    )
    return evaluate(change).elapsed_ps


def adapter_order_costs(
    prepared: PreparedScenario, evaluate: Evaluate, seeds: int
) -> tuple[int, ...]:
    """Time saved if adapters share their link among messages, on an ideal switch, by repetition."""
    if prepared.scenario.engine.injection != "fifo":
        return ()
    star = Change(network="star", background=False)
    pairs = [
        [
            evaluate(replace(star, fair_adapters=fair, seed_offset=seed)).elapsed_ps
            for fair in (False, True)
        ]
        for seed in range(seeds)
    ]
    return tuple(max(in_order - fair, 0) for in_order, fair in pairs)


def _placement_costs(
    evaluate: Evaluate,
    placements: Mapping[str, NDArray[np.uint32]],
    seeds: int,
    routes: Change | None,
    find_by: Change | None = None,
    most_ps: int | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Time that other placements save our job, alone on the healthy network, by repetition.

    For the best placement, and for the one in the order of the hosts. ``routes`` are those that
    the present ones are replaced by, None keeps them; with ``find_by`` the best one is found.
    ``most_ps`` is the time by the present ones: where they are better than usual, no placement
    saves what they do not cost.
    """
    alone = replace(routes or Change(), network="healthy", background=False)
    apart = alone if find_by is None else replace(find_by, network="healthy", background=False)
    tried = {
        name: replace(alone, placement=nodes, placement_name=name)
        for name, nodes in placements.items()
    }
    if not tried:
        return (), ()
    fastest = min(
        tried,
        key=lambda name: (
            evaluate(replace(apart, placement=placements[name], placement_name=name)).elapsed_ps
        ),
    )
    best = tried[fastest]
    # Candidates equal to an earlier one have been left out.
    in_order = tried.get("by-switch", tried.get("block", alone))
    now, least, ordered = (
        [evaluate(replace(change, seed_offset=seed)).elapsed_ps for seed in range(seeds)]
        for change in (alone, best, in_order)
    )
    now = now if most_ps is None else [min(each, most_ps) for each in now]
    saved = [
        tuple(max(a - b, 0) for a, b in zip(now, then, strict=True)) for then in (least, ordered)
    ]
    return saved[0], saved[1]


def _route_limits(
    prepared: PreparedScenario, evidence: NetworkEvidence, run: Run
) -> tuple[Capacities, float]:
    """Link limits due to uneven routes, where the expected run does not explain them.

    None with forwarding tables or much other traffic.
    """
    counters, others = evidence.counters, evidence.others
    if counters is None or prepared.scenario.fabric.forwarding is not None:
        return (), 0.0
    if prepared.scenario.engine.flow_seeds:
        return (), 0.0  # The expected run has the paths that counters show.
    counted = float(np.nan_to_num(counters.sent_bytes).sum())
    if others is not None and others.sent_bytes > 0.02 * counted:
        return (), 0.0
    spread = routing_is_stated(prepared) and routing_choice(prepared) not in ONE_PATH
    flows = None if spread else flows_of(prepared, run)
    return limited_by_routes(counters, prepared.fabric, link_totals(run, "bytes"), flows)
