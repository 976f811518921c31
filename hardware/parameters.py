"""Parameter tables of the switch port, from the software: `python hardware/parameters.py`.

Without arguments it writes the round constants of the packet id into rtl/parameters.svh and
p4/parameters.p4. `--links N` prints the register values of N links as CSV: link number and hash
masks.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from tailback import _core
from tailback.telemetry.packet_ids import ID_BITS, ID_ROUND

HERE = Path(__file__).resolve().parent
HASH_BITS = 5


def header() -> str:
    """The included file with the round constant."""
    return (
        "// Written by hardware/parameters.py from the software's constants.\n"
        f"localparam logic [23:0] ID_ROUND = 24'h{ID_ROUND:06x};\n"
    )


def p4_header() -> str:
    """The same for the P4 programs."""
    return (
        "// Written by hardware/parameters.py from the software's constants.\n"
        f"const bit<24> ID_ROUND = 24w0x{ID_ROUND:06x};\n"
    )


FILES = {HERE / "rtl" / "parameters.svh": header, HERE / "p4" / "parameters.p4": p4_header}


def masks(links: int, bits: int = HASH_BITS) -> np.ndarray:
    """Hash masks of links 0 to ``links`` - 1 as the engine numbers them, shape (links, bits).

    Bit i of mask k is bit k of the hash of id 2^i, because the hash is linear in the id. On the
    wire link 0 has the number 1.
    """
    numbers = np.arange(1, links + 1, dtype=np.uint32)
    parameters = np.zeros((links, bits), np.uint32)
    for i in range(ID_BITS):
        ids = np.full(links, 1 << i, np.uint32)
        hashes = np.asarray(_core.link_hash("gf", ids, numbers, bits, ID_BITS), np.uint32)
        for k in range(bits):
            parameters[:, k] |= ((hashes >> np.uint32(k)) & np.uint32(1)) << np.uint32(i)
    return parameters


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--links", type=int, help="print the registers of so many links as CSV")
    options = parser.parse_args()
    if options.links is None:
        for path, text in FILES.items():
            path.write_text(text(), encoding="utf-8")
        return 0
    print("link,number," + ",".join(f"mask{k}" for k in range(HASH_BITS)))
    for link, row in enumerate(masks(options.links)):
        print(f"{link},{link + 1}," + ",".join(f"{value:06x}" for value in row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
