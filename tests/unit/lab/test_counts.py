"""Counts from sums: those of the receiver of single packets, and intervals that hold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tailback import _core
from tailback.lab import telemetry
from tailback.lab.datapath.calls import CALLS
from tailback.lab.datapath.counts import Counted, LinkSums, count, fraction_interval
from tailback.lab.datapath.kernel import KEY, NO_HOP, Sums
from tailback.lab.datapath.record import COLUMNS, rows
from tailback.lab.datapath.sampling import CALL_SHIFT, PacketScheme
from tailback.lab.plan import Plan
from tailback.telemetry.hashed import CandidateLinks, HashedSamples, count_links
from tailback.telemetry.header_counts import sampled_hop
from tests.factories.lab import tiny

BITS = 4
LINKS = 16
SENDER, RECEIVER = 0x000002, 5
"""End of the address of h00, and the link of h10's interface."""


def routes(source: int, interface: int, hops: int) -> list[list[int]]:
    """From h00 to h10: by its leaf, two spines and the other leaf."""
    assert (source, interface) == (SENDER, RECEIVER)
    return [[1], [9, 11], [10, 14], [6]] if hops == 4 else []


class Packets:
    """Packets from h00 to h10, over the first spine in a share of cases, congested in others."""

    def __init__(self, seed: int, packets: int, share: float, fractions: tuple[float, ...]) -> None:
        dice = np.random.default_rng(seed)
        self.ids = dice.integers(0, 1 << 24, packets, np.uint32)
        second = dice.random(packets) >= share
        up, down = np.where(second, 11, 9), np.where(second, 14, 10)
        self.path = np.stack([np.full(packets, 1), up, down, np.full(packets, 6)], 1)
        self.hot = dice.random((packets, 4)) < np.array(fractions)
        self.hop = sampled_hop(self.ids, np.full(packets, 4))
        at = np.arange(packets)
        self.link = self.path[at, self.hop].astype(np.uint32)
        self.met = self.hot[at, self.hop]
        self.seen = _core.link_hash("gf", self.ids, self.link, BITS, 24)

    def truth(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Packets and congested packets of every link."""
        every = np.bincount(self.path.ravel(), minlength=LINKS + 1)
        return every, np.bincount(self.path[self.hot], minlength=LINKS + 1)

    def sums(self) -> Sums:
        """What a receiver adds up: bins as crates/telemetry's hash is linear in the link."""
        z = [
            _core.link_hash("gf", self.ids, np.full(len(self.ids), 1 << j, np.uint32), BITS, 24)
            for j in range(5)
        ]
        keys, counts, bins = [], [], []
        for hop in range(4):
            for met in (False, True):
                mine = (self.hop == hop) & (self.met == met)
                row = np.zeros(32, np.int64)
                for u in range(1, 1 << BITS):
                    place = sum(
                        (np.bitwise_count(z[j][mine] & u) % 2).astype(np.int64) << j
                        for j in range(5)
                    )
                    sign = 1 - 2 * (np.bitwise_count(self.seen[mine] & u) % 2).astype(np.int64)
                    row += np.bincount(place, sign, 32).astype(np.int64)
                keys.append((SENDER, 3, RECEIVER, hop, 4, met, [0, 0, 0], [0, 0]))
                counts.append(int(mine.sum()))
                bins.append(row)
        n = np.array(counts, np.int64)
        return Sums(np.array(keys, KEY), n, 1000 * n, np.array(bins))


def test_counts_are_those_of_single_packets() -> None:
    packets = Packets(1, 5000, 0.7, (0.1, 0.5, 0.0, 0.3))
    estimate = count(packets.sums(), PacketScheme("coordinated", BITS), routes, LINKS)
    assert estimate.packets.keys() == {3} and estimate.unrouted == 0
    for hop, candidates in ((1, [9, 11]), (2, [10, 14])):
        mine = np.flatnonzero(packets.hop == hop)
        samples = HashedSamples(
            packets.ids[mine], packets.seen[mine], np.full(len(mine), 4, np.uint8), BITS, 24
        )
        start, links = np.array([0, 2], np.uint64), np.array(candidates, np.uint32) - np.uint32(1)
        plan = CandidateLinks(np.zeros(len(mine), np.uint32), start, links)
        expected = count_links(
            _core,
            samples,
            [(np.arange(len(mine)), plan)],
            np.arange(1, LINKS + 1, dtype=np.uint32),
            hop_known=True,
        )
        for link in candidates:
            counts = estimate.packets[3]
            assert counts.packets[link] == pytest.approx(expected.packets[link - 1])
            assert counts.variance[link] == pytest.approx(expected.variance[link - 1])
            assert counts.idle[link] == pytest.approx(expected.null_variance[link - 1])
    # Where one link is left, the samples themselves are counted.
    assert estimate.packets[3].packets[6] == 4 * int((packets.hop == 3).sum())
    assert estimate.congested[3].packets[6] == 4 * int(packets.met[packets.hop == 3].sum())
    assert estimate.packets[3].bytes[6] == 1000 * estimate.packets[3].packets[6]


@pytest.mark.slow
def test_intervals_have_the_truth_in_95_percent() -> None:
    inside, between, z = [], [], []
    for seed in range(300):
        packets = Packets(seed, 1500, 0.7, (0.1, 0.5, 0.02, 0.3))
        estimate = count(packets.sums(), PacketScheme("coordinated", BITS), routes, LINKS)
        every, hot = packets.truth()
        some = np.array([1, 6, 9, 10, 11, 14])
        counts = estimate.packets[3].counts()
        low, high = counts.interval()
        inside.append(((low <= every) & (every <= high))[some])
        few, many = fraction_interval(estimate.packets[3], estimate.congested[3], True)
        true = hot / np.maximum(every, 1)
        between.append(((few <= true) & (true <= many))[some])
        z.append((counts.packets - every)[some] / np.sqrt(counts.variance[some]))
    # Six standard deviations of 1800 links, not all independent.
    assert abs(np.mean(inside) - 0.95) < 0.03
    assert abs(np.mean(between) - 0.95) < 0.03
    assert abs(np.mean(z)) < 0.15 and abs(np.std(z) - 1.0) < 0.1


def test_two_link_reservoirs_have_the_known_variance() -> None:
    bins = np.zeros((2, 32), np.int64)
    bins[0, [1, 9]], bins[1, 9] = [250, 240], 60
    keys = np.array(
        [
            (SENDER, 0, RECEIVER, NO_HOP, 4, 0, [0, 0, 0], [0, 0]),
            (SENDER, 0, RECEIVER, NO_HOP, 2, 1, [0, 0, 0], [0, 0]),
        ],
        KEY,
    )
    sums = Sums(keys, np.array([490, 60]), np.array([490_000, 60_000]), bins)
    estimate = count(sums, PacketScheme("full", 0), routes, LINKS)
    packets, congested = estimate.packets[0], estimate.congested[0]
    assert (packets.packets[9], packets.variance[9], packets.idle[9]) == (960, 960 * 3, 0)
    assert (congested.packets[9], congested.variance[9]) == (120, 120)
    low, high = fraction_interval(packets, congested, False)
    assert low[9] < 0.125 < high[9] < 0.2
    # Var = (f (g - 1) + f^2 (l - 1)) / N at the bound.
    f = float(high[9])
    assert (f - 0.125) ** 2 == pytest.approx(1.96**2 * (f + 3 * f**2) / 960, rel=0.01)
    assert (low[2], high[2]) == (0.0, 1.0)


def test_paths_that_routes_do_not_have_are_counted() -> None:
    keys = np.array([(SENDER, 0, RECEIVER, 0, 3, 0, [0, 0, 0], [0, 0])], KEY)
    sums = Sums(keys, np.array([7]), np.array([7000]), np.zeros((1, 32), np.int64))
    estimate = count(sums, PacketScheme("coordinated", BITS), routes, LINKS)
    assert (estimate.unrouted, estimate.packets) == (7, {})


def test_lab_routes_are_those_of_its_hosts() -> None:
    plan = Plan(tiny("tba"))
    routes_of = telemetry.routes(plan)
    number = {(link.source, link.target): link.number for link in plan.links}
    to_h10 = number["h10", "l1"]
    assert routes_of(plan.address_end("h00"), to_h10, 4) == [
        [number["h00", "l0"]],
        [number["l0", "s0"], number["l0", "s1"]],
        [number["s0", "l1"], number["s1", "l1"]],
        [number["l1", "h10"]],
    ]
    assert routes_of(plan.address_end("h11"), to_h10, 2) == [
        [number["h11", "l1"]],
        [number["l1", "h10"]],
    ]
    for source, interface, hops in (
        (1, to_h10, 4),
        (plan.address_end("h00"), 1, 2),
        (plan.address_end("h00"), to_h10, 3),
    ):
        assert routes_of(source, interface, hops) == []


def test_the_file_has_lines_for_ranks_and_links() -> None:
    assert rows(Counted({}, {}, 0), LINKS, "now") == ""
    sums = LinkSums.zero(LINKS)
    sums.samples[9], sums.packets[9], sums.variance[9], sums.idle[9] = 2.5, 10.0, -1.0, 6.0
    assert rows(Counted({0: sums, 3: sums}, {}, 0), LINKS, "now") == (
        "now,,,9,2.5,10,0,6,0,0,0,0,0\nnow,2,,9,2.5,10,0,6,0,0,0,0,0\n"
    )
    waiting = 3 | (1 + CALLS.index("MPI_Waitall")) << CALL_SHIFT
    assert rows(Counted({waiting: sums}, {}, 0), LINKS, "now") == (
        "now,2,MPI_Waitall,9,2.5,10,0,6,0,0,0,0,0\n"
    )
    assert rows(Counted({3: sums}, {}, 0), LINKS, "now").count(",") == len(COLUMNS) - 1


def test_what_came_before_does_not_count() -> None:
    early, late = Packets(5, 300, 0.5, (0.1,) * 4).sums(), Packets(6, 500, 0.5, (0.2,) * 4).sums()
    both = Sums(
        late.keys, early.samples + late.samples, early.bytes + late.bytes, early.bins + late.bins
    )
    first = Sums(early.keys[:3], early.samples[:3], early.bytes[:3], early.bins[:3])
    left = both.since(first)
    assert (left.samples[:3] == late.samples[:3]).all() and (left.bins[:3] == late.bins[:3]).all()
    assert (left.samples[3:] == both.samples[3:]).all()
