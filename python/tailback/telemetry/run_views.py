"""Parts and other sides of a run, as runs, to which every estimate and analysis applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import polars as pl

from tailback.errors import RunError
from tailback.run.run import Run
from tailback.run.schema import TABLES
from tailback.telemetry.capture import nodes_of

Side = Literal["sender", "receiver"]


def received_by(run: Run, host: str) -> Run:
    """What one host knows of a run: samples and messages that arrived there.

    Args:
        run: A run whose samples are kept by receiver (``[telemetry] receivers``), or that kept the
            headers of packets.
        host: Name of the host, or of one of its nodes.

    Returns:
        The run without the ground truth and the port counters, which no host knows. If its samples
        come from headers, they are left out: those of this host are decoded on their own
        (:func:`tailback.simulation.decode.decode_samples`).

    Raises:
        RunError: There is no such host, or the samples of all hosts were added up.
    """
    nodes = pl.Series(nodes_of(run, host), dtype=pl.UInt32).implode()
    tables = dict(run.tables)
    ranks = tables["ranks"].filter(pl.col("node").is_in(nodes))["rank"].implode()
    packets, samples = tables["packets"], tables["samples"]
    if run.scenario.telemetry.summed_on_arrival or not packets.height:
        if samples["receiver"].null_count():
            raise RunError(
                "the samples of all receivers were added up",
                place="table samples, column receiver",
                remedy="set [telemetry] receivers = true and simulate again",
            )
        samples = samples.filter(pl.col("receiver").is_in(nodes))
    else:
        samples = samples.clear()
    for name in ("truth", "counters", "queues", "skips"):
        tables[name] = pl.DataFrame(schema=TABLES[name].polars_schema)
    tables["samples"] = samples
    tables["packets"] = packets.filter(pl.col("dst_node").is_in(nodes))
    tables["messages"] = tables["messages"].filter(pl.col("dst_rank").is_in(ranks))
    return replace(run, tables=tables)


def labelled_by_receives(run: Run) -> Run:
    """The run with the labels of receives in place of those of sends.

    Phases, calls and lines of the program are then those of the receiving side.

    Raises:
        RunError: They are not known: the fluid model or a capture made the run.
    """
    tables = dict(run.tables)
    for name in ("samples", "messages", "packets"):
        if tables[name]["receive_label"].null_count():
            raise RunError(
                "the receives of messages are not known",
                place=f"table {name}, column receive_label",
                remedy="simulate the scenario with packets and this version",
            )
        tables[name] = tables[name].with_columns(label=pl.col("receive_label"))
    return replace(run, tables=tables)
