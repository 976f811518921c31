"""The fluid model compared with the packet engine, over the case studies.

python bench/fluid_error.py --json            every scenario in examples/
python bench/fluid_error.py --causes          where the error comes from
python bench/fluid_error.py --write           writes its tables into docs/measurements/rates.md

Costs are processor time, which other work on the machine hardly affects.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _pages import put

from tailback import Scenario, TailbackError
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
PAGE = ROOT / "docs" / "measurements" / "rates.md"
STENCIL = EXAMPLES / "stencil2d" / "stencil2d.toml"
MAPPINGS = ("block", "tile", "metis", "rcm", "random")
BUFFERS_KIB = (4, 8, 16, 32, 64, 128, 256)


def timed(
    prepared: PreparedScenario, change: Change, fluid: FluidOptions | None
) -> tuple[float, float]:
    """Simulated microseconds, and the processor seconds that took, routes and tables included."""
    evaluate = make_fluid_evaluate(prepared, fluid) if fluid else make_evaluate(prepared)
    began = time.process_time()
    run = evaluate(change)
    return run.elapsed_ps / 1e6, time.process_time() - began


def cases() -> Iterator[tuple[str, PreparedScenario, Change]]:
    """Every example as it is, and the stencil in several mappings."""
    for path in sorted(EXAMPLES.glob("*/*.toml")):
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
        packet_us, packet_s = timed(prepared, change, None)
        fluid_us, fluid_s = timed(prepared, change, FluidOptions(windows=0))
        rows.append(
            {
                "case": name,
                "packet_us": packet_us,
                "fluid_us": fluid_us,
                "error": fluid_us / packet_us - 1,
                "packet_s": packet_s,
                "fluid_s": fluid_s,
            }
        )
    return rows


def stencil(**engine: Any) -> Scenario:
    """The stencil, row major, with some engine settings changed."""
    scenario = load(STENCIL)
    for key, value in engine.items():
        setattr(scenario.engine, key, value)
    return scenario


def by_choice() -> list[dict[str, Any]]:
    """The stencil in two mappings: path choice of packets against that of flows."""
    rows = []
    pairs = [
        ("deterministic", "deterministic"),
        ("vc", "least-flows"),
        ("adaptive", "least-flows"),
        ("adaptive", "pooled"),
        ("random", "random"),
        ("random", "pooled"),
    ]
    for mapping in ("block", "random"):
        for routing, paths in pairs:
            prepared = prepare(stencil(routing=routing, vc_entries=65_536))
            node = place(mapping, prepared.observed.problem, {})
            change = Change(placement=node, placement_name=mapping)
            packet_us, _ = timed(prepared, change, None)
            fluid_us, _ = timed(prepared, change, FluidOptions(paths=paths, windows=0))  # type: ignore[arg-type]
            rows.append(
                {
                    "mapping": mapping,
                    "routing": routing,
                    "paths": paths,
                    "packet_us": packet_us,
                    "fluid_us": fluid_us,
                    "error": fluid_us / packet_us - 1,
                }
            )
    return rows


def by_buffer() -> list[dict[str, Any]]:
    """Row-major stencil: the buffer of a link, with and without the fluid model's own."""
    rows = []
    for kib in BUFFERS_KIB:
        row: dict[str, Any] = {"buffer_kib": kib}
        for routing in ("deterministic", "adaptive"):
            prepared = prepare(stencil(routing=routing, buffer=kib * 1024))
            row[f"{routing}_packet_us"], _ = timed(prepared, Change(), None)
            row[f"{routing}_fluid_us"], _ = timed(prepared, Change(), FluidOptions(windows=0))
            bare = FluidOptions(windows=0, first_buffer=False)
            row[f"{routing}_bare_us"], _ = timed(prepared, Change(), bare)
        rows.append(row)
    return rows


def by_spreading() -> list[dict[str, Any]]:
    """Cases where packets are slower: with buffers so large that no packet waits for space."""
    rows = []
    for name in ("pf3d/pf3d.toml", "background/background.toml"):
        for kib in (64, 128, 256, 1024):
            scenario = load(EXAMPLES / name)
            scenario.engine.buffer = kib * 1024
            prepared = prepare(scenario)
            packet_us, _ = timed(prepared, Change(), None)
            fluid_us, _ = timed(prepared, Change(), FluidOptions(windows=0))
            rows.append(
                {
                    "case": name,
                    "buffer_kib": kib,
                    "packet_us": packet_us,
                    "fluid_us": fluid_us,
                    "error": fluid_us / packet_us - 1,
                }
            )
    return rows


def tables(found: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The rows in Markdown, by the name of their place in the page."""
    out = {}
    lines = [
        "| case | packets | fluid | error | packets cost | fluid costs |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{r['case']}` | {r['packet_us']:.4g} µs | {r['fluid_us']:.4g} µs "
        f"| {percent(r['error'], 1, '+')} | {r['packet_s']:.2g} s | {r['fluid_s']:.2g} s |"
        for r in found.get("errors", [])
    ]
    out["errors"] = "\n".join(lines)
    lines = [
        "| mapping | packets choose | flows choose | packets | fluid | error |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r['mapping']} | `{r['routing']}` | `{r['paths']}` | {r['packet_us']:.1f} µs "
        f"| {r['fluid_us']:.1f} µs | {percent(r['error'], sign='+')} |"
        for r in found.get("choice", [])
    ]
    out["choice"] = "\n".join(lines)
    lines = [
        "| buffer | one path: packets | fluid | without buffer | adaptive: packets | fluid "
        "| without buffer |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in found.get("buffer", []):
        cells = [f"{r['buffer_kib']} KiB"]
        for routing in ("deterministic", "adaptive"):
            packet = r[f"{routing}_packet_us"]
            cells.append(f"{packet:.1f}")
            for model in ("fluid", "bare"):
                value = r[f"{routing}_{model}_us"]
                cells.append(f"{value:.1f} ({percent(value / packet - 1, sign='+')})")
        lines.append("| " + " | ".join(cells) + " |")
    out["buffer"] = "\n".join(lines)
    lines = ["| case | buffer | packets | fluid | error |", "|---|---|---|---|---|"]
    lines += [
        f"| `{r['case']}` | {r['buffer_kib']} KiB | {r['packet_us']:.4g} µs "
        f"| {r['fluid_us']:.4g} µs | {percent(r['error'], sign='+')} |"
        for r in found.get("spreading", [])
    ]
    out["spreading"] = "\n".join(lines)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description="The fluid model's error over the case studies.")
    parser.add_argument("--causes", action="store_true", help="where the error comes from")
    parser.add_argument("--write", action="store_true", help="update docs/measurements/rates.md")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    try:
        found: dict[str, list[dict[str, Any]]]
        if args.causes:
            found = {"choice": by_choice(), "buffer": by_buffer(), "spreading": by_spreading()}
        else:
            found = {"errors": errors()}
    except TailbackError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    parts = {name: table for name, table in tables(found).items() if name in found}
    if args.write:
        put(PAGE, parts)
    if args.json:
        print(json.dumps(found))
    else:
        print("\n\n".join(parts.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
