"""VCRCs that the circuit updates, against packets encoded anew: `python hardware/check_vcrc.py`.

Packets of random fields, lengths and samples are encoded by :mod:`tailback.telemetry.wire`, once
with the sample a switch receives and once with the one it sends. The circuit gets the change of the
byte, the number of words behind it and the first VCRC, and must give the second. Needs iverilog.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from tailback.telemetry.wire import IbPacket, encode

HERE = Path(__file__).resolve().parent
SAMPLE_AT = 12
"""Byte of the sample: byte 4 of the BTH, which follows eight bytes of LRH."""


def cases(count: int, seed: int = 1) -> list[tuple[int, int, int, int]]:
    """Changed byte (XOR), words of 4 bytes behind its own, VCRC before and after."""
    random, rows = np.random.default_rng(seed), []
    for _ in range(count):
        lids = random.integers(1, 0xBFFF, 2)
        packet = IbPacket(
            source_lid=int(lids[0]),
            destination_lid=int(lids[1]),
            psn=int(random.integers(1 << 24)),
            sample=int(random.integers(64)),
            payload=random.bytes(4 * int(random.integers(65))),
        )
        before = encode(packet)
        after = encode(replace(packet, sample=int(random.integers(64))))
        words = (len(before) - 2 - SAMPLE_AT) // 4 - 1  # without the VCRC and the word itself
        crcs = (int.from_bytes(frame[-2:], "little") for frame in (before, after))
        change = before[SAMPLE_AT] ^ after[SAMPLE_AT]
        rows.append((change, words, *crcs))
    return rows


def check(count: int) -> tuple[int, int]:
    """Packets and wrong VCRCs."""
    with tempfile.TemporaryDirectory() as folder:
        file, binary = Path(folder) / "packets", Path(folder) / "vcrc.vvp"
        lines = (" ".join(f"{value:x}" for value in case) + "\n" for case in cases(count))
        file.write_text("".join(lines), encoding="ascii")
        sources = [HERE / "rtl" / "vcrc.sv", HERE / "sim" / "vcrc.sv"]
        subprocess.run(
            ["iverilog", "-g2012", "-s", "vcrc_bench", "-o", binary, *sources], check=True
        )
        output = subprocess.run(
            ["vvp", "-n", binary, f"+packets={file}"], capture_output=True, text=True
        ).stdout
    match = re.search(r"result packets (\d+) wrong (\d+)", output)
    if match is None:
        raise SystemExit(f"the simulation ended early: {output}")
    return int(match[1]), int(match[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, default=10_000)
    options = parser.parse_args()
    if shutil.which("iverilog") is None:
        raise SystemExit("no iverilog here; remedy: install the Debian package iverilog")
    packets, wrong = check(options.packets)
    print(f"{packets} packets, {wrong} wrong VCRCs")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
