"""Perimeter bounds of leaf-sized tiles and Figure 4.8 of Taffet (2019), section 4.2.3, exactly.

    python -m studies.taffet2019.polyominoes --write

A leaf switch serves the ranks of a shape of unit squares on the stencil's grid, and each unit of
its perimeter inside the grid is a message that leaves the leaf. The thesis bounds the perimeter P
of a shape of area A by a circle's and by a square's. Here every polyomino of a small area is
enumerated (Redelmeier, 1981), and the least perimeter is compared with the closed form 2⌈2√A⌉
(Harary and Harborth, 1976). For 32 nodes a leaf the messages of the tiled mapping are also counted
in a simulation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import polars as pl

from studies.conformance.compare import scenario
from studies.taffet2019.reproduction import Row, run, state_agreement, table
from tailback import simulate

Cell = tuple[int, int]
Shape = frozenset[Cell]

GRID = (64, 72)
LEAF_NODES = 32
LARGEST_ENUMERATED = 10
MESSAGE_BYTES = 128 * 1024


def polyominoes(area: int) -> Iterator[Shape]:
    """Every fixed polyomino of an area once: rotations and reflections count as different."""
    yield from _grown((), [(0, 0)], {(0, 0)}, area)


def _grown(
    cells: tuple[Cell, ...], untried: list[Cell], seen: set[Cell], area: int
) -> Iterator[Shape]:
    untried = list(untried)
    while untried:
        cell = untried.pop()
        grown = (*cells, cell)
        if len(grown) == area:
            yield frozenset(grown)
            continue
        # Cells below the first one, or before it in its row, belong to another placement.
        fresh = [c for c in neighbours(cell) if c not in seen and (c[1], c[0]) >= (0, 0)]
        yield from _grown(grown, untried + fresh, seen | set(fresh), area)


def neighbours(cell: Cell) -> list[Cell]:
    """The four cells that share an edge with one."""
    x, y = cell
    return [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]


def perimeter(shape: Shape) -> int:
    """Unit edges between a cell of the shape and one outside."""
    return sum(other not in shape for cell in shape for other in neighbours(cell))


def least_perimeter(area: int) -> int:
    """Least perimeter of all polyominoes of an area: 2⌈2√A⌉, in integers."""
    return 2 * (math.isqrt(4 * area - 1) + 1)


def best_rectangle(area: int) -> int:
    """Least perimeter of a rectangle of whole sides: the naive approach of the thesis."""
    return min(2 * (side + area // side) for side in range(1, area + 1) if area % side == 0)


def leaving(perimeters: int) -> int:
    """Messages that leave a leaf, from the perimeters of all shapes together.

    The border of the grid is part of them exactly once, and nobody is behind it.
    """
    return perimeters - 2 * sum(GRID)


def simulated(case: str) -> int:
    """Messages that left a leaf in a simulated round of the stencil."""
    setup = scenario(case)
    setup.engine.packet = 4096  # how much leaves does not depend on it, and large ones are faster
    simulation = simulate(setup)
    up = simulation.tables["links"].filter((pl.col("direction") == "up") & (pl.col("tier") == 1))
    packets = simulation.tables["truth"].join(up, on="link", how="semi")["observed_packets"].sum()
    messages, remainder = divmod(int(packets) * setup.engine.packet, MESSAGE_BYTES)
    if remainder:
        raise SystemExit(f"{packets} packets left leaves: no whole number of messages")
    return messages


def drawing(shape: Shape) -> str:
    """A shape in characters."""
    wide, high = (max(cell[axis] for cell in shape) + 1 for axis in (0, 1))
    low = min(cell[0] for cell in shape)
    return "\n".join(
        "".join("■" if (x, y) in shape else " " for x in range(low, wide)).rstrip()
        for y in range(high)
    )


def bounds() -> list[Row]:
    """Rows that need no simulation."""
    five = Counter(perimeter(shape) for shape in polyominoes(5))
    checked = all(
        min(map(perimeter, polyominoes(area))) == least_perimeter(area)
        for area in range(1, LARGEST_ENUMERATED + 1)
    )
    if not checked:
        raise SystemExit("the closed form of the least perimeter is wrong")
    worse = [area for area in range(1, 65) if best_rectangle(area) > least_perimeter(area)]
    circle, square = 2 * math.sqrt(math.pi), 4 * math.sqrt(5)
    return [
        Row(
            "circle: P ≥ c √A", "3.54", f"{circle:.4f}", state_agreement(f"{circle:.2f}" == "3.54")
        ),
        Row(
            "square: P at area 5",
            "≥ 8.9",
            f"≥ {square:.3f}",
            state_agreement(f"{square:.1f}" == "8.9"),
        ),
        Row(
            "rectangle of area 5",
            "12",
            str(best_rectangle(5)),
            state_agreement(best_rectangle(5) == 12),
            "5 × 1 is the only one",
        ),
        Row(
            "Figure 4.8: least P at area 5",
            "10",
            str(min(five)),
            state_agreement(min(five) == 10),
            f"all {sum(five.values())} placements of 5 squares: {five[min(five)]} have "
            f"P = {min(five)}, and they are one shape, turned and mirrored; the others "
            f"have {max(five)}",
        ),
        Row(
            "naive approach (best rectangle) “not always optimal”",
            "area 5",
            f"{len(worse)} of the areas 1–64",
            "–",
            f"least P is 2⌈2√A⌉, equal to enumeration up to area {LARGEST_ENUMERATED}; the first "
            f"are {', '.join(map(str, worse[:4]))}",
        ),
        Row(
            "8 × 4 rectangle, area 32: P",
            "“fairly well”",
            f"{best_rectangle(32)}",
            "–",
            f"the square bound is {4 * math.sqrt(32):.2f}; no shape of 32 squares has less than "
            f"{least_perimeter(32)}, so no mapping lets fewer messages leave the leaves",
        ),
    ]


def counted() -> list[Row]:
    """Rows of the mappings: formula against simulation."""
    leaves = GRID[0] * GRID[1] // LEAF_NODES
    rows = []
    for name, case, each in (
        ("tiled 8 × 4", "tiled", best_rectangle(LEAF_NODES)),
        ("row-major, 32 × 1", "row-major", 2 * (LEAF_NODES + 1)),
    ):
        expected, count = leaving(leaves * each), simulated(case)
        rows.append(
            Row(
                f"messages of a round that leave a leaf, {name}",
                "“proportional to P”",
                f"{count:,}",
                "none" if count == expected else f"{count - expected:+}",
                f"formula: {leaves} × {each} − {2 * sum(GRID)} for the border = {expected:,}",
            )
        )
    return rows


def figure() -> str:
    """Figure 4.8: the shape of area 5 with the least perimeter, as enumerated."""
    return drawing(next(s for s in polyominoes(5) if perimeter(s) == least_perimeter(5)))


def page() -> str:
    """The part of the page."""
    return f"{table(bounds() + counted())}\n\n```text\n{figure()}\n```"


if __name__ == "__main__":
    run(__doc__ or "", "polyominoes", page)
