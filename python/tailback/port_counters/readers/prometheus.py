"""Counters of ports from Prometheus: answers of a server, and the pages that exporters serve.

The response of ``/api/v1/query_range`` (or ``/api/v1/query``), saved as JSON, plain or gzip::

    curl 'http://prometheus:9090/api/v1/query_range?query={__name__=~"tailback_port_.*_total"}&…'

``exposition`` reads the text that an exporter itself serves (``curl HOST:9100/metrics``). Both know
the metrics of ``tailback collect``, of node_exporter's infiniband, netdev and ethtool collectors,
of infiniband_exporter, and of exporters with the same names. Each series must be the counter
itself, not its rate.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.fabric.rates import LANE_SIGNAL_GBPS, data_rate_gbps
from tailback.io.delimited import normal
from tailback.io.exposition import INFO
from tailback.io.input_files import content, head, is_input_file
from tailback.port_counters.findings import port_events
from tailback.port_counters.findings.port_events import meaning_of, normal_name
from tailback.port_counters.readers.ethernet_csv import ALIASES
from tailback.port_counters.readers.model import (
    FAR_ENDS,
    CounterData,
    DeviceIdentity,
    quoted_text,
    with_all_drops,
)
from tailback.port_counters.schema import READINGS, CounterError, conform

HAS_TIME_STAMPS = True

_BYTES_PER_SECOND: Final = 8e-9

METRICS: Final[dict[str, tuple[str, float]]] = {
    "tailback_port_xmit_bytes_total": ("data_bytes", 1),
    "tailback_port_xmit_packets_total": ("packets", 1),
    "tailback_port_xmit_wait_ticks_total": ("xmit_wait_ticks", 1),
    "tailback_port_receive_bytes_total": ("received_bytes", 1),
    "tailback_port_receive_packets_total": ("received_packets", 1),
    "tailback_port_capacity_gbps": ("capacity_gbps", 1),
    "node_infiniband_port_data_transmitted_bytes_total": ("data_bytes", 1),
    "node_infiniband_port_packets_transmitted_total": ("packets", 1),
    "node_infiniband_port_transmit_wait_total": ("xmit_wait_ticks", 1),
    "node_infiniband_port_data_received_bytes_total": ("received_bytes", 1),
    "node_infiniband_port_packets_received_total": ("received_packets", 1),
    "node_infiniband_rate_bytes_per_second": ("capacity_gbps", _BYTES_PER_SECOND),
    **{
        f"infiniband_{part}{metric}": target
        for part in ("switch_port_", "hca_port_", "port_")
        for metric, target in (
            ("transmit_data_bytes_total", ("data_bytes", 1)),
            ("transmit_packets_total", ("packets", 1)),
            ("transmit_wait_total", ("xmit_wait_ticks", 1)),
            ("receive_data_bytes_total", ("received_bytes", 1)),
            ("receive_packets_total", ("received_packets", 1)),
            ("xmit_data_bytes_total", ("data_bytes", 1)),
            ("rcv_data_bytes_total", ("received_bytes", 1)),
            ("xmit_wait_total", ("xmit_wait_ticks", 1)),
            ("rate_bytes_per_second", ("capacity_gbps", _BYTES_PER_SECOND)),
        )
    },
    "infiniband_hca_rate_bytes_per_second": ("capacity_gbps", _BYTES_PER_SECOND),
    # guilbaults/infiniband-exporter has the words, and the names, of ibqueryerrors.
    "infiniband_portxmitdata_total": ("data_bytes", 4),
    "infiniband_portxmitpkts_total": ("packets", 1),
    "infiniband_portxmitwait_total": ("xmit_wait_ticks", 1),
    "infiniband_portrcvdata_total": ("received_bytes", 4),
    "infiniband_portrcvpkts_total": ("received_packets", 1),
    "infiniband_speed": ("lane_gbps", 1),
    "infiniband_width": ("lanes", 1),
    "node_network_transmit_bytes_total": ("data_bytes", 1),
    "node_network_transmit_packets_total": ("packets", 1),
    "node_network_transmit_drop_total": ("drops", 1),
    "node_network_speed_bytes": ("capacity_gbps", _BYTES_PER_SECOND),
    "node_qdisc_backlog": ("backlog_bytes", 1),
    "node_qdisc_drops_total": ("queue_drops", 1),
    "node_qdisc_overlimits_total": ("overlimits", 1),
}
"""Column of each metric that is read, and what 1 of the metric is in it.

Metrics of errors, pauses and marks are those of ``port_events.MEANINGS``."""

_DROPS: Final = {
    normal(name): column
    for role, column in (("drops", "drops"), ("queue drops", "queue_drops"))
    for name in ALIASES[role]
}
"""Names of the drop counter of an Ethernet port in Linux, drivers and SNMP.

Several collectors of an exporter may serve this one counter. ``queue_drops`` are others
(:func:`~tailback.port_counters.readers.model.with_all_drops`).
"""
_RATE_COLUMNS: Final = {"capacity_gbps": pl.Float64, "lane_gbps": pl.Float64, "lanes": pl.Float64}
_RATES: Final = frozenset(name for name, (column, _) in METRICS.items() if column in _RATE_COLUMNS)
_SPEED_OF: Final = {float(signal): name for name, (signal, _) in LANE_SIGNAL_GBPS.items()}
_LOCAL: Final = {
    "local_guid": "guid",
    "local_name": "node",
    "local_port": "port",
    "remote_name": "peer",
    "remote_port": "peer_port",
    "remote_guid": "",
    "component": "",
}
"""Our names of labels of infiniband-exporter, empty where they only repeat others."""
_QUERY: Final = (
    "tailback_port_xmit_wait_ticks_total, node_infiniband_port_transmit_wait_total, "
    "infiniband_switch_port_transmit_wait_total or node_network_transmit_bytes_total, with the "
    "bytes and the rates of the same ports"
)
_UPLINK: Final = {
    "uplink": "peer",
    "uplink_port": "peer_port",
    "uplink_guid": "",
    "uplink_lid": "",
    "uplink_type": "",
}
"""Our names of labels of treydock/infiniband_exporter, empty where they only repeat others."""
_FAR_ENDS: Final = ("infiniband_hca_uplink_info", "infiniband_switch_uplink_info")
_ADAPTER: Final = "infiniband_hca_info"
"""Metric of the same exporter whose label ``hca`` is the name of an adapter."""
_HOST: Final = "node_uname_info"
"""Metric of node_exporter whose label ``nodename`` is the name of its host."""
_NODE: Final = ("node", "node_name", "switch", "host", "hostname", "nodename", "instance")
_INTERFACE: Final = ("interface", "iface", "ifname")
_PORT: Final = ("port", "port_num")
_REMEDY: Final = "save the answer of /api/v1/query_range as it is"
_LARGEST: Final = 2**64
_PLACE: Final = ("time_ns", "node_guid", "node_name", "port", "interface")


def sniff(path: Path) -> bool:
    """JSON of a Prometheus response: a status, and a result type or an error type."""
    if not is_input_file(path):
        return False
    text = head(path)[:4096]
    has_result = '"resultType"' in text or '"errorType"' in text
    return text.lstrip().startswith("{") and has_result and '"status"' in text


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the series of one answer.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every value has its time. Given, it is added to all of them.

    Raises:
        CounterError: It is damaged, an error response, or has none of the metrics.
    """
    counters = PortSeries()
    series = _series(path)
    for number, entry in enumerate(series, start=1):
        metric = entry.get("metric", {}) if isinstance(entry, dict) else None
        if not isinstance(metric, dict):
            raise _wrong(path, number, "has no metric")
        labels = {str(name): str(value) for name, value in metric.items() if value is not None}
        if counters.knows(labels.get("__name__", "")):
            counters.add(labels, _values(path, number, entry, time_ns or 0))
    if counters.empty:
        raise CounterError(
            f"none of its {len(series)} series is a counter of a port",
            file=path,
            place="data.result",
            remedy=f"query {_QUERY}",
        )
    return counters.data()


@dataclass
class PortSeries:
    """Values of metrics, gathered by port.

    Attributes:
        series: Labels of each series, and its times and values.
        hosts: Names that the host of an exporter has, by the exporter's ``instance``.
        adapters: Names of adapters by their GUID.
        unknown: Metrics that are not used.
    """

    series: list[tuple[Mapping[str, str], list[tuple[int, int | float]]]] = field(
        default_factory=list
    )
    hosts: dict[str, set[str]] = field(default_factory=dict)
    adapters: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)

    def knows(self, name: str) -> bool:
        """Whether a metric is read. Others are noted."""
        if (
            _target(name)[0]
            or name in (_HOST, _ADAPTER, INFO, *_FAR_ENDS)
            or meaning_of(name) is not None
        ):
            return True
        self.unknown.setdefault(name or "a series without a name")
        return False

    @property
    def empty(self) -> bool:
        """Whether there is no counter of a port; a rate alone is none."""
        return all(labels["__name__"] in {*_RATES, INFO} for labels, _ in self.series)

    def add(self, labels: Mapping[str, str], values: Iterable[tuple[int, int | float]]) -> None:
        """Add the values of one series, each with its time in nanoseconds.

        Args:
            labels: Its labels, ``__name__`` among them.
            values: Times and values.
        """
        if labels["__name__"] == _HOST:
            names = self.hosts.setdefault(labels.get("instance", ""), set())
            names.update([labels["nodename"]] if labels.get("nodename") else [])
        elif labels["__name__"] == _ADAPTER:
            self.adapters[labels.get("guid", "")] = labels.get("hca", "")
        else:
            if labels["__name__"] in _FAR_ENDS:
                named = {_UPLINK.get(label, label): value for label, value in labels.items()}
                labels = {
                    **{label: value for label, value in named.items() if label},
                    "__name__": INFO,
                }
            if "local_guid" in labels:
                named = {_LOCAL.get(label, label): value for label, value in labels.items()}
                labels = {label: value for label, value in named.items() if label}
            self.series.append((labels, list(values)))

    def data(self, source: str = "prometheus") -> CounterData:
        """The gathered counters."""
        columns: dict[str, list[tuple[Any, ...]]] = {}
        event_rows: list[tuple[Any, ...]] = []
        devices: dict[str, DeviceIdentity] = {}
        peers: dict[tuple[Any, ...], int | None] = {}
        adapter_gbps: dict[int, float] = {}
        for labels, values in self.series:
            name = labels["__name__"]
            column, scale = _target(name)
            guid, device, port, interface = _place(self._with_host(labels))
            if guid and column == "capacity_gbps" and _first(labels, _PORT) is None:
                # infiniband_exporter states the rate of an adapter, not of its ports.
                adapter_gbps[guid] = max((value * scale for _, value in values), default=0.0)
                continue
            devices[device.key] = device
            place = (guid, device.key, port, interface)
            if labels.get("peer"):
                far = (*place, labels["peer"])
                peers[far] = _number(labels.get("peer_port", "")) or peers.get(far)
            if name == INFO:
                continue
            if column:
                columns.setdefault(column, []).extend(
                    (time, *place, value if scale == 1 else value * scale) for time, value in values
                )
            else:
                event_rows += [(time, *place, name, int(value)) for time, value in values]
        kinds = {name: READINGS.polars_schema[name] for name in _PLACE}
        parts = [pl.DataFrame(schema=kinds)]
        for column, rows in columns.items():
            kind = _RATE_COLUMNS.get(column) or READINGS.polars_schema.get(column, pl.UInt64)
            schema = {**kinds, column: kind}
            parts.append(pl.DataFrame(rows, schema=schema, orient="row", strict=False))
        events = pl.DataFrame(event_rows, schema=port_events.READINGS, orient="row")
        # A port of which only errors are known has readings too: it is one of the ports read.
        parts.append(events.select(*_PLACE).unique(maintain_order=True))
        frame = (
            pl.concat(parts, how="diagonal")
            .group_by(_PLACE, maintain_order=True)
            .agg(pl.col(column).max() for column in columns)
        )
        frame = _with_lane_rates(with_all_drops(frame))
        if adapter_gbps:
            stated = pl.col("node_guid").replace_strict(
                adapter_gbps, default=None, return_dtype=pl.Float64
            )
            of_ports = [pl.col("capacity_gbps")] if "capacity_gbps" in frame.columns else []
            frame = frame.with_columns(capacity_gbps=pl.coalesce(*of_ports, stated))
        if "capacity_gbps" in frame.columns:
            # An interface that is down has no rate.
            rate = pl.when(pl.col("capacity_gbps") > 0).then("capacity_gbps")
            frame = frame.with_columns(capacity_gbps=rate)
        frame = frame.with_columns(source=pl.lit(source))
        return CounterData(
            conform(READINGS, frame),
            unknown=list(self.unknown),
            events=events,
            devices=devices,
            far_ends=pl.DataFrame(
                [(*far, number) for far, number in peers.items()], schema=FAR_ENDS, orient="row"
            ),
        )

    def _with_host(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        """The labels of a series with the name of its host or adapter, where that is known."""
        adapter = self.adapters.get(labels.get("guid", ""))
        if adapter and not labels.get("switch"):
            return {
                **{label: value for label, value in labels.items() if label != "hca"},
                "node": adapter,
            }
        names = self.hosts.get(labels.get("instance", ""), set())
        if len(names) != 1 or not labels["__name__"].startswith("node_"):
            return labels
        return {"nodename": next(iter(names)), **labels}


def _with_lane_rates(frame: pl.DataFrame) -> pl.DataFrame:
    """Readings with the data rate that width and speed of a lane give, instead of these."""
    if not {"lane_gbps", "lanes"} <= set(frame.columns):
        return frame.drop("lane_gbps", "lanes", strict=False)
    rates = [
        data_rate_gbps(f"{int(lanes or 0)}x", _SPEED_OF.get(gbps, ""))
        for lanes, gbps in frame.select("lanes", "lane_gbps").iter_rows()
    ]
    stated = pl.Series("capacity_gbps", rates, pl.Float64)
    return frame.drop("lane_gbps", "lanes").with_columns(stated)


def _target(metric: str) -> tuple[str, float]:
    """Column of a metric, ``""`` if it has none, and what 1 of the metric is in it."""
    return METRICS.get(metric, (_DROPS.get(normal(normal_name(metric)), ""), 1.0))


def _series(path: Path) -> list[Any]:
    """The series of the answer."""
    try:
        answer = json.loads(content(path, CounterError))
    except (ValueError, RecursionError) as error:
        at = (
            f"line {error.lineno}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else "its text"
        )
        what = quoted_text(str(error))
        raise CounterError(f"is not JSON: {what}", file=path, place=at, remedy=_REMEDY) from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        text = answer.get("error", "") if isinstance(answer, dict) else ""
        raise CounterError(
            f"is an error response: {quoted_text(str(text))}",
            file=path,
            place="status",
            remedy=_REMEDY,
        )
    result = answer.get("data", {})
    entries = result.get("result") if isinstance(result, dict) else None
    if not isinstance(entries, list) or not entries:
        raise CounterError(
            "has no series", file=path, place="data.result", remedy="widen the time of the query"
        )
    return entries


def _values(
    path: Path, number: int, entry: dict[str, Any], shift: int
) -> list[tuple[int, int | float]]:
    """Times and values of one series."""
    values = entry.get("values") or ([entry["value"]] if "value" in entry else None)
    if not isinstance(values, list) or not values:
        raise _wrong(path, number, "has no values")
    out = []
    for pair in values:
        try:
            at, text = pair
            time, value = float(at), counter_value(str(text))
        except (TypeError, ValueError):
            raise _wrong(path, number, f"has the value {quoted_text(str(pair))}") from None
        if not 0 <= time < 1e11 or value is None:
            raise _wrong(
                path,
                number,
                f"has the value {quoted_text(str(pair))}; counters are finite, not negative, and "
                "below 2^64",
            )
        out.append((round(time * 1e3) * 1_000_000 + shift, value))
    return out


def counter_value(text: str) -> int | float | None:
    """The value of a sample, None if it is not finite, negative or 2^64 or more.

    Raises:
        ValueError: It is not a number.
    """
    # Large counters are text in the response: a float would round them.
    value = int(text) if re.fullmatch(r"[0-9]{1,20}", text) else float(text)
    if not (math.isfinite(value) and 0 <= value < _LARGEST):
        return None
    return value if isinstance(value, int) or not value.is_integer() else int(value)


def _place(labels: Mapping[str, str]) -> tuple[int, DeviceIdentity, int, str | None]:
    """GUID, device, number and interface of the port of a series.

    All labels that place does not use identify the device, except the link of the port, and the
    kind of a queue: each interface has one root queue.
    """
    port_label, port = _first(labels, _PORT) or ("", "0")
    numbered_device = labels["__name__"].startswith("node_infiniband_")
    interface_label, interface = _first(labels, _INTERFACE) or (
        (_first(labels, ("device",)) if port == "0" and not numbered_device else None) or ("", None)
    )
    guid = labels.get("guid", "")
    name = _device_name(labels)
    used = {"__name__", "guid", "device", "nodename", "peer", port_label, interface_label}
    used |= {label for label in _NODE if labels.get(label) == name}
    if labels["__name__"].startswith("node_qdisc_"):
        used.add("kind")
    elif labels.get("peer"):
        used |= {"peer_port", "width", "speed"}
    labels_left = tuple(
        sorted((key, value) for key, value in labels.items() if key not in used and value)
    )
    return (
        int(guid, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", guid) else 0,
        DeviceIdentity(name, labels_left),
        _number(port) or 0,
        interface,
    )


def _number(port: str) -> int | None:
    """Number of a port, None if the text is none."""
    return int(port) if re.fullmatch(r"[0-9]{1,4}", port) else None


def _device_name(labels: Mapping[str, str]) -> str:
    """Device of a series. Each InfiniBand adapter of a host is one, named as by rdma-ndd."""
    label, name = _first(labels, _NODE) or ("", "")
    if label == "instance":
        # The address of the exporter. An exporter that reads switches does not run on them.
        name = labels.get("guid") or re.sub(r":[0-9]{1,5}$", "", name)
    name = name or labels.get("guid", "")
    adapter = labels.get("device")
    infiniband = labels["__name__"].startswith("node_infiniband_")
    return f"{name} {adapter}".strip() if infiniband and adapter else name


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str] | None:
    """Name and value of the first of some labels that a series has."""
    return next(((name, labels[name]) for name in names if labels.get(name)), None)


def _wrong(path: Path, number: int, what: str) -> CounterError:
    return CounterError(what, file=path, place=f"series {number}", remedy=_REMEDY)
