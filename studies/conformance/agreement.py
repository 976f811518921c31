"""Draws small random fabrics and traffic and compares the engine with the reference.

    python -m studies.conformance.agreement --draws 40 --adaptive 2
    python -m studies.conformance.agreement --write            also their page

Where routes are fixed both must agree to the picosecond and the packet; where routing chooses at
random, in the mean of each link.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from measuring import put
from studies.conformance import reference
from studies.conformance.compare import PAGE
from tailback.run.run import Run
from tailback.scenario.model import Scenario
from tailback.simulation import PreparedScenario, execute, prepare, simulate
from tailback.traffic import Label, Op, Program, ProgramBuilder

# Rates at which a byte takes whole picoseconds, so that both add up the same numbers.
RATES_GBPS = (25, 40, 50, 80, 100, 200)


def fabric(draw: random.Random) -> dict[str, object]:
    """A tree of two or three levels with cables of any rate and delay."""
    shape: dict[str, object] = {
        "hosts_per_leaf": draw.randint(1, 4),
        "leaves": draw.randint(2, 4),
        "aggregation": draw.randint(1, 3),
        "leaf_cables": draw.choice((1, 1, 2)),
    }
    levels = ["host", "leaf"]
    if draw.random() < 0.5:
        up = draw.randint(1, 3)
        shape |= {"pods": draw.randint(2, 3), "aggregation_uplinks": up, "leaves": 2}
        per_pod = int(str(shape["aggregation"])) * up
        shape["cores"] = draw.choice([n for n in range(1, per_pod + 1) if per_pod % n == 0])
        levels.append("core")
    same = draw.random() < 0.4
    rate = draw.choice(RATES_GBPS)
    for level in levels:
        shape[f"{level}_rate"] = f"{rate if same else draw.choice(RATES_GBPS)} Gb/s"
        shape[f"{level}_delay"] = f"{draw.choice((0, 5_000, 17_123, 100_000))} ps"
    return {"fat_tree": shape}


def engine(draw: random.Random, routing: str) -> dict[str, object]:
    """Settings of switches, adapters and MPI."""
    packet = draw.choice((128, 256, 512, 1000, 2048))
    header = draw.choice((0, 0, 26))
    room = draw.choice((1, 2, 3, 7, 40)) * (packet + header) + draw.choice((0, 0, 57))
    settings: dict[str, object] = {
        "packet": f"{packet} B",
        "header": f"{header} B",
        "buffer": f"{room} B",
        "buffering": draw.choice(("input", "output")),
        "switching": draw.choice(("cut-through", "store-and-forward")),
        "switch_delay": f"{draw.choice((0, 60_000, 133_337))} ps",
        "send_delay": f"{draw.choice((0, 1_000_000, 250_001))} ps",
        "eager": f"{draw.choice((0, 1500, 1 << 20))} B",
        "injection": draw.choice(("fifo", "round-robin", "per-destination")),
        "routing": routing,
    }
    if draw.random() < 0.3:
        settings["injection_rate"] = f"{draw.choice((20, 32, 64))} Gb/s"
    if routing in ("lowest", "chunk"):
        rule: dict[str, object] = {
            "load": draw.choice(("queue", "queue-and-credit")),
            "ties": "lowest",
            "per": draw.choice(("packet", "packet", "message", "flowlet")),
        }
        if rule["per"] == "flowlet":
            rule["gap"] = f"{draw.choice((1_000, 200_000, 1_000_000))} ps"
        if routing == "chunk":
            rule.pop("gap", None)
            rule |= {"per": "chunk", "chunk": f"{draw.choice((1, 700, 3_000, 5_000))} B"}
        settings |= {"routing": "adaptive", "adaptive": rule}
    return settings


def traffic(draw: random.Random, ranks: int) -> Program:
    """Messages of any size between any ranks, waited for at different points."""
    builder = ProgramBuilder("drawn", ranks)
    label = builder.label(Label("drawn", "MPI_Isend", 1))
    count = draw.randint(1, 4 * ranks)
    hot = draw.randrange(ranks) if draw.random() < 0.4 else None
    incoming: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    outgoing: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
    for _ in range(count):
        src, dst = draw.sample(range(ranks), 2)
        if hot is not None and src != hot and draw.random() < 0.7:
            dst = hot
        size = draw.choice((1, 31, 500, 1024, 4096, 9000, 20_000))
        outgoing[src].append((dst, size))
        incoming[dst].append((src, size))
    for rank in range(ranks):
        late = draw.random() < 0.3
        if not late:
            for src, size in incoming[rank]:
                builder.irecv(rank, src, size, 1, label)
        for dst, size in outgoing[rank]:
            builder.compute(rank, draw.choice((0, 0, draw.randrange(3_000_000))))
            request = builder.isend(rank, dst, size, 1, label)
            if not late and draw.random() < 0.3:
                builder.wait(rank, request)
        if late:
            builder.compute(rank, draw.randrange(5_000_000))
            for src, size in incoming[rank]:
                builder.irecv(rank, src, size, 1, label)
        builder.waitall(rank)
    return builder.build()


def acknowledged(prepared: PreparedScenario) -> PreparedScenario:
    """The same with acknowledged sends."""
    program = prepared.make_workload().program
    kind = np.where(program.kind == Op.ISEND, Op.ACKNOWLEDGED_SEND, program.kind)
    return prepared.with_program(replace(program, kind=kind.astype(np.uint8)))


def drawn(seed: int, routing: str = "deterministic") -> PreparedScenario:
    """The scenario of a seed.

    Args:
        seed: The seed.
        routing: As in ``[engine]``; ``lowest`` is adaptive routing that takes the lowest of equal
            ports, by any of its other rules, so that nothing is random; ``chunk``: per
            chunk.
    """
    draw = random.Random(seed)
    tree = fabric(draw)
    pattern = {"kind": "ring", "size": "1 KiB", "ranks": 2}
    scenario = Scenario.model_validate(
        {"name": f"drawn-{seed}", "fabric": tree, "job": [{"pattern": pattern}]}
    )
    nodes = prepare(scenario).fabric.n_nodes
    pattern["ranks"] = nodes
    scenario = Scenario.model_validate(
        {
            "name": f"drawn-{seed}",
            "seed": seed + 1,
            "fabric": tree,
            "job": [{"pattern": pattern}],
            "engine": engine(draw, routing),
        }
    )
    return prepare(scenario).with_program(traffic(draw, nodes))


@dataclass(frozen=True)
class Comparison:
    """One draw, simulated by both.

    Attributes:
        differences: What differs, in words; empty where nothing does.
        flows: Messages.
        packets: Packets, counted on each link they cross.
    """

    differences: list[str]
    flows: int
    packets: int


LINK_COLUMNS = ("packets", "bytes", "congested_packets", "stall_ps")


def engine_links(run: Run) -> dict[str, NDArray[np.int64]]:
    """Totals of each link over the run, by column of table ``truth``."""
    truth = run.tables["truth"].group_by("link").sum()
    totals = {}
    for column in LINK_COLUMNS:
        totals[column] = np.zeros(len(run.tables["links"]), np.int64)
        totals[column][truth["link"].to_numpy()] = truth[column].cast(pl.Int64).to_numpy()
    return totals


def reference_links(result: reference.Result) -> dict[str, NDArray[np.int64]]:
    """The same of the reference."""
    return {
        "packets": result.packets,
        "bytes": result.bytes,
        "congested_packets": result.congested,
        "stall_ps": result.stall_ps,
    }


def compare(prepared: PreparedScenario) -> Comparison:
    """Run both and compare times of messages and numbers of links, to the last digit."""
    theirs = reference.simulate(prepared)
    run = simulate(prepared, threads=1)
    messages = run.tables["messages"]
    differences = []
    for column, expected in (("arrival_ps", theirs.arrival_ps), ("start_ps", theirs.start_ps)):
        differences += _difference(column, messages[column].to_numpy(), np.array(expected))
    totals = engine_links(run)
    for column, counts in reference_links(theirs).items():
        differences += _difference(column, totals[column], counts)
    return Comparison(differences, len(theirs.arrival_ps), int(theirs.packets.sum()))


def _difference(
    column: str, actual: NDArray[np.integer[Any]], expected: NDArray[np.int64]
) -> list[str]:
    wrong = np.flatnonzero(actual.astype(np.int64) != expected)
    if not len(wrong):
        return []
    first = int(wrong[0])
    return [
        f"{column}: {len(wrong)} of {len(actual)} differ, the first is number {first}: "
        f"engine {actual[first]}, reference {expected[first]}"
    ]


def deviations(prepared: PreparedScenario, runs: int) -> NDArray[np.float64]:
    """Difference of both where choices are random: z of each link's mean counts.

    Args:
        prepared: A scenario with a random choice in it.
        runs: Runs of each, with different seeds.

    Returns:
        Difference of the means over its standard error, of packets and congested packets of every
        link on which they vary; infinite where both are constant and differ.
    """
    ours: dict[str, list[NDArray[np.int64]]] = {"packets": [], "congested_packets": []}
    theirs: dict[str, list[NDArray[np.int64]]] = {"packets": [], "congested_packets": []}
    for seed in range(runs):
        run = execute(prepared, threads=1, seed=seed)
        counts = reference_links(reference.simulate(prepared, seed))
        totals = engine_links(run)
        for column in ours:
            ours[column].append(totals[column])
            theirs[column].append(counts[column])
    scores = []
    for column in ours:
        a, b = np.array(ours[column], float), np.array(theirs[column], float)
        error = np.sqrt((a.var(0, ddof=1) + b.var(0, ddof=1)) / runs)
        apart = a.mean(0) - b.mean(0)
        # The standard error of a link that differs only in one or two runs is meaningless.
        varies = (error > 0) & (np.minimum((a != a[0]).sum(0), (b != b[0]).sum(0)) > 2)
        scores.append(apart[varies] / error[varies])
        scores.append(np.full(int(((error == 0) & (apart != 0)).sum()), np.inf))
    return np.concatenate(scores)


def exact_rows(draws: int) -> list[str]:
    """Rows where nothing is random, in Markdown."""
    kinds: dict[str, list[Comparison]] = {}
    for seed in range(draws):
        for routing in ("deterministic", "lowest"):
            prepared = drawn(seed, routing)
            engine = prepared.scenario.engine
            kind = f"{engine.switching}, {engine.buffering} buffers"
            if routing == "lowest":
                kind = f"adaptive, {engine.adaptive.load}, per {engine.adaptive.per}, lowest port"
            kinds.setdefault(kind, []).append(compare(prepared))
        chunks = drawn(seed, "chunk")
        kind = f"adaptive, {chunks.scenario.engine.adaptive.load}, per chunk, lowest port"
        kinds.setdefault(kind, []).append(compare(chunks))
        sends = acknowledged(drawn(seed))
        kinds.setdefault("acknowledged sends, all of the four", []).append(compare(sends))
    return [
        f"| {kind} | {len(cases)} | {sum(c.flows for c in cases):,} "
        f"| {sum(c.packets for c in cases):,} | {sum(not c.differences for c in cases)} |"
        for kind, cases in sorted(kinds.items())
    ]


def random_row(draws: int, runs: int) -> str:
    """The row on random choices, in Markdown."""
    scores = [deviations(drawn(seed, "adaptive"), runs) for seed in range(draws)]
    every = np.concatenate(scores)
    return (
        f"| {draws} | {runs} | {len(every)} | {np.sqrt((every**2).mean()):.2f} "
        f"| {np.abs(every).max():.1f} |"
    )


EXACT_HEAD = "| model | fabrics | messages | packets × links | equal in everything |"
RANDOM_HEAD = "| fabrics | runs of each | counts of links | rms z | largest |"


def main() -> None:
    """Print the tables; write their page on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=400, help="fabrics with nothing random")
    parser.add_argument("--adaptive", type=int, default=20, help="fabrics with adaptive routing")
    parser.add_argument("--runs", type=int, default=30, help="runs of each of those")
    parser.add_argument("--write", action="store_true", help=f"update docs/{PAGE.name}")
    arguments = parser.parse_args()
    exact = [EXACT_HEAD, "|---" * 5 + "|", *exact_rows(arguments.draws)]
    random = [RANDOM_HEAD, "|---" * 5 + "|", random_row(arguments.adaptive, arguments.runs)]
    print("\n".join([*exact, "", *random]))
    if arguments.write:
        put(PAGE, {"exact": "\n".join(exact), "random": "\n".join(random)})


if __name__ == "__main__":
    main()
