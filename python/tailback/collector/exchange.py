"""Many requests in flight at once: a slow or unresponsive node does not hold up the others.

Each request belongs to a node. At most ``window`` requests are in flight in total and ``per_node``
to one node, as performance agents are slow and drop requests that they cannot queue. A request is
repeated after a time-out. A node that does not answer two requests in a row is *given up*: its
remaining requests fail at once until :meth:`MadExchange.reset_unresponsive`. One request then tries
the node again.
"""

from __future__ import annotations

import errno
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tailback.collector import mad as mads
from tailback.collector.umad import MadPort

MAX_TIMEOUTS: Final = 2
"""Unanswered requests in a row after which a node is given up."""

NO_RETRY: Final = 1 << 30
"""``attempts`` of a request that is sent once, however often others are repeated."""

_KERNEL_SLACK_NS: Final = 50_000_000
"""Margin after the kernel's own time-out, which it may fail to report, before an answer is lost."""


@dataclass(slots=True)
class Request:
    """One request to one node.

    Attributes:
        node: Key to which the limit of requests in flight applies, any hashable value.
        mad_class: Management class, which selects the agent through which the request is sent.
        lid: Destination.
        mad: The datagram. Its transaction number is filled in when it is sent.
        tag: Identifies the request to the caller.
        attempts: How often it was sent. With :data:`NO_RETRY` as initial value it is not repeated.
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
    """Outcome of a request.

    Attributes:
        request: The request.
        mad: The answer, None when there is none.
        problem: ``""``, ``"timeout"``, ``"given up"``, ``"refused"`` (by the local device),
            ``"busy"`` (the node cannot answer now) or ``"status 0x…"`` (it cannot answer at all).
        received_ns: Time of arrival on the monotonic clock, nanoseconds.
        status: Status code where the node cannot answer such a request at all, else 0.
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
    """Counts of an exchange since it was created."""

    sent: int = 0
    answered: int = 0
    repeated: int = 0
    late: int = 0
    failed: Counter[str] = field(default_factory=Counter)


class MadExchange:
    """Sends requests and returns their outcomes, in any order.

    Args:
        port: Where MADs go out and come in.
        window: Maximum number of outstanding requests.
        per_node: Maximum number of requests in flight to one node.
        timeout_ms: How long to wait for an answer.
        retries: How often to repeat an unanswered request.
        rate: Maximum number of MADs sent per second, None for no limit.
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
        self._in_flight: dict[int, Request] = {}
        self._deadlines: deque[tuple[int, int]] = deque()
        self._load: dict[Any, int] = {}
        self._timeouts: dict[Any, int] = {}
        self._number = 0
        self._next_send_ns = 0

    @property
    def busy(self) -> bool:
        """Whether any request is still without an outcome."""
        return bool(self._in_flight or self._waiting or self._held)

    @property
    def unresponsive_nodes(self) -> list[Any]:
        """Nodes that are given up at present."""
        return [node for node, timeouts in self._timeouts.items() if timeouts >= MAX_TIMEOUTS]

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self._waiting.append(request)

    def reset_unresponsive(self) -> None:
        """Try the nodes that were given up again, with one request each to begin with."""
        for node in self.unresponsive_nodes:
            self._timeouts[node] = MAX_TIMEOUTS - 1

    def results(self) -> Iterator[Reply]:
        """Yield replies until nothing is left. Requests may be submitted meanwhile."""
        while self.busy:
            yield from self.step(100)

    def step(self, wait_ms: int) -> list[Reply]:
        """Send what may be sent, wait for one answer, and return the requests that are done.

        Args:
            wait_ms: How long to wait when nothing comes in, milliseconds.

        Returns:
            Outcomes of the requests that are done; may be empty.
        """
        done: list[Reply] = []
        pause_ns = self._fill(done)
        if done:
            wait_ms = 0
        elif pause_ns:
            # At least 1 ms, or this would busy-wait. The next burst compensates for it.
            wait_ms = min(wait_ms, max(1, pause_ns // 1_000_000))
        if not self._in_flight and (done or wait_ms <= 0):
            return done
        # With nothing in flight, this sleeps on the clock of the port.
        answer = self._port.receive(min(wait_ms, self._timeout_ms))
        if answer is not None:
            self._settle(answer.error, answer.mad, done)
        self._expire(done)
        return done

    def _fill(self, done: list[Reply]) -> int:
        """Send while the window allows.

        Returns the delay of the other requests by the rate limit, ns.
        """
        while self._waiting and len(self._in_flight) < self._window:
            if self._gap_ns:
                now = self._clock()
                if now < self._next_send_ns:
                    return self._next_send_ns - now
                # After a pause, at most 20 ms' worth of requests are sent in a burst.
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
        self._in_flight[number] = request
        self._deadlines.append((now + self._timeout_ms * 1_000_000 + _KERNEL_SLACK_NS, number))

    def _settle(self, error: int, mad: bytes, done: list[Reply]) -> None:
        request = self._in_flight.pop(mads.transaction(mad), None)
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
            self._deadlines[0][0] <= now or self._deadlines[0][1] not in self._in_flight
        ):
            _, number = self._deadlines.popleft()
            request = self._in_flight.pop(number, None)
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
        """Queue the next request of a node, or all of them if it has been given up."""
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
