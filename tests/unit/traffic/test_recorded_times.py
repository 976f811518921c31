"""What a recording tells of its own times, and how far it is believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailback.cli.render import diagnosis_lines
from tailback.diagnosis import diagnose_cause
from tailback.diagnosis.model import Agreement
from tailback.diagnosis.wording import VARIED, bar_name, confidence_sentence, run_label
from tailback.inference.measured_run import as_forecast, why_forecast
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.traffic.program import Op
from tailback.traffic.readers import read_trace
from tailback.traffic.readers.otf2.reader import read
from tailback.traffic.transform import repeat
from tests.factories.diagnosis_runs import quiet_run
from tests.factories.dumpi_of_otf2 import dumpi_scripts, with_init_and_finalize
from tests.factories.dumpi_traces import write
from tests.factories.evidence_traces import collective
from tests.factories.nsight_exports import write_export
from tests.factories.nsight_of_otf2 import nsight_calls
from tests.factories.otf2_traces import EZTRACE16, EZTRACE64, SCOREP64, Build, writing
from tests.factories.public_data import real
from tests.factories.repository import ROOT

DEMO = ROOT / "examples" / "demo" / "trace"
US = 1_000
RANKS = 8


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return writing(tmp_path)


def barriers(stay_us: list[float]) -> list[list[tuple[Any, ...]]]:
    """Five barriers; in each, rank r stays for ``stay_us[r]``, after 10 µs of work."""
    scripts = []
    for stay in stay_us:
        script: list[tuple[Any, ...]] = []
        time = 1_000 * US
        for _ in range(5):
            enter = time + round(10 * US)
            leave = enter + round(stay * US)
            script += [(enter, "enter", "MPI_Barrier"), (leave, "leave", "MPI_Barrier")]
            time = leave
        scripts.append(script)
    return scripts


def test_long_barriers_everywhere_mean_too_few_cores(build: Build) -> None:
    recording = read(build(barriers([400.0 + 50 * r for r in range(RANKS)]))).recording
    assert recording is not None and recording.oversubscribed_ps == 400 * 10**6
    assert recording.calls_ps == round(5 * (400 + 50 * 3.5) * 10**6)


@pytest.mark.parametrize(
    "stays_us", [[400.0] * RANKS, [5000.0] * (RANKS - 1) + [8.0], [400.0] * (RANKS - 1)]
)
def test_every_timing_tool_tells_too_few_cores(tmp_path: Path, stays_us: list[float]) -> None:
    scripts = []
    for stay in stays_us:
        times = [(at, at + round(stay * US)) for at in range(1_000 * US, 40_000 * US, 8_000 * US)]
        scripts.append([event for time in times for event in collective(*time)])
    recording = read(
        writing(tmp_path)([with_init_and_finalize(script) for script in scripts])
    ).recording
    for form in ("dumpi", "nsight"):
        (tmp_path / form).mkdir()
    write(tmp_path / "dumpi", *dumpi_scripts(scripts))
    for rank, script in enumerate(scripts):
        write_export(tmp_path / "nsight" / f"{rank}.sqlite", {rank: nsight_calls(script)})
    assert recording is not None and (recording.oversubscribed_ps > 0) == (
        stays_us == [400.0] * RANKS
    )
    for form in ("dumpi", "nsight"):
        again = read_trace(tmp_path / form).recording
        assert again is not None and again.oversubscribed_ps == recording.oversubscribed_ps, form
        assert again.calls_ps == recording.calls_ps, form


def test_waiting_for_late_ranks_means_no_shortage(build: Build) -> None:
    """Imbalance: seven wait for 5 ms, and the last to enter is through at once."""
    recording = read(build(barriers([5000.0] * (RANKS - 1) + [8.0]))).recording
    assert recording is not None and recording.oversubscribed_ps == 0


@pytest.mark.parametrize(
    ("interfaces", "rate_mbit", "stay_us", "crowded"),
    [
        (False, 100_000, 400.0, True),
        (True, 10_000, 400.0, True),
        (True, 10_000, 250.0, False),
        (True, 40, 400.0, False),
        (True, 40, 5000.0, True),
    ],
)
def test_a_slow_network_explains_long_barriers(
    build: Build, tmp_path: Path, interfaces: bool, rate_mbit: int, stay_us: float, crowded: bool
) -> None:
    header = "src,dst,iface,rate_mbit" if interfaces else "src,dst,rate_mbit"
    rows = [
        ",".join([*ends, *([name] if interfaces else []), str(rate_mbit)])
        for r in range(RANKS)
        for ends, name in (((f"h{r}", "s0"), "e0"), (("s0", f"h{r}"), f"p{r}"))
    ]
    links = tmp_path / "links.csv"
    links.write_text("\n".join([header, *rows]) + "\n")
    job = {"trace": str(build(barriers([stay_us] * RANKS))), "hosts": f"h[0-{RANKS - 1}]"}
    prepared = prepare(parse({"fabric": {"file": str(links)}, "job": [job]}))
    recording = prepared.observed.program.recording
    assert recording is not None and (recording.oversubscribed_ps > 0) == crowded


@pytest.mark.parametrize(
    ("hosts", "cores", "evidence", "why", "scale"),
    [
        ("", "", False, "its ranks waited for a processor", 0.0),
        ("", "", True, "", 0.0),
        ("", "0-7", False, "", 1.0),
        ("", "0", True, "8 ranks share 1 core on a", 0.0),
        ("n", "", False, "", 0.0),
        ("n", "0", False, "8 ranks share 1 core on a", 0.0),
        ("laptop", "", False, "its ranks waited for a processor", 0.0),
    ],
)
def test_long_collectives_on_this_fabric_are_explained(
    build: Build, hosts: str, cores: str, evidence: bool, why: str, scale: float
) -> None:
    names = [f"{hosts}{rank}" if hosts == "n" else hosts for rank in range(RANKS)]
    trace = build(barriers([400.0] * RANKS), hosts=names if hosts else None)
    if cores:
        rows = [f'{rank},a,"{cores}"' for rank in range(RANKS)]
        (trace / "rank_host.csv").write_text("\n".join(["rank,host,cores", *rows]))
    tree = {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 1}
    prepared = prepare(parse({"fabric": {"fat_tree": tree}, "job": [{"trace": str(trace)}]}))
    assert why_forecast(prepared, asked=False, evidence=evidence) == why
    # Whoever asks for a forecast gets one without the computation that nothing tells.
    assert why_forecast(prepared, asked=True, evidence=evidence)
    forecast, notes = as_forecast(prepared)
    assert forecast.scenario.job[0].compute_scale == scale
    assert forecast.observed.section.compute_scale == scale
    computation = forecast.program.amount[forecast.program.kind == Op.COMPUTE]
    assert bool(computation.sum()) == bool(scale) == (not notes)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "crowded"), [(EZTRACE64, True), (EZTRACE16, True), (SCOREP64, False)]
)
def test_real_recordings(name: str, crowded: bool) -> None:
    """EZTrace ran all ranks on one machine; the Score-P trace is of a cluster."""
    recording = read(real(name)).recording
    assert recording is not None and (recording.oversubscribed_ps > 0) == crowded


def test_the_recorded_time_is_that_of_all_repetitions() -> None:
    program = read(DEMO)
    once, twice = program.recording, repeat(program, 2).recording
    assert once is not None and twice is not None
    assert once.oversubscribed_ps == twice.oversubscribed_ps > 0
    assert (twice.calls_ps, twice.between_ps) == (2 * once.calls_ps, 2 * once.between_ps)


VARIATIONS = f"variations of the model ({VARIED})"
SURE = "As costs vary, its probability is 83 %."


def recorded(run: Run, times: float, oversubscribed_ps: int = 0) -> Run:
    """The run with a recording that took so many times as long."""
    calls = round(times * run.elapsed_ps)
    recorded_times = {"calls_ps": calls, "between_ps": 0, "oversubscribed_ps": oversubscribed_ps}
    return replace(run, summary={**run.summary, "recording": recorded_times})


def test_a_simulation_does_not_clear_a_slow_network() -> None:
    plain = diagnose_cause(quiet_run())
    assert plain.cause == "not-network" and plain.confidence > 0.8
    assert diagnose_cause(recorded(quiet_run(), 1.5)).cause == "not-network"
    for run in (recorded(quiet_run(), 5.0), recorded(quiet_run(), 1.0, 400 * 10**6)):
        diagnosis = diagnose_cause(run)
        assert diagnosis.cause == "undetermined" and diagnosis.confidence == 0.0
        assert "does not rule out the network" in diagnosis.headline
    assert (
        "5.0 times what the model expects" in diagnose_cause(recorded(quiet_run(), 5.0)).warnings[0]
    )
    crowded = diagnose_cause(recorded(quiet_run(), 1.0, 400 * 10**6)).warnings[0]
    assert "too few cores" in crowded and "one core per rank" in crowded and len(crowded) <= 220


def test_the_model_casts_no_doubt_on_measurements() -> None:
    run = recorded(quiet_run(), 5.0)
    measured = replace(run, summary={**run.summary, "times": "measured"})
    diagnosis = diagnose_cause(measured)
    assert diagnosis.cause == "not-network" and diagnosis.times == "measured"
    assert VARIED not in "\n".join(diagnosis_lines(diagnosis, Path("x")))


def test_the_screen_says_expected_and_unmeasured() -> None:
    pattern = {"kind": "permutation", "ranks": 24, "size": "256 KiB", "messages": 2}
    tree = {"hosts_per_leaf": 4, "leaves": 6, "aggregation": 2}
    prepared = prepare(parse({"fabric": {"fat_tree": tree}, "job": [{"pattern": pattern}]}))
    run = simulate(prepared)
    diagnosis = diagnose_cause(run, make_evaluate(prepared), seeds=1)
    text = " ".join("\n".join(diagnosis_lines(diagnosis, Path("x"), verbose=True)).split())
    assert "nothing was measured" in text
    assert "The verdict is the same in all 5 variations of the model" in text
    assert " expected " in text and "observed" not in text
    assert diagnosis.times == "expected" and diagnosis.headline.endswith("expected).")
    assert bar_name(diagnosis.waterfall[-1], diagnosis.times) == "expected"


def test_a_trace_says_which_times_were_unused() -> None:
    run = recorded(quiet_run(), 1.0)
    assert "was not used" in diagnose_cause(run).times_from
    jobs = [run.scenario.job[0].model_copy(update={"compute_scale": 0.0})]
    without = replace(run, scenario=run.scenario.model_copy(update={"job": jobs}))
    assert "left out (compute_scale = 0)" in diagnose_cause(without).times_from


def test_measured_times_are_called_so_everywhere() -> None:
    assert run_label("measured") == "As measured" and run_label("expected") == "As simulated"


@pytest.mark.parametrize(
    ("agreement", "sentence"),
    [
        (None, "Probability of this cause, based on samples: 83 %."),
        (Agreement(holds=7, of=7), f"The verdict is the same in all 7 {VARIATIONS}. {SURE}"),
        (
            Agreement(holds=6, of=7, otherwise="routing"),
            f"The verdict is the same in 6 of 7 {VARIATIONS}; in the other it is routing. {SURE}",
        ),
        (
            Agreement(holds=3, of=7, otherwise="routing"),
            f"The verdict is the same in 3 of 7 {VARIATIONS}; in most others it is routing. {SURE}",
        ),
        (
            Agreement(holds=7, of=7, identified=0.9),
            f"The verdict is the same in all 7 {VARIATIONS}. The cause is not part of the model: "
            f"that it explains the remaining time has a probability of 90 %. {SURE}",
        ),
    ],
)
def test_the_screen_says_what_confidence_means(agreement: Agreement | None, sentence: str) -> None:
    assert confidence_sentence(0.83, "samples", agreement) == sentence
