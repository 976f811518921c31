"""Wording of the evidence: slow links, other jobs' traffic, sources, what is missing.

``explain`` decides what is added to the expected run; this module only words it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from tailback.calibration.estimates import FittedValue
from tailback.calibration.file import text
from tailback.errors import option
from tailback.inference.coarse_ranking import CoarseRanking
from tailback.inference.hypotheses import SlowerMachine
from tailback.inference.unknown_job import UnknownJob
from tailback.units import (
    counted,
    exact_bytes,
    format_bytes,
    format_time,
    percent,
    rate_of_rate,
)

MAX_HOSTS_NAMED: Final = 4
"""Number of hosts of a job that are named."""

HOSTS_NOT_RECORDED: Final = (
    "This assumes that the ranks ran on the hosts of the fabric in order: there is no evidence of "
    "where they ran"
)
"""Caveat if the hosts of the ranks are unknown."""


def missing_evidence(kind: Literal["hosts", "counters", "jobs", "forwarding"]) -> str:
    """Evidence that is missing, and the command that collects it."""
    return {
        "hosts": f"the hosts that the ranks ran on ({option('rankfile')} or {option('hosts')}): "
        "without them the recorded times are no evidence on the links of this fabric",
        "counters": "port counters from the time of the run, which show slow links and other jobs' "
        f"traffic: run tailback collect during the job and pass its folder with "
        f"{option('counters')}",
        "jobs": "a job list, which names the jobs behind the traffic: SLURM_TIME_FORMAT=%s sacct "
        "-a -X --parsable2 -o JobID,Start,End,State,NodeList > jobs.txt, and "
        f"{option('jobs', 'jobs.txt')}",
        "forwarding": "forwarding tables, which show the paths that messages took: dump_lfts.sh > "
        f"lfts.txt, and {option('forwarding', 'lfts.txt')}",
    }[kind]


ERRORS_OF_CABLES: Final = (
    "error counters of the cables that may be slow: a damaged cable often counts errors"
)
SECOND_RUN: Final = (
    "the same run with every host's ranks on the next host: a slow cable then delays other ranks, "
    "and traffic of other jobs is gone"
)
"""Evidence that cables and other jobs predict differently."""

COUNTERS_OF_CABLES: Final = (
    "counters of both ports of the cables that may be slow: those that were given count other links"
)
"""Evidence that is missing where counters leave cables out."""


MESSAGES_IN_ORDER: Final = (
    "assumed: adapters send messages one after another; with this setting the model agrees better "
    "with the measurement"
)
PROGRESS_IN_CALLS: Final = (
    "assumed: the MPI library answers the handshake of large messages only while its rank is in a "
    "call; with this setting the model agrees better with the measurement"
)
OTHER_ALGORITHM: Final = {
    "binary-broadcast": "MPI_Bcast send down a binary tree",
    "doubling-allgather": "MPI_Allgather double recursively",
    "other-alltoall": "MPI_Alltoall send all blocks at once, or small ones pairwise",
    "halving-allreduce": "MPI_Allreduce halve and double recursively",
    "nccl-trees-in-turn": "sums come down a tree only after all went up",
}
ROUTED: Final = {
    "per message": (
        "assumed: all packets of a message take the path that is least loaded when it begins; with "
        "this routing the model agrees better with the measurement"
    ),
    "random": (
        "assumed: switches spread packets over all shortest paths regardless of load; with this "
        "routing the model agrees better with the measurement"
    ),
    "ecmp": (
        "assumed: switches hash each flow to one path; with the collisions that this may bring the "
        "model agrees better with the measurement"
    ),
    "deterministic": (
        "assumed: switches use one path for each destination; with this routing the model agrees "
        "better with the measurement"
    ),
}
"""Routing other than adaptive, if the scenario does not state the routing."""


def tables_not_used() -> str:
    """The model fits better without the forwarding tables."""
    return (
        f"assumed: switches route adaptively, not by the tables in {option('forwarding')}, with "
        "which the model takes longer than was measured (switches with adaptive routing keep "
        "tables, too)"
    )


STATED_SLOW: Final = "its rate is stated with the fabric"

STATED_SLOW_NOT_USED: Final = (
    "assumed: cables that the fabric states as slow ran at their nominal rates, as the run was "
    "faster than they allow (the file may be of another day)"
)

COUNTED_SLOW_NOT_USED: Final = (
    "assumed: cables that seem slow by their queues ran at their nominal rates, as the run was "
    "faster than they allow"
)

DROPS: Final = "the network drops packets when queues are full; the model delays them instead"
WHOLE_FLOWS: Final = (
    "assumed: switches keep each flow on one path, as hashing does (engine.routing states another)"
)
COUNTED_PATHS: Final = "paths of flows: those on which links carry the bytes that they counted"


def queued_below_rate(busy_ps: int) -> str:
    """Evidence of a slow link from counters of queues.

    Args:
        busy_ps: Time that it needed for the bytes that it counted, ps; 0 if it adds nothing.
    """
    queued = "its port sent less than its rate while packets were queued"
    if not busy_ps:
        return queued
    return f"{queued}, and needed {format_time(busy_ps)} for the bytes that it counted"


def served_nothing(links: Sequence[str]) -> str:
    """Why counters of queues contradict themselves."""
    return (
        f"By its counters, {links[0]} served nothing while packets waited, although this run used "
        "it: check the counters, which may have restarted."
    )


def wrong_unit(links: int, share: float) -> str:
    """Why the stated rates of links cannot be right."""
    return (
        f"The counters show {links} cables at about {share:.2g} of their stated rate, and none "
        f"that was faster: check the rates in {option('fabric')}, whose unit may be wrong."
    )


ONE_OF_CANDIDATES: Final = "one of the links that fit the evidence"
"""Why a suspect link is not ruled out, if one of several is slow."""


def foreign_hosts(foreign: Sequence[str], hosts: Sequence[str]) -> str:
    """Caveat on hosts that the trace names but the fabric does not have."""
    return (
        f"This assumes that the ranks ran on the hosts of the fabric ({_few(hosts)}) in order: the "
        f"trace names other hosts ({_few(foreign)})"
    )


def hosts_of_some(recorded: int, ranks: int) -> str:
    """Caveat if the trace names the hosts of some ranks."""
    return (
        "This assumes that the ranks ran on the hosts of the fabric in order: the recording names "
        f"the hosts of {recorded} of {ranks} ranks"
    )


def other_number_of_hosts(recorded: int, used: int) -> str:
    """Caveat if trace and scenario have different numbers of hosts."""
    return (
        f"This assumes that the ranks ran on {used} host{'s' * (used != 1)} as stated: the trace "
        f"records {recorded}"
    )


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (" …" if len(names) > 2 else "")


def traced_calls(calls: int) -> str:
    """The source: a trace."""
    return f"trace: times of {calls:,} MPI calls"


def counted_links(links: int, *, lossy: bool, stalls: bool) -> str:
    """The source: port counters, and whether they tell where traffic was held up."""
    if lossy:
        return f"counters of {counted(links, 'link')}, with queues and drops (lossy network)"
    return f"counters of {counted(links, 'link')}, {'with' if stalls else 'without'} stalls"


def engine_settings(fitted: Sequence[FittedValue], *, stated: bool, lacks: str) -> str:
    """Where the settings of the engine come from; empty if the scenario states them."""
    if fitted:
        values = ", ".join(
            f"{setting.name} {text(setting.kind, setting.value)}" for setting in fitted
        )
        return f"settings of the engine fitted to uncontended messages of this trace: {values}"
    return (
        ""
        if stated
        else (
            f"settings of the engine: defaults, as the trace has no {lacks} to fit them to (see "
            "tailback calibrate)"
        )
    )


SMALL_BUFFERS: Final = "the times agree best with smaller buffers than those of the model"
"""The source of a smaller buffer size than stated, or than the default."""

SLOW_SOMEWHERE: Final = (
    "which link is slow: test the links of the job's hosts in pairs while it does not run "
    "(ib_write_bw, iperf3)"
)
"""What to test if one of many links may be slow."""


def ruled_out_coarsely(ranking: CoarseRanking) -> str:
    """How many cables were not simulated in full."""
    left_out = ranking.considered - len(ranking.suspects)
    return (
        f"of {ranking.considered} cables, {left_out} were ruled out by simulations in coarse "
        f"packets of {exact_bytes(ranking.size_bytes)}, which are less exact"
    )


def slow_anywhere(cables: int, slowdowns: Sequence[SlowerMachine]) -> str:
    """What may be slow: one of many cables, or all of the machine."""
    each = [f"any one of {cables} slow cables"] if cables else []
    return f"{' or '.join([*each, *_each_slower(slowdowns)])} would explain it"


def _each_slower(slowdowns: Iterable[SlowerMachine]) -> list[str]:
    """The ways in words; those that differ by less than words say are one."""
    return list(dict.fromkeys(map(_slower, slowdowns)))


def _slower(way: SlowerMachine) -> str:
    if way.rates < 1.0:
        return f"all links at {percent(way.rates)} of their rates"
    return f"all delays {way.delays:.2g} times as long"


def slow_at_leaf(host: str, leaf: str) -> str:
    """Which links may be slow if one of a host fits best."""
    return f"a cable of {host}, or one between its leaf switch {leaf} and other switches"


def slower_machine(slowdowns: Sequence[SlowerMachine]) -> str:
    """What to check if the model agrees with a machine that is slower in these ways."""
    return (
        "the rates and delays that the machine really has: with "
        f"{' or '.join(_each_slower(slowdowns))} the model agrees with the times of calls (wrong "
        f"rates in {option('fabric')}, TCP in place of RDMA, or a clock of another unit); measure "
        "one pair of hosts (ib_write_bw, iperf3), or fit them with tailback calibrate"
    )


def sampled_links(links: int) -> str:
    """The source: samples in packets."""
    return f"samples in packets: congestion of {links} links"


def listed_jobs(jobs: Sequence[str], source: str) -> str:
    """The source: a job list, the other jobs in it, and where it comes from unless given."""
    named = f" ({_few(jobs)})" if jobs else ""
    where = f" {source}" if source else ""
    return f"job list{where}: {counted(len(jobs), 'other job')} at that time{named}"


def slow_link(
    name: str, gbps: float, nominal_gbps: float, *, one_way: bool, other_way_used: bool
) -> str:
    """A slow link and its rates; ``one_way``: the other direction of its cable is not slow."""
    only = " in this direction only" if other_way_used else " at least in this direction"
    only = only if one_way else ""
    return f"{name} serves {rate_of_rate(gbps, nominal_gbps)}{only}"


def candidate(name: str, gbps: float, nominal_gbps: float) -> str:
    """A link that may be the slow one, with the rate that fits best."""
    return f"{name} ({rate_of_rate(gbps, nominal_gbps)})"


MIN_REMOVED = 0.1
"""Share of the difference below which nothing is said to be removed: other settings of the engine
change it as much."""


def reproduced(removed: float, *, timed: bool, stalls: bool, alone: bool) -> str:
    """Evidence of a slow link from simulation.

    Args:
        removed: Share of the difference between measurement and simulation that it removes.
        timed: Whether times of calls or sends were compared; not with skipped steps.
        stalls: Whether stalls of ports were compared, too.
        alone: Whether no other cable explains as much.
    """
    compared = ["in the times of calls and sends"] if timed else []
    compared += ["in how long ports stalled"] if stalls else []
    others = (
        ", more than any other cable that was tried" if alone else "; other cables explain as much"
    )
    if removed < MIN_REMOVED:
        agree = "the times of calls and sends agree" if timed else "what ports counted agrees"
        worse = (
            "worse with any other cable that was tried" if alone else "as well with other cables"
        )
        return (
            f"simulating it explains the time, but {agree} no better than without it, and {worse}"
        )
    where = f" {' and '.join(compared)}" if compared else ""
    return f"simulating it removes {percent(removed)} of the difference{where}{others}"


def only_placements_tried(methods: Sequence[str]) -> str:
    """Note on a run without a fault for which few placements were tried."""
    return (
        f"only these placements were tried ({option('methods')}): {', '.join(methods)}; others "
        "may be faster, which would make the placement the cause"
    )


def job_traffic(job: str | None, hosts: Sequence[str], gbps: float) -> str:
    """Traffic of another job on its hosts; None for unknown senders."""
    named = ", ".join(hosts[:MAX_HOSTS_NAMED])
    if len(hosts) > MAX_HOSTS_NAMED:
        named += f" and {len(hosts) - MAX_HOSTS_NAMED} more"
    what = "unknown senders" if job is None else f"job {job}"
    return f"{what} on {named} ({gbps:.3g} Gb/s)"


def counted_traffic(sent_bytes: float, overhead: float) -> str:
    """Evidence of other traffic: bytes beyond ours, with the wire ``overhead`` of our messages."""
    wire = (
        f"taking {percent(overhead, 1)} overhead on the wire into account"
        if overhead >= 0
        else f"of which they counted {percent(1.0 + overhead)}"
    )
    return (
        f"host ports counted {format_bytes(sent_bytes)} more than our messages account for ({wire})"
    )


def counted_in_long_intervals(counted: str, job: UnknownJob) -> str:
    """Evidence of counted traffic of which more fell into the run than in proportion."""
    return (
        f"{counted}, in intervals longer than the run; that more of it than in proportion was sent "
        f"during the run is shown by the trace: {scattered_repetitions(job)}"
    )


UNKNOWN_SENDERS: Final = "unknown jobs on hosts that this job does not use"


def scattered_repetitions(job: UnknownJob) -> str:
    """Evidence of traffic of an unknown job."""
    removed = 1.0 - job.spread / max(job.spread_alone, 1e-12)
    return (
        "repetitions of the same sends take different times, as with bursts of other traffic: "
        f"simulating an unknown job removes {percent(removed)} of the difference, more than any "
        "slow link"
    )


def run_by(algorithm: str) -> str:
    """The algorithm of a collective that is assumed, from :data:`OTHER_ALGORITHM`."""
    return (
        f"assumed: the library makes {OTHER_ALGORITHM[algorithm]}; so the model agrees better with "
        "the measurement"
    )
