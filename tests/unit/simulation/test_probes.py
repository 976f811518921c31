"""Probes of the engine through the scenario: counters, queues, single packets, captures."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tailback import _core
from tailback.cli import run as command
from tailback.errors import RunError, ScenarioError, TraceError
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.readers import read_counters
from tailback.run.run import Run
from tailback.scenario.model import TelemetrySection, parse
from tailback.simulation import prepare
from tailback.simulation.decode import decode_link_counts, decode_samples
from tailback.telemetry.capture import packets_of
from tailback.telemetry.estimate import Selection, link_estimates, select
from tailback.telemetry.header_counts import HASHED, sampled_hop
from tailback.telemetry.pcap import write_pcap
from tests.factories.infiniband_captures import read_pcap
from tests.factories.probed_runs import SCHEMES, TORUS, run_of, scenario, truth_of
from tests.factories.unchecked_runs import without_manifest


@pytest.fixture(scope="module")
def probed() -> Run:
    return run_of({}, probes={"counters": "20 us", "queues": "20 us"})


def test_the_final_counters_are_the_truth(probed: Run) -> None:
    last = probed.tables["counters"].sort("time_ps").group_by("link").last()
    truth = truth_of(probed).filter(pl.col("packets") > 0)
    both = truth.join(last, on="link", suffix="_counted").sort("link")
    assert both.height == truth.height == last.height > 100
    for column, name in (
        ("bytes", "data_bytes"),
        ("packets", "packets_counted"),
        ("busy_ps", "busy_ps_counted"),
    ):
        assert both[column].to_list() == both[name].to_list(), column
    switches = both.filter(~pl.col("from_node"))
    assert switches["stall_ps"].to_list() == switches["stall_ps_counted"].to_list()
    assert switches["stall_ps"].sum() > 0 and switches["queue_ps"].sum() > 0
    assert last["time_ps"].max() <= probed.summary["end_ps"]


@pytest.mark.slow
def test_run_counters_read_like_a_switchs(probed: Run, tmp_path: Path) -> None:
    path = probed.write(tmp_path / "run")
    counters = read_counters(path)
    assert counters.intervals.height == 0
    intervals = difference(counters.readings)
    links, step = probed.tables["links"].height, 20_000_000
    instants = -(-probed.summary["end_ps"] // step)
    assert intervals.height == links * instants
    sums = (
        intervals.group_by("link")
        .agg(pl.col("data_bytes", "packets", "stall_ns").sum(), pl.col("interval_ns").sum())
        .sort("link")
    )
    truth = truth_of(probed)
    assert sums["data_bytes"].to_list() == truth["bytes"].to_list()
    assert sums["packets"].to_list() == truth["packets"].to_list()
    inner = ~truth["from_node"]
    ours = sums["stall_ns"].filter(inner).to_numpy() * 1000
    assert np.abs(ours - truth["stall_ps"].filter(inner).to_numpy()).max() < 1000
    busy = intervals.select(pl.sum_horizontal("stall_fraction", "utilization").max()).item()
    # Counters are in whole nanoseconds; the last interval may be short.
    assert busy <= 1.01
    # What waits in input buffers: the last row of each link has all of it.
    inq = probed.tables["counters"].sort("time_ps").group_by("link").last()["inq_ps"]
    waited = (pl.col("internal_stall_fraction") * pl.col("interval_ns")).sum()
    assert intervals.select(waited).item() == pytest.approx(inq.sum() / 1000, rel=1e-3)
    assert intervals["internal_stall_fraction"].max() > 0.01
    assert command(["counters", str(path)]) == 0


def test_an_older_run_has_unknown_inq_stall(probed: Run, tmp_path: Path) -> None:
    path = without_manifest(probed.write(tmp_path / "run"))
    file = path / "counters.parquet"
    pl.read_parquet(file).drop("inq_ps").write_parquet(file)
    readings = read_counters(path).readings
    assert readings["internal_stall_ns"].null_count() == readings.height > 0
    assert readings["stall_ns"].max() > 0


def test_queues_hold_what_came_and_was_not_sent(probed: Run) -> None:
    """Sent and queued bytes together never fall: they are what has come to the port."""
    end = probed.summary["end_ps"]
    instants = pl.DataFrame({"time_ps": np.append(np.arange(2e7, end, 2e7), end).astype(np.uint64)})
    grid = probed.tables["links"].select("link").join(instants, how="cross")
    frame = (
        grid.join(probed.tables["counters"], on=["link", "time_ps"], how="left")
        .join(probed.tables["queues"], on=["link", "time_ps"], how="left", suffix="_queued")
        .sort("link", "time_ps")
        .with_columns(
            pl.col("data_bytes", "waiting_bytes", "booked_bytes", "packets_queued")
            .forward_fill()
            .over("link")
            .fill_null(0)
        )
    )
    come = pl.sum_horizontal("data_bytes", "waiting_bytes", "booked_bytes").cast(pl.Int64)
    assert frame.select(come.diff().over("link").min()).item() == 0
    # A port of a switch holds no more than the buffers behind it: one lane, 32 KiB a link.
    inner = probed.tables["links"].filter(~pl.col("from_node"))["link"]
    queued = frame.filter(pl.col("link").is_in(inner.implode()))
    assert queued["booked_bytes"].max() <= 32768
    assert queued["waiting_bytes"].max() > 0
    last = frame.filter(pl.col("time_ps") == end)
    assert last["packets_queued"].sum() == 0
    assert frame["packets_queued"].sum() > 0


def test_a_probe_changes_nothing(probed: Run) -> None:
    plain = run_of({})
    for name, frame in plain.tables.items():
        if name not in ("counters", "queues"):
            assert probed.tables[name].equals(frame), name
    assert plain.tables["counters"].height == plain.tables["packets"].height == 0
    assert plain.summary == {
        key: value
        for key, value in probed.summary.items()
        if key not in ("counters_ps", "queues_ps")
    }


def test_tables_do_not_depend_on_threads() -> None:
    probes = {"counters": "7 us", "queues": "3 us"}
    runs = [
        run_of({"scheme": "compact"}, probes=probes, messages=20, threads=count)
        for count in (1, 2, 3, 4)
    ]
    for other in runs[1:]:
        assert all(other.tables[name].equals(frame) for name, frame in runs[0].tables.items())
        assert other.summary == runs[0].summary
    assert runs[0].tables["queues"].height > 1000


def check_counts(run: Run) -> NDArray[np.float64]:
    """Standardised errors of all counts; the intervals hold the truth as often as they say."""
    carried = decode_link_counts(run)
    truth = truth_of(run).filter(~pl.col("from_node"))
    links = truth["link"].to_numpy()
    assert carried.packets is not None
    off, inside = [], []
    for counts, name in (
        (carried.packets, "observed_packets"),
        (carried.congested, "observed_congested_packets"),
    ):
        n = truth[name].to_numpy().astype(np.float64)
        w, variance = counts.packets[links], counts.variance[links]
        low, high = counts.interval()
        inside.append((low[links] <= n) & (n <= high[links]))
        # A hash that all packets of a link's only candidates carry counts them exactly.
        some = variance > 1e-6
        if counts is carried.packets and run.scenario.telemetry.scheme in HASHED:
            assert np.abs(w - n)[~some & (w > 0)].max(initial=0.0) < 1e-6
        off.append((w - n)[some] / np.sqrt(variance[some]))
    everything = np.concatenate(off)
    assert 0.88 <= np.mean(np.concatenate(inside)) <= 1.0
    return everything


@pytest.mark.parametrize("telemetry", SCHEMES, ids=lambda t: "-".join(map(str, t.values())))
def test_counts_from_headers_are_the_truth(telemetry: dict[str, Any]) -> None:
    """On adaptive paths, with real congestion, without bias and as precise as stated."""
    run = run_of(telemetry)
    packets = run.tables["packets"]
    one_in = run.summary["one_in"]
    # One of each so many; the last of them may be short, and without the one drawn.
    assert (
        run.summary["packets"] // one_in <= packets.height <= -(-run.summary["packets"] // one_in)
    )
    assert one_in == (4 if telemetry.get("packets") == 5000 else telemetry.get("one_in", 1))
    assert packets["header"].max() < 1 << run.scenario.telemetry.header_bits
    off = check_counts(run)
    assert len(off) > 100
    # Neighbouring counts are not independent: generous.
    assert abs(off.mean()) < 0.35
    assert 0.5 < (off**2).mean() < 1.6


ALL_SCHEMES = [
    scheme
    for scheme in get_args(TelemetrySection.model_fields["scheme"].annotation)
    if scheme != "off"
]


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_every_scheme_samples_one_packet_in_so_many(scheme: str) -> None:
    """A header for N / one_in packets, and packets of each link as many as there were."""
    telemetry = {"scheme": scheme, "packets": 1_000_000, "hash_bits": 4}
    if scheme == "entropy-ecn":
        with pytest.raises(ScenarioError, match="reads every header, not one in 16"):
            run_of({**telemetry, "one_in": 16}, engine={"routing": "spray"})
        return
    run = run_of({**telemetry, "one_in": 16}, messages=240)
    packets = run.summary["packets"]
    assert run.summary["one_in"] == 16
    assert packets // 16 <= run.tables["packets"].height <= -(-packets // 16)
    if scheme == "csig":  # which counts no packets
        return
    # Intervals hold; of few samples, errors by their estimated variance would say little.
    assert abs(check_counts(run).mean()) < 0.35


@pytest.mark.parametrize("packets", [None, 500, 1_000_000])
def test_full_reservoirs_sum_a_known_fraction(packets: int | None) -> None:
    """Few packets kept do not mean few samples; sums are unbiased, intervals hold the truth."""
    telemetry = {"scheme": "full"} if packets is None else {"scheme": "full", "packets": packets}
    run = run_of({**telemetry, "one_in": 16})
    assert run.tables["samples"]["hop_samples"].sum() == pytest.approx(
        run.summary["packets"] / 16, abs=1
    )
    truth = truth_of(run).filter(~pl.col("from_node")).select("link", "^observed.*packets$")
    estimates = link_estimates(select(run.tables, Selection()))
    joined = truth.join(estimates, on="link", how="left").sort("link").fill_null(0)
    for name, real in (
        ("packets", "observed_packets"),
        ("congested", "observed_congested_packets"),
    ):
        assert joined[name].sum() == pytest.approx(truth[real].sum(), rel=0.08), name
    some = joined.filter(pl.col("observed_packets") > 300)
    assert some.height == truth.height
    low, high, n = (
        some[name].to_numpy() for name in ("packets_low", "packets_high", "observed_packets")
    )
    assert np.mean((low <= n) & (n <= high)) > 0.9
    if packets == 500:
        assert run.tables["packets"].height <= 500


@pytest.mark.parametrize(
    "telemetry", [SCHEMES[2], SCHEMES[4], SCHEMES[8], SCHEMES[13], SCHEMES[15]], ids=str
)
def test_counts_on_a_torus(telemetry: dict[str, Any]) -> None:
    """Links that are candidates at several hops are charged once."""
    off = check_counts(run_of(telemetry, {"topology": TORUS}))
    assert abs(off.mean()) < 0.35 and 0.5 < (off**2).mean() < 1.6


@pytest.mark.parametrize("telemetry", [SCHEMES[0], SCHEMES[4]], ids=str)
@pytest.mark.parametrize(
    ("size", "rounds", "name"),
    [("4 KiB", 3, "observed_packets"), ("32 KiB", 40, "observed_congested_packets")],
)
def test_one_hop_paths_make_no_count_certain(
    telemetry: dict[str, Any], size: str, rounds: int, name: str
) -> None:
    """Other packets may have come by longer paths, and named other hops of them."""
    pattern = {"kind": "stencil2d", "dims": [6, 6], "size": size, "rounds": rounds}
    inside = []
    for seed in (1, 2, 3):
        run = run_of(telemetry, job=[{"pattern": pattern}], seed=seed)
        truth = truth_of(run).filter(~pl.col("from_node") & (pl.col(name) > 0))
        carried = decode_link_counts(run)
        counts = carried.packets if name == "observed_packets" else carried.congested
        assert counts is not None
        low, high = (bound[truth["link"].to_numpy()] for bound in counts.interval())
        assert (high - low).min() > 0.05
        inside.append((low <= truth[name].to_numpy()) & (truth[name].to_numpy() <= high))
    assert np.concatenate(inside).mean() > 0.92


@pytest.mark.parametrize("inject", [False, True])
def test_links_outside_headers_have_no_count(inject: bool) -> None:
    """Adapters' links are no hops as a rule: nothing is known of them, which is not 0 packets."""
    run = run_of({"scheme": "full", "packets": 10**6, "count_injection": inject})
    table = decode_link_counts(run).table()
    injects = run.tables["links"].sort("link")["from_node"]
    assert truth_of(run).filter("from_node")["observed_packets"].min() == 60 * 8
    for column in table.drop("link").columns:
        assert table[column].is_null().any() != inject
        assert table[column].is_null().to_list() == (injects & (not inject)).to_list()


def test_a_link_on_no_route_is_unused() -> None:
    """Nothing is imagined of it, where a link that only happens to be unseen is not certain."""
    pattern = {"kind": "uniform", "ranks": 3, "messages": 5, "size": "4 KiB"}
    telemetry = {"scheme": "coordinated", "hash_bits": 8}
    run = run_of(telemetry, job=[{"hosts": "0,1,2", "pattern": pattern}])
    low, high = decode_link_counts(run).packets.interval()  # type: ignore[union-attr]
    used = truth_of(run)["observed_packets"].to_numpy() > 0
    to_nodes = truth_of(run)["to_node"].to_numpy()
    assert (
        (high[~used] == 0).all() and (low[~used] == 0).all() and (high[used & to_nodes] > 0).all()
    )


@pytest.mark.parametrize(("size", "rounds", "one_in"), [("4 KiB", 300, 4), ("32 KiB", 40, 8)])
def test_sampling_does_not_lock_onto_messages(size: str, rounds: int, one_in: int) -> None:
    """A stencil sends four messages a round, or messages of k packets: nothing to fall in with."""
    pattern = {"kind": "stencil2d", "dims": [6, 6], "size": size, "rounds": rounds}
    telemetry = {"scheme": "coordinated", "hash_bits": 8, "one_in": one_in}
    run = run_of(telemetry, job=[{"pattern": pattern}])
    check_counts(run)
    carried, truth = decode_link_counts(run), truth_of(run).filter(~pl.col("from_node"))
    assert carried.packets is not None
    for counts, name in (
        (carried.packets, "observed_packets"),
        (carried.congested, "observed_congested_packets"),
    ):
        estimated = counts.packets[truth["link"].to_numpy()].sum()
        assert estimated == pytest.approx(truth[name].sum(), rel=0.08), name


def test_receivers_evaluate_the_hash_of_the_switches() -> None:
    ids = np.random.default_rng(1).integers(0, 1 << 24, 5000, dtype=np.uint32)
    hops = (np.arange(5000) % 7 + 1).astype(np.uint8)
    links = np.ones((5000, 7), np.uint32)
    received = _core.run_scheme("coordinated", ids, hops, links, np.zeros_like(links, np.uint8), 1)
    assert received["hop"].tolist() == sampled_hop(ids, hops.astype(np.int64)).tolist()


def test_header_bits_are_those_of_the_schemes() -> None:
    for telemetry in [*SCHEMES, {"scheme": "csig"}]:
        section = TelemetrySection.model_validate(telemetry)
        name, several = section.scheme.replace("-", "_"), section.slots > 1
        size = section.slots if several or section.scheme == "full" else section.count_bits
        if several and section.scheme != "full":
            name += "_slots"
        bits = _core.scheme_facts(name, section.hash_bits, size, section.probability)[0]
        assert section.header_bits == bits, section.scheme


def test_a_charged_header_takes_time_on_the_wire() -> None:
    """One packet across two links of 100 Gb/s, one after the other: 80 ps a byte on each."""

    def run_ps(**telemetry: Any) -> int:
        job = {"pattern": {"kind": "ring", "ranks": 2, "messages": 1, "size": "4 KiB"}}
        engine = {"switching": "store-and-forward"}
        return run_of(telemetry, job=[job], engine=engine).elapsed_ps

    free = run_ps(scheme="full")
    assert run_ps(scheme="full", charge_header=True) == free + 2 * 8 * 80
    assert run_ps(scheme="coordinated", hash_bits=5, charge_header=True) == free
    assert run_ps(scheme="coordinated", hash_bits=6, charge_header=True) == free + 2 * 80


def test_captures_hold_the_packets_of_the_run(tmp_path: Path) -> None:
    run = run_of({"scheme": "coordinated", "hash_bits": 5}, messages=3)
    path, out = run.write(tmp_path / "run"), tmp_path / "run.pcap"
    assert command(["export", "pcap", str(path), str(out), "--payload", "64"]) == 0
    packets = run.tables["packets"].sort("time_ps", "packet")
    captured = list(read_pcap(out))
    assert [time for time, _ in captured] == (packets["time_ps"] // 1000).to_list()
    for (_, packet), row in zip(captured, packets.iter_rows(named=True), strict=True):
        assert (packet.source_lid, packet.destination_lid) == (
            row["src_node"] + 1,
            row["dst_node"] + 1,
        )
        assert (packet.psn, packet.sample) == (row["sequence"], row["header"])
        assert packet.payload == bytes(64)
    assert command(["export", "pcap", str(path), str(out)]) == 2  # exists
    host = run.tables["nodes"]["host_name"][5]
    assert all(6 in (p.source_lid, p.destination_lid) for _, p in packets_of(run, host=host))
    assert len(list(packets_of(run, limit=7))) == 7
    counts = tmp_path / "counts.csv"
    assert command(["export", "counts", str(path), str(counts)]) == 0
    assert pl.read_csv(counts).height == run.tables["links"].height
    assert command(["export", "counts", str(path)]) == 0


@pytest.mark.tools
def test_tshark_reads_the_samples_of_a_run(tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("needs tshark (Debian package tshark)")
    run = run_of({"scheme": "compact"}, messages=2)
    path, out = run.write(tmp_path / "run"), tmp_path / "run.pcap"
    assert command(["export", "pcap", str(path), str(out), "--limit", "50"]) == 0
    fields = ("frame.protocols", "infiniband.bth.psn", "infiniband.lrh.slid", "infiniband.bth")
    wanted = [option for field in fields for option in ("-e", field)]
    shown = subprocess.run(
        [tshark, "-r", str(out), "-T", "json", "--disable-protocol", "rpcordma", *wanted],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    dissected = [row["_source"]["layers"] for row in json.loads(shown.stdout)]
    packets = run.tables["packets"].sort("time_ps", "packet").head(50)
    assert len(dissected) == 50
    for layers, row in zip(dissected, packets.iter_rows(named=True), strict=True):
        assert "infiniband" in layers["frame.protocols"][0]
        assert int(layers["infiniband.bth.psn"][0]) == row["sequence"]
        assert int(layers["infiniband.lrh.slid"][0], 0) == row["src_node"] + 1


def test_mistakes_are_explained(tmp_path: Path) -> None:
    plain = run_of({}, messages=1)
    with pytest.raises(RunError, match="kept no packets"):
        decode_link_counts(plain)
    with pytest.raises(RunError, match="kept no packets"):
        packets_of(plain)
    big = run_of({"scheme": "compact", "hash_bits": 4}, messages=1)
    with pytest.raises(RunError, match="takes 9 header bits"):
        packets_of(big)
    # What the message and the help name does work.
    digest = run_of({"scheme": "xor-digest", "hash_bits": 5}, messages=1)
    assert next(packets_of(digest, limit=1))[1].sample < 64
    path = big.write(tmp_path / "run")
    assert command(["export", "pcap", str(path), str(tmp_path / "x.pcap")]) == 2
    with pytest.raises(TraceError, match="No such file or directory\n  remedy"):
        write_pcap(tmp_path / "nowhere" / "x.pcap", [])
    assert not (tmp_path / "x.pcap").exists()
    injected = run_of({"scheme": "compact", "count_injection": True}, messages=1)
    with pytest.raises(RunError, match="injection link"):
        decode_link_counts(injected)
    with pytest.raises(RunError, match="did you mean"):
        packets_of(run_of({"scheme": "compact"}, messages=1), host="n1")
    few = {"hash_bits": 4, "count_bits": 2}
    with pytest.raises(RunError, match="no more than 3 congested hops") as refused:
        decode_link_counts(run_of({"scheme": "single-bit"} | few, messages=1))
    assert refused.value.remedy == "set [telemetry] count_bits = 3"
    # Counted hop by hop, but not attributed to single links.
    compact = run_of({"scheme": "compact"} | few, messages=1)
    assert decode_link_counts(compact).packets is not None
    assert any("no more than 3 hops" in note for note in decode_samples(compact).notes)
    detours = run_of(
        {"scheme": "compact", "count_bits": 2}, {"topology": TORUS, "routes": "valiant"}, messages=1
    )
    with pytest.raises(RunError, match="may have passed 4"):
        decode_link_counts(detours)
    round_about = run_of(
        {"scheme": "coordinated"}, {"topology": TORUS, "routes": "valiant"}, messages=1
    )
    assert round_about.tables["packets"]["hops"].null_count() > 0
    with pytest.raises(RunError, match="length of paths"):
        decode_link_counts(round_about)
    for telemetry, text in (
        ({"scheme": "compact", "packets": 0}, "individual packets"),
        ({"scheme": "compat"}, "compat"),
        ({"hash_bits": 9}, "hash_bits"),
        ({"scheme": "node-marking", "probability": 1}, "above 0 and below 1"),
    ):
        with pytest.raises(ScenarioError, match=text):
            parse(scenario(telemetry))
    with pytest.raises(ScenarioError, match="counters"):
        parse(scenario({}, probes={"counters": "0 ns"}))


def test_what_ifs_have_no_probes(probed: Run) -> None:
    from tailback.evaluate import Change
    from tailback.simulation import make_evaluate

    data = scenario({"scheme": "compact"}, probes={"counters": "20 us"}, messages=2)
    again = make_evaluate(prepare(parse(data)))(Change(seed_offset=1, measure=True))
    assert again.tables["counters"].height == again.tables["packets"].height == 0
    assert again.tables["samples"].height > 0
