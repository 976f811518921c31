"""The data path for tests: whether this machine can have it, and its C code as a library."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.lab import telemetry
from tailback.lab.datapath.sampling import PacketScheme, hash_masks
from tests.factories.lab import why_not
from tests.factories.repository import ROOT

SOURCES = ROOT / "python" / "tailback" / "lab" / "datapath"
TESTS = ROOT / "tests" / "unit" / "lab"

RECORD = np.dtype(
    [
        ("sample", np.uint32),
        ("link", np.uint32),
        ("hop", np.uint32),
        ("congested", np.uint32),
        ("id", np.uint32),
        ("random", np.uint32, 2),
        ("masks", np.uint32, 5),
    ]
)
"""``struct record`` of visits.h."""


@cache
def why_no_bpf(*, jobs: bool = False) -> str | None:
    """Why this machine cannot sample packets (of MPI programs); None if it can."""
    reason = why_not(jobs=jobs) or telemetry.missing()
    if reason is not None:
        return reason
    # A container may have all programs, and no right to mount a file system or to load a program.
    with private_folder() as (folder, problem):
        if problem:
            return problem
        built = folder.parent / "probe.o"
        build = kernel_build(PacketScheme.parse("coordinated"), 31, built)
        loaded = subprocess.run(
            ["bpftool", "prog", "load", built, folder / "probe"], capture_output=True, text=True
        )
        return f"no eBPF: {(build or loaded.stderr.strip())[:200]}" if loaded.returncode else None


@contextmanager
def private_folder() -> Iterator[tuple[Path, str]]:
    """A BPF file system of one's own, and why there is none."""
    with tempfile.TemporaryDirectory(prefix="tailback-bpf-") as name:
        folder = Path(name) / "bpf"
        folder.mkdir()
        made = subprocess.run(
            ["mount", "-t", "bpf", "none", folder], capture_output=True, text=True
        )
        try:
            yield folder, made.stderr.strip() and f"no BPF file system: {made.stderr.strip()}"
        finally:
            subprocess.run(["umount", folder], capture_output=True)


def kernel_build(sampling: PacketScheme, links: int, out: Path) -> str:
    """Compile visits.bpf.c; returns what the compiler complained about."""
    done = subprocess.run(
        [
            "clang",
            "-O2",
            "-g",
            "-target",
            "bpf",
            "-Wall",
            "-Werror",
            *telemetry.multiarch(),
            f"-I{SOURCES}",
            *sampling.defines(links),
            "-c",
            TESTS / "visits.bpf.c",
            "-o",
            out,
        ],
        capture_output=True,
        text=True,
    )
    return done.stderr.strip()


def library(sampling: PacketScheme, links: int, folder: Path) -> ctypes.CDLL:
    """visits.c, compiled for user space."""
    out = folder / f"{str(sampling).replace(':', '-')}-{links}.so"
    subprocess.run(
        [
            "cc",
            "-O2",
            "-shared",
            "-fPIC",
            "-Wall",
            "-Wno-unknown-pragmas",
            "-Werror",
            f"-I{SOURCES}",
            *sampling.defines(links),
            TESTS / "visits.c",
            "-o",
            out,
        ],
        check=True,
    )
    return ctypes.CDLL(str(out))


def address(values: NDArray[Any]) -> ctypes.c_void_p:
    """Where an array begins, for a C function."""
    assert values.flags.c_contiguous
    return ctypes.c_void_p(values.ctypes.data)


def _splitmix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _splitmix(_splitmix(x))


class Visits:
    """Packets on random paths, and what the Rust schemes make of them.

    Args:
        sampling: The scheme.
        links: Number of links.
        packets: Number of packets P.
        hops: Hops of each path.
        seed: Of everything random.
    """

    def __init__(
        self, sampling: PacketScheme, links: int, packets: int, hops: int, seed: int
    ) -> None:
        dice = np.random.default_rng(seed)
        self.sampling, self.hops, self.seed = sampling, hops, seed
        self.ids = dice.integers(0, 1 << 24, packets, np.uint32)
        self.links = dice.integers(1, links + 1, (packets, hops), np.uint32)
        self.levels = (dice.random((packets, hops)) < 0.4).astype(np.uint8)
        table = [[0] * 5] + [
            [*hash_masks(link, sampling.hash_bits), *([0] * (5 - sampling.hash_bits))]
            for link in range(1, links + 1)
        ]
        self._masks = np.array(table, np.uint32)

    def records(self, hop: int, samples: NDArray[np.uint32]) -> NDArray[np.void]:
        """The visits at one hop, of packets that come with these samples."""
        out = np.zeros(len(self.ids), RECORD)
        packet = np.arange(len(self.ids), dtype=np.uint64)
        random = _mix(
            _mix(np.array([self.seed], np.uint64)) ^ (packet << np.uint64(8)) ^ np.uint64(hop)
        )
        out["sample"], out["link"], out["hop"], out["id"] = (
            samples,
            self.links[:, hop],
            hop,
            self.ids,
        )
        out["congested"] = self.levels[:, hop]
        out["random"][:, 0] = random & np.uint64(0xFFFFFFFF)
        out["random"][:, 1] = random >> np.uint64(32)
        out["masks"] = self._masks[self.links[:, hop]]
        return out

    def received(self) -> set[tuple[int, bool, int, int]]:
        """What receivers of the Rust scheme conclude: packet, about congestion, seen, weight."""
        size = 1 if self.sampling.scheme == "full" else 3
        received = _core.run_scheme(
            self.sampling.scheme.replace("-", "_"),
            self.ids,
            np.full(len(self.ids), self.hops, np.uint8),
            self.links,
            self.levels,
            self.seed,
            bits=max(self.sampling.hash_bits, 1),
            size=size,
        )
        columns = (received[name].tolist() for name in ("packet", "congested", "seen", "weight"))
        return {(p, bool(c), s, round(w)) for p, c, s, w in zip(*columns, strict=True)}

    def concluded(
        self, samples: NDArray[np.uint32], link_bits: int
    ) -> set[tuple[int, bool, int, int]]:
        """The same from the samples that arrived, by the documented layout."""
        scheme, seen_bits = self.sampling.scheme, self.sampling.hash_bits or link_bits
        out = set()
        for packet, sample in enumerate(samples.tolist()):
            if scheme in ("coordinated", "compact"):
                seen = sample >> 1 & ((1 << seen_bits) - 1)
                weight = self.hops if scheme == "coordinated" else sample >> (1 + seen_bits) & 7
                out.add((packet, False, seen, weight))
                if sample & 1:
                    out.add((packet, True, seen, weight))
                continue
            for about in (False, True):
                part = sample >> (seen_bits + 3) * about
                if weight := part >> seen_bits & 7:
                    out.add((packet, about, part & ((1 << seen_bits) - 1), weight))
        return out
