"""Checks a wheel of Tailback before publication; prints its defects and fails if there are any.

python scripts/check_wheel.py dist/tailback-*.whl
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

INDEX = re.compile(rb"[a-z0-9-]+(?:\.[a-z0-9-]+)+-[0-9a-f]{16}/")
"""The folder in which cargo keeps the sources of one package index: its host and a hash."""
GLIBC = 28
"""The wheel runs on systems with glibc 2.28 or newer."""
MACHINES = {62: "x86_64", 183: "aarch64"}
"""Numbers of the architectures in the header of an ELF file (e_machine)."""


def architecture(library: bytes) -> str:
    """The architecture that a shared library is built for."""
    if library[:4] != b"\x7fELF" or len(library) < 20:
        return "no machine (it is no ELF file)"
    number = int.from_bytes(library[18:20], "little")
    return MACHINES.get(number, f"machine {number}")


def build_places(data: bytes) -> list[str]:
    """Paths of the build machine, and package indexes, that a file names."""
    private = {str(Path.home()), str(Path(__file__).resolve().parents[1])}
    places = {path for path in private if f"{path}/".encode() in data}
    return sorted(places | {match.decode() for match in INDEX.findall(data)})


def faults(wheel: Path) -> list[str]:
    """The defects of the wheel, one line each."""
    faults = []
    if f"abi3-manylinux_2_{GLIBC}_" not in wheel.name:
        faults.append(f"it is not tagged abi3 and manylinux_2_{GLIBC}")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    wanted = ["tailback/_core.abi3.so", "tailback/_otf2/libotf2.so", "tailback/_otf2/COPYING"]
    faults += [f"{name} is missing" for name in wanted if name not in files]
    for name, data in files.items():
        # The OTF2 library is used as its authors built it, and contains their paths.
        if name != "tailback/_otf2/libotf2.so":
            faults += [f"{name} names {path}" for path in build_places(data)]
        if not name.endswith(".so"):
            continue
        if not wheel.stem.endswith(architecture(data)):
            faults.append(f"{name} is for {architecture(data)}")
        newest = max((int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", data)), default=0)
        if newest > GLIBC:
            faults.append(f"{name} needs glibc 2.{newest}")
    metadata = next(data.decode() for name, data in files.items() if name.endswith("/METADATA"))
    for target in re.findall(r"\]\(([^)]*)\)", metadata):
        if not target.startswith("https://"):
            faults.append(f"its description links to {target}, which an index cannot follow")
    return faults


def main(names: list[str]) -> int:
    """Check each wheel given on the command line."""
    bad = 0
    for wheel in map(Path, names):
        for fault in faults(wheel):
            bad += 1
            print(f"{wheel}: {fault}", file=sys.stderr)
    return 1 if bad or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
