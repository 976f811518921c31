r"""How a diagnosis of a step of 1,024 accelerators does: time, memory, and whether it is right.

    python bench/training_scale.py --kind slow_cable --model gpt --seed 1

128 hosts of 8, each accelerator with an adapter: four rails in each of two planes, leaves of 16
hosts, tapered 2:1. A model is GPT-like (tensor 8, pipeline 8, data 16) or of experts
(all-to-all among 16 hosts). A step is simulated with a cause that the seed draws, what NCCL
Inspector would have written of it is written, and ``tailback diagnose`` gets it with the network.

seconds   processor time of the diagnosis
peak_mb   its memory
right     whether its cause is the hidden one; the other fields are those of bench/training.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from training import LEAST_COST, Truth, judge

from tailback.scenario.model import Degraded, NcclSection, Scenario, parse
from tailback.simulation import execute, prepare
from tailback.traffic import Program
from tailback.traffic.nccl import COMPUTE_ONLY, GpuProgram, compile_gpu
from tailback.traffic.patterns import parse as parse_pattern

KINDS = ("healthy", "slow_gpu", "slow_host", "slow_cable", "bad_order")
HOSTS, PER_HOST, PER_LEAF = 128, 8, 16
NETWORK = f"""name = "step"
[fabric]
topology = {{ kind = "pgft", children = [{PER_LEAF}, {4 * HOSTS // PER_LEAF}], parents = [1, 8], \
rails = 4, rail_leaf = "own", planes = 2, rates = ["400 Gb/s"], host_rate = "400 Gb/s" }}
[[job]]
name = "training"
ranks_per_host = {PER_HOST}
pattern = {{ kind = "ring", ranks = {HOSTS * PER_HOST}, size = "1 B" }}
[engine]
routing = "adaptive"
packet = "64 KiB"
local_rate = "3600 Gb/s"
local_sharing = "ports"
"""
"""The machine, as a scenario; its traffic is replaced."""

_STEP = {"activation": "32 MiB", "gradient": "256 MiB", "compute": "2 ms", "channels": 1}
MODELS: dict[str, dict[str, Any]] = {
    "gpt": {"tensor": 8, "pipeline": 8, "data": 16, "layers": 8, "microbatches": 8, **_STEP},
    "moe": {"tensor": 8, "data": 128, "expert": 16, "layers": 4, "microbatches": 2, **_STEP},
}
"""Activations and gradients of a layer of some 10^9 parameters in half precision, divided by
``tensor``; a channel each, so that a step is simulated in minutes."""

JITTER = 0.01
"""Standard deviation of the time of a computation, as bench/training.py has it."""

SLOWER = 1.5
"""How much longer a slow accelerator or host computes."""

CABLE_SHARE = 0.2
"""Part of its rate that a slow cable keeps: two of ten lanes' worth, as after a retraining."""

LATE_PS = 5 * 10**6
"""How long before its kernel a host launches that is late: what a launch takes."""

LEAD = 0.9
"""Part of the time since the last kernel by which other hosts launch ahead, as in training.py."""

_UTC_US = 1_790_000_000 * 10**6
_NOTHING_PS = 10**6
"""Computation between collectives that follow each other, so that the simulation times both."""


@dataclass(frozen=True)
class Step:
    """A step of training with its hidden cause.

    Attributes:
        source: Activity of the accelerators.
        scenario: The machine.
        chosen: How collectives are run.
        late: Ranks whose host is slow, and launches late.
    """

    source: GpuProgram
    scenario: Scenario
    chosen: NcclSection
    late: frozenset[int] = frozenset()

    def program(self) -> Program:
        """The rank program."""
        return compile_gpu(self.source, self.chosen)


def usual_step(model: str, rng: np.random.Generator) -> Step:
    """A step without a cause, each computation of it with noise."""
    pattern: Any = parse_pattern({"kind": "training", **MODELS[model]})
    source: GpuProgram = pattern.activity(HOSTS * PER_HOST)
    timeline = [[(k, ps) for k, ps in separated(each)] for each in source.timeline]
    noisy = [
        [(k, round(ps * max(rng.normal(1.0, JITTER), 0.9))) for k, ps in each] for each in timeline
    ]
    hosts = [rank // PER_HOST for rank in range(HOSTS * PER_HOST)]
    source = replace(source, timeline=noisy, hosts=hosts, assumes_hosts=False)
    scenario = parse({**tomllib.loads(NETWORK), "telemetry": {"scheme": "off"}})
    return Step(source, scenario, NcclSection(channels=1))


def separated(timeline: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """A timeline with exactly one computation around each collective."""
    out = [(COMPUTE_ONLY, _NOTHING_PS)]
    for number, ps in timeline:
        if number == COMPUTE_ONLY and out[-1][0] == COMPUTE_ONLY:
            out[-1] = COMPUTE_ONLY, out[-1][1] + ps
            continue
        if number != COMPUTE_ONLY and out[-1][0] != COMPUTE_ONLY:
            out.append((COMPUTE_ONLY, _NOTHING_PS))
        out.append((number, ps))
    return out if out[-1][0] == COMPUTE_ONLY else [*out, (COMPUTE_ONLY, _NOTHING_PS)]


def with_cause(step: Step, kind: str, rng: np.random.Generator) -> tuple[Step, str | None]:
    """The step with a cause, and the rank or host that it slows."""
    if kind in ("slow_gpu", "slow_host"):
        first = int(rng.integers(HOSTS * PER_HOST))
        slow = {first}
        if kind == "slow_host":
            first -= first % PER_HOST
            slow = set(range(first, first + PER_HOST))
        timeline = [
            [(k, round(ps * SLOWER)) for k, ps in each] if rank in slow else each
            for rank, each in enumerate(step.source.timeline)
        ]
        late = frozenset(slow if kind == "slow_host" else ())
        source = replace(step.source, timeline=timeline)
        return replace(step, source=source, late=late), str(first)
    scenario = step.scenario
    if kind == "slow_cable":
        fabric = prepare(scenario).fabric
        node = int(rng.integers(fabric.n_nodes))
        link = int(np.flatnonzero(fabric.link_src == node)[0])
        name = f"{fabric.vertex_name(node)}[{fabric.link_src_port[link]}]"
        rate = f"{float(fabric.link_gbps[link]) * CABLE_SHARE:g} Gb/s"
        slow_cable = Degraded(cable=name, rate=rate)
        section = scenario.fabric.model_copy(update={"degraded": [slow_cable]})
        changed = scenario.model_copy(update={"fabric": section})
        return replace(step, scenario=changed), fabric.vertex_name(node)
    if kind == "bad_order":
        # The neighbours of a data-parallel ring are on different leaves.
        order = np.arange(HOSTS).reshape(-1, PER_LEAF).T.ravel()
        job = scenario.job[0].model_copy(update={"hosts": ",".join(map(str, order.tolist()))})
        return replace(step, scenario=scenario.model_copy(update={"job": [job]})), None
    return step, None


@dataclass(frozen=True)
class SimulatedStep:
    """What happened in a step.

    Attributes:
        elapsed_ps: How long it took.
        times: Begin and end of each rank's calls in order, ps.
        hosts: Name of the host of each rank.
    """

    elapsed_ps: int
    times: list[NDArray[np.int64]]
    hosts: list[str]


def simulate(step: Step) -> SimulatedStep:
    """Simulate a step."""
    program = step.program()
    prepared = prepare(step.scenario).with_program(program)
    run = execute(prepared, record_computation=True)
    assert run.computations is not None
    table = run.computations.sort("rank", "start_ps", maintain_order=True)
    start = table["start_ps"].to_numpy().astype(np.int64)
    compute = program.kind == 0
    end = start + program.amount[compute].astype(np.int64)
    separate, rank = program.separate_computations[compute], program.op_rank[compute]
    times = []
    for r in range(program.n_ranks):
        mine = (rank == r) & separate
        times.append(np.stack([end[mine][:-1], start[mine][1:]], axis=1))
    node_host = prepared.fabric.node_host[prepared.observed.node].tolist()
    return SimulatedStep(run.elapsed_ps, times, [prepared.fabric.host_name[h] for h in node_host])


def write_inspector(folder: Path, step: Step, run: SimulatedStep, rng: np.random.Generator) -> None:
    """Write the file of each process, as NCCL Inspector does with times of kernels."""
    folder.mkdir(parents=True)
    offset_us = {host: rng.uniform(-10_000, 10_000) for host in run.hosts}
    number: Counter[tuple[int, ...]] = Counter()
    numbers = []
    for collective in step.source.collectives:
        number[collective.members] += 1
        numbers.append(number[collective.members])
    groups = _pipeline_groups(step.source)
    for rank, timeline in enumerate(step.source.timeline):
        host = run.hosts[rank]
        metadata = {
            "inspector_output_format_version": "v4.0",
            "dump_timestamp_us": round(_UTC_US + offset_us[host] + run.elapsed_ps / 1e6),
            "hostname": host,
            "pid": 4000 + rank % PER_HOST,
        }
        calls = [k for k, _ in timeline if k != COMPUTE_ONLY]
        lines, before = [], 0
        for k, (begin, end) in zip(calls, run.times[rank].tolist(), strict=True):
            # A slow host launches late; others launch ahead of their accelerators.
            lead = LATE_PS if rank in step.late else round(LEAD * (begin - before))
            before = end
            collective = step.source.collectives[k]
            is_p2p = collective.call in ("SendRecv", "Exchange")
            members = groups[rank] if is_p2p else collective.members
            header = {
                "id": f"0x{abs(hash(members)):x}",
                "rank": members.index(rank),
                "n_ranks": len(members),
                "nnodes": len({run.hosts[member] for member in members}),
            }
            at = [_UTC_US + offset_us[host] + ps / 1e6 for ps in (begin - lead, begin, end)]
            bodies = _bodies(collective, rank, members, numbers[k], at)
            lines += [
                json.dumps({"header": header, "metadata": metadata, kind: body})
                for kind, body in bodies
            ]
        (folder / f"{host}-pid{4000 + rank % PER_HOST}.log").write_text("\n".join(lines) + "\n")


def _pipeline_groups(source: GpuProgram) -> list[tuple[int, ...]]:
    """The pipeline-parallel group of each rank: those that its messages connect."""
    group = {rank: {rank} for rank in range(len(source.timeline))}
    for collective in source.collectives:
        if collective.call in ("SendRecv", "Exchange"):
            low, high = (group[member] for member in collective.members)
            if low is not high:
                low |= high
                group.update(dict.fromkeys(high, low))
    return [tuple(sorted(group[rank])) for rank in sorted(group)]


def _bodies(
    collective: Any, rank: int, members: tuple[int, ...], number: int, at: list[float]
) -> list[tuple[str, dict[str, Any]]]:
    """The records of a call, of which an exchange has two: kind and body of each."""
    launched, begin, end = map(round, at)
    events = [{"channel_id": 0, "kernel_start_ts": begin, "kernel_stop_ts": end}]
    took = end - begin
    if collective.call not in ("SendRecv", "Exchange"):
        # Of an exchange the part of a rank is recorded.
        parts = len(members) if collective.call == "AllToAll" else 1
        stamps = {"coll_start_ts": launched, "coll_stop_ts": launched + 1}
        return [
            (
                "coll_perf",
                {
                    "coll": collective.call,
                    "coll_sn": number,
                    "coll_msg_size_bytes": collective.nbytes // parts,
                    "coll_exec_time_us": took,
                    "coll_timing_source": "kernel_gpu",
                    "coll_algo": "RING",
                    "coll_proto": "SIMPLE",
                    "event_trace_ts": {**stamps, "kernel_events": events},
                },
            )
        ]
    peer = collective.members[1 - collective.members.index(rank)]
    sends = collective.members[collective.root] == rank
    names = ("send", "recv") if collective.call == "Exchange" else ("send" if sends else "recv",)
    stamps = {"p2p_start_ts": launched, "p2p_stop_ts": launched + 1}
    return [
        (
            "p2p_perf",
            {
                "p2p": name,
                "p2p_sn": number,
                "p2p_peer": members.index(peer),
                "p2p_msg_size_bytes": collective.nbytes,
                "p2p_exec_time_us": took,
                "event_trace_ts": {**stamps, "kernel_events": events},
            },
        )
        for name in names
    ]


def write_step(model: str, kind: str, seed: int, folder: Path) -> Truth:
    """Write the trace and the network of a step; returns the truth."""
    rng = np.random.Generator(np.random.Philox(key=[seed, KINDS.index(kind)]))
    usual = usual_step(model, rng)
    without = simulate(usual)
    step, subject = with_cause(usual, kind, rng)
    run = without if kind == "healthy" else simulate(step)
    write_inspector(folder / "trace", step, run, rng)
    (folder / "net.toml").write_text(NETWORK)
    return Truth(kind, subject, seed, run.elapsed_ps, without.elapsed_ps)


def diagnose(folder: Path) -> tuple[dict[str, Any], float, float]:
    """The diagnosis of a step, its processor time in seconds, and its memory in MB.

    Raises:
        RuntimeError: There is none; says why.
    """
    out, errors = folder / "diagnosis", folder / "errors"
    command = [sys.executable, "-m", "tailback", "diagnose", str(folder / "trace"), "--quiet"]
    command += ["--fabric", str(folder / "net.toml"), "--out", str(out), "--force"]
    with errors.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    _, status, used = os.wait4(process.pid, 0)
    made = out / "diagnosis.json"
    if not made.is_file():
        code = os.waitstatus_to_exitcode(status)
        raise RuntimeError(f"exit {code}: {errors.read_text()[-400:]}")
    diagnosis: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    return diagnosis, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="gpt")
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder in which the steps are kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for kind in options.kind or KINDS:
            folder = (options.keep or Path(scratch)) / f"{options.model}-{kind}-{options.seed}"
            truth_file = folder / "truth.json"
            if truth_file.is_file():
                truth = Truth(**json.loads(truth_file.read_text()))
            else:
                truth = write_step(options.model, kind, options.seed, folder)
                truth_file.write_text(json.dumps(vars(truth)))
            diagnosis, seconds, peak_mb = diagnose(folder)
            if truth.elapsed_ps - truth.without_ps < LEAST_COST * truth.elapsed_ps:
                # A simulation is too long to draw again: an order of hosts may do no harm.
                truth = replace(truth, kind="healthy")
            row = {"model": options.model, **judge(truth, diagnosis)}
            print(json.dumps({**row, "seconds": round(seconds), "peak_mb": round(peak_mb)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
