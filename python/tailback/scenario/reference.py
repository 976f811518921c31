"""The reference of a scenario's keys, ``docs/reference/scenario.md``, generated from the models."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from tailback.scenario.engine import (
    AdaptiveSection,
    CongestionControlSection,
    DcqcnSection,
    EngineSection,
    FlowControlSection,
    PacingSection,
    parse_coarse,
)
from tailback.scenario.model import (
    Degraded,
    FabricSection,
    FatTree,
    InHost,
    JobSection,
    NcclSection,
    ProbesSection,
    Scenario,
    TelemetrySection,
)
from tailback.units import parse_bytes, parse_gbps, parse_time_ps


def markdown() -> str:
    """The reference of every key, for ``docs/reference/scenario.md``."""
    sections: list[tuple[str, type[BaseModel]]] = [
        ("top level", Scenario),
        ("[fabric]", FabricSection),
        ("[fabric.fat_tree]", FatTree),
        ("[[fabric.degraded]]", Degraded),
        ("[[fabric.in_host]]", InHost),
        ("[[job]]", JobSection),
        ("[job.nccl]", NcclSection),
        ("[engine]", EngineSection),
        ("[engine.adaptive]", AdaptiveSection),
        ("[engine.congestion_control]", CongestionControlSection),
        ("[engine.dcqcn]", DcqcnSection),
        ("[engine.flow_control]", FlowControlSection),
        ("[engine.pacing]", PacingSection),
        ("[telemetry]", TelemetrySection),
        ("[probes]", ProbesSection),
    ]
    lines = ["# Scenarios", "", *_INTRODUCTION.splitlines(), ""]
    for title, model in sections:
        about = cleandoc(model.__doc__ or "").replace("``", "`")
        lines += [f"## {title}", "", about, "", "| key | default | values | meaning |"]
        lines.append("|---|---|---|---|")
        defaults = _defaults(model)
        sections_within = {title.strip("[]").rpartition(".")[2] for title, _ in sections}
        for name, field in model.model_fields.items():
            if name in sections_within:
                continue
            default = "required" if field.is_required() else _default(defaults.get(name))
            meaning = field.description or MEANING.get((model.__name__, name), "")
            lines.append(f"| `{name}` | {default} | {_values(field)} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Defaults as a file would state them, with their units."""
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in model.model_fields.items()
        if not field.is_required()
    }
    return model.model_construct(**defaults).model_dump(
        mode="json", exclude_unset=False, warnings=False
    )


def _default(value: object) -> str:
    if value is None or value == {}:
        return "–"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _values(field: FieldInfo) -> str:
    """The type of a value, or its choices."""
    if "list[" in str(field.annotation):
        return _list_values(str(field.annotation), get_args(field.annotation))
    parsers = {
        parse_time_ps: "time",
        parse_bytes: "size",
        parse_gbps: "rate",
        parse_coarse: "size, or `auto`",
    }
    for part in (*field.metadata, *(a for t in get_args(field.annotation) for a in get_args(t))):
        if isinstance(part, BeforeValidator) and part.func in parsers:
            return parsers[part.func]
    for annotation in (field.annotation, *get_args(field.annotation)):
        if get_origin(annotation) is Literal:
            return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    text = str(getattr(field.annotation, "__name__", field.annotation))
    names = {
        "str": "text",
        "int": "number",
        "float": "number",
        "bool": "true, false",
        "int | None": "number",
        "float | None": "number",
    }
    for kind in ("dict", "Path", "str"):
        if kind in str(field.annotation):
            return {"dict": "table", "Path": "path", "str": "text"}[kind]
    return names.get(text, text)


def _list_values(annotation: str, parts: tuple[object, ...]) -> str:
    """Words accepted in place of a list, then the type of its items."""
    items = (
        "sizes" if "_bytes" in annotation else "names" if "list[str]" in annotation else "numbers"
    )
    words = [
        f"`{word}`" for part in parts if get_origin(part) is Literal for word in get_args(part)
    ]
    return ", ".join([*words, f"list of {items}"])


_INTRODUCTION = """A scenario is one TOML file with everything that a run depends on.
Generated from `python/tailback/scenario/model.py` by `python -m tailback.scenario.reference`.

```toml
name = "mine"
seed = 1

[fabric]
preset = "tapered"            # or file = "fabric.txt", or [fabric.fat_tree]

[[job]]
trace = "app_trace"           # or [job.pattern] kind = "stencil2d", …
placement = "block"

[engine]
buffer = "64 KiB"
```

Times, sizes and rates are text with a unit: `"60 ns"`, `"128 KiB"`, `"100 Gb/s"` (`Gb/s` is bits,
`GB/s` bytes; `kB` … `PB` are powers of 1000, `KiB` … `PiB` of 1024). Sizes are whole bytes and
times whole picoseconds: `"0.5 B"` is refused. Numbers and `true` are written without quotes. Paths
are relative to the file. For an unknown key, the error names the nearest valid one.
Patterns and their options: [traffic.md](traffic.md); placements: [placement.md](placement.md)."""

MEANING = {
    ("Scenario", "name"): "name of the run",
    ("Scenario", "seed"): "seed of every random choice",
    ("FabricSection", "preset"): "a network by name: `tailback list fabric`",
    ("FabricSection", "file"): "a file that describes the fabric: [fabrics.md](fabrics.md)",
    ("FabricSection", "format"): "its format; detected when absent",
    ("FatTree", "hosts_per_leaf"): "hosts on each leaf",
    ("FatTree", "pods"): "pods; 0 for a tree of two levels",
    ("FatTree", "cores"): "core switches, 0 for two levels",
    ("FatTree", "host_rate"): "rate of host cables",
    ("FatTree", "leaf_rate"): "rate of cables between leaves and aggregation",
    ("FatTree", "core_rate"): "rate of cables between aggregation and cores",
    ("FatTree", "host_delay"): "delay of host cables",
    ("FatTree", "leaf_delay"): "delay of cables between leaves and aggregation",
    ("FatTree", "core_delay"): "delay of cables between aggregation and cores",
    ("JobSection", "name"): "name of the job",
    ("JobSection", "trace"): "trace in any format of `tailback list reader`",
    ("JobSection", "placement"): "placement of the ranks on nodes: `tailback list placement`",
    ("JobSection", "placement_options"): "options of the placement",
    ("JobSection", "placement_file"): "a rank file or host list, instead of `placement`",
    ("JobSection", "ranks_per_host"): "slots of each host for which `hosts` gives no number",
    ("JobSection", "start"): "when the job starts; its elapsed time counts from then",
    ("EngineSection", "packet"): "payload of a full packet",
    ("EngineSection", "buffering"): "when buffer space is released: "
    "[engine.md](../explanation/engine.md)",
    ("EngineSection", "switching"): "when a packet may leave a switch it is still entering",
    ("EngineSection", "switch_delay"): "latency of a switch without contention, head to head",
    ("EngineSection", "routing"): "choice among the candidates of a route: by load, at random for "
    "each packet, by a hash of the flow (ecmp) or of each packet (spray), by destination, or "
    "by the first packet of a message",
    ("EngineSection", "injection"): "how an adapter shares its link between messages",
    ("EngineSection", "local_delay"): "latency between ranks of one host",
    ("TelemetrySection", "scheme"): "what packets carry",
    ("TelemetrySection", "rule"): "when a port counts as congested: "
    "[engine.md](../explanation/engine.md); `fecn` where the switch would set FECN",
    ("TelemetrySection", "when"): "when the port is evaluated",
    ("TelemetrySection", "queue_pairs"): "one queue pair per pair of ranks (RC), or one for "
    "everything a rank sends (UD); each counts its own packets",
    ("TelemetrySection", "psn_start"): "first packet sequence number of a queue pair",
}


if __name__ == "__main__":
    print(markdown(), end="")
