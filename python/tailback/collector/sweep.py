"""The plan *sweep*: reads every port of every device at a fixed interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailback.collector.exchange import MadExchange
from tailback.collector.readings import PortReader
from tailback.port_counters.targets import PortTarget

Take = Callable[[tuple[int, ...]], None]
"""Takes a reading: a row of ``readings.RAW``."""

Fail = Callable[[PortTarget, str], None]
"""Takes a failed reading: the port and the reason."""


def spread(targets: Sequence[PortTarget]) -> list[int]:
    """Order the targets so that consecutive ones belong to different devices.

    The first port of each device comes first, then the second of each: requests in flight then go
    to different devices, and no device gets bursts.
    """
    turn: dict[int, int] = {}
    order = []
    for index, target in enumerate(targets):
        turn[target.lid] = turn.get(target.lid, -1) + 1
        order.append((turn[target.lid], index))
    return [index for _, index in sorted(order)]


def sweep(
    reader: PortReader,
    exchange: MadExchange,
    order: Sequence[int],
    take: Take,
    fail: Fail,
    stopped: Callable[[], bool],
) -> int:
    """Read every target once.

    Args:
        reader: Sends the requests and combines the answers.
        exchange: Where its requests go.
        order: Targets in the order in which they are read.
        take: Gets every reading.
        fail: Gets every reading that failed.
        stopped: Checked regularly; when true the sweep ends early.

    Returns:
        The number of readings taken.
    """
    exchange.reset_unresponsive()
    taken = 0
    ahead = iter(order)
    left = True
    queued = 0
    while left or exchange.busy:
        if left and stopped():
            left = False
        # A short queue, so that a stop takes effect soon.
        while left and queued < 256:
            index = next(ahead, None)
            if index is None:
                left = False
                break
            reader.ask(index)
            queued += 1
        for reply in exchange.step(100):
            outcome = reader.take(reply)
            if outcome is None:
                continue
            queued -= 1
            if isinstance(outcome, str):
                fail(reader.targets[reply.request.tag[0]], outcome)
            else:
                take(outcome)
                taken += 1
    return taken
