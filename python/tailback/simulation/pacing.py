"""Pacing rates of flows: computed for each communication phase of each job, or read from a file.

A *step* here corresponds to a communication phase of Birk and Zdornov (2009): the n-th time that
the ranks of a job send messages of the same kind. Labels are of the same kind if some rank posts
sends of both without a wait in between. Ranks that send nothing of a kind, such as those at the
edge of a grid, stay aligned with the others. All messages from one node to another in a step form
a flow with a single rate, since an adapter has one queue per destination. Rates are computed job
by job, as in the single application assignment.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.arrays import distinct_columns
from tailback.errors import ScenarioError
from tailback.evaluate import Change
from tailback.fabric.model import Fabric
from tailback.fluid import Choice, assignment, max_min, paths_between
from tailback.io.input_files import text_content
from tailback.scenario.engine import EngineSection
from tailback.scenario.model import Scenario
from tailback.simulation.apply_change import NetworkCache, apply_change, rank_nodes
from tailback.simulation.prepare import PreparedScenario, Workload
from tailback.simulation.routes import Routes
from tailback.traffic.program import Op, Program

MIN_WIRE_BYTES = 32
"""Minimum size of a packet on the wire, as in the engine."""
COLUMNS = ("src_rank", "dst_rank", "rate_gbps")
MIN_GBPS = 0.001
"""Minimum rate: the engine stores rates in whole Mb/s."""


@dataclass(frozen=True)
class SendRates:
    """Rates of a program's sends.

    Attributes:
        mbps: Rate of each operation that is a send, 0 for none, shape (M,).
        summary: Their description in a run's summary.
        notes: Caveats about the rates.
    """

    mbps: NDArray[np.uint32]
    summary: str
    notes: tuple[str, ...] = ()


def send_rates(
    prepared: PreparedScenario, workload: Workload, fabric: Fabric, routes: Routes
) -> SendRates | None:
    """The rates of a scenario for the sends of a workload; None if no send has a rate.

    Args:
        prepared: The scenario with all its jobs.
        workload: The jobs that run, with their placements.
        fabric: The fabric they run on.
        routes: The routes of the fabric.

    Raises:
        ScenarioError: The file cannot be read or does not fit the traffic, or routes take detours,
            for which no rates are computed.
    """
    engine = prepared.scenario.engine
    pacing = engine.pacing
    if pacing.rates_file is not None:
        mbps = _from_file(pacing.rates_file, workload.program, _numbers(prepared, workload))
        if not mbps.any():
            return None
        return SendRates(mbps, f"rates of {pacing.rates_file.name}, {pacing.kind}")
    if pacing.rates is None:
        return None
    return _computed(prepared.scenario, workload, fabric, routes)


def pair_rates(prepared: PreparedScenario, change: Change) -> str:
    """The rates of a change as a file that ``[engine.pacing] rates_file`` reads.

    A pair of ranks whose messages have several rates gets the lowest.

    Args:
        prepared: The scenario with all its jobs.
        change: A change with ``rates``.

    Raises:
        ScenarioError: As :func:`send_rates`.
    """
    changed = apply_change(prepared, change)
    fabric, routes = NetworkCache(prepared).of(change)
    workload = changed.make_workload(rank_nodes(prepared, change), not change.background)
    stated = send_rates(changed, workload, fabric, routes)
    mbps = np.zeros(0) if stated is None else stated.mbps
    sends = np.flatnonzero(mbps)
    program, (number, _) = workload.program, _numbers(changed, workload)
    rank = np.searchsorted(program.rank_start, sends, side="right") - 1
    lowest: dict[tuple[int, int], int] = {}
    peers = number[program.peer[sends]].tolist()
    for src, dst, rate in zip(number[rank].tolist(), peers, mbps[sends].tolist(), strict=True):
        lowest[src, dst] = min(lowest.get((src, dst), rate), rate)
    rows = (f"{src},{dst},{rate / 1000:.12g}" for (src, dst), rate in sorted(lowest.items()))
    return "\n".join([",".join(COLUMNS), *rows]) + "\n"


def steps(program: Program, sends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Kind and occurrence of each of S sends, shape (2, S), which together identify its step.

    Args:
        program: The program.
        sends: Indices of the operations, ascending.
    """
    rank = np.searchsorted(program.rank_start, sends, side="right") - 1
    label = program.label[sends].astype(np.int64)
    waited = _count_waits(program)[sends]
    together = (rank[1:] == rank[:-1]) & (waited[1:] == waited[:-1]) & (label[1:] != label[:-1])
    kind = np.arange(int(label.max(initial=0)) + 1)
    for a, b in np.unique(np.stack([label[:-1], label[1:]])[:, together], axis=1).T.tolist():
        kind[kind == kind[a]] = kind[b]
    keys = np.stack([rank, kind[label], waited])
    posts, post = distinct_columns(keys)
    fresh = np.append(True, np.any(np.diff(posts[:2], axis=1) != 0, axis=0))[: posts.shape[1]]
    first = np.maximum.accumulate(np.where(fresh, np.arange(posts.shape[1]), 0))
    turn = np.arange(posts.shape[1]) - first
    return np.stack([kind[label], turn[post]])


def _count_waits(program: Program) -> NDArray[np.int64]:
    """Number of waits of its rank before each operation, shape (M,).

    Every WAITALL counts. Consecutive waits for single requests count once, even with computation
    between them.
    """
    kind = program.kind
    sizes = np.asarray(np.diff(program.rank_start.astype(np.int64)), np.int64)
    rank = np.repeat(np.arange(program.n_ranks), sizes)
    does = np.flatnonzero(kind != Op.COMPUTE)
    single = kind[does] == Op.WAIT
    ends = np.zeros(len(kind), np.int64)
    ends[does] = kind[does] == Op.WAITALL
    # The last of consecutive single waits: another operation of the rank follows, or none.
    next_single = np.append(single[1:] & (rank[does][1:] == rank[does][:-1]), False)
    ends[does] += single & ~next_single
    before = np.cumsum(ends) - ends
    first = program.rank_start[:-1].astype(np.int64)[rank]
    return np.asarray(before - before[first])


def _computed(scenario: Scenario, workload: Workload, fabric: Fabric, routes: Routes) -> SendRates:
    engine, pacing = scenario.engine, scenario.engine.pacing
    if routes.detour != "never":
        raise ScenarioError(
            f"no rates can be computed for routes that take detours ({routes.detour})",
            place="[engine.pacing] rates",
            remedy="choose other routes, or give rates_file",
        )
    program, mbps = workload.program, np.zeros(len(workload.program.kind), np.uint32)
    sends = np.flatnonzero(program.sends)
    rank = np.searchsorted(program.rank_start, sends, side="right") - 1
    src, dst = workload.node[rank], workload.node[program.peer[sends]]
    crosses = fabric.node_host[src] != fabric.node_host[dst]
    step = steps(program, sends)[:, crosses]
    sends, src, dst = sends[crosses], src[crosses], dst[crosses]
    if not len(sends):
        return SendRates(mbps, f"{pacing.rates} rates, {pacing.kind}")
    job = workload.job_of_label[program.label[sends]].astype(np.int64)
    # A flow: all sends of one job, step, source node and destination node.
    keys = np.stack([job, *step, src.astype(np.int64), dst.astype(np.int64)])
    flows, flow = distinct_columns(keys)
    size = program.amount[sends].astype(np.int64)
    packets = np.maximum(1, -(-size // engine.packet))
    wire = np.maximum(size + packets * scenario.packet_header_bytes, MIN_WIRE_BYTES * packets)
    weight = np.bincount(flow, wire, minlength=flows.shape[1]).astype(np.float64)
    rater = _Rater(engine, fabric, routes, flows[3], flows[4], pacing.rates == "assigned")
    ends = np.flatnonzero(np.any(np.diff(flows[:3], axis=1) != 0, axis=0)) + 1
    phases = np.split(np.arange(flows.shape[1]), ends)
    rate = np.concatenate([rater.rates(phase, weight[phase]) for phase in phases]) * pacing.share
    mbps[sends] = np.maximum(1, np.floor(1000 * rate))[flow]
    share = "" if pacing.share == 1 else f", {pacing.share:g} of them"
    text = f"{pacing.rates} rates{share}, {pacing.kind}: {len(rate)} flows, {len(phases)} steps"
    caveats = list(_caveats(workload, rater.choice, engine.routing))
    unequal = sum(len(set(weight[phase].tolist())) > 1 for phase in phases)
    if pacing.rates == "max-min" and unequal:
        caveats.append(
            "max-min rates do not rise when a shorter flow ends; flows differ in size in "
            f"{unequal} of {len(phases)} steps: assigned rates end them sooner"
        )
    return SendRates(mbps, text, tuple(caveats))


def _caveats(workload: Workload, choice: Choice, routing: str) -> Iterator[str]:
    if len(workload.jobs) > 1:
        yield ("rates are computed job by job: links that jobs share may be oversubscribed")
    if routing != "deterministic":
        how = "chosen flow by flow" if choice == "least-flows" else "spread over all candidates"
        yield (
            f"rates are computed for paths {how}, which routing {routing!r} only approximates; "
            "deterministic routing takes exactly these paths"
        )


class _Rater:
    """Computes the rates of flows phase by phase, and of repeated phases only once."""

    def __init__(
        self,
        engine: EngineSection,
        fabric: Fabric,
        routes: Routes,
        src: NDArray[np.int64],
        dst: NDArray[np.int64],
        assigned: bool,
    ) -> None:
        self.fabric, self.routes, self.assigned = fabric, routes, assigned
        self.src, self.dst = src, dst
        near: dict[str, Choice] = {"deterministic": "deterministic", "vc": "least-flows"}
        self.choice: Choice = near.get(engine.routing, "spread")
        self.known: dict[bytes, NDArray[np.float64]] = {}

    def rates(self, phase: NDArray[np.int64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rate of each flow of a phase in Gb/s, shape (F,)."""
        src, dst = self.src[phase], self.dst[phase]
        key = src.tobytes() + dst.tobytes() + weight.tobytes()
        if key not in self.known:
            routes = self.routes
            paths = paths_between(routes.network, src, dst, self.choice, routing=routes.rule)
            gbps = self.fabric.link_gbps
            self.known[key] = (
                assignment(gbps, paths, weight).rate_gbps if self.assigned else max_min(gbps, paths)
            )
        return self.known[key]


def _numbers(prepared: PreparedScenario, workload: Workload) -> tuple[NDArray[np.int64], int]:
    """Number among all jobs of each rank that runs, and the number of ranks of all jobs."""
    ends = np.cumsum([0, *(job.program.n_ranks for job in prepared.jobs)])
    spans = {
        id(job): np.arange(a, b) for job, a, b in zip(prepared.jobs, ends, ends[1:], strict=False)
    }
    return np.concatenate([spans[id(job)] for job in workload.jobs]), int(ends[-1])


def _from_file(
    file: Path, program: Program, numbers: tuple[NDArray[np.int64], int]
) -> NDArray[np.uint32]:
    """Rates of pairs of ranks, numbered as in table ``messages``."""
    number, ranks = numbers
    rate = dict(_rows(file, ranks))
    sends = np.flatnonzero(program.sends)
    rank = np.searchsorted(program.rank_start, sends, side="right") - 1
    mbps = np.zeros(len(program.kind), np.uint32)
    pairs = zip(number[rank].tolist(), number[program.peer[sends]].tolist(), strict=True)
    used = set()
    for op, pair in zip(sends.tolist(), pairs, strict=True):
        if pair in rate:
            mbps[op] = rate[pair][0]
            used.add(pair)
    here = set(number.tolist())
    for pair, (_, line) in rate.items():
        if here.issuperset(pair) and pair not in used:
            raise ScenarioError(
                f"rank {pair[0]} sends nothing to rank {pair[1]}",
                file=file,
                place=f"line {line}",
                remedy="ranks are numbered as in table messages of a run",
            )
    return mbps


def _rows(file: Path, ranks: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of ranks with their rate in Mb/s and their line number."""
    reader = csv.reader(text_content(file, ScenarioError).splitlines())
    header = [name.strip() for name in next(reader, [])]
    if header != list(COLUMNS):
        raise ScenarioError(
            f"the first line is {','.join(header)!r}",
            file=file,
            place="line 1",
            remedy=f"a table of rates begins with {','.join(COLUMNS)}",
        )
    seen: set[tuple[int, int]] = set()
    for line, row in enumerate(reader, 2):
        if not row:
            continue
        try:
            src, dst, gbps = int(row[0]), int(row[1]), float(row[2])
        except (ValueError, IndexError):
            src, dst, gbps = -1, -1, 0.0
        fits = 0 <= src < ranks and 0 <= dst < ranks and MIN_GBPS <= gbps <= 4e6 and len(row) == 3
        if not fits or (src, dst) in seen:
            raise ScenarioError(
                f"{','.join(row)!r} is not a pair of ranks and a rate, or is listed twice",
                file=file,
                place=f"line {line}",
                remedy=f"two ranks below {ranks} and Gb/s, at least {MIN_GBPS:g}, each pair once",
            )
        seen.add((src, dst))
        yield (src, dst), (round(gbps * 1000), line)
