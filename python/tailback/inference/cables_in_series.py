"""Links over which exactly the same messages of ours travel, one after the other."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.routes import forwarded_links


def links_in_series(link: int, prepared: PreparedScenario, run: Run) -> list[int]:
    """Other links that carry exactly the messages that this one carries.

    Times of messages are the same whichever of them is slow, except for what buffers between them
    hold. Without forwarding tables packets may take several paths, and no link is listed.

    Args:
        link: The link.
        prepared: The scenario.
        run: A run of it, with its messages.
    """
    links_of = forwarded_links(prepared.scenario, prepared.fabric)
    if links_of is None:
        return []
    nodes = run.tables["ranks"].sort("rank")["node"].to_numpy().astype(np.int64)
    ends = run.tables["messages"].select("src_rank", "dst_rank").unique(maintain_order=True)
    src, dst = (nodes[ends[name].to_numpy()] for name in ("src_rank", "dst_rank"))
    pairs = np.unique(np.stack([src, dst])[:, src != dst], axis=1)
    pair, crossed = links_of(pairs[0], pairs[1])
    over: dict[int, list[Hashable]] = {}
    for number, one in zip(pair.tolist(), crossed.tolist(), strict=True):
        over.setdefault(one, []).append(number)
    mine = over.get(link, [])
    return [one for one, numbers in over.items() if one != link and numbers == mine]
