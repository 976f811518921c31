"""The same counters in every format that can hold them give the same ranking and findings."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import tailback as tb
from tailback.api.counters import CountersResult
from tailback.collector import mad as mads
from tailback.collector.readings import ERRORS, RAW
from tailback.collector.store import Collection
from tailback.port_counters.readers import READERS
from tailback.port_counters.targets import GIVEN, PortTarget
from tests.factories.counter_files import put

SPACING_S = 10
START = 1_700_000_000
TICK_NS = 22.0
TOP = 2**32 - 1
FULL_STALL = SPACING_S * 1e9 / TICK_NS
"""Ticks of a port that waits all the time from one sweep to the next."""


@dataclass(frozen=True)
class Reading:
    """Counters of one port at one instant.

    Attributes:
        words: Data sent, in words of 4 octets.
        packets: Packets sent.
        wait: PortXmitWait.
        symbol: Symbol errors, 16 bits.
        downed: Times that the link went down, 8 bits.
        discards: Packets discarded instead of being sent, 16 bits.
        pauses: Pause frames received; Ethernet only.
    """

    words: int
    packets: int
    wait: int
    symbol: int
    downed: int
    discards: int
    pauses: int = 0


Sweeps = list[dict[int, Reading]]
"""Readings of ports by number, of each sweep."""


@st.composite
def sweeps_of_ports(draw: st.DrawFn) -> Sweeps:
    """Two or three sweeps of up to four ports, each with one thing that may go wrong.

    Counters are above 0, as ibqueryerrors leaves out those that are 0.
    """
    count = draw(st.integers(2, 3))
    sweeps: Sweeps = [{} for _ in range(count)]
    for port in range(1, draw(st.integers(1, 4)) + 1):
        kind = draw(st.sampled_from(("plain", "wrap", "reset", "latched", "missing", "errors")))
        # The largest and a further number of ticks differ by more than a tie.
        pace = draw(st.integers(0, 20)) * FULL_STALL / 25 + port * FULL_STALL / 10_000
        wait = TOP - round(1.5 * pace) if kind == "wrap" else draw(st.integers(1, 2**31))
        if kind == "latched":
            wait = draw(st.sampled_from((TOP, TOP - round(pace / 2))))
        symbol, downed, discards = (draw(st.integers(1, most)) for most in (60_000, 200, 60_000))
        missing = draw(st.integers(0, count - 1)) if kind == "missing" and count == 3 else -1
        for number in range(count):
            waited = wait + round(number * pace)
            if kind == "reset" and number == count - 1:
                waited = round(pace / 2) + 1
            elif kind == "latched":
                waited = min(waited, TOP)
            elif waited > TOP:
                waited -= TOP + 1
            rises = number * (kind == "errors")
            reading = Reading(
                words=1000 + 1_000_000 * port * number,
                packets=10 + 1000 * port * number,
                wait=waited,
                symbol=min(symbol + rises * draw(st.integers(0, 10_000)), 65_535),
                downed=min(downed + rises * draw(st.integers(0, 100)), 255),
                discards=min(discards + rises * draw(st.integers(0, 10_000)), 65_535),
                pauses=5 + number * (kind == "wrap"),
            )
            if number and port in sweeps[number - 1]:
                earlier = sweeps[number - 1][port]
                reading = Reading(
                    reading.words,
                    reading.packets,
                    reading.wait,
                    max(reading.symbol, earlier.symbol),
                    max(reading.downed, earlier.downed),
                    max(reading.discards, earlier.discards),
                    reading.pauses,
                )
            if number != missing:
                sweeps[number][port] = reading
    return sweeps


# --- the formats
# ------------------------------------------------------------------------------

_ERRORS = {
    "symbol": "SymbolErrorCounter",
    "downed": "LinkDownedCounter",
    "discards": "PortXmitDiscards",
}
_PERFQUERY = _ERRORS | {
    "words": "PortXmitData",
    "packets": "PortXmitPkts",
    "wait": "PortXmitWait",
}
_SYSFS = {
    "symbol": "symbol_error",
    "downed": "link_downed",
    "discards": "port_xmit_discards",
    "words": "port_xmit_data",
    "packets": "port_xmit_packets",
    "wait": "port_xmit_wait",
}


def perfquery(folder: Path, sweeps: Sweeps) -> list[Path]:
    return [
        put(
            folder,
            f"{number}.txt",
            "".join(
                f"# Port counters: Lid 7 port {port} (CapMask: 0x1400)\n"
                + "".join(f"{name}:....{getattr(r, key)}\n" for key, name in _PERFQUERY.items())
                for port, r in ports.items()
            )
            or "# Port counters: Lid 7 port 255 (CapMask: 0x1400)\n",
        )
        for number, ports in enumerate(sweeps)
    ]


def ibqueryerrors(folder: Path, sweeps: Sweeps) -> list[Path]:
    lines = [
        "".join(
            f"   GUID 0x2c9 port {port}: "
            + " ".join(f"[{name} == {getattr(r, key)}]" for key, name in _PERFQUERY.items())
            + "\n"
            for port, r in ports.items()
        )
        for ports in sweeps
    ]
    # A port that is not printed was below the thresholds, unless its query failed.
    every_port = {port for ports in sweeps for port in ports}
    failed = [len(every_port - ports.keys()) for ports in sweeps]
    return [
        put(
            folder,
            f"{number}.txt",
            'Errors for "sw"\n'
            + (text or "   GUID 0x2c9 port ALL:\n")
            + (f"## {failed[number]} PMA query failures\n" if failed[number] else ""),
        )
        for number, text in enumerate(lines)
    ]


def sysfs(folder: Path, sweeps: Sweeps) -> list[Path]:
    for number, ports in enumerate(sweeps):
        put(folder, f"{number}/m/node_guid", "0002:c903:0000:00ab\n")
        (folder / f"{number}/m/ports").mkdir(exist_ok=True)
        for port, r in ports.items():
            for key, name in _SYSFS.items():
                text = f"{getattr(r, key)}\n"
                put(folder, f"{number}/m/ports/{port}/counters/{name}", text)
    return [folder / str(number) for number in range(len(sweeps))]


def recorded_infiniband(folder: Path, sweeps: Sweeps) -> list[Path]:
    head = "time_utc,node,iface,tx_bytes,tx_packets,xmit_wait,symbol_error,link_downed,"
    rows = [
        f"{START + SPACING_S * number},sw,m/{port},{4 * r.words},{r.packets},{r.wait},{r.symbol},"
        f"{r.downed},{r.discards}\n"
        for number, ports in enumerate(sweeps)
        for port, r in ports.items()
    ]
    return [put(folder, "a.csv", head + "port_xmit_discards\n" + "".join(rows))]


def ldms_ibnet(folder: Path, sweeps: Sweeps) -> list[Path]:
    rows = [
        f"{START + SPACING_S * number},0,n,7,{port},"
        + ",".join(str(getattr(r, key)) for key in _PERFQUERY)
        + "\n"
        for number, ports in enumerate(sweeps)
        for port, r in ports.items()
    ]
    head = "#Time,Time_usec,ProducerName,lid,port," + ",".join(_PERFQUERY.values()) + "\n"
    return [put(folder, "a.csv", head + "".join(rows))]


def series(sweeps: Sweeps, names: dict[str, str], labels: str) -> list[tuple[str, str, int, int]]:
    """Metric, labels, number of the sweep and value of each sample."""
    return [
        (name, labels.format(port=port), number, getattr(r, key) * (4 if key == "words" else 1))
        for key, name in names.items()
        for number, ports in enumerate(sweeps)
        for port, r in ports.items()
    ]


_TAILBACK = {
    "words": "tailback_port_xmit_bytes_total",
    "packets": "tailback_port_xmit_packets_total",
    "wait": "tailback_port_xmit_wait_ticks_total",
    "symbol": "tailback_port_symbol_error_total",
    "downed": "tailback_port_link_downed_total",
    "discards": "tailback_port_transmit_discards_total",
}
_NODE_EXPORTER = {
    "words": "node_infiniband_port_data_transmitted_bytes_total",
    "packets": "node_infiniband_port_packets_transmitted_total",
    "wait": "node_infiniband_port_transmit_wait_total",
    "symbol": "node_infiniband_symbol_error_total",
    "downed": "node_infiniband_link_downed_total",
    "discards": "node_infiniband_port_discards_transmitted_total",
}
_SWITCH_EXPORTER = {
    "words": "infiniband_switch_port_transmit_data_bytes_total",
    "packets": "infiniband_switch_port_transmit_packets_total",
    "wait": "infiniband_switch_port_transmit_wait_total",
    "symbol": "infiniband_switch_port_symbol_error_total",
    "downed": "infiniband_switch_port_link_downed_total",
    "discards": "infiniband_switch_port_transmit_discards_total",
}


def exposition(names: dict[str, str], labels: str) -> Callable[[Path, Sweeps], list[Path]]:
    def write(folder: Path, sweeps: Sweeps) -> list[Path]:
        pages = ["# TYPE up gauge\n"] * len(sweeps)
        for name, label, number, value in series(sweeps, names, labels):
            pages[number] += f"{name}{{{label}}} {value}\n"
        return [put(folder, f"{number}.prom", page) for number, page in enumerate(pages)]

    return write


def prometheus(names: dict[str, str], labels: str) -> Callable[[Path, Sweeps], list[Path]]:
    def write(folder: Path, sweeps: Sweeps) -> list[Path]:
        result: dict[tuple[str, str], list[object]] = {}
        for name, label, number, value in series(sweeps, names, labels):
            result.setdefault((name, label), []).append([START + SPACING_S * number, str(value)])
        data = [
            {
                "metric": {"__name__": name}
                | dict(pair.replace('"', "").split("=") for pair in label.split(",")),
                "values": values,
            }
            for (name, label), values in result.items()
        ]
        answer = {"status": "success", "data": {"resultType": "matrix", "result": data}}
        return [put(folder, "a.json", json.dumps(answer))]

    return write


def collected(folder: Path, sweeps: Sweeps) -> list[Path]:
    numbers = sorted({port for ports in sweeps for port in ports})
    targets = [
        PortTarget(0x2C9, "sw", True, port, 7, 0.0, TICK_NS, GIVEN, tick_bytes=0)
        for port in numbers
    ]
    collection = Collection(folder / "c")
    writer = collection.begin(targets, {})
    for number, ports in enumerate(sweeps):
        rows, errors = np.zeros(len(ports), RAW), np.zeros(len(ports), ERRORS)
        for at, (port, r) in enumerate(ports.items()):
            values = dict.fromkeys(mads.ERROR_COUNTERS, 0)
            values |= {name: getattr(r, key) for key, name in _ERRORS.items()}
            when, target = (START + SPACING_S * number) * 10**9, numbers.index(port)
            rows[at] = (when, target, 0, 0, r.wait, r.words, r.packets, 0, 0)
            errors[at] = (when, target, tuple(values.values()))
        writer.append(rows)
        writer.append(errors)
    writer.close()
    collection.compact()
    collection.close()
    return [folder / "c"]


def influx_line(folder: Path, sweeps: Sweeps) -> list[Path]:
    rows = [
        f"infiniband,device=m,host=sw,port={port} "
        + ",".join(f"{name}={getattr(r, key)}i" for key, name in _SYSFS.items())
        + f" {(START + SPACING_S * number) * 10**9}\n"
        for number, ports in enumerate(sweeps)
        for port, r in ports.items()
    ]
    return [put(folder, "a.line", "".join(rows))]


def ufm_csv(folder: Path, sweeps: Sweeps) -> list[Path]:
    rows = [
        f"{(START + SPACING_S * number) * 10**6},0x2c9,{port},"
        + ",".join(str(getattr(r, key)) for key in _PERFQUERY)
        + "\n"
        for number, ports in enumerate(sweeps)
        for port, r in ports.items()
    ]
    head = "timestamp,node_guid,port_num," + ",".join(_PERFQUERY.values()) + "\n"
    return [put(folder, "a.csv", head + "".join(rows))]


def ibdiagnet(folder: Path, sweeps: Sweeps) -> list[Path]:
    head = "START_PM_INFO\nNodeGUID,PortNumber," + ",".join(_PERFQUERY.values()) + "\n"
    pages = [
        head
        + "".join(
            f"0x2c9,{port}," + ",".join(str(getattr(r, key)) for key in _PERFQUERY) + "\n"
            for port, r in ports.items()
        )
        + "END_PM_INFO\n"
        for ports in sweeps
    ]
    return [put(folder, f"{number}.db_csv", page) for number, page in enumerate(pages)]


_PLACE, _DEVICE = 'node="sw",port="{port}"', 'instance="sw",device="m",port="{port}"'
INFINIBAND: dict[str, Callable[[Path, Sweeps], list[Path]]] = {
    "perfquery": perfquery,
    "ibqueryerrors": ibqueryerrors,
    "sysfs": sysfs,
    "recorded-infiniband": recorded_infiniband,
    "ldms-csv": ldms_ibnet,
    "exposition": exposition(_TAILBACK, _PLACE),
    "exposition of switches": exposition(_SWITCH_EXPORTER, 'switch="sw",port="{port}"'),
    "exposition of hosts": exposition(_NODE_EXPORTER, _DEVICE),
    "prometheus": prometheus(_TAILBACK, _PLACE),
    "prometheus of switches": prometheus(_SWITCH_EXPORTER, 'switch="sw",port="{port}"'),
    "prometheus of hosts": prometheus(_NODE_EXPORTER, _DEVICE),
    "influx-line": influx_line,
    "ufm-csv": ufm_csv,
    "ibdiagnet": ibdiagnet,
    "collection": collected,
}
"""Writers of every format of InfiniBand counters, by reader and kind of source."""

UNTIMED = ("perfquery", "ibdiagnet", "ibqueryerrors", "sysfs", "exposition")
OTHERS = {"cxi", "engine-run", "mlxlink", "opapmaquery", "perfquery-rounds"}
"""Readers that are not compared: Slingshot's count times, the engine no errors, rounds and mlxlink
no bytes, Omni-Path's counters all have 64 bits."""


def ethernet_csv(folder: Path, sweeps: Sweeps) -> list[Path]:
    head = "time,node,interface,tx_bytes,tx_packets,rx_crc_errors,tx_discards,rx_prio3_pause\n"
    rows = [
        f"{START + SPACING_S * number},sw,swp{port},{4 * r.words},{r.packets},{r.symbol},"
        f"{r.discards},{r.pauses}\n"
        for number, ports in enumerate(sweeps)
        for port, r in ports.items()
    ]
    return [put(folder, "a.csv", head + "".join(rows))]


def ethtool(folder: Path, sweeps: Sweeps) -> list[Path]:
    texts = [
        "".join(
            f"# sw swp{port} {START + SPACING_S * number}\nNIC statistics:\n"
            f"     tx_bytes: {4 * r.words}\n     tx_packets: {r.packets}\n"
            f"     rx_crc_errors: {r.symbol}\n     tx_dropped: {r.discards}\n"
            f"     rx_prio3_pause: {r.pauses}\n"
            for port, r in ports.items()
        )
        for number, ports in enumerate(sweeps)
    ]
    return [put(folder, f"{number}.txt", text) for number, text in enumerate(texts) if text]


_SAI = {
    "SAI_PORT_STAT_IF_OUT_UCAST_PKTS": "packets",
    "SAI_PORT_STAT_IF_IN_ERRORS": "symbol",
    "SAI_PORT_STAT_IF_OUT_DISCARDS": "discards",
    "SAI_PORT_STAT_PFC_3_RX_PKTS": "pauses",
}


def sonic(folder: Path, sweeps: Sweeps) -> list[Path]:
    paths = []
    for number, ports in enumerate(sweeps):
        names = {f"swp{port}": f"oid:{port}" for port in ports}
        dump = {"COUNTERS_PORT_NAME_MAP": names}
        for port, r in ports.items():
            counters = {name: str(getattr(r, key)) for name, key in _SAI.items()}
            counters |= {"SAI_PORT_STAT_IF_OUT_OCTETS": str(4 * r.words)}
            counters |= {"SAI_PORT_STAT_IF_OUT_NON_UCAST_PKTS": "0"}
            dump[f"COUNTERS:oid:{port}"] = counters
        if ports:
            paths.append(put(folder / str(number), "sw.json", json.dumps(dump)))
            seconds = START + SPACING_S * number
            os.utime(paths[-1], (seconds, seconds))
    return paths


def gnmi(folder: Path, sweeps: Sweeps) -> list[Path]:
    documents = [
        {
            "timestamp": (START + SPACING_S * number) * 10**9,
            "tags": {"source": "sw:6030", "interface_name": f"swp{port}"},
            "values": {
                "/interfaces/interface/state/counters/out-octets": 4 * r.words,
                "/interfaces/interface/state/counters/out-pkts": str(r.packets),
                "/interfaces/interface/state/counters/in-errors": r.symbol,
                "/interfaces/interface/state/counters/out-discards": r.discards,
                "/qos/counters/rx-prio3-pause": r.pauses,
            },
        }
        for number, ports in enumerate(sweeps)
        for port, r in ports.items()
    ]
    return [put(folder, "a.json", "\n".join(map(json.dumps, documents)))]


_NETDEV = {
    "words": "node_network_transmit_bytes_total",
    "packets": "node_network_transmit_packets_total",
    "symbol": "node_ethtool_rx_crc_errors",
    "discards": "node_ethtool_tx_discards",
    "pauses": "node_ethtool_rx_prio3_pause",
}
_INTERFACE = 'instance="sw",device="swp{port}"'
ETHERNET: dict[str, Callable[[Path, Sweeps], list[Path]]] = {
    "ethernet-csv": ethernet_csv,
    "ethtool": ethtool,
    "sonic": sonic,
    "gnmi": gnmi,
    "prometheus of interfaces": prometheus(_NETDEV, _INTERFACE),
    "exposition of interfaces": exposition(_NETDEV, _INTERFACE),
}
"""Writers of every format of Ethernet counters."""


def analysed(source: str, folder: Path, sweeps: Sweeps) -> CountersResult:
    folder = folder / source
    files = (INFINIBAND | ETHERNET)[source](folder, sweeps)
    untimed = source.split(" ")[0] in UNTIMED
    tick_ns = TICK_NS if source in INFINIBAND else None
    return tb.counters(files, every_ns=SPACING_S * 10**9 if untimed else None, tick_ns=tick_ns)


def ranking(result: CountersResult) -> list[tuple[object, ...]]:
    """Ports in order, with their stall and whether their counter is full."""
    ports = result.verdict.ports
    return [
        (
            row["port"],
            None if row["stall_fraction"] is None else f"{row['stall_fraction']:.9f}",
            row["stall_at_least"] is not None,
        )
        for row in ports.to_dicts()
    ]


def findings(result: CountersResult) -> list[tuple[object, ...]]:
    return sorted(
        (row["finding"], row["port"], row["count"], len(row["full"]), row["since_reset"])
        for row in result.verdict.events.to_dicts()
    )


ONCE = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # Each example is read in up to twelve formats, so shrinking one would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def test_every_reader_is_compared() -> None:
    compared = {source.split(" ")[0] for source in INFINIBAND | ETHERNET}
    assert compared | OTHERS == set(READERS.names())


def reading_of(sweep: int, wait: int) -> Reading:
    return Reading(1000 + 1000 * sweep, 10 + 10 * sweep, wait, symbol=1, downed=1, discards=1)


STALLED = round(0.56 * FULL_STALL)
UNREAD_FIRST: Sweeps = [
    {2: reading_of(0, 1)},
    {1: reading_of(1, STALLED), 2: reading_of(1, 2)},
    {1: reading_of(2, 2 * STALLED), 2: reading_of(2, 3)},
]
"""The first query of port 1 failed."""


@pytest.mark.slow
@given(sweeps=sweeps_of_ports())
@example(sweeps=UNREAD_FIRST)
@ONCE
def test_formats_agree(tmp_path_factory: pytest.TempPathFactory, sweeps: Sweeps) -> None:
    folder = tmp_path_factory.mktemp("formats")
    results = {source: analysed(source, folder, sweeps) for source in INFINIBAND}
    expected = results["perfquery"]
    for source, result in results.items():
        assert ranking(result) == ranking(expected), source
        assert findings(result) == findings(expected), source
        assert result.verdict.kind == expected.verdict.kind, source
        assert result.verdict.unknown == [], source


@pytest.mark.slow
@given(sweeps=sweeps_of_ports())
@ONCE
def test_ethernet_formats_agree(tmp_path_factory: pytest.TempPathFactory, sweeps: Sweeps) -> None:
    folder = tmp_path_factory.mktemp("formats")
    results = {source: analysed(source, folder, sweeps) for source in ETHERNET}
    expected = results["ethernet-csv"]
    for source, result in results.items():
        assert findings(result) == findings(expected), source
        assert result.verdict.kind == expected.verdict.kind, source
        assert result.verdict.unknown == [], source
