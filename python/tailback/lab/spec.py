"""The specification of a lab: a TOML file with the shape of the fabric and where ranks run."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tailback.errors import (
    InvalidValueError,
    TailbackError,
    as_toml,
    message_and_remedy,
    nearest,
    type_remedy,
)
from tailback.io.input_files import text_content
from tailback.scenario.quantities import LinkGbps, SizeBytes

HOW_TO = "see docs/reference/lab.md"


class LabError(TailbackError):
    """A lab that cannot be set up, run or taken down."""


class _SpecSection(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FabricSpec(_SpecSection):
    """A leaf–spine fabric: every leaf has one cable to every spine."""

    leaves: int = Field(default=4, ge=1, le=10)
    spines: int = Field(default=2, ge=1, le=10)
    hosts_per_leaf: int = Field(default=3, ge=1, le=10)
    host_rate: LinkGbps = 0.05
    spine_rate: LinkGbps = 0.04
    burst: SizeBytes = 6000
    queue: SizeBytes = 400_000
    congested: SizeBytes | None = None
    rule: Literal["queue", "ecn"] = "queue"
    ip: Literal[4, 6] = 4
    ecmp_seed: int = Field(default=1, ge=1, lt=2**31)

    @property
    def congested_bytes(self) -> int:
        """A port with more bytes than this in its queue is congested: by default a tenth of it."""
        return self.queue // 10 if self.congested is None else self.congested

    @model_validator(mode="after")
    def _bucket_holds_a_packet(self) -> FabricSpec:
        if self.burst < 1600 or self.queue < self.burst:
            raise InvalidValueError(
                "a token bucket needs room for one packet",
                "set burst to 1600 B or more, and queue to no less than burst",
            )
        return self


class JobSpec(_SpecSection):
    """Where the ranks run: rank r on ``hosts[r // ranks_per_host]``."""

    hosts: list[str] = Field(min_length=1)
    ranks_per_host: int = Field(default=1, ge=1, le=64)


class LabSpec(_SpecSection):
    """A whole specification."""

    name: str = Field(default="tblab", pattern=r"^[a-z][a-z0-9]{0,15}$")
    fabric: FabricSpec = FabricSpec()
    job: JobSpec

    @model_validator(mode="after")
    def _hosts_exist(self) -> LabSpec:
        names = self.host_names()
        for host in self.job.hosts:
            if host not in names:
                raise InvalidValueError(
                    f"[job] hosts: there is no host {host!r}", f"{nearest(host, names)}"
                )
            if self.job.hosts.count(host) > 1:
                raise InvalidValueError(
                    f"[job] hosts: {host!r} is listed twice",
                    "list each host once and set ranks_per_host",
                )
        return self

    def host_names(self) -> list[str]:
        """All hosts: ``h`` and the numbers of the leaf and of the host on it."""
        shape = self.fabric
        return [
            f"h{leaf}{host}" for leaf in range(shape.leaves) for host in range(shape.hosts_per_leaf)
        ]


def load(path: Path) -> LabSpec:
    """Read a specification.

    Raises:
        LabError: It cannot be read, or a key or value is wrong.
    """
    try:
        data = tomllib.loads(text_content(path, LabError))
    except (ValueError, RecursionError) as error:
        raise LabError(f"not valid TOML: {error}", file=path, remedy=HOW_TO) from None
    return parse(data, path)


def parse(data: dict[str, Any], file: Path | None = None) -> LabSpec:
    """Check a specification; raises LabError that names the key, the value and the remedy."""
    try:
        return LabSpec.model_validate(data)
    except ValidationError as error:
        # An unknown key first: it is often a misspelt one that is then missing.
        first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
        raise _explain(dict(first), file) from None


def _explain(error: dict[str, Any], file: Path | None) -> LabError:
    names = [str(part) for part in error["loc"] if not isinstance(part, int)]
    place = f"[{names[0]}] {names[1]}" if len(names) > 1 else "".join(names) or None
    message, remedy = message_and_remedy(error)
    if error["type"] == "extra_forbidden":
        sections: dict[str, type[BaseModel]] = {"fabric": FabricSpec, "job": JobSpec}
        model = sections[names[0]] if len(names) > 1 else LabSpec
        return LabError(
            f"unknown key {names[-1]!r}",
            file=file,
            place=place,
            remedy=nearest(names[-1], model.model_fields),
        )
    if error["type"] == "missing":
        return LabError("key is missing", file=file, place=place, remedy=f"add it; {HOW_TO}")
    if remedy is not None:
        return LabError(message, file=file, place=place, remedy=remedy)
    return LabError(
        f"{as_toml(error['input'])}: {message}",
        file=file,
        place=place,
        remedy=type_remedy(str(error["type"])) or HOW_TO,
    )
