"""Progress of long steps, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[str, float], None]
"""Called with the name of the current step and the completed share, 0 to 1."""

_step: ContextVar[Progress | None] = ContextVar("reading", default=None)


def step() -> Progress | None:
    """Where readers report their progress; None where nobody shows it."""
    return _step.get()


def report(what: str, share: float) -> None:
    """Report that ``what`` is done to ``share`` (0 to 1)."""
    shown = _step.get()
    if shown is not None:
        shown(what, share)


@contextmanager
def reported(to: Progress) -> Iterator[None]:
    """Have readers report to ``to`` during a ``with`` block."""
    token = _step.set(to)
    try:
        yield
    finally:
        _step.reset(token)
