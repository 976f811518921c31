"""Proves circuits equal to plainly written specifications: `python hardware/prove.py`.

The specifications in spec.sv follow the definitions: the hash is the product in GF(2^24), not
masks; the VCRC is that of a message, bit by bit. Two methods:

- `sat`: yosys looks for an input on which circuit and specification differ; finding none, for all
  inputs at once, is the proof.
- `polynomial`: sums of many bits defeat the solver, but as polynomials over GF(2) they are short:
  the VCRC is linear, the hash bilinear in id and link. Every Boolean function has exactly one such
  polynomial (its algebraic normal form), so equal polynomials are equal circuits. yosys writes the
  netlist in AND and XOR gates; the polynomials of its outputs are computed here gate by gate.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PROOFS = {
    "prove_round": ("sat", "mixer round: a bijection (its inverse gives the input back)"),
    "prove_hash": (
        "polynomial",
        "link hash, 8 bits, parallel and serial = product in GF(2^24)",
    ),
    "prove_update": ("sat", "`coordinated`, 6 bits: keep or replace by state and hop"),
    "prove_compact": ("sat", "`compact`, 6 bits: replacement and saturated count"),
    "prove_single_bit": ("sat", "`single-bit`: both reservoirs and counts"),
    "prove_full": ("sat", "`full`: both reservoirs and counts"),
    "prove_vcrc": ("polynomial", "VCRC: updated from the difference = computed anew, a word"),
}
MOST_TERMS = 1 << 16

Polynomial = frozenset[int]
"""Set of monomials that are summed; a monomial is the set of its variables, as bits."""

ONE: Polynomial = frozenset({0})


def yosys(script: str) -> str:
    """Output of yosys for a script on all sources."""
    names = ("mixer", "random", "schemes", "vcrc")
    files = " ".join(str(HERE / "rtl" / f"{name}.sv") for name in names)
    read = f"read_verilog -sv -I{HERE / 'rtl'} {files} {HERE / 'spec.sv'}"
    done = subprocess.run(["yosys", "-p", f"{read}; {script}"], capture_output=True, text=True)
    return done.stdout + done.stderr


def proved_by_sat(module: str) -> bool:
    """Whether output ``same`` of a module of spec.sv is 1 for all inputs."""
    output = yosys(
        f"hierarchy -top {module}; proc; flatten; opt -full; "
        "sat -verify -prove same 1 -timeout 240 " + module
    )
    return "SAT proof finished - no model found: SUCCESS!" in output


def times(a: Polynomial, b: Polynomial) -> Polynomial:
    """Product; x² = x."""
    product: set[int] = set()
    for monomial in a:
        for other in b:
            product ^= {monomial | other}
    if len(product) > MOST_TERMS:
        raise SystemExit("a polynomial has too many terms; remedy: prove this circuit by sat")
    return frozenset(product)


def polynomials(netlist: dict[str, Any]) -> dict[str, list[Polynomial]]:
    """Polynomials of the outputs of a netlist of single-bit gates, as yosys writes it."""
    polynomials: dict[int | str, Polynomial] = {"0": frozenset(), "1": ONE}
    variables = 0
    for port in netlist["ports"].values():
        if port["direction"] == "input":
            for bit in port["bits"]:
                polynomials[bit] = frozenset({1 << variables})
                variables += 1
    driver = {cell["connections"]["Y"][0]: cell for cell in netlist["cells"].values()}

    def of(bit: int | str) -> Polynomial:
        waiting = [bit]
        while waiting:
            if waiting[-1] in polynomials:
                waiting.pop()
                continue
            cell = driver[waiting[-1]]
            pins = {name: b[0] for name, b in cell["connections"].items() if name != "Y"}
            missing = [b for b in pins.values() if b not in polynomials]
            if missing:
                waiting += missing
                continue
            polynomials[waiting.pop()] = _gate(
                cell["type"], {n: polynomials[b] for n, b in pins.items()}
            )
        return polynomials[bit]

    outputs = {n: p for n, p in netlist["ports"].items() if p["direction"] == "output"}
    return {name: [of(bit) for bit in port["bits"]] for name, port in outputs.items()}


def _gate(kind: str, pins: dict[str, Polynomial]) -> Polynomial:
    a = pins["A"]
    if kind == "$_NOT_":
        return a ^ ONE
    b = pins["B"]
    match kind:
        case "$_AND_":
            return times(a, b)
        case "$_XOR_":
            return a ^ b
        case "$_OR_":
            return a ^ b ^ times(a, b)
        case "$_MUX_":
            return a ^ times(pins["S"], a ^ b)
    raise SystemExit(f"no polynomial for gate {kind}")


def proved_by_polynomial(module: str) -> bool:
    """Whether all outputs of a module of spec.sv are the same function of its inputs."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "netlist.json"
        output = yosys(
            f"hierarchy -top {module}; proc; flatten; opt; techmap; opt; write_json {out}"
        )
        if not out.exists():
            raise SystemExit(output[-2000:])
        netlist = json.loads(out.read_text(encoding="utf-8"))["modules"][module]
    first, *others = polynomials(netlist).values()
    return any(first) and len(others) > 0 and all(other == first for other in others)


METHODS = {"sat": proved_by_sat, "polynomial": proved_by_polynomial}


def main() -> int:
    if shutil.which("yosys") is None:
        raise SystemExit("no yosys here; remedy: install the Debian package yosys")
    wanted, failed = sys.argv[1:] or list(PROOFS), 0
    print("| circuit = specification | by | |\n|---|---|---|")
    for module in wanted:
        method, meaning = PROOFS[module]
        holds = METHODS[method](module)
        failed += not holds
        print(f"| {meaning} | {method} | {'proved' if holds else 'NOT proved'} |", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
