"""Rates on random cases: feasible, and as good as a linear program says they can be."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from tailback.fluid import FlowPaths, assignment, max_min, simulate_flows

Case = tuple[NDArray[np.float64], FlowPaths, NDArray[np.int64]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Capacities in Gb/s, paths and sizes (weights) of a few flows on a few links."""
    n_links = draw(st.integers(1, 6))
    capacity = np.array(draw(st.lists(st.integers(1, 20), min_size=n_links, max_size=n_links)))
    path = st.lists(st.integers(0, n_links - 1), min_size=1, max_size=n_links, unique=True)
    paths = FlowPaths.of(draw(st.lists(path, min_size=1, max_size=9)))
    n = paths.n_flows
    size = np.array(draw(st.lists(st.integers(1, 5000), min_size=n, max_size=n)))
    return capacity.astype(float), paths, size


def incidence(paths: FlowPaths, n_links: int) -> NDArray[np.float64]:
    """1 where flow (column) uses link (row)."""
    out = np.zeros((n_links, paths.n_flows))
    out[paths.link, np.repeat(np.arange(paths.n_flows), np.diff(paths.start).astype(int))] = 1
    return out


def lp_max_min(
    use: NDArray[np.float64], capacity: NDArray[np.float64], weight: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weighted max-min rates by linear programs: raise the least, fix who cannot follow."""
    n = use.shape[1]
    fixed: dict[int, float] = {}
    while len(fixed) < n:
        bounds = [(fixed[f], fixed[f]) if f in fixed else (0, None) for f in range(n)]
        free = [f for f in range(n) if f not in fixed]
        least = np.zeros((len(free), n + 1))
        least[range(len(free)), free] = -1
        least[:, n] = weight[free]
        rows = np.vstack([np.c_[use, np.zeros(len(capacity))], least])
        limit = np.r_[capacity, np.zeros(len(free))]
        level = linprog(np.r_[np.zeros(n), -1], rows, limit, bounds=[*bounds, (0, None)]).x[n]
        # The solver is exact to about 1e-7 of the largest number in the program.
        close = 1e-6 * max(level, capacity.max(), 1.0)
        stuck = [f for f in free if _most(use, capacity, weight, level, bounds, free, f) <= close]
        assert stuck
        fixed.update({f: level * weight[f] for f in stuck})
    return np.array([fixed[f] for f in range(n)])


def _most(use, capacity, weight, level, bounds, free, flow):  # type: ignore[no-untyped-def]
    """How far ``flow`` can go above the level when all free flows are at least there."""
    goal = np.zeros(use.shape[1])
    goal[flow] = -1
    low = [(level * weight[f] * (1 - 1e-9), None) if f in free else b for f, b in enumerate(bounds)]
    best = linprog(goal, use, capacity * (1 + 1e-9), bounds=low)
    return -best.fun / weight[flow] - level


@given(cases())
def test_max_min_is_what_linear_programs_find(case: Case) -> None:
    capacity, paths, size = case
    weight = size / 100.0
    rate = max_min(capacity, paths, weight)
    use = incidence(paths, len(capacity))
    assert (use @ rate <= capacity * (1 + 1e-9)).all()
    np.testing.assert_allclose(rate, lp_max_min(use, capacity, weight), rtol=1e-5, atol=1e-7)


@given(cases())
def test_assignment_is_feasible_and_no_rates_complete_sooner(case: Case) -> None:
    """Birk and Zdornov (2009): r(f) = w_f / W_f ends in W, the least a linear program allows."""
    capacity, paths, size = case
    rates = assignment(capacity, paths, size)
    use = incidence(paths, len(capacity))
    assert (use @ rates.rate_gbps <= capacity * (1 + 1e-9)).all()
    ends_ns = size * 8 / rates.rate_gbps
    np.testing.assert_allclose(ends_ns.max(), rates.completion_ns)
    # Largest t with rates of at least t * w_f each: the completion is 1 / t.
    n = paths.n_flows
    rows = np.vstack([np.c_[use, np.zeros(len(capacity))], np.c_[-np.eye(n), 8.0 * size]])
    limit = np.r_[capacity, np.zeros(n)]
    best = linprog(np.r_[np.zeros(n), -1], rows, limit)
    np.testing.assert_allclose(1 / best.x[n], rates.completion_ns, rtol=1e-6)


@given(cases(), st.data())
def test_simulation_conserves_bytes_and_respects_capacity(case: Case, data: st.DataObject) -> None:
    """No flow and no link is through sooner than its bytes need; all at once, by W."""
    capacity, paths, size = case
    n = paths.n_flows
    times = st.lists(st.integers(0, 3_000_000), min_size=n, max_size=n)
    start = np.array(data.draw(times), np.uint64)
    use = incidence(paths, len(capacity))
    for rates in ("max-min", "assignment"):
        ends = simulate_flows(capacity, paths, size, start, rates=rates).end_ps
        alone_ps = size * 8000 / np.array([capacity[use[:, f] > 0].min() for f in range(n)])
        assert (ends >= start + alone_ps * (1 - 1e-9) - 1).all()
        for link, need in enumerate(use @ size * 8000 / capacity):
            flows = use[link] > 0
            if flows.any():
                assert ends[flows].max() - start[flows].min() >= need * (1 - 1e-9) - 1
        if rates == "assignment" and not start.any():
            heaviest = assignment(capacity, paths, size).completion_ns * 1000
            assert ends.max() <= heaviest * (1 + 1e-9) + n


@given(cases())
def test_the_assignment_ends_at_the_heaviest_link(case: Case) -> None:
    capacity, paths, size = case
    ends = simulate_flows(capacity, paths, size, rates="assignment").end_ps
    heaviest = assignment(capacity, paths, size).completion_ns * 1000
    assert abs(float(ends.max()) - heaviest) <= heaviest * 1e-9 + paths.n_flows


def ends_one_by_one(
    capacity: NDArray[np.float64],
    paths: FlowPaths,
    bits: NDArray[np.float64],
    start: NDArray[np.float64],
    weight: NDArray[np.float64],
) -> NDArray[np.float64]:
    """End of each flow in picoseconds, all rates solved from nothing at every start and end."""
    left, end, now = bits.copy(), np.full(len(bits), np.nan), 0.0
    while np.isnan(end).any():
        active = np.flatnonzero((start <= now) & np.isnan(end))
        links = [paths.link[paths.start[f] : paths.start[f + 1]].tolist() for f in active]
        rate = max_min(capacity, FlowPaths.of(links), weight[active]) if len(active) else bits[:0]
        ends = now + left[active] / (rate * 1e-3)
        later = start[start > now]
        then = min([*ends.tolist(), *later.tolist()])
        left[active] -= rate * 1e-3 * (then - now)
        end[active[ends == then]] = then
        now = then
    return end


@given(cases(), st.data())
def test_updated_rates_are_those_solved_from_nothing(case: Case, data: st.DataObject) -> None:
    capacity, paths, size = case
    starts = st.lists(st.integers(0, 3_000_000), min_size=len(size), max_size=len(size))
    start = np.array(data.draw(starts), np.uint64)
    weight = 1.0 + np.arange(len(size)) % 3
    ends = simulate_flows(capacity, paths, size, start, weight).end_ps.astype(np.float64)
    wanted = ends_one_by_one(capacity, paths, size * 8.0, start.astype(np.float64), weight)
    # An end is rounded up to a whole picosecond, which the flows that are left feel.
    np.testing.assert_allclose(ends, wanted, rtol=1e-9, atol=3.0 * len(size))
