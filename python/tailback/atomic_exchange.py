"""How a result takes the place of an older one, and what is left when that is killed.

A result is written under a hidden name next to its final place:
``.run-1a2b3c4d.tailback-HOST-PID-TIME-N``.
Where the system can exchange two names in one step (``renameat2``, Linux 3.15, most local file
systems) a kill at any moment leaves the old result or the new one in its place, whole. Where it
cannot (NFS, say) the old one is renamed first, and a kill between the two renames leaves none in
place: the next start finishes it. The next start also removes what a process that is gone left.

The name says which process of which machine made it. What another machine made stays: whether that
process is alive cannot be known here.
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
"""Ends the name of an older result while a newer one takes its place in two steps."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM)
_NAME = re.compile(
    r"\.tailback-(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]{1,10})-(?P<began>[0-9]{1,20})-[0-9a-f]{8}"
    r"(?:\.old)?\Z"
)


_made: set[Path] = set()
"""Hidden names that this process made."""


def hidden_name(place: Path) -> Path:
    """An unused name next to ``place``, for what will replace it."""
    # Names that share the part that fits differ in their digest.
    owner = f"{_host()}-{os.getpid()}-{_began(os.getpid())}"
    name = place.with_name(f"{_prefix(place)}.tailback-{owner}-{secrets.token_hex(4)}")
    _made.add(name)
    return name


def discard_unfinished() -> None:
    """Remove what this process has begun to write, before it ends without its clean-up."""
    for path in list(_made):
        remove(path)


def recover(place: Path) -> None:
    """Finish or remove what killed processes left of results that were to stand at ``place``.

    Cheap where there is nothing to do: one listing of the folder around it.
    """
    prefix = _prefix(place)
    try:
        with os.scandir(place.parent) as entries:
            found = [entry.name for entry in entries if entry.name.startswith(prefix)]
    except OSError:
        return
    left = [place.with_name(name) for name in sorted(found) if _is_left(name[len(prefix) :])]
    if not os.path.lexists(place):
        _finish(place, left)
    for path in left:
        remove(path)


def _finish(place: Path, left: list[Path]) -> None:
    """Give ``place`` the result that was to have it, after a kill between two renames."""
    for old in left:
        if old.name.endswith(OLD):
            new = old.with_name(old.name.removesuffix(OLD))
            # The old one is renamed only when the new one is whole.
            with suppress(OSError):
                (new if new.exists() else old).rename(place)
            return


def replace(part: Path, place: Path) -> None:
    """Give ``part`` the name ``place``; what stood there is removed once that is done.

    Raises:
        OSError: It cannot be renamed; both are where they were.
    """
    if _exchange(part, place):
        remove(part)
        return
    old = part.with_name(part.name + OLD)
    try:
        place.rename(old)
        part.rename(place)
    except BaseException:
        # Ctrl-C may come behind either of the two.
        if part.exists() and old.exists():
            old.rename(place)
        raise
    finally:
        if not part.exists():
            remove(old)


def remove(path: Path) -> None:
    """Remove a folder or file, if possible: a file that is open over NFS, for example, stays."""
    if not path.is_dir() or path.is_symlink():
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path, ignore_errors=True)
    except KeyboardInterrupt:
        # Thousands of files shall not stay because it came here; a second one stops this too.
        shutil.rmtree(path, ignore_errors=True)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    done = renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(other))


def _prefix(place: Path) -> str:
    name = place.name.encode("utf-8", "surrogateescape")
    # Names have a limit of their own, in bytes.
    return f".{name[:40].decode('ascii', 'replace')}-{hashlib.sha256(name).hexdigest()[:8]}"


def _is_left(ending: str) -> bool:
    """Whether a process of this machine made what has such an ending, and is gone."""
    match = _NAME.match(ending)
    if match is None or match["host"] != _host():
        return False
    return _began(int(match["pid"])) != int(match["began"])


def _began(pid: int) -> int:
    """When a process began, in clock ticks since the machine did; 0 if there is none.

    A number of a process is given again; with the time it began it is not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except OSError:
        return 0 if Path("/proc/self/stat").exists() else _alive(pid)
    # The name of the program, in brackets, may hold anything.
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def _alive(pid: int) -> int:
    """1 if there is such a process, where the system says no more of it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return 0
    except OSError:
        pass
    return 1


@cache
def _host() -> str:
    """What tells this machine apart, since it was started, and containers on it."""
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("/".join(facts).encode()).hexdigest()[:8]
