"""Distributed single application assignment in packets, beside the formula (Birk and Zdornov 2009).

    python -m studies.birk_zdornov2009.distributed --write

Links store the weight of their flows, first packets announce flows, and probes carry the share of
the heaviest link back (``congestion_control.scheme = "assignment"``). The slides say that "it takes
each flow a single probing to acquire the final rate": with a probe every n packets, a flow has a
wrong rate for about n packets after all have announced themselves.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from measuring import put
from studies.birk_zdornov2009.packet_rates import (
    PACKET,
    PAGE,
    Network,
    elastic,
    network,
    permutations,
    realised,
)
from tailback.simulation import CongestionSchemeSettings, CongestionSettings

COPIES = (1, 4, 8)
SEEDS = (1, 2, 3, 4)
PACKETS = 512
BUFFER = 16
PROBES = (1, 8, 64, PACKETS)
"""A probe every so many packets; the last: only the first packet."""


@dataclass(frozen=True)
class Row:
    """Means over the runs; ``worst`` is the worst flow of each."""

    copies: int
    rates: str
    time: float
    mean: float
    worst: float
    fastest: float


def distributed(probe_every: int) -> CongestionSettings:
    """Rates by the weight of links."""
    return CongestionSettings(
        CongestionSchemeSettings("assignment"),
        threshold_bytes=0,
        marking_rate=probe_every - 1,
        packet_bytes=0,
        victims=False,
        increase=1,
        limit=1,
        timer_ps=1,
        table=[0],
    )


def measure(nets: list[Network], copies: int, probe_every: int | None) -> Row:
    """One row: rates of the formula, or of probes."""
    figures = []
    for net in nets:
        plan = net.assigned()
        common = {"buffer_bytes": BUFFER * PACKET, **elastic(25)}
        if probe_every is None:
            run = net.run(plan.rate_gbps, **common)
        else:
            run = net.run(congestion_control=distributed(probe_every), **common)
        ratio = realised(run, plan.rate_gbps)
        time = run.elapsed_ps / 1000 / plan.completion_ns
        figures.append((time, ratio.mean(), ratio.min(), ratio.max()))
    rates = "formula" if probe_every is None else f"probe every {probe_every} packets"
    rates = "probe in the first packet alone" if probe_every == PACKETS else rates
    return Row(copies, rates, *(float(value) for value in np.mean(figures, axis=0)))


def rows(
    seeds: tuple[int, ...] = SEEDS,
    copies: tuple[int, ...] = COPIES,
    probes: tuple[int, ...] = PROBES,
) -> list[Row]:
    """Every number of permutations by every kind of rates."""
    out = []
    for n in copies:
        nets = [network(permutations(n, seed, PACKETS * PACKET)) for seed in seeds]
        out += [measure(nets, n, probe) for probe in (None, *probes)]
    return out


def table(measured: list[Row]) -> str:
    """Markdown."""
    lines = [
        "| permutations | rates | time over W | realised over computed, mean | worst | fastest |",
        "|---" * 6 + "|",
    ]
    for row in measured:
        lines.append(
            f"| {row.copies} | {row.rates} | {row.time:.3f} | {row.mean:.2f} | {row.worst:.2f} | "
            f"{row.fastest:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table; write it on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    text = table(rows())
    print(text)
    if arguments.write:
        put(PAGE, {"distributed": text})


if __name__ == "__main__":
    main()
