"""Tailback finds where traffic backs up in a network, says why, and proves the fix.

From Python it is used as from the command line, with the same results::

    import tailback as tb

Read a scenario; every function below also takes the file, the data as a dictionary, a trace with
``fabric=``, or the folder of a run in its place::

    scenario = tb.load_scenario("examples/demo/demo.toml", placement="rcm")

Simulate it. Tables are polars frames; figures are matplotlib figures::

    run = tb.simulate(scenario)
    run.elapsed_ps                               # picoseconds
    run.tables["messages"].to_pandas()           # columns: docs/reference/tables.md
    run.plot.link_time().savefig("links.pdf")    # dir(run.plot) lists the figures
    run.write("run")

Diagnose an application: where its traffic backs up, why, and what to do, proved by simulation::

    result = tb.diagnose("app_trace/", fabric="fabric.txt")
    result.cause, result.headline                # and every other part of a Diagnosis
    result.remedy.gain                           # share of the time saved, 0–1
    result.write("diagnosis")                    # report.html, rank files, tables

Place the ranks of a job and judge each placement::

    placed = tb.place("app_trace/", fabric="fabric.txt", methods=["tile", "rcm"])
    placed.best, placed.frame                    # one row a placement
    placed.write("ranks")                        # rank files of the best one

Compare two runs::

    before, after = tb.read_run("diagnosis"), tb.read_run("diagnosis/after")
    tb.compare(before, after).links              # congested fraction of links that changed most

Run a parameter study::

    study = tb.sweep(scenario, over={"seed": range(10)}, out="study")
    study.frame                                  # one row a run

Fit the engine to a machine by its benchmarks::

    machine = tb.calibrate(["near.txt@n1,n2", "far.txt@n1,n99"], fabric="fabric.txt")
    machine.frame                                # values with their 95 % intervals
    machine.write("machine.toml")

Say what port counters alone can say::

    found = tb.counters(["12h00.txt", "12h10.txt"], fabric="fabric.txt")
    found.verdict, found.tables

A mistake in what was given raises :class:`TailbackError`, which names the file, the place, the
value and the remedy. ``help(tb.simulate)`` and so on explain each function;
docs/how-to/python.md has more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailback.api.calibrate import calibrate
    from tailback.api.compare import Comparison, compare
    from tailback.api.counters import CountersResult, counters
    from tailback.api.diagnose import DiagnosisResult, diagnose
    from tailback.api.place import PlacementResult, place
    from tailback.api.run import Run, read_run
    from tailback.api.simulate import simulate
    from tailback.api.source import load_scenario
    from tailback.api.sweep import Sweep, sweep
    from tailback.calibration.file import Calibration
    from tailback.diagnosis.model import Diagnosis
    from tailback.errors import TailbackError
    from tailback.scenario import Scenario

    __version__: str

__all__ = [
    "Calibration",
    "Comparison",
    "CountersResult",
    "Diagnosis",
    "DiagnosisResult",
    "PlacementResult",
    "Run",
    "Scenario",
    "Sweep",
    "TailbackError",
    "calibrate",
    "compare",
    "counters",
    "diagnose",
    "load_scenario",
    "place",
    "read_run",
    "simulate",
    "sweep",
]

_DEFINED_IN = {
    "Calibration": "calibration.file",
    "Comparison": "api.compare",
    "CountersResult": "api.counters",
    "Diagnosis": "diagnosis.model",
    "DiagnosisResult": "api.diagnose",
    "PlacementResult": "api.place",
    "Run": "api.run",
    "Scenario": "scenario",
    "Sweep": "api.sweep",
    "TailbackError": "errors",
    "calibrate": "api.calibrate",
    "compare": "api.compare",
    "counters": "api.counters",
    "diagnose": "api.diagnose",
    "load_scenario": "api.source",
    "place": "api.place",
    "read_run": "api.run",
    "simulate": "api.simulate",
    "sweep": "api.sweep",
}
"""Module of every public name, loaded when the name is asked for: all together take seconds."""


def __getattr__(name: str) -> Any:
    """A public name, or ``__version__`` as Cargo.toml states it, which takes long to look up."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tailback")
    if name in _DEFINED_IN:
        return getattr(import_module(f"tailback.{_DEFINED_IN[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
