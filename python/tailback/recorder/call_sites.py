"""Return addresses to function, file and line, by addr2line of the binutils, after the run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from tailback.recorder.rank_files import RankSite

_BATCH = 500


@dataclass(frozen=True)
class CallLocation:
    """Where a call is made: function, file ("" unknown) and line (0 unknown)."""

    function: str
    file: str = ""
    line: int = 0

    @property
    def text(self) -> str:
        """As readers of traces show it."""
        where = f" ({os.path.basename(self.file)}:{self.line})" if self.line else ""
        return f"{self.name}{where}"

    @property
    def name(self) -> str:
        """Trace readers treat "main" as the root region, not as a location in the program."""
        return "main()" if self.function == "main" else self.function


def locate_call_sites(sites: Iterable[RankSite], notes: list[str]) -> dict[RankSite, CallLocation]:
    """The source location of each call site; if unknown, the name of its module.

    Args:
        sites: Return addresses.
        notes: Gets a line for what could not be found out, and the remedy.
    """
    every = sorted(set(sites), key=lambda site: (site.module, site.address))
    by_module: dict[str, list[RankSite]] = {}
    for site in every:
        by_module.setdefault(site.module, []).append(site)
    tool = shutil.which("addr2line")
    if tool is None and every:
        notes.append(
            "call sites have no file and line: install binutils, which has addr2line, "
            "before recording"
        )
    out = {site: CallLocation(_known(site)) for site in every}
    for module, mine in by_module.items():
        if tool is not None and os.path.isfile(module):
            out |= _resolve(tool, module, mine)
    blind = sorted({site.module for site in every if not out[site].line and site.module != "-"})
    if tool is not None and blind:
        names = ", ".join(os.path.basename(module) for module in blind[:5])
        notes.append(f"calls from {names} have no file and line: compile with -g")
    return out


def _known(site: RankSite) -> str:
    if site.symbol != "-":
        return site.symbol
    return os.path.basename(site.module) if site.module != "-" else "unknown"


def _is_fixed(module: str) -> bool:
    """Whether a module is an executable of fixed addresses (ELF type EXEC)."""
    with open(module, "rb") as file:
        head = file.read(18)
    return head[:4] == b"\x7fELF" and head[16:18] in (b"\x02\x00", b"\x00\x02")


def _resolve(tool: str, module: str, sites: list[RankSite]) -> dict[RankSite, CallLocation]:
    out: dict[RankSite, CallLocation] = {}
    try:
        fixed = _is_fixed(module)
    except OSError:
        return out
    for first in range(0, len(sites), _BATCH):
        batch = sites[first : first + _BATCH]
        # A return address may be the first one of the next line: the call is a byte before.
        where = [hex(site.address - (0 if fixed else site.base) - 1) for site in batch]
        result = subprocess.run(
            [tool, "-f", "-C", "-e", module, *where],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        lines = result.stdout.split("\n")
        if result.returncode != 0 or len(lines) < 2 * len(batch):
            continue
        for site, function, at in zip(batch, lines[::2], lines[1::2], strict=False):
            file, _, line = at.split(" (")[0].rpartition(":")
            name = function if function != "??" else _known(site)
            number = int(line) if line.isdigit() else 0
            out[site] = CallLocation(name, file if number else "", number)
    return out
