"""Puts the programs that sample packets into the ports of a lab, and takes them out again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.lab import system
from tailback.lab.datapath.background import BackgroundRecorder
from tailback.lab.datapath.counts import Routes
from tailback.lab.datapath.kernel import port_table
from tailback.lab.datapath.paths import PathOf
from tailback.lab.datapath.record import Receivers, append_until
from tailback.lab.datapath.sampling import ENTROPY_ECN, PacketScheme, hash_masks, link_bits
from tailback.lab.plan import HASH_SEED, Command, Plan
from tailback.lab.spec import LabError
from tailback.telemetry.path_hash import PATH_HASHES, TCP, Flows

SAMPLES = "samples.csv"
"""File of the counts of receivers in the folder of a case."""

LINKS = "links.csv"
"""File of the counts of ports in the folder of the truth."""

TOOLS = {"clang": "clang", "bpftool": "bpftool", "mount": "mount", "umount": "mount"}
"""Programs that build and load the programs, and the Debian package that has each."""

FOLDER = "bpf"
"""Where a lab keeps its programs and maps: a file system of its own, outside of /sys, which
``tc -n`` mounts anew."""

_HEADERS = Path("/usr/include/bpf/bpf_helpers.h")


def missing() -> str | None:
    """Why packets cannot be sampled here; None if it can be tried."""
    reason = system.missing(system.FABRIC_TOOLS | TOOLS)
    if reason is None and not _HEADERS.exists():
        return "not found: bpf/bpf_helpers.h (libbpf-dev)"
    if reason is None and not Path("/sys/kernel/btf/vmlinux").exists():
        return "the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)"
    return reason


def _require() -> None:
    system.require(system.FABRIC_TOOLS | TOOLS)
    reason = missing()
    if reason is not None:
        raise LabError(reason, remedy="on Debian: apt-get install libbpf-dev, and its kernel")


def install(plan: Plan, sampling: PacketScheme, folder: Path) -> None:
    """Build the programs for this lab and attach them to all of its ports.

    Args:
        plan: A lab whose interfaces are there.
        sampling: The scheme.
        folder: Folder of the lab.

    Raises:
        LabError: The machine cannot build or load them.
        SamplingError: The scheme does not fit the packets.
    """
    _require()
    sampling.check(len(plan.links), plan.spec.fabric.ip)
    fabric = plan.spec.fabric
    if sampling.scheme == ENTROPY_ECN and (fabric.rule != "ecn" or fabric.ip != 4):
        raise LabError(
            f"scheme {ENTROPY_ECN!r} needs ports that mark, and the hash of IPv4",
            place="[fabric] rule, ip",
            remedy='set rule = "ecn" and ip = 4',
        )
    pinned = folder / FOLDER
    pinned.mkdir()
    _run("mount", "-t", "bpf", "none", str(pinned))
    built = folder / "datapath.o"
    with as_file(files("tailback.lab.datapath")) as sources:
        _run(
            "clang",
            "-O2",
            "-g",
            "-target",
            "bpf",
            *multiarch(),
            *sampling.defines(len(plan.links)),
            "-c",
            str(sources / "datapath.bpf.c"),
            "-o",
            str(built),
        )
    _run(
        "bpftool",
        "prog",
        "loadall",
        str(built),
        str(pinned / "programs"),
        "pinmaps",
        str(pinned / "maps"),
    )
    with _ports(plan, folder) as ports:
        for link in plan.links:
            if sampling.hash_bits:
                masks = hash_masks(link.number, sampling.hash_bits)
                ports["masks"][link.number, : len(masks)] = masks
            ports["congested_bytes"][link.number] = plan.spec.fabric.congested_bytes
            ports["ecn"][link.number] = plan.spec.fabric.rule == "ecn"
    for command in plan.attach(pinned / "programs"):
        system.run(command)


def _run(*arguments: str) -> None:
    try:
        system.run(Command(arguments))
    except LabError as error:
        raise LabError(
            error.message,
            remedy="sampling needs Linux 6.2 or later with BTF, and the right to "
            "load eBPF programs; without it, leave out --telemetry",
        ) from None


def multiarch() -> list[str]:
    """Where Debian has the headers of this machine's architecture, which no BPF compiler knows."""
    folders = Path("/usr/include").glob("*-linux-gnu/asm")
    return [f"-I{path.parent}" for path in folders]


def remove(folder: Path) -> None:
    """Unmount the programs installed in the folder of a lab. Can be repeated."""
    pinned = folder / FOLDER
    if pinned.is_mount():
        system.run(Command(("umount", str(pinned))))
    with suppress(FileNotFoundError):
        pinned.rmdir()


@contextmanager
def recorded(plan: Plan, sampling: PacketScheme, folder: Path, case: Path) -> Iterator[None]:
    """Samples are written to the case meanwhile, and what ports counted to its truth.

    Args:
        plan: A lab that is up.
        sampling: Its scheme.
        folder: Folder of the lab.
        case: Folder of the case.
    """
    before = truth(plan, folder)
    counted = receivers(plan, sampling, folder, from_now=True)
    with BackgroundRecorder("samples", lambda w: append_until(counted, case / SAMPLES, w)):
        yield
    increments = truth(plan, folder).since(before)
    (case / "truth").mkdir(exist_ok=True)
    with (case / "truth" / LINKS).open("w", encoding="utf-8") as out:
        names = ("packets", "congested", "super_packets", "received", "lost")
        out.write(",".join(("link", *names)) + "\n")
        for link in plan.links:
            values = (getattr(increments, name)[link.number] for name in names)
            out.write(",".join(map(str, (link.number, *values))) + "\n")


def calls_map(folder: Path) -> Path:
    """Where the map of the calls of processes is, in the folder of a lab."""
    return folder / FOLDER / "maps" / "calls"


@contextmanager
def _ports(plan: Plan, folder: Path) -> Iterator[NDArray[np.void]]:
    with port_table(folder / FOLDER / "maps", 1 << link_bits(len(plan.links))) as ports:
        yield ports


@dataclass(frozen=True)
class Truth:
    """The ports' own counts, as a reference for comparison, not as input of a diagnosis.

    Attributes:
        packets: Packets that got a sample, by number of the link.
        congested: Those of them that found the port congested.
        super_packets: Segments of packets that were left alone.
        received: Packets whose samples were counted, by link of the receiving host.
        lost: Samples for which receivers had no room.
    """

    packets: NDArray[np.int64]
    congested: NDArray[np.int64]
    super_packets: NDArray[np.int64]
    received: NDArray[np.int64]
    lost: NDArray[np.int64]

    def since(self, before: Truth) -> Truth:
        """Counts since ``before``."""
        return Truth(*(getattr(self, name) - getattr(before, name) for name in vars(self)))


def truth(plan: Plan, folder: Path) -> Truth:
    """Read the ports' own counts."""
    with _ports(plan, folder) as ports:
        names = ("packets", "congested", "super_packets", "received", "lost")
        return Truth(*(ports[name].astype(np.int64) for name in names))


def receivers(
    plan: Plan, sampling: PacketScheme, folder: Path, *, from_now: bool = False
) -> Receivers:
    """The receivers of a lab, with all their counts or those from now on."""
    maps, links = folder / FOLDER / "maps", len(plan.links)
    path_of = known_paths(plan) if sampling.scheme == ENTROPY_ECN else None
    return Receivers(maps, sampling, routes(plan), links, path_of, from_now=from_now)


def known_paths(plan: Plan) -> PathOf:
    """Paths of packets by the hash of Linux, with the seed and next hops that leaves have now."""
    candidates, paths = routes(plan), dict[tuple[object, ...], list[int]]()
    address = {plan.address_end(host): plan.address(host) for host in plan.hosts}
    number = {(link.source, link.target): link.number for link in plan.links}
    owner = {link.number: link.source for link in plan.links}
    spines = {leaf: _spines_in_use(plan, leaf) for leaf in plan.leaves}
    with system.inside(plan.namespace(plan.leaves[0])):
        seed = int((Path("/proc/sys") / HASH_SEED).read_text())

    def path_of(source: int, interface: int, hops: int, ports: tuple[int, int]) -> list[int]:
        key = (source, interface, hops, ports)
        if key not in paths:
            path = candidates(source, interface, hops)
            if len(path) == 4:
                near, far = (owner[links[0]] for links in (path[1], path[3]))
                ends = np.array([[address[source], plan.address(owner[interface])]])
                flow = Flows(_ZERO, _ZERO, np.array([ports[0]]), ends, ports[1], TCP)
                size = np.array([len(spines[near])])
                chosen = spines[near][int(PATH_HASHES["linux"](flow, _ZERO, 1, size, seed)[0])]
                path[1:3] = [[number[near, chosen]], [number[chosen, far]]]
            paths[key] = [link for links in path for link in links]
        return paths[key]

    return path_of


_ZERO = np.zeros(1, np.int64)


def _spines_in_use(plan: Plan, leaf: str) -> list[str]:
    """Spines among which a leaf chooses, in the order of its next hops."""
    other = next(name for name in plan.leaves if name != leaf)
    routes = json.loads(system.run(plan.show_route(leaf, other)))
    hops = routes[0].get("nexthops", routes)
    return [str(hop["dev"]) for hop in hops]


def routes(plan: Plan) -> Routes:
    """Links between two hosts: of two of a leaf theirs, of others those of all spines."""
    sender = {plan.address_end(host): host for host in plan.hosts}
    owner = {link.number: link.source for link in plan.links}
    number = {(link.source, link.target): link.number for link in plan.links}

    def between(source: int, interface: int, hops: int) -> list[list[int]]:
        start, end = sender.get(source), owner.get(interface)
        if start is None or end not in plan.hosts or start == end:
            return []
        near, far = f"l{start[1]}", f"l{end[1]}"
        up, down = [number[start, near]], [number[far, end]]
        if near == far:
            return [up, down] if hops == 2 else []
        if hops != 4:
            return []
        return [
            up,
            [number[near, spine] for spine in plan.spines],
            [number[spine, far] for spine in plan.spines],
            down,
        ]

    return between
