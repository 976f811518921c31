"""Progress on stderr: a bar on a terminal, otherwise a line now and then of what takes long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from tailback.io.progress import reported
from tailback.names.display import printable
from tailback.stages import record_stages
from tailback.units import format_time

if TYPE_CHECKING:
    from rich.progress import Progress

    from tailback.budget import Budget


SILENT_S: Final = 10.0
"""Longest time without a line where stderr is no terminal, as far as steps are reported."""


class Stage:
    """Estimates the time left of what is being done, from the shares reported so far.

    A share below the last one begins another stage.
    """

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None
        self._share = 0.0

    def left_s(self, share: float, now_s: float) -> float | None:
        """Seconds left at a share of 0–1; None until the stage has advanced."""
        if self._began is None or share < self._share:
            self._began = (now_s, share)
        self._share = share
        began_s, first = self._began
        return (now_s - began_s) * (1.0 - share) / (share - first) if share > first else None


class Lines:
    """Writes what a long command does, at most one line in :data:`SILENT_S`."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._began = self._said = time.monotonic()
        self._budget = budget
        self._stage = Stage()

    def step(self, what: str, share: float) -> None:
        """Say what is done, and for how long, if nothing has been said for a while."""
        now = time.monotonic()
        left = _left(self._stage.left_s(share, now), self._budget)
        if now - self._said >= SILENT_S:
            self._said = now
            done = f", {share:.0%}" if share > 0 else ""
            said = f"{printable(what)}{done}{left and f', {left}'}"
            click.echo(f"{now - self._began:.0f} s: {said}", err=True)


def _left(stage_s: float | None, budget: Budget | None) -> str:
    """The time left of a stage, and of a budget; empty if both are unknown."""
    parts = [] if stage_s is None or stage_s < 1.0 else [f"about {stage_s:.0f} s left of this"]
    parts += [] if budget is None else [f"{budget.left_s:.0f} s left"]
    return "; ".join(parts)


class Meter:
    """Shows the current activity, its progress, the simulated time and what is left of a budget."""

    def __init__(
        self, bar: Progress | None, budget: Budget | None = None, lines: Lines | None = None
    ) -> None:
        self._bar = bar
        self._lines = lines
        self._budget = budget
        self._stage = Stage()
        self._began: tuple[float, int, int] | None = None
        self._events = 0
        self._task = bar.add_task("reading", total=1.0, detail="") if bar is not None else None

    def step(self, what: str, share: float) -> None:
        """Show that ``what`` is done to ``share`` (0–1)."""
        if self._lines is not None:
            self._lines.step(what, share)
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                description=printable(what)[:44],
                completed=share,
                detail=_left(self._stage.left_s(share, time.monotonic()), self._budget),
            )

    def watch(self, time_ps: int, delivered: int, packets: int, events: int) -> None:
        """Show how far the engine is, how fast, and how long it will take.

        Fits :data:`tailback.simulation.Watch`.
        """
        if self._bar is not None and self._task is not None:
            if events < self._events:  # another run
                self._began = None
            if self._began is None:
                self._began = (time.monotonic(), delivered, events)
            self._events = events
            began, delivered_then, events_then = self._began
            seconds = time.monotonic() - began
            detail = f"{format_time(time_ps)} simulated"
            if seconds > 0 and delivered > delivered_then:
                left = seconds * (packets - delivered) / (delivered - delivered_then)
                speed = (events - events_then) / seconds / 1e6
                detail += f", {speed:.1f} M events/s, {left:,.0f} s left"
            if self._budget is not None:
                detail += f"; {self._budget.left_s:.0f} s left in total"
            share = delivered / packets if packets else 0.0
            self._bar.update(self._task, completed=share, detail=detail)


@contextmanager
def meter(quiet: bool, budget: Budget | None = None) -> Iterator[Meter]:
    """A progress meter for the time of a ``with`` block, with what is left of a budget."""
    if quiet:
        yield Meter(None)
        return
    # Deferred: rich takes a tenth of a second to load.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        shown = Meter(None, lines=Lines(budget))
        with reported(shown.step):
            yield shown
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        shown = Meter(bar, budget)
        with reported(shown.step):
            yield shown


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Show on stderr the times of the stages of a ``with`` block, if ``wanted``.

    The profile is shown even if the block raises an exception.
    """
    if not wanted:
        yield
        return
    with record_stages() as table:
        try:
            yield
        finally:
            click.echo("\n".join(["PROFILE", *table.lines(), ""]), err=True)
