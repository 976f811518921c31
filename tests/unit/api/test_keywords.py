"""Misspelt arguments, the language of errors, and assignments to a scenario."""

from __future__ import annotations

import inspect
import os
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import tailback as tb
from tailback.api.sweep import plan_sweep, slurm_script
from tailback.api.sweep.study import ParameterStudy
from tailback.errors import command_line
from tailback.sources.source import ScenarioOptions
from tests.factories.cli import tailback

Workers = Callable[[dict[str, Any], dict[str, Any], Path], str]
DEMO = "examples/demo/demo.toml"
FUNCTIONS = [name for name in tb.__all__ if inspect.isfunction(getattr(tb, name))]


def arguments(name: str) -> list[str]:
    """Names of all arguments of a public function."""
    parameters = inspect.signature(getattr(tb, name)).parameters.values()
    options = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = [
        parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD
    ]
    return [*names, *(ScenarioOptions.__annotations__ if options else ())]


def test_every_public_function_is_tested() -> None:
    assert len(FUNCTIONS) == 15 and "placement" in arguments("simulate")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_misspelt_keywords_are_refused_with_the_nearest(name: str) -> None:
    for argument in arguments(name):
        misspelt = argument + "x"
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{misspelt}'") as caught:
            getattr(tb, name)(**{misspelt: None})
        assert f"did you mean '{argument}'?" in str(caught.value)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_types_name_argument_and_type(name: str) -> None:
    function = getattr(tb, name)
    hints = get_type_hints(function.__wrapped__) | get_type_hints(ScenarioOptions)
    for argument in arguments(name):
        if hints[argument] is Any:
            continue
        with pytest.raises(TypeError, match=rf"{name}\(\) argument {argument} is .*; give ."):
            function(**{argument: object()})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: tb.diagnose(DEMO, seeds="x"), "seeds is 'x'; give int or None"),
        (lambda: tb.diagnose(DEMO, seeds=True), "seeds is True; give int or None"),
        (lambda: tb.diagnose(DEMO, methods=[3]), r"methods is \[3\]; give list of str"),
        (lambda: tb.diagnose(DEMO, methods="rcmm"), "unknown placement 'rcmm'"),
        (lambda: tb.diagnose(DEMO, remedies="plcement"), "unknown remedy 'plcement'"),
        (lambda: tb.place(DEMO, methods="rcmm"), "unknown placement 'rcmm'"),
        (lambda: tb.sweep(DEMO, {"sead": "1"}, "out"), "unknown key 'sead'"),
        (lambda: tb.sweep(DEMO, [1], "out"), "give mapping to list of Any"),
        (lambda: tb.counters([]), "no file of counters"),
        (lambda: tb.calibrate([]), "no file"),
    ],
)
def test_wrong_values_are_refused_in_plain_words(call: Callable[[], object], says: str) -> None:
    with pytest.raises((TypeError, tb.TailbackError), match=says):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    run = tb.simulate(scenario(), seed=np.int64(3), compute_scale=np.float64(1))  # type: ignore[arg-type]
    assert run.scenario.seed == 3


def test_dir_lists_the_interface() -> None:
    assert dir(tb) == sorted([*tb.__all__, "__version__"])


@pytest.mark.parametrize(
    ("options", "python", "command"),
    [
        ({"fabric": "fulll"}, "fabric= 'fulll' is neither", "--fabric 'fulll' is neither"),
        ({"fabric": "full", "coarse": "1"}, "coarse=:", "--coarse:"),
        ({"fabric": "full", "cable_rate": "fast"}, "cable_rate=:", "--cable-rate:"),
        ({}, "add fabric= with", "add --fabric with"),
    ],
    ids=["fabric", "coarse", "cable rate", "missing fabric"],
)
def test_errors_name_options_as_the_interface_does(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, str],
    python: str,
    command: str,
) -> None:
    trace = tmp_path / "x.goal"
    trace.write_text("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\n}\n")
    with pytest.raises(tb.TailbackError) as caught:
        tb.simulate(trace, **options)  # type: ignore[arg-type]
    assert python in str(caught.value) and "--" not in str(caught.value)
    command_options = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    assert tailback(["diagnose", str(trace), *command_options, "--out", str(tmp_path / "out")]) == 2
    assert command in capsys.readouterr().err
    # The language is that of the call, not of the process.
    with pytest.raises(tb.TailbackError, match=r"=|add"):
        tb.simulate(trace, **options)  # type: ignore[arg-type]


def scenario() -> tb.Scenario:
    return tb.load_scenario(
        {
            "fabric": {"preset": "full"},
            "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}}],
            "engine": {"pacing": {"kind": "elastic"}, "injection": "per-destination"},
        }
    )


def by_processes(scenario: dict[str, Any], over: dict[str, Any], folder: Path) -> str:
    return tb.sweep(scenario, over, folder, workers=2).failures[1]


def by_dask(scenario: dict[str, Any], over: dict[str, Any], folder: Path) -> str:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        return tb.sweep(scenario, over, folder, dask=client).failures[1]


def by_slurm(scenario: dict[str, Any], over: dict[str, Any], folder: Path) -> str:
    plan_sweep(scenario, over, folder)
    script = slurm_script(folder, 1)
    variables = {**os.environ, "SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_JOB_ID": "7"}
    subprocess.run(["bash", "-c", script], env=variables, check=False)
    return ParameterStudy.open(folder).failures()[1]


@pytest.mark.parametrize(
    "workers",
    [
        by_processes,
        pytest.param(by_dask, marks=pytest.mark.slow),
        pytest.param(by_slurm, marks=pytest.mark.slow),
    ],
)
def test_workers_name_options_as_their_user_does(workers: Workers, tmp_path: Path) -> None:
    scenario = {
        "fabric": {"preset": "tapered"},
        "job": [{"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}, "hosts": "0-3"}],
    }
    over = {"job.pattern.ranks": [4, 9]}
    for number, context in enumerate((nullcontext(), command_line())):
        with context:
            failure = workers(scenario, over, tmp_path / str(number))
        assert ("ranks_per_host=", "--ranks-per-host")[number] in failure


def test_assigned_values_are_read_as_in_a_file() -> None:
    changed = scenario()
    changed.engine.packet = "512 B"  # type: ignore[assignment]
    changed.job[0].pattern = {"kind": "ring", "ranks": 8, "size": "1 KiB"}  # type: ignore[assignment]
    changed.fabric = {"preset": "tapered"}  # type: ignore[assignment]
    changed.seed = 3
    assert changed.engine.packet == 512 and changed.fabric.preset == "tapered"
    assert "packet" in changed.engine.model_fields_set
    assert tb.simulate(changed).scenario.engine.packet == 512
    changed.engine.packet *= 4
    assert changed.engine.packet == 2048


@pytest.mark.parametrize(
    ("table", "field", "value", "place", "remedy"),
    [
        ("engine", "packet", "512", "[engine] packet", "units: B, kB"),
        ("engine", "pakcet", 512, "[engine] pakcet", "did you mean 'packet'?"),
        ("engine", "routing", "adaptve", "[engine] routing", "did you mean 'adaptive'?"),
        ("engine.pacing", "rates", 7, "[engine.pacing] rates", "valid choices"),
        ("fabric", "taper", "x", "[fabric] taper", "without quotes"),
        ("job.0", "ranks_per_host", 0, "[job] ranks_per_host", "1 to 65536"),
        ("job.0", "nccl", {"channels": 0}, "[job.nccl] channels", "1"),
        ("", "seed", "a", "seed", "whole number"),
    ],
)
def test_invalid_assignments_are_refused(
    table: str, field: str, value: object, place: str, remedy: str
) -> None:
    changed: Any = scenario()
    at = changed
    for part in filter(None, table.split(".")):
        at = at[int(part)] if part.isdigit() else getattr(at, part)
    before = changed.model_dump_json()
    with pytest.raises(tb.TailbackError) as caught:
        setattr(at, field, value)
    assert caught.value.place == place and remedy in (caught.value.remedy or "")
    assert changed.model_dump_json() == before


def test_fields_that_depend_on_others_change_singly() -> None:
    changed = scenario()
    changed.fabric.preset = None
    with pytest.raises(tb.TailbackError, match="exactly one of preset"):
        tb.simulate(changed)
    changed.fabric.topology = {"kind": "torus", "shape": [2, 2]}  # type: ignore[assignment]
