"""CSV of rounds of perfquery: the fields and the fraction of Alali et al. (2017)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailback.cli import run as tailback
from tailback.port_counters.readers import read_counters
from tailback.port_counters.schema import U32_MAX, CounterError, Flag
from tests.factories.counter_files import put

# Table III: two readings of a leaf's down port, 124,199,424 ns apart by equation 3.
TABLE_III = (
    "Leaf,down,r1,12,7,1456409893470000000,18350267,2426695474\n"
    "Leaf,down,r1,12,7,1456409893590953793,24841529,2433352285\n"
)
OTHERS = (
    # The next round of the same port, an hour later: its counter was reset, and did not move.
    "Leaf,down,r2,12,7,1456413493000000000,20000000,500\n"
    "Leaf,down,r2,12,7,1456413493100000000,20000000,500\n"
    "ToR,up,r3,40,19,1456413495000000000,20000000,0\n"
    "ToR,up,r3,40,19,1456413495100000000,20000000,1000000\n"
)


def test_table_iii_gives_its_fraction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = put(tmp_path, "merged.csv", TABLE_III + OTHERS)
    read = read_counters(file)
    assert read.intervals["xmit_wait_ticks"].to_list() == [6656811, 0, 1000000]
    assert read.intervals["interval_ns"].to_list() == [124199424, 100000000, 100000000]
    assert read.intervals["node_name"].to_list() == ["lid 12", "lid 12", "lid 40"]
    assert tailback(["counters", str(file), "--tick", "22 ns", "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    groups = {(row["category"], row["port_type"]): row for row in facts["groups"]}
    assert groups["Leaf", "down"]["maximum"] == pytest.approx(1.179, abs=5e-4)
    # Of the time of both rounds, without the hour between them.
    assert groups["Leaf", "down"]["stall_fraction"] == pytest.approx(
        6656811 * 22 / (124199424 + 100000000)
    )
    assert groups["ToR", "up"]["stall_fraction"] == pytest.approx(0.22)


def test_files_without_classes_and_with_a_header(tmp_path: Path) -> None:
    plain = "".join(line.partition("r")[2].join(("r", "\n")) for line in TABLE_III.splitlines())
    assert plain.startswith("r1,12,7,")
    with_header = put(tmp_path, "set1.csv", "t_r,s_r,p_r,tq,tp,w\n" + plain)
    read = read_counters(with_header, "perfquery-rounds")
    assert read.intervals["xmit_wait_ticks"].to_list() == [6656811]
    assert read.classes.is_empty()
    # A time as a float has the precision of its digits, and of 64 bits.
    floats = plain.replace("1456409893470000000", "1.45640989347e+18")
    near = read_counters(put(tmp_path, "f.csv", floats), "perfquery-rounds").intervals
    assert near["interval_ns"].to_list() == pytest.approx(read.intervals["interval_ns"], abs=256)


def test_resets_and_full_counters_within_a_round(tmp_path: Path) -> None:
    base, step = 1456409893470000000, 100_000_000
    waits = (5, 900, 100, U32_MAX, U32_MAX)
    text = "".join(f"Spine,down,r,3,1,{base + n * step},0,{wait}\n" for n, wait in enumerate(waits))
    rows = read_counters(put(tmp_path, "a.csv", text)).intervals
    assert rows["xmit_wait_ticks"].to_list() == [895, None, U32_MAX - 100, None]
    flags = rows["flags"].to_list()
    assert [bool(flag & Flag.RESET) for flag in flags] == [False, True, False, False]
    assert [bool(flag & Flag.LATCHED) for flag in flags] == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (TABLE_III.replace("18350267", "soon"), "line 1, column 7", "turnaround 'soon'"),
        (TABLE_III.replace("2433352285", "9999999999"), "line 2, column 8", "wait '9999999999'"),
        (TABLE_III.replace("1456409893470000000", "1456409893"), "line 1, column 6", "nanoseconds"),
        ("a,b,c\n1,2,3\n", "line 1", "3 fields a line, not 6 or 8"),
        ("1,2\n1,2,3\n", "", "equally many fields"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path: Path, text: str, place: str, words: str) -> None:
    with pytest.raises(CounterError) as refused:
        read_counters(put(tmp_path, "a.csv", text), "perfquery-rounds")
    message = f"{refused.value} {refused.value.remedy}"
    assert words in message and place in message
