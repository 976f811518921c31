"""Syntax of the subset of P4_16 that ``p4_interpreter.py`` runs: from text to declarations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

TOKEN = re.compile(
    r"(?P<number>\d+w(?:0x[0-9a-fA-F]+|\d+)|0x[0-9a-fA-F]+|\d+)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\|\+\||\+\+|<<|>>|<=|>=|==|!=|&&|\|\||[-+~!<>=&|^?:;,.(){}\[\]])"
)
SKIPPED = re.compile(r"\s+|//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^#include (?:<[\w./]+>|"([\w./]+)")$', re.MULTILINE)

LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("++", "+", "-", "|+|"),
)
"""Binary operators, the loosest first."""


class P4Error(Exception):
    """A program outside the subset, or one that breaks a rule of the language."""


@dataclass(frozen=True)
class Bits:
    """A value of ``width`` bits; of a number without a width the width is None."""

    value: int
    width: int | None


Node = tuple[Any, ...]
"""A node of the syntax tree: its kind, then its parts."""


@dataclass
class Declaration:
    """A parser, control, function or action, with parameters as (direction, type, name)."""

    name: str
    parameters: list[tuple[str, Node, str]]
    body: list[Node] = field(default_factory=list)
    states: dict[str, list[Node]] = field(default_factory=dict)
    actions: dict[str, Declaration] = field(default_factory=dict)
    tables: dict[str, Node] = field(default_factory=dict)
    result: Node | None = None


def read_source(path: Path) -> str:
    """A program with its own files included; those of the architecture are built in."""

    def included(match: re.Match[str]) -> str:
        return read_source(path.parent / match[1]) if match[1] else ""

    return INCLUDE.sub(included, path.read_text(encoding="utf-8"))


def split_tokens(source: str) -> list[str]:
    """Tokens of a program.

    Raises:
        P4Error: A character belongs to none.
    """
    out, at = [], 0
    while at < len(source):
        skipped = SKIPPED.match(source, at)
        if skipped:
            at = skipped.end()
            continue
        token = TOKEN.match(source, at)
        if token is None:
            line = source.count("\n", 0, at) + 1
            raise P4Error(f"line {line}: unexpected {source[at]!r}")
        out.append(token.group())
        at = token.end()
    return out


class Syntax:
    """Recursive-descent parser of the subset."""

    def __init__(self, source: str) -> None:
        self.tokens = split_tokens(source)
        self.at = 0
        self.types: dict[str, tuple[str, list[tuple[str, Node]]]] = {}
        self.constants: dict[str, tuple[Node, Node]] = {}
        self.declared: dict[str, Declaration] = {}
        self.main: list[str] = []
        while self.at < len(self.tokens):
            self.top_level()

    def peek(self, ahead: int = 0) -> str:
        """The next token; empty at the end."""
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ""

    def fail(self, wanted: str) -> NoReturn:
        """Say what was expected, and near what."""
        near = " ".join(self.tokens[max(0, self.at - 6) : self.at + 3])
        raise P4Error(f"expected {wanted} near: {near}")

    def take(self, wanted: str | None = None) -> str:
        """The next token, which must be ``wanted`` if that is given."""
        token = self.peek()
        if not token or (wanted is not None and token != wanted):
            self.fail(wanted or "more")
        self.at += 1
        return token

    def take_if(self, wanted: str) -> bool:
        """Take a token if it is next."""
        if self.peek() == wanted:
            self.at += 1
            return True
        return False

    def take_list(self, item: Callable[[], Any], close: str) -> list[Any]:
        """Items with commas between, to the closing token."""
        out: list[Any] = []
        while not self.take_if(close):
            if out:
                self.take(",")
            out.append(item())
        return out

    def type_name(self) -> Node:
        """``bit<W>``, ``bool`` or a name."""
        name = self.take()
        if name != "bit":
            return ("named", name)
        self.take("<")
        width = int(self.take())
        self.take(">")
        return ("bit", width)

    def top_level(self) -> None:
        """One declaration of the program."""
        word = self.peek()
        if word == "const":
            self.take()
            kind, name = self.type_name(), self.take()
            self.take("=")
            self.constants[name] = (kind, self.expression())
            self.take(";")
        elif word in {"header", "struct"}:
            self.take()
            name, members = self.take(), []
            self.take("{")
            while not self.take_if("}"):
                kind = self.type_name()
                members.append((self.take(), kind))
                self.take(";")
            self.types[name] = (word, members)
        elif word in {"parser", "control"}:
            self.take()
            declared = Declaration(self.take(), self.parameters())
            (self.parser_body if word == "parser" else self.control_body)(declared)
            self.declared[declared.name] = declared
        elif self.peek(1) == "(":
            self.take()
            self.take("(")
            self.main = self.take_list(self.instance, ")")
            self.take("main")
            self.take(";")
        else:
            result, name = self.type_name(), self.take()
            function = Declaration(name, self.parameters(), result=result)
            function.body = self.block()
            self.declared[name] = function

    def instance(self) -> str:
        """A parser or control handed to the architecture."""
        name = self.take()
        self.take("(")
        self.take(")")
        return name

    def parameters(self) -> list[tuple[str, Node, str]]:
        """Parameters with their directions."""
        self.take("(")

        def parameter() -> tuple[str, Node, str]:
            direction = self.take() if self.peek() in {"in", "out", "inout"} else ""
            kind = self.type_name()
            return direction, kind, self.take()

        return self.take_list(parameter, ")")

    def parser_body(self, declared: Declaration) -> None:
        """States of a parser."""
        self.take("{")
        while not self.take_if("}"):
            self.take("state")
            name = self.take()
            self.take("{")
            statements: list[Node] = []
            while not self.take_if("}"):
                statements.append(
                    self.transition() if self.peek() == "transition" else self.statement()
                )
            declared.states[name] = statements

    def transition(self) -> Node:
        """Where a state goes: always, or by the value of keys."""
        self.take("transition")
        if not self.take_if("select"):
            target = self.take()
            self.take(";")
            return ("goto", target)
        self.take("(")
        keys = self.take_list(self.expression, ")")
        self.take("{")
        cases: list[tuple[list[Node] | None, str]] = []
        while not self.take_if("}"):
            values: list[Node] | None = None
            if not self.take_if("default"):
                values = (
                    self.take_list(self.expression, ")")
                    if self.take_if("(")
                    else [self.expression()]
                )
            self.take(":")
            cases.append((values, self.take()))
            self.take(";")
        return ("select", keys, cases)

    def control_body(self, declared: Declaration) -> None:
        """Actions, tables and the block that is applied."""
        self.take("{")
        while not self.take_if("}"):
            word = self.take()
            if word == "action":
                action = Declaration(self.take(), self.parameters())
                action.body = self.block()
                declared.actions[action.name] = action
            elif word == "table":
                name = self.take()
                declared.tables[name] = self.table()
            elif word == "apply":
                declared.body = self.block()
            else:
                self.fail("action, table or apply")

    def table(self) -> Node:
        """Keys, which must be exact, and actions of a table."""
        keys: list[Node] = []
        names: list[str] = []
        self.take("{")
        while not self.take_if("}"):
            word = self.take()
            self.take("=")
            self.take("{")
            while not self.take_if("}"):
                if word == "key":
                    keys.append(self.expression())
                    self.take(":")
                    self.take("exact")
                elif word == "actions":
                    names.append(self.take())
                else:
                    self.fail("key or actions")
                self.take(";")
        return ("table", keys, names)

    def block(self) -> list[Node]:
        """Statements in braces."""
        self.take("{")
        out: list[Node] = []
        while not self.take_if("}"):
            out.append(self.statement())
        return out

    def statement(self) -> Node:
        """One statement."""
        if self.peek() == "{":
            return ("block", self.block())
        if self.take_if("if"):
            self.take("(")
            condition = self.expression()
            self.take(")")
            then = self.statement()
            other = self.statement() if self.take_if("else") else None
            return ("if", condition, then, other)
        if self.take_if("return"):
            value = None if self.peek() == ";" else self.expression()
            self.take(";")
            return ("return", value)
        if self.peek() in {"bit", "bool"} or self.peek() in self.types:
            kind, name = self.type_name(), self.take()
            value = self.expression() if self.take_if("=") else None
            self.take(";")
            return ("variable", kind, name, value)
        target = self.postfix()
        if self.take_if("="):
            value = self.expression()
            self.take(";")
            return ("assign", target, value)
        self.take(";")
        return ("evaluate", target)

    def expression(self) -> Node:
        """An expression with ``?:``."""
        condition = self.binary(0)
        if not self.take_if("?"):
            return condition
        then = self.expression()
        self.take(":")
        return ("choose", condition, then, self.expression())

    def binary(self, level: int) -> Node:
        """Operators of a level and those that bind tighter."""
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            sign = self.take()
            left = ("binary", sign, left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        """Complement, negation, casts."""
        if self.peek() in {"~", "!"}:
            return ("unary", self.take(), self.unary())
        if self.peek() == "(" and self.peek(1) == "bit":
            self.take()
            kind = self.type_name()
            self.take(")")
            return ("cast", kind, self.unary())
        return self.postfix()

    def postfix(self) -> Node:
        """Members, slices and calls."""
        node = self.primary()
        while True:
            if self.take_if("."):
                node = ("member", node, self.take())
            elif self.take_if("["):
                high = int(self.take())
                self.take(":")
                node = ("slice", node, high, int(self.take()))
                self.take("]")
            elif self.take_if("("):
                node = ("call", node, self.take_list(self.expression, ")"))
            else:
                return node

    def primary(self) -> Node:
        """A number, a name, a list, or an expression in parentheses."""
        if self.take_if("("):
            node = self.expression()
            self.take(")")
            return node
        if self.take_if("{"):
            return ("list", self.take_list(self.expression, "}"))
        token = self.take()
        if token in {"true", "false"}:
            return ("constant", token == "true")
        if token[0].isdigit():
            width, _, digits = token.rpartition("w")
            return ("constant", Bits(int(digits, 0), int(width) if width else None))
        if not (token[0].isalpha() or token[0] == "_"):
            self.fail("an expression")
        return ("name", token)
