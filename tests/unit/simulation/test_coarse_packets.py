"""Coarse packets: fewer of them, in buffers that hold several, stated wherever times are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tailback.cli import run as tailback
from tailback.errors import ScenarioError
from tailback.evaluate import Change, EngineVariation
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare, simulate
from tailback.simulation.prepare import fitting_size
from tailback.simulation.settings import EngineSettings
from tests.factories.cli import refused, scenario
from tests.factories.placement_fabrics import pairs

TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}
JOB = {"pattern": {"kind": "permutation", "ranks": 16, "size": "256 KiB"}}


def data(**engine: Any) -> dict[str, Any]:
    return {"fabric": {"fat_tree": TREE}, "job": [JOB], "engine": engine}


def test_fewer_packets_take_about_the_time() -> None:
    full, coarse = simulate(parse(data())), simulate(parse(data(coarse="16 KiB")))
    assert full.summary["packets"] == 4 * coarse.summary["packets"] == 16 * 64
    # The line rate bounds both.
    assert coarse.elapsed_ps == pytest.approx(full.elapsed_ps, rel=0.25)
    assert coarse.elapsed_ps != full.elapsed_ps
    assert any("coarse packets: 16 KiB in place of 4 KiB" in note for note in coarse.notes)
    assert not any("coarse" in note for note in full.notes)


def test_buffers_hold_four_coarse_packets() -> None:
    settings = EngineSettings.of(parse(data(coarse="64 KiB", buffer="32 KiB", header="30 B")))
    assert (settings.packet_bytes, settings.buffer_bytes) == (65536, 4 * 65536)
    assert settings.header_bytes == 16 * EngineSettings.of(parse(data(header="30 B"))).header_bytes


def test_packets_are_never_made_smaller() -> None:
    small, plain = parse(data(coarse="1 KiB")), parse(data())
    assert EngineSettings.of(small) == EngineSettings.of(plain)


def test_changes_are_evaluated_in_coarse_packets() -> None:
    prepared = prepare(parse(data()))
    coarse = make_evaluate(prepared.with_coarse_packets(32768))(Change(network="star"))
    assert coarse.summary["packets"] == 16 * 8
    # Halved, a buffer still holds a packet with its header.
    small = prepare(parse(data(buffer="4 KiB", header="30 B")))
    halved = Change(variation=EngineVariation(buffers=0.1))
    assert make_evaluate(small.with_coarse_packets(65536))(halved).summary["packets"] == 16 * 4


@pytest.mark.parametrize(
    ("sizes", "fitting"),
    [
        ([1 << 20], 16),
        ([511 << 10], None),
        ([512 << 10], 8),
        ([1 << 30], 64),
        # A hundredth of the bytes may be in messages of fewer packets.
        ([1 << 20] * 99 + [1 << 10] * 1024, 16),
        ([1 << 20] * 98 + [1 << 10] * 1024, None),
        ([], None),
    ],
)
def test_packets_fit_if_messages_have_64_of_them(sizes: list[int], fitting: int | None) -> None:
    fitting_bytes = fitting_size(pairs(2, [(0, 1, size) for size in sizes]), 4096)
    assert fitting_bytes == (None if fitting is None else fitting << 10)


@pytest.mark.parametrize(("size", "packets"), [("1 MiB", 64), ("2 MiB", 64), ("240 KiB", 60)])
def test_auto_is_replaced_by_what_fits(size: str, packets: int) -> None:
    job = {"pattern": {**JOB["pattern"], "size": size}}
    run = simulate(parse({**data(coarse="auto"), "job": [job]}))
    assert run.summary["packets"] == 16 * packets
    full = packets == 60
    assert run.scenario.engine.coarse == (None if full else run.scenario.engine.simulated_packet)
    expected = "coarse = auto: packets are of 4 KiB" if full else "coarse packets: "
    assert any(note.startswith(expected) for note in run.notes)


def test_auto_survives_a_file_and_others_fail() -> None:
    written = parse(data(coarse="auto")).model_dump(mode="json")
    assert parse(written).engine.coarse == "auto"
    for wrong in ("fine", "0 B", "2 MiB"):
        with pytest.raises(ScenarioError, match=r"engine\] coarse|coarse ="):
            parse(data(coarse=wrong))


@pytest.mark.parametrize(
    "engine",
    [
        {"injection": "per-destination", "congestion_control": {}},
        {"injection": "per-destination", "pacing": {"kind": "elastic"}},
    ],
)
def test_what_acts_on_single_packets_is_refused(engine: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=r"engine\.coarse does not go with"):
        parse(data(coarse="16 KiB", **engine))


def test_the_option_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: list[str | Path] = ["simulate", scenario(tmp_path), "--out", tmp_path / "run"]
    assert tailback([*map(str, arguments), "--coarse", "32 KiB"]) == 0
    screen = capsys.readouterr()
    assert "coarse packets: 32 KiB in place of 4 KiB" in screen.out + screen.err
    assert tailback([*map(str, arguments), "--force", "--coarse", "auto"]) == 0
    assert "coarse = auto: packets are of 4 KiB" in "".join(capsys.readouterr())
    refused(capsys, [*arguments, "--force", "--coarse", "32"], "--coarse", "is not a size", "KiB")


def test_a_note_reports_an_unsuitable_packet_size() -> None:
    def note(size: str) -> str:
        return next(note for note in simulate(parse(data(coarse=size))).notes if "coarse" in note)

    assert "off by tens of per cent" not in note("32 KiB")
    assert "fewer than 8 of them have 100 % of the bytes" in note("64 KiB")
    assert "none, as packets have 4 KiB anyway" in note("2 KiB")
