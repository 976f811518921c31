"""Gates and logic depth of packet ids in a port, by yosys: `python bench/packet_id_gates.py`.

Writes the id, the hop hash and the whole update of `coordinated` as Verilog, checks a few values of
id and hop hash against the receiver's functions, and counts gates of two inputs. The former id, two
24-bit
multiplications of the sequence number, stands for comparison. Needs yosys (Debian package yosys).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from _pages import put

from tailback.telemetry.packet_ids import hop_hash, packet_ids

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "telemetry.md"
ROUNDS = (0x243F6A, 0x885A30, 0x8D3131, 0x98A2E0, 0x370734, 0x4A4093, 0x822299, 0xF31D00)
GATES = "AND,OR,XOR,XNOR,NAND,NOR,ANDNOT,ORNOT,MUX"
FIELDS = "input [23:0] psn, input [15:0] src, input [15:0] dst, input [23:0] qp"


def _rotate(name: str, by: int) -> str:
    return f"{{{name}[{23 - by}:0], {name}[23:{24 - by}]}}"


def _rounds(start: str, name: str, constants: tuple[int, ...]) -> str:
    """Verilog of some rounds, from wire ``start`` to wire ``name``."""
    lines, last = [], start
    for number, constant in enumerate(constants):
        out = name if number == len(constants) - 1 else f"{name}_{number}"
        lines += [
            f"wire [23:0] {out}_chi = {last} ^ (~{_rotate(last, 8)} & {_rotate(last, 16)});",
            f"wire [23:0] {out}_low = {out}_chi ^ ({out}_chi >> 7);",
            f"wire [23:0] {out} = {out}_low ^ ({out}_low << 10) ^ 24'd{constant};",
        ]
        last = out
    return "\n".join(lines)


def _id() -> str:
    first = " ^ ".join(["psn", _rotate("s", 8), _rotate("d", 16), _rotate("qp", 12)])
    second = " ^ ".join(["half", _rotate("d", 8), _rotate("s", 16), "qp"])
    return "\n".join(
        ["wire [23:0] s = {8'd0, src}, d = {8'd0, dst};", f"wire [23:0] keyed = {first};",
         _rounds("keyed", "half", ROUNDS[:2]), f"wire [23:0] again = {second};",
         _rounds("again", "id", ROUNDS[2:4])]
    )  # fmt: skip


def _hop() -> str:
    entry = "wire [23:0] at_hop = id ^ {4'd0, hop, 4'd0, hop, 4'd0, hop};"
    return entry + "\n" + _rounds("at_hop", "drawn", ROUNDS[4:])


def designs() -> dict[str, str]:
    """Verilog module ``top`` of each design, by name."""
    chances = " ".join(f"4'd{h}: most = 24'd{-(-(1 << 24) // (h + 1)) - 1};" for h in range(1, 16))
    table = f"reg [23:0] most; always @* case (hop) {chances} default: most = 24'hffffff; endcase"
    hashes = "\n".join(f"assign hash[{bit}] = ^(id & mask{bit});" for bit in range(5))
    masks = ", ".join(f"input [23:0] mask{bit}" for bit in range(5))
    multiplied = "\n".join(
        f"wire [23:0] {out} = ({last} ^ ({last} >> 12)) * 24'h{factor};"
        for last, out, factor in (("psn", "once", "3779b1"), ("once", "twice", "ebca77"))
    )
    ports = f"{FIELDS}, input [3:0] hop, input congested, input [5:0] came, {masks}"
    update = "assign result = drawn <= most ? {hash, congested} : came;"
    return {
        "packet id": f"module top({FIELDS}, output [23:0] result);\n{_id()}\n"
        "assign result = id;\nendmodule",
        "hop hash": "module top(input [23:0] id, input [3:0] hop, output [23:0] result);\n"
        f"{_hop()}\nassign result = drawn;\nendmodule",
        "`coordinated`, 6 bits: id, hop hash, link hash, update":
        f"module top({ports}, output [5:0] result);\nwire [4:0] hash;\n{_id()}\n{_hop()}\n{table}\n"
        f"{hashes}\n{update}\nendmodule",
        "id by two multiplications of the sequence number, as before":
        f"module top(input [23:0] psn, output [23:0] result);\n{multiplied}\n"
        "assign result = twice ^ (twice >> 12);\nendmodule",
    }  # fmt: skip


def _yosys(script: str, source: str) -> str:
    tool = shutil.which("yosys")
    if tool is None:
        raise SystemExit("no yosys here; remedy: install the Debian package yosys")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "top.v"
        file.write_text(source, encoding="utf-8")
        done = subprocess.run(
            [tool, "-p", f"read_verilog {file}; {script}"],
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
    return done.stdout


def _check(name: str, source: str) -> None:
    """Compare a design with the receiver's function on a few values."""
    random = np.random.default_rng(1)
    for _ in range(4):
        psn, pair = (int(value) for value in random.integers(0, 1 << 24, 2))
        src, dst = (int(value) for value in random.integers(0, 1 << 16, 2))
        hop = int(random.integers(0, 16))
        if name == "packet id":
            inputs = {"psn": psn, "src": src, "dst": dst, "qp": pair}
            expected = packet_ids(*(np.array([v], np.uint32) for v in (psn, src, dst, pair)))
        else:
            inputs = {"id": psn, "hop": hop}
            expected = hop_hash(np.array([psn], np.uint32), hop)
        sets = " ".join(f"-set {key} {value}" for key, value in inputs.items())
        told = _yosys(f"proc; flatten; opt; eval {sets} -show result", source)
        found = re.search(r"Eval result: \\result = 24'([01]+)", told)
        if found is None or int(found[1], 2) != int(expected[0]):
            raise SystemExit(f"{name} differs from the receiver's function for {inputs}: {told}")


def count(source: str) -> tuple[int, int]:
    """Gates and depth of a design."""
    told = _yosys(f"synth -flatten -top top; abc -g {GATES}; stat; ltp -noff", source)
    gates = re.findall(r"Number of cells: +(\d+)", told)
    depth = re.findall(r"Longest topological path in top \(length=(\d+)\)", told)
    return int(gates[-1]), int(depth[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="update docs/measurements/telemetry.md"
    )
    options = parser.parse_args()
    lines = ["| logic of a port | gates | depth |", "|---|---:|---:|"]
    for name, source in designs().items():
        if name in ("packet id", "hop hash"):
            _check(name, source)
        gates, depth = count(source)
        lines.append(f"| {name} | {gates} | {depth} |")
    print("\n".join(lines))
    if options.write:
        put(PAGE, {"packet id gates": "\n".join(lines)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
