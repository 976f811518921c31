"""Whether a recording was made on too few cores, or its network is as slow as its collectives.

The reader of a trace knows no network. It takes small collectives for too slow if they would be on
a supercomputer (:mod:`tailback.traffic.readers.otf2.recording`). Here the fabric is known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tailback.fabric.model import Fabric
from tailback.traffic.program import Program
from tailback.traffic.readers.otf2.recording import STAGE_PS
from tailback.units import transfer_ps

FRAME_BYTES = 1500
"""Bytes of a packet for which a small message may wait on every link: Ethernet's usual MTU. On slow
links this matters."""

KERNEL_PS = 100_000_000
"""Longest plausible time of a small message in the software of hosts whose interfaces the operating
system names: the kernel's TCP takes 20 to 50 µs, and adapters delay interrupts by up to that."""


def with_plausible_latency(program: Program, fabric: Fabric) -> Program:
    """The program, whose recording had too few cores only if its times cannot be the network's.

    Args:
        program: A program with the times of its recording, or without.
        fabric: The network that it was recorded on.
    """
    recording = program.recording
    if recording is None or not recording.oversubscribed_ps:
        return program
    limit = np.log2(program.n_ranks) * _stage_ps(fabric)
    if recording.oversubscribed_ps > limit:
        return program
    return replace(program, recording=replace(recording, oversubscribed_ps=0))


def _stage_ps(fabric: Fabric) -> int:
    """Longest plausible time of one stage of a small collective, ps."""
    path_links = 2 * (int(fabric.switch_tier.max(initial=0)) + 1)
    frame_ps = transfer_ps(FRAME_BYTES, float(fabric.link_gbps.min(initial=np.inf)))
    software_ps = KERNEL_PS if fabric.link_interface is not None else 0
    return STAGE_PS + software_ps + path_links * frame_ps
