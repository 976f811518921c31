"""Samples by receiver and by receiving call: what a node knows, and the other side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tailback as tb
from tailback.cli import run as command
from tailback.errors import RunError
from tailback.report import attribute
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import prepare, simulate
from tailback.simulation.contexts import split_contexts
from tailback.simulation.decode import decode_samples
from tailback.telemetry.estimate import Selection, link_estimates, select
from tailback.telemetry.run_views import labelled_by_receives, received_by
from tailback.traffic.program import Label, ProgramBuilder
from tests.factories.probed_runs import TREE, run_of, scenario

KEYS = ("window", "job", "label", "link")
FULL, HASHED = {"scheme": "full"}, {"scheme": "coordinated", "hash_bits": 5}


def summed(samples: pl.DataFrame) -> pl.DataFrame:
    """Samples of all receivers and receives together."""
    sums = samples.drop("receive_label", "receiver").group_by(KEYS).agg(pl.all().sum())
    return sums.sort(KEYS)


@pytest.mark.parametrize("telemetry", [FULL, HASHED, {"scheme": "full", "slots": 2}], ids=str)
def test_receivers_add_up_to_all(telemetry: dict[str, Any]) -> None:
    apart = decode_samples(run_of({**telemetry, "receivers": True}, messages=20))
    together = decode_samples(run_of(telemetry, messages=20))
    assert together.tables["samples"]["receiver"].null_count() == together.tables["samples"].height
    assert apart.tables["samples"]["receiver"].null_count() == 0
    ours, theirs = summed(apart.tables["samples"]), summed(together.tables["samples"])
    assert ours.select(*KEYS, "hop_samples", "congested_samples").equals(
        theirs.select(*KEYS, "hop_samples", "congested_samples")
    )
    # Sums that are no integers are rounded row by row, with the remainder carried on.
    for name in ("hop_weight", "hop_bytes", "congested_weight"):
        assert ours[name].sum() == pytest.approx(theirs[name].sum(), rel=0.001), name


def test_a_receiver_is_where_packets_arrived() -> None:
    """Its samples are of packets whose ejection link is its own, however many threads ran."""
    run = run_of({"scheme": "full", "receivers": True}, messages=20, threads=2)
    assert run.tables["samples"].equals(
        run_of({"scheme": "full", "receivers": True}, messages=20, threads=1).tables["samples"]
    )
    ends = run.tables["links"].filter("to_node").select("link", "dst")
    into = run.tables["samples"].join(ends, on="link")
    assert into.height > 100 and (into["dst"] == into["receiver"]).all()


@pytest.mark.parametrize("telemetry", [FULL, HASHED], ids=str)
def test_one_host_knows_its_own_packets(telemetry: dict[str, Any]) -> None:
    run = run_of({**telemetry, "receivers": True}, messages=30)
    host = run.tables["nodes"]["host_name"][7]
    received = decode_samples(received_by(run, host))
    messages = run.tables["messages"].filter(pl.col("dst_rank") == 7)
    assert received.tables["messages"].equals(messages)
    assert received.tables["truth"].height == received.tables["counters"].height == 0
    estimates = link_estimates(select(received.tables, Selection()))
    into = run.tables["links"].filter(pl.col("to_node") & (pl.col("dst") == 7))["link"].item()
    row = estimates.filter(pl.col("link") == into).row(0, named=True)
    packets = int(messages["packets"].sum())
    assert row["packets_low"] <= packets <= row["packets_high"]
    # No other ejection link carries its packets.
    others = run.tables["links"].filter(pl.col("to_node") & (pl.col("dst") != 7))["link"]
    assert not set(estimates["link"]) & set(others)


def test_what_was_added_up_cannot_be_told_apart(tmp_path: Path) -> None:
    run = run_of({}, messages=5)
    with pytest.raises(RunError, match="added up") as refused:
        received_by(run, run.tables["nodes"]["host_name"][0])
    assert "receivers = true" in refused.value.remedy
    with pytest.raises(RunError, match="no host"):
        received_by(run, "nowhere")
    path = run.write(tmp_path / "run")
    assert command(["export", "counts", str(path), "--host", "n00"]) == 2


def test_commands_show_what_one_host_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of({"receivers": True}, messages=20)
    path, host = run.write(tmp_path / "run"), run.tables["nodes"]["host_name"][3]
    out = tmp_path / "counts.csv"
    assert command(["export", "counts", str(path), str(out), "--host", host]) == 0
    exported = pl.read_csv(out)
    estimates = link_estimates(received_by(run, host).tables["samples"])
    assert exported["packets"].sum() == pytest.approx(estimates["packets"].sum())
    assert (exported["congested_low"] <= exported["congested"]).all()
    assert (exported["congested"] <= exported["congested_high"]).all()
    page = tmp_path / "one.html"
    assert command(["report", str(path), "--host", host, "--out", str(page)]) == 0
    assert page.stat().st_size > 100_000
    seen = tb.read_run(path).received_by(host)
    assert seen.tables["samples"]["receiver"].unique().to_list() == [3]
    capsys.readouterr()


def two_sided(reversed_receives: bool = False) -> Run:
    """Every rank sends to another pod under one call, which is received under two others."""
    ranks = 36
    builder = ProgramBuilder("two-sided", ranks)
    sends = [builder.label(Label(f"step {k}", "MPI_Isend", path="main > put")) for k in (0, 1)]
    receives = [
        builder.label(Label(f"step {k}", "MPI_Recv", path=f"main > get {k}")) for k in (0, 1)
    ]
    for rank in range(ranks):
        for k in (0, 1):
            size, wanted = 65536 * (1 + 3 * k), receives[1 - k if reversed_receives else k]
            builder.isend(rank, (rank + 12) % ranks, size, k, sends[0])
            builder.irecv(rank, (rank - 12) % ranks, size, k, wanted)
        builder.waitall(rank)
    prepared = prepare(
        parse(scenario({}, job=[{"pattern": {"kind": "ring", "ranks": ranks, "size": "1 KiB"}}]))
    ).with_program(builder.build())
    return simulate(prepared)


def test_samples_carry_the_calls_of_both_sides() -> None:
    """The label of the send is one; the receives differ, and with them the bytes of each."""
    run = two_sided()
    calls = run.tables["labels"]["call"].to_list()
    samples = run.tables["samples"]
    assert set(samples["label"]) == {0}
    by_receive = (
        samples.group_by("receive_label").agg(pl.col("hop_bytes").sum()).sort("receive_label")
    )
    assert [calls[number] for number in by_receive["receive_label"]] == ["MPI_Recv", "MPI_Recv"]
    small, large = by_receive["hop_bytes"].to_list()
    assert large / small == pytest.approx(4.0, rel=0.15)
    messages = run.tables["messages"]
    assert ((messages["size_bytes"] > 65536) == (messages["receive_label"] == 3)).all()
    assert set(
        two_sided(reversed_receives=True)
        .tables["messages"]
        .filter(pl.col("size_bytes") > 65536)["receive_label"]
    ) == {2}


def test_congestion_belongs_to_sender_or_receiver() -> None:
    run = two_sided()
    sent, received = attribute(run), attribute(run, side="receiver")
    assert {line.line.split(" > ")[1] for line in sent.lines} == {"put"}
    assert {line.line.split(" > ")[1] for line in received.lines} <= {"get 0", "get 1"}
    assert len({line.line for line in received.lines}) == 2
    assert sum(line.stall for line in received.lines) == pytest.approx(
        sum(line.stall for line in sent.lines), rel=0.05
    )
    relabelled = labelled_by_receives(run)
    assert set(relabelled.tables["samples"]["label"]) == {2, 3}
    assert (relabelled.tables["samples"].drop("label")).equals(run.tables["samples"].drop("label"))


def test_labels_stay_where_both_sides_agree() -> None:
    prepared = prepare(parse(scenario({}, messages=3)))
    workload = prepared.make_workload()
    same, contexts = split_contexts(workload, receivers=False)
    assert same is workload and contexts.receiver is None
    assert (contexts.label == contexts.receive_label).all()
    split, apart = split_contexts(workload, receivers=True)
    reached = len(np.unique(workload.program.peer[workload.program.sends]))
    assert apart.receiver is not None and len(apart.label) == reached
    assert len(split.program.labels) == reached > 30


def test_runs_of_earlier_versions_are_read(tmp_path: Path) -> None:
    from tests.factories.unchecked_runs import without_manifest

    path = without_manifest(run_of(HASHED, messages=10).write(tmp_path / "run"))
    for name, columns in (
        ("samples", ["receive_label", "receiver"]),
        ("packets", ["receive_label", "links"]),
        ("messages", ["receive_label"]),
    ):
        file = path / f"{name}.parquet"
        pl.read_parquet(file).drop(columns).write_parquet(file)
    run = tb.read_run(path)
    assert run.tables["samples"].height > 100
    assert run.tables["samples"]["receive_label"].null_count() == run.tables["samples"].height
    with pytest.raises(RunError, match="not known"):
        run.by_receives()
    assert command(["export", "attribution", str(path), str(tmp_path / "a.parquet")]) == 0


def test_receivers_are_distinguished_where_steps_are_skipped() -> None:
    """Samples of steps that were not simulated are drawn for each receiver."""
    pattern = {"kind": "ring", "ranks": 8, "messages": 1, "size": "64 KiB"}
    job = [{"pattern": pattern, "repeat": 60}]
    engine = {"skip_repeats": True}
    run = run_of({"receivers": True}, {"fat_tree": TREE}, job=job, engine=engine)
    assert run.tables["skips"].height
    complete = run_of({"receivers": True}, {"fat_tree": TREE}, job=job)
    for view in (run, complete):
        assert view.tables["samples"]["receiver"].null_count() == 0
    by = [
        view.tables["samples"].group_by("receiver").agg(pl.col("hop_weight").sum()).sort("receiver")
        for view in (run, complete)
    ]
    assert by[0]["hop_weight"].to_numpy() == pytest.approx(by[1]["hop_weight"].to_numpy(), rel=0.2)
