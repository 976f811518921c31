"""Counters of ports besides bytes and stalls: errors, pauses, marks and losses, and their meaning.

:data:`MEANINGS` is the one table of these counters. Every reader of counters looks up the names of
its source here (:func:`meaning_of`) and passes the values on as rows of :data:`READINGS`. Names and
widths of InfiniBand's counters: InfiniBand Architecture, vol. 1, 16.1.3.5; of mlx5 and of RDMA
``hw_counters``: Linux, ``Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
counters.rst`` and NVIDIA's list; of other drivers only names that state direction and kind. None of
these counters knows whose packets they were, and a number of pause frames is not a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, Literal

import polars as pl

from tailback.names.ports import Peers, link_name, port_name
from tailback.run.schema import Column, Table
from tailback.units import counted, exact_rate, percent

_SAID: Final = {
    "errors": (
        "counted {} on its link",
        "error",
        "a cable, transceiver or port is faulty; what was hit was sent again or lost",
    ),
    "slower": (
        "came down {} to a lower speed",
        "time",
        "a cable, transceiver or port is faulty, or was set so; its link carries less since",
    ),
    "damaged": (
        "received {} that were damaged on an earlier link",
        "packet",
        "a link further up the path is faulty, not this one",
    ),
    "timeouts": (
        "waited in vain {} for an acknowledgement and sent again",
        "time",
        "packets or acknowledgements were lost, and each of these waits is long",
    ),
    "lost": (
        "was told {} that packets were missing, and sent again",
        "time",
        "packets were lost, or others overtook them on the way",
    ),
    "discarded-sent": (
        "discarded {} instead of sending them",
        "packet",
        "its link was down, or they had waited too long, as when it is paused",
    ),
    "discarded": (
        "discarded {} on arrival for lack of buffers",
        "packet",
        "this end took data more slowly than its link delivered them",
    ),
    "refused": (
        "refused {}",
        "packet",
        "a partition key or a filter of raw packets forbids them: the configuration, not the link",
    ),
    "unrouted": (
        "could not forward {}",
        "packet",
        "no forwarding entry, or multicast that would return to its port: routing, not the link",
    ),
    "corrected": (
        "corrected {} of its link by forward error correction",
        "symbol",
        "as designed; a count far above that of its peers is a weak cable or transceiver",
    ),
    "management": (
        "dropped {} of the subnet manager (VL15)",
        "packet",
        "the device was asked faster than it answers; no other traffic was hit",
    ),
    "no-buffer": (
        "had no receive buffer for {}",
        "arrival",
        "the software of this host was late: not the network",
    ),
    "not-ready": (
        "was told {} that the receiver had no buffer",
        "time",
        "the receiving rank was late: not the network",
    ),
    "paused": (
        "received {}",
        "pause frame",
        "the far end of its link stopped it from sending, as "
        "a queue was full there or further on; whose packets filled it is not known",
    ),
    "pausing": (
        "sent {}",
        "pause frame",
        "this end took data more slowly than its link delivered them, and held up the far end",
    ),
    "marked": (
        "received {} with the mark of a long queue (ECN)",
        "packet",
        "paths to this host were congested; where, and by whose packets, is not known",
    ),
    "marking": (
        "marked {} for a long queue (ECN)",
        "packet",
        "its queue was long; whose packets filled it is not known",
    ),
    "congested": (
        "was in the congested state for {}",
        "tick",
        "its queue passed the threshold of congestion control; whose packets filled "
        "it is not known",
    ),
    "waited": (
        "waited {} for credit on one virtual lane",
        "tick",
        "what its service levels sent was held up further along the path",
    ),
    "notifying": (
        "told senders {} to slow down (CNP)",
        "time",
        "paths to this host were congested; where, and by whose packets, is not known",
    ),
    "slowed": (
        "was asked {} to send more slowly (CNP)",
        "time",
        "its packets met long queues, and DCQCN made it send below the rate of its link",
    ),
    "out-of-order": (
        "received {} out of order",
        "packet",
        "packets were lost, or took different paths (adaptive routing)",
    ),
}
"""By kind: the event, the unit of its count, and the conclusion."""


_LEAST_SHARE: Final = 0.001
"""Share of the time from which a pause is given as a percentage with one decimal."""

READINGS: Final = {
    "time_ns": pl.Int64,
    "node_guid": pl.UInt64,
    "node_name": pl.String,
    "port": pl.UInt16,
    "interface": pl.String,
    "counter": pl.String,
    "value": pl.UInt64,
}
"""Columns of readings: a value of one counter of one port at one instant, cumulative."""

AT_MOST: Final = "at_most"
"""Further column of readings, which may be missing: the counter was at its value or below."""

PORT_EVENTS: Final = Table(
    "port_events",
    "what a port counted of errors, pauses, marks and losses, one row for each kind",
    (
        Column("finding", pl.String, "errors, slower, paused, pausing, marked … (see KINDS)"),
        Column("node_name", pl.String, "device, or host of the adapter"),
        Column("port", pl.UInt16, "port number, 0 where ports have names alone"),
        Column("interface", pl.String, "interface, or device and port; null without a name"),
        Column(
            "counters",
            pl.List(pl.String),
            "counters that rose or are full, as the source says; both speeds",
        ),
        Column("count", pl.UInt64, "events between the first and the last reading"),
        Column("at_least", pl.Boolean, "count and rate are lower bounds: a reset, or a threshold"),
        Column("full", pl.List(pl.String), "counters at their largest value: more is not counted"),
        Column("since_reset", pl.UInt64, "events since the last reset"),
        Column("per_second", pl.Float64, "events a second, null unknown"),
        Column("paused_share", pl.Float64, "share of the time that it was paused, null unknown"),
    ),
)


def no_events() -> pl.DataFrame:
    """Table :data:`PORT_EVENTS` without a row."""
    return pl.DataFrame(schema=PORT_EVENTS.polars_schema)


KINDS: Final = (
    "errors",
    "slower",
    "damaged",
    "timeouts",
    "lost",
    "discarded-sent",
    "discarded",
    "refused",
    "no-buffer",
    "not-ready",
    "paused",
    "pausing",
    "congested",
    "waited",
    "marked",
    "marking",
    "notifying",
    "slowed",
    "out-of-order",
    "unrouted",
    "management",
    "corrected",
)
"""Kinds of findings, in the order in which they are told."""


DISCARDS: Final = ("discarded-sent", "discarded")
"""Kinds of packets that a port dropped for lack of room or time."""


@dataclass(frozen=True)
class Meaning:
    """Meaning of a counter, and the conclusion from its rise.

    Attributes:
        kind: Kind of event that it counts, one of :data:`KINDS`.
        side: Whether it counts what the port receives (``rx``) or sends (``tx``). Errors of ``rx``
            come from the cable or the far end. Pauses of ``rx`` are the far end's.
        unit: ``events``, or ``us`` or ``ns``: a time.
        bits: Width of a counter that stops at all ones; None where it is wider or wraps.
    """

    kind: str
    side: Literal["rx", "tx"]
    unit: Literal["events", "us", "ns"] = "events"
    bits: int | None = None

    @property
    def largest(self) -> int | None:
        """The value at which it stops, None if it does not."""
        return None if self.bits is None else 2**self.bits - 1


MEANINGS: Final[dict[str, tuple[Meaning, tuple[str, ...]]]] = {
    # InfiniBand: PortCounters.
    "symbol_error": (Meaning("errors", "rx", bits=16), ("symbol_errors",)),
    "link_error_recovery": (
        Meaning("errors", "rx", bits=8),
        ("link_recovers", "link_error_recoveries"),
    ),
    "link_downed": (Meaning("errors", "rx", bits=8), ("link_down",)),
    "rcv_errors": (
        Meaning("errors", "rx", bits=16),
        ("receive_errors", "errors_received"),
    ),
    "local_link_integrity_errors": (
        Meaning("errors", "rx", bits=4),
        ("local_link_integrity",),
    ),
    "excessive_buffer_overrun_errors": (
        Meaning("errors", "rx", bits=4),
        ("excessive_buffer_overrun", "excessive_buf_overrun_errors", "excess_buffer_overrun"),
    ),
    "rcv_remote_physical_errors": (
        Meaning("damaged", "rx", bits=16),
        ("receive_remote_physical_errors", "remote_physical_errors"),
    ),
    "xmit_discards": (
        Meaning("discarded-sent", "tx", bits=16),
        ("transmit_discards", "discards_transmitted"),
    ),
    "xmit_constraint_errors": (
        Meaning("refused", "tx", bits=8),
        ("transmit_constraint_errors", "constraint_errors_transmitted"),
    ),
    "rcv_constraint_errors": (
        Meaning("refused", "rx", bits=8),
        ("receive_constraint_errors", "constraint_errors_received"),
    ),
    "rcv_switch_relay_errors": (
        Meaning("unrouted", "rx", bits=16),
        ("receive_switch_relay_errors", "switch_relay_errors"),
    ),
    # InfiniBand: PortExtendedSpeedsCounters, as ibdiagnet, UFM and libibmad name them.
    "fec_uncorrectable_block": (
        Meaning("errors", "rx", bits=32),
        ("fecuncorrectable_block", "fecuncorrectable_block_ctr", "fec_uncorrectable_blocks"),
    ),
    "fec_corrected_symbol": (
        Meaning("corrected", "rx", bits=32),
        ("feccorrected_symbol", "feccorrected_symbol_ctr", "fec_corrected_symbols"),
    ),
    "vl15_dropped": (Meaning("management", "rx", bits=16), ("vl_15_dropped",)),
    # InfiniBand: PortXmitConCtrl and PortRcvConCtrl, of congestion control (annex A10).
    "xmit_time_cong": (
        Meaning("congested", "tx", bits=32),
        ("xmit_cong_time", "xmit_time_congestion"),
    ),
    "pkt_rcv_fecn": (Meaning("marked", "rx", bits=32), ()),
    "pkt_rcv_becn": (Meaning("slowed", "rx", bits=32), ()),
    # InfiniBand and Ethernet: the physical layer, as mlxlink and ibdiagnet have it.
    "symbol_errors_after_correction": (
        Meaning("errors", "rx"),
        ("effective_physical_errors", "link_error_recoveries_phy", "link_down_events_phy"),
    ),
    "raw_physical_errors": (Meaning("corrected", "rx"), ("phy_corrected_bits",)),
    # Slingshot: telemetry of the Cassini driver. A replay is what link-level retry sends again.
    "hni_pcs_uncorrected_cw": (Meaning("errors", "rx"), ("hni_llr_rx_replay_event",)),
    "hni_llr_tx_replay_event": (Meaning("errors", "tx"), ()),
    "hni_pcs_corrected_cw": (Meaning("corrected", "rx"), ()),
    "pct_spt_timeouts": (Meaning("timeouts", "tx"), ("pct_sct_timeouts",)),
    # Omni-Path: PortStatus, as opapmaquery and the hfi1 driver name it.
    "uncorrectable_errors": (Meaning("errors", "rx", bits=8), ()),
    "mark_fecn": (Meaning("marking", "tx"), ("port_mark_fecn", "mark_fecns")),
    "rcv_fecn": (Meaning("marked", "rx"), ("rcv_fecns", "rx_fecn")),
    "rcv_becn": (Meaning("slowed", "rx"), ("rcv_becns", "rx_becn")),
    # Ethernet: IF-MIB, Linux and drivers.
    "rx_errors": (
        Meaning("errors", "rx"),
        (
            "in_errors",
            "if_in_errors",
            "ifinerrors",
            "receive_errs",
            "rx_crc_errors",
            "rx_crc_errors_phy",
            "rx_fcs_errors",
            "rx_frame_errors",
            "rx_symbol_err_phy",
            "rx_pcs_symbol_err_phy",
            "rx_err_lane_0_phy",
            "rx_err_lane_1_phy",
            "rx_err_lane_2_phy",
            "rx_err_lane_3_phy",
        ),
    ),
    # Ethernet: SAI, as SONiC names it.
    "if_in_fec_not_correctable_frames": (
        Meaning("errors", "rx"),
        ("if_in_fec_not_correctable_code_words", "llr_rx_bad"),
    ),
    "if_in_fec_correctable_frames": (Meaning("corrected", "rx"), ()),
    "llr_tx_replay": (Meaning("errors", "tx"), ()),
    "wred_dropped_packets": (Meaning("discarded-sent", "tx"), ()),
    "tx_errors": (
        Meaning("errors", "tx"),
        (
            "out_errors",
            "if_out_errors",
            "ifouterrors",
            "transmit_errs",
        ),
    ),
    # RoCE and RDMA: hw_counters and the names exporters and the recorder give them.
    "np_ecn_marked_roce_packets": (
        Meaning("marked", "rx"),
        ("np_ecn_marked_roce_packets_received", "rx_ecn_mark", "roce_np_ecn_marked"),
    ),
    "ecn_marked": (
        Meaning("marking", "tx"),
        ("ecn_mark", "qdisc_ecn_mark", "tx_ecn_marked", "marked"),
    ),
    "np_cnp_sent": (
        Meaning("notifying", "tx"),
        ("np_cnp_packets_sent", "cnp_sent", "tx_cnp"),
    ),
    "rp_cnp_handled": (
        Meaning("slowed", "rx"),
        ("rp_cnp_packets_handled", "cnp_handled", "rp_cnp_ignored", "rx_cnp"),
    ),
    "out_of_buffer": (
        Meaning("no-buffer", "rx"),
        ("rx_out_of_buffer", "out_of_buffer_drops"),
    ),
    "out_of_sequence": (
        Meaning("out-of-order", "rx"),
        ("out_of_sequence_packets_received",),
    ),
    "packet_seq_err": (Meaning("lost", "tx"), ("packet_sequence_errors",)),
    "local_ack_timeout_err": (Meaning("timeouts", "tx"), ("local_ack_timeout_errors",)),
    "rnr_nak_retry_err": (
        Meaning("not-ready", "tx"),
        ("rnr_nak_retry_packets_received",),
    ),
}
"""Meaning and further spellings of each counter, as :func:`normal_name` writes them."""

_MEANING: Final = {
    spelling: meaning
    for name, (meaning, others) in MEANINGS.items()
    for spelling in (name, *others)
}

_EXPORTER: Final = re.compile(
    r"^(?:node_infiniband|node_network|node_ethtool|node_net|infiniband_(?:switch|hca)|infiniband|"
    r"tailback|sai_port_stat|est_port_stat)_(?=[a-z])"
)
_PAUSE: Final = re.compile(r"pause|xoff|pfc")
_NOT_FRAMES: Final = re.compile(r"duration|transition|xon|storm|stop|_us$|time|watchdog")
_PAUSED_US: Final = re.compile(
    r"(?P<side>[rt]x)_(?:prio[0-7]|global)_pause_duration|"
    r"pfc_[0-7]_(?P<sai>[rt]x)_pause_duration_us"
)
"""The durations whose unit, microseconds, is documented: of mlx5 and of SAI (SONiC)."""
_CXI_PAUSE: Final = re.compile(r"hni_pause_(?P<side>recv|xoff_sent)_[0-7]")
"""Pause frames of a traffic class of Slingshot's adapters."""
_CXI_PAUSED: Final = re.compile(r"hni_(?P<side>[rt]x)_paused_(?:[0-7]|std)")
"""Cycles of 1 ns in which a traffic class could not send (tx), or kept the far end from it (rx)."""
_DISCARDS: Final = re.compile(r"(?:prio[0-7]_|pri[0-7]_)?discards?(?:_phy)?")
_PRIORITY: Final = re.compile(
    r"pri(?:o|ority)?[_-]?[0-7]|pfc_[0-7]|hni_pause_(?:recv|xoff_sent)_[0-7]|"
    r"slrcv(?:fecn|becn)[0-9]|swportvlcongestion[0-9]|hni_discard_cntr_[0-7]|"
    r"(?:inactive|mtu|limit)discards"
)
"""Counters of a priority, a lane or a kind, which add up to that of the port."""
_OPTIONAL: Final = {
    **dict.fromkeys(
        ("local_physical_errors", "malformed_pkt_errors", "buffer_overrun_errors"),
        Meaning("errors", "rx", bits=16),
    ),
    **dict.fromkeys(
        ("dlidmapping_errors", "vlmapping_errors", "looping_errors"),
        Meaning("unrouted", "rx", bits=16),
    ),
    **{
        f"{reason}discards": Meaning("discarded-sent", "tx", bits=16)
        for reason in ("inactive_", "neighbor_mtu", "sw_lifetime_limit_", "sw_hoqlifetime_limit_")
    },
    "vlxmit_wait": Meaning("waited", "tx", bits=16),
    "vlxmit_time_cong": Meaning("congested", "tx", bits=32),
    "slrcv_fecn": Meaning("marked", "rx", bits=32),
    "slrcv_becn": Meaning("slowed", "rx", bits=32),
    "swport_vlcongestion": Meaning("discarded-sent", "tx", bits=16),
    "fecuncorrectable_block_ctr_lane": Meaning("errors", "rx", bits=32),
    "tx_wait_vl": Meaning("waited", "tx"),
    "hni_discard_cntr_": Meaning("discarded-sent", "tx"),
}
"""Counters of lanes, service levels and traffic classes, without their numbers."""
_RUN_TOGETHER: Final = {
    name.replace("_", ""): meaning for name, meaning in (_OPTIONAL | _MEANING).items()
}
"""The same as infiniband-exporter writes names of ibqueryerrors: ``symbolerrorcounter``."""
_DIRECTION: Final = re.compile(r"(?:^|[._-])(rx|tx)(?=[._-]|$)")


EXTENDED: Final = "Extended"
"""End of the name of a 64-bit counter, where the same device also has a narrow one."""


def normal_name(counter: str) -> str:
    """A counter's name as :data:`MEANINGS` writes it: without what its source puts around it."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", counter.strip()).lower()
    name = _EXPORTER.sub("", name).removesuffix("_total").removesuffix("_counter")
    return re.sub(r"^(?:port_)(?=[a-z])", "", name)


@cache
def meaning_of(counter: str) -> Meaning | None:
    """Meaning of a counter; None if its name does not show it, or nothing follows from it."""
    if counter.endswith(EXTENDED):
        narrow = meaning_of(counter.removesuffix(EXTENDED))
        return None if narrow is None else replace(narrow, bits=None)
    name = normal_name(counter)
    if (meaning := _MEANING.get(name) or _OPTIONAL.get(name.rstrip("0123456789"))) is not None:
        return meaning
    if counter.startswith("infiniband_"):
        run_together = _RUN_TOGETHER.get(name.removeprefix("port").removesuffix("counter"))
        if run_together is not None:
            return run_together
    if paused := _PAUSED_US.fullmatch(name):
        received = "rx" in (paused["side"], paused["sai"])
        return Meaning("paused", "rx", "us") if received else Meaning("pausing", "tx", "us")
    if paused := _CXI_PAUSE.fullmatch(name):
        return Meaning("paused", "rx") if paused["side"] == "recv" else Meaning("pausing", "tx")
    if paused := _CXI_PAUSED.fullmatch(name):
        if paused["side"] == "tx":
            return Meaning("paused", "rx", "ns")
        return Meaning("pausing", "tx", "ns")
    direction = _DIRECTION.search(name)
    if direction is None or _NOT_FRAMES.search(name):
        return None
    received = direction[1] == "rx"
    if _PAUSE.search(name):
        return Meaning("paused", "rx") if received else Meaning("pausing", "tx")
    if _DISCARDS.fullmatch(_DIRECTION.sub("", name).strip("._-")):
        return Meaning("discarded", "rx") if received else Meaning("discarded-sent", "tx")
    return None


_UNIT_NS: Final = {"us": 1000, "ns": 1}
"""Nanoseconds of the units of times."""

SPEED: Final = "speed_mbps"
"""Name under which :data:`READINGS` have the data rate of a port in Mb/s, 0 if its link is down."""

_PORT: Final = ("node_guid", "node_name", "port", "interface")
_KEY: Final = (*_PORT, "counter")


def port_events(
    readings: pl.DataFrame, unused: Mapping[str, frozenset[str]] | None = None
) -> pl.DataFrame:
    """Sum up what rose or is full, by port and kind.

    Args:
        readings: Rows of :data:`READINGS`, in any order.
        unused: Interfaces of each host that are left out, because they do not carry the job's
            messages. An example is the interface of the management network.

    Returns:
        Rows of :data:`PORT_EVENTS`, by kind, full counters first, then by number; empty if nothing
        rose.
    """
    rows = _find_slower(readings.filter(pl.col("counter") == SPEED), unused or {})
    for (_, device, port, interface), part in rises(readings).group_by(_PORT, maintain_order=True):
        if str(interface) in (unused or {}).get(str(device), ()):
            continue
        seconds = float(part["seconds"].max() or 0.0)  # type: ignore[arg-type]
        for kind, counts in _by_kind(part).items():
            full = sorted(name for name, _, value in counts if is_full(name, value))
            # A full counter hides its rise. The others of its kind show the earlier events.
            counting = [name for name, rise, value in counts if rise or (full and value)]
            events = {name: rise for name, rise, _ in counts if _unit(name) == "events"}
            total = _total(kind, events)
            # Priorities are paused at the same time or not: the longest is the least it can be.
            paused_ns = max((rise * _UNIT_NS.get(_unit(name), 0) for name, rise, _ in counts))
            rows.append(
                (
                    kind,
                    device,
                    port,
                    interface,
                    sorted(counting),
                    total,
                    bool(part.filter(pl.col("counter").is_in(counting))["at_least"].any()),
                    full,
                    _total(kind, {name: v for name, _, v in counts if _unit(name) == "events"}),
                    total / seconds if seconds else None,
                    paused_ns / 1e9 / seconds if paused_ns and seconds else None,
                )
            )
    return in_order(pl.DataFrame(rows, schema=PORT_EVENTS.polars_schema, orient="row"))


def note_discards(readings: pl.DataFrame, peers: Peers | None = None) -> list[str]:
    """A note on packets that ports discarded before the only reading of them.

    Args:
        readings: Rows of :data:`READINGS`, one of each counter.
        peers: Far ends of links, if known.
    """
    kinds = {name: meaning_of(name) for name in readings["counter"].unique().to_list()}
    discards = [name for name, kind in kinds.items() if kind and kind.kind in DISCARDS]
    ports = (
        readings.filter(pl.col("counter").is_in(discards), pl.col("value") > 0)
        .group_by(_PORT)
        .agg(count=pl.col("value").sum())
        .sort("count", *_PORT, descending=[True, *[False] * len(_PORT)])
    )
    if ports.is_empty():
        return []
    worst = ports.row(0, named=True)
    others = counted(ports.height - 1, "other port")
    beside = f" ({int(ports['count'][1:].sum()):,} on {others})" if ports.height > 1 else ""
    return [
        f"{event_port(worst, peers)} discarded {_number(worst['count'], 'packet')}{beside} before "
        "this reading; when is not known"
    ]


def speeds(readings: pl.DataFrame) -> pl.DataFrame:
    """The data rates of ports as rows of :data:`READINGS`.

    Args:
        readings: Rows of ``counter_readings``.
    """
    mbps = (pl.col("capacity_gbps") * 1e3).round()
    # Interfaces have their numbers in the readings only.
    number = pl.when(pl.col("interface").is_null()).then("port").otherwise(0)
    return (
        readings.drop_nulls("capacity_gbps")
        .with_columns(port=number, counter=pl.lit(SPEED), value=mbps)
        .select(pl.col(name).cast(dtype) for name, dtype in READINGS.items())
    )


def within(readings: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Readings of a time, with the last one before it and the first one after it of each counter.

    Ports are read one after the other, and a reading without a change may not be in the table.

    Args:
        readings: Rows of :data:`READINGS`.
        start_ns: Start of the time.
        end_ns: Its end.
    """
    time = pl.col("time_ns")
    first = time.filter(time <= start_ns).max().over(_KEY)
    last = time.filter(time >= end_ns).min().over(_KEY)
    return readings.filter((time >= first.fill_null(start_ns)) & (time <= last.fill_null(end_ns)))


def _find_slower(
    rates: pl.DataFrame, unused: Mapping[str, frozenset[str]]
) -> list[tuple[object, ...]]:
    """Rows of :data:`PORT_EVENTS` of the ports whose speed fell, from readings of their speed."""
    rows: list[tuple[object, ...]] = []
    falls = (
        rates.sort("time_ns", maintain_order=True)
        .with_columns(before=pl.col("value").shift(1).over(_PORT))
        .filter(pl.col("value") < pl.col("before"))
        .group_by(_PORT, maintain_order=True)
        .agg(pl.len(), pl.col("before").first(), pl.col("value").min())
        .sort(_PORT)
    )
    for _, device, port, interface, number, high, low in falls.iter_rows():
        if str(interface) not in unused.get(str(device), ()):
            change = f"from {exact_rate(high / 1e3)} to " + (
                exact_rate(low / 1e3) if low else "down"
            )
            rows.append(
                ("slower", device, port, interface, [change], number, False, [], number, None, None)
            )
    return rows


def in_order(events: pl.DataFrame) -> pl.DataFrame:
    """Rows of :data:`PORT_EVENTS` by kind; of each the full counters and largest numbers first."""
    order = pl.col("finding").replace_strict(KINDS, range(len(KINDS)), return_dtype=pl.Int8)
    return events.sort(
        order,
        -pl.col("full").list.len().cast(pl.Int64),
        -pl.col("count").cast(pl.Float64),
        -pl.col("paused_share"),
        "node_name",
        "port",
        "interface",
        nulls_last=True,
    )


def _by_kind(part: pl.DataFrame) -> dict[str, list[tuple[str, int, int]]]:
    """Name, rise and last value of the counters of one port that rose or are full, by kind."""
    by_kind: dict[str, list[tuple[str, int, int]]] = {}
    for counter, rise, value in part.select("counter", "rise", "last").iter_rows():
        meaning = meaning_of(counter)
        if meaning is not None:
            by_kind.setdefault(meaning.kind, []).append((counter, int(rise), int(value)))
    by_kind = {
        kind: counts
        for kind, counts in by_kind.items()
        if any(rise or is_full(name, value) for name, rise, value in counts)
    }
    if "marked" in by_kind:
        by_kind.pop("notifying", None)  # They follow from the marked packets.
    return by_kind


def _unit(counter: str) -> str:
    meaning = meaning_of(counter)
    return "events" if meaning is None else meaning.unit


def is_full(counter: str, value: int) -> bool:
    """Whether a counter is at its largest value, so that its rise is unknown."""
    meaning = meaning_of(counter)
    return meaning is not None and meaning.largest is not None and value == meaning.largest


def _total(kind: str, counts: Mapping[str, int]) -> int:
    """Events of several counters of one kind.

    A driver counts the same frames for each priority and for the port.
    """
    if kind == "errors":
        return sum(counts.values())
    priorities = sum(count for name, count in counts.items() if _PRIORITY.search(name.lower()))
    others = (count for name, count in counts.items() if not _PRIORITY.search(name.lower()))
    return max(priorities, *others, 0)


def _counter_rise(value: pl.Expr, key: tuple[str, ...]) -> pl.Expr:
    """Rise of a counter since the reading before, null at the first.

    A counter that fell was reset. Its counts before the reset and since are both known.
    """
    rise = value - value.shift(1).over(key)
    return pl.when(rise >= 0).then(rise).when(rise < 0).then(value)


def rises(readings: pl.DataFrame) -> pl.DataFrame:
    """Rise and last value of each counter of each port, and the seconds between its readings.

    ``since_ns`` is the time of the first reading that shows a rise, null without one.

    The rise is a lower bound (``at_least``) in two cases. A reset hides the events since the
    reading before. A reading may give only an upper bound of the counter.
    """
    value = pl.col("value").cast(pl.Int128)
    at_most = pl.col(AT_MOST).fill_null(False) if AT_MOST in readings.columns else pl.lit(False)
    bounded = at_most.shift(1).over(_KEY) | (value < value.shift(1).over(_KEY))
    return (
        readings.drop_nulls(["time_ns", "value"])
        .sort("time_ns", maintain_order=True)
        .with_columns(step=_counter_rise(value, _KEY), bounded=bounded)
        .group_by(_KEY, maintain_order=True)
        .agg(
            rise=pl.col("step").sum(),
            at_least=pl.col("bounded").any(),
            last=pl.col("value").last(),
            since_ns=pl.col("time_ns").filter(pl.col("step") > 0).min(),
            seconds=(pl.col("time_ns").max() - pl.col("time_ns").min()) / 1e9,
        )
        .sort(_KEY)
    )


def pauses(readings: pl.DataFrame) -> pl.DataFrame:
    """How long and how often the far end of each port stopped it from sending, cumulative.

    Args:
        readings: Rows of :data:`READINGS`.

    Returns:
        ``time_ns, node_guid, node_name, port, interface`` with ``paused_ns`` (null where only
        frames are counted), ``pause_frames`` and ``several`` (more than one priority was paused
        since the reading before: the times may overlap or not, and ``paused_ns`` has the longest).
    """
    names = readings["counter"].unique().to_list()
    meant = {
        name: counter_meaning for name in names if (counter_meaning := meaning_of(name)) is not None
    }
    paused = [name for name, meaning in meant.items() if meaning.kind == "paused"]
    times = {name: _UNIT_NS[meant[name].unit] for name in paused if meant[name].unit in _UNIT_NS}
    step = pl.col("step")
    timed = pl.col("counter").is_in(times)
    worth = pl.col("counter").replace_strict(times, default=1, return_dtype=pl.Int64)
    longest = step.filter(timed).max()
    return (
        readings.filter(pl.col("counter").is_in(paused))
        .sort("time_ns", maintain_order=True)
        .with_columns(step=_counter_rise(pl.col("value").cast(pl.Int64), _KEY).fill_null(0) * worth)
        .group_by(*_PORT, "time_ns", maintain_order=True)
        .agg(
            paused=pl.when(timed.any()).then(longest),
            frames=step.filter(~timed).sum(),
            several=step.filter(timed).sum() > longest,
        )
        .with_columns(
            paused_ns=pl.col("paused").cum_sum().over(_PORT).cast(pl.UInt64),
            pause_frames=pl.col("frames").cum_sum().over(_PORT).cast(pl.UInt64),
            several=pl.col("several").fill_null(False),
        )
        .drop("paused", "frames")
    )


def event_port(row: Mapping[str, Any], peers: Peers | None = None) -> str:
    """Name of the port of a row of ``port_events``, and of its far end if known."""
    device, port = str(row["node_name"]), int(row["port"])
    return link_name(port_name(device, port, row["interface"]), (peers or {}).get((device, port)))


def ports_counted(
    rows: pl.DataFrame, peers: Peers | None = None, *, during_run: bool = False
) -> str:
    """Events of one kind that ports counted, with the largest figure.

    Args:
        rows: Rows of ``port_events`` of one kind, largest first.
        peers: Far ends of links, if known.
        during_run: Whether the counters are those of the time of a job.
    """
    when = "during the run" if during_run else "in the time of the counters"
    worst = rows.row(0, named=True)
    did, unit, follows = _SAID[worst["finding"]]
    name = event_port(worst, peers)
    others = [counter for counter in worst["counters"] if counter not in worst["full"]]
    names = ", ".join(others[:2]) + (" …" if len(others) > 2 else "")
    rate = ""
    if worst["per_second"] and worst["count"]:
        rate = f"{bound_sign(worst)}{_figure(worst['per_second'])} a second"
    figures = ", ".join(part for part in (rate, _paused(worst), names) if part)
    if worst["full"]:
        # A full counter stops counting, so its value is a lower bound.
        text = f"{name} {did.format('≥ ' + _number(worst['since_reset'], unit))}"
        text += f" since the last reset, with {worst['full'][0]} at its largest value"
    elif worst["finding"] in ("paused", "pausing") and not worst["count"]:
        held = "was paused" if worst["finding"] == "paused" else "paused its far end"
        text = f"{name} {held} {when}"
    else:
        text = f"{name} {did.format(bound_sign(worst) + _number(worst['count'], unit))} {when}"
    if rows.height > 1:
        more = counted(rows.height - 1, "other port")
        is_full = pl.col("full").list.len() > 0
        least = pl.when(is_full).then("since_reset").otherwise("count")
        bounded = (is_full | pl.col("at_least")).any().alias("bounded")
        count, any_bounded = rows[1:].select(least.sum(), bounded).row(0)
        beside = f"{'≥ ' * any_bounded}{count:,} on {more}" if count else f"{more} too"
        figures = f"{figures}; {beside}" if figures else beside
    return f"{text}{f' ({figures})' if figures else ''}: {follows}"


def bound_sign(row: Mapping[str, Any]) -> str:
    """Sign before the figures of a row of ``port_events`` that are lower bounds."""
    return "≥ " if row["full"] or row["at_least"] else ""


def _number(count: int, unit: str) -> str:
    if unit == "time":
        return "once" if count == 1 else f"{count:,} times"
    return f"{count:,} {unit}{'s' * (count != 1)}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _paused(row: Mapping[str, Any]) -> str:
    share = row["paused_share"]
    if share is None:
        return ""
    if share < _LEAST_SHARE and not row["at_least"]:
        return "paused less than 0.1 % of the time"
    return f"paused {'≥ ' * row['at_least']}{percent(min(share, 1.0), 1)} of the time"
