r"""How often a diagnosis of a training run is right when its cause is hidden.

    python bench/training.py --runs 28 --seed 1 --json

A run is a simulated job of data-parallel ranks: computation, and all-reduces of gradients by
NCCL's rings and trees. Its causes are drawn by the seed. What NCCL Inspector would have written is
written, with the clock of each host off by milliseconds; ``tailback diagnose`` gets it with a
discovery of the fabric, once with the counters of ports and once without, and is compared with the
truth: the time of the run without the cause. Links of the real machine reach 93 to 100 % of their
rate, and its buffers and latencies differ from those that the diagnosis assumes.

accuracy      share of the runs whose cause is right
subject       share of those with a slow rank or cable in which that one is named
false_alarms  share of the healthy runs that are said to suffer from something
costs         share of the costs that are within the stated interval
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from blind_counters import FORMS, STEPS, Sampling, write_counters
from blind_machine import Machine
from blind_programs import bursts, lower
from numpy.typing import NDArray

from tailback.fabric import Fabric
from tailback.fabric.degraded import degrade
from tailback.placement import footprint, problem_for
from tailback.run.run import Run
from tailback.scenario.model import Degraded, FatTree, parse
from tailback.simulation import PreparedScenario, execute
from tailback.simulation.prepare import Job
from tailback.traffic import Program, side_by_side
from tailback.traffic.nccl import COMPUTE_ONLY, Choice, Collective, GpuProgram, compile_gpu

KINDS = (
    *("healthy", "slow_gpu", "slow_cable", "slow_host"),
    *("other_job", "healthy", "slow_uplink", "bad_order", "collision"),
)
"""Kind of each run by its number, repeated cyclically."""

FORMS_OF_TRACES = ("verbose", "proxy", "kineto", "proxy", "plain")
"""What is recorded of each run by its number, repeated cyclically: Kineto traces, or what NCCL
Inspector writes without times of kernels, with them, and with network steps."""

CAUSE = {
    "healthy": "healthy",
    "slow_gpu": "imbalance",
    "slow_host": "imbalance",
    "slow_cable": "slow-link",
    "slow_uplink": "slow-link",
    "other_job": "other-traffic",
    "bad_order": "placement",
    "collision": "routing",
}
HASHED_WITHOUT_COST = 0.02
"""Most that hashing costs in runs with another cause: else its paths are drawn again."""

PATH_DRAWS = 24
LEAST_COST = 0.08
"""Share of the time that a cause costs at least, or another one is drawn."""

EVENLY = {"routing": "adaptive"}
"""Routing of a run whose flows do not collide."""

START_PS = 15 * 10**9
"""When the job begins: counters are read before, too."""

LOCAL_RATE = "1200 Gb/s"
"""Rate between the accelerators of a host."""

ATTEMPTS = 12
TIMEOUT_S = 600
_ACCEPTED_AS_HEALTHY = ("healthy", "none", "adapter", "injection")
_UTC_US = 1_790_000_000 * 10**6


@dataclass(frozen=True)
class TrainingJob:
    """The training job.

    Attributes:
        node: Node of each rank.
        before: Computation before each collective, ps, shape (ranks, collectives + 1).
        overlapped: Computation beside each collective, ps, shape (ranks, collectives).
        collectives: The collectives.
    """

    node: NDArray[np.uint32]
    before: NDArray[np.int64]
    overlapped: NDArray[np.int64]
    collectives: list[Collective]

    def program(self) -> Program:
        """The rank program."""
        timeline = [
            [
                entry
                for k in range(len(self.collectives))
                for entry in ((COMPUTE_ONLY, int(before[k])), (k, int(beside[k])))
            ]
            + [(COMPUTE_ONLY, int(before[-1]))]
            for before, beside in zip(self.before, self.overlapped, strict=True)
        ]
        return compile_gpu(GpuProgram("training", self.node.tolist(), self.collectives, timeline))


@dataclass(frozen=True)
class Truth:
    """What happened.

    Attributes:
        kind: One of :data:`KINDS`.
        subject: Slow rank, or slow cable; None without.
        seed: Of the draw.
        elapsed_ps: Time of the run.
        without_ps: Time without the cause.
    """

    kind: str
    subject: str | None
    seed: int
    elapsed_ps: int
    without_ps: int


@dataclass
class Reality:
    """The machine, the job and its cause."""

    fabric: Fabric
    file: Path
    job: TrainingJob
    slow_job: TrainingJob
    engine: dict[str, Any]
    efficiency: float
    colliding: bool = False
    slow: tuple[str, float] | None = None
    others: list[dict[str, Any]] = field(default_factory=list)
    host_share: float = 0.0

    def run(self, *, cause: bool, counters_ps: int = 0) -> Run:
        """Simulate the job, with or without the cause."""
        data = {
            "name": "training",
            "fabric": {"file": str(self.file)},
            "job": [{"name": "training", "pattern": {"kind": "ring"}}],
            "engine": self.engine | ({} if cause or not self.colliding else EVENLY),
            "telemetry": {"scheme": "off"},
        }
        scenario = parse(data)
        scenario.probes.counters = counters_ps or None
        scenario.job[0].start = START_PS
        fabric = replace(self.fabric, link_gbps=self.fabric.link_gbps * self.efficiency)
        if cause and self.slow is not None:
            fabric = degrade(fabric, [Degraded(cable=self.slow[0], rate=f"{self.slow[1]} Gb/s")])
        ours = self.slow_job if cause else self.job
        section = scenario.job[0]
        jobs = [_placed(section, fabric, ours.program(), ours.node)]
        for other in self.others if cause else []:
            program = lower("other", bursts(**other["traffic"]))
            hidden = section.model_copy(update={"name": "other", "observed": False, "start": 0})
            jobs.append(_placed(hidden, fabric, program, np.array(other["hosts"], np.uint32)))
        merged, of_label = side_by_side([job.program for job in jobs])
        scenario = scenario.model_copy(update={"job": [job.section for job in jobs]})
        prepared = PreparedScenario(scenario, fabric, jobs, merged, of_label)
        return execute(prepared, record_computation=True)


def _placed(section: Any, fabric: Fabric, program: Program, node: NDArray[np.uint32]) -> Job:
    hosts, each = np.unique(fabric.node_host[node], return_counts=True)
    problem = problem_for(fabric, program, hosts.tolist(), each.tolist(), 1)
    return Job(section, program, problem, node, footprint(problem, node))


# --- drawing -----------------------------------------------------------------------------------


def draw(number: int, seed: int, folder: Path) -> tuple[Reality, Truth, np.random.Generator]:
    """Draw a run whose cause costs enough.

    Raises:
        RuntimeError: None did.
    """
    kind, form = KINDS[number % len(KINDS)], FORMS_OF_TRACES[number % len(FORMS_OF_TRACES)]
    for attempt in range(ATTEMPTS):
        rng = np.random.Generator(np.random.Philox(key=[seed, (number << 8) | attempt]))
        reality, subject = _reality(rng, kind, form, folder)
        if kind == "collision" or (number // len(KINDS) % 2 and kind != "bad_order"):
            _hash_flows(reality, np.random.default_rng([seed, number, attempt]))
        elapsed = reality.run(cause=True).elapsed_ps
        without = reality.run(cause=False).elapsed_ps if kind != "healthy" else elapsed
        if kind == "healthy" or elapsed - without >= LEAST_COST * elapsed:
            return reality, Truth(kind, subject, seed, elapsed, without), rng
    raise RuntimeError(f"run {number} ({kind}): no cause cost {LEAST_COST:.0%}")


def _hash_flows(reality: Reality, rng: np.random.Generator) -> None:
    """Let switches hash flows to paths: without a cost, unless collisions are the cause."""
    even = reality.engine
    usual = 0 if reality.colliding else reality.run(cause=False).elapsed_ps
    for _ in range(PATH_DRAWS):
        hashed = {"routing": "ecmp", "path_seed": int(rng.integers(1 << 31, 1 << 32))}
        reality.engine = even | hashed
        if reality.colliding:
            return
        if reality.run(cause=False).elapsed_ps <= (1 + HASHED_WITHOUT_COST) * usual:
            return
    reality.engine = even


def _reality(
    rng: np.random.Generator, kind: str, form: str, folder: Path
) -> tuple[Reality, str | None]:
    per_leaf, leaves = int(rng.integers(3, 5)), int(rng.integers(3, 5))
    # Spines keep up with the hosts, or half of them.
    spines = per_leaf if kind == "collision" else int(rng.integers(2, 4))
    shape = FatTree(hosts_per_leaf=per_leaf, leaves=leaves, aggregation=spines)
    file = folder / "fabric.ibnetdiscover"
    fabric = Machine(shape, "4x", "EDR").write(file)
    hosts = np.sort(rng.choice(fabric.n_hosts, int(rng.integers(6, fabric.n_hosts - 2)), False))
    if kind == "collision":
        rng.shuffle(hosts)  # As a scheduler gives them: neighbours of the ring on other leaves.
    each = int(rng.choice([1, 1, 2, 4]))
    node, n = np.repeat(hosts, each).astype(np.uint32), each * len(hosts)
    job = _job(rng, node, form)
    engine = {
        "routing": "adaptive",
        "packet": "16 KiB",
        "buffer": f"{int(rng.choice([128, 256, 512]))} KiB",
        "switch_delay": f"{int(rng.integers(150, 500))} ns",
        "injection": "round-robin",
        "local_rate": LOCAL_RATE,
    }
    efficiency = float(rng.uniform(0.93, 1.0))
    reality = Reality(fabric, file, job, job, engine, efficiency, kind == "collision")
    subject = None
    if kind in ("slow_gpu", "slow_host"):
        rank = int(rng.integers(n))
        before = job.before.copy()
        before[rank] = (before[rank] * rng.uniform(1.3, 2.0)).astype(np.int64)
        reality.slow_job = replace(job, before=before)
        reality.host_share = 1.0 if kind == "slow_host" else 0.0
        subject = str(rank)
    elif kind in ("slow_cable", "slow_uplink"):
        ends = fabric.link_src, fabric.link_dst
        up = [
            link
            for link in range(fabric.n_links)
            if (ends[0][link] in node and kind == "slow_cable")
            or (min(ends[0][link], ends[1][link]) >= fabric.n_nodes and kind == "slow_uplink")
        ]
        link = int(rng.choice(up))
        port = int(fabric.link_src_port[link])
        name = f"{fabric.vertex_name(int(fabric.link_src[link]))}[{port}]"
        reality.slow = name, round(float(rng.uniform(12, 45)), 1)
        subject = fabric.vertex_name(int(fabric.link_src[link]))
    elif kind == "bad_order":
        # The ring goes from leaf to leaf with every hop.
        turn = np.argsort(fabric.node_switch[hosts], kind="stable")
        order = np.concatenate([turn[k::per_leaf] for k in range(per_leaf)])
        reality.slow_job = replace(job, node=np.repeat(hosts[order], each).astype(np.uint32))
    elif kind == "other_job":
        free = [host for host in range(fabric.n_hosts) if host not in node]
        pairs = free[: len(free) // 2 * 2]
        alone = reality.run(cause=False).elapsed_ps
        if len(pairs) < 2:
            return reality, subject
        traffic = {
            # Half of the hosts apart: most pairs are on different leaves.
            "partner": np.roll(np.arange(len(pairs)), len(pairs) // 2),
            "size": 1 << 20,
            "until_ps": 2.0 * alone,
            "rate": 12.5e-3,
            "seed": int(rng.integers(1 << 30)),
            "duty": (0.6, 1.0),
            "period_ps": alone / 8,
            "inflight": 4,
        }
        reality.others = [{"hosts": pairs, "traffic": traffic}]
    return reality, subject


def _job(rng: np.random.Generator, node: NDArray[np.uint32], form: str) -> TrainingJob:
    """A data-parallel step, several times: forward pass, and a sum for each bucket of gradients.

    Kineto traces do not name the algorithm: there it is NCCL's default.
    """
    n, steps, buckets = len(node), int(rng.integers(5, 9)), int(rng.integers(2, 5))
    size = int(rng.choice([4, 8, 16])) << 20
    forward, backward = rng.uniform(1.0, 6.0) * 1e9, rng.uniform(0.5, 3.0) * 1e9
    beside = float(rng.choice([0.0, 0.0, 0.5]))
    members = tuple(range(n))
    choice: Choice | None = Choice(
        str(rng.choice(["ring", "ring", "tree"])), "simple", int(rng.choice([1, 2, 4]))
    )
    choice = None if form == "kineto" else choice
    collectives, before, overlapped = [], [], []
    for _ in range(steps):
        for bucket in range(buckets):
            number = len(collectives)
            collectives.append(
                Collective("AllReduce", members, size, f"c{number}", "world", choice, 2)
            )
            usual = (forward if bucket == 0 else 0.0) + backward * (1 - beside * (bucket > 0))
            before.append(usual)
            overlapped.append(beside * backward * (bucket < buckets - 1))
    before.append(1e6)
    jitter = rng.normal(1.0, 0.01, (n, len(before))).clip(0.9, 1.1)
    each = np.maximum(np.array(before) * jitter, 1e6).astype(np.int64)
    aside = np.tile(np.array(overlapped, np.int64), (n, 1))
    return TrainingJob(node, each, aside, collectives)


# --- writing -----------------------------------------------------------------------------------


def call_times(run: Run, job: TrainingJob) -> NDArray[np.int64]:
    """Begin and end of each collective on each rank, ps, shape (ranks, collectives, 2)."""
    program = job.program()
    compute = program.kind == 0
    separate = program.separate_computations[compute]
    rank = program.op_rank[compute]
    table = run.computations
    assert table is not None
    table = table.filter(pl.col("rank") < len(job.node)).sort(
        "rank", "start_ps", maintain_order=True
    )
    start = table["start_ps"].to_numpy().astype(np.int64)
    end = start + program.amount[compute].astype(np.int64)
    out = np.zeros((len(job.node), len(job.collectives), 2), np.int64)
    for r in range(len(job.node)):
        mine = (rank == r) & separate
        out[r, :, 0], out[r, :, 1] = end[mine][:-1], start[mine][1:]
    return out


def write_inspector(
    folder: Path, reality: Reality, run: Run, rng: np.random.Generator, form: str
) -> None:
    """Write one file for each process, as NCCL Inspector does.

    Args:
        folder: Made anew.
        reality: What happened.
        run: Its simulation.
        rng: For clocks.
        form: ``plain`` without times of kernels, ``verbose`` with them, ``proxy`` with network
            steps, too.
    """
    folder.mkdir(parents=True)
    job = reality.slow_job
    times = call_times(run, job)
    hosts = [reality.fabric.host_name[h] for h in reality.fabric.node_host[job.node].tolist()]
    offset_us = {host: rng.uniform(-10_000, 10_000) for host in hosts}
    old = bool(rng.integers(2)) and form != "proxy"
    steps = _network_steps(run, job, rng) if form == "proxy" else {}
    for rank, host in enumerate(hosts):
        lines = list(
            _lines(reality, rank, host, times[rank], offset_us[host], rng, form, old, steps)
        )
        (folder / f"{host}-pid{4000 + rank}.log").write_text("\n".join(lines) + "\n")


def _lines(
    reality: Reality,
    rank: int,
    host: str,
    times: NDArray[np.int64],
    offset_us: float,
    rng: np.random.Generator,
    form: str,
    old: bool,
    steps: dict[int, list[dict[str, Any]]],
) -> Iterator[str]:
    job = reality.slow_job
    n = len(job.node)
    header = {"id": "0x5eed", "rank": rank, "n_ranks": n, "nnodes": n}
    bodies = []
    clock = _UTC_US + offset_us
    for k, collective in enumerate(job.collectives):
        begin, end = (times[rank_time] / 1e6 for rank_time in ((k, 0), (k, 1)))
        took = round(end - begin)
        body: dict[str, Any] = {
            "coll": collective.call,
            "coll_sn": k + 1,
            "coll_msg_size_bytes": collective.nbytes,
            "coll_exec_time_us": took,
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": round(collective.nbytes / max(took, 1) / 1e3, 6),
            "coll_algo": collective.choice.algorithm.upper() if collective.choice else "RING",
            "coll_proto": "SIMPLE",
        }
        if form != "plain":
            late = rng.uniform(0, 4)
            gap = job.before[rank, k] / 1e6
            # Only the slow rank's host is late; where it is not, launches are ahead.
            is_late = reality.host_share and gap > 1.2 * reality.job.before[rank, k] / 1e6
            launched = begin - (5 if is_late else 0.9 * gap)
            events = [
                {
                    "channel_id": channel,
                    "kernel_start_ts": round(clock + begin + late),
                    "kernel_stop_ts": round(clock + end + late),
                }
                for channel in range(collective.choice.channels if collective.choice else 1)
            ]
            body["event_trace_ts"] = {
                "coll_start_ts": round(clock + launched),
                "coll_stop_ts": round(clock + launched + 5),
                "kernel_events": events,
            }
        bodies.append(("coll_perf", body))
    for step in steps.get(rank, []):
        at = {name: round(clock + ps / 1e6) for name, ps in step.pop("times").items()}
        bodies.append(("proxy_trace", {**step, "event_trace_ts": at}))
    end_us = round(clock + times[-1, 1] / 1e6)
    metadata = {
        "inspector_output_format_version": "v4.0" if old else "v4.3",
        "dump_timestamp_us": end_us,
        "hostname": host,
        "pid": 4000 + rank,
    }
    if old:
        for kind, body in bodies:
            yield json.dumps({"header": header, "metadata": metadata, kind: body})
        return
    counted = Counter(kind for kind, _ in bodies)
    stats = {"coll_records": counted["coll_perf"], "p2p_records": 0}
    stats |= {"proxy_records": counted["proxy_trace"], "coll_dropped_total": 0}
    yield json.dumps({"header": header, "metadata": metadata, "dump_stats": stats})
    for kind, body in bodies:
        yield json.dumps({kind: body})


def write_kineto(folder: Path, reality: Reality, run: Run, rng: np.random.Generator) -> None:
    """Write the trace of each rank, as PyTorch's profiler does: kernels of NCCL and of others."""
    folder.mkdir(parents=True)
    job = reality.slow_job
    times = call_times(run, job)
    n = len(job.node)
    hosts = [reality.fabric.host_name[h] for h in reality.fabric.node_host[job.node].tolist()]
    for rank in range(n):
        clock = rng.uniform(-10_000, 10_000) + _UTC_US % 10**9
        usual = reality.job.before[rank]
        events = []
        for k, collective in enumerate(job.collectives):
            begin, end = (float(times[rank, k, side]) / 1e6 for side in (0, 1))
            gap, beside = (int(each[rank, k]) / 1e6 for each in (job.before, job.overlapped))
            # A slow host leaves its accelerator without work; a slow accelerator works longer.
            busy = usual[k] / 1e6 if reality.host_share else gap
            events += [("gemm", begin - busy, busy, 7, {}), ("gemm", begin, beside, 7, {})]
            arguments = {
                "Collective name": "allreduce",
                "In msg nelems": collective.nbytes // 4,
                "Out msg nelems": collective.nbytes // 4,
                "Group size": n,
                "dtype": "Float",
                "Process Group Name": "0",
                "Process Group Ranks": str(list(range(n))),
                "grid": [2, 1, 1],
            }
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            events.append((name, begin, end - begin, 20, arguments))
        document = {
            "schemaVersion": 1,
            "host_name": hosts[rank],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": n},
            "baseTimeNanoseconds": (_UTC_US - _UTC_US % 10**9) * 1000,
            "traceEvents": [
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": name,
                    "pid": 0,
                    "tid": stream,
                    "ts": round(clock + begin, 3),
                    "dur": round(took, 3),
                    "args": {"device": 0, "stream": stream, **arguments},
                }
                for name, begin, took, stream, arguments in events
                if took > 0
            ],
        }
        (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(document))


SLICE_BYTES = 512 << 10
"""Bytes of a network step of NCCL's simple protocol, at most."""

IN_FLIGHT = 4
"""Steps that a connection has under way at once."""


def _network_steps(
    run: Run, job: TrainingJob, rng: np.random.Generator
) -> dict[int, list[dict[str, Any]]]:
    """Steps of each sender: slices of each message, one after another, timed to a microsecond."""
    tables = run.tables
    labels = {row["label"]: row["phase"] for row in tables["labels"].iter_rows(named=True)}
    out: dict[int, list[dict[str, Any]]] = {}
    for row in tables["messages"].sort("post_ps").iter_rows(named=True):
        phase = labels[row["label"]]
        if row["src_rank"] >= len(job.node) or not phase.startswith("c"):
            continue
        if job.node[row["src_rank"]] == job.node[row["dst_rank"]]:
            continue  # Within a host the accelerators exchange data themselves.
        mine = out.setdefault(row["src_rank"], [])
        slices = max(-(-row["size_bytes"] // SLICE_BYTES), 1)
        each = (row["arrival_ps"] - row["post_ps"]) / slices
        for k in range(slices):
            begun = row["post_ps"] + max(k - IN_FLIGHT + 1, 0) * each
            took = (row["post_ps"] + (k + 1) * each - begun) * rng.lognormal(0.0, 0.2)
            mine.append(
                {
                    "record_type": "proxy_step",
                    "parent_type": "coll",
                    "parent_sn": int(phase[1:]) + 1,
                    "rank": row["src_rank"],
                    "channel_id": 0,
                    "peer": row["dst_rank"],
                    "direction": "send",
                    "step": len(mine),
                    "trans_size_bytes": -(-row["size_bytes"] // slices),
                    "times": {
                        "proxy_step_start_ts": begun,
                        "send_gpu_wait_ts": begun,
                        "send_peer_wait_ts": begun + rng.exponential(2e6),
                        "send_wait_ts": begun + 6e6,
                        "proxy_step_stop_ts": begun + 6e6 + took + rng.exponential(5e6),
                    },
                }
            )
    return out


def write_run(number: int, seed: int, folder: Path) -> Truth:
    """Write what tools would have recorded of a run; returns the truth.

    Raises:
        RuntimeError: No cause cost enough.
    """
    folder.mkdir(parents=True)
    reality, truth, rng = draw(number, seed, folder)
    interval = max(truth.elapsed_ps // 12, 2 * 10**9)
    run = reality.run(cause=True, counters_ps=interval // STEPS)
    form = FORMS_OF_TRACES[number % len(FORMS_OF_TRACES)]
    if form == "kineto":
        write_kineto(folder / "trace", reality, run, rng)
    else:
        write_inspector(folder / "trace", reality, run, rng, form)
    sampling = Sampling(str(rng.choice(FORMS)), interval, 0, True, False, 0.0, seed)
    write_counters(folder / "counters", run, reality.file, sampling, _UTC_US * 1000)
    (folder / "net.toml").write_text(
        'name = "net"\n[fabric]\nfile = "fabric.ibnetdiscover"\n'
        '[[job]]\nname = "x"\npattern = { kind = "ring" }\n'
        f'[engine]\npacket = "16 KiB"\nrouting = "{reality.engine["routing"]}"\n'
        f'local_rate = "{LOCAL_RATE}"\n'
    )
    return truth


# --- judging -----------------------------------------------------------------------------------


def diagnose(folder: Path, *, counters: bool) -> dict[str, Any]:
    """``diagnosis.json`` of a run.

    Raises:
        RuntimeError: There is none; says why.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        net = folder / "net.toml"
        command = [sys.executable, "-m", "tailback", "diagnose", str(folder / "trace")]
        command += ["--fabric", str(net), "--out", str(out), "--quiet"]
        if counters:
            path = folder / "counters"
            is_collection = (path / "collection.json").exists()
            for file in [path] if is_collection else sorted(path.iterdir()):
                command += ["--counters", str(file)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        made = out / "diagnosis.json"
        if not made.is_file():
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
        diagnosis: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
        return diagnosis


def judge(truth: Truth, diagnosis: dict[str, Any]) -> dict[str, Any]:
    """Compare a verdict with the truth."""
    cause = str(diagnosis["cause"])
    expected = CAUSE[truth.kind]
    accepted = _ACCEPTED_AS_HEALTHY if expected == "healthy" else (expected,)
    costs = (diagnosis.get("explanation") or {}).get("costs", [])
    cost = next((cost for cost in costs if cost["cause"] == expected), None)
    saved = truth.elapsed_ps - truth.without_ps
    row: dict[str, Any] = {
        "kind": truth.kind,
        "cause": cause,
        "right": cause in accepted,
        "undetermined": cause == "undetermined",
        "confidence": diagnosis.get("confidence"),
        "headline": diagnosis.get("headline"),
        "true_share": round(saved / truth.elapsed_ps, 3),
        "measured_over_true": round(diagnosis["elapsed_ps"] / truth.elapsed_ps, 3),
    }
    if cost is not None and cause == expected:
        row["said_share"] = round(cost["share"], 3)
        row["within"] = cost["low_ps"] <= saved <= cost["high_ps"]
        if truth.subject is not None:
            row["subject"] = truth.subject in cost["subject"]
            row["said_subject"] = cost["subject"]
            row["true_subject"] = truth.subject
    return row


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of all answers."""
    out: dict[str, Any] = {}
    for evidence in sorted({row["evidence"] for row in rows}):
        mine = [row for row in rows if row["evidence"] == evidence]
        healthy = [row for row in mine if row["kind"] == "healthy"]
        subjects = [row["subject"] for row in mine if "subject" in row]
        within = [row["within"] for row in mine if "within" in row]
        out[evidence] = {
            "runs": len(mine),
            "right": sum(row["right"] for row in mine),
            "undetermined": sum(row["undetermined"] and not row["right"] for row in mine),
            "wrong": sum(not row["right"] and not row["undetermined"] for row in mine),
            "false_alarms": sum(not row["right"] and not row["undetermined"] for row in healthy),
            "healthy": len(healthy),
            "subjects_named": [sum(subjects), len(subjects)],
            "costs_within": [sum(within), len(within)],
            "failed": sum("error" in row for row in mine),
        }
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=14)
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, help="runs of one kind only")
    parser.add_argument("--keep", type=Path, help="folder in which the runs are kept")
    parser.add_argument("--trace-only", action="store_true", help="without counters")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        numbers = count(options.first)
        if options.kind:
            numbers = filter(lambda number: KINDS[number % len(KINDS)] == options.kind, numbers)
        for number in islice(numbers, options.runs):
            folder = (options.keep or Path(scratch)) / f"run-{options.seed}-{number}"
            truth_file = folder / "truth.json"
            if truth_file.is_file():
                truth = Truth(**json.loads(truth_file.read_text()))
            else:
                truth = write_run(number, options.seed, folder)
                truth_file.write_text(json.dumps(vars(truth)))
            for evidence in ("trace",) if options.trace_only else ("trace", "counters"):
                try:
                    row = judge(truth, diagnose(folder, counters=evidence == "counters"))
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    row = {"kind": truth.kind, "right": False, "undetermined": False}
                    row["error"] = str(error)
                rows.append({"number": number, "evidence": evidence, **row})
                if not options.json:
                    print(json.dumps(rows[-1]), flush=True)
    print(json.dumps(figures(rows), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
