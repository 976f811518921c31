"""Adaptive routing where the network routes by tables or at random, proved by re-simulation."""

from __future__ import annotations

from tailback.evaluate import Change, Evaluate
from tailback.remedy.placements import MIN_GAIN
from tailback.remedy.proposal import Proposal
from tailback.run import Run


def try_adaptive_routing(run: Run, evaluate: Evaluate, *, seeds: int = 3) -> Proposal | None:
    """Simulate the job with adaptive routing, all else as it is.

    Args:
        run: The run as observed.
        evaluate: Simulates a change, packet by packet.
        seeds: Repetitions with other random choices.

    Returns:
        The proposal; None when routing is adaptive already or the gain is below
        :data:`tailback.remedy.placements.MIN_GAIN` or within the spread of repetitions.
    """
    now = run.scenario.engine.routing
    if now == "adaptive":
        return None
    before = [evaluate(Change(seed_offset=seed)).elapsed_ps for seed in range(seeds)]
    after = [
        evaluate(Change(routing="adaptive", seed_offset=seed)).elapsed_ps for seed in range(seeds)
    ]
    before_ps, after_ps = round(sum(before) / seeds), round(sum(after) / seeds)
    if after_ps > (1 - MIN_GAIN) * before_ps or max(after) >= min(before):
        return None
    gain = 1 - after_ps / before_ps
    return Proposal(
        "adaptive-routing",
        f"Turn on adaptive routing instead of {now} routing: {gain:.0%} less time by "
        "re-simulation. It does not keep packets in order by itself.",
        before_ps, after_ps, "packet", True,
    )  # fmt: skip
