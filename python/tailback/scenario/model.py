"""A scenario: one TOML file with everything that a run depends on.

Unknown keys are refused with the nearest valid one. Quantities carry their unit as text (``"128
KiB"``, ``"60 ns"``, ``"100 Gb/s"``). Every random choice follows from ``seed``.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from reprlib import repr as brief
from typing import Any, Literal

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from tailback.errors import (
    InvalidValueError,
    ScenarioError,
    as_toml,
    message_and_remedy,
    nearest,
    type_remedy,
)
from tailback.io.input_files import text_content
from tailback.scenario.engine import (
    AdaptiveSection,
    CongestionControlSection,
    DcqcnSection,
    EngineSection,
    FilePath,
    FlowControlSection,
    PacingSection,
    Section,
)
from tailback.scenario.header_schemes import MAX_SLOTS, SCHEMES, slots_problem
from tailback.scenario.quantities import LinkGbps, RateGbps, SizeBytes, TimePs
from tailback.scenario.value_ranges import range_problem


class FatTree(Section):
    """Shape of a fat tree of two or three levels.

    ``pods = 0`` makes a two-level tree: leaves and ``aggregation`` switches only.
    """

    hosts_per_leaf: int = Field(ge=1)
    leaves: int = Field(ge=1, description="leaves per pod (in total, for two levels)")
    aggregation: int = Field(
        ge=1, description="aggregation switches per pod (in total, for two levels)"
    )
    pods: int = Field(default=0, ge=0)
    cores: int = Field(default=0, ge=0)
    leaf_cables: int = Field(default=1, ge=1, description="cables from a leaf to each aggregation")
    aggregation_uplinks: int = Field(
        default=0, ge=0, description="up cables of an aggregation switch"
    )
    host_rate: LinkGbps = 100.0
    leaf_rate: LinkGbps = 100.0
    core_rate: LinkGbps = 100.0
    host_delay: TimePs = 0
    leaf_delay: TimePs = 0
    core_delay: TimePs = 0


class Degraded(Section):
    """A cable, or one direction of it, that is slower than the fabric states.

    Ports are named as in reports, without the arrow and what follows: `"leaf3[7]"` by number, or
    `"leaf3[swp7]"` where the fabric names its interfaces.
    """

    cable: str | None = Field(
        default=None,
        description='port at one end of a cable, `"leaf3[7]"`: both directions are slow',
    )
    link: str | None = Field(
        default=None, description="port of which only the outgoing direction is slow"
    )
    rate: RateGbps = Field(description="its actual rate")

    @model_validator(mode="after")
    def _one_place(self) -> Degraded:
        if (self.cable is None) == (self.link is None):
            raise InvalidValueError(
                "exactly one of cable or link is needed",
                "name the cable if both directions are slow, the link if one is",
            )
        return self


class InHost(Section):
    """Rate between the ranks of some hosts, where hosts differ.

    For example NVLink of another generation. Other hosts have `[engine] local_rate`.
    """

    hosts: str = Field(description='as `hosts` of a job: `"0-3"`, `"node[01-16]"`')
    rate: RateGbps = Field(
        description='rate between two ranks; with `local_sharing = "ports"`, of the port of each'
    )


class FabricSection(Section):
    """Where the network comes from: a preset, a shape or a file."""

    preset: str | None = None
    fat_tree: FatTree | None = None
    topology: dict[str, Any] | None = Field(
        default=None, description="kind = …, and its options: [topologies.md](topologies.md)"
    )
    routes: str | None = Field(
        default=None,
        description="routing rule of a topology; its default rule when absent: "
        "[topologies.md](topologies.md)",
    )
    file: FilePath | None = None
    format: str | None = None
    forwarding: FilePath | None = Field(
        default=None,
        description="forwarding tables of a fabric read from a file (dump_lfts, ibroute): a file "
        "or folder; up/down routes when absent",
    )
    cable_delay: TimePs | None = Field(default=None, description="delay of cables read from a file")
    cable_rate: LinkGbps | None = Field(
        default=None, description="rate of cables for which the file states none"
    )
    taper: float | None = Field(
        default=None,
        ge=1,
        allow_inf_nan=False,
        description="of files that do not count cables (Slurm): cables below a switch for each "
        "cable upwards; 1 when absent",
    )
    degraded: list[Degraded] = Field(
        default_factory=list, description="cables that carry less than the fabric states"
    )
    in_host: list[InHost] = Field(
        default_factory=list, description="hosts with their own rates between ranks"
    )

    @model_validator(mode="after")
    def _one_source(self) -> FabricSection:
        sources = (self.preset, self.fat_tree, self.topology, self.file)
        if sum(source is not None for source in sources) != 1:
            raise InvalidValueError(
                "exactly one of preset, fat_tree, topology or file is needed",
                'give one, like preset = "tapered"',
            )
        if self.forwarding is not None and self.file is None:
            raise InvalidValueError(
                "forwarding needs a file", "set file: the tables belong to a discovered fabric"
            )
        for name in ("format", "cable_delay", "cable_rate", "taper"):
            if getattr(self, name) is not None and self.file is None:
                raise InvalidValueError(f"{name} needs a file", f"set file, or leave {name} out")
        if self.routes is not None and self.topology is None:
            raise InvalidValueError(
                "routes needs a topology", "leave it out: other fabrics use up/down routes"
            )
        return self


class NcclSection(Section):
    """How NCCL runs the collectives of a job.

    Without a key, the recorded choice or that of NCCL's cost model applies:
    [traffic.md](traffic.md#collectives-of-nccl).
    """

    algorithm: Literal["ring", "tree"] | None = Field(
        default=None, description="algorithm of all-reduces; other collectives use rings"
    )
    protocol: Literal["simple", "ll", "ll128"] | None = Field(
        default=None, description="`ll` doubles the bytes with its flags, `ll128` adds 1/15"
    )
    channels: int | None = Field(
        default=None, ge=1, le=64, description="rings or trees that share the bytes"
    )
    trees: Literal["overlapping", "in-turn"] | None = Field(
        default=None, description="whether sums come down trees while others go up, or after all"
    )

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self if value is not None)


_RANKS = re.compile(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*")


class JobSection(Section):
    """One application: its traffic and where it runs."""

    name: str = "app"
    trace: FilePath | None = None
    format: str | None = Field(default=None, description="trace format; detected when absent")
    pattern: dict[str, Any] | None = Field(default=None, description="kind = …, and its parameters")
    placement: str = "block"
    placement_options: dict[str, Any] = Field(default_factory=dict)
    placement_file: FilePath | None = None
    ranks_per_host: int = Field(default=1, ge=1, le=65536)
    hosts: str = Field(
        default="all",
        description="which hosts: all, 0-127,200, node[001-016], or parity-of-square:even; with "
        "slots per host: node[001-016]:4",
    )
    observed: bool = Field(
        default=True, description="false: a background job whose packets are not sampled"
    )
    compute_scale: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="multiplies recorded compute time; if stated, the job is a forecast, whose "
        "times are not compared with recorded ones",
    )
    ranks: str | None = Field(
        default=None,
        description="run the traced program on so many ranks, or on a grid of them, x first: "
        '`"512"`, `"8x8x8"`; for stencils, rings and collectives of all ranks',
    )
    repeat: int = Field(
        default=1, ge=1, lt=1 << 31, description="how often the traffic is repeated"
    )
    service: int = Field(
        default=0, ge=0, le=7, description="service level, which selects virtual lanes"
    )
    start: TimePs = 0
    shared_hosts: bool = Field(default=False, description="its hosts may also run other jobs")
    nccl: NcclSection | None = Field(default=None, description="how NCCL runs its collectives")

    @field_validator("ranks")
    @classmethod
    def _number_or_grid(cls, ranks: str | None) -> str | None:
        if ranks is not None and _RANKS.fullmatch(ranks) is None:
            raise InvalidValueError(
                f"{ranks!r} is not a number or grid of ranks", "write it like 512 or 8x8x8"
            )
        return ranks

    @model_validator(mode="after")
    def _one_source(self) -> JobSection:
        if (self.trace is None) == (self.pattern is None):
            raise InvalidValueError(
                "exactly one of trace or pattern is needed",
                'give one, like pattern = { kind = "ring" }',
            )
        if self.pattern is not None and "kind" not in self.pattern:
            raise InvalidValueError("pattern needs kind = …", "see 'tailback list pattern'")
        for key in ("format", "ranks"):
            if getattr(self, key) is not None and self.trace is None:
                raise InvalidValueError(f"{key} needs a trace", f"set trace, or leave {key} out")
        return self


RESERVED_BITS = 6
"""Reserved bits of InfiniBand's base transport header, after FECN and BECN."""

OWN_FIELDS = ("csig", "entropy-ecn")
"""Schemes that do not use these bits: a tag of their own, or fields that packets have anyway."""


KNOWN_PATHS = ("ecmp", "spray", "deterministic")
"""Values of ``[engine] routing`` by which headers tell the path of a packet."""


STAMPED_IN_PART = ("full", "single-bit", "compact", "coordinated", "csig", "entropy-ecn")
"""Schemes that work if only some switches take part: the hops that act are known or counted, or
(csig, entropy-ecn) any of them may have acted."""


class TelemetrySection(Section):
    """What packets carry, and when a port counts as congested."""

    scheme: Literal[
        "full",
        "off",
        "single-bit",
        "compact",
        "coordinated",
        "xor-digest",
        "csig",
        "entropy-ecn",
        "node-marking",
        "edge-marking",
    ] = "full"
    rule: Literal["queue-exceeds-credit", "queue", "credit", "proportional", "fecn"] = (
        "queue-exceeds-credit"
    )
    rule_bytes: SizeBytes = Field(
        default=16384, description="threshold of queue, credit, proportional"
    )
    when: Literal["arrival", "insertion", "departure"] = "arrival"
    count_injection: bool = Field(default=False, description="count the injection link as a hop")
    windows: int = Field(default=64, ge=1, le=4096, description="minimum number of time windows")
    messages: bool = Field(default=True, description="keep the message log")
    hash_bits: int = Field(default=1, ge=1, le=8, description="bits of a link's hash")
    count_bits: int = Field(
        default=4,
        ge=1,
        le=16,
        description="bits of a count of hops, at most 8; of decisions with randomness `sender`, "
        "at most 16",
    )
    slots: int = Field(
        default=1,
        ge=1,
        le=MAX_SLOTS,
        description="slots of a reservoir, each for one hop; for scheme full, single-bit, "
        "compact or coordinated",
    )
    probability: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="probability that a switch acts, below 1, for schemes that have one",
    )
    packets: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000_000,
        description="maximum number of packets to keep (table `packets`): beyond it, one in k "
        "carries a sample; default: none with scheme `full`, else ten million",
    )
    one_in: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="one in this many packets carries a sample, with any scheme",
    )
    queue_pairs: Literal["per-peer", "shared"] = "per-peer"
    psn_start: Literal["zero", "random"] = "zero"
    randomness: Literal["ideal", "lfsr", "ring", "sender"] = Field(
        default="ideal",
        description="what decides in a switch with scheme compact or single-bit: independent "
        "random numbers, a shift register in every port, rings with their own "
        "clock, or bits from the sending adapter",
    )
    path_hash: Literal["simulated", "crc32", "linux"] = Field(
        default="simulated",
        description="hash of switches, for scheme entropy-ecn",
    )
    receivers: bool = Field(
        default=False,
        description="keep the samples of each receiving node apart (column `receiver` of table "
        "`samples`)",
    )
    header_loss: float = Field(
        default=0.0, ge=0, lt=1, description="share of packets whose sample is lost in the network"
    )
    stamping: Literal["all", "leaf"] | list[str] = Field(
        default="all",
        description="switches that put samples into packets: `all`, those with nodes (`leaf`), "
        "or a list of names; not for every scheme",
    )
    charge_header: bool = Field(
        default=False,
        description="make every packet longer by the bytes of the scheme's header; up to six "
        "bits are free",
    )

    @model_validator(mode="after")
    def _something_kept(self) -> TelemetrySection:
        if not (self.summed_on_arrival or self.scheme == "off") and self.packets == 0:
            slots = f" with {self.slots} slots" if self.slots > 1 else ""
            raise InvalidValueError(
                f"scheme {self.scheme}{slots} needs individual packets", "set packets above 0"
            )
        if self.stamping != "all" and self.scheme not in (*STAMPED_IN_PART, "off"):
            raise InvalidValueError(
                f"scheme {self.scheme} needs a sample from every switch",
                f"with stamping other than all, use {', '.join(STAMPED_IN_PART)}",
            )
        if self.stamping != "all" and self.count_injection:
            raise InvalidValueError(
                "count_injection needs samples from every switch", 'set stamping = "all"'
            )
        if self.randomness != "ideal" and self.scheme not in ("compact", "single-bit"):
            raise InvalidValueError(
                f"scheme {self.scheme} makes no random decision by a circuit of the port",
                "with randomness other than ideal, use compact or single-bit",
            )
        if self.stamping == []:
            raise InvalidValueError("stamping names no switch", "name some, or set scheme = off")
        return self

    @model_validator(mode="after")
    def _decisions(self) -> TelemetrySection:
        sender = self.randomness == "sender"
        if self.count_bits > 8 and not sender:
            raise InvalidValueError(
                f"count_bits = {self.count_bits} is more than a count of hops needs",
                'give 1 to 8, or set randomness = "sender"',
            )
        if sender and self.count_bits < 2:
            raise InvalidValueError(
                "count_bits = 1 has no room for a decision of the sender", "give 2 to 16"
            )
        problem = slots_problem(self)
        if problem is not None:
            raise InvalidValueError(
                f"slots = {self.slots} does not go with {problem[0]}", problem[1]
            )
        return self

    @property
    def summed_on_arrival(self) -> bool:
        """Whether the engine adds up samples as packets arrive: whole links in one slot.

        Other samples are decoded from table ``packets``.
        """
        return self.scheme == "full" and self.slots == 1

    @property
    def header_bits(self) -> int:
        """Bits that the scheme takes in the header of a packet; 0 for ``off``."""
        return SCHEMES[self.scheme](self)

    @property
    def header_bytes(self) -> int:
        """Bytes that the header adds to every packet on the wire."""
        free = not self.charge_header or self.header_bits <= RESERVED_BITS
        return 0 if free else -(-self.header_bits // 8)


class ProbesSection(Section):
    """Additional recordings, all off by default; a probe never changes a run."""

    counters: TimePs | None = Field(
        default=None, gt=0, description="time between two readings of all port counters"
    )
    queues: TimePs | None = Field(
        default=None, gt=0, description="time between two readings of all queues"
    )


class Scenario(Section):
    """Everything a run depends on."""

    name: str = "scenario"
    seed: int = Field(default=1, ge=0, lt=2**63)
    fabric: FabricSection
    job: list[JobSection] = Field(min_length=1)
    engine: EngineSection = Field(default_factory=EngineSection)
    telemetry: TelemetrySection = Field(default_factory=TelemetrySection)
    probes: ProbesSection = Field(default_factory=ProbesSection)

    @property
    def draws_others(self) -> bool:
        """Whether jobs that are not observed run patterns that may be drawn anew."""
        return any(
            job.pattern is not None and job.pattern.get("kind") != "timed" and not job.observed
            for job in self.job
        )

    @property
    def path_seed(self) -> int:
        """Seed of the hash that switches choose paths by, where headers tell the paths."""
        return self.seed if self.engine.path_seed is None else self.engine.path_seed

    @property
    def packet_header_bytes(self) -> int:
        """Bytes of a packet on the wire besides its payload."""
        return self.engine.header + self.telemetry.header_bytes

    @model_validator(mode="after")
    def _fecn(self) -> Scenario:
        if self.telemetry.rule == "fecn" and self.engine.congestion_control is None:
            raise InvalidValueError(
                'telemetry rule "fecn" needs congestion control, which sets FECN',
                "add [engine.congestion_control], or choose another rule",
            )
        return self

    @model_validator(mode="after")
    def _known_paths(self) -> Scenario:
        fixed = self.engine.routing in KNOWN_PATHS or self.fabric.forwarding is not None
        if self.telemetry.scheme == "entropy-ecn" and not fixed:
            raise InvalidValueError(
                f"scheme entropy-ecn needs paths that headers tell, and engine.routing = "
                f"{self.engine.routing!r} does not take them",
                f"set engine.routing to one of {', '.join(KNOWN_PATHS)}",
            )
        if self.telemetry.scheme == "entropy-ecn" and self.telemetry.one_in != 1:
            raise InvalidValueError(
                f"scheme entropy-ecn reads every header, not one in {self.telemetry.one_in}",
                "leave out telemetry.one_in",
            )
        return self

    @model_validator(mode="after")
    def _skipping(self) -> Scenario:
        if not self.engine.skip_repeats:
            return self
        telemetry, probes = self.telemetry, self.probes
        for unfit, what, remedy in (
            (
                telemetry.scheme not in ("full", "off"),
                f"scheme {telemetry.scheme}",
                'set [telemetry] scheme = "full"',
            ),
            (telemetry.slots > 1, "[telemetry] slots above 1", "leave slots out"),
            (bool(telemetry.packets), "[telemetry] packets", "leave packets out"),
            (probes.counters or probes.queues, "[probes]", "leave [probes] out"),
            (self.engine.pacing.kind != "off", "[engine.pacing]", 'set pacing kind = "off"'),
        ):
            if unfit:
                raise InvalidValueError(
                    f"engine.skip_repeats does not go with {what}, which records or paces every "
                    "packet",
                    f"{remedy}, or set skip_repeats = false",
                )
        return self

    @model_validator(mode="after")
    def _services(self) -> Scenario:
        for job in self.job:
            if job.service >= self.engine.services:
                raise InvalidValueError(
                    f"job {job.name!r} uses service {job.service}",
                    f"set engine.services = {job.service + 1} or more",
                )
        return self


def load(path: str | Path, *, needs_job: bool = True) -> Scenario:
    """Read a scenario file. Paths in it are relative to the file.

    Without ``needs_job``, a file that describes only a network gets a job without meaning.

    Raises:
        ScenarioError: It cannot be read, or a key, unit or value is wrong.
    """
    path = Path(path)
    text = text_content(path, ScenarioError)
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # Also numbers of thousands of digits, and thousands of nested brackets.
        raise ScenarioError(
            f"not valid TOML: {error}",
            file=path,
            remedy="see docs/reference/scenario.md, or begin with one of examples/",
        ) from None
    scenario = parse(data if needs_job else {"job": [{"trace": "."}], **data}, path)
    base = path.resolve().parent
    if scenario.fabric.file is not None:
        scenario.fabric.file = base / scenario.fabric.file
    if scenario.fabric.forwarding is not None:
        scenario.fabric.forwarding = base / scenario.fabric.forwarding
    if scenario.engine.pacing.rates_file is not None:
        scenario.engine.pacing.rates_file = base / scenario.engine.pacing.rates_file
    for job in scenario.job:
        if job.trace is not None:
            job.trace = base / job.trace
        if job.placement_file is not None:
            job.placement_file = base / job.placement_file
        if job.pattern is not None and isinstance(job.pattern.get("file"), str):
            job.pattern["file"] = str(base / job.pattern["file"])
    return scenario


def parse(data: dict[str, Any], file: str | Path | None = None) -> Scenario:
    """Validate scenario data; raises ScenarioError that names the key, value and remedy."""
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        # An unknown key first: it is often a misspelling of one that is missing.
        first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        located = explained(dict(first), file, data)
        table = _numbered_table(first["loc"], data)
        if table:
            located.place = f"{table}: {located.place}"
        raise located from None


def _numbered_table(loc: tuple[int | str, ...], data: Any) -> str:
    """The table that an error is in, if there are several of its name: ``job 2 of 3``."""
    name = ""
    for part in loc:
        if isinstance(part, int) and isinstance(data, list):
            if len(data) > 1 and isinstance(data[part], dict):
                return f"{name} {part + 1} of {len(data)}"
            data = data[part]
        elif isinstance(data, dict) and part in data:
            name, data = str(part), data[part]
        else:
            break
    return ""


_TABLES = {
    "job": "write [[job]] in two brackets above its keys: there may be several",
    "degraded": "write [[fabric.degraded]] in two brackets above its keys: there may be several",
    "in_host": "write [[fabric.in_host]] in two brackets above its keys: there may be several",
    "fabric": 'write [fabric] and below it preset = "tapered", file = … or another source',
    "pattern": 'name its kind and options: pattern = { kind = "ring", … }',
    "topology": 'name its kind and options: topology = { kind = "torus", … }',
}
"""How to write a table that was given as something else."""


def explained(error: dict[str, Any], file: str | Path | None, data: Any) -> ScenarioError:
    """Turn one error of pydantic about ``data`` into a :class:`ScenarioError`."""
    loc = [part for part in error["loc"] if not str(part).startswith("function-")]
    names = [str(part) for part in loc if not isinstance(part, int)]
    section = ".".join(names[:-1])
    place = f"[{section}] {names[-1]}" if section else (names[-1] if names else "top level")
    if error["type"] == "extra_forbidden":
        model = _model_at(names[:-1])
        return ScenarioError(
            f"unknown key {names[-1]!r}",
            file=file,
            place=place,
            remedy=nearest(names[-1], model.model_fields),
        )
    message, remedy_of_error = message_and_remedy(error)
    if error["type"] == "value_error" and names and names[-1] in TABLE_MODELS:
        place = f"[{'.'.join(names)}]"
    if error["type"] == "missing":
        about = _TABLES.get(names[-1]) or _model_at(names[:-1]).model_fields[names[-1]].description
        remedy = f"add it: {about}" if about else "add it"
        return ScenarioError("key is missing", file=file, place=place, remedy=remedy)
    field = _model_at(names[:-1]).model_fields.get(names[-1]) if names else None
    if field is not None:
        problem = range_problem(error, field, _value_at(loc, data, error["input"]))
        if problem is not None:
            return ScenarioError(problem[0], file=file, place=place, remedy=problem[1])
    remedy = remedy_of_error or type_remedy(error["type"]) or "see docs/reference/scenario.md"
    table = error["type"] in ("model_type", "dict_type")
    if table or (error["type"] == "list_type" and names[-1] in _TABLES):
        form = "a table" if table else "a list of tables"
        message = f"{brief(error['input'])} is not {form}"
        remedy = _TABLES.get(names[-1], f"write [{'.'.join(names)}] and its keys below it")
    elif error["type"] != "value_error":
        message = f"{as_toml(error['input'])}: {message}"
    return ScenarioError(message, file=file, place=place, remedy=remedy)


def _value_at(loc: list[Any], data: Any, default: object) -> object:
    """The value at a place of the scenario as the user wrote it; ``default`` if it is not there."""
    for part in loc:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return default
    return data


TABLE_MODELS: dict[str, type[Section]] = {
    "fabric": FabricSection,
    "fat_tree": FatTree,
    "degraded": Degraded,
    "in_host": InHost,
    "job": JobSection,
    "engine": EngineSection,
    "telemetry": TelemetrySection,
    "probes": ProbesSection,
    "congestion_control": CongestionControlSection,
    "pacing": PacingSection,
    "dcqcn": DcqcnSection,
    "flow_control": FlowControlSection,
    "adaptive": AdaptiveSection,
    "nccl": NcclSection,
}
"""The tables of a scenario by name."""


def _model_at(names: list[str]) -> type[BaseModel]:
    model: type[BaseModel] = Scenario
    for name in names:
        model = TABLE_MODELS.get(name, model)
    return model


def field_value(model: type[Section], name: str, value: object) -> object:
    """A value for one field of a table, as a scenario file may state it.

    Args:
        model: The table.
        name: The field.
        value: The value as in a file, or a number in the unit of the field.

    Returns:
        The validated value.

    Raises:
        ScenarioError: There is no such field, or the value is invalid.
    """
    place = _place_of(model)
    if name not in model.model_fields:
        loc = (*place, name)
        raise explained({"type": "extra_forbidden", "loc": loc}, None, None)
    alone = _single_field(model, name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = alone.model_construct(None, **{name: value}).model_dump(mode="json")[name]
    try:
        return getattr(alone.model_validate({name: value}), name)
    except ValidationError as error:
        first = error.errors()[0]
        raise explained({**first, "loc": (*place, *first["loc"])}, None, None) from None


@cache
def _single_field(model: type[Section], name: str) -> type[Section]:
    """A table with one field of another: what its fields require of each other is left out."""
    field = model.model_fields[name]
    alone: dict[str, Any] = {name: (field.annotation, field)}
    return create_model(model.__name__, __base__=Section, **alone)


@cache
def _place_of(model: type[Section]) -> tuple[str, ...]:
    """Names of the tables down to one: ``("engine", "pacing")``; none for the scenario."""
    for name, table in TABLE_MODELS.items():
        if table is model:
            tables: list[type[Section]] = [Scenario, *TABLE_MODELS.values()]
            parent = next(other for other in tables if name in other.model_fields)
            return (*_place_of(parent), name)
    return ()


# Explaining the error of one field needs the whole scenario.
Section.reads_field = staticmethod(field_value)
