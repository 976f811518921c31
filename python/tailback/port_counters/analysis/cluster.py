"""The same passes on a Dask cluster: workers process pieces and return their totals.

Dask only runs the functions of :mod:`tailback.port_counters.analysis.passes`, unchanged, and
combines their results. Workers need Tailback and the same paths to the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tailback.errors import for_worker
from tailback.port_counters.analysis.passes import FAN_IN, Aggregate, Piece, added, contributions
from tailback.port_counters.schema import CounterError

_IN_FLIGHT = 8
"""Pieces queued per worker thread."""


class Cluster:
    """An engine whose workers are those of a Dask cluster.

    Args:
        client: A ``distributed.Client`` (:func:`tailback.workers.dask_client`).
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def threads(self) -> int:
        """Threads of all workers."""
        return sum(self._client.nthreads().values())

    @property
    def ahead(self) -> int:
        """How many pieces it works on at a time."""
        return max(FAN_IN, _IN_FLIGHT * max(self.threads, 1))

    def add_up(self, pieces: Sequence[Piece], passes: Sequence[Aggregate]) -> list[pl.DataFrame]:
        """The total of each pass over all pieces.

        Contributions are added up on the workers, sixteen at a time. Only the total is transferred.

        Raises:
            CounterError: A worker cannot read a piece.
        """
        aggregates = list(passes)
        ahead = self.ahead
        total: Any = None
        for start in range(0, len(pieces), ahead):
            level = self._client.map(
                for_worker(contributions),
                list(pieces[start : start + ahead]),
                passes=aggregates,
                pure=False,
            )
            if total is not None:
                level = [total, *level]
            while len(level) > 1:
                groups = [level[at : at + FAN_IN] for at in range(0, len(level), FAN_IN)]
                level = [
                    self._client.submit(for_worker(added), group, aggregates, pure=False)
                    for group in groups
                ]
            total = level[0]
            # One batch at a time: the scheduler holds the tasks of a batch, not those of the whole
            # archive.
            self._wait(total)
        last = self._client.submit(for_worker(added), [total], aggregates, pure=False)
        return list(self._wait(last))

    def _wait(self, future: Any) -> Any:
        try:
            return future.result()
        except CounterError:
            raise
        except Exception as error:  # whatever a worker met
            raise CounterError(
                f"a worker failed: {error}",
                remedy="workers need the same files, and the same versions of Tailback and Polars",
            ) from None
