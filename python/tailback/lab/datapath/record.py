"""Writes the counts of receivers to a file, periodically.

Every time, the counts so far are appended: if the writer is killed, only the packets since the last
time are missing from the file. The sums themselves remain in the kernel.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from tailback.lab.datapath.background import Wait
from tailback.lab.datapath.calls import CALLS
from tailback.lab.datapath.counts import Counted, LinkSums, Routes, count
from tailback.lab.datapath.kernel import Sums, read_sums
from tailback.lab.datapath.paths import PathOf, added, count_paths
from tailback.lab.datapath.sampling import CALL_SHIFT, MAX_SUMS, PacketScheme, link_bits

COLUMNS: Final = (
    "time_utc",
    "rank",
    "call",
    "link",
    "samples",
    "packets",
    "packets_variance",
    "packets_idle_variance",
    "bytes",
    "congested_samples",
    "congested",
    "congested_variance",
    "congested_idle_variance",
)

INTERVAL_S: Final = 1.0
_LONGEST_LINE: Final = 4096
"""Bytes; a line has thirteen short fields."""


class Receivers:
    """The receivers of one network.

    Args:
        maps: Folder where the maps are pinned.
        sampling: The scheme.
        routes: Links that packets may have used.
        links: Number of links.
        path_of: Paths of packets without samples; None for other schemes.
        from_now: Count only packets from now on.
    """

    def __init__(
        self,
        maps: Path,
        sampling: PacketScheme,
        routes: Routes,
        links: int,
        path_of: PathOf | None = None,
        *,
        from_now: bool,
    ) -> None:
        self.maps, self.sampling, self.routes, self.links = maps, sampling, routes, links
        self._path_of = path_of
        self._before = self._read() if from_now else None
        self._so_far = Counted({}, {}, 0)

    def _read(self) -> Sums:
        return read_sums(self.maps, 1 << link_bits(self.links), MAX_SUMS)

    def count(self) -> Counted:
        """Counts of every link by receiver."""
        now = self._read()
        sums = now if self._before is None else now.since(self._before)
        if self._path_of is not None:
            # Rates of marks change: what is inferred from each interval is added up.
            self._before = now
            self._so_far = added(self._so_far, count_paths(sums, self._path_of, self.links))
            return self._so_far
        return count(sums, self.sampling, self.routes, self.links)


def rows(counted: Counted, links: int, time: str) -> str:
    """Lines of the file, one per rank, MPI call and link with samples."""
    lines = []
    for mark in sorted({*counted.packets, *counted.congested}):
        process, number = mark & ((1 << CALL_SHIFT) - 1), mark >> CALL_SHIFT
        rank = str(process - 1) if process else ""
        call = CALLS[number - 1] if 0 < number <= len(CALLS) else ""
        zero = LinkSums.zero(links)
        packets, met = counted.packets.get(mark, zero), counted.congested.get(mark, zero)
        sampled = (packets.idle > 0) | (packets.samples != 0) | (met.samples != 0)
        for link in np.flatnonzero(sampled).tolist():
            values = [
                number
                for sums, size in ((packets, [packets.bytes[link]]), (met, []))
                for number in (
                    sums.samples[link],
                    sums.packets[link],
                    max(sums.variance[link], 0.0),
                    sums.idle[link],
                    *size,
                )
            ]
            lines.append(
                ",".join([time, rank, call, str(link), *(f"{value:.9g}" for value in values)])
            )
    return "".join(f"{line}\n" for line in lines)


def append_until(receivers: Receivers, file: Path, wait: Wait) -> None:
    """Append the counts to a file every second until ``wait(seconds)`` is true, then once more."""
    with file.open("a+b", buffering=0) as out:
        # A writer that was killed may have left part of a line.
        out.seek(max(out.tell() - _LONGEST_LINE, 0))
        tail = out.read()
        out.truncate(out.tell() - len(tail) + tail.rfind(b"\n") + 1)
        if out.seek(0, os.SEEK_END) == 0:
            out.write((",".join(COLUMNS) + "\n").encode())
        while True:
            ended = wait(INTERVAL_S)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            out.write(rows(receivers.count(), receivers.links, now).encode())
            os.fdatasync(out.fileno())
            if ended:
                return
