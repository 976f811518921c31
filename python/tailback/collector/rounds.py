"""The plan *rounds* (Alali et al., 2017, section III): random ports, 100 readings each.

A port is read 100 times, 100 ms apart; then the next one is drawn.

The devices are divided into disjoint sets, and each set has its own sampler (Alali et al. ran one
script for each of their sets of about 115 switches). A sampler draws a device and one of its ports,
both uniformly; checks that the port is up and draws again if not; resets PortXmitWait if the plan
says so; and reads. All samplers share one thread.

The check is a subnet management request, which some sites block. If a discovery file lists the
ports, the ports of a device that does not answer are assumed to be up from then on.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from tailback.collector import mad as mads
from tailback.collector.exchange import MadExchange, Reply, Request
from tailback.collector.readings import PortReader
from tailback.collector.sweep import Fail, Take
from tailback.port_counters.targets import PortTarget

_INACTIVE_PAUSE_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """Parameters of rounds.

    Attributes:
        sets: Number of disjoint sets of devices, sampled concurrently.
        reads: Readings in a round.
        spacing_ns: Time from one reading to the next, nanoseconds.
        reset: Set PortXmitWait of the port to 0 before a round; other tools that read it are
            affected.
        seed: Seed of the draws.
        rounds: Total number of rounds, None for no limit.
    """

    sets: int = 1
    reads: int = 100
    spacing_ns: int = 100_000_000
    reset: bool = False
    seed: int = 0
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A sampler's command to send a request and return its reply."""

    request: Request


@dataclass(frozen=True, slots=True)
class ReadAt:
    """A sampler's command to read a target at an instant of the monotonic clock."""

    index: int
    at_ns: int
    number: int


RoundReader = Generator[SendRequest | ReadAt | int, Reply | None, None]
"""Yields its next command, or an instant at which to resume it."""


class RoundScheduler:
    """Runs the samplers of a plan.

    Args:
        plan: Parameters of the rounds.
        reader: Asks for readings and puts answers together.
        exchange: Where its requests go.
        take: Gets every reading.
        fail: Gets every reading that failed.
        first: Number of the first round.
        unreported: Called for each port whose device did not report its state, if a file lists the
            port; None without a file: such ports are then not read.
        silent: GUIDs of the devices that did not report it, kept by the caller between schedulers.
    """

    def __init__(
        self,
        plan: RoundPlan,
        reader: PortReader,
        exchange: MadExchange,
        take: Take,
        fail: Fail,
        first: int = 1,
        clock: Callable[[], int] = time.monotonic_ns,
        unreported: Callable[[PortTarget], None] | None = None,
        silent: set[int] | None = None,
    ) -> None:
        self.plan = plan
        self.begun = 0
        self.next_number = first
        self._reader, self._exchange = reader, exchange
        self._take, self._fail = take, fail
        self._clock = clock
        self._state_unreported, self._silent = unreported, set() if silent is None else silent
        self._sets = disjoint_sets(reader.targets, plan.sets, plan.seed)
        self._due: list[tuple[int, int]] = []
        self._scheduled: dict[int, ReadAt] = {}
        self._asked: dict[int, int] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Make rounds until the plan is complete or ``stopped`` returns true."""
        samplers = [self._sampler(n, devices, stopped) for n, devices in enumerate(self._sets)]
        live = set(range(len(samplers)))
        for number in sorted(live):
            self._resume(number, samplers, live, None)
        while live:
            now = self._clock()
            while self._due and self._due[0][0] <= now:
                _, number = heapq.heappop(self._due)
                command = self._scheduled.pop(number, None)
                if command is None:
                    self._resume(number, samplers, live, None)
                else:
                    self._asked[command.index] = number
                    self._reader.ask(command.index, command.number)
            until = self._due[0][0] - self._clock() if self._due else 50_000_000
            for reply in self._exchange.step(max(0, min(50, until // 1_000_000))):
                self._dispatch(reply, samplers, live)

    def _dispatch(self, reply: Reply, samplers: list[RoundReader], live: set[int]) -> None:
        tag = reply.request.tag
        if isinstance(tag, int):
            self._resume(tag, samplers, live, reply)
            return
        outcome = self._reader.take(reply)
        if outcome is None:
            return
        index = tag[0]
        if isinstance(outcome, str):
            self._fail(self._reader.targets[index], outcome)
        else:
            self._take(outcome)
        self._resume(self._asked.pop(index), samplers, live, None)

    def _resume(
        self, number: int, samplers: list[RoundReader], live: set[int], reply: Reply | None
    ) -> None:
        try:
            command = samplers[number].send(reply)
        except StopIteration:
            live.discard(number)
            return
        if isinstance(command, SendRequest):
            command.request.tag = number
            self._exchange.submit(command.request)
        elif isinstance(command, ReadAt):
            self._scheduled[number] = command
            heapq.heappush(self._due, (command.at_ns, number))
        else:
            heapq.heappush(self._due, (command, number))

    def _sampler(
        self, set_number: int, devices: list[list[int]], stopped: Callable[[], bool]
    ) -> RoundReader:
        draw = random.Random(f"{self.plan.seed}/rounds/{set_number}")
        while not stopped() and not self._enough():
            index = draw.choice(draw.choice(devices))
            target = self._reader.targets[index]
            if target.guid in self._silent:
                self._exchange.reset_unresponsive()
            else:
                problem = self._down((yield _state_of(target)), target)
                if problem:
                    self._fail(target, f"drawn, {problem}")
                    yield self._clock() + _INACTIVE_PAUSE_NS
                    continue
            if self._enough():
                return
            number = self.next_number
            self.next_number += 1
            self.begun += 1
            if self.plan.reset:
                reply = yield SendRequest(
                    Request(
                        target.lid,
                        mads.CLASS_PERFORMANCE,
                        target.lid,
                        mads.reset_xmit_wait(target.port),
                    )
                )
                if reply is None or reply.mad is None:
                    self._fail(target, "its PortXmitWait could not be reset")
            at = self._clock()
            for _ in range(self.plan.reads):
                if stopped():
                    return
                yield ReadAt(index, at, number)
                # As Alali et al. do: the pause begins when a reading is complete.
                at = self._clock() + self.plan.spacing_ns

    def _down(self, reply: Reply | None, target: PortTarget) -> str:
        """Why a port that was drawn is not read; empty if it is."""
        mad = None if reply is None else reply.mad
        if mad is not None and mads.port_info(mad).active:
            return ""
        # No answer here says nothing about the performance agent of the device.
        self._exchange.reset_unresponsive()
        if mad is not None:
            return "not active"
        if self._state_unreported is None:
            return "no answer"
        if target.guid not in self._silent:
            self._silent.add(target.guid)
            self._state_unreported(target)
        return ""

    def _enough(self) -> bool:
        return self.plan.rounds is not None and self.begun >= self.plan.rounds


def _state_of(target: PortTarget) -> SendRequest:
    """The request for the state of a port."""
    mad = mads.lid_routed_get(mads.PORT_INFO, target.port)
    return SendRequest(Request(target.lid, mads.CLASS_LID_ROUTED, target.lid, mad))


def disjoint_sets(
    targets: Sequence[PortTarget], count: int, seed: int = 0
) -> list[list[list[int]]]:
    """Divide the devices at random into at most ``count`` sets.

    Returns:
        For each set its devices, for each device its targets' indices.
    """
    devices: dict[int, list[int]] = {}
    for index, target in enumerate(targets):
        devices.setdefault(target.guid, []).append(index)
    dealt = [devices[guid] for guid in sorted(devices)]
    random.Random(f"{seed}/sets").shuffle(dealt)
    return [part for n in range(count) if (part := dealt[n::count])]
