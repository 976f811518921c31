"""A scenario: one TOML file that says everything a run depends on.

Unknown keys are refused with the nearest valid one; quantities carry their unit as text
(``"128 KiB"``, ``"60 ns"``, ``"100 Gb/s"``); every random choice follows from ``seed``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tailback.errors import ScenarioError, nearest
from tailback.units import RateGbps, SizeBytes, TimePs


class Section(BaseModel):
    """A table of the scenario file; refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", validate_default=False)


class FatTree(Section):
    """Shape of a fat tree of two or three levels (see ``docs/scenario.md``).

    ``pods = 0`` makes a two-level tree: leaves and ``aggregation`` switches only.
    """

    hosts_per_leaf: int = Field(ge=1)
    leaves: int = Field(ge=1, description="leaves a pod (in all, for two levels)")
    aggregation: int = Field(ge=1, description="aggregation switches a pod (in all, two levels)")
    pods: int = Field(default=0, ge=0)
    cores: int = Field(default=0, ge=0)
    leaf_cables: int = Field(default=1, ge=1, description="cables from a leaf to each aggregation")
    aggregation_uplinks: int = Field(default=0, ge=0, description="up cables an aggregation switch")
    host_rate: RateGbps = 100.0
    leaf_rate: RateGbps = 100.0
    core_rate: RateGbps = 100.0
    host_delay: TimePs = 0
    leaf_delay: TimePs = 0
    core_delay: TimePs = 0


class FabricSection(Section):
    """Where the network comes from: a preset, a shape or a file."""

    preset: str | None = None
    fat_tree: FatTree | None = None
    file: Path | None = None
    format: str | None = None
    cable_delay: TimePs | None = Field(default=None, description="delay of cables read from a file")

    @model_validator(mode="after")
    def _one_source(self) -> FabricSection:
        if sum(x is not None for x in (self.preset, self.fat_tree, self.file)) != 1:
            raise ValueError("give exactly one of preset, fat_tree or file")
        return self


class JobSection(Section):
    """One application: its traffic and where it runs."""

    name: str = "app"
    trace: Path | None = None
    format: str | None = Field(default=None, description="trace format; found out when absent")
    pattern: dict[str, Any] | None = Field(default=None, description="kind = …, and its parameters")
    placement: str = "block"
    placement_options: dict[str, Any] = Field(default_factory=dict)
    placement_file: Path | None = None
    ranks_per_host: int = Field(default=1, ge=1)
    hosts: str = Field(
        default="all", description="which hosts: all, 0-127,200, or parity-of-square:even"
    )
    observed: bool = Field(
        default=True, description="false: background whose packets we cannot see"
    )
    compute_scale: float = Field(default=1.0, ge=0, description="multiplies recorded compute time")
    repeat: int = Field(default=1, ge=1, description="how often the traffic is repeated")
    start: TimePs = 0

    @model_validator(mode="after")
    def _one_source(self) -> JobSection:
        if (self.trace is None) == (self.pattern is None):
            raise ValueError("give exactly one of trace or pattern")
        if self.pattern is not None and "kind" not in self.pattern:
            raise ValueError("pattern needs kind = …; see 'tailback list pattern'")
        return self


class EngineSection(Section):
    """How switches, cables, adapters and the MPI library behave."""

    packet: SizeBytes = 4096
    header: SizeBytes = Field(default=0, description="bytes a packet costs on the wire on top")
    buffer: SizeBytes = Field(default=65536, description="buffer at the far end of each link")
    buffering: Literal["input", "output"] = "input"
    switching: Literal["cut-through", "store-and-forward"] = "cut-through"
    switch_delay: TimePs = 60_000
    routing: Literal["adaptive", "random", "deterministic"] = "adaptive"
    injection: Literal["fifo", "round-robin"] = "fifo"
    send_delay: TimePs = Field(default=1_000_000, description="software latency before a message")
    eager: SizeBytes = Field(default=16384, description="larger messages wait for their receive")
    local_rate: RateGbps = Field(default=400.0, description="between ranks of one host")
    local_delay: TimePs = 500_000


class TelemetrySection(Section):
    """What packets carry and when a port counts as congested."""

    scheme: Literal["full", "off"] = "full"
    rule: Literal["queue-exceeds-credit", "queue", "credit", "proportional"] = (
        "queue-exceeds-credit"
    )
    rule_bytes: SizeBytes = Field(
        default=16384, description="threshold of queue, credit, proportional"
    )
    when: Literal["arrival", "insertion", "departure"] = "arrival"
    count_injection: bool = Field(default=False, description="count the injection link as a hop")
    windows: int = Field(default=64, ge=1, le=4096, description="at least so many time windows")
    messages: bool = Field(default=True, description="keep the message log")


class Scenario(Section):
    """Everything a run depends on."""

    name: str = "scenario"
    seed: int = Field(default=1, ge=0, lt=2**63)
    fabric: FabricSection
    job: list[JobSection] = Field(min_length=1)
    engine: EngineSection = Field(default_factory=EngineSection)
    telemetry: TelemetrySection = Field(default_factory=TelemetrySection)


def load(path: str | Path) -> Scenario:
    """Read a scenario file; paths in it are relative to the file.

    Raises:
        ScenarioError: It cannot be read, or a key, unit or value is wrong.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScenarioError(
            f"cannot read the scenario: {error.strerror}", file=path, remedy="check the path"
        ) from None
    except UnicodeDecodeError as error:
        raise ScenarioError(
            f"not a text file (byte {error.start})", file=path, remedy="a scenario is a TOML file"
        ) from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(
            f"not valid TOML: {error}", file=path, remedy="see docs/scenario.md for the form"
        ) from None
    scenario = parse(data, path)
    base = path.resolve().parent
    if scenario.fabric.file is not None:
        scenario.fabric.file = base / scenario.fabric.file
    for job in scenario.job:
        if job.trace is not None:
            job.trace = base / job.trace
        if job.placement_file is not None:
            job.placement_file = base / job.placement_file
    return scenario


def parse(data: dict[str, Any], file: str | Path | None = None) -> Scenario:
    """Validate scenario data; raises ScenarioError that names the key, value and remedy."""
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise _explain(dict(first), file) from None


def _explain(error: dict[str, Any], file: str | Path | None) -> ScenarioError:
    """Turn pydantic's first complaint into ours."""
    loc = [part for part in error["loc"] if not str(part).startswith("function-")]
    names = [str(part) for part in loc if not isinstance(part, int)]
    section = ".".join(names[:-1])
    place = f"[{section}] {names[-1]}" if section else (names[-1] if names else "top level")
    if error["type"] == "extra_forbidden":
        model = _model_at(names[:-1])
        return ScenarioError(
            f"unknown key {names[-1]!r}", file=file, place=place,
            remedy=nearest(names[-1], model.model_fields),
        )  # fmt: skip
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return ScenarioError("key is missing", file=file, place=place, remedy="add it")
    remedy = "see docs/scenario.md"
    if "; " in message:
        message, remedy = message.split("; ", 1)
    elif error["type"] != "value_error":
        message = f"{error['input']!r}: {message}"
    return ScenarioError(message, file=file, place=place, remedy=remedy)


def _model_at(names: list[str]) -> type[BaseModel]:
    model: type[BaseModel] = Scenario
    children: dict[str, type[BaseModel]] = {
        "fabric": FabricSection, "fat_tree": FatTree, "job": JobSection,
        "engine": EngineSection, "telemetry": TelemetrySection,
    }  # fmt: skip
    for name in names:
        model = children.get(name, model)
    return model
