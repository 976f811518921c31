"""What a benchmark ran on, and what it took."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path


def processor() -> str:
    """Name of the processor, as the system tells it."""
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


def cpu_seconds() -> float:
    """Processor time of this process and the commands it ran: what a free core would take."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in both)
