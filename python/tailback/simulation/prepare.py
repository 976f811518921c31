"""Reads the inputs of a scenario (fabric, traffic of its jobs) and places the jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.errors import (
    InvalidValueError,
    PlacementError,
    ScenarioError,
    TailbackError,
    nearest,
    option,
)
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.fabric.degraded import SlowLink, degrade, with_slow_links, with_stated_cables
from tailback.fabric.engine_limits import require_rates
from tailback.fabric.model import Fabric, in_port_order
from tailback.fabric.readers import READERS as FABRIC_READERS
from tailback.fabric.readers import read_fabric
from tailback.fabric.topologies import build as build_topology
from tailback.names.hosts import spelling_notes
from tailback.placement import (
    ComputeHosts,
    Footprint,
    PlacementProblem,
    footprint,
    infer_grid,
    left_out,
    other_spellings,
    place,
    problem_for,
    require_slots,
    slots_from_spec,
)
from tailback.placement.file import require_all_ranks
from tailback.placement.hosts import UnknownHostError
from tailback.placement.rank_hosts import rank_hosts
from tailback.placement.variant import FILE, RECORDED
from tailback.registry import Registry
from tailback.scenario.model import Degraded, FabricSection, JobSection, Scenario
from tailback.simulation.in_host import (
    in_host_rates,
    note_on_rates,
    with_accelerator_ports,
    with_in_host_rates,
)
from tailback.simulation.trace_hosts import hosts_spec, nodes_of, other_hosts_notes, trace_hosts
from tailback.stages import stage
from tailback.traffic.patterns import build as build_pattern
from tailback.traffic.patterns import parse as parse_pattern
from tailback.traffic.program import Program
from tailback.traffic.readers import READERS, read_trace
from tailback.traffic.readers.otf2.recording import STAGE_PS
from tailback.traffic.transform import repeat, scale_compute, side_by_side
from tailback.units import exact_bytes, transfer_ps

FRAME_BYTES = 1500
"""Bytes of a packet for which a small message may wait on every link: Ethernet's usual MTU. On slow
links this matters."""


KERNEL_PS = 100_000_000
"""Longest plausible software time of a small message on hosts with network interfaces of the
operating system. The kernel's TCP takes 20 to 50 µs, and adapters delay interrupts by as much.
"""


@dataclass
class Job:
    """One job, ready to run.

    Attributes:
        section: Its section in the scenario.
        program: Its traffic.
        problem: The slots it may use.
        node: Node of each rank, shape (R,).
        footprint: Constraints on other placements of the job.
        hosts_recorded: Whether the trace records the host of each rank.
        times: Number of repetitions: more than 1 only if steps may be skipped; otherwise the
            program contains its repetitions.
    """

    section: JobSection
    program: Program
    problem: PlacementProblem
    node: NDArray[np.uint32]
    footprint: Footprint
    hosts_recorded: bool = False
    times: int = 1

    @property
    def placement_name(self) -> str:
        """The placement in use: its method, ``file``, or ``recorded`` if taken from the trace."""
        if self.hosts_recorded:
            return RECORDED
        return FILE if self.section.placement_file is not None else self.section.placement


@dataclass
class Workload:
    """Jobs and their placements, merged into one program.

    Attributes:
        jobs: The jobs that run.
        places: Node of each rank of each job.
        program: Their programs merged, each without its repetitions (``Job.times``).
        job_of_label: Job of each label.
        node: Node of each rank of the program.
        start_ps: Start time of each rank.
    """

    jobs: list[Job]
    places: list[NDArray[np.uint32]]
    program: Program
    job_of_label: NDArray[np.uint32]
    node: NDArray[np.uint32]
    start_ps: NDArray[np.uint64]

    def in_full(self) -> Workload:
        """The same with all repetitions of every job's program."""
        if all(job.times == 1 for job in self.jobs):
            return self
        repeated = [repeat(job.program, job.times) for job in self.jobs]
        return replace(self, program=side_by_side(repeated)[0])


@dataclass
class PreparedScenario:
    """A scenario with its inputs read and its jobs placed.

    Attributes:
        scenario: The scenario.
        fabric: Its fabric, links in port order.
        jobs: Its jobs.
        program: All jobs' programs merged, each without its repetitions.
        job_of_label: Job of each label.
        notes: Irregularities in the input that were tolerated, and ``rate_notes``.
        rate_notes: Notes on messages within hosts, their rates and the source of these.
    """

    scenario: Scenario
    fabric: Fabric
    jobs: list[Job]
    program: Program
    job_of_label: NDArray[np.uint32]
    notes: list[str] = field(default_factory=list)
    rate_notes: list[str] = field(default_factory=list)

    def slots(self) -> NDArray[np.uint32]:
        """Every node the jobs use or that candidates may use, sorted."""
        allowed = sorted({host for job in self.jobs for host in job.footprint.allowed})
        on_allowed = np.flatnonzero(np.isin(self.fabric.node_host, allowed))
        connected = on_allowed[self.fabric.node_switch[on_allowed] >= 0]
        return np.unique(np.concatenate([connected, *(job.node for job in self.jobs)])).astype(
            np.uint32
        )

    def make_workload(
        self, nodes: list[NDArray[np.uint32]] | None = None, only_observed: bool = False
    ) -> Workload:
        """The workload, optionally on other ``nodes`` (of all jobs) or only of observed jobs."""
        jobs = [job for job in self.jobs if job.section.observed or not only_observed]
        chosen = {id(job): node for job, node in zip(self.jobs, nodes or [], strict=False)}
        places = [chosen.get(id(job), job.node) for job in jobs]
        program, job_of_label = self.program, self.job_of_label
        if len(jobs) != len(self.jobs):
            program, job_of_label = side_by_side([job.program for job in jobs])
        starts = [
            np.full(len(place), job.section.start, np.uint64)
            for place, job in zip(places, jobs, strict=True)
        ]
        node = np.concatenate(places).astype(np.uint32)
        return Workload(jobs, places, program, job_of_label, node, np.concatenate(starts))

    def with_program(self, program: Program) -> PreparedScenario:
        """The same with another program, of the same number of ranks, for the observed job."""
        jobs = list(self.jobs)
        jobs[self.observed_index] = replace(self.observed, program=program)
        merged, job_of_label = side_by_side([job.program for job in jobs])
        return replace(self, jobs=jobs, program=merged, job_of_label=job_of_label)

    def with_other_draw(self, draw: int) -> PreparedScenario:
        """The same with another draw of the patterns of jobs that are not observed."""
        jobs = list(self.jobs)
        for number, job in enumerate(jobs):
            if job.section.observed or job.section.pattern is None:
                continue
            seed = self.scenario.seed + number + draw
            line, _ = _line_rate(job.section, self.fabric, list(job.footprint.ranks))
            hosts = self.fabric.node_host[job.node].tolist()
            program = load_traffic(
                job.section, seed, partial(_always, hosts), once=job.times > 1, line_gbps=line
            )
            if program.n_ranks == job.program.n_ranks:
                jobs[number] = replace(job, program=program)
        merged, job_of_label = side_by_side([job.program for job in jobs])
        return replace(self, jobs=jobs, program=merged, job_of_label=job_of_label)

    def with_compute_scale(self, factor: float) -> PreparedScenario:
        """The same with a scale of the computation of the observed job, which states none."""
        at = self.observed_index
        out = self.with_program(scale_compute(self.observed.program, factor))
        section = self.observed.section.model_copy(update={"compute_scale": factor})
        out.jobs[at] = replace(out.observed, section=section)
        sections = [*self.scenario.job[:at], section, *self.scenario.job[at + 1 :]]
        return replace(out, scenario=self.scenario.model_copy(update={"job": sections}))

    def with_other_traffic(
        self, name: str, messages: Sequence[tuple[int, int, int, int]], flows_of_pair: int = 1
    ) -> PreparedScenario:
        """The same with another job of given messages, which may use hosts of the observed job.

        Args:
            name: Name of the job.
            messages: Time in ps, source node, destination node and bytes of each message.
            flows_of_pair: Ranks on each node, between which the messages of a pair of nodes take
                turns: flows of their own, which switches may hash to other paths.
        """
        nodes = sorted({node for _, *ends, _ in messages for node in ends})
        number_of = {node: number for number, node in enumerate(nodes)}
        turns = Counter[tuple[int, int]]()
        timed = []
        for at, src, dst, size in messages:
            first_rank = turns[src, dst] % flows_of_pair * len(nodes)
            turns[src, dst] += 1
            timed.append((at, first_rank + number_of[src], first_rank + number_of[dst], size))
        pattern = {"kind": "timed", "ranks": flows_of_pair * len(nodes), "messages": timed}
        node = np.tile(np.array(nodes, np.uint32), flows_of_pair)
        hosts = self.fabric.node_host[node].tolist()
        section = JobSection(
            name=name,
            observed=False,
            pattern=pattern,
            hosts=",".join(self.fabric.host_name[host] for host in hosts),
        )
        keep = Footprint({}, tuple(dict.fromkeys(hosts)))
        program = build_pattern(pattern, None, self.scenario.seed)
        jobs = [*self.jobs, Job(section, program, self.observed.problem, node, keep)]
        merged, job_of_label = side_by_side([job.program for job in jobs])
        scenario = self.scenario.model_copy(update={"job": [*self.scenario.job, section]})
        return replace(
            self, scenario=scenario, jobs=jobs, program=merged, job_of_label=job_of_label
        )

    def with_slow_links(self, slow: Sequence[SlowLink]) -> PreparedScenario:
        """The same with slow links."""
        if not slow:
            return self
        degraded = [
            Degraded.model_validate(
                {"cable" if both else "link": self.fabric.port_name(link), "rate": f"{gbps} Gb/s"}
            )
            for link, gbps, both in slow
        ]
        stated = self.scenario.fabric.degraded
        section = self.scenario.fabric.model_copy(update={"degraded": [*stated, *degraded]})
        scenario = self.scenario.model_copy(update={"fabric": section})
        return replace(self, scenario=scenario, fabric=with_slow_links(self.fabric, slow))

    def with_coarse_packets(self, size: int) -> PreparedScenario:
        """The same with messages in packets of ``size`` bytes, if that is more."""
        return self.with_engine(coarse=size)

    def with_engine(self, **update: object) -> PreparedScenario:
        """The same with other values of keys of ``[engine]``."""
        engine = self.scenario.engine.model_copy(update=update)
        return replace(self, scenario=self.scenario.model_copy(update={"engine": engine}))

    def with_rule(self, rule: str) -> PreparedScenario:
        """The same with another routing rule of its topology."""
        section = self.scenario.fabric.model_copy(update={"routes": rule})
        return replace(self, scenario=self.scenario.model_copy(update={"fabric": section}))

    @property
    def observed(self) -> Job:
        """The job that is diagnosed: the first observed one."""
        return self.jobs[self.observed_index]

    @property
    def observed_index(self) -> int:
        """Index of that job."""
        return next(i for i, job in enumerate(self.jobs) if job.section.observed)


def load_fabric(section: FabricSection) -> Fabric:
    """Build or read the fabric of a scenario.

    Raises:
        FabricError: The fabric is invalid or its file cannot be read.
        ScenarioError: The format is unknown.
    """
    if section.preset is not None:
        return fat_tree(PRESETS[section.preset], section.preset)
    if section.fat_tree is not None:
        return fat_tree(section.fat_tree)
    if section.topology is not None:
        return in_port_order(build_topology(section.topology))
    assert section.file is not None
    _check_format("[fabric] format", section.format, FABRIC_READERS)
    fabric = read_fabric(
        section.file,
        section.format,
        section.cable_delay,
        cable_gbps=section.cable_rate,
        taper=section.taper,
    )
    return in_port_order(fabric)


def _check_format(place: str, name: str | None, formats: Registry[Any]) -> None:
    """Reject an unknown format; the error is located in the scenario, not in the file to read."""
    if name is not None and name not in formats:
        raise ScenarioError(
            f"unknown {formats.kind} {name!r}", place=place, remedy=nearest(name, formats.names())
        )


def load_traffic(
    section: JobSection,
    seed: int,
    hosts_of: Callable[[Program], Sequence[int]],
    *,
    once: bool = False,
    line_gbps: float | None = None,
) -> Program:
    """Read the trace or build the pattern of a job; raises TraceError or ScenarioError.

    Args:
        section: The job.
        seed: Its seed.
        hosts_of: Host of each rank of a program, for one whose source names none.
        once: Do not repeat the program, even if the job has repetitions.
        line_gbps: Rate of its host links, Gb/s.
    """
    if section.trace is not None:
        _check_format("[[job]] format", section.format, READERS)
        program = read_trace(section.trace, section.format, section.ranks or "")
    else:
        assert section.pattern is not None
        program = build_pattern(section.pattern, None, seed, line_gbps)
    if program.for_hosts is not None:
        program = program.for_hosts(hosts_of(program))
        program.notes += _note_on_hosts(section)
    if section.nccl is not None:
        if program.recompile is None:
            raise ScenarioError(
                "the traffic of this job has no collectives of NCCL",
                place="[job.nccl]",
                remedy="leave the table out, or give a Kineto trace, a log of NCCL, or the pattern "
                "'training'",
            )
        program = program.recompile(section.nccl)
    if not program.grid:
        program.grid = infer_grid(program.traffic_matrix(), program.n_ranks)
    if section.compute_scale is not None:
        program = scale_compute(program, section.compute_scale)
    return program if once else repeat(program, section.repeat)


def _note_on_hosts(section: JobSection) -> list[str]:
    """The note on a trace that names no host, where nothing else says how many ranks share one."""
    stated = section.placement_file is not None or section.hosts != "all"
    if section.trace is None or stated or section.ranks_per_host > 1:
        return []
    return [
        "the trace names no host, and one rank on each is assumed: "
        f"{option('ranks_per_host')} or {option('rankfile')} states where ranks ran"
    ]


def _line_rate(
    section: JobSection, fabric: Fabric, hosts: Sequence[int]
) -> tuple[float | None, list[str]]:
    """Nominal rate of most links of the hosts of a job, the lower of two equally common ones.

    With a note if they differ and the pattern needs it.
    """
    rates = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    nodes = np.flatnonzero(np.isin(fabric.node_host, np.asarray(hosts)))
    values, counts = np.unique(rates[np.isin(fabric.link_src, nodes)], return_counts=True)
    if not len(values):
        return None, []
    usual = float(values[counts.argmax()])
    pattern = parse_pattern(section.pattern or {})
    if len(values) == 1 or pattern.with_line_rate(usual) == pattern:
        return usual, []
    return usual, [
        f"job {section.name!r}: host links have {', '.join(f'{rate:g}' for rate in values)} Gb/s; "
        f"line_rate of its pattern is {usual:g} Gb/s, that of most"
    ]


def _place_job(section: JobSection, problem: PlacementProblem) -> NDArray[np.uint32]:
    """Node of each rank in the placement that the scenario states."""
    options = dict(section.placement_options)
    if section.placement_file is None:
        return place(section.placement, problem, options)
    return place("file", problem, {**options, "file": section.placement_file})


def _always(hosts: Sequence[int], _: Program) -> Sequence[int]:
    return hosts


def _hosts_of_ranks(
    section: JobSection, fabric: Fabric, seed: int, program: Program
) -> Sequence[int]:
    """Host of each rank of a program whose source names none; raises PlacementError."""
    hosts, slots = _stated_hosts(section, fabric)
    problem = problem_for(fabric, program, hosts, slots, seed)
    _require_slots(section, problem.n_ranks, slots, left_out(section.hosts, fabric))
    node_host: list[int] = fabric.node_host[_place_job(section, problem)].tolist()
    return node_host


@contextmanager
def _name_place(section: JobSection, number: int, jobs: int) -> Iterator[None]:
    """Add the job to the place of an error, with its number if there are several jobs."""
    try:
        yield
    except TailbackError as error:
        if error.file is not None:
            raise  # Located in a trace or rank file already.
        if jobs > 1:
            which = f"job {number + 1} of {jobs} ({section.name!r})"
            error.place = f"{which}: {error.place}" if error.place else which
        elif isinstance(error, PlacementError):
            error.place = error.place or f"job {section.name!r}"
        raise


def _require_slots(
    section: JobSection, ranks: int, slots: Sequence[int], omitted: ComputeHosts | None
) -> None:
    """Refuse more ranks than slots of the hosts: a file lacks ranks, or hosts were left out."""
    if ranks > sum(slots) and section.placement_file is not None:
        require_all_ranks(section.placement_file, ranks)
    if ranks > sum(slots) and omitted is not None:
        fitting = option("ranks_per_host", -(-ranks // len(slots)))
        raise PlacementError(
            f"job has {ranks} ranks, the compute hosts of the fabric hold {sum(slots)}; "
            f"{omitted.left_out}",
            remedy=f"add {fitting}, or name the hosts ({option('hosts')})",
        )
    recorded = section.trace is not None and section.placement_file is None
    require_slots(ranks, sum(slots), len(slots), recorded=recorded)


def _stated_hosts(section: JobSection, fabric: Fabric) -> tuple[list[int], list[int]]:
    """The hosts of a job and the slots of each.

    Raises:
        PlacementError: The text cannot be read, or a host is not in the fabric. If it is that of a
            rank in the file of the placement, the error names file and rank.
    """
    try:
        return slots_from_spec(section.hosts, fabric, section.ranks_per_host)
    except UnknownHostError as error:
        file = section.placement_file
        try:
            of_rank = [] if file is None else rank_hosts(file)
        except TailbackError:
            of_rank = []  # The file has no names of hosts: they are stated beside it.
        if error.host not in of_rank:
            raise
        raise PlacementError(
            f"host {error.host!r} is not in the fabric",
            file=file,
            place=f"rank {of_rank.index(error.host)}",
            remedy=f"{error.remedy}; correct the file, or give the fabric of the machine that the "
            f"ranks ran on: {option('fabric')}",
        ) from None


def _allow(jobs: list[Job], spec: str, fabric: Fabric) -> None:
    """Allow other placements of the first observed job to use the hosts of a specification.

    Raises:
        PlacementError: A host does not exist or belongs to another job, the text states numbers of
            slots, or too few hosts are allowed.
    """
    job = next(job for job in jobs if job.section.observed)
    try:
        hosts, slots = slots_from_spec(spec, fabric, 0)
    except PlacementError as error:
        error.place = option("allow_hosts", spec[:80])
        raise
    if any(slots):
        raise PlacementError(
            "says how many slots hosts have",
            place=option("allow_hosts", spec[:80]),
            remedy="name only hosts: candidates keep the number of ranks on each host",
        )
    others = {host: other for other in jobs if other is not job for host in other.footprint.ranks}
    named = spec.strip() != "all"
    for host in [host for host in hosts if host in others]:
        if named:
            raise PlacementError(
                f"host {fabric.host_name[host]!r} is used by job {others[host].section.name!r}",
                place=option("allow_hosts", spec[:80]),
                remedy="leave it out",
            )
    allowed = [host for host in hosts if host not in others]
    job.footprint = footprint(job.problem, job.node, allowed)


def _shares_hosts(job: Job, fabric: Fabric) -> bool:
    """Whether a host has several ranks of the job, on whatever adapters."""
    return len(np.unique(fabric.node_host[job.node])) < len(job.node)


def _set_local_rates(
    scenario: Scenario, jobs: list[Job], fabric: Fabric
) -> tuple[Scenario, list[str]]:
    """The scenario with ports of accelerators, and notes on rates; checks times within hosts."""
    sharing = [job.program for job in jobs if _shares_hosts(job, fabric)]
    scenario, ports = with_accelerator_ports(scenario, sharing)
    rates = []
    for job in jobs:
        _check_local_times(scenario, job, fabric)
        if job.section.observed and not ports:
            rates += note_on_rates(scenario, fabric, job.program, job.node)
    return scenario, ports or rates


def _check_local_times(scenario: Scenario, job: Job, fabric: Fabric) -> None:
    """Reject a rate within hosts at which the time of a message overflows the simulated clock."""
    if not _shares_hosts(job, fabric):
        return
    largest = job.program.amount[job.program.sends].max(initial=0)
    usual = scenario.engine.local_gbps
    slowest = float(in_host_rates(fabric, job.node, usual).min(initial=usual))
    try:
        transfer_ps(int(largest), slowest)
    except InvalidValueError as error:
        place = "[engine] local_rate" if slowest == usual else "[[fabric.in_host]] rate"
        raise ScenarioError(error.message, place=place, remedy=error.remedy) from None


def with_slow_cables(scenario: Scenario, fabric: Fabric) -> tuple[Scenario, Fabric]:
    """The scenario and its fabric with the slow cables that either of them states."""
    section = with_stated_cables(scenario.fabric, fabric)
    scenario = scenario.model_copy(update={"fabric": section})
    return scenario, degrade(fabric, section.degraded)


@stage("read and place")
def prepare(
    scenario: Scenario, allow_hosts: str | None = None, notes: Sequence[str] = ()
) -> PreparedScenario:
    """Read the inputs of a scenario and place its jobs.

    Args:
        scenario: The scenario.
        allow_hosts: Hosts that other placements of the observed job may use, in the syntax of
            ``hosts``; None for only those it runs on.
        notes: Notes on where the scenario comes from.

    Raises:
        TailbackError: A file cannot be read, a job does not fit, or jobs share hosts.
    """
    if not any(job.observed for job in scenario.job):
        raise ScenarioError(
            "no job is observed, so there is nothing to measure",
            place="[job] observed",
            remedy="set observed = true for your job",
        )
    fabric = load_fabric(scenario.fabric)
    require_rates(fabric, scenario.fabric.file)
    scenario, fabric = with_slow_cables(scenario, fabric)
    fabric = with_in_host_rates(fabric, scenario.fabric.in_host)
    once = scenario.engine.skip_repeats
    jobs, notes, taken = [], [*notes], dict[int, str]()
    for number, section in enumerate(scenario.job):
        with _name_place(section, number, len(scenario.job)):
            program = None
            hosts_of = partial(_hosts_of_ranks, section, fabric, scenario.seed)
            if section.trace is not None:
                program = load_traffic(section, scenario.seed + number, hosts_of, once=once)
                recorded = trace_hosts(section, fabric, program.n_ranks, program.hosts)
                if recorded is not None:
                    section = section.model_copy(update={"hosts": hosts_spec(recorded)})
            else:
                recorded = None
            hosts, slots = _stated_hosts(section, fabric)
            omitted = left_out(section.hosts, fabric)
            if section.pattern is not None:
                # Check the number of ranks before building the programs of millions of them.
                ranks = parse_pattern(section.pattern).own_ranks() or 0
                _require_slots(section, ranks, slots, omitted)
            if program is None:
                line, differs = _line_rate(section, fabric, hosts)
                seed = scenario.seed + number
                program = load_traffic(section, seed, hosts_of, once=once, line_gbps=line)
                notes += differs
            program = with_plausible_latency(program, fabric)
            problem = problem_for(fabric, program, hosts, slots, scenario.seed)
            _require_slots(section, problem.n_ranks, slots, omitted)
            notes += [omitted.note] if omitted is not None else []
            if recorded is not None:
                node = nodes_of(recorded, problem)
                notes += [f"hosts of the ranks are those of {recorded.source}", *recorded.notes]
            else:
                node = _place_job(section, problem)
                notes += other_spellings(section.hosts, fabric) or spelling_notes(
                    problem.spellings, "the file of the placement"
                )
            notes += other_hosts_notes(program.hosts, fabric.node_host[node])
        for host in np.unique(fabric.node_host[node]).tolist():
            if host in taken and not section.shared_hosts:
                raise ScenarioError(
                    f"jobs {taken[host]} and {number + 1} ({section.name!r}) both use host "
                    f"{fabric.host_name[host]!r}",
                    place="[job] hosts",
                    remedy="give each job separate hosts, or set shared_hosts = true",
                )
            taken.setdefault(host, f"{number + 1} ({section.name!r})")
        keep = footprint(problem, node)
        times = section.repeat if once else 1
        jobs.append(Job(section, program, problem, node, keep, recorded is not None, times))
    scenario, rates = _set_local_rates(scenario, jobs, fabric)
    if allow_hosts is not None:
        _allow(jobs, allow_hosts, fabric)
    program, job_of_label = side_by_side([job.program for job in jobs])
    scenario, grain = with_fitting_packets(scenario, program)
    notes += [*rates, *grain, *fabric.notes, *(note for job in jobs for note in job.program.notes)]
    return PreparedScenario(
        scenario, fabric, jobs, program, job_of_label, list(dict.fromkeys(notes)), rates
    )


def programs_of(scenario: Scenario) -> list[Program]:
    """The programs of the jobs of a scenario, with all their repetitions; raises as `prepare`."""
    return [repeat(job.program, job.times) for job in prepare(scenario).jobs]


def with_plausible_latency(program: Program, fabric: Fabric) -> Program:
    """The program, whose recording had too few cores only if its times cannot be the network's.

    Args:
        program: A program with the times of its recording, or without.
        fabric: The network that it was recorded on.
    """
    recording = program.recording
    if recording is None or not recording.oversubscribed_ps:
        return program
    limit = np.log2(program.n_ranks) * _stage_ps(fabric)
    if recording.oversubscribed_ps > limit:
        return program
    return replace(program, recording=replace(recording, oversubscribed_ps=0))


def _stage_ps(fabric: Fabric) -> int:
    """Longest plausible time of one stage of a small collective, ps."""
    path_links = 2 * (int(fabric.switch_tier.max(initial=0)) + 1)
    frame_ps = transfer_ps(FRAME_BYTES, float(fabric.link_gbps.min(initial=np.inf)))
    software_ps = KERNEL_PS if fabric.link_interface is not None else 0
    return STAGE_PS + software_ps + path_links * frame_ps


# --- coarse packets ----------------------------------------------------------------------------

FEWEST_PACKETS = 64
"""Fewest packets per message with which coarse packets keep the order of placements.

Of 8, 16, 32 and 64 it is the first with a rank correlation of 0.95 with full-size packets
(docs/measurements/approximations.md).
"""

MOST_BYTES = 0.99
"""Share of the bytes that has to be in messages of so many packets: a tenth in messages of fewer
costs rank correlation (docs/measurements/approximations.md)."""

LARGEST = 64 << 10
"""Largest size whose errors are measured."""


def fitting_size(program: Program, packet: int) -> int | None:
    """The largest coarse packets that leave messages enough packets; None if there are none.

    Args:
        program: What all ranks do.
        packet: Payload of a full packet of the network, bytes.

    Returns:
        ``packet`` times a power of two, at most 64 KiB, such that messages of 64 packets or more
        carry 99 % of the bytes.
    """
    sizes = program.amount[program.sends]
    enough = MOST_BYTES * float(sizes.sum())
    fitting, size = None, 2 * packet
    while size <= LARGEST and 0 < enough <= float(sizes[sizes >= FEWEST_PACKETS * size].sum()):
        fitting, size = size, 2 * size
    return fitting


def in_fitting_packets(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario with large messages of accelerators in coarse packets, unless it states a size.

    A step of training moves so many bytes in so large messages that full packets add little but
    time. What acts on single packets keeps them.
    """
    engine, program = prepared.scenario.engine, prepared.observed.program
    single = engine.congestion_control is not None or engine.pacing.kind != "off"
    if program.recompile is None or engine.coarse is not None or single:
        return prepared
    if engine.flow_control.kind != "credits":
        return prepared
    size = fitting_size(program, engine.packet)
    return prepared if size is None else prepared.with_coarse_packets(size)


def with_fitting_packets(scenario: Scenario, program: Program) -> tuple[Scenario, list[str]]:
    """The scenario with a size in place of ``coarse = "auto"``, and a note if there is none."""
    if scenario.engine.coarse != "auto":
        return scenario, []
    packet = scenario.engine.packet
    size = fitting_size(program, packet)
    engine = scenario.engine.model_copy(update={"coarse": size})
    notes = (
        []
        if size is not None
        else [
            f"coarse = auto: packets are of {exact_bytes(packet)}, as in the network, because too "
            f"many bytes are in messages below {exact_bytes(2 * packet * FEWEST_PACKETS)}"
        ]
    )
    return scenario.model_copy(update={"engine": engine}), notes
