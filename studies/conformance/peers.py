"""Compares the engine link by link with htsim and SST's merlin on one model that all can express.

    python -m studies.conformance.peers --htsim PROGRAM --sst PROGRAM --write

A tree of two levels with D-mod-k routes, lossless: each link has a buffer of 64 KiB at its end.
README.md of the study has the steps that build both programs; either may be left out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from measuring import cpu_seconds, put
from measuring.records import note_read
from studies.conformance import reference
from studies.conformance.agreement import engine_links
from studies.conformance.compare import PAGE, README
from studies.conformance.peer_runs import (
    BUFFER,
    DELAY_PS,
    HTSIM_LINKS,
    MERLIN_NETWORK,
    PACKET,
    RATE_GBPS,
    SWITCH_PS,
    Counted,
    Shape,
    Traffic,
    htsim,
    merlin,
)
from tailback.scenario.model import Scenario
from tailback.simulation import PreparedScenario, prepare, simulate
from tailback.traffic import Label, ProgramBuilder
from tailback.units import format_time, percent

SMALL: Final = Shape(hosts_per_leaf=16, leaves=16, aggregation=8)
LARGE: Final = Shape(hosts_per_leaf=32, leaves=32, aggregation=16)
PAUSE, RESUME = BUFFER - PACKET, BUFFER - 2 * PACKET
"""htsim pauses a link above the first and lets it go on below the second. This is the closest to
credit: the packet that is being sent when the pause comes is the last that fits."""
OUTPUTS: Final = (2, 8, 16, 32)
"""Buffers of merlin's outputs, KiB, of the table on them; the rest of 64 KiB is the input's."""
THRESHOLDS: Final = ((62, 60), (60, 56), (60, 48), (60, 32))
"""Pairs in KiB of the table on pauses."""


def cases(shape: Shape, size: int = 256 * 1024) -> list[Traffic]:
    """Traffic on a tree: permutations, an incast with bystanders, hot spots."""
    hosts = shape.hosts
    every = tuple(range(hosts))
    draw = np.random.default_rng([7, hosts])
    shifted = tuple((host + 3 * shape.hosts_per_leaf) % hosts for host in every)
    permuted = tuple(int(host) for host in _derangement(draw, hosts))
    # One sender of each other leaf, and every host of the hot leaf's neighbour to its next one.
    ends = {shape.hosts_per_leaf * leaf + 1: 0 for leaf in range(1, shape.leaves)}
    beside = range(2 * shape.hosts_per_leaf + 2, 3 * shape.hosts_per_leaf)
    ends |= {host: host - shape.hosts_per_leaf for host in beside}
    hot = draw.integers(0, hosts - 1, hosts)
    hot = np.where(hot >= np.arange(hosts), hot + 1, hot)
    return [
        Traffic("shift by three leaves", every, shifted, size),
        Traffic("incast and bystanders", tuple(ends), tuple(ends.values()), size),
        Traffic("random permutation", every, permuted, size),
        Traffic("random destinations", every, tuple(hot.tolist()), size),
    ]


def _derangement(draw: np.random.Generator, count: int) -> np.ndarray:
    """A permutation without a fixed point."""
    while True:
        order = draw.permutation(count)
        if not (order == np.arange(count)).any():
            return order


def prepared(shape: Shape, traffic: Traffic, switching: str, arbitration: str) -> PreparedScenario:
    """The model and its messages for the engine."""
    scenario = Scenario.model_validate(
        {
            "name": "peers",
            "seed": 1,
            "fabric": {
                "fat_tree": {
                    "hosts_per_leaf": shape.hosts_per_leaf,
                    "leaves": shape.leaves,
                    "aggregation": shape.aggregation,
                    "host_rate": f"{RATE_GBPS} Gb/s",
                    "leaf_rate": f"{RATE_GBPS} Gb/s",
                    "host_delay": f"{DELAY_PS} ps",
                    "leaf_delay": f"{DELAY_PS} ps",
                }
            },
            "job": [{"pattern": {"kind": "ring", "size": "1 KiB", "ranks": shape.hosts}}],
            "engine": {
                "packet": f"{PACKET} B",
                "header": "0 B",
                "buffer": f"{BUFFER} B",
                "buffering": "input",
                "switching": switching,
                "arbitration": arbitration,
                "switch_delay": f"{SWITCH_PS} ps",
                "send_delay": "0 s",
                "eager": "1 GiB",
                "routing": "deterministic",
            },
        }
    )
    builder = ProgramBuilder("peers", shape.hosts)
    label = builder.label(Label("peers", "MPI_Isend", 1))
    for src, dst in zip(traffic.src, traffic.dst, strict=True):
        builder.irecv(dst, src, traffic.size, 1, label)
    for src, dst in zip(traffic.src, traffic.dst, strict=True):
        builder.isend(src, dst, traffic.size, 1, label)
    for rank in range(shape.hosts):
        builder.waitall(rank)
    return prepare(scenario).with_program(builder.build())


def engine(model: PreparedScenario, traffic: Traffic) -> Counted:
    """The engine on one thread, with its record of every link."""
    began = cpu_seconds()
    run = simulate(model, threads=1)
    seconds = cpu_seconds() - began
    totals = engine_links(run)
    order = pl.DataFrame({"src_rank": traffic.src, "dst_rank": traffic.dst})
    kinds = {name: run.tables["messages"][name].dtype for name in order.columns}
    rows = order.cast(kinds).join(  # type: ignore[arg-type]
        run.tables["messages"], on=["src_rank", "dst_rank"], how="left", maintain_order="left"
    )
    arrivals = rows["arrival_ps"].cast(pl.Int64).to_numpy()
    return Counted(arrivals, totals["bytes"], totals["stall_ps"], seconds)


def second(model: PreparedScenario, traffic: Traffic) -> Counted:
    """The reference of this repository."""
    began = cpu_seconds()
    outcome = reference.simulate(model)
    # Its messages are in the order of the sending ranks.
    by_source = dict(zip(sorted(traffic.src), outcome.arrival_ps, strict=True))
    arrivals = np.array([by_source[src] for src in traffic.src], np.int64)
    return Counted(arrivals, outcome.bytes, outcome.stall_ps, cpu_seconds() - began)


@dataclass(frozen=True)
class Peer:
    """One simulator and how the engine is set to its model.

    Attributes:
        name: Name in tables.
        switching: Setting of the engine.
        arbitration: Setting of the engine.
        run: Runs a case: model, shape, traffic, folder.
    """

    name: str
    switching: str
    arbitration: str
    run: Callable[[PreparedScenario, Shape, Traffic, Path], Counted]


def peers(htsim_program: Path | None, sst: Path | None) -> list[Peer]:
    """Those whose program is given, and the reference."""
    chosen = [
        Peer(
            "reference",
            "store-and-forward",
            "fcfs",
            lambda model, shape, traffic, folder: second(model, traffic),
        ),
    ]
    if htsim_program is not None:
        program = htsim_program
        chosen.append(
            Peer(
                "htsim",
                "store-and-forward",
                "fcfs",
                lambda model, shape, traffic, folder: htsim(
                    program, model.fabric, traffic, folder, PAUSE, RESUME
                ),
            )
        )
    if sst is not None:
        other = sst
        chosen.append(
            Peer(
                "merlin",
                "cut-through",
                "round-robin",
                lambda model, shape, traffic, folder: merlin(
                    other, model.fabric, shape, traffic, folder
                ),
            )
        )
    return chosen


HEAD: Final = (
    "| traffic | simulator | last byte: theirs | ours | difference | messages: mean, largest "
    "difference | links with equal bytes | stall of all links: theirs | ours | correlation |"
)


def row(traffic: Traffic, name: str, theirs: Counted, ours: Counted) -> str:
    """One comparison in Markdown."""
    last = float(theirs.arrival_ps.max()), float(ours.arrival_ps.max())
    apart = ours.arrival_ps / theirs.arrival_ps - 1
    far = apart[np.abs(apart).argmax()]
    equal = int((theirs.bytes == ours.bytes).sum())
    stalls = [int(run.stall_ps.sum()) for run in (theirs, ours)]
    moved = min(stalls) > 0
    r = f"{np.corrcoef(theirs.stall_ps, ours.stall_ps)[0, 1]:.4f}" if moved else "–"
    return (
        f"| {traffic.name} | {name} | {format_time(last[0])} | {format_time(last[1])} "
        f"| {percent(last[1] / last[0] - 1, 2, sign='+')} "
        f"| {percent(float(apart.mean()), 2, sign='+')}, {percent(float(far), 2, sign='+')} "
        f"| {equal} of {len(ours.bytes)} | {format_time(stalls[0])} | {format_time(stalls[1])} "
        f"| {r} |"
    )


def compared(chosen: list[Peer], shape: Shape) -> str:
    """Every case with every simulator."""
    lines = [HEAD, "|---" * 10 + "|"]
    for traffic in cases(shape):
        for peer in chosen:
            model = prepared(shape, traffic, peer.switching, peer.arbitration)
            with tempfile.TemporaryDirectory() as folder:
                theirs = peer.run(model, shape, traffic, Path(folder))
            lines.append(row(traffic, peer.name, theirs, engine(model, traffic)))
            print(lines[-1], flush=True)
    return "\n".join(lines)


def pauses(program: Path, shape: Shape) -> str:
    """What the thresholds of pauses do: the last traffic with more and more distance."""
    traffic = cases(shape)[-1]
    model = prepared(shape, traffic, "store-and-forward", "fcfs")
    ours, lines = engine(model, traffic), [HEAD, "|---" * 10 + "|"]
    for pause, resume in THRESHOLDS:
        with tempfile.TemporaryDirectory() as folder:
            theirs = htsim(
                program, model.fabric, traffic, Path(folder), pause * 1024, resume * 1024
            )
        lines.append(row(traffic, f"htsim, {pause} and {resume} KiB", theirs, ours))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def outputs(program: Path, shape: Shape) -> str:
    """What the place of merlin's buffers does: the last traffic with more of them at outputs."""
    traffic = cases(shape)[-1]
    model = prepared(shape, traffic, "cut-through", "round-robin")
    ours, lines = engine(model, traffic), [HEAD, "|---" * 10 + "|"]
    for size in OUTPUTS:
        with tempfile.TemporaryDirectory() as folder:
            theirs = merlin(program, model.fabric, shape, traffic, Path(folder), size * 1024)
        lines.append(row(traffic, f"merlin, {size} KiB at outputs", theirs, ours))
        print(lines[-1], flush=True)
    return "\n".join(lines)


def speeds(chosen: list[Peer], shape: Shape) -> str:
    """Packets times links a processor second, on the larger tree, without the slow reference."""
    lines = [
        "| simulator | packets × links | processor time | a second | ours, same model | times |",
        "|---" * 6 + "|",
    ]
    traffic = cases(shape)[2]
    for peer in chosen[1:]:
        model = prepared(shape, traffic, peer.switching, peer.arbitration)
        with tempfile.TemporaryDirectory() as folder:
            theirs = peer.run(model, shape, traffic, Path(folder))
        ours = engine(model, traffic)
        hops = int(ours.bytes.sum()) // PACKET
        rates = [hops / run.seconds for run in (theirs, ours)]
        lines.append(
            f"| {peer.name} | {hops:,} | {theirs.seconds:.1f} s | {rates[0]:,.0f} "
            f"| {rates[1]:,.0f} | {rates[1] / rates[0]:.0f}× |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main() -> None:
    """Print the tables; write the page on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--htsim", type=Path, help="htsim_links, built as the page says")
    parser.add_argument("--sst", type=Path, help="SST's program sst, with merlin registered")
    parser.add_argument(
        "--write", action="store_true", help=f"update {PAGE.name} and {README.name}"
    )
    arguments = parser.parse_args()
    chosen = peers(arguments.htsim, arguments.sst)
    note_read([HTSIM_LINKS, MERLIN_NETWORK])
    results = {"peers": compared(chosen, SMALL), "peer speeds": speeds(chosen, LARGE)}
    settings = {}
    if arguments.htsim is not None:
        settings["peer pauses"] = pauses(arguments.htsim, SMALL)
    if arguments.sst is not None:
        settings["peer outputs"] = outputs(arguments.sst, SMALL)
    if arguments.write:
        put(PAGE, results)
        put(README, settings)


if __name__ == "__main__":
    main()
