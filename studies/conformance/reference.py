"""A second, simple and slow simulator of the model that docs/explanation/engine.md describes.

Its first version was written from the documentation alone, without the engine's code at hand; what
the documentation left open was settled by comparison; README.md of the study names it.
:mod:`studies.conformance.agreement` compares the two on random small fabrics. Both share only the
input (a prepared scenario): routes, queues, credit, handshakes and MPI's waiting are implemented
here a second time, event by event, with one heap for the whole network.

Covered: fat trees with up/down routes, cables of different rates and delays, fixed (D-mod-k) and
adaptive routing, cut-through and store-and-forward, both places where buffer space is given back,
the three ways an adapter shares its link, pacing of adapters, eager messages and handshakes,
synchronous and acknowledged sends, congestion on arrival by queue and credit. Not covered:
several ranks on a host, lanes, service levels, arbitration by input, congestion control.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np

from studies.conformance.reference_state import (
    CONTROL_BYTES,
    Adapter,
    EventOrder,
    Link,
    Message,
    Packet,
    Result,
    Step,
)
from studies.conformance.up_down import UpDown
from tailback.scenario.engine import EngineSection
from tailback.simulation import PreparedScenario
from tailback.traffic import Op, Program

SENDS = (Op.ISEND, Op.ISSEND, Op.ACKNOWLEDGED_SEND)


class Reference:
    """One run."""

    def __init__(self, prepared: PreparedScenario, seed: int) -> None:
        fabric = prepared.fabric
        self.settings: EngineSection = prepared.scenario.engine
        self.header = prepared.scenario.packet_header_bytes
        self.random = random.Random(seed)
        self.routes = UpDown(fabric)
        self.nodes = fabric.n_nodes
        self.links = [
            Link(round(8000 / gbps), delay, src, dst, self.settings.buffer)
            for gbps, delay, src, dst in zip(
                fabric.link_gbps.tolist(),
                fabric.link_delay_ps.tolist(),
                fabric.link_src.tolist(),
                fabric.link_dst.tolist(),
                strict=True,
            )
        ]
        self.adapters = {
            node: Adapter(links[0], self.settings.injection)
            for node, links in self.routes.out.items()
            if node < self.nodes
        }
        self.events: list[tuple[int, int, int, int, int, Callable[[int], None]]] = []
        self.created = 0
        self.packets_made = 0
        self.finished = 0
        self.chosen: dict[tuple[int, int, int], tuple[int, int]] = {}
        workload = prepared.make_workload()
        self.program: Program = workload.program
        self.node = workload.node.tolist()
        self._match()
        for rank, start in enumerate(workload.start_ps.tolist()):
            self.at(start, EventOrder.RANK, rank, lambda now, rank=rank: self.advance(rank, now))

    def _match(self) -> None:
        """Pair sends and receives: the k-th of each (source, destination, tag)."""
        program = self.program
        self.first = program.rank_start.tolist()
        self.position = self.first[:-1]
        self.kind, self.peer = program.kind.tolist(), program.peer.tolist()
        self.amount, self.request = program.amount.tolist(), program.request.tolist()
        rank, tag = program.op_rank.tolist(), program.tag.tolist()
        self.messages: list[Message] = []
        self.of_operation: dict[int, Message] = {}
        queues: dict[tuple[int, int, int], deque[Message]] = defaultdict(deque)
        for op, kind in enumerate(self.kind):
            if kind in SENDS:
                message = Message(
                    len(self.messages),
                    self.node[rank[op]],
                    self.node[self.peer[op]],
                    self.amount[op],
                    synchronous=kind == Op.ISSEND,
                    acknowledged=kind == Op.ACKNOWLEDGED_SEND,
                    send_rank=rank[op],
                    send_request=self.request[op],
                    receive_rank=self.peer[op],
                )
                self.messages.append(message)
                self.of_operation[op] = message
                queues[rank[op], self.peer[op], tag[op]].append(message)
        for op, kind in enumerate(self.kind):
            if kind == Op.IRECV:
                message = queues[self.peer[op], rank[op], tag[op]].popleft()
                message.receive_request = self.request[op]
                self.of_operation[op] = message
        self.open: list[set[int]] = [set() for _ in self.position]
        self.blocked: list[int | None] = [None] * len(self.position)
        self.arrivals = [0] * len(self.messages)
        self.starts = [-1] * len(self.messages)

    def at(
        self, time: int, kind: EventOrder, number: int, do: Callable[[int], None], packet: int = 0
    ) -> None:
        """Schedule an action at a time, after those with a lower class or number."""
        self.created += 1
        heapq.heappush(self.events, (time, kind, number, packet, self.created, do))

    def run(self) -> Result:
        """Process all events."""
        while self.events:
            now, *_, do = heapq.heappop(self.events)
            do(now)
        stuck = [r for r, at in enumerate(self.position) if at < self.first[r + 1]]
        if stuck:
            raise RuntimeError(f"ranks {stuck} wait for ever")
        return Result(
            self.arrivals,
            self.starts,
            np.array([link.packets for link in self.links]),
            np.array([link.bytes for link in self.links]),
            np.array([link.congested for link in self.links]),
            np.array([link.stall for link in self.links]),
            self.finished,
        )

    # Ranks.

    def advance(self, rank: int, now: int) -> None:
        """Execute a rank's operations until one takes time."""
        blocked = self.blocked[rank]
        if blocked is not None and self.waits(rank, blocked):
            return
        self.blocked[rank] = None
        while self.position[rank] < self.first[rank + 1]:
            op = self.position[rank]
            self.position[rank] += 1
            kind = self.kind[op]
            if kind == Op.COMPUTE:
                self.at(
                    now + self.amount[op],
                    EventOrder.RANK,
                    rank,
                    lambda then: self.advance(rank, then),
                )
                return
            if kind in SENDS:
                self.open[rank].add(self.request[op])
                self.post_send(self.of_operation[op], now)
            elif kind == Op.IRECV:
                self.open[rank].add(self.request[op])
                self.post_receive(self.of_operation[op], now)
            else:
                # One request of its rank, or all: -1.
                awaited = self.request[op] if kind == Op.WAIT else -1
                if self.waits(rank, awaited):
                    self.blocked[rank] = awaited
                    return
        self.finished = max(self.finished, now)

    def waits(self, rank: int, awaited: int) -> bool:
        """Whether a request, or with -1 any, of a rank is still open."""
        return bool(self.open[rank]) if awaited < 0 else awaited in self.open[rank]

    def complete(self, rank: int, request: int, now: int) -> None:
        """Complete a request; its rank continues at once if it waited for it."""
        self.open[rank].discard(request)
        if self.blocked[rank] is not None:
            self.advance(rank, now)

    # Messages.

    def post_send(self, message: Message, now: int) -> None:
        """After the software delay, pass the message to the adapter or send its request to send."""

        def begin(then: int) -> None:
            if message.size > self.settings.eager:
                self.control(
                    message,
                    message.src_node,
                    message.dst_node,
                    then,
                    self.announced(message),
                    Step.ANNOUNCED,
                )
            else:
                self.enqueue(message, then)

        self.at(now + self.settings.send_delay, EventOrder.MESSAGE, message.number, begin)

    def announced(self, message: Message) -> Callable[[int], None]:
        """What happens when a request to send arrives."""

        def do(now: int) -> None:
            message.announced = True
            self.answer(message, now)

        return do

    def answer(self, message: Message, now: int) -> None:
        """Clear a message to send once it is announced and its receive is posted."""
        if message.announced and message.posted:
            message.announced = False
            self.control(
                message,
                message.dst_node,
                message.src_node,
                now,
                lambda then: self.enqueue(message, then),
                Step.CLEARED,
            )

    def control(
        self,
        of: Message,
        src: int,
        dst: int,
        now: int,
        then: Callable[[int], None],
        step: Step,
    ) -> None:
        """Send a packet of a handshake."""
        self.enqueue(Message(of.number, src, dst, CONTROL_BYTES, then=then, step=step), now)

    def post_receive(self, message: Message, now: int) -> None:
        """A receive is posted: the message may have arrived, or asks to be sent."""
        message.posted = True
        if message.arrived:
            self.received(message, now)
        else:
            self.answer(message, now)

    def received(self, message: Message, now: int) -> None:
        """The message has arrived and its receive is posted: an acknowledgement is sent first."""
        if message.acknowledged:
            self.control(
                message,
                message.dst_node,
                message.src_node,
                now,
                lambda then: self.complete(message.send_rank, message.send_request, then),
                Step.CLEARED,
            )
        self.complete(message.receive_rank, message.receive_request, now)
        if message.synchronous:
            self.complete(message.send_rank, message.send_request, now)

    def enqueue(self, message: Message, now: int) -> None:
        """Give a message to its adapter."""
        full = self.settings.packet
        message.unsent = message.undelivered = max(1, -(-message.size // full))
        adapter = self.adapters[message.src_node]
        adapter.add(message)
        if not adapter.scheduled:
            self.inject(message.src_node, now)

    # Packets.

    def inject(self, node: int, now: int) -> None:
        """Send the next packet of a node if its link is free and there is credit."""
        adapter = self.adapters[node]
        link = self.links[adapter.link]
        if now < adapter.next_start:
            self.schedule(node)
            return
        message = adapter.next(link.credit, self.wire)
        if message is None:
            if adapter.stalled_since < 0 and (adapter.control or adapter.queues):
                adapter.stalled_since = now
            return
        if adapter.stalled_since >= 0:
            link.stall += now - adapter.stalled_since
            adapter.stalled_since = -1
        wire = self.wire(message)
        message.unsent -= 1
        if message.then is None and self.starts[message.number] < 0:
            self.starts[message.number] = now
        place = -(-message.size // self.settings.packet) - 1 - message.unsent
        packet = Packet(self.packets_made, message, place, wire, last=not message.unsent)
        self.packets_made += 1
        end = self.transmit(packet, adapter.link, now)
        adapter.next_start = max(end, now + self.paced(wire))
        self.schedule(node)
        told_later = message.synchronous or message.acknowledged
        if packet.last and message.then is None and not told_later:
            self.at(
                end,
                EventOrder.SENT,
                message.number,
                lambda t: self.complete(message.send_rank, message.send_request, t),
            )

    def schedule(self, node: int) -> None:
        """Have a node that has more to send try again when its link is free."""
        adapter = self.adapters[node]

        def free(now: int) -> None:
            adapter.scheduled = False
            self.inject(node, now)

        if not adapter.scheduled and (adapter.control or adapter.queues):
            adapter.scheduled = True
            self.at(adapter.next_start, EventOrder.ADAPTER, node, free)

    def wire(self, message: Message) -> int:
        """Bytes on the wire of the next packet of a message."""
        full = self.settings.packet
        payload = full if message.unsent > 1 else (message.size - 1) % full + 1
        header = 0 if message.then is not None else self.header
        return max(CONTROL_BYTES, payload + header)

    def paced(self, wire: int) -> int:
        """Time a packet takes at the rate of injection."""
        rate = self.settings.injection_rate
        return round(wire * 8000 / rate) if rate else 0

    def transmit(self, packet: Packet, number: int, now: int) -> int:
        """Book a packet on a link after those already booked; returns when its tail leaves."""
        link = self.links[number]
        link.credit -= packet.wire
        start = max(now, link.free_at)
        end = link.free_at = start + packet.wire * link.ps_per_byte
        link.packets += 1
        link.bytes += packet.wire
        self.free_buffer(packet, now, end)
        packet.came_by, packet.tail_in = number, end + link.delay
        if link.dst < self.nodes:
            # A node keeps nothing in its buffer.
            self.give_back(number, packet.wire, packet.tail_in)
            message = packet.message
            message.undelivered -= 1
            if not message.undelivered:
                self.at(
                    packet.tail_in,
                    EventOrder.MESSAGE,
                    message.number,
                    lambda t: self.deliver(message, t),
                    message.step,
                )
            return end
        head = start + link.delay
        if self.settings.switching == "store-and-forward":
            head = packet.tail_in
        ready = head + self.settings.switch_delay
        self.at(ready, EventOrder.ARRIVAL, number, lambda t: self.choose(packet, t), packet.number)
        return end

    def free_buffer(self, packet: Packet, booked: int, tail_left: int) -> None:
        """Give back the buffer that a packet leaves."""
        if packet.came_by < 0:
            return
        released = tail_left if self.settings.buffering == "input" else packet.tail_in
        released = max(released, booked + self.settings.switch_delay)
        self.give_back(packet.came_by, packet.wire, released)

    def give_back(self, number: int, wire: int, released: int) -> None:
        """Credit reaches the sender a cable delay after buffer space is released."""
        link = self.links[number]

        def arrive(now: int) -> None:
            link.credit += wire
            if link.src < self.nodes and not self.adapters[link.src].scheduled:
                self.inject(link.src, now)
            self.grant(number, now)

        self.at(released + link.delay, EventOrder.CREDIT, number, arrive)

    def choose(self, packet: Packet, now: int) -> None:
        """A packet is ready to leave a switch: choose an output and enter its queue."""
        switch = self.links[packet.came_by].dst
        node = packet.message.dst_node
        if self.settings.routing == "deterministic":
            number = self.routes.fixed(switch, node)
        elif self.settings.routing == "random":
            number = self.random.choice(self.routes.candidates(switch, node))
        else:
            number = self.adaptive(switch, packet, now)
        link = self.links[number]
        if link.queued + packet.wire > link.credit:
            link.congested += 1
        # Its tail must not leave before it can have come through the switch.
        tail = packet.tail_in + self.settings.switch_delay
        held = tail - packet.wire * link.ps_per_byte
        if held > now:
            self.at(
                held,
                EventOrder.HELD,
                packet.came_by,
                lambda t: self.join(packet, number, t),
                packet.number,
            )
        else:
            self.join(packet, number, now)

    def adaptive(self, switch: int, packet: Packet, now: int) -> int:
        """The port a packet takes: its message's earlier choice where that holds, or a new one."""
        rule, message = self.settings.adaptive, packet.message
        held = message.then is None and rule.per != "packet"
        # Packets of a chunk follow one another on one path.
        size = rule.chunk if rule.per == "chunk" else message.size + 1
        key = (switch, message.number, packet.place * self.settings.packet // size)
        last = self.chosen.get(key) if held else None
        if last is not None and (rule.per != "flowlet" or now - last[1] < rule.gap):
            number = last[0]
        else:
            links = self.routes.candidates(switch, message.dst_node)
            first = 0 if rule.ties == "lowest" else self.random.randrange(len(links))
            drawn_first = [links[first], *links], links[first:] + links[:first]
            number = min(
                drawn_first[rule.ties != "random-or-lowest"],
                key=lambda k: (
                    self.links[k].load(now)
                    if rule.load == "queue"
                    else self.links[k].queued + self.settings.buffer - self.links[k].credit
                ),
            )
        if held:
            self.chosen[key] = (number, now)
        return number

    def join(self, packet: Packet, number: int, now: int) -> None:
        """A packet joins the queue of an output."""
        link = self.links[number]
        if not link.waiting:
            link.waiting_since = now
        link.waiting.append(packet)
        self.grant(number, now)

    def grant(self, number: int, now: int) -> None:
        """Book waiting packets while there is credit."""
        link = self.links[number]
        while link.waiting and link.waiting[0].wire <= link.credit:
            packet = link.waiting.popleft()
            link.stall += max(0, now - max(link.free_at, link.waiting_since))
            link.waiting_since = now
            self.transmit(packet, number, now)

    def deliver(self, message: Message, now: int) -> None:
        """The last byte of a message is at its node."""
        if message.then is not None:
            message.then(now)
            return
        message.arrived = True
        self.arrivals[message.number] = now
        if message.posted:
            self.received(message, now)


def simulate(prepared: PreparedScenario, seed: int = 1) -> Result:
    """Run a prepared scenario.

    Args:
        prepared: The scenario; its fabric is a tree.
        seed: Seed of the choices among equal ports.
    """
    return Reference(prepared, seed).run()
