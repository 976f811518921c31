"""All decoders give the same integers, whatever arrives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailback import _core


@st.composite
def arrived(draw: st.DrawFn):
    field = draw(st.sampled_from([8, 16, 24, 32]))
    bits = draw(st.integers(1, 8))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(0, 400))
    ids = random.integers(0, 1 << field, n, dtype=np.uint32)
    hashes = random.integers(0, 1 << bits, n).astype(np.uint8)
    weights = random.integers(0, 256, n).astype(np.uint8)
    links = random.integers(0, min(1 << field, 1024), draw(st.integers(0, 40)), dtype=np.uint32)
    return ids, hashes, weights, links, bits, field


def definition(ids, hashes, weights, links, bits, field):
    """Σ weight × (2^bits × [hash = H(id, link)] − 1), one link at a time."""
    out = np.zeros(len(links), np.int64)
    for k, link in enumerate(links):
        same = _core.link_hash("gf", ids, np.full(len(ids), link, np.uint32), bits, field) == hashes
        out[k] = (weights.astype(np.int64) * ((same.astype(np.int64) << bits) - 1)).sum()
    return out


@given(arrived())
def test_every_decoder_follows_the_definition(case) -> None:
    truth = definition(*case)
    for how in ("direct", "transform", "auto"):
        assert np.array_equal(_core.decode(*case, how), truth), how


@given(arrived(), st.integers(1, 6), st.integers(0, 1000))
def test_classes_add_up(case, count: int, seed: int) -> None:
    ids, hashes, weights, links, bits, field = case
    random = np.random.default_rng(seed)
    of_packet = random.integers(0, count, len(ids), dtype=np.uint32)
    members = [np.flatnonzero(random.random(len(links)) < 0.5) for _ in range(count)]
    start = np.concatenate([[0], np.cumsum([len(m) for m in members])]).astype(np.uint64)
    flat = np.concatenate([*members, np.zeros(0, int)]).astype(np.uint32)
    packets_of_links = _core.decode_classes(
        ids,
        hashes,
        weights,
        class_of_packet=of_packet,
        class_start=start,
        class_links=flat,
        links=links,
        bits=bits,
        field_bits=field,
    )
    truth = np.zeros(len(links), np.int64)
    for k, class_links in enumerate(members):
        part = of_packet == k
        all_links = definition(ids[part], hashes[part], weights[part], links, bits, field)
        truth[class_links] += all_links[class_links]
    assert np.array_equal(packets_of_links, truth)


def test_one_bit_is_algorithm_7() -> None:
    """Plus the weight where the hash agrees, minus it where it does not."""
    ids = np.array([5, 6, 7], np.uint32)
    weights = np.array([5, 3, 1], np.uint8)
    links = np.array([9], np.uint32)
    agree = _core.link_hash("gf", ids, np.full(3, 9, np.uint32), 1, 16)
    hashes = agree ^ np.array([0, 1, 0], np.uint8)
    assert _core.decode(ids, hashes, weights, links, 1, 16, "auto").tolist() == [5 - 3 + 1]


def test_what_does_not_fit_is_told() -> None:
    single, pair = np.ones(1, np.uint32), np.ones(2, np.uint8)
    with pytest.raises(ValueError, match="1 packet ids, 2 hashes"):
        _core.decode(single, pair, pair, single, 1, 16, "auto")
    with pytest.raises(ValueError, match="packet id 0 is 256"):
        _core.decode(single * 256, pair[:1], pair[:1], single, 1, 8, "auto")
    with pytest.raises(ValueError, match=r"no decoder .magic."):
        _core.decode(single, pair[:1], pair[:1], single, 1, 8, "magic")
    with pytest.raises(ValueError, match="a packet is of class 1"):
        _core.decode_classes(
            single,
            pair[:1],
            pair[:1],
            class_of_packet=single,
            class_start=np.array([0, 1], np.uint64),
            class_links=np.zeros(1, np.uint32),
            links=single,
            bits=1,
            field_bits=8,
        )


def test_many_packets_are_decoded_in_portions() -> None:
    random = np.random.default_rng(4)
    n = 600_000
    ids = random.integers(0, 1 << 16, n, dtype=np.uint32)
    hashes = random.integers(0, 4, n).astype(np.uint8)
    weights = random.integers(1, 6, n).astype(np.uint8)
    links = np.arange(1, 33, dtype=np.uint32)
    of_packet = random.integers(0, 2, n, dtype=np.uint32)
    start, members = np.array([0, 16, 32], np.uint64), np.arange(32, dtype=np.uint32)
    packets_of_links = _core.decode_classes(
        ids,
        hashes,
        weights,
        class_of_packet=of_packet,
        class_start=start,
        class_links=members,
        links=links,
        bits=2,
        field_bits=16,
    )
    for k in range(2):
        part, class_links = of_packet == k, slice(16 * k, 16 * k + 16)
        alone = _core.decode(
            ids[part], hashes[part], weights[part], links[class_links], 2, 16, "direct"
        )
        assert np.array_equal(packets_of_links[class_links], alone)
