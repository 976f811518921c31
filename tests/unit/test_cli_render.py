"""What a command prints of a diagnosis: on 80 columns, and the parts and the whole of the time."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from report_data import make_diagnosis, make_run
from tailback.cli.render import diagnosis_lines


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
