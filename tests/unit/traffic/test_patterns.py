"""Every registered pattern keeps the rules of a program; each does what its page says."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tailback.errors import ScenarioError
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tailback.traffic import patterns
from tailback.traffic.patterns import PATTERNS, minighost
from tailback.traffic.program import Op, Program
from tests.factories.blocking import run_blocking
from tests.factories.repository import ROOT

build = partial(patterns.build, line_gbps=100.0)
LISTED = str(ROOT / "tests" / "unit" / "traffic" / "listed.csv")
STEP = {"activation": "64 KiB", "gradient": "128 KiB", "compute": "20 us"}
CASES: dict[str, list[dict[str, object]]] = {
    "stencil2d": [
        {"dims": [5, 4], "size": "8 KiB"},
        {"dims": [2, 3], "periodic": True, "post": "all", "boundary": "skip", "rounds": 2},
        {"dims": [4, 3], "post": "timed", "size": "4 KiB", "rounds": 2},
        {"dims": [1, 6], "periodic": True, "order": ["-y", "+y"], "compute": "3 us"},
        {"dims": [4, 3], "post": "delivered", "size": "4 KiB", "rounds": 2},
    ],
    "stencil3d": [
        {"dims": [3, 2, 4], "size": "8 KiB", "rounds": 2},
        {"dims": [2, 2, 3], "periodic": True, "post": "all", "sizes": ["1 KiB", "2 KiB", "3 KiB"]},
    ],
    "minighost": [
        {"dims": [3, 4, 2], "cells": [6, 4, 2], "variables": 3, "compute": "2 us"},
        {"dims": [3, 2, 2], "cells": [2, 3, 4], "variables": 2, "method": "svaf", "sums": "step"},
    ],
    "fft2d": [{"plane": [4, 3], "planes": 2, "size": "16 KiB", "compute": "1 us"}],
    "ring": [{"ranks": 7, "size": "1 KiB", "messages": 3}, {"ranks": 2, "size": "1 B"}],
    "permutation": [
        {"ranks": 17, "size": "1 KiB", "messages": 2, "post": "all"},
        {"ranks": 17, "size": "1 KiB", "messages": 2, "post": "delivered"},
    ],
    "uniform": [{"ranks": 19, "size": "1 KiB", "messages": 4}, {"ranks": 2, "size": "1 KiB"}],
    "paced": [
        {"ranks": 9, "size": "4 KiB", "load": 0.3, "duration": "20 us"},
        {"ranks": 8, "size": "8 KiB", "load": 0.5, "duration": "20 us", "servers": 2, "reads": 0.4},
    ],
    "timed": [
        {"ranks": 3, "messages": [[5_000, 0, 2, 64], [1_000, 0, 1, 8], [1_000, 2, 0, 9]]},
    ],
    "listed": [
        {"ranks": 3, "file": LISTED},
        {"ranks": 4, "file": LISTED, "post": "delivered"},
        {"ranks": 3, "file": LISTED, "post": "all"},
    ],
    "alltoall": [
        {"ranks": 13, "size": "100 B"},
        {"ranks": 9, "size": "1 KiB", "rounds": 2},
        {"ranks": 6, "size": "16 KiB", "compute": "1 us"},
    ],
    "alltoall-naive": [
        {"ranks": 7, "size": "2 KiB"},
        {"ranks": 5, "size": "1 KiB", "post": "all"},
    ],
    "reduce-naive": [{"ranks": 9, "root": 4, "arrays": 3}, {"ranks": 5, "post": "all"}],
    "reduce-tree": [{"ranks": 11, "root": 3, "arrays": 4}],
    "training": [
        {"data": 4, "tensor": 2, "expert": 2, **STEP},
        {"pipeline": 3, "layers": 3, "microbatches": 5, "steps": 2, **STEP},
        {"data": 2, "pipeline": 2, "layers": 4, "algorithm": "tree", "protocol": "ll", **STEP},
    ],
    "transpose": [
        {"dims": [4, 3], "size": "16 KiB"},
        {"dims": [4, 3], "size": "1 KiB", "axis": "y"},
    ],
}
RANDOM = {"paced", "permutation", "uniform"}
ALL = [
    pytest.param({"kind": kind, **options}, id=f"{kind}-{i}")
    for kind, several in CASES.items()
    for i, options in enumerate(several)
]


def test_every_registered_pattern_is_tested_here() -> None:
    assert sorted(CASES) == PATTERNS.names()


def columns(program: Program) -> dict[str, np.ndarray]:
    names = ("rank_start", "kind", "peer", "amount", "tag", "request", "label")
    return {name: getattr(program, name) for name in names}


def same(first: Program, second: Program) -> bool:
    return all(np.array_equal(a, columns(second)[name]) for name, a in columns(first).items())


def messages(program: Program, *, sent: bool) -> dict[tuple[int, int, int], list[tuple[int, int]]]:
    """(bytes, label) of the sends or receives of each (source, destination, tag), in order."""
    out = defaultdict(list)
    for i in np.flatnonzero(program.sends if sent else program.kind == Op.IRECV):
        here, there = int(program.op_rank[i]), int(program.peer[i])
        pair = (here, there) if sent else (there, here)
        out[(*pair, int(program.tag[i]))].append((int(program.amount[i]), int(program.label[i])))
    return out


@pytest.mark.parametrize("options", ALL)
def test_sends_match_receives_and_nothing_blocks(options: dict[str, object]) -> None:
    program = build(options, None, 7)
    assert messages(program, sent=True) == messages(program, sent=False)
    assert (program.op_rank[program.sends] != program.peer[program.sends]).all()
    assert program.sends.any()
    assert run_blocking(program)
    assert program.label.max() < len(program.labels)


@pytest.mark.parametrize("options", ALL)
def test_columns_have_the_types_of_the_contract(options: dict[str, object]) -> None:
    program = build(options, None, 7)
    types = {
        "rank_start": np.uint64,
        "kind": np.uint8,
        "peer": np.int32,
        "amount": np.uint64,
        "tag": np.int64,
        "request": np.int32,
        "label": np.uint32,
    }
    for name, dtype in types.items():
        assert columns(program)[name].dtype == dtype, name
    assert int(program.rank_start[-1]) == len(program.kind)


@pytest.mark.parametrize("options", ALL)
def test_a_seed_repeats_the_program(
    options: dict[str, object],
) -> None:
    first = build(options, None, 7)
    assert same(first, build(dict(options), None, 7))
    few = options.get("ranks") == 2
    changed = any(not same(first, build(options, None, seed)) for seed in range(8, 12))
    assert changed == (options["kind"] in RANDOM and not few)


def test_the_thesis_stencil_has_18160_messages() -> None:
    options: dict[str, object] = {"kind": "stencil2d", "dims": [64, 72], "size": "128 KiB"}
    program = build(options, None, 1)
    sends = program.kind == Op.ISEND
    assert program.n_ranks == 4608 and program.grid == (64, 72)
    assert int(sends.sum()) == 18160
    assert int(program.amount[sends].sum()) == 18160 * 131072
    # The 272 missing ones are waits of 131072 bytes at 100 Gb/s.
    waits = program.amount[program.kind == Op.COMPUTE]
    assert len(waits) == 272 and set(waits) == {10_485_760}
    assert int((build({**options, "periodic": True}, None, 1).kind == Op.ISEND).sum()) == 4 * 4608


def test_stencil_sends_in_sequence_by_direction() -> None:
    program = build({"kind": "stencil2d", "dims": [3, 3], "size": "1 KiB"}, None, 1)
    middle = slice(int(program.rank_start[4]), int(program.rank_start[5]))
    kinds = [Op(k).name for k in program.kind[middle]]
    assert kinds == ["IRECV"] * 4 + ["ISEND", "WAIT"] * 4 + ["WAITALL"]
    assert list(program.peer[middle])[:4] == [3, 5, 1, 7]
    assert list(program.peer[middle])[4:12:2] == [5, 3, 7, 1]
    assert list(program.tag[middle])[4:12:2] == [101, 102, 103, 104]
    assert list(program.request[middle]) == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, -1]
    assert [label.phase for label in program.labels] == ["+x", "-x", "+y", "-y"]
    ordered = build(
        {"kind": "stencil2d", "dims": [3, 3], "order": ["+y", "-x"], "post": "all"}, None, 1
    )
    sends = ordered.kind == Op.ISEND
    assert [int(t) for t in ordered.tag[sends & (ordered.op_rank == 4)]] == [103, 102]
    assert not (ordered.kind == Op.WAIT).any()


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "stencil2d", "dims": [3, 3], "size": "1 KiB"},
        {"kind": "ring", "ranks": 4, "size": "1 KiB", "messages": 2},
        {"kind": "alltoall-naive", "ranks": 4, "size": "1 KiB"},
        {"kind": "listed", "ranks": 3, "file": LISTED},
    ],
    ids=lambda options: options["kind"],
)
def test_posting_on_delivery_waits_for_synchronous_sends(options: dict[str, object]) -> None:
    usual = build({**options, "post": "sequence"}, None, 1)
    delivered = build({**options, "post": "delivered"}, None, 1)
    assert (usual.kind[usual.sends] == Op.ISEND).all()
    expected = np.where(usual.kind == Op.ISEND, Op.ISSEND, usual.kind)
    assert np.array_equal(delivered.kind, expected)
    assert np.array_equal(delivered.request, usual.request)
    assert {label.call for label in delivered.labels} <= {"MPI_Issend", "MPI_Ssend"}
    answered = build({**options, "post": "acknowledged"}, None, 1)
    expected = np.where(usual.kind == Op.ISEND, Op.ACKNOWLEDGED_SEND, usual.kind)
    assert np.array_equal(answered.kind, expected)
    assert answered.labels == delivered.labels


def test_listed_messages_keep_the_files_order() -> None:
    program = build({"kind": "listed", "ranks": 3, "file": LISTED}, None, 1)
    sends = np.flatnonzero(program.sends)
    sent = [(int(program.op_rank[i]), int(program.peer[i]), int(program.amount[i])) for i in sends]
    assert sent == [(0, 2, 64), (0, 1, 8), (1, 0, 5), (2, 1, 128)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("", "line 1: the first line is ''"),
        ("0,1,8\n", "line 1: the first line is '0,1,8'"),
        ("source,destination,bytes\n0,1,8\n0,3,8\n", "line 3: '0,3,8' is not a message"),
        ("source,destination,bytes\n1,1,8\n", "line 2: '1,1,8' is not a message"),
        ("source,destination,bytes\n0,1,0\n", "line 2: '0,1,0' is not a message"),
        ("source,destination,bytes\n0,1\n", "line 2: '0,1' is not a message"),
        ("source,destination,bytes\n0,x,8\n", "line 2: '0,x,8' is not a message"),
    ],
)
def test_a_list_that_is_none_names_its_line(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "list.csv"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        build({"kind": "listed", "ranks": 3, "file": str(file)}, None, 1)
    assert message in str(caught.value) and "list.csv" in str(caught.value) and caught.value.remedy


def test_boundary_skip_goes_straight_on() -> None:
    skip = build({"kind": "stencil2d", "dims": [3, 3], "boundary": "skip"}, None, 1)
    assert not (skip.kind == Op.COMPUTE).any()
    slow = build({"kind": "stencil2d", "dims": [3, 3], "line_rate": "25 Gb/s"}, None, 1)
    assert set(slow.amount[slow.kind == Op.COMPUTE]) == {4 * 10_485_760}


def test_stencil3d_has_six_faces_with_their_own_sizes() -> None:
    options = {"kind": "stencil3d", "dims": [4, 3, 2], "sizes": ["1 KiB", "2 KiB", "3 KiB"]}
    source, destination, size = build(options, None, 1).traffic_matrix()
    assert len(source) == 2 * (3 * 3 * 2 + 4 * 2 * 2 + 4 * 3 * 1)
    by_distance = {
        abs(int(d - s)): int(b) for s, d, b in zip(source, destination, size, strict=True)
    }
    assert by_distance == {1: 1024, 4: 2048, 12: 3072}


def test_ring_goes_to_the_left_neighbour() -> None:
    source, destination, size = build(
        {"kind": "ring", "size": "128 KiB", "messages": 3}, 5, 1
    ).traffic_matrix()
    assert list(zip(source, destination, strict=True)) == [(0, 4), (1, 0), (2, 1), (3, 2), (4, 3)]
    assert set(size) == {3 * 131072}


def test_uniform_avoids_itself_and_keeps_destinations() -> None:
    def sent(ranks: int, count: int) -> np.ndarray:
        program = build({"kind": "uniform", "size": "1 KiB", "messages": count}, ranks, 3)
        return program.peer[program.kind == Op.ISEND].reshape(ranks, count)

    assert np.array_equal(sent(50, 20)[:, :7], sent(50, 7))
    to = sent(50, 400)
    assert (to != np.arange(50)[:, None]).all()
    hits = np.bincount(to.ravel(), minlength=50)
    assert abs(hits - 400).max() < 5 * np.sqrt(400)


def test_permutation_receives_as_it_sends() -> None:
    source, destination, _ = build({"kind": "permutation", "size": "1 KiB"}, 40, 3).traffic_matrix()
    assert len(source) == 40 and set(destination) == set(range(40))
    other, away, _ = build(
        {"kind": "permutation", "size": "1 KiB", "stream": "another"}, 40, 3
    ).traffic_matrix()
    assert len(other) == 40 and not np.array_equal(destination, away)


@pytest.mark.slow
def test_reductions_move_equal_bytes_elsewhere() -> None:
    naive = build({"kind": "reduce-naive", "ranks": 1024}, None, 1)
    tree = build({"kind": "reduce-tree", "ranks": 1024}, None, 1)
    totals, into_root = [], []
    for program in (naive, tree):
        _, destination, size = program.traffic_matrix()
        totals.append(int(size.sum()))
        into_root.append(int(size[destination == 0].sum()))
    assert totals == [1023 * 50 * 4096] * 2
    assert into_root == [1023 * 50 * 4096, 10 * 50 * 4096]
    at_root = naive.kind[: int(naive.rank_start[1])]
    assert Counter(at_root.tolist()) == {Op.IRECV: 1023 * 50, Op.WAITALL: 1}


@pytest.mark.parametrize("block", ["100 B", "1 KiB", "16 KiB"])
def test_alltoall_is_the_shifted_schedule_of_every_rank(block: str) -> None:
    from tailback.traffic.collectives import schedule
    from tailback.units import parse_bytes

    size = parse_bytes(block)
    program = build({"kind": "alltoall", "ranks": 14, "size": block}, None, 1)
    for rank in range(14):
        steps = schedule("MPI_Alltoall", 14, rank, 0, size, size)
        mine = (program.op_rank == rank) & (program.kind == Op.ISEND)
        sends = list(zip(program.peer[mine].tolist(), program.amount[mine].tolist(), strict=True))
        assert sends == [send for step in steps for send in step.sends]


def test_transpose_stays_in_its_row_or_column() -> None:
    options: dict[str, object] = {"kind": "transpose", "dims": [4, 3], "size": "16 KiB"}
    source, destination, _ = build(options, None, 1).traffic_matrix()
    assert len(source) == 12 * 3 and (source // 4 == destination // 4).all()
    source, destination, _ = build({**options, "axis": "y"}, None, 1).traffic_matrix()
    assert len(source) == 12 * 2 and (source % 4 == destination % 4).all()


@pytest.mark.parametrize(
    ("options", "place", "message"),
    [
        ({"kind": "stencil2"}, "kind", "stencil2d"),
        ({"kind": 3}, "", "tailback list pattern"),
        ({"kind": "ring", "sizes": "1 KiB"}, "sizes", "'size'"),
        ({"kind": "ring", "size": 1024}, "size", "128 KiB"),
        ({"kind": "ring", "size": "1 KiB"}, "", "ranks = 128"),
        ({"kind": "ring"}, "size", "add it"),
        ({"kind": "ring", "size": "1 KiB", "ranks": 1}, "ranks", "greater than or equal to 2"),
        ({"kind": "stencil2d", "dims": [1, 1]}, "", "needs 2 or more"),
        ({"kind": "stencil2d", "dims": [4]}, "dims", "one number per axis"),
        ({"kind": "stencil2d", "dims": [10**6, 10**6]}, "dims", "smaller"),
        ({"kind": "stencil2d", "dims": [4, 4], "order": ["+z"]}, "order", "+x, -x"),
        ({"kind": "stencil2d", "dims": [4, 4], "order": ["+x", "+x"]}, "order", "twice"),
        ({"kind": "stencil3d", "dims": [2, 2, 2], "sizes": ["1 B"]}, "sizes", "one per axis"),
        ({"kind": "stencil2d", "dims": [4, 4], "boundary": "stop"}, "boundary", "'wait' or 'skip'"),
        ({"kind": "stencil2d", "dims": [4, 4], "line_rate": "0 Gb/s"}, "line_rate", "greater than"),
        ({"kind": "stencil2d", "dims": [4, 4], "line_rate": "1e-300 Gb/s"}, "line_rate", "53 days"),
        (
            {"kind": "paced", "ranks": 4, "size": "0 B", "load": 0.5, "duration": "1 us"},
            "size",
            "greater than 0",
        ),
        ({"kind": "reduce-naive", "ranks": 4, "root": 4}, "root", "0 to 3"),
        ({"kind": "alltoall", "ranks": 60000, "size": "16 KiB"}, "", "fewer ranks"),
        ({"kind": "reduce-naive", "ranks": 9, "arrays": 10**12}, "", "fewer ranks"),
        ({"kind": "uniform", "ranks": 9, "size": "1 B", "messages": 10**9}, "", "fewer ranks"),
    ],
)
def test_mistakes_name_place_and_remedy(
    options: dict[str, object], place: str, message: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        build(options, None, 1)
    text = str(caught.value)
    assert f"[job.pattern] {place}".rstrip() in text
    assert message in text and caught.value.remedy


def test_a_load_of_almost_nothing_sends_nothing() -> None:
    """No gap that is longer than any clock becomes a time before the beginning."""
    paced = {"kind": "paced", "size": "64 KiB", "load": 1e-300, "duration": "10 us", "ranks": 4}
    assert (build(paced, None, 1).kind == Op.WAITALL).all()


@pytest.mark.parametrize("name", PATTERNS.names())
def test_the_page_names_every_option(name: str) -> None:
    page = (ROOT / "docs" / "reference" / "traffic.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
    # Stencils have a table of their own, whose rows begin with the option.
    described = row + page.split("### Stencils")[1] if name.startswith("stencil") else row
    for option in PATTERNS[name].model_fields.keys() - {"kind"}:
        assert f"`{option}`" in described, option


@pytest.mark.parametrize("ranks", [1, 6, 8])
def test_random_digits_are_independent_of_batches(ranks: int) -> None:
    together, alone = (np.random.Generator(np.random.Philox(key=5)) for _ in range(2))
    digits = [alone.integers(0, 2, ranks, np.int8).astype(np.bool_) for _ in range(9)]
    assert np.array_equal(minighost.random_bits(together, 9, ranks), np.stack(digits))


TIMED_BY_LINE: list[dict[str, object]] = [
    {"kind": "stencil2d", "dims": [4, 4], "size": "1 MiB"},
    {"kind": "stencil3d", "dims": [4, 2, 2], "post": "timed"},
    {"kind": "paced", "ranks": 16, "size": "64 KiB", "load": 0.9, "duration": "100 us"},
]


@pytest.mark.parametrize("rate", ["25 Gb/s", "100 Gb/s", "1.6 Tb/s"])
@pytest.mark.parametrize("options", TIMED_BY_LINE)
def test_line_rate_follows_host_links(options: dict[str, object], rate: str) -> None:
    tree = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2, "host_rate": rate}
    programs = [
        prepare(parse({"fabric": {"fat_tree": tree}, "job": [{"pattern": pattern}]})).program
        for pattern in (options, options | {"line_rate": rate})
    ]
    assert np.array_equal(programs[0].amount, programs[1].amount)
    assert np.array_equal(programs[0].kind, programs[1].kind)


def test_unequal_host_links_are_noted(tmp_path: Path) -> None:
    rates = {"c0": 100, "c1": 100, "g0": 200, "g1": 200, "g2": 200}
    text = "".join(f"{host},s,{rate}\n" for host, rate in rates.items())
    (tmp_path / "links.csv").write_text("src,dst,rate_gbps\n" + text)
    note = "host links have 100, 200 Gb/s; line_rate of its pattern is {} Gb/s, that of most"
    for hosts, expected in (("c[0-1],g[0-2]", "200"), ("c[0-1],g[0-1]", "100")):
        job = {"pattern": TIMED_BY_LINE[2] | {"ranks": 2}, "hosts": hosts}
        data = {"fabric": {"file": str(tmp_path / "links.csv")}, "job": [job]}
        notes = " ".join(prepare(parse(data)).notes)
        assert note.format(expected) in notes
        job["pattern"]["line_rate"] = "1 Gb/s"  # type: ignore[index]
        assert "line_rate" not in " ".join(prepare(parse(data)).notes)


def test_pattern_without_fabric_needs_its_line_rate() -> None:
    with pytest.raises(ScenarioError, match="has no line rate"):
        patterns.build(TIMED_BY_LINE[0], None, 1)
