"""Who sent how much to whom: gravity, corrected by what links in between carried."""

from __future__ import annotations

import numpy as np
import pytest

from tailback.evidence.traffic_matrix import LinkLoads, fit_to_links, gravity

N = 8
PARTNER = np.array([5, 4, 7, 6, 1, 0, 3, 2])
"""Each of four nodes on one leaf sends to one on the other, and back."""


def up_link(src: int, dst: int) -> int:
    """One of four links between the two leaves each way, by destination."""
    return 2 * N + (dst % 4) + (4 if src >= 4 else 0)


def routes(src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Links 0 to 7 leave nodes, 8 to 15 enter them, 16 to 23 join the leaves."""
    pairs, links = [], []
    for number, (a, b) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        inside = a // 4 == b // 4
        path = [a, N + b] if inside else [a, up_link(a, b), N + b]
        pairs += [number] * len(path)
        links += path
    return np.array(pairs), np.array(links)


def carried(flow: np.ndarray) -> np.ndarray:
    src, dst = np.nonzero(flow)
    pair, link = routes(src, dst)
    return np.bincount(link, flow[src, dst][pair], 3 * N).astype(np.float64)


def of_partners() -> np.ndarray:
    flow = np.zeros((N, N))
    flow[np.arange(N), PARTNER] = 1e9
    return flow


def test_links_in_between_say_which_pairs_sent() -> None:
    flow = of_partners()
    first = gravity(flow.sum(axis=1), flow.sum(axis=0), np.ones(N, np.bool_))
    assert first is not None and first.share[0, 5] == pytest.approx(1 / 56, rel=0.1)
    loads = LinkLoads(carried(flow), np.zeros(3 * N), routes)
    (fitted,) = fit_to_links([first], loads)
    assert carried(fitted.share * fitted.total_bytes) == pytest.approx(carried(flow), rel=0.02)
    # Nothing stays on the leaf: the links between the leaves carried all of it.
    assert fitted.share[:4, :4].sum() + fitted.share[4:, 4:].sum() < 0.01
    assert fitted.share.sum() == pytest.approx(1.0)


def test_links_that_nobody_counted_say_nothing() -> None:
    flow = of_partners()
    first = gravity(flow.sum(axis=1), flow.sum(axis=0), np.ones(N, np.bool_))
    assert first is not None
    unknown = carried(flow)
    unknown[2 * N :] = np.nan
    (fitted,) = fit_to_links([first], LinkLoads(unknown, np.zeros(3 * N), routes))
    assert fitted.share == pytest.approx(first.share, abs=1e-3)


def test_a_usual_matrix_stays_where_hosts_send_less() -> None:
    flow = of_partners()
    everyone = np.ones(N, np.bool_)
    prior = gravity(flow.sum(axis=1), flow.sum(axis=0), everyone)
    assert prior is not None
    loads = LinkLoads(carried(flow), np.zeros(3 * N), routes)
    (prior,) = fit_to_links([prior], loads)
    sent, received = np.zeros(N), np.zeros(N)
    sent[[0, 1]], received[[5, 4]] = 1e6, 1e6
    window = gravity(sent, received, everyone, prior)
    assert window is not None and window.total_bytes == 2e6
    assert (window.src.tolist(), window.dst.tolist()) == ([0, 1], [4, 5])
    assert window.share.sum() == pytest.approx(1.0)
    assert gravity(np.zeros(N), np.zeros(N), everyone) is None


def test_each_node_sends_and_receives_what_was_counted() -> None:
    # Two roots that also send receive from five, who send different amounts: neither as many as
    # the other, nor the same.
    sent = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 0.0]) * 1e9
    received = np.zeros(N)
    received[[0, 6, 7]] = 2e9, 12e9, 7e9
    matrix = gravity(sent, received, np.ones(N, np.bool_))
    assert matrix is not None
    assert (matrix.src.tolist(), matrix.dst.tolist()) == ([0, 1, 2, 3, 4, 5], [0, 6, 7])
    assert matrix.share.sum(axis=1) == pytest.approx(sent[:6] / 21e9, rel=0.01)
    assert matrix.share.sum(axis=0) == pytest.approx(received[[0, 6, 7]] / 21e9, rel=0.01)
    assert matrix.share[0, 0] == 0.0
