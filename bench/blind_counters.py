"""Writes port counters of a blind case as sites have them: perfquery, a collection, Prometheus.

The engine's port-counter probe gives what really crossed every port. A device counts words and
ticks since its last reset, a collector reads one port after another by its own clock, and a 32-bit
PortXmitWait stops at all ones.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tailback.collector import Collection
from tailback.collector.readings import RAW, WORD_BYTES, Rows
from tailback.port_counters.readers import from_run
from tailback.port_counters.targets import PortTarget, read_targets
from tailback.run.run import Run

FORMS = ("collect", "perfquery", "prometheus")
STEPS = 4
"""Readings of the engine's probe per interval; ports are read at different ones of these."""

TOP_32 = 2**32 - 1


@dataclass(frozen=True)
class Sampling:
    """How counters are read.

    Attributes:
        form: One of :data:`FORMS`.
        interval_ps: From one reading of a port to its next.
        clock_ns: How far the collector's clock is ahead of UTC.
        hosts: Ports of adapters are read too.
        narrow_wait: PortXmitWait has 32 bits and stops at all ones, as in all but the newest
            devices.
        latching: Share of the ports whose PortXmitWait was almost full at the start.
        seed: Seed of the phases of the ports and of the initial values.
    """

    form: str
    interval_ps: int
    clock_ns: int
    hosts: bool
    narrow_wait: bool
    latching: float
    seed: int


def write_counters(
    folder: Path, run: Run, fabric_file: Path, sampling: Sampling, utc_ns: int
) -> dict[str, Any]:
    """Write the counters of a run; returns the true values.

    Args:
        folder: Folder to create.
        run: A run with counters, read :data:`STEPS` times an interval.
        fabric_file: What ``ibnetdiscover`` printed.
        sampling: How they are read.
        utc_ns: UTC of the start of the run.
    """
    targets = read_targets(fabric_file, hosts=sampling.hosts).targets
    targets = [_narrowed(target, sampling) for target in targets]
    rows, sent = _rows(run, targets, sampling, utc_ns)
    writer = {"collect": _collection, "perfquery": _perfquery, "prometheus": _prometheus}
    writer[sampling.form](folder, targets, rows, sampling)
    return {
        "form": sampling.form,
        "ports": len(targets),
        "readings": len(rows),
        "interval_ps": sampling.interval_ps,
        "clock_ns": sampling.clock_ns,
        "bytes_between_first_and_last_reading": sent,
    }


def _narrowed(target: PortTarget, sampling: Sampling) -> PortTarget:
    facts = target.to_dict() | {"extended": True, "extended_wait": not sampling.narrow_wait}
    return PortTarget(**facts)


def _rows(
    run: Run, targets: list[PortTarget], sampling: Sampling, utc_ns: int
) -> tuple[Rows, dict[str, int]]:
    """Readings of the targets, sorted by time, and the bytes they cover by ``device[port]``."""
    rng = np.random.Generator(np.random.Philox(key=[sampling.seed, 5]))
    readings = _idle_after(run, from_run(run).readings)
    by_port = readings.partition_by("node_name", "port", as_dict=True, maintain_order=True)
    parts, sent = [], dict[str, int]()
    for number, target in enumerate(targets):
        frame = by_port[target.node_name, target.port]
        # A collector goes through the ports in turn, in the first half of its interval.
        phase = number * (STEPS // 2) // max(len(targets), 1)
        read = frame.gather_every(STEPS, phase)
        words = read["data_bytes"].to_numpy().astype(np.uint64) // WORD_BYTES
        ticks = (read["stall_ns"].to_numpy() / target.tick_ns).astype(np.uint64)
        wait = int(rng.integers(1 << 31)) + ticks
        if sampling.narrow_wait:
            if rng.random() < sampling.latching:
                wait = TOP_32 - int(rng.integers(2 * max(int(ticks.max(initial=0)), 1))) + ticks
            wait = np.minimum(wait, TOP_32)
        part = np.zeros(read.height, RAW)
        delay = rng.integers(2_000, 40_000, read.height)
        part["time_ns"] = read["time_ns"].to_numpy() + utc_ns + sampling.clock_ns + delay // 2
        part["target"], part["turnaround_ns"] = number, delay
        part["wait"] = wait
        part["words"] = int(rng.integers(1 << 40)) + words
        part["packets"] = int(rng.integers(1 << 30)) + read["packets"].to_numpy()
        parts.append(part)
        sent[f"{target.node_name}[{target.port}]"] = int(words[-1] - words[0]) * WORD_BYTES
    rows = np.concatenate(parts)
    return rows[np.argsort(rows["time_ns"], kind="stable")], sent


def _idle_after(run: Run, readings: pl.DataFrame) -> pl.DataFrame:
    """Readings after the run, when no traffic is left, so that all bytes are counted."""
    end, step = int(run.summary["end_ps"]), int(run.summary["counters_ps"])
    first = -(-end // step)
    after = pl.DataFrame({"later_ns": [(first + n) * step // 1000 for n in range(2 * STEPS)]})
    last = readings.filter(pl.col("time_ns") == end // 1000)
    before = readings.filter(pl.col("time_ns") < first * step // 1000)
    before = before.filter(pl.col("time_ns") % (step // 1000) == 0)
    more = last.join(after, how="cross").with_columns(time_ns="later_ns").drop("later_ns")
    return pl.concat([before, more]).sort("node_name", "port", "time_ns")


def _collection(folder: Path, targets: list[PortTarget], rows: Rows, sampling: Sampling) -> None:
    """What ``tailback collect`` writes."""
    archive = Collection(folder)
    try:
        facts = {"interval_ns": sampling.interval_ps // 1000, "hosts": sampling.hosts}
        segment = archive.begin(targets, facts)
        segment.append(rows)
        segment.close()
        archive.compact()
    finally:
        archive.close()


def _sweeps(rows: Rows, sampling: Sampling) -> list[Rows]:
    """The readings sweep by sweep."""
    start = rows["time_ns"].min(initial=0)
    sweep = (rows["time_ns"] - start) * 1000 // sampling.interval_ps
    return [rows[sweep == number] for number in np.unique(sweep)]


def _perfquery(folder: Path, targets: list[PortTarget], rows: Rows, sampling: Sampling) -> None:
    """One file per sweep, written when its last port was read, with the time in its name."""
    folder.mkdir()
    mask2 = 0 if sampling.narrow_wait else 2
    for sweep in _sweeps(rows, sampling):
        lines, last = [], int(sweep["time_ns"].max())
        columns = (sweep[name].tolist() for name in ("target", "words", "packets", "wait"))
        for number, words, packets, waits in zip(*columns, strict=True):
            target = targets[number]
            where = f"Lid {target.lid} port {target.port}"
            wait = 0 if sampling.narrow_wait else waits
            lines += [
                f"# Port extended counters: {where} (CapMask: 0x5300 CapMask2: 0x{mask2:07x})",
                _field("PortSelect", target.port),
                _field("CounterSelect", "0x0000"),
                _field("PortXmitData", words),
                _field("PortXmitPkts", packets),
                _field("PortXmitWait", wait),
            ]
            if sampling.narrow_wait:
                lines += [
                    f"# Port counters: {where} (CapMask: 0x5300)",
                    _field("PortSelect", target.port),
                    _field("CounterSelect", "0x0000"),
                    _field("PortXmitData", min(words, TOP_32)),
                    _field("PortXmitPkts", min(packets, TOP_32)),
                    _field("PortXmitWait", waits),
                ]
        path = folder / f"perfquery-{last // 1_000_000}.txt"
        path.write_text("\n".join(lines) + "\n", encoding="ascii")
        os.utime(path, ns=(last, last))


def _field(name: str, value: int | str) -> str:
    return f"{name}:{'.' * (33 - len(name))}{value}"


_SERIES = {
    "xmit_bytes_total": ("words", WORD_BYTES),
    "xmit_packets_total": ("packets", 1),
    "xmit_wait_ticks_total": ("wait", 1),
}


def _prometheus(folder: Path, targets: list[PortTarget], rows: Rows, sampling: Sampling) -> None:
    """Response of ``/api/v1/query_range`` for the metrics of ``tailback collect --metrics``."""
    folder.mkdir()
    result = []
    order = np.argsort(rows["target"], kind="stable")
    ends = np.cumsum(np.bincount(rows["target"], minlength=len(targets)))
    for target, mine in zip(targets, np.split(rows[order], ends[:-1]), strict=True):
        metric = {
            "guid": f"0x{target.guid:016x}",
            "node": target.node_name,
            "port": str(target.port),
            "peer": target.peer_name,
            "instance": "collector:9779",
            "job": "tailback",
        }
        for name, (column, unit) in _SERIES.items():
            values = [
                [round(int(row["time_ns"]) / 1e9, 3), str(int(row[column]) * unit)] for row in mine
            ]
            result.append(
                {"metric": {"__name__": f"tailback_port_{name}"} | metric, "values": values}
            )
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    (folder / "range.json").write_text(json.dumps(answer), encoding="utf-8")


def counted_bytes(intervals: pl.DataFrame) -> dict[str, int]:
    """Bytes of all intervals of each port, by ``device[port]``, as the readers compute them."""
    frame = intervals.group_by("node_name", "port").agg(pl.col("data_bytes").sum())
    return {f"{name}[{port}]": int(sent) for name, port, sent in frame.iter_rows()}
