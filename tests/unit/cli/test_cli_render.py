"""What a command prints of a diagnosis: on 80 columns, and the parts and the whole of the time."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from tailback.cli.render import diagnosis_lines
from tailback.cli.text import (
    SCREEN_LINES,
    align_columns,
    command_lines,
    heading,
    truncate,
    wrap,
)
from tailback.diagnosis.model import WaterfallBar
from tailback.diagnosis.waterfall import displayed_bars
from tests.factories.report_data import make_diagnosis, make_run


def wide(line: str) -> int:
    """Columns of a line on a terminal; the letters of the tests are whole ones."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def test_wide_letters_stay_on_the_screen() -> None:
    """A letter of East Asia takes two columns."""
    run = make_run(prefix="計算節点" * 8, phases=("通信" * 12, "-x", "+y", "-y"))
    lines = diagnosis_lines(make_diagnosis(run), Path("out"))
    start = lines.index("MOST CONGESTED LINKS  95 % intervals")
    table = lines[start + 1 : lines.index("", start)]
    assert len(table) > 1
    assert max(map(wide, table)) < 80
    rows = align_columns(("name", "n"), [("節点", "1"), ("node", "22")], " r")
    assert len({wide(row) for row in rows}) == 1
    assert wide(truncate("節 点 " * 40, 21)) <= 21


def test_assumptions_are_shown_before_two_other_warnings() -> None:
    """Whatever they begin with: a diagnosis holds them as data."""
    texts = [f"warning {number}" for number in range(4)]
    update = {"warnings": [*texts, "rates are assumed"], "assumptions": ["rates are assumed"]}
    diagnosis = make_diagnosis(make_run()).model_copy(update=update)
    read = type(diagnosis).model_validate_json(diagnosis.model_dump_json())
    lines = diagnosis_lines(read, Path("out"))
    assert [line.strip() for line in lines if "note:" in line] == ["note: rates are assumed"]
    assert "4 more notes" in lines[-1]
    every = diagnosis_lines(read, Path("out"), verbose=True)
    notes = [line.strip() for line in every if "note:" in line]
    assert notes == ["note: rates are assumed", *(f"note: {text}" for text in texts)]


def test_names_to_type_are_never_shortened() -> None:
    name = "incremental + even-routes + mirrored-order + assigned-rates"
    rows = [("block", "1 ms", "2 ms"), (name, "3 ms", "4 ms")]
    lines = align_columns(("tried", "by fluid", "x" * 20), rows, " rr", names=(0,), to_type=True)
    assert [line.split() for line in lines[-2:]] == [name.split(), ["3", "ms", "4", "ms"]]
    assert len({len(line) for line in (lines[0], lines[1], lines[3])}) == 1
    assert max(map(len, lines)) < 80


def test_diagnosis_fits_one_screen() -> None:
    """Notes give way to links, which give way to a long verdict."""
    diagnosis = make_diagnosis(make_run())
    notes = [f"note {number} " + "with many words " * 12 for number in range(2)]
    update = {"assumptions": notes, "warnings": []}
    for sentences, links in ((16, True), (24, False)):
        headline = "Traffic waits for a cable that is slower than it should be. " * sentences
        changed = diagnosis.model_copy(update={**update, "headline": headline})
        lines = diagnosis_lines(changed, Path("out"))
        text = " ".join(" ".join(lines).split())
        assert "2 more notes" in text and "note:" not in text
        assert ("MOST CONGESTED LINKS" in text) == links == ("candidates, links" not in text)
        assert len(lines) <= SCREEN_LINES


def test_what_was_not_used_is_always_shown() -> None:
    texts = [f"{number} records dropped" for number in range(5)]
    diagnosis = make_diagnosis(make_run()).model_copy(update={"warnings": texts, "not_used": texts})
    for verbose in (False, True):
        lines = diagnosis_lines(diagnosis, Path("out"), verbose=verbose)
        start = lines.index(f"NOT USED  {texts[0]}")
        assert [line.strip() for line in lines[start + 1 : start + 5]] == texts[1:]
        assert not any("note:" in line or "more note" in line for line in lines)


@pytest.mark.parametrize(("columns", "used"), [(40, 79), (80, 79), (160, 159), (400, 199)])
def test_table_is_as_wide_as_the_terminal(
    columns: int, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    numbers = [" ".join(str(3 * n + row) for n in range(200)) for row in range(3)]
    rows = [(number, f"line {number}", "7 %") for number in numbers]
    table = align_columns(("link", "line", "share"), rows, "  r", names=(0, 1))
    assert max(map(wide, table)) in (used, used - 1)
    assert len(set(table)) == 4
    short = [("a", "b", "7 %")]
    assert align_columns(("link", "line", "share"), short)[1] == "  a     b     7 %"


def test_short_column_leaves_room_to_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "node001 of a cluster with a name of sixty-five characters in all."
    table = align_columns(("a", "b"), [(name, "short")], names=(0, 1))
    assert table[1] == f"  {name}  short"


def test_lines_of_wide_letters_end_on_the_screen() -> None:
    """A headline names phases and links, and a word that no line holds is cut."""
    texts = ("計算 節点の名前 が長い " * 20, "計算節点" * 60, "x" * 200, "é" * 50 + " 24 %" * 20)
    for text in texts:
        lines = wrap(text, first="  note: ")
        assert max(map(wide, lines)) < 80
        # Nothing is lost, and no line ends before its per cent sign.
        text_shown = "".join(lines).replace(" ", "").removeprefix("note:")
        assert text_shown == text.replace(" ", "")
        assert not any(line.lstrip().startswith("%") for line in lines)
    assert wrap("") == []
    run = make_run()
    diagnosis = make_diagnosis(run).model_copy(update={"headline": "通信 の段階 " * 30})
    assert max(map(wide, diagnosis_lines(diagnosis, Path("out")))) < 80
    command = command_lines("mpirun --host 計算節点 " + "計算 節点 " * 20 + "./app")
    assert max(map(wide, command)) < 80 and len(command) > 2
    assert all(line.endswith(" \\") for line in command[:-1])


def bar(name: str, end: int, delta: int) -> WaterfallBar:
    return WaterfallBar(
        name=name, elapsed_ps=end, delta_ps=delta, low_ps=delta, high_ps=delta, meaning=""
    )


def test_shown_steps_add_up_to_the_observed_time() -> None:
    """What the run differs by from the last re-simulation is a step of its own."""
    bars = [
        bar("ideal", 2_000_000, 2_000_000),
        bar("placement", 2_900_000, 900_000),
        bar("observed", 3_000_000, 100_000),
    ]
    steps = displayed_bars(bars)
    assert [step.name for step in steps] == ["ideal", "placement", "remainder", "observed"]
    assert sum(step.delta_ps for step in steps) == steps[-1].elapsed_ps == 3_000_000
    assert displayed_bars(bars[:2]) == bars[:2] and displayed_bars([]) == []
    diagnosis = make_diagnosis(make_run()).model_copy(update={"waterfall": bars})
    lines = diagnosis_lines(diagnosis, Path("out"))
    start = lines.index("WHERE THE TIME GOES")
    rows = [line.split() for line in lines[start + 1 : lines.index("", start)]]
    assert [row[:3] for row in rows[2:]] == [["remainder", "+100", "ns"], ["expected", "3", "µs"]]
    faster = [*bars[:2], bar("observed", 2_800_000, -100_000)]
    lines = diagnosis_lines(diagnosis.model_copy(update={"waterfall": faster}), Path("out"))
    assert ["remainder", "-100", "ns"] in [line.split() for line in lines]


def test_a_gain_is_beside_what_it_is_of() -> None:
    """The time as it is, re-simulated, is not the observed one."""
    diagnosis = make_diagnosis(make_run())
    assert diagnosis.remedy is not None
    lines = diagnosis_lines(diagnosis, Path("out"), verbose=True)
    assert not any("unchanged" in line for line in lines)
    others = [c for c in diagnosis.remedy.candidates if c.name != "block"]
    without = diagnosis.remedy.model_copy(update={"candidates": others})
    lines = diagnosis_lines(
        diagnosis.model_copy(update={"remedy": without}), Path("out"), verbose=True
    )
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["tried", "by"])
    assert lines[head + 1].split() == ["unchanged", "61.2", "µs"]
    assert "44 µs" in lines[head + 2] and "28 %" in lines[head + 2]


def test_everything_proved_is_shown_also_what_is_slower() -> None:
    diagnosis = make_diagnosis(make_run())
    assert diagnosis.remedy is not None
    lines = diagnosis_lines(diagnosis, Path("out"), verbose=True)
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["tried", "by"])
    proved = [c.name for c in diagnosis.remedy.candidates if c.proved]
    rows = lines[head + 1 : head + 1 + len(proved)]
    assert sorted(row.split()[0] for row in rows) == sorted(proved)
    assert any("-45 %" in row for row in rows)


def test_no_link_is_assigned_to_one_phase() -> None:
    """Its numbers are of the whole run, its phase is where most of them come from."""
    lines = diagnosis_lines(make_diagnosis(make_run()), Path("out"))
    head = lines[lines.index("MOST CONGESTED LINKS  95 % intervals") + 1]
    assert head.split()[-2:] == ["mostly", "in"]


def test_the_link_table_marks_the_verdicts_roots() -> None:
    diagnosis = make_diagnosis(make_run())
    lines = diagnosis_lines(diagnosis, Path("out"))
    start = lines.index("MOST CONGESTED LINKS  95 % intervals")
    rows = lines[start + 2 : lines.index("", start)]
    roots = {link.name for link in diagnosis.findings[0].links}
    assert any(" root " in row for row in rows)
    for link in diagnosis.top_links[: len(rows)]:
        row = next(row for row in rows if link.name in row)
        assert (" root " in row) == (link.name in roots)


def test_the_surest_root_is_always_listed() -> None:
    diagnosis = make_diagnosis(make_run())
    roots = {link.link for finding in diagnosis.findings for link in finding.links}
    others = [link for link in diagnosis.top_links if link.link not in roots]
    assert others
    without = diagnosis.model_copy(update={"top_links": others})
    text = "\n".join(diagnosis_lines(without, Path("out")))
    table = text.split("MOST CONGESTED LINKS")[1].split("\n\n")[0]
    assert table.count(" root ") == 1


def test_the_waterfall_ends_in_the_observed_time() -> None:
    """Also where the last re-simulation takes just as long as what was observed."""
    diagnosis = make_diagnosis(make_run())
    last = diagnosis.waterfall[-1].model_copy(
        update={"name": "observed", "delta_ps": 0, "low_ps": 0, "high_ps": 0}
    )
    bars = [*diagnosis.waterfall[:-1], last]
    lines = diagnosis_lines(diagnosis.model_copy(update={"waterfall": bars}), Path("out"))
    start = lines.index("WHERE THE TIME GOES")
    rows = [line.split() for line in lines[start + 1 : lines.index("", start)]]
    assert rows[0][:3] == ["ideal", "41.9", "µs"]
    assert rows[-1][:3] == ["expected", "61.2", "µs"]


def test_no_line_ends_between_number_and_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "it takes 2.253 ms at 11.1 of 40 Mb/s, 24 % of 128 KiB, for 7 s then 7 small parts "
    for columns in range(80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        firsts = {line.split()[0] for line in wrap(text * 20)[1:]}
        assert firsts.isdisjoint({"ms", "Mb/s,", "%", "KiB,", "s"})
        assert max(map(wide, wrap(text * 20))) < columns


def test_headings_are_bold_on_colour_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert heading("VERDICT", "HEALTHY", "green") == "VERDICT  HEALTHY"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert heading("VERDICT", "HEALTHY", "green").startswith("\x1b[1mVERDICT\x1b[0m  \x1b[32m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert heading("VERDICT", "HEALTHY", "green") == "VERDICT  HEALTHY"
