"""Atomic replacement of an older result, and clean-up after a process that was killed.

A result is written under a hidden name next to its final place:
``.run-1a2b3c4d.tailback-HOST-PID-TIME-N``.
Where the system can exchange two names atomically (``renameat2``, Linux 3.15, most local file
systems), a kill at any moment leaves either the old or the new result, complete. Elsewhere (NFS,
for example) the old result is renamed first, and a kill between the two renames leaves neither
under the final name; the next start then completes the replacement. The next start also removes
whatever dead processes left behind.

Content is on the disk before it gets its final name, and the name is before an older result is
removed (``fsync``), so that the same holds for a power failure.

The hidden name identifies the process and machine that created it. Files of other machines are
kept: whether their processes are alive cannot be checked from here.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

OLD = ".old"
"""Suffix of the older result during a replacement in two steps."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
_NAME = re.compile(
    r"\.tailback-(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]{1,10})-(?P<started>[0-9]{1,20})-[0-9a-f]{8}"
    r"(?:\.old)?\Z"
)


_created: set[Path] = set()
"""Hidden names that this process created."""


def hidden_name(target: Path) -> Path:
    """An unused name next to ``target``, for what will replace it."""
    # Long names are cut; the digest keeps them apart.
    owner = f"{_host()}-{os.getpid()}-{_start_time(os.getpid())}"
    name = target.with_name(f"{_prefix(target)}.tailback-{owner}-{secrets.token_hex(4)}")
    _created.add(name)
    return name


def discard_unfinished() -> None:
    """Remove the unfinished results of this process before it ends without normal clean-up."""
    for path in list(_created):
        remove(path)


def recover(target: Path) -> None:
    """Complete or remove unfinished results for ``target`` that killed processes left.

    Cheap if there are none: it lists the parent folder once.
    """
    prefix = _prefix(target)
    try:
        with os.scandir(target.parent) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.name.startswith(prefix)
                # Entries of other users are theirs, or planted to pass for a result.
                and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            ]
    except OSError:
        return
    orphans = [target.with_name(name) for name in sorted(names) if _is_orphan(name[len(prefix) :])]
    if not os.path.lexists(target):
        _finish(target, orphans)
    for path in orphans:
        remove(path)


def _finish(target: Path, orphans: list[Path]) -> None:
    """Complete a replacement that was killed between its two renames."""
    for old in orphans:
        if old.name.endswith(OLD):
            new = old.with_name(old.name.removesuffix(OLD))
            # The old one is renamed only once the new one is complete.
            with suppress(OSError):
                (new if new.exists() else old).rename(target)
            return


def replace(part: Path, target: Path) -> None:
    """Rename ``part`` to ``target``, then remove what ``target`` was before.

    Raises:
        OSError: It cannot be renamed; both are unchanged.
    """
    if _exchange(part, target):
        sync(target.parent)
        remove(part)
        return
    old = part.with_name(part.name + OLD)
    try:
        target.rename(old)
        part.rename(target)
        sync(target.parent)
    except BaseException:
        # Ctrl-C may arrive after either rename.
        if part.exists() and old.exists():
            old.rename(target)
        raise
    finally:
        if not part.exists():
            remove(old)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk.

    Raises:
        OSError: They cannot be written, for example because a network file system is full.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync folders.
        if error.errno not in _UNKNOWN or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until a folder and everything in it are on the disk; raises OSError."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            sync(path)
    sync(folder)


def remove(path: Path) -> None:
    """Remove a folder or file if possible; a file that is open over NFS, for example, stays."""
    if not path.is_dir() or path.is_symlink():
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path, ignore_errors=True)
    except KeyboardInterrupt:
        # Do not leave thousands of files behind; a second Ctrl-C interrupts this too.
        shutil.rmtree(path, ignore_errors=True)
        raise


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names atomically; False if the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    done = renameat2(
        _AT_FDCWD,
        os.fsencode(first),
        _AT_FDCWD,
        os.fsencode(second),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(second))


def _prefix(target: Path) -> str:
    name = target.name.encode("utf-8", "surrogateescape")
    # File names are limited to 255 bytes.
    return f".{name[:40].decode('ascii', 'replace')}-{hashlib.sha256(name).hexdigest()[:8]}"


def _is_orphan(ending: str) -> bool:
    """Whether a name with this ending was created by a process of this machine that is gone."""
    match = _NAME.match(ending)
    if match is None or match["host"] != _host():
        return False
    return _start_time(int(match["pid"])) != int(match["started"])


def _start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 if there is no such process.

    Process ids are reused; a pid together with its start time is unique.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except OSError:
        return 0 if Path("/proc/self/stat").exists() else _alive(pid)
    # The program name, in parentheses, may contain any character.
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def _alive(pid: int) -> int:
    """1 if the process exists, 0 if not: for systems without ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 0
    except OSError:
        pass
    return 1


@cache
def _host() -> str:
    """Digest of host name and PID namespace, which distinguishes machines and containers."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("/".join(facts).encode()).hexdigest()[:8]
