"""Links that need a hand: what counters, rates and changes say of each cable, the worst first.

A cable is ill if it is down, was down, counts errors or discards, has less width or speed than the
ports of its kind, or carries much less than the links that carry the same traffic. It is also ill
if one end received another amount than the other end sent. Both ends share one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from tailback.names.ports import Peers, link_name, port_name
from tailback.port_counters.changes import ENDS
from tailback.port_counters.findings.port_events import (
    SPEED,
    is_full,
    meaning_of,
    normal_name,
    rises,
)
from tailback.run.schema import Column, Table
from tailback.units import counted, percent

SIGNS: Final = (
    "down",
    "errors",
    "unequal",
    "width",
    "speed",
    "flapped",
    "discards",
    "idle",
)
"""Signs of a link that needs a hand, the most severe first."""

LEAST_EQUIVALENTS: Final = 3
"""Other ports of a kind that are needed to tell what is usual."""
USUAL_SHARE: Final = 2 / 3
"""Share of the ports of a kind that must agree on a rate for it to be the usual one."""
IDLE_SHARE: Final = 0.5
"""A link is idle beside its equivalents below this share of what the least used of them carries."""
LEAST_UTILIZATION: Final = 0.05
"""Median utilization of equivalents below which their differences mean nothing."""

ILL_LINKS: Final = Table(
    "ill_links",
    "a link that needs a hand, the worst first",
    (
        Column("link", pl.String, "the link by its two ends, or a switch that was lost"),
        Column("signs", pl.List(pl.String), ", ".join(SIGNS)),
        Column("what", pl.String, "the signs in words"),
        Column("since_ns", pl.Int64, "when the first sign was seen, UTC ns; null: from the start"),
        Column("lost_gbps", pl.Float64, "bandwidth that the link lacks, Gb/s; null unknown"),
        Column("errors", pl.UInt64, "errors that both ends counted; null: no counter"),
        Column("errors_per_bit", pl.Float64, "errors over bits it could carry; null unknown"),
        Column("between_switches", pl.Boolean, "no end is a host; null unknown"),
        Column("node_name", pl.String, "device of the end that is named first"),
        Column("port", pl.UInt16, "its port, 0: the device as a whole"),
        Column("peer", pl.String, "port at the other end, null unknown"),
    ),
)

_NAMES: Final = {
    "symbol_error": "symbol error",
    "link_error_recovery": "recovery",
    "rcv_errors": "receive error",
    "local_link_integrity_errors": "integrity error",
    "excessive_buffer_overrun_errors": "buffer overrun",
    "fecuncorrectable_block": "uncorrectable block",
}


@dataclass
class Sign:
    """One sign of a link.

    Attributes:
        kind: One of :data:`SIGNS`.
        text: What is wrong, in a few words.
        since_ns: When it was first seen; None: from the start.
        lost_gbps: Bandwidth that the link lacks, None unknown.
        errors: Number of errors.
        per_bit: Errors over bits, None unknown.
    """

    kind: str
    text: str
    since_ns: int | None = None
    lost_gbps: float | None = None
    errors: int = 0
    per_bit: float | None = None


@dataclass
class _Links:
    """Signs by cable.

    Attributes:
        peers: Port at the other end of each port.
        signs: Signs of each cable, by the names of its ends.
        ends: Device, port and far end of each cable as it is first named.
        counted: Names of ports whose counters of errors were read.
        switches: Devices that are switches; empty unknown.
    """

    peers: Peers
    signs: dict[frozenset[str], list[Sign]] = field(default_factory=dict)
    ends: dict[frozenset[str], tuple[str, int, str, str | None]] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)

    def add(
        self,
        sign: Sign,
        device: str,
        port: int,
        *,
        interface: str | None = None,
        far: str | None = None,
    ) -> None:
        name = port_name(device, port, interface) if port or interface else device
        far = self.peers.get((device, port)) or far
        key = frozenset({name, far} if far else {name})
        self.ends.setdefault(key, (device, port, name, far))
        self.signs.setdefault(key, []).append(sign)


def ill_links(
    ports: pl.DataFrame,
    readings: pl.DataFrame,
    changes: pl.DataFrame,
    peers: Peers,
    switches: Mapping[str, bool] | None = None,
    balances: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Rank the links that need a hand.

    Args:
        ports: Table of ``verdict.by_port`` with ``category`` and ``port_type``.
        readings: Rows of ``port_events.READINGS``: counters of errors.
        changes: Rows of ``changes.LINK_CHANGES``.
        peers: Port at the far end of each port, where known.
        switches: Whether each device is a switch, where known.
        balances: Rows of ``conservation.BALANCES``, where both ends of links were counted.

    Returns:
        Rows of :data:`ILL_LINKS`; empty if no link is ill.
    """
    links = _Links(peers)
    kinds = _with_kind(ports, peers, switches or {})
    end_ns = ports["end_ns"].max()
    _add_changes(links, changes, end_ns if isinstance(end_ns, int) else None)
    _add_counts(links, readings, ports)
    _add_rates(links, kinds)
    _add_idle(links, ports)
    if balances is not None:
        _add_unequal(links, balances)
    rows = [_row(links, key, switches or {}) for key in links.signs]
    order = {sign: place for place, sign in enumerate(SIGNS)}
    rows.sort(
        key=lambda row: (
            # An adapter that is down is often switched off: an ill cable of the fabric comes first.
            order[row["signs"][0]] + 1.5 * (row["between_switches"] is False),
            -(row["lost_gbps"] or 0.0),
            -(row["errors"] or 0),
            row["link"],
        )
    )
    return pl.DataFrame(rows, schema=ILL_LINKS.polars_schema)


def _row(links: _Links, key: frozenset[str], switches: Mapping[str, bool]) -> dict[str, Any]:
    signs = sorted(links.signs[key], key=lambda sign: (SIGNS.index(sign.kind), -sign.errors))
    # The counter of each end and the poll see the same times that the link went down.
    flaps = [sign for sign in signs if sign.kind == "flapped"]
    signs = [sign for sign in signs if sign not in flaps[1:]]
    device, port, name, far = links.ends[key]
    lost = [sign.lost_gbps for sign in signs if sign.lost_gbps is not None]
    errors = [sign for sign in signs if sign.kind == "errors"]
    since = [sign.since_ns for sign in signs]
    ends = [switches.get(end.rpartition("[")[0] or end) for end in key]
    return {
        "link": link_name(name, far),
        "signs": list(dict.fromkeys(sign.kind for sign in signs)),
        "what": "; ".join(dict.fromkeys(sign.text for sign in signs)),
        "since_ns": None if None in since else min(s for s in since if s is not None),
        "lost_gbps": max(lost, default=None),
        "errors": sum(sign.errors for sign in errors) if errors or key & links.counted else None,
        "errors_per_bit": _per_bit(errors, counted=bool(key & links.counted)),
        "between_switches": None if None in ends else all(ends),
        "node_name": device,
        "port": port,
        "peer": far,
    }


def _per_bit(errors: Sequence[Sign], *, counted: bool) -> float | None:
    """Errors over bits; None if they were not counted, or over bits that are unknown."""
    shares = [sign.per_bit for sign in errors if sign.per_bit is not None]
    if len(shares) < len(errors) or not (errors or counted):
        return None
    return sum(shares, 0.0)


def _add_changes(links: _Links, changes: pl.DataFrame, end_ns: int | None) -> None:
    """Links that are down or were, and those whose width or speed fell."""
    down: dict[frozenset[str], tuple[dict[str, Any], int]] = {}
    flaps: dict[frozenset[str], list[tuple[dict[str, Any], float, int]]] = {}
    fell: dict[tuple[frozenset[str], str], dict[str, Any]] = {}
    for row in changes.sort("time_ns", maintain_order=True).iter_rows(named=True):
        kind, time_ns = row["change"], int(row["time_ns"])
        name = port_name(row["node_name"], row["port"]) if row["port"] else row["node_name"]
        far = port_name(row["peer_name"], row["peer_port"]) if row["peer_name"] else None
        key = frozenset({name, far} if far else {name})
        if kind in ("link down", "switch lost"):
            down[key] = row, time_ns
        elif kind in ENDS:
            for former in [k for k in down if k & key]:
                lost, since = down.pop(former)
                if former == key and kind == "link up":
                    flaps.setdefault(key, []).append((lost, (time_ns - since) / 1e9, since))
        elif kind == "link flapped":
            flaps.setdefault(key, []).append((row, 0.0, time_ns))
        elif kind in ("width", "speed"):
            if _number(row["after"]) < _number(row["before"]):
                fell.setdefault((key, kind), row)
            else:
                fell.pop((key, kind), None)
    for row, since in down.values():
        text = "down"
        if row["change"] == "switch lost":
            text = f"lost, with {counted(row['links'], 'link')}"
        _add_change(links, row, Sign("down", text, since, row["gbps"] or None))
    for rows in flaps.values():
        times = len(rows)
        downtime = sum(seconds for _, seconds, _ in rows)
        text = f"went down {'once' if times == 1 else f'{times} times'}"
        text += f", for {downtime:.0f} s" if downtime >= 1 else ""
        _add_change(links, rows[0][0], Sign("flapped", text, rows[0][2], errors=times))
    for (_, kind), row in fell.items():
        _add_change(
            links,
            row,
            Sign(
                kind, f"{kind} {row['before']} → {row['after']}", row["time_ns"], _lost(kind, row)
            ),
        )


def _add_change(links: _Links, row: Mapping[str, Any], sign: Sign) -> None:
    far = port_name(row["peer_name"], row["peer_port"]) if row["peer_name"] else None
    links.add(sign, row["node_name"], row["port"], far=far)


def _number(text: str | None) -> float:
    digits = "".join(c for c in (text or "").partition(" ")[0] if c.isdecimal() or c == ".")
    return float(digits) if digits.strip(".") else 0.0


def _lost(kind: str, row: Mapping[str, Any]) -> float | None:
    before, after, gbps = _number(row["before"]), _number(row["after"]), row["gbps"]
    if kind == "speed":
        return before - after
    return gbps * (before / after - 1) if after and gbps else None


def _add_counts(links: _Links, readings: pl.DataFrame, ports: pl.DataFrame) -> None:
    """Links with errors, and ports that discarded what they were to send."""
    # A port of which only errors are known has no interval, so no row among ``ports``.
    stated = readings.filter(pl.col("counter") == SPEED, pl.col("value") > 0).select(
        "node_name", "port", capacity_gbps=pl.col("value") / 1e3
    )
    columns = ("node_name", "port", "capacity_gbps")
    rates = {
        (name, port): gbps
        for name, port, gbps in pl.concat(
            [stated, ports.select(columns)], how="vertical_relaxed"
        ).iter_rows()
    }
    for row in rises(readings).sort("rise", descending=True).iter_rows(named=True):
        meaning, full = meaning_of(row["counter"]), is_full(row["counter"], int(row["last"]))
        if meaning is None or meaning.kind not in ("errors", "discarded-sent"):
            continue
        place, since = (row["node_name"], row["port"]), row["since_ns"]
        name = normal_name(row["counter"].removesuffix("Extended").removesuffix("Counter"))
        if meaning.kind == "errors" and "down" not in name:
            links.counted.add(port_name(*place, row["interface"]))
        # A full counter counts no more, so its value is the least that there were.
        count = int(row["last"] if full else row["rise"])
        if not count:
            continue
        number = f"{'≥ ' * (full or bool(row['at_least']))}{count:,}"
        if meaning.kind == "discarded-sent":
            sign = Sign("discards", f"{number} discards", since)
        elif "down" in name:
            times = "once" if number == "1" else f"{number} times"
            sign = Sign("flapped", f"went down {times}", since, errors=count)
        else:
            gbps = rates.get(place)
            bits = (gbps or 0.0) * 1e9 * max(float(row["seconds"]), 0.0)
            label = _NAMES.get(name, re.sub("errors$", "error", name.replace("_", " ")))
            plural = label[:-1] + "ies" if label.endswith("y") else label + "s"
            text = f"{number} {label if count == 1 else plural}"
            sign = Sign("errors", text, since, errors=count, per_bit=count / bits if bits else None)
        links.add(sign, *place, interface=row["interface"])


def _with_kind(ports: pl.DataFrame, peers: Peers, switches: Mapping[str, bool]) -> pl.DataFrame:
    """Ports with ``kind``: tier and direction, or what both ends of the link are."""
    is_classified = (pl.col("category") != "Port") & (pl.col("category") != "other")
    by_class = pl.concat_str("category", pl.lit(" "), "port_type")
    ends = []
    for name, port in ports.select("node_name", "port").iter_rows():
        far = (peers.get((name, port)) or "").rpartition("[")[0]
        here, there = switches.get(name), switches.get(far)
        ends.append(None if here is None or there is None else f"{here} {there}")
    return ports.with_columns(
        kind=pl.when(is_classified).then(by_class).otherwise(pl.Series(ends, dtype=pl.String))
    )


def _add_rates(links: _Links, ports: pl.DataFrame) -> None:
    """Links below the usual rate of the ports of their kind, on their device or in the fabric."""
    rated = ports.filter(pl.col("capacity_gbps") > 0, pl.col("kind").is_not_null())
    for over in (("node_guid", "node_name", "kind"), ("kind",)):
        rate = pl.col("capacity_gbps")
        grouped = rated.with_columns(
            usual=rate.mode().max().over(over), of=pl.len().over(over)
        ).with_columns(agree=(rate == pl.col("usual")).sum().over(over))
        slow = grouped.filter(
            rate < pl.col("usual"),
            pl.col("of") > LEAST_EQUIVALENTS,
            pl.col("agree") >= USUAL_SHARE * pl.col("of"),
        )
        for row in slow.sort("node_name", "port").iter_rows(named=True):
            lost = row["usual"] - row["capacity_gbps"]
            text = (
                f"{row['capacity_gbps']:.4g} Gb/s, where {row['agree']} of its "
                f"{counted(row['of'], 'equivalent')} have {row['usual']:.4g}"
            )
            links.add(
                Sign("speed", text, None, lost),
                row["node_name"],
                row["port"],
                interface=row["interface"],
            )
        done = slow.select("node_name", "port").unique()
        rated = rated.join(done, on=["node_name", "port"], how="anti")


def _add_unequal(links: _Links, balances: pl.DataFrame) -> None:
    """Links into which more was sent than arrived, or less."""
    for row in balances.drop_nulls("missing_bytes").iter_rows(named=True):
        missing, error = row["missing_bytes"], row["error_bytes"]
        here = port_name(row["node_name"], row["port"], row["interface"])
        if missing > 0:
            text = f"{percent(missing / row['sent_bytes'], 1)} lost from {here} on"
        else:
            share = percent(-missing / row["received_bytes"], 1)
            text = f"{share} received by {row['peer']} was not sent"
        lost = (missing - error) * 8e-9 / row["seconds"] if missing > 0 else None
        links.add(
            Sign("unequal", text, None, lost),
            row["node_name"],
            row["port"],
            interface=row["interface"],
            far=row["peer"],
        )


def _add_idle(links: _Links, ports: pl.DataFrame) -> None:
    """Links up that carry much less than the others of their switch."""
    up = ports.filter(
        pl.col("utilization").is_not_null(),
        pl.col("port_type") == "up",
        ~pl.col("category").is_in(["Host", "Port", "other"]),
    )
    for _, mine in up.group_by("node_guid", "node_name", "category", maintain_order=True):
        if mine.height <= LEAST_EQUIVALENTS:
            continue
        used = mine["utilization"].sort()
        least, middle = float(used[1]), float(used[1:].median() or 0.0)  # type: ignore[arg-type]
        row = mine.sort("utilization").row(0, named=True)
        if middle < LEAST_UTILIZATION or row["utilization"] >= IDLE_SHARE * least:
            continue
        text = (
            f"carries {percent(row['utilization'])}, where its "
            f"{counted(mine.height - 1, 'equivalent')} carry {percent(least)} to "
            f"{percent(float(used[-1]))}"
        )
        lost = (middle - row["utilization"]) * (row["capacity_gbps"] or 0.0)
        links.add(
            Sign("idle", text, None, lost or None),
            row["node_name"],
            row["port"],
            interface=row["interface"],
        )


def without(ill: pl.DataFrame, muted: Iterable[str]) -> tuple[pl.DataFrame, list[str]]:
    """Links that are not muted, and notes on those that are.

    Args:
        ill: Rows of :data:`ILL_LINKS`.
        muted: Names of devices or of ports; a link is muted by either of its ends.
    """
    names = set(muted)
    ends = pl.concat_str("node_name", pl.lit("["), "port", pl.lit("]"))
    device = pl.col("peer").str.replace(r"\[[^\[\]]*\]$", "")
    hit = pl.any_horizontal(
        column.is_in(names) for column in (pl.col("node_name"), ends, pl.col("peer"), device)
    ).fill_null(False)
    left = ill.filter(~hit)
    used = set(ill["node_name"]) | set(ill["peer"].drop_nulls())
    used |= set(ill.select(ends.alias("e"))["e"]) | set(ill.select(device.alias("d"))["d"])
    notes = []
    if number := ill.height - left.height:
        notes.append(f"links that need a hand and are muted: {number}")
    if unused := sorted(names - used):
        notes.append(f"muted names without such a link: {', '.join(unused[:3])}")
    return left, notes
