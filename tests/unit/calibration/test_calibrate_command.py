"""From outputs of benchmarks to a calibration file, and from there into a scenario."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import tailback as tb
from tailback.calibration import Calibration, CalibrationError, load
from tailback.cli import run as tailback
from tailback.errors import ScenarioError, TailbackError
from tailback.scenario.model import parse
from tests.factories import benchmark_outputs as outputs

SWITCH_US = 0.1
NETWORK = """
[fabric.fat_tree]
hosts_per_leaf = 2
leaves = 2
aggregation = 2
pods = 2
cores = 2
aggregation_uplinks = 1
host_rate = "102 Gb/s"
leaf_rate = "102 Gb/s"
core_rate = "102 Gb/s"
host_delay = "20 ns"
leaf_delay = "30 ns"
core_delay = "50 ns"
[[job]]
pattern = { kind = "ring", size = "1 KiB" }
"""
CABLES_US = {1: 0.04, 5: 0.2}
ENDS = {0: "n0", 1: "n0,n1", 5: "n0,n7"}


def machine(folder: Path) -> dict[str, str]:
    """Outputs of a machine: 1 µs of software, 100 ns a switch, 12.5 GB/s, 0.4 µs in a host."""
    (folder / "net.toml").write_text(NETWORK)
    files = {}
    for switches, hosts in ENDS.items():
        delay = 0.4 if switches == 0 else switches * SWITCH_US + CABLES_US[switches]
        rate = 4 if switches == 0 else 1

        def time(size: int, delay: float = delay, rate: int = rate) -> float:
            handshake = 2 * delay if rate == 1 and size > 8192 else 0
            return 1 + delay + handshake + size / outputs.RATE / rate

        path = folder / f"at{switches}.txt"
        path.write_text(outputs.osu_latency(time))
        files[f"at{switches}"] = f"{path}@{hosts}"
    (folder / "bw.txt").write_text(outputs.osu_bw())
    files["bw"] = f"{folder / 'bw.txt'}@n0,n7"
    return files


def by_name(calibration: Calibration) -> dict[str, Any]:
    return {parameter.name: parameter for parameter in [*calibration.engine, *calibration.measured]}


def test_a_machine_is_found_again(tmp_path: Path) -> None:
    files = machine(tmp_path)
    calibration = tb.calibrate(list(files.values()), fabric=tmp_path / "net.toml")
    parameters = by_name(calibration)
    # A small message has a whole header, which the outputs were made without.
    wire_ps = 4096 * 0.02 * 8000 / 102
    truths = {
        "send_delay": 1e6 - wire_ps,
        "switch_delay": 1e5,
        "eager": 8192,
        "local_delay": 4e5 + wire_ps,
        "local_rate": 400,
        "rate": 100,
        "header": 4096 * 0.02,
    }
    for name, truth in truths.items():
        assert parameters[name].low <= truth <= parameters[name].high, name
        assert parameters[name].value == pytest.approx(
            truth, rel=0.25 if name == "header" else 0.05
        )
    assert calibration.not_identified == {"packet": "no benchmark reports the MTU (perftest does)"}
    assert calibration.frame["parameter"].to_list() == list(parameters)


def test_one_distance_leaves_switches_and_widens_the_software(tmp_path: Path) -> None:
    files = machine(tmp_path)
    both = tb.calibrate([files["at1"], files["at5"]], fabric=tmp_path / "net.toml")
    one_distance = tb.calibrate(files["at5"], fabric=tmp_path / "net.toml")
    assert "two different numbers of switches" in one_distance.not_identified["switch_delay"]
    width = {
        name: by_name(calibration)["send_delay"].high - by_name(calibration)["send_delay"].low
        for name, calibration in (("both", both), ("one", one_distance))
    }
    # Five switches of 30 to 90 ns.
    assert width["one"] == pytest.approx(5 * 60e3, rel=0.1)
    assert width["both"] < 100e3


def test_without_a_fabric_no_distance_is_known(tmp_path: Path) -> None:
    files = machine(tmp_path)
    plain = [name.rpartition("@")[0] for name in (files["at5"], files["bw"])]
    calibration = tb.calibrate(plain)
    assert [parameter.name for parameter in calibration.engine] == ["eager"]
    assert "fabric=" in calibration.not_identified["send_delay"]
    assert "line rate is not known" in calibration.not_identified["header"]
    assert by_name(calibration)["rate"].value == pytest.approx(100, rel=0.02)


def test_rates_beyond_the_line_are_no_header(tmp_path: Path) -> None:
    files = machine(tmp_path)
    network = NETWORK.replace("102 Gb/s", "50 Gb/s")
    (tmp_path / "net.toml").write_text(network)
    calibration = tb.calibrate(files["bw"], fabric=tmp_path / "net.toml")
    assert "header" not in by_name(calibration)
    assert "several adapters" in calibration.not_identified["header"]


def test_a_slow_adapter_is_told(tmp_path: Path) -> None:
    files = machine(tmp_path)
    (tmp_path / "net.toml").write_text(NETWORK.replace("102 Gb/s", "200 Gb/s"))
    calibration = tb.calibrate(files["bw"], fabric=tmp_path / "net.toml")
    assert by_name(calibration)["header"].value == pytest.approx(4096, rel=0.05)
    assert any("50% of the line rate" in note for note in calibration.notes)


def test_verbs_tell_switches_and_packets_only(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(NETWORK)
    for name, text in (("lat", outputs.ib_write_lat(2048)), ("bw", outputs.ib_write_bw(mtu=2048))):
        (tmp_path / name).write_text(text)
    files = [f"{tmp_path / 'lat'}@n0,n1", f"{tmp_path / 'bw'}@n0,n1"]
    calibration = tb.calibrate(files, fabric=tmp_path / "net.toml")
    assert by_name(calibration)["packet"].value == 2048
    assert by_name(calibration)["header"].value == pytest.approx(2048 * 0.02, rel=0.3)
    assert "nothing shows MPI's latency" in calibration.not_identified["send_delay"]
    (tmp_path / "lat").write_text(outputs.ib_write_lat(4096))
    with pytest.raises(CalibrationError, match=r"different MTUs: 4096 B in .*lat, 2048 B"):
        tb.calibrate(files, fabric=tmp_path / "net.toml")


def test_hosts_that_share_the_work_share_the_rate(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(NETWORK)
    (tmp_path / "mr.txt").write_text(outputs.osu_mbw_mr(pairs=4))
    rates = [
        by_name(tb.calibrate(tmp_path / "mr.txt", hosts=hosts, fabric=tmp_path / "net.toml"))[
            "rate"
        ]
        for hosts in ("n0,n7", "n0,n1,n6,n7")
    ]
    assert rates[0].value == pytest.approx(2 * rates[1].value, rel=1e-4)


def test_nccl_rates_are_of_the_named_hosts(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(NETWORK)
    path = tmp_path / "nccl.txt"
    path.write_text(outputs.nccl_text(("n0", "n7")))
    assert "rate" in by_name(tb.calibrate(path, fabric=tmp_path / "net.toml"))
    path.write_text(outputs.nccl_text(("n3", "n3")))
    assert by_name(tb.calibrate(path))["local_rate"].value == pytest.approx(100, rel=0.02)
    path.write_text(outputs.nccl_text(("n0", "elsewhere")))
    with pytest.raises(TailbackError, match=r"'elsewhere' of nccl\.txt is not in the fabric"):
        tb.calibrate(path, fabric=tmp_path / "net.toml")


def test_gpcnet_is_a_mean_over_the_machine(tmp_path: Path) -> None:
    (tmp_path / "net.toml").write_text(NETWORK)
    (tmp_path / "g.txt").write_text(outputs.gpcnet("1.9"))
    parameters = by_name(
        tb.calibrate(tmp_path / "g.txt", hosts="0-7", fabric=tmp_path / "net.toml")
    )
    # Of the other seven hosts one is over 1 switch, two over 3, four over 5.
    mean_us = (0.06 + 0.04 + 2 * (0.18 + 0.1) + 4 * (0.3 + 0.2)) / 7
    assert parameters["send_delay"].value == pytest.approx((1.9 - mean_us) * 1e6, rel=1e-3)


def test_the_calibration_file_goes_into_a_scenario(tmp_path: Path) -> None:
    files = machine(tmp_path)
    calibration = tb.calibrate(list(files.values()), fabric=tmp_path / "net.toml")
    path = calibration.write(tmp_path / "machine.toml")
    read = load(path)
    assert read.settings == calibration.settings
    assert read.not_identified == calibration.not_identified
    for before, after in zip(calibration.engine, read.engine, strict=True):
        assert (after.name, after.kind, after.n, after.source) == (
            before.name,
            before.kind,
            before.n,
            before.source,
        )
        assert after.low <= before.low and after.high >= before.high
        assert after.value == pytest.approx(before.value, rel=1e-3, abs=1)
    scenario = parse(
        {
            "fabric": {"preset": "tapered"},
            "engine": {"eager": "1 MiB", "buffer": "1 MiB"},
            "job": [{"pattern": {"kind": "ring", "size": "1 KiB"}}],
        }
    )
    changed = read.apply(scenario)
    assert changed.engine.eager == 8192
    assert changed.engine.buffer == 1 << 20
    assert changed.engine.switch_delay == pytest.approx(1e5, rel=0.05)
    assert scenario.engine.eager == 1 << 20
    # What the scenario does not state stays open, so that a diagnosis may choose it.
    assert "injection" not in changed.engine.model_fields_set
    with pytest.raises(CalibrationError, match="exists"):
        calibration.write(path)
    calibration.write(path, force=True)


def test_commands_work_with_a_calibration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.toml"
    path.write_text('[engine]\nsend_delay = "7 us"\n')
    (tmp_path / "net.toml").write_text(NETWORK.replace("kind", "ranks = 8, kind"))
    times = []
    for options in ([], ["--calibration", str(path)]):
        out = tmp_path / f"run{len(times)}"
        words = ["simulate", str(tmp_path / "net.toml"), "--out", str(out), "--quiet", *options]
        assert tailback(words) == 0
        times.append(tb.read_run(out))
    assert times[1].scenario.engine.send_delay == 7_000_000
    assert times[1].elapsed_ps - times[0].elapsed_ps >= 6_000_000
    path.write_text("[engine]\nsend = 7\n")
    assert tailback([*words[:-4], str(tmp_path / "other"), "--calibration", str(path)]) == 2
    assert f"{path}: [engine] send" in capsys.readouterr().err


def test_the_engine_section_alone_is_a_calibration(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[engine]\nsend_delay = "2 us"\n')
    assert load(path).settings == {"send_delay": "2 us"}


ENTRY = '[engine]\neager = "1 KiB"\n[calibration]\neager = '
WRONG = {
    "nothing": ("", "has no section [engine]"),
    "no TOML": ("[engine", "not valid TOML"),
    "unknown key": ('[engine]\nsend_dely = "1 us"', "did you mean 'send_delay'"),
    "no unit": ("[engine]\nsend_delay = 7", "no unit"),
    "no table": ("calibration = 3\n[engine]", "calibration is not a table"),
    "no entry": (ENTRY + "3", "[calibration] eager: is not a table"),
    "no setting": ("[engine]\n[calibration]\nfoo = {}", "'foo' is not a setting of the engine"),
    "outside": (ENTRY + '{ value = "1 B", low = "2 B", high = "3 B" }', "low ≤ value ≤ high"),
    "two units": (ENTRY + '{ value = "1 B", low = "1 ns", high = "3 B" }', "one unit"),
    "words": (ENTRY + '{ value = "1 B", low = "1 B", high = "3 B", n = "many" }', "whole number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_damaged_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    text, says = WRONG[name]
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises((CalibrationError, ScenarioError)) as caught:
        load(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.remedy


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = machine(tmp_path)
    fabric = ["--fabric", str(tmp_path / "net.toml")]
    out = tmp_path / "machine.toml"
    assert tailback(["calibrate", *files.values(), *fabric, "--out", str(out)]) == 0
    screen = capsys.readouterr().out
    for words in ("CALIBRATION", "send_delay", "95 % interval", "NOT IDENTIFIED", "packet: no"):
        assert words in screen
    # A path is never broken.
    text = [line for line in screen.splitlines() if str(tmp_path) not in line]
    assert max(map(len, text)) <= 80 and len(text) == len(screen.splitlines()) - 1
    assert tomllib.loads(out.read_text())["calibration"]["eager"]["value"] == "8192 B"
    assert tailback(["calibrate", files["bw"], *fabric, "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [row["parameter"] for row in facts["parameters"]] == [
        "header",
        "rate",
        "message_interval",
    ]
    assert facts["not_identified"]["send_delay"]


REFUSED = {
    "hosts": (["{at5}", "--hosts", "n0-3"], "no host 'n0-3'"),
    "too many": (["{plain}", "--hosts", "0-3"], "runs between two hosts, and 4 are named"),
    "twice": (["{plain}", "--hosts", "0", "--rankfile", "r"], "--rankfile and --hosts both state"),
    "file": (["none.txt"], "none.txt: cannot be read"),
    "fabric": (["{plain}", "--fabric", "nope"], "neither a file nor a preset"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    files = machine(tmp_path)
    files["plain"] = files["at5"].rpartition("@")[0]
    arguments, says = REFUSED[name]
    if name == "hosts":
        files["at5"] = files["plain"]
    fabric = [] if name == "fabric" else ["--fabric", str(tmp_path / "net.toml")]
    assert tailback(["calibrate", *(word.format(**files) for word in arguments), *fabric]) == 2
    error = capsys.readouterr().err
    assert says in error and "remedy:" in error


def test_text_of_files_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'o"\x1b[31m\n[engine].txt'
    text = outputs.osu_latency() + "# OSU MPI \x1b[31mEvil Test v1\n"
    path.write_text(text)
    out = tmp_path / "m.toml"
    assert tailback(["calibrate", str(path), "--out", str(out)]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert "\x1b" not in out.read_text()
    assert load(out).settings.keys() <= {"eager"}


@pytest.mark.parametrize(
    "text",
    [
        outputs.osu_latency_7().replace("Pass", "Fail", 1),
        outputs.nccl_text().replace(
            "# Out of bounds values : 0 OK", "# Out of bounds values : 3 FAILED"
        ),
    ],
    ids=["osu", "nccl"],
)
def test_damaged_data_calibrates_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(text)
    with pytest.raises(CalibrationError, match="data arrived damaged") as caught:
        tb.calibrate([tmp_path / "out.txt"])
    assert "before you calibrate" in str(caught.value)
