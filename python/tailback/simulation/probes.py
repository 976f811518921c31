"""Probes of the engine: their settings from a scenario, and their tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from tailback.run.schema import TABLES
from tailback.scenario.model import Scenario
from tailback.simulation.contexts import MessageContexts
from tailback.simulation.outcome import Outcome

MAX_PACKETS_KEPT = 10_000_000
"""Maximum number of packets kept if a scheme needs them and the scenario does not state it."""


def packets_kept(scenario: Scenario) -> int:
    """Maximum number of packets to record individually; 0 for none."""
    telemetry = scenario.telemetry
    if telemetry.scheme == "off":
        return 0
    if telemetry.packets is None:
        # Receivers aggregate whole links. Hashes are kept, to be decoded together.
        return 0 if telemetry.summed_on_arrival else MAX_PACKETS_KEPT
    return telemetry.packets


@dataclass(frozen=True)
class HeaderSettings:
    """Content of packet headers, and the number of recorded packets.

    Attributes:
        scheme: Name of the scheme.
        hash_bits: Bits per link hash.
        count_bits: Bits per hop count.
        probability: Probability that a switch updates the header, for schemes that use one.
        most: Maximum number of recorded packets.
        one_in: One packet in this many carries a sample.
        queue_pairs: Whether a queue pair serves one peer or all.
        psn_start: First packet sequence number of a queue pair.
        randomness: Source of random decisions in schemes compact and single-bit.
        slots: Slots of a reservoir.
    """

    scheme: str
    hash_bits: int
    count_bits: int
    probability: float
    most: int
    one_in: int
    queue_pairs: str
    psn_start: str
    randomness: str
    slots: int


@dataclass(frozen=True)
class ProbeSettings:
    """Optional probes of the engine, off by default.

    Attributes:
        counters_ps: Time between two readings of the port counters, 0 for none.
        queues_ps: Time between two readings of the queue lengths, 0 for none.
        carry: Header settings of recorded packets; None if none are recorded.
    """

    counters_ps: int = 0
    queues_ps: int = 0
    carry: HeaderSettings | None = None


def probes_of(scenario: Scenario) -> ProbeSettings:
    """The probes that a scenario requests."""
    telemetry, probes = scenario.telemetry, scenario.probes
    carry, most = None, packets_kept(scenario)
    if most:
        carry = HeaderSettings(
            scheme=telemetry.scheme,
            hash_bits=telemetry.hash_bits,
            count_bits=telemetry.count_bits,
            probability=telemetry.probability,
            most=most,
            one_in=telemetry.one_in,
            queue_pairs=telemetry.queue_pairs,
            psn_start=telemetry.psn_start,
            randomness=telemetry.randomness,
            slots=telemetry.slots,
        )
    return ProbeSettings(probes.counters or 0, probes.queues or 0, carry)


def probe_tables(
    outcome: Outcome, contexts: MessageContexts, *, detours: bool
) -> dict[str, pl.DataFrame]:
    """Tables ``counters``, ``queues`` and ``packets``; empty for probes that are off.

    Args:
        outcome: Outcome of the engine.
        contexts: Contexts of its labels.
        detours: Whether packets may take non-minimal paths. Path lengths are then null, as a
            receiver cannot know them.
    """
    tables = {
        "counters": pl.DataFrame(outcome.counters),
        "queues": pl.DataFrame(outcome.queues),
        "packets": pl.DataFrame(),
    }
    if len(outcome.carried.get("label", ())):
        columns = dict(outcome.carried)
        # Two-dimensional: the links of every packet's reservoirs, if these have several slots.
        links = columns.pop("links", None)
        tables["packets"] = contexts.resolve(columns).with_columns(
            links=pl.lit(None, pl.List(pl.UInt32))
            if links is None
            else pl.Series(links).cast(pl.List(pl.UInt32))
        )
    if tables["packets"].height:
        tables["packets"] = tables["packets"].with_columns(
            hops=pl.lit(None, pl.UInt8) if detours else pl.col("hops"),
        )
    return {
        name: frame if frame.height else pl.DataFrame(schema=dict(TABLES[name].polars_schema))
        for name, frame in tables.items()
    }


def probe_summary(outcome: Outcome) -> dict[str, Any]:
    """The probes in a run's summary; empty if there were none.

    Intervals are those of the scenario, doubled until the number of rows is within its limit.
    """
    facts = {
        "counters_ps": outcome.counters_ps,
        "queues_ps": outcome.queues_ps,
        "one_in": outcome.one_in,
    }
    return {name: value for name, value in facts.items() if value}
