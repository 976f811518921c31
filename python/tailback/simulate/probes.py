"""Probes of the engine: what a scenario asks for, and the tables of what they saw."""

from __future__ import annotations

from typing import Any

import polars as pl

from tailback.scenario import Scenario
from tailback.schema import TABLES

MAX_PACKETS_KEPT = 10_000_000
"""Packets that are kept when a scheme needs them and the scenario does not say how many."""


def packets_kept(scenario: Scenario) -> int:
    """Packets to keep one by one at most; 0 for none."""
    telemetry = scenario.telemetry
    if telemetry.scheme == "off":
        return 0
    if telemetry.packets is None:
        # The published scheme is summed up by its receivers; a hash is worth nothing alone.
        return 0 if telemetry.scheme == "full" else MAX_PACKETS_KEPT
    return telemetry.packets


def probes_of(scenario: Scenario) -> dict[str, Any]:
    """The engine's settings of the probes a scenario asks for; empty when it asks for none."""
    telemetry, probes = scenario.telemetry, scenario.probes
    asked: dict[str, Any] = {}
    if probes.counters:
        asked["counters_ps"] = probes.counters
    if probes.queues:
        asked["queues_ps"] = probes.queues
    most = packets_kept(scenario)
    if most:
        asked["carry"] = {
            "scheme": telemetry.scheme,
            "hash_bits": telemetry.hash_bits,
            "count_bits": telemetry.count_bits,
            "probability": telemetry.probability,
            "level_bytes": telemetry.rule_bytes,
            "most": most,
            "one_in": telemetry.one_in,
        }
    return asked


def probe_tables(outcome: dict[str, Any]) -> dict[str, pl.DataFrame]:
    """Tables ``counters``, ``queues`` and ``packets``; empty where nothing was asked for.

    Args:
        outcome: What the engine handed back, with ``detour`` as it was set. Lengths of paths are
            null where packets may go round: a receiver cannot know them.
    """
    tables = {
        "counters": pl.DataFrame(outcome.get("counters", {})),
        "queues": pl.DataFrame(outcome.get("queues", {})),
        "packets": pl.DataFrame(outcome.get("carried", {})),
    }
    if tables["packets"].height:
        known = outcome.get("detour", "never") == "never"
        tables["packets"] = tables["packets"].with_columns(
            sequence=pl.col("packet") % (1 << 24),
            hops=pl.col("hops") if known else pl.lit(None, pl.UInt8),
        )
    return {
        name: frame if frame.height else pl.DataFrame(schema=dict(TABLES[name].polars_schema))
        for name, frame in tables.items()
    }


def probe_summary(outcome: dict[str, Any]) -> dict[str, Any]:
    """The probes in a run's summary: empty if there were none.

    Intervals are those of the scenario, doubled as often as there would have been too many rows.
    """
    facts = {
        "counters_ps": int(outcome.get("counters_ps", 0)),
        "queues_ps": int(outcome.get("queues_ps", 0)),
        "one_in": int(outcome.get("one_in", 0)),
    }
    return {name: value for name, value in facts.items() if value}
