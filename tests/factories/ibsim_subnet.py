"""A simulated InfiniBand subnet: real ibsim and real opensm, private to one test or benchmark."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

PRELOAD = next(
    (
        path
        for folder in (
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
            "/usr/lib",
        )
        for path in [Path(folder) / "umad2sim" / "libumad2sim.so"]
        if path.exists()
    ),
    None,
)

COMMAND = (
    "import sys, tailback.cli as c; from tailback.cli.collect import collect; "
    "c.cli.add_command(collect); sys.exit(c.run())"
)
"""The command line, whether or not this version of it has registered the command."""


def missing() -> list[str]:
    """Debian packages that are not installed."""
    needed = {"ibsim-utils": shutil.which("ibsim"), "opensm": find_opensm()}
    needed["ibsim-utils"] = needed["ibsim-utils"] and PRELOAD
    return [name for name, available in needed.items() if not available]


def find_opensm() -> str | None:
    """The subnet manager, which lies outside an ordinary account's PATH."""
    return shutil.which("opensm", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


DRIVER = """
import json, sys
from pathlib import Path
from tailback.collector import Collection, CollectorSession, CollectorSettings
from tailback.collector import MadExchange, MetricsBoard, UmadPort
port = UmadPort()
for line in sys.stdin:
    wish = json.loads(line)
    collection = Collection(Path(wish.pop("out")))
    if "fabric" in wish:
        wish["fabric"] = Path(wish["fabric"])
    settings = CollectorSettings(**wish)
    summary = CollectorSession(settings, MadExchange(port), collection, MetricsBoard()).run()
    collection.close()
    print(json.dumps(vars(summary)), flush=True)
"""
"""Collects as often as it is told to, without starting Python anew each time."""


class Subnet:
    """Runs ibsim and opensm in ``folder`` until the ``with`` block ends.

    Args:
        net: Topology file.
        folder: Working folder; clients leave their files there.
        timeout: Seconds each of the two may take to come up.
    """

    def __init__(self, net: Path, folder: Path, timeout: float = 30) -> None:
        self.net, self.folder, self.timeout = net.resolve(), folder, timeout
        name = f"tailback-{os.getpid()}-{time.monotonic_ns()}"
        self.environment = os.environ | {
            "IBSIM_SOCKNAME": name,
            "OSM_TMP_DIR": str(folder),
            "OSM_CACHE_DIR": str(folder),
        }
        self.client = self.environment | {
            "LD_PRELOAD": str(PRELOAD),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._open: list[IO[Any]] = []
        self._console = -1
        self._marks = 0
        self._driver: subprocess.Popen[str] | None = None

    def __enter__(self) -> Subnet:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver.communicate()
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        for file in self._open:
            file.close()
        if self._console >= 0:
            os.close(self._console)

    def _start(self) -> None:
        fifo = self.folder / "console"
        os.mkfifo(fifo)
        # Held open for reading and writing: at an end of file ibsim would spin.
        self._console = os.open(fifo, os.O_RDWR)
        limits = ["-N", "8192", "-S", "1024", "-P", "65000"]
        self._run(["ibsim", "-s", *limits, str(self.net)], "ibsim.log", self._console)
        self._await("ibsim.log", "simulator ready")
        (self.folder / "opensm.conf").write_text("force_log_flush TRUE\nsm_priority 14\n")
        log = self.folder / "opensm.log"
        opensm = [str(find_opensm()), "-F", str(self.folder / "opensm.conf"), "-f", str(log)]
        self._run(opensm, "opensm.out", subprocess.DEVNULL, self.client)
        self._await("opensm.log", "SUBNET UP")

    def _run(
        self, command: list[str], log: str, stdin: int, environment: dict[str, str] | None = None
    ) -> None:
        file = (self.folder / log).open("wb")
        self._open.append(file)
        self._processes.append(
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment or self.environment,
                stdin=stdin,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        )

    def _await(self, log: str, words: str) -> None:
        path = self.folder / log

        def said() -> bool:
            return path.exists() and words.lower() in path.read_text(errors="replace").lower()

        if not wait_for(said, self.timeout, lambda: self._processes[-1].poll() is None):
            tail = path.read_text(errors="replace")[-500:] if path.exists() else "(nothing)"
            raise RuntimeError(f"{log} never said {words!r}; it ends: {tail}")

    def add_standby(self, host: str) -> None:
        """Start another subnet manager on a host; it asks the first one once a second."""
        folder = self.folder / "second"
        folder.mkdir()
        (folder / "opensm.conf").write_text(
            "force_log_flush TRUE\nsminfo_polling_timeout 1000\npolling_retry_number 2\n"
        )
        places = {"OSM_TMP_DIR": str(folder), "OSM_CACHE_DIR": str(folder), "SIM_HOST": host}
        files = ["-F", str(folder / "opensm.conf"), "-f", str(folder / "opensm.log")]
        opensm = [str(find_opensm()), *files]
        self._run(opensm, "second.out", subprocess.DEVNULL, self.client | places)
        self._await("second/opensm.log", "Entering STANDBY")

    def kill_manager(self) -> None:
        """Kill the first subnet manager, and wait until the one that stood by has taken over."""
        # Its client number is 0. What ibsim forwards to a dead client has no answer, not even that
        # it timed out, and the other one would wait for it for ever.
        self.console(["X 0"])
        self._processes[1].kill()
        self._processes.pop(1).wait()
        self._await("second/opensm.log", "SUBNET UP")

    def console(self, lines: Iterable[str]) -> None:
        """Give ibsim commands and wait until it has done them all."""
        self._marks += 1
        file = self.folder / f"console-{self._marks}"
        file.write_text("".join(f"{line}\n" for line in lines))
        before = (self.folder / "ibsim.log").stat().st_size
        # An unknown command is answered with its text: the sign that all before it are done.
        mark = f"MARK{self._marks}"
        os.write(self._console, f"!{file}\n{mark}\n".encode())

        def done() -> bool:
            with (self.folder / "ibsim.log").open("rb") as log:
                log.seek(before)
                return mark.encode() in log.read()

        if not wait_for(done, self.timeout):
            raise RuntimeError("ibsim does not answer at its console")

    def start(self, *arguments: str, before: str = "") -> subprocess.Popen[str]:
        """Start ``tailback`` as a client of this subnet.

        Args:
            arguments: Of the command line.
            before: Statements of Python to run before it.
        """
        return subprocess.Popen(
            [sys.executable, "-c", f"{before}\n{COMMAND}", *arguments],
            cwd=self.folder,
            env=self.client,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def tailback(self, *arguments: str, timeout: float = 60) -> str:
        """Run ``tailback`` to its end; returns what it printed."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        assert process.returncode == 0, f"exit code {process.returncode}\n{out}\n{err}"
        return out

    def collect(self, out: str, **settings: Any) -> dict[str, Any]:
        """Run a session of the collector to its end; returns its summary.

        Args:
            out: Folder of the collection.
            settings: Of ``tailback.collector.CollectorSettings``, as plain data.
        """
        if self._driver is None:
            self._driver = subprocess.Popen(
                [sys.executable, "-c", DRIVER],
                cwd=self.folder,
                env=self.client,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._driver.stdin is not None and self._driver.stdout is not None
        print(json.dumps({"out": out, **settings}), file=self._driver.stdin, flush=True)
        ready, _, _ = select.select([self._driver.stdout], [], [], self.timeout)
        line = self._driver.stdout.readline() if ready else ""
        assert line, "the collector failed or took too long"
        summary: dict[str, Any] = json.loads(line)
        return summary

    def run(self, *command: str, timeout: float = 30) -> str:
        """Run one of the real tools as a client of this subnet."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.client,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
        return done.stdout


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(
    condition: Callable[[], bool], seconds: float, alive: Callable[[], bool] = lambda: True
) -> bool:
    """Wait until ``condition`` is true; False on a time-out or when ``alive`` is false."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end or not alive():
            return condition()
        time.sleep(0.02)
    return True


class _Wiring:
    """Devices by ibsim's name for them, and what is plugged into which of their ports."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.ends: dict[str, list[tuple[int, str, int]]] = {}
        self.cables = 0

    def add(self, kind: str, guid: int, name: str) -> str:
        """A device; returns its key."""
        key = f"{kind}-{0x0002C90300000000 + guid:016x}"
        self.names[key], self.ends[key] = name, []
        return key

    def cable(self, a: str, b: str) -> None:
        """A cable between the next free ports of two devices."""
        port_a, port_b = len(self.ends[a]) + 1, len(self.ends[b]) + 1
        self.ends[a].append((port_a, b, port_b))
        self.ends[b].append((port_b, a, port_a))
        self.cables += 1

    def text(self, key: str) -> str:
        """The device as ibsim reads it."""
        guid = key[2:]
        head = f"vendid=0x2c9\ndevid=0x{'1011' if key[0] == 'H' else 'c738'}\nsysimgguid=0x{guid}\n"
        if key[0] == "H":
            _, peer, port = self.ends[key][0]
            return (
                f'{head}caguid=0x{guid}\nCa\t1 "{key}"\t\t# "{self.names[key]}"\n'
                f'[1]({int(guid, 16) + 1:x}) \t"{peer}"[{port}]'
                f'\t\t# lid 0 lmc 0 "{self.names[peer]}" lid 0 4xFDR\n\n'
            )
        ports = "".join(
            f'[{here}]\t"{peer}"[{port}]\t\t# "{self.names[peer]}" lid 0 4xFDR\n'
            for here, peer, port in self.ends[key]
        )
        return (
            f"{head}switchguid=0x{guid}({guid})\n"
            f'Switch\t36 "{key}"\t\t# "{self.names[key]}" enhanced port 0 lid 0 lmc 0\n{ports}\n'
        )


def write_net(
    path: Path, *, tors: int, hosts: int, orcas: int, leaves: int, spines: int
) -> tuple[int, int, int]:
    """Write a three-level fat tree in the shape of Yellowstone (Alali et al., 2017) for ibsim.

    Each top-of-rack switch has as many up-links as hosts, dealt over the directors ("orcas"); in a
    director every leaf has 18 cables, dealt over the spines.

    Returns:
        Number of switches, of hosts and of cables.
    """
    made = _Wiring()
    tor = [made.add("S", 0x800000 + t, f"tor{t:03d}") for t in range(tors)]
    for t, switch in enumerate(tor):
        for h in range(hosts):
            name = f"ys{t:03d}n{h + 1:02d} HCA-1"
            made.cable(made.add("H", 0x100000 + 4 * (t * hosts + h), name), switch)
    leaf, spine = (
        [
            [made.add("S", base + 256 * o + n, f"orca{o + 1}/{k}{n + 1:02d}") for n in range(count)]
            for o in range(orcas)
        ]
        for base, k, count in ((0x900000, "L", leaves), (0xA00000, "S", spines))
    )
    for turn in range(tors * hosts):
        made.cable(tor[turn // hosts], leaf[turn % orcas][turn // orcas % leaves])
    for o in range(orcas):
        for switch in leaf[o]:
            for turn in range(18):
                made.cable(switch, spine[o][turn % spines])
    path.write_text("".join(made.text(key) for key in made.names))
    return len(made.names) - tors * hosts, tors * hosts, made.cables


YELLOWSTONE = {"tors": 252, "hosts": 18, "orcas": 9, "leaves": 36, "spines": 18}
"""Full size: 738 switches, 4536 hosts, 14,904 cables: 29,808 ports."""
