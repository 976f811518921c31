r"""Effect of partial telemetry on the verdict: `python bench/deployment.py [--count N] [--json]`.

Generated scenarios (``diagnosis_suite``) are observed with whole links, with six bits a packet
(stamped by every switch or by leaf switches only, and with samples lost on the way) and with CSIG's
tag of four bytes; or, with ``--circuits``, with the random-number circuits of the switch port in
place of independent random numbers. The diagnosis gets only the samples; nothing is simulated. A
verdict is right if it names the cause that was built in, wrong if it names another one, and open if
it names none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from _pages import cpu_seconds, put
from diagnosis_observe import join, known_to_user, observe_with, thin
from diagnosis_suite import Case, make

from tailback import Scenario
from tailback.diagnosis import diagnose_cause
from tailback.run.run import Run
from tailback.scenario.model import TelemetrySection
from tailback.simulation import decode_samples, prepare

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "telemetry.md"

_COORDINATED = {"scheme": "coordinated", "hash_bits": 5}
_COMPACT = {"scheme": "compact", "hash_bits": 2, "count_bits": 3}
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "whole links, all switches": {"scheme": "full"},
    "whole links, leaf switches": {"scheme": "full", "stamping": "leaf"},
    "whole links, two slots": {"scheme": "full", "slots": 2},
    "6 bits `coordinated`, all switches": _COORDINATED,
    "6 bits `coordinated`, leaf switches": _COORDINATED | {"stamping": "leaf"},
    "6 bits `coordinated`, half lost": _COORDINATED | {"header_loss": 0.5},
    "6 bits `coordinated`, nine tenths lost": _COORDINATED | {"header_loss": 0.9},
    "6 bits `coordinated`, datagrams": _COORDINATED | {"queue_pairs": "shared"},
    "6 bits `coordinated`, two slots of 2 bits": {
        "scheme": "coordinated",
        "slots": 2,
        "hash_bits": 2,
    },
    "6 bits `compact`, all switches": _COMPACT,
    "6 bits `compact`, leaf switches": _COMPACT
    | {"hash_bits": 3, "count_bits": 2, "stamping": "leaf"},
    "compact CSIG tag, all switches": {"scheme": "csig"},
    "compact CSIG tag, leaf switches": {"scheme": "csig", "stamping": "leaf"},
    "7 bits `compact`, two slots of 1 bit": _COMPACT | {"slots": 2, "hash_bits": 1},
}
CIRCUITS: dict[str, dict[str, Any]] = {
    "6 bits `compact`, independent random numbers": _COMPACT,
    "6 bits `compact`, shift registers": _COMPACT | {"randomness": "lfsr"},
    "6 bits `compact`, rings": _COMPACT | {"randomness": "ring"},
    # Decisions for seven hops and the sentinel, in place of a count of three bits.
    "11 bits `compact`, sender's bits": _COMPACT | {"count_bits": 8, "randomness": "sender"},
}
OPEN = "undetermined"


def deployed(scenario: Scenario, telemetry: dict[str, Any]) -> Scenario:
    """The scenario with other telemetry; random starts give each execution other packet ids."""
    windows = scenario.telemetry.windows
    section = TelemetrySection(windows=windows, psn_start="random", **telemetry)
    return scenario.model_copy(update={"telemetry": section})


def verdict(case: Case, telemetry: dict[str, Any], packets: int) -> str:
    """The cause that the diagnosis names from samples alone."""
    runs = observe_with(deployed(case.scenario, telemetry), packets)
    known = deployed(case.as_known(), telemetry)
    whole = thin(join(runs, known), packets, case.number)
    seen = known_to_user(decode_samples(whole, prepare(known).fabric))
    return str(diagnose_cause(Run(known, seen.tables, seen.summary)).cause)


def measure(
    count: int, packets: int, deployments: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each deployment, over the first ``count`` test scenarios."""
    found: dict[str, Counter[str]] = {name: Counter() for name in deployments}
    for number in range(1, 2 * count, 2):
        try:
            case = make(number)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            continue
        for name, telemetry in deployments.items():
            cause = verdict(case, telemetry, packets)
            kind = "right" if cause == case.label else "open" if cause == OPEN else "wrong"
            found[name][kind] += 1
        print(f"{number} {case.label}: {cpu_seconds():.0f} s", file=sys.stderr, flush=True)
    return [
        {"deployment": name, **{kind: counts[kind] for kind in ("right", "wrong", "open")}}
        for name, counts in found.items()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| samples | right | wrong | open |", "|---|---:|---:|---:|"]
    lines += [f"| {r['deployment']} | {r['right']} | {r['wrong']} | {r['open']} |" for r in rows]
    return "\n".join(lines)


def _others(block: str, every: dict[str, Any], measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the page that were not measured now."""
    text = PAGE.read_text(encoding="utf-8")
    inside = text.partition(f"<!-- {block} -->")[2].partition(f"<!-- end {block} -->")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in inside.splitlines()]
    return [
        {"deployment": row[0], "right": row[1], "wrong": row[2], "open": row[3]}
        for row in cells
        if row and row[0] in every and row[0] not in measured
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=14, help="scenarios")
    parser.add_argument("--packets", type=int, default=100_000, help="observed packets of each")
    parser.add_argument("--circuits", action="store_true", help="compare sources of randomness")
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--write", action="store_true", help="update docs/measurements/telemetry.md"
    )
    options = parser.parse_args()
    if options.count < 1 or options.packets < 1:
        parser.error("--count and --packets must be at least 1")
    every = CIRCUITS if options.circuits else DEPLOYMENTS
    deployments = {name: how for name, how in every.items() if options.only in name}
    if not deployments:
        parser.error(f"--only {options.only!r} leaves no row")
    rows = measure(options.count, options.packets, deployments)
    print(json.dumps(rows) if options.json else table(rows))
    if options.write:
        block = "circuits" if options.circuits else "deployment"
        place = list(every)
        both = [*_others(block, every, deployments), *rows]
        put(PAGE, {block: table(sorted(both, key=lambda row: place.index(row["deployment"])))})
    return 0


if __name__ == "__main__":
    sys.exit(main())
