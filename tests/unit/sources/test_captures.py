"""From packets to a verdict: captures of every format give the estimates of the run itself."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import tailback as tb
from tailback.errors import TailbackError
from tailback.inference.evidence import NetworkEvidence, with_samples
from tailback.run.run import Run
from tailback.simulation import prepare
from tailback.simulation.decode import decode_link_counts, decode_samples
from tailback.sources.captures import read_captures
from tailback.telemetry.capture import packets_of
from tailback.telemetry.pcap import write_pcap
from tailback.telemetry.wire import IbPacket
from tests.factories import captures as made
from tests.factories.cli import tailback
from tests.factories.forwarding_tables import DISCOVERY

SUMS = [
    "hop_samples",
    "hop_weight",
    "hop_variance",
    "hop_bytes",
    "congested_samples",
    "congested_weight",
    "congested_variance",
]
SCENARIO = """
name = "captured"
[fabric.fat_tree]
hosts_per_leaf = 4
leaves = 4
aggregation = 2
[[job]]
pattern = { kind = "uniform", ranks = 16, messages = 40, size = "512 B" }
[telemetry]
scheme = "coordinated"
hash_bits = 5
rule = "queue"
rule_bytes = "512 B"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its scenario and its capture."""
    folder = tmp_path_factory.mktemp("captures")
    (folder / "s.toml").write_text(SCENARIO)
    assert (
        tailback(["simulate", str(folder / "s.toml"), "--out", str(folder / "run"), "--quiet"]) == 0
    )
    assert (
        tailback(
            ["export", "pcap", str(folder / "run"), str(folder / "all.pcap"), "--payload", "4096"]
        )
        == 0
    )
    return folder


def sums(run: Run) -> pl.DataFrame:
    return run.tables["samples"].group_by("link").agg(pl.col(SUMS).sum()).sort("link")


def addresses(folder: Path, run: Run, version: int) -> Path:
    """A folder of contexts that says which node has which address."""
    out = folder / f"contexts{version}"
    out.mkdir(exist_ok=True)
    names = run.tables["nodes"]["name"].to_list()
    lines = [f"{made.address(node + 1, version)},{name}" for node, name in enumerate(names)]
    (out / "addresses.csv").write_text("\n".join(["address,node", *lines]) + "\n")
    return out


def test_exported_captures_give_the_same_sums(folder: Path) -> None:
    run = tb.read_run(folder / "run")
    captured = read_captures([folder / "all.pcap"], folder / "run")
    assert sums(captured).equals(sums(run)) and sums(run)["congested_weight"].sum() > 0
    assert captured.notes == []
    # A scenario says the same of the network.
    assert sums(read_captures([folder / "all.pcap"], folder / "s.toml")).equals(sums(run))


@pytest.mark.parametrize(
    "telemetry",
    [
        'scheme = "coordinated"\nhash_bits = 5\none_in = 3',
        'scheme = "coordinated"\nhash_bits = 4\nqueue_pairs = "shared"\npsn_start = "random"',
        'scheme = "compact"\nhash_bits = 2\ncount_bits = 3\none_in = 2\nheader_loss = 0.2',
        'scheme = "compact"\nhash_bits = 3\ncount_bits = 2\nstamping = "leaf"\none_in = 2',
        'scheme = "single-bit"\nhash_bits = 1\ncount_bits = 2\nstamping = "leaf"',
        'scheme = "xor-digest"\nhash_bits = 5\none_in = 2',
    ],
)
def test_every_six_bit_scheme_gives_the_same_sums(tmp_path: Path, telemetry: str) -> None:
    """With one in so many packets, part of the switches, lost samples, and datagrams."""
    text = SCENARIO.replace('scheme = "coordinated"\nhash_bits = 5', telemetry)
    (tmp_path / "s.toml").write_text(text)
    run, capture = tmp_path / "run", tmp_path / "all.pcap"
    assert tailback(["simulate", str(tmp_path / "s.toml"), "--out", str(run), "--quiet"]) == 0
    assert tailback(["export", "pcap", str(run), str(capture), "--payload", "4096"]) == 0
    expected = sums(decode_samples(tb.read_run(run)))
    for fabric in (run, tmp_path / "s.toml"):
        captured = read_captures([capture], fabric)
        assert sums(captured).equals(expected) and expected["hop_weight"].sum() > 0


def test_every_format_and_network_gives_the_same_sums(folder: Path, tmp_path: Path) -> None:
    run, capture = tb.read_run(folder / "run"), folder / "all.pcap"
    ib, grh = made.infiniband(capture), made.infiniband(capture, grh=True)
    v4, v6 = made.rocev2(capture, 4, tags=1), made.rocev2(capture, 6)
    contexts_of = {4: addresses(tmp_path, run, 4), 6: addresses(tmp_path, run, 6)}
    for path, contexts in (
        (made.pcap(tmp_path / "a.pcap", ib, 247, order=">", unit_ns=1000), None),
        (made.pcapng(tmp_path / "b.pcapng", grh, 247), None),
        (made.erf(tmp_path / "c.erf", ib, 21), None),
        (made.pcap(tmp_path / "d.pcap", v4, 1), contexts_of[4]),
        (made.pcapng(tmp_path / "e.pcapng", v6, 1, order=">"), contexts_of[6]),
        (made.erf(tmp_path / "f.erf", v4, 2), contexts_of[4]),
        # 66 bytes hold all headers up to the transport's.
        (made.pcap(tmp_path / "g.pcap", v4, 1, snap=66), contexts_of[4]),
    ):
        captured = read_captures([path], folder / "run", contexts=contexts)
        assert captured.notes == [] and sums(captured).equals(sums(run)), path.name


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, made.Frames]:
    """A run of scheme csig, and its packets over Ethernet with their tags."""
    folder = tmp_path_factory.mktemp("csig")
    text = SCENARIO.replace('scheme = "coordinated"\nhash_bits = 5', 'scheme = "csig"')
    (folder / "s.toml").write_text(text)
    assert (
        tailback(["simulate", str(folder / "s.toml"), "--out", str(folder / "run"), "--quiet"]) == 0
    )
    table = tb.read_run(folder / "run").tables["packets"].sort("time_ps", "packet")
    columns = ("time_ps", "src_node", "dst_node", "sequence", "queue_pair", "size_bytes")
    packets = (
        (time // 1000, IbPacket(src + 1, dst + 1, psn, 0, bytes(size), destination_qp=pair))
        for time, src, dst, psn, pair, size in table.select(columns).iter_rows()
    )
    write_pcap(folder / "all.pcap", packets)
    frames = made.rocev2(folder / "all.pcap", 4, tags=1)
    return folder, [
        (time, frame[:12] + b"\x99\0" + tag.to_bytes(2) + frame[12:])
        for (time, frame), tag in zip(frames, table["header"].to_list(), strict=True)
    ]


def test_csig_tags_give_the_runs_sums(
    tagged: tuple[Path, made.Frames], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, frames = tagged
    run = tb.read_run(folder / "run")
    contexts = addresses(tmp_path, run, 4)
    capture = made.pcap(tmp_path / "all.pcap", frames, 1)
    captured = read_captures([capture], folder / "s.toml", contexts=contexts)
    assert sums(captured).equals(sums(decode_samples(run)))
    assert sums(captured)["congested_weight"].sum() > 0 and "bottleneck" in captured.notes[0]
    out = tmp_path / "out"
    assert (
        tailback(
            [
                "diagnose",
                str(capture),
                "--fabric",
                str(folder / "run"),
                "--contexts",
                str(contexts),
                "--out",
                str(out),
                "--quiet",
            ]
        )
        == 3
    )
    assert "VERDICT" in capsys.readouterr().out
    some = [(time, frame[:12] + frame[16:]) for time, frame in frames[:5]] + frames[5:]
    notes = read_captures(
        [made.pcap(tmp_path / "some.pcap", some, 1)], folder / "s.toml", contexts=contexts
    ).notes
    assert "5 packets left out: they have no CSIG tag" in notes


@pytest.mark.slow
def test_a_discovered_fabric_needs_no_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Local ids come from ibnetdiscover, telemetry is the default; contexts name calls."""
    discovery = DISCOVERY.replace("lid 1 lmc", "lid 11 lmc").replace("lid 2 lmc", "lid 12 lmc")
    # The local ids of simulated nodes are their numbers + 1.
    for old, new in ((3, 1), (4, 2), (5, 3)):
        discovery = discovery.replace(f'HCA-1" lid {old}', f'HCA-1" lid {new}')
    fabric = tmp_path / "fabric.txt"
    fabric.write_text(discovery)
    (tmp_path / "s.toml").write_text(
        f'[fabric]\nfile = "{fabric}"\n[[job]]\npattern = {{ kind = "alltoall", ranks = 3, '
        'size = "64 KiB", rounds = 20 }\n[telemetry]\nscheme = "coordinated"\nhash_bits = 5\n'
    )
    run, capture = tmp_path / "run", tmp_path / "all.pcapng"
    assert tailback(["simulate", str(tmp_path / "s.toml"), "--out", str(run), "--quiet"]) == 0
    assert (
        tailback(["export", "pcap", str(run), str(tmp_path / "all.pcap"), "--payload", "4096"]) == 0
    )
    made.pcapng(capture, made.infiniband(tmp_path / "all.pcap"), 247)
    contexts = tmp_path / "contexts"
    contexts.mkdir()
    (contexts / "calls.csv").write_text("source,call,phase\na,MPI_Alltoall,exchange\n")
    out = tmp_path / "out"
    assert (
        tailback(
            [
                "diagnose",
                str(capture),
                "--fabric",
                str(fabric),
                "--contexts",
                str(contexts),
                "--out",
                str(out),
                "--quiet",
            ]
        )
        == 0
    )
    assert "VERDICT" in capsys.readouterr().out
    captured = tb.read_run(out)
    assert sums(captured).equals(sums(decode_samples(tb.read_run(run))))
    labels = captured.tables["labels"]
    assert "MPI_Alltoall" in labels["call"].to_list() and "exchange" in labels["phase"].to_list()


def test_host_files_count_packets_where_they_arrived(folder: Path, tmp_path: Path) -> None:
    run = tb.read_run(folder / "run")
    files = []
    for number, host in enumerate(run.tables["nodes"]["host_name"].unique(maintain_order=True)):
        # Half the files say by their name whose they are.
        path = tmp_path / (f"{host}.pcap" if number % 2 else f"capture-{number}.pcap")
        write_pcap(path, packets_of(run, host=host, payload=4096))
        files.append(path)
    captured = read_captures(files, folder / "run")
    assert sums(captured).equals(sums(run))
    assert len(captured.notes) == len(files) and "host sent" in captured.notes[0]
    of_receiver = read_captures([files[1]], folder / "run")
    host = files[1].stem
    counted = decode_link_counts(run, receiver=host).packets
    assert counted is not None
    # Each packet is charged to one link in place of its share to all: the sum is the same.
    assert of_receiver.tables["samples"]["hop_weight"].sum() == pytest.approx(
        run.tables["packets"]
        .join(
            run.tables["nodes"].filter(pl.col("host_name") == host),
            left_on="dst_node",
            right_on="node",
        )["hops"]
        .sum(),
        rel=0.25,
    )
    with pytest.raises(TailbackError, match="given twice"):
        read_captures([files[0], files[0]], folder / "run")


def test_contexts_say_what_packets_belong_to(folder: Path, tmp_path: Path) -> None:
    run = tb.read_run(folder / "run")
    names = run.tables["nodes"]["name"].to_list()
    (tmp_path / "contexts.csv").write_text(
        "source,destination,queue_pair,first_psn,packets,call,phase,path\n"
        f"{names[0]},,,,,MPI_Isend,from zero,main > step\n"
        ",,,0,3,MPI_Send,first three,\n"
    )
    captured = read_captures([folder / "all.pcap"], folder / "run", contexts=tmp_path)
    labels = captured.tables["labels"]
    assert labels["phase"].to_list() == ["unknown context", "from zero", "first three"]
    packets = run.tables["packets"].with_columns(
        label=pl.when(pl.col("src_node") == 0)
        .then(1)
        .when(pl.col("sequence") < 3)
        .then(2)
        .otherwise(0)
    )
    expected = dict(packets.group_by("label").agg(pl.col("hops").cast(pl.Int64).sum()).iter_rows())
    weight = dict(
        captured.tables["samples"].group_by("label").agg(pl.col("hop_weight").sum()).iter_rows()
    )
    # Of a packet the length of its path is charged: the sum over many is near the hops.
    for label, hops in expected.items():
        assert weight[label] == pytest.approx(hops, rel=0.35)
    assert any("fit no row" in note for note in captured.notes)


def test_what_is_left_out_is_said(folder: Path, tmp_path: Path) -> None:
    frames = made.infiniband(folder / "all.pcap")
    strange = [(time, wire[:2] + b"\x40\x01" + wire[4:]) for time, wire in frames[:3]]
    short = made.pcap(tmp_path / "short.pcap", [*frames, *strange], 247)
    captured = read_captures([short], folder / "run")
    assert "3 packets left out" in captured.notes[0] and "16385" in captured.notes[0]
    sent = made.pcapng(tmp_path / "sent.pcapng", frames[:4], 247, outbound=True)
    with pytest.raises(TailbackError, match=r"4 packets left out that the capturing host sent"):
        read_captures([sent], folder / "run")
    with pytest.raises(TailbackError, match="snapshot length"):
        read_captures([made.pcap(tmp_path / "x.pcap", frames, 247, snap=19)], folder / "run")
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(short.read_bytes()[:-5])
    notes = read_captures([cut], folder / "run").notes
    assert any("ends within the record at byte" in note for note in notes)


@pytest.mark.parametrize(
    ("at", "bytes_", "message"),
    [
        (32, b"\xff\xff\xff\x7f", "byte 24: a packet states a length of 2147483647 bytes"),
        (28, b"\x00\xca\x9a\x3b", "byte 24: the time of a packet has a fraction of 1000000000 ns"),
        (20, b"\x09", "byte 20: has link type 9"),
        (0, b"\x1f\x8b", "byte 0: is compressed"),
    ],
)
def test_damage_names_file_place_value_and_remedy(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    at: int,
    bytes_: bytes,
    message: str,
) -> None:
    data = bytearray((folder / "all.pcap").read_bytes())
    data[at : at + len(bytes_)] = bytes_
    path = tmp_path / "bad.pcap"
    path.write_bytes(data)
    assert (
        tailback(
            ["diagnose", str(path), "--fabric", str(folder / "run"), "--out", str(tmp_path / "out")]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert f"{path}: {message}" in error and "remedy:" in error
    assert not (tmp_path / "out").exists()


def test_the_command_gives_a_verdict_and_a_report(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = [
        "diagnose",
        str(folder / "all.pcap"),
        "--fabric",
        str(folder / "run"),
        "--out",
        str(out),
        "--quiet",
    ]
    # The job's traffic does not fill what is congested: samples leave open what else does.
    assert tailback(command) == 3
    screen = capsys.readouterr().out
    assert "other jobs send over them, or" in " ".join(screen.split())
    assert "only on captured packets" in screen and "rank time" not in screen
    assert (out / "report.html").is_file()
    kept = tb.read_run(out)
    assert sums(kept).equals(sums(tb.read_run(folder / "run")))
    for extra, says in (
        (["--hosts", "0-3"], "--hosts"),
        (["--counters", "x"], "--counters"),
        (["--contexts", str(tmp_path / "none")], "is not a folder"),
        ([str(folder / "s.toml")], "is not a packet capture"),
    ):
        assert tailback([*command[:4], *extra, "--out", str(tmp_path / "n")]) == 2
        assert says in capsys.readouterr().err
    assert tailback(["diagnose", str(folder / "all.pcap"), "--out", str(tmp_path / "n")]) == 2
    assert "--fabric" in capsys.readouterr().err
    assert (
        tailback(
            [
                "diagnose",
                str(folder / "s.toml"),
                "--contexts",
                str(tmp_path),
                "--out",
                str(tmp_path / "n"),
            ]
        )
        == 2
    )
    assert "applies to packet captures only" in capsys.readouterr().err


def test_a_capture_accompanies_a_trace_as_samples(folder: Path) -> None:
    prepared = prepare(tb.load_scenario(folder / "s.toml"))
    evidence = with_samples(NetworkEvidence(), folder / "all.pcap", prepared)
    expected = sums(tb.read_run(folder / "run"))
    assert evidence.sampled is not None and evidence.congested is not None
    links = expected["link"].to_numpy()
    assert (evidence.sampled[links] == expected["hop_weight"].to_numpy()).all()
    assert evidence.congested[links].max() > 0


def test_telemetry_of_more_than_six_bits_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full.toml").write_text(SCENARIO.replace('"coordinated"', '"full"'))
    with pytest.raises(TailbackError, match="takes 64 header bits"):
        read_captures([folder / "all.pcap"], tmp_path / "full.toml")


def test_jobs_of_a_scenario_are_not_those_captured(folder: Path) -> None:
    diagnosis = tb.diagnose(folder / "all.pcap", fabric=folder / "s.toml")
    assert "s.toml: sections not used: job" in diagnosis.warnings
