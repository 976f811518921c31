"""State of messages, packets, links and adapters in the second simulator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

CONTROL_BYTES = 32
"""Bytes on the wire of a handshake's packets, an acknowledgement, and the smallest packet."""


class EventOrder(IntEnum):
    """Order of events at one time."""

    CREDIT = 0
    DEPARTURE = 1
    ARRIVAL = 2
    SENT = 3
    MESSAGE = 4
    ADAPTER = 5
    RANK = 6
    HELD = 8


class Step(IntEnum):
    """Order of what happens to one message at one time."""

    READY = 0
    ARRIVED = 1
    ANNOUNCED = 2
    CLEARED = 3


@dataclass
class Result:
    """Results of a run.

    Attributes:
        arrival_ps: When the last byte of each message arrived, in the order of their sends.
        start_ps: When the first packet of each entered the network.
        packets: Packets that crossed each link, shape (L,).
        bytes: Bytes that crossed each link, shape (L,).
        congested: Packets that found the port of each link congested, shape (L,).
        stall_ps: Time each link had data, an idle transmitter and no credit, shape (L,).
        elapsed_ps: When the last rank had finished.
    """

    arrival_ps: list[int]
    start_ps: list[int]
    packets: NDArray[np.int64]
    bytes: NDArray[np.int64]
    congested: NDArray[np.int64]
    stall_ps: NDArray[np.int64]
    elapsed_ps: int


@dataclass
class Message:
    """A message, or one packet of the handshake of another."""

    number: int
    src_node: int
    dst_node: int
    size: int
    synchronous: bool = False
    acknowledged: bool = False
    send_rank: int = 0
    send_request: int = 0
    receive_rank: int = 0
    receive_request: int = -1
    posted: bool = False
    announced: bool = False
    arrived: bool = False
    unsent: int = 0
    undelivered: int = 0
    then: Callable[[int], None] | None = None
    step: Step = Step.ARRIVED


@dataclass
class Packet:
    """A packet, and the buffer it occupies."""

    number: int
    message: Message
    place: int
    wire: int
    last: bool
    came_by: int = -1
    tail_in: int = 0
    earliest_tail: int = 0


@dataclass
class Link:
    """One direction of a cable, with the port that feeds it."""

    ps_per_byte: int
    delay: int
    src: int
    dst: int
    credit: int
    free_at: int = 0
    waiting: deque[Packet] = field(default_factory=deque)
    waiting_since: int = 0
    packets: int = 0
    bytes: int = 0
    congested: int = 0
    stall: int = 0

    @property
    def queued(self) -> int:
        """Bytes that wait for credit."""
        return sum(packet.wire for packet in self.waiting)

    def load(self, now: int) -> int:
        """Time until what is booked and what waits has been sent."""
        return max(0, self.free_at - now) + self.queued * self.ps_per_byte


class Adapter:
    """The send queue of a node: messages that share its link."""

    def __init__(self, link: int, injection: str) -> None:
        self.link = link
        self.injection = injection
        self.queues: deque[tuple[int, deque[Message]]] = deque()
        self.control: deque[Message] = deque()
        self.next_start = 0
        self.scheduled = False
        self.stalled_since = -1

    def add(self, message: Message) -> None:
        """Append a message to its queue; packets of handshakes have one that goes first."""
        if message.then is not None:
            self.control.append(message)
            return
        if self.injection == "fifo":
            key = 0
        elif self.injection == "round-robin":
            key = message.number
        else:
            key = message.dst_node
        for queue_key, queue in self.queues:
            if queue_key == key:
                queue.append(message)
                return
        self.queues.append((key, deque([message])))

    def next(self, credit: int, wire: Callable[[Message], int]) -> Message | None:
        """Take the message that the next packet is of, if there is credit for that packet.

        Queues for destinations are skipped while there is too little credit for their packet.
        """
        if self.control:
            return self.control.popleft() if wire(self.control[0]) <= credit else None
        tried = len(self.queues) if self.injection == "per-destination" else 1
        for place, (key, queue) in enumerate(list(self.queues)[:tried]):
            message = queue[0]
            if wire(message) <= credit:
                del self.queues[place]
                if message.unsent == 1:
                    queue.popleft()
                if queue:
                    self.queues.append((key, queue))
                return message
        return None
