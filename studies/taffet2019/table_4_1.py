"""Table 4.1 of the thesis (mappings of the 2-D stencil on Tapered): published results and ours.

    python -m studies.taffet2019.table_4_1            the table
    python -m studies.taffet2019.table_4_1 --write    also its page

Everything is computed: nothing in the columns "ours" is written by hand.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from measuring import put
from studies.taffet2019.reproduction import PAGE
from tailback import load_scenario
from tailback.evaluate import Change
from tailback.placement import place
from tailback.remedy import congested_hops
from tailback.simulation import PreparedScenario, make_evaluate, prepare
from tailback.units import percent

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = ROOT / "examples" / "stencil2d" / "stencil2d.toml"

# Row of the thesis, its time in ns and path length, our placement and its options, the tolerance
# set for the time.
ROWS: list[tuple[str, int | None, float, str, dict[str, object], float | None]] = [
    ("Random", 86054, 4.657, "random", {}, 0.15),
    ("Row major", 61186, 2.087, "block", {}, 0.05),
    ("Reverse Cuthill-McKee", 89020, 2.967, "rcm", {}, 0.15),
    ("Ordinary graph partitioning", 44018, 1.474, "metis", {}, 0.05),
    ("Incremental graph partitioning", 48925, 1.623, "incremental", {"start": "random"}, 0.15),
    ("One level tiling", 44035, 1.433, "tile", {}, 0.05),
    ("Two level tiling", None, 1.374, "tile2", {}, None),
]


def rows(prepared: PreparedScenario) -> list[dict[str, Any]]:
    """Every row of the table, simulated."""
    evaluate = make_evaluate(prepared)
    out = []
    for title, theirs, path, name, options, tolerance in ROWS:
        node = place(name, prepared.observed.problem, options)
        run = evaluate(Change(placement=node, placement_name=name, measure=True))
        ours = run.elapsed_ps / 1000
        out.append(
            {
                "mapping": title,
                "placement": name + ("".join(f", {k}={v}" for k, v in options.items())),
                "their_ns": theirs,
                "our_ns": round(ours),
                "difference": None if theirs is None else ours / theirs - 1,
                "tolerance": tolerance,
                "within": None if theirs is None else abs(ours / theirs - 1) <= (tolerance or 0),
                "their_path": path,
                "our_path": run.summary["average_path_length"],
                "congested_hops": congested_hops(run),
            }
        )
    return out


def table(mappings: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = [
        "| mapping | ours is | time, theirs (ns) | ours (ns) | difference | allowed "
        "| path length, theirs | ours | congested hops |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in mappings:
        published = row["their_ns"] is not None
        lines.append(
            f"| {row['mapping']} | `{row['placement']}` | {row['their_ns'] if published else '–'} "
            f"| {row['our_ns']} | {percent(row['difference'], 1, '+') if published else '–'} "
            f"| {percent(row['tolerance'], 0) if published else '–'} | {row['their_path']:.3f} "
            f"| {row['our_path']:.3f} | {percent(row['congested_hops'], 2)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table; write the page on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="update the measured page")
    arguments = parser.parse_args()
    scenario = load_scenario(SCENARIO)
    mappings = rows(prepare(scenario))
    print(json.dumps(mappings, indent=2) if arguments.json else table(mappings))
    if arguments.write:
        put(PAGE, {"table 4.1": table(mappings)})


if __name__ == "__main__":
    main()
