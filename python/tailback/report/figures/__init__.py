"""The figures, one a file; importing this package registers them all."""

from tailback.report.figures import (
    back_pressure,
    before_after,
    change_back_pressure,
    change_congested_fraction,
    change_fabric_raster,
    change_how_sure,
    change_link_time,
    change_rank_matrix,
    congested_fraction,
    distance_histogram,
    fabric_raster,
    how_sure,
    link_time,
    rank_matrix,
    time_course,
    waterfall,
)

__all__ = [
    "back_pressure",
    "before_after",
    "change_back_pressure",
    "change_congested_fraction",
    "change_fabric_raster",
    "change_how_sure",
    "change_link_time",
    "change_rank_matrix",
    "congested_fraction",
    "distance_histogram",
    "fabric_raster",
    "how_sure",
    "link_time",
    "rank_matrix",
    "time_course",
    "waterfall",
]
