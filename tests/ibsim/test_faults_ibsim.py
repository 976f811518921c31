"""Faults of counters, clock, disk, hosts and subnet manager: what a live collector says, and loses.

Each test is a row of the table that ``bench/faults.py`` writes.
"""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from tailback.port_counters.schema import Flag
from tests.factories.ibsim_subnet import Subnet, free_port, missing, wait_for, write_net

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tools,
    pytest.mark.skipif(bool(missing()), reason=f"needs Debian packages: {' '.join(missing())}"),
]
SHAPE = {"tors": 2, "hosts": 4, "orcas": 1, "leaves": 2, "spines": 2}
PORTS = 2 * (8 + 8 + 2 * 18)
TOP, NEAR = 2**32 - 1, 2**32 - 1000
PORT = 'S-0002c90300800000"[5]'
LONGEST_S = 60
STEPPED = """
import time
from pathlib import Path
_now = time.time_ns
time.time_ns = lambda: _now() + int(Path("step").read_text())
time.time = lambda: time.time_ns() / 1e9
"""
"""Gives the process a clock that the file ``step`` sets forth or back."""

RecordRow = Callable[[str, str, float], None]


@pytest.fixture
def record_row(record_property: Callable[[str, object], None]) -> RecordRow:
    """Records a row of the table: the fault, what is said, and after how many seconds."""

    def record(fault: str, said: str, seconds: float) -> None:
        record_property("fault", f"{fault} | {said} | {f'{seconds:.1f} s' if seconds else ''}")

    return record


@pytest.fixture(scope="module")
def subnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subnet]:
    folder = tmp_path_factory.mktemp("faults")
    write_net(folder / "fabric.net", **SHAPE)
    with Subnet(folder / "fabric.net", folder) as running:
        yield running


@dataclass
class Live:
    """A running collector.

    Attributes:
        subnet: Its subnet.
        out: Its folder.
        child: Its process.
        metrics: Port of its metrics.
    """

    subnet: Subnet
    out: Path
    child: subprocess.Popen[str]
    metrics: int

    @classmethod
    def begin(cls, subnet: Subnet, name: str, before: str = "", *options: str) -> Live:
        """Start it, and wait for its second sweep."""
        port = free_port()
        arguments = ("collect", "--out", name, "--interval", "500 ms", "--metrics", str(port))
        child = subnet.start(*arguments, "--rediscover", "3600 s", *options, before=before)
        live = cls(subnet, subnet.folder / name, child, port)
        assert wait_for(lambda: live.value("collector_sweeps_total") >= 2, LONGEST_S), child.poll()
        return live

    def value(self, metric: str) -> float:
        """Sum of the samples of a metric, 0 before the first page."""
        try:
            url = f"http://127.0.0.1:{self.metrics}/metrics"
            page = urllib.request.urlopen(url, timeout=5).read().decode()
        except OSError:
            return 0.0
        return sum(
            float(v) for v in re.findall(rf"^tailback_{metric}(?:{{.*}})? (\S+)$", page, re.M)
        )

    def sweeps(self, count: int) -> None:
        """Wait for some further sweeps."""
        until = self.value("collector_sweeps_total") + count
        assert wait_for(lambda: self.value("collector_sweeps_total") >= until, LONGEST_S)

    def seconds_to(self, metric: str, value: float = 1) -> float:
        """Seconds until a metric has at least a value."""
        begun = time.monotonic()
        assert wait_for(lambda: self.value(metric) >= value, LONGEST_S), metric
        return time.monotonic() - begun

    def end(self) -> pl.DataFrame:
        """Its intervals."""
        self.child.send_signal(signal.SIGTERM)
        _, err = self.child.communicate(timeout=60)
        assert self.child.returncode == 0, err
        return pl.read_parquet(self.out / "intervals" / "*.parquet").sort("time_ns")


@pytest.fixture
def collector(subnet: Subnet) -> Iterator[Callable[..., Live]]:
    running: list[Live] = []

    def begin(name: str, before: str = "", of: Subnet = subnet) -> Live:
        running.append(Live.begin(of, name, before))
        return running[-1]

    yield begin
    for live in running:
        live.child.kill()
        live.child.communicate()


def waits(subnet: Subnet, value: int) -> None:
    subnet.console([f'PerformanceSet "{PORT} PortCounters.PortXmitWait={value}'])


def complete(intervals: pl.DataFrame, ports: int = PORTS) -> bool:
    """Whether every port has an interval for each sweep.

    The signal ends the last sweep before all ports are read.
    """
    counts = intervals.group_by("node_guid", "port").len()["len"]
    return len(counts) == ports and max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("fault", "before", "after", "metric", "flag", "ticks"),
    [
        ("stall counter fills up", NEAR, TOP, "port_latched_stall_seconds", Flag.LATCHED, 999),
        ("stall counter wraps", NEAR, 500, "collector_wraps_total", Flag.WRAP, 1500),
        ("counter reset by others", 500_000, 3, "collector_resets_total", Flag.RESET, 3),
        (
            "counter jumps to its maximum",
            3,
            TOP,
            "collector_impossible_readings_total",
            Flag.IMPOSSIBLE,
            None,
        ),
    ],
    ids=["latch", "wrap", "reset", "jump"],
)
def test_a_fault_of_a_counter_is_told(
    subnet: Subnet,
    collector: Callable[..., Live],
    record_row: RecordRow,
    fault: str,
    before: int,
    after: int,
    metric: str,
    flag: Flag,
    ticks: int | None,
) -> None:
    waits(subnet, before)
    live = collector(flag.name)
    waits(subnet, after)
    seconds = live.seconds_to(metric)
    live.sweeps(2)
    intervals = live.end()
    record_row(fault, f"`tailback_{metric}`, `{flag.name}`", seconds)
    assert complete(intervals)
    flagged = intervals.filter((pl.col("flags") & int(flag)) > 0, pl.col("port") == 5)
    assert flagged["xmit_wait_ticks"][0] == ticks and flagged["node_guid"].n_unique() == 1


@pytest.mark.parametrize("hours", [-1, 1], ids=["back", "forth"])
def test_a_clock_step_changes_no_interval(
    subnet: Subnet, collector: Callable[..., Live], record_row: RecordRow, hours: int
) -> None:
    step = subnet.folder / "step"
    step.write_text("0")
    live = collector(f"clock{hours}", before=STEPPED)
    step.write_text(str(hours * 3600 * 10**9))
    live.sweeps(4)
    intervals = live.end()
    assert complete(intervals) and intervals["interval_ns"].max() < 60 * 10**9  # type: ignore[operator]
    assert intervals["time_ns"].max() - intervals["time_ns"].min() < 600 * 10**9  # type: ignore[operator]
    record_row(f"clock set {'forth' if hours > 0 else 'back'} by an hour", "nothing", 0.0)


def test_a_full_disk_loses_no_sweep(
    subnet: Subnet, collector: Callable[..., Live], record_row: RecordRow
) -> None:
    live = collector("full")
    size = sum(file.stat().st_size for file in live.out.glob("segments/*"))
    _, most = resource.prlimit(live.child.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(live.child.pid, resource.RLIMIT_FSIZE, (size, most))
    seconds = live.seconds_to("collector_disk_full")
    live.sweeps(3)
    resource.prlimit(live.child.pid, resource.RLIMIT_FSIZE, (most, most))
    assert wait_for(lambda: live.value("collector_disk_full") == 0, LONGEST_S)
    live.sweeps(2)
    assert complete(live.end())
    record_row("disk full, then free", "`tailback_collector_disk_full`", seconds)


@pytest.mark.parametrize("share", [40, 100])
def test_a_slow_host_holds_up_no_other(
    subnet: Subnet, collector: Callable[..., Live], record_row: RecordRow, share: int
) -> None:
    """A host that loses a share of its requests, whose answers so come after repetitions."""
    host = "H-0002c90300100004"
    live = collector(f"slow{share}")
    metric = "collector_mads_repeated_total" if share < 100 else "collector_reads_failed_total"
    try:
        subnet.console([f'Error "{host}" {share}'])
        seconds = live.seconds_to(metric, live.value(metric) + 1)
        live.sweeps(4)
    finally:
        subnet.console([f'Error "{host}" 0'])
    live.sweeps(1)
    intervals = live.end().filter(pl.col("node_guid") != int(host[2:], 16))
    assert complete(intervals, PORTS - 1)
    what = "loses 40 % of requests" if share < 100 else "does not answer"
    record_row(f"a host {what}", f"`tailback_{metric}`", seconds)


def test_standby_subnet_manager_takes_over(tmp_path: Path, record_row: RecordRow) -> None:
    write_net(tmp_path / "fabric.net", **SHAPE)
    with Subnet(tmp_path / "fabric.net", tmp_path) as subnet:
        subnet.add_standby("H-0002c90300100004")
        # ibsim forwards requests for the length of a tick to the manager on that host, which
        # crashes on them (opensm 3.3.23).
        live = Live.begin(subnet, "handed over", "", "--tick", "18.77 ns")
        try:
            begun = time.monotonic()
            subnet.kill_manager()
            live.sweeps(5)
            seconds = time.monotonic() - begun
            changed = live.value("collector_changes_total")
            assert complete(live.end()) and not changed
        finally:
            live.child.kill()
            live.child.communicate()
    record_row("subnet manager killed, the standby takes over", "nothing", seconds)
