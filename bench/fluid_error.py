"""The fluid model compared with the packet engine, over the case studies.

python bench/fluid_error.py --json            every scenario in examples/ and studies/
python bench/fluid_error.py --write           writes its table into docs/measurements/accuracy.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _shared import put

from tailback import TailbackError
from tailback.scenario.model import Scenario, load
from tailback.simulation import prepare, simulate, simulate_fluid
from tailback.units import percent

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "measurements" / "accuracy.md"
STENCIL = EXAMPLES / "stencil2d" / "stencil2d.toml"
MAPPINGS = ("block", "tile", "metis", "rcm", "random")


def cases() -> Iterator[tuple[str, Scenario]]:
    """Every scenario as it is, and the stencil in several mappings."""
    # The files of labs are networks of namespaces, no scenarios.
    examples = sorted(set(EXAMPLES.glob("*/*.toml")) - set(EXAMPLES.glob("lab/*.toml")))
    for path in [*examples, *sorted((ROOT / "studies").glob("*/*.toml"))]:
        name = str(path.relative_to(EXAMPLES if path.is_relative_to(EXAMPLES) else ROOT))
        for mapping in MAPPINGS if path == STENCIL else (None,):
            scenario = load(path)
            if mapping is not None:
                scenario.job[0].placement = mapping
            yield name if mapping is None else f"{name}, {mapping}", scenario


def errors() -> list[dict[str, Any]]:
    """Time by packets and by rates for every case."""
    rows = []
    for name, scenario in cases():
        prepared = prepare(scenario)
        packets, fluid = simulate(prepared).elapsed_ps, simulate_fluid(prepared)
        ends = [fluid.summary.get(f"packets_{end}_ps") for end in ("low", "high")]
        rows.append(
            {
                "case": name,
                "packet_us": packets / 1e6,
                "fluid_us": fluid.elapsed_ps / 1e6,
                "error": fluid.elapsed_ps / packets - 1,
                "interval_us": None if None in ends else [end / 1e6 for end in ends],
                "holds": None if None in ends else ends[0] <= packets <= ends[1],
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows of examples in Markdown."""
    lines = [
        "| case | packets | fluid | error |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{r['case']}` | {r['packet_us']:.4g} µs | {r['fluid_us']:.4g} µs "
        f"| {percent(r['error'], 1, '+')} |"
        for r in rows
        if not r["case"].startswith("studies/")
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="The fluid model's error over the case studies.")
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        rows = errors()
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if args.write:
        put(PAGE, {"fluid errors": table(rows)})
    print(json.dumps(rows) if args.json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
