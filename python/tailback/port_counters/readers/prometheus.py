"""Answers of a Prometheus server to a range query over counters of ports.

The response of ``/api/v1/query_range`` (or ``/api/v1/query``), saved as JSON, plain or gzip::

    curl 'http://prometheus:9090/api/v1/query_range?query={__name__=~"tailback_port_.*_total"}&…'

The reader knows the metrics of ``tailback collect``, of node_exporter's infiniband and netdev
collectors, and of exporters with the same names. Each series must be the counter itself, not its
rate.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Final

import polars as pl

from tailback.input_files import content, head, is_input_file
from tailback.port_counters.readers.model import CounterData, numbered, quoted_text
from tailback.port_counters.schema import READINGS, CounterError, conform

HAS_TIME_STAMPS = True

METRICS: Final = {
    "tailback_port_xmit_bytes_total": "data_bytes",
    "tailback_port_xmit_packets_total": "packets",
    "tailback_port_xmit_wait_ticks_total": "xmit_wait_ticks",
    "node_infiniband_port_data_transmitted_bytes_total": "data_bytes",
    "node_infiniband_port_packets_transmitted_total": "packets",
    "node_infiniband_port_transmit_wait_total": "xmit_wait_ticks",
    "infiniband_port_xmit_data_bytes_total": "data_bytes",
    "infiniband_port_xmit_wait_total": "xmit_wait_ticks",
    "node_network_transmit_bytes_total": "data_bytes",
    "node_network_transmit_packets_total": "packets",
    "node_network_transmit_drop_total": "drops",
    "node_qdisc_backlog": "backlog_bytes",
    "node_qdisc_drops_total": "drops",
    "node_qdisc_overlimits_total": "overlimits",
}
"""Counter of each metric that is read."""

_NODE: Final = ("node", "node_name", "switch", "host", "hostname", "instance")
_INTERFACE: Final = ("interface", "iface", "ifname")
_PORT: Final = ("port", "port_num")
_REMEDY: Final = "save the answer of /api/v1/query_range as it is"
_LARGEST: Final = 2**64


def sniff(path: Path) -> bool:
    """JSON of a Prometheus response: a status, and a result type or an error type."""
    if not is_input_file(path):
        return False
    text = head(path)[:4096]
    known = '"resultType"' in text or '"errorType"' in text
    return text.lstrip().startswith("{") and known and '"status"' in text


def read(path: Path, *, time_ns: int | None = None) -> CounterData:
    """Read the series of one answer.

    Args:
        path: The file, plain or gzip.
        time_ns: Not needed: every value has its time. Given, it is added to all of them.

    Raises:
        CounterError: It is damaged, an error response, or has none of the metrics.
    """
    series = _series(path)
    parts: list[pl.DataFrame] = []
    unknown: dict[str, None] = {}
    for number, one in enumerate(series, start=1):
        metric = one.get("metric", {}) if isinstance(one, dict) else None
        if not isinstance(metric, dict):
            raise _wrong(path, number, "has no metric")
        name = str(metric.get("__name__", ""))
        column = METRICS.get(name)
        if column is None:
            unknown[name or "a series without a name"] = None
            continue
        parts.append(_rows(path, number, one, metric, column, time_ns or 0))
    if not parts:
        raise CounterError(
            f"none of its {len(series)} series is a counter of a port",
            file=path, place="data.result",
            remedy=f"query one of: {', '.join(METRICS)}",
        )  # fmt: skip
    place = ["time_ns", "node_guid", "node_name", "port", "interface"]
    columns = list(dict.fromkeys(METRICS.values()))
    frame = pl.concat(parts, how="diagonal").group_by(place, maintain_order=True).agg(
        pl.col(c).max() for c in columns if any(c in part.columns for part in parts)
    )  # fmt: skip
    frame = frame.with_columns(source=pl.lit("prometheus"))
    return CounterData(numbered(conform(READINGS, frame)), unknown=list(unknown))


def _series(path: Path) -> list[Any]:
    """The series of the answer."""
    try:
        answer = json.loads(content(path, CounterError))
    except (ValueError, RecursionError) as error:
        at = f"line {error.lineno}, column {error.colno}" if isinstance(
            error, json.JSONDecodeError) else "its text"  # fmt: skip
        what = quoted_text(str(error))
        raise CounterError(f"is not JSON: {what}", file=path, place=at, remedy=_REMEDY) from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        text = answer.get("error", "") if isinstance(answer, dict) else ""
        raise CounterError(
            f"is an error response: {quoted_text(str(text))}",
            file=path, place="status", remedy=_REMEDY,
        )  # fmt: skip
    result = answer.get("data", {})
    found = result.get("result") if isinstance(result, dict) else None
    if not isinstance(found, list) or not found:
        raise CounterError(
            "has no series", file=path, place="data.result", remedy="widen the time of the query"
        )
    return found


def _rows(
    path: Path, number: int, one: dict[str, Any], metric: dict[str, Any], column: str, shift: int
) -> pl.DataFrame:
    """Values of one series as readings of one counter."""
    values = one.get("values") or ([one["value"]] if "value" in one else None)
    if not isinstance(values, list) or not values:
        raise _wrong(path, number, "has no values")
    times, counts = [], []
    for pair in values:
        try:
            at, text = pair
            time, value = float(at), float(text)
        except (TypeError, ValueError):
            raise _wrong(path, number, f"has the value {quoted_text(str(pair))}") from None
        if not (0 <= time < 1e11 and math.isfinite(value) and 0 <= value < _LARGEST):
            raise _wrong(
                path,
                number,
                f"has the value {quoted_text(str(pair))}; counters are finite, not negative, and "
                "below 2^64",
            )
        times.append(round(time * 1e3) * 1_000_000 + shift)
        # Large counters are text in the response: a float would round them.
        digits = str(text)
        counts.append(int(digits) if re.fullmatch(r"[0-9]{1,20}", digits) else int(value))
    port = str(_first(metric, _PORT) or "0")
    interface = _first(metric, _INTERFACE) or (
        _first(metric, ("device",)) if column != "xmit_wait_ticks" and port == "0" else None
    )
    guid = str(metric.get("guid", "0"))
    return pl.DataFrame(
        {"time_ns": times, column: counts}, schema={"time_ns": pl.Int64, column: pl.UInt64}
    ).with_columns(
        node_guid=pl.lit(int(guid, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", guid) else 0,
                         pl.UInt64),
        node_name=pl.lit(_node(metric), pl.String),
        port=pl.lit(int(port) if re.fullmatch(r"[0-9]{1,4}", port) else 0, pl.UInt16),
        interface=pl.lit(None if interface is None else str(interface), pl.String),
    )  # fmt: skip


def _node(metric: dict[str, Any]) -> str:
    """Device of a series; each InfiniBand adapter of a host is one, named as by rdma-ndd."""
    name = str(_first(metric, _NODE) or "")
    if name == metric.get("instance"):
        name = re.sub(r":[0-9]{1,5}$", "", name)  # the port that the exporter listens on
    adapter = metric.get("device")
    infiniband = str(metric.get("__name__", "")).startswith("node_infiniband_")
    return f"{name} {adapter}" if infiniband and adapter else name


def _first(metric: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((metric[name] for name in names if metric.get(name) not in (None, "")), None)


def _wrong(path: Path, number: int, what: str) -> CounterError:
    return CounterError(what, file=path, place=f"series {number}", remedy=_REMEDY)
