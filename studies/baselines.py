"""What a fit must beat: constants, and its own shares in another order; a test on held-out data.

A draw that is chosen because its shares are near the published ones says nothing by being near.
Each class is therefore predicted from the others: the draws nearest in the other classes predict
the share of the one left out, and their error is compared with that of predictions that know no
network at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.units import percent

Shares = NDArray[np.float64]


def rms(differences: Shares) -> float:
    """Root of the mean square."""
    return float(np.sqrt((differences**2).mean()))


def rms_reordered(ours: Shares, theirs: Shares) -> float:
    """Root-mean-square difference over all orders of ``ours``, both of shape (classes,)."""
    products = 2 * ours.sum() * theirs.sum() / len(theirs)
    return float(np.sqrt(((ours**2).sum() + (theirs**2).sum() - products) / len(theirs)))


def predict_left_out(
    shares: Shares, theirs: Shares, allowed: NDArray[np.bool_], keep: int
) -> Shares:
    """Share of each class that the draws nearest in the other classes predict.

    Args:
        shares: Shares of the draws, shape (draws, classes).
        theirs: Published shares, shape (classes,).
        allowed: Draws that may be chosen, shape (draws,).
        keep: How many draws are chosen; their mean is the prediction.
    """
    candidates, out = shares[allowed], np.zeros(len(theirs))
    for number in range(len(theirs)):
        others = np.arange(len(theirs)) != number
        distance = ((candidates[:, others] - theirs[others]) ** 2).mean(axis=1)
        nearest = np.argsort(distance, kind="stable")[:keep]
        out[number] = candidates[nearest, number].mean()
    return out


def mean_of_others(theirs: Shares) -> Shares:
    """Mean of the other published shares, for each class."""
    return np.asarray((theirs.sum() - theirs) / (len(theirs) - 1), np.float64)


HELD_OUT, OTHERS, HALF = (
    "draws nearest in the other classes, their mean",
    "mean of the other published shares",
    "50 %",
)
"""Rows of predictions of a class that is left out."""


def baseline_table(
    shares: Shares, theirs: Shares, allowed: NDArray[np.bool_], keep: int
) -> tuple[str, bool]:
    """The table of a fit beside what it must beat, and whether it does on classes left out."""
    candidates = shares[allowed]
    nearest = candidates[np.argmin(((candidates - theirs) ** 2).mean(axis=1))]
    predicted = predict_left_out(shares, theirs, allowed, keep)
    errors = {
        HELD_OUT: rms(predicted - theirs),
        OTHERS: rms(mean_of_others(theirs) - theirs),
        HALF: rms(0.5 - theirs),
    }
    rows = [
        ("the nearest draw", "all of them", rms(nearest - theirs)),
        (
            "… its shares in another order, mean of all",
            "all, without their order",
            rms_reordered(nearest, theirs),
        ),
        ("mean of the published shares", "all, as one number", rms(theirs.mean() - theirs)),
        (HELD_OUT, "the other classes", errors[HELD_OUT]),
        (OTHERS, "the other classes", errors[OTHERS]),
        (HALF, "none", errors[HALF]),
    ]
    lines = [
        "| prediction of the share of each class | published shares that it uses "
        "| root-mean-square difference |",
        "|---" * 3 + "|",
        *(f"| {name} | {uses} | {value:.3f} |" for name, uses, value in rows),
    ]
    better = errors[HELD_OUT] < min(errors[OTHERS], errors[HALF])
    verdict = "**Held out**: the draws predict a class from the others "
    verdict += "better than" if better else "no better than"
    verdict += " a constant: by class "
    verdict += ", ".join(
        f"{percent(ours)} for {percent(share)}"
        for ours, share in zip(predicted, theirs, strict=True)
    )
    return "\n".join([*lines, "", verdict + "."]), better
