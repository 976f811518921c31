"""``request.json``: what a diagnosis was asked for, so that anybody can repeat it.

It holds the scenario, the options and the SHA-256 of every input file that was read. Options that
do not change the result, such as threads and workers, are not in it. A diagnosis that is asked for
again, of the same inputs and by the same program, is kept (:func:`why_outdated`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from tailback.errors import RunError
from tailback.frozen_model import FrozenModel
from tailback.io.input_files import content, is_input_file
from tailback.io.manifest import MANIFEST, read_manifest, sha256_of
from tailback.run.run import Run
from tailback.scenario.model import Scenario
from tailback.sources.lab_case import LabCase
from tailback.sources.source import Source
from tailback.version import program_sha256, version

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
        listings: SHA-256 of the names in each folder that it names, by its absolute path.
        program: SHA-256 of the program's files.
    """

    folder: str
    captures: list[str] = Field(default_factory=list)
    scenario: dict[str, Any] = Field(default_factory=dict)
    case: str | None = None
    notes: list[str] = Field(default_factory=list)
    options: dict[str, Any]
    inputs: dict[str, str | None]
    listings: dict[str, str] = Field(default_factory=dict)
    program: str = ""

    @classmethod
    def of(
        cls, source: Source | list[Path], files: Iterable[Path], options: dict[str, Any]
    ) -> Self:
        """The request of a diagnosis that has read these files."""
        facts: dict[str, Any] = {
            "folder": str(Path.cwd()),
            "program": program_sha256(),
            "options": {
                key: _as_json(value, is_path=key in FILES)
                for key, value in options.items()
                if value is not None and value != () and value != []
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
        request = cls(**facts)
        listings = {folder: _listing(Path(folder)) for folder in sorted(request._folders())}
        return request.model_copy(update={"listings": listings})

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

    def _folders(self) -> set[str]:
        """Folders that it names, in which every file may be an input."""
        named = list[str]()

        def note(text: str) -> str:
            named.append(os.path.normpath(os.path.join(self.folder, text)))
            return text

        _with_strings([self.scenario, self.case, self.captures, self.options], note)
        return {path for path in named if os.path.isdir(path)}

    def _question(self, inputs: Collection[str]) -> list[Any]:
        """What is asked, with the real paths of inputs and of folders that hold them."""
        real = {os.path.realpath(path) for path in inputs}

        def resolved(text: str) -> str:
            path = os.path.realpath(os.path.join(self.folder, text))
            return path if text and _holds(path, real) else text

        asked = [self.scenario, self.case, self.captures, self.options, self.notes]
        return [_with_strings(each, resolved) for each in asked]

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
        stated = self._as_recorded(run.scenario.model_dump(mode="json"))
        run.scenario = Scenario.model_validate_json(json.dumps(stated))

    def restored(self, again: DiagnosisRequest) -> DiagnosisRequest:
        """The request of the repeated diagnosis, with the recorded paths.

        Files that it read beyond the recorded ones are among its inputs.
        """
        data = self._as_recorded(again.model_dump())
        names = {str(today): path for path, today in self.inputs.items()}
        # Neither is a result.
        data["listings"], data["program"] = self.request.listings, self.request.program
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


def why_outdated(folder: Path, asked: DiagnosisRequest) -> str:
    """Why the diagnosis in a folder is not the one that is asked for now; empty if it is.

    Args:
        folder: A folder that ``tailback diagnose`` wrote.
        asked: What is asked for, without inputs.

    Raises:
        RunError: Its manifest or its request is damaged.
    """
    made = read_manifest(folder)
    if made.version != version():
        return f"Tailback {made.version} made it, and this is {version()}"
    for name, fault in made.faults().items():
        return f"its {name} {fault}"
    if not (folder / REQUEST_FILE).is_file():
        return "does not say what it was made from"
    request = DiagnosisRequest.read(folder)
    if request.program != asked.program:
        return "another build of Tailback made it"
    inputs = request.inputs
    if request._question(inputs) != asked._question(inputs):
        return "it is of another source or has other options"
    if any("budget" in each.options for each in (request, asked)):
        return "what fits into a time budget differs from run to run"
    changed = request.at(None).unusable()
    if changed:
        path, reason = next(iter(changed.items()))
        return f"its input {path!r} {reason}"
    if _by_real_path(request.listings) != _by_real_path(asked.listings):
        return "files were added to its inputs, or removed"
    return ""


def _by_real_path(listings: dict[str, str]) -> dict[str, str]:
    return {os.path.realpath(folder): digest for folder, digest in listings.items()}


def _listing(folder: Path) -> str:
    """SHA-256 of the names in a folder and below, without hidden ones and results of Tailback."""
    names = list[str]()
    for place, folders, files in os.walk(folder):
        results = [name for name in folders if (Path(place, name) / "diagnosis.json").is_file()]
        folders[:] = sorted(
            name for name in folders if name not in results and not name.startswith(".")
        )
        shown = sorted(name for name in files if not name.startswith("."))
        names += [os.path.relpath(os.path.join(place, name), folder) for name in shown + folders]
    return hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape")).hexdigest()


def _holds(path: str, inputs: Collection[str]) -> bool:
    """Whether a path is an input or a folder that holds one."""
    return any(name == path or name.startswith(f"{path}{os.sep}") for name in inputs)


def _digest(path: Path) -> str | None:
    return sha256_of(path) if path.is_file() else None


def _with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """JSON data with every string changed but names, which may look like a path."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            key: entry if key == "name" else _with_strings(entry, change)
            for key, entry in value.items()
        }
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
