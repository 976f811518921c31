"""The storage and analysis systems of Yellowstone."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
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
    leaves = {name: count for name, count in switches.items() if "-leaf" in name}
    # Eighteen ports down and as many up, as Table I has as many rounds of both.
    assert len(leaves) == 8 and set(leaves.values()) == {36}
    assert max(switches.values()) == 36


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


def test_findings_follow_from_the_figures() -> None:
    """The mechanism that gives the published share is named, and only while it does."""
    base = analysis_system.Stalls(np.full(6, 0.5), 0.01, (0.0, 0.0))
    changed = {"the nearest draw": base, "no copies": replace(base, shares=np.full(6, 0.1))}
    near = analysis_system.SHARES[analysis_system.GLADE_DOWN]
    tried = {
        "slow servers": replace(base, shares=np.full(6, near)),
        "reads": replace(base, shares=np.zeros(6)),
    }
    text = "\n".join(analysis_system.findings(changed, tried))
    assert "at most half as many if no copies (10 %)" in text
    assert "slow servers (54 %). Fewer: reads." in text
    tried["slow servers"] = tried["reads"]
    assert "none of those tried" in "\n".join(analysis_system.findings(changed, tried))
