"""Gates, depth, registers and delay of a switch port, by yosys.

    python bench/switch_port.py [--write]

Counts gates (of two inputs, and 2:1 multiplexers) and flip-flops of the modules in hardware/rtl. A
flip-flop with enable or reset is one flip-flop. Delay is the depth times a gate's 20 ps, an
assumption for a process of about 16 nm, without wires. Needs yosys (Debian package yosys).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from _shared import put

from measuring.records import note_read

ROOT = Path(__file__).resolve().parents[1]
RTL = ROOT / "hardware" / "rtl"
PAGE = ROOT / "docs" / "measurements" / "speed.md"
GATES = "AND,OR,XOR,XNOR,NAND,NOR,ANDNOT,ORNOT,MUX"
GATE_PS = 20
LFSR, RING = 1, 2

Design = tuple[str, str, dict[str, int]]
DESIGNS: list[Design] = [
    ("**port, `coordinated` 1+5**", "telemetry_port", {"SCHEME": 0, "BITS": 5}),
    ("… packet id", "packet_id_serial", {}),
    ("… decision", "decision", {}),
    ("… link hash, 5 bits", "link_hash_serial", {"BITS": 5}),
    ("… choice", "scheme_coordinated", {"BITS": 5}),
    ("port, `coordinated` 1+4", "telemetry_port", {"SCHEME": 0, "BITS": 4}),
    (
        "port, `compact` 5 bits, LFSR",
        "telemetry_port",
        {"SCHEME": 1, "RANDOM": LFSR, "BITS": 1, "COUNT_BITS": 3},
    ),
    (
        "port, `compact` 6 bits, LFSR",
        "telemetry_port",
        {"SCHEME": 1, "RANDOM": LFSR, "BITS": 1, "COUNT_BITS": 4},
    ),
    (
        "port, `compact` 6 bits, rings",
        "telemetry_port",
        {"SCHEME": 1, "RANDOM": RING, "BITS": 1, "COUNT_BITS": 4},
    ),
    (
        "port, `single-bit`, LFSR",
        "telemetry_port",
        {"SCHEME": 2, "RANDOM": LFSR, "BITS": 1, "COUNT_BITS": 3},
    ),
    ("port, `full`, LFSR", "telemetry_port", {"SCHEME": 3, "RANDOM": LFSR, "BITS": 1}),
    ("random: LFSR and table", "random_lfsr", {}),
    ("random: rings", "random_ring", {}),
    ("random: sender's bits", "random_sender", {}),
    ("VCRC update", "vcrc_update", {}),
    ("`coordinated` 1+5, a packet a clock", "coordinated_pipeline", {"BITS": 5}),
    ("… packet id", "packet_id", {}),
    ("… link hash, 5 bits", "link_hash", {"BITS": 5}),
]


def count(module: str, sizes: dict[str, int]) -> tuple[int, int, int]:
    """Gates, depth in gates, flip-flops of a module."""
    tool = shutil.which("yosys")
    if tool is None:
        raise SystemExit("no yosys here; remedy: install the Debian package yosys")
    files = " ".join(str(path) for path in sorted(RTL.glob("*.sv")))
    chosen = " ".join(f"-set {name} {value}" for name, value in sizes.items())
    script = (
        f"read_verilog -sv -I{RTL} {files}; "
        + (f"chparam {chosen} {module}; " if chosen else "")
        + f"synth -flatten -top {module}; abc -g {GATES}; rename -top counted; stat; ltp -noff"
    )
    done = subprocess.run([tool, "-p", script], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"yosys cannot synthesize {module}: {done.stderr[-2000:]}")
    last = done.stdout[done.stdout.rindex("Printing statistics") :]
    cells = {kind: int(n) for kind, n in re.findall(r"\$_(\w+)_ +(\d+)", last)}
    registers = sum(n for kind, n in cells.items() if "DFF" in kind)
    depth = int(re.findall(r"Longest topological path in \w+ \(length=(\d+)\)", last)[-1])
    # The path begins at a flip-flop where there is one; it is no gate.
    path = last[last.rindex("Longest topological path") :]
    return sum(cells.values()) - registers, depth - (1 if " ff: " in path else 0), registers


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    note_read(RTL.glob("*.sv"))
    lines = ["| circuit | gates | depth | registers | delay, ns |", "|---|---:|---:|---:|---:|"]
    for name, module, sizes in DESIGNS:
        gates, depth, registers = count(module, sizes)
        delay = depth * GATE_PS / 1000
        lines.append(f"| {name} | {gates} | {depth} | {registers} | {delay:.2f} |")
        print(lines[-1], flush=True)
    if options.write:
        put(PAGE, {"switch port": "\n".join(lines)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
