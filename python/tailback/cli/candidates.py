"""The placements worth trying for a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError, TailbackError
from tailback.placement import PLACEMENTS, Problem, place, switch_congestion
from tailback.run import Run
from tailback.simulate import Prepared
from tailback.telemetry.estimate import Selection, link_estimates, select

SENSIBLE = ("block", "round-robin", "rcm", "metis", "incremental", "tile", "tile2", "shift")
"""Everything but what needs a file or is a coin toss."""

KEEP_OFF = "shift-keep-off"
"""Name of ``shift`` with the hosts of congested leaves to avoid, tried beside ``shift``."""

AGAIN = "-again"
"""Ends the name of the placement in use when it is made anew: with its default options, and heeding
the congestion that was seen."""

CONGESTED = 0.1
"""Congested fraction of a leaf's links from which its hosts are better left out, as for a link
(docs/diagnosis.md, section 2)."""


def worth_trying(prepared: Prepared) -> tuple[str, ...]:
    """Placements to judge where none is asked for: the job's own file first, if it has one."""
    given = prepared.observed.section.placement_file is not None
    return ("file", *SENSIBLE) if given else SENSIBLE


def check_names(option: str, names: Sequence[str]) -> None:
    """Raise TailbackError, with the option, where a name it gives is no placement."""
    for name in names:
        try:
            PLACEMENTS[name]
        except TailbackError as error:
            error.place = f"{option} {name}"
            raise


def make_candidates(
    prepared: Prepared,
    names: Sequence[str],
    run: Run | None,
    progress: Callable[[str, float], None],
) -> tuple[dict[str, NDArray[np.uint32]], list[tuple[str, PlacementError]]]:
    """Node of each rank under each placement, and why some could not be made.

    When ``run`` is given, the incremental placement (thesis §4.2.2) and the shifted one heed the
    congestion measured in it; the placement in use keeps its name and stays as it is, and what its
    method makes now is called ``…-again``. Placements equal to an earlier one are left out.
    """
    job = prepared.observed
    made: dict[str, NDArray[np.uint32]] = {}
    errors: list[tuple[str, PlacementError]] = []
    for number, name in enumerate(names):
        progress(f"placing: {name}", number / len(names))
        options: dict[str, Any] = {}
        problem = job.problem
        if name == job.section.placement:
            options = dict(job.section.placement_options)
        if name == "file" and job.section.placement_file is not None:
            options = {"file": job.section.placement_file}
        if name in ("incremental", "shift") and run is not None:
            congestion = switch_congestion(prepared.fabric, _fractions(run, prepared))
            problem = replace(problem, congestion=congestion)
        tries = {name: options}
        in_use = run is not None and name == job.section.placement
        if in_use and name != "file":
            tries[name + AGAIN] = {}
        if name == "shift" and (avoid := _keep_off(problem)):
            tries[KEEP_OFF] = {"avoid": avoid}
        for called, given in tries.items():
            try:
                as_it_is = in_use and called == name
                node = job.node if as_it_is else place(name, problem, given)
            except PlacementError as error:
                errors.append((called, error))
                continue
            if not any(np.array_equal(node, other) for other in made.values()):
                made[called] = node
    return made, errors


def _keep_off(problem: Problem) -> list[str]:
    """Hosts under congested leaves, the most congested first, as many as the job can do without."""
    if problem.congestion is None:
        return []
    hosts, slots = np.unique(problem.slot_host, return_counts=True)
    worst = np.zeros(int(hosts.max()) + 1)
    np.maximum.at(worst, problem.slot_host, problem.congestion[problem.slot_switch])
    order = np.argsort(-worst[hosts], kind="stable")
    order = order[worst[hosts[order]] >= CONGESTED]
    spare = problem.n_slots - problem.n_ranks
    chosen = order[np.cumsum(slots[order]) <= spare]
    return [problem.host_name[host] for host in hosts[chosen].tolist()]


def _fractions(run: Run, prepared: Prepared) -> NDArray[np.float64]:
    """Congested fraction of each link as sampled, NaN where nothing was, shape (L,)."""
    estimates = link_estimates(select(run.tables, Selection()))
    out = np.full(prepared.fabric.n_links, np.nan)
    out[estimates["link"].to_numpy()] = estimates["fraction"].to_numpy()
    return out
