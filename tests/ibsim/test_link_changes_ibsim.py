"""Changes of links under real opensm: named by the collector within ten seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tailback.collector.segments import read_segment
from tailback.port_counters.changes import changes_of
from tailback.port_counters.schema import Flag
from tests.factories.ibsim_subnet import Subnet, missing, wait_for, write_net

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tools,
    pytest.mark.skipif(bool(missing()), reason=f"needs Debian packages: {' '.join(missing())}"),
]
SHAPE = {"tors": 2, "hosts": 4, "orcas": 1, "leaves": 2, "spines": 2}
LONGEST_S = 10
SWEEP_S = 12
"""opensm sweeps every 10 s. It may activate a link that comes back at the next sweep only."""


@pytest.fixture
def subnet(tmp_path: Path) -> Iterator[Subnet]:
    write_net(tmp_path / "fabric.net", **SHAPE)
    with Subnet(tmp_path / "fabric.net", tmp_path) as running:
        yield running


def recorded(subnet: Subnet) -> list[dict[str, Any]]:
    """The changes in the segments of the collection."""
    events: list[dict[str, Any]] = []
    for path in sorted((subnet.folder / "c" / "segments").glob("*.segment")):
        segment = read_segment(path)
        events += segment.events if segment is not None else []
    folder = subnet.folder / "c" / "events"
    events += [e for p in sorted(folder.glob("*.jsonl")) for e in pl.read_ndjson(p).to_dicts()]
    return changes_of(events).to_dicts()


def seen(subnet: Subnet, kind: str, *names: str, within_s: float = LONGEST_S) -> dict[str, Any]:
    """The change of that kind that names these devices; fails if it takes too long."""
    begun = time.monotonic()
    changes_seen: list[dict[str, Any]] = []

    def is_there() -> bool:
        changes_seen[:] = [
            change
            for change in recorded(subnet)
            if change["change"] == kind
            and set(names) <= {change["node_name"].split()[0], str(change["peer_name"]).split()[0]}
        ]
        return bool(changes_seen)

    assert wait_for(is_there, within_s), f"{kind} of {names}: {recorded(subnet)}"
    return changes_seen[-1] | {"seconds": time.monotonic() - begun}


def ends(net: str, name: str) -> tuple[str, list[tuple[int, str, int]]]:
    """ibsim's name of a device, and its cables: port, far device, far port."""
    block = re.search(rf'^(?:Switch|Ca)\t\d+ "(\S+)"\t+# "{name}.*\n((?:\[.*\n)+)', net, re.M)
    assert block
    ports = re.findall(r'^\[(\d+)\].*?"(\S+?)"\[(\d+)\]', block[2], re.M)
    return block[1], [(int(port), far, int(number)) for port, far, number in ports]


def test_each_change_is_named_within_ten_seconds(
    subnet: Subnet, record_property: Callable[[str, object], None]
) -> None:
    def record_row(fault: str, change: dict[str, Any]) -> None:
        said = f"`{change['change']}`, both ends" if change["port"] else f"`{change['change']}`"
        record_property("fault", f"{fault} | {said} | {change['seconds']:.1f} s")

    net = (subnet.folder / "fabric.net").read_text()
    host, [(host_port, tor, tor_port)] = ends(net, "ys000n01")
    moved, [(moved_port, _, _)] = ends(net, "ys001n02")
    pulled, [(pulled_port, far_tor, far_port)] = ends(net, "ys001n03")
    spine, cables = ends(net, "orca1/S02")
    child = subnet.start("collect", "--out", "c", "--interval", "1 s")
    try:
        segments = subnet.folder / "c" / "segments"
        assert wait_for(lambda: any(segments.glob("*.segment")), 30)
        time.sleep(3)
        subnet.console([f'Unlink "{host}"[{host_port}]'])
        down = seen(subnet, "link down", "tor000", "ys000n01")
        assert down["port"] in (host_port, tor_port)
        record_row("cable pulled", down)
        subnet.console([f'Unlink "{moved}"[{moved_port}]'])
        seen(subnet, "link down", "tor001", "ys001n02")
        subnet.console([f'Link "{moved}"[{moved_port}] "{tor}"[{tor_port}]'])
        moved_back = seen(subnet, "recabled", "tor000", "ys001n02", within_s=LONGEST_S + SWEEP_S)
        assert moved_back["before"].startswith("tor001[")
        record_row("cable plugged elsewhere", moved_back)
        lid = re.search(r"tor001.* lid (\d+)", subnet.run("ibswitches"))
        assert lid
        subnet.run("ibportstate", lid[1], "1", "width", "1")
        narrow = seen(subnet, "width", "tor001", "ys001n01")
        assert (narrow["before"], narrow["after"]) == ("4x", "1x")
        record_row("link loses lanes", narrow)
        subnet.console([f'Unlink "{spine}"[{port}]' for port, _, _ in cables])
        lost = seen(subnet, "switch lost", "orca1/S02")
        assert lost["links"] == len(cables)
        record_row("switch lost", lost)
        subnet.console([f'Link "{spine}"[{p}] "{far}"[{number}]' for p, far, number in cables])
        again = seen(subnet, "switch found", "orca1/S02", within_s=LONGEST_S + SWEEP_S)
        assert again["after"] == "back"
        record_row("switch back", again)
        subnet.console([f'Unlink "{pulled}"[{pulled_port}]'])
        seen(subnet, "link down", "tor001", "ys001n03")
        subnet.console([f'Link "{pulled}"[{pulled_port}] "{far_tor}"[{far_port}]'])
        up = seen(subnet, "link up", "tor001", "ys001n03", within_s=LONGEST_S + SWEEP_S)
        record_row("cable back", up)
    finally:
        child.terminate()
        _, err = child.communicate(timeout=30)
    assert child.returncode == 0, err
    intervals = pl.read_parquet(subnet.folder / "c" / "intervals" / "*.parquet")
    untouched = intervals.filter(pl.col("node_name").str.starts_with("ys000n03"))
    assert untouched.height >= 3 and not (untouched["flags"] & int(Flag.GAP)).sum()
