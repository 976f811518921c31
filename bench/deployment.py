r"""Effect of partial telemetry on the verdict: `python bench/deployment.py [--count N] [--json]`.

Generated scenarios (``diagnosis_suite``) are observed with whole links, with six bits a packet
(stamped by every switch or by leaf switches only, and with samples lost on the way), and with
CSIG's tag of four bytes. With ``--sprayed`` they are observed with the ECN marks of unmodified
switches, and with six bits beside them: packets are sprayed by entropy values where the scenario's
routing is not static. The diagnosis gets only the samples; nothing is simulated. A verdict is right
if it names the cause that was built in, wrong if it names another one, and open if it names none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from _shared import put
from diagnosis_observe import join, known_to_user, observe_with, thin
from diagnosis_suite import Case, make

from tailback import Scenario
from tailback.diagnosis import diagnose_cause
from tailback.run.run import Run
from tailback.scenario.model import TelemetrySection
from tailback.simulation import decode_samples, prepare

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"

_COORDINATED = {"scheme": "coordinated", "hash_bits": 5}
_COMPACT = {"scheme": "compact", "hash_bits": 2, "count_bits": 3}
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "whole links, all switches": {"scheme": "full"},
    "whole links, leaf switches": {"scheme": "full", "stamping": "leaf"},
    "6 bits `coordinated`, all switches": _COORDINATED,
    "6 bits `coordinated`, leaf switches": _COORDINATED | {"stamping": "leaf"},
    "6 bits `coordinated`, half lost": _COORDINATED | {"header_loss": 0.5},
    "6 bits `coordinated`, nine tenths lost": _COORDINATED | {"header_loss": 0.9},
    "6 bits `compact`, all switches": _COMPACT,
    "6 bits `compact`, leaf switches": _COMPACT
    | {"hash_bits": 3, "count_bits": 2, "stamping": "leaf"},
    "compact CSIG tag, all switches": {"scheme": "csig"},
    "compact CSIG tag, leaf switches": {"scheme": "csig", "stamping": "leaf"},
}
SPRAYED: dict[str, dict[str, Any]] = {
    "6 bits `coordinated`": _COORDINATED,
    "no bits (`entropy-ecn`)": {"scheme": "entropy-ecn"},
    "no bits (`entropy-ecn`), nine tenths lost": {"scheme": "entropy-ecn", "header_loss": 0.9},
}
OPEN = "undetermined"


def deployed(scenario: Scenario, telemetry: dict[str, Any], *, spray: bool) -> Scenario:
    """The scenario with other telemetry; random starts give each execution other packet ids."""
    windows, engine = scenario.telemetry.windows, scenario.engine
    if spray and engine.routing != "deterministic":
        engine = engine.model_copy(update={"routing": "spray"})
    section = TelemetrySection(windows=windows, psn_start="random", **telemetry)
    return scenario.model_copy(update={"telemetry": section, "engine": engine})


def verdict(case: Case, telemetry: dict[str, Any], packets: int, *, spray: bool) -> str:
    """The cause that the diagnosis names from samples alone."""
    runs = observe_with(deployed(case.scenario, telemetry, spray=spray), packets)
    scenario = deployed(case.as_known(), telemetry, spray=spray)
    run = thin(join(runs, scenario), packets, case.number)
    seen = known_to_user(decode_samples(run, prepare(scenario).fabric))
    return str(diagnose_cause(Run(scenario, seen.tables, seen.summary)).cause)


def measure(count: int, packets: int, *, spray: bool) -> list[dict[str, Any]]:
    """A row for each deployment, over the first ``count`` test scenarios."""
    chosen = SPRAYED if spray else DEPLOYMENTS
    verdicts: dict[str, Counter[str]] = {name: Counter() for name in chosen}
    for number in range(1, 2 * count, 2):
        try:
            case = make(number)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            continue
        for name, telemetry in chosen.items():
            cause = verdict(case, telemetry, packets, spray=spray)
            kind = "right" if cause == case.label else "open" if cause == OPEN else "wrong"
            verdicts[name][kind] += 1
            print(f"{number} {case.label}, {name}: {cause}", file=sys.stderr, flush=True)
    return [
        {"deployment": name, **{kind: counts[kind] for kind in ("right", "wrong", "open")}}
        for name, counts in verdicts.items()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| samples | right | wrong | open |", "|---|---:|---:|---:|"]
    lines += [f"| {r['deployment']} | {r['right']} | {r['wrong']} | {r['open']} |" for r in rows]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=21, help="scenarios")
    parser.add_argument("--packets", type=int, default=100_000, help="observed packets of each")
    parser.add_argument("--sprayed", action="store_true", help="marks of unmodified switches")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    options = parser.parse_args()
    if options.count < 1 or options.packets < 1:
        parser.error("--count and --packets must be at least 1")
    rows = measure(options.count, options.packets, spray=options.sprayed)
    print(json.dumps(rows) if options.json else table(rows))
    if options.write:
        put(PAGE, {"deployment sprayed" if options.sprayed else "deployment": table(rows)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
