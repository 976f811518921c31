"""The ports that counters belong to: names, capacities, ticks and classes from a discovery.

Each source names ports differently: perfquery by local identifier, sysfs by device, others by GUID
or by name. The output of ``ibnetdiscover`` maps all of them to the ports of one fabric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from tailback.arrays import Ints
from tailback.errors import option
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric
from tailback.names.hosts import HostNames, spelling_notes
from tailback.names.ports import far_ports
from tailback.port_counters.analysis.classes import CLASSES, classify, tier_names
from tailback.port_counters.schema import LID_NAME, CounterError
from tailback.port_counters.targets import PortTarget, read_targets
from tailback.port_counters.ticks import Tick, filled_ticks, tick_of
from tailback.run.run import Run

_PORTS: Final[dict[str, type[pl.DataType]]] = {
    "guid": pl.UInt64,
    "lid": pl.UInt32,
    "port": pl.UInt16,
    "name": pl.String,
    "peer": pl.String,
    "gbps": pl.Float64,
    "tick": pl.Float64,
    "tick_high": pl.Float64,
    "interface": pl.String,
    "link": pl.UInt32,
}
_TICKS: Final = ("tick", "tick_high")


class Wiring:
    """Which links a route can take after a given one.

    Args:
        source: Vertex at which each link begins, shape (L,).
        target: Vertex at which each link ends, shape (L,).
        upward: 1 for links to a higher tier, -1 to a lower one, 0 otherwise, shape (L,).
        hosts: Vertices below this number are adapters of hosts.
    """

    def __init__(self, source: Ints, target: Ints, upward: Ints, hosts: int) -> None:
        self._source, self._target, self._upward = source, target, upward
        self._hosts = hosts
        self._order = np.argsort(source, kind="stable")
        self._begin = np.searchsorted(source[self._order], np.arange(target.max(initial=-1) + 2))

    @classmethod
    def of(cls, fabric: Fabric) -> Wiring:
        """The links of a fabric."""
        ends = (fabric.link_src, fabric.link_dst, fabric.link_up)
        source, target, upward = (array.astype(np.int64) for array in ends)
        return cls(source, target, upward, fabric.n_nodes)

    def ends_at_host(self, link: int) -> bool:
        """Whether a link ends at the adapter of a host."""
        return bool(self._target[link] < self._hosts)

    def onward(self, link: int) -> list[int]:
        """The links by which traffic can go on: not back, and after a link down not up again."""
        vertex = self._target[link]
        if vertex < self._hosts:
            return []
        out = self._order[self._begin[vertex] : self._begin[vertex + 1]]
        allowed = self._target[out] != self._source[link]
        if self._upward[link] < 0:
            allowed &= self._upward[out] <= 0
        return [int(number) for number in out[allowed]]


@dataclass
class PortInventory:
    """The known ports of a fabric.

    Attributes:
        classes: Table of ``classes.classify``; empty when no fabric is known.
        ports: ``guid, lid, port, name, peer, gbps, tick, tick_high, interface, link`` of every port
            with an address or a name; ``peer`` is the port at the far end, ``link`` leaves it.
        fabric: The fabric itself, for what needs its wiring.
        notes: Notes on tolerated irregularities.
        wiring: Its links; None when no fabric is known.
        targets: The ports with an address.
        hosts: Name of the host by that of each of its adapters: a second port is ``host/P2``.
    """

    classes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CLASSES))
    ports: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_PORTS))
    fabric: Fabric | None = None
    notes: list[str] = field(default_factory=list)
    wiring: Wiring | None = None
    targets: Sequence[PortTarget] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)

    def with_stated_ticks(self, stated: Mapping[str, int]) -> PortInventory:
        """The ports with the ticks that their devices state.

        Args:
            stated: Bytes in a tick, by ``lid`` and the local identifier of a device.
        """
        ticking = [
            replace(target, tick_bytes=stated[name]).with_tick()
            for target in self.targets
            if (name := LID_NAME.format(target.lid)) in stated
        ]
        columns = ("guid", "port", *_TICKS)
        ticks = pl.DataFrame(
            [(t.guid, t.port, t.tick_ns, t.tick_high_ns) for t in ticking],
            schema={name: _PORTS[name] for name in columns},
            orient="row",
        )
        return replace(
            self, ports=self.ports.update(ticks, on=["guid", "port"], include_nulls=True)
        )

    def peers(self) -> dict[tuple[str, int], str]:
        """Port at the far end of each port, by device and number, where known."""
        ends = self.ports.filter(pl.col("peer").is_not_null()).select("name", "port", "peer")
        return {(str(name), int(port)): str(peer) for name, port, peer in ends.iter_rows()}


def from_discovery(path: Path, subsystems: Mapping[str, str] | None = None) -> PortInventory:
    """The ports of a fabric, from the output of ``ibnetdiscover`` or a list of links.

    Args:
        path: The file, in one of the formats of ``fabric.readers.READERS``.
        subsystems: Name and pattern of subsystems, as ``classes.classify`` takes them.

    Raises:
        FabricError: The file is no discovery, or a line of it is broken.
        CounterError: A pattern is no regular expression.
    """
    fabric = read_fabric(path)
    table = classify(fabric, subsystems)
    if fabric.link_interface is not None:
        wiring = Wiring.of(fabric)
        ports, notes = _by_interface(fabric), list(fabric.notes)
        return PortInventory(table, ports, fabric, notes, wiring, hosts=_hosts(fabric))
    ticks = _ticks(fabric)
    peers = pl.DataFrame(
        {
            "link": range(fabric.n_links),
            "peer": _far_ports(fabric),
            "gbps": fabric.link_gbps,
            "tick": [tick.low_ns for tick in ticks],
            "tick_high": [None if tick.exact else tick.high_ns for tick in ticks],
        },
        schema={"link": pl.UInt32} | {name: _PORTS[name] for name in ("peer", "gbps", *_TICKS)},
    )
    notes = list(fabric.notes)
    try:
        targets = read_targets(path).targets
    except CounterError as error:
        targets = []
        notes.append(f"{path.name} {error.message}: ports are identified by name only")
    labels = set(table["node_name"])
    rows = [
        (
            t.guid,
            t.lid,
            t.port,
            _label(t, labels),
            t.far_port,
            t.gbps or None,
            t.tick_ns,
            t.tick_high_ns,
            None,
            None,
        )
        for t in targets
    ]
    addressed = pl.DataFrame(rows, schema=_PORTS, orient="row")
    with_port_names = (
        table.join(peers, on="link", how="left")
        .select(
            guid=pl.lit(None, pl.UInt64),
            lid=pl.lit(None, pl.UInt32),
            port="port",
            name="node_name",
            peer="peer",
            gbps="gbps",
            tick="tick",
            tick_high="tick_high",
            interface=pl.lit(None, pl.String),
            link="link",
        )
        .join(addressed, on=["name", "port"], how="anti")
    )
    return PortInventory(
        table,
        pl.concat([addressed, with_port_names.select(*_PORTS)]),
        fabric,
        notes,
        Wiring.of(fabric),
        targets,
        _hosts(fabric),
    )


def _hosts(fabric: Fabric) -> dict[str, str]:
    """Name of the host of each adapter."""
    return {
        fabric.vertex_name(node): fabric.host_name[host]
        for node, host in enumerate(fabric.node_host.tolist())
    }


def _ticks(fabric: Fabric) -> list[Tick]:
    """The tick of the port at which each link begins, by its rate and width, length L."""
    speeds = fabric.link_speed or [None] * fabric.n_links
    return [
        # Only InfiniBand has such speeds, so a switch that has one is an InfiniBand switch.
        tick_of(gbps, lanes=speed.lanes, switch=source >= fabric.n_nodes)
        if speed
        else tick_of(gbps)
        for gbps, speed, source in zip(
            fabric.link_gbps.tolist(), speeds, fabric.link_src.tolist(), strict=True
        )
    ]


def _by_interface(fabric: Fabric) -> pl.DataFrame:
    """The ports of a fabric that names its interfaces, as ``PortInventory.ports``."""
    links = range(fabric.n_links)
    return pl.DataFrame(
        {
            "guid": None,
            "lid": None,
            "port": fabric.link_src_port,
            "name": [fabric.vertex_name(int(v)) for v in fabric.link_src],
            "peer": _far_ports(fabric),
            "gbps": fabric.link_gbps,
            "tick": None,
            "tick_high": None,
            "interface": [fabric.interface(link) for link in links],
            "link": links,
        },
        schema=_PORTS,
    )


def _far_ports(fabric: Fabric) -> list[str]:
    """Names of the ports at which links end, length L."""
    return [fabric.port_name(int(back)) for back in fabric.link_reverse]


def _label(target: PortTarget, labels: set[str]) -> str:
    """The fabric's name of a target's device; duplicate names have a suffix there."""
    name, guid = target.node_name, f"0x{target.guid:016x}"
    plain = [name, f"{name or 'adapter'} {guid}", f"{name or 'switch'} {guid}"]
    with_port = [f"{label}/P{target.port}" for label in plain]
    return next((label for label in (*plain, *with_port) if label in labels), name)


def from_run(path: Path) -> PortInventory:
    """The ports of a simulated fabric, from a run directory; classes as ``classify`` gives them.

    Raises:
        RunError: It is no run directory or is damaged.
    """
    tables = Run.read(path).tables
    tier = tables["switches"]["tier"]
    # By the tier of the switch, not of the link: the tier of a flat link is one higher.
    switches = tables["switches"].select(
        src=(tables["nodes"].height + pl.col("switch")).cast(pl.UInt32),
        category=tier.replace_strict(tier_names(tier), return_dtype=pl.String),
    )
    links = tables["links"].join(switches, on="src", how="left", maintain_order="left")
    table = links.select(
        node_name="src_name",
        port=pl.col("src_port").cast(pl.UInt16),
        link="link",
        category=pl.col("category").fill_null("Host"),
        port_type="direction",
    )
    ports = links.select(
        guid=pl.lit(None, pl.UInt64),
        lid=pl.lit(None, pl.UInt32),
        port=pl.col("src_port").cast(pl.UInt16),
        name="src_name",
        peer=pl.Series(far_ports(tables["links"]), dtype=pl.String),
        gbps="rate_gbps",
        tick=pl.lit(None, pl.Float64),
        tick_high=pl.lit(None, pl.Float64),
        interface=pl.lit(None, pl.String),
        link="link",
    )
    upward = links["direction"].replace_strict({"up": 1, "down": -1}, default=0)
    ends = (links["src"], links["dst"], upward)
    source, target, upwards = (column.to_numpy().astype(np.int64) for column in ends)
    return PortInventory(
        table.select(pl.col(n).cast(t) for n, t in CLASSES.items()),
        ports,
        wiring=Wiring(source, target, upwards, tables["nodes"].height),
        hosts=dict(tables["nodes"].select("name", "host_name").iter_rows()),
    )


def name_ports(frame: pl.DataFrame, inventory: PortInventory) -> tuple[pl.DataFrame, list[str]]:
    """Give readings or intervals the names, capacities and ticks of the fabric's ports.

    A port is found by GUID and number, by local identifier and number, by name and interface, or by
    name and number. A capacity or tick given by the source is kept.

    Args:
        frame: Rows of ``counter_readings`` or ``counter_intervals``.
        inventory: The ports.

    Returns:
        The frame and notes: how many of its ports the fabric does not have.
    """
    if inventory.ports.is_empty() or frame.is_empty():
        return frame, []
    frame, notes = with_fabric_names(frame, inventory)
    located = _locate_ports(frame.lazy(), inventory).collect()
    lost = located.filter(pl.col("_name").is_null()).select("node_name", "port").unique()
    if "tick_ns" in frame.columns:
        ticking = (
            pl.col("xmit_wait_ticks").is_not_null() & pl.col("tick_ns").is_null()
            if "xmit_wait_ticks" in frame.columns
            else pl.lit(False)
        )
        notes += _tick_note(located.filter(ticking))
    out = located.with_columns(_fill_columns(frame.columns)).select(frame.columns)
    if lost.height:
        some = ", ".join(repr(n[:40]) for n in lost["node_name"].unique().sort().head(3))
        notes.append(f"ports that are not in the fabric: {lost.height}, like those of {some}")
    return out, notes


def spellings(frame: pl.DataFrame, inventory: PortInventory) -> dict[str, str]:
    """Names in the fabric of devices that counters name with another domain or case.

    Args:
        frame: Rows with ``node_guid`` and ``node_name``; devices found by GUID need no name.
        inventory: The ports.

    Raises:
        TailbackError: A name agrees with several in the fabric, or two names with one.
    """
    if inventory.ports.is_empty() or frame.is_empty():
        return {}
    guids = inventory.ports["guid"].drop_nulls().unique()
    unknown = frame.filter(~pl.col("node_guid").is_in(guids.implode()))
    names = set(inventory.ports["name"].drop_nulls())
    names |= set(inventory.hosts.values())
    return HostNames(names).joined(sorted(unknown["node_name"].unique()))


def with_fabric_names(
    frame: pl.DataFrame, inventory: PortInventory
) -> tuple[pl.DataFrame, list[str]]:
    """Rows with the names of :func:`spellings`, and a note on them."""
    joined = spellings(frame, inventory)
    if not joined:
        return frame, []
    named = frame.with_columns(pl.col("node_name").replace(joined))
    return named, spelling_notes(joined, "the counters")


def with_port_names(intervals: pl.LazyFrame, inventory: PortInventory) -> pl.LazyFrame:
    """Lazy, row-wise form of :func:`name_ports` for intervals.

    Args:
        intervals: Rows of ``counter_intervals``.
        inventory: The ports; a port is found as :func:`name_ports` finds it.
    """
    columns = intervals.collect_schema().names()
    return _locate_ports(intervals, inventory).with_columns(_fill_columns(columns)).select(columns)


_KEYS: Final = {
    "guid": ("node_guid", pl.col("guid")),
    "lid": ("node_name", pl.format(LID_NAME, "lid")),
    "name": ("node_name", pl.col("name")),
}
"""The keys by which a port is found: the column of the rows, and what it holds."""
_PORT_FACTS: Final = ("name", "gbps", "tick", "tick_high", "port")
"""The fabric's facts about a port. Its number is used only where the source names the interface."""


def _locate_ports(rows: pl.LazyFrame, inventory: PortInventory) -> pl.LazyFrame:
    """The rows with ``_name, _gbps, _tick, _tick_high`` of their port, null where unknown."""
    located = rows
    if "interface" not in rows.collect_schema().names():
        located = located.with_columns(interface=pl.lit(None, pl.String))
    for key, (place, value) in _KEYS.items():
        unambiguous = inventory.ports.filter(pl.col(key).is_not_null()).unique(
            [key, "port"], keep="none"
        )
        stated = unambiguous.select(
            value.alias(place), "port", **{f"_{key}_{c}": c for c in _PORT_FACTS[:-1]}
        )
        located = located.join(stated.lazy(), on=[place, "port"], how="left", maintain_order="left")
    named = pl.col("interface").is_not_null()
    by_name = (
        inventory.ports.filter(named)
        .with_columns(pl.col("name").replace(inventory.hosts))
        .unique(["name", "interface"], keep="none")
        .select(
            node_name="name",
            interface="interface",
            _own_link="link",
            **{f"_own_{c}": c for c in _PORT_FACTS},
        )
    )
    located = located.join(
        by_name.lazy(), on=["node_name", "interface"], how="left", maintain_order="left"
    )
    # A named interface has no port number to look up.
    return located.with_columns(
        *(
            pl.when(named)
            .then(pl.col(f"_own_{c}"))
            .otherwise(pl.coalesce(f"_{key}_{c}" for key in _KEYS))
            .alias(f"_{c}")
            for c in _PORT_FACTS[:-1]
        ),
        # An interface that the fabric does not have gets a number above those of its ports.
        _port=pl.when(named).then(pl.coalesce("_own_port", pl.col("port") % 32768 + 32768)),
    )


def _fill_columns(columns: Sequence[str]) -> list[pl.Expr]:
    """Name, capacity and tick of the rows of :func:`_locate_ports`. The source has precedence."""
    out = [
        pl.coalesce("_name", "node_name").alias("node_name"),
        pl.coalesce("_port", "port").alias("port"),
    ]
    if "capacity_gbps" in columns:
        out.append(pl.coalesce("capacity_gbps", "_gbps").alias("capacity_gbps"))
    if "tick_ns" in columns:
        # The fabric knows the width of a port, so a tick that the source guessed gives way to it.
        better = (pl.col("tick_ns").is_null() | pl.col("tick_high_ns").is_not_null()) & pl.col(
            "_tick"
        ).is_not_null()
        for column, stated in (("tick_ns", "_tick"), ("tick_high_ns", "_tick_high")):
            out.append(pl.when(better).then(pl.col(stated)).otherwise(pl.col(column)).alias(column))
    if "link" in columns:
        out.append(pl.coalesce("link", "_own_link").alias("link"))
    return out


def fill_ticks(readings: pl.DataFrame, tick_ns: float | None) -> tuple[pl.DataFrame, list[str]]:
    """Fill in the length of a tick where a reading does not give it.

    Args:
        readings: Rows of ``counter_readings``.
        tick_ns: Tick given by the user, for all readings, nanoseconds. None derives it from the
            speed of the port, as ``tailback collect`` does for unknown devices.

    Returns:
        The readings, and notes on assumptions and on the number of ports with a stall only in
        ticks.
    """
    if tick_ns is not None:
        exact = pl.lit(None, pl.Float64)
        return readings.with_columns(tick_ns=pl.lit(tick_ns), tick_high_ns=exact), []
    ticking = (pl.col("xmit_wait_ticks") > 0) & pl.col("tick_ns").is_null()
    guessed = filled_ticks(readings, "capacity_gbps")
    notes = _tick_note(guessed.filter(ticking))
    unknown = pl.col("tick_ns").is_null()
    out = guessed.with_columns(
        tick_ns=pl.coalesce("tick_ns", "_tick"),
        tick_high_ns=pl.when(unknown).then(pl.col("_tick_high")).otherwise(pl.col("tick_high_ns")),
    ).drop("_tick", "_tick_high")
    missing = out.filter(ticking).select("node_name", "port").n_unique()
    if missing:
        notes.append(
            f"ports without speed and tick, whose stall cannot be converted to time: {missing}; "
            f"give {option('fabric')}, or {option('tick_ns')} like 22 ns"
        )
    return out, notes


def _tick_note(rows: pl.DataFrame) -> list[str]:
    """A note on the ticks, ``_tick`` to ``_tick_high``, of rows that do not state their own."""
    ticks = rows.select("_tick", "_tick_high").drop_nulls("_tick").unique().sort("_tick")
    if ticks.is_empty():
        return []
    listed = ", ".join(
        f"{low:.3g} ns" if high is None or high == low else f"between {low:.3g} and {high:.3g} ns"
        for low, high in ticks.iter_rows()
    )
    return [
        f"tick of PortXmitWait by device, rate and width: {listed} "
        f"({option('tick_ns')} overrides it)"
    ]


def ticked(intervals: pl.LazyFrame, tick_ns: float) -> pl.LazyFrame:
    """Intervals with the stall recomputed from their ticks and the given tick length.

    Args:
        intervals: Rows of ``counter_intervals``; those without ticks stay as they are.
        tick_ns: Length of a tick, nanoseconds.
    """
    time = pl.col("xmit_wait_ticks") * tick_ns
    return intervals.with_columns(
        stall_ns=pl.coalesce(time, "stall_ns"),
        stall_fraction=pl.coalesce(time / pl.col("interval_ns"), "stall_fraction"),
        stall_high_fraction=pl.lit(None, pl.Float64),
        latched_stall_ns=pl.when(pl.col("latched_stall_ns").is_not_null()).then(
            pl.lit((2**32 - 1) * tick_ns)
        ),
    )


def with_classes(
    frame: pl.DataFrame, inventory: PortInventory, stated: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The classes of the ports of a frame: of its fabric, its source, or its directions.

    Args:
        frame: Rows of ``counter_readings`` or ``counter_intervals``.
        inventory: The ports.
        stated: Classes that the source states; used where no fabric is known.

    Returns:
        Table of ``classes.classify`` to hand to ``classes.attach``.
    """
    if not inventory.classes.is_empty():
        return inventory.classes
    if stated is not None and not stated.is_empty():
        return stated
    direction = pl.col("direction") if "direction" in frame.columns else pl.lit(None, pl.String)
    link = pl.col("link") if "link" in frame.columns else pl.lit(None, pl.UInt32)
    port_table = frame.select("node_name", "port", link=link, _d=direction).unique(
        ["node_name", "port"], maintain_order=True
    )
    return port_table.select(
        "node_name",
        "port",
        "link",
        category=pl.lit("Port"),
        port_type=pl.col("_d").fill_null("any"),
    ).select(pl.col(n).cast(t) for n, t in CLASSES.items())
