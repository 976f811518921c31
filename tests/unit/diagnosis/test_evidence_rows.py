"""Rows of evidence of a forecast."""

from __future__ import annotations

from types import SimpleNamespace

from tailback.diagnosis.evidence_rows import rows_of_model
from tailback.diagnosis.model import WaterfallBar


def test_time_saved_by_a_step_is_no_cost() -> None:
    bars = [
        WaterfallBar(name=name, elapsed_ps=100, delta_ps=ps, low_ps=ps, high_ps=ps, meaning="it")
        for name, ps in (("routing", -5), ("placement", 7))
    ]
    forecast = SimpleNamespace(modelled_ps=100, findings=[], waterfall=bars)
    rows = rows_of_model(forecast)  # type: ignore[arg-type]
    assert {row.quantity: row.value for row in rows} == {
        "time saved by routing": 5.0,
        "cost of placement": 7.0,
    }
