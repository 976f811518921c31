"""Interpreter of the subset of P4_16 in which ``hardware/p4`` is written, on v1model.

It replaces no P4 compiler, and what is outside the subset is an error. Within it the rules of the
language (version 1.2) hold: widths of operands must be equal, arithmetic wraps, numbers without a
width take that of the other operand, fields of a header that is not valid must not be read.
Covered: constants, headers, structs, parsers with ``select``, functions with ``in`` parameters,
controls with actions, tables of exact keys, variables, ``if``, the operators of ``p4_syntax.py``,
``random``, ``update_checksum`` (csum16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4_syntax import Bits, Declaration, Node, P4Error, Syntax, read_source

STANDARD = (("egress_port", 9), ("enq_qdepth", 19))
"""Fields of v1model's metadata that programs here use, with their widths."""

Entries = Mapping[tuple[int, ...], tuple[str, tuple[int, ...]]]

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
COMBINE: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
}


@dataclass
class Record:
    """A struct or a header: fields in their order, and whether a header is valid."""

    kind: str
    fields: dict[str, Any]
    valid: bool = True
    is_header: bool = False

    def read(self, name: str) -> Any:
        """A field.

        Raises:
            P4Error: There is none, or the header is not valid.
        """
        if name not in self.fields:
            raise P4Error(f"{self.kind} has no field {name!r}")
        if self.is_header and not self.valid:
            raise P4Error(f"{name!r} of {self.kind} is read while the header is not valid")
        return self.fields[name]


class FunctionReturnError(Exception):
    """Leaves a function with its value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def sum_words(data: bytes) -> int:
    """Sum of 16-bit words in ones' complement (RFC 1071); an odd byte is the higher half."""
    total = sum(
        int.from_bytes(data[i : i + 2].ljust(2, b"\0"), "big") for i in range(0, len(data), 2)
    )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Switch:
    """A program and its tables; ``process`` sends one packet through a port.

    Attributes:
        entries: Of each table: action and its arguments by key.
    """

    def __init__(self, path: Path) -> None:
        self.syntax = Syntax(read_source(path))
        if len(self.syntax.main) != 6:
            raise P4Error(f"{path.name} does not end with V1Switch(six parts) main")
        self.entries: dict[str, Entries] = {}
        self.constants: dict[str, Any] = {}
        for name, (kind, node) in self.syntax.constants.items():
            value = self.evaluate(node, [self.constants])
            self.constants[name] = self.converted(value, kind, name)
        self.words: Iterator[int] = iter(())
        self.control: Declaration | None = None

    # Values

    def default(self, kind: Node) -> Any:
        """An unset value of a type: zeros, headers not valid."""
        if kind[0] == "bit":
            return Bits(0, kind[1])
        if kind[1] == "bool":
            return False
        if kind[1] == "standard_metadata_t":
            return Record(kind[1], {name: Bits(0, width) for name, width in STANDARD})
        if kind[1] not in self.syntax.types:
            raise P4Error(f"unknown type {kind[1]!r}")
        word, members = self.syntax.types[kind[1]]
        fields = {name: self.default(member) for name, member in members}
        is_header = word == "header"
        return Record(kind[1], fields, valid=not is_header, is_header=is_header)

    def converted(self, value: Any, kind: Node, what: str) -> Any:
        """A value for a variable of a type, without any change of its width.

        Raises:
            P4Error: The types differ, or a number does not fit.
        """
        if kind[0] == "bit" and isinstance(value, Bits):
            if value.width is None and 0 <= value.value < 1 << kind[1]:
                return Bits(value.value, kind[1])
            if value.width == kind[1]:
                return value
        elif kind == ("named", "bool") and isinstance(value, bool):
            return value
        raise P4Error(f"{what}: {value} is not of type {kind}")

    def evaluate(self, node: Node, scopes: list[dict[str, Any]]) -> Any:
        """Value of an expression."""
        kind = node[0]
        if kind == "constant":
            return node[1]
        if kind == "name":
            for scope in reversed(scopes):
                if node[1] in scope:
                    return scope[node[1]]
            raise P4Error(f"unknown name {node[1]!r}")
        if kind == "member":
            record = self.evaluate(node[1], scopes)
            if not isinstance(record, Record):
                raise P4Error(f"{record} has no members")
            return record.read(node[2])
        if kind == "slice":
            value = self.bits(self.evaluate(node[1], scopes))
            return self.sliced(value, node[2], node[3])
        if kind == "cast":
            value = self.evaluate(node[2], scopes)
            return Bits(int(self.bits(value).value) % (1 << node[1][1]), node[1][1])
        if kind == "choose":
            return self.evaluate(node[2] if self.truth(node[1], scopes) else node[3], scopes)
        if kind == "unary":
            value = self.evaluate(node[2], scopes)
            if node[1] == "!":
                return not self.boolean(value)
            width = self.known_width(self.bits(value))
            return Bits(~value.value % (1 << width), width)
        if kind == "binary":
            return self.combine(node[1], node[2], node[3], scopes)
        if kind == "call":
            return self.call(node[1], node[2], scopes)
        raise P4Error(f"{kind} is not an expression of the subset")

    def combine(self, sign: str, first: Node, second: Node, scopes: list[dict[str, Any]]) -> Any:
        """Value of a binary operator."""
        if sign in {"&&", "||"}:
            decided = self.truth(first, scopes)
            return decided if decided == (sign == "||") else self.truth(second, scopes)
        a, b = (self.bits(self.evaluate(node, scopes)) for node in (first, second))
        if sign == "++":
            widths = self.known_width(a), self.known_width(b)
            return Bits(a.value << widths[1] | b.value, sum(widths))
        if sign in {"<<", ">>"}:
            width = self.known_width(a)
            shifted = a.value << b.value if sign == "<<" else a.value >> b.value
            return Bits(shifted % (1 << width), width)
        width = self.common_width(sign, a, b)
        if sign in COMPARE:
            return COMPARE[sign](a.value, b.value)
        most = (1 << width) - 1
        if sign == "|+|":
            return Bits(min(a.value + b.value, most), width)
        return Bits(COMBINE[sign](a.value, b.value) & most, width)

    def common_width(self, sign: str, a: Bits, b: Bits) -> int:
        """Width of both operands; a number without one takes that of the other."""
        widths = {value.width for value in (a, b)} - {None}
        if len(widths) != 1:
            raise P4Error(f"operands of {sign} have widths {a.width} and {b.width}")
        (width,) = widths
        for value in (a, b):
            if not 0 <= value.value < 1 << int(width or 0):
                raise P4Error(f"{value.value} does not fit {width} bits")
        return int(width or 0)

    def known_width(self, value: Bits) -> int:
        """Width of a value that must have one."""
        if value.width is None:
            raise P4Error(f"{value.value} has no width here")
        return value.width

    def sliced(self, value: Bits, high: int, low: int) -> Bits:
        """Bits ``high`` to ``low`` of a value."""
        if not 0 <= low <= high < self.known_width(value):
            raise P4Error(f"no bits {high}:{low} in {value.width}")
        return Bits(value.value >> low & ((1 << high - low + 1) - 1), high - low + 1)

    def bits(self, value: Any) -> Bits:
        """A value that must be of bits."""
        if not isinstance(value, Bits):
            raise P4Error(f"{value} is not bit<W>")
        return value

    def boolean(self, value: Any) -> bool:
        """A value that must be true or false."""
        if not isinstance(value, bool):
            raise P4Error(f"{value} is not bool")
        return value

    def truth(self, node: Node, scopes: list[dict[str, Any]]) -> bool:
        """A condition."""
        return self.boolean(self.evaluate(node, scopes))

    # Calls

    def call(self, function: Node, arguments: list[Node], scopes: list[dict[str, Any]]) -> Any:
        """A function, or a method that the architecture defines."""
        if function[0] == "member" and function[2] == "hit":
            raise P4Error("hit is not called")
        if function[0] == "member" and function[2] == "isValid":
            return bool(self.evaluate(function[1], scopes).valid)
        if function[0] == "name" and function[1] in self.syntax.declared:
            declared = self.syntax.declared[function[1]]
            if declared.result is None:
                raise P4Error(f"{declared.name} is not a function")
            scope = self.bound(declared, [self.evaluate(node, scopes) for node in arguments])
            try:
                self.run(declared.body, [self.constants, scope])
            except FunctionReturnError as signal:
                return self.converted(signal.value, declared.result, declared.name)
            raise P4Error(f"{declared.name} ends without a value")
        raise P4Error(f"{function} is not a function of the subset")

    def bound(self, declared: Declaration, values: Sequence[Any]) -> dict[str, Any]:
        """Arguments by the names of the parameters, which take values only."""
        if len(values) != len(declared.parameters):
            raise P4Error(f"{declared.name} takes {len(declared.parameters)} arguments")
        return {
            name: self.converted(value, kind, f"{declared.name}, {name}")
            for (_, kind, name), value in zip(declared.parameters, values, strict=True)
        }

    def apply_table(self, name: str, scopes: list[dict[str, Any]]) -> bool:
        """Look up a table of the control and run the action; whether the key was there."""
        assert self.control is not None
        _, keys, actions = self.control.tables[name]
        key = tuple(self.bits(self.evaluate(node, scopes)).value for node in keys)
        entry = self.entries.get(name, {}).get(key)
        if entry is None:
            return False
        if entry[0] not in actions:
            raise P4Error(f"table {name} has no action {entry[0]!r}")
        action = self.control.actions[entry[0]]
        scope = self.bound(action, [Bits(value, None) for value in entry[1]])
        self.run(action.body, [*scopes, scope])
        return True

    # Statements

    def run(self, statements: list[Node], scopes: list[dict[str, Any]]) -> None:
        """Run statements in a scope of their own."""
        scopes = [*scopes, {}]
        for node in statements:
            self.step(node, scopes)

    def step(self, node: Node, scopes: list[dict[str, Any]]) -> None:
        """Run one statement."""
        kind = node[0]
        if kind == "block":
            self.run(node[1], scopes)
        elif kind == "if":
            if self.condition(node[1], scopes):
                self.run([node[2]], scopes)
            elif node[3] is not None:
                self.run([node[3]], scopes)
        elif kind == "return":
            raise FunctionReturnError(None if node[1] is None else self.evaluate(node[1], scopes))
        elif kind == "variable":
            value = self.default(node[1])
            if node[3] is not None:
                value = self.converted(self.evaluate(node[3], scopes), node[1], node[2])
            scopes[-1][node[2]] = value
        elif kind == "assign":
            self.assign(node[1], self.evaluate(node[2], scopes), scopes)
        elif kind == "evaluate" and node[1][0] == "call":
            self.extern(node[1][1], node[1][2], scopes)
        else:
            raise P4Error(f"{kind} is not a statement of the subset")

    def condition(self, node: Node, scopes: list[dict[str, Any]]) -> bool:
        """A condition, in which tables may be applied: ``a && table.apply().hit``."""
        if node[0] == "binary" and node[1] == "&&":
            return self.condition(node[2], scopes) and self.condition(node[3], scopes)
        if node[0] == "member" and node[2] == "hit" and node[1][0] == "call":
            (_, (_, table, method), arguments) = node[1]
            if method == "apply" and not arguments and table[0] == "name":
                return self.apply_table(table[1], scopes)
        return self.truth(node, scopes)

    def assign(self, target: Node, value: Any, scopes: list[dict[str, Any]]) -> None:
        """Give a variable or a field a value of its width."""
        if target[0] == "name":
            for scope in reversed(scopes[1:]):
                if target[1] in scope:
                    scope[target[1]] = self.like(value, scope[target[1]], target[1])
                    return
            raise P4Error(f"nothing to assign: {target[1]!r}")
        if target[0] != "member":
            raise P4Error(f"{target[0]} cannot be assigned")
        record = self.evaluate(target[1], scopes)
        record.fields[target[2]] = self.like(value, record.read(target[2]), target[2])

    def like(self, value: Any, present: Any, name: str) -> Any:
        """A value for a place that has one."""
        kind = ("bit", present.width) if isinstance(present, Bits) else ("named", "bool")
        return self.converted(value, kind, name)

    def extern(self, function: Node, arguments: list[Node], scopes: list[dict[str, Any]]) -> None:
        """Statements of the architecture: extract, emit, random, update_checksum."""
        name = function[2] if function[0] == "member" else function[1]
        if name == "extract":
            self.extract(self.evaluate(arguments[0], scopes))
        elif name == "emit":
            self.emit(self.evaluate(arguments[0], scopes))
        elif name == "random":
            low, high = (self.bits(self.evaluate(node, scopes)).value for node in arguments[1:])
            word = next(self.words)
            if not low <= word <= high:
                raise P4Error(f"random word {word} is outside {low} to {high}")
            self.assign(arguments[0], Bits(word, None), scopes)
        elif name == "update_checksum":
            condition, fields, target, algorithm = arguments
            if algorithm != ("member", ("name", "HashAlgorithm"), "csum16") or fields[0] != "list":
                raise P4Error("update_checksum takes a list of fields and csum16")
            if self.truth(condition, scopes):
                values = [self.bits(self.evaluate(node, scopes)) for node in fields[1]]
                total = ~sum_words(self.packed(values)) & 0xFFFF
                self.assign(target, Bits(total, None), scopes)
        else:
            raise P4Error(f"{name} is not an extern of the subset")

    # Packets

    def packed(self, values: Sequence[Bits]) -> bytes:
        """Values one after the other, which must fill bytes."""
        number = width = 0
        for value in values:
            number = number << self.known_width(value) | value.value
            width += self.known_width(value)
        if width % 8:
            raise P4Error(f"{width} bits do not fill bytes")
        return number.to_bytes(width // 8, "big")

    def extract(self, header: Record) -> None:
        """Fill a header from the packet."""
        width = sum(self.known_width(value) for value in header.fields.values())
        if len(self.packet) - self.offset < width // 8:
            raise P4Error(f"the packet ends within {header.kind}")
        data = self.packet[self.offset : self.offset + width // 8]
        number, remaining = int.from_bytes(data, "big"), width
        for name, value in header.fields.items():
            remaining -= value.width
            header.fields[name] = Bits(number >> remaining & ((1 << value.width) - 1), value.width)
        header.valid = True
        self.offset += width // 8

    def emit(self, header: Record) -> None:
        """Append a header to the packet if it is valid."""
        if header.valid:
            self.sent += self.packed(list(header.fields.values()))

    def parse(self, declared: Declaration, scope: dict[str, Any]) -> None:
        """Run the states of a parser until it accepts."""
        state = "start"
        while state not in {"accept", "reject"}:
            scopes: list[dict[str, Any]] = [self.constants, scope, {}]
            statements = declared.states.get(state)
            if statements is None:
                raise P4Error(f"no state {state!r}")
            state = "reject"
            for node in statements:
                if node[0] == "goto":
                    state = node[1]
                elif node[0] == "select":
                    state = self.selected(node, scopes)
                else:
                    self.step(node, scopes)

    def selected(self, node: Node, scopes: list[dict[str, Any]]) -> str:
        """The state whose values equal the keys; none: reject."""
        keys = [self.bits(self.evaluate(key, scopes)) for key in node[1]]
        for values, state in node[2]:
            if values is None:
                return str(state)
            cases = [self.bits(self.evaluate(value, scopes)) for value in values]
            for key, case in zip(keys, cases, strict=True):
                self.common_width("select", key, case)
            if [key.value for key in keys] == [case.value for case in cases]:
                return str(state)
        return "reject"

    def process(
        self, packet: bytes, egress_port: int, queue: int, words: Sequence[int] = ()
    ) -> bytes:
        """One packet through the switch.

        Args:
            packet: From the first byte of Ethernet, without the frame check sequence.
            egress_port: Output port.
            queue: Packets in its queue when this one joins.
            words: What ``random`` draws, in order.
        """
        self.packet, self.offset, self.sent = packet, 0, b""
        self.words = iter(words)
        parser, *controls = (self.syntax.declared[name] for name in self.syntax.main)
        hdr = self.default(("named", "headers_t"))
        meta = self.default(("named", "metadata_t"))
        standard = self.default(("named", "standard_metadata_t"))
        for name, value in (("egress_port", egress_port), ("enq_qdepth", queue)):
            kind = ("bit", standard.fields[name].width)
            standard.fields[name] = self.converted(Bits(value, None), kind, name)
        shared = {"headers_t": hdr, "metadata_t": meta, "standard_metadata_t": standard}
        for number, declared in enumerate((parser, *controls)):
            scope = {name: shared.get(kind[1]) for _, kind, name in declared.parameters}
            self.control = declared
            if number == 0:
                self.parse(declared, scope)
            else:
                self.run(declared.body, [self.constants, scope])
        return self.sent + packet[self.offset :]
