"""A subnet made of Python: answers MADs as devices do, and misbehaves where a test asks for it."""

from __future__ import annotations

import errno
import heapq
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from tailback.collector import (
    Collection,
    CollectorSession,
    CollectorSettings,
    MadExchange,
    MetricsBoard,
)
from tailback.collector import mad as mads
from tailback.collector.umad import Answer

WIDE, NARROW = 0x1300, 0x1100
"""CapabilityMask with and without 64-bit counters; both announce PortXmitWait."""


WIDE_ERRORS = (
    "SymbolErrorCounter",
    "LinkErrorRecoveryCounter",
    "LinkDownedCounter",
    "PortRcvErrors",
    "PortRcvRemotePhysicalErrors",
    "PortRcvSwitchRelayErrors",
    "PortXmitDiscards",
    "PortXmitConstraintErrors",
    "PortRcvConstraintErrors",
    "LocalLinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors",
    "VL15Dropped",
)
"""Counters of errors in the order of PortCountersExtended."""
BITS = {
    name: 4 if name[:3] in ("Loc", "Exc") else 8 if name[:4] == "Link" or "Const" in name else 16
    for name in WIDE_ERRORS
}
"""Their widths in PortCounters, where they stop at all ones."""


def narrow_errors(errors: dict[str, int]) -> bytes:
    """Octets 4 to 23 of PortCounters; CounterSelect2 and QP1Dropped are between the errors."""
    values = [min(errors.get(name, 0), 2 ** BITS[name] - 1) for name in WIDE_ERRORS]
    *wide, local, overrun, dropped = values
    return struct.pack(">HBBHHHHBBxBHH", *wide, local << 4 | overrun, 0xFFFF, dropped)


@dataclass
class Port:
    """Counters and wiring of one port."""

    peer: tuple[int, int] | None = None
    words: int = 0
    packets: int = 0
    wait: int = 0
    state: int = 4
    width: int = 2
    errors: dict[str, int] = field(default_factory=dict)
    received_words: int = 7
    received_packets: int = 8


@dataclass
class Device:
    """A switch (``ports`` has a 0) or an adapter."""

    guid: int
    name: bytes
    switch: bool
    lid: int
    ports: dict[int, Port]
    mask: int = WIDE
    mask2: int = 0
    device_id: int = 0xC738
    tick: int | None = None
    delay_ns: int = 20_000
    dead: bool = False
    no_agent: bool = False


@dataclass
class Clock:
    """A clock that goes on when somebody waits, and by ``step_ns`` when somebody looks at it."""

    now: int = 1_000_000_000
    step_ns: int = 0
    _coming: list[tuple[Callable[[], bool], Callable[[], object]]] = field(default_factory=list)

    def __call__(self) -> int:
        self.now += self.step_ns
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time go by; what :meth:`when` waits for happens first."""
        for item in [item for item in self._coming if item[0]()]:
            self._coming.remove(item)
            item[1]()
        self.now += max(1, round(1e9 * seconds))

    def when(self, condition: Callable[[], bool], act: Callable[[], object]) -> None:
        """Do something once, in the first pause in which a condition holds."""
        self._coming.append((condition, act))


@dataclass
class FakeSubnet:
    """Two hosts and more on each of a row of switches; fits ``umad.MadPort``.

    Attributes:
        devices: By GUID.
        clock: Goes on with what is waited for: no test depends on how fast a machine is.
        on_the_way: Most requests that were on the way at once, in all and to each LID.
        silent: Never report a time-out, as a simulator does and the kernel does not.
        drop_every: Lose every so many-th request.
        script: For a port, what its PortXmitWait becomes after each time it was read.
    """

    devices: dict[int, Device]
    clock: Clock = field(default_factory=lambda: Clock(step_ns=100))
    silent: bool = False
    drop_every: int = 0
    script: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    sent: int = 0
    most: int = 0
    most_to: Counter[int] = field(default_factory=Counter)
    at_ns: list[int] = field(default_factory=list)
    _queue: list[tuple[int, int, Answer, int]] = field(default_factory=list)
    _to: Counter[int] = field(default_factory=Counter)

    def now(self) -> int:
        return self.clock.now

    def send(self, mad_class: int, lid: int, mad: bytearray, timeout_ms: int) -> None:
        self.sent += 1
        self.at_ns.append(self.now())
        device = self._directed(mad) if mad_class == mads.CLASS_DIRECTED else self._by_lid(lid)
        lost = self.drop_every and self.sent % self.drop_every == 0
        if device is None or device.dead or lost:
            if self.silent:
                return
            answer, delay = Answer(errno.ETIMEDOUT, bytes(mad)), timeout_ms * 1_000_000
        else:
            answer, delay = Answer(0, self._answer(device, mad_class, mad)), device.delay_ns
        self._to[lid] += 1
        self.most_to[lid] = max(self.most_to[lid], self._to[lid])
        heapq.heappush(self._queue, (self.now() + delay, self.sent, answer, lid))
        self.most = max(self.most, len(self._queue))

    def receive(self, wait_ms: int) -> Answer | None:
        until = self.now() + wait_ms * 1_000_000
        if not self._queue or self._queue[0][0] > until:
            self._pass(until)
            return None
        due, _, answer, lid = heapq.heappop(self._queue)
        self._pass(due)
        self._to[lid] -= 1
        return answer

    def close(self) -> None:
        pass

    def _pass(self, until: int) -> None:
        self.clock.now = max(self.clock.now, until)

    def _by_lid(self, lid: int) -> Device | None:
        return next((d for d in self.devices.values() if d.lid == lid), None)

    def _directed(self, mad: bytearray) -> Device | None:
        device = next(d for d in self.devices.values() if not d.switch)
        arrived = 1
        for port in mad[129 : 129 + mad[7]]:
            wire = device.ports.get(port)
            if device.dead or wire is None or wire.peer is None:
                return None
            guid, arrived = wire.peer
            device = self.devices[guid]
        self._arrived = arrived
        return device

    def _answer(self, device: Device, mad_class: int, asked: bytearray) -> bytes:
        mad = bytearray(asked)
        attribute = int.from_bytes(mad[16:18], "big")
        mad[3] |= 0x80
        if mad_class == mads.CLASS_PERFORMANCE:
            self._performance(device, attribute, mad)
        elif attribute == mads.NODE_DESCRIPTION:
            mad[64:128] = device.name[:64].ljust(64, b"\0")
        elif attribute == mads.NODE_INFO:
            count = max(device.ports)
            struct.pack_into(
                ">BBBBQQQHHIB",
                mad,
                64,
                1,
                1,
                2 if device.switch else 1,
                count,
                device.guid,
                device.guid,
                device.guid,
                8,
                device.device_id,
                0,
                self._arrived,
            )
        else:
            number = int.from_bytes(mad[20:24], "big")
            port = device.ports.get(number) or Port(state=1)
            struct.pack_into(">H", mad, 64 + 16, device.lid)
            mad[64 + 31], mad[64 + 32], mad[64 + 35] = port.width, port.state, 4 << 4
            mad[64 + 62] = 1 << 4
        return bytes(mad)

    def _performance(self, device: Device, attribute: int, mad: bytearray) -> None:
        assert mad[3] & 0x7F == mads.GET, "a collector sets nothing"
        number = mad[65]
        if device.no_agent or (attribute == mads.PORT_COUNTERS_EXTENDED and device.mask == NARROW):
            struct.pack_into(">H", mad, 4, 0x000C)
            return
        port = device.ports.get(number, Port())
        if attribute == mads.CLASS_PORT_INFO:
            struct.pack_into(">BBHI", mad, 64, 1, 1, device.mask, device.mask2 << 5)
        elif attribute == mads.PORT_SAMPLES_CONTROL:
            if device.tick is None:
                struct.pack_into(">H", mad, 4, 0x000C)
            else:
                mad[66] = device.tick
        elif attribute == mads.PORT_COUNTERS:
            top = 2**32 - 1
            counters = (
                port.words,
                port.received_words,
                port.packets,
                port.received_packets,
                port.wait,
            )
            for offset, value in enumerate(counters):
                struct.pack_into(">I", mad, 64 + 24 + 4 * offset, min(value, top))
            mad[68:88] = narrow_errors(port.errors)
            if coming := self.script.get((device.guid, number)):
                port.wait = coming.pop(0)
        else:
            received = port.received_words, port.received_packets
            struct.pack_into(
                ">QQQQ", mad, 64 + 8, port.words, received[0], port.packets, received[1]
            )
            struct.pack_into(">Q", mad, 64 + 168, port.wait)
            # Without the bit of the additional counters these octets mean nothing.
            wide = device.mask2 & 2
            for place, name in enumerate(WIDE_ERRORS):
                value = port.errors.get(name, 0) if wide else 99
                struct.pack_into(">Q", mad, 64 + 72 + 8 * place, value)


def session(
    subnet: FakeSubnet,
    settings: CollectorSettings,
    collection: Collection,
    board: MetricsBoard | None = None,
    log: Callable[[str], None] = lambda line: None,
    timeout_ms: int = 5,
) -> CollectorSession:
    """A session on the subnet's clock."""
    exchange = MadExchange(subnet, timeout_ms=timeout_ms, retries=1, clock=subnet.clock)
    clock = subnet.clock
    return CollectorSession(
        settings, exchange, collection, board or MetricsBoard(), log, clock, clock.sleep
    )


def row_of_switches(switches: int = 3, hosts: int = 2, **facts: object) -> FakeSubnet:
    """Make switches in a row, each with ``hosts`` hosts and a last port without a cable."""
    devices: dict[int, Device] = {}
    lid = 1
    for s in range(switches):
        guid = 0x1000 + s
        devices[guid] = Device(guid, b"switch%d" % s, True, lid, {0: Port()})
        lid += 1
        for h in range(hosts):
            host = 0x2000 + s * 16 + h
            name = b"host%d-%d HCA-1" % (s, h)
            adapter = Device(host, name, False, lid, {1: Port((guid, h + 1))}, device_id=0x1011)
            devices[host] = adapter
            devices[guid].ports[h + 1] = Port((host, 1))
            lid += 1
        devices[guid].ports[hosts + 3] = Port(None, state=1)
        if s:
            left = 0x1000 + s - 1
            devices[guid].ports[hosts + 1] = Port((left, hosts + 2))
            devices[left].ports[hosts + 2] = Port((guid, hosts + 1))
    return FakeSubnet(devices, **facts)  # type: ignore[arg-type]


MS = 1_000_000
"""Nanoseconds in a millisecond."""


def after_sweeps(
    subnet: FakeSubnet, board: MetricsBoard, sweeps: int, act: Callable[[], object]
) -> None:
    """Do something in the pause after so many sweeps."""
    subnet.clock.when(lambda: board.sweeps >= sweeps, act)


def unplug_after(
    sweeps: int, session: CollectorSession, subnet: FakeSubnet, board: MetricsBoard
) -> None:
    """Take a cable out and discover again in the pause after so many sweeps."""

    def unplug() -> None:
        subnet.devices[0x1001].ports[1].state = 1
        session.rediscover()

    after_sweeps(subnet, board, sweeps, unplug)


def table(out: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(out / name / "*.parquet")


FILE = """\
vendid=0x2c9
devid=0xcb20
sysimgguid=0x1000
switchguid=0x1000(1000)
Switch  36 "S-0000000000001000"  # "odd # lid 9 lmc 0 \\" name" enhanced port 0 lid 11 lmc 0
[4] "H-0000000000002000"[1](2001)  # "h HCA-1" lid 12 4xEDR

vendid=0x2c9
devid=0x1013
caguid=0x2000
Ca  1 "H-0000000000002000"  # "h HCA-1"
[1](2001) "S-0000000000001000"[4]  # lid 12 lmc 0 "odd" lid 11 4xEDR
"""
