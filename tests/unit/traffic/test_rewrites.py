"""Every registered rewrite keeps what it says, runs to its end, and refuses what it must."""

from __future__ import annotations

import tracemalloc
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest

from tailback.evaluate import Change
from tailback.fabric.builders import fat_tree, network_of
from tailback.fluid import RankModel, simulate_program
from tailback.scenario.model import FatTree, parse
from tailback.simulation import make_evaluate, prepare
from tailback.traffic import patterns
from tailback.traffic.collectives import schedule
from tailback.traffic.program import Label, Op, Program, ProgramBuilder
from tailback.traffic.rewrites import REWRITES, DoesNotApplyError, Rewritten, labels_of_phases
from tailback.traffic.transform import repeat

Options = dict[str, object]
build = partial(patterns.build, line_gbps=100.0)
STENCIL: Options = {"kind": "stencil2d", "dims": [4, 3], "size": "128 KiB", "boundary": "skip"}
GHOST: Options = {
    "kind": "minighost",
    "dims": [3, 4, 2],
    "cells": [60, 60, 60],
    "variables": 3,
    "compute": "2 us",
}
RING: Options = {"kind": "ring", "ranks": 6, "size": "64 KiB"}
LOOP: Options = {"kind": "alltoall-naive", "ranks": 9, "size": "32 KiB"}
SEVERAL: Options = {
    "kind": "paced",
    "ranks": 16,
    "size": "4 KiB",
    "load": 0.5,
    "duration": "20 us",
    "servers": 2,
}
MUDDLE: Options = {"kind": "muddle"}
"""Ranks that go through six phases in six orders; no pattern of the product does."""
AGGREGATED: Options = {"kind": "aggregated"}
"""Rounds in which 16 ranks send to two of them, as collective I/O does; built here."""
SUMMED: Options = {"kind": "summed"}
"""Two calls of MPI_Allreduce as rings of eight ranks, with one tag each as of a trace."""
GATHERED: Options = {"kind": "summed", "call": "MPI_Allgather"}
"""Two calls of MPI_Allgather, likewise."""
SPREAD: Options = {"kind": "summed", "call": "MPI_Bcast"}
"""Two calls of MPI_Bcast, likewise."""
BLOCKS: Options = {"kind": "alltoall", "ranks": 8, "size": "16 KiB"}
NAIVE: Options = {"kind": "reduce-naive", "ranks": 11, "arrays": 3, "root": 4}

APPLIES: dict[str, list[Options]] = {
    "binary-broadcast": [SPREAD, {**SPREAD, "ranks": 4}, {**SPREAD, "ranks": 11}],
    "doubling-allgather": [GATHERED, {**GATHERED, "ranks": 4}],
    "halving-allreduce": [SUMMED],
    "mirrored-order": [{**STENCIL, "post": "all"}, GHOST],
    "more-receivers": [AGGREGATED, {**AGGREGATED, "post": "all"}],
    "other-alltoall": [
        {**BLOCKS, "rounds": 2},
        {**BLOCKS, "size": "1 KiB", "rounds": 2},
        {"kind": "transpose", "dims": [6, 3], "size": "4 KiB", "rounds": 2},
    ],
    "pairwise-alltoall": [LOOP, {**LOOP, "post": "all", "size": "64 B", "ranks": 13}],
    "rotated-order": [LOOP, {**LOOP, "post": "all"}],
    "small-phases": [{**STENCIL, "rounds": 2}, {**STENCIL, "post": "all"}, GHOST],
    "synchronised-phases": [
        {**STENCIL, "rounds": 3},
        {**STENCIL, "post": "all"},
        GHOST,
        {"kind": "stencil3d", "dims": [3, 2, 4], "size": "32 KiB", "rounds": 2},
    ],
    "taken-turns": [NAIVE, {**NAIVE, "post": "all", "size": "64 KiB"}],
    "tree-reduce": [NAIVE, {**NAIVE, "post": "all", "root": 0}],
}
REFUSES: dict[str, list[tuple[Options, str]]] = {
    "binary-broadcast": [(SUMMED, "not called"), ({**SPREAD, "ranks": 3}, "fewer than 4")],
    "doubling-allgather": [(SUMMED, "not called"), ({**GATHERED, "ranks": 6}, "no single")],
    "halving-allreduce": [(RING, "not called"), ({**SUMMED, "ranks": 6}, "no single ring")],
    "mirrored-order": [(RING, "no rank posts sends to two others")],
    "more-receivers": [
        (NAIVE, "may need all of it"),
        (LOOP, "9 of 9 ranks receive already"),
        ({**AGGREGATED, "uneven": True}, "different numbers"),
    ],
    "other-alltoall": [(RING, "not called"), ({**BLOCKS, "ranks": 3}, "fewer than 4 ranks")],
    "pairwise-alltoall": [
        (STENCIL, "not every rank sends to every other"),
        ({"kind": "alltoall", "ranks": 8, "size": "16 KiB"}, "MPI_Alltoall already"),
    ],
    "rotated-order": [
        (RING, r"same receiver at the same position of their loops \(at most 1 do\)"),
        (
            {"kind": "alltoall", "ranks": 8, "size": "1 KiB"},
            r"same receiver at the same position of their loops \(at most 1 do\)",
        ),
        (NAIVE, "another order does not help"),
    ],
    "small-phases": [
        (RING, "only one phase"),
        ({**STENCIL, "size": "8 KiB"}, "too small"),
    ],
    "synchronised-phases": [(RING, "only one phase"), (MUDDLE, "in the same order")],
    "taken-turns": [
        (RING, "no rank there receives from 4"),
        (LOOP, "would wait for one another"),
    ],
    "tree-reduce": [
        (RING, "no rank there receives from 4"),
        (LOOP, "also send there"),
        (SEVERAL, "several receivers"),
        ({"kind": "reduce-tree", "ranks": 9}, "MPI_Reduce already"),
    ],
}
CASES = [
    pytest.param(name, options, id=f"{name}-{i}")
    for name, several in APPLIES.items()
    for i, options in enumerate(several)
]


def test_every_registered_rewrite_is_tested_here() -> None:
    assert sorted(APPLIES) == sorted(REFUSES) == REWRITES.names()
    assert all(entry.summary for entry in REWRITES)


def rewritten(name: str, program: Program, phases: tuple[str, ...] = ("y",)) -> Rewritten:
    """Of the phases named, or of all where there are no such."""
    return REWRITES[name](program, labels_of_phases(program, phases))


def test_options_of_open_mpi_are_in_the_action() -> None:
    made = rewritten("other-alltoall", program_of(APPLIES["other-alltoall"][0]))
    assert made.openmpi.endswith("--mca coll_tuned_alltoall_algorithm 1")
    assert made.openmpi in made.action


def program_of(options: Options) -> Program:
    """The program of a pattern, or one of those built here."""
    here = {"aggregated": aggregated, "summed": summed}
    if options["kind"] in here:
        return here[str(options["kind"])](options)
    if options["kind"] != "muddle":
        return build(options, None, 1)
    builder = ProgramBuilder("muddle", 6)
    labels = [builder.label(Label(f"phase {i}", "MPI_Isend", i)) for i in range(6)]
    for rank in range(6):
        for i in range(6):
            turn = (rank + i * (1 if rank % 2 else 5)) % 6
            builder.irecv((rank + 1) % 6, rank, 1024, turn, labels[turn])
            builder.isend(rank, (rank + 1) % 6, 1024, turn, labels[turn])
    for rank in range(6):
        builder.waitall(rank)
    return builder.build()


def aggregated(options: Options) -> Program:
    """Ranks send a part of their data to ranks 0 and 8 in each of three rounds."""
    builder = ProgramBuilder("aggregated", 16)
    label = builder.label(Label("write", "MPI_Isend"))
    for turn in range(3):
        for to in (0, 8):
            for rank in range(16):
                if rank == to or (options.get("uneven") and rank == 5 and turn == 2):
                    continue
                received = builder.irecv(to, rank, 65536, 0, label)
                posted = builder.isend(rank, to, 65536, 0, label)
                if options.get("post") != "all":
                    builder.wait(rank, posted)
                    builder.wait(to, received)
        for rank in range(16):
            builder.waitall(rank)
            builder.compute(rank, 1000)
    return builder.build()


def summed(options: Options) -> Program:
    """Rings of MPI_Allreduce, or another call, as the schedule of collectives makes them."""
    ranks, name = int(str(options.get("ranks", 8))), str(options.get("call", "MPI_Allreduce"))
    builder = ProgramBuilder("summed", ranks)
    label = builder.label(Label("sum", name))
    for tag in (5, 6):
        for rank in range(ranks):
            for step in schedule(name, ranks, rank, 0, 100_003, 100_003):
                posts = [
                    builder.irecv(rank, peer, size, tag, label) for peer, size in step.receives
                ]
                posts += [builder.isend(rank, peer, size, tag, label) for peer, size in step.sends]
                for post in posts:
                    builder.wait(rank, post)
    return builder.build()


def sent(program: Program, op: Op = Op.ISEND) -> dict[tuple[int, int, int], list[int]]:
    """Bytes of the messages of each (source, destination, tag), in order."""
    out = defaultdict(list)
    rank = program.op_rank
    for i in np.flatnonzero(program.kind == op):
        here, there = int(rank[i]), int(program.peer[i])
        pair = (here, there) if op == Op.ISEND else (there, here)
        out[(*pair, int(program.tag[i]))].append(int(program.amount[i]))
    return dict(out)


def elapsed_ps(program: Program, eager: int = 16384) -> int:
    """Time on a small tree by the fluid model: raises where ranks block for ever."""
    shape = FatTree(hosts_per_leaf=4, leaves=6, aggregation=4)
    fabric = fat_tree(shape)
    node = np.arange(program.n_ranks, dtype=np.uint32)
    network = network_of(fabric, node.tolist())
    return simulate_program(
        network, program, node, model=RankModel(eager_bytes=eager, paths="pooled")
    ).elapsed_ps


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_rewritten_program_runs_to_its_end(name: str, options: Options) -> None:
    program = program_of(options)
    rewrite = rewritten(name, program)
    rewrite.program.check()
    assert sent(rewrite.program, Op.ISEND) == sent(rewrite.program, Op.IRECV)
    assert rewrite.action.endswith(".")
    assert rewrite.keeps != "result" or rewrite.assumes
    # Neither with nor without hand-shake, and not the second time either.
    assert elapsed_ps(rewrite.program) > 0
    assert elapsed_ps(repeat(rewrite.program, 2), eager=0) > 0
    # The program that was given stays as it is.
    assert sent(program) == sent(program_of(options))


@pytest.mark.parametrize(("name", "options"), CASES)
def test_it_keeps_what_it_says(name: str, options: Options) -> None:
    program = program_of(options)
    rewrite = rewritten(name, program)
    before, after = sent(program), sent(rewrite.program)
    if rewrite.keeps == "messages":
        # Besides the envelopes of barriers.
        real = {key: size for key, size in after.items() if any(size)}
        assert {key: Counter(sizes) for key, sizes in real.items()} == {
            key: Counter(sizes) for key, sizes in before.items() if any(sizes)
        }
    elif rewrite.keeps == "bytes":
        assert {key: sum(sizes) for key, sizes in after.items()} == {
            key: sum(sizes) for key, sizes in before.items()
        }
    else:
        # All contribute as before, or all but the root learn of it.
        end, root = (1, {0}) if name == "binary-broadcast" else (0, set[int]())
        assert {key[end] for key in before} - root <= {key[end] for key in after}


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        pytest.param(name, options, why, id=f"{name}-{i}")
        for name, several in REFUSES.items()
        for i, (options, why) in enumerate(several)
    ],
)
def test_it_refuses_what_it_is_not_for(name: str, options: Options, why: str) -> None:
    with pytest.raises(DoesNotApplyError, match=why):
        rewritten(name, program_of(options))


def test_a_root_loop_becomes_mpi_reduce() -> None:
    """The same messages as pattern reduce-tree, whose time is the published remedy's."""
    naive = {"kind": "reduce-naive", "ranks": 16, "arrays": 5, "size": "4 KiB"}
    reduced = rewritten("tree-reduce", build(naive, None, 1)).program
    tree = build({**naive, "kind": "reduce-tree"}, None, 1)

    def pairs(program: Program) -> dict[tuple[int, int], list[int]]:
        return {(src, dst): sizes for (src, dst, _), sizes in sent(program).items()}

    assert pairs(reduced) == pairs(tree)
    assert elapsed_ps(reduced) == elapsed_ps(tree)
    assert {label.call for label in reduced.labels} == {"MPI_Send", "MPI_Reduce"}


def test_more_receivers_share_what_two_received() -> None:
    program = program_of(AGGREGATED)
    shared = rewritten("more-receivers", program)

    def most(of: Program) -> int:
        _, to, size = of.traffic_matrix()
        return int(np.bincount(to, size.astype(np.int64)).max())

    # Eight of 16 ranks receive, where two did.
    assert len(np.unique(shared.program.traffic_matrix()[1])) == 8
    assert most(shared.program) <= 0.3 * most(program)
    assert elapsed_ps(shared.program) < 0.4 * elapsed_ps(program)
    assert "cb_nodes" in shared.action


def test_halving_keeps_the_bytes_of_an_allreduce() -> None:
    program = program_of(SUMMED)
    halved = rewritten("halving-allreduce", program).program
    before, after = (int(each.traffic_matrix()[2].sum()) for each in (program, halved))
    assert after == before == 2 * 2 * 7 * 100_003
    # Six steps in place of fourteen.
    rows = slice(*halved.rank_start[:2].astype(int))
    assert int((halved.kind[rows] == Op.ISEND).sum()) == 2 * 6


def test_doubling_keeps_the_bytes_of_an_allgather() -> None:
    program = program_of(GATHERED)
    doubled = rewritten("doubling-allgather", program).program
    before, after = (int(each.traffic_matrix()[2].sum()) for each in (program, doubled))
    assert after == before == 2 * 8 * 7 * 100_003
    # Three steps in place of four: of one, two and four blocks.
    rows = slice(*doubled.rank_start[:2].astype(int))
    sends = doubled.amount[rows][doubled.kind[rows] == Op.ISEND]
    assert sends.tolist() == 2 * [100_003, 200_006, 400_012]


@pytest.mark.parametrize("ranks", [4, 8, 11, 16])
def test_binary_tree_sends_a_broadcast_once_to_each(ranks: int) -> None:
    options = {**SPREAD, "ranks": ranks}
    tree = rewritten("binary-broadcast", program_of(options)).program
    src, dst, size = tree.traffic_matrix()[:3]
    assert (size == 2 * 100_003).all() and sorted(dst.tolist()) == list(range(1, ranks))
    children = np.bincount(src, minlength=ranks)
    assert children.max() == 2 and children[0] == 2
    if ranks == 16:
        below_three = sorted(
            to for of, to in zip(src.tolist(), dst.tolist(), strict=True) if of == 3
        )
        assert below_three == [7, 11]


def test_rotation_sends_every_rank_elsewhere_first() -> None:
    program = build(LOOP, None, 1)
    rotated = rewritten("rotated-order", program)
    first = {}
    for i in np.flatnonzero(rotated.program.kind == Op.ISEND):
        first.setdefault(int(rotated.program.op_rank[i]), int(rotated.program.peer[i]))
    assert first == {rank: (rank + 1) % 9 for rank in range(9)}
    assert elapsed_ps(rotated.program) < 0.6 * elapsed_ps(program)


def relay(between: str) -> Program:
    """Every rank sends to the first seven others, and after ``between`` to the rest."""
    builder = ProgramBuilder("relay", 16)
    label = builder.label(Label("out", "MPI_Isend", 1))
    back = builder.label(Label("back", "MPI_Isend", 2))
    for rank in range(16):
        others = [peer for peer in range(16) if peer != rank]
        for peer in others:
            builder.irecv(rank, peer, 1024, 1, label)
        token = builder.irecv(rank, (rank + 1) % 16, 8, 2, back)
        builder.isend(rank, (rank - 1) % 16, 8, 2, back)
        for place, peer in enumerate(others):
            if place == 7 and between == "receive":
                builder.wait(rank, token)
            if place == 7 and between == "compute":
                builder.compute(rank, 5)
            builder.isend(rank, peer, 1024, 1, label)
        builder.waitall(rank)
    return builder.build()


@pytest.mark.parametrize("between", ["receive", "compute"])
def test_no_send_goes_before_what_it_depends_on(between: str) -> None:
    """The first seven sends of a rank stay its first seven."""

    def first(program: Program, count: int) -> list[set[int]]:
        out = []
        for rank in range(16):
            ops = slice(int(program.rank_start[rank]), int(program.rank_start[rank + 1]))
            mine = (program.kind[ops] == Op.ISEND) & (program.tag[ops] == 1)
            out.append({int(p) for p in program.peer[ops][mine][:count]})
        return out

    program = relay(between)
    rotated = rewritten("rotated-order", program, ("out",)).program
    assert first(rotated, 7) == first(program, 7)
    assert first(rotated, 1) != first(program, 1)
    free = rewritten("rotated-order", relay("nothing"), ("out",)).program
    assert first(free, 7) != first(program, 7)


def test_messages_that_differ_are_no_sum() -> None:
    program = build(NAIVE, None, 1)
    sends = np.flatnonzero(program.kind == Op.ISEND)
    amount = program.amount.copy()
    amount[sends[0]] += 1
    with pytest.raises(DoesNotApplyError, match="differ in size"):
        rewritten("tree-reduce", replace(program, amount=amount))


def crowd_and_pair() -> Program:
    """Ranks 1 to 12 send 512 KiB each to rank 0; 13 sends one message after the other to 14."""
    builder = ProgramBuilder("crowd", 16)
    into = builder.label(Label("crowd", "MPI_Isend", 1))
    beside = builder.label(Label("pair", "MPI_Isend", 2))
    for rank in range(1, 13):
        builder.irecv(0, rank, 1 << 19, 1, into)
        builder.isend(rank, 0, 1 << 19, 1, into)
    for _ in range(4):
        builder.wait(13, builder.isend(13, 1, 1 << 18, 2, beside))
        builder.irecv(1, 13, 1 << 18, 2, beside)
    for rank in range(16):
        builder.waitall(rank)
    return builder.build()


def test_turns_let_others_by() -> None:
    """Rank 13 sends to rank 1, beside the crowded rank 0: it stands in the crowd's queue."""
    scenario = parse(
        {
            "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 4}},
            "job": [{"pattern": {"kind": "ring", "ranks": 16, "size": "1 KiB"}}],
            "engine": {"eager": "1 GiB", "buffer": "16 KiB"},
        }
    )
    prepared = prepare(scenario)
    program = crowd_and_pair()
    taking_turns = rewritten("taken-turns", program, ("crowd",)).program

    def over(each: Program) -> tuple[int, int]:
        """When the pair is through, and when the crowd is."""
        run = make_evaluate(prepared)(Change(program=each))
        arrival = run.tables["messages"].group_by("dst_rank").agg(pl.col("arrival_ps").max())
        by = dict(arrival.rows())
        return by[1], by[0]

    (pair, crowd), (beside, turns) = over(program), over(taking_turns)
    assert beside < 0.75 * pair
    # And the crowd takes what its link takes.
    assert turns < 1.05 * crowd


def test_a_barrier_keeps_phases_apart() -> None:
    """Nobody starts a phase before everybody's messages of the one before have arrived."""
    options = {**STENCIL, "dims": [4, 4], "post": "all"}
    synchronised = rewritten("synchronised-phases", build(options, None, 1)).program
    fabric = fat_tree(FatTree(hosts_per_leaf=4, leaves=4, aggregation=4))
    node = np.arange(16, dtype=np.uint32)
    times = simulate_program(network_of(fabric, node.tolist()), synchronised, node)
    labels = np.array([label.phase for label in synchronised.labels])[times.messages["label"]]
    ends = [times.messages["arrival_ps"][labels == p].max() for p in ("+x", "-x", "+y", "-y")]
    starts = [times.messages["post_ps"][labels == p].min() for p in ("+x", "-x", "+y", "-y")]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False))


def test_parts_go_through_all_phases_before_the_next() -> None:
    split = rewritten("small-phases", build({**STENCIL, "dims": [4, 4]}, None, 1)).program
    ops = slice(int(split.rank_start[5]), int(split.rank_start[6]))
    mine = split.kind[ops] == Op.ISEND
    order = [split.labels[i].phase for i in split.label[ops][mine]]
    assert order == ["+x", "-x", "+y", "-y"] * 4


def test_memory_of_orders_grows_with_messages() -> None:
    """Not with ranks times waits, which are 64 billion in a miniGhost of 32,768 ranks."""

    def bytes_per_operation(rows: int) -> float:
        grid: Options = {**STENCIL, "dims": [8, rows], "post": "all"}
        program = repeat(build(grid, None, 1), 8)
        tracemalloc.start()
        rewritten("mirrored-order", program)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak / len(program.kind)

    assert bytes_per_operation(64) < 1.5 * bytes_per_operation(16)
