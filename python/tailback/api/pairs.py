"""The diagnosis of benchmarks between pairs of hosts: ``tb.diagnose_pairs``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import numpy as np

from tailback.api.stored_result import StoredResult
from tailback.arrays import Floats
from tailback.calibration.fitted_series import MIN_STREAM_BYTES
from tailback.calibration.model import BenchmarkData, CalibrationError, Series
from tailback.calibration.places import host_names, split_hosts
from tailback.calibration.readers import files_of, read_benchmark_runs
from tailback.diagnosis.confidence import MODELLED
from tailback.errors import known_keywords, nearest, option
from tailback.fabric.model import Fabric
from tailback.frozen_model import FrozenModel
from tailback.inference.slow_pairs import (
    LEAST_SLOWDOWN,
    PairFault,
    PairFaults,
    PairTime,
    Suspect,
    find_pair_faults,
    quickest,
)
from tailback.io.input_files import recording_files
from tailback.simulation.prepare import load_fabric
from tailback.sources.request import DiagnosisRequest
from tailback.sources.source import network_section
from tailback.units import counted, percent

SURE: Final = 0.9
"""Probability from which a suspect is named as the fault."""

ROUNDED: Final = 1.05
"""Largest rate of a test over that of all links of a host: both are rounded."""

DIFFERENT: Final = 0.2
"""Relative difference of the times of a pair in two files from which these are of two states: tests
of one state repeat within a few percent."""

REACHED: Final = 0.75
"""Share of the rate of their links that pairs of hosts reach at least if nothing is wrong: headers
take less than a tenth, and a large message's latency as much."""

_NEAR_LARGEST: Final = 8
"""Sizes are compared from this fraction of the largest on, where latency takes no part."""


PairsCause = Literal["corrupted", "slow-link", "healthy", "undetermined"]
"""What tests of pairs show: received data was wrong; a host, adapter, cable or rail is slow; none
is; or they do not tell."""


class SlowPart(FrozenModel):
    """Something that slows the pairs that use it.

    Attributes:
        kind: Kind of the first suspect (:class:`tailback.inference.slow_pairs.Suspect`).
        subject: What is slow, in words: several suspects if the same pairs use them.
        hosts: Hosts among the suspects.
        cables: Cables among the suspects, by their ends; empty without a fabric.
        probability: 0–1.
        slowdown: Factor of the times.
        gbps: Mean rate of the slow pairs that nothing else slows.
        pairs: Names of the slow pairs.
        rivals: Other explanations with their probabilities.
        check: What to do next.
    """

    kind: str
    subject: str
    hosts: tuple[str, ...]
    cables: tuple[str, ...]
    probability: float
    slowdown: float
    gbps: float
    pairs: tuple[str, ...]
    rivals: tuple[tuple[str, float], ...]
    check: str


class PairsResult(StoredResult):
    """What benchmarks between pairs of hosts show.

    Attributes:
        cause: The verdict.
        headline: The same in a few sentences.
        next_step: What to do next, one sentence.
        confidence: Probability of ``cause``, or of the likeliest if it is undetermined, 0–1.
        chances: Probability of each cause, and of ``unexplained``: all pairs are slow alike.
        corrupted: Tests that received wrong data.
        slow: What is slow, what the most tests show first.
        healthy_gbps: Usual rate of the other pairs; None if there are none.
        line_gbps: Rate of the hosts' links; None without a fabric.
        tests: Number of tests.
        least: Smallest relative slowdown that would have been found.
        notes: What was not used, and why.
    """

    cause: PairsCause
    headline: str
    next_step: str
    confidence: float
    chances: dict[str, float]
    corrupted: tuple[str, ...]
    slow: tuple[SlowPart, ...]
    healthy_gbps: float | None
    line_gbps: float | None
    tests: int
    least: float
    notes: tuple[str, ...]


@known_keywords()
def diagnose_pairs(
    files: Sequence[str | Path] | str | Path, *, fabric: str | Path | None = None
) -> PairsResult:
    """Find the slow host, adapter, cable or rail from benchmarks between pairs of hosts.

    Args:
        files: Outputs of bandwidth tests (nccl-tests, OSU, perftest …), one for each pair or
            several in a file, or their folder; ``FILE@HOSTS`` names the hosts of one.
        fabric: Network: a file, a preset or a scenario. It names cables and leaf switches.

    Raises:
        TailbackError: No file can be used, or a host is not in the fabric.

    Example:
        >>> tb.diagnose_pairs("pairs/", fabric="fabric.txt").headline
    """
    named = [files] if isinstance(files, (str, Path)) else list(files)
    notes: list[str] = []
    with recording_files() as read:
        network = None if fabric is None else load_fabric(network_section(fabric))
        runs, corrupted = _read(named, network, notes)
    tests = _common_kind(runs, notes)
    _require_one_measurement(tests)
    rated = _Tests.of(tests, network, notes)
    result = _result(rated, find_pair_faults(rated.tests), corrupted, notes)
    request = DiagnosisRequest.of([Path(file) for file in named], read, {"fabric": fabric})
    return result.model_copy(update={"request": request})


@dataclass(frozen=True)
class _Run:
    """A series of rates, its hosts in rank order, the devices of its ranks, and its file."""

    series: Series
    hosts: tuple[str, ...]
    devices: tuple[int, ...]
    file: str


@dataclass(frozen=True)
class _Corrupted:
    """A test that received wrong data: its hosts if they are known, its file, and what is wrong."""

    hosts: tuple[str, ...]
    file: str
    wrong: str

    def __str__(self) -> str:
        return f"{'–'.join(self.hosts) or self.file} ({self.wrong})"


def _read(
    named: Sequence[str | Path], fabric: Fabric | None, notes: list[str]
) -> tuple[list[_Run], list[_Corrupted]]:
    """The rates of all files, and which received wrong data; notes name what is left out."""
    out: list[_Run] = []
    corrupted: list[_Corrupted] = []
    problems: list[CalibrationError] = []
    for name in named:
        path, hosts = split_hosts(name)
        stated_hosts = [] if hosts is None else host_names(hosts, fabric)
        for file in files_of(path):
            try:
                runs = read_benchmark_runs(file)
            except CalibrationError as error:
                problems.append(error)
                place = f", {error.place}" if error.place else ""
                notes.append(f"left out: {file.name}{place}: {error.message}")
                continue
            for data in runs:
                ends = tuple(dict.fromkeys(stated_hosts or data.hosts))
                out += _rates(data, ends, file, notes)
                if data.corrupted:
                    corrupted.append(_Corrupted(ends, file.name, data.corrupted))
    if not out and problems:
        raise problems[0]
    return out, corrupted


def _rates(data: BenchmarkData, hosts: tuple[str, ...], file: Path, notes: list[str]) -> list[_Run]:
    """The rates of a run between two hosts, or within one."""
    notes += [f"{file.name}: {note}" for note in data.notes]
    out = []
    for series in data.series:
        if lacking := _lacking_hosts(series, hosts, file):
            notes.append(f"left out: {file.name}: {lacking}")
        elif series.quantity == "stream" and series.size_bytes.max() >= MIN_STREAM_BYTES:
            out.append(_Run(series, hosts, tuple(data.devices), file.name))
        else:
            notes.append(f"left out: {file.name}: {series.source} shows no rate of large messages")
    return out


def _lacking_hosts(series: Series, hosts: Sequence[str], file: Path) -> str:
    """Why the ends of a test are not known; empty if they are."""
    name = f"name both: {file.name}@CLIENT,SERVER"
    if not hosts:
        return f"{series.source} does not print its hosts; {name}"
    if len(hosts) > 2:
        return f"{series.source} of {len(hosts)} hosts, not of a pair"
    if len(hosts) == 1 and series.layer == "verbs":
        return f"of the two ends of {series.source} only {hosts[0]} is known; {name}"
    return ""


def _common_kind(runs: list[_Run], notes: list[str]) -> list[_Run]:
    """The runs of the test that most of them are of, between pairs or within hosts."""
    kinds: dict[tuple[str, str], list[_Run]] = {}
    for run in runs:
        kinds.setdefault((run.series.layer, run.series.source), []).append(run)
    if not kinds:
        why = f" ({notes[0]})" if notes else ""
        raise CalibrationError(
            f"no rate between two hosts in the files{why}",
            remedy="give bandwidth tests of pairs of hosts, such as sendrecv_perf of nccl-tests",
        )
    chosen = max(kinds.values(), key=len)
    others = len(runs) - len(chosen)
    if others:
        notes.append(f"{counted(others, 'run')} of other tests than {chosen[0].series.source}")
    if len({frozenset(run.hosts) for run in chosen}) < 3:
        raise CalibrationError(
            f"tests of {len({frozenset(run.hosts) for run in chosen})} pairs of hosts",
            remedy="give those of at least three pairs: what is slow is found by comparison",
        )
    return chosen


def _require_one_measurement(runs: list[_Run]) -> None:
    """Raise CalibrationError if files tell different rates of the same pairs.

    A pair that fails now and then differs alone; those of two states of a machine differ together.
    """
    seen: dict[tuple[object, ...], tuple[float, _Run]] = {}
    differing: list[tuple[_Run, _Run]] = []
    repeated = 0
    for run in runs:
        size, time = run.series.size_bytes, run.series.time_ps
        last = int(np.argmax(size))
        slowness = float(np.log(time[last] / size[last]))
        pair = (run.hosts, run.devices, float(size[last]))
        other, first = seen.setdefault(pair, (slowness, run))
        if first.file != run.file:
            repeated += 1
            if abs(slowness - other) > math.log(1.0 + DIFFERENT):
                differing.append((first, run))
    if len(differing) < 2 or 2 * repeated < len(seen):
        return
    first, run = differing[0]
    raise CalibrationError(
        f"{'–'.join(run.hosts)} and {counted(len(differing) - 1, 'other pair')} reach another rate "
        f"than in {first.file}: these are of two states of the machine",
        file=run.file,
        remedy="give the tests of one time",
    )


@dataclass
class _Tests:
    """Tests that can be compared.

    Attributes:
        tests: The tests.
        fabric: The network; None unknown.
        line_gbps: Rate of the hosts' links; None unknown.
        node_of: Adapter of a host by its rail, where the fabric has it.
        too_fast: Tests that are left out since the links do not allow their rates, with these.
    """

    tests: list[PairTime]
    fabric: Fabric | None
    line_gbps: float | None = None
    node_of: dict[tuple[str, int], int] = field(default_factory=dict)
    too_fast: list[tuple[_Run, float]] = field(default_factory=list)

    @classmethod
    def of(cls, runs: list[_Run], fabric: Fabric | None, notes: list[str]) -> _Tests:
        out = cls([], fabric)
        devices = {device for run in runs for device in run.devices}
        n_devices = max(devices, default=-1) + 1
        if fabric is not None:
            out._find_adapters(runs)
        sizes = set.intersection(*(set(run.series.size_bytes.tolist()) for run in runs))
        largest = max(sizes, default=0.0)
        sizes = {size for size in sizes if size >= max(largest / _NEAR_LARGEST, MIN_STREAM_BYTES)}
        if not sizes:
            notes.append("the tests have no large size in common: their largest are compared")
        for run in runs:
            rail = out._rail(run, n_devices, several=len(devices) > 1)
            leaves = tuple(out._leaf(host, max(rail, 0)) for host in run.hosts)
            gbps, log_time = _compared(run.series, sizes)
            if gbps > out._most_gbps(run):
                out.too_fast.append((run, gbps))
                continue
            directed = run.series.layer != "nccl" and run.series.pairs == 1
            out.tests.append(PairTime(run.hosts, rail, leaves, gbps, log_time, directed))
        out._require_possible(len(runs))
        return out

    def _ports(self, run: _Run) -> int:
        """Number of adapters of a host of a test."""
        return max((sum(host == name for name, _ in self.node_of) for host in run.hosts), default=0)

    def _most_gbps(self, run: _Run) -> float:
        """Largest rate that the links of its hosts allow a test."""
        if self.line_gbps is None or len(run.hosts) < 2:
            return math.inf
        return self.line_gbps * self._ports(run) * ROUNDED

    def _require_possible(self, runs: int) -> None:
        """Raise CalibrationError if those that are taken for healthy, the quickest, cannot be."""
        if 2 * len(self.too_fast) <= quickest(runs):
            return
        many = (
            "every test" if len(self.too_fast) == runs else f"{len(self.too_fast)} of {runs} tests"
        )
        raise CalibrationError(
            f"{many}, such as {self.impossible()}: faster than these links allow",
            file=self.too_fast[0][0].file,
            remedy=f"correct the rates in {option('fabric')}, or the unit of the tests; without it "
            "tests are compared with one another alone",
        )

    def impossible(self) -> str:
        """The first test that is too fast, in words; empty if there is none."""
        if not self.too_fast:
            return ""
        run, gbps = self.too_fast[0]
        return (
            f"{'–'.join(run.hosts)} at {gbps:.4g} Gb/s over {counted(self._ports(run), 'link')} of "
            f"{self.line_gbps:.4g} Gb/s"
        )

    def _find_adapters(self, runs: list[_Run]) -> None:
        assert self.fabric is not None
        number = {name: k for k, name in enumerate(self.fabric.host_name)}
        nodes = self.fabric.host_nodes()
        for run in runs:
            for host in run.hosts:
                if host not in number:
                    raise CalibrationError(
                        f"host {host[:80]!r} of {run.file} is not in the fabric",
                        remedy=nearest(host, number),
                    )
                for rail, node in enumerate(nodes[number[host]]):
                    self.node_of[host, rail] = node
        up = self.fabric.link_src < self.fabric.n_nodes
        self.line_gbps = float(np.median(self.fabric.link_gbps[up])) if up.any() else None

    def _rail(self, run: _Run, n_devices: int, *, several: bool) -> int:
        """The adapter that a run used on each host: that of its accelerators, evenly divided."""
        if len(set(run.devices)) != 1 or not several:
            return -1
        rails = sum(host == run.hosts[0] for host, _ in self.node_of)
        if not rails:
            return run.devices[0]
        if rails == 1 or n_devices % rails:
            return run.devices[0] if 1 < n_devices <= rails else -1
        return run.devices[0] * rails // n_devices

    def _leaf(self, host: str, rail: int) -> str:
        node = self.node_of.get((host, rail))
        if self.fabric is None or node is None:
            return ""
        switch = int(self.fabric.node_switch[node])
        return self.fabric.switch_name[switch] if switch >= 0 else ""

    def cables(self, suspect: Suspect) -> list[str]:
        """Names of the cables of a suspected host or adapter."""
        if self.fabric is None or suspect.kind not in ("host", "adapter", "sends", "receives"):
            return []
        nodes = [
            node
            for (host, rail), node in self.node_of.items()
            if host in suspect.names and suspect.rail in (-1, rail)
        ]
        links = np.flatnonzero(np.isin(self.fabric.link_src, nodes))
        return [self.fabric.link_name(int(link)) for link in links]


def _compared(series: Series, sizes: set[float]) -> tuple[float, float]:
    """Rate at the largest compared size, Gb/s, and mean logarithm of the time of a byte."""
    size, time = series.size_bytes, series.time_ps
    used = np.isin(size, list(sizes)) if sizes else size == size.max()
    last = int(np.argmax(np.where(used, size, 0)))
    mean = float(np.log(time[used] / size[used]).mean())
    return float(size[last] * 8000 / time[last]), mean


def _result(
    rated: _Tests, evident: PairFaults, corrupted: Sequence[_Corrupted], notes: list[str]
) -> PairsResult:
    tests = rated.tests
    slow = np.zeros(len(tests), np.bool_)
    for fault in evident.faults:
        slow |= fault.slow
    rate = np.array([test.gbps for test in tests])
    usual = None if slow.all() else float(np.median(rate[~slow]))
    parts = tuple(_slow_part(rated, fault, rate) for fault in evident.faults)
    # A host takes part in few tests: four standard deviations of one of them are beyond chance.
    least = max(LEAST_SLOWDOWN, math.expm1(4 * evident.noise))
    alone = ~slow & (rate * (1.0 + least) < (usual or 0.0))
    verdict = _PairsVerdict.of(parts, usual, int((~slow & ~alone).sum()), len(tests), least)
    if alone.any():
        verdict.add_unexplained([test for test, odd in zip(tests, alone, strict=True) if odd])
    verdict.compare_with_links(rated, usual, parts)
    if rated.too_fast:
        verdict.headline = f"{_too_fast(rated)} {verdict.headline}"
    sick = min(1.0 - evident.healthy, MODELLED)
    chances = {"slow-link": sick, verdict.otherwise: min(1.0 - sick, MODELLED)}
    if corrupted:
        verdict.put_first(corrupted)
        chances = {"corrupted": 1.0}
    return PairsResult(
        cause=verdict.cause,
        headline=verdict.headline,
        next_step=verdict.next_step,
        confidence=chances.get(verdict.cause, max(chances.values())),
        chances=chances,
        corrupted=tuple(str(each) for each in corrupted),
        slow=parts,
        healthy_gbps=usual,
        line_gbps=rated.line_gbps,
        tests=len(tests),
        least=least,
        notes=tuple(notes),
    )


@dataclass
class _PairsVerdict:
    """Cause, headline and next step, as they are put together.

    Attributes:
        otherwise: What it is if nothing that pairs share is slow.
    """

    cause: PairsCause
    headline: str
    next_step: str
    otherwise: str = "healthy"

    @classmethod
    def of(
        cls, parts: Sequence[SlowPart], usual: float | None, healthy: int, tests: int, least: float
    ) -> _PairsVerdict:
        """By comparison of the tests with one another."""
        if not parts:
            assert usual is not None
            reach = counted(tests, "test") if healthy == tests else f"{healthy} of {tests} tests"
            return cls(
                "healthy",
                f"No host, adapter or cable is slower than others: {reach} reach {usual:.4g} Gb/s. "
                f"One that takes {percent(least)} longer would have been seen.",
                "If a program is slow all the same, diagnose its trace: tailback diagnose TRACE",
            )
        first = parts[0]
        text = (
            f"{first.subject} is slow: {counted(len(first.pairs), 'pair')} that use it reach "
            f"{first.gbps:.4g} Gb/s"
        )
        if usual is not None:
            text += (
                f", where {healthy} of {tests} tests reach {usual:.4g} "
                f"({percent(first.slowdown - 1)} longer)"
            )
        if len(parts) > 1:
            are = "is" if len(parts) == 2 else "are"
            text += f". So {are} {'; '.join(part.subject for part in parts[1:])}"
        sure = first.probability >= SURE
        step = f"Of {first.subject}: {first.check[:1].lower()}{first.check[1:]}"
        return cls("slow-link" if sure else "undetermined", f"{text}.", step)

    def add_unexplained(self, tests: Sequence[PairTime]) -> None:
        """Slow tests that no fault explains."""
        slowest = min(tests, key=lambda test: test.gbps)
        others = f", and {len(tests) - 1} more" if len(tests) > 1 else ""
        name = "–".join(slowest.hosts)
        self.headline += (
            f" But {name} reached {slowest.gbps:.4g} Gb/s{others}: repeat it, as either that test "
            "was disturbed or the path between these hosts is slow."
        )
        if self.cause == "healthy":
            self.cause = "undetermined"
            self.next_step = f"Repeat the test of {name}: the path is slow if it is slow again."

    def compare_with_links(
        self, rated: _Tests, usual: float | None, parts: Sequence[SlowPart]
    ) -> None:
        """What the rate of the other tests is of that of the links of their hosts."""
        line = rated.line_gbps
        if all(len(set(test.hosts)) < 2 for test in rated.tests):
            self.headline += " All tests ran within hosts, so no adapter or cable was tested."
            if not parts:
                self.cause, self.otherwise = "undetermined", "unexplained"
                self.next_step = "Test pairs of hosts, with one rank on each."
        elif line is None:
            self.headline += (
                f" Whether that is the rate of their links is open without {option('fabric')}."
            )
        elif usual is not None and usual < REACHED * line and not parts:
            self.cause, self.otherwise = "undetermined", "unexplained"
            self.headline, self.next_step = _all_slow(rated, usual)
        elif usual is not None and usual < line:
            whose = "The others" if parts else "They"
            self.headline += (
                f" {whose} reach {percent(usual / line)} of the {line:.4g} Gb/s of their links."
            )

    def put_first(self, corrupted: Sequence[_Corrupted]) -> None:
        """Wrong data: a program computes wrong results, however fast."""
        shown = "; ".join(map(str, corrupted[:_SHOWN]))
        more = f"; and {len(corrupted) - _SHOWN} more" if len(corrupted) > _SHOWN else ""
        tests = counted(len(corrupted), "test")
        text = f"Data arrived wrong in {tests}: {shown}{more}."
        common = set.intersection(*(set(each.hosts) for each in corrupted))
        pair = " and ".join(sorted(common)) or "these hosts"
        if common and len(corrupted) > 1:
            text += f" All use {pair}."
        self.cause = "corrupted"
        self.headline = f"{text} {self.headline}"
        self.next_step = (
            f"Take {pair} out of service, since results of programs may be wrong: check the memory "
            "of accelerators and hosts (ECC errors), the errors of cables, drivers and libraries."
        )


_SHOWN: Final = 3
"""Tests that a headline names."""


def _too_fast(rated: _Tests) -> str:
    """That the rates of tests cannot be, as a sentence."""
    others = f" (and {len(rated.too_fast) - 1} more)" if len(rated.too_fast) > 1 else ""
    return f"Left out as impossible: {rated.impossible()}{others}; check its unit."


def _all_slow(rated: _Tests, usual: float) -> tuple[str, str]:
    """The verdict on tests that all reach as little of the rate of their links; and what to do."""
    assert rated.line_gbps is not None
    hosts = set.intersection(*(set(test.hosts) for test in rated.tests))
    text = (
        f"No host is slower than others, but all pairs are slow: they reach {usual:.4g} Gb/s, "
        f"{percent(usual / rated.line_gbps)} of the {rated.line_gbps:.4g} Gb/s of their links."
    )
    if hosts:
        names = " and ".join(sorted(hosts))
        return f"{text} All tests use {names}, which may be slow.", f"Test pairs without {names}."
    return text, (
        "Look at what they have in common: PCIe width, MTU, GPUDirect, adapters that the tests "
        "leave unused, their settings, the rates in the fabric."
    )


def _slow_part(rated: _Tests, fault: PairFault, rate: Floats) -> SlowPart:
    cables = list(dict.fromkeys(c for s in fault.suspects for c in rated.cables(s)))
    hosts = tuple(
        dict.fromkeys(
            name for s in fault.suspects if s.kind not in ("uplinks", "path") for name in s.names
        )
    )
    names = _subject(fault.suspects, cables)
    pairs = dict.fromkeys(
        "–".join(test.hosts) + (f" rail {test.rail}" if test.rail >= 0 else "")
        for test, slow in zip(rated.tests, fault.slow, strict=True)
        if slow
    )
    return SlowPart(
        kind=fault.suspects[0].kind,
        subject=names,
        hosts=hosts,
        cables=tuple(cables),
        probability=min(fault.probability, MODELLED),
        slowdown=fault.slowdown,
        gbps=float(rate[fault.alone].mean()),
        pairs=tuple(pairs),
        rivals=tuple((_words(suspect), chance) for suspect, chance in fault.rivals),
        check=_check(fault, rated, hosts),
    )


def _subject(suspects: Sequence[Suspect], cables: Sequence[str]) -> str:
    """What is slow, in words; a host and what only it uses are named once."""
    hosts = [s for s in suspects if s.kind == "host"]
    shown = [
        s
        for s in suspects
        if not (s.kind == "adapter" and any(s.names == host.names for host in hosts))
        and not (s.kind == "path" and len(hosts) > 1)
    ]
    text = " or ".join(dict.fromkeys(_words(s) for s in shown[:3]))
    if cables and any(s.kind in ("host", "adapter") for s in suspects) and len(cables) <= 2:
        text += f" (cable {' or '.join(cables)})"
    elif any(s.kind in ("host", "adapter") for s in suspects):
        text += " or its cable" if len(shown) == 1 else " or their cables"
    return text


def _words(suspect: Suspect) -> str:
    names = " and ".join(suspect.names)
    return {
        "host": f"host {names}",
        "inside": f"host {names} inside",
        "sends": f"what {names} sends",
        "receives": f"what {names} receives",
        "adapter": f"adapter {suspect.rail} of {names}",
        "rail": f"rail {suspect.rail}",
        "uplinks": f"the links of {names} to other switches"
        if len(suspect.names) == 1
        else f"the path between {names}",
        "path": f"the path between {names}",
    }[suspect.kind]


def _check(fault: PairFault, rated: _Tests, hosts: Sequence[str]) -> str:
    kinds = {suspect.kind for suspect in fault.suspects}
    tested = dict.fromkeys(
        host
        for test, slow in zip(rated.tests, fault.slow, strict=True)
        if not slow
        for host in test.hosts
    )
    partner = next((host for host in tested if host not in hosts), "")
    if len(hosts) > 1 and partner:
        return f"Measure {' and '.join(hosts)} each with {partner}: that tells which one is slow."
    if kinds & {"adapter"}:
        return "Check that adapter, its cable and the port at its other end (speed, errors)."
    if kinds & {"host"}:
        return (
            "Check the cable and adapter (speed, width, errors of both ends), then the host: PCIe "
            "width, clocks, other processes. A test within the host tells them apart."
        )
    if kinds & {"uplinks", "path"}:
        path = next(suspect for suspect in fault.suspects if suspect.kind in ("uplinks", "path"))
        return f"Check {_words(path)}: speed and errors of its links, and how flows are hashed."
    return "Check the switch of this rail." if "rail" in kinds else "Check NVLink, PCIe, clocks."
