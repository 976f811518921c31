"""The figures, one a file; importing this package registers them all."""

from tailback.report.figures import (
    back_pressure,
    bars,
    change_congested_fraction,
    change_fabric_raster,
    change_how_sure,
    change_link_time,
    change_rank_matrix,
    congested_fraction,
    dragonfly_groups,
    fabric_raster,
    how_sure,
    link_time,
    rank_matrix,
    rank_timeline,
    time_course,
    torus_rings,
)

__all__ = [
    "back_pressure",
    "bars",
    "change_congested_fraction",
    "change_fabric_raster",
    "change_how_sure",
    "change_link_time",
    "change_rank_matrix",
    "congested_fraction",
    "dragonfly_groups",
    "fabric_raster",
    "how_sure",
    "link_time",
    "rank_matrix",
    "rank_timeline",
    "time_course",
    "torus_rings",
]
