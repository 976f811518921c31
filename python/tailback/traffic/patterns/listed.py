"""Messages listed in a file: traffic that another program has drawn."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tailback.errors import ScenarioError
from tailback.traffic.patterns.columns import refuse_if_huge
from tailback.traffic.patterns.pattern import PATTERNS, PLACE, FreeSizePattern
from tailback.traffic.patterns.streams import TAG, Post, call_of, stream_program
from tailback.traffic.program import Label, Program

COLUMNS = ["source", "destination", "bytes"]
_MOST_BYTES = 1 << 40


@PATTERNS.register("listed")
class Listed(FreeSizePattern):
    """Messages that a CSV file lists, each rank's one after the other in the order of the file.

    The first line is ``source,destination,bytes``; ranks count from 0.
    """

    file: str = Field(description="CSV file with columns source, destination, bytes")
    post: Post = Field(default="sequence", description="when a rank posts its next message")

    def program(self, n_ranks: int, seed: int) -> Program:
        """Nothing is random."""
        path = Path(self.file)
        source, destination, size = _messages(path, n_ranks)
        refuse_if_huge(3 * len(source) + n_ranks)
        label = Label("listed", call_of(self.post), TAG)
        return stream_program("listed", n_ranks, source, destination, size, self.post, label)


def _messages(path: Path, n_ranks: int) -> NDArray[np.int64]:
    """The columns of a file, shape (3, K).

    Raises:
        ScenarioError: It cannot be read, or a line is not a message between ranks of the job.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file, or no path of one"
        raise ScenarioError(
            f"cannot read the messages: {why}", file=path, remedy=f"check {PLACE} file"
        ) from None
    lines = csv.reader(text.splitlines())
    header = [name.strip() for name in next(lines, [])]
    if header != COLUMNS:
        raise ScenarioError(
            f"the first line is {','.join(header)[:80]!r}", file=path, place="line 1",
            remedy=f"a list of messages begins with {','.join(COLUMNS)}",
        )  # fmt: skip
    rows = [_message(row, n_ranks, path, line) for line, row in enumerate(lines, 2) if row]
    return np.array(rows, np.int64).reshape(-1, 3).T


def _message(row: list[str], n_ranks: int, path: Path, line: int) -> tuple[int, int, int]:
    try:
        source, destination, size = map(int, row)
    except ValueError:
        source = destination = size = -1
    ranks = 0 <= source < n_ranks and 0 <= destination < n_ranks and source != destination
    if not (ranks and 0 < size < _MOST_BYTES):
        raise ScenarioError(
            f"{','.join(row)[:80]!r} is not a message", file=path, place=f"line {line}",
            remedy=f"give two different ranks below {n_ranks} and a size from 1 B to 1 TiB",
        )  # fmt: skip
    return source, destination, size
