"""The storage and analysis systems of Yellowstone."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from studies.production_networks import analysis_system
from studies.production_networks.analysis_system import LINE_GBPS, PUBLISHED, Use, stalls

USE = Use(files=0.1, reads=0.5, copies=0.1, jobs=0.05, drain=LINE_GBPS, servers=LINE_GBPS)


def test_cables_are_the_published_ones(tmp_path: Path) -> None:
    path = tmp_path / "fabric.csv"
    analysis_system.write_fabric(path, USE)
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    pairs = Counter((row["src"], row["dst"]) for row in rows)
    assert all(pairs[f"dav-leaf{n}", f"glade-leaf{n}"] == 6 for n in range(4))
    assert pairs["dav-leaf0", "glade-leaf1"] == 0
    switches = Counter(row["src"] for row in rows if row["src_kind"] == "switch")
    assert max(switches.values()) <= 36


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        (("dav-leaf1", "glade-leaf1"), ("DAVLeaf", "down")),
        (("glade-leaf1", "dav-leaf1"), ("GladeLeaf", "down")),
        (("dav-leaf1", "dav-spine0"), ("DAVLeaf", "up")),
        (("dav-spine0", "dav-leaf1"), ("DAVSpine", "down")),
        (("adapter-dav0-01", "dav-leaf0"), None),
    ],
)
def test_ports_are_classified_as_in_the_study(
    ends: tuple[str, str], kind: tuple[str, str] | None
) -> None:
    assert analysis_system._class_of(*ends) == kind


def test_slow_hosts_stall_the_ports_towards_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_system, "DURATION", "100 us")
    at = list(PUBLISHED).index(("DAVLeaf", "down"))
    line, slow = stalls(USE), stalls(replace(USE, drain=13.5))
    assert slow.shares[at] > line.shares[at] + 0.1
