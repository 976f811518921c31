"""OTF2 traces of any size: a halo exchange, written by compiled code."""

from __future__ import annotations

import ctypes
import subprocess
from ctypes import c_uint32, c_uint64, c_void_p
from pathlib import Path

import tailback
from tailback.traffic import otf2_library as o
from tailback.traffic.otf2_library import UNDEFINED, Otf2Library

LIBRARY = Path(tailback.__file__).parent / "_otf2" / "libotf2.so"
CALLS = ("MPI_Irecv", "MPI_Isend", "MPI_Waitall", "MPI_Allreduce")
ALLREDUCE_EVERY = 16
"""Rounds between two collectives."""

_SOURCE = r"""
#include <stdint.h>
#include <stddef.h>
struct writers {
  int (*enter)(void *, void *, uint64_t, uint32_t);
  int (*leave)(void *, void *, uint64_t, uint32_t);
  int (*isend)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint64_t, uint64_t);
  int (*ireceive)(void *, void *, uint64_t, uint32_t, uint32_t, uint32_t, uint64_t, uint64_t);
  int (*sent)(void *, void *, uint64_t, uint64_t);
  int (*receiving)(void *, void *, uint64_t, uint64_t);
  int (*begin)(void *, void *, uint64_t);
  int (*end)(void *, void *, uint64_t, uint8_t, uint32_t, uint32_t, uint64_t, uint64_t);
};
/* Rounds of a halo exchange with the ranks on both sides; returns the number of events. */
uint64_t play(const struct writers *o, void *w, uint32_t rank, uint32_t ranks, uint64_t rounds,
              uint64_t every, uint64_t *last) {
  uint64_t t = 1000, n = 0, request = 0;
  uint32_t side[2] = {(rank + ranks - 1) % ranks, (rank + 1) % ranks};
  for (uint64_t round = 0; round < rounds; round++) {
    t += 1000;
    for (uint32_t k = 0; k < 2; k++) {
      o->enter(w, NULL, t += 40, 0);
      o->receiving(w, NULL, t += 5, request + k);
      o->leave(w, NULL, t += 60, 0);
    }
    for (uint32_t k = 0; k < 2; k++) {
      o->enter(w, NULL, t += 40, 1);
      o->isend(w, NULL, t += 5, side[k], 0, 7 + k, 8192, request + 2 + k);
      o->leave(w, NULL, t += 60, 1);
    }
    o->enter(w, NULL, t += 40, 2);
    /* What left to one side arrives from the other. */
    t += 800;
    for (uint32_t k = 0; k < 2; k++)
      o->ireceive(w, NULL, t, side[k], 0, 7 + 1 - k, 8192, request + k);
    for (uint32_t k = 0; k < 2; k++) o->sent(w, NULL, t, request + 2 + k);
    o->leave(w, NULL, t += 10, 2);
    n += 18;
    request += 4;
    if (round % every == every - 1) {
      o->enter(w, NULL, t += 40, 3);
      o->begin(w, NULL, t);
      o->end(w, NULL, t += 900, 11, 0, UINT32_MAX, 8 * (uint64_t)ranks, 8 * (uint64_t)ranks);
      o->leave(w, NULL, t, 3);
      n += 4;
    }
  }
  *last = t;
  return n;
}
"""
_WRITERS = (
    "Enter",
    "Leave",
    "MpiIsend",
    "MpiIrecv",
    "MpiIsendComplete",
    "MpiIrecvRequest",
    "MpiCollectiveBegin",
    "MpiCollectiveEnd",
)


def write(folder: Path, ranks: int, rounds: int) -> int:
    """Write the trace of a halo exchange on a ring, with an MPI_Allreduce now and then.

    Args:
        folder: An existing folder.
        ranks: Number of ranks, 3 or more.
        rounds: Exchanges; each is 18 events of a rank.

    Returns:
        The number of events.
    """
    (folder / "play.c").write_text(_SOURCE)
    command = ["cc", "-O2", "-shared", "-fPIC", "play.c", "-o", "play.so"]
    subprocess.run(command, cwd=folder, check=True)
    play = ctypes.CDLL(str(folder / "play.so")).play
    play.restype = c_uint64
    play.argtypes = (c_void_p, c_void_p, c_uint32, c_uint32, c_uint64, c_uint64, c_void_p)
    otf2, library = Otf2Library(LIBRARY), ctypes.CDLL(str(LIBRARY))
    addresses = [
        ctypes.cast(getattr(library, f"OTF2_EvtWriter_{name}"), c_void_p).value for name in _WRITERS
    ]
    writers = (c_void_p * len(addresses))(*addresses)
    handle = otf2.open(folder, "traces")
    otf2.archive("SetCreator", handle, b"Score-P 8.0")
    otf2.archive("OpenEvtFiles", handle)
    events, last = [], c_uint64()
    for rank in range(ranks):
        writer = otf2.writer("GetEvtWriter", handle, rank)
        events.append(
            int(
                play(
                    ctypes.addressof(writers),
                    writer,
                    rank,
                    ranks,
                    rounds,
                    ALLREDUCE_EVERY,
                    ctypes.addressof(last),
                )
            )
        )
        otf2.archive("CloseEvtWriter", handle, writer)
    otf2.archive("CloseEvtFiles", handle)
    _define(otf2, handle, events, last.value)
    otf2.archive("Close", handle)
    for name in ("play.c", "play.so"):
        (folder / name).unlink()
    return sum(events)


def _define(otf2: Otf2Library, handle: int, events: list[int], last: int) -> None:
    """Write one host, its ranks, the calls and MPI_COMM_WORLD."""
    writer = otf2.writer("GetGlobalDefWriter", handle)
    texts = ["", "machine", "MPI_COMM_WORLD", *CALLS]
    otf2.define("ClockProperties", writer, 10**9, 0, last, 0)
    for number, text in enumerate(texts):
        otf2.define("String", writer, number, text.encode())
    otf2.define("SystemTreeNode", writer, 0, 1, 1, UNDEFINED)
    for rank, number in enumerate(events):
        otf2.define("LocationGroup", writer, rank, 0, o.PROCESS, 0, UNDEFINED)
        otf2.define("Location", writer, rank, 0, o.CPU_THREAD, number, rank)
    for region in range(len(CALLS)):
        otf2.define(
            "Region", writer, region, 3 + region, 3 + region, 0, 0, o.MPI, 0, UNDEFINED, 0, 0
        )
    members = (c_uint64 * len(events))(*range(len(events)))
    for number, kind in enumerate((o.COMM_LOCATIONS, o.COMM_GROUP)):
        otf2.define(
            "Group", writer, number, 0, kind, o.MPI, 0, len(events), ctypes.addressof(members)
        )
    otf2.define("Comm", writer, 0, 2, 1, UNDEFINED, 0)
    otf2.archive("CloseGlobalDefWriter", handle, writer)
