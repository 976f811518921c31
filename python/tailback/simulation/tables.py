"""Converts outcomes of simulations to the tables of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.fabric.model import Fabric
from tailback.identity_cache import PerObject
from tailback.run.schema import TABLES, conform
from tailback.simulation.contexts import MessageContexts
from tailback.simulation.outcome import ExtrapolatedOutcome, Outcome
from tailback.simulation.probes import probe_summary, probe_tables
from tailback.telemetry.receiver import whole_numbers

if TYPE_CHECKING:
    from tailback.scenario.model import Scenario
    from tailback.simulation.prepare import Job

DIRECTIONS = {1: "up", 0: "flat", -1: "down"}


def fabric_tables(fabric: Fabric) -> dict[str, pl.DataFrame]:
    """Tables ``nodes``, ``switches`` and ``links``; runs on one fabric share them."""
    return dict(_tables_of(fabric))


def _fabric_tables(fabric: Fabric) -> dict[str, pl.DataFrame]:
    names = np.array([*fabric.node_name, *fabric.switch_name], dtype=object)
    nodes = pl.DataFrame(
        {
            "node": np.arange(fabric.n_nodes, dtype=np.uint32),
            "name": fabric.node_name,
            "host": fabric.node_host,
            "host_name": [fabric.host_name[host] for host in fabric.node_host.tolist()],
            "switch": fabric.node_switch,
        }
    )
    switches = pl.DataFrame(
        {
            "switch": np.arange(fabric.n_switches, dtype=np.uint32),
            "name": fabric.switch_name,
            "tier": fabric.switch_tier,
            "pod": fabric.switch_pod,
        }
    )
    links = pl.DataFrame(
        {
            "link": np.arange(fabric.n_links, dtype=np.uint32),
            "src": fabric.link_src,
            "dst": fabric.link_dst,
            "src_name": names[fabric.link_src].tolist(),
            "dst_name": names[fabric.link_dst].tolist(),
            "src_port": fabric.link_src_port,
            "dst_port": fabric.link_dst_port,
            "src_interface": fabric.link_interface or [""] * fabric.n_links,
            "tier": fabric.link_tier,
            "direction": [DIRECTIONS[int(way)] for way in fabric.link_up],
            "from_node": fabric.link_src < fabric.n_nodes,
            "to_node": fabric.link_dst < fabric.n_nodes,
            # The nominal rate: detecting slow links is up to the diagnosis.
            "rate_gbps": fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps,
            "delay_ps": fabric.link_delay_ps,
            "reverse": fabric.link_reverse,
        }
    )
    tables = {"nodes": nodes, "switches": switches, "links": links}
    return {name: conform(name, table) for name, table in tables.items()}


_tables_of = PerObject(_fabric_tables)


def make_tables(
    scenario: Scenario,
    fabric: Fabric,
    jobs: list[Job],
    places: list[NDArray[np.uint32]],
    contexts: MessageContexts,
    outcome: Outcome,
    *,
    detours: bool = False,
) -> tuple[dict[str, pl.DataFrame], dict[str, Any]]:
    """All tables of a run, and its summary; ``contexts`` are those of the outcome's labels."""
    tables = fabric_tables(fabric)
    job_of_label = np.repeat(
        np.arange(len(jobs), dtype=np.uint32), [len(job.program.labels) for job in jobs]
    )
    sizes = [len(place) for place in places]
    job_of_rank = np.repeat(np.arange(len(jobs), dtype=np.uint32), sizes)
    tables["jobs"] = pl.DataFrame(
        {
            "job": np.arange(len(jobs), dtype=np.uint32),
            "name": [job.section.name for job in jobs],
            "observed": [job.section.observed for job in jobs],
            "ranks": np.array(sizes, np.uint32),
            "placement": [job.placement_name for job in jobs],
            "grid": ["x".join(map(str, job.program.grid)) for job in jobs],
        }
    )
    tables["ranks"] = pl.DataFrame(
        {
            "rank": np.arange(len(job_of_rank), dtype=np.uint32),
            "job": job_of_rank,
            "job_rank": np.concatenate([np.arange(size, dtype=np.uint32) for size in sizes]),
            "node": np.concatenate(places),
            **outcome.ranks,
        }
    )
    tables["labels"] = _labels(jobs, job_of_label)
    tables["windows"] = _windows(outcome)
    samples = contexts.resolve(outcome.samples)
    if scenario.telemetry.summed_on_arrival:
        k = scenario.telemetry.one_in / (1.0 - scenario.telemetry.header_loss)
        samples = samples_of_one_in(samples, k)
    job_column = job_of_label[samples["label"].to_numpy().astype(np.int64)]
    tables["samples"] = samples.with_columns(pl.Series("job", job_column, dtype=pl.UInt32))
    tables["truth"] = pl.DataFrame(outcome.truth)
    tables["messages"] = pl.DataFrame(
        {"message": np.arange(len(outcome.messages["label"]), dtype=np.uint32)}
    ).hstack(contexts.resolve(outcome.messages))
    tables |= probe_tables(outcome, contexts, detours=detours)
    if not outcome.complete:
        tables |= _cut_at_end(tables, outcome.end_ps)
    for name, keys in (
        ("samples", ("window", "job", "label", "receive_label", "receiver", "link")),
        ("truth", ("window", "link")),
    ):
        tables[name] = _sum_by_window(tables[name], keys, tables["windows"].height)
    messages = tables["messages"]
    summary = _summary(scenario, jobs, job_of_label, job_of_rank, messages, outcome)
    tables["messages"] = messages if scenario.telemetry.messages else messages.clear()
    tables["skips"] = pl.DataFrame(schema=dict(TABLES["skips"].polars_schema))
    return {name: conform(name, tables[name]) for name in TABLES}, summary


def samples_of_one_in(samples: pl.DataFrame, k: float) -> pl.DataFrame:
    """Scale sums of samples carried by one packet in ``k`` to unbiased sums over all packets.

    A sample of weight w then represents k w packets, with variance k w (k w - 1). The engine's sums
    of w (w - 1) and of w give the sum of w squared.

    Args:
        samples: Sums of whole-link samples, from the engine.
        k: Number of packets per sample that arrives, 1 or more.
    """
    if k == 1:
        return samples
    # The engine returns columns in the narrowest type that holds their values.
    samples = samples.with_columns(
        pl.col(r"^(hop|congested)_(weight|variance|bytes)$").cast(pl.UInt64)
    )

    def scaled(about: str) -> list[pl.Expr]:
        weight, variance = pl.col(f"{about}_weight"), pl.col(f"{about}_variance")
        return [
            weight * k,
            ((variance + weight) * k * k - weight * k).alias(variance.meta.output_name()),
        ]

    if k == int(k):
        k = int(k)
        return samples.with_columns(*scaled("hop"), *scaled("congested"), pl.col("hop_bytes") * k)
    samples = samples.with_columns(*scaled("hop"), *scaled("congested"), pl.col("hop_bytes") * k)
    sums = [name for name in samples.columns if name.endswith(("_weight", "_variance", "_bytes"))]
    return samples.with_columns(whole_numbers(name) for name in sums)


def _labels(jobs: list[Job], job_of_label: NDArray[np.uint32]) -> pl.DataFrame:
    """Table ``labels``."""
    labels = [label for job in jobs for label in job.program.labels]
    return pl.DataFrame(
        {
            "label": np.arange(len(labels), dtype=np.uint32),
            "job": job_of_label,
            "phase": [label.phase for label in labels],
            "call": [label.call for label in labels],
            "tag": np.array([label.tag for label in labels], np.int64),
            "communicator": [label.communicator for label in labels],
            "path": [label.path for label in labels],
        },
        schema_overrides=dict.fromkeys(("phase", "call", "communicator", "path"), pl.String),
    )


def _windows(outcome: Outcome) -> pl.DataFrame:
    """Windows up to the end of the run; the last one ends with it."""
    width, end = outcome.window_ps, outcome.end_ps
    starts = np.arange(0, max(end, 1), width, dtype=np.uint64) if width else np.zeros(0, np.uint64)
    ends = starts + np.uint64(width)
    if isinstance(outcome, ExtrapolatedOutcome) and width:
        starts = outcome.window_starts
        ends = np.append(starts[1:], np.uint64(max(end, 1)))
    return pl.DataFrame(
        {
            "window": np.arange(len(starts), dtype=np.uint32),
            "start_ps": starts,
            "end_ps": np.minimum(ends, np.uint64(max(end, 1))),
        }
    )


def _sum_by_window(table: pl.DataFrame, keys: tuple[str, ...], windows: int) -> pl.DataFrame:
    """A table by window, with events at the very end of the run counted in the last window.

    If a window would begin at the end of the run, the engine counts them in that window, which has
    no length.
    """
    last = table["window"].max()
    if not isinstance(last, int) or last < windows:
        return table
    table = table.with_columns(pl.col("window").clip(upper_bound=windows - 1))
    return table.group_by(keys, maintain_order=True).agg(pl.all().sum()).sort("window", *keys[1:])


def _cut_at_end(tables: dict[str, pl.DataFrame], end_ps: int) -> dict[str, pl.DataFrame]:
    """Tables of an interrupted run, without the events after its end.

    For a packet that is sent without waiting, the engine records the times of departure and arrival
    in advance.
    """
    never = pl.lit(np.iinfo(np.uint64).max, dtype=pl.UInt64)
    simulated = pl.col("window") < tables["windows"].height
    return {
        "samples": tables["samples"].filter(simulated),
        "truth": tables["truth"].filter(simulated),
        "packets": tables["packets"].filter(pl.col("time_ps") <= end_ps),
        "messages": tables["messages"].with_columns(
            pl.when(pl.col(name) != never).then(pl.col(name)) for name in ("start_ps", "arrival_ps")
        ),
    }


def _summary(
    scenario: Scenario,
    jobs: list[Job],
    job_of_label: NDArray[np.uint32],
    job_of_rank: NDArray[np.uint32],
    messages: pl.DataFrame,
    outcome: Outcome,
) -> dict[str, Any]:
    observed = np.array([job.section.observed for job in jobs])
    ours = observed[job_of_rank]
    finish = np.asarray(outcome.ranks["finish_ps"])
    mine = observed[job_of_label[messages["label"].to_numpy().astype(np.int64)]]
    hops = messages["switch_hops"].to_numpy()[mine].astype(np.int64).sum()
    # Messages within a host visit no switch and are left out of the average.
    crossing = (messages["switch_hops"].to_numpy() > 0) & mine
    # In an interrupted run some packets are still in flight, and their hops are not counted yet.
    arrived = messages["arrived"].to_numpy()
    packets = arrived[crossing].astype(np.int64).sum()
    if not outcome.complete:
        # Ranks that have not finished were running until the end.
        finish = np.where(finish == 0, outcome.end_ps, finish)
    start = np.array([job.section.start for job in jobs], np.int64)
    left_out = observed_left_out = 0
    if isinstance(outcome, ExtrapolatedOutcome):
        left_out, observed_left_out = outcome.messages_left_out, outcome.observed_left_out
    return {
        "elapsed_ps": max(int(finish[ours].max(initial=0)) - int(start[observed].min()), 0),
        "end_ps": outcome.end_ps,
        "complete": outcome.complete,
        "packets": outcome.packets,
        "observed_packets": int(arrived[mine].astype(np.int64).sum()) + observed_left_out,
        "packet_hops": outcome.packet_hops,
        "events": outcome.events,
        "messages": len(messages) + left_out,
        "average_path_length": float(hops / packets) if packets else 0.0,
        "job_elapsed_ps": {
            str(number): max(
                int(finish[job_of_rank == number].max(initial=0)) - int(start[number]), 0
            )
            for number in range(len(jobs))
        },
        "window_ps": outcome.window_ps,
        # Absent in the fluid model.
        **_of_packets(outcome),
        **_of_ethernet(scenario, outcome),
        **probe_summary(outcome),
    }


def _of_ethernet(scenario: Scenario, outcome: Outcome) -> dict[str, int]:
    """Values of priority flow control and DCQCN, where a scenario has them."""
    facts: dict[str, int] = {}
    if outcome.marked_packets is None:
        return facts
    control = scenario.engine.congestion_control
    if control is not None and control.scheme == "dcqcn":
        facts["congestion_notifications"] = outcome.notifications
    if scenario.engine.flow_control.kind == "pfc":
        facts |= {"pauses": outcome.pauses, "paused_ps": outcome.paused_ps}
    return facts


def _of_packets(outcome: Outcome) -> dict[str, int]:
    """Values that only the packet engine computes."""
    facts = {"vc_refused": outcome.vc_refused, "marked_packets": outcome.marked_packets}
    return {name: value for name, value in facts.items() if value is not None}
