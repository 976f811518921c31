"""Measured runs with a hidden cause: the engine's own, and the files that tools write of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tailback.fabric.model import Fabric
from tailback.port_counters.readers import from_run
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, execute, prepare
from tailback.traffic import side_by_side
from tailback.traffic.program import Op, Program
from tests.factories.otf2_traces import writing
from tests.factories.simulated_traces import RESOLUTION, scripts_of

UTC_NS = 1_790_000_000 * 10**9
INTERVAL_US, FILES = 200, 3
"""Time between readings of a port, and number of files with counters."""

TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}


@dataclass(frozen=True)
class Hidden:
    """What the diagnosis does not know of a run.

    Attributes:
        cause: ``none``, ``slow cable``, ``other job``, ``imbalance`` or ``noise``.
        size: How much of it, 0–1.
        place: Chooses the cable or the ranks, 0–1.
        faulty: Chooses cables that count errors, 0–1 each.
        seed: Seed of the computation.
    """

    cause: str
    size: float
    place: float
    faulty: tuple[float, ...] = ()
    seed: int = 1


@dataclass(frozen=True)
class MeasuredFiles:
    """The files of a run.

    Attributes:
        trace: The trace.
        links: Lines of a list of links, without the header.
        counters: Files of counters; each has some of the ports.
        faulty: Names of both links of each cable that counts errors and carries our messages.
    """

    trace: Path
    links: tuple[str, ...]
    counters: tuple[Path, ...]
    faulty: tuple[frozenset[str], ...]

    def fabric(self, path: Path, order: Sequence[int] | None = None) -> Path:
        """Write the list of links, in another order of its lines."""
        lines = self.links if order is None else [self.links[at] for at in order]
        header = "src,src_port,dst,dst_port,rate_gbps"
        path.write_text("\n".join([header, *lines]) + "\n", encoding="ascii")
        return path


def program_of(hidden: Hidden, program: Program) -> Program:
    """The program with the computation that its ranks really had."""
    rng = np.random.default_rng(hidden.seed)
    compute = program.kind == Op.COMPUTE
    factor = 1.0 + 0.002 * rng.standard_normal(len(compute))
    if hidden.cause == "imbalance":
        slow = int(hidden.place * program.n_ranks) % program.n_ranks
        factor[program.op_rank == slow] *= 1.0 + 2.0 * hidden.size
    elif hidden.cause == "noise":
        factor += (rng.random(len(factor)) < 0.1) * rng.exponential(10.0 * hidden.size, len(factor))
    amount = np.where(compute, np.rint(program.amount * factor), program.amount)
    return replace(program, amount=amount.astype(program.amount.dtype))


def measured_files(
    folder: Path, hidden: Hidden, *, counters: bool, ranks: int = 8, rounds: int = 8
) -> MeasuredFiles:
    """Simulate a run of a halo exchange with a hidden cause, and write its files.

    Args:
        folder: Where the files are written.
        hidden: The cause.
        counters: Whether ports are counted.
        ranks: Number of ranks, on every other host.
        rounds: Exchanges.
    """
    pattern = {
        "kind": "stencil2d",
        "dims": [2, ranks // 2],
        "size": "256 KiB",
        "rounds": rounds,
        "post": "all",
        "boundary": "skip",
        "compute": "60 us",
    }
    jobs: list[dict[str, Any]] = [{"pattern": pattern, "hosts": _hosts(0, ranks)}]
    if hidden.cause == "other job":
        messages = max(round(40 * hidden.size), 1)
        uniform = {
            "kind": "uniform",
            "ranks": ranks,
            "size": "512 KiB",
            "messages": messages,
            "post": "all",
        }
        jobs.append(
            {"name": "others", "observed": False, "pattern": uniform, "hosts": _hosts(1, ranks)}
        )
    data: dict[str, Any] = {"fabric": {"fat_tree": TREE}, "job": jobs, "seed": hidden.seed}
    if counters:
        data["probes"] = {"counters": f"{INTERVAL_US} us"}
    if hidden.cause == "slow cable":
        cables = _cables(prepare(parse(data)).fabric)
        cable = cables[int(hidden.place * len(cables)) % len(cables)]
        rate = f"{100.0 * (1.0 - 0.9 * hidden.size):.1f} Gb/s"
        degraded = [{"cable": f"{cable[0]}[{cable[1]}]", "rate": rate}] if hidden.size else []
        data["fabric"] = {**data["fabric"], "degraded": degraded}
    prepared = _with_program(prepare(parse(data)), hidden)
    run, fabric = execute(prepared, record_computation=True), prepared.fabric
    names = [fabric.host_name[node] for node in prepared.observed.node]
    scripts = scripts_of(prepared.observed.program, run)
    trace = writing(folder)(scripts, resolution=RESOLUTION, hosts=names, utc_ns=UTC_NS)
    faulty = sorted({int(at * fabric.n_links) % fabric.n_links for at in hidden.faulty})
    return MeasuredFiles(
        trace,
        tuple(f"{src},{at},{dst},{to},100" for src, at, dst, to in _cables(fabric)),
        _counter_files(folder, run, fabric, faulty) if counters else (),
        _crossed(run, fabric, faulty) if counters else (),
    )


def _crossed(run: Run, fabric: Fabric, links: Sequence[int]) -> tuple[frozenset[str], ...]:
    """Both directions of the cables of links that carry messages of the observed job."""
    truth = run.tables["truth"]
    used = set(truth.filter(truth["observed_packets"] > 0)["link"].to_list())
    pairs = {frozenset((link, int(fabric.link_reverse[link]))) for link in links}
    return tuple(frozenset(map(fabric.link_name, pair)) for pair in pairs if pair & used)


def _hosts(first: int, ranks: int) -> str:
    """Every other host, as many as there are ranks."""
    return ",".join(str(host) for host in range(first, 2 * ranks, 2))


def _with_program(prepared: PreparedScenario, hidden: Hidden) -> PreparedScenario:
    """The scenario with the computation that ranks really had."""
    first, *others = prepared.jobs
    jobs = [replace(first, program=program_of(hidden, first.program)), *others]
    merged, of_label = side_by_side([job.program for job in jobs])
    return PreparedScenario(prepared.scenario, prepared.fabric, jobs, merged, of_label)


def _cables(fabric: Fabric) -> list[tuple[str, int, str, int]]:
    """Both ends of each cable: device and port."""
    return [
        (
            fabric.vertex_name(int(fabric.link_src[link])),
            int(fabric.link_src_port[link]),
            fabric.vertex_name(int(fabric.link_dst[link])),
            int(fabric.link_dst_port[link]),
        )
        for link in range(fabric.n_links)
        if link < int(fabric.link_reverse[link])
    ]


def _counter_files(
    folder: Path, run: Run, fabric: Fabric, faulty: Sequence[int]
) -> tuple[Path, ...]:
    """Answers of a Prometheus server, each for some of the ports; faulty links count errors."""
    readings = from_run(run, time_ns=UTC_NS).readings
    files: list[list[dict[str, Any]]] = [[] for _ in range(FILES)]
    ends = {
        (fabric.vertex_name(int(fabric.link_src[at])), int(fabric.link_src_port[at])): at
        for at in range(fabric.n_links)
    }
    for (name, port), rows in readings.group_by("node_name", "port", maintain_order=True):
        times = (rows["time_ns"] / 1e9).to_list()
        link = ends[str(name), int(port)]  # type: ignore[call-overload]
        counts = {
            "tailback_port_xmit_bytes_total": rows["data_bytes"].to_list(),
            "tailback_port_xmit_wait_ticks_total": (rows["stall_ns"] / 4.0).to_list(),
            "infiniband_symbol_error_total": [
                number * (link in faulty) for number in range(rows.height)
            ],
        }
        files[link % FILES] += [
            {
                "metric": {"__name__": metric, "node": name, "port": str(port)},  # type: ignore[call-overload]
                "values": [
                    [time, str(int(count))] for time, count in zip(times, values, strict=True)
                ],
            }
            for metric, values in counts.items()
        ]
    paths = []
    for number, result in enumerate(files):
        answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
        paths.append(folder / f"counters{number}.json")
        paths[-1].write_text(json.dumps(answer), encoding="utf-8")
    return tuple(paths)
