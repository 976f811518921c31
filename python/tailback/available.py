"""How much memory is available, for checks before a large allocation."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from tailback.errors import ScenarioError, TailbackError
from tailback.units import counted, format_bytes, parse_memory

MEMORY_VARIABLE = "TAILBACK_MEMORY"
"""Environment variable that overrides how much memory a run may use."""


def available_memory() -> int | None:
    """Bytes that this process can still allocate; None if unknown.

    ``TAILBACK_MEMORY`` if it is set. Otherwise the least of three amounts: the machine's free
    memory, the memory left to the control group, and the address space left under its limit.

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
    sizes = [_free_memory(), *_control_groups(), _address_space()]
    limits = [size for size in sizes if size is not None]
    return min(limits, default=None)


INPUT_BYTES = 2 << 30
"""Memory that one input (a table, a profile) may take unless ``TAILBACK_MEMORY`` is set."""


def memory_for_input() -> int | None:
    """Bytes that reading one input may take: a small file can expand to a great deal.

    ``TAILBACK_MEMORY`` if it is set. Otherwise half of the available memory, at most
    :data:`INPUT_BYTES`. None if the available memory is unknown.

    Raises:
        ScenarioError: As :func:`available_memory`.
    """
    available = available_memory()
    if available is None or MEMORY_VARIABLE in os.environ:
        return available
    return min(available // 2, INPUT_BYTES)


def memory_remedy(needed: int) -> str:
    """The remedy for something that needs ``needed`` bytes, which is more than it may take."""
    gibibytes = -(-needed // 2**30)
    return (
        f"allow more memory, if the machine has it: {MEMORY_VARIABLE}='{gibibytes} GiB' tailback …"
    )


_IMPORTS_BYTES = 640 << 20
_IMPORTS_BYTES_PER_CPU = 90 << 20
"""Address space of the imports of ``diagnose``, the largest: 624 MB with one thread of OpenBLAS,
which NumPy and SciPy bring along once each, and 82 MB for each further one. With less OpenBLAS
waits for memory for ever."""


def require_address_space() -> None:
    """Refuse a limit on address space (``ulimit -v``) below what the imports need.

    Raises:
        TailbackError: States the limit and the memory needed.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    threads = len(os.sched_getaffinity(0))
    stated = os.environ.get("OPENBLAS_NUM_THREADS", "")
    if stated.isdecimal() and int(stated) > 0:
        threads = min(threads, int(stated))
    needed = _IMPORTS_BYTES + _IMPORTS_BYTES_PER_CPU * threads
    if soft < needed:
        raise TailbackError(
            f"the limit on address space is {format_bytes(soft)}, and Tailback's libraries alone "
            f"take {format_bytes(needed)} with {counted(threads, 'thread')}",
            place="ulimit -v",
            remedy=f"allow more, at least ulimit -v {needed // 1024 + (1 << 20)}"
            + ("; or fewer threads: OPENBLAS_NUM_THREADS=1" if threads > 1 else ""),
        )


def _free_memory() -> int | None:
    """Memory that the machine can provide without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(sizes[0]) * 1024 if sizes else None


def _control_groups() -> list[int]:
    """Memory left to the control groups of this process (versions 2 and 1)."""
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
        # Version 1 writes a number near 2^63 for no limit.
        if most.isdecimal() and used.isdecimal() and int(most) < 1 << 60:
            left.append(max(0, int(most) - int(used)))
    return left


def _address_space() -> int | None:
    """Address space left under ``ulimit -v``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return None
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return max(0, soft - pages * resource.getpagesize())
