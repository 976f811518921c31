"""Files that ordinary tools would have written of a case of the foreign reality.

Trace (OTF2 with the events of Score-P), network (ibnetdiscover or a CSV of Ethernet links),
forwarding tables (dump_lfts), counters (perfquery, Prometheus or a CSV of Ethernet interfaces) and
a job list (sacct).
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from _cases import Definitions, write_clock_offsets
from foreign_case import Case
from foreign_machine import READING, Machine, Result
from foreign_programs import Call, Program
from numpy.typing import NDArray

TICKS_PER_S = 10**9
NO_ROOT = 2**32 - 1
DEVICE = {"QDR": (0xC738, 0x1003), "FDR": (0xC738, 0x1003), "EDR": (0xCB20, 0x1013)}
"""Device ids of switches and adapters of each speed."""

OURS, OTHER, IDLE = "77001", "76980", "76411"
"""Numbers of jobs."""


# --- network ---------------------------------------------------------------------------------


def _guid(machine: Machine, vertex: int) -> int:
    kind = 0x0008_F104_0000_0000 if vertex < machine.hosts else 0x0008_F105_0000_0000
    return kind + 0x40 * (vertex + 1)


def _lid(vertex: int) -> int:
    return vertex + 1


def write_discovery(path: Path, machine: Machine) -> None:
    """What ``ibnetdiscover`` prints."""
    ports: dict[int, list[tuple[int, int, int]]] = {}
    for low, at, high, to in machine.cables:
        ports.setdefault(low, []).append((at, high, to))
        ports.setdefault(high, []).append((to, low, at))

    def tag(vertex: int) -> str:
        return f"{'H' if vertex < machine.hosts else 'S'}-{_guid(machine, vertex):016x}"

    def title(vertex: int) -> str:
        return machine.name(vertex) + (" HCA-1" if vertex < machine.hosts else "")

    lines = ["#", "# Topology file: generated on Sat Nov 28 2026", "#", ""]
    switches = range(machine.hosts, machine.hosts + machine.switches)
    for vertex in [*switches, *range(machine.hosts)]:
        host = vertex < machine.hosts
        guid = _guid(machine, vertex)
        lines += ["vendid=0x2c9", f"devid=0x{DEVICE[machine.speed][host]:x}"]
        lines += [f"sysimgguid=0x{guid:x}"]
        lines += [f"caguid=0x{guid:x}" if host else f"switchguid=0x{guid:x}({guid:x})"]
        head = f'Ca\t1 "{tag(vertex)}"' if host else f'Switch\t36 "{tag(vertex)}"'
        about = "" if host else f" enhanced port 0 lid {_lid(vertex)} lmc 0"
        lines.append(f'{head}\t\t# "{title(vertex)}"{about}')
        for at, peer, to in sorted(ports[vertex]):
            port_guid = f"({guid + 1:x})" if host else ""
            far = f"({_guid(machine, peer) + 1:x})" if peer < machine.hosts else ""
            mine = f"lid {_lid(vertex)} lmc 0 " if host else ""
            lines.append(
                f'[{at}]{port_guid}\t"{tag(peer)}"[{to}]{far}\t\t# {mine}"{title(peer)}" '
                f"lid {_lid(peer)} 4x{machine.speed}"
            )
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def write_links(path: Path, machine: Machine) -> None:
    """The inventory of an Ethernet, a line for each link."""
    with path.open("w", newline="", encoding="ascii") as file:
        out = csv.writer(file)
        out.writerow(["link", "src", "dst", "iface", "rate_mbit"])
        for link, (src, dst) in enumerate(machine.links):
            names = [machine.name(src), machine.name(dst), _interface(machine, link)]
            out.writerow([link + 1, *names, round(machine.gbps * 1000)])


def _interface(machine: Machine, link: int) -> str:
    host = machine.links[link][0] < machine.hosts
    return "eth0" if host else f"swp{machine.port(link)}"


def write_tables(path: Path, machine: Machine, table: list[list[list[int]]]) -> None:
    """What ``dump_lfts`` prints."""
    lines = []
    for switch, rows in enumerate(table):
        vertex = machine.hosts + switch
        lines += [
            f"Unicast lids [0x0-0x{machine.hosts:x}] of switch Lid {_lid(vertex)} "
            f"guid 0x{_guid(machine, vertex):016x} ({machine.name(vertex)}):",
            "  Lid  Out   Destination",
            "       Port     Info",
        ]
        reached = [(host, some[0]) for host, some in enumerate(rows) if some]
        lines += [
            f"0x{_lid(host):04x} {machine.port(link):03d} : (Channel Adapter portguid "
            f"0x{_guid(machine, host) + 1:016x}: '{machine.name(host)} HCA-1')"
            for host, link in reached
        ]
        lines.append(f"{len(reached)} valid lids dumped")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


# --- counters --------------------------------------------------------------------------------


MOST_RECOVERIES = 255
"""Value at which the counter of link recoveries stops (8 bits)."""


@dataclass(frozen=True)
class Reader:
    """How counters are read.

    Attributes:
        form: ``perfquery``, ``prometheus`` or ``ethernet``.
        interval_ps: From one reading of a port to its next.
        clock_ns: How far the reader's clock is ahead of UTC.
        hosts: Adapters are read, too.
        adapter_tick_bytes: Bytes in a tick of an adapter.
    """

    form: str
    interval_ps: int
    clock_ns: int
    hosts: bool
    adapter_tick_bytes: int


def write_counters(
    folder: Path, machine: Machine, result: Result, reader: Reader, utc_ns: int, seed: int
) -> None:
    """Counters of all ports that are read, as the tool prints them."""
    folder.mkdir()
    rng = np.random.Generator(np.random.Philox(key=[seed, 11]))
    start = rng.integers(1 << 34, size=(len(machine.links), 3))
    rows = []
    for reading in result.readings.tolist():
        row = dict(zip(READING, reading, strict=True))
        link = row["link"]
        host = machine.links[link][0] < machine.hosts
        if host and not reader.hosts:
            continue
        tick = (reader.adapter_tick_bytes if host else 128) * 8000 / machine.gbps
        row["ns"] = utc_ns + reader.clock_ns + row["ps"] // 1000
        row["words"] = int(start[link, 0]) + row["bytes"] // 4
        row["count"] = int(start[link, 1] >> 8) + row["packets"]
        row["ticks"] = int(start[link, 2] >> 8) + int(row["wait_ps"] / tick)
        row["recoveries"] = min(int(start[link, 2] & 3) + row["retrains"], MOST_RECOVERIES)
        rows.append(row)
    rows.sort(key=lambda row: row["ns"])
    {"perfquery": _perfquery, "prometheus": _prometheus, "ethernet": _ethernet}[reader.form](
        folder, machine, rows
    )


def _perfquery(folder: Path, machine: Machine, rows: list[dict[str, int]]) -> None:
    """A file for each sweep over all ports, written when its last port was read."""
    sweeps: dict[int, list[dict[str, int]]] = {}
    read: Counter[int] = Counter()
    for row in rows:
        sweeps.setdefault(read[row["link"]], []).append(row)
        read[row["link"]] += 1
    for number, sweep in sweeps.items():
        lines = []
        for row in sweep:
            port = machine.port(row["link"])
            where = f"Lid {_lid(machine.links[row['link']][0])} port {port}"
            lines.append(f"# Port counters: {where} (CapMask: 0x5300)")
            for name, value in (
                ("PortSelect", port),
                ("LinkErrorRecoveryCounter", row["recoveries"]),
            ):
                lines.append(f"{name}:{'.' * (33 - len(name))}{value}")
            lines.append(f"# Port extended counters: {where} (CapMask: 0x5300 CapMask2: 0x2)")
            for name, value in (
                ("PortSelect", port),
                ("PortXmitData", row["words"]),
                ("PortXmitPkts", row["count"]),
                ("PortXmitWait", row["ticks"]),
            ):
                lines.append(f"{name}:{'.' * (33 - len(name))}{value}")
        path = folder / f"perfquery-{number:04d}.txt"
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
        os.utime(path, ns=(sweep[-1]["ns"], sweep[-1]["ns"]))


def _prometheus(folder: Path, machine: Machine, rows: list[dict[str, int]]) -> None:
    """An answer of ``/api/v1/query_range``."""
    series: dict[tuple[str, int], list[list[Any]]] = {}
    for row in rows:
        at = round(row["ns"] / 1e9, 6)
        for name, value in (
            ("xmit_bytes_total", row["words"] * 4),
            ("xmit_packets_total", row["count"]),
            ("xmit_wait_ticks_total", row["ticks"]),
            ("link_error_recovery_total", row["recoveries"]),
        ):
            series.setdefault((name, row["link"]), []).append([at, str(value)])
    result = []
    for (name, link), values in series.items():
        src, dst = machine.links[link]
        metric = {
            "__name__": f"tailback_port_{name}",
            "guid": f"0x{_guid(machine, src):016x}",
            "node": machine.name(src),
            "port": str(machine.port(link)),
            "peer": machine.name(dst),
        }
        result.append({"metric": metric, "values": values})
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    (folder / "range.json").write_text(json.dumps(answer), encoding="utf-8")


def _ethernet(folder: Path, machine: Machine, rows: list[dict[str, int]]) -> None:
    """Interfaces with bytes, queues, the pauses that they obeyed and how often links went down."""
    with (folder / "interfaces.csv").open("w", newline="", encoding="ascii") as file:
        out = csv.writer(file)
        head = "time_utc,node,iface,tx_bytes,tx_packets,queue_bytes"
        pauses = ("rx_prio3_pause", "rx_prio3_pause_duration")
        out.writerow([*head.split(","), *pauses, "link_down_events_phy"])
        for row in rows:
            link = row["link"]
            src = machine.links[link][0]
            when = datetime.fromtimestamp(row["ns"] // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            queued = row["queued"] if src >= machine.hosts else ""
            counts = [row["bytes"], row["packets"], queued, row["pauses"], row["paused_ps"] // US]
            names = [machine.name(src), _interface(machine, link)]
            time = f"{when}.{row['ns'] % 10**9 // 1000:06d}Z"
            out.writerow([time, *names, *counts, row["recoveries"]])


US = 10**6


# --- jobs ------------------------------------------------------------------------------------


def write_jobs(path: Path, case: Case, utc_ns: int, elapsed_ps: int) -> None:
    """What ``SLURM_TIME_FORMAT=%s sacct -a -X --parsable2`` prints."""
    second = utc_ns // 10**9
    end = (utc_ns + elapsed_ps // 1000) // 10**9 + 2
    jobs = [(OURS, sorted(set(case.hosts)), second - 1, str(end), "COMPLETED")]
    other = case.causes.get("other_traffic")
    if other and other["named"]:
        jobs.append((OTHER, sorted(other["hosts"]), second - 900, "Unknown", "RUNNING"))
    if case.idle:
        jobs.append((IDLE, sorted(case.idle), second - 5000, "Unknown", "RUNNING"))
    lines = ["JobID|Start|End|State|NodeList"]
    for job, hosts, began, ended, state in sorted(jobs):
        names = ",".join(case.machine.name(host) for host in hosts)
        lines.append(f"{job}|{began}|{ended}|{state}|{names}")
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


# --- trace -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clocks:
    """Clocks of the hosts: offset, drift, and a drift that changes as they warm up.

    Attributes:
        offset_ns, drift, bend: Shape (hosts,); nanoseconds, s/s and 1/s.
        recorded: Score-P measured the offsets at both ends of the run, with an error.
    """

    offset_ns: NDArray[np.float64]
    drift: NDArray[np.float64]
    bend: NDArray[np.float64]
    recorded: bool

    @classmethod
    def drawn(cls, rng: np.random.Generator, hosts: int) -> Clocks:
        """Clocks as hosts have them without a common time source."""
        return cls(
            rng.normal(0, 3e6, hosts),
            rng.normal(0, 12e-6, hosts),
            rng.normal(0, 2e-6, hosts),
            bool(rng.random() < 0.5),
        )

    def ticks(self, host: int, ps: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Readings of a host's clock at true times."""
        s = np.asarray(ps, np.float64) / 1e12
        ns = s * 1e9 * (1 + self.drift[host] + self.bend[host] * s / 2) + self.offset_ns[host]
        return np.asarray(np.floor(ns), np.int64) + 5 * 10**12


def write_trace(
    folder: Path, case: Case, program: Program, result: Result, clocks: Clocks, utc_ns: int
) -> None:
    """An OTF2 archive with the events that Score-P records."""
    import otf2

    hosts = case.host_of_rank
    with otf2.writer.open(str(folder), timer_resolution=TICKS_PER_S) as archive:
        archive.creator = "Score-P 8.4"
        names = Definitions(archive, [case.machine.name(host) for host in hosts], program.comms[1:])
        first = None
        for rank in program.ranks:
            ticks = clocks.ticks(hosts[rank.rank], result.calls[rank.rank])
            writer = archive.event_writer_from_location(names.locations[rank.rank])
            _Events(writer, names, program, rank.rank, result.learned).write(ticks.tolist())
            first = int(ticks[0, 0]) if first is None else min(first, int(ticks[0, 0]))
        if clocks.recorded:
            rng = np.random.Generator(np.random.Philox(key=[len(hosts), 3]))
            write_clock_offsets(
                archive,
                hosts,
                [(int(calls[0, 0]), int(calls[-1, 1])) for calls in result.calls],
                lambda host, at: int(clocks.ticks(host, at)),
                lambda *_: round(float(rng.normal(0, 500))),
            )
            first = int(clocks.ticks(hosts[0], min(int(t[0, 0]) for t in result.calls)))
            archive._first_timestamp = first - 3000
        archive._realtime_timestamp = (utc_ns + first - 5 * 10**12) / 1e9


class _Events:
    """Events of one rank."""

    def __init__(
        self,
        writer: Any,
        names: Definitions,
        program: Program,
        rank: int,
        learned: dict[tuple[int, int], int],
    ) -> None:
        self._writer, self._names, self._program = writer, names, program
        self._rank, self._learned = rank, learned
        self._source = -1

    def write(self, ticks: list[list[int]]) -> None:
        writer, region = self._writer, self._names.region
        begin, end = ticks[0][0], ticks[-1][1]
        writer.enter(begin - 3000, region("main"))
        writer.enter(begin - 1500, region("MPI_Init"))
        writer.leave(begin, region("MPI_Init"))
        calls = self._program.ranks[self._rank].calls
        for number, (call, (enter, leave)) in enumerate(zip(calls, ticks, strict=True)):
            writer.enter(enter, region(call.name))
            self._record(number, call, enter, leave)
            writer.leave(leave, region(call.name))
        writer.enter(end, region("MPI_Finalize"))
        writer.leave(end + 1000, region("MPI_Finalize"))
        writer.leave(end + 2000, region("main"))

    def _record(self, number: int, call: Call, enter: int, leave: int) -> None:
        writer, world = self._writer, self._names.comms[0]
        if call.name == "MPI_Send":
            peer = self._source if call.peer == -2 else call.peer
            writer.mpi_send(enter, peer, world, call.tag, call.size)
        elif call.name == "MPI_Recv":
            peer = call.peer if call.peer >= 0 else self._learned[self._rank, number]
            self._source = peer
            writer.mpi_recv(leave, peer, world, call.tag, call.size)
        elif call.name == "MPI_Isend":
            writer.mpi_isend(enter, call.peer, world, call.tag, call.size, call.requests[0])
        elif call.name == "MPI_Irecv":
            writer.mpi_irecv_request(leave, call.requests[0])
        elif call.name == "MPI_Waitall":
            for request in call.requests:
                self._complete(request, leave)
        elif call.name == "MPI_Waitany":
            self._complete(call.requests[self._learned[self._rank, number]], leave)
        else:
            self._collective(call, enter, leave)

    def _complete(self, request: int, leave: int) -> None:
        call = self._program.ranks[self._rank].requests[request]
        if call.name == "MPI_Isend":
            self._writer.mpi_isend_complete(leave, request)
        else:
            world = self._names.comms[0]
            self._writer.mpi_irecv(leave, call.peer, world, call.tag, call.size, request)

    def _collective(self, call: Call, enter: int, leave: int) -> None:
        from otf2.enums import CollectiveOp

        members = self._program.comms[call.comm]
        total = call.size * len(members)
        root, sent = (NO_ROOT, total) if call.root < 0 else (call.root, 0)
        if call.root >= 0:
            sent, total = (total if members[call.root] == self._rank else 0), call.size
        operation = getattr(CollectiveOp, call.name.removeprefix("MPI_").upper())
        self._writer.mpi_collective_begin(enter)
        comm = self._names.comms[call.comm]
        self._writer.mpi_collective_end(leave, operation, comm, root, sent, total)
