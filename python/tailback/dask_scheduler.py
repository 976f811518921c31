"""Connects to the scheduler of a Dask cluster."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def connect(address: str, timeout_s: float = 20.0) -> Any:
    """A ``distributed.Client`` of a scheduler, to be closed by the caller.

    Args:
        address: Where the scheduler listens, like ``tcp://10.0.0.1:8786``.
        timeout_s: Time in seconds after which it is taken to be absent.

    Raises:
        ImportError: Dask is not installed.
        OSError: Nobody answers there.
        ValueError: It is no address, or the connection has to be encrypted and Dask's configuration
            names no certificates.
    """
    # Not every version of Dask has types: what comes from it is Any.
    distributed: Any = import_module("distributed")
    # A client of something else waits in vain for 40 s before it gives up.
    whole = address if "://" in address else f"tcp://{address}"
    if not whole.startswith("inproc://"):
        import_module("distributed.comm").get_address_host_port(whole, strict=False)
    try:
        return distributed.Client(address, timeout=timeout_s, set_as_default=False)
    except TypeError:
        # What Dask raises for tls:// without certificates.
        raise ValueError(
            "no certificates for an encrypted connection: name them in Dask's configuration, "
            "distributed.comm.tls"
        ) from None
