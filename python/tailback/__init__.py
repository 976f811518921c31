"""Tailback finds where traffic backs up in a network, says why, and proves the fix.

This page shows the whole library. Functions that share their name with a command give the same
results. A first session, in the root of the repository::

    import tailback as tb

    result = tb.diagnose("examples/demo/demo.toml", seeds=1)
    print(result.headline)                       # what is wrong, and what it costs
    print(result.remedy.action)                  # what to do, and what it gains
    result.write("diagnosis")                    # report.html, rank files, tables

The functions and what they return::

    tb.load_scenario   read a scenario, or a trace with its network    Scenario
    tb.simulate        simulate every packet, or rates (fluid model)   Run
    tb.read_run        read a run from its folder                      Run
    tb.diagnose        cause, cost and proved remedy                   DiagnosisResult
    tb.diagnose_pairs  slow host or cable, from tests of pairs        PairsResult
    tb.diagnose_hang   rank that holds up a training run, from dumps   HangResult
    tb.place           placements of the ranks, compared               PlacementResult
    tb.compare         differences of two runs                         Comparison
    tb.confirm         predicted and measured gain of a remedy         Confirmation
    tb.verify          a diagnosis, repeated and compared              Verification
    tb.sweep           one scenario over many values of its keys       Sweep
    tb.calibrate       engine settings of a machine, from benchmarks   Calibration
    tb.counters        a verdict from port counters alone              CountersResult
    tb.watch           looks at a running collection                   CollectionWatch

``help(tb.diagnose)`` and so on list the arguments of each. Tables are polars frames
(``.to_pandas()`` converts one), figures are matplotlib figures, times are in picoseconds, rates in
Gb/s and shares between 0 and 1, as the names say: ``elapsed_ps``, ``rate_gbps``. In a notebook
every result shows a summary.

**Load and simulate.** A source is a scenario (file, dictionary or object), a trace together with
``fabric=``, or the folder of a run or diagnosis; keywords override its keys::

    scenario = tb.load_scenario("examples/demo/demo.toml", placement="rcm")
    run = tb.simulate(scenario)
    run.elapsed_ps
    run.tables["messages"].to_pandas()           # columns: docs/reference/tables.md
    run.plot.link_time().savefig("links.pdf")    # dir(run.plot) lists the figures
    run.write("run")

**Diagnose.** Where the traffic of a program backs up, why, and what to do, proved by simulation::

    result = tb.diagnose("app_trace/", fabric="fabric.txt")
    result.cause, result.headline                # and every other part of a Diagnosis
    result.remedy.gain                           # share of the time saved, 0–1
    result.plot.waterfall()                      # what each cause costs

With port counters, a job list or samples of packets, the diagnosis explains the measured time:
``counters=``, ``jobs=``, ``samples=``.

**Place** the ranks, **compare** two runs, and **sweep** over values of a scenario::

    placed = tb.place("app_trace/", fabric="fabric.txt", methods=["tile", "rcm"])
    placed.best, placed.frame                    # one row per placement
    placed.write("ranks")                        # rank files of the best one

    before, after = tb.read_run("diagnosis"), tb.read_run("diagnosis/after")
    tb.compare(before, after).links              # congested fraction of links that changed most

**Confirm** that a recording with the remedy gained what its diagnosis predicted::

    tb.confirm("diagnosis", "after_trace/").outcome

    study = tb.sweep(scenario, over={"seed": range(10)}, out="study")
    study.frame                                  # one row per run

**Verify** that a diagnosis can be repeated bit for bit from its inputs::

    tb.verify("diagnosis").outcome               # "stands"

**Calibrate** the engine, and analyse port **counters** without a trace::

    machine = tb.calibrate(["near.txt@n1,n2", "far.txt@n1,n99"], fabric="fabric.txt")
    machine.frame                                # values with their 95 % intervals
    machine.write("machine.toml")

    found = tb.counters(["12h00.txt", "12h10.txt"], fabric="fabric.txt")
    found.verdict, found.tables

**Errors.** Invalid input raises :class:`TailbackError`, which names the file, the place, the value
and the remedy.

The tutorial (docs/tutorial) takes one trace from the question to the remedy and a sweep;
docs/reference/api.md has more on sources and figures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailback.api.advise import Advice, advise
    from tailback.api.calibrate import calibrate
    from tailback.api.compare import Comparison, compare
    from tailback.api.confirm import confirm
    from tailback.api.counters import CountersResult, counters
    from tailback.api.diagnose import DiagnosisResult, diagnose
    from tailback.api.hang import CompletedResult, HangResult, diagnose_hang
    from tailback.api.pairs import PairsResult, diagnose_pairs
    from tailback.api.place import PlacementResult, place
    from tailback.api.run import Run, read_run
    from tailback.api.simulate import simulate
    from tailback.api.sweep import Sweep, sweep
    from tailback.api.verify import verify
    from tailback.api.watch import watch
    from tailback.calibration.file import Calibration
    from tailback.diagnosis.model import Diagnosis
    from tailback.errors import TailbackError
    from tailback.inference.confirmation import Confirmation
    from tailback.scenario.model import Scenario
    from tailback.sources.source import load_scenario
    from tailback.sources.verification import Verification

    __version__: str

__all__ = [
    "Advice",
    "Calibration",
    "Comparison",
    "CompletedResult",
    "Confirmation",
    "CountersResult",
    "Diagnosis",
    "DiagnosisResult",
    "HangResult",
    "PairsResult",
    "PlacementResult",
    "Run",
    "Scenario",
    "Sweep",
    "TailbackError",
    "Verification",
    "advise",
    "calibrate",
    "compare",
    "confirm",
    "counters",
    "diagnose",
    "diagnose_hang",
    "diagnose_pairs",
    "load_scenario",
    "place",
    "read_run",
    "simulate",
    "sweep",
    "verify",
    "watch",
]

_DEFINED_IN = {
    "Advice": "api.advise",
    "Calibration": "calibration.file",
    "Comparison": "api.compare",
    "CompletedResult": "api.hang",
    "CountersResult": "api.counters",
    "Confirmation": "inference.confirmation",
    "Diagnosis": "diagnosis.model",
    "DiagnosisResult": "api.diagnose",
    "HangResult": "api.hang",
    "PairsResult": "api.pairs",
    "PlacementResult": "api.place",
    "Run": "api.run",
    "Scenario": "scenario.model",
    "Sweep": "api.sweep",
    "TailbackError": "errors",
    "Verification": "sources.verification",
    "advise": "api.advise",
    "calibrate": "api.calibrate",
    "compare": "api.compare",
    "confirm": "api.confirm",
    "counters": "api.counters",
    "diagnose": "api.diagnose",
    "diagnose_hang": "api.hang",
    "diagnose_pairs": "api.pairs",
    "load_scenario": "sources.source",
    "place": "api.place",
    "read_run": "api.run",
    "simulate": "api.simulate",
    "sweep": "api.sweep",
    "verify": "api.verify",
    "watch": "api.watch",
}
"""Module of every public name, imported on first access: all together take seconds."""


def __getattr__(name: str) -> Any:
    """A public name, or ``__version__``."""
    if name == "__version__":
        return import_module("tailback.version").version()
    if name in _DEFINED_IN:
        return getattr(import_module(f"tailback.{_DEFINED_IN[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
