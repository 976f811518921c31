"""The proof of a proposal: a packet simulation of our job under the original conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from tailback.diagnosis.model import Candidate, Status
from tailback.errors import RunError, TailbackError
from tailback.evaluate import Evaluate
from tailback.remedy.proposal import Progress, Proposal
from tailback.run import Run

MIN_GAIN = 0.02
"""Minimum gain of a recommended remedy. Its slowest repetition must also be faster than the fastest
one without it."""


def current_placement(run: Run) -> str:
    """Name of the placement that the observed job ran with."""
    jobs = run.tables["jobs"].filter("observed")
    return str(jobs["placement"][0]) if jobs.height else ""


def prove(
    proposals: Sequence[Proposal],
    evaluate: Evaluate,
    *,
    estimates: Mapping[str, int] | None = None,
    seeds: int = 3,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Simulate every proposal and sort by time; those that could not be simulated come last.

    Args:
        proposals: What to try; the unchanged run may be one of them.
        evaluate: Simulates a change packet by packet.
        estimates: Times by the fluid model, by name, to be recorded with the candidates.
        seeds: Repetitions with other random choices, at least 1.
        progress: Called with the proposal and the share done, 0–1.

    Raises:
        RunError: ``seeds`` is below 1.
    """
    if seeds < 1:
        raise RunError(f"seeds = {seeds}", remedy="give at least 1 repetition")
    tried = []
    for number, proposal in enumerate(proposals):
        if progress is not None:
            progress(f"trying {proposal.kind} {proposal.name}", number / len(proposals))
        tried.append(_try(proposal, evaluate, seeds, (estimates or {}).get(proposal.name, 0)))
    return sorted(tried, key=fastest_first)


def fastest_first(candidate: Candidate) -> tuple[bool, int, str]:
    """Sort key: fastest first, those that were not simulated last."""
    return not candidate.proved, candidate.elapsed_ps, candidate.name


def not_simulated(
    proposal: Proposal, status: Status, reason: str, estimate_ps: int = 0
) -> Candidate:
    """A proposal that is not simulated, and why."""
    return Candidate(
        name=proposal.name, kind=proposal.kind, variant=proposal.variant, parts=proposal.parts,
        action=proposal.action, assumes=proposal.assumes, estimate_ps=estimate_ps, status=status,
        reason=reason,
    )  # fmt: skip


def _try(proposal: Proposal, evaluate: Evaluate, seeds: int, estimate_ps: int) -> Candidate:
    times: list[int] = []
    path_length, congested = 0.0, None
    try:
        for seed in range(seeds):
            # Congestion is measured once; the other repetitions only give the spread of the time.
            result = evaluate(replace(proposal.change, seed_offset=seed, measure=seed == 0))
            times.append(result.elapsed_ps)
            if seed == 0:
                path_length = float(result.summary.get("average_path_length", 0.0))
                congested = congested_hops(result)
    except TailbackError as error:
        return not_simulated(proposal, Status.FAILED, str(error), estimate_ps)
    return Candidate(
        name=proposal.name,
        kind=proposal.kind,
        variant=proposal.variant,
        parts=proposal.parts,
        action=proposal.action,
        assumes=proposal.assumes,
        estimate_ps=estimate_ps,
        elapsed_ps=round(sum(times) / len(times)),
        low_ps=min(times),
        high_ps=max(times),
        path_length=path_length,
        congested_fraction=congested,
    )


def congested_hops(run: Run) -> float | None:
    """Congested packet-hops over packet-hops of our job, as the simulation counted them.

    None if telemetry is off: ``[telemetry] scheme = "off"``.
    Injection links are left out: an adapter that holds a message is busy, not congested.
    """
    if run.scenario.telemetry.scheme == "off":
        return None
    inner = run.tables["links"].filter(~pl.col("from_node"))["link"]
    truth = run.tables["truth"].filter(pl.col("link").is_in(inner.implode()))
    packets = float(truth["observed_packets"].sum())
    return float(truth["observed_congested_packets"].sum()) / packets if packets > 0 else 0.0


def is_improvement(candidate: Candidate, before: Candidate) -> bool:
    """Whether it gains :data:`MIN_GAIN` on average and its slowest repetition beats all before."""
    if not candidate.proved or candidate.elapsed_ps <= 0 or before.elapsed_ps <= 0:
        return False
    gain = 1.0 - candidate.elapsed_ps / before.elapsed_ps
    return gain >= MIN_GAIN and candidate.high_ps < before.low_ps
