"""Counters of every interface of a lab at regular intervals, read from the kernel by netlink.

Nothing is started to read them, so ten readings a second of a hundred interfaces cost little. The
layouts are those of ``linux/rtnetlink.h``, ``linux/if_link.h`` and ``linux/gen_stats.h``.
"""

from __future__ import annotations

import gzip
import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from tailback.lab import system
from tailback.lab.datapath.background import Wait
from tailback.lab.plan import Link, Plan
from tailback.lab.spec import LabError

COLUMNS = (
    "time_utc",
    "link",
    "node",
    "iface",
    "peer",
    "tx_bytes",
    "tx_packets",
    "rx_bytes",
    "rx_packets",
    "qdisc_qlen",
    "qdisc_backlog",
    "qdisc_drops",
    "qdisc_overlimits",
)

INTERVAL_S = 0.1

_HEADER = struct.Struct("=IHHII")
_LINK, _QUEUE = struct.Struct("=BxHiII"), struct.Struct("=BxxxiIII")
_ERROR, _DONE, _GET_LINK, _GET_QUEUE = 2, 3, 18, 38
_REQUEST_ALL = 0x301
_NAME, _STATS64, _STATS2, _STATS_QUEUE = 3, 23, 7, 3
_ROOT = 0xFFFFFFFF
_TYPE_MASK = 0x3FFF


def _attributes(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & _TYPE_MASK, data[at + 4 : at + length]
        at += (length + 3) & ~3


def _request(kernel: socket.socket, kind: int, body: bytes) -> Iterator[memoryview]:
    kernel.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_ALL, 1, 0) + body)
    while True:
        data = memoryview(kernel.recv(1 << 18))
        at = 0
        while at < len(data):
            length, answer, _, _, _ = _HEADER.unpack_from(data, at)
            if answer == _DONE:
                return
            if answer == _ERROR:
                code = struct.unpack_from("=i", data, at + _HEADER.size)[0]
                raise LabError(
                    f"the kernel refuses counters: {os.strerror(-code)}", remedy="run as root"
                )
            yield data[at + _HEADER.size : at + length]
            at += (length + 3) & ~3


def read(kernel: socket.socket) -> dict[str, tuple[int, ...]]:
    """Counters of the interfaces of the namespace that a netlink socket was opened in.

    Returns:
        By name of the interface, in the order of :data:`COLUMNS`: bytes and packets sent, bytes
        and packets received; packets and bytes in the queue, packets dropped, overlimits.
    """
    names: dict[int, str] = {}
    traffic: dict[int, tuple[int, ...]] = {}
    for message in _request(kernel, _GET_LINK, _LINK.pack(0, 0, 0, 0, 0)):
        index = _LINK.unpack_from(message)[2]
        for kind, value in _attributes(message[_LINK.size :]):
            if kind == _NAME:
                names[index] = bytes(value).rstrip(b"\0").decode()
            elif kind == _STATS64:
                rx_packets, tx_packets, rx_bytes, tx_bytes = struct.unpack_from("=4Q", value)
                traffic[index] = (tx_bytes, tx_packets, rx_bytes, rx_packets)
    queues: dict[int, tuple[int, ...]] = {}
    for message in _request(kernel, _GET_QUEUE, _QUEUE.pack(0, 0, 0, 0, 0)):
        _, index, _, parent, _ = _QUEUE.unpack_from(message)
        if parent != _ROOT:
            continue
        for kind, value in _attributes(message[_QUEUE.size :]):
            for inner, data in _attributes(value) if kind == _STATS2 else ():
                if inner == _STATS_QUEUE:
                    packets, backlog, drops, _, over = struct.unpack_from("=5I", data)
                    queues[index] = (packets, backlog, drops, over)
    nothing = (0, 0, 0, 0)
    return {
        name: (*traffic.get(index, nothing), *queues.get(index, nothing))
        for index, name in names.items()
    }


def record_until(plan: Plan, file: Path, wait: Wait) -> None:
    """Write all counters to a file ten times a second until ``wait(seconds)`` is true.

    Args:
        plan: A lab that is up.
        file: A CSV compressed by gzip.
        wait: Waits between readings.

    Raises:
        LabError: The kernel refuses counters.
    """
    # Late readings distort all rates, and ten readings per second cost very little time.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    with ExitStack() as stack, gzip.open(file, "wt", encoding="ascii") as out:
        ports: list[tuple[socket.socket, list[Link]]] = []
        for node in plan.nodes:
            with system.inside(plan.namespace(node)):
                kernel = stack.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
            ports.append((kernel, [link for link in plan.links if link.source == node]))
        out.write(",".join(COLUMNS) + "\n")
        due = time.monotonic()
        while True:
            for kernel, links in ports:
                _write(out, kernel, links)
            due += INTERVAL_S
            if wait(max(0.0, due - time.monotonic())):
                return


def _write(out: TextIO, kernel: socket.socket, links: Sequence[Link]) -> None:
    """A reading of the interfaces of one node, which has a time of its own."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    values = read(kernel)
    for link in links:
        row = (now, link.number, link.source, link.interface, link.target)
        out.write(",".join(map(str, (*row, *values[link.interface]))) + "\n")
