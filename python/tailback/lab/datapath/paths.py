"""Counts of links from receivers' sums of packets that carry no sample: marks, and known paths.

Ports of TCP are the entropy of a connection. The leaf chooses the spine by the hash of Linux
(:mod:`tailback.telemetry.path_hash`), so that each connection has one path.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix

from tailback.lab.datapath.counts import Counted, LinkSums
from tailback.lab.datapath.kernel import NO_HOP, Sums
from tailback.telemetry.marked_paths import MarkedPaths, infer_marks

PathOf = Callable[[int, int, int, tuple[int, int]], list[int]]
"""Links of a path, as a function of the last part of the sender's address, the link of the
receiver's interface, the number of links, and the ports of both ends. Empty if there is none."""


def count_paths(sums: Sums, path_of: PathOf, links: int) -> Counted:
    """Count packets and congested packets of links.

    Args:
        sums: Sums of receivers over a time in which rates hardly change.
        path_of: Paths of packets.
        links: Number of links.
    """
    counts, unrouted, paths = Counted({}, {}, 0), 0, list[list[int]]()
    rows = list[int]()
    for row, key in enumerate(sums.keys):
        if not sums.samples[row]:
            continue
        ports = int(key["port"][0]), int(key["port"][1])
        path = path_of(int(key["source"]), int(key["interface"]), int(key["weight"]), ports)
        if path:
            rows.append(row)
            paths.append(path)
        else:
            unrouted += int(sums.samples[row])
    if not rows:
        return Counted({}, {}, unrouted)
    every = [tuple(path) for path in paths]
    distinct = sorted(set(every))
    at = np.array([distinct.index(path) for path in every])
    n, hot = sums.samples[rows].astype(float), sums.keys["congested"][rows] != 0
    crosses = np.zeros((len(distinct), links + 1))
    for number, links_of_path in enumerate(distinct):
        crosses[number, list(links_of_path)] = 1.0
    able = sums.keys["hop"][rows] != NO_HOP
    packets, marked = (
        np.bincount(at, n * part, len(distinct)).astype(np.float64) for part in (able, hot)
    )
    inferred = infer_marks(MarkedPaths(csr_matrix(crosses), packets, marked))
    share = crosses * inferred.rate
    any_mark = 1.0 - np.prod(1.0 - share, axis=1, keepdims=True)
    share = np.divide(share, any_mark, out=np.zeros_like(share), where=any_mark > 0)
    total = np.maximum(inferred.congested, 1e-9)
    for row, number in zip(rows, at, strict=True):
        mark, samples = int(sums.keys["mark"][row]), float(sums.samples[row])
        size = float(sums.bytes[row])
        every_packet = counts.packets.setdefault(mark, LinkSums.zero(links))
        every_packet.samples[:] += crosses[number] * samples
        every_packet.packets[:] += crosses[number] * samples
        every_packet.bytes[:] += crosses[number] * size
        if sums.keys["congested"][row]:
            met = counts.congested.setdefault(mark, LinkSums.zero(links))
            part = share[number] * samples
            met.samples[:] += part
            met.packets[:] += part
            # The error of a link is divided in proportion among the receivers.
            met.variance[:] += part / total * inferred.variance
    return Counted(counts.packets, counts.congested, unrouted)


def added(before: Counted, now: Counted) -> Counted:
    """Counts of two times together."""

    def both(first: dict[int, LinkSums], second: dict[int, LinkSums]) -> dict[int, LinkSums]:
        out = dict(first)
        for mark, sums in second.items():
            old = out.get(mark)
            parts = vars(sums)
            out[mark] = (
                sums
                if old is None
                else LinkSums(**{name: getattr(old, name) + parts[name] for name in parts})
            )
        return out

    return Counted(
        both(before.packets, now.packets),
        both(before.congested, now.congested),
        before.unrouted + now.unrouted,
    )
