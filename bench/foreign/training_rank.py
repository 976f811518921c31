"""A rank of a data-parallel job over TCP, run by ``run_training.py``: rings or trees as NCCL's.

    python bench/foreign/training_rank.py CONFIG.json RANK

Sums gradients with the other ranks, without adding them up: only their bytes matter. A slice is
sent when its data are there and the receiver has a buffer; the receiver acknowledges it, and grants
the buffer again when it used the data. Sums come down a tree while others go up it, as NCCL splits
its threads into two groups (``tree``), or after all went up, as where one group does both
(``tree-in-turn``). What NCCL Inspector would write of it is written: each sum with the times of its
kernel, and each slice between hosts with its waits for data, for a buffer and for the network.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

BUFFERS = 4
"""Slices that a receiver has room for."""

SLICE_BYTES = 32 << 10
_PORT = 21_000
_PATIENCE_S = 30
_LENGTH = struct.Struct("<I")


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


class Sender:
    """A connection to a rank that receives: slices are sent in order, by a thread."""

    def __init__(self, address: tuple[str, int], rank: int) -> None:
        self.steps: list[dict[str, Any]] = []
        self._free = threading.Semaphore(BUFFERS)
        self._arrived = threading.Semaphore(0)
        self._slices: SimpleQueue[tuple[int, int, int] | None] = SimpleQueue()
        self._socket = _connect(address, rank)
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._send, self._hear)
        ]
        for thread in self._threads:
            thread.start()

    def post(self, size: int, number: int) -> None:
        """Send a slice of collective ``number``, whose data are there."""
        self._slices.put((size, number, now_us()))

    def close(self) -> None:
        """Wait until all is sent."""
        self._slices.put(None)
        self._threads[0].join()

    def _send(self) -> None:
        data, idle = bytes(SLICE_BYTES), now_us()
        while (entry := self._slices.get()) is not None:
            size, number, ready = entry
            self._free.acquire()
            granted = now_us()
            self._socket.sendall(_LENGTH.pack(size) + data[:size])
            self._arrived.acquire()
            done = now_us()
            # It waited for data from the end of the slice before it on.
            times = (min(idle, ready), ready, max(granted, ready), done)
            self.steps.append({"number": number, "size": size, "times": times})
            idle = done

    def _hear(self) -> None:
        with suppress(ConnectionError):
            while heard := self._socket.recv(64):
                for word in heard:
                    (self._arrived if word == ord("A") else self._free).release()


class Receiver:
    """A connection from a rank that sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sizes: SimpleQueue[int] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> int:
        """Wait for a slice and use it; returns its bytes."""
        size = self._sizes.get()
        self._socket.sendall(b"C")
        return size

    def _read(self) -> None:
        with suppress(ConnectionError):
            while True:
                (size,) = _LENGTH.unpack(_exactly(self._socket, _LENGTH.size))
                _exactly(self._socket, size)
                self._socket.sendall(b"A")
                self._sizes.put(size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _connect(address: tuple[str, int], rank: int) -> socket.socket:
    last = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(address, timeout=_PATIENCE_S)
        except OSError:
            if time.monotonic() > last:
                raise
            time.sleep(0.05)
            continue
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_LENGTH.pack(rank))
        return connection


def ring_order(hosts: list[str]) -> list[int]:
    """Ranks in the order of a ring that enters each host once."""
    return [rank for host in dict.fromkeys(hosts) for rank in _ranks_of(host, hosts)]


def tree_parents(hosts: list[str]) -> list[int | None]:
    """Parent of each rank: a binary tree over the first ranks of hosts, and chains behind them."""
    order = list(dict.fromkeys(hosts))
    parents: list[int | None] = [None] * len(hosts)

    def split(first: int, last: int, above: int | None) -> None:
        if first > last:
            return
        middle = (first + last) // 2
        head, *others = _ranks_of(order[middle], hosts)
        parents[head] = above
        for before, member in pairwise([head, *others]):
            parents[member] = before
        split(first, middle - 1, head)
        split(middle + 1, last, head)

    split(0, len(order) - 1, None)
    return parents


def _ranks_of(host: str, hosts: list[str]) -> list[int]:
    return [rank for rank, its in enumerate(hosts) if its == host]


class Rank:
    """A rank with its connections.

    Args:
        config: As ``run_training.py`` writes it.
        rank: Its number.
    """

    def __init__(self, config: dict[str, Any], rank: int) -> None:
        self.config, self.rank, self.n = config, rank, len(config["hosts"])
        if config["algorithm"] == "ring":
            ring = ring_order(config["hosts"])
            place = ring.index(rank)
            targets, sources = [ring[(place + 1) % self.n]], [ring[place - 1]]
        else:
            parents = tree_parents(config["hosts"])
            self.above = [up for up in parents[rank : rank + 1] if up is not None]
            self.below = [k for k, up in enumerate(parents) if up == rank]
            targets = sources = self.above + self.below
        listener = socket.create_server((config["addresses"][rank], _PORT + rank), backlog=8)
        self.senders = {
            peer: Sender((config["addresses"][peer], _PORT + peer), rank) for peer in targets
        }
        self.receivers = {}
        for _ in sources:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            (peer,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
            self.receivers[peer] = Receiver(connection)
        listener.close()
        self.records: list[dict[str, Any]] = []

    def run(self) -> None:
        """Computation, then a sum of gradients, as often as configured."""
        config = self.config
        factor = float(config["slow"].get(str(self.rank), 1.0))
        share, length_s, seed = config["noise"]
        dice = random.Random(f"{seed} {self.rank}")
        self._sum(0, 4)  # All ranks are connected.
        for number in range(1, config["sums"] + 1):
            launched = now_us()
            pause = length_s if dice.random() < share else 0.0
            # Accelerators compute: the processor is free meanwhile.
            time.sleep(config["compute_s"] * factor + pause)
            begin = now_us()
            self._sum(number, config["bytes"])
            self.records.append(_collective(config, number, launched, begin, now_us()))
        for sender in self.senders.values():
            sender.close()

    def _sum(self, number: int, size: int) -> None:
        if self.config["algorithm"] == "ring":
            self._ring(number, size)
        else:
            self._tree(number, size)

    def _ring(self, number: int, size: int) -> None:
        chunk = _slices(-(-size // self.n))
        (sender,), (receiver,) = self.senders.values(), self.receivers.values()
        for _ in range(2 * (self.n - 1)):
            for part in chunk:
                sender.post(part, number)
            for _ in chunk:
                receiver.take()

    def _tree(self, number: int, size: int) -> None:
        up = threading.Thread(target=self._pass, args=(number, size, self.below, self.above))
        down = threading.Thread(target=self._pass, args=(number, size, self.above, self.below))
        if self.config["algorithm"] == "tree" and not self.above:
            # The root passes each slice down as soon as it is summed.
            self._pass(number, size, self.below, self.below)
            return
        in_turn = self.config["algorithm"] == "tree-in-turn"
        for thread in (up, down):
            thread.start()
            if in_turn:
                thread.join()
        for thread in (up, down):
            thread.join()

    def _pass(self, number: int, size: int, sources: list[int], targets: list[int]) -> None:
        """Send slices to some ranks as they come from others."""
        for part in _slices(size):
            for peer in sources:
                self.receivers[peer].take()
            for peer in targets:
                self.senders[peer].post(part, number)

    def write(self, folder: Path) -> None:
        """Write the file of this process."""
        hosts = self.config["hosts"]
        host, n_hosts = hosts[self.rank], len(set(hosts))
        bodies = [("coll_perf", record) for record in self.records]
        for peer, sender in self.senders.items():
            if hosts[peer] != host:
                steps = [step for step in sender.steps if step["number"]]
                bodies += [("proxy_trace", _step(self.rank, peer, step)) for step in steps]
        pid = 1000 + self.rank
        context = {
            "header": {"id": "0x1ab", "rank": self.rank, "n_ranks": self.n, "nnodes": n_hosts},
            "metadata": {
                "inspector_output_format_version": "v4.3",
                "dump_timestamp_us": now_us(),
                "hostname": host,
                "pid": pid,
            },
        }
        stats = {
            "coll_records": len(self.records),
            "p2p_records": 0,
            "proxy_records": len(bodies) - len(self.records),
            "coll_dropped_total": 0,
        }
        lines = [context | {"dump_stats": stats}, *({kind: body} for kind, body in bodies)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{host}-pid{pid}.log").write_text(text)


def _slices(size: int) -> list[int]:
    return [min(SLICE_BYTES, size - at) for at in range(0, size, SLICE_BYTES)]


def _collective(
    config: dict[str, Any], number: int, launched: int, begin: int, end: int
) -> dict[str, Any]:
    return {
        "coll": "AllReduce",
        "coll_sn": number,
        "coll_msg_size_bytes": config["bytes"],
        "coll_exec_time_us": end - begin,
        "coll_timing_source": "kernel_gpu",
        "coll_algo": config["algorithm"].partition("-")[0].upper(),
        "coll_proto": "SIMPLE",
        "event_trace_ts": {
            "coll_start_ts": launched,
            "coll_stop_ts": launched + 5,
            "kernel_events": [{"channel_id": 0, "kernel_start_ts": begin, "kernel_stop_ts": end}],
        },
    }


def _step(rank: int, peer: int, step: dict[str, Any]) -> dict[str, Any]:
    names = ("send_gpu_wait_ts", "send_peer_wait_ts", "send_wait_ts", "proxy_step_stop_ts")
    times = dict(zip(names, step["times"], strict=True))
    return {
        "record_type": "proxy_step",
        "parent_type": "coll",
        "parent_sn": step["number"],
        "rank": rank,
        "channel_id": 0,
        "peer": peer,
        "direction": "send",
        "trans_size_bytes": step["size"],
        "event_trace_ts": {"proxy_step_start_ts": step["times"][0], **times},
    }


def main() -> int:
    config = json.loads(Path(sys.argv[1]).read_text())
    rank = Rank(config, int(sys.argv[2]))
    rank.run()
    rank.write(Path(config["out"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
