"""A real Prometheus scrapes a collector of a subnet under real opensm."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tailback as tb
from tests.factories.ibsim_subnet import Subnet, free_port, missing, wait_for, write_net
from tests.factories.repository import ROOT

LACKING = [*missing(), *([] if shutil.which("prometheus") else ["prometheus"])]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.tools,
    pytest.mark.skipif(bool(LACKING), reason=f"needs Debian packages: {' '.join(LACKING)}"),
]
SHAPE = {"tors": 2, "hosts": 2, "orcas": 1, "leaves": 2, "spines": 2}
RULES = ROOT / "docs" / "how-to" / "alert-rules.yml"
SWEEPS = 8
WORDS_A_SWEEP = 25_000_000


def answer(port: int, path: str, **parameters: str) -> Any:
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}?{query}", timeout=10) as reply:
        return json.load(reply)


@contextmanager
def prometheus(folder: Path, target: int) -> Iterator[int]:
    """A server that scrapes ``target`` once a second; its port."""
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{RULES}]\n"
        "scrape_configs:\n"
        f"  - job_name: tailback\n    static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
    )
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def is_scraped(port: int) -> bool:
    try:
        return answer(port, "/api/v1/query", query="up")["data"]["result"][0]["value"][1] == "1"
    except (OSError, IndexError, KeyError):
        return False


def send(subnet: Subnet, sender: tuple[str, int], receiver: tuple[str, int], sweep: int) -> None:
    """Set the counters of a cable that loses every second packet."""
    words = WORDS_A_SWEEP * sweep
    subnet.console(
        [
            f'PerformanceSet "{sender[0]}"[{sender[1]}] PortCountersExtended.PortXmitData={words}',
            f'PerformanceSet "{receiver[0]}"[{receiver[1]}] '
            f"PortCountersExtended.PortRcvData={words // 2}",
            f'PerformanceSet "{sender[0]}"[{sender[1]}] '
            f"PortCounters.PortXmitWait={6_000_000 * sweep}",
        ]
    )


def test_server_has_what_the_collection_has(tmp_path: Path) -> None:
    write_net(tmp_path / "fabric.net", **SHAPE)
    metrics = free_port()
    with Subnet(tmp_path / "fabric.net", tmp_path) as subnet:
        # An interval of a fraction of a second, so that the edges of the comparison are small.
        child = subnet.start(
            "collect", "--out", "c", "--interval", "0.5 s", "--metrics", str(metrics)
        )
        try:
            with prometheus(tmp_path, metrics) as server:
                assert wait_for(lambda: is_scraped(server), 30)
                begun = time.time()
                watched, hottest = tb.watch(tmp_path / "c"), set()
                spine = f"S-{0x0002C90300A00000:016x}"
                leaf = f"S-{0x0002C90300900000:016x}"
                far = subnet_port(tmp_path / "fabric.net", spine, 1, leaf)
                for sweep in range(1, SWEEPS + 1):
                    send(subnet, (spine, 1), (leaf, far), sweep)
                    for _ in range(4):
                        time.sleep(0.25)
                        hottest |= {port.name for port in watched.look().view.hottest}
                page = urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics").read()
                range_ = {"start": str(begun - 5), "end": str(time.time()), "step": "1"}
                names = '{__name__=~"tailback_port_.*_(total|gbps)"}'
                series = answer(server, "/api/v1/query_range", query=names, **range_)
                rules = answer(server, "/api/v1/rules")["data"]["groups"]
                live = json.loads(subnet.tailback("watch", "c", "--once", "--format", "json"))
        finally:
            child.terminate()
            _, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert rules and {rule["health"] for group in rules for rule in group["rules"]} == {"ok"}
    (tmp_path / "answer.json").write_text(json.dumps(series))
    collected = tb.counters(tmp_path / "c")
    served = tb.counters(tmp_path / "answer.json")
    key = ["node_guid", "port"]
    both = collected.frame.join(served.frame, on=key, suffix="_served")
    assert both.height == collected.frame.height == live["ports"]
    sent = both.filter(pl.col("sent_bytes") > 10**8).row(0, named=True)
    # The simulator also counts management datagrams, before the counters are set.
    assert sent["sent_bytes"] == pytest.approx(4 * WORDS_A_SWEEP * SWEEPS, rel=1e-3)
    # The server's last scrape may be before the last sweep.
    assert sent["sent_bytes_served"] >= 3.9 * WORDS_A_SWEEP * (SWEEPS - 2)
    assert hottest == {f"orca1/S01[1] → orca1/L01[{far}]"}
    (ill,) = collected.facts["ill_links"]
    assert ill["signs"] == ["unequal"] and ill["what"] == "50.0 % lost from orca1/S01[1] on"


def subnet_port(net: Path, device: str, port: int, far: str) -> int:
    """Port of ``far`` that a cable of ``device`` leads to."""
    block = net.read_text().partition(f'"{device}"\t\t#')[2]
    line = next(line for line in block.splitlines() if line.startswith(f"[{port}]"))
    assert f'"{far}"[' in line
    return int(line.partition(f'"{far}"[')[2].partition("]")[0])
