"""The user-space MAD device, accessed through libibumad, which is loaded on demand.

Requests are written to the device and answers read from it, without a process per query, so many
can be in flight at once. The library is Debian's ``libibumad3``. It is not needed for building.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import struct
from dataclasses import dataclass
from typing import Final, Protocol

from tailback.collector import mad as mads
from tailback.port_counters.schema import CounterError

PACKAGES: Final = "libibumad3 libibmad5"
_QKEY_GSI: Final = 0x80010000
# struct ib_user_mad up to its data: agent, status, timeout, retries and length in the machine's
# order, then qpn, qkey, lid in network order, sl, path bits, grh_present … pkey_index, reserved.
_HEADER = struct.Struct("=IIIII")
_ADDRESS = struct.Struct(">IIHBB")
_CLASSES: Final = (mads.CLASS_DIRECTED, mads.CLASS_SUBNET, mads.CLASS_PERFORMANCE)


@dataclass(frozen=True, slots=True)
class Answer:
    """A received MAD and an error number (0 or, for instance, ETIMEDOUT)."""

    error: int
    mad: bytes


class MadPort(Protocol):
    """Sends and receives MADs. Tests implement it in Python."""

    def send(self, mad_class: int, lid: int, mad: bytearray, timeout_ms: int) -> None:
        """Send one request; raises OSError when the device refuses it."""

    def receive(self, wait_ms: int) -> Answer | None:
        """Return the next answer, or None when there is none within ``wait_ms``."""

    def close(self) -> None:
        """Release the device."""


def load_library(name: str = "ibumad", soname: str = "libibumad.so.3") -> ctypes.CDLL:
    """Return libibumad; raises CounterError that names the Debian packages where it is absent."""
    for candidate in (soname, ctypes.util.find_library(name)):
        if candidate:
            try:
                return ctypes.CDLL(candidate, use_errno=True)
            except OSError:
                continue
    raise CounterError(
        f"the InfiniBand library {soname} is not on this machine",
        remedy=f"Debian: apt-get install {PACKAGES}; or read files with 'tailback counters'",
    )


class UmadPort:
    """One InfiniBand port of this machine, as libibumad sees it.

    Args:
        adapter: Name such as ``"mlx5_0"``. None takes the first with an active port.
        port: Port of that adapter. 0 takes the first active one.
        service_level: Service level requests are sent on.

    Raises:
        CounterError: The library or adapter is missing, or permission to use the device.
    """

    def __init__(self, adapter: str | None = None, port: int = 0, service_level: int = 0) -> None:
        self._library = library = load_library()
        self._sl = service_level
        if library.umad_init() < 0:
            raise CounterError(
                "the InfiniBand MAD device cannot be used",
                remedy="load the kernel module ib_umad: modprobe ib_umad",
            )
        name = None if adapter is None else os.fsencode(adapter)
        self._port = library.umad_open_port(name, port)
        if self._port < 0:
            raise _cannot_open(adapter, port, -self._port)
        try:
            self._agents = {c: self._register(c) for c in _CLASSES}
        except CounterError:
            library.umad_close_port(self._port)
            raise
        self._head = library.umad_size()
        size = self._head + mads.MAD_BYTES
        self._out_view, self._in_view = bytearray(size), bytearray(size)
        # The library writes into the same memory, which saves a copy.
        self._out = (ctypes.c_char * size).from_buffer(self._out_view)
        self._in = (ctypes.c_char * size).from_buffer(self._in_view)
        self._length = ctypes.c_int(mads.MAD_BYTES)
        self._length_ref = ctypes.byref(self._length)

    def _register(self, mad_class: int) -> int:
        agent = int(self._library.umad_register(self._port, mad_class, 1, 0, None))
        if agent < 0:
            raise CounterError(
                f"the MAD device refuses management class 0x{mad_class:02x} (error {-agent})",
                remedy="another program may hold it, or the device may not allow it",
            )
        return agent

    def send(self, mad_class: int, lid: int, mad: bytearray, timeout_ms: int) -> None:
        """Send one request. The kernel reports ETIMEDOUT after ``timeout_ms``."""
        general = mad_class == mads.CLASS_PERFORMANCE
        out = self._out_view
        _ADDRESS.pack_into(
            out, _HEADER.size, int(general), _QKEY_GSI if general else 0, lid, self._sl, 0
        )
        out[self._head :] = mad
        sent = self._library.umad_send(
            self._port, self._agents[mad_class], self._out, mads.MAD_BYTES, timeout_ms, 0
        )
        if sent < 0:
            number = ctypes.get_errno() or -sent
            raise OSError(number, f"umad_send: {os.strerror(number)}")

    def receive(self, wait_ms: int) -> Answer | None:
        """Return the next answer, or None when there is none within ``wait_ms``."""
        # umad_recv takes a timeout of 0 as infinite.
        if wait_ms <= 0 and self._library.umad_poll(self._port, 0) < 0:
            return None
        self._length.value = mads.MAD_BYTES
        got = self._library.umad_recv(self._port, self._in, self._length_ref, max(wait_ms, 1))
        if got < 0:
            number = -got if got != -1 else ctypes.get_errno()
            if number in (errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR, errno.ENOSPC, errno.EINVAL):
                return None
            raise OSError(number, f"umad_recv: {os.strerror(number)}")
        error = int(_HEADER.unpack_from(self._in_view)[1])
        return Answer(error, bytes(self._in_view[self._head :]))

    def close(self) -> None:
        """Release the device. Closing twice does nothing."""
        if self._port >= 0:
            self._library.umad_close_port(self._port)
            self._port = -1


def _cannot_open(adapter: str | None, port: int, number: int) -> CounterError:
    which = "no InfiniBand port" if adapter is None else f"adapter {adapter!r} port {port}"
    if number in (errno.EACCES, errno.EPERM):
        return CounterError(
            f"{which}: no permission to open the MAD device",
            remedy="give your account read and write access to /dev/infiniband/umad*",
        )
    return CounterError(
        f"{which} can be opened (error {number})",
        remedy="see 'ibstat -l' for the adapters of this machine and choose one with --ca; "
        "without an adapter, read files that were collected elsewhere",
    )
