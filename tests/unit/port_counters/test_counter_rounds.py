"""The InfiniBand study: equation 3, the summary of rounds, Tables I to III, Figures 5 to 7."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from studies.archives import yellowstone as archive
from studies.production_networks import definitions
from tailback.errors import TailbackError
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.fabric.readers import read_fabric
from tailback.port_counters.analysis import classes, passes, rounds, study, yellowstone_tables
from tailback.port_counters.analysis.intervals import difference
from tailback.port_counters.schema import READINGS, CounterError, Flag
from tests.factories.public_data import real


def test_equation_3_gives_the_example_of_table_iii() -> None:
    """Its times are printed to ten digits only, so the interval is put in as it is printed."""
    answers = np.array([18350267, 24841529])
    interval = 124199424
    start = 1456409893470000000
    query = np.array([start, start + interval - (answers[1] - answers[0]) // 2])
    wait = np.array([2426695474, 2433352285])
    found = definitions.forced_idle_fraction(wait, query, answers)
    assert wait[1] - wait[0] == 6656811
    assert found[0] == pytest.approx(1.179, abs=5e-4)
    least, most = yellowstone_tables.explain(found, np.array([interval]), answers[:1], answers[1:])
    # The turn-around times alone leave it at 1.004; a tick "of roughly 22 ns" may be 21.9 ns.
    assert least[0] == pytest.approx(1.0045, abs=5e-4)
    exact = found * (21.9 / 22.0)
    assert (
        yellowstone_tables.explain(exact, np.array([interval]), answers[:1], answers[1:])[0][0]
        < 1.0
    )
    assert most[0] > found[0]


def test_the_example_of_table_iii_counts_as_explained() -> None:
    start, interval = 1456409893470000000, 124199424
    frame = pl.DataFrame(
        {
            "round": [1, 1],
            "node_guid": [1, 1],
            "port": [1, 1],
            "time_ns": [start, start + interval],
            "turnaround_ns": [18350267, 24841529],
            "xmit_wait_ticks": [2426695474, 2433352285],
        }
    )
    row = rounds.summarise(frame.lazy()).row(0, named=True)
    assert row["maximum"] == pytest.approx(1.179, abs=5e-4)
    assert (row["above_one"], row["unexplained"]) == (1, 0)


def small(n: int = 60, seed: int = 3) -> pl.DataFrame:
    return archive.part(0, n, seed)


def test_one_pass_equals_equation_3_round_by_round() -> None:
    frame = small()
    found = rounds.summarise(frame.lazy())
    assert found.height == 60
    for row in found.iter_rows(named=True):
        own = frame.filter(pl.col("round") == row["round"])
        answer = own["turnaround_ns"].to_numpy().astype(np.int64)
        fraction = definitions.forced_idle_fraction(
            own["xmit_wait_ticks"].to_numpy().astype(np.int64),
            own["time_ns"].to_numpy() - answer // 2,
            answer,
        )
        assert row["intervals"] == 99
        assert row["nonzero"] == (fraction > 0).sum()
        assert row["maximum"] == pytest.approx(fraction.max(), rel=1e-6)
        assert row["total_nonzero"] == pytest.approx(fraction.sum(), rel=1e-6)


def test_order_does_not_matter() -> None:
    frame = small(20)
    mixed = frame.sample(fraction=1.0, shuffle=True, seed=1)
    assert rounds.summarise(mixed.lazy()).equals(rounds.summarise(frame.lazy()))


@pytest.mark.parametrize("rows", [37, 100, 1999, 2000, 10**6])
def test_slices_do_not_matter(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    frame = small(20)
    whole = rounds.summarise(frame.lazy())
    monkeypatch.setattr(passes, "SLICE_ROWS", rows)
    assert rounds.summarise(frame.lazy()).equals(whole)


@pytest.mark.parametrize("pausing", [False, True])
def test_rounds_are_joined_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pausing: bool
) -> None:
    frame = small(40)
    expected = rounds.summarise(frame.lazy())
    # Four at a time, a reading of each in turn, as the collector's sets are written.
    order = (
        frame.with_columns(_set=pl.col("round") // 4, _at=pl.int_range(pl.len()).over("round"))
        .sort("_set", "_at", "round")
        .drop("_set", "_at")
    )
    for number, rows in enumerate(order.iter_slices(550)):
        rows.write_parquet(tmp_path / f"{number:06d}.parquet")
    assert len(list(tmp_path.iterdir())) == 8
    order.clear().write_parquet(tmp_path / "000003-empty.parquet")
    if pausing:
        (tmp_path / "000000.parquet").rename(tmp_path / "000009.parquet")
    together = []
    made = pl.LazyFrame.sort

    def counting(rows: pl.LazyFrame, *by: object, **options: object) -> pl.LazyFrame:
        sorted_ = made(rows, *by, **options)  # type: ignore[arg-type]
        if by == ("round", "time_ns"):
            together.append(sorted_.select(pl.len()).collect().item())
        return sorted_

    monkeypatch.setattr(pl.LazyFrame, "sort", counting)
    found = rounds.summarise(rounds.archive(tmp_path))
    assert found.drop("node_name").equals(expected.drop("node_name"))
    # Each file once, with at most one row more of each of the rounds that go on.
    pieces = together[:8]
    assert max(pieces) <= 554 and frame.height < sum(pieces) <= frame.height + 7 * 4
    assert together[8:] == ([frame.height] if pausing else [])


def test_the_general_way_through_intervals_agrees() -> None:
    frame = small(20)
    found = rounds.summarise_intervals(difference(frame)).sort("round")
    direct = rounds.summarise(frame.lazy())
    for column in ("intervals", "nonzero", "maximum", "above_one"):
        assert found[column].to_list() == pytest.approx(direct[column].to_list())


def test_resets_and_latched_counters_are_left_out() -> None:
    frame = pl.DataFrame(
        {
            "round": [1] * 5,
            "node_guid": [1] * 5,
            "port": [1] * 5,
            "time_ns": [0, 100, 200, 300, 400],
            "xmit_wait_ticks": [10, 11, 2, 4, 4],
            "flags": [0, 0, 0, 0, int(Flag.AT_LEAST | Flag.LATCHED)],
        }
    )
    row = rounds.summarise(frame.lazy(), 10.0).row(0, named=True)
    assert (row["intervals"], row["left_out"], row["nonzero"]) == (2, 2, 2)
    assert row["maximum"] == pytest.approx(0.2)


def test_a_fraction_that_no_turnaround_explains() -> None:
    frame = pl.DataFrame(
        {
            "round": [1, 1, 1],
            "node_guid": [1] * 3,
            "port": [1] * 3,
            "time_ns": [0, 100, 200],
            "turnaround_ns": [20, 20, 20],
            "xmit_wait_ticks": [0, 11, 24],
        }
    )
    row = rounds.summarise(frame.lazy(), 10.0).row(0, named=True)
    assert (row["above_one"], row["unexplained"]) == (2, 1)


def made(values: list[float]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "category": ["ToR"] * len(values),
            "port_type": ["up"] * len(values),
            "intervals": [99] * len(values),
            "nonzero": [int(v > 0) for v in values],
            "maximum": values,
            "total_nonzero": values,
            "unexplained": [0] * len(values),
        }
    )


def test_boxes_and_outliers_against_numpy() -> None:
    values = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.2, 1.1]
    table = made(values)
    row = yellowstone_tables.boxes(table).row(0, named=True)
    positive = np.array([v for v in values if v > 0])
    q1, median, q3 = np.quantile(positive, [0.25, 0.5, 0.75])
    assert (row["q1"], row["median"], row["q3"]) == pytest.approx((q1, median, q3))
    out = positive[positive > q3 + 1.5 * (q3 - q1)]
    assert (row["outliers"], row["outlier_min"], row["outlier_max"]) == (len(out), 0.2, 1.1)
    assert row["high"] == 0.06
    second = yellowstone_tables.table_ii(table).row(0, named=True)
    assert (second["min"], second["max"], second["at_least_one"]) == (0.2, 1.1, 1)
    assert second["nonzero_rounds"] == 8
    with pytest.raises(CounterError, match="no box plot of 'mean'"):
        yellowstone_tables.boxes(table, "mean")


def test_tables_of_an_archive() -> None:
    frame = small(400)
    found = study.infiniband(frame.lazy(), archive.classes())
    first = found.tables["table_i"]
    assert first["rounds"].sum() == 400
    assert first.row(0)[:2] == ("Spine", "down")
    kinds = set(first.select("category", "port_type").rows())
    assert ("ToR", "up") in kinds
    assert ("Spine", "up") not in kinds
    shares = found.tables["figure_5"]
    assert (shares["zero_percent"] + shares["nonzero_percent"]).to_list() == pytest.approx(
        [100.0] * shares.height
    )
    assert shares["intervals"].sum() == 99 * 400
    third = found.tables["table_iii"]
    assert third["fraction"][0] == pytest.approx(found.rounds["maximum"].max())  # type: ignore[index]
    assert third["increase_ticks"][0] == third["xmit_wait_ticks"][1] - third["xmit_wait_ticks"][0]


def test_table_iii_takes_tick_and_counts_as_summarised() -> None:
    time = 10**8 * np.arange(20)
    wait = 10**7 * np.arange(20)  # half of the time at 5 ns
    flags = np.zeros(20, np.int64)
    wait[12:] += 6 * 10**7  # more than 100 ms, but the counter was set back on the way
    flags[12] = int(Flag.RESET | Flag.AT_LEAST)
    frame = pl.DataFrame(
        {
            "round": 1,
            "time_ns": time,
            "node_guid": 1,
            "port": 1,
            "xmit_wait_ticks": wait,
            "tick_ns": [None, *[5.0] * 19],
            "turnaround_ns": 1000,
            "flags": flags,
        }
    )
    for rows in (frame.lazy(), frame.drop("turnaround_ns").lazy()):
        table = yellowstone_tables.table_iii(rows, rounds.summarise(rows))
        assert table["fraction"].to_list() == [0.5, None]
        assert table["increase_ticks"].to_list() == [10**7, None]
        assert table["least_fraction"][0] <= 0.5 <= table["most_fraction"][0]
    # Without a tick of their own the argument holds; of one reading there is nothing to tell.
    rows = frame.drop("tick_ns").lazy()
    assert (
        yellowstone_tables.table_iii(rows, rounds.summarise(rows, 4.0), 4.0)["fraction"][0] == 0.4
    )
    one = frame.head(1).lazy()
    assert yellowstone_tables.table_iii(one, rounds.summarise(one)).is_empty()


def test_archive_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    path = archive.write(tmp_path / "a", 5_000, seed=4)
    whole = rounds.scan(path).collect()
    assert whole.schema == pl.Schema(READINGS.polars_schema)
    assert whole.equals(archive.part(0, 50, 4))
    assert not whole.equals(archive.part(0, 50, 5))
    assert int(whole["xmit_wait_ticks"].max()) < 2**32  # type: ignore[arg-type]


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(CounterError, match="no Parquet file"):
        rounds.scan(tmp_path)
    pl.DataFrame({"round": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(CounterError, match="'time_ns' is missing"):
        rounds.scan(tmp_path)
    (tmp_path / "y.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(CounterError, match="Parquet"):
        rounds.scan(tmp_path / "y.parquet")
    with pytest.raises(CounterError, match="without the class"):
        yellowstone_tables.table_i(pl.DataFrame({"maximum": [0.1]}))


def test_a_damaged_part_gives_no_traceback(tmp_path: Path) -> None:
    path = archive.write(tmp_path / "a", 20_000)
    file = path / "part-00000.parquet"
    content = bytearray(file.read_bytes())
    content[4:40] = b"\x55" * 36
    file.write_bytes(bytes(content))
    with pytest.raises(TailbackError):
        rounds.summarise(rounds.scan(path))


def test_classes_of_a_fat_tree() -> None:
    fabric = fat_tree(PRESETS["tapered"])
    table = classes.classify(fabric)
    assert table.height == fabric.n_links
    kinds = {(c, t) for c, t in table.select("category", "port_type").rows()}
    assert kinds == {
        ("Host", "up"),
        ("ToR", "down"),
        ("ToR", "up"),
        ("Leaf", "down"),
        ("Leaf", "up"),
        ("Spine", "down"),
    }
    named = classes.classify(fabric, {"Glade": f"^{fabric.node_name[0][:2]}"})
    assert any(c.startswith("Glade") for c in named["category"].unique())
    with pytest.raises(CounterError, match="not a regular expression"):
        classes.classify(fabric, {"X": "("})


def test_rows_of_unknown_ports_are_told() -> None:
    table = archive.classes()
    frame = pl.DataFrame(
        {"node_name": ["tor000", "<script>"], "port": [1, 1], "link": [None, None]},
        schema_overrides={"port": pl.UInt16, "link": pl.UInt32},
    )
    out, notes = classes.attach(frame, table)
    assert out["category"].to_list() == ["ToR", None]
    assert out["link"].to_list() == [0, None]
    assert "1 rows" in notes[0]


@pytest.mark.data
def test_classes_of_a_discovery_match_its_counters() -> None:
    from tailback.port_counters.readers import read_counters

    fabric = read_fabric(real("ibsim-samples/ys135.ibnetdiscover.txt"))
    counters = read_counters(real("ibsim-samples/ys135.ibqueryerrors-data.txt")).readings
    out, notes = classes.attach(counters, classes.classify(fabric))
    assert notes == []
    assert set(out["category"].unique()) == {"Host", "ToR", "Leaf", "Spine"}
