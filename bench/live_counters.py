"""A hidden job found by counters of real tools: ``python bench/live_counters.py [--json]``.

Two jobs are simulated on one machine, with the forwarding tables that a real opensm computes for
it. Their port counters are played in real time into ibsim, which answers management datagrams of a
fabric under that opensm; ``tailback collect`` reads them from there, without access to the
simulation. One job has a trace, the other a line in the job list. ``tailback diagnose`` gets the
output of real tools.

verdict    what it says, with its headline
right      traffic of others is the main cause, and the job named is the one that sent it
truth      what the other job cost, as a share of the time of the traced one
said       what the diagnosis says that it cost

Takes one to two minutes; needs ibsim, opensm and infiniband-diags.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import polars as pl
from _shared import machine
from blind_case import draw_clocks, write_jobs
from blind_draw import STEPS, Case, Counterfactual, draw
from blind_programs import call_times
from blind_trace import write_trace

from tailback.port_counters.readers import from_run
from tailback.run.run import Run
from tests.factories.ibsim_subnet import Subnet, missing, wait_for

HIDDEN_JOB_OF_SECONDS = 18
"""Number of a blind case that is both: a hidden job, and a run that lasts seconds."""

WORD_BYTES, TICK_NS = 4, 22
FIRST_READING_S = 60.0


def main() -> None:
    """Play, collect, diagnose, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep evidence and diagnosis in this folder")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if lacking := missing():
        raise SystemExit(f"install {', '.join(lacking)}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result = diagnose_pair(chosen.seed, folder.resolve())
    print(json.dumps({"machine": machine(), **result}, indent=1) if chosen.json else report(result))


def diagnose_pair(seed: int, folder: Path) -> dict[str, Any]:
    """One pair of jobs, from their simulation to the verdict."""
    hidden, seen = folder / "truth", folder / "seen"
    for made in (hidden, seen, folder / "subnet"):
        made.mkdir(exist_ok=True)
    case = draw(HIDDEN_JOB_OF_SECONDS, "judge", seed, hidden)
    with Subnet(case.reality.fabric_file, folder / "subnet") as subnet:
        (seen / "fabric.ibnetdiscover").write_text(subnet.run("ibnetdiscover"))
        tables = seen / "lfts.txt"
        tables.write_text(subnet.run("dump_lfts"))
        # Both jobs run by the tables that opensm made of this fabric.
        case = routed(case, tables)
        elapsed_ps = case.counterfactual.time_ps()
        happened = case.counterfactual.happened
        assert happened is not None
        began_ns = play(subnet, happened, case, seen / "counters")
    leave_trace(case, happened, seed, seen, began_ns)
    guilty = next(neighbour for neighbour in case.reality.neighbours if not neighbour.innocent)
    diagnosis = diagnose(seen, folder / "diagnosis")
    cost = next(
        (c for c in diagnosis["explanation"]["costs"] if c["cause"] == "other-traffic"), None
    )
    return {
        "verdict": diagnosis["cause"],
        "headline": diagnosis["headline"],
        "confidence": diagnosis["confidence"],
        "guilty_job": guilty.name,
        "listed": guilty.named,
        "right": diagnosis["cause"] == "other-traffic"
        and (not guilty.named or f"job {guilty.name} " in diagnosis["headline"]),
        "seconds": happened.elapsed_ps / 1e12,
        "interval_s": case.interval_ps / 1e12,
        "truth": 1 - case.counterfactual.clean_ps / elapsed_ps,
        "said": cost["share"] if cost else 0.0,
    }


def routed(case: Case, tables: Path) -> Case:
    """The same case with routes by other forwarding tables."""
    reality = replace(case.reality, tables_file=tables, good_tables=tables, adaptive=False)
    return replace(
        case, reality=reality, counterfactual=Counterfactual(reality, case.interval_ps // STEPS)
    )


def play(subnet: Subnet, run: Run, case: Case, out: Path) -> int:
    """Play the counters of a run into ibsim while the collector reads; UTC ns of its start."""
    devices = device_keys(case.reality.fabric_file)
    readings = from_run(run).readings
    assert readings is not None
    interval_s = case.interval_ps / 1e12
    child = subnet.start(
        "collect",
        "--out",
        str(out),
        "--interval",
        f"{interval_s * 1000:g} ms",
        "--tick",
        f"{TICK_NS} ns",
        "--quiet",
    )
    try:
        segments = out / "segments"
        if not wait_for(
            lambda: (
                any(file.stat().st_size for file in segments.glob("*"))
                if segments.exists()
                else False
            ),
            FIRST_READING_S,
            lambda: child.poll() is None,
        ):
            raise SystemExit("tailback collect read nothing")
        time.sleep(2 * interval_s)
        began_ns = time.time_ns()
        before: dict[str, int] = {}
        for (moment,), rows in readings.sort("time_ns").group_by("time_ns", maintain_order=True):
            lines = [line for row in rows.iter_rows(named=True) for line in settings(row, devices)]
            changed = [line for line in lines if before.get(at(line)) != value(line)]
            before |= {at(line): value(line) for line in changed}
            ahead = began_ns + int(moment) - time.time_ns()  # type: ignore[call-overload]
            time.sleep(max(ahead / 1e9, 0.0))
            subnet.console(changed)
        time.sleep(3 * interval_s)
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    return began_ns


def device_keys(fabric_file: Path) -> dict[str, str]:
    """Names that ibsim gives devices, by their node descriptions."""
    text = fabric_file.read_text()
    devices = re.findall(r'^(?:Switch|Ca)\s+\d+\s+"([SH]-[0-9a-f]+)"\s+#\s+"([^"]*)"', text, re.M)
    return {name: key for key, name in devices}


def settings(row: dict[str, Any], devices: dict[str, str]) -> list[str]:
    """Console lines that set the counters of a port."""
    place = f'PerformanceSet "{devices[row["node_name"]]}"[{row["port"]}]'
    return [
        f"{place} PortCounters.PortXmitWait={int(row['stall_ns'] / TICK_NS)}",
        f"{place} PortCountersExtended.PortXmitData={int(row['data_bytes']) // WORD_BYTES}",
        f"{place} PortCountersExtended.PortXmitPkts={int(row['packets'])}",
    ]


def at(line: str) -> str:
    """Counter that a console line sets."""
    return line.rpartition("=")[0]


def value(line: str) -> int:
    """The value that it sets."""
    return int(line.rpartition("=")[2])


def leave_trace(case: Case, happened: Run, seed: int, seen: Path, began_ns: int) -> None:
    """The trace and the job list, with the real times at which the counters were played."""
    reality = case.reality
    rng = np.random.Generator(np.random.Philox(key=[seed, 7]))
    scripts = reality.scripts()
    clocks, errors = draw_clocks(rng, reality.fabric.n_hosts)
    write_trace(
        seen / "trace",
        scripts,
        call_times(happened, scripts),
        reality.fabric.node_host[reality.node].tolist(),
        reality.fabric.host_name,
        clocks,
        utc_ns=began_ns,
        recorded_offsets=errors,
    )
    write_jobs(seen / "jobs.csv", case, rng, began_ns, happened.elapsed_ps)


def diagnose(seen: Path, out: Path) -> dict[str, Any]:
    """What ``tailback diagnose`` says of the evidence."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tailback",
            "diagnose",
            str(seen / "trace"),
            "--fabric",
            str(seen / "fabric.ibnetdiscover"),
            "--counters",
            str(seen / "counters"),
            "--jobs",
            str(seen / "jobs.csv"),
            "--forwarding",
            str(seen / "lfts.txt"),
            "--seeds",
            "1",
            "--out",
            str(out),
            "--force",
        ],
        capture_output=True,
        text=True,
    )
    if not (out / "diagnosis.json").exists():
        raise SystemExit(done.stderr)
    return dict(json.loads((out / "diagnosis.json").read_text()))


def report(result: dict[str, Any]) -> str:
    """The result as a table."""
    return str(pl.DataFrame({"": list(result), " ": [str(x) for x in result.values()]}))


if __name__ == "__main__":
    main()
