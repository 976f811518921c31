"""Changes of a subnet from one look at it to the next: links, widths, speeds, cables, switches.

Both ends of a cable see a change, which makes one row. The links of a switch that disappears or
appears are part of its row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import polars as pl

from tailback.names.ports import link_name, port_name
from tailback.port_counters.schema import CounterError
from tailback.port_counters.targets import PortTarget
from tailback.run.schema import Column, Table
from tailback.units import counted

PortKey = tuple[int, int]
"""A port as (GUID of the device, port number)."""

Kind = Literal[
    "link down",
    "link up",
    "link flapped",
    "recabled",
    "width",
    "speed",
    "switch lost",
    "switch found",
    "counters reset",
    "restarted",
]

KINDS: Final = frozenset(get_args(Kind))

LINK_CHANGES: Final = Table(
    "link_changes",
    "a change of a link or a device, seen at one instant",
    (
        Column("time_ns", pl.Int64, "when it was seen, UTC nanoseconds since 1970"),
        Column("earliest_ns", pl.Int64, "last look before it; null: a few seconds earlier"),
        Column("change", pl.String, "link down, link up, link flapped, recabled, width, speed, …"),
        Column("node_guid", pl.UInt64, "GUID of the device"),
        Column("node_name", pl.String, "name of the device"),
        Column("port", pl.UInt16, "port number, 0: the device as a whole"),
        Column("peer_guid", pl.UInt64, "GUID of the device at the other end, 0 unknown"),
        Column("peer_name", pl.String, "name of the device at the other end, null unknown"),
        Column("peer_port", pl.UInt16, "port number there, 0 unknown"),
        Column("before", pl.String, "width, speed or far end before"),
        Column("after", pl.String, "width, speed or far end since"),
        Column("links", pl.UInt32, "number of links, or of ports whose counters were reset"),
        Column("gbps", pl.Float64, "data rate of these links in one direction, Gb/s"),
    ),
)

ENDS: Final[frozenset[str]] = frozenset({"link up", "recabled", "switch found"})
"""Changes after which a link that was down is in use again."""


@dataclass(frozen=True)
class FabricChange:
    """A row of :data:`LINK_CHANGES` without its times."""

    change: Kind
    node_guid: int
    node_name: str
    port: int
    peer_guid: int = 0
    peer_name: str | None = None
    peer_port: int = 0
    before: str | None = None
    after: str | None = None
    links: int = 1
    gbps: float = 0.0

    @classmethod
    def of(cls, change: Kind, target: PortTarget, **facts: Any) -> FabricChange:
        """A change of the link of a port."""
        return cls(
            change,
            target.guid,
            target.node_name,
            target.port,
            target.peer_guid,
            target.peer_name or None,
            target.peer_port,
            gbps=target.gbps,
            **facts,
        )

    def event(self) -> dict[str, Any]:
        """The change as an entry of ``events/N.jsonl``, without its time."""
        facts = {name: value for name, value in vars(self).items() if value not in (None, 0, 0.0)}
        return {"what": facts.pop("change"), **facts}


def changes_of(events: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows of :data:`LINK_CHANGES` from the events of a collection; others are left out.

    Args:
        events: Entries with ``time_ns``, ``what`` and the fields of :class:`FabricChange`.
    """
    columns = LINK_CHANGES.polars_schema
    absent = {"port": 0, "peer_guid": 0, "peer_port": 0, "links": 1, "gbps": 0.0, "node_name": ""}
    rows = [
        {name: event.get(name, absent.get(name)) for name in columns} | {"change": event["what"]}
        for event in events
        if event.get("what") in KINDS and event.get("time_ns") is not None
    ]
    try:
        return pl.DataFrame(rows, schema=columns).sort("time_ns", maintain_order=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise CounterError(
            f"an event is damaged: {str(error).splitlines()[0][:200]}",
            remedy="restore the file from a copy, or move it out of the folder",
        ) from None


def no_changes() -> pl.DataFrame:
    """Table :data:`LINK_CHANGES` without a row."""
    return pl.DataFrame(schema=LINK_CHANGES.polars_schema)


@dataclass
class LinkStates:
    """Links of a subnet that are in use, and those that were.

    Attributes:
        targets: Ports in use.
        down: Ports whose links were in use and are not, as they were then.
    """

    targets: Sequence[PortTarget] = ()
    down: dict[PortKey, PortTarget] = field(default_factory=dict)

    def update(self, targets: Sequence[PortTarget]) -> list[FabricChange]:
        """Take over a new look at the subnet.

        Args:
            targets: The ports in use.

        Returns:
            What changed, one entry for each cable or switch.
        """
        before, after = by_port(self.targets), by_port(targets)
        made = [
            *_switches(before, after, self.down),
            *_cables(before, after, self.down),
            *_rates(before, after),
        ]
        gone = {key: target for key, target in before.items() if key not in after}
        former = {**self.down, **before}
        # Where a cable was before it was plugged elsewhere, no link is down.
        left = {
            peer_of(former[key])
            for key, target in after.items()
            if key in former and peer_of(former[key]) != peer_of(target)
        }
        down = {**self.down, **gone}
        self.down = {k: t for k, t in down.items() if k not in after and k not in left}
        self.targets = targets
        return made


def by_port(targets: Iterable[PortTarget]) -> dict[PortKey, PortTarget]:
    """The ports by device and number."""
    return {(target.guid, target.port): target for target in targets}


def peer_of(target: PortTarget) -> PortKey:
    """The port at the other end; (0, 0) if unknown."""
    return target.peer_guid, target.peer_port


def _switches(
    before: Mapping[PortKey, PortTarget],
    after: Mapping[PortKey, PortTarget],
    down: Mapping[PortKey, PortTarget],
) -> list[FabricChange]:
    """Switches that disappeared, and those that came."""
    if not before:
        return []
    made = []
    sides: tuple[tuple[Kind, Mapping[PortKey, PortTarget], set[int]], ...] = (
        ("switch lost", before, {guid for guid, _ in after}),
        ("switch found", after, {guid for guid, _ in before}),
    )
    for kind, here, there in sides:
        ports: dict[int, list[PortTarget]] = {}
        for (guid, _), target in here.items():
            if target.switch and guid not in there:
                ports.setdefault(guid, []).append(target)
        lost_before = {guid for guid, _ in down}
        for guid, mine in sorted(ports.items()):
            state = "back" if guid in lost_before else "new"
            made.append(
                FabricChange(
                    kind,
                    guid,
                    mine[0].node_name,
                    0,
                    after=state if kind == "switch found" else None,
                    links=len(mine),
                    gbps=sum(target.gbps for target in mine),
                )
            )
    return made


def _cables(
    before: Mapping[PortKey, PortTarget],
    after: Mapping[PortKey, PortTarget],
    down: Mapping[PortKey, PortTarget],
) -> list[FabricChange]:
    """Links that went down or came up, and cables that were plugged elsewhere."""
    if not before:
        return []
    folded = {guid for guid, _ in before} ^ {guid for guid, _ in after}
    switches = {t.guid for t in (*before.values(), *after.values()) if t.switch}
    folded &= switches
    named_ends: set[PortKey] = set()
    left: set[PortKey] = set()
    made = []
    for key, target in after.items():
        former = before.get(key) or down.get(key)
        ends = {key, peer_of(target)}
        if former is None or not former.peer_guid or not target.peer_guid or ends & named_ends:
            continue
        if peer_of(former) == peer_of(target) or {guid for guid, _ in ends} & folded:
            continue
        far = port_name(former.peer_name, former.peer_port)
        made.append(FabricChange.of("recabled", target, before=far, after=target.far_port))
        named_ends |= ends
        left.add(peer_of(former))
    for kind, here, there in (("link down", before, after), ("link up", after, before)):
        for key, target in here.items():
            ends = {key, peer_of(target)}
            if key in there or ends & (named_ends | left) or {guid for guid, _ in ends} & folded:
                continue
            named_ends |= ends
            made.append(FabricChange.of(kind, target))  # type: ignore[arg-type]
    return made


def _rates(
    before: Mapping[PortKey, PortTarget], after: Mapping[PortKey, PortTarget]
) -> list[FabricChange]:
    """Links that have another width or speed."""
    named_ends: set[PortKey] = set()
    made = []
    for key, target in after.items():
        former = before.get(key)
        if former is None or key in named_ends or peer_of(former) != peer_of(target):
            continue
        widths = former.lanes, target.lanes
        if all(widths) and widths[0] != widths[1]:
            was, now = (f"{lanes}x" for lanes in widths)
            made.append(FabricChange.of("width", target, before=was, after=now))
            named_ends.add(peer_of(target))
        lane_gbps = [t.gbps / (t.lanes or 1) for t in (former, target)]
        if former.gbps and target.gbps and round(lane_gbps[0], 3) != round(lane_gbps[1], 3):
            was, now = (f"{t.gbps:.4g} Gb/s" for t in (former, target))
            made.append(FabricChange.of("speed", target, before=was, after=now))
            named_ends.add(peer_of(target))
    return made


def described(change: FabricChange | Mapping[str, Any]) -> str:
    """A change in a line for a log or a table; names are not escaped.

    Args:
        change: A change, or a row of :data:`LINK_CHANGES`.
    """
    row = vars(change) if isinstance(change, FabricChange) else change
    place = port_name(row["node_name"], row["port"]) if row["port"] else row["node_name"]
    if row["peer_name"] and row["change"] != "recabled":
        place = link_name(place, port_name(row["peer_name"], row["peer_port"]))
    return f"{place}: {what_changed(row)}"


def what_changed(change: Mapping[str, Any]) -> str:
    """What changed, in a few words.

    Args:
        change: A row of :data:`LINK_CHANGES`.
    """
    kind, before, after, links = (change[n] for n in ("change", "before", "after", "links"))
    if kind == "recabled":
        return f"recabled from {before} to {after}"
    if kind in ("width", "speed"):
        return f"{kind} {before} → {after}"
    if kind == "link flapped":
        return "link went down and up" + (f" {after} times" if after != "1" else "")
    if kind == "counters reset":
        return f"counters reset on {counted(links, 'port')}"
    if kind == "switch found":
        return f"switch {'back' if after == 'back' else 'new'}, {counted(links, 'link')}"
    return f"{kind}, {counted(links, 'link')}" if kind == "switch lost" else str(kind)
