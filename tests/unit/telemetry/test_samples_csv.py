"""Samples from CSV: sums, estimates and what is refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tailback.errors import TailbackError
from tailback.fabric.model import Fabric, in_port_order
from tailback.fabric.readers import read_fabric
from tailback.run.schema import TABLES
from tailback.telemetry.estimate import link_estimates
from tailback.telemetry.samples_csv import SampleError, read_samples
from tests.factories.public_data import real

LINKS = "link,src,dst,rate_gbit\n" + "".join(
    f"{10 * i},h{i},s,1\n{10 * i + 1},s,h{i},1\n" for i in range(1, 4)
)
FLOWS = "src_ip,dst_ip,link,congested,hops,samples\n" + (
    "10.0.0.1,10.0.0.2,10,0,2,30\n10.0.0.1,10.0.0.2,10,1,2,10\n10.0.0.1,10.0.0.3,10,1,4,5\n"
)
SUMS = (
    "time_utc,link,samples_uncongested,samples_congested,hops_uncongested,hops_congested\n"
    "2026-11-22T11:06:10Z,10,0,0,0,0\n2026-11-22T11:06:10Z,21,0,0,0,0\n"
    "2026-11-22T11:06:11Z,10,30,10,60,20\n2026-11-22T11:06:11Z,21,7,0,14,0\n"
    "2026-11-22T11:06:12Z,10,30,15,60,40\n2026-11-22T11:06:12Z,21,7,0,14,0\n"
)
RANKS = (
    "time_utc,rank,link,samples,packets,packets_variance,bytes,congested_samples,congested,"
    "congested_variance\n"
    "2026-11-22T11:06:10Z,3,10,20,40,40,40000,0,0,0\n2026-11-22T11:06:10Z,,10,4,8,8,800,0,0,0\n"
    "2026-11-22T11:06:11Z,3,10,35,70,70,70000,5,10,10\n2026-11-22T11:06:11Z,3,21,2.6,5.2,9,500,0,0,0\n"
    "2026-11-22T11:06:12Z,3,10,50,100,100,100000,5,10,10\n2026-11-22T11:06:12Z,,10,4,8,8,800,0,0,0\n"
    "2026-11-22T11:06:12Z,3,21,-1.2,-2.4,9,-100,0,0,0\n"
)


@pytest.fixture
def fabric(tmp_path: Path) -> Fabric:
    (tmp_path / "links.csv").write_text(LINKS)
    return in_port_order(read_fabric(tmp_path / "links.csv"))


def put(folder: Path, text: str | bytes) -> Path:
    path = folder / "samples"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_samples_by_flow(tmp_path: Path, fabric: Fabric) -> None:
    evidence = read_samples(put(tmp_path, gzip.compress(FLOWS.encode())), fabric)
    assert evidence.samples.schema == pl.Schema(TABLES["samples"].polars_schema)
    row = evidence.samples.row(0, named=True)
    assert fabric.link_id is not None and fabric.link_id[row["link"]] == "10"
    assert (row["hop_samples"], row["hop_weight"], row["hop_variance"]) == (45, 100, 140)
    congested = ("congested_samples", "congested_weight", "congested_variance")
    assert [row[name] for name in congested] == [15, 40, 80]
    assert row["hop_bytes"] is None
    flows = evidence.flows.select("source", "destination", "hop_weight").rows()
    assert flows == [("10.0.0.1", "10.0.0.2", 80), ("10.0.0.1", "10.0.0.3", 20)]
    estimate = link_estimates(evidence.samples).row(0, named=True)
    assert (estimate["packets"], estimate["fraction"]) == (100.0, 0.4)
    assert estimate["fraction_low"] < 0.4 < estimate["fraction_high"]


def test_cumulative_samples_become_windows(tmp_path: Path, fabric: Fabric) -> None:
    evidence = read_samples(put(tmp_path, SUMS), fabric)
    assert evidence.windows["window"].to_list() == [0, 1, 2]
    assert (evidence.windows["end_ns"] - evidence.windows["start_ns"]).to_list() == [
        0,
        10**9,
        10**9,
    ]
    rows = evidence.samples.filter(pl.col("link") == (fabric.link_id or []).index("10"))
    assert rows["window"].to_list() == [1, 2]
    assert rows["hop_weight"].to_list() == [80, 20]
    # Lengths 2 and 4 occur: the sums of l (l - 1) are those of the flows.
    assert rows["hop_variance"].to_list() == [80, 60]
    assert rows["congested_variance"].to_list() == [20, 60]


def test_samples_by_rank_are_summed_over_ranks(tmp_path: Path, fabric: Fabric) -> None:
    evidence = read_samples(put(tmp_path, RANKS), fabric)
    assert evidence.samples.schema == pl.Schema(TABLES["samples"].polars_schema)
    assert (evidence.windows["end_ns"] - evidence.windows["start_ns"]).to_list() == [
        0,
        10**9,
        10**9,
    ]
    ten, other = ((fabric.link_id or []).index(name) for name in ("10", "21"))
    rows = evidence.samples.filter(pl.col("link") == ten)
    # In the second there is no line of the unknown rank: it had no further samples.
    assert rows["hop_weight"].to_list() == [48, 30, 30]
    assert rows["hop_variance"].to_list() == [48, 30, 30]
    assert rows["hop_bytes"].to_list() == [40800, 30000, 30000]
    assert rows["congested_weight"].to_list() == [0, 10, 0]
    # An estimate below 0 is none, and was none before.
    assert evidence.samples.filter(pl.col("link") == other)["hop_weight"].sum() == 0
    ends = evidence.flows.filter(pl.col("link") == ten).select("destination", "hop_weight").rows()
    assert ends == [(None, 8.0), ("3", 100.0)]


def test_samples_by_call_add_up_to_ranks(tmp_path: Path, fabric: Fabric) -> None:
    """The calls of receivers divide the packets of a rank, and leave all other sums as they are."""
    lines = RANKS.splitlines()
    halves = [lines[0].replace("rank,", "rank,call,")]
    for line in lines[1:]:
        time, rank, link, *amounts = line.split(",")
        for call in ("MPI_Waitall", ""):
            half = (f"{float(amount) / 2:g}" for amount in amounts)
            halves.append(",".join([time, rank, call, link, *half]))
    undivided = read_samples(put(tmp_path, RANKS), fabric)
    divided = read_samples(put(tmp_path, "\n".join([*halves, ""])), fabric)
    assert divided.samples.equals(undivided.samples)
    assert divided.flows.equals(undivided.flows)
    assert undivided.calls.is_empty()
    ten = (fabric.link_id or []).index("10")
    assert divided.calls.filter(pl.col("link") == ten).rows() == [
        (ten, "", 54.0, 5.0),
        (ten, "MPI_Waitall", 54.0, 5.0),
    ]


@pytest.mark.slow
def test_many_times_take_memory_of_their_rows(tmp_path: Path, fabric: Fabric) -> None:
    # A time and a rank a line: their product would be 10^10.
    lines = (f"{1_800_000_000 + k},{k},10,1,2,2,100,0,0,0" for k in range(100_000))
    head = RANKS.partition("\n")[0]
    evidence = read_samples(put(tmp_path, "\n".join([head, *lines, ""])), fabric)
    assert evidence.samples["hop_weight"].sum() == 200_000
    assert evidence.samples.height == evidence.windows.height == 100_000


def test_a_truncated_file_is_read_to_its_line(tmp_path: Path, fabric: Fabric) -> None:
    complete = read_samples(put(tmp_path, RANKS), fabric)
    for cut in range(2, 40, 7):
        truncated = read_samples(put(tmp_path, RANKS[:-cut]), fabric)
        assert truncated.samples["hop_weight"].sum() == complete.samples["hop_weight"].sum() + 5
    with pytest.raises(SampleError, match=r"column 2 \(rank\)"):
        read_samples(put(tmp_path, RANKS.replace(",3,21", ",-3,21")), fabric)


@pytest.mark.slow
def test_intervals_hold_where_one_reservoir_serves_both(tmp_path: Path, fabric: Fabric) -> None:
    """400 links' worth of packets drawn as receivers count them: at least 95 % are covered."""
    draw = np.random.default_rng(5)
    packets, fraction, length = 3000, 0.3, 4
    inside = 0
    for _ in range(400):
        at_link = draw.random(packets) < 1 / length
        hot = np.arange(packets) < fraction * packets
        text = "src,dst,link,congested,hops,samples\n" + "".join(
            f"a,b,10,{flag},{length},{int((at_link & (hot == flag)).sum())}\n" for flag in (0, 1)
        )
        row = link_estimates(read_samples(put(tmp_path, text), fabric).samples).row(0, named=True)
        inside += row["fraction_low"] <= fraction <= row["fraction_high"]
    assert inside >= 380


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FLOWS.replace(",10,0,2", ",99,0,2"), "line 2, column 3 (link): the fabric has no link"),
        (FLOWS.replace(",0,2,30", ",2,2,30"), "line 2, column 4 (congested): '2' is not 0 to 1"),
        (FLOWS.replace(",0,2,30", ",0,0,30"), "line 2, column 5 (hops): '0' is not 1 to 255"),
        (FLOWS.replace(",2,30", ",2,-3"), "'-3' is not a whole number"),
        (FLOWS.replace("hops", "jumps"), "no column for the hops"),
        (FLOWS[:-6], "line 4, column 5: 4 fields where the header has 6"),
        (SUMS.replace("30,15,60", "20,15,60"), "line 6, column 3 (samples_uncongested): is less"),
        (SUMS.replace("2026-11-22T11:06:12Z,21", "then,21"), "'then' is not a time"),
        ("", "the file is empty"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, fabric: Fabric, text: str, says: str) -> None:
    with pytest.raises(SampleError) as caught:
        read_samples(put(tmp_path, text), fabric)
    assert says in str(caught.value) and "remedy: " in str(caught.value)


def test_cut_files_never_end_in_a_traceback(tmp_path: Path, fabric: Fabric) -> None:
    for text in (FLOWS, SUMS, RANKS):
        for end in range(0, len(text), 5):
            try:
                read_samples(put(tmp_path, text[:end]), fabric)
            except TailbackError as error:
                assert error.remedy


@pytest.mark.data
@pytest.mark.parametrize("run", ["r8", "r9"])
def test_estimates_of_real_packets_match_counters(tmp_path: Path, run: str) -> None:
    with tarfile.open(real(f"real-lab/{run}.tar.gz")) as archive:
        for name in ("links.csv", "samples.csv.gz", "samples_flows.csv.gz", "counters.csv.gz"):
            archive.extract(f"{run}/{name}", tmp_path, filter="data")
    folder = tmp_path / run
    fabric = in_port_order(read_fabric(folder / "links.csv"))
    flows = link_estimates(read_samples(folder / "samples_flows.csv.gz", fabric).samples)
    sums = link_estimates(read_samples(folder / "samples.csv.gz", fabric).samples)
    for name in ("packets", "packets_variance", "congested", "fraction"):
        assert flows[name].to_list() == sums[name].to_list()
    text = gzip.decompress((folder / "counters.csv.gz").read_bytes())
    counted = dict(
        pl.read_csv(io.BytesIO(text)).group_by("link").agg(pl.col("tx_packets").max()).iter_rows()
    )
    sent = np.array([counted[int((fabric.link_id or [])[link])] for link in flows["link"]])
    z = (flows["packets"].to_numpy() - sent) / flows["packets_se"].to_numpy()
    assert len(z) == 32 and np.abs(z).max() < 4 and z.std() < 1.5
