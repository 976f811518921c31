"""Figures 1 to 4 and Table III of the InfiniBand study: the victim port, the shape, the counter.

    python -m studies.production_networks.victim --write

Alali et al. (2017), sections II, III and IV-A. Figure 1 is simulated as drawn: flow F1 from switch
r to the hot port p of switch s, F2 beside it to port w, and two hosts of s that also send to p.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from measuring import put
from studies.production_networks.compare import PAGE
from studies.production_networks.definitions import FDR_TICK_NS, forced_idle_fraction
from studies.production_networks.simulated import EXAMPLES, counters_of, percent, run_of
from studies.production_networks.yellowstone import LARGEST, ROUNDS
from studies.taffet2019.reproduction import Row, state_agreement, table
from tailback import Run, load_scenario, simulate
from tailback.port_counters.analysis import classes
from tailback.port_counters.readers import from_run
from tailback.simulation import load_fabric

LINE_GBPS: Final = 8
"""Rate at which the victim flow runs alone (section V): one lane of QDR."""
LINKS: Final = (
    ("f1", "r"),
    ("f2", "r"),
    ("r", "s"),
    ("c1", "s"),
    ("c2", "s"),
    ("s", "p"),
    ("s", "w"),
)
HOSTS: Final = ("f1", "f2", "c1", "c2", "p", "w")
MEBIBYTES: Final = 4
TICK_BYTES, FDR_LANE_GBPS = 32, 14.0625 * 64 / 66
"""Bytes of each lane in a tick of SwitchX, by its vendor, and the data rate of a lane, Gb/s."""
CHOSEN: Final = (("Spine", "down"), ("Leaf", "up"), ("ToR", "down"), ("ToR", "up"))
"""Classes of the compute network beside leaf down, in the order of Table I."""


def figure_1(*, congested: bool, marks: bool = False) -> Run:
    """F1 and F2, with the two hosts that congest port p or without all three senders to it.

    With ``marks`` the switches have congestion control, to which no sender reacts; the truth counts
    the packets that find a port in the congested state.
    """
    messages = [("f2", "w")]
    if congested:
        messages += [("f1", "p"), ("c1", "p"), ("c2", "p")]
    with tempfile.TemporaryDirectory() as folder:
        fabric, sent = Path(folder) / "figure1.csv", Path(folder) / "messages.csv"
        kinds = dict.fromkeys(HOSTS, "host")
        fabric.write_text(
            "src,dst,rate_gbps,src_kind,dst_kind\n"
            + "".join(
                f"{a},{b},{LINE_GBPS},{kinds.get(a, 'switch')},{kinds.get(b, 'switch')}\n"
                for a, b in LINKS
            )
        )
        order = _order(fabric)
        sent.write_text(
            "source,destination,bytes\n"
            + "".join(f"{order[a]},{order[b]},{MEBIBYTES << 20}\n" for a, b in messages)
        )
        job = {"pattern": {"kind": "listed", "file": str(sent), "ranks": len(HOSTS)}}
        scenario = {**_base(fabric), "job": [job]}
        if marks:
            scenario["engine"] |= {
                "injection": "per-destination",
                "congestion_control": {"table": [0]},
            }
            scenario["telemetry"] = {"rule": "fecn"}
        return simulate(load_scenario(scenario))


def _base(fabric: Path) -> dict[str, Any]:
    return {
        "name": "figure 1",
        "fabric": {"file": str(fabric)},
        "engine": {
            "routing": "deterministic",
            "arbitration": "round-robin",
            "packet": "2 KiB",
            "eager": "1 GiB",
        },
        "probes": {"counters": "1 ms"},
    }


def _order(fabric: Path) -> dict[str, int]:
    """Number of each host's node."""
    job = {"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}
    section = load_scenario({**_base(fabric), "job": [job]}).fabric
    return {name: node for node, name in enumerate(load_fabric(section).node_name)}


def flow_gbps(run: Run, source: str) -> float:
    """Rate of the message of a host, Gb/s."""
    names = run.tables["nodes"]["name"].to_list()
    ranks = run.tables["ranks"].filter(pl.col("node") == names.index(source))["rank"]
    row = run.tables["messages"].filter(pl.col("src_rank") == ranks[0]).row(0, named=True)
    return float(row["size_bytes"] * 8000 / (row["arrival_ps"] - row["start_ps"]))


def stall(run: Run, source: str, destination: str) -> float:
    """Share of the first three quarters of the run that a port waited for credit."""
    links = run.tables["links"].filter(
        (pl.col("src_name") == source) & (pl.col("dst_name") == destination)
    )
    rows = (
        from_run(run)
        .all_intervals()
        .filter(
            (pl.col("link") == links["link"][0])
            & (pl.col("time_ns") * 1000 < 0.75 * run.elapsed_ps)
        )
    )
    return float(rows["stall_ns"].sum() / rows["interval_ns"].sum())


def marked_share(run: Run, source: str, destination: str) -> float:
    """Share of the packets of a port that found it in the congested state."""
    links = run.tables["links"].filter(
        (pl.col("src_name") == source) & (pl.col("dst_name") == destination)
    )
    rows = run.tables["truth"].filter(pl.col("link") == links["link"][0])
    return float(rows["congested_packets"].sum() / rows["packets"].sum())


def victim_rows() -> list[Row]:
    """Figure 1: what the victim flow and its port suffer."""
    quiet, hot = figure_1(congested=False), figure_1(congested=True)
    ports = (("r", "s"), ("s", "p"), ("s", "w"))
    stalls = [stall(hot, *ends) for ends in ports]
    declaring = figure_1(congested=True, marks=True)
    declared = [marked_share(declaring, *ends) for ends in ports]
    waiting = stall(declaring, *ports[0])
    return [
        Row(
            "Figure 1: victim flow F2 without and with the congestion of port p",
            "8 → 2.67 Gb/s (section V)",
            f"{flow_gbps(quiet, 'f2'):.2f} → {flow_gbps(hot, 'f2'):.2f} Gb/s",
            percent(100 * (flow_gbps(hot, "f2") * 3 / LINE_GBPS - 1)),
            "a third of the line: p is shared by three, and q sends F1 and F2 in turn",
        ),
        Row(
            "… PortXmitWait of port q, of port p and of port w, share of time",
            "q grows, p does not",
            ", ".join(percent(100 * share) for share in stalls),
            state_agreement(stalls[0] > 0.0 == stalls[1]),
            "the counter shows the victim, not the congested port (section III-A)",
        ),
        Row(
            "… with congestion control: packets that find q, p and w in the congested state, as "
            "PortXmitCongTime counts it; PortXmitWait of q",
            "p is congested when q waits",
            f"{', '.join(percent(100 * share) for share in declared)}; {percent(100 * waiting)}",
            state_agreement(declared[1] > max(declared[0], declared[2]) and waiting > 0.0),
            "senders do not react, so that both last",
        ),
    ]


def shape_rows() -> list[Row]:
    """Figures 2 and 3: the shape of the network."""
    fabric = load_fabric(load_scenario(EXAMPLES / "yellowstone/yellowstone.toml").fabric)
    names = fabric.switch_name
    count = {
        word: sum(part in name for name in names)
        for word, part in (("ToR", "tor0"), ("leaves", "-leaf"), ("spines", "-spine"))
    }
    tors = sum(name.startswith("tor") for name in names)
    ports = np.bincount(fabric.link_src.astype(np.int64))[fabric.n_nodes :]
    storage = {
        kind: sum(name.startswith(f"storage-{kind}") for name in names)
        for kind in ("leaf", "spine")
    }
    kinds = classes.classify(fabric, {"Glade": "^storage"})
    ports_of_kind = Counter(zip(kinds["category"], kinds["port_type"], strict=True))
    shares = [ports_of_kind[kind] / ports_of_kind["Leaf", "down"] for kind in CHOSEN]
    rounds = [ROUNDS[kind][0] / ROUNDS["Leaf", "down"][0] for kind in CHOSEN]
    largest = max(abs(b / a - 1) for a, b in zip(rounds, shares, strict=True))
    leaves = count["leaves"] - storage["leaf"]
    spines = count["spines"] - storage["spine"]
    return [
        Row(
            "Figure 2: ports of a ToR; leaves and spines of the nine ORCAs; ToRs",
            "36; 29 × 9 = 261, 18 × 9 = 162; about 250",
            f"{int(ports[0])}; {leaves}, {spines}; {tors}",
            state_agreement(
                (int(ports[0]), leaves, spines) == (36, 261, 162) and round(tors, -1) == 250
            ),
            "the paper gives no number of ToRs; rounds of ToRs and leaves are alike (Table I)",
        ),
        Row(
            "Table I: rounds (ours: ports) over those of leaf down: spine down, leaf up, ToR down, "
            "ToR up",
            ", ".join(f"{share:.3f}" for share in rounds),
            ", ".join(f"{share:.3f}" for share in shares),
            f"at most {percent(100 * largest)}",
            "ports are chosen at random: as many rounds as ports; counted on the topology",
        ),
        Row(
            "Figure 3: Glade leaves and spines",
            "4, 6",
            f"{storage['leaf']}, {storage['spine']}",
            state_agreement((storage["leaf"], storage["spine"]) == (4, 6)),
            "counted on the topology",
        ),
    ]


def growth_rows() -> list[Row]:
    """Figure 4 and Table III: how the counter grows, and a fraction above 1."""
    run = run_of(load_scenario(EXAMPLES / "yellowstone/yellowstone.toml"))
    rows = counters_of(run).join(
        run.tables["links"].filter(pl.col("tier") == 1).select("link"), on="link"
    )
    steps = (
        rows.filter(pl.col("direction") == "up")
        .group_by("link")
        .agg(grown=(pl.col("stall_ns") > 0).sum(), all=pl.len())
        .filter(pl.col("grown") > 0)
    )
    few, many = int(steps["grown"].min() or 0), int(steps["grown"].max() or 0)  # type: ignore[arg-type]
    height = int(steps["all"][0])
    # Table III: the two readings of the paper's example, as equation 3 takes them.
    ticks = np.array([2426695474, 2433352285])
    query = np.array([0, 124199424 - (24841529 - 18350267) // 2])
    tick_ns = TICK_BYTES * 8 / FDR_LANE_GBPS
    fraction = forced_idle_fraction(ticks, query, np.array([18350267, 24841529]))
    return [
        Row(
            "Figure 4: intervals of a round in which the counter grew, the port with fewest",
            percent(100 * 2 / 99),
            percent(100 * few / height),
            f"{100 * few / height - 100 * 2 / 99:+.1f} points",
            "ToR up ports of the simulated Yellowstone with a stall; intervals of 34 µs instead of "
            "100 ms",
        ),
        Row(
            "… the port with most",
            "almost all",
            percent(100 * many / height),
            "–",
            "longer intervals hold more stalls: see the figure by length",
        ),
        Row(
            "Table III: fraction of two readings 6,656,811 ticks and 124.2 ms apart",
            "1.179",
            f"{float(fraction[0]):.3f}",
            state_agreement(abs(fraction[0] - 1.179) < 5e-4),
            f"equation 3 with the paper's tick of {FDR_TICK_NS:g} ns",
        ),
        *(
            Row(
                f"Table II: largest fraction, {' '.join(kind)}, with a tick of {tick_ns:.2f} ns",
                f"{LARGEST[kind]:.3f}",
                f"{LARGEST[kind] * tick_ns / FDR_TICK_NS:.3f}",
                "–",
                "the vendor's tick of SwitchX on FDR",
            )
            for kind in (("Leaf", "down"), ("Leaf", "up"), ("ToR", "up"))
        ),
    ]


def rows() -> list[Row]:
    """Every row."""
    return [*victim_rows(), *shape_rows(), *growth_rows()]


def main() -> None:
    """Print the rows; write them on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    text = table(rows())
    print(text)
    if arguments.write:
        put(PAGE, {"victim": text})


if __name__ == "__main__":
    main()
