"""What a file of a network does not tell, stated on the command line or in a scenario."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailback import load_scenario
from tailback.cli import run as tailback
from tailback.errors import TailbackError
from tailback.fabric.model import Fabric
from tailback.simulation import load_fabric, prepare
from tests.factories.cli import refused
from tests.factories.fabric_files import CONF, LLDP

RING = '[[job]]\npattern = { kind = "ring", ranks = 4, size = "64 KiB" }\n'


def write_inputs(folder: Path) -> list[str | Path]:
    """A scenario on another network, and the option for Slurm's."""
    (folder / "topology.conf").write_text(CONF)
    (folder / "ring.toml").write_text('[fabric]\npreset = "tapered"\n' + RING)
    return [folder / "ring.toml", "--fabric", folder / "topology.conf"]


def test_rate_and_taper_of_slurms_topology(tmp_path: Path) -> None:
    words = [*map(str, write_inputs(tmp_path)), "--out", str(tmp_path / "run"), "--quiet"]
    stated = ["--cable-rate", "200 Gb/s", "--taper", "2"]
    assert tailback(["simulate", *words, *stated]) == 0
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert any("8 assumed" in note and "taper 2" in note for note in run["notes"])
    again = load_scenario(tmp_path / "run")
    fabric: Fabric = load_fabric(again.fabric)
    assert set(fabric.link_gbps) == {200}


def test_what_is_missing_or_needless_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", *write_inputs(tmp_path), "--out", tmp_path / "run"]
    refused(capsys, words, "topology.conf", "line 2", "--cable-rate '100 Gb/s'")
    refused(capsys, [*words, "--cable-rate", "100"], "--cable-rate", "with a unit")
    refused(capsys, [*words, "--cable-rate", "0 Gb/s"], "cable_rate")
    refused(capsys, [*words, "--cable-rate", "1e9 Tb/s"], "1e+12 Gb/s", "check the unit")
    (tmp_path / "links.csv").write_text("src,dst,rate_gbit\na,s,10\nb,s,10\n")
    edges = [*words[:3], tmp_path / "links.csv", *words[4:]]
    refused(capsys, [*edges, "--cable-rate", "5 Gb/s"], "links.csv", "states that of every link")
    refused(capsys, [*edges, "--taper", "2"], "links.csv", "lists its cables")


@pytest.mark.parametrize("taper", ["0.5", "nan", "inf", '"2"'])
def test_a_taper_is_a_number_from_1(taper: str, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    file = tmp_path / "s.toml"
    file.write_text(
        f'[fabric]\nfile = "topology.conf"\ncable_rate = "1 Gb/s"\ntaper = {taper}\n{RING}'
    )
    with pytest.raises(TailbackError) as caught:
        load_scenario(file)
    assert caught.value.place == "[fabric] taper" and caught.value.remedy


def test_rates_within_hosts_fit_every_network(tmp_path: Path) -> None:
    """Only edge lists have such rates themselves."""
    (tmp_path / "network").write_text(LLDP)
    (tmp_path / "s.toml").write_text(
        '[fabric]\nfile = "network"\n[[fabric.in_host]]\nhosts = "n2"\nrate = "900 Gb/s"\n'
        + RING.replace("ranks = 4", "ranks = 2")
    )
    fabric = prepare(load_scenario(tmp_path / "s.toml")).fabric
    assert fabric.host_gbps is not None
    assert dict(zip(fabric.host_name, fabric.host_gbps.tolist(), strict=True))["n2"] == 900


def test_a_file_of_a_network_alone_serves(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    (tmp_path / "net.toml").write_text('[fabric]\nfile = "topology.conf"\ncable_rate = "5 Gb/s"\n')
    scenario = load_scenario(tmp_path / "ring.toml", fabric=tmp_path / "net.toml")
    assert set(load_fabric(scenario.fabric).link_gbps) == {5}
    with pytest.raises(TailbackError, match="key is missing"):
        load_scenario(tmp_path / "net.toml")
