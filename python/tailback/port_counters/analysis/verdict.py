"""The verdict from counters alone: which ports wait for credit, how long, and at what cost.

They show where data waited. Whose data it was, and why it waited, only a trace shows. Means are
over time: the stalled time of a port over the time it was observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import polars as pl

from tailback.names.ports import Peers
from tailback.port_counters.analysis.classes import attach
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Aggregate, Archive, Engine, Piece
from tailback.port_counters.analysis.stall_wording import (
    format_rate,
    full_counters,
    full_note,
    impossible_note,
    no_stall_share,
    none_stalled,
    only_bounds,
    only_once,
    ports_waited,
    speed_note,
    ticks_vary,
    worst_class,
)
from tailback.port_counters.changes import no_changes
from tailback.port_counters.findings.conservation import BALANCES
from tailback.port_counters.findings.ill_links import ILL_LINKS
from tailback.port_counters.findings.port_events import no_events, ports_counted
from tailback.port_counters.findings.port_verdict import NOT_MOVED
from tailback.port_counters.schema import (
    Flag,
    ends_with_full_stall_counter,
    exact_data,
    lost_gbps,
)
from tailback.units import counted, instant

SINGLE_READING: Final = (
    "a single reading gives no rate: provide two or more readings of each port, "
    "one file per instant"
)
"""Why nothing is known without intervals, and what to do."""


Kind = Literal["faults", "down", "unequal", "slower", "stalls", "quiet", "unknown"]

FLAGS: Final[dict[str, Flag]] = {
    "at_least": Flag.AT_LEAST,
    "data_at_least": Flag.DATA_AT_LEAST,
    "latched": Flag.LATCHED,
    "data_latched": Flag.DATA_LATCHED,
    "wraps": Flag.WRAP,
    "resets": Flag.RESET,
    "gaps": Flag.GAP,
    "rate_changed": Flag.RATE_CHANGED,
    "stale": Flag.STALE,
    "no_counter": Flag.NO_COUNTER,
    "impossible": Flag.IMPOSSIBLE,
    "data_impossible": Flag.DATA_IMPOSSIBLE,
}
"""Flags of intervals that are counted, by name."""

_PORT: Final = ("node_guid", "node_name", "port", "link", "direction")

TRANSFERS: Final = ("sent_bytes", "sent_ns", "received_bytes", "received_ns")
"""Columns of what a port sent and received, and of the time in which each is known exactly."""
PEAKS: Final = ("sent_peak_gbps", "received_peak_gbps")
"""Columns of the largest rate of an interval."""


FULL_COUNTER: Final = pl.col("stall_at_least").is_not_null()
"""Ports of :func:`by_port` whose stall counter stands at its largest value at the end: their stall
has no upper bound, so they come first. A counter that was reset counts again, and its port ranks by
the new count. A counter that got there faster than possible is excluded.
"""


@dataclass(frozen=True)
class Verdict:
    """Summary of port counters for an administrator.

    Attributes:
        kind: ``faults``: a port counted errors on its link; ``down``: a link that was in use is
            down; ``unequal``: one end of a cable received another amount than the other end sent;
            ``slower``: a link runs below its speed; ``stalls``: some port was stalled for at
            least ``threshold`` of its time, or its counter is full; ``quiet``: none was;
            ``unknown``: no interval has a stall, no counter moved at all, most ports were read once
            only, or a port since a file is damaged, or whether one was depends on the length of a
            tick, which is known within bounds only.
        threshold: Share of its time from which a port counts as stalling, 0–1.
        ports: Table of :func:`by_port` with ``category`` and ``port_type``, worst first.
        groups: Table of :func:`by_group`.
        intervals: Number of intervals.
        start_ns: Start of the first interval, UTC nanoseconds.
        end_ns: End of the last, UTC nanoseconds.
        noticed: Number of intervals with each flag, by the keys of ``FLAGS``.
        unknown: Columns or fields of the sources that were not used.
        notes: What was odd and tolerated.
        events: Table ``port_events``: errors, pauses, marks and losses.
        peers: Device at the far end of each port, where known.
        ill: Table ``ill_links``: links that need a hand, the worst first.
        changes: Table ``link_changes``: changes of links and devices, in order.
        balances: Table ``link_balances``: what was sent into each link and what arrived.
        read_once: Ports that are not in the tables, as they were read once at most.
        devices_read_once: Devices of these ports.
        contradiction: Ports whose far ends counters and fabric state differently, as a sentence;
            empty if there are none.
    """

    kind: Kind
    threshold: float
    ports: pl.DataFrame
    groups: pl.DataFrame
    intervals: int
    start_ns: int
    end_ns: int
    noticed: dict[str, int]
    unknown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: pl.DataFrame = field(default_factory=no_events)
    peers: Peers = field(default_factory=dict)
    ill: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=ILL_LINKS.polars_schema))
    changes: pl.DataFrame = field(default_factory=no_changes)
    balances: pl.DataFrame = field(
        default_factory=lambda: pl.DataFrame(schema=BALANCES.polars_schema)
    )
    read_once: int = 0
    devices_read_once: Sequence[str] = ()
    contradiction: str = ""

    def with_sign(self, sign: str) -> pl.DataFrame:
        """The links with a sign, one of ``ill_links.SIGNS``, worst first."""
        return self.ill.filter(pl.col("signs").list.contains(sign))

    def counted(self, kind: str) -> pl.DataFrame:
        """The events of one kind, largest first."""
        return self.events.filter(pl.col("finding") == kind)

    @property
    def n_known(self) -> int:
        """Number of ports whose stall is known."""
        return int(self.ports["stall_fraction"].count()) - self.n_bounded

    @property
    def n_bounded(self) -> int:
        """Number of ports known to stall for a share below the threshold or more."""
        return self.ports.filter(_only_bounds(self.threshold)).height

    @property
    def still(self) -> bool:
        """Whether no counter of any port moved, though some are known."""
        return _is_still(self.ports)

    @property
    def may_stall(self) -> pl.DataFrame:
        """Ports that stalled for at least the threshold if their tick is long enough."""
        return self.ports.filter(
            (pl.col("stall_fraction") < self.threshold)
            & (pl.col("stall_high_fraction") >= self.threshold)
        )

    @property
    def stalling(self) -> pl.DataFrame:
        """Ports that stalled for at least the threshold or have a full counter, worst first."""
        return self.ports.filter((pl.col("stall_fraction") >= self.threshold) | FULL_COUNTER)


def _only_bounds(threshold: float) -> pl.Expr:
    """Ports of which every interval gives a lower bound, as after a reset, below the threshold."""
    bounded = pl.col("at_least") >= pl.col("stall_known_intervals")
    return bounded & (pl.col("stall_known_intervals") > 0) & (pl.col("stall_fraction") < threshold)


_MOVED: Final = int(
    Flag.WRAP
    | Flag.RESET
    | Flag.LATCHED
    | Flag.DATA_LATCHED
    | Flag.IMPOSSIBLE
    | Flag.DATA_IMPOSSIBLE
)
"""Flags of an interval in which a counter moved, whatever its number."""


def _is_still(ports: pl.DataFrame) -> bool:
    moved = ports["moved"].drop_nulls()
    return not moved.is_empty() and not moved.any()


def _sums(piece: Piece) -> pl.LazyFrame:
    length = pl.col("interval_ns").cast(pl.Float64)
    stall, used = pl.col("stall_fraction"), pl.col("utilization")
    rises = pl.max_horizontal("data_bytes", "packets", "xmit_wait_ticks", stall)
    carried = pl.any_horizontal(pl.col("data_bytes", "packets").is_not_null()).any()
    counts = {
        name: ((pl.col("flags") & int(flag)) > 0).sum().cast(pl.UInt64)
        for name, flag in FLAGS.items()
    }
    top = ends_with_full_stall_counter()
    sent = exact_data("data_bytes")
    return piece.rows.group_by(_PORT).agg(
        interface=pl.col("interface").first(),
        full_intervals=top.sum().cast(pl.UInt64),
        full_ns=pl.col("time_ns").filter(top).max(),
        hidden=length.filter(top & stall.is_null()).sum(),
        latched_stall_ns=pl.col("latched_stall_ns").max(),
        intervals=pl.len().cast(pl.UInt64),
        length=length.sum(),
        stalled_intervals=(stall > 0).sum().cast(pl.UInt64),
        stall_known_intervals=stall.count().cast(pl.UInt64),
        stalled=(stall * length).sum(),
        stalled_high=(pl.coalesce("stall_high_fraction", stall) * length).sum(),
        untimed_intervals=((pl.col("xmit_wait_ticks") > 0) & stall.is_null()).sum().cast(pl.UInt64),
        vague_intervals=pl.col("stall_high_fraction").count().cast(pl.UInt64),
        paused=(pl.col("paused_fraction") * length).sum(),
        known=length.filter(stall.is_not_null()).sum(),
        maximum=stall.max(),
        moved=pl.when(carried).then(((rises > 0) | ((pl.col("flags") & _MOVED) > 0)).any()),
        used=(used * length).sum(),
        sized=length.filter(used.is_not_null()).sum(),
        capacity_gbps=pl.col("capacity_gbps").sort_by("time_ns").drop_nulls().last(),
        sent_bytes=sent.sum(),
        sent_ns=pl.col("interval_ns").filter(sent.is_not_null()).sum(),
        received_bytes=pl.col("received_bytes").sum(),
        received_ns=pl.col("interval_ns").filter(pl.col("received_bytes").is_not_null()).sum(),
        sent_peak_gbps=(8 * sent / length).max(),
        received_peak_gbps=(8 * pl.col("received_bytes") / length).max(),
        **counts,
        start_ns=(pl.col("time_ns") - pl.col("interval_ns")).min(),
        end_ns=pl.col("time_ns").max(),
    )


def _add(parts: pl.LazyFrame) -> pl.LazyFrame:
    numbers = (
        "full_intervals",
        "hidden",
        "intervals",
        "length",
        "stalled_intervals",
        "stall_known_intervals",
        "stalled",
        "stalled_high",
        "vague_intervals",
        "untimed_intervals",
        "paused",
        "known",
        "used",
        "sized",
        *TRANSFERS,
    )
    return parts.group_by(_PORT).agg(
        pl.col(*numbers, *FLAGS).sum(),
        pl.col("maximum", *PEAKS, "moved", "end_ns", "full_ns", "latched_stall_ns").max(),
        pl.col("capacity_gbps").sort_by("end_ns").drop_nulls().last(),
        pl.col("start_ns").min(),
        pl.col("interface").first(),
    )


PORT_PASS: Final = Aggregate(
    _sums,
    _add,
    (
        *_PORT,
        "interface",
        "time_ns",
        "interval_ns",
        "data_bytes",
        "packets",
        "received_bytes",
        "xmit_wait_ticks",
        "stall_fraction",
        "stall_high_fraction",
        "paused_fraction",
        "latched_stall_ns",
        "utilization",
        "capacity_gbps",
        "flags",
    ),
)
"""Pass of :func:`by_port`."""


def port_table(sums: pl.DataFrame) -> pl.DataFrame:
    """The table of :func:`by_port` from the total of ``PORT_PASS``."""
    stalled = pl.when(pl.col("known") > 0).then(pl.col("stalled") / pl.col("known"))
    used = pl.when(pl.col("sized") > 0).then(pl.col("used") / pl.col("sized"))
    out = sums.with_columns(
        seconds=pl.col("length") / 1e9,
        stall_known_seconds=pl.col("known") / 1e9,
        use_known_seconds=pl.col("sized") / 1e9,
        stall_fraction=stalled,
        stall_high_fraction=pl.when(pl.col("vague_intervals") > 0).then(
            pl.col("stalled_high") / pl.col("known")
        ),
        paused_fraction=pl.when((pl.col("paused") > 0) & (pl.col("known") > 0)).then(
            pl.col("paused") / pl.col("known")
        ),
        utilization=used,
        stall_at_least=pl.when(_FILLED).then(
            (pl.col("stalled") / (pl.col("known") + pl.col("hidden"))).fill_nan(None).fill_null(0.0)
        ),
        latched_stall_seconds=pl.when(_FILLED).then(pl.col("latched_stall_ns") / 1e9),
    )
    return _worst_first(_with_lost(out))


_FILLED: Final = (pl.col("full_ns") == pl.col("end_ns")) & (pl.col("impossible") == 0)


def _with_lost(ports: pl.DataFrame) -> pl.DataFrame:
    """Ports with the bandwidth lost to stalls, a lower bound where a counter is full."""
    share = pl.coalesce("stall_at_least", "stall_fraction")
    return ports.with_columns(lost_gbps=lost_gbps(share, pl.col("capacity_gbps")))


_WORST: Final = ("stall_at_least", "stall_fraction", "node_name", "port", "direction")


def _worst_first(table: pl.DataFrame) -> pl.DataFrame:
    # Nulls last: a counter that is not full has no bound, so full ones come first.
    order = [True, True, False, False, False]
    return table.sort(_WORST, descending=order, nulls_last=True).select(
        *_PORT,
        "interface",
        "intervals",
        "seconds",
        "stall_known_intervals",
        "stall_known_seconds",
        "use_known_seconds",
        "stalled_intervals",
        "stall_fraction",
        "stall_high_fraction",
        "paused_fraction",
        "untimed_intervals",
        "stall_at_least",
        "latched_stall_seconds",
        "full_intervals",
        "maximum",
        "moved",
        "utilization",
        "capacity_gbps",
        "lost_gbps",
        *TRANSFERS,
        *PEAKS,
        *FLAGS,
        "start_ns",
        "end_ns",
    )


def by_port(intervals: pl.LazyFrame | Archive, engine: Engine = LOCAL_ENGINE) -> pl.DataFrame:
    """Activity of each port over all of its intervals.

    Args:
        intervals: Rows of ``counter_intervals``.
        engine: Where the pieces are worked on.

    Returns:
        ``node_guid, node_name, port, link, direction, interface, intervals, seconds`` (observed),
        ``stall_known_intervals, stall_known_seconds, use_known_seconds`` (those of them in which
        the stall and the bytes are known), ``stalled_intervals, stall_fraction`` (of the time in
        which the stall is known, null where it never is), ``stall_high_fraction`` (the most it may
        be where the tick is known within bounds only), ``paused_fraction`` (the part of it that
        pause frames caused, null without any), ``untimed_intervals`` (with ticks of unknown
        length), ``stall_at_least`` (of all its time; null unless its counter is full at the end),
        ``latched_stall_seconds`` (the stall since the last reset that a full counter shows),
        ``full_intervals``, ``maximum`` (largest of one interval), ``moved`` (whether a counter
        rose), the latest ``capacity_gbps``,
        ``utilization, lost_gbps``, ``sent_bytes, received_bytes`` and ``sent_ns, received_ns``
        (the time in which they are known exactly), ``sent_peak_gbps, received_peak_gbps`` (largest
        of one interval), one count per key of ``FLAGS``, and ``start_ns,
        end_ns``; worst first.
    """
    return port_table(engine.add_up(Archive.of(intervals).pieces(), [PORT_PASS])[0])


def by_group(ports: pl.DataFrame) -> pl.DataFrame:
    """Ports by tier and direction, as both studies divide them, those that stall most first.

    Args:
        ports: Table of :func:`by_port` with ``category`` and ``port_type``.

    Returns:
        ``category, port_type, ports, intervals, stalled_percent`` (of the intervals whose stall is
        known), ``stall_fraction`` (mean over the time in which it is known),
        ``stall_high_fraction`` (the most it may be), ``median`` and
        ``maximum`` (of ports, of intervals), ``utilization, capacity_gbps, lost_gbps`` (sums over
        ports), ``at_least`` and ``full_ports``; those with full counters first.
    """
    stall_known = pl.col("stall_known_intervals")
    stall, used = pl.col("stall_fraction"), pl.col("utilization")
    # A port is weighted by the time in which its value is known, not by all the time observed.
    time = pl.coalesce("stall_known_seconds", stall_known.cast(pl.Float64))
    sized = pl.col("use_known_seconds")
    return (
        ports.group_by("category", "port_type")
        .agg(
            ports=pl.len(),
            intervals=pl.col("intervals").sum(),
            stalled_percent=pl.when(stall_known.sum() > 0).then(
                100.0 * pl.col("stalled_intervals").sum() / stall_known.sum()
            ),
            stall_fraction=(stall * time).sum() / time.sum(),
            stall_high_fraction=pl.when(pl.col("stall_high_fraction").count() > 0).then(
                (pl.coalesce("stall_high_fraction", stall) * time).sum() / time.sum()
            ),
            median=stall.median(),
            maximum=pl.col("maximum").max(),
            utilization=(used * sized).sum() / sized.sum(),
            capacity_gbps=pl.col("capacity_gbps").sum(),
            lost_gbps=pl.when(pl.col("lost_gbps").count() > 0).then(pl.col("lost_gbps").sum()),
            at_least=pl.col("at_least").sum(),
            full_ports=FULL_COUNTER.sum(),
        )
        .with_columns(pl.col("stall_fraction", "utilization").fill_nan(None))
        .sort(
            "full_ports",
            "stall_fraction",
            "category",
            "port_type",
            descending=[True, True, False, False],
            nulls_last=True,
        )
    )


def assess(
    ports: pl.DataFrame,
    classes: pl.DataFrame,
    *,
    threshold: float = 0.05,
    unknown: list[str] | None = None,
    notes: list[str] | None = None,
    events: pl.DataFrame | None = None,
    peers: Peers | None = None,
    ill: pl.DataFrame | None = None,
    changes: pl.DataFrame | None = None,
    balances: pl.DataFrame | None = None,
    read_once: int = 0,
    damaged: bool = False,
) -> Verdict:
    """Find out where ports stall, from counters alone.

    Args:
        ports: From :func:`by_port`.
        classes: From ``classes.classify`` or ``port_inventory.with_classes``.
        threshold: Share of its time from which a port counts as stalling, 0–1.
        unknown: Columns of the sources that were not used.
        notes: What was odd and tolerated.
        events: Table ``port_events`` of the same ports.
        peers: Device at the far end of each port, where known.
        ill: Table ``ill_links``.
        changes: Table ``link_changes``.
        balances: Table ``link_balances``.
        read_once: Other ports, which were read once at most.
        damaged: Whether files or parts of them were left out, which may be why.
    """
    counted = no_events() if events is None else events
    table, _ = attach(ports, classes)
    table = table.with_columns(
        pl.col("category").fill_null("other"),
        pl.col("port_type").fill_null("any"),
    )
    with_share = table.filter(pl.col("stall_fraction").is_not_null())
    kind: Kind = "quiet"
    first = None if ill is None or ill.is_empty() else ill["signs"][0][0]
    faults = bool((counted["finding"] == "errors").any())
    if first == "down" and not (faults and ill is not None and ill["between_switches"][0] is False):
        kind = "down"
    elif faults:
        kind = "faults"
    elif ill is not None and ill["signs"].list.contains("unequal").any():
        kind = "unequal"
    elif (counted["finding"] == "slower").any() or (ill is not None and _slow(ill).height):
        kind = "slower"
    elif (
        table.select(FULL_COUNTER.any()).item() or (with_share["stall_fraction"] >= threshold).any()
    ):
        kind = "stalls"
    elif (
        with_share.is_empty()
        or with_share.height < read_once
        or with_share.select(_only_bounds(threshold).all()).item()
        or (damaged and read_once > 0)
        or _is_still(table)
        or (table["untimed_intervals"] > 0).any()
        or (with_share["stall_high_fraction"] >= threshold).any()
    ):
        kind = "unknown"
    start, end = table["start_ns"].min(), table["end_ns"].max()
    return Verdict(
        kind,
        threshold,
        table,
        by_group(table),
        int(table["intervals"].sum()),
        start if isinstance(start, int) else 0,
        end if isinstance(end, int) else 0,
        {name: int(table[name].sum()) for name in FLAGS},
        unknown or [],
        [*(notes or []), *_counter_notes(table)],
        counted,
        peers or {},
        pl.DataFrame(schema=ILL_LINKS.polars_schema) if ill is None else ill,
        no_changes() if changes is None else changes,
        pl.DataFrame(schema=BALANCES.polars_schema) if balances is None else balances,
        read_once,
    )


def _slow(ill: pl.DataFrame) -> pl.DataFrame:
    """Links between switches that have less width or speed than is usual.

    Adapters of several speeds are common, so those are listed without changing the verdict.
    """
    slow = pl.col("signs").list.set_intersection(["width", "speed"]).list.len() > 0
    return ill.filter(slow, pl.col("between_switches"))


def _counter_notes(ports: pl.DataFrame) -> list[str]:
    """Notes on ports with a full counter, and on those with an impossible increment."""
    full = ports.filter(FULL_COUNTER)
    wrong = ports.filter((pl.col("impossible") > 0) | (pl.col("data_impossible") > 0))
    changed = ports.filter(pl.col("rate_changed") > 0)
    notes = ((full_note, full), (impossible_note, wrong), (speed_note, changed))
    return [note(rows) for note, rows in notes if rows.height]


def sentence(verdict: Verdict) -> str:
    """The verdict in one or two sentences."""
    if verdict.kind == "faults":
        errors = ports_counted(verdict.counted("errors"), verdict.peers)
        return f"{errors}; {_stalls(verdict)}"
    if verdict.kind == "down":
        return f"{links_down(verdict.with_sign('down'))}; {_stalls(verdict)}"
    if verdict.kind == "unequal":
        unequal = verdict.with_sign("unequal")
        return f"{unequal['link'][0]}: {unequal['what'][0]}; {_stalls(verdict)}"
    if verdict.kind == "slower":
        fell, slow = verdict.counted("slower"), _slow(verdict.ill)
        slower = (
            ports_counted(fell, verdict.peers)
            if fell.height
            else f"{slow['link'][0]}: {slow['what'][0]}"
        )
        return f"{slower}; {_stalls(verdict)}"
    return _stalls(verdict)


def links_down(down: pl.DataFrame) -> str:
    """Which links are down, and since when.

    Args:
        down: Rows of ``ill_links`` with the sign ``down``, the worst first.
    """
    row = down.row(0, named=True)
    since = "" if row["since_ns"] is None else f" since {instant(row['since_ns'])}"
    lost = float(down["lost_gbps"].sum())
    text = f"{row['link']} is down{since}"
    if down.height > 1:
        text += f", and {counted(down.height - 1, 'other')}"
    return f"{text} ({format_rate(lost)} Gb/s)" if lost else text


def _stalls(verdict: Verdict) -> str:
    """How long ports stalled."""
    n_ports = verdict.n_known
    if verdict.stalling.is_empty():
        if verdict.may_stall.height:
            return ticks_vary(verdict.may_stall, verdict.ports.height, verdict.threshold)
        if verdict.intervals == 0:
            return SINGLE_READING
        if verdict.still:
            return NOT_MOVED
        if verdict.n_bounded and not n_ports:
            return only_bounds(verdict.n_bounded, verdict.ports.height)
        untimed = verdict.ports.filter(pl.col("untimed_intervals") > 0).height
        if untimed or not n_ports:
            return no_stall_share(untimed, verdict.ports.height)
        worst = float(verdict.ports["stall_fraction"].max() or 0.0)  # type: ignore[arg-type]
        used = verdict.ports["utilization"].max()
        busiest = None if used is None else float(used)  # type: ignore[arg-type]
        text = none_stalled(n_ports, verdict.threshold, worst, busiest)
        if unknown := verdict.ports.height - n_ports:
            text += f"; the stall of {counted(unknown, 'other port')} is unknown"
        return f"{text}; {only_once(verdict.read_once)}" if verdict.read_once else text
    mine = verdict.stalling
    full = mine.filter(FULL_COUNTER)
    if full.height:
        bound = full["latched_stall_seconds"].min()
        text = full_counters(
            full.height,
            verdict.ports.height,
            mine.height - full.height,
            verdict.threshold,
            None if bound is None else float(bound),  # type: ignore[arg-type]
        )
        return f"{text}. {_worst_class_sentence(verdict, mine)}".strip()
    lost, capacity = float(mine["lost_gbps"].sum()), float(mine["capacity_gbps"].sum())
    paused = bool(mine["paused_fraction"].is_not_null().all())
    text = ports_waited(mine.height, n_ports, verdict.threshold, lost, capacity, paused=paused)
    return f"{text}. {_worst_class_sentence(verdict, mine)}"


def _worst_class_sentence(verdict: Verdict, mine: pl.DataFrame) -> str:
    """Which class of ports loses most to stalls, and what a stall there means."""
    weight = pl.col("lost_gbps").sum() + pl.col("stall_fraction").sum() * 1e-9
    classes = mine.group_by("category", "port_type").agg(
        n=pl.len(), full=FULL_COUNTER.sum(), weight=weight
    )
    order = ("full", "weight", "category", "port_type")
    top = classes.sort(order, descending=[True, True, False, False]).row(0)
    category, port_type, count = str(top[0]), str(top[1]), int(top[2])
    tiers = set(verdict.ports["category"]) - {"Host", "other"}
    return worst_class(category, port_type, count, full=bool(top[3]), three_tiers="ToR" in tiers)


def facts(verdict: Verdict, most: int = 50) -> dict[str, Any]:
    """The verdict as plain values; the worst ``most`` ports, all groups."""
    return {
        "verdict": verdict.kind,
        "sentence": sentence(verdict),
        "threshold": verdict.threshold,
        "ports": verdict.ports.height,
        "stalling_ports": verdict.stalling.height,
        "full_counters": verdict.ports.filter(FULL_COUNTER).height,
        "intervals": verdict.intervals,
        "start_ns": verdict.start_ns,
        "end_ns": verdict.end_ns,
        "lost_gbps": float(verdict.ports["lost_gbps"].sum()),
        "noticed": verdict.noticed,
        "unknown": verdict.unknown,
        "notes": verdict.notes,
        "groups": verdict.groups.to_dicts(),
        "worst_ports": verdict.ports.head(most).to_dicts(),
        "events": verdict.events.to_dicts(),
        "ill_links": verdict.ill.to_dicts(),
        "changes": verdict.changes.to_dicts(),
    }
