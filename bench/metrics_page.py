"""Time to write the metrics page of a large subnet: ``python bench/metrics_page.py [--ports N]``.

Prints processor seconds and size of the page that ``tailback collect --metrics`` serves, and where
the package prometheus_client is installed (it is no dependency) what it takes for the same samples.
The default is Yellowstone: 29,808 cables to switches and 4536 hosts.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from _machine import machine

from tailback.collector import MetricsBoard
from tailback.collector.readings import RAW
from tailback.port_counters.targets import PortTarget


def board_of(ports: int) -> MetricsBoard:
    """Two readings of every port, a second apart."""
    targets = [
        PortTarget(
            0x1000 + n // 36,
            f"switch{n // 36}",
            True,
            n % 36 + 1,
            7,
            54.5,
            22.0,
            "published",
            extended=True,
        )
        for n in range(ports)
    ]
    board = MetricsBoard()
    board.begin(targets)
    for second in (1, 2):
        rows = np.zeros(ports, RAW)
        rows["target"] = np.arange(ports)
        rows["time_ns"] = second * 10**9
        rows["wait"], rows["words"], rows["packets"] = 10**6 * second, 10**9 * second, 99 * second
        board.update(rows)
    return board


def by_library(page: str) -> float | None:
    """Processor seconds that prometheus_client takes for the samples of the page."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError:
        return None
    head = re.compile(r"^# TYPE (\S+) (\S+)$", re.M)
    samples: dict[str, list[tuple[list[str], float]]] = {}
    for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", page, re.M):
        texts = [text for _, text in re.findall(r'(\w+)="([^"]*)"', labels)]
        samples.setdefault(name, []).append((texts, float(value)))

    class Collector:
        def collect(self) -> Iterator[Any]:
            for name, kind in head.findall(page):
                make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                family = make(name, "", labels=["guid", "node", "port", "peer"])
                for texts, value in samples.get(name, []):
                    family.add_metric(texts, value)
                yield family

    registry = CollectorRegistry()
    registry.register(Collector())
    began = time.process_time()
    generate_latest(registry)
    return time.process_time() - began


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ports", type=int, default=29_808 + 4536)
    board = board_of(parser.parse_args().ports)
    began = time.process_time()
    page = board.metrics()
    own = time.process_time() - began
    print(
        json.dumps(
            {
                "samples": len(re.findall(r"^[^#]", page, re.M)),
                "page_bytes": len(page.encode()),
                "cpu_seconds": round(own, 2),
                "prometheus_client_cpu_seconds": by_library(page),
                "machine": machine(),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
