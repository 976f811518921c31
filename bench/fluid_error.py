"""The fluid model compared with the packet engine, over the case studies.

python bench/fluid_error.py --json            every scenario in examples/
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
from tailback.evaluate import Change
from tailback.placement import place
from tailback.scenario.model import load
from tailback.simulation import (
    FluidOptions,
    PreparedScenario,
    make_evaluate,
    make_fluid_evaluate,
    prepare,
)
from tailback.units import percent

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "measurements" / "accuracy.md"
STENCIL = EXAMPLES / "stencil2d" / "stencil2d.toml"
MAPPINGS = ("block", "tile", "metis", "rcm", "random")


def simulated_us(prepared: PreparedScenario, change: Change, fluid: FluidOptions | None) -> float:
    """Simulated microseconds, by packets or by the fluid model."""
    evaluate = make_fluid_evaluate(prepared, fluid) if fluid else make_evaluate(prepared)
    return evaluate(change).elapsed_ps / 1e6


def cases() -> Iterator[tuple[str, PreparedScenario, Change]]:
    """Every example as it is, and the stencil in several mappings."""
    # The files of labs are networks of namespaces, no scenarios.
    for path in sorted(set(EXAMPLES.glob("*/*.toml")) - set(EXAMPLES.glob("lab/*.toml"))):
        prepared = prepare(load(path))
        if path != STENCIL:
            yield str(path.relative_to(EXAMPLES)), prepared, Change()
            continue
        for name in MAPPINGS:
            node = place(name, prepared.observed.problem, {})
            change = Change(placement=node, placement_name=name)
            yield f"{path.relative_to(EXAMPLES)}, {name}", prepared, change


def errors() -> list[dict[str, Any]]:
    """Time by packets and by rates for every case."""
    rows = []
    for name, prepared, change in cases():
        packet_us = simulated_us(prepared, change, None)
        fluid_us = simulated_us(prepared, change, FluidOptions(windows=0))
        rows.append(
            {
                "case": name,
                "packet_us": packet_us,
                "fluid_us": fluid_us,
                "error": fluid_us / packet_us - 1,
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = [
        "| case | packets | fluid | error |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{r['case']}` | {r['packet_us']:.4g} µs | {r['fluid_us']:.4g} µs "
        f"| {percent(r['error'], 1, '+')} |"
        for r in rows
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
