"""Requirements of a lab on the machine: root, programs, network namespaces."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailback.lab.plan import Command
from tailback.lab.spec import HOW_TO, LabError

FABRIC_TOOLS = {"ip": "iproute2", "tc": "iproute2"}
"""Programs that make a fabric, and the Debian package that has each."""

JOB_TOOLS = {
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "bash": "bash",
    "mpirun": "openmpi-bin",
    "eztrace": "eztrace",
    "cc": "gcc",
}
"""Programs that run a job in it."""

_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_GRACE_S = 0.5
_TIMEOUT_S = 10.0


def missing(tools: dict[str, str]) -> str | None:
    """Why a lab is not possible here; None if it may be."""
    if not Path("/proc/self/ns/net").exists():
        return "a lab needs Linux with network namespaces"
    if os.geteuid() != 0:
        return "a lab needs root: it makes network namespaces"
    absent = [name for name in tools if shutil.which(name) is None]
    return f"not found: {', '.join(absent)}" if absent else None


def require(tools: dict[str, str]) -> None:
    """Raises LabError if a lab is not possible on this machine or for this user."""
    reason = missing(tools)
    if reason is None:
        return
    remedy = f"use a Linux machine; {HOW_TO}"
    if "root" in reason:
        remedy = "run the command as root, for example with sudo, on a machine of your own"
    elif "not found" in reason:
        packages = sorted({tools[name] for name in tools if shutil.which(name) is None})
        remedy = f"install them; on Debian: apt-get install {' '.join(packages)}"
    raise LabError(reason, remedy=remedy)


def mpirun() -> str:
    """Path of Open MPI's mpirun, version 4.

    Raises:
        LabError: There is none, or it is of another MPI.
    """
    path = shutil.which("mpirun.openmpi") or shutil.which("mpirun") or "mpirun"
    version = run(Command((path, "--version")))
    if not re.search(r"\((?:Open MPI|OpenRTE)\) 4\.", version):
        raise LabError(
            f"{path} is not Open MPI 4: {version.splitlines()[0] if version else 'no version'!r}",
            remedy="install Open MPI 4; on Debian: apt-get install openmpi-bin libopenmpi-dev",
        )
    return path


def run(command: Command) -> str:
    """Run a program and return its output.

    Raises:
        LabError: It failed. The message has the first line of its error output.
    """
    try:
        done = subprocess.run(
            command.arguments, input=command.text, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise LabError(
            f"{command.arguments[0]} cannot be run: {error.strerror}", remedy=HOW_TO
        ) from None
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise LabError(
            f"{' '.join(command.arguments)}: {output[0] if output else 'failed'}",
            remedy="the kernel needs network namespaces, veth, sch_tbf and multipath routes; "
            "take the lab down with: tailback lab down",
        )
    return done.stdout


def write_sysctl(key: str, value: str, *, optional: bool = False) -> None:
    """Set a kernel setting of the calling thread's network namespace."""
    path = Path("/proc/sys") / key
    if optional and not path.exists():
        return
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise LabError(
            f"cannot be set to {value}: {error.strerror}",
            file=path,
            remedy="use a machine or container where root may set network settings",
        ) from None


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Context manager: the calling thread is in a network namespace. Its new sockets stay there."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise LabError(
                f"cannot enter namespace {namespace}: {os.strerror(number)}",
                remedy="run as root, and bring the lab up again",
            )

    with _opened(f"/proc/self/task/{threading.get_native_id()}/ns/net") as home:
        with _opened(str(_NAMESPACES / namespace)) as target:
            enter(target)
        try:
            yield
        finally:
            enter(home)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise LabError(
            f"cannot be opened: {error.strerror}",
            file=path,
            remedy="take the lab down and bring it up again",
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def existing(namespaces: Iterable[str]) -> list[str]:
    """The namespaces that exist."""
    return [name for name in namespaces if (_NAMESPACES / name).exists()]


def _processes(namespaces: list[str]) -> list[int]:
    return [
        int(pid)
        for name in namespaces
        for pid in run(Command(("ip", "netns", "pids", name))).split()
        if int(pid) != os.getpid()
    ]


def end_processes(namespaces: list[str]) -> int:
    """End every process in the namespaces, first by SIGTERM. Returns how many there were.

    Raises:
        LabError: A process cannot be ended.
    """
    start, seen = time.monotonic(), set[int]()
    while alive := _processes(namespaces):
        seen.update(alive)
        waited = time.monotonic() - start
        if waited > _TIMEOUT_S:
            raise LabError(
                f"process {alive[0]} does not end", remedy="kill it, then: tailback lab down"
            )
        for pid in alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited < _GRACE_S else signal.SIGKILL)
        time.sleep(0.05)
    return len(seen)


def delete(namespaces: list[str]) -> None:
    """Delete namespaces together with their cables."""
    for name in namespaces:
        run(Command(("ip", "netns", "delete", name)))
