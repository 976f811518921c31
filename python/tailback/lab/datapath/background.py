"""Records in a thread for as long as a block of code runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

Wait = Callable[[float], bool]
"""Waits for some seconds. Returns true as soon as the recording is to end."""


class BackgroundRecorder:
    """Context manager: a thread records until the block ends, whose error is raised at its end.

    An error of the block itself takes precedence.

    Args:
        name: Name of the thread.
        record: Records, with pauses by the function it is given, until that returns true.

    Raises:
        Exception: That of ``record``, at the end of the block.
    """

    def __init__(self, name: str, record: Callable[[Wait], None]) -> None:
        self._record = record
        self._end = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> BackgroundRecorder:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._end.set()
        self._thread.join()
        if self._problem is not None and kind is None:
            raise self._problem

    def _run(self) -> None:
        # A thread has no caller to raise to.
        try:
            self._record(self._end.wait)
        except Exception as error:
            self._problem = error
