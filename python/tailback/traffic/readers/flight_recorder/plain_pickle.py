"""Pickles of plain data, of which nothing is run."""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any, Final


class PlainPickle:
    """Builds the containers and scalars of a pickle, and refuses every other instruction.

    No name is looked up and nothing is called: the instructions that do so are unknown here. The
    unpicklers of Python would allocate as many entries as the largest number in the file.

    Args:
        data: The pickle, of protocol 2 or newer.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The object; raises RefusedError, or an error of almost any type for damaged bytes."""
        while True:
            code = self.number(1)
            if code == _STOP:
                return self.stack.pop()
            step = _STEPS.get(code)
            if step is None:
                raise RefusedError(self._asked(code))
            step(self)

    def number(self, size: int, *, signed: bool = False) -> int:
        """The next bytes as a number."""
        part = self.take(size)
        return int.from_bytes(part, "little", signed=signed)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        part = self.data[self.at : self.at + size]
        if len(part) < size:
            raise ValueError("it is cut")
        self.at += size
        return part

    def since_mark(self) -> list[Any]:
        """Objects above the last mark, taken off the stack."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _asked(self, code: int) -> str:
        """What an instruction asks for: a name, or the instruction."""
        names = (each.name for each in pickletools.opcodes if each.code == chr(code))
        name = next(names, f"byte {code}")
        if name == "STACK_GLOBAL":
            return ".".join(str(each)[:40] for each in self.stack[-2:])
        if name == "GLOBAL":
            lines = self.data[self.at : self.at + 80].split(b"\n")
            return ".".join(line.decode("ascii", "replace") for line in lines[:2])
        return name


_Step = Callable[[PlainPickle], None]


def _skip(pickle: PlainPickle, size: int) -> None:
    pickle.take(size)


def _pushed(value: Callable[[PlainPickle], Any]) -> _Step:
    return lambda pickle: pickle.stack.append(value(pickle))


def _remember(size: int) -> _Step:
    def step(pickle: PlainPickle) -> None:
        pickle.memo[pickle.number(size) if size else len(pickle.memo)] = pickle.stack[-1]

    return step


def _tuple_of(size: int) -> _Step:
    def step(pickle: PlainPickle) -> None:
        pickle.stack[-size:] = [tuple(pickle.stack[-size:])]

    return step


def _append(pickle: PlainPickle) -> None:
    last = pickle.stack.pop()
    pickle.stack[-1].append(last)


def _set_item(pickle: PlainPickle) -> None:
    value, key = pickle.stack.pop(), pickle.stack.pop()
    pickle.stack[-1][key] = value


def _extend(pickle: PlainPickle) -> None:
    items = pickle.since_mark()
    pickle.stack[-1].extend(items)


def _update(pickle: PlainPickle) -> None:
    items = pickle.since_mark()
    pickle.stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _text(size: int) -> _Step:
    return _pushed(lambda pickle: pickle.take(pickle.number(size)).decode("utf-8", "replace"))


_STOP: Final = ord(".")

_STEPS: Final[dict[int, _Step]] = {
    0x80: lambda pickle: _skip(pickle, 1),  # PROTO
    0x95: lambda pickle: _skip(pickle, 8),  # FRAME
    ord("N"): _pushed(lambda _: None),
    0x88: _pushed(lambda _: True),
    0x89: _pushed(lambda _: False),
    ord("J"): _pushed(lambda pickle: pickle.number(4, signed=True)),
    ord("K"): _pushed(lambda pickle: pickle.number(1)),
    ord("M"): _pushed(lambda pickle: pickle.number(2)),
    0x8A: _pushed(lambda pickle: pickle.number(pickle.number(1), signed=True)),
    0x8B: _pushed(lambda pickle: pickle.number(pickle.number(4), signed=True)),
    ord("G"): _pushed(lambda pickle: struct.unpack(">d", pickle.take(8))[0]),
    ord("X"): _text(4),
    0x8C: _text(1),
    0x8D: _text(8),
    ord("]"): _pushed(lambda _: []),
    ord("}"): _pushed(lambda _: {}),
    ord(")"): _pushed(lambda _: ()),
    ord("("): lambda pickle: pickle.marks.append(len(pickle.stack)),
    ord("t"): _pushed(lambda pickle: tuple(pickle.since_mark())),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("a"): _append,
    ord("e"): _extend,
    ord("s"): _set_item,
    ord("u"): _update,
    ord("q"): _remember(1),
    ord("r"): _remember(4),
    0x94: _remember(0),
    ord("h"): _pushed(lambda pickle: pickle.memo[pickle.number(1)]),
    ord("j"): _pushed(lambda pickle: pickle.memo[pickle.number(4)]),
}
"""What each instruction does, by its byte (``pickletools`` names them)."""


class RefusedError(Exception):
    """A pickle asks for something that is no plain data."""
