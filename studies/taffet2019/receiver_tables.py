"""The table of one receiver and Figure 4.3 (thesis sections 3.2 and 4.2).

Algorithm 4 keeps its counts at every receiving adapter. The run of the row-major stencil is
repeated with the samples of each receiver kept apart, and only those of node 1446 are used: its
view of the network, and links B and C of the figure in phase +y.
"""

from __future__ import annotations

import polars as pl

from studies.taffet2019.case_figures import Drawing, write_figures
from studies.taffet2019.case_model import EXAMPLES, busy_gbps, estimates
from studies.taffet2019.case_stencil import LINK_B, LINK_C, SCENARIO
from studies.taffet2019.reproduction import FIGURES, Row, run, table
from tailback import Run, load_scenario, simulate

NODE = 1446
PHASE = "+y"


def with_receivers() -> Run:
    """The run of the case study with a table of samples for each receiving node."""
    scenario = load_scenario(EXAMPLES / SCENARIO)
    telemetry = scenario.telemetry.model_copy(update={"receivers": True})
    return simulate(scenario.model_copy(update={"telemetry": telemetry}))


def named(frame: pl.DataFrame, ends: tuple[str, str]) -> pl.DataFrame:
    """The rows of the link between two switches."""
    return frame.filter((pl.col("src_name") == ends[0]) & (pl.col("dst_name") == ends[1]))


def fraction(link: pl.DataFrame) -> str:
    """Its congested fraction with the 95 % interval and the number of samples."""
    if not link.height:
        return "no sample"
    row = link.row(0, named=True)
    return (
        f"{row['fraction']:.2f} ({row['fraction_low']:.2f}–{row['fraction_high']:.2f}), "
        f"{row['samples']} samples"
    )


def in_phase(full: Run) -> Run:
    """Its samples of phase +y alone."""
    labels = full.tables["labels"].filter(pl.col("phase") == PHASE)["label"]
    samples = full.tables["samples"].filter(pl.col("label").is_in(labels.implode()))
    return Run(full.scenario, {**full.tables, "samples": samples}, full.summary)


def bandwidth(part: Run) -> str:
    """Bandwidth of link C between the arrivals of packets, with its interval."""
    row = busy_gbps(part, named(estimates(part), LINK_C)).row(0, named=True)
    low, high = (row["gbps"] * row[end] / row["packets"] for end in ("packets_low", "packets_high"))
    return f"{row['gbps']:.1f} Gb/s ({low:.0f}–{high:.0f})"


def rows(full: Run, received: Run) -> list[Row]:
    """What node 1446 knows, and what the tables of all receivers say together."""
    mine = estimates(received)
    packets = int(received.tables["messages"]["packets"].sum())
    arrived = mine.filter("to_node").row(0, named=True)
    summed = full.tables["samples"]["hop_weight"].sum()
    hops = int(full.tables["messages"]["switch_hops"].sum())
    leaf = full.tables["nodes"]["switch"][NODE]
    neighbours = full.tables["nodes"].filter(pl.col("switch") == leaf)["node"].implode()
    below = in_phase(full)
    below.tables["samples"] = below.tables["samples"].filter(pl.col("receiver").is_in(neighbours))
    phase = estimates(received, phase=PHASE)
    met = phase.filter(pl.col("congested") > 0)
    up = met.filter(pl.col("direction") == "up")["congested"].sum() / met["congested"].sum()
    row_b, row_c = (named(phase, ends) for ends in (LINK_B, LINK_C))
    all_b, all_c = (named(estimates(below), ends) for ends in (LINK_B, LINK_C))
    return [
        Row(
            f"links in the table of node {NODE}",
            "–",
            f"{mine.height}",
            "–",
            f"of {full.tables['links'].height}; {packets} packets arrived",
        ),
        Row(
            "packets on its own link, from its table",
            "–",
            "{packets:.0f} ({packets_low:.0f}–{packets_high:.0f})".format(**arrived),
            "–",
            f"{packets} arrived",
        ),
        Row(
            "weights in the tables of all receivers",
            "–",
            f"{summed:,}",
            "none" if summed == hops else f"{summed - hops:+,}",
            f"packets × switches on their paths: {hops:,}",
        ),
        Row(
            "phase +y: share of its congested packets on up-links",
            "all (Figure 4.3)",
            f"{up:.2f}",
            "none" if up == 1.0 else f"{up - 1.0:+.2f}",
            "64 packets of one message",
        ),
        Row(
            "link B in +y, by its table",
            "a congestion tree",
            fraction(row_b),
            "–",
            f"by the tables of the 32 nodes of its leaf: {fraction(all_b)}",
        ),
        Row(
            "link C in +y, by its table",
            "not congested",
            fraction(row_c),
            "–",
            f"by the tables of the 32 nodes of its leaf: {fraction(all_c)}",
        ),
        Row(
            "bandwidth of link C in +y",
            "101.9 Gb/s",
            bandwidth(below),
            "–",
            "sampled bytes over the windows of their arrival, tables of the 32 nodes; windows "
            "count whole, and the line rate is 100 Gb/s",
        ),
    ]


def page() -> str:
    """Draws the figure and makes the table."""
    full = with_receivers()
    received = full.received_by(full.tables["nodes"]["name"][NODE])
    title = f"Figure 4.3: packets received by node {NODE}"
    drawing = Drawing("figure-4.3", title, received, pods=2, first_pod=1)
    write_figures([drawing], FIGURES)
    return table(rows(full, received))


if __name__ == "__main__":
    run(__doc__ or "", "receiver tables", page)
