"""``request.json``: what a diagnosis was asked for, so that anybody can repeat it.

It holds the scenario, the options and the SHA-256 of every input file that was read. Options that
do not change the result, such as threads and workers, are not in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from tailback.errors import RunError
from tailback.frozen_model import FrozenModel
from tailback.io.input_files import content, is_input_file
from tailback.io.manifest import MANIFEST, sha256_of
from tailback.run.run import Run
from tailback.scenario.model import Scenario
from tailback.sources.lab_case import LabCase
from tailback.sources.source import Source

REQUEST_FILE = "request.json"

FILES = ("counters", "jobs", "samples", "contexts", "fabric", "forwarding")
"""Options that name files; a fabric may also be a preset."""


class DiagnosisRequest(FrozenModel):
    """What a diagnosis was asked for.

    Attributes:
        folder: Working directory, to which relative paths refer.
        captures: Packet captures; empty for other sources.
        scenario: Keys of the scenario; empty for captures.
        case: Folder of ``tailback lab run`` that was the source, if any.
        notes: Notes on unused parts of the files that options name.
        options: Keywords of ``tb.diagnose`` that change the result.
        inputs: SHA-256 of each input file by its absolute path; None for a pipe.
    """

    folder: str
    captures: list[str] = Field(default_factory=list)
    scenario: dict[str, Any] = Field(default_factory=dict)
    case: str | None = None
    notes: list[str] = Field(default_factory=list)
    options: dict[str, Any]
    inputs: dict[str, str | None]

    @classmethod
    def of(
        cls, source: Source | list[Path], files: Iterable[Path], options: dict[str, Any]
    ) -> Self:
        """The request of a diagnosis that has read these files."""
        facts: dict[str, Any] = {
            "folder": str(Path.cwd()),
            "options": {
                key: _as_json(value, is_path=key in FILES)
                for key, value in options.items()
                if value not in (None, ())
            },
            "inputs": {
                str(path): _digest(path)
                for path in sorted(files)
                # A manifest checks inputs, and is none itself.
                if path.exists() and path.name != MANIFEST
            },
        }
        if isinstance(source, Source):
            facts["scenario"] = source.scenario.model_dump(mode="json", exclude_unset=True)
            facts["notes"] = list(source.notes)
            facts["case"] = None if source.case is None else str(source.case.trace.parent)
        else:
            facts["captures"] = [str(path.absolute()) for path in source]
        return cls(**facts)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The request in the folder of a diagnosis; raises RunError if it is damaged."""
        file = folder / REQUEST_FILE
        try:
            return cls.model_validate_json(content(file, RunError))
        except ValueError as error:
            raise RunError(
                f"damaged request: {str(error).splitlines()[0]}",
                file=file,
                remedy="diagnose again",
            ) from None

    def write(self, folder: Path) -> None:
        """Write ``request.json`` into a folder."""
        text = self.model_dump_json(indent=2, exclude_defaults=True)
        (folder / REQUEST_FILE).write_text(text + "\n", encoding="utf-8")

    @property
    def base(self) -> Path:
        """The folder that holds all inputs, directly or below."""
        return Path(os.path.commonpath([os.path.dirname(path) for path in self.inputs]))

    def at(self, inputs: Path | None) -> LocatedRequest:
        """The request with the paths at which its inputs are today.

        Args:
            inputs: Folder to which everything in :attr:`base` was moved; None if nothing was.
        """
        return LocatedRequest(self, None if inputs is None else inputs.absolute())


class LocatedRequest:
    """A request whose inputs may have been moved.

    Attributes:
        request: The request.
        inputs: Today's path of each input by its recorded one.
    """

    def __init__(self, request: DiagnosisRequest, folder: Path | None) -> None:
        self.request = request
        self._folder = folder
        self.inputs = {path: self._located(path) for path in request.inputs}
        self._recorded = dict[str, str]()

    def unusable(self) -> dict[str, str]:
        """Why inputs cannot be used, by their recorded path; empty if all can."""
        reasons = dict[str, str]()
        for path, digest in self.request.inputs.items():
            today = self.inputs[path]
            if digest is None:
                reasons[path] = "was a pipe, whose content is gone"
            elif not is_input_file(today):
                reasons[path] = "is gone"
            elif sha256_of(today) != digest:
                reasons[path] = "has changed: its SHA-256 is not the one of the diagnosis"
        return reasons

    @property
    def source(self) -> Source | list[str | Path]:
        """What to diagnose."""
        request = self.request
        if request.captures:
            return list(self._today(request.captures))
        scenario = Scenario.model_validate_json(json.dumps(self._today(request.scenario)))
        case = None if request.case is None else LabCase.of(self._today(request.case))
        return Source(scenario, case=case, notes=tuple(request.notes))

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of ``tb.diagnose``."""
        options: dict[str, Any] = self._today(self.request.options)
        return options

    def restore(self, run: Run) -> None:
        """State the recorded paths in the scenario of a run, as in the diagnosis."""
        stated = self._as_recorded(run.scenario.model_dump(mode="json", exclude_unset=True))
        run.scenario = Scenario.model_validate_json(json.dumps(stated))

    def restored(self, again: DiagnosisRequest) -> DiagnosisRequest:
        """The request of the repeated diagnosis, with the recorded paths.

        Files that it read beyond the recorded ones are among its inputs.
        """
        data = self._as_recorded(again.model_dump())
        names = {str(today): path for path, today in self.inputs.items()}
        data["folder"] = self.request.folder
        read = {names.get(path, path): digest for path, digest in again.inputs.items()}
        data["inputs"] = {**self.request.inputs, **read}
        return DiagnosisRequest(**data)

    def _as_recorded(self, data: Any) -> Any:
        return _with_strings(data, lambda text: self._recorded.get(text, text))

    def _located(self, path: str) -> Path:
        if self._folder is None:
            return Path(path)
        return self._folder / os.path.relpath(path, self.request.base)

    def _today(self, value: Any) -> Any:
        """A value with today's paths of inputs and of folders that hold them."""
        return _with_strings(value, self._path_today)

    def _path_today(self, text: str) -> str:
        recorded = os.path.normpath(os.path.join(self.request.folder, text))
        if not text or not _holds(recorded, self.request.inputs):
            return text
        today = str(self._located(recorded))
        if os.path.abspath(text) == today:
            return text
        self._recorded[today] = text
        return today


def _holds(path: str, inputs: Collection[str]) -> bool:
    """Whether a path is an input or a folder that holds one."""
    return any(name == path or name.startswith(f"{path}{os.sep}") for name in inputs)


def _digest(path: Path) -> str | None:
    return sha256_of(path) if path.is_file() else None


def _with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every string changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _with_strings(entry, change) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_strings(entry, change) for entry in value]
    return value


def _as_json(value: Any, *, is_path: bool) -> Any:
    """An option as JSON data; paths of existing files are absolute."""
    if isinstance(value, list | tuple):
        return [_as_json(entry, is_path=is_path) for entry in value]
    if is_path and os.path.exists(value):
        return os.path.abspath(value)
    return str(value) if isinstance(value, Path) else value
