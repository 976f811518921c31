"""Packet ids: what makes a queue pair's packets distinct, and that all sides make the same ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tailback import _core
from tailback.cli import run as command
from tailback.errors import RunError, TraceError
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import simulate
from tailback.simulation.decode import decode_link_counts, decode_samples
from tailback.telemetry.packet_ids import ids_of, packet_ids
from tailback.telemetry.wire import IbPacket, encode
from tests.factories.infiniband_captures import read_pcap
from tests.factories.probed_runs import TREE, run_of, truth_of

PAIRS = [
    {"queue_pairs": "per-peer", "psn_start": "zero"},
    {"queue_pairs": "per-peer", "psn_start": "random"},
    {"queue_pairs": "shared", "psn_start": "zero"},
]


def run_with(pairs: dict[str, str]) -> Run:
    """36 ranks, two a node, so that nodes share queue pair numbers out among ranks."""
    pattern = {"kind": "uniform", "ranks": 36, "messages": 30, "size": "20 KiB"}
    job = {"pattern": pattern, "ranks_per_host": 2}
    telemetry = {"scheme": "coordinated", "hash_bits": 5, **pairs}
    return simulate(parse({"fabric": {"fat_tree": TREE}, "job": [job], "telemetry": telemetry}))


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pairs: "-".join(pairs.values()))
def pairs_run(request: Any) -> tuple[dict[str, str], Run]:
    return request.param, run_with(request.param)


def test_switches_hash_the_id_that_receivers_compute(pairs_run: tuple[dict[str, str], Run]) -> None:
    _, run = pairs_run
    packets = run.tables["packets"].with_columns(id=ids_of(run.tables["packets"]))
    into = run.tables["links"].filter("to_node").select(dst_node="dst", link="link")
    within = packets.filter(pl.col("hops") == 1).join(into, on="dst_node")
    assert within.height > 100
    hashes = _core.link_hash(
        "gf", within["id"].to_numpy(), within["link"].to_numpy() + np.uint32(1), 5, 24
    )
    assert (hashes == within["header"].to_numpy() >> np.uint64(1)).all()


def test_every_queue_pair_counts_its_own_packets(pairs_run: tuple[dict[str, str], Run]) -> None:
    pairs, run = pairs_run
    packets = run.tables["packets"]
    assert packets["queue_pair"].min() == 2
    shared = pairs["queue_pairs"] == "shared"
    owner = ["src_node", "queue_pair"] if shared else ["src_node", "dst_node", "queue_pair"]
    messages = run.tables["messages"]
    node = dict(run.tables["ranks"].select("rank", "node").iter_rows())
    between = {
        (row["src_rank"], None if shared else row["dst_rank"])
        for row in messages.iter_rows(named=True)
        if node[row["src_rank"]] != node[row["dst_rank"]]
    }
    connections = packets.group_by(owner).agg(pl.col("sequence").sort())
    assert connections.height == len(between)
    starts = set()
    for sequence in connections["sequence"].to_list():
        gaps = np.diff(sequence)
        wraps = int((gaps > 1 << 23).sum())
        assert wraps <= 1 and ((gaps == 1) | (gaps > 1 << 23)).all()
        starts.add(sequence[0] if not wraps else sequence[int(np.argmax(gaps)) + 1])
    assert starts == {0} if pairs["psn_start"] == "zero" else len(starts) > 0.9 * len(between)


def test_a_capture_tells_the_ids(pairs_run: tuple[dict[str, str], Run], tmp_path: Path) -> None:
    _, run = pairs_run
    path, out = run.write(tmp_path / "run"), tmp_path / "run.pcap"
    assert command(["export", "pcap", str(path), str(out)]) == 0
    packets = [packet for _, packet in read_pcap(out)]

    def column(name: str) -> NDArray[np.uint32]:
        return np.array([getattr(packet, name) for packet in packets], np.uint32)

    pair = "destination_qp" if packets[0].source_qp is None else "source_qp"
    ids = packet_ids(column("psn"), column("source_lid"), column("destination_lid"), column(pair))
    assert ids.tolist() == ids_of(run.tables["packets"].sort("time_ps", "packet")).tolist()


def test_counts_stay_unbiased_where_sequence_numbers_repeat() -> None:
    """36 ranks that all start at 0: errors have the size that is stated."""
    off = []
    for seed in (1, 2, 3):
        run = run_of({"scheme": "compact", "hash_bits": 3}, seed=seed)
        assert run.tables["packets"]["sequence"].n_unique() * 20 < run.tables["packets"].height
        counts, truth = decode_link_counts(run), truth_of(run)["observed_packets"].to_numpy()
        assert counts.packets is not None
        sure = counts.counted & (counts.packets.variance > 0)
        error = counts.packets.packets - truth
        off.append(error[sure] / np.sqrt(counts.packets.variance[sure]))
    z = np.concatenate(off)
    assert abs(z.mean()) < 4 / np.sqrt(len(z)) and abs(z.std() - 1) < 0.1


def test_runs_without_queue_pairs_are_refused() -> None:
    run = run_of({"scheme": "coordinated", "hash_bits": 5}, messages=2)
    table = run.tables["packets"].with_columns(queue_pair=pl.lit(None, pl.UInt32))
    old = Run(**{**vars(run), "tables": {**run.tables, "packets": table}})
    with pytest.raises(RunError, match="queue pair") as refused:
        decode_link_counts(old)
    assert refused.value.remedy is not None and "simulate" in refused.value.remedy
    assert any("queue pair" in note for note in decode_samples(old).notes)


def test_only_datagrams_have_a_source_queue_pair() -> None:
    for packet in (IbPacket(1, 2, 3, 4, source_qp=5), IbPacket(1, 2, 3, 4, opcode=0x64)):
        with pytest.raises(TraceError, match="source queue pair"):
            encode(packet)
