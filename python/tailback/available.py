"""How much memory there is: for all that asks before it takes some."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from tailback.errors import ScenarioError
from tailback.units import parse_memory

MEMORY_VARIABLE = "TAILBACK_MEMORY"
"""Environment variable: how much memory a run may count on, in place of what the machine has."""


def available_memory() -> int | None:
    """Bytes this process can still take, None where the machine does not say.

    The least of: what ``TAILBACK_MEMORY`` says, what the machine has free, what the control group
    has left, what the limit on address space leaves.

    Raises:
        ScenarioError: The variable is not an amount of memory.
    """
    text = os.environ.get(MEMORY_VARIABLE)
    if text is not None:
        try:
            return parse_memory(text)
        except ValueError as error:
            raise ScenarioError(
                f"{MEMORY_VARIABLE}: {error}", remedy=f"for example {MEMORY_VARIABLE}='16 GiB'"
            ) from None
    found = [_free_memory(), *_control_groups(), _address_space()]
    known = [size for size in found if size is not None]
    return min(known, default=None)


INPUT_BYTES = 2 << 30
"""Memory that one input (a table, a profile) may take unless ``TAILBACK_MEMORY`` is set."""


def memory_for_input() -> int | None:
    """Bytes that reading one input may take: a small file can stand for a great deal.

    ``TAILBACK_MEMORY`` where it is set; otherwise half of what there is, at most
    :data:`INPUT_BYTES`. None where the machine does not say what it has.

    Raises:
        ScenarioError: As :func:`available_memory`.
    """
    there = available_memory()
    if there is None or MEMORY_VARIABLE in os.environ:
        return there
    return min(there // 2, INPUT_BYTES)


def memory_remedy(needed: int) -> str:
    """The remedy for what takes ``needed`` bytes, more than it may."""
    whole = -(-needed // 2**30)
    return f"allow more memory, if the machine has it: {MEMORY_VARIABLE}='{whole} GiB' tailback …"


def _free_memory() -> int | None:
    """What the machine can give without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(sizes[0]) * 1024 if sizes else None


def _control_groups() -> list[int]:
    """What the control groups of this process have left, innermost first (versions 2 and 1)."""
    root = Path("/sys/fs/cgroup")
    left = []
    for limit, usage in (
        (root / "memory.max", root / "memory.current"),
        (root / "memory/memory.limit_in_bytes", root / "memory/memory.usage_in_bytes"),
    ):
        try:
            most, used = limit.read_text().strip(), usage.read_text().strip()
        except OSError:
            continue
        # Version 1 writes a number near 2^63 where there is no limit.
        if most.isdecimal() and used.isdecimal() and int(most) < 1 << 60:
            left.append(max(0, int(most) - int(used)))
    return left


def _address_space() -> int | None:
    """What ``ulimit -v`` leaves."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return None
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return max(0, soft - pages * resource.getpagesize())
