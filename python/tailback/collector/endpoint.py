"""The Prometheus endpoint: one page, ``/metrics``, on the loopback interface by default."""

from __future__ import annotations

import ipaddress
import socket
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final

from tailback.port_counters.schema import CounterError

MAX_CONNECTIONS: Final = 32
"""Clients at a time. A subnet has a few scrapers. Each holds a thread (0.1 MB), not a page."""

MAX_SECONDS: Final = 10.0
"""Time for a request and its answer: the default scrape timeout of Prometheus."""


class Endpoint:
    """Serves metrics from a separate thread.

    The page is made once per edition and shared by all clients, however slowly they read.

    Args:
        address: ``"PORT"`` (on 127.0.0.1), ``"HOST:PORT"`` or ``"[IPV6]:PORT"``; port 0 takes any.
        page: Makes the page.
        edition: Differs whenever a new page has to be made.
        max_seconds: Time after which a client is cut off.

    Raises:
        CounterError: The address is invalid or in use.
    """

    def __init__(
        self,
        address: str,
        page: Callable[[], str],
        edition: Callable[[], object],
        max_seconds: float = MAX_SECONDS,
    ) -> None:
        host, port = parse_address(address)
        try:
            self._server = _Server((host, port), _SharedPage(page, edition), max_seconds)
        except OSError as error:
            raise CounterError(
                f"metrics cannot be served on {address!r}: {error.strerror or error}",
                remedy="choose another --metrics [HOST:]PORT",
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, args=(0.2,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _SharedPage:
    """The page of the current edition, plain and compressed."""

    def __init__(self, make: Callable[[], str], edition: Callable[[], object]) -> None:
        self._make, self._edition = make, edition
        self._made: object = None
        self._lock = Lock()
        self._bodies: tuple[bytes, bytes] = (b"", b"")

    def bodies(self) -> tuple[bytes, bytes]:
        """The page and the same with gzip."""
        with self._lock:
            edition = (self._edition(),)
            if edition != self._made:
                text = self._make().encode()
                self._bodies = text, pack(text)
                self._made = edition
            return self._bodies


class _Server(ThreadingHTTPServer):
    """Accepts a limited number of connections and closes those that take too long."""

    daemon_threads = True
    # Further connections wait until one is closed. The system makes those beyond connect again a
    # second later.
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], page: _SharedPage, max_seconds: float) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.page, self._max_seconds = page, max_seconds
        self._open: dict[socket.socket, float] = {}
        self._guard = Lock()
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for another connection. Otherwise the socket is closed."""
        with self._guard:
            room = len(self._open) < MAX_CONNECTIONS
            if room:
                self._open[request] = time.monotonic()
            return room

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut off slow clients. Called several times a second."""
        oldest = time.monotonic() - self._max_seconds
        with self._guard:
            late = [request for request, begun in self._open.items() if begun < oldest]
            for request in late:
                # Its thread then fails to read or write, and closes it.
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away or were cut off."""


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of /metrics, and 404 for everything else."""

    server: _Server
    server_version = "tailback"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.split("?", 1)[0] != "/metrics":
            self.send_error(404, "only /metrics is here")
            return
        plain, compressed = self.server.page.bodies()
        packed = accepts_gzip(self.headers.get("Accept-Encoding", ""))
        body = compressed if packed else plain
        self.send_response(200)
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Vary", "Accept-Encoding")
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: there is a scrape every few seconds."""


def pack(page: bytes) -> bytes:
    """A page of metrics as gzip.

    A line repeats the one before it, so a window of a few lines suffices. In a larger one, digits
    of counters match by chance far away, which takes more than the digits. Small blocks fit their
    codes to each metric. It is a quarter smaller than by default.
    """
    packer = zlib.compressobj(5, zlib.DEFLATED, 16 + 10, 6)
    return packer.compress(page) + packer.flush()


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether a header ``Accept-Encoding`` names gzip, and not with a weight of 0 (RFC 9110)."""
    for item in accept_encoding.lower().split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip() == "gzip":
            weight = parameters.replace(" ", "").removeprefix("q=")
            return weight.strip("0.") != "" or weight == ""
    return False


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``"9750"``, ``"127.0.0.1:9750"`` or ``"[::1]:9750"``."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    try:
        number = int(port)
        if not 0 <= number <= 65535:
            raise ValueError
        if ":" in host:
            ipaddress.IPv6Address(host)
    except ValueError:
        raise CounterError(
            f"{text!r} is not an address to serve metrics on",
            remedy="write it like 9750, 0.0.0.0:9750 or [::1]:9750",
        ) from None
    return host, number
