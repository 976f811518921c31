"""The plan *rounds* (Alali et al., 2017, section III): random ports, 100 readings each.

A port is read 100 times, 100 ms apart; then the next one is drawn.

The devices are dealt into disjoint sets, and each set has a separate drawer that never draws a
port outside it (Alali et al. ran one script for each of their sets of about 115 switches). A drawer
draws a device and one of its ports, both uniformly; asks whether the port is up and draws again if
not; clears PortXmitWait if that was asked for; and reads. All drawers share one thread.

The question is a subnet management request, which some sites bar. Where a discovery file states the
ports, a device that does not answer it is taken at the file's word from then on: they are up.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from tailback.port_counters.collect import mad as mads
from tailback.port_counters.collect.exchange import MadExchange, Reply, Request
from tailback.port_counters.collect.readings import PortReader
from tailback.port_counters.collect.subnet import PortTarget
from tailback.port_counters.collect.sweep import Fail, Take

_FRUITLESS_PAUSE_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """How rounds are made.

    Attributes:
        sets: Disjoint sets of devices, observed side by side.
        reads: Readings in a round.
        spacing_ns: Time from one reading to the next, nanoseconds.
        reset: Set PortXmitWait of the port to 0 before a round. Others may be reading it.
        seed: Seed of the draws.
        rounds: Rounds to make in all, None for no end.
    """

    sets: int = 1
    reads: int = 100
    spacing_ns: int = 100_000_000
    reset: bool = False
    seed: int = 0
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A drawer's wish to send a request and be handed its reply."""

    request: Request


@dataclass(frozen=True, slots=True)
class ReadAt:
    """A drawer's wish to read a target at an instant of the monotonic clock."""

    index: int
    at_ns: int
    number: int


RoundReader = Generator[SendRequest | ReadAt | int, Reply | None, None]
"""Yields what it wants next, or an instant to be woken at."""


class RoundScheduler:
    """Runs the drawers.

    Args:
        plan: How rounds are made.
        reader: Asks for readings and puts answers together.
        exchange: Where its requests go.
        take: Gets every reading.
        fail: Gets every reading that failed.
        first: Number of the first round.
        untold: Gets each port whose state its device did not tell, where a file says that it has a
            cable; None where no file does, and then such a port is not read.
        silent: GUIDs of the devices that did not tell it, kept by the caller from one to the next.
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
        untold: Callable[[PortTarget], None] | None = None,
        silent: set[int] | None = None,
    ) -> None:
        self.plan = plan
        self.begun = 0
        self.next_number = first
        self._reader, self._exchange = reader, exchange
        self._take, self._fail = take, fail
        self._clock = clock
        self._untold, self._silent = untold, set() if silent is None else silent
        self._sets = disjoint_sets(reader.targets, plan.sets, plan.seed)
        self._due: list[tuple[int, int]] = []
        self._wish: dict[int, ReadAt] = {}
        self._asked: dict[int, int] = {}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Make rounds until there are enough or ``stopped`` says so."""
        drawers = [self._drawer(n, devices, stopped) for n, devices in enumerate(self._sets)]
        live = set(range(len(drawers)))
        for number in sorted(live):
            self._resume(number, drawers, live, None)
        while live:
            now = self._clock()
            while self._due and self._due[0][0] <= now:
                _, number = heapq.heappop(self._due)
                wish = self._wish.pop(number, None)
                if wish is None:
                    self._resume(number, drawers, live, None)
                else:
                    self._asked[wish.index] = number
                    self._reader.ask(wish.index, wish.number)
            until = self._due[0][0] - self._clock() if self._due else 50_000_000
            for reply in self._exchange.step(max(0, min(50, until // 1_000_000))):
                self._hand_out(reply, drawers, live)

    def _hand_out(self, reply: Reply, drawers: list[RoundReader], live: set[int]) -> None:
        tag = reply.request.tag
        if isinstance(tag, int):
            self._resume(tag, drawers, live, reply)
            return
        outcome = self._reader.take(reply)
        if outcome is None:
            return
        index = tag[0]
        if isinstance(outcome, str):
            self._fail(self._reader.targets[index], outcome)
        else:
            self._take(outcome)
        self._resume(self._asked.pop(index), drawers, live, None)

    def _resume(
        self, number: int, drawers: list[RoundReader], live: set[int], reply: Reply | None
    ) -> None:
        try:
            wish = drawers[number].send(reply)
        except StopIteration:
            live.discard(number)
            return
        if isinstance(wish, SendRequest):
            wish.request.tag = number
            self._exchange.submit(wish.request)
        elif isinstance(wish, ReadAt):
            self._wish[number] = wish
            heapq.heappush(self._due, (wish.at_ns, number))
        else:
            heapq.heappush(self._due, (wish, number))

    def _drawer(
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
                    yield self._clock() + _FRUITLESS_PAUSE_NS
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
        """Why a port that was drawn is not to be read, empty where it is."""
        mad = None if reply is None else reply.mad
        if mad is not None and mads.port_info(mad).active:
            return ""
        # Silence here says nothing of the performance agent of the device.
        self._exchange.reset_unresponsive()
        if mad is not None:
            return "not active"
        if self._untold is None:
            return "no answer"
        if target.guid not in self._silent:
            self._silent.add(target.guid)
            self._untold(target)
        return ""

    def _enough(self) -> bool:
        return self.plan.rounds is not None and self.begun >= self.plan.rounds


def _state_of(target: PortTarget) -> SendRequest:
    """The question whether a port is up."""
    mad = mads.lid_routed_get(mads.PORT_INFO, target.port)
    return SendRequest(Request(target.lid, mads.CLASS_LID_ROUTED, target.lid, mad))


def disjoint_sets(
    targets: Sequence[PortTarget], count: int, seed: int = 0
) -> list[list[list[int]]]:
    """Deal the devices into at most ``count`` sets.

    Returns:
        For each set its devices, for each device its targets' indices.
    """
    devices: dict[int, list[int]] = {}
    for index, target in enumerate(targets):
        devices.setdefault(target.guid, []).append(index)
    dealt = [devices[guid] for guid in sorted(devices)]
    random.Random(f"{seed}/sets").shuffle(dealt)
    return [part for n in range(count) if (part := dealt[n::count])]
