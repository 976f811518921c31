"""The placements worth trying for a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.model import PlacementVariant
from tailback.errors import PlacementError, TailbackError
from tailback.placement import (
    PLACEMENTS,
    PlacementProblem,
    fewest_switches,
    leaf_of_hosts,
    place,
    problem_for,
    restrict_to_used,
    switch_congestion,
)
from tailback.run import Run
from tailback.simulation import PreparedScenario
from tailback.stages import stage
from tailback.telemetry.estimate import Selection, link_estimates, select

DEFAULT_METHODS = (
    "block", "by-switch", "round-robin", "rcm", "metis", "incremental", "tile", "tile2", "shift",
)  # fmt: skip
"""Every placement except those that need a file or are random."""

CONGESTED_FRACTION = 0.1
"""Congested fraction of a leaf's links from which its hosts should be left out, as for a link
(docs/explanation/diagnosis.md, section 2)."""


def candidate_name(method: str, variant: PlacementVariant) -> str:
    """What a candidate is called in lists, tables and files; nothing is read from it."""
    if variant is PlacementVariant.PLAIN:
        return method
    return f"{method}-{'again' if variant is PlacementVariant.RECOMPUTED else variant}"


def candidate_variants(methods: Sequence[str]) -> dict[str, PlacementVariant]:
    """Variant of every candidate that :func:`make_candidates` may make, by its name."""
    return {
        candidate_name(method, variant): variant
        for method in methods
        for variant in PlacementVariant
    }


def worth_trying(prepared: PreparedScenario) -> tuple[str, ...]:
    """Placements to judge where none is asked for: the job's own file first, if it has one."""
    given = prepared.observed.section.placement_file is not None
    return ("file", *DEFAULT_METHODS) if given else DEFAULT_METHODS


def check_names(option: str, names: Sequence[str]) -> None:
    """Raise TailbackError, with the option, where a name it gives is no placement."""
    for name in names:
        try:
            PLACEMENTS[name]
        except TailbackError as error:
            error.place = f"{option} {name}"
            raise


@stage("placements")
def make_candidates(
    prepared: PreparedScenario,
    names: Sequence[str],
    run: Run | None,
    progress: Callable[[str, float], None],
) -> tuple[dict[str, NDArray[np.uint32]], list[tuple[str, PlacementError]]]:
    """Node of each rank under each placement, and why some could not be made.

    They keep the hosts of the job and the ranks on each. Where more hosts are allowed
    (``prepare(…, allow_hosts)``) every placement is also made on as many of those, ``…-compact``.

    When ``run`` is given, the incremental placement (thesis §4.2.2) and the shifted one use the
    congestion measured in it; the placement in use keeps its name and stays as it is, and what its
    method makes now is called ``…-again``. Placements equal to an earlier one are left out.
    """
    job = prepared.observed
    made: dict[str, NDArray[np.uint32]] = {}
    errors: list[tuple[str, PlacementError]] = []
    congestion = None
    if run is not None:
        congestion = switch_congestion(prepared.fabric, _fractions(run, prepared))
    grounds = _grounds(prepared, congestion)
    for number, name in enumerate(names):
        progress(f"placing: {name}", number / len(names))
        used = name == ("file" if job.section.placement_file is not None else job.section.placement)
        given = job.section.placement_options if used else {}
        for variant, problem, options in _tries(
            name, dict(given), grounds, run is not None and used
        ):
            called = candidate_name(name, variant)
            try:
                node = job.node if used and called == name else place(name, problem, options)
                job.footprint.check(prepared.fabric, called, node)
            except PlacementError as error:
                errors.append((called, error))
                continue
            if not any(np.array_equal(node, other) for other in made.values()):
                made[called] = node
    return made, errors


def _grounds(
    prepared: PreparedScenario, congestion: NDArray[np.float64] | None
) -> dict[PlacementVariant, PlacementProblem]:
    """What the ranks may be placed on: the hosts in use and, where others are allowed, those."""
    job, fabric = prepared.observed, prepared.fabric
    ranks, allowed = job.footprint.ranks, job.footprint.allowed
    out: dict[PlacementVariant, PlacementProblem] = {}
    if set(ranks) <= set(allowed):
        out[PlacementVariant.PLAIN] = replace(
            restrict_to_used(job.problem, job.node), congestion=congestion
        )
    if not job.footprint.widened:
        return out
    hot = np.zeros(fabric.n_switches, bool)
    if congestion is not None:
        hot = congestion >= CONGESTED_FRACTION
    chosen: dict[PlacementVariant, list[int]] = {}
    leaf = np.array(leaf_of_hosts(fabric, allowed), np.int64)
    if congestion is not None and hot[leaf].any():
        # Those under the most congested leaves go, as many as the job can do without.
        worst = np.where(hot[leaf], congestion[leaf], 0.0)
        spare = len(allowed) - len(ranks)
        out_of = set(np.argsort(-worst, kind="stable")[:spare].tolist()) & set(
            np.flatnonzero(worst > 0).tolist()
        )
        calm = [host for at, host in enumerate(allowed) if at not in out_of]
        stay = [host for host in calm if host in ranks]
        go = [host for host in calm if host not in ranks][: len(ranks) - len(stay)]
        kept = {*stay, *go}
        chosen[PlacementVariant.KEEP_OFF] = [host for host in calm if host in kept]
    chosen[PlacementVariant.COMPACT] = fewest_switches(fabric, allowed, len(ranks), hot)
    for variant, hosts in chosen.items():
        if set(hosts) != set(ranks):
            out[variant] = problem_for(
                fabric, job.program, hosts, list(ranks.values()), prepared.scenario.seed, congestion
            )
    return out


def _tries(
    name: str,
    options: dict[str, Any],
    grounds: dict[PlacementVariant, PlacementProblem],
    again: bool,
) -> Iterator[tuple[PlacementVariant, PlacementProblem, dict[str, Any]]]:
    """Candidates of one method: its variants, where each is made, and its options."""
    for variant, problem in grounds.items():
        if variant is PlacementVariant.PLAIN:
            yield variant, problem, options
            if again and name != "file":
                yield PlacementVariant.RECOMPUTED, problem, {}
        elif name == "shift" if variant is PlacementVariant.KEEP_OFF else name != "file":
            yield variant, problem, {}


def _fractions(run: Run, prepared: PreparedScenario) -> NDArray[np.float64]:
    """Congested fraction of each link as sampled, NaN where nothing was, shape (L,)."""
    estimates = link_estimates(select(run.tables, Selection()))
    out = np.full(prepared.fabric.n_links, np.nan)
    out[estimates["link"].to_numpy()] = estimates["fraction"].to_numpy()
    return out
