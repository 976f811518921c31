"""Many requests on the way at once, and no node that answers late or never holds up another.

Each request belongs to a node. At most ``window`` requests are on the way in all and ``per_node``
to one node, as performance agents are slow and drop what they cannot queue. A request is repeated
after a time-out; a node that does not answer two requests in a row is *given up*: what is left for
it fails at once, until :meth:`MadExchange.reset_unresponsive`, after which one request tries it
again.
"""

from __future__ import annotations

import errno
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tailback.port_counters.collect import mad as mads
from tailback.port_counters.collect.umad import MadPort

MAX_TIMEOUTS: Final = 2
"""Unanswered requests in a row after which a node is given up."""

_KERNEL_SLACK_NS: Final = 50_000_000
"""How much later than the kernel's own time-out an answer counts as lost (it may stay silent)."""


@dataclass(slots=True)
class Request:
    """One question to one node.

    Attributes:
        node: What the limit of requests on the way is kept for; any hashable thing.
        mad_class: Management class, chooses the agent it is sent through.
        lid: Destination.
        mad: The datagram; its transaction number is filled in when it is sent.
        tag: Whatever the asker needs to know the answer by.
    """

    node: Any
    mad_class: int
    lid: int
    mad: bytearray
    tag: Any = None
    attempts: int = 0
    sent_ns: int = 0


@dataclass(slots=True)
class Reply:
    """What became of a request.

    Attributes:
        request: The request.
        mad: The answer, None when there is none.
        problem: ``""``, ``"timeout"``, ``"given up"``, ``"refused"`` (the device did not take it)
            or ``"busy"`` or ``"status 0x…"`` (the node answered that it cannot at present, or at
            all).
        received_ns: When it came in, on the monotonic clock, nanoseconds.
        status: Status of an answer that says that the node cannot do it at all, else 0.
    """

    request: Request
    mad: bytes | None
    problem: str
    received_ns: int
    status: int = 0

    @property
    def turnaround_ns(self) -> int:
        """Time from the (last) sending to the answer, nanoseconds."""
        return self.received_ns - self.request.sent_ns

    @property
    def middle_ns(self) -> int:
        """Estimated instant of the reading: half-way between request and response.

        Alali et al. (2017), equation 3.
        """
        return (self.received_ns + self.request.sent_ns) // 2


@dataclass
class ExchangeStatistics:
    """What an exchange did since it was made."""

    sent: int = 0
    answered: int = 0
    repeated: int = 0
    late: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class MadExchange:
    """Sends requests and returns what becomes of them, in any order.

    Args:
        port: Where MADs go out and come in.
        window: Maximum number of outstanding requests.
        per_node: Most requests on the way to one node.
        timeout_ms: How long to wait for an answer.
        retries: How often to repeat an unanswered request.
        rate: Most MADs sent in a second, None for no cap.
        clock: Monotonic clock in nanoseconds.
    """

    def __init__(
        self,
        port: MadPort,
        *,
        window: int = 64,
        per_node: int = 2,
        timeout_ms: int = 200,
        retries: int = 2,
        rate: float | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.totals = ExchangeStatistics()
        self._port = port
        self._window = window
        self._per_node = per_node
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._gap_ns = 0 if rate is None else int(1e9 / rate)
        self._clock = clock
        self._waiting: deque[Request] = deque()
        self._held: dict[Any, deque[Request]] = {}
        self._flying: dict[int, Request] = {}
        self._deadlines: deque[tuple[int, int]] = deque()
        self._load: dict[Any, int] = {}
        self._timeouts: dict[Any, int] = {}
        self._number = 0
        self._next_send_ns = 0

    @property
    def busy(self) -> bool:
        """Whether any request has not been answered for yet."""
        return bool(self._flying or self._waiting or self._held)

    @property
    def unresponsive_nodes(self) -> list[Any]:
        """Nodes that are asked nothing at present."""
        return [node for node, timeouts in self._timeouts.items() if timeouts >= MAX_TIMEOUTS]

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def reset_unresponsive(self) -> None:
        """Try the nodes that were given up again, with one request each to begin with."""
        for node in self.unresponsive_nodes:
            self._timeouts[node] = MAX_TIMEOUTS - 1

    def results(self) -> Iterator[Reply]:
        """Yield replies until nothing is left; requests may be submitted meanwhile."""
        while self.busy:
            yield from self.step(100)

    def step(self, wait_ms: int) -> list[Reply]:
        """Send what may be sent, wait for one answer, and return what is settled.

        Args:
            wait_ms: How long to wait when nothing comes in, milliseconds.

        Returns:
            The settled requests; may be empty.
        """
        done: list[Reply] = []
        pause_ns = self._fill(done)
        if done:
            wait_ms = 0
        elif pause_ns:
            # At least 1 ms, or the cap would be kept by spinning; the burst makes up for it.
            wait_ms = min(wait_ms, max(1, pause_ns // 1_000_000))
        if not self._flying and (done or wait_ms <= 0):
            return done
        # With nothing on the way this is how to sleep: on the clock of the port.
        answer = self._port.receive(min(wait_ms, self._timeout_ms))
        if answer is not None:
            self._settle(answer.error, answer.mad, done)
        self._expire(done)
        return done

    def _fill(self, done: list[Reply]) -> int:
        """Send while there is room; returns how long the rate cap holds the rest back, in ns."""
        while self._waiting and len(self._flying) < self._window:
            if self._gap_ns:
                now = self._clock()
                if now < self._next_send_ns:
                    return self._next_send_ns - now
                # A pause lets at most 20 ms' worth of requests go at once afterwards.
                self._next_send_ns = max(self._next_send_ns, now - 20_000_000) + self._gap_ns
            request = self._waiting.popleft()
            node = request.node
            timeouts = self._timeouts.get(node, 0)
            if timeouts >= MAX_TIMEOUTS:
                done.append(self._failed(request, "given up"))
                continue
            load = self._load.get(node, 0)
            if load >= (1 if timeouts else self._per_node):
                self._held.setdefault(node, deque()).append(request)
                continue
            self._send(request, load, done)
        return 0

    def _send(self, request: Request, load: int, done: list[Reply]) -> None:
        self._number = number = (self._number + 1) & 0xFFFFFFFF
        mads.set_transaction(request.mad, number)
        request.attempts += 1
        request.sent_ns = now = self._clock()
        try:
            self._port.send(request.mad_class, request.lid, request.mad, self._timeout_ms)
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.EBADF, errno.EPIPE, errno.EIO):
                raise
            done.append(self._failed(request, "refused"))
            self._release(request.node)
            return
        self.totals.sent += 1
        self._load[request.node] = load + 1
        self._flying[number] = request
        self._deadlines.append((now + self._timeout_ms * 1_000_000 + _KERNEL_SLACK_NS, number))

    def _settle(self, error: int, mad: bytes, done: list[Reply]) -> None:
        request = self._flying.pop(mads.transaction(mad), None)
        if request is None:
            self.totals.late += 1
            return
        node = request.node
        self._load[node] -= 1
        if error:
            self._unanswered(request, done)
        else:
            self._timeouts.pop(node, None)
            self.totals.answered += 1
            status = mads.status(mad)
            if status:
                busy = status & mads.BUSY
                problem = "busy" if busy else f"status 0x{status:04x}"
                done.append(self._failed(request, problem, 0 if busy else status))
            else:
                done.append(Reply(request, mad, "", self._clock()))
        self._release(node)

    def _expire(self, done: list[Reply]) -> None:
        if not self._deadlines:
            return
        now = self._clock()
        while self._deadlines and (
            self._deadlines[0][0] <= now or self._deadlines[0][1] not in self._flying
        ):
            _, number = self._deadlines.popleft()
            request = self._flying.pop(number, None)
            if request is not None:
                self._load[request.node] -= 1
                self._unanswered(request, done)
                self._release(request.node)

    def _unanswered(self, request: Request, done: list[Reply]) -> None:
        timeouts = self._timeouts.get(request.node, 0)
        if request.attempts <= self._retries and timeouts < MAX_TIMEOUTS:
            self.totals.repeated += 1
            self._waiting.appendleft(request)
            return
        self._timeouts[request.node] = timeouts + 1
        done.append(self._failed(request, "timeout"))

    def _failed(self, request: Request, problem: str, status: int = 0) -> Reply:
        self.totals.failed[problem] += 1
        return Reply(request, None, problem, self._clock(), status)

    def _release(self, node: Any) -> None:
        """Let the next request of a node go; all of them when it has been given up."""
        held = self._held.get(node)
        if not held:
            return
        if self._timeouts.get(node, 0) >= MAX_TIMEOUTS:
            self._waiting.extendleft(reversed(held))
            held.clear()
        else:
            self._waiting.appendleft(held.popleft())
        if not held:
            del self._held[node]
