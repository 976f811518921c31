"""The run that a diagnosis expects: the scenario, simulated with what the evidence shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tailback.api.effort import (
    AFTER_SEARCH,
)
from tailback.budget import end_input, reserved
from tailback.diagnosis import Diagnosis
from tailback.diagnosis.evidence_rows import rows_of_model
from tailback.diagnosis.run_analysis import SimulatedNetwork
from tailback.diagnosis.wording import (
    recorded_warnings,
    without_single_times,
)
from tailback.errors import ScenarioError, by_option
from tailback.evaluate import Change, Evaluate
from tailback.evidence import MeasuredRun
from tailback.inference.counted_paths import on_likely_paths
from tailback.inference.evidence import NetworkEvidence, with_samples
from tailback.inference.evidence_summary import EvidenceSummary
from tailback.inference.explain import add_evidence
from tailback.inference.explain_wording import engine_settings
from tailback.inference.further_costs import further_costs
from tailback.inference.machine_models import (
    hashes_at_random,
    with_acknowledged_sends,
    with_copied_sends,
    with_even_flows,
)
from tailback.inference.measured_run import (
    TraceCalibration,
    as_forecast,
    calibrated_by_trace,
    measured_run,
    network_evidence,
    sends_whole_messages,
    why_forecast,
    with_instant_network,
    with_measured,
    with_round_robin_adapters,
)
from tailback.inference.measured_verdict import Advise, explain
from tailback.inference.network_clues import is_lossy
from tailback.io.progress import Progress
from tailback.remedy.screening import Placements
from tailback.run import run as base
from tailback.simulation import (
    PreparedScenario,
    Watch,
    execute,
)
from tailback.simulation import simulate as run_scenario
from tailback.simulation.decode import decode_samples
from tailback.simulation.evaluate import has_no_probes, make_simulation
from tailback.simulation.prepare import in_fitting_packets
from tailback.sources.lab_case import LabCase
from tailback.stages import stage


@dataclass(frozen=True)
class ExpectedRun:
    """The expected run, including what the evidence shows.

    Attributes:
        prepared: Its scenario.
        run: The run.
        measured: The recorded run; None for a forecast.
        unknown: What a forecast does not know or use.
        evidence: Counters and job list.
        summary: What they show; None without a measured run to compare with.
        runs: The run, and runs of changes of the scenario that the search for causes simulated.
    """

    prepared: PreparedScenario
    run: base.Run
    measured: MeasuredRun | None
    unknown: Sequence[str]
    evidence: NetworkEvidence
    summary: EvidenceSummary | None
    runs: Sequence[tuple[Change, base.Run]]

    @property
    def network(self) -> SimulatedNetwork:
        """Slow links and other jobs of the expected run: stated, or put in by the evidence."""
        return SimulatedNetwork.of(self.prepared.fabric, self.run)

    def with_notes(
        self, diagnosis: Diagnosis, before: Sequence[str], after: Sequence[str]
    ) -> Diagnosis:
        """The diagnosis with what a forecast does not know, and other notes around its own."""
        rates = diagnosis.explanation.bus_bandwidths if diagnosis.explanation else []
        wrong = next(filter(None, (rate.contradicts_fabric for rate in rates)), "")
        unknown = [*([wrong] if wrong else []), *self.unknown]
        warnings = [*before, *unknown, *diagnosis.warnings, *after]
        assumptions = [*unknown, *diagnosis.assumptions]
        programs = [job.program for job in self.prepared.jobs]
        unused = [note for program in programs for note in program.not_used]
        unused += [note for note in self.evidence.unused if note not in unused]
        update = {
            "warnings": list(dict.fromkeys([*warnings, *unused])),
            "assumptions": assumptions,
            "not_used": unused,
        }
        return diagnosis.model_copy(update=update)

    def explained(
        self,
        diagnosis: Diagnosis,
        measured: MeasuredRun | None,
        evaluate: Evaluate,
        placements: Placements,
        seeds: int,
        advise: Advise,
    ) -> Diagnosis:
        """The diagnosis of the measured time in place of the expected one."""
        if measured is None:
            return diagnosis.model_copy(update={"evidence": rows_of_model(diagnosis)})
        diagnosis = with_measured(diagnosis, measured.measured)
        if self.summary is None:
            return diagnosis
        times = measured.measured
        lossy_ps = times.elapsed_ps - times.outside_model_ps if self.summary.lossy else 0
        cost = further_costs(
            self.prepared, self.evidence, self.run, evaluate, placements, seeds, lossy_ps
        )
        explanation = replace(self.summary, extrapolated_ps=self.run.extrapolated_ps)
        explained = explain(diagnosis, measured.measured, explanation, cost, advise)
        # The variations of the model say nothing about a verdict on the measured run.
        lacks = without_single_times(self.run)
        update = {
            "agreement": None,
            "alternatives": [],
            "warnings": [*lacks, *explained.warnings],
            "assumptions": [*lacks, *explained.assumptions],
        }
        explained = explained.model_copy(update=update)
        if explained.cause == diagnosis.cause:
            return explained
        # Warnings about the model's own verdict do not apply to this one.
        kept = [*lacks, *recorded_warnings(self.run), *self.run.notes]
        return explained.model_copy(update={"warnings": kept})


@dataclass(frozen=True)
class EvidenceFiles:
    """Evidence files of a traced run, as the user gives them, and a folder of the lab."""

    counters: Sequence[str | Path]
    jobs: str | Path | None
    samples: str | Path | None
    case: LabCase | None = None

    @property
    def any(self) -> bool:
        """Whether there is any."""
        return bool(self.counters) or self.jobs is not None or self.samples is not None

    def with_case(self) -> EvidenceFiles:
        """What the user gives, else what is in the folder of the lab."""
        if self.case is None:
            return self
        return EvidenceFiles(
            self.counters or self.case.counters, self.jobs, self.samples or self.case.samples
        )

    def expected_run(
        self,
        prepared: PreparedScenario,
        step: Progress,
        watch: Watch | None,
        threads: int | None,
        forecast: bool,
    ) -> ExpectedRun:
        """Simulate a scenario together with what the evidence shows."""
        step("reading the times of the trace", 0.0)
        files = self.with_case()
        why = why_forecast(prepared, asked=forecast, evidence=files.any)
        measured, unknown = None, list[str]()
        machine = TraceCalibration(prepared)
        if why:
            prepared, unknown = as_forecast(prepared)
        else:
            measured = measured_run(prepared)
        self._refuse_without_times(measured, why)
        if measured is not None:
            machine = calibrated_by_trace(prepared, measured)
            prepared = in_fitting_packets(machine.prepared)
        hashed = measured is not None and hashes_at_random(prepared)
        prepared = with_even_flows(prepared) if hashed else prepared
        if measured is not None:
            lossy = is_lossy(NetworkEvidence(), prepared.fabric)
            prepared = (with_copied_sends if lossy else with_acknowledged_sends)(prepared)
        fifo = prepared
        if measured is None:
            end_input()
        elif not sends_whole_messages(prepared):
            prepared = with_round_robin_adapters(prepared)
        step("simulating the scenario", 0.0)
        run = execute(prepared, watch=watch, threads=threads, record_computation=True)
        evidence, explanation, others = NetworkEvidence(), None, list[tuple[Change, base.Run]]()
        if measured is not None:
            step("aligning counters with the trace", 0.0)
            evidence = network_evidence(prepared, measured, run, files.counters, files.jobs)
            evidence = with_samples(evidence, files.samples, prepared)
            end_input()
            lossy = is_lossy(evidence, prepared.fabric)
            if lossy:
                evaluate = make_simulation(prepared, threads=threads)
                measured = with_instant_network(measured, evaluate)
            on_paths = on_likely_paths(prepared, run, measured, evidence, threads, hashed=hashed)
            if on_paths is not None:
                alone = fifo is prepared
                prepared, fifo = on_paths(prepared), on_paths(fifo)
                fifo = prepared if alone else fifo
                run = execute(prepared, watch=watch, threads=threads, record_computation=True)
                counted = bool(prepared.scenario.engine.flow_seeds)
                times = measured.measured.model_copy(update={"counted_paths": counted})
                measured = replace(measured, measured=times)
            with stage("causes in the evidence"), reserved(AFTER_SEARCH):
                explained = add_evidence(
                    prepared,
                    measured,
                    run,
                    evidence,
                    step,
                    fifo=None if fifo is prepared else fifo,
                    threads=threads,
                    settings=engine_settings(
                        machine.fitted, stated=machine.stated, lacks=machine.lacks
                    ),
                    flows_are_hashed=hashed,
                )
            explanation = explained.summary
            if explained.prepared is not prepared:
                prepared, run = explained.prepared, explained.run
                if not has_no_probes(prepared.scenario):
                    run = run_scenario(prepared, watch, threads=threads)
            others = [*explained.others]
        run = decode_samples(replace(run, computations=None), prepared.fabric)
        simulated = [*others, (Change(measure=True), run)]
        return ExpectedRun(prepared, run, measured, unknown, evidence, explanation, simulated)

    def _refuse_without_times(self, measured: MeasuredRun | None, why: str) -> None:
        """Raise ScenarioError for evidence without a measured run."""
        options = by_option(
            counters=bool(self.counters),
            jobs=self.jobs is not None,
            samples=self.samples is not None,
        )
        option_given = next((option for option, there in options.items() if there), "")
        if option_given and measured is None:
            raise ScenarioError(
                f"needs a measured run, but {why or 'the source has no recorded times'}",
                place=option_given,
                remedy="give an unchanged trace with times (OTF2, DUMPI, Nsight Systems), recorded "
                "with one core per rank, or leave it out",
            )
