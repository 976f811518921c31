"""Every registered placement on every kind of fabric: valid, seed-stable, picky about options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailback.errors import PlacementError, TailbackError
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric
from tailback.placement import (
    PLACEMENTS,
    WRITERS,
    PlacementProblem,
    assign_slots,
    assignment_for,
    path_length,
    place,
    problem_for,
    write,
)
from tailback.traffic.program import Program
from tests.factories.placement_fabrics import fabric_of, pairs, regular, stencil
from tests.factories.repository import ROOT

CASES: dict[str, tuple[Fabric, Program, int | list[int]]] = {
    "even": (regular(8, 4, 4), stencil((8, 4)), 1),
    "more slots than ranks": (regular(8, 5, 4), stencil((6, 5)), 1),
    "unequal leaves": (
        fabric_of(
            [(leaf,) for leaf in range(5) for _ in range(2 + 3 * (leaf % 3))], [0, 0, 1, 1, 2]
        ),
        stencil((5, 4)),
        1,
    ),
    "two adapters on two leaves": (
        fabric_of([(2 * (h // 4), 2 * (h // 4) + 1) for h in range(12)], [0, 0, 0, 0, 1, 1]),
        stencil((6, 4, 2), periodic=True),
        4,
    ),
    "several ranks a host": (regular(4, 3, 2), stencil((6, 6)), 3),
    "unequal hosts": (regular(4, 3, 2), stencil((6, 6)), [1, 5, 3, 4, 2, 3, 6, 1, 1, 3, 4, 5]),
    "unequal hosts with two adapters": (
        fabric_of([(2 * (h // 4), 2 * (h // 4) + 1) for h in range(12)], [0, 0, 0, 0, 1, 1]),
        stencil((6, 6)),
        [1, 5, 3, 4, 2, 3, 6, 1, 1, 3, 4, 5],
    ),
    "one leaf": (regular(1, 9, 1), stencil((3, 3)), 1),
    "one rank": (regular(2, 2, 1), pairs(1, []), 1),
    "two ranks that are silent": (regular(2, 2, 1), pairs(2, []), 1),
}


def problem_of(case: str, seed: int = 7) -> PlacementProblem:
    fabric, program, per_host = CASES[case]
    return problem_for(fabric, program, list(range(fabric.n_hosts)), per_host, seed)


def options_of(name: str, problem: PlacementProblem, folder: Path) -> dict[str, object]:
    if name == "file":
        path = folder / "hosts"
        hosts = [problem.host_name[h] for h in problem.slot_host[: problem.n_ranks][::-1]]
        path.write_text("\n".join(hosts) + "\n")
        return {"file": str(path)}
    if name.startswith("tile") and not problem.grid:
        return {"grid": [problem.n_ranks]}
    return {}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PLACEMENTS.names())
def test_valid_and_seed_stable(name: str, case: str, tmp_path: Path) -> None:
    problem = problem_of(case)
    options = options_of(name, problem, tmp_path)
    slots = assign_slots(name, problem, options)
    assert slots.shape == (problem.n_ranks,)
    assert len(set(slots.tolist())) == problem.n_ranks
    assert slots.min() >= 0 and slots.max() < problem.n_slots
    again = problem_of(case)
    assert np.array_equal(slots, assign_slots(name, again, options))
    nodes = place(name, problem, options)
    assert nodes.dtype == np.uint32
    assert np.array_equal(nodes, problem.slot_node[slots])


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("unequal hosts")])
@pytest.mark.parametrize("name", PLACEMENTS.names())
def test_hosts_keep_their_own_slots(name: str, case: str, tmp_path: Path) -> None:
    """All 38 slots are there, no host has more ranks than its own, and rank files read back."""
    fabric, program, per_host = CASES[case]
    problem = problem_of(case)
    assert np.bincount(problem.slot_host).tolist() == per_host
    nodes = place(name, problem, options_of(name, problem, tmp_path))
    ranks = np.bincount(fabric.node_host[nodes], minlength=fabric.n_hosts)
    assert isinstance(per_host, list) and (ranks <= per_host).all()
    assignment = assignment_for(fabric, nodes, list(range(fabric.n_hosts)), per_host)
    assert assignment.slots == tuple(per_host)
    path = tmp_path / "ranks"
    for writer in ("openmpi", "openmpi-seq", "slurm", "mpich"):
        path.write_text(write(writer, assignment).text)
        back = place("file", problem, {"file": str(path)})
        assert np.array_equal(fabric.node_host[back], fabric.node_host[nodes]), writer
    assert program.n_ranks == 36


@pytest.mark.parametrize("name", PLACEMENTS.names())
def test_too_many_ranks(name: str) -> None:
    fabric = regular(2, 3, 1)
    problem = problem_for(fabric, stencil((4, 2)), list(range(6)), 1, 1)
    with pytest.raises(PlacementError, match="job has 8 ranks, the chosen hosts hold 6 slots"):
        place(name, problem)


@pytest.mark.parametrize("name", PLACEMENTS.names())
def test_unknown_option(name: str) -> None:
    with pytest.raises(PlacementError, match="no option 'colour'"):
        place(name, problem_of("even"), {"colour": 1})


@pytest.mark.parametrize("name", PLACEMENTS.names())
def test_has_a_summary(name: str) -> None:
    entry = next(e for e in PLACEMENTS if e.name == name)
    assert len(entry.summary) > 20


def test_unknown_placement_names_the_nearest() -> None:
    with pytest.raises(TailbackError, match="metis"):
        place("mettis", problem_of("even"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tile", {"tile": [4]}, "has 1 dimensions"),
        ("tile", {"tile": [0, 4]}, "whole numbers"),
        ("tile", {"grid": [5, 5]}, "holds 25 ranks"),
        ("tile2", {"tile": [2, 2]}, "only one of"),
        ("metis", {"refine": 1}, "true or false"),
        ("incremental", {"depth": 0}, "at least 1"),
        ("incremental", {"start": "incremental"}, "start from itself"),
        ("incremental", {"start": 3}, "not a placement"),
        ("incremental", {"start": [0] * 32}, "same slot"),
        ("incremental", {"start_options": 3}, "not a table"),
        ("incremental", {"congestion_weight": -1}, "at least 0"),
        ("file", {}, "needs the option file"),
        ("file", {"file": "no/such/file"}, "No such file"),
    ],
)
def test_wrong_options(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(PlacementError, match=message) as caught:
        place(name, problem_of("even"), options)
    assert caught.value.remedy


def test_tiling_needs_a_grid() -> None:
    program = pairs(8, [(0, 5, 10), (1, 7, 10), (2, 4, 900)])
    problem = problem_for(regular(4, 2, 2), program, list(range(8)), 1, 1)
    with pytest.raises(PlacementError, match="not a stencil"):
        place("tile", problem)


def test_a_wrong_part_is_caught() -> None:
    PLACEMENTS.register("broken")(lambda problem, options: np.zeros(problem.n_ranks, np.int64))
    try:
        with pytest.raises(PlacementError, match="same slot 0"):
            place("broken", problem_of("even"))
    finally:
        del PLACEMENTS._entries["broken"]


@pytest.mark.slow
@pytest.mark.data
def test_a_real_fabric_with_eight_rails() -> None:
    path = ROOT.parent / "shared/data/selene/selene.compute.txt"
    if not path.exists():
        pytest.skip("needs the public data set 'selene' beside the checkout")
    fabric = read_fabric(path)
    program = stencil((12, 16, 8))
    problem = problem_for(fabric, program, list(range(200)), 8, 1)
    block = path_length(fabric, program, place("block", problem))
    for name in ("metis", "incremental", "tile", "tile2"):
        nodes = place(name, problem)
        assert path_length(fabric, program, nodes) < block, name
        # Torchrun numbers the ranks of a host one after another.
        for writer in set(WRITERS.names()) - {"torchrun"}:
            assert write(writer, assignment_for(fabric, nodes, list(range(200)), 8)).text, writer
