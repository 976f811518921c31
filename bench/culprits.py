"""A hidden aggressor found by counters and the job list: ``python bench/culprits.py [--draws N]``.

``--write`` puts the table into docs/measurements/accuracy.md.

Six jobs share a fat tree with a taper, a dragonfly, or fourteen racks of the full Yellowstone with
static routes. One sends all the time and stalls; the others send in bursts at random times. In
three draws of four, one of these is an aggressor: its bursts fill links or receivers. In the fourth
all are harmless. The judge sees counters of all ports and the job list. The truth is a simulation
without each job in turn: the culprit is the job without which the victim would stall least, if that
saves a fifth of the stall.

answered   draws in which a job was named
right      named, and it is the culprit
missed     a culprit exists, and none was named
silent     no culprit exists, and none was named
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import polars as pl
from _shared import machine, put

from tailback.evidence import JOBS, JobList, explain_stalls, host_course
from tailback.port_counters.readers import from_run
from tailback.scenario.model import Scenario
from tailback.simulation import prepare, simulate
from tests.factories.ibsim_subnet import YELLOWSTONE, write_net


@dataclass(frozen=True)
class Shape:
    """A network and the hosts that jobs may have.

    Attributes:
        fabric: Of the scenario; empty: the full Yellowstone, read from a file.
        hosts: Number of hosts that jobs may have, the first ones.
        bytes_a_ps: Rate of their cables.
        engine: Settings besides those of all shapes.
    """

    fabric: dict[str, Any]
    hosts: int = 64
    bytes_a_ps: float = 0.0125
    engine: dict[str, Any] = field(default_factory=dict)


DRAGONFLY = {
    "kind": "dragonfly",
    "nodes_per_router": 2,
    "routers": 4,
    "global_ports": 2,
    "groups": 9,
}
SHAPES = {
    "fat tree": Shape({"fat_tree": {"hosts_per_leaf": 8, "leaves": 8, "aggregation": 3}}),
    "dragonfly": Shape({"topology": DRAGONFLY}),
    "Yellowstone": Shape({}, 14 * 18, 54.545 / 8000, {"routing": "deterministic"}),
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"
JOBS_A_DRAW = 6
WINDOWS, WINDOW_PS = 240, 5_000_000
SIZE_BYTES = 32_768
CULPRIT_SAVES = 0.2

Message = tuple[int, int, int, int]


def bursts(rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Windows in which a job sends: bursts of eight windows, pauses of twelve, on average."""
    on = np.zeros(WINDOWS, np.bool_)
    at = int(rng.integers(0, 20))
    while at < WINDOWS:
        length = 1 + int(rng.exponential(8))
        on[at : at + length] = True
        at += length + 1 + int(rng.exponential(12))
    return on


def traffic(
    nodes: list[int],
    on: np.ndarray[Any, Any],
    bytes_a_ps: float,
    kind: str,
    rng: np.random.Generator,
) -> list[Message]:
    """Messages of a job: to random ranks, or to two of them."""
    out: list[Message] = []
    expected = bytes_a_ps * WINDOW_PS / SIZE_BYTES
    servers = nodes[:2]
    for window in np.flatnonzero(on).tolist():
        for node in nodes:
            for _ in range(int(rng.poisson(expected))):
                peers = servers if kind == "servers" else nodes
                peer = int(rng.choice([p for p in peers if p != node] or nodes))
                time = int((window + rng.random()) * WINDOW_PS)
                if peer != node:
                    out.append((time, node, peer, SIZE_BYTES))
    return out


def draw(shape: Shape, seed: int) -> tuple[list[list[int]], list[list[Message]]]:
    """Nodes and messages of each job; the first is the victim."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(shape.hosts).tolist()
    larger = shape.hosts // 64
    jobs, messages = [], []
    aggressor = int(rng.integers(1, JOBS_A_DRAW)) if rng.random() < 0.75 else None
    for number in range(JOBS_A_DRAW):
        count = int(rng.integers(14, 21) if number == aggressor else rng.integers(6, 10)) * larger
        jobs.append([int(n) for n in order[:count]])
        order = order[count:]
    for number, nodes in enumerate(jobs):
        if number == 0:
            on, load, kind = np.ones(WINDOWS, np.bool_), rng.uniform(0.2, 0.4), "uniform"
        elif number == aggressor:
            on, load = bursts(rng), rng.uniform(0.7, 1.0)
            kind = str(rng.choice(["uniform", "servers"]))
        else:
            on, load, kind = bursts(rng), rng.uniform(0.05, 0.3), "uniform"
        messages.append(traffic(nodes, on, float(load) * shape.bytes_a_ps, kind, rng))
    return jobs, messages


def observe(
    shape: Shape, messages: list[list[Message]], without: int | None = None
) -> tuple[pl.DataFrame, list[str], dict[tuple[str, int], str]]:
    """Intervals of all ports without a job, names of nodes, and the ports that lead to them."""
    sent = sorted(m for number, mine in enumerate(messages) if number != without for m in mine)
    scenario = Scenario.model_validate(
        {
            "fabric": shape.fabric or {"file": str(yellowstone())},
            "job": [{"pattern": {"kind": "timed", "messages": sent, "ranks": shape.hosts}}],
            "engine": {"packet": "4 KiB", "buffer": "16 KiB", "eager": "1 MiB", **shape.engine},
            "probes": {"counters": f"{WINDOW_PS} ps"},
        }
    )
    run = simulate(prepare(scenario))
    names = run.tables["nodes"]["name"].to_list()
    # The judge looks at adapters and at the ports into their hosts only.
    used = run.tables["links"].filter(pl.min_horizontal("src", "dst") < shape.hosts)
    intervals = from_run(replace(run, tables={**run.tables, "links": used})).all_intervals()
    end_ns = WINDOWS * WINDOW_PS // 1000
    into = used.filter(pl.col("dst") < len(names))
    rows = into.select("src_name", "src_port", "dst").iter_rows()
    receivers = {(name, port): names[node] for name, port, node in rows}
    return intervals.filter(pl.col("time_ns") <= end_ns), names, receivers


@cache
def yellowstone() -> Path:
    """A file with its cables."""
    path = Path(tempfile.mkdtemp(prefix="tailback-bench-")) / "yellowstone.ibnetdiscover"
    write_net(path, **YELLOWSTONE)
    path.write_text(re.sub(r"\blid 0\b", "lid 1", path.read_text()))
    return path


def judge(name: str, seed: int) -> dict[str, Any]:
    """One draw: what is said, and what is true."""
    shape = SHAPES[name]
    jobs, messages = draw(shape, seed)
    intervals, names, receivers = observe(shape, messages)
    course = host_course(intervals.lazy(), {name: name for name in names}, receivers)
    assert course is not None
    rows = [(f"job{n}", 0, None, [names[node] for node in nodes]) for n, nodes in enumerate(jobs)]
    listed = JobList(pl.DataFrame(rows, schema=JOBS.polars_schema, orient="row"))
    harm = explain_stalls(course, listed, seed=seed)
    said = harm.jobs.filter(pl.col("job") == "job0").row(0, named=True)

    def stall(frame: pl.DataFrame) -> float:
        mine = [names[node] for node in jobs[0]]
        return float(frame.filter(pl.col("node_name").is_in(mine))["stall_fraction"].mean() or 0.0)

    full = stall(intervals)
    saved = {
        f"job{n}": 1 - stall(observe(shape, messages, without=n)[0]) / full if full else 0.0
        for n in range(1, JOBS_A_DRAW)
    }
    worst = max(saved, key=lambda name: saved[name])
    truth = worst if saved[worst] >= CULPRIT_SAVES else None
    return {
        "shape": name,
        "seed": seed,
        "stall": full,
        "truth": truth,
        "saves": saved[worst],
        "said": said["culprit"],
        "share": said["share"],
        "why": said["why"],
    }


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of draws by what was said and what is true."""
    answered = [r for r in results if r["said"] is not None]
    culprits = [r for r in results if r["truth"] is not None]
    right = [r for r in answered if r["said"] == r["truth"]]
    return {
        "draws": len(results),
        "culprits": len(culprits),
        "answered": len(answered),
        "right": len(right),
        "answered_of_culprits": sum(r["said"] is not None for r in culprits),
        "missed": sum(r["said"] is None for r in culprits),
        "silent": sum(r["said"] is None and r["truth"] is None for r in results),
        "share_error": float(np.mean([abs(r["share"] - r["saves"]) for r in right]))
        if right
        else None,
    }


def table(counts: dict[str, dict[str, Any]]) -> str:
    """Counts of draws in Markdown."""
    lines = [
        "| shape | draws | with a culprit | named | right | named without one |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for shape, c in counts.items():
        needless = c["answered"] - c["answered_of_culprits"]
        values = (c["draws"], c["culprits"], c["answered_of_culprits"], c["right"], needless)
        lines.append(f"| {shape} | " + " | ".join(map(str, values)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Draw, simulate, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=90, help="of all shapes together")
    parser.add_argument("--shape", choices=list(SHAPES), help="only this one")
    parser.add_argument("--first", type=int, default=1000, help="seed of the first draw")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    chosen = parser.parse_args()
    results = []
    shapes = [chosen.shape] if chosen.shape else list(SHAPES)
    for number in range(chosen.draws):
        shape = shapes[number % len(shapes)]
        results.append(judge(shape, chosen.first + number))
        if not chosen.json:
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in results[-1].items()})
    counts = {shape: summary([r for r in results if r["shape"] == shape]) for shape in shapes}
    counts["all"] = summary(results)
    if chosen.write:
        put(PAGE, {"culprits": table(counts)})
    if chosen.json:
        print(json.dumps({"machine": machine(), **counts, "results": results}, indent=1))
    else:
        for name, facts in counts.items():
            print(name, facts)


if __name__ == "__main__":
    main()
