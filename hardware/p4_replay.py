"""Sends packets of the engine through the P4 programs: `python hardware/p4_replay.py`.

The visits of packets to ports are those that `replay.py` gives to the circuit. Here every visit is
a RoCEv2 packet: node n has the address 10.0.0.0 + n + 1, and the hop limit counts switches. The
programs run in `p4_interpreter.py`, which is no P4 compiler. The header that arrives must be the
engine's, and nothing else of the packet may have changed but the hop limit and the checksums.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from p4_interpreter import Switch, sum_words  # noqa: E402
from parameters import masks  # noqa: E402
from replay import DESIGNS, run_with, visits_of, words_of  # noqa: E402

QUEUE_LIMIT, FIRST_TTL = 16, 64
ETHERNET, IPV4, UDP, SHIM = 14, 20, 8, 8
PAYLOAD = bytes(range(32))


@dataclass(frozen=True)
class Program:
    """A P4 program: the design of `replay.py` whose headers it must give, and its UDP port."""

    design: str
    udp_port: int
    shim: bool

    def bth(self) -> int:
        """Byte at which the BTH starts."""
        return ETHERNET + IPV4 + UDP + SHIM * self.shim


PROGRAMS = {
    "coordinated": Program("coordinated 1+5", 4791, False),
    "full": Program("full", 49152, True),
}


def udp_sum(packet: bytes) -> int:
    """Sum of the UDP datagram with its pseudo-header: 0xffff if the checksum is right."""
    ip, datagram = packet[ETHERNET:], packet[ETHERNET + IPV4 :]
    return sum_words(ip[12:20] + bytes([0, 17]) + datagram[4:6] + datagram)


def roce_packet(program: Program, source: int, destination: int, pair: int, psn: int) -> bytes:
    """A packet as its sender writes it: an empty sample, all checksums right."""
    bth = (
        bytes([10, 0, 255, 255, 0]) + pair.to_bytes(3, "big") + bytes([0]) + psn.to_bytes(3, "big")
    )
    data = bytes(SHIM * program.shim) + bth + PAYLOAD
    ends = [(0x0A000000 + node + 1).to_bytes(4, "big") for node in (source, destination)]
    length = UDP + len(data)
    ip = (
        bytes([0x45, 0])
        + (IPV4 + length).to_bytes(2, "big")
        + bytes([0, 7, 0x40, 0, FIRST_TTL, 17])
    )
    checksum = ~sum_words(ip + b"".join(ends)) & 0xFFFF
    ip += checksum.to_bytes(2, "big") + b"".join(ends)
    udp = (
        (49152).to_bytes(2, "big") + program.udp_port.to_bytes(2, "big") + length.to_bytes(2, "big")
    )
    frame = bytes(12) + b"\x08\x00" + ip + udp
    checksum = ~udp_sum(frame + bytes(2) + data) & 0xFFFF
    return frame + (checksum or 0xFFFF).to_bytes(2, "big") + data


def sample_of(program: Program, packet: bytes) -> int:
    """The sample that a packet carries, as the engine writes it."""
    if program.shim:
        return int.from_bytes(packet[ETHERNET + IPV4 + UDP :][:SHIM], "big")
    return packet[program.bth() + 4] & 63


def unchanged_part(program: Program, packet: bytes) -> bytes:
    """What a port must leave alone: all but hop limit, checksums and the sample."""
    out = bytearray(packet)
    out[ETHERNET + 8] = 0
    out[ETHERNET + 10 : ETHERNET + 12] = out[ETHERNET + IPV4 + 6 : ETHERNET + IPV4 + 8] = bytes(2)
    if program.shim:
        out[ETHERNET + IPV4 + UDP : program.bth()] = bytes(SHIM)
    else:
        out[program.bth() + 4] &= 0xC0
    return bytes(out)


def tables_of(program: Program, links: int) -> dict[str, Any]:
    """Entries of the program's table: masks of the links' hashes, or their numbers."""
    if program.shim:
        return {"link": {(link,): ("set_link", (link + 1,)) for link in range(links)}}
    rows = masks(links).tolist()
    return {"link": {(link,): ("set_masks", tuple(row)) for link, row in enumerate(rows)}}


def replay(name: str, visits: pl.DataFrame, messages: int) -> dict[str, Any]:
    """Packets, visits, wrong samples and damaged packets of a program."""
    program = PROGRAMS[name]
    run = run_with(DESIGNS[program.design].telemetry, messages)
    switch = Switch(HERE / "p4" / f"{name}.p4")
    switch.entries = tables_of(program, run.tables["links"].height)
    joined = visits.join(run.tables["packets"], on="packet").sort("packet", "hop")
    hops = joined["hop"].to_numpy().astype(np.uint64)
    words = words_of(joined["packet"].to_numpy(), hops, int(run.scenario.seed))
    joined = joined.with_columns(word=words)
    counts = {"packets": 0, "visits": joined.height, "wrong": 0, "damaged": 0}
    for _, part in joined.group_by("packet", maintain_order=True):
        first = part.row(0, named=True)
        ends = first["src_node"], first["dst_node"]
        sent = roce_packet(program, *ends, first["queue_pair"], first["sequence"])
        packet = sent
        for link, hot, word in part.select("link", "congested", "word").iter_rows():
            halves = (word & 0xFFFFFFFF, word >> 32) if program.shim else ()
            packet = switch.process(packet, link, QUEUE_LIMIT + hot, halves)
        counts["packets"] += 1
        counts["wrong"] += sample_of(program, packet) != first["header"]
        right = sum_words(packet[ETHERNET : ETHERNET + IPV4]) == 0xFFFF
        right &= packet[ETHERNET + 8] == FIRST_TTL - part.height
        # The datagram of the shim has no checksum.
        right &= program.shim or udp_sum(packet) == 0xFFFF
        right &= unchanged_part(program, packet) == unchanged_part(program, sent)
        counts["damaged"] += not right
    return {"program": name, **counts}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, default=1000, help="packets a program, at least")
    options = parser.parse_args()
    messages = -(-options.packets // (12 * 8))
    visits, wrong = visits_of(messages), 0
    print("| program | packets | visits | samples that differ | packets damaged |")
    print("|---|---:|---:|---:|---:|")
    for name in PROGRAMS:
        row = replay(name, visits, messages)
        wrong += row["wrong"] + row["damaged"]
        print(f"| {' | '.join(str(value) for value in row.values())} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
