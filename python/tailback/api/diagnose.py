"""From a trace or scenario to a diagnosis: ``tb.diagnose`` and ``tailback diagnose``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.api.candidates import (
    DEFAULT_METHODS,
    make_candidates,
    require_placements,
)
from tailback.api.effort import (
    AFTER_REMEDIES,
    draws,
    engine_variations,
    is_large,
    note_on_effort,
    other_settings,
    placements_that_fit,
    proves_all,
    repetitions,
    time_simulations,
    worth_screening,
)
from tailback.api.expected_run import EvidenceFiles
from tailback.api.rankfiles import rank_files
from tailback.api.run import Run, table_html
from tailback.api.runs import FolderResult
from tailback.budget import Budget, limited_to, reserved
from tailback.diagnosis import Diagnosis, diagnose_cause, weigh_causes
from tailback.diagnosis.evidence_rows import evidence_table, rows_of_model
from tailback.diagnosis.model import Candidate, Remedy, Status
from tailback.diagnosis.overlap import hidden_fraction, may_overlap
from tailback.diagnosis.run_analysis import RunAnalysis, analyse_once
from tailback.diagnosis.wording import (
    confidence_sentence,
    measured_confidence,
    with_budget,
)
from tailback.errors import PlacementError, ScenarioError, by_option, known_keywords, option
from tailback.evaluate import Change, EngineVariation, Evaluate
from tailback.evidence import MeasuredRun
from tailback.inference.explain_wording import only_placements_tried
from tailback.inference.measured_run import (
    with_instant_network,
)
from tailback.inference.measured_verdict import Advise
from tailback.io.input_files import recording_files
from tailback.io.progress import Progress
from tailback.placement import RankFile
from tailback.placement.variant import PlacementVariant, nodes_by_name
from tailback.remedy import REMEDIES, RemedyContext, diagnose_and_cure, recommend_surely
from tailback.remedy.proposal import RATES_WITHIN_HOSTS
from tailback.remedy.screening import Placements, Screening, screen, screen_by_bound
from tailback.report import Attribution, attribute, export_figures, to_json, to_table, write_report
from tailback.run import run as base
from tailback.simulation import (
    FluidOptions,
    PreparedScenario,
    Watch,
    make_evaluate,
    make_fluid_evaluate,
    other_rules,
    prepare,
)
from tailback.simulation.pacing import pair_rates
from tailback.simulation.parallel.spread import Tasks, spread
from tailback.simulation.prepare import fitting_size
from tailback.sources.captures import is_capture, options_on_ranks, read_captures
from tailback.sources.diagnosis_folder import RATES_FILE
from tailback.sources.recording import notes_on_network, notes_on_recording
from tailback.sources.request import DiagnosisRequest
from tailback.sources.source import ScenarioOptions, Source, SourceLike
from tailback.stages import recorded_stages, stage
from tailback.units import format_time, parse_time_ps

if TYPE_CHECKING:
    from tailback.api.plots import Plots


PROFILE_FILE = "profile.json"
"""Cost of each stage of the diagnosis, if recorded (``--profile``)."""


@dataclass(frozen=True, eq=False)
class DiagnosisResult(FolderResult):
    """A diagnosis with its runs, rank files and attribution.

    ``write`` writes the same as ``tailback diagnose``: report, diagnosis, runs and rank files.

    Attributes of the diagnosis can be read from it directly: ``result.cause``, ``result.headline``,
    ``result.waterfall``.

    Attributes:
        diagnosis: Verdict, findings and remedy.
        run: The run that was diagnosed.
        after: The run with the recommended remedy, None where none is recommended.
        measured: The measured run of a trace with times, None otherwise.
        rank_files: The recommended placement in the launchers' formats.
        attribution: Stall time by line of the program.
        request: What was asked for, by which ``tailback verify`` repeats the diagnosis.
        rates: Content of ``rates.csv``, the recommended rates of pairs of ranks; empty without.
    """

    diagnosis: Diagnosis
    run: Run
    after: Run | None
    measured: MeasuredRun | None
    rank_files: list[RankFile]
    attribution: Attribution
    request: DiagnosisRequest
    rates: str = ""

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.run.scenario.name!r}: {self.cause}. {self.headline}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.diagnosis, name)

    @property
    def plot(self) -> Plots:
        """Figures, including those of verdict and remedy, as in ``result.plot.waterfall()``."""
        # Deferred: matplotlib takes half a second to load.
        from tailback.api.plots import Plots

        return Plots(self.run, self.diagnosis, self.after, self._measured_tables)

    @property
    def _measured_tables(self) -> Mapping[str, pl.DataFrame] | None:
        return None if self.measured is None else self.measured.tables

    def _write_parts(self, folder: Path, figures: Sequence[str]) -> None:
        text = self.diagnosis.model_dump_json(indent=2) + "\n"
        (folder / "diagnosis.json").write_text(text, encoding="utf-8")
        self.request.write(folder)
        (folder / "attribution.json").write_text(to_json(self.attribution), encoding="utf-8")
        to_table(self.attribution).write_parquet(folder / "attribution.parquet")
        evidence_table(self.diagnosis.evidence).write_parquet(folder / "evidence.parquet")
        for file in self.rank_files:
            (folder / file.file).write_text(file.text, encoding="utf-8")
        if self.rates:
            (folder / RATES_FILE).write_text(self.rates, encoding="utf-8")
        with stage("run folders"):
            self.run.write(folder / "run")
            if self.after is not None:
                self.after.write(folder / "after")
        contents = {file.file: file.text for file in self.rank_files}
        contents |= {RATES_FILE: self.rates} if self.rates else {}
        write_report(
            folder / "report.html",
            self.run,
            self.diagnosis,
            after=self.after,
            files=contents,
            attribution=self.attribution,
            measured=self._measured_tables,
        )
        if figures:
            export_figures(
                self.run,
                self.diagnosis,
                folder / "figures",
                figures,
                after=self.after,
                measured=self._measured_tables,
            )
        if self.measured is not None:
            self.measured.write(folder / "measured")
        stages = recorded_stages()
        if stages is not None:
            text = json.dumps({"stages": stages.rows()}, indent=2) + "\n"
            (folder / PROFILE_FILE).write_text(text, encoding="utf-8")

    @property
    def _confidence(self) -> str:
        diagnosis = self.diagnosis
        if diagnosis.explanation is not None or diagnosis.cause == "undetermined":
            return measured_confidence(diagnosis.confidence)
        return confidence_sentence(diagnosis.confidence, diagnosis.basis, diagnosis.agreement)

    def _repr_html_(self) -> str:
        diagnosis = self.diagnosis
        forecast = diagnosis.forecast
        rows = {} if forecast is None else {"forecast": str(forecast)}
        rows |= {
            "verdict": diagnosis.headline,
            "confidence": self._confidence,
            diagnosis.times: format_time(diagnosis.elapsed_ps),
        }
        if diagnosis.remedy is not None:
            remedy = diagnosis.remedy
            rows["remedy"] = remedy.name or remedy.actions[0]
            rows["with the remedy"] = f"{remedy.gain_range} less time"
        if self.run.skip_notes:
            rows["note"] = "; ".join(self.run.skip_notes)
        return table_html(f"Diagnosis of {self.run.scenario.name}: {diagnosis.cause}", rows)


@known_keywords(ScenarioOptions)
def diagnose(
    source: SourceLike | list[str | Path],
    *,
    contexts: str | Path | None = None,
    counters: Sequence[str | Path] = (),
    jobs: str | Path | None = None,
    samples: str | Path | None = None,
    allow_hosts: str | None = None,
    forecast: bool = False,
    methods: Sequence[str] = (),
    remedies: Sequence[str] = (),
    seeds: int | None = None,
    budget: str | Budget | None = None,
    threads: int | None = None,
    workers: int | None = None,
    dask: Any = None,
    tasks: Tasks | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    **options: Unpack[ScenarioOptions],
) -> DiagnosisResult:
    """Find out where traffic backs up, why, and what to do about it.

    Args:
        source: As for :func:`load_scenario`: a trace with ``fabric``, a scenario (object, data or
            file), the folder of a run or diagnosis, or that of ``tailback lab run``; or a packet
            capture, or several in a list, with ``fabric`` (docs/how-to/captures.md).
        contexts: For captures: folder with the addresses of nodes and the calls that packets belong
            to.
        counters: Port counters recorded during the traced run, as :func:`counters` takes them.
        jobs: List of the jobs that ran at that time (docs/how-to/diagnose.md); default: that of the
            recording.
        samples: Samples that receivers counted, by flow or cumulative (CSV).
        allow_hosts: Hosts that other placements may use; ``all``: every compute host.
        forecast: Forecast the run and do not compare it with recorded times. Recordings whose ranks
            shared cores, and those with ``compute_scale``, are forecast in any case.
        methods: Placements to try; default: all that apply.
        remedies: Kinds of remedy to try (``tailback list remedy``); default: all.
        seeds: Repetitions of every re-simulation, at least 1; default: 3, or 1 if a simulation is
            large (:data:`tailback.api.effort.MANY_EVENTS`).
        budget: Wall-clock time for the diagnosis, such as ``"60 s"``. What does not fit is left out
            (``result.budget``); the verdict is then less certain.
        threads: Threads of the engine, and of simulations that do not depend on one another;
            default: idle cores. Results do not depend on this.
        workers: Number of processes that simulate besides this one. Results do not depend on this.
        dask: A ``distributed.Client`` or the address of a scheduler, whose workers simulate, too.
        tasks: New folder of the tasks of workers, which they see under the same path
            (docs/how-to/parallel.md); default: a temporary one.
        progress: Called with the current step and its progress, 0–1.
        watch: Called regularly with (simulated time in ps, packets delivered, packets, events).
        options: As for :func:`load_scenario`: ``fabric``, ``hosts``, ``placement``, ``seed`` …

    Raises:
        TailbackError: The source, or a file that it names, is invalid.

    Example:
        >>> result = tb.diagnose("app_trace/", fabric="fabric.txt")
        >>> result.cause, result.headline
        >>> result.plot.waterfall()
        >>> result.write("diagnosis")  # report.html, rank files, tables
    """
    require_placements(option("methods"), methods)
    for kind in remedies:
        REMEDIES[kind]
    limit = _begun(budget)
    step = progress or _no_progress
    named = _files(source)
    evidence = {"counters": counters, "jobs": jobs, "samples": samples}
    search = {"methods": methods, "allow_hosts": allow_hosts, "remedies": remedies}
    if any(is_capture(file) for file in named):
        options_given = by_option(**evidence, **search, budget=budget) | options_on_ranks(options)
        ignored = [name for name, value in options_given.items() if value]
        return _of_captures(named, options, contexts, ignored, step)
    origin = Source.of(_source_without_captures(source, named, contexts), **options)
    changed = allow_hosts is not None
    with limited_to(limit), origin.named_in_errors(changed=changed), recording_files() as files:
        expected = EvidenceFiles(counters, jobs, samples, origin.case).expected_run(
            prepare(origin.scenario, allow_hosts, origin.notes), step, watch, threads, forecast
        )
        before = [*notes_on_recording(origin.scenario), *notes_on_network(origin.scenario)]
    asked = {**evidence, **search, "forecast": forecast, "seeds": seeds}
    asked["budget"] = None if limit is None else f"{limit.seconds:g} s"
    request = DiagnosisRequest.of(origin, files, asked)
    prepared, run, runs = expected.prepared, expected.run, expected.runs
    # The diagnosis and the stalls by call site use the same congestion trees.
    analyse = analyse_once(expected.network)
    with limited_to(limit), spread(workers, dask, tasks, threads) as spreading:
        evaluate = make_evaluate(prepared, watch, threads=threads, simulated=runs, tasks=spreading)
        time_simulations(evaluate)
        repeated = repetitions(seeds, run)
        workflow = _Workflow(
            prepared,
            run,
            evaluate,
            tuple(methods),
            tuple(remedies),
            repeated,
            step,
            analyse,
            expected.summary is None,
        )
        measured = expected.measured and with_instant_network(expected.measured, evaluate)
        diagnosis, after, written, rates = workflow.diagnose(
            lambda modelled, placements, advise: expected.explained(
                modelled, measured, evaluate, placements, repeated, advise
            )
        )
    diagnosis = expected.with_notes(diagnosis, before, note_on_effort(seeds, run))
    diagnosis = with_budget(diagnosis, limit)
    step("charging the stall time", 1.0)
    return DiagnosisResult(
        diagnosis,
        Run.of(run),
        None if after is None else Run.of(after),
        measured,
        written,
        attribute(run, analyse),
        request,
        rates,
    )


def _begun(budget: str | Budget | None) -> Budget | None:
    """The time budget, as the program is loaded and begins to read."""
    limit = Budget(parse_time_ps(budget) / 1e12) if isinstance(budget, str) else budget
    if limit is not None:
        limit.begin_input()
    return limit


def _of_captures(
    files: list[Path],
    options: ScenarioOptions,
    contexts: str | Path | None,
    ignored: list[str],
    step: Progress,
) -> DiagnosisResult:
    """The diagnosis of packet captures, which knows no other options than those of the network."""
    step("reading captures", 0.0)
    fabric, forwarding = options.get("fabric"), options.get("forwarding")
    with recording_files() as read:
        run = read_captures(files, fabric, forwarding, contexts, ignored)
    request = DiagnosisRequest.of(files, read, {**options, "contexts": contexts})
    step("charging congested packets", 1.0)
    analyse = analyse_once()
    diagnosis = diagnose_cause(run, analyse=analyse)
    diagnosis = diagnosis.model_copy(update={"evidence": rows_of_model(diagnosis)})
    return DiagnosisResult(diagnosis, Run.of(run), None, None, [], attribute(run, analyse), request)


def _source_without_captures(
    source: SourceLike | list[str | Path], named: list[Path], contexts: str | Path | None
) -> SourceLike:
    """The source of a diagnosis without captures; ScenarioError for options of captures."""
    if contexts is not None or isinstance(source, list):
        raise ScenarioError(
            f"{option('contexts')} applies to packet captures only"
            if contexts is not None
            else f"{len(named)} sources, none of them a packet capture",
            file=named[0] if named else None,
            remedy="give pcap, pcapng or ERF files, or one trace, scenario or run",
        )
    return source


def _files(source: SourceLike | list[str | Path]) -> list[Path]:
    """The files that a source names; they may be captures."""
    named = source if isinstance(source, list) else [source]
    return [Path(file) for file in named if isinstance(file, (str, Path))]


def _no_progress(_what: str, _share: float) -> None:
    """Report no progress."""


@dataclass(frozen=True, eq=False)
class _Workflow:
    """The steps from a run to its diagnosis with a proved remedy."""

    prepared: PreparedScenario
    run: base.Run
    evaluate: Evaluate
    methods: tuple[str, ...]
    remedies: tuple[str, ...]
    seeds: int
    progress: Progress
    analyse: Callable[[base.Run], RunAnalysis]
    is_forecast: bool

    def diagnose(
        self, explained: Callable[[Diagnosis, Placements, Advise], Diagnosis]
    ) -> tuple[Diagnosis, base.Run | None, list[RankFile], str]:
        """Diagnose the run, try remedies, and simulate the recommended one with telemetry.

        The files of the remedy are rank files and the content of a file of rates.

        Without requested placements, all that apply are computed; the fluid model rules out those
        that are too slow, and the packet engine proves the others.

        Args:
            explained: Turns the diagnosis of the model into that of the measured run.
        """
        prepared, run, methods, seeds = self.prepared, self.run, self.methods, self.seeds
        evaluate = self.evaluate
        placed, errors = make_candidates(prepared, self._placements, run, self.progress)
        made = nodes_by_name(placed)
        variants = {variant.name: variant for variant in placed}
        options = FluidOptions(windows=0, quantum_ps=max(100_000, run.elapsed_ps // 2000))
        estimate = make_fluid_evaluate(prepared, options) if worth_screening(run) else None
        screened = self._screened(made, estimate)
        made = screened.kept
        engines = engine_variations(run, seeds) if self.is_forecast else ()
        rules = other_rules(prepared.scenario)
        causes = weigh_causes(
            run,
            evaluate,
            placements=made,
            rules=rules,
            seeds=seeds,
            progress=self.progress,
            analyse=self.analyse,
            engines=engines,
            program=prepared.observed.program if self.is_forecast else None,
        )
        context = self._search_inputs(estimate, screened, placed, rules, engines)
        with reserved(AFTER_REMEDIES):
            diagnosis, search = diagnose_and_cure(
                causes,
                context,
                is_forecast=self.is_forecast,
                seeds=seeds,
                progress=self.progress,
            )
        if self.is_forecast:
            diagnosis = diagnosis.model_copy(update={"hidden_fraction": self._hidden()})
        with reserved(1):
            diagnosis = explained(
                diagnosis,
                made,
                lambda measured, saves, without: recommend_surely(
                    run, measured, search, context, without, saves=saves
                ),
            )
        assumptions = diagnosis.assumptions
        warnings = [*_impossible_requests(prepared, errors if methods else []), *diagnosis.warnings]
        if methods and diagnosis.cause == "healthy":
            warnings.insert(0, only_placements_tried(methods))
        remedy, after, files, rates = diagnosis.remedy, None, list[RankFile](), ""
        if remedy is not None:
            left_out = [
                candidate.model_copy(update={"variant": variants[candidate.name]})
                for candidate in screened.left_out
                if candidate.name not in {proved.name for proved in remedy.candidates}
            ]
            left_out += [
                Candidate(
                    name=variant.name, variant=variant, status=Status.FAILED, reason=error.message
                )
                for variant, error in errors
            ]
            remedy = remedy.model_copy(update={"candidates": [*remedy.candidates, *left_out]})
            change = search.change(remedy)
            if change is not None:
                after = evaluate(replace(change, measure=True))
                after.summary["remedy"] = remedy.name
                files, unwritten = self._rank_files(nodes_by_name(placed).get(remedy.placement))
                warnings = [*warnings, *unwritten]
                # If there is none, the short screen says why.
                assumptions = assumptions if files else [*unwritten, *assumptions]
                rates = "" if change.rates is None else pair_rates(prepared, change)
                options_of = {c.name: c.openmpi_options for c in remedy.candidates}
                further = options_of.get(remedy.name, "")
                files = [file.with_openmpi_options(further) for file in files]
                remedy = _with_files(remedy, files, rates)
        warnings = list(dict.fromkeys(warnings))
        update = {"remedy": remedy, "warnings": warnings, "assumptions": assumptions}
        return diagnosis.model_copy(update=update), after, files, rates

    @property
    def _placements(self) -> Sequence[str]:
        """Placements to compute: those asked for, else all, if any can be simulated in time."""
        if self.methods:
            return self.methods
        return DEFAULT_METHODS if placements_that_fit(1) else ()

    def _screened(
        self, made: dict[str, NDArray[np.uint32]], estimate: Evaluate | None
    ) -> Screening:
        """Placements worth proving: all that were asked for, else those not clearly slower.

        Of these, the fastest by their estimates whose simulations fit the time budget.

        ``estimate``: the fluid model; None where packets without contention are quicker.
        """
        if self.methods:
            return Screening(made)
        now = {self.prepared.observed.placement_name}
        kept = frozenset(made if proves_all(self.run) else now)
        if estimate is None:
            screened = screen_by_bound(made, self.evaluate, always=kept, progress=self.progress)
        else:
            screened = screen(made, estimate, always=kept, progress=self.progress)
        others = screened.kept.keys() - now
        return screened.with_fastest(placements_that_fit(len(others)), always=now)

    def _search_inputs(
        self,
        estimate: Evaluate | None,
        screened: Screening,
        placed: Mapping[PlacementVariant, NDArray[np.uint32]],
        rules: Sequence[str],
        engines: Sequence[EngineVariation],
    ) -> RemedyContext:
        """Inputs of the search for remedies, with placements and those that screening keeps."""
        run, evaluate, large = self.run, self.evaluate, is_large(self.run)
        unshared = Change(network="no-contention", background=False)
        made = nodes_by_name(placed)
        return RemedyContext(
            evaluate,
            estimate,
            screened.kept,
            screened.estimate_ps,
            self.prepared.observed.program,
            rules,
            frozenset(self.remedies) or None,
            {variant.name: variant for variant in placed},
            engines or RATES_WITHIN_HOSTS,
            evaluate(unshared).elapsed_ps if large else 0,
            {name: node for name, node in made.items() if name not in screened.kept},
            self._coarse(),
            draws(self.seeds, run),
            {} if large else other_settings(run, self.prepared.observed.program),
        )

    def _coarse(self) -> Evaluate | None:
        """Simulates changes with coarse packets; None if messages have too few packets."""
        engine = self.prepared.scenario.engine
        size = fitting_size(self.prepared.observed.program, engine.packet)
        if size is None or engine.coarse is not None:
            return None
        return make_evaluate(self.prepared.with_coarse_packets(size))

    def _hidden(self) -> float | None:
        """Share of rank time in which computation hides communication; None if it cannot."""
        job = self.prepared.observed
        if len(self.prepared.scenario.job) > 1 or not may_overlap(job.program):
            return None
        return hidden_fraction(self.evaluate(Change(computations=True)), job.program, job.times)

    def _rank_files(self, node: NDArray[np.uint32] | None) -> tuple[list[RankFile], list[str]]:
        """Rank files of a placement, and notes on missing ones."""
        if node is None:
            return [], []
        try:
            files, unwritten = rank_files(self.prepared, node)
        except PlacementError as error:
            return [], [f"no rank file: {error.message}"]
        return files, [f"no rank file for {name}: {why}" for name, why in unwritten.items()]


def _with_files(remedy: Remedy, files: list[RankFile], rates: str) -> Remedy:
    """The remedy with its rank files, the commands that use them, and its file of rates."""
    placed = remedy.placement in remedy.parts
    meanwhile = "" if placed else "meanwhile, "
    named = {file.file: f"{meanwhile}for {file.writer}" for file in files}
    return remedy.model_copy(
        update={
            "files": named | ({RATES_FILE: "rates of pairs of ranks"} if rates else {}),
            "commands": [file.command for file in files],
        }
    )


def _impossible_requests(
    prepared: PreparedScenario, failed: list[tuple[PlacementVariant, PlacementError]]
) -> list[str]:
    """Requests that cannot be met: placements, and remedies for several jobs."""
    requests = [f"{option('methods', variant.name)}: {error.message}" for variant, error in failed]
    job_name = prepared.observed.section.name
    several = sum(job.section.observed for job in prepared.jobs)
    if several > 1:
        requests.append(
            f"{several} jobs are observed and timed together, but remedies change only the first, "
            f"{job_name!r}: list the job to change first, or set observed = false for the others."
        )
    return requests
