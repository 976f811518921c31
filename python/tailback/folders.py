"""Folders and files of results: written completely or not at all."""

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
    """Context manager: a folder that appears at ``path`` completely, or not at all.

    Everything is written to a sibling folder that gets the final name at the end. On any error,
    including a full disk and Ctrl-C, the sibling is removed and an existing folder stays as it was.
    A symbolic link at ``path`` is followed and kept. ``manifest.json`` lists what was written, with
    the SHA-256 of every file. Leftovers of killed processes are removed or completed first
    (:mod:`tailback.atomic_exchange`).

    Args:
        path: The folder.
        force: Replace an existing folder if its manifest lists everything in it.
        sources: Inputs of the result; a folder that contains one of them is not replaced.
    """

    def __init__(
        self, path: str | Path, *, force: bool = False, sources: Sequence[Path] = ()
    ) -> None:
        self.path = Path(path)
        self.force = force
        self.sources = sources
        # Check what will be replaced: "new/../old" exists only once "new" does.
        self._target = Path(os.path.realpath(self.path))

    def __enter__(self) -> Path:
        recover(self._target)
        self._check()
        try:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._part = hidden_name(self._target)
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
                self._install()
        except OSError as problem:
            error = problem
        finally:
            remove(self._part)
        if isinstance(error, RunError) and error.file is not None:
            # Errors from inside refer to the final name.
            if error.file.is_relative_to(self._part):
                error.file = self.path / error.file.relative_to(self._part)
            return
        if isinstance(error, (OSError, pl.exceptions.PolarsError)):
            raise RunError(
                f"could not be written: {error}", file=self.path,
                remedy="free space, or choose another --out",
            ) from None  # fmt: skip

    def _check(self) -> None:
        """Refuse to replace anything but a result of Tailback."""
        require_utf8(self._target)
        if not self._target.exists():
            return
        if not self.force:
            raise RunError(
                "already exists", file=self.path, remedy="choose another --out, or add --force"
            )
        if not self._target.is_dir():
            raise RunError("is a file, not a folder", file=self.path, remedy="choose another --out")
        for source in self.sources:
            if Path(os.path.realpath(source)).is_relative_to(self._target):
                raise RunError(
                    f"contains {str(source)!r}, an input of this result", file=self.path,
                    remedy="choose another --out",
                )  # fmt: skip
        unlisted = _unlisted(self._target)
        if unlisted is not None:
            raise RunError(
                f"contains {unlisted!r}, which Tailback did not write, so it is not replaced",
                file=self.path, remedy="choose another --out, or remove the folder yourself",
            )  # fmt: skip

    def _install(self) -> None:
        """Rename the new folder to its final name; only then remove the old one."""
        self._check()  # Again: hours may have passed.
        if not self.force or not self._target.exists():
            # The system refuses this if a folder with files has appeared meanwhile.
            self._part.rename(self._target)
            return
        replace(self._part, self._target)


def check_writable(path: Path, *, force: bool = False, sources: Sequence[Path] = ()) -> None:
    """Check, before hours of work, that a folder can be written at ``path``.

    Raises:
        RunError: As :class:`AtomicDirectory`.
    """
    remove(AtomicDirectory(path, force=force, sources=sources).__enter__())


@contextmanager
def atomic_file(path: str | Path, *, force: bool = False) -> Iterator[IO[bytes]]:
    """A binary file that appears at ``path`` completely, or not at all.

    As in :class:`AtomicDirectory`, it is written under a hidden name first. Anything but a regular
    file, a pipe for example, is written directly.

    Raises:
        FileExistsError: The path exists (without ``force``).
        OSError: It cannot be written.
    """
    path, target = Path(path), Path(os.path.realpath(path))
    if (path.exists() or target.exists()) and not force:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    recover(target)
    part = hidden_name(target)
    try:
        with part.open("xb") as file:
            yield file
        if force:
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
        else:
            _link_new(part, target)
    finally:
        part.unlink(missing_ok=True)


def _link_new(part: Path, target: Path) -> None:
    """Give a file its final name, unless that exists by now."""
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        part.replace(target)


def require_utf8(path: Path) -> None:
    """Refuse a path that is not UTF-8: the Parquet library accepts no other."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise RunError(
            "the path is not UTF-8", file=path,
            remedy="use a folder whose complete path is UTF-8",
        ) from None  # fmt: skip


def _unlisted(folder: Path) -> str | None:
    """A path in a folder that its manifest does not list; None if all are listed."""
    try:
        listed = read_manifest(folder).files
    except RunError:
        listed = frozenset()
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return min((path for path in found if path not in listed), default=None)
