"""Port counters: collect them, read them, analyse them."""

from tailback.port_counters.schema import INTERVALS, READINGS, CounterError, conform

__all__ = [
    "INTERVALS",
    "READINGS",
    "CounterError",
    "conform",
]
