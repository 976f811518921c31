"""Keeps what the benchmark of the diagnosis simulated, so that verdicts can be formed again.

A scenario takes seconds to minutes, nearly all of it in the simulator. Verdicts and confidences
only depend on times of simulations, and on a few tables of some. With ``--keep FOLDER`` these are
written to a folder, and a later call simulates only what was not asked for before. The files are
pickles for this machine; read only those that you wrote. They belong to the compiled simulator that
wrote them: with another one the folder is refused.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailback import _core
from tailback.evaluate import Change, Evaluate
from tailback.run.run import Run
from tailback.simulation import KnownRuns, PreparedScenario

LOG = ("jobs", "labels", "ranks", "messages")
"""Tables that the search for slow cables reads."""


@dataclass(frozen=True)
class KeptResults:
    """A folder of results, one file each.

    Attributes:
        folder: Where they are; None keeps nothing.
    """

    folder: Path | None

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of that name; computed, and kept, if it is not there."""
        if self.folder is None:
            return compute()
        path = self.folder / f"{name}.pickle"
        if not path.is_file():
            self.put(name, compute())
        return pickle.loads(path.read_bytes())

    def put(self, name: str, result: Any) -> None:
        """Keep a result; an interrupted call leaves the earlier one."""
        assert self.folder is not None
        part = self.folder / f"{name}.part"
        part.write_bytes(pickle.dumps(result))
        part.rename(self.folder / f"{name}.pickle")

    def require_same_simulator(self) -> None:
        """Create the folder, or check that this simulator wrote it.

        Raises:
            SystemExit: Another one did.
        """
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        now = hashlib.sha256(Path(str(_core.__file__)).read_bytes()).hexdigest()
        stamp = self.folder / "simulator.txt"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") != now:
            raise SystemExit(f"{self.folder}: written with another simulator; remove it")
        stamp.write_text(now, encoding="utf-8")


@dataclass
class KeptRuns:
    """Simulations of one scenario with one level of knowledge.

    Attributes:
        results: Where they are kept.
        name: Name of their file.
        prepared: The scenario as it is known.
        simulate: Simulates a change.
    """

    results: KeptResults
    name: str
    prepared: PreparedScenario
    simulate: Evaluate
    _runs: dict[Hashable, Run] = field(init=False)
    _known: KnownRuns = field(init=False)
    _added: bool = False

    def __post_init__(self) -> None:
        self._runs = self.results.get(self.name, dict)
        self._known = KnownRuns(self.prepared)

    def __call__(self, change: Change) -> Run:
        """The run of a change, with the tables that a diagnosis reads of it."""
        if self.results.folder is None:
            return self.simulate(change)
        key = self._known.key(change)
        if key not in self._runs:
            run = self.simulate(change)
            tables = dict(run.tables)
            if not change.measure:
                read = LOG if change.slow else ()
                tables = {name: run.tables[name] for name in read}
            self._runs[key] = replace(run, tables=tables)
            self._added = True
        run = self._runs[key]
        return replace(run, tables=dict(run.tables), summary=dict(run.summary))

    def save(self) -> None:
        """Write what was simulated since it was read."""
        if self._added:
            self.results.put(self.name, self._runs)
            self._added = False
