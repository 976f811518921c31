"""Estimates of a lab's samples are held against the kernel's counts."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from datapath import causes, links_of, summary, table

from tailback.lab.causes import Setting, apply
from tailback.lab.datapath.record import COLUMNS
from tailback.lab.plan import Plan
from tailback.lab.spec import load
from tests.factories.repository import ROOT


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """Two links: 1000 and 400 packets were sent, 1100 and 700 are estimated; a third was idle."""
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth" / "links.csv").write_text(
        "link,packets,congested,super_packets,received,lost\n"
        "1,1000,0,0,0,0\n2,400,100,0,0,0\n3,4,0,0,0,0\n"
    )
    head = "time_utc,link,tx_packets,qdisc_drops,qdisc_backlog\n"
    rows = (
        "a,1,7,0,0\na,2,0,0,0\na,3,0,0,0\nb,2,300,3,40000\nc,1,1007,0,90\nc,2,400,3,40001\n"
        "c,3,4,0,0\n"
    )
    (tmp_path / "counters.csv.gz").write_bytes(gzip.compress((head + rows).encode()))
    # Two ranks share link 1; what stands earlier is not counted.
    (tmp_path / "samples.csv").write_text(
        ",".join(COLUMNS) + "\n"
        "2026-01-01T00:00:00Z,0,MPI_Wait,1,1,4,12,0,1,0,0,0,0\n"
        "2026-01-01T00:00:01Z,0,MPI_Wait,1,150,600,1800,0,1,0,0,0,0\n"
        "2026-01-01T00:00:01Z,1,MPI_Wait,1,125,500,1500,0,1,0,0,0,0\n"
        "2026-01-01T00:00:01Z,1,MPI_Wait,2,175,700,2100,0,1,45,180,540,0\n"
    )
    return tmp_path


def test_last_estimates_are_compared_with_what_was_sent(case: Path) -> None:
    rows = links_of(case, 4, "coordinated:4", 3)
    assert rows["sent"].to_list() == [1000, 400, 4]
    assert rows["estimate"].to_list() == [1100.0, 700.0, 0.0]
    # The variance of a packet is 3: z = 100 / sqrt(3000) and 300 / sqrt(1200).
    assert rows["z"][:2].to_list() == pytest.approx([1.826, 8.66], abs=0.001)
    assert rows["covered"].to_list()[:2] == [True, False]
    # A quarter of the packets was sent before a reading of a queue beyond its threshold.
    assert rows["queued"].to_list() == [0.0, 0.25, 0.0]
    assert rows["fraction"].to_list() == [0.0, 0.25, 0.0]
    # 0.257 of samples were congested, and the fraction was 0.25.
    assert rows["fraction_covered"].to_list() == [True, True, True]
    figures = summary(rows, np.array([[600, 2, 60], [900, 1, 150]]))
    assert (figures["runs"], figures["links"], figures["idle_links"]) == (1, 2, 1)
    assert (figures["coverage"], figures["congested_links"]) == (0.5, 1)
    assert figures["congested_bias"] == pytest.approx(180 / 700 - 0.25, abs=1e-5)
    assert figures["queue_correlation"] == 1.0
    assert figures["lost"] == pytest.approx(3 / 1404, abs=1e-6)
    assert (figures["ns_per_packet_hop"], figures["ns_receiver"]) == (300.0, 900.0)
    assert (figures["ns_warm"], figures["ns_receiver_warm"]) == (60.0, 150.0)


def test_the_page_has_a_line_for_each_scheme(case: Path) -> None:
    rows = links_of(case, 4, "coordinated:4", 3)
    figures = summary(rows, np.array([[600, 2, 60], [900, 1, 150]]))
    scheme_figures = {"ip": 4, "scheme": "coordinated:4", **figures}
    text = table({**figures, "schemes": [scheme_figures], "machine": "a machine"})
    assert "| `coordinated:4`, IPv4 | 2 | 50.0 % |" in text and "| **all** | 2 |" in text
    assert "| `coordinated:4`, IPv4 | 300 | 60 | 900 | 150 |" in text
    assert "Of 1 links with fewer than 100 packets, 100.0 % have" in text


def test_every_draw_can_be_applied_to_the_example() -> None:
    plan, drawn = Plan(load(ROOT / "examples" / "lab" / "leaf-spine.toml")), set()
    for seed in range(60):
        setting = Setting.nominal(plan)
        for text in causes(seed):
            apply(text, setting, plan)
            drawn.add(text.partition(":")[0])
    assert drawn == {"slow-cable", "placement", "one-spine", "bursts"}
