"""Access to maps and programs in the kernel by direct calls of bpf(2).

No library or program is needed: maps are opened where they are pinned, the ports' map is
memory-mapped from the kernel, and the sums are read in batches. Layouts are those of ``maps.h``,
``ingress.h`` and ``linux/bpf.h``.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.lab.datapath.sampling import SamplingError

PORT: Final = np.dtype(
    [
        ("masks", np.uint32, 8),
        ("congested_bytes", np.uint32),
        ("ecn", np.uint32),
        ("packets", np.uint64),
        ("congested", np.uint64),
        ("super_packets", np.uint64),
        ("received", np.uint64),
        ("lost", np.uint64),
    ]
)
"""``struct port``."""

KEY: Final = np.dtype(
    [
        ("source", np.uint32),
        ("mark", np.uint32),
        ("interface", np.uint16),
        ("hop", np.uint8),
        ("weight", np.uint8),
        ("congested", np.uint8),
        ("reserved", np.uint8, 3),
        ("port", np.uint16, 2),
    ]
)
"""``struct sums_key``."""

NO_HOP: Final = 255

_SYSCALL: Final = {"x86_64": 321, "aarch64": 280}
_UPDATE, _OBJECT, _TEST_RUN, _INFO, _BATCH, _STATISTICS = 2, 7, 10, 15, 24, 32
_RUN_TIME_AT: Final = 192
"""Offset of ``run_time_ns`` and ``run_cnt`` in ``struct bpf_prog_info``."""
_INFO_BYTES: Final = 256


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _bpf(
    command: int, layout: str, *values: int, what: str, allowed: int = 0
) -> tuple[int, tuple[int, ...]]:
    """Call the kernel.

    Args:
        command: Number of the command.
        layout: Layout of its attributes, in the format of module ``struct``.
        values: The attributes.
        what: Object of the call, for error messages.
        allowed: Error number that is not treated as an error.

    Returns:
        The result, -1 for the allowed error, and the attributes as the kernel left them.

    Raises:
        SamplingError: The call failed.
    """
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise SamplingError(
            f"bpf(2) of {platform.machine()} is not known", remedy="use x86-64 or arm64"
        )
    size = struct.calcsize(layout)
    attributes = ctypes.create_string_buffer(struct.pack(layout, *values), size)
    result = int(_libc().syscall(number, command, attributes, ctypes.c_uint(size)))
    code = ctypes.get_errno() if result < 0 else 0
    if code not in (0, allowed):
        raise SamplingError(
            f"{what}: {os.strerror(code)}", remedy="run as root; bring the lab up again"
        )
    return result, struct.unpack(layout, attributes.raw)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Descriptor of a pinned map or program."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    descriptor = _bpf(_OBJECT, "=QII", ctypes.addressof(name), 0, 0, what=str(path))[0]
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def port_table(folder: Path, links: int) -> Iterator[NDArray[np.void]]:
    """The memory-mapped map of ports: rows of :data:`PORT` by link number.

    Args:
        folder: Where the maps are pinned.
        links: Rows of the map.
    """
    with opened(folder / "ports") as descriptor:
        memory = mmap.mmap(descriptor, links * PORT.itemsize)
    # The array holds a reference to the mapping, which is unmapped when both are released.
    yield np.frombuffer(memory, PORT, links)


@dataclass(frozen=True)
class Sums:
    """Sums of the receivers.

    Attributes:
        keys: Rows of :data:`KEY`, shape (K,).
        samples: Number of samples per key, shape (K,).
        bytes: Bytes of their packets, shape (K,).
        bins: Bins per key, shape (K, 2^link bits).
    """

    keys: NDArray[np.void]
    samples: NDArray[np.int64]
    bytes: NDArray[np.int64]
    bins: NDArray[np.int64]

    def since(self, before: Sums) -> Sums:
        """The increments since ``before``. Keys are never removed."""
        rows = {key.tobytes(): row for row, key in enumerate(before.keys)}
        old = np.array([rows.get(key.tobytes(), -1) for key in self.keys], np.int64)
        in_before = old >= 0

        def less(name: str) -> NDArray[np.int64]:
            values = getattr(self, name).copy()
            values[in_before] -= getattr(before, name)[old[in_before]]
            return np.asarray(values, np.int64)

        return Sums(self.keys, less("samples"), less("bytes"), less("bins"))


def read_sums(folder: Path, links: int, room: int) -> Sums:
    """Read the sums of all receivers.

    Args:
        folder: Where the maps are pinned.
        links: Number of bins per entry.
        room: Maximum number of entries.
    """
    row = 16 + 8 * links
    keys, values = np.zeros(room, KEY), np.zeros((room, row), np.uint8)
    place = ctypes.create_string_buffer(8)
    filled, start, result = 0, 0, 0
    with opened(folder / "sums") as descriptor:
        # The kernel reports the end of the map after the last entry.
        while filled < room and result >= 0:
            result, answer = _bpf(
                _BATCH,
                "=QQQQIIQQ",
                start,
                ctypes.addressof(place),
                keys[filled:].ctypes.data,
                values[filled:].ctypes.data,
                room - filled,
                descriptor,
                0,
                0,
                what="the receivers' sums",
                allowed=errno.ENOENT,
            )
            filled, start = filled + answer[4], ctypes.addressof(place)
    numbers = values[:filled].view(np.int64)
    return Sums(
        keys[:filled].copy(), numbers[:, 0].copy(), numbers[:, 1].copy(), numbers[:, 2:].copy()
    )


@contextmanager
def run_times() -> Iterator[None]:
    """Have the kernel measure the run time of programs within the context."""
    descriptor = _bpf(_STATISTICS, "=I", 0, what="run times of programs")[0]
    try:
        yield
    finally:
        os.close(descriptor)


def run_time(program: Path) -> tuple[int, int]:
    """Measured run time of a pinned program in nanoseconds, and its number of runs."""
    info = ctypes.create_string_buffer(_INFO_BYTES)
    with opened(program) as descriptor:
        _bpf(_INFO, "=IIQ", descriptor, _INFO_BYTES, ctypes.addressof(info), what=str(program))
    nanoseconds, count = struct.unpack_from("=QQ", info.raw, _RUN_TIME_AT)
    return nanoseconds, count


def dry_run(
    descriptor: int, packet: bytes, context: bytes = b"", repeat: int = 1
) -> tuple[bytes, int]:
    """Run a program on a packet without sending it.

    Args:
        descriptor: The program.
        packet: Ethernet frame.
        context: ``struct __sk_buff``; empty for zeros.
        repeat: Number of runs.

    Returns:
        The packet afterwards, and the nanoseconds per run.
    """
    sent, out = ctypes.create_string_buffer(packet, len(packet)), ctypes.create_string_buffer(4096)
    about = ctypes.create_string_buffer(context, max(len(context), 1))
    _, answer = _bpf(
        _TEST_RUN,
        "=IIIIQQIIIIQQIIIxxxx",
        descriptor,
        0,
        len(packet),
        4096,
        ctypes.addressof(sent),
        ctypes.addressof(out),
        repeat,
        0,
        len(context),
        0,
        ctypes.addressof(about) if context else 0,
        0,
        0,
        0,
        0,
        what="dry run",
    )
    return out.raw[: answer[3]], answer[7]
