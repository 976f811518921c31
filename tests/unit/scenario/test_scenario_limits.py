"""Numbers in a scenario or on the command line that no machine has: each refused by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailback.cli import run as tailback
from tailback.errors import ScenarioError
from tailback.scenario.model import Scenario, load, parse
from tailback.scenario.reference import markdown
from tailback.simulation import prepare, simulate
from tailback.traffic.patterns.pattern import build
from tests.factories.cli import refused, scenario
from tests.factories.repository import DEMO

TRACE = [DEMO / "trace", "--fabric", DEMO / "fabric.ibnetdiscover"]
FAR = str(10**20)


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("[engine]", "packet = 0", "[engine] packet"),
        ("[engine]", 'packet = "1e30 GiB"', "[engine] packet: '1e30 GiB' is out of range"),
        ("[engine]", 'buffer = "8 GiB"', "[engine] buffer"),
        ("[engine]", 'switch_delay = "1e400 s"', "[engine] switch_delay"),
        ("[engine]", 'local_rate = "1e400 Gb/s"', "[engine] local_rate"),
        ("[fabric.fat_tree]", f"hosts_per_leaf = {FAR}", "[fabric.fat_tree]"),
        ("[fabric.fat_tree]", "aggregation = 2147483648", "limit is 65,535"),
        ("[fabric.fat_tree]", f"pods = {FAR}\ncores = 1", "[fabric.fat_tree]"),
        ("[fabric.fat_tree]", 'host_delay = "1e30 s"', "host_delay"),
        ("[[job]]", "compute_scale = nan", "[job] compute_scale"),
        ("[[job]]", "compute_scale = inf", "[job] compute_scale"),
        ("[[job]]", f"repeat = {FAR}", "[job] repeat"),
        ("[[job]]", f"ranks_per_host = {FAR}", "[job] ranks_per_host"),
        ("[[job]]", 'start = "1e30 s"', "[job] start"),
        # What cannot have an effect is refused, not ignored.
        ("[[job]]", 'format = "otf2"', "format needs a trace"),
        ("[fabric]", 'cable_delay = "5 ns"', "cable_delay needs a file"),
    ],
)
def test_a_value_beyond_all_measure_is_named(
    section: str, line: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path)
    name = line.split(" ")[0]
    lines = [old for old in path.read_text().splitlines() if not old.startswith(f"{name} =")]
    if section not in lines:
        lines.insert(lines.index("[[job]]") if section == "[fabric]" else len(lines), section)
    lines.insert(lines.index(section) + 1, line)
    path.write_text("\n".join(lines))
    refused(capsys, ["simulate", path], "small.toml", expected, "remedy")


@pytest.mark.parametrize(
    ("section", "key", "format", "near"),
    [("[[job]]", "trace", "otf", "otf2"), ("[fabric]", "file", "ibnetdisc", "ibnetdiscover")],
)
def test_an_unknown_format_names_its_place(
    section: str,
    key: str,
    format: str,
    near: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sections = {
        "[fabric]": 'preset = "tapered"',
        "[[job]]": 'pattern = { kind = "ring", ranks = 4 }',
    }
    sections[section] = f'{key} = "input"\nformat = "{format}"'
    path = tmp_path / "small.toml"
    body = [f"{name}\n{line}" for name, line in sections.items()]
    path.write_text('name = "small"\n' + "\n".join(body) + '\nname = "a"\n')
    (tmp_path / "input").write_text("anything")
    refused(capsys, ["simulate", path], f"small.toml: {section} format", f"mean '{near}'?")


@pytest.mark.parametrize("ranks", [f"ranks = {FAR}", f"dims = [{FAR}, 2]"])
def test_more_ranks_than_can_be_numbered(
    ranks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "ring" if "ranks" in ranks else "stencil2d"
    refused(capsys, ["simulate", scenario(tmp_path, kind, ranks)], "small.toml", "ranks")


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        ("nan", "not a finite number"),
        ("inf", "not a finite number"),
        ("1e300", "makes a compute time"),
        ("1e16", "makes a compute time"),
    ],
)
def test_no_trace_computes_for_ever(
    factor: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, ["simulate", *TRACE, "--compute-scale", factor], "compute", expected)


def test_options_keep_to_the_limits_of_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, ["simulate", *TRACE, "--seed", FAR], f"seed: {FAR}", "remedy")
    refused(capsys, ["simulate", *TRACE, "--ranks-per-host", FAR], "ranks_per_host", "remedy")


def test_what_is_found_later_still_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path)
    text = path.read_text()
    path.write_text(text + 'placement = "blck"\n')
    for command in ("simulate", "diagnose", "place"):
        refused(capsys, [command, path], "small.toml: unknown placement 'blck'", "'block'")
    for command, option in (("place", "--method"), ("diagnose", "--method")):
        message = f"{option} til: unknown placement 'til'"
        refused(capsys, [command, path, option, "block", option, "til"], message, "'tile'")
    # The option is to blame here, not the file.
    assert tailback(["simulate", str(path), "--placement", "blok"]) == 2
    error = capsys.readouterr().err
    assert "'blok'" in error and "small.toml" not in error


def test_per_destination_needs_are_reported_as_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scenario(tmp_path)
    plain = path.read_text()
    sections = ("[engine.congestion_control]\n", '[engine.pacing]\nkind = "elastic"\n')
    for section in sections:
        path.write_text(plain + section)
        refused(capsys, ["simulate", path], "fifo has no queue per destination", section.split()[0])
        name = section.splitlines()[0]
        about = markdown().split(f"## {name}\n")[1].split("| key |")[0]
        assert "needs injection per-destination" in about
    assert "Off without this table" in markdown()


@pytest.mark.parametrize(
    ("control", "idle"),
    [
        ({"green": "8 KiB"}, ["green"]),
        ({"scheme": "dcms", "green": "8 KiB"}, ["green"]),
        ({"poll": "1 ms"}, ["poll"]),
        ({"scheme": "dcms", "poll": "1 ms"}, []),
        (
            {"scheme": "rgbcc", "increase": 2, "limit": 9, "timer": "1 us"},
            ["increase", "limit", "timer"],
        ),
        # These it has: where credit is missing a light turns red as well.
        ({"scheme": "rgbcc", "victims": True, "green": "8 KiB", "marking_rate": 1}, []),
        ({"victims": True, "increase": 2, "green": "16 KiB"}, []),
    ],
)
def test_a_key_unused_by_the_scheme_is_noted(control: dict[str, Any], idle: list[str]) -> None:
    job = {"pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}
    engine = {"injection": "per-destination", "congestion_control": control}
    parsed = parse({"fabric": {"preset": "full"}, "job": [job], "engine": engine})
    notes = [note for note in simulate(prepare(parsed)).notes if "does not use" in note]
    scheme = control.get("scheme", "infiniband")
    text = f"[engine.congestion_control] {', '.join(idle)}: scheme {scheme!r} does not use this"
    assert notes == ([text] if idle else [])


@pytest.mark.parametrize(
    ("key", "values"),
    [("lane_weights", "list of sizes"), ("table", "list of numbers"), ("packet", "size")],
)
def test_the_page_says_each_keys_kind(key: str, values: str) -> None:
    row = next(line for line in markdown().splitlines() if line.startswith(f"| `{key}` |"))
    assert row.split(" | ")[2] == values


def test_a_rate_comes_back_as_it_was() -> None:
    rate = 100 / 3
    parsed = parse(
        {
            "fabric": {"preset": "tapered"},
            "engine": {"local_rate": f"{rate!r} Gb/s"},
            "job": [{"pattern": {"kind": "ring"}}],
        }
    )
    again = Scenario.model_validate_json(parsed.model_dump_json())
    assert again.engine.local_rate == rate
    assert (
        '"100 Gb/s"'
        in parse(
            {
                "fabric": {"preset": "tapered"},
                "engine": {"local_rate": "100 Gb/s"},
                "job": [{"pattern": {"kind": "ring"}}],
            }
        ).model_dump_json()
    )


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "alltoall", "size": "1 KiB", "rounds": 10**20},
        {"kind": "fft2d", "size": "1 KiB", "plane": [2, 2], "rounds": 10**20},
        {"kind": "stencil2d", "dims": [2, 2], "rounds": 10**20},
        {"kind": "minighost", "dims": [2, 2, 2], "steps": 10**20},
        {"kind": "transpose", "size": "1 KiB", "dims": [2, 2], "rounds": 10**20},
    ],
)
def test_more_messages_than_can_be_numbered(options: dict[str, object]) -> None:
    """Refused before they are built, which would take for ever."""
    with pytest.raises(ScenarioError, match="at most 268,435,455 can be numbered"):
        build(options, 4, 1)


@pytest.mark.slow
def test_a_switch_with_too_many_ports_is_refused(tmp_path: Path) -> None:
    """It is refused before memory is taken for it: the process may use 6 GiB."""
    path = tmp_path / "wide.toml"
    path.write_text(
        """
        [fabric.topology]
        kind = "dragonfly"
        nodes_per_router = 2
        routers = 1
        groups = 2
        global_ports = 150_000
        [[job]]
        pattern = { kind = "uniform", size = "4 KiB", ranks = 4 }
        """
    )
    code = (
        "import resource, sys; import numpy; from tailback.cli import main;"
        f"resource.setrlimit(resource.RLIMIT_AS, ({6 << 30}, {6 << 30}));"
        f"main(['simulate', {str(path)!r}, '--quiet'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "150,002 ports; the engine's limit is 65,535" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "1" * 5000])
def test_toml_that_python_gives_up_on(text: str, tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=r"not valid TOML|more than 308 digits") as error:
        load(path)
    assert error.value.file == path


def test_a_value_with_a_semicolon_is_quoted_whole() -> None:
    data = {
        "fabric": {"preset": "tapered"},
        "job": [{"pattern": {"kind": "ring", "ranks": 2}}],
        "engine": {"buffer": "128; KiB"},
    }
    with pytest.raises(ScenarioError) as caught:
        parse(data)
    assert caught.value.message == "'128; KiB' is not a size with a unit"
    assert caught.value.remedy is not None and "did you mean '128 KiB'?" in caught.value.remedy
