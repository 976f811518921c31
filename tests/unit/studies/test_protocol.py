"""The distributed assignment and switches without rate control, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.fluid import (
    FlowPaths,
    rounds_to_completion,
    run_protocol,
)

BYTE_PER_NS = 8.0  # Gb/s


@pytest.mark.parametrize("buffer", [2, 8, 32])
def test_without_control_a_quarter_above_the_optimum(buffer: int) -> None:
    """Round-robin outputs, equal flows, any buffer: 5 time units instead of 4.

    Birk and Zdornov (2009).

    The hot link H has three inputs: two single flows and K, which two flows share; one of those
    shares M with three flows that do not use H. M and H both carry four flows, so W = 4. In turn,
    the single flows get 1/3 of H and K's two 1/6 each; M, whose buffer they fill, moves only 4/6 of
    what it could until the single flows end at 3. Then M needs 2 more.
    """
    names = ["a1", "a2", "a3", "b1", "b2", "b3", "b4", "m", "k", "h", "d1", "d2", "d3"]
    link = {name: number for number, name in enumerate(names)}
    flows = ["a1 h", "a2 h", "a3 k h", "b4 m k h", "b1 m d1", "b2 m d2", "b3 m d3"]
    paths = FlowPaths.of([[link[name] for name in flow.split()] for flow in flows])
    cells = 3000
    free = rounds_to_completion(len(names), paths, cells, buffer).max() / cells
    assert free == pytest.approx(5.0, rel=0.02)
    paced = rounds_to_completion(len(names), paths, cells, buffer, assigned=True).max() / cells
    assert paced == pytest.approx(4.0, rel=0.01)
    assert paths.link_sum(np.ones(len(flows)), len(names)).max() == 4


@pytest.mark.slow
def test_protocol_needs_a_round_trip_and_probe() -> None:
    """A first rate after a round trip, the final one a probe after the last start.

    Birk and Zdornov (2009).
    """
    rng = np.random.default_rng(5)
    n_links, n, hop, probe = 12, 40, 100, 5_000
    paths = FlowPaths.of(
        [sorted(rng.choice(n_links, rng.integers(1, 5), replace=False)) for _ in range(n)]
    )
    start = rng.integers(0, 20_000, n).astype(np.uint64)
    size = rng.integers(10_000, 20_000, n)
    run = run_protocol(np.full(n_links, BYTE_PER_NS), paths, size, start, hop, probe)
    hops = np.diff(paths.start)
    assert (run.initial_ps - start == 2 * hops * hop).all()
    assert run.announcements == run.leaves == n
    assert run.link_visits[0] == run.link_visits[2] == hops.sum()
    assert run.first_leave_ps > run.final_ps.max(), "the premise: nobody left before"
    assert run.probes.max() == 1
    # The probe begins at most an interval after the last announcement, or is under way.
    late = run.final_ps.astype(np.int64) - run.announced_ps
    assert late.max() <= probe + 4 * hops.max() * hop
    # Links are overloaded while flows do not know of each other, never afterwards.
    assert run.overload[0] > 1.0 and run.overload[1] <= 1.0 + 1e-9
