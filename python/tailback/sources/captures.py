"""Packet captures as the source of a diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailback.errors import ScenarioError, option
from tailback.fabric.builders import PRESETS
from tailback.io.delimited import not_used
from tailback.run.run import Run
from tailback.scenario.model import (
    OWN_FIELDS,
    RESERVED_BITS,
    Scenario,
    TelemetrySection,
    load,
    parse,
)
from tailback.simulation.captures import captured_run
from tailback.sources.source import ScenarioOptions, is_run, network_data, read_base_run
from tailback.telemetry.captured import is_capture

__all__ = [
    "capture_scenario",
    "is_capture",
    "options_on_ranks",
    "read_captures",
    "with_capture_telemetry",
]

DEFAULT_TELEMETRY = {"scheme": "coordinated", "hash_bits": 5}
"""Telemetry assumed if no scenario states it: the six-bit scheme with the smallest error."""


def read_captures(
    paths: Sequence[Path],
    fabric: str | Path | None,
    forwarding: str | Path | None = None,
    contexts: str | Path | None = None,
    refused: Sequence[str] = (),
) -> Run:
    """The measured run of captures.

    Args:
        paths: The captures.
        fabric: Their network, as for a trace. A scenario or run also states the telemetry.
        forwarding: Forwarding tables of its switches.
        contexts: Folder of addresses and calling contexts.
        refused: Options that were given but do not apply to captures.

    Raises:
        TailbackError: A file is invalid, the network is missing or an option does not apply.
    """
    if refused:
        raise ScenarioError(
            f"a packet capture names no ranks; use {option('fabric')}, {option('forwarding')} and "
            f"{option('contexts')} with it",
            file=paths[0],
            place=refused[0],
            remedy="leave it out, or diagnose the trace of the program with "
            f"{option('samples', 'CAPTURE')}",
        )
    if fabric is None:
        raise ScenarioError(
            "a packet capture needs the network it was taken on",
            file=paths[0],
            remedy=f"add {option('fabric')} with a scenario or run that states network and "
            "[telemetry], a file that ibnetdiscover wrote, or a preset: "
            + ", ".join(PRESETS.names()),
        )
    for path in paths:
        if not is_capture(path):
            raise ScenarioError(
                "does not exist" if not path.exists() else "is not a packet capture",
                file=path,
                remedy="give only pcap, pcapng or ERF files",
            )
    setting, one_in, assumed = capture_scenario(fabric)
    if forwarding is not None:
        setting.fabric.forwarding = Path(forwarding).absolute()
    folder = None if contexts is None else Path(contexts)
    run = captured_run(paths, setting, contexts=folder, one_in=one_in, assumed=assumed)
    if Path(fabric).suffix == ".toml":
        # The traffic is that of the captures.
        run.notes.extend(f"{Path(fabric).name}: {note}" for note in not_used(["job"], "sections"))
    return run


def capture_scenario(fabric: str | Path) -> tuple[Scenario, float, bool]:
    """Network and telemetry of a capture, from ``--fabric``.

    Returns:
        The scenario, packets per sample, and whether the telemetry is assumed.
    """
    path = Path(fabric)
    if is_run(path):
        run = read_base_run(path)
        return run.scenario, float(run.summary.get("one_in", 1)), False
    if path.is_file() and path.suffix == ".toml":
        scenario = load(path)
        return scenario, float(scenario.telemetry.one_in), False
    data = {**network_data(fabric), "telemetry": DEFAULT_TELEMETRY, "job": [{"trace": "."}]}
    return parse(data), 1.0, True


def with_capture_telemetry(scenario: Scenario) -> tuple[Scenario, bool]:
    """The scenario, with assumed telemetry if its own does not fit the reserved bits.

    Returns:
        The scenario, and whether its telemetry is assumed.
    """
    section = scenario.telemetry
    if section.scheme in OWN_FIELDS or 0 < section.header_bits <= RESERVED_BITS:
        return scenario, False
    section = TelemetrySection.model_validate(DEFAULT_TELEMETRY)
    return scenario.model_copy(update={"telemetry": section}), True


def options_on_ranks(options: ScenarioOptions) -> dict[str, object]:
    """Options about ranks, which captures do not have, by their names in the interface."""
    usable = ("fabric", "forwarding")
    return {
        option(name): value is not None for name, value in options.items() if name not in usable
    }
