"""Folders and files of results: written completely or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import shutil
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

import polars as pl

from tailback.errors import RunError, TailbackError, option
from tailback.io.atomic_exchange import hidden_name, recover, remove, replace, sync, sync_tree
from tailback.io.manifest import read_manifest, write_manifest
from tailback.version import version


class AtomicDirectory:
    """Context manager: a folder that appears at ``path`` completely, or not at all.

    Everything is written to a sibling folder that gets the final name at the end. On any error,
    including a full disk and Ctrl-C, the sibling is removed and an existing folder stays as it was.
    A symbolic link at ``path`` is followed and kept. ``manifest.json`` lists what was written, with
    the SHA-256 of every file. Leftovers of killed processes are removed or completed first
    (:mod:`tailback.io.atomic_exchange`).

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
            parents = self._target.parents
            self._created = [folder for folder in parents if not folder.exists()]
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._part = hidden_name(self._target)
            self._part.mkdir(mode=0o700)
        except OSError as error:
            raise RunError(
                f"cannot write there: {error.strerror}",
                file=self.path,
                remedy="choose another folder, to which you may write",
            ) from None
        return self._part

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                write_manifest(self._part, version())
                os.chmod(self._part, 0o755)
                sync_tree(self._part)
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
                f"could not be written: {error}",
                file=self.path,
                remedy="free space, or choose another folder",
            ) from None

    def _check(self) -> None:
        """Refuse to replace anything but a result of Tailback."""
        require_plain_path(self._target)
        if not self._target.exists():
            return
        if not self.force:
            raise RunError(
                "already exists",
                file=self.path,
                remedy=f"choose another folder, or add {option('force', True)}",
            )
        if not self._target.is_dir():
            raise RunError(
                "is a file, not a folder", file=self.path, remedy="choose another folder"
            )
        for source in self.sources:
            if Path(os.path.realpath(source)).is_relative_to(self._target):
                raise RunError(
                    f"contains {str(source)!r}, an input of this result",
                    file=self.path,
                    remedy="choose another folder",
                )
        unlisted = _find_unlisted(self._target)
        if unlisted is not None:
            raise RunError(
                f"contains {unlisted!r}, which Tailback did not write, so it is not replaced",
                file=self.path,
                remedy="choose another folder, or remove this one yourself",
            )

    def _install(self) -> None:
        """Rename the new folder to its final name; only then remove the old one."""
        self._check()  # Again: hours may have passed.
        if not self.force or not self._target.exists():
            # The system refuses this if a folder with files has appeared meanwhile.
            self._part.rename(self._target)
            for folder in (self._target, *self._created):
                sync(folder.parent)
            return
        replace(self._part, self._target)


class PrivateFolder:
    """A folder that only this user can enter, for processes of this user on any machine.

    It is held open and its files are opened relative to it, so that nobody who may write to a
    folder above can put another one in its place. Symbolic links in it are not followed. Files
    appear completely or not at all.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: Path) -> PrivateFolder:
        """Create the folder.

        Raises:
            RunError: It exists already or cannot be created.
        """
        require_plain_path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
            return cls.open(path)
        except FileExistsError:
            raise RunError(
                "exists already", file=path, remedy="remove it, if no diagnosis uses it"
            ) from None
        except OSError as error:
            raise RunError(
                f"cannot write there: {error.strerror}",
                file=path,
                remedy="choose another folder, to which you may write",
            ) from None

    @classmethod
    def open(cls, path: Path) -> PrivateFolder:
        """Open the folder.

        Raises:
            FileNotFoundError: It does not exist.
            OSError: It cannot be opened.
            RunError: It belongs to another user, or others may enter it, or it is a link.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            # Also for a symbolic link.
            raise RunError(
                "is not a folder, but a link or a file",
                file=path,
                remedy="remove it, or name another folder",
            ) from None
        opened = cls(path, descriptor)
        try:
            require_owner(path, descriptor)
            if os.fstat(descriptor).st_mode & 0o077:
                raise RunError(
                    "is open to other users, so its files are not trusted",
                    file=path,
                    remedy=_NEW_FOLDER,
                )
        except BaseException:
            opened.close()
            raise
        return opened

    def names(self) -> list[str]:
        """Names of its files, sorted."""
        # Opened anew, as network file systems then ask the server for the current files.
        listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._descriptor)
        try:
            return sorted(os.listdir(listing))
        finally:
            os.close(listing)

    def exists(self) -> bool:
        """Whether it still exists under its path."""
        try:
            return os.path.samestat(
                os.stat(self.path, follow_symlinks=False), os.fstat(self._descriptor)
            )
        except OSError:
            return False

    def read(self, name: str) -> bytes:
        """The content of a file; raises OSError."""
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=self._descriptor)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", name)
            return file.read()

    def write(self, name: str, content: bytes) -> None:
        """Write a file; raises OSError."""
        part = f"{name}.{secrets.token_hex(8)}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(part, flags, mode=0o600, dir_fd=self._descriptor)
        with open(descriptor, "wb") as file:
            file.write(content)
        self.rename(part, name)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file; raises OSError."""
        os.rename(name, new_name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove a file; raises OSError."""
        os.unlink(name, dir_fd=self._descriptor)

    def renew(self, name: str) -> None:
        """Set the time of a file to now; raises OSError."""
        os.utime(name, dir_fd=self._descriptor, follow_symlinks=False)

    def modified_ns(self, name: str) -> int:
        """Time of the last change of a file; raises OSError."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mtime_ns

    def close(self) -> None:
        """Close the folder; it stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def delete(self) -> None:
        """Remove the folder with its files, as far as possible, and close it."""
        with closing(self), suppress(OSError):
            for name in self.names():
                self.remove(name)
            os.rmdir(self.path)


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
            file.flush()
            os.fsync(file.fileno())
        if force:
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
        else:
            _link_new(part, target)
        sync(target.parent)
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


def require_owner(
    path: Path, descriptor: int | None = None, *, error: type[TailbackError] = RunError
) -> None:
    """Refuse a folder of another user, who may put links and files of any content into it.

    Args:
        path: The folder.
        descriptor: The folder, if it is open.
        error: What to raise.

    Raises:
        OSError: It does not exist.
        TailbackError: Of type ``error``: it belongs to another user.
    """
    owner = os.stat(path if descriptor is None else descriptor).st_uid
    if owner != os.geteuid():
        raise error(
            f"belongs to another user (uid {owner}), so its files are not trusted",
            file=path,
            remedy=_NEW_FOLDER,
        )


_NEW_FOLDER = "name another folder, which does not exist yet"


def require_plain_path(path: Path) -> None:
    """Refuse a path that is not UTF-8 or has control characters.

    The Parquet library accepts nothing but UTF-8, and a line break would end a line of a batch
    script, a rank file or a printed command.
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise RunError(
            "the path is not UTF-8",
            file=path,
            remedy="use a folder whose complete path is UTF-8",
        ) from None
    control = next((char for char in str(path) if unicodedata.category(char) in _CONTROL), None)
    if control is not None:
        raise RunError(
            f"the path has the control character U+{ord(control):04X}",
            file=path,
            remedy="use a folder whose complete path has none",
        ) from None


_CONTROL = ("Cc", "Zl", "Zp")
"""Unicode's categories of control characters, line and paragraph separators."""


def shell_path(path: str | Path) -> str:
    """A path as one word of a shell command, which no program takes for an option.

    Raises:
        RunError: It has control characters.
    """
    require_plain_path(Path(path))
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _find_unlisted(folder: Path) -> str | None:
    """A path in a folder that its manifest does not list; None if all are listed."""
    try:
        listed = read_manifest(folder).files
    except RunError:
        listed = frozenset()
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return min((path for path in paths if path not in listed), default=None)
