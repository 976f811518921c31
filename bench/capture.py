"""Speed of reading captures, packets per second: `python bench/capture.py [--packets N] [--json]`.

Captures of packets with 64 bytes of payload, in every format and network, are written and read.
Time is that of one core, so other work on the machine does not count; memory is the largest
increase of the process, with 100,000 packets kept regardless of the file's size.
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _shared import machine

from tailback import _core
from tailback.telemetry.wire import IbPacket, encode

KEPT = 100_000
BATCH = 4096


def frames(network: str) -> list[bytes]:
    """Frames of consecutive packets between 64 hosts."""
    out = []
    for psn in range(BATCH):
        wire = encode(IbPacket(1 + psn % 64, 65 + psn % 32, psn, psn % 64, bytes(64)))
        if network == "InfiniBand":
            out.append(wire)
            continue
        body = wire[8:-2]
        udp = struct.pack(">HHHH", 49152, 4791, 8 + len(body), 0) + body
        ip = struct.pack(
            ">BBHHHBBHII",
            0x45,
            2,
            20 + len(udp),
            0,
            0x4000,
            64,
            17,
            0,
            0x0A000001 + psn % 64,
            0x0A000041 + psn % 32,
        )
        out.append(bytes(12) + b"\x08\x00" + ip + udp)
    return out


def pcap(frames: list[bytes], link: int) -> tuple[bytes, bytes]:
    """Header of the file, and records that may be repeated."""
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, link)
    records = (struct.pack("<IIII", 1, at, len(f), len(f)) + f for at, f in enumerate(frames))
    return head, b"".join(records)


def pcapng(frames: list[bytes], link: int) -> tuple[bytes, bytes]:
    """The same of pcapng, in microseconds."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        length = struct.pack("<I", 12 + len(body))
        return struct.pack("<I", kind) + length + body + length

    head = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    head += block(1, struct.pack("<HHI", link, 0, 0))
    records = (
        block(6, struct.pack("<IIIII", 0, 0, at, len(f), len(f)) + f) for at, f in enumerate(frames)
    )
    return head, b"".join(records)


def erf(frames: list[bytes], link: int) -> tuple[bytes, bytes]:
    """The same of ERF."""
    kind, pad = (21, b"") if link == 247 else (2, bytes(2))
    records = (
        struct.pack("<QBB", (1 << 32) + at, kind, 4)
        + struct.pack(">HHH", 16 + len(pad) + len(f), 0, len(f))
        + pad
        + f
        for at, f in enumerate(frames)
    )
    return b"", b"".join(records)


def measure(packets: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each format and network."""
    rows = []
    for network, link in (("InfiniBand", 247), ("RoCEv2", 1)):
        made = frames(network)
        for form in (pcap, pcapng, erf):
            head, records = form(made, link)
            path = folder / "capture"
            batches = -(-packets // BATCH)
            with path.open("wb") as file:
                file.write(head)
                for _ in range(batches):
                    file.write(records)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.process_time()
            captures = _core.read_captures([path], KEPT, False)
            seconds = time.process_time() - start
            more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            count = captures["files"][0]["packets"]
            if count != batches * BATCH:
                raise SystemExit(f"{form.__name__}: {count} packets of {batches * BATCH} were read")
            rows.append(
                {
                    "network": network,
                    "format": form.__name__,
                    "packets": count,
                    "packets_per_s": count / seconds,
                    "memory_mib": more / 1024,
                }
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, default=4_000_000, help="packets of each capture")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.packets < 1:
        parser.error("--packets must be at least 1")
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options.packets, Path(folder))
    if options.json:
        print(json.dumps({"machine": machine(), "rows": rows}))
        return 0
    print(machine())
    for row in rows:
        rate = f"{row['packets_per_s'] / 1e6:5.1f} M packets/s"
        print(f"{row['network']:<11} {row['format']:<7} {rate} {row['memory_mib']:6.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
