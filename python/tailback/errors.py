"""Errors for mistakes of users. Each names the file, the place, the value and the remedy."""

from __future__ import annotations

import difflib
import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial, wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from reprlib import repr as brief
from types import UnionType
from typing import (
    Any,
    Final,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class TailbackError(Exception):
    """Invalid input. The command line prints it and exits with 2.

    Args:
        message: What is wrong, in one sentence, with the offending value quoted.
        file: The file it was found in.
        place: Where in the file: ``"line 12"``, ``"[engine] buffer"``, ``"rank 3, event 17"``.
        remedy: What to do about it.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        place: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = None if file is None else Path(file)
        self.place = place
        self.remedy = remedy

    def __str__(self) -> str:
        where = ": ".join(str(part) for part in (self.file, self.place) if part is not None)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text

    def located(self, file: str | Path) -> TailbackError:
        """Return this error with ``file`` set if it was unknown."""
        if self.file is None:
            self.file = Path(file)
        return self


class TraceError(TailbackError):
    """A trace or profile that cannot be read or replayed."""


class FabricError(TailbackError):
    """A fabric that cannot be read, is not connected or cannot be routed."""


class ScenarioError(TailbackError):
    """A scenario with an unknown key, a wrong unit or values that contradict each other."""


class PlacementError(TailbackError):
    """A placement that does not fit the fabric or the job."""


class RunError(TailbackError):
    """A run directory that cannot be written or read."""


class InvalidValueError(ValueError):
    """A value that a validator refuses, with its remedy.

    Validators raise it, and pydantic reports it. :func:`message_and_remedy` separates the two
    again. ``str()`` has both, for callers without remedies, such as click's option types.

    Attributes:
        message: What is wrong with the value.
        remedy: What to write.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


def message_and_remedy(error: Mapping[str, Any]) -> tuple[str, str | None]:
    """Message and remedy of one error as pydantic reports it; None without a remedy."""
    cause = (error.get("ctx") or {}).get("error")
    if isinstance(cause, InvalidValueError):
        return cause.message, cause.remedy
    # Pydantic prefixes the text of an error that a validator raised with its kind.
    return str(error["msg"] if cause is None else cause), None


MAX_CHOICES = 40
"""Choices that a remedy lists: enough for all parts of a kind, if not for all hosts."""


def nearest(word: str, valid: Iterable[str]) -> str:
    """Return a remedy that names the valid word nearest to ``word``, or lists the valid ones."""
    choices = sorted(valid)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(choices) - MAX_CHOICES} more" if len(choices) > MAX_CHOICES else ""
    return "valid choices: " + ", ".join(choices[:MAX_CHOICES]) + more


_COMMAND_LINE: Final = {
    "every_ns": "every",
    "methods": "method",
    "remedies": "remedy",
    "slow_cables": "slow_cable",
    "tick_ns": "tick",
}
"""Names of options that differ between the command line and the functions."""
_VARIABLE: Final = "TAILBACK_COMMAND_LINE"
"""Variable by which the interpreter of a worker knows the interface of its user: 1 or 0."""
_interface = {"command line": os.environ.get(_VARIABLE) == "1"}
_task = threading.local()
"""Interface of the user for whom a thread of a Dask worker does a task."""


@contextmanager
def command_line() -> Iterator[None]:
    """Within it, messages name options as the command line does, else as Python does.

    A worker of a user of Python may be a command.
    """
    before = _interface["command line"]
    _interface["command line"] = os.environ.get(_VARIABLE) != "0"
    try:
        yield
    finally:
        _interface["command line"] = before


def worker_environment() -> dict[str, str]:
    """Environment of a worker's interpreter, whose messages name options as those of this one."""
    return {**os.environ, **worker_variable()}


def worker_variable() -> dict[str, str]:
    """The variable of that environment."""
    return {_VARIABLE: str(int(_is_command_line()))}


def for_worker(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function for a Dask worker, where its messages name options as those of this process."""
    return partial(_call_for, _is_command_line(), function)


def _call_for(
    is_command_line: bool,
    function: Callable[_Arguments, _Result],
    *args: _Arguments.args,
    **keywords: _Arguments.kwargs,
) -> _Result:
    before = _is_command_line()
    _task.is_command_line = is_command_line
    try:
        return function(*args, **keywords)
    finally:
        _task.is_command_line = before


def _is_command_line() -> bool:
    """Whether the user of this process, or of this task, uses the command line."""
    return getattr(_task, "is_command_line", _interface["command line"])


def option(name: str, value: str | float = "") -> str:
    """An option in a message, as the user of the interface in use writes it.

    Args:
        name: Its name as an argument of a function: ``cable_rate``.
        value: A value, in the notation of the command line; True for a flag.

    Returns:
        ``--cable-rate VALUE`` on the command line, ``cable_rate="VALUE"`` in Python.
    """
    if not _is_command_line():
        return f'{name}="{value}"' if isinstance(value, str) and value else f"{name}={value}"
    dashed = f"--{_COMMAND_LINE.get(name, name).replace('_', '-')}"
    if value == "" or value is True:
        return dashed
    return f"{dashed} '{value}'" if " " in str(value) else f"{dashed} {value}"


def by_option(**values: object) -> dict[str, object]:
    """Values by the names of their options: :func:`option`."""
    return {option(name): value for name, value in values.items()}


def known_keywords(
    *more: type,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a public function to check the names and types of its arguments.

    An unknown keyword is refused with the nearest known one. A single item stands for a list of it.

    Args:
        more: Typed dictionaries of the keywords that it takes as ``**options``.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        parameters = inspect.signature(function).parameters.values()
        names = [
            parameter.name
            for parameter in parameters
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        names += [name for options in more for name in options.__annotations__]

        @cache
        def kinds() -> dict[str, Any]:
            # Resolved at the first call: annotations are text until then.
            return {k: v for part in (function, *more) for k, v in get_type_hints(part).items()}

        def fitted(name: str, value: object) -> Any:
            try:
                return _fitted(value, kinds().get(name, Any))
            except TypeError:
                raise TypeError(
                    f"{function.__name__}() argument {name} is {brief(value)}; "
                    f"give {_type_words(kinds()[name])}"
                ) from None

        @wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            for name in kwargs:
                if name not in names:
                    raise TypeError(
                        f"{function.__name__}() got an unexpected keyword argument {name!r}; "
                        f"{nearest(name, names)}"
                    )
            fitted_args = [fitted(name, value) for name, value in zip(names, args, strict=False)]
            keywords = {name: fitted(name, value) for name, value in kwargs.items()}
            return function(*fitted_args, *args[len(names) :], **keywords)  # type: ignore[arg-type]

        return checked

    return decorate


def _is_list(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin in (Sequence, list)


_NUMBERS: Final[Mapping[object, type]] = {int: Integral, float: Real}
"""Types accepted as a number, including those of NumPy."""


def _fitted(value: object, kind: Any) -> Any:
    """The value as an annotation has it, a single item as a list; TypeError if it does not fit."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        # A text that is valid by itself is no list.
        for alternative in sorted(inner, key=_is_list):
            try:
                return _fitted(value, alternative)
            except TypeError:
                continue
        raise TypeError
    if _is_list(kind):
        if isinstance(value, (str, PathLike)):
            return [_fitted(value, inner[0])]
        if isinstance(value, (Mapping, bytes)) or not hasattr(value, "__getitem__"):
            raise TypeError
        items: Iterable[object] = value  # type: ignore[assignment]
        return [_fitted(item, inner[0]) for item in items]
    if origin is Mapping and isinstance(value, Mapping):
        return {key: _fitted(item, inner[1]) for key, item in value.items()}
    if kind is Any:
        return value
    types = tuple(map(type, inner)) if origin is Literal else _NUMBERS.get(kind, origin or kind)
    if kind is Path:
        types = PathLike
    if (isinstance(value, bool) and kind in _NUMBERS) or not isinstance(value, types):
        raise TypeError
    return kind(value) if kind in _NUMBERS else value


def _type_words(kind: Any) -> str:
    """An annotation in words: ``int or None``, ``list of str or Path``."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_type_words, inner))
    if _is_list(kind):
        return f"list of {_type_words(inner[0])}"
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is Mapping:
        return "mapping" if inner[1] is Any else f"mapping to {_type_words(inner[1])}"
    if origin is Callable:
        return "function"
    return "None" if kind is type(None) else getattr(kind, "__name__", "object")


def type_remedy(kind: str) -> str | None:
    """How to write a value of the right type, by pydantic's type of error."""
    return {
        "int_type": "write a whole number without quotes, like 4",
        "int_from_float": "write a whole number, like 4",
        "float_type": "write a number without quotes, like 1.5",
        "bool_type": "write true or false, without quotes",
        "string_type": 'write it as text, in quotes: "…"',
    }.get(kind)


def as_toml(value: object) -> str:
    """A value as the file has it, shortened if it is long."""
    return str(value).lower() if isinstance(value, bool) else brief(value)


def option_error(
    error: Mapping[str, Any], options: Mapping[str, str], *, section: str, page: str
) -> ScenarioError:
    """Turn a validator's error about one option into a :class:`ScenarioError`.

    Args:
        error: ``loc``, ``type``, ``msg`` and ``input``, as pydantic reports them.
        options: Meaning of every valid option, by name.
        section: Section of the scenario that holds them.
        page: Page of the documentation to refer to.
    """
    names = [str(name) for name in error["loc"] if not isinstance(name, int)]
    key = names[0] if names else ""
    place = f"{section} {key}".rstrip()
    if error["type"] == "extra_forbidden":
        return ScenarioError(f"unknown key {key!r}", place=place, remedy=nearest(key, options))
    if error["type"] == "missing":
        about = options.get(key) or f"see {page}"
        return ScenarioError("key is missing", place=place, remedy=f"add it: {about}")
    message, remedy = message_and_remedy(error)
    if remedy is not None:
        return ScenarioError(message, place=place, remedy=remedy)
    return ScenarioError(
        f"{as_toml(error['input'])}: {message}",
        place=place,
        remedy=type_remedy(str(error["type"])) or f"see {page}",
    )
