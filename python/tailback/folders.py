"""Folders and files of results: they appear whole or not at all, and replace only such folders."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import polars as pl

import tailback
from tailback.atomic_exchange import hidden_name, recover, remove, replace
from tailback.errors import RunError
from tailback.manifest import read_manifest, write_manifest


class AtomicDirectory:
    """Context manager: a folder that appears at ``path`` whole, or not at all.

    Everything is written to a sibling folder that takes the final name at the end; on any error,
    a full disk or Ctrl-C among them, it is removed and what stood there before is untouched. A
    symbolic link at ``path`` is followed and stays. ``manifest.json`` lists what was written, with
    the SHA-256 of every file. What a process that was killed left there is removed first, and what
    it was about to put in place is put there (:mod:`tailback.atomic_exchange`).

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
        recover(self._place)
        self._check()
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self._part = hidden_name(self._place)
            self._part.mkdir(mode=0o700)
        except OSError as error:
            raise RunError(
                f"cannot write there: {error.strerror}", file=self.path,
                remedy="choose a folder you may write to with --out",
            ) from None  # fmt: skip
        return self._part

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                write_manifest(self._part, tailback.__version__)
                os.chmod(self._part, 0o755)
                self._put_in_place()
        except OSError as problem:
            error = problem
        finally:
            remove(self._part)
        if isinstance(error, RunError) and error.file is not None:
            # Errors inside name the folder by its final name.
            if error.file.is_relative_to(self._part):
                error.file = self.path / error.file.relative_to(self._part)
            return
        if isinstance(error, (OSError, pl.exceptions.PolarsError)):
            raise RunError(
                f"could not be written: {error}", file=self.path,
                remedy="free space, or choose another --out",
            ) from None  # fmt: skip

    def _check(self) -> None:
        """Refuse what may not be replaced."""
        require_utf8(self._place)
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
        replace(self._part, self._place)


def check_writable(path: Path, *, force: bool = False, sources: Sequence[Path] = ()) -> None:
    """Find out, before hours of work, whether a folder could be written at ``path``.

    Raises:
        RunError: As :class:`AtomicDirectory`.
    """
    remove(AtomicDirectory(path, force=force, sources=sources).__enter__())


@contextmanager
def atomic_file(path: str | Path, *, force: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that appears at ``path`` whole, or not at all.

    As :class:`AtomicDirectory`: it is written under another name next to it. What is not a regular
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
    recover(place)
    part = hidden_name(place)
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


def require_utf8(path: Path) -> None:
    """Refuse a path that is not UTF-8: the library that reads and writes Parquet takes no other."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise RunError(
            "the path is not UTF-8", file=path,
            remedy="use a folder whose name, and the names above it, are UTF-8",
        ) from None  # fmt: skip


def _foreign(folder: Path) -> str | None:
    """Something in a folder that its manifest does not list; None if there is nothing."""
    try:
        listed = read_manifest(folder).files
    except RunError:
        listed = frozenset()
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return min((path for path in found if path not in listed), default=None)
