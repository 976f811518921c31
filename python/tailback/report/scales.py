"""Colour scales of the report, one for each quantity, fixed for the whole of it.

Differences have a scale with two arms: blue for less and brown for more, white at zero. No colour
blindness confuses the two hues. Where there is room, the sign is also drawn (dashes, dots).

Congestion, utilization and stall are three different things and never share a scale. Each scale
runs from light to dark in even steps of perceived lightness (OKLab, Ottosson 2020), so it stays in
order when printed in grey and for colour-blind eyes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.colors import Colormap, Normalize

INK: Final = "#1b2430"
MUTED: Final = "#5d6875"
FAINT: Final = "#d9dee4"
PAPER: Final = "#ffffff"
NO_DATA: Final = "#eef0f2"
NO_DATA_HATCH: Final = "#b9c0c8"

CAUSE_COLOURS: Final = {
    "pattern": "#7a5ea8",
    "placement": "#c2571a",
    "routing": "#2f7f86",
    "slow-link": "#a8456b",
    "other-traffic": "#8a7a2f",
    "injection": "#5f7f4a",
    "in-host": "#94703f",
    "capacity": "#9c4a3c",
    "not-network": "#7b8794",
    "imbalance": "#4f6fa8",
    "noise": "#8c6d4f",
    "late-partner": "#5b5fa0",
    "healthy": "#3f8f5f",
    "undetermined": "#aab2bb",
}
"""One colour for each cause: the verdict, its bar of shares and the waterfall agree on them."""

KIND_COLOURS: Final = {
    "computation": "#d7e3d3",
    "late_sender": "#b2401f",
    "late_receiver": "#e4893b",
    "wait_nxn": "#7d4ba0",
    "wait_barrier": "#a988c9",
    "late_broadcast": "#b83e7c",
    "early_reduce": "#dd8fb6",
    "nxn_completion": "#4b3570",
    "barrier_completion": "#75669c",
    "transfer": "#4a7fbd",
    "one_sided": "#86a7d6",
    "other_mpi": "#9fb0c1",
    "not_running": "#f4f5f7",
    "not_recorded": NO_DATA_HATCH,
}
"""One colour for each thing a rank does: point-to-point waits warm, collective ones violet."""

_ANCHORS: Final = {
    # quantity: (lightness, chroma, hue in degrees) along the scale
    "congestion": (
        (0.945, 0.012, 85),
        (0.78, 0.12, 72),
        (0.58, 0.165, 42),
        (0.38, 0.135, 22),
        (0.19, 0.06, 10),
    ),
    "utilization": (
        (0.955, 0.010, 210),
        (0.79, 0.08, 205),
        (0.60, 0.11, 235),
        (0.41, 0.11, 258),
        (0.22, 0.06, 270),
    ),
    "traffic": (
        (0.93, 0.025, 165),
        (0.76, 0.07, 168),
        (0.58, 0.085, 172),
        (0.40, 0.07, 178),
        (0.22, 0.04, 185),
    ),
    "stall": (
        (0.955, 0.010, 320),
        (0.80, 0.09, 322),
        (0.60, 0.16, 318),
        (0.41, 0.16, 305),
        (0.20, 0.08, 295),
    ),
}


CHANGE: Final = "change"
"""The scale of differences, centred at zero."""

_ARMS: Final = {
    "less": ((0.985, 0.000, 250), (0.80, 0.09, 245), (0.60, 0.13, 252), (0.34, 0.11, 262)),
    "more": ((0.985, 0.000, 65), (0.80, 0.11, 65), (0.60, 0.14, 50), (0.34, 0.11, 35)),
}


def _oklab_to_srgb(lab: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert OKLab colours to sRGB in 0–1, both of shape (n, 3)."""
    to_lms = np.array(
        [
            [1, 0.3963377774, 0.2158037573],
            [1, -0.1055613458, -0.0638541728],
            [1, -0.0894841775, -1.2914855480],
        ]
    )
    to_rgb = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip((lab @ to_lms.T) ** 3 @ to_rgb.T, 0.0, 1.0)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.asarray(srgb, np.float64)


def table(quantity: str, steps: int = 257) -> NDArray[np.uint8]:
    """Colours of one scale from its lower end to its upper, shape (steps, 3), 8-bit sRGB.

    Args:
        quantity: ``congestion``, ``utilization``, ``stall`` or ``traffic`` (bytes), from 0 to 1; or
            ``change``, from -1 to 1.
        steps: Number of colours; of ``change`` an odd one has a colour for no change.
    """
    if quantity == CHANGE:
        at = np.linspace(-1.0, 1.0, steps)
        less, more = (
            _arm(_ARMS[name], np.clip(sign * at, 0, 1))
            for name, sign in (("less", -1), ("more", 1))
        )
        return np.where(at[:, None] < 0, less, more)
    return _arm(_ANCHORS[quantity], np.linspace(0.0, 1.0, steps))


def _arm(
    points: tuple[tuple[float, float, float], ...], at: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Colours at ``at`` (0-1) of a scale through ``points`` (lightness, chroma, hue)."""
    anchors = np.array(points, np.float64)
    hue = np.deg2rad(anchors[:, 2])
    lab = np.column_stack([anchors[:, 0], anchors[:, 1] * np.cos(hue), anchors[:, 1] * np.sin(hue)])
    # Position by lightness: equal steps along the scale are equal steps of lightness.
    where = (anchors[0, 0] - anchors[:, 0]) / (anchors[0, 0] - anchors[-1, 0])
    dense = np.column_stack([np.interp(at, where, lab[:, axis]) for axis in range(3)])
    return np.round(_oklab_to_srgb(dense) * 255).astype(np.uint8)


def norm(quantity: str) -> Normalize:
    """The ends of one scale."""
    from matplotlib.colors import Normalize

    return Normalize(-1, 1) if quantity == CHANGE else Normalize(0, 1)


def colormap(quantity: str) -> Colormap:
    """The matplotlib colour map of one quantity; cells without data stay as the paper is."""
    from matplotlib.colors import ListedColormap

    scale = ListedColormap(table(quantity) / 255.0, name=f"tailback-{quantity}")
    return scale.with_extremes(bad=(0.0, 0.0, 0.0, 0.0))


def luminance(rgb: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Relative luminance (WCAG 2) of 8-bit sRGB colours, shape (n, 3) → (n,)."""
    value = rgb.astype(np.float64) / 255.0
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]), np.float64)
