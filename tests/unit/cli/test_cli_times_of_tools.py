"""`tailback diagnose` and `calibrate` of a run that DUMPI or Nsight recorded: as if OTF2 had."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tailback as tb
from tailback.cli import run as tailback
from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tests.factories.dumpi_of_otf2 import dumpi_scripts, with_init_and_finalize
from tests.factories.dumpi_traces import Recorder, write
from tests.factories.evidence_traces import Script, receive, send
from tests.factories.nsight_exports import describing, write_export
from tests.factories.nsight_of_otf2 import nsight_calls
from tests.factories.otf2_traces import Build, writing
from tests.factories.public_data import real
from tests.factories.simulated_traces import scripts_of

PATTERN = {
    "kind": "stencil2d",
    "dims": [4, 2],
    "size": "256 KiB",
    "rounds": 10,
    "post": "all",
    "boundary": "skip",
    "compute": "30 us",
}
SCENARIO = """
name = "small"
[fabric.fat_tree]
hosts_per_leaf = 2
leaves = 4
aggregation = 2
[[job]]
trace = "{trace}"
"""


@pytest.fixture
def otf2(tmp_path: Path) -> Build:
    return writing(tmp_path)


def diagnosed(
    folder: Path, trace: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[Diagnosis, str]:
    """The diagnosis of a trace, and the screen without the path of the report."""
    scenario = folder / "small.toml"
    scenario.write_text(SCENARIO.format(trace=trace))
    out = folder / f"out-{trace.name}"
    code = tailback(
        [
            "diagnose",
            str(scenario),
            "--out",
            str(out),
            "--seeds",
            "1",
            "--quiet",
            "--verbose",
            "--method",
            "block",
            "--remedy",
            "placement",
        ]
    )
    captured = capsys.readouterr()
    assert code in (0, 3), captured.err
    diagnosis = Diagnosis.model_validate_json((out / "diagnosis.json").read_bytes())
    return diagnosis, re.sub(r"NEXT  open.*", "", captured.out, flags=re.DOTALL)


def with_slow_cable() -> tuple[list[Script], list[str]]:
    """Events of a run in which the cable of host 5 is at a quarter of its rate, and its hosts."""
    tree = {"hosts_per_leaf": 2, "leaves": 4, "aggregation": 2}
    prepared = prepare(parse({"fabric": {"fat_tree": tree}, "job": [{"pattern": PATTERN}]}))
    fabric = prepared.fabric
    link = int(np.flatnonzero(fabric.link_src == 5)[0])
    slow = SlowLink(link, 0.25 * float(fabric.link_gbps[link]))
    run = make_evaluate(prepared)(replace(Change(computations=True, measure=True), slow=(slow,)))
    scripts = scripts_of(prepared.observed.program, run)
    # In nanoseconds, without MPI_Init and MPI_Finalize, with a number for each request.
    ns = [[(event[0] // 1000 + 20, *event[1:]) for event in script[2:-2]] for script in scripts]
    return ns, [fabric.host_name[node] for node in prepared.observed.node]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["binary", "text", "nsight"])
def test_dumpi_gives_the_slow_cable_verdict_of_otf2(
    otf2: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    scripts, hosts = with_slow_cable()
    of_otf2, screen = diagnosed(
        tmp_path, otf2([with_init_and_finalize(script) for script in scripts], hosts=hosts), capsys
    )
    folder = tmp_path / form
    folder.mkdir()
    if form == "nsight":
        for rank, (script, host) in enumerate(zip(scripts, hosts, strict=True)):
            write_export(
                folder / f"{rank}.sqlite", {rank: nsight_calls(script)}, describing(host, 10**18)
            )
    else:
        write(
            folder,
            *dumpi_scripts(scripts),
            of=[Recorder(host) for host in hosts],
            as_text=form == "text",
        )
    _, same_screen = diagnosed(tmp_path, folder, capsys)
    assert of_otf2.cause == "slow-link"
    assert same_screen == screen


def test_dumpi_gives_the_calibration_of_otf2(
    otf2: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now, scripts = 10_000, list[Script]([[], []])
    for size in [8, 1024, 8192, 65536, 1 << 20] * 3:
        way = 1500 + size // 10
        scripts[0] += send(now, now + 100, 1, size=size)
        scripts[1] += receive(now - 5_000, now + way, 0, size=size)
        scripts[1] += send(now + way, now + way + 100, 0, size=size)
        scripts[0] += receive(now + way, now + 2 * way, 1, size=size)
        now += 2 * way + 10_000
    (tmp_path / "dumpi").mkdir()
    of_otf2, of_dumpi = (
        tb.calibrate(f"{path}@n1,n2")
        for path in (
            otf2([with_init_and_finalize(script) for script in scripts]),
            write(tmp_path / "dumpi", *dumpi_scripts(scripts)),
        )
    )
    parameters = {value.name: value.value for value in of_dumpi.measured}
    assert parameters
    assert of_dumpi.frame.equals(of_otf2.frame)
    assert of_dumpi.not_identified == of_otf2.not_identified


@pytest.mark.data
def test_the_dumpi_test_trace_counts_as_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    diagnosis, screen = diagnosed(tmp_path, real("dumpi-testtrace/tests/traces"), capsys)
    assert screen.startswith("MEASURED  2.337 ms on 4 ranks; the model expects")
    assert "before start or after end     1.902 ms   81 %" in screen
    assert "clocks: one, which all ranks share" in screen
    assert "the time inside calls" not in screen
    assert diagnosis.measured is not None and diagnosis.measured.hosts is not None
    assert (diagnosis.measured.hosts.source, diagnosis.measured.hosts.hosts) == ("the trace", 1)
    assert max(map(len, screen.splitlines())) <= 80
