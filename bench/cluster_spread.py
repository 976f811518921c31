"""How a diagnosis gets faster with more workers: its schedule with measured costs of tasks.

python bench/cluster_spread.py                  the cases, 1 to 32 workers
python bench/cluster_spread.py --case stencil2d one of them
python bench/cluster_spread.py --write          writes its table into docs/measurements/speed.md

Each case is diagnosed once with two workers. What is recorded: when the diagnosis announces a
simulation, when it needs its run, how much processor time it spends itself in between, and how much
each simulation costs its worker. The schedule is then computed for other numbers of workers, which
take tasks in the order in which they were announced; without limit it is the critical path. Only
costs are measured, in processor time, so that other work of the machine hardly affects them.
"""

from __future__ import annotations

import argparse
import heapq
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _machine import machine
from _pages import put

import tailback as tb
import tailback.simulation.parallel.task_folder as task_folder
from tailback.simulation.parallel.task_folder import TaskFolder

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "speed.md"
CASES = {
    "demo": ("examples/demo/demo.toml", 3),
    "stencil2d": ("examples/stencil2d/stencil2d.toml", 3),
    "stencil2d, 16 seeds": ("examples/stencil2d/stencil2d.toml", 16),
}
"""Scenario and seeds of each case."""

WORKERS = (1, 2, 4, 8, 16, 32)


@dataclass
class Recording:
    """What a diagnosis did: announcements and needs of tasks, and its own time between them."""

    events: list[tuple[str, int, float]] = field(default_factory=list)
    costs: dict[int, float] = field(default_factory=dict)

    def started(self) -> None:
        """Begin to record: the methods of task folders report to this object."""
        self.before = time.process_time()
        # Every task is left to the workers, however busy the machine is.
        task_folder.PATIENCE_S = float("inf")
        put_task, take = TaskFolder.put, TaskFolder.take

        def recorded_put(folder: TaskFolder, change: Any) -> int:
            number = put_task(folder, change)
            self.note("put", number)
            return number

        def recorded_take(folder: TaskFolder, number: int) -> Any:
            self.note("take", number)
            run = take(folder, number)
            if run is not None:
                self.costs[number] = folder.costs[number]
            # What waiting costs is not work of the diagnosis.
            self.before = time.process_time()
            return run

        TaskFolder.put, TaskFolder.take = recorded_put, recorded_take  # type: ignore[method-assign]
        self.restore = lambda: (
            setattr(TaskFolder, "put", put_task),
            setattr(TaskFolder, "take", take),
        )

    def note(self, what: str, number: int) -> None:
        """Record an event and the processor time before it."""
        now = time.process_time()
        self.events.append((what, number, now - self.before))
        self.before = now


def makespan(recording: Recording, workers: int | None) -> float:
    """Time of the diagnosis with a number of workers; None: as many as there are tasks; 0: none."""
    now, free = 0.0, [0.0] * (workers if workers is not None else len(recording.costs) + 1)
    heapq.heapify(free)
    done: dict[int, float] = {}
    for what, number, own in recording.events:
        now += own
        cost = recording.costs.get(number, 0.0)
        if workers == 0:
            now += cost if what == "take" else 0.0
        elif what == "put":
            done[number] = max(now, heapq.heappop(free)) + cost
            heapq.heappush(free, done[number])
        elif what == "take":
            now = max(now, done.get(number, now))
    return now


def recorded(source: str, seeds: int) -> dict[str, Any]:
    """Costs of a diagnosis, and its times with other numbers of workers."""
    recording = Recording()
    recording.started()
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = tb.diagnose(
                source, seeds=seeds, workers=2, threads=1, tasks=Path(folder) / "tasks"
            )
            result.write(Path(folder) / "out")
        recording.note("end", -1)
    finally:
        recording.restore()
    alone = makespan(recording, 0)
    own = sum(event[2] for event in recording.events)
    times = {str(n): makespan(recording, n) for n in WORKERS}
    return {
        "source": source,
        "seeds": seeds,
        "tasks": len(recording.costs),
        "own_s": own,
        "tasks_s": sum(recording.costs.values()),
        "largest_s": max(recording.costs.values()),
        "alone_s": alone,
        "times_s": times,
        "critical_path_s": makespan(recording, None),
        "measured_wall_s": time.perf_counter() - began,
        "announced_in_vain": sum(
            what == "put" and number not in recording.costs for what, number, _ in recording.events
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", default="", help="cases whose name begins so")
    parser.add_argument("--write", action="store_true", help=f"update docs/{PAGE.name}")
    options = parser.parse_args()
    rows = {name: recorded(*case) for name, case in CASES.items() if name.startswith(options.case)}
    print(json.dumps({"machine": machine(), "rows": rows}, indent=2))
    if options.write:
        put(PAGE, {"workers": _table(rows)})


def _table(rows: dict[str, dict[str, Any]]) -> str:
    """The cases in Markdown."""
    heads = " | ".join(str(n) for n in WORKERS)
    lines = [
        f"| case | tasks | they cost | diagnosis itself | alone | {heads} | critical path |",
        "|---|---|---|---|---|" + "---|" * len(WORKERS) + "---|",
    ]
    for name, row in rows.items():
        times = " | ".join(
            f"{time_s:.1f} s ({row['tasks_s'] / max(time_s - row['own_s'], 1e-9):.1f} ×)"
            for time_s in row["times_s"].values()
        )
        lines.append(
            f"| {name} | {row['tasks']} | {row['tasks_s']:.1f} s | {row['own_s']:.1f} s "
            f"| {row['alone_s']:.1f} s | {times} | {row['critical_path_s']:.1f} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
