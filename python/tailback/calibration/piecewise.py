"""Lines through times by message size, with change points where the protocol changes.

Time is ``intercept + slope × size`` between change points. Errors are relative (an unknown share of
each time, the same for all), plus known ones: rounding, and those of times that are estimates
themselves. Coefficients come from weighted least squares with Huber's weights, their uncertainty
from Student's t. The Bayesian information criterion gives the probability of each set of change
points, and coefficients are averaged over the likely sets, because even a small uncertain jump
changes a slope.

Sources: Alexandrov et al., *LogGP* (SPAA 1995) for the line; Hoefler et al., *Netgauge* (HPCC 2007)
and Cornebize et al. (CLUSTER 2019, SimGrid's calibration) for change points at protocol switches;
Hoeting et al., *Bayesian model averaging* (Statistical Science 1999); Paule and Mandel, *Consensus
values and weighting factors* (J. Res. NBS 1982) for an unknown error beside known ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from tailback.arrays import Floats, Ints
from tailback.calibration.piecewise_fit import LineRate, PiecewiseFit, PiecewiseModel
from tailback.log_probability import probabilities

MAX_BREAKS: Final = 3
"""Libraries seldom have more than four protocols: inline, copied, registered, handshake."""

MIN_POINTS: Final = 3
"""Smallest number of points of a separate line; two always fit."""

_MAX_CELLS: Final = 32
"""Number of positions tried for change points."""

_MIN_FREEDOM: Final = 5
"""Smallest number of times beyond the parameters: with fewer, lines fit noise."""

_MODELS_KEPT: Final = 4
"""Number of models with independent lines that are kept for each number of lines."""

_UNLIKELY: Final = 0.01
"""Models that are less likely than this, compared with the best one, are left out."""

_HUBER: Final = 2.5
_MIN_SPREAD: Final = 1e-6


def fit(
    size_bytes: Floats,
    time_ps: Floats,
    resolution_ps: Floats,
    error_ps: Floats | None = None,
    change: tuple[float, float] | None = None,
    rate: LineRate | None = None,
    place: Ints | None = None,
    deviation_ps: Floats | None = None,
    complete: bool = False,
) -> PiecewiseFit:
    """Fit lines with change points.

    Args:
        size_bytes: Message sizes, shape (P,), P at least 1; sizes may repeat.
        time_ps: Times, all above 0, shape (P,).
        resolution_ps: Step to which each is rounded, shape (P,).
        error_ps: Known standard error of each besides rounding, shape (P,); None without any.
        change: Another test showed that the protocol changes above the first of these sizes, at
            the latest at the second: all models have a change point there.
        rate: Line rate, for fits of the time per byte. Without it the last line is straight in the
            sizes; with it, the known time of the payload plus an unknown one for each packet. A
            message that does not fill its packets has a larger share of headers.
        place: Where each was measured, numbered from 0, shape (P,). Lines of different places have
            the same slopes, and jump at the same size, by different amounts. None for one place.
        deviation_ps: Draws of the known errors, shape (P, 4000), where these are not normal or not
            independent; `error_ps` then only weights the times.
        complete: The known errors are all there are, unless the times show more.

    Returns:
        The lines. With fewer than three different sizes a slope is indistinguishable from
        noise: there is one line, whose slope is 0.
    """
    order = np.argsort(size_bytes, kind="stable")
    error = np.hypot(resolution_ps / np.sqrt(12), 0.0 if error_ps is None else error_ps)
    data = _Data(
        size_bytes[order], time_ps[order], error[order], change=change, rate=rate, complete=complete
    )
    if place is not None:
        data = replace(data, place=place[order])
    if deviation_ps is not None:
        data = replace(data, deviation=deviation_ps[order])
    if len(np.unique(size_bytes)) < MIN_POINTS:
        return _constant(data)
    model, spread = PiecewiseModel(), 0.01
    for _ in range(4):
        before = model
        data = data.with_spread(spread)
        some = list(_candidate_models(data))
        model = min(some, key=lambda candidate: candidate[0])[1]
        if len(data.starts) <= len(data.boundaries):
            model = _refine_model(data, model)
        spread = data.shown_spread(model)
        if model == before:
            break
    data = data.with_spread(spread)
    # Refinement may have moved the model from its candidate, so its criterion is computed again.
    others = [candidate for _, candidate in some if candidate != model]
    weight = probabilities([-data.criterion(candidate) / 2 for candidate in (model, *others)])
    chosen = _fit_model(data, model)
    averaged = [(float(weight[0]), chosen)]
    averaged += [
        (share, _fit_model(data, other))
        for share, other in zip(weight[1:].tolist(), others, strict=True)
        if share > _UNLIKELY * weight[0]
    ]
    places = tuple(_plausible(data, model, number) for number in range(len(model.breaks)))
    return replace(chosen, averaged=tuple(averaged), plausible=places)


@dataclass(frozen=True)
class _Data:
    """Times by size.

    Attributes:
        size: Sizes in order, shape (P,).
        time: Times, shape (P,).
        error: Known standard error of each, shape (P,).
        spread: Relative standard deviation of the unknown error.
        change: Sizes between which another test showed a change point.
        rate: Line rate at which the payload of the last line's messages is sent; None if unknown.
        place: Where each time was measured, shape (P,); None for one place.
        deviation: Draws of the known errors, shape (P, 4000); None where these are normal.
        complete: The known errors are all there are, unless the times show more.
    """

    size: Floats
    time: Floats
    error: Floats
    spread: float = 0.01
    change: tuple[float, float] | None = None
    rate: LineRate | None = None
    place: Ints | None = None
    deviation: Floats | None = None
    complete: bool = False
    _apart: dict[int, tuple[Floats, list[tuple[int, bool]]]] = field(default_factory=dict)

    def with_spread(self, spread: float) -> _Data:
        return replace(self, spread=max(spread, _MIN_SPREAD))

    @cached_property
    def scale(self) -> Floats:
        """Standard deviation of each time, in units of the spread."""
        return np.asarray(np.hypot(self.time, self.error / self.spread), np.float64)

    @cached_property
    def known_share(self) -> float:
        """Share of the known errors in the variance of the times."""
        return float(((self.error / self.spread / self.scale) ** 2).mean())

    def design(self, model: PiecewiseModel) -> tuple[Floats, Floats]:
        """Regressors: intercepts, then slopes, shape (P, coefficients); and known times (P,)."""
        segment = np.searchsorted(model.breaks, np.arange(len(self.size)), side="right")
        inside = (segment[:, None] == np.arange(len(model.breaks) + 1)).astype(np.float64)
        last = np.ones(len(self.size)) if model.shared else inside[:, -1]
        slopes = self.size[:, None] if model.shared else inside * self.size[:, None]
        known_ps = np.zeros(len(self.size))
        if self.rate is not None:
            slopes = slopes.copy()
            slopes[:, -1] = last * self.rate.packet_bytes(self.size)
            known_ps = last * self.size * self.rate.byte_ps
        return np.concatenate([inside, self.apart(model)[0], slopes], axis=1), known_ps

    def apart(self, model: PiecewiseModel) -> tuple[Floats, list[tuple[int, bool]]]:
        """Regressors of the offsets of places from the first intercept.

        Returns:
            Regressors, shape (P, K). For each, its place and whether it covers the times beyond
            the known change point.
        """
        first = min(self.known.intersection(model.breaks), default=len(self.size))
        if self.place is None:
            return np.zeros((len(self.size), 0)), []
        if first not in self._apart:
            beyond = np.arange(len(self.size)) >= first
            columns = [(~beyond).astype(np.float64), beyond.astype(np.float64)]
            columns = [column for column in columns if column.any()]
            plain, kept = len(columns), []
            # First the places with most times below the change point.
            count = np.bincount(self.place[~beyond], minlength=self.place.max() + 1)
            for number in np.argsort(-count, kind="stable").tolist():
                for above in (False, True):
                    column = ((self.place == number) & (beyond == above)).astype(np.float64)
                    # One place, and a side without times, follow from the others.
                    if np.linalg.matrix_rank(np.stack([*columns, column])) > len(columns):
                        columns.append(column)
                        kept.append((number, above))
            regressors = (
                np.stack(columns[plain:], axis=1) if kept else np.zeros((len(self.size), 0))
            )
            self._apart[first] = (regressors, kept)
        return self._apart[first]

    def smallest(self, model: PiecewiseModel, design: Floats) -> Floats:
        """Regressors of the smallest message at each place, shape (places, coefficients)."""
        if self.place is None:
            return design[:1]
        first = min(self.known.intersection(model.breaks), default=len(self.size))
        _, kept = self.apart(model)
        start = len(model.breaks) + 1
        out = []
        for number in range(int(self.place.max()) + 1):
            row = design[0].copy()
            row[start : start + len(kept)] = [entry == (number, False) for entry in kept]
            if not (self.place[:first] == number).any():
                row[:] = np.nan
            out.append(row)
        return np.array(out)

    def residuals(self, model: PiecewiseModel) -> Floats:
        """Residuals in units of the spread, shape (P,)."""
        design, known_ps = self.design(model)
        design = design / self.scale[:, None]
        target = (self.time - known_ps) / self.scale
        column = _norms(design)
        coefficients, *_ = np.linalg.lstsq(design / column, target, rcond=None)
        return np.asarray(target - (design / column) @ coefficients, np.float64)

    def criterion(self, model: PiecewiseModel, squares: float | None = None) -> float:
        """Bayesian information criterion, without constants.

        The size of the errors is unknown, but they are not smaller than the known ones.

        Args:
            model: The model.
            squares: Sum of its squared residuals, where it is known.
        """
        n = len(self.size)
        if squares is None:
            squares = float((self.residuals(model) ** 2).sum())
        variance = squares / n / self.spread**2
        errors = max(variance, self.known_share, _MIN_SPREAD**2)
        misfit = n * (np.log(errors) + variance / errors)
        return float(misfit + self.cost(model) * np.log(n))

    def cost(self, model: PiecewiseModel) -> int:
        """Free parameters: coefficients and change points.

        A change point counts as two parameters, as its position is chosen from some twenty; one
        that another test showed counts as none.
        """
        return self.coefficients(model) + 2 * self.unknown_breaks(model)

    def coefficients(self, model: PiecewiseModel) -> int:
        """Intercepts, differences between places, and slopes."""
        return model.coefficients + len(self.apart(model)[1])

    def freedom(self, model: PiecewiseModel) -> int:
        """Degrees of freedom of the times about a model's lines."""
        return max(len(self.size) - self.coefficients(model) - self.unknown_breaks(model), 1)

    def unknown_breaks(self, model: PiecewiseModel) -> int:
        """Change points that no other test showed."""
        return len(model.breaks) - bool(self.known.intersection(model.breaks))

    def has_enough_points(self, model: PiecewiseModel) -> bool:
        """Whether there are enough times to estimate the spread about a model's lines."""
        return len(self.size) - self.cost(model) >= _MIN_FREEDOM

    def allows(self, model: PiecewiseModel) -> bool:
        """Whether a model has the change point that another test showed, if there is one."""
        return not self.known or bool(self.known.intersection(model.breaks))

    @cached_property
    def boundaries(self) -> list[int]:
        """Rows at which another size begins."""
        return [int(row) for row in np.flatnonzero(np.diff(self.size) > 0) + 1]

    @cached_property
    def starts(self) -> list[int]:
        """Rows at which a line may begin, and the end; a subset if there are many."""
        rows = self.boundaries
        if len(rows) > _MAX_CELLS:
            some = np.linspace(0, len(rows) - 1, _MAX_CELLS).round().astype(int)
            rows = sorted({rows[at] for at in some.tolist()} | self.known)
        return [0, *rows, len(self.size)]

    @cached_property
    def known(self) -> frozenset[int]:
        """Candidate rows of the change point that another test showed."""
        if self.change is None:
            return frozenset()
        low, high = self.change
        return frozenset(row for row in self.boundaries if low < self.size[row] <= high)

    def squares(self) -> dict[tuple[int, int], float]:
        """Squared residuals of an independent line through each range of rows between starts."""
        out = self._squares_of_lines(self.size, self.time)
        if self.rate is not None:
            packets = self.rate.packet_bytes(self.size)
            last = self._squares_of_lines(packets, self.time - self.size * self.rate.byte_ps)
            out |= {rows: value for rows, value in last.items() if rows[1] == len(self.size)}
        return out

    def _squares_of_lines(self, size: Floats, time: Floats) -> dict[tuple[int, int], float]:
        out = {}
        weight, starts = self.scale**-2.0, self.starts
        for i, row in enumerate(starts[:-1]):
            ends = np.array(starts[i + 1 :]) - 1 - row
            sizes = np.searchsorted(self.boundaries, ends + row + 1)
            sizes -= np.searchsorted(self.boundaries, row, side="right")
            ends = ends[sizes >= MIN_POINTS - 1]
            if not len(ends):
                continue
            # Sums relative to the first row, to avoid cancellation.
            w, x, y = weight[row:], size[row:] - size[row], time[row:]
            x = x / max(x[-1], 1.0)
            sw, sx, sy, sxx, sxy, syy = (
                np.cumsum(part)[ends] for part in (w, w * x, w * y, w * x * x, w * x * y, w * y * y)
            )
            cxx, cxy, cyy = sxx - sx * sx / sw, sxy - sx * sy / sw, syy - sy * sy / sw
            left = np.maximum(cyy - cxy * cxy / np.maximum(cxx, 1e-300), 0.0)
            for end, value in zip(ends.tolist(), left.tolist(), strict=True):
                out[row, row + end + 1] = value
        return out

    def relative_spread(self, model: PiecewiseModel) -> float:
        """Relative standard deviation about the lines that the known errors do not explain.

        It is the one for which the squared residuals, in units of their errors, add up to the
        degrees of freedom (Paule and Mandel 1982).
        """
        freedom = self.freedom(model)
        squares = (self.residuals(model) * self.scale) ** 2

        from scipy.optimize import brentq  # takes a third of a second to import

        def excess(spread: float) -> float:
            return float((squares / ((spread * self.time) ** 2 + self.error**2)).sum()) - freedom

        low, high = _MIN_SPREAD, float(np.sqrt((squares / self.time**2).sum() / freedom))
        if high <= low or excess(low) <= 0:
            return low
        return float(brentq(excess, low, high * (1 + 1e-9)))

    def shown_spread(self, model: PiecewiseModel) -> float:
        """The relative spread; 0 if known errors that should be complete explain the residuals.

        An estimate from a dozen times is above 0 half of the time when there is no further error,
        and what is little beside the known errors of short times exceeds those of long ones. So the
        Bayesian information criterion decides, as it does on change points.
        """
        spread = self.relative_spread(model)
        if not self.complete:
            return spread
        with_it, without = self.with_spread(spread), self.with_spread(_MIN_SPREAD)
        gain = with_it.log_likelihood(model) - without.log_likelihood(model)
        return spread if 2 * gain > np.log(len(self.size)) else _MIN_SPREAD

    def log_likelihood(self, model: PiecewiseModel) -> float:
        """Log likelihood of the best lines with this spread, without constants."""
        deviation = self.spread * self.scale
        errors = self.residuals(model) / self.spread
        return float(-np.log(deviation).sum() - 0.5 * (errors**2).sum())


def _candidate_models(data: _Data) -> Iterator[tuple[float, PiecewiseModel]]:
    """Candidate models and their criteria; only the best of those with independent lines."""
    starts = data.starts
    for model in _parallel_models(data):
        yield data.criterion(model), model
    if data.place is not None:
        for row in sorted(data.known) or starts[MIN_POINTS - 1 : 1 - MIN_POINTS]:
            model = PiecewiseModel((row,))
            if data.has_enough_points(model):
                yield data.criterion(model), model
        return
    squares = data.squares()
    for count in range(1, MAX_BREAKS + 1):
        if not data.has_enough_points(PiecewiseModel(tuple(range(count)))):
            break
        candidates = []
        for rows in combinations(starts[1:-1], count):
            if not data.allows(PiecewiseModel(rows)):
                continue
            total = 0.0
            for part in pairwise((0, *rows, starts[-1])):
                total += squares.get(part, np.inf)
            if total < np.inf:
                candidates.append((total, rows))
        for total, rows in heapq.nsmallest(_MODELS_KEPT, candidates):
            yield data.criterion(PiecewiseModel(rows), total), PiecewiseModel(rows)


def _parallel_models(data: _Data) -> Iterator[PiecewiseModel]:
    """Models whose lines have the same slope: without a jump, with one, or with the known one."""
    rows = data.starts[MIN_POINTS:-MIN_POINTS]
    if not data.known:
        yield PiecewiseModel()
        some = [PiecewiseModel((row,), shared=True) for row in rows]
    else:
        yield from (PiecewiseModel((row,), shared=True) for row in sorted(data.known))
        pairs = {tuple(sorted((row, change))) for row in rows for change in data.known}
        some = [
            PiecewiseModel(pair, shared=True)
            for pair in sorted(pairs)
            if pair[1] - pair[0] >= MIN_POINTS
        ]
    yield from filter(data.has_enough_points, some)


def _refine_model(data: _Data, model: PiecewiseModel) -> PiecewiseModel:
    """Move the change points of a model found on a subset of the rows to the best of all rows.

    Change points that become superfluous are dropped.
    """
    rows = data.boundaries
    step = len(rows) // _MAX_CELLS + 1
    for _ in range(MAX_BREAKS):
        for number, row in enumerate(model.breaks):
            at, before, after = rows.index(row), model.breaks[:number], model.breaks[number + 1 :]
            low = rows.index(before[-1]) + MIN_POINTS if before else MIN_POINTS - 1
            high = rows.index(after[0]) - MIN_POINTS if after else len(rows) - MIN_POINTS
            near = rows[max(at - step, low) : min(at + step, high) + 1]
            moved = [
                PiecewiseModel((*before, candidate, *after), model.shared) for candidate in near
            ]
            model = min([model, *filter(data.allows, moved)], key=data.criterion)
        some = range(len(model.breaks))
        fewer = [replace(model, breaks=model.breaks[:at] + model.breaks[at + 1 :]) for at in some]
        kept = min([model, *filter(data.allows, fewer)], key=data.criterion)
        if kept == model:
            break
        model = kept
    return model


def _fit_model(data: _Data, model: PiecewiseModel) -> PiecewiseFit:
    design, known_ps = data.design(model)
    fitted, weight = data.time, np.ones(len(data.size))
    for _ in range(8):
        # Errors are relative to the true time, which the line approximates better than the
        # measurement.
        sigma = np.hypot(data.spread * fitted, data.error)
        root = np.sqrt(weight) / sigma
        column = _norms(design * root[:, None])
        scaled = design * root[:, None] / column
        coefficients, *_ = np.linalg.lstsq(scaled, (data.time - known_ps) * root, rcond=None)
        line = known_ps + design @ (coefficients / column)
        error = np.abs(data.time - line) / sigma
        weight = np.minimum(1.0, _HUBER / np.maximum(error, _HUBER))
        fitted = np.where(line > 0, line, data.time)
    covariance = np.linalg.pinv(scaled.T @ scaled) / np.outer(column, column)
    # Only the unknown error has few degrees of freedom (Satterthwaite 1946).
    freedom = data.freedom(model) / max(1 - data.known_share, 0.01) ** 2
    shifts = None
    if data.deviation is not None:
        # The error of the estimate is linear in those of the times, as far as Huber weights do not
        # bound their influence: that of a residual, which is smaller than the error where the line
        # follows a time.
        effect = np.linalg.pinv(scaled) / column[:, None] * root
        leverage = np.clip((design * effect.T).sum(axis=1), 0.0, 1 - 1e-9)
        bound = (_HUBER * sigma / (1 - leverage))[:, None]
        shifts = (effect @ np.clip(data.deviation, -bound, bound)).T
        unknown = np.maximum(sigma**2 / weight - data.error**2, 0.0)
        covariance, freedom = (effect * unknown) @ effect.T, data.freedom(model)
    byte = 0.0 if data.rate is None else data.rate.byte_ps
    return PiecewiseFit(
        data.size,
        model,
        coefficients / column,
        covariance,
        freedom,
        data.spread,
        data.smallest(model, design),
        (float(known_ps[0]), byte),
        shifts,
    )


def _norms(design: Floats) -> Floats:
    """Norm of each regressor, or 1 of one that is 0, as the slope of messages without bytes."""
    norms = np.linalg.norm(design, axis=0)
    return np.where(norms > 0, norms, 1.0)


def _plausible(data: _Data, model: PiecewiseModel, number: int) -> tuple[int, int]:
    """First and last plausible row of a change point: twice the log likelihood drops by 3.84."""
    breaks = model.breaks
    low = breaks[number - 1] + 2 if number else 2
    high = breaks[number + 1] - 2 if number + 1 < len(breaks) else len(data.size) - 2
    cells = [row for row in data.starts if low <= row <= high]
    sigma = data.spread * data.scale
    best = {}
    for row in {*cells, breaks[number]}:
        moved = PiecewiseModel((*breaks[:number], row, *breaks[number + 1 :]), model.shared)
        errors = data.residuals(moved) * data.scale / sigma
        best[row] = float((errors**2).sum())
    kept = [row for row, misfit in best.items() if misfit <= best[breaks[number]] + 3.84]
    return min(kept), max(kept)


def _constant(data: _Data) -> PiecewiseFit:
    """Mean of times of one or two sizes at each place, without a slope.

    Its error is the known one, or the scatter of several times.
    """
    place = np.zeros(len(data.time), np.int64) if data.place is None else data.place
    count = np.bincount(place).astype(np.float64)
    mean = np.bincount(place, data.time) / count
    freedom = len(data.time) - len(count)
    variance = np.bincount(place, data.error**2) / count
    if freedom > 0:
        scatter = float(((data.time - mean[place]) ** 2).sum()) / freedom
        variance = np.maximum(variance, scatter)
    places = np.eye(len(count), len(count) + 1)
    return PiecewiseFit(
        data.size,
        PiecewiseModel(),
        np.append(mean, 0.0),
        np.diag(np.append(variance / count, 0.0)),
        max(freedom, 1),
        float(np.sqrt(variance / mean**2).max()),
        places,
    )
