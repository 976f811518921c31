"""Links shared with other jobs, as the diagnosis lists them."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis.explanation import SampledLink, SharedLink
from tailback.evidence.job_shares import OURS
from tailback.evidence.other_traffic import OtherTraffic
from tailback.fabric.model import Fabric

MIN_SHARE, MAX_LINKS = 0.1, 20
"""Minimum share of a link's bytes, both ours and others', to count as shared; links listed."""


def shared_links(others: OtherTraffic | None, fabric: Fabric) -> tuple[SharedLink, ...]:
    """Links on which both other jobs and ours send much, those with most of their bytes first."""
    if others is None:
        return ()
    found = []
    for (link,), rows in others.links.group_by("link", maintain_order=True):
        share = dict(rows.select("job", "share").rows())
        ours = share.pop(OURS, 0.0)
        if min(ours, 1.0 - ours) < MIN_SHARE:
            continue
        jobs = sorted(share.items(), key=lambda item: -item[1])
        of_others = float(rows.filter(pl.col("job") != OURS)["sent_bytes"].sum())
        error = float(rows["error"].to_numpy().max())
        named = {job: part for job, part in jobs if part >= 2 * error}
        if named:
            one = SharedLink(link=fabric.link_name(int(link)), ours=ours, jobs=named, error=error)
            found.append((of_others, one))
    return tuple(one for _, one in sorted(found, key=lambda pair: -pair[0])[:MAX_LINKS])


SAMPLED_LINKS = 40
"""Sampled links that a diagnosis names: those with the most congested packets."""


def sampled_links(estimates: pl.DataFrame | None, fabric: Fabric) -> tuple[SampledLink, ...]:
    """Links with the most congested packets by the samples in real packets.

    Args:
        estimates: Estimates of the sampled links, as ``link_estimates`` returns them; None without
            samples.
        fabric: The fabric, for their names.
    """
    if estimates is None:
        return ()
    rows = estimates.filter(pl.col("packets") > 0).sort(
        "congested", "packets", "link", descending=[True, True, False]
    )
    return tuple(
        SampledLink(
            link=fabric.link_name(row["link"]),
            number=row["link"],
            packets=row["packets"],
            congested_fraction=row["fraction"],
            low=row["fraction_low"],
            high=row["fraction_high"],
        )
        for row in rows.head(SAMPLED_LINKS).iter_rows(named=True)
    )
