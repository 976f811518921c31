"""“Up to 13 %” and “up to 50 %” of Birk and Zdornov (2009) in every sense the slides allow.

    python -m studies.birk_zdornov2009.improvement --write

The slide gives the gain of rates (SAA) and of rates with adaptive routing (SAA+AR) over no control
with oblivious routing, as the largest over a varying number of superposed permutations. It does not
say whether a gain is time saved or speed gained, when the default port is "the best choice", or how
many permutations there were. Every combination is computed, and the 25 % example of the slides.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

import numpy as np

from measuring import put
from studies.birk_zdornov2009.packet_rates import PAGE
from studies.birk_zdornov2009.permutations import completion
from studies.birk_zdornov2009.permuted_flows import (
    KaryTree,
    TreeRouting,
    permutation_congestion,
    rounds_to_completion,
)
from studies.taffet2019.reproduction import Row, state_agreement, table
from tailback.fluid import FlowPaths
from tailback.units import percent

COPIES: Final = tuple(range(1, 9))
RUNS: Final = 50
PERMUTATIONS: Final = 1000
"""As many as the slides had."""
BUFFER: Final = 8
ROUTINGS: Final = {"margin 1": "adaptive, width 2", "margin 2": "adaptive, width 2, margin 2"}
PLAIN: Final = "oblivious, plain"
Times = dict[tuple[int, str], dict[str, float]]


def measured(copies: Sequence[int] = COPIES, runs: int = RUNS) -> Times:
    """Completion by number of permutations and routing: no control, paced, assignment."""
    times: Times = {}
    for number in copies:
        for row in completion(number, runs, BUFFER, seed=1):
            values = {key: float(row[key]) for key in ("no_control", "paced", "assignment")}  # type: ignore[arg-type]
            times[number, str(row["routing"])] = values
    return times


def gain(before: float, after: float, sense: str) -> float:
    """Time saved, or speed gained, as a share."""
    return 1 - after / before if sense == "time saved" else before / after - 1


def largest(times: Times, routing: str, key: str, sense: str, least: int) -> tuple[float, int]:
    """Largest gain over no control on the plain tree, and at how many permutations."""
    return max(
        (gain(times[n, PLAIN]["no_control"], values[key], sense), n)
        for (n, name), values in times.items()
        if name == routing and n >= least
    )


def congestion_rows(runs: int = PERMUTATIONS) -> list[Row]:
    """Congestion of a random permutation at width 2 against the plain tree, oblivious."""
    plain = permutation_congestion(KaryTree(), TreeRouting(adaptive=False), runs, seed=1)
    extra = KaryTree(width=2).extra_ports
    out = [
        Row(
            "additional ports at width 2",
            "about 10 %",
            percent(extra, 1),
            f"{100 * extra - 10:+.1f} points",
            "counted on the 16-ary 3-tree",
        )
    ]
    for margin in (1, 2):
        wide = permutation_congestion(KaryTree(width=2), TreeRouting(margin=margin), runs, seed=1)
        most, mean = (
            float(getattr(wide, name).mean() / getattr(plain, name).mean() - 1)
            for name in ("max", "mean")
        )
        out.append(
            Row(
                f"AR, width 2, margin {margin}: maximum and average congestion",
                "about −50 %, −20 %",
                f"{percent(most, sign='+')}, {percent(mean, sign='+')}",
                f"{100 * most + 50:+.0f}, {100 * mean + 20:+.0f} points",
                f"{runs} permutations, as theirs",
            )
        )
    return out


def rows(times: Times) -> list[Row]:
    """Every sense of the slide's two figures, and of the damage that AR alone does."""
    out = congestion_rows()
    for sense in ("time saved", "speed gained"):
        share, at = largest(times, PLAIN, "paced", sense, 1)
        out.append(
            Row(
                f"SAA, {sense}",
                "up to 13 %",
                f"up to {percent(share)} ({at} permutations)",
                f"{100 * share - 13:+.0f} points",
                f"1 to {COPIES[-1]} permutations, {RUNS} runs each, as theirs",
            )
        )
        for words, routing in ROUTINGS.items():
            for least in (1, 2):
                share, at = largest(times, routing, "paced", sense, least)
                out.append(
                    Row(
                        f"SAA+AR, {sense}, {words}, from {least} permutation{'s' * (least > 1)} on",
                        "up to 50 %",
                        f"up to {percent(share)} ({at})",
                        f"{100 * share - 50:+.0f} points",
                        "",
                    )
                )
    for words, routing in ROUTINGS.items():
        damage = min(
            (gain(times[n, PLAIN]["no_control"], values["no_control"], "time saved"), n)
            for (n, name), values in times.items()
            if name == routing
        )
        out.append(
            Row(
                f"AR without rate control, {words}: worst",
                "“can cause damage”",
                f"{percent(-damage[0], sign='+')} time ({damage[1]} permutations)",
                state_agreement(damage[0] < 0),
                "",
            )
        )
    free, paced = spreading()
    out.append(
        Row(
            "slide “congestion spreading”: over the optimum, any buffer",
            "+25 %",
            f"{percent(free - 1, sign='+')} without, {percent(paced - 1, sign='+')} with rates",
            state_agreement(abs(free - 1.25) < 0.01),
            "two flows and a pair into one link, three more beside the pair; buffers 2, 8, 32",
        )
    )
    return out


def spreading(buffers: tuple[int, ...] = (2, 8, 32), cells: int = 2000) -> tuple[float, float]:
    """Time over the optimum of 4 flows, without control and with rates: worst of the buffers."""
    names = ["a1", "a2", "a3", "b1", "b2", "b3", "b4", "m", "k", "h", "d1", "d2", "d3"]
    link = {name: number for number, name in enumerate(names)}
    flows = ["a1 h", "a2 h", "a3 k h", "b4 m k h", "b1 m d1", "b2 m d2", "b3 m d3"]
    paths = FlowPaths.of([[link[name] for name in flow.split()] for flow in flows])
    optimum = 4 * cells
    both = [
        [
            float(np.max(rounds_to_completion(len(names), paths, cells, buffer, assigned=assigned)))
            / optimum
            for buffer in buffers
        ]
        for assigned in (False, True)
    ]
    return max(both[0]), max(both[1])


def superposed_table(times: Times) -> str:
    """Times of every number of permutations; in brackets against oblivious without control."""
    cases = {PLAIN: "oblivious", **{routing: words for words, routing in ROUTINGS.items()}}
    heads = [f"{words}, {way}" for words in cases.values() for way in ("no control", "assigned")]
    lines = [f"| | {' | '.join(heads)} | `W` of the three |", "|---" * (len(heads) + 2) + "|"]
    for number in sorted({copies for copies, _ in times}):
        before = times[number, PLAIN]["no_control"]
        cells = []
        for routing in cases:
            for key in ("no_control", "paced"):
                value = times[number, routing][key]
                change = f" ({percent(value / before - 1, sign='+')})" if value != before else ""
                cells.append(f"{value:.1f}{change}")
        bounds = ", ".join(f"{times[number, routing]['assignment']:.1f}" for routing in cases)
        lines.append(f"| {number} | {' | '.join(cells)} | {bounds} |")
    return "\n".join(lines)


def main() -> None:
    """Print the tables; write them on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    times = measured()
    parts = {"superposed": superposed_table(times), "slides improvement": table(rows(times))}
    print("\n\n".join(parts.values()))
    if arguments.write:
        put(PAGE, parts)


if __name__ == "__main__":
    main()
