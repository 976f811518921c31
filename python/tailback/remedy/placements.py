"""Try placements by re-simulation and recommend the best, if it is worth it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.diagnose.model import Candidate, Cause, Diagnosis, Finding, Remedy
from tailback.errors import RunError, TailbackError
from tailback.evaluate import Change, Evaluate
from tailback.run import Run

Progress = Callable[[str, float], None]

MIN_GAIN = 0.02
"""A placement is recommended from this gain of time on; its slowest repetition must also beat the
fastest one of the placement as it is."""


def current_placement(run: Run) -> str:
    """Name of the placement that the observed job ran with."""
    jobs = run.tables["jobs"].filter("observed")
    return str(jobs["placement"][0]) if jobs.height else ""


def try_placements(
    run: Run,
    evaluate: Evaluate,
    candidates: Mapping[str, NDArray[np.uint32]],
    *,
    seeds: int = 3,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Simulate our job under each placement, in the same conditions, and under the one it had.

    Args:
        run: The run as observed.
        evaluate: Simulates a change.
        candidates: Node of each rank, shape (R,), by name of the placement.
        seeds: Repetitions with other random choices, at least 1.
        progress: Told the placement and the share done, 0–1.

    Returns:
        All of them, fastest first; those that could not be tried last, with their error. The
        placement as it is is among them under its own name.

    Raises:
        RunError: ``seeds`` is below 1.
    """
    if seeds < 1:
        raise RunError(f"seeds = {seeds}", remedy="give at least 1 repetition")
    now = current_placement(run)
    todo: list[tuple[str, Change]] = [(now, Change())]
    todo += [
        (name, Change(placement=nodes, placement_name=name))
        for name, nodes in candidates.items()
        if name != now
    ]
    tried = []
    for number, (name, change) in enumerate(todo):
        if progress is not None:
            progress(f"trying placement {name}", number / len(todo))
        tried.append(_try(name, change, evaluate, seeds))
    return sorted(tried, key=lambda c: (bool(c.error), c.elapsed_ps, c.name))


def _try(name: str, change: Change, evaluate: Evaluate, seeds: int) -> Candidate:
    times: list[int] = []
    path_length = congested = 0.0
    try:
        for seed in range(seeds):
            result = evaluate(
                Change(
                    placement=change.placement,
                    placement_name=change.placement_name,
                    seed_offset=seed,
                    # Congestion is looked at once; for the spread of the time, time is enough.
                    measure=seed == 0,
                )
            )
            times.append(result.elapsed_ps)
            if seed == 0:
                path_length = float(result.summary.get("average_path_length", 0.0))
                congested = congested_hops(result)
    except TailbackError as error:
        return Candidate(name=name, error=str(error))
    return Candidate(
        name=name,
        elapsed_ps=round(sum(times) / len(times)),
        low_ps=min(times),
        high_ps=max(times),
        path_length=path_length,
        congested_fraction=congested,
    )


def congested_hops(run: Run) -> float:
    """Congested packet-hops over packet-hops of our job, as the simulation counted them.

    Injection links are left out: an adapter that holds a message is busy, not congested.
    """
    inner = run.tables["links"].filter(~pl.col("from_node"))["link"]
    truth = run.tables["truth"].filter(pl.col("link").is_in(inner.implode()))
    packets = float(truth["observed_packets"].sum())
    return float(truth["observed_congested_packets"].sum()) / packets if packets > 0 else 0.0


def best_of(candidates: Sequence[Candidate], now: str) -> tuple[Candidate, Candidate] | None:
    """``(as it is, best)`` when the best is worth it, else None.

    Worth it: :data:`MIN_GAIN` faster on average, and faster in every repetition than the placement
    as it is in any.
    """
    able = [c for c in candidates if not c.error and c.elapsed_ps > 0]
    before = next((c for c in able if c.name == now), None)
    others = [c for c in able if c.name != now]
    if before is None or not others:
        return None
    best = min(others, key=lambda c: (c.elapsed_ps, c.name))
    gain = 1.0 - best.elapsed_ps / before.elapsed_ps
    return (before, best) if gain >= MIN_GAIN and best.high_ps < before.low_ps else None


def recommend(
    run: Run,
    diagnosis: Diagnosis,
    candidates: Sequence[Candidate],
    *,
    files: Mapping[str, str] | None = None,
    commands: Sequence[str] | None = None,
) -> Remedy | None:
    """Say what to do about a diagnosis.

    Args:
        run: The run as observed.
        diagnosis: Its diagnosis.
        candidates: Placements that were tried (:func:`try_placements`).
        files: Files the caller writes for a recommended placement: name → what it is for.
        commands: Commands to run with them.

    Returns:
        The remedy; None when the network is not the problem, or nothing is known to help.
    """
    if diagnosis.cause in ("not-network", "injection"):
        return None
    now = current_placement(run)
    found = best_of(candidates, now)
    advice = _advice(diagnosis.cause, diagnosis.findings, candidates, now, helped=found is not None)
    if found is None:
        if not advice:
            return None
        return Remedy(
            action=advice,
            placement="",
            before_ps=run.elapsed_ps,
            after_ps=run.elapsed_ps,
            gain=0.0,
            candidates=list(candidates),
            files={},
            commands=[],
        )
    before, best = found
    gain = 1.0 - best.elapsed_ps / before.elapsed_ps
    same = " (the same nodes, ranks shifted)" if best.name == "shift" else ""
    use = f"placement {best.name}{same} instead of {now}: {gain:.0%} less time by re-simulation"
    return Remedy(
        action=f"{advice} Meanwhile use {use}." if advice else f"Use {use}.",
        placement=best.name,
        before_ps=before.elapsed_ps,
        after_ps=best.elapsed_ps,
        gain=gain,
        candidates=list(candidates),
        files=dict(files or {}),
        commands=list(commands or []),
    )


def _advice(
    cause: Cause,
    findings: Sequence[Finding],
    candidates: Sequence[Candidate],
    now: str,
    *,
    helped: bool,
) -> str:
    """What to do besides changing the placement; empty when that is all there is to do."""
    own = next((finding for finding in findings if finding.cause == cause), None)
    if cause == "undetermined":
        return "" if own is None or helped else own.advice
    if cause == "placement":
        if helped:
            return ""
        tried = [c.name for c in candidates if not c.error and c.name != now]
        if not tried:
            return own.advice if own is not None else "Try other placements of the ranks."
        return (
            f"None of the {len(tried)} placements tried helps beyond the spread of repetitions: "
            "ask for nodes on fewer switches, or send less between them."
        )
    if own is None:
        return {
            "pattern": "Change the communication: spread the messages over receivers or time.",
            "routing": "Spread the traffic: use adaptive routing, or routes with more paths.",
            "slow-link": "Have the cable named above looked at, and keep off it until then.",
            "other-traffic": "Run again at another time, or ask for nodes of your own switches.",
        }[cause]
    where = ""
    if cause == "other-traffic" and own.links:
        where = " Links to avoid: " + "; ".join(link.name for link in own.links[:3]) + "."
    return own.advice + where
