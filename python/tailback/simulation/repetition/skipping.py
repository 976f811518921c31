"""Simulates some of the steps that jobs repeat, and extrapolates the others.

Each round plans the skips (:mod:`tailback.simulation.repetition.skip_plan`), simulates the
remaining steps and evaluates their times (:mod:`tailback.simulation.repetition.step_times`). If
steps are not stationary yet, another round simulates more of them. Finally the skipped steps are
added to the outcome (:mod:`tailback.simulation.repetition.extrapolation`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.fabric.model import Fabric
from tailback.simulation.prepare import Workload
from tailback.simulation.repetition.continued import SteppedEngine, WholeRun, simulate_continued
from tailback.simulation.repetition.skip_plan import FIRST_STEPS, Key, Rates, plan_skips
from tailback.simulation.repetition.step_rounds import Round, SkippedRun, SteppedJob
from tailback.simulation.repetition.step_times import ENOUGH, FEWEST
from tailback.units import format_time, percent

ROUNDS = 5
"""Maximum number of rounds: for one job 10, 30, 90 and 270 steps of a stretch, and one more."""

WORTHWHILE = 0.5
"""Fraction of the steps to simulate in a round above which all steps are simulated instead."""

MAX_INCREASE = 6
"""Maximum factor by which a round increases the number of simulated steps: the number asked for is
uncertain, as few steps give a poor estimate of the variance."""


def simulate_skipping(
    workload: Workload,
    engine: SteppedEngine,
    *,
    eager: int,
    seed: int,
    one_in: float,
    link_group: NDArray[np.int64],
    random_routing: bool,
) -> SkippedRun | WholeRun | str:
    """Simulate a workload without the steps that can be skipped.

    Args:
        workload: The jobs and their placements.
        engine: Simulates a program.
        eager: Largest message in bytes that is sent without a handshake.
        seed: Seed of the samples of skipped steps.
        one_in: Number of packets per sample that arrives.
        link_group: Group of interchangeable links that each link belongs to, -1 for none.
        random_routing: Whether routing makes random choices, so that steps do not repeat exactly.

    Returns:
        The run (without skips if no steps were stationary), or the reason why the workload has to
        be simulated without skips.
    """
    jobs = SteppedJob.all_of(workload)
    if len(jobs) == 1 and not jobs[0].steps.waits_across():
        return simulate_continued(
            workload,
            jobs[0],
            engine,
            eager=eager,
            seed=seed,
            one_in=one_in,
            link_group=link_group,
            random_routing=random_routing,
        )
    rates, wanted = Rates({}, {}), dict[Key, int]()
    outlines = [job.outline for job in jobs]
    reason = "no job repeats enough equal steps"
    for number in range(ROUNDS):
        # With several jobs the first round only measures how long their steps take.
        short = (number == 0) if len(jobs) > 1 else not random_routing
        first = FIRST_STEPS if short else ENOUGH
        skips = plan_skips(outlines, rates, wanted, first)
        current = Round.of(workload, jobs, skips)
        if not skips or current.simulated > WORTHWHILE * current.steps:
            return reason
        outcome = engine(current.stepped)
        if not outcome.complete:
            return "interrupted"
        results = current.extrapolate(outcome, eager)
        changed = current.update_rates(outcome, results, rates)
        failed = [
            result.why_not for by_job in results for result in by_job.values() if result.why_not
        ]
        if not failed and not changed and (number > 0 or len(jobs) == 1):
            return current.skipped_run(outcome, results, seed, one_in, link_group)
        reason = failed[0] if failed else "the steps of jobs change each other's times"
        for skip, by_job in zip(skips, results, strict=True):
            more = [result.extrapolation.wanted for result in by_job.values() if result.why_not]
            if more:
                before = wanted.get(skip.key, first)
                wanted[skip.key] = min(max(*more, before + FEWEST), MAX_INCREASE * before)
    return reason


def skip_notes(run: SkippedRun) -> list[str]:
    """Notes on the skipped steps of a run, one per job with any."""
    out = []
    for number, (steps, simulated) in enumerate(zip(run.steps, run.simulated, strict=True)):
        stretches = [stretch for stretch in run.stretches if stretch.job == number]
        if not stretches:
            continue
        time, half = sum(stretch.time_ps for stretch in stretches), run.half_ps[number]
        exactly = all(stretch.exact for stretch in stretches)
        error = "they repeat exactly" if exactly else f"± {format_time(round(half))}, 95 %"
        if run.outcome.links_half:
            error += f"; bytes of each link ± {percent(run.outcome.links_half, 1)}"
        out.append(
            f"skipped: {steps - simulated:,} of the {steps:,} steps of job {stretches[0].name!r} "
            f"are extrapolated: {format_time(time)} ({error})"
        )
    return out


# --- interchangeable links ---------------------------------------------------------------------


def interchangeable_links(fabric: Fabric) -> NDArray[np.int64]:
    """Groups of links between switches that the fabric does not distinguish.

    Switches are distinguished by their connections. Nodes are all different. Two switches are equal
    as long as their links have the same rates and delays and lead to equal switches (color
    refinement, Weisfeiler and Leman, 1968). Links between equal switches, of the same rate and
    delay, form a group. In a tree these are the up links of a switch or of all equal switches of a
    pod, and the down links to them. Routing that chooses among such links at random, or by their
    load and otherwise at random, sends the same expected traffic over each.

    Returns:
        Group of each link, -1 if it is alone, shape (L,).
    """
    n = fabric.n_nodes
    source, target = fabric.link_src.astype(np.int64), fabric.link_dst.astype(np.int64)
    sort = _number_columns(np.stack([fabric.link_gbps, fabric.link_delay_ps.astype(np.float64)]))
    total = n + fabric.n_switches
    color = np.zeros(total, np.int64)
    color[:n] = 1 + np.arange(n)
    count = 0
    while True:
        left = _summed(_hash_pairs(color[target] * 2, sort), source, total)
        left += _summed(_hash_pairs(color[source] * 2 + 1, sort), target, total)
        color = np.unique(_hash_pairs(color, left.view(np.int64)), return_inverse=True)[1]
        if color.max(initial=0) + 1 == count:
            break
        count = int(color.max(initial=0)) + 1
    out = np.full(fabric.n_links, -1, np.int64)
    between = np.flatnonzero((source >= n) & (target >= n))
    pair = _number_columns(
        np.stack([color[source[between]], color[target[between]], sort[between]])
    )
    shared = np.bincount(pair)[pair] > 1
    out[between[shared]] = np.unique(pair[shared], return_inverse=True)[1]
    return out


def _number_columns(columns: NDArray[np.generic]) -> NDArray[np.int64]:
    """Numbers equal columns equally, from 0."""
    if columns.shape[1] == 0:
        return np.zeros(0, np.int64)
    return np.asarray(np.unique(columns, axis=1, return_inverse=True)[1]).reshape(-1)


def _hash_pairs(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A hash of each pair: sums of hashes tell different multisets apart."""
    value = first.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    value ^= second.astype(np.uint64) + np.uint64(0x632BE59BD9B4E019)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(value ^ (value >> np.uint64(31)))


def _summed(value: NDArray[np.uint64], at: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
    """Sums modulo 2^64 by index."""
    out = np.zeros(length, np.uint64)
    np.add.at(out, at, value)
    return out
