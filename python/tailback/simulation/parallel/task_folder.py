"""Simulations of a diagnosis as files in a folder, for workers on any machine that sees it.

The diagnosis writes each change that it will need as a task. Workers claim tasks by renaming them,
and write the runs (:mod:`tailback.simulation.parallel.spread`). A worker that stops renewing its
claim is considered dead, and the diagnosis does its task. A simulation is a function of scenario,
change and seed, so it does not matter who does it, or whether two do.
"""

from __future__ import annotations

import dataclasses
import io
import json
import threading
import time
import tokenize
import types
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
from pydantic import BaseModel

from tailback.errors import RunError
from tailback.evaluate import Change
from tailback.io.folders import PrivateFolder
from tailback.run.run import Run
from tailback.simulation.prepare import PreparedScenario
from tailback.stages import stage
from tailback.version import version

SCENARIO, CLOSED = "scenario.npz", "closed"

POLL_S = 0.02
"""Time between two looks at the folder: short against a simulation."""

RENEWAL_S = 2.0
"""Time after which a worker renews its claim."""

STALE_S = 15.0
"""Time without renewal after which a claim is void: several renewals, so that a busy machine or a
slow file system does not lose it."""

PATIENCE_S = 1.0
"""Time that a task which is needed waits for a worker before the diagnosis does it itself."""


@dataclass(frozen=True)
class TaskFiles:
    """Names of the files of one task.

    Attributes:
        open: The change, until a worker claims it.
        claimed: The change, while a worker simulates it.
        done: The result.
        withdrawn: The change, once the diagnosis simulates it itself.
    """

    open: str
    claimed: str
    done: str
    withdrawn: str

    @staticmethod
    def of(number: int) -> TaskFiles:
        """The files of a task by its number."""
        return TaskFiles(
            *(f"{number:06}.{state}" for state in ("open", "claimed", "done", "withdrawn"))
        )


@dataclass(frozen=True)
class TaskResult:
    """Result of a task.

    Attributes:
        run: The run; None if the worker could not simulate it.
        cost_s: Processor time that it took.
    """

    run: Run | None
    cost_s: float


@dataclass(eq=False)
class TaskFolder:
    """The tasks of a diagnosis, on its side.

    Attributes:
        folder: The folder.
        costs: Seconds that each finished task took its worker, by number.
    """

    folder: PrivateFolder
    costs: dict[int, float] = field(default_factory=dict)
    _count: int = 0
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    @staticmethod
    def create(path: str | Path) -> TaskFolder:
        """Create the folder; raises RunError if it exists or cannot be created."""
        return TaskFolder(PrivateFolder.create(Path(path).absolute()))

    def open(self, prepared: PreparedScenario) -> None:
        """Write the scenario that all tasks change."""
        # How to compile the program anew is a function of the process that read it.
        jobs = [replace(job, program=replace(job.program, recompile=None)) for job in prepared.jobs]
        program = replace(prepared.program, recompile=None)
        self.folder.write(SCENARIO, encode(replace(prepared, jobs=jobs, program=program)))

    def put(self, change: Change) -> int:
        """Add a task; returns its number."""
        number = self._count
        self._count += 1
        program = change.program
        if program is not None:
            change = replace(change, program=replace(program, recompile=None))
        self.folder.write(TaskFiles.of(number).open, encode(change))
        return number

    def take(self, number: int) -> Run | None:
        """Wait for the run of a task; None if no worker can do it, so that the caller has to."""
        files = TaskFiles.of(number)
        began = time.monotonic()
        with stage("waiting for workers"):
            while files.done not in self.folder.names():
                if time.monotonic() - began > PATIENCE_S and self._withdraw(number, files):
                    return None
                time.sleep(POLL_S)
        try:
            result = decode(self.folder.read(files.done), TaskResult)
        except TaskDataError:
            return None
        finally:
            self.folder.remove(files.done)
        self.costs[number] = result.cost_s
        return result.run

    def _withdraw(self, number: int, files: TaskFiles) -> bool:
        """Withdraw a task that no worker has claimed, or whose worker is dead."""
        if self._is_alive(number, files.claimed):
            return False
        for name in (files.open, files.claimed):
            with suppress(FileNotFoundError):
                self.folder.rename(name, files.withdrawn)
                return True
        return False

    def _is_alive(self, number: int, claimed: str) -> bool:
        """Whether a claim was renewed within :data:`STALE_S` by the clock of this process."""
        try:
            renewed_ns = self.folder.modified_ns(claimed)
        except FileNotFoundError:
            return False
        last_ns, since = self._seen.get(number, (-1, 0.0))
        if renewed_ns != last_ns:
            self._seen[number] = (renewed_ns, time.monotonic())
            return True
        return time.monotonic() - since <= STALE_S

    def close(self) -> None:
        """Tell the workers that nothing will follow."""
        self.folder.write(CLOSED, b"")

    def delete(self) -> None:
        """Remove the folder."""
        self.folder.delete()


def claim(folder: PrivateFolder) -> TaskFiles | None:
    """Claim the open task with the lowest number; None if there is none."""
    for name in folder.names():
        number, _, state = name.partition(".")
        if state == "open":
            files = TaskFiles.of(int(number))
            with suppress(FileNotFoundError):
                folder.rename(name, files.claimed)
                return files
    return None


def scenario_of(folder: PrivateFolder) -> PreparedScenario:
    """The scenario that all tasks change.

    Raises:
        FileNotFoundError: It is not written yet.
        RunError: This version cannot read it.
    """
    try:
        return decode(folder.read(SCENARIO), PreparedScenario)
    except TaskDataError as error:
        raise RunError(
            str(error),
            file=folder.path / SCENARIO,
            remedy="use the same version of Tailback for the diagnosis and its workers",
        ) from None


def work(folder: PrivateFolder, simulate: Callable[[Change], Run], idle_s: float) -> None:
    """Do tasks of a folder until it is closed, or empty for ``idle_s`` seconds."""
    last = time.monotonic()
    while folder.exists() and CLOSED not in folder.names():
        files = claim(folder)
        if files is None:
            if time.monotonic() - last > idle_s:
                return
            time.sleep(POLL_S)
            continue
        with _Renewal(folder, files.claimed):
            run: Run | None = None
            began = time.process_time()
            # Whatever the reason, the diagnosis repeats the simulation and reports the error.
            with suppress(Exception):
                run = simulate(decode(folder.read(files.claimed), Change))
            with suppress(FileNotFoundError):
                folder.write(files.done, encode(TaskResult(run, time.process_time() - began)))
        with suppress(FileNotFoundError):
            folder.remove(files.claimed)
        last = time.monotonic()


class _Renewal:
    """Renews a claim while its task is being done."""

    def __init__(self, folder: PrivateFolder, claimed: str) -> None:
        self._folder = folder
        self._claimed = claimed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            with suppress(FileNotFoundError):
                self._folder.renew(self._claimed)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()


# --- tasks as bytes ----------------------------------------------------------------------------

# Scenarios, changes and runs are JSON and arrays in one file of NumPy's ``.npz`` format. It names
# no class. The reader requests a type and builds an object of that type. From a hostile file it
# builds at worst an object of that type with other numbers.

T = TypeVar("T")

_TREE = "tree"
"""Array with the JSON text; the others are numbered."""


_DAMAGED = (
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
    pl.exceptions.PolarsError,
)
"""Exceptions of NumPy, JSON, Pydantic and Polars for bytes of another format."""


class TaskDataError(ValueError):
    """Bytes that are not an object of the expected type."""


def encode(value: object) -> bytes:
    """The bytes of an object built from dataclasses, models, arrays, tables and plain values.

    Raises:
        TypeError: It contains something else.
    """
    encoder = _Encoder()
    text = json.dumps({"tailback": version(), "value": encoder.tree(value)})
    out = io.BytesIO()
    arrays = {_TREE: np.frombuffer(text.encode(), np.uint8)}
    arrays |= {str(number): array for number, array in enumerate(encoder.arrays)}
    np.savez(out, **cast(Any, arrays))
    return out.getvalue()


def decode(data: bytes, expected: type[T]) -> T:
    """The object of type ``expected`` that was encoded.

    Raises:
        TaskDataError: The bytes are damaged, or those of another type.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            content = json.loads(arrays[_TREE].tobytes())
            if content["tailback"] != version():
                raise TaskDataError(f"written by version {content['tailback']} of Tailback")
            count = len(arrays.files) - 1
            decoder = _Decoder([arrays[str(number)] for number in range(count)])
        return cast(T, decoder.value(content["value"], expected))
    except _DAMAGED as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise TaskDataError(f"no data of type {_type_name(expected)}: {lines[0][:200]}") from None


class _Encoder:
    """Turns objects into JSON values; arrays are collected.

    An object or array that occurs several times is written once, so that it is shared after
    decoding, too.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._shared: dict[int, tuple[object, int]] = {}

    def tree(self, value: Any) -> Any:
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, int | np.integer):
            return int(value)
        if isinstance(value, float | np.floating):
            return float(value)
        if isinstance(value, dict):
            return {"dict": [[self.tree(key), self.tree(entry)] for key, entry in value.items()]}
        if isinstance(value, list | tuple):
            return [self.tree(entry) for entry in value]
        shared = self._shared.get(id(value))
        if shared is not None:
            return {"is": shared[1]}
        # The object is kept as well: the address of a dead one would be used again.
        self._shared[id(value)] = value, len(self._shared)
        return {"new": self._new(value)}

    def _new(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, pl.DataFrame):
            out = io.BytesIO()
            value.write_ipc(out)
            return self._array(np.frombuffer(out.getvalue(), np.uint8))
        if isinstance(value, BaseModel):
            return value.model_dump_json()
        if dataclasses.is_dataclass(value):
            return {
                field.name: self.tree(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
        raise TypeError(f"{type(value).__name__} cannot be stored as data")

    def _array(self, array: np.ndarray[Any, Any]) -> int:
        if array.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be stored as data")
        self.arrays.append(array)
        return len(self.arrays) - 1


class _Decoder:
    """Builds objects of given types from JSON values and arrays."""

    def __init__(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        self._arrays = arrays
        self._shared: dict[int, object] = {}

    def value(self, tree: Any, expected: Any) -> Any:
        origin, arguments = get_origin(expected), get_args(expected)
        if expected is Any:
            return self._plain(tree)
        if origin in (Union, types.UnionType):
            if tree is None:
                return _require(type(None) in arguments, expected, None)
            choice, *others = (choice for choice in arguments if choice is not type(None))
            return self.value(tree, _require(not others, expected, choice))
        if origin is Literal:
            return _require(tree in arguments, expected, tree)
        if origin is dict:
            key_type, value_type = arguments
            return {
                self.value(key, key_type): self.value(entry, value_type)
                for key, entry in tree["dict"]
            }
        if origin is list:
            _require(isinstance(tree, list), expected)
            return [self.value(entry, arguments[0]) for entry in tree]
        if origin is tuple:
            _require(isinstance(tree, list), expected)
            each = arguments[:1] * len(tree) if arguments[1:] == (...,) else arguments
            return tuple(self.value(*pair) for pair in zip(tree, each, strict=True))
        if isinstance(expected, type) and issubclass(expected, tuple):
            hints = _hints(expected).values()
            return expected(*(self.value(*pair) for pair in zip(tree, hints, strict=True)))
        if expected is float:
            return float(_require(type(tree) in (int, float), expected, tree))
        if expected in (bool, int, str):
            return _require(type(tree) is expected, expected, tree)
        return self._shared_object(tree, expected, origin)

    def _plain(self, tree: Any) -> Any:
        """A value as JSON has it."""
        if isinstance(tree, list):
            return [self._plain(entry) for entry in tree]
        if isinstance(tree, dict):
            return {str(key): self._plain(entry) for key, entry in tree["dict"]}
        return tree

    def _shared_object(self, tree: Any, expected: Any, origin: Any) -> Any:
        kind = origin or expected
        if "is" in tree:
            shared = self._shared[tree["is"]]
            return _require(isinstance(shared, kind), expected, shared)
        number = len(self._shared)
        # Objects are numbered in the order in which they begin, as in the encoder.
        self._shared[number] = None
        self._shared[number] = built = self._new(tree["new"], expected, kind)
        return built

    def _new(self, content: Any, expected: Any, kind: Any) -> Any:
        if kind is np.ndarray:
            return self._array(content, get_args(get_args(expected)[1])[0])
        if kind is pl.DataFrame:
            return pl.read_ipc(self._array(content, np.uint8).tobytes())
        if issubclass(kind, BaseModel):
            return kind.model_validate_json(content)
        _require(dataclasses.is_dataclass(kind), expected)
        hints = _hints(kind)
        _require(content.keys() == hints.keys(), expected)
        return kind(**{name: self.value(content[name], hint) for name, hint in hints.items()})

    def _array(self, number: int, scalar: Any) -> np.ndarray[Any, Any]:
        array = self._arrays[number]
        _require(np.issubdtype(array.dtype, scalar), scalar)
        return array


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Types of the fields of a class."""
    return get_type_hints(kind)


def _require(valid: bool, expected: Any, value: Any = None) -> Any:
    """``value``, if it is valid."""
    if not valid:
        raise TaskDataError(f"no {_type_name(expected)}")
    return value


def _type_name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))
