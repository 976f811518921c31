"""Columns of a reading from counters of an Ethernet interface, under the names of drivers.

Drivers count the same bytes in several places. The wire (``_phy``, ``port.``, SAI) comes first: the
kernel's own counters do not contain RDMA traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tailback.port_counters.findings.port_events import meaning_of, normal_name
from tailback.port_counters.readers.model import note_counter

_SAI: Final = "sai_port_stat_if_out"
_SAI_IN: Final = "sai_port_stat_if_in"
COLUMNS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "data_bytes": (
        ("tx_bytes_phy",),
        ("port.tx_bytes",),
        (f"{_SAI}_octets",),
        ("tx_bytes",),
        ("tx_octets",),
        ("bytes_sent",),
        ("out_octets",),
    ),
    "packets": (
        ("tx_packets_phy",),
        ("port.tx_unicast", "port.tx_multicast", "port.tx_broadcast"),
        (f"{_SAI}_ucast_pkts", f"{_SAI}_multicast_pkts", f"{_SAI}_broadcast_pkts"),
        (f"{_SAI}_ucast_pkts", f"{_SAI}_non_ucast_pkts"),
        ("tx_packets",),
        ("packets_sent",),
        ("out_pkts",),
        ("out_unicast_pkts", "out_multicast_pkts", "out_broadcast_pkts"),
        ("out_unicast_packets", "out_multicast_packets", "out_broadcast_packets"),
    ),
    "received_bytes": (
        ("rx_bytes_phy",),
        ("port.rx_bytes",),
        (f"{_SAI_IN}_octets",),
        ("rx_bytes",),
        ("rx_octets",),
        ("bytes_received",),
        ("in_octets",),
    ),
    "received_packets": (
        ("rx_packets_phy",),
        ("port.rx_unicast", "port.rx_multicast", "port.rx_broadcast"),
        (f"{_SAI_IN}_ucast_pkts", f"{_SAI_IN}_multicast_pkts", f"{_SAI_IN}_broadcast_pkts"),
        (f"{_SAI_IN}_ucast_pkts", f"{_SAI_IN}_non_ucast_pkts"),
        ("rx_packets",),
        ("packets_received",),
        ("in_pkts",),
        ("in_unicast_pkts", "in_multicast_pkts", "in_broadcast_pkts"),
        ("in_unicast_packets", "in_multicast_packets", "in_broadcast_packets"),
    ),
    "drops": (
        ("tx_discards_phy",),
        (f"{_SAI}_discards",),
        ("tx_dropped",),
        ("drop_out",),
        ("out_discards",),
    ),
}
"""Names of the counters whose sum is a column, the best first."""


def interface_row(counters: Mapping[str, int], unknown: dict[str, None]) -> dict[str, Any]:
    """Columns of a reading, and its other counters under ``events``.

    Drops are left out where the interface counts how long it was paused: such a network does not
    drop packets for lack of room, and is judged by pauses as others are by waits for credit.

    Args:
        counters: Values by name.
        unknown: Names of counters that are not used; grows.
    """
    lowered = {name.lower(): value for name, value in counters.items()}
    row: dict[str, Any] = {}
    used: set[str] = set()
    for column, candidates in COLUMNS.items():
        for names in candidates:
            if all(name in lowered for name in names):
                row[column] = sum(lowered[name] for name in names)
                used.update(names)
                break
    others = {n for names in COLUMNS.values() for group in names for n in group} - used
    for name, value in counters.items():
        if name.lower() not in used | others:
            note_counter(row, unknown, name, value)
    meanings = [meaning_of(name) for name in row.get("events", {})]
    if any(m is not None and m.kind == "paused" and m.unit != "events" for m in meanings):
        discards = row.pop("drops", None)
        if discards is not None:
            row["events"][_discards_name(lowered)] = discards
    return row


def _discards_name(counters: Mapping[str, int]) -> str:
    """Name of the counter of discards that was taken, as the source has it."""
    name = next(names[0] for names in COLUMNS["drops"] if names[0] in counters)
    return name if meaning_of(normal_name(name)) is not None else "tx_discards_phy"
