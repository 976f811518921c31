"""Counters of every interface of a lab at regular intervals, read from the kernel by netlink.

Nothing is started to read them, so ten readings a second of a hundred interfaces cost little. The
layouts are those of ``linux/rtnetlink.h``, ``linux/if_link.h`` and ``linux/gen_stats.h``.
"""

from __future__ import annotations

import gzip
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from tailback.lab import system
from tailback.lab.plan import Link, Plan
from tailback.lab.spec import LabError

COLUMNS = (
    "time_utc", "link", "node", "iface", "peer", "tx_bytes", "tx_packets", "rx_bytes",
    "rx_packets", "qdisc_qlen", "qdisc_backlog", "qdisc_drops", "qdisc_overlimits",
)  # fmt: skip

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
                raise LabError(f"the kernel refuses counters: {os.strerror(-code)}",
                               remedy="run as root")  # fmt: skip
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
    return {name: (*traffic.get(index, nothing), *queues.get(index, nothing))
            for index, name in names.items()}  # fmt: skip


class Recorder:
    """Context manager: a thread writes all counters to a file until the end.

    Args:
        plan: A lab that is up.
        file: A CSV compressed by gzip.
    """

    def __init__(self, plan: Plan, file: Path) -> None:
        self.plan = plan
        self.file = file
        self._end = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="lab counters", daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._end.set()
        self._thread.join()
        if self._problem is not None and kind is None:
            raise self._problem

    def _run(self) -> None:
        # Late readings distort all rates; ten readings per second cost very little time.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        try:
            with ExitStack() as stack, gzip.open(self.file, "wt", encoding="ascii") as out:
                self._record(stack, out)
        except (LabError, OSError) as error:
            self._problem = error

    def _record(self, stack: ExitStack, out: TextIO) -> None:
        ports: list[tuple[socket.socket, list[Link]]] = []
        for node in self.plan.nodes:
            with system.inside(self.plan.namespace(node)):
                kernel = stack.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
            ports.append((kernel, [link for link in self.plan.links if link.source == node]))
        out.write(",".join(COLUMNS) + "\n")
        due = time.monotonic()
        while True:
            for kernel, links in ports:
                # Each node is read on its own, so it has a time of its own.
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                values = read(kernel)
                for link in links:
                    row = (now, link.number, link.source, link.interface, link.target)
                    out.write(",".join(map(str, (*row, *values[link.interface]))) + "\n")
            due += INTERVAL_S
            if self._end.wait(max(0.0, due - time.monotonic())):
                return
