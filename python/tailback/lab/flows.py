"""Traffic from one host of a lab to another. It runs in the hosts' namespaces as a program.

::

    python flows.py receive ADDRESS PORT
    python flows.py send ADDRESS PORT ON_S OFF_S

Sends as fast as TCP can: without pause if ON_S is 0, otherwise for ON_S seconds, then not for
OFF_S.
Imports the standard library only, so it starts at once.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

_CHUNK = bytes(16384)
_TRIES = 200
_BETWEEN_TRIES_S = 0.05


def receive(address: str, port: int) -> None:
    """Accept connections and discard what arrives."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.create_server((address, port), family=family)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_discard, args=(connection,), daemon=True).start()


def _discard(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def send(address: str, port: int, on_s: float, off_s: float) -> None:
    """Send until the other side closes."""
    connection = _connected(address, port)
    start = time.monotonic()
    while True:
        into = (time.monotonic() - start) % (on_s + off_s) if on_s else 0.0
        if into > on_s:
            time.sleep(on_s + off_s - into)
        connection.sendall(_CHUNK)


def _connected(address: str, port: int) -> socket.socket:
    """The receiver may have started later."""
    for _ in range(_TRIES):
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:
            time.sleep(_BETWEEN_TRIES_S)
    raise SystemExit(f"nothing listens at {address}:{port}")


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
