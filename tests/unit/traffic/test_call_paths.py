"""Call paths of traces: each once, and their innermost frames whatever they are called."""

import numpy as np

from tailback.traffic.readers.otf2.columns import NONE, PathTable


def test_the_innermost_frame_is_known_by_any_name() -> None:
    regions = {0: "main", 1: "bool operator > (Cell, Cell)"}
    table = PathTable({"regions": regions, "region_lines": {}, "sites": {}})  # type: ignore[typeddict-item]
    columns = {"parent": [NONE, 0], "region": [0, 1], "site": [NONE, NONE]}
    numbers = table.numbers({k: np.array(v, np.uint32) for k, v in columns.items()})  # type: ignore[arg-type]
    assert [table.innermost[n] for n in numbers] == ["main", regions[1]]
    assert table.texts == ["", "main", f"main > {regions[1]}"]
