"""Where the next job of a machine should go: ``tb.advise`` and ``tailback advise``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.api.candidates import DEFAULT_METHODS, make_candidates
from tailback.api.effort import REPETITIONS, draws, proves_all, worth_screening
from tailback.api.rankfiles import rank_files, write_with_rank_files
from tailback.diagnosis.model import Candidate
from tailback.errors import (
    PlacementError,
    ScenarioError,
    TailbackError,
    known_keywords,
    option,
)
from tailback.evaluate import Change, Evaluate
from tailback.evidence.jobs import JobList, read_jobs
from tailback.fabric.degraded import SlowLink, find_link
from tailback.fabric.model import Fabric
from tailback.io.progress import Progress
from tailback.names.hosts import HostNames
from tailback.placement import RankFile
from tailback.placement.variant import nodes_by_name
from tailback.remedy import Proposal, RemedyContext, improvements
from tailback.remedy.optimiser import Optimiser
from tailback.remedy.placements import propose_placements
from tailback.remedy.screening import screen
from tailback.scenario.model import JobSection, Scenario
from tailback.simulation import (
    FluidOptions,
    PreparedScenario,
    make_evaluate,
    make_fluid_evaluate,
    prepare,
    simulate,
)
from tailback.sources.source import ScenarioOptions, Source, SourceLike
from tailback.units import counted, percent

LOAD = 0.2
"""Assumed load of other jobs, of the line rate of their hosts."""

BESIDE = 3
"""Times as long as the next job alone that the others send."""


@dataclass(frozen=True)
class SlowCableCost:
    """What a slow cable costs.

    Attributes:
        cable: Port at one of its ends.
        rate_gbps: Its rate, Gb/s.
        next_job: Share by which the next job takes longer, on the recommended hosts.
    """

    cable: str
    rate_gbps: float
    next_job: float


@dataclass(frozen=True, eq=False)
class Advice:
    """Hosts and placements for the next job, best first.

    Attributes:
        rows: For each placement that was simulated its name (``placement``), ``hosts``,
            ``gain``, ``gain_low``, ``gain_high``: the share of the time that it saves over the
            first free hosts in their order, in all draws; None where not compared in all; and
            ``elapsed_ps``: the time with that gain, or that of the repetitions where not compared.
        best: The recommended placement.
        beside: Number of other jobs with traffic.
        free: Number of free hosts.
        cables: Costs of the slow cables that were asked for.
        rank_files: The recommended placement in the launchers' formats, for :meth:`write`.
        notes: What is assumed, and irregularities in the input.
    """

    rows: list[dict[str, Any]]
    best: str
    beside: int
    free: int
    cables: list[SlowCableCost]
    rank_files: list[RankFile]
    notes: list[str]

    @property
    def frame(self) -> pl.DataFrame:
        """:attr:`rows` as a frame."""
        return pl.DataFrame(self.rows)

    def to_dict(self, folder: Path | None = None) -> dict[str, Any]:
        """The advice as JSON has it, with commands if its rank files are in a folder."""
        files = [] if folder is None else self.rank_files
        return {
            "best": self.best,
            "placements": self.rows,
            "slow_cables": [asdict(cable) for cable in self.cables],
            "commands": {file.writer: file.command_from(folder) for file in files if folder},
            "notes": self.notes,
        }

    def write(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write ``advice.json`` and the rank files of the recommended placement.

        Args:
            folder: A new folder; written completely or not at all.
            force: Replace that folder if Tailback wrote it.

        Raises:
            RunError: The folder exists (without ``force``) or cannot be written.
        """
        facts = self.to_dict(Path(folder))
        return write_with_rank_files(folder, self.rank_files, "advice.json", facts, force=force)


@known_keywords(ScenarioOptions)
def advise(
    source: SourceLike,
    *,
    jobs: str | Path,
    load: float = LOAD,
    slow_cables: Mapping[str, float] | None = None,
    seeds: int = REPETITIONS,
    threads: int | None = None,
    progress: Progress | None = None,
    **options: Unpack[ScenarioOptions],
) -> Advice:
    """Advise where the next job of a machine should go, and what slow cables cost it.

    Args:
        source: The next job on its network, as for :func:`load_scenario`. Unless it states hosts,
            it starts on the first free ones.
        jobs: List of the jobs that run now, as for :func:`diagnose`. Jobs that have ended before
            the last one began are ignored.
        load: Traffic of each of them: messages at random among its hosts, as a share of the line
            rate.
        slow_cables: Rate of cables that are slow, Gb/s, by the port at one end.
        seeds: Repetitions of every simulation, at least 1.
        threads: Threads of the engine; default: idle cores.
        progress: Called with the current step and its progress, 0–1.
        options: As for :func:`load_scenario`.

    Raises:
        TailbackError: An input is invalid, or too few hosts are free.

    Example:
        >>> advice = tb.advise("next.toml", jobs="squeue.json")
        >>> advice.best, advice.frame
    """
    if not 0 <= load <= 1:
        raise ScenarioError(
            f"{load:g} is no share of the line rate",
            place=option("load"),
            remedy="give 0 to 1; 0: no traffic",
        )
    step = progress or (lambda _what, _share: None)
    origin = Source.of(source, **options)
    listed = read_jobs(Path(jobs))
    with origin.named_in_errors():
        step("reading the network", 0.0)
        alone = prepare(origin.scenario, None, origin.notes)
        cables = [
            _slow_link(alone.fabric, cable, gbps) for cable, gbps in (slow_cables or {}).items()
        ]
        running, unknown = _running(listed, alone.fabric, Path(jobs))
        prepared = _beside(origin.scenario, alone, running, load, threads)
    evaluate = make_evaluate(prepared, threads=threads)
    context, candidates, now = _search(prepared, evaluate, seeds, step)
    before, better = improvements(candidates, now)
    best = better[0].name if better else now
    nodes = {now: prepared.observed.node, **context.placements, **context.ruled_out}
    fabric = prepared.fabric
    order = sorted(candidates, key=lambda c: (c.name != best, not c.proved, c.elapsed_ps))
    rows = [
        {
            "placement": candidate.name,
            "hosts": _hosts(fabric, nodes[candidate.name]),
            "elapsed_ps": _elapsed(candidate, before),
            "gain": candidate.gain,
            "gain_low": candidate.gain_low,
            "gain_high": candidate.gain_high,
        }
        for candidate in order
        if candidate.proved
    ]
    chosen = Change(placement=nodes[best], placement_name=best)
    costs = [
        SlowCableCost(cable, link.gbps, _cost_of_link(link, chosen, evaluate, seeds))
        for cable, link in zip(slow_cables or {}, cables, strict=True)
    ]
    notes = [*listed.notes, *unknown, *prepared.notes]
    try:
        files, _ = rank_files(prepared, nodes[best])
    except PlacementError as error:
        files, notes = [], [f"no rank file: {error.message}", *notes]
    others = len(prepared.jobs) - len(alone.jobs)
    if others:
        notes.insert(
            0,
            f"the traffic of {counted(others, 'other job')} is assumed: messages of 64 KiB at "
            f"random, {percent(load)} of the line rate ({option('load', f'{load:g}')})",
        )
    free = len(prepared.observed.footprint.allowed)
    return Advice(rows, best, others, free, costs, files, notes)


def _elapsed(candidate: Candidate, before: Candidate | None) -> int:
    """Time of a candidate: of what it gains in all draws, if it was compared in them."""
    if candidate.gain is None or before is None:
        return candidate.elapsed_ps
    return round((1 - candidate.gain) * before.elapsed_ps)


def _hosts(fabric: Fabric, node: NDArray[np.uint32]) -> list[str]:
    """Names of the hosts of a placement, in the order of the fabric."""
    return [fabric.host_name[host] for host in np.unique(fabric.node_host[node]).tolist()]


def _running(listed: JobList, fabric: Fabric, path: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Hosts of each job that runs, by names of the fabric, and a note on unknown hosts.

    Raises:
        TailbackError: The fabric has none of the hosts, or several that a name may mean; with the
            file and the place of the job.
    """
    frame = listed.jobs
    if frame.height:
        latest = int(frame["start_ns"].max() or 0)  # type: ignore[arg-type]
        frame = frame.filter(pl.col("end_ns").is_null() | (pl.col("end_ns") > latest))
    names, of_fabric = HostNames(fabric.host_name), set(fabric.host_name)
    running, unknown = dict[str, list[str]](), list[str]()
    for job, hosts in zip(frame["job"].to_list(), frame["hosts"].to_list(), strict=True):
        try:
            joined = names.joined(hosts)
        except TailbackError as error:
            place = listed.places.get(job)
            raise PlacementError(
                error.message, file=path, place=place, remedy=error.remedy
            ) from None
        named = [joined.get(host, host) for host in hosts]
        unknown += [host for host in named if host not in of_fabric]
        running[str(job)] = [host for host in named if host in of_fabric]
    if not unknown:
        return running, []
    shown = ", ".join(sorted(set(unknown))[:3]) + (", …" if len(set(unknown)) > 3 else "")
    if not any(running.values()):
        raise PlacementError(
            f"the network has none of the hosts that the job list names: {shown}",
            file=path,
            place=listed.places.get(str(frame["job"][0])),
            remedy=f"give the job list of this machine; its hosts are {fabric.host_name[0]} …",
        )
    return running, [f"the network has no host {shown}, which the job list names"]


def _beside(
    scenario: Scenario,
    alone: PreparedScenario,
    running: Mapping[str, Sequence[str]],
    load: float,
    threads: int | None,
) -> PreparedScenario:
    """The next job on free hosts, beside the jobs that run.

    Raises:
        PlacementError: Too few hosts are free.
    """
    busy = {host for hosts in running.values() for host in hosts}
    fabric, job = alone.fabric, alone.observed
    # Hosts without an adapter, and of services, are not in the slots of a job on all hosts.
    compute = list(dict.fromkeys(job.problem.slot_host.tolist()))
    free = [fabric.host_name[host] for host in compute if fabric.host_name[host] not in busy]
    needed = len(job.footprint.ranks)
    if len(free) < needed:
        raise PlacementError(
            f"{len(free)} hosts are free; the next job needs {needed}",
            place=option("jobs"),
            remedy="give a smaller job, or a list without the jobs that end first",
        )
    elapsed = make_evaluate(alone, threads=threads)(Change(background=False)).elapsed_ps
    others = [
        JobSection(
            name=f"job {name}",
            observed=False,
            hosts=",".join(hosts),
            pattern={
                "kind": "paced",
                "ranks": len(hosts),
                "size": "64 KiB",
                "load": load,
                "duration": f"{BESIDE * elapsed} ps",
            },
            shared_hosts=True,
        )
        for name, hosts in running.items()
        if len(hosts) > 1 and load > 0
    ]
    at = alone.observed_index
    section = job.section.model_copy(update={"hosts": ",".join(free)})
    sections = [*scenario.job[:at], section, *scenario.job[at + 1 :], *others]
    return prepare(scenario.model_copy(update={"job": sections}), ",".join(free))


def _search(
    prepared: PreparedScenario, evaluate: Evaluate, seeds: int, step: Progress
) -> tuple[RemedyContext, list[Candidate], str]:
    """The optimiser's candidates for hosts and placement, and the name of the current one."""
    run = simulate(prepared)
    now = prepared.observed.placement_name
    placed, _ = make_candidates(prepared, DEFAULT_METHODS, run, step)
    made = nodes_by_name(placed)
    quantum = max(100_000, run.elapsed_ps // 2000)
    quick = None
    if worth_screening(run):
        quick = make_fluid_evaluate(prepared, FluidOptions(windows=0, quantum_ps=quantum))
    kept = frozenset(made if proves_all(run) else {now})
    screened = screen(made, quick or evaluate, always=kept, progress=step)
    context = RemedyContext(
        evaluate,
        quick,
        screened.kept,
        screened.estimate_ps,
        variants={variant.name: variant for variant in placed},
        ruled_out={name: node for name, node in made.items() if name not in screened.kept},
        draws=draws(seeds, run),
    )
    unchanged = Proposal("placement", now, variant=context.variants.get(now))
    optimiser = Optimiser(run, unchanged, context, seeds, step)
    return context, optimiser.search(propose_placements(context.placements, context, now)), now


def _slow_link(fabric: Fabric, cable: str, gbps: float) -> SlowLink:
    """A cable at a lower rate; raises ScenarioError if it does not exist or is no faster."""
    place = option("slow_cables", cable)
    link = find_link(fabric, cable, "cable", place)
    nominal = float(fabric.link_gbps[link])
    if not 0 < gbps < nominal:
        raise ScenarioError(
            f"{gbps:g} Gb/s is not a slow rate of a cable of {nominal:g} Gb/s",
            place=place,
            remedy=f"give a rate above 0 and below {nominal:g} Gb/s",
        )
    return SlowLink(link, gbps)


def _cost_of_link(link: SlowLink, chosen: Change, evaluate: Evaluate, seeds: int) -> float:
    """Share by which a slow cable delays the next job, on average over draws paired by seed."""
    costs = []
    for seed in range(seeds):
        base = replace(chosen, seed_offset=seed, others_draw=seed)
        slow = evaluate(replace(base, slow=(link,))).elapsed_ps
        costs.append(slow / evaluate(base).elapsed_ps - 1)
    return mean(costs)
