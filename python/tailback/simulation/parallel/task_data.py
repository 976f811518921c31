"""Scenarios, changes and runs as data: JSON and arrays in one file of NumPy's ``.npz`` format.

The file names no class: the type that the reader asks for decides what is built, so that a hostile
file gives at worst an object of that type with other numbers, or an error.
"""

from __future__ import annotations

import dataclasses
import io
import json
import types
import zipfile
import zlib
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
from pydantic import BaseModel

from tailback.version import version

T = TypeVar("T")

_TREE = "tree"
"""Array with the JSON text; the others are numbered."""


_DAMAGED = (
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    RecursionError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    pl.exceptions.PolarsError,
)
"""What NumPy, JSON, Pydantic and Polars raise for bytes that are not theirs."""


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
        raise TaskDataError(f"no data of type {_name(expected)}: {lines[0][:200]}") from None


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
        known = self._shared.get(id(value))
        if known is not None:
            return {"is": known[1]}
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
            known = self._shared[tree["is"]]
            return _require(isinstance(known, kind), expected, known)
        number = len(self._shared)
        # Numbers go by the order in which objects begin, as in the encoder.
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
        raise TaskDataError(f"no {_name(expected)}")
    return value


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))
