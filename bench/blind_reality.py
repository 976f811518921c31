"""Reality of a blind case: a simulation of everything that happens, and the cost of each cause.

A :class:`Reality` holds the machine, the job and every cause that acts. :func:`run` simulates it
with or without each cause, which gives the truth of a case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import permutations
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
from blind_programs import Script, Work, bursts, lower
from numpy.typing import NDArray

from tailback import Scenario
from tailback.fabric import Fabric
from tailback.fabric.degraded import degrade
from tailback.placement import footprint, place, problem_for
from tailback.run.run import Run
from tailback.scenario.model import Degraded, JobSection, parse
from tailback.simulation import PreparedScenario, execute
from tailback.simulation.prepare import Job
from tailback.traffic import Program, side_by_side

CAUSES = (
    "imbalance",
    "noise",
    "late_partner",
    "pattern",
    "placement",
    "routing",
    "slow_link",
    "other_traffic",
)
"""Possible causes of a blind case, by the names of the diagnosis."""

None_: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Neighbour:
    """Another user's job.

    Attributes:
        name: Its number in the job list.
        hosts: Hosts of its ranks.
        traffic: Arguments of :func:`blind_programs.bursts` but the time.
        named: The job list names it.
        innocent: It also runs when causes are removed, because it does not use our links.
    """

    name: str
    hosts: list[int]
    traffic: dict[str, Any]
    named: bool
    innocent: bool


@dataclass(frozen=True)
class Reality:
    """Everything that happened.

    Attributes:
        seed: Seed of all random choices.
        fabric: The machine as it is printed.
        fabric_file, tables_file: What ``ibnetdiscover`` and ``dump_lfts`` print.
        good_tables: Tables that spread the job's traffic better, used when the cause ``routing`` is
            removed; None if routes are adaptive or the tables are good.
        adaptive: The switches choose routes by load.
        engine: Settings of the engine: latencies, buffers, packets.
        efficiency: Share of the printed rate that every link reaches.
        overhead_ps: Processor time of every MPI call.
        program: Makes the scripts of the job: ``program(work, without)``.
        work: How its ranks compute.
        quiet: How they would compute on a machine with the usual noise.
        node: Host of each rank.
        good_node: A good placement; None if ``node`` is one.
        slow: Cables that serve less, and their rates in Gb/s.
        neighbours: Jobs of others.
        start_ps: When our job begins.
        tail_ps: How long other jobs continue after the expected end of ours.
        causes: The causes that act.
    """

    seed: int
    fabric: Fabric
    fabric_file: Path
    tables_file: Path | None
    good_tables: Path | None
    adaptive: bool
    engine: dict[str, Any]
    efficiency: float
    overhead_ps: int
    program: Callable[[Work, frozenset[str]], list[Script]]
    work: Work
    quiet: Work
    node: NDArray[np.uint32]
    start_ps: int
    until_ps: int
    good_node: NDArray[np.uint32] | None = None
    slow: tuple[tuple[str, float], ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    causes: tuple[str, ...] = ()

    def scripts(self, without: frozenset[str] = None_) -> list[Script]:
        """What the ranks of our job call."""
        slow = {} if "imbalance" in without else self.work.slow
        noisy = self.quiet if "noise" in without else self.work
        work = replace(noisy, slow=slow)
        return self.program(work, without)


def run(
    reality: Reality,
    without: Iterable[str] = (),
    *,
    marked: bool = False,
    counters_ps: int = 0,
    adaptive: bool | None = None,
) -> Run:
    """Simulate reality.

    Args:
        reality: Everything.
        without: Causes that are taken away.
        marked: Mark the ends of calls, for :func:`blind_programs.call_times`.
        counters_ps: Time between readings of all port counters; 0 for none.
        adaptive: Overrides the routing: by load, or by the tables.
    """
    gone = frozenset(without)
    by_load = reality.adaptive if adaptive is None else adaptive
    tables = reality.good_tables if "routing" in gone else reality.tables_file
    scenario = _scenario(reality, None if by_load else tables, counters_ps)
    fabric = reality.fabric
    fabric = replace(fabric, link_gbps=fabric.link_gbps * reality.efficiency)
    if "slow_link" not in gone:
        fabric = degrade(fabric, [Degraded(cable=c, rate=f"{r} Gb/s") for c, r in reality.slow])
    node = reality.node
    if "placement" in gone and reality.good_node is not None:
        node = reality.good_node
    ours = lower("app", reality.scripts(gone), reality.overhead_ps, marked)
    jobs = [_job(scenario.job[0], fabric, ours, node)]
    for number, other in enumerate(reality.neighbours):
        if "other_traffic" in gone and not other.innocent:
            continue
        program = lower(other.name, bursts(until_ps=reality.until_ps, **other.traffic))
        section = scenario.job[0].model_copy(
            update={"name": other.name, "observed": False, "start": 0}
        )
        jobs.append(_job(section, fabric, program, np.array(other.hosts, np.uint32)))
        assert number < 16
    merged, of_label = side_by_side([job.program for job in jobs])
    scenario = scenario.model_copy(update={"job": [job.section for job in jobs]})
    return execute(PreparedScenario(scenario, fabric, jobs, merged, of_label))


def _scenario(reality: Reality, tables: Path | None, counters_ps: int) -> Scenario:
    section: dict[str, Any] = {"file": str(reality.fabric_file)}
    if tables is not None:
        section["forwarding"] = str(tables)
    data: dict[str, Any] = {
        "name": "blind",
        "seed": reality.seed,
        "fabric": section,
        # Programs are handed over as they are; a section has to name some source.
        "job": [{"name": "app", "pattern": {"kind": "ring"}}],
        "engine": reality.engine | {"routing": "adaptive" if tables is None else "deterministic"},
        "telemetry": {"scheme": "off"},
    }
    scenario = parse(data)
    scenario.job[0].start = reality.start_ps
    scenario.probes.counters = counters_ps or None
    return scenario


def placed(reality: Reality, placement: str) -> NDArray[np.uint32]:
    """Host of each rank under a placement on the hosts of the job, shape (R,)."""
    section = _scenario(reality, None, 0).job[0]
    ours = lower("app", reality.scripts(frozenset(reality.causes)), reality.overhead_ps)
    return place(placement, _job(section, reality.fabric, ours, reality.node).problem)


def _job(section: JobSection, fabric: Fabric, program: Program, node: NDArray[np.uint32]) -> Job:
    hosts, each = np.unique(fabric.node_host[node], return_counts=True)
    problem = problem_for(fabric, program, hosts.tolist(), each.tolist(), 1)
    return Job(section, program, problem, node, footprint(problem, node))


# --- what causes cost ------------------------------------------------------------------------


@dataclass
class Counterfactual:
    """Time of our job without some causes; every set of causes is simulated once.

    Attributes:
        reality: Everything that happened.
        counters_ps: Time between readings of all port counters of what happened; 0 for none.
        elapsed: Time of the job in picoseconds, by the causes that were taken away.
        happened: The run with all causes, its calls marked; None until it is needed.
    """

    reality: Reality
    counters_ps: int = 0
    elapsed: dict[frozenset[str], int] = field(default_factory=dict)
    happened: Run | None = None

    def time_ps(self, without: Iterable[str] = ()) -> int:
        """Time of the job."""
        gone = frozenset(without)
        if gone not in self.elapsed:
            intact = not gone
            done = run(
                self.reality, gone, marked=intact, counters_ps=self.counters_ps if intact else 0
            )
            self.elapsed[gone] = done.elapsed_ps
            if intact:
                self.happened = done
        return self.elapsed[gone]

    @property
    def clean_ps(self) -> int:
        """Time without any of the causes."""
        return self.time_ps(self.reality.causes)

    def removed_ps(self) -> dict[str, int]:
        """Time saved by removing each cause alone."""
        elapsed_ps = self.time_ps()
        return {cause: elapsed_ps - self.time_ps([cause]) for cause in self.reality.causes}

    def shares_ps(self) -> dict[str, float]:
        """Cost of each cause: the mean over all orders of removing them (Shapley, 1953)."""
        causes = self.reality.causes
        out = dict.fromkeys(causes, 0.0)
        for order in permutations(causes):
            gone = frozenset[str]()
            for cause in order:
                saved = self.time_ps(gone) - self.time_ps(gone | {cause})
                out[cause] += saved / factorial(len(causes))
                gone |= {cause}
        return out
