"""What packet ids do to the stated errors, on the benchmark's hard cases."""

from __future__ import annotations

import packet_ids
import pytest


def test_idle_links_vary_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_ids, "QUEUE_PAIRS", (1, 1000))
    rows = list(packet_ids.rows(10_000, 4000, 1, 3))
    assert len(rows) == 2 * 2 * 11 * 2
    for row in rows:
        # 0.95 to 1.05 with four standard deviations of a root mean square of 4000 draws.
        assert abs(float(str(row["sigma_ratio"])) - 1) < 0.05 + 4 / (2 * 4000) ** 0.5, row
    hard = [r for r in rows if r["start"] == "zero" and r["traffic"] == "one link"]
    assert all(float(str(r["psn_alone"])) > 20 for r in hard if r["queue_pairs"] == 1000)
    assert all(float(str(r["linear"])) < 0.5 for r in hard if r["queue_pairs"] == 1)
    assert packet_ids.table(rows).count("\n") == 3
