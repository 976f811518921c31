"""Simulating a scenario: ``tb.simulate`` and ``tailback simulate``."""

from __future__ import annotations

from typing import Literal, Unpack

from tailback.api.run import Run
from tailback.errors import ScenarioError, known_keywords
from tailback.io.progress import Progress
from tailback.simulation import FluidOptions, Watch, prepare, simulate_fluid
from tailback.simulation import simulate as run_scenario
from tailback.sources.source import ScenarioOptions, Source, SourceLike


@known_keywords(ScenarioOptions)
def simulate(
    source: SourceLike,
    *,
    model: Literal["packet", "fluid"] = "packet",
    threads: int | None = None,
    partial: bool = False,
    progress: Progress | None = None,
    watch: Watch | None = None,
    **options: Unpack[ScenarioOptions],
) -> Run:
    """Simulate a scenario.

    Args:
        source: As for :func:`load_scenario`: a scenario (object, data or file), a trace with
            ``fabric``, or the folder of a run.
        model: ``packet`` simulates every packet; ``fluid`` computes rates: faster, but an estimate.
        threads: Threads of the engine; default: idle cores. Results do not depend on this.
        partial: On Ctrl-C, return the results so far instead of raising KeyboardInterrupt.
        progress: Called with the current step and its progress, 0–1.
        watch: Called regularly with (simulated time in ps, packets delivered, packets, events).
        options: As for :func:`load_scenario`: ``fabric``, ``hosts``, ``placement``, ``seed`` …

    Raises:
        TailbackError: The scenario, or a file that it names, is invalid.

    Example:
        >>> run = tb.simulate("examples/demo/demo.toml", placement="rcm")
        >>> run.elapsed_ps
        >>> run.tables["links"].sort("bytes", descending=True).head()
    """
    if model not in ("packet", "fluid"):
        raise ScenarioError(f"there is no model {model!r}", remedy="choose packet or fluid")
    job_source = Source.of(source, **options)
    with job_source.named_in_errors():
        prepared = prepare(job_source.scenario, notes=job_source.notes)
        if progress is not None:
            progress("simulating", 0.0)
        if model == "fluid":
            return Run.of(simulate_fluid(prepared, FluidOptions()))
        return Run.of(run_scenario(prepared, watch, threads=threads, partial=partial))
