"""The machine on which a benchmark ran."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor() -> str:
    """Name of the processor, as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> str:
    """The processor and how many cores there are."""
    return f"{processor()}, {os.cpu_count()} cores"
