"""Stall time charged to saturated links, lines of the program and ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from tailback.cli import run as tailback
from tailback.cli.hot_lines import hot_lines
from tailback.report import Attribution, attribute, by_call_site, to_json, to_table
from tailback.report.flame import Frame, by_kind, prune_frames
from tailback.run.run import Run
from tailback.run.schema import DERIVED
from tests.factories.report_data import make_run


@pytest.fixture(scope="module")
def run() -> Run:
    return make_run()


@pytest.fixture(scope="module")
def attribution(run: Run) -> Attribution:
    return attribute(run)


def leaves(frame: Frame) -> float:
    return sum(leaves(child) for child in frame.children) if frame.children else frame.value


def kinds_below(frame: Frame) -> set[tuple[str, str]]:
    out = {(frame.kind, child.kind) for child in frame.children}
    return out.union(*(kinds_below(child) for child in frame.children))


def with_labels(run: Run, **columns: str) -> Run:
    labels = run.tables["labels"].with_columns(
        **{name: pl.lit(value) for name, value in columns.items()}
    )
    return replace(run, tables={**run.tables, "labels": labels})


def test_every_frame_holds_what_is_above_it(attribution: Attribution) -> None:
    assert attribution.unit == "ps" and attribution.flame.value > 0
    assert leaves(attribution.flame) == pytest.approx(attribution.flame.value, rel=1e-6)
    below = kinds_below(attribution.flame)
    assert below <= {("all", "link"), ("link", "link"), ("link", "line"), ("line", "rank")}
    assert ("line", "rank") in below
    values = [child.value for child in attribution.flame.children]
    assert values == sorted(values, reverse=True)


def test_the_stall_is_that_of_the_messages(run: Run, attribution: Attribution) -> None:
    """Free flow by hand: bytes at 100 Gb/s and the least latency of messages over as many hops."""
    log = run.tables["messages"].join(
        run.tables["ranks"].select(src_rank="rank", src="node"), on="src_rank"
    )
    log = log.with_columns(
        beyond=pl.col("arrival_ps").cast(pl.Float64)
        - pl.col("start_ps")
        - pl.col("size_bytes") * 80.0,
        hops=pl.col("switch_hops") // pl.col("packets"),
    )
    lost = log.with_columns(lost=pl.col("beyond") - pl.col("beyond").min().over("hops"))["lost"]
    assert attribution.flame.value + attribution.elsewhere == pytest.approx(
        float(lost.sum()), rel=1e-9
    )


def test_the_table_sums_to_the_flame(attribution: Attribution) -> None:
    assert sum(line.stall for line in attribution.lines) == pytest.approx(
        attribution.flame.value, rel=1e-6
    )
    joined = by_call_site(attribution)
    assert sum(line.stall for line in joined) == pytest.approx(attribution.flame.value, rel=1e-6)
    assert all(0 <= line.share <= 1 + 1e-9 for line in attribution.lines)
    assert {line.phase for line in joined} <= {"+x", "-x", "+y", "-y"}
    assert all(line.ranks for line in joined)


def test_a_call_path_is_a_program_line(run: Run) -> None:
    path = "solve (solve.c:12) > exchange (halo.c:88)"
    lines = by_call_site(attribute(with_labels(run, path=path)))
    assert lines[0].line.startswith(path + " > MPI_Isend, tag ")


def test_without_a_message_log_packets_stand_for_time(run: Run) -> None:
    bare = replace(run, tables={**run.tables, "messages": run.tables["messages"].clear()})
    attribution = attribute(bare)
    assert attribution.unit == "packets"
    assert ("line", "rank") not in kinds_below(attribution.flame)
    inner = run.tables["links"].filter(~pl.col("from_node"))["link"]
    met = run.tables["samples"].filter(pl.col("link").is_in(inner.implode()))
    total = float(met["congested_weight"].sum())
    assert attribution.flame.value + attribution.elsewhere == pytest.approx(total, rel=1e-9)
    assert not by_call_site(attribution)[0].ranks


def test_fewer_frames_keep_the_sums(attribution: Attribution) -> None:
    for smaller in (
        by_kind(attribution.flame),
        prune_frames(attribution.flame, 3, 0.01 * attribution.flame.value),
    ):
        assert smaller.value == pytest.approx(attribution.flame.value)
        assert sum(child.value for child in smaller.children) == pytest.approx(smaller.value)
    assert len(by_kind(attribution.flame).children) < len(attribution.flame.children)
    assert len(prune_frames(attribution.flame, 3, 0).children) <= 4


def test_json_holds_the_same(attribution: Attribution) -> None:
    data = json.loads(to_json(attribution))
    assert data["unit"] == "ps" and data["total"] == attribution.flame.value
    assert len(data["lines"]) == len(attribution.lines)
    assert data["flame"]["children"][0]["name"] == attribution.flame.children[0].name


def test_the_table_says_what_the_json_says(run: Run, attribution: Attribution) -> None:
    table = to_table(attribution)
    assert dict(table.schema) == DERIVED["attribution"].polars_schema
    lines = json.loads(to_json(attribution))["lines"]
    assert table["stall_ps"].to_list() == [line["stall"] for line in lines]
    assert table["ranks"].to_list() == [line["ranks"] for line in lines]
    assert table["congested_packets"].null_count() == table.height
    filled = {None: "unknown", True: "ours", False: "others"}
    assert table["filled_by"].to_list() == [filled[line["ours"]] for line in lines]
    bare = replace(run, tables={**run.tables, "messages": run.tables["messages"].clear()})
    packets = to_table(attribute(bare))
    assert packets["stall_ps"].null_count() == packets.height > 0
    assert packets["congested_packets"].sum() > 0


def test_the_table_is_exported_from_a_run(
    run: Run, attribution: Attribution, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.write(tmp_path / "run")
    out = tmp_path / "attribution.parquet"
    words = ["export", "attribution", str(tmp_path / "run"), str(out)]
    assert tailback(words) == 0
    assert pl.read_parquet(out).equals(to_table(attribution))
    assert tailback(words) == 2 and "--force" in capsys.readouterr().err
    assert tailback([*words, "--force"]) == 0


def test_boxes_know_their_phase_and_host(run: Run, attribution: Attribution) -> None:
    ranks = dict(run.tables["ranks"].select("job_rank", "node").iter_rows())

    def check(frame: Frame) -> int:
        if frame.kind == "line":
            assert frame.phase and f"in {frame.phase}" in frame.name
        if frame.kind == "rank" and frame.name.startswith("rank "):
            assert frame.node == ranks[int(frame.name.removeprefix("rank "))]
            return 1
        return sum(check(child) for child in frame.children)

    assert check(attribution.flame) > 0 and check(by_kind(attribution.flame)) > 0


def test_a_terminal_of_80_columns(run: Run) -> None:
    hostile = "\x1b[31m" + "very_long_name_of_a_function " * 9
    lines = hot_lines(attribute(with_labels(run, path=hostile, call="MPI_Isend\n")))
    assert lines[0] == "CALL SITES THAT CONGEST LINKS" and len(lines) > 2
    assert all(len(line) <= 80 for line in lines)
    assert not any(control in "".join(lines) for control in "\x1b\n")
