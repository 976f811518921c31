"""Workers on other processors: the interpreter of a local one, and the client of a Dask cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tailback.errors import RunError

PYTHON = (sys.executable, "-P")
"""Command of a worker's interpreter. Without -P, Python would import modules from the current
folder, in which other users may have put some."""


@contextmanager
def dask_client(client: Any, timeout_s: float = 20.0) -> Iterator[Any]:
    """A client of a Dask cluster; one that is made from an address is closed in the end.

    Args:
        client: A ``distributed.Client``, or the address of a scheduler, like
            ``tcp://10.0.0.1:8786``.
        timeout_s: Time in seconds after which a scheduler is taken to be absent.

    Raises:
        RunError: Dask is not installed, or no scheduler answers at the address.
    """
    try:
        import_module("distributed")
    except ImportError:
        raise RunError("Dask is not installed", remedy="pip install 'tailback[cluster]'") from None
    if not isinstance(client, str):
        yield client
        return
    try:
        connected = _connect(client, timeout_s)
    except (OSError, ValueError) as error:
        raise RunError(
            f"no Dask scheduler answers at {client!r}: {error}",
            remedy="start one with 'dask scheduler' and give the address that it prints",
        ) from None
    with connected:
        yield connected


def _connect(address: str, timeout_s: float) -> Any:
    """A ``distributed.Client`` of a scheduler, to be closed by the caller.

    Raises:
        OSError: Nobody answers there.
        ValueError: It is no address, or the connection has to be encrypted and Dask's configuration
            names no certificates.
    """
    # Not every version of Dask has types: what comes from it is Any.
    distributed: Any = import_module("distributed")
    # A client of something else waits in vain for 40 s before it gives up.
    url = address if "://" in address else f"tcp://{address}"
    if not url.startswith("inproc://"):
        import_module("distributed.comm").get_address_host_port(url, strict=False)
    try:
        return distributed.Client(address, timeout=timeout_s, set_as_default=False)
    except TypeError:
        # What Dask raises for tls:// without certificates.
        raise ValueError(
            "no certificates for an encrypted connection: name them in Dask's configuration, "
            "distributed.comm.tls"
        ) from None
