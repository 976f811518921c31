"""What a command prints of a diagnosis: on 80 columns, and the parts and the whole of the time."""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from report_data import make_diagnosis, make_run
from tailback.cli.render import diagnosis_lines
from tailback.cli.text import clip, columns, short


def wide(line: str) -> int:
    """Columns of a line on a terminal; the letters of the tests are whole ones."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def test_wide_letters_stay_on_the_screen() -> None:
    """A letter of East Asia takes two columns."""
    run = make_run(prefix="計算節点" * 8, phases=("通信" * 12, "-x", "+y", "-y"))
    lines = diagnosis_lines(make_diagnosis(run), Path("out"))
    start = lines.index("MOST CONGESTED LINKS (95 % intervals)")
    table = lines[start + 1 : lines.index("", start)]
    assert any("計" in line for line in table)
    assert max(map(wide, table)) < 80
    rows = columns(("name", "n"), [("節点", "1"), ("node", "22")], " r")
    assert len({wide(row) for row in rows}) == 1
    assert wide(short("節点" * 40, 21)) <= 21 and wide(clip("節 点 " * 40, 21)) <= 21
    assert short("a-long-name-of-a-host", 11) == "a-lon…-host"


def test_a_link_is_not_said_to_be_of_one_phase() -> None:
    """Its numbers are of the whole run, its phase is where most of them come from."""
    lines = diagnosis_lines(make_diagnosis(make_run()), Path("out"))
    head = lines[lines.index("MOST CONGESTED LINKS (95 % intervals)") + 1]
    assert head.split()[-2:] == ["mostly", "in"]


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
    assert rows[-1][:3] == ["observed", "61.2", "µs"]
