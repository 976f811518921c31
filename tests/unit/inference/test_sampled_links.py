"""Links by the samples of real packets: those with most congested packets, with their interval."""

from __future__ import annotations

import polars as pl
import pytest

from tailback.inference.explain import SAMPLED_LINKS, sampled_links
from tailback.telemetry.estimate import link_estimates
from tests.factories.counted_links import small_tree

FABRIC = small_tree()


def samples(rows: list[tuple[int, int, int]]) -> pl.DataFrame:
    """Samples of links: number, packets, congested packets, on paths of two hops."""
    return pl.DataFrame(
        [(link, 0, n, n, n, 1000 * n, met, met, met) for link, n, met in rows],
        schema=[
            "link",
            "label",
            "hop_samples",
            "hop_weight",
            "hop_variance",
            "hop_bytes",
            "congested_samples",
            "congested_weight",
            "congested_variance",
        ],
        orient="row",
    )


def test_links_come_by_their_congested_packets() -> None:
    links = sampled_links(link_estimates(samples([(3, 100, 20), (5, 400, 40), (6, 0, 0)])), FABRIC)
    assert [link.number for link in links] == [5, 3], "one without packets is not listed"
    first = links[0]
    assert first.link == FABRIC.link_name(5) and first.packets == 400
    assert first.congested_fraction == pytest.approx(0.1)
    assert first.low < 0.1 < first.high
    assert sampled_links(None, FABRIC) == ()


def test_the_list_is_limited_to_readable_length() -> None:
    many = [(link, 50, 1 + link) for link in range(min(FABRIC.n_links, 60))]
    links = sampled_links(link_estimates(samples(many)), FABRIC)
    assert len(links) == min(SAMPLED_LINKS, len(many))
    assert links[0].number == many[-1][0]
