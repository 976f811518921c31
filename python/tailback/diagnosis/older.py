"""Reads ``diagnosis.json`` of this and older versions."""

from __future__ import annotations

import json
from typing import Any

from tailback.diagnosis.model import LABELS, Diagnosis, Status

NOTE = "written by an older version: fields that were renamed since were read by their old names"


def read_diagnosis(content: bytes) -> Diagnosis:
    """Return the diagnosis in a file, with a warning if an older version wrote it.

    Raises:
        ValueError: The content is not a valid diagnosis.
    """
    data = json.loads(content)
    if isinstance(data, dict) and "margin" in data:
        del data["margin"]
        data["basis"] = str(data.get("basis", "samples")).removesuffix(", at rest")
    remedy = data.get("remedy") if isinstance(data, dict) else None
    if isinstance(remedy, dict) and "cure" in remedy:
        try:
            data["remedy"] = _remedy(remedy)
            data["warnings"] = [*data["warnings"], NOTE]
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"damaged remedy: {error!r}") from None
    return Diagnosis.model_validate_json(json.dumps(data))


def _remedy(old: dict[str, Any]) -> dict[str, Any]:
    """A remedy whose name was in ``cure`` and contained its parts."""
    new = {key: value for key, value in old.items() if key != "cure"}
    new["candidates"] = [_candidate(candidate) for candidate in old.get("candidates", [])]
    new["name"] = name = str(old["cure"])
    parts = {candidate["name"]: candidate.get("parts") for candidate in new["candidates"]}
    new["parts"] = (parts.get(name) or [name]) if name else []
    return new


def _candidate(old: dict[str, Any]) -> dict[str, Any]:
    """A candidate whose ``error`` began with its status and whose name contained its parts."""
    new = {key: value for key, value in old.items() if key != "error"}
    if old.get("kind") == "combined":
        new["parts"] = str(old["name"]).split(" + ")
    error = str(old.get("error", ""))
    if not error:
        return new
    for status, label in LABELS.items():
        if error.startswith(f"{label}: "):
            return {**new, "status": status.value, "reason": error.removeprefix(f"{label}: ")}
    return {**new, "status": Status.FAILED.value, "reason": error}
