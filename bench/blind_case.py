"""Writes a blind case: the files that tools write and, in a separate folder, the truth."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from blind_counters import FORMS, Sampling, write_counters
from blind_draw import Case, draw
from blind_programs import bytes_sent, call_times
from blind_trace import Clocks, write_trace

VERSION = 3
"""Version of the cases; those of another version are made again."""

_FIRST_UTC_NS = 1_790_000_000 * 10**9


def write_case(number: int, split: str, seed: int, folder: Path) -> dict[str, Any]:
    """Make a case; returns its truth.

    The diagnosis reads ``folder/seen`` and must not see ``folder/truth``.

    Raises:
        RuntimeError: No draw of the number was confirmed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    seen, hidden = folder / "seen", folder / "truth"
    seen.mkdir(parents=True)
    hidden.mkdir()
    case = draw(number, split, seed, hidden)
    key = [seed * 2 + (split == "judge"), (number << 8) | 0xFF]
    rng = np.random.Generator(np.random.Philox(key=key))
    utc_ns = _FIRST_UTC_NS + int(rng.integers(10**7)) * 10**9 + int(rng.integers(10**9))
    reality = case.reality
    case.counterfactual.time_ps()
    happened = case.counterfactual.happened
    assert happened is not None
    scripts = reality.scripts()
    times = call_times(happened, scripts)
    clocks, errors = draw_clocks(rng, reality.fabric.n_hosts)
    write_trace(
        seen / "trace",
        scripts,
        times,
        reality.fabric.node_host[reality.node].tolist(),
        reality.fabric.host_name,
        clocks,
        utc_ns=utc_ns,
        recorded_offsets=errors if rng.random() < 0.5 else None,
    )
    shutil.copy(reality.fabric_file, seen / "fabric.ibnetdiscover")
    if reality.tables_file is not None:
        (seen / "forwarding").mkdir()
        shutil.copy(reality.tables_file, seen / "forwarding" / "lfts.txt")
    sampling = _sampling(rng, case)
    counted = write_counters(seen / "counters", happened, reality.fabric_file, sampling, utc_ns)
    write_jobs(seen / "jobs.csv", case, rng, utc_ns, happened.elapsed_ps)
    options = {
        "trace": "trace",
        "fabric": "fabric.ibnetdiscover",
        "counters": "counters",
        "jobs": "jobs.csv",
        "forwarding": None if reality.adaptive else "forwarding",
        "routing": "adaptive" if reality.adaptive else "deterministic",
    }
    _write_json(seen / "case.json", options)
    truth = _truth(case, number, split, seed, happened.elapsed_ps, utc_ns, clocks)
    truth["counters"] = counted
    truth["program_sends"] = bytes_sent(scripts)
    truth["first_call_ps"] = min(int(t[0, 0]) for t in times)
    truth["last_call_ps"] = max(int(t[-1, 1]) for t in times)
    _write_json(hidden / "truth.json", truth)
    return truth


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def draw_clocks(rng: np.random.Generator, hosts: int) -> tuple[Clocks, np.ndarray]:
    """Clocks of the hosts, and errors of Score-P's measurement of their offsets."""
    offset = rng.uniform(-10, 10, hosts) * 1e9
    drift = rng.uniform(-20, 20, hosts) * 1e-6
    errors = rng.normal(0.0, 0.4e6, (hosts, 2)).astype(np.int64)
    return Clocks(offset.astype(np.int64), drift), errors


def _sampling(rng: np.random.Generator, case: Case) -> Sampling:
    form = str(rng.choice(FORMS, p=[0.4, 0.35, 0.25]))
    return Sampling(
        form,
        case.interval_ps,
        round(rng.uniform(-10, 10) * 1e6),
        bool(rng.random() < 0.75),
        bool(rng.random() < 0.5),
        0.05 if rng.random() < 0.3 else 0.0,
        int(rng.integers(2**31)),
    )


def write_jobs(
    path: Path, case: Case, rng: np.random.Generator, utc_ns: int, elapsed_ps: int
) -> None:
    """The output of ``SLURM_TIME_FORMAT=%s sacct -X --parsable2`` for the time around the run."""
    reality = case.reality
    name = reality.fabric.host_name
    rows = ["JobID|Start|End|State|NodeList"]
    hosts = np.unique(reality.fabric.node_host[reality.node])
    ran = [("4711", hosts.tolist(), reality.start_ps, reality.start_ps + elapsed_ps)]
    ran += [(n.name, sorted(n.hosts), 0, None) for n in reality.neighbours if n.named]
    busy = {host for _, group, _, _ in ran for host in group}
    busy |= {host for n in reality.neighbours for host in n.hosts}
    free = [host for host in range(reality.fabric.n_hosts) if host not in busy]
    if len(free) >= 2 and rng.random() < 0.7:
        # A job that computes and sends nothing.
        ran.append((str(int(rng.integers(1000, 4700))), free[: len(free) // 2 or 1], 0, None))
    for job, group, start, end in sorted(ran):
        # Schedulers record seconds; a job begins before MPI_Init and ends after MPI_Finalize.
        began = (utc_ns + start // 1000) // 10**9 - (1 if job == "4711" else 600)
        ended = "Unknown" if end is None else str((utc_ns + end // 1000) // 10**9 + 2)
        state = "RUNNING" if end is None else "COMPLETED"
        rows.append(f"{job}|{began}|{ended}|{state}|{','.join(name[h] for h in group)}")
    path.write_text("\n".join(rows) + "\n", encoding="ascii")


def _truth(
    case: Case, number: int, split: str, seed: int, elapsed_ps: int, utc_ns: int, clocks: Clocks
) -> dict[str, Any]:
    reality, measured = case.reality, case.counterfactual
    removed, shares = measured.removed_ps(), measured.shares_ps()
    ranked = sorted(removed, key=lambda cause: -removed[cause])
    main = ranked[0] if ranked else "healthy"
    # Two causes fit if removing the second saves nearly as much as removing the first.
    accepted = [cause for cause in ranked if removed[cause] >= 0.9 * removed[main]]
    return {
        "version": VERSION,
        "seed": seed,
        "number": number,
        "split": split,
        "kind": case.kind,
        "long": case.long,
        "main": main,
        "accepted": accepted or ["healthy", "none", "adapter"],
        "fit_trace_alone": _fit_trace_alone(case, main),
        "elapsed_ps": elapsed_ps,
        "clean_ps": measured.clean_ps,
        "causes": {
            cause: {
                "removed_ps": removed[cause],
                "ps": round(shares[cause]),
                "share": shares[cause] / elapsed_ps,
            }
            for cause in ranked
        },
        "slow_cables": [{"cable": c, "gbps": r} for c, r in reality.slow],
        "slow_ranks": reality.work.slow,
        "other_jobs": [
            {
                "job": n.name,
                "hosts": [reality.fabric.host_name[h] for h in n.hosts],
                "named": n.named,
                "innocent": n.innocent,
            }
            for n in reality.neighbours
        ],
        "noise": {"rate_per_s": reality.work.rate_per_s, "detour_ps": reality.work.detour_ps},
        "start_ps": reality.start_ps,
        "utc_ns": utc_ns,
        "utc": datetime.fromtimestamp(utc_ns / 1e9, UTC).isoformat(),
        "clock_offset_ps": clocks.offset_ps.tolist(),
        "clock_drift": clocks.drift.tolist(),
        "drawn": case.facts,
        "rejected": case.rejected,
    }


def _fit_trace_alone(case: Case, main: str) -> list[str]:
    """Causes that message times alone cannot distinguish.

    A cable between switches that is always slow looks like one that another job always loads, if
    other jobs have hosts whose traffic crosses it.
    """
    if main != "slow_link" or len(case.reality.causes) > 1:
        return [main]
    reality = case.reality
    fabric = reality.fabric
    ours = set(fabric.node_host[reality.node].tolist())
    ends = {name for cable, _ in reality.slow for name in [cable.rsplit("[", 1)[0]]}
    of_host = ends & set(fabric.node_name)
    outsiders = fabric.n_hosts - len(ours)
    return [main] if of_host or outsiders < 2 else [main, "other_traffic"]
