"""Proves with yosys that circuits equal simple specifications: `python hardware/prove.py`.

The specifications in spec.sv follow the definitions: the hash is the product in GF(2^24), not
masks; the VCRC is that of a message, bit by bit. `sat -prove` looks for an input on which circuit
and specification differ; finding none, for all inputs at once, is the proof.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROOFS = {
    "prove_round": "mixer round: a bijection (its inverse gives the input back)",
    "prove_hash": "link hash, 5 bits: parities under masks = product in GF(2^24)",
    "prove_update": "coordinated, 6 bits: keep or replace by (id, hop)",
    "prove_compact": "compact, 6 bits: replacement and saturated count",
    "prove_single_bit": "single bit: both reservoirs and counts",
    "prove_full": "full: both reservoirs and counts",
    "prove_vcrc": "VCRC: updated from the difference = computed anew, word by word",
}


def yosys(script: str) -> str:
    """Output of yosys for a script on all sources."""
    names = ("mixer", "random", "schemes", "vcrc")
    files = " ".join(str(HERE / "rtl" / f"{name}.sv") for name in names)
    read = f"read_verilog -sv -I{HERE / 'rtl'} {files} {HERE / 'spec.sv'}"
    done = subprocess.run(["yosys", "-p", f"{read}; {script}"], capture_output=True, text=True)
    return done.stdout + done.stderr


def proved(module: str) -> bool:
    """Whether output ``same`` of a module of spec.sv is 1 for all inputs."""
    told = yosys(
        f"hierarchy -top {module}; proc; flatten; opt -full; "
        "sat -verify -prove same 1 -timeout 240 " + module
    )
    return "SAT proof finished - no model found: SUCCESS!" in told


def main() -> int:
    if shutil.which("yosys") is None:
        raise SystemExit("no yosys here; remedy: install the Debian package yosys")
    wanted, failed = sys.argv[1:] or list(PROOFS), 0
    print("| circuit = specification | |\n|---|---|")
    for module in wanted:
        holds = proved(module)
        failed += not holds
        print(f"| {PROOFS[module]} | {'proved' if holds else 'NOT proved'} |", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
