"""The Prometheus endpoint: one page, ``/metrics``, on the loopback interface by default."""

from __future__ import annotations

import gzip
import ipaddress
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tailback.port_counters.schema import CounterError


class Endpoint:
    """Serves metrics from a separate thread.

    Args:
        address: ``"PORT"`` (on 127.0.0.1), ``"HOST:PORT"`` or ``"[IPV6]:PORT"``; port 0 takes any.
        page: Makes the page.

    Raises:
        CounterError: The address is invalid or in use.
    """

    def __init__(self, address: str, page: Callable[[], str]) -> None:
        host, port = parse_address(address)

        class Handler(_Handler):
            make = staticmethod(page)

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

        try:
            self._server = Server((host, port), Handler)
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


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of /metrics, and 404 for everything else."""

    make: Callable[[], str]
    server_version = "tailback"
    sys_version = ""
    timeout = 10

    def do_GET(self) -> None:
        if self.path.split("?", 1)[0] != "/metrics":
            self.send_error(404, "only /metrics is here")
            return
        body = self.make().encode()
        packed = accepts_gzip(self.headers.get("Accept-Encoding", ""))
        if packed:
            body = gzip.compress(body, compresslevel=1, mtime=0)
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
