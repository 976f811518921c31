"""One run of the collector: discovers ports, reads them by a plan and writes, until stopped."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tailback.collector.discovery import discover
from tailback.collector.exchange import MadExchange
from tailback.collector.journal import Journal
from tailback.collector.mad import ERROR_COUNTERS
from tailback.collector.metrics_board import MetricsBoard
from tailback.collector.readings import RAW, PortReader, Rows
from tailback.collector.segments import DiskFullError
from tailback.collector.states import StatePoll
from tailback.collector.store import Clock, Collection
from tailback.collector.subnet import keep_unseen, survey
from tailback.collector.sweep import spread, sweep
from tailback.errors import TailbackError
from tailback.port_counters.changes import FabricChange, LinkStates, described
from tailback.port_counters.schema import CounterError
from tailback.port_counters.targets import PortTarget, Subnet, read_targets
from tailback.units import counted

FLUSH_NS: Final = 250_000_000
"""Maximum time between writes while readings arrive."""

ROLL_NS: Final = 600_000_000_000
ROLL_BYTES: Final = 256 << 20
SYNC_NS: Final = 10_000_000_000
_LINES_PER_SWEEP: Final = 5
_LINK_DOWNED: Final = ERROR_COUNTERS.index("LinkDownedCounter")


@dataclass(frozen=True)
class CollectorSettings:
    """What to collect and how.

    Attributes:
        interval_ns: From the start of one sweep to the start of the next, nanoseconds.
        sweeps: Number of sweeps, None for no limit.
        duration_ns: How long to collect, None for no limit.
        hosts: Also read the ports of adapters.
        fabric: Discovery file that lists the ports. None discovers them.
        rediscover_ns: Look for changes of the subnet this often, None never.
        states_ns: Ask for the state of every port of the switches this often, None never.
        tick_ns: Length of a tick for all ports, None takes that of ``ticks``.
        roll_ns: Time after which a segment is finished and compacted.
    """

    interval_ns: int = 10_000_000_000
    sweeps: int | None = None
    duration_ns: int | None = None
    hosts: bool = True
    fabric: Path | None = None
    rediscover_ns: int | None = 3_600_000_000_000
    states_ns: int | None = 5_000_000_000
    tick_ns: float | None = None
    roll_ns: int = ROLL_NS


@dataclass
class SessionSummary:
    """Result of a session.

    Attributes:
        nodes, ports: Devices and ports read at the end.
        sweeps: Completed sweeps.
        readings, failed: Readings taken and failed.
        seconds, cpu_seconds: Wall clock and processor time of the whole session.
        mads: MADs sent.
        longest_sweep_s: Longest sweep in seconds.
        sweep_seconds, sweep_cpu_seconds: Wall clock and processor time of all sweeps, writing
            included.
        sweep_mads: MADs sent in them.
        notes: Anything unusual.
    """

    nodes: int = 0
    ports: int = 0
    sweeps: int = 0
    readings: int = 0
    failed: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    mads: int = 0
    longest_sweep_s: float = 0.0
    sweep_seconds: float = 0.0
    sweep_cpu_seconds: float = 0.0
    sweep_mads: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def mads_per_s(self) -> float:
        """MADs sent per second, on average."""
        return self.mads / self.seconds if self.seconds else 0.0

    @property
    def cpu_share(self) -> float:
        """Share of one processor."""
        return self.cpu_seconds / self.seconds if self.seconds else 0.0


class CollectorSession:
    """Collects until its plan is complete or :meth:`stop` is called.

    Args:
        settings: What to collect and how.
        exchange: Where requests go.
        collection: Where readings go.
        board: State that the metrics endpoint publishes.
        log: Gets lines for the administrator. Device names in them are unescaped.
        clock: Monotonic clock in nanoseconds, the one of ``exchange``.
        sleep: Waits the given seconds of that clock.
    """

    def __init__(
        self,
        settings: CollectorSettings,
        exchange: MadExchange,
        collection: Collection,
        board: MetricsBoard,
        log: Callable[[str], None] = lambda line: None,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.settings = settings
        self._clock, self._sleep = clock, sleep
        self.summary = SessionSummary()
        self._exchange, self._collection = exchange, collection
        self._board, self._log = board, log
        self._stop = self._rediscover = self._unsynced = False
        self._links = LinkStates()
        self._states = StatePoll(exchange, settings.states_ns, clock)
        # Something hints at a change. A discovery follows, but not one after the other.
        self._hint = False
        self._discovery_ns = 0
        self._downed: dict[tuple[int, int], int] = {}
        self._buffer: list[tuple[int, ...]] = []
        self._failures: Counter[tuple[str, str]] = Counter()
        # Failed readings of each device that is failing, and the devices that answered meanwhile.
        self._failing: Counter[str] = Counter()
        self._answered: set[str] = set()
        self._flushed_ns = self._synced_ns = self._rolled_ns = self._discovered_ns = 0
        self._journal = Journal(collection, log, self._compact_finished)
        self._targets: list[PortTarget] = []
        self._last_reader: PortReader | None = None
        self._compactor = ThreadPoolExecutor(1, thread_name_prefix="compact")
        self._compacting: Future[list[str]] | None = None
        # One offset for the whole session, so that setting the clock does not distort intervals.
        self._offset_ns = time.time_ns() - self._clock()
        self._clock_facts = Clock(_boot(), self._offset_ns)
        self._begun_ns = self._clock()

    def stop(self) -> None:
        """End after the requests in flight. Safe in a signal handler."""
        self._stop = True

    def rediscover(self) -> None:
        """Look for changes of the subnet at the next opportunity. Safe in a signal handler."""
        self._rediscover = True

    def run(self) -> SessionSummary:
        """Collect; returns a summary.

        Raises:
            CounterError: There is nothing to read, or nothing can be written.
            OSError: The MAD device failed for good.
        """
        cpu = time.process_time()
        self._board.totals = self._exchange.totals
        self._board.extra = self._disk_samples
        try:
            self._compact_first()
            if not self._find_ports(first=True):
                raise CounterError(
                    "there is no port to read",
                    remedy="check that a subnet manager runs and that links are up: 'ibstat'",
                )
            self._sweeps()
        finally:
            self._finish()
            self.summary.seconds = (self._clock() - self._begun_ns) / 1e9
            self.summary.cpu_seconds = time.process_time() - cpu
            self.summary.mads = self._exchange.totals.sent
        return self.summary

    def _disk_samples(self) -> list[tuple[str, str, str, float | int]]:
        journal = self._journal
        return [
            ("disk_full", "gauge", "1 while readings wait for the disk.", int(journal.full)),
            ("readings_held", "gauge", "Readings that wait in memory.", journal.held),
            (
                "readings_lost_total",
                "counter",
                "Readings dropped because memory was full.",
                journal.lost,
            ),
        ]

    def _stopped(self) -> bool:
        limit = self.settings.duration_ns
        return self._stop or (limit is not None and self._clock() - self._begun_ns >= limit)

    def _sweeps(self) -> None:
        due = self._clock()
        reader, order = self._reader()
        while not self._stopped():
            started = self._clock()
            sent, cpu = self._exchange.totals.sent, time.process_time()
            sweep(
                reader,
                self._exchange,
                order,
                self._store_reading,
                self._count_failure,
                self._stopped,
            )
            self._flush()
            seconds = (self._clock() - started) / 1e9
            self.summary.sweep_seconds += seconds
            self.summary.sweep_cpu_seconds += time.process_time() - cpu
            self.summary.sweep_mads += self._exchange.totals.sent - sent
            self._end_of_sweep(seconds)
            if self.settings.sweeps is not None and self.summary.sweeps >= self.settings.sweeps:
                return
            due += self.settings.interval_ns
            if self._clock() > due:
                self._board.overruns += 1
                due = self._clock()
            while not self._stopped():
                if self._housekeeping():
                    reader, order = self._reader()
                left = due - self._clock()
                if left <= 0:
                    break
                self._sleep(min(left / 1e9, 0.1))

    def _end_of_sweep(self, seconds: float) -> None:
        if not self._stopped():
            self.summary.sweeps += 1
        self.summary.longest_sweep_s = max(self.summary.longest_sweep_s, seconds)
        self._board.sweeps, self._board.sweep_seconds = self.summary.sweeps, seconds
        self._report_failures()

    def _reader(self) -> tuple[PortReader, list[int]]:
        unbroken = set() if self._last_reader is None else self._last_reader.unbroken()
        reader = PortReader(self._targets, self._exchange, self._offset_ns, unbroken)
        self._last_reader = reader
        return reader, spread(self._targets)

    def _store_reading(self, row: tuple[int, ...]) -> None:
        self._buffer.append(row)
        if self._failing:
            self._answered.add(self._targets[row[1]].node_name)
        if self._clock() - self._flushed_ns >= FLUSH_NS:
            self._flush()

    def _count_failure(self, target: PortTarget, problem: str) -> None:
        self.summary.failed += 1
        self._board.failed[target.node_name] += 1
        self._failures[target.node_name, problem] += 1
        if self._clock() - self._flushed_ns >= FLUSH_NS:
            self._flush()

    def _flush(self) -> None:
        now = self._clock()
        self._flushed_ns = now
        if self._journal.full:
            self._journal.flush()
        if not self._buffer:
            return
        rows = np.array(self._buffer, RAW)
        self._buffer.clear()
        self._journal.append(rows)
        # While the disk is full, changes are kept in the reader, which has one row for each port.
        if self._last_reader is not None and not self._journal.full:
            errors = self._last_reader.changed_errors()
            self._journal.append(errors)
            self._note_downed(errors)
            self._board.update_errors(errors)
        self._unsynced = True
        self.summary.readings += len(rows)
        self._board.update(rows)
        self._sync()
        too_old = now - self._rolled_ns >= self.settings.roll_ns
        if (too_old or self._journal.size_bytes >= ROLL_BYTES) and not self._journal.full:
            self._roll_segment()

    def _note_downed(self, errors: Rows) -> None:
        """Look for changes where a port counted that its link went down."""
        for at, values in zip(errors["target"].tolist(), errors["values"], strict=True):
            target, count = self._targets[at], int(values[_LINK_DOWNED])
            before = self._downed.get((target.guid, target.port), count)
            self._downed[target.guid, target.port] = count
            if count > before:
                self._hint = True
                change = FabricChange.of("link flapped", target, after=str(count - before))
                self._record([change])

    def _record(self, changes: Sequence[FabricChange], earliest_ns: int | None = None) -> None:
        """Write changes as events, and log the first of them."""
        for change in changes:
            facts = change.event()
            if earliest_ns is not None:
                facts["earliest_ns"] = earliest_ns
            self._event(facts.pop("what"), **facts)
            self._board.changes[change.change] += 1
        self._log_some([described(change) for change in changes])

    def _sync(self) -> None:
        """Flush to the disk if it is due."""
        now = self._clock()
        if self._unsynced and now - self._synced_ns >= SYNC_NS:
            self._synced_ns, self._unsynced = now, False
            self._journal.sync()

    def _report_failures(self) -> None:
        """Record failures since the last call, and log when a device starts or stops failing."""
        self._board.unreachable = len(self._exchange.unresponsive_nodes)
        new: dict[str, list[str]] = {}
        failed_now: Counter[str] = Counter()
        for (name, problem), count in self._failures.most_common():
            self._event("reads failed", node=name, problem=problem, count=count)
            if name not in self._failing:
                self._hint = True
                new.setdefault(name, []).append(f"{counted(count, 'reading')}: {problem}")
            failed_now[name] += count
        self._failing.update(failed_now)
        ended = (self._answered & self._failing.keys()) - failed_now.keys()
        back = {name: self._failing.pop(name) for name in sorted(ended)}
        self._hint |= bool(back)
        self._log_some(
            [
                f"{name[:64]!r}: reads failed ({', '.join(why)}); "
                "not repeated until it answers again"
                for name, why in new.items()
            ]
        )
        self._log_some(
            [
                f"{name[:64]!r} answers again: {counted(count, 'reading')} failed meanwhile"
                for name, count in back.items()
            ]
        )
        for name, count in back.items():
            self._event("answers again", node=name, failed=count)
        self._failures.clear()
        self._answered.clear()

    def _log_some(self, lines: list[str]) -> None:
        for line in lines[:_LINES_PER_SWEEP]:
            self._log(line)
        if len(lines) > _LINES_PER_SWEEP:
            self._log(f"… and {len(lines) - _LINES_PER_SWEEP} more; all are in events/")

    def _event(self, what: str, **facts: Any) -> None:
        if self._targets:
            now = self._clock() + self._offset_ns
            self._journal.event({"time_ns": now, "what": what, **facts})

    def _housekeeping(self) -> bool:
        """Sync and rediscover if it is due. Returns whether the ports changed."""
        if self._journal.full:
            self._journal.flush()
        self._sync()
        self._collect_compaction()
        self._hint |= self._states.step()
        every = self.settings.rediscover_ns
        age = self._clock() - self._discovered_ns
        due = every is not None and age >= every
        # A discovery holds up the sweeps: at most a fifth of the time goes into those on a hint.
        hinted = self._hint and age >= 5 * self._discovery_ns
        return (self._rediscover or due or hinted) and self._find_ports(first=False)

    def _find_ports(self, *, first: bool) -> bool:
        """Find the ports and begin a segment for them. Returns whether they changed."""
        self._rediscover = self._hint = False
        begun = self._clock()
        self._exchange.reset_unresponsive()
        try:
            subnet = self._ask_for_ports()
        except TailbackError as error:
            # Also errors of a discovery file, which may be incomplete when it is read again.
            if first:
                raise
            self._log(f"re-discovery failed, the ports are kept: {error.message}")
            return False
        finally:
            self._discovered_ns = self._clock()
            self._discovery_ns = self._discovered_ns - begun
        if subnet.targets:
            self._states.watch(subnet)
        if first:
            self.summary.notes += subnet.notes
        # What is logged when a device stops answering is not logged again at every discovery.
        quiet = {} if first else self._failing
        problems = [(name, problem) for name, problem in subnet.problems if name not in quiet]
        for name, problem in problems[:_LINES_PER_SWEEP]:
            self._log(f"{name[:64]!r}: {problem}")
        if len(problems) > _LINES_PER_SWEEP:
            self._log(f"… and {len(problems) - _LINES_PER_SWEEP} more problems")
        if not subnet.targets and not first:
            self._log("re-discovery found no port, the ports are kept")
        if not subnet.targets or subnet.targets == self._targets:
            return False
        earlier, earliest_ns = self._collection.last_targets() if first else (None, None)
        if earlier is not None:
            self._links = LinkStates(earlier)
        changes = self._links.update(subnet.targets)
        self._targets = subnet.targets
        self.summary.nodes, self.summary.ports = subnet.nodes, len(subnet.targets)
        ports = counted(len(subnet.targets), "port")
        self._log(f"{counted(subnet.nodes, 'device')}, {ports}")
        self._board.begin(self._targets, self._earlier_readings() if first else None)
        self._roll_segment()
        for name, problem in subnet.problems:
            self._event("discovery", node=name, problem=problem)
        self._record(changes, earliest_ns)
        self._board.down = list(self._links.down.values())
        return True

    def _earlier_readings(self) -> Rows | None:
        """The last readings of the previous session, from which the first intervals are taken."""
        try:
            return self._collection.last_readings(self._targets, self._clock_facts)
        except CounterError as error:
            self._log(f"the metrics begin with the second sweep: {error.message}")
            return None

    def _ask_for_ports(self) -> Subnet:
        settings = self.settings
        if settings.fabric is not None:
            subnet = read_targets(settings.fabric, hosts=settings.hosts, tick_ns=settings.tick_ns)
        else:
            subnet = discover(self._exchange, hosts=settings.hosts, tick_ns=settings.tick_ns)
            subnet = keep_unseen(subnet, self._targets)
        return survey(self._exchange, subnet, self._targets)

    def _roll_segment(self) -> None:
        """Finish the segment, begin the next one and compact the finished ones."""
        facts = {
            "interval_ns": self.settings.interval_ns,
            "begun_ns": self._offset_ns + self._clock(),
            "process": os.getpid(),
            "boot": self._clock_facts.boot,
            "offset_ns": self._offset_ns,
        }
        self._rolled_ns = self._clock()
        self._journal.begin(self._targets, facts)
        if self._last_reader is not None:
            self._last_reader.begin_errors()

    def _compact_first(self) -> None:
        """Convert segments left by a killed collector to tables, unless the disk is full."""
        try:
            self.summary.notes += self._collection.compact()
        except DiskFullError as error:
            self._log(f"segments of an earlier run are not converted: {error.message}")

    def _compact_finished(self, being_written: Path) -> None:
        """Compact finished segments while collecting continues."""
        self._collect_compaction(wait=True)
        self._compacting = self._compactor.submit(self._collection.compact, being_written)

    def _collect_compaction(self, wait: bool = False) -> None:
        task = self._compacting
        if task is None or not (wait or task.done()):
            return
        self._compacting = None
        try:
            self.summary.notes += task.result()
        except (CounterError, OSError) as error:
            # There may be space for readings, which cannot be taken again, but not for tables.
            problem = str(error).splitlines()[0]
            self._event("not compacted", problem=problem)
            self._log(f"segments are not converted until the next is finished: {problem}")

    def _finish(self) -> None:
        """Write everything to the disk, as Parquet where possible."""
        try:
            self._flush()
            self._report_failures()
            self._collect_compaction(wait=True)
        finally:
            self._compactor.shutdown()
            self._journal.close()
        self.summary.notes += self._collection.compact()


def _boot() -> int:
    """Identifier of the machine's boot, as Linux gives it; 0 elsewhere."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        return int(text.replace("-", "")[:16], 16)
    except (OSError, ValueError):
        return 0
