"""A run: the tables of one simulation or measurement, its scenario and its provenance, on disk.

A run directory holds one Parquet file a table (``tailback.schema``), ``scenario.json`` (the
scenario as it was understood), ``run.json`` (summary and provenance) and ``manifest.json`` (the
list of its files). The same scenario, seed and version give the same bytes; wall-clock figures
live in ``performance.json`` alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import polars as pl

import tailback
from tailback.consistency import check_summary, check_tables
from tailback.errors import RunError
from tailback.scenario import Scenario
from tailback.schema import TABLES, conform

FORMAT = 1

MANIFEST = "manifest.json"
"""Lists what Tailback wrote into a folder: that, and nothing else, it may replace."""

_AGAIN = "run the scenario again"

PROBED = ("counters", "queues", "packets")
"""Tables of probes: empty unless asked for."""


@dataclass
class Run:
    """Tables, scenario and summary of one run.

    Attributes:
        scenario: The scenario as it was understood.
        tables: Frame of every table in ``schema.TABLES``.
        summary: ``elapsed_ps`` (from the first start of an observed job to the finish of the last
            of their ranks), ``job_elapsed_ps`` (the same of each job), ``packets``,
            ``packet_hops``, ``events``, ``average_path_length`` (switches a packet of observed jobs
            visits), ``observed_packets``, ``complete``, ``vc_refused`` (flows that found no free
            entry, a switch each, of routing ``vc``), ``marked_packets`` (by congestion control),
            ``cure`` (what a diagnosis changed, which the scenario does not state) …
        performance: Wall-clock figures: never part of what must be reproducible.
        notes: What readers found odd and tolerated.
    """

    scenario: Scenario
    tables: dict[str, pl.DataFrame]
    summary: dict[str, Any]
    performance: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def elapsed_ps(self) -> int:
        """Time from the first start of an observed job to its last rank's finish, picoseconds."""
        return int(self.summary["elapsed_ps"])

    @property
    def complete(self) -> bool:
        """False when the run was interrupted; its tables end there."""
        return bool(self.summary["complete"])

    def write(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the run directory: all of it or nothing.

        Raises:
            RunError: The directory exists (without ``force``) or cannot be written.
        """
        with fresh_directory(path, force=force) as part:
            for name, frame in self.tables.items():
                conform(name, frame).write_parquet(part / f"{name}.parquet")
            scenario = self.scenario.model_dump_json(indent=2)
            (part / "scenario.json").write_text(scenario + "\n", encoding="utf-8")
            provenance = {
                "format": FORMAT,
                "tailback": tailback.__version__,
                "scenario_sha256": hashlib.sha256(scenario.encode()).hexdigest(),
                "summary": self.summary,
                "notes": self.notes,
            }
            _write_json(part / "run.json", provenance)
            _write_json(part / "performance.json", self.performance)
        return Path(path)

    @staticmethod
    def read(path: str | Path) -> Run:
        """Read a run directory; raises RunError naming what is missing or damaged."""
        path = Path(path)
        _require_utf8(path)
        if not path.exists():
            raise RunError("does not exist", file=path, remedy="check the path")
        if not (path / "run.json").is_file():
            raise RunError(
                "not a run directory (it has no run.json)", file=path,
                remedy="give the folder that 'tailback simulate --out' wrote",
            )  # fmt: skip
        try:
            provenance = json.loads((path / "run.json").read_text(encoding="utf-8"))
            scenario = Scenario.model_validate_json((path / "scenario.json").read_bytes())
            performance = json.loads((path / "performance.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(
                f"damaged run directory: {str(error).splitlines()[0]}", file=path, remedy=_AGAIN
            ) from None
        found = provenance.get("format") if isinstance(provenance, dict) else None
        if found != FORMAT:
            raise RunError(
                f"run format {found!r}, this version reads {FORMAT}",
                file=path / "run.json", remedy=_AGAIN,
            )  # fmt: skip
        tables = {}
        for name in TABLES:
            file = path / f"{name}.parquet"
            if name in PROBED and not file.exists():
                # Written by a version that did not have these probes.
                tables[name] = pl.DataFrame(schema=TABLES[name].polars_schema)
                continue
            try:
                tables[name] = conform(name, pl.read_parquet(file))
            except (OSError, pl.exceptions.PolarsError) as error:
                raise RunError(f"damaged table: {error}", file=file, remedy=_AGAIN) from None
        summary, notes = provenance.get("summary"), provenance.get("notes")
        try:
            check_summary(summary, notes)
            check_tables(tables)
        except RunError as error:
            table = error.place is not None and ".parquet" in error.place
            error.remedy = _AGAIN
            raise error.located(path if table else path / "run.json") from None
        # The digest is of the text without the end of its last line.
        text = (path / "scenario.json").read_bytes().removesuffix(b"\n")
        if provenance.get("scenario_sha256") != hashlib.sha256(text).hexdigest():
            raise RunError(
                "is not the scenario that was run (run.json has its SHA-256)",
                file=path / "scenario.json", remedy=_AGAIN,
            )  # fmt: skip
        return Run(scenario, tables, summary, performance, notes)


class fresh_directory:  # noqa: N801 - used like a function
    """Context manager: a folder that appears at ``path`` whole, or not at all.

    Everything is written to a sibling folder that takes the final name at the end; on any error,
    a full disk or Ctrl-C among them, it is removed and what stood there before is untouched. A
    symbolic link at ``path`` is followed and stays. ``manifest.json`` lists what was written.

    Args:
        path: The folder.
        force: Replace what stands there, if its manifest lists all of it.
        sources: What the folder is made from; it is not replaced by its own result.
    """

    def __init__(
        self, path: str | Path, *, force: bool = False, sources: Sequence[Path] = ()
    ) -> None:
        self.path = Path(path)
        self.force = force
        self.sources = sources
        # All checks look at what will be replaced: "new/../old" exists only once "new" does.
        self._place = Path(os.path.realpath(self.path))

    def __enter__(self) -> Path:
        self._check()
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self._part = Path(
                tempfile.mkdtemp(prefix=f".{self._place.name}.", dir=self._place.parent)
            )
        except OSError as error:
            raise RunError(
                f"cannot write there: {error.strerror}", file=self.path,
                remedy="choose a folder you may write to with --out",
            ) from None  # fmt: skip
        return self._part

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                _list_files(self._part)
                os.chmod(self._part, 0o755)
                self._put_in_place()
        except OSError as problem:
            error = problem
        finally:
            _remove(self._part)
        if isinstance(error, RunError) and error.file is not None:
            # What failed inside is told by the name it would have had.
            if error.file.is_relative_to(self._part):
                error.file = self.path / error.file.relative_to(self._part)
            return
        if isinstance(error, (OSError, pl.exceptions.PolarsError)):
            raise RunError(
                f"could not be written: {error}", file=self.path,
                remedy="make room or choose another --out",
            ) from None  # fmt: skip

    def _check(self) -> None:
        """Refuse what may not be replaced."""
        _require_utf8(self._place)
        if not self._place.exists():
            return
        if not self.force:
            raise RunError(
                "already exists", file=self.path, remedy="choose another --out, or add --force"
            )
        if not self._place.is_dir():
            raise RunError("is a file, not a folder", file=self.path, remedy="choose another --out")
        for source in self.sources:
            if Path(os.path.realpath(source)).is_relative_to(self._place):
                raise RunError(
                    f"holds {str(source)!r}, which the result is made from", file=self.path,
                    remedy="choose another --out",
                )  # fmt: skip
        foreign = _foreign(self._place)
        if foreign is not None:
            raise RunError(
                f"holds {foreign!r}, which Tailback did not write; refusing to replace it",
                file=self.path, remedy="choose another --out, or remove the folder yourself",
            )  # fmt: skip

    def _put_in_place(self) -> None:
        """Give the new folder its name; the old one goes only once that is done."""
        self._check()  # Again: hours may lie between.
        if not self.force or not self._place.exists():
            # The system refuses it where a folder with files has appeared since.
            self._part.rename(self._place)
            return
        old = self._part.with_name(self._part.name + ".old")
        try:
            self._place.rename(old)
            self._part.rename(self._place)
        except BaseException:
            # Ctrl-C may come behind either of the two.
            if self._part.exists() and old.exists():
                old.rename(self._place)
            raise
        finally:
            if not self._part.exists():
                _remove(old)


def run_folder(folder: Path) -> Path:
    """The folder of a run: the one given, or of a result of ``diagnose`` the run it is of."""
    return folder / "run" if (folder / "diagnosis.json").is_file() else folder


def claim(path: Path, *, force: bool = False, sources: Sequence[Path] = ()) -> None:
    """Find out, before hours of work, whether a folder could be written at ``path``.

    Raises:
        RunError: As :class:`fresh_directory`.
    """
    _remove(fresh_directory(path, force=force, sources=sources).__enter__())


@contextmanager
def fresh_file(path: str | Path, *, force: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that appears at ``path`` whole, or not at all.

    As :class:`fresh_directory`: it is written under another name beside it. What is no ordinary
    file, like a pipe, is written as it is.

    Raises:
        FileExistsError: Something stands there (without ``force``).
        OSError: It cannot be written.
    """
    path, place = Path(path), Path(os.path.realpath(path))
    if (path.exists() or place.exists()) and not force:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    # Names of files have a limit of their own.
    part = place.with_name(f".{place.name[:50]}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            yield file
        if force:
            if place.exists():
                shutil.copymode(place, part)
            part.replace(place)
        else:
            _name_once(part, place)
    finally:
        part.unlink(missing_ok=True)


def _name_once(part: Path, place: Path) -> None:
    """Give a file its name, unless something has taken it meanwhile."""
    try:
        place.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no links.
        if place.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(place)) from None
        part.replace(place)


def _require_utf8(path: Path) -> None:
    """Refuse a path that is not UTF-8: the library that reads and writes Parquet takes no other."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise RunError(
            "the path is not UTF-8", file=path,
            remedy="use a folder whose name, and the names above it, are UTF-8",
        ) from None  # fmt: skip


def _remove(folder: Path) -> None:
    """Remove a folder, as far as that can be done: a file open over NFS, say, stays."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        # Thousands of files shall not stay because it came here; a second one stops this too.
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _list_files(folder: Path) -> None:
    """Write the manifest of a folder: the relative paths of all files and folders in it."""
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    _write_json(
        folder / MANIFEST, {"tailback": tailback.__version__, "files": sorted([*files, MANIFEST])}
    )


def _foreign(folder: Path) -> str | None:
    """Something in a folder that its manifest does not list; None if there is nothing."""
    try:
        listed = set(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        listed = set()
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return min((path for path in found if path not in listed), default=None)


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
