"""The state of every switch port, asked a few at a time between sweeps.

A discovery of a large subnet takes seconds, so it is not repeated in order to see whether a link
went down. PortInfo of a port tells it with one request, by the address of its switch. The requests
are spread evenly over the period.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailback.collector import mad as mads
from tailback.collector.exchange import MadExchange, Request
from tailback.port_counters.changes import PortKey
from tailback.port_counters.targets import Subnet

State = tuple[bool, int, float]
"""Whether the link is in use, its lanes, and its rate in Gb/s."""

_DOWN: Final[State] = (False, 0, 0.0)


class StatePoll:
    """Asks for the states of switch ports and tells whether one has changed.

    Args:
        exchange: Where requests go.
        period_ns: Time in which every port is asked once, nanoseconds; None never.
        clock: Monotonic clock in nanoseconds.
    """

    def __init__(
        self, exchange: MadExchange, period_ns: int | None, clock: Callable[[], int]
    ) -> None:
        self._exchange, self._period_ns, self._clock = exchange, period_ns, clock
        self._ports: list[tuple[int, PortKey]] = []
        self._states: dict[PortKey, State] = {}
        self._next = 0
        self._asked_ns = clock()

    def watch(self, subnet: Subnet) -> None:
        """Ask for the ports of these switches from now on."""
        # What the discovery saw is newer than what a port answered before.
        self._states = {key: (True, *rate) for key, rate in subnet.active.items()}
        numbers: dict[tuple[int, int], set[int]] = {}
        for target in subnet.targets:
            if target.switch:
                key = target.guid, target.port
                self._states.setdefault(key, (True, target.lanes, target.gbps))
                numbers.setdefault((target.lid, target.guid), set()).add(target.port)
        ports = []
        for (lid, guid), mine in sorted(numbers.items()):
            count = subnet.switch_ports.get(guid)
            all_ports = sorted(mine) if count is None else range(1, count + 1)
            ports += [(lid, (guid, port)) for port in all_ports]
        # Neighbouring entries are of different switches, as in a sweep.
        self._ports = sorted(ports, key=lambda port: (port[1][1], port[0]))
        self._next = 0

    def step(self) -> bool:
        """Ask for the ports that are due. Returns whether a state differs from the one before."""
        if not self._ports or self._period_ns is None:
            return False
        now = self._clock()
        count = (now - self._asked_ns) * len(self._ports) // self._period_ns
        if not count:
            return False
        self._asked_ns = now
        for _ in range(min(count, len(self._ports))):
            lid, key = self._ports[self._next]
            self._next = (self._next + 1) % len(self._ports)
            request = mads.subnet_get(mads.PORT_INFO, key[1])
            self._exchange.submit(Request(lid, mads.CLASS_SUBNET, lid, request, key))
        changed = False
        for reply in self._exchange.results():
            if reply.mad is None or reply.request.mad_class != mads.CLASS_SUBNET:
                continue
            info = mads.port_info(reply.mad)
            state = (True, info.lanes, info.gbps or 0.0) if info.active else _DOWN
            changed |= self._states.get(reply.request.tag, _DOWN) != state
            self._states[reply.request.tag] = state
        return changed
