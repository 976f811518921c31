"""The size of coarse packets that fits the messages of a program (``coarse = "auto"``)."""

from __future__ import annotations

from tailback.scenario.model import Scenario
from tailback.traffic.program import Program
from tailback.units import exact_bytes

FEWEST_PACKETS = 64
"""Packets that a message needs so that coarse ones keep the order of placements: of 8, 16, 32 and
64, the first whose rank correlation with full grain is 0.95
(docs/measurements/approximations.md)."""

MOST_BYTES = 0.99
"""Share of the bytes that has to be in messages of so many packets: a tenth in messages of fewer
costs rank correlation (docs/measurements/approximations.md)."""

LARGEST = 64 << 10
"""Largest size whose errors are measured."""


def fitting_size(program: Program, packet: int) -> int | None:
    """The largest coarse packets of which messages have enough; None if that is none.

    Args:
        program: What all ranks do.
        packet: Payload of a full packet of the network, bytes.

    Returns:
        ``packet`` times a power of two, at most 64 KiB, such that messages of 64 packets or more
        carry 99 % of the bytes.
    """
    sizes = program.amount[program.sends]
    enough = MOST_BYTES * float(sizes.sum())
    found, size = None, 2 * packet
    while size <= LARGEST and 0 < enough <= float(sizes[sizes >= FEWEST_PACKETS * size].sum()):
        found, size = size, 2 * size
    return found


def with_fitting_packets(scenario: Scenario, program: Program) -> tuple[Scenario, list[str]]:
    """The scenario with a size in place of ``coarse = "auto"``, and a note if there is none."""
    if scenario.engine.coarse != "auto":
        return scenario, []
    packet = scenario.engine.packet
    size = fitting_size(program, packet)
    engine = scenario.engine.model_copy(update={"coarse": size})
    notes = (
        []
        if size is not None
        else [
            f"coarse = auto: packets are of {exact_bytes(packet)}, as in the network, because too "
            f"many bytes are in messages below {exact_bytes(2 * packet * FEWEST_PACKETS)}"
        ]
    )
    return scenario.model_copy(update={"engine": engine}), notes
