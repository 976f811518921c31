"""Reproduction of Figures 5.2–5.5 and 4.12 of Taffet (2019).

    python -m studies.taffet2019.telemetry_figures --write

The naive reduction on the Full network, sampled by full reservoirs (Figure 4.12) and by one-bit
hashes: over all links (Figures 5.2, 5.3) and over each packet's candidates (5.4, 5.5), with 32-byte
packets and with ten times as many for the same traffic: packets a tenth as large in proportion to
messages, buffers and delays, which are all ten times larger then. The one-bit scheme makes the same
reservoir decisions and keeps the hash of the link they chose, so its samples are made from the
reservoirs of the simulated packets, sender by sender: nothing else is drawn again.

The published hash H_mult' on sequence numbers as they are, and the linear hash on spread ones: the
first is decoded directly, packet by packet and link by link, the second by transforms.

Links that may be noise are hidden (section 5.3) at two confidences: the published 99.5 % of each
link, at which one idle link in 200 shows by definition, and 99.5 % of all links together.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from PIL import Image
from scipy.special import ndtri

from measuring import put
from measuring.fat_tree_stages import fat_tree_stages
from studies.taffet2019.reproduction import FIGURES, PAGE
from tailback import Run, load_scenario
from tailback.fabric import Fabric
from tailback.report import Options, draw, make_case, render
from tailback.simulation import COMPILED_DECODER, decode_published, execute, link_hash, prepare
from tailback.telemetry import (
    CandidateLinks,
    HashedCounts,
    HashedSamples,
    count_links,
    packet_ids,
)
from tailback.traffic import Op

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "examples" / "reduction" / "reduction.toml"
FIELD_BITS = 24
CONFIDENCE = 0.995
TARGET = 0
PORTION = 64
FULL = "figure-4.12"
DPI, COLOURS = 90, 96
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture: file stem, title, and the run it shows."""

    stem: str
    title: str
    run: Run


@dataclass(frozen=True)
class Samples:
    """One entry a packet: what a reservoir held, and who sent it."""

    sequence: NDArray[np.uint32]
    sender: NDArray[np.uint32]
    link: NDArray[np.uint32]
    weight: NDArray[np.uint8]


def thresholded(counts: HashedCounts, confidence: float) -> NDArray[np.float64]:
    """Counts, 0 if not significantly above those of a link without packets (section 5.3)."""
    limit = np.sqrt(counts.null_variance) * float(ndtri(confidence))
    return np.where((counts.packets >= limit) & (counts.packets > 0), counts.packets, 0.0)


def simulated(packet_bytes: int, times: int, seed: int) -> tuple[Run, Fabric]:
    """The reduction with a label for each sender, so that samples tell who sent them.

    The same traffic in ``times`` as many packets: with everything that has a size or takes time as
    many times larger, only the packets are small.
    """
    scenario = load_scenario(SCENARIO)
    engine, pattern = scenario.engine, scenario.job[0].pattern
    assert pattern is not None
    scenario.seed, engine.packet = seed, packet_bytes
    pattern["size"] = f"{4 * times} KiB"
    engine.buffer, engine.eager = engine.buffer * times, engine.eager * times
    engine.switch_delay *= times
    engine.send_delay *= times
    scenario.telemetry.windows, scenario.telemetry.messages = 1, False
    prepared = prepare(scenario)
    job = prepared.jobs[0]
    program = job.program
    labels = [replace(program.labels[0], tag=rank) for rank in range(program.n_ranks)]
    sender = np.where(program.kind == Op.ISEND, program.op_rank, np.maximum(program.peer, 0))
    job.program = replace(program, label=sender.astype(np.uint32), labels=labels)
    prepared.program, prepared.job_of_label = job.program, np.zeros(len(labels), np.uint32)
    return execute(prepared), prepared.fabric


@cache
def congested_hops(count: int, weight: int, variance: int) -> tuple[int, ...]:
    """Numbers of samples with g = 1 … 5 that have a row's sums of 1, g and g(g − 1).

    The sums are all that means and variances of the counts depend on.
    """
    third = variance - 2 * weight + 2 * count
    need, room = third - (weight - count), 2 * count - weight + third // 2
    for fives in range(third // 12 + 1):
        # The least number of fours that leaves no negative number of twos.
        fours = max(0, -((8 * fives - need) // 3))
        threes, twos = third // 2 - 6 * fives - 3 * fours, 8 * fives + 3 * fours - need
        ones = room - 3 * fives - fours
        if threes >= 0 and ones >= 0:
            return ones, twos, threes, fours, fives
    raise ValueError(f"no hop counts up to 5 make {count}, {weight}, {variance}")


def packets_of(rows: pl.DataFrame, seed: int) -> tuple[Samples, Samples]:
    """Hop and congested samples of every packet, with sequence numbers from a random start.

    The order of a sender's samples is not recorded; any order will do.
    """
    random = np.random.default_rng(seed)
    rows = rows.sort("label")
    columns = {name: rows[name].to_numpy().astype(np.int64) for name in rows.columns}
    count = columns["hop_samples"]
    length = np.divide(columns["hop_weight"], count, out=np.ones(len(count)), where=count > 0)
    if (length != np.round(length)).any():
        raise SystemExit("packets of one sender to the root have paths of different lengths")
    parts = np.array(
        [
            congested_hops(*map(int, row))
            for row in zip(
                columns["congested_samples"],
                columns["congested_weight"],
                columns["congested_variance"],
                strict=True,
            )
        ]
    )
    row, which = np.nonzero(parts)
    met = np.repeat(row, parts[row, which])
    g = np.repeat(which + 1, parts[row, which])
    ids, congested_ids = [], []
    for label in np.unique(columns["label"]):
        of_label = columns["label"] == label
        size, some = int(count[of_label].sum()), int(columns["congested_samples"][of_label].sum())
        first = random.integers(0, 1 << FIELD_BITS)
        ids.append((first + random.permutation(size)) % (1 << FIELD_BITS))
        congested_ids.append((first + random.permutation(size)[:some]) % (1 << FIELD_BITS))
    return (
        Samples(
            np.concatenate(ids).astype(np.uint32),
            np.repeat(columns["label"], count).astype(np.uint32),
            np.repeat(columns["link"], count).astype(np.uint32),
            np.repeat(length, count).astype(np.uint8),
        ),
        Samples(
            np.concatenate(congested_ids).astype(np.uint32),
            columns["label"][met].astype(np.uint32),
            columns["link"][met].astype(np.uint32),
            g.astype(np.uint8),
        ),
    )


class Published:
    """Decodes the published hash, which is not linear: class by class, directly."""

    def decode_classes(
        self,
        ids: NDArray[np.uint32],
        hashes: NDArray[np.uint8],
        weights: NDArray[np.uint8],
        *,
        class_of_packet: NDArray[np.uint32],
        class_start: NDArray[np.uint64],
        class_links: NDArray[np.uint32],
        links: NDArray[np.uint32],
        bits: int,
        field_bits: int,
    ) -> NDArray[np.int64]:
        """Scores, as the compiled core's function of that name."""
        if bits != 1:
            raise SystemExit(f"the published scheme has one hash bit, not {bits}")
        total = np.zeros(len(links), np.int64)
        for group in np.unique(class_of_packet):
            in_group = class_of_packet == group
            members = class_links[int(class_start[group]) : int(class_start[group + 1])]
            total[members] += decode_published(
                ids[in_group], hashes[in_group], weights[in_group], links[members]
            )
        return total


def link_values(fabric: Fabric, hash_name: str) -> NDArray[np.uint32]:
    """What switches hash: link numbers, or the published (switch id, port number) in one word."""
    if hash_name == "gf":
        return np.arange(1, fabric.n_links + 1, dtype=np.uint32)
    switch = np.maximum(fabric.link_src.astype(np.int64) - fabric.n_nodes, 0)
    return (switch * 2**15 + fabric.link_src_port.astype(np.int64) * 2**9 + 509).astype(np.uint32)


def one_bit(
    samples: Samples,
    lengths: NDArray[np.uint8],
    fabric: Fabric,
    node: NDArray[np.uint32],
    subset: bool,
    hash_name: str,
) -> HashedCounts:
    """Counts from the hash of the link in the reservoir, over all links or the candidates."""
    values, linear = link_values(fabric, hash_name), hash_name == "gf"
    ids = samples.sequence  # as published; the linear hash needs ids that are not linear in them
    if linear:
        source = node[samples.sender] + np.uint32(1)
        target = np.full_like(source, node[TARGET] + 1)
        ids = packet_ids(samples.sequence, source, target, samples.sender + np.uint32(2))
    hashes = link_hash(hash_name, ids, values[samples.link], 1, FIELD_BITS)
    arrived = HashedSamples(ids, hashes, samples.weight, 1, FIELD_BITS)
    decoder = COMPILED_DECODER if linear else Published()
    if not subset:
        outside = np.flatnonzero(fabric.link_src >= fabric.n_nodes).astype(np.uint32)
        everything = CandidateLinks(
            np.zeros(len(hashes), np.uint32), np.array([0, len(outside)], np.uint64), outside
        )
        return count_links(decoder, arrived, [(np.arange(len(hashes)), everything)], values, False)
    stages = []
    for stage in fat_tree_stages(fabric):
        rows = np.flatnonzero(stage.hop_of(lengths[samples.sender]) >= 0)
        source = node[samples.sender[rows]]
        stages.append((rows, stage.candidates(source, np.full_like(source, node[TARGET]))))
    return count_links(decoder, arrived, stages, values, False)


def shown_run(run: Run, hop: Floats, congested: Floats) -> Run:
    """The run as the one-bit scheme sees it: one row of samples a link that is shown."""
    links = np.flatnonzero(hop > 0)
    packets = np.round(hop[links]).astype(np.uint64)
    met = np.clip(np.round(congested[links]), 0, packets).astype(np.uint64)
    rows = {name: np.zeros(len(links), np.uint64) for name in run.tables["samples"].columns}
    rows |= {
        "link": links,
        "hop_samples": packets,
        "hop_weight": packets,
        "congested_samples": met,
        "congested_weight": met,
    }
    samples = pl.DataFrame(rows).cast(dict(run.tables["samples"].schema))
    return replace(run, tables={**run.tables, "samples": samples})


def counted(
    run: Run, fabric: Fabric, seed: int, hash_name: str
) -> dict[bool, tuple[HashedCounts, Floats]]:
    """Counts of packets and of congested packets, over all links and over candidates.

    Senders are taken in portions to save memory.
    """
    node = run.tables["ranks"].sort("rank")["node"].to_numpy()
    rows = run.tables["samples"]
    total = {subset: np.zeros((4, fabric.n_links)) for subset in (False, True)}
    for first in range(0, len(node), PORTION):
        portion = rows.filter((pl.col("label") >= first) & (pl.col("label") < first + PORTION))
        hop, congested = packets_of(portion, seed + first)
        lengths = np.zeros(len(node), np.uint8)
        lengths[hop.sender] = hop.weight
        for subset, sums in total.items():
            part = one_bit(hop, lengths, fabric, node, subset, hash_name)
            met = one_bit(congested, lengths, fabric, node, subset, hash_name)
            sums += part.packets, part.variance, part.null_variance, met.packets
    zero = np.zeros(fabric.n_links)
    return {subset: (HashedCounts(*sums[:3], zero), sums[3]) for subset, sums in total.items()}


def figures_of(
    run: Run, fabric: Fabric, names: Iterable[str], seed: int, hash_name: str
) -> tuple[list[Drawing], list[dict[str, object]]]:
    """Both figures of one run, over all links and over candidates, with their facts."""
    packets = int(run.tables["samples"]["hop_samples"].sum())
    node = run.tables["ranks"].sort("rank")["node"].to_numpy()
    truth = np.zeros((2, fabric.n_links))
    summed = (
        run.tables["truth"]
        .group_by("link")
        .agg(pl.col("observed_packets", "observed_congested_packets").sum())
    )
    for row, column in enumerate(("observed_packets", "observed_congested_packets")):
        truth[row, summed["link"].to_numpy()] = summed[column].to_numpy()
    outside = fabric.link_src >= fabric.n_nodes
    by_subset = counted(run, fabric, seed, hash_name)
    drawings, facts = [], []
    for name, subset in zip(names, (False, True), strict=True):
        counts, met = by_subset[subset]
        possible = int((counts.null_variance[outside] > 0).sum())
        each = np.where(outside, thresholded(counts, CONFIDENCE), 0.0)
        # All links together: the chance that any idle one shows is 1 − confidence (Bonferroni).
        every = np.where(outside, thresholded(counts, 1.0 - (1.0 - CONFIDENCE) / possible), 0.0)
        over = "candidates" if subset else "all links"
        title = f"one bit, {over}, {packets / 1e6:.1f} million packets"
        drawings.append(Drawing(name, title, shown_run(run, every, met)))
        facts.append(
            {
                "figure": name,
                "hash": hash_name,
                "packets": packets,
                "candidates": subset,
                **judged(every, each, met, truth, outside, fabric, node, possible),
            }
        )
    return drawings, facts


def judged(
    every: Floats,
    each: Floats,
    met: Floats,
    truth: Floats,
    outside: NDArray[np.bool_],
    fabric: Fabric,
    node: NDArray[np.uint32],
    possible: int,
) -> dict[str, object]:
    """What a figure shows, compared with the truth."""
    used = (truth[0] > 0) & outside
    fraction = np.divide(truth[1], truth[0], out=np.zeros_like(met), where=truth[0] > 0)
    estimate = np.divide(
        np.minimum(np.maximum(met, 0), every), every, out=np.zeros_like(met), where=every > 0
    )
    root = int(np.flatnonzero((fabric.link_dst == node[TARGET]) & outside)[0])
    tree = used & (fraction > 0.5)
    leaf = fabric.link_src[root]
    near = tree & ((fabric.link_dst == leaf) | (np.arange(len(met)) == root))
    return {
        "links_tested": possible,
        "links_used": int(used.sum()),
        "used_shown": int((every[used] > 0).sum()),
        "idle_shown": int((every[outside & ~used] > 0).sum()),
        "idle_shown_each": int((each[outside & ~used] > 0).sum()),
        "used_shown_each": int((each[used] > 0).sum()),
        "tree_links": int(tree.sum()),
        "tree_shown": int((every[tree] > 0).sum()),
        "at_root_links": int(near.sum()),
        "at_root_shown": int(((every > 0) & near & (estimate > 0.5)).sum()),
        "root_fraction": float(fraction[root]),
        "root_fraction_found": float(estimate[root]),
        "packets_share_shown": float(truth[0][(every > 0) & used].sum() / truth[0][used].sum()),
    }


def write_figures(drawings: Iterable[Drawing], folder: Path) -> None:
    """Write each drawing as a small PNG with a palette."""
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in drawings:
        drawn = draw("congested_fraction", make_case(drawing.run, None), Options())
        assert drawn is not None
        drawn.axes[0].set_title(drawing.title)
        for text in (text for part in drawn.axes for text in part.texts):
            said = text.get_text().replace("whole run.", f"{drawing.title}.")
            if drawing.stem != FULL:
                said = re.sub("No line, or .*", "No line: no packets, or what may be noise.", said)
            text.set_text(said)
        image = Image.open(io.BytesIO(render(drawn, "png", dpi=DPI))).convert("RGB")
        image.quantize(COLOURS).save(folder / f"{drawing.stem}.png", optimize=True)


LABELS = {
    "hash": "link hash",
    "packets": "packets",
    "links_tested": "links tested",
    "links_used": "links used",
    "used_shown": "… of them shown",
    "packets_share_shown": "share of packet-hops on them",
    "idle_shown": "idle links shown",
    "used_shown_each": "used links shown at 99.5 % a link",
    "idle_shown_each": "idle links shown at 99.5 % a link",
    "tree_links": "links with congested fraction > 0.5",
    "tree_shown": "… of them shown",
    "at_root_links": "… of them into the root and its leaf",
    "at_root_shown": "… of them shown with fraction > 0.5",
    "root_fraction": "congested fraction of the root's link",
    "root_fraction_found": "… as shown",
}


def table(facts: list[dict[str, object]]) -> str:
    """All figures in Markdown, a column each."""
    facts = sorted(facts, key=lambda fact: str(fact["figure"]))
    head = "| | " + " | ".join(str(fact["figure"]).replace("figure-", "") for fact in facts)
    lines = [head + " |", "|---|" + "---:|" * len(facts)]
    for key, label in LABELS.items():
        cells = [
            f"{fact[key]:.3f}" if isinstance(fact[key], float) else str(fact[key]) for fact in facts
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packet", type=int, default=32, help="bytes")
    parser.add_argument(
        "--times",
        type=int,
        default=10,
        help="packets of Figures 5.3 and 5.5 for each of 5.2 and 5.4; 1: none",
    )
    parser.add_argument(
        "--hash",
        choices=("mult", "gf"),
        nargs="+",
        default=["mult", "gf"],
        help="link hashes; the pictures are of the first",
    )
    parser.add_argument("--out", type=Path, default=None, help="folder for the pictures")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    options = parser.parse_args()
    # All traffic waits for one link, so more threads would only wait for one another.
    os.environ.setdefault("TAILBACK_THREADS", "1")
    if not 32 <= options.packet <= 4096 or not 1 <= options.times <= 100:
        parser.error("--packet must be 32 to 4096, --times 1 to 100")
    drawings, facts = [], []
    plan = [(1, ("figure-5.2", "figure-5.4"))]
    if options.times > 1:
        plan.append((options.times, ("figure-5.3", "figure-5.5")))
    for number, (times, names) in enumerate(plan):
        run, fabric = simulated(options.packet, times, options.seed)
        if number == 0:
            drawings.append(Drawing(FULL, "full reservoirs", run))
        for hash_name in options.hash:
            pictures, rows = figures_of(run, fabric, names, options.seed, hash_name)
            drawings += pictures if hash_name == options.hash[0] else []
            facts += rows
    folder = FIGURES if options.write else options.out
    if folder is not None:
        write_figures(drawings, folder)
    text = table(facts)
    print(json.dumps(facts) if options.json else text)
    if options.write:
        put(PAGE, {"telemetry figures": text})
    return 0


if __name__ == "__main__":
    sys.exit(main())
