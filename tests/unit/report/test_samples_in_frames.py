"""Sums by time of a report are those of a plain way, which joins and groups by the columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tailback.report.figure_data import SUMS, FigureData
from tailback.report.time_at_link import samples_by_time_at_link
from tailback.report.timeline import Timeline, timeline_within_budget

LINKS, WINDOWS, LABELS = 7, 9, 5
HOP = ("hop_samples", "hop_weight", "hop_variance", "hop_bytes")
CONGESTED = ("congested_samples", "congested_weight", "congested_variance")
KEYS = ("job", "label", "link")


def random_run(seed: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Samples with their phase, truth and windows: numbers with gaps, some cells empty."""
    rng = np.random.default_rng(seed)
    windows = np.sort(rng.choice(40, WINDOWS, replace=False)).astype(np.uint32)
    cells = [(w, label, link) for w in windows for label in range(LABELS) for link in range(LINKS)]
    chosen = [cells[i] for i in np.flatnonzero(rng.random(len(cells)) < 0.4)]
    window, label, link = (np.array(column, np.uint32) for column in zip(*chosen, strict=True))
    n = len(chosen)
    counts = {
        name: rng.integers(0, 6, n).astype(np.uint64)
        for name in ("hop_samples", "congested_samples")
    }
    sizes = {
        name: counts[f"{name.split('_')[0]}_samples"] * rng.integers(1, 99, n).astype(np.uint64)
        for name in SUMS
        if name not in counts
    }
    phase = ["b", None, "a", "b", "c"]
    samples = pl.DataFrame(
        {
            "window": window,
            "job": np.where(label < 3, 1, 4).astype(np.uint32),
            "label": label,
            "link": link,
            **{name: (counts | sizes)[name] for name in SUMS},
            "phase": [phase[at] for at in label.tolist()],
        }
    )
    sampled = rng.random(WINDOWS * LINKS) < 0.6
    observed = rng.integers(0, 30, WINDOWS * LINKS).astype(np.uint64)
    truth = pl.DataFrame(
        {
            "window": np.repeat(windows, LINKS),
            "link": np.tile(np.arange(LINKS, dtype=np.uint32), WINDOWS),
            "observed_packets": observed,
            "observed_congested_packets": observed // 3,
        }
    ).filter(pl.Series(sampled) & (pl.col("link") != 2))
    start = np.arange(WINDOWS, dtype=np.uint64) * 100
    times = pl.DataFrame({"window": windows, "start_ps": start, "end_ps": start + 100})
    return samples, truth, times


def plain_reached(left: NDArray[np.float64], met: NDArray[np.float64]) -> NDArray[np.float64]:
    """Packets that reached the queue: those that leave, less those that had waited."""
    out = np.zeros_like(left)
    for link in range(len(left)):
        waiting = 0.0
        for window in range(left.shape[1]):
            waiting += met[link, window]
            gone = min(left[link, window], waiting)
            waiting -= gone
            out[link, window] = met[link, window] + left[link, window] - gone
    return out


def plain_pieces(
    rows: list[dict[str, Any]], weight: str, when: NDArray[np.float64]
) -> dict[tuple[int, int], list[tuple[int, float, float]]]:
    """Per link and place of arrival: place at the link and share, from low to high."""
    out = dict[tuple[int, int], list[tuple[int, float, float]]]()
    for link in {row["link"] for row in rows}:
        amount = np.zeros(when.shape[1])
        for row in rows:
            amount[row["place"]] += row[weight] if row["link"] == link else 0
        arrived = np.append(0.0, np.cumsum(amount) / amount.sum())
        there = np.append(0.0, np.cumsum(when[link]) / when[link].sum())
        for place in range(when.shape[1]):
            begin, end = arrived[place], arrived[place + 1]
            for to in range(when.shape[1]):
                low, high = max(begin, there[to]), min(end, there[to + 1])
                if high - low > 1e-9:
                    piece = (to, (low - begin) / (end - begin), (high - begin) / (end - begin))
                    out.setdefault((link, place), []).append(piece)
    return out


@pytest.mark.parametrize("seed", range(8))
def test_samples_stand_where_a_plain_way_puts_them(seed: int) -> None:
    """But for single samples at the edge of a piece, whose sums of floats differ in order."""
    samples, truth, times = random_run(seed)
    link_samples = samples_by_time_at_link(samples, truth, times["window"], LINKS)
    place = {window: at for at, window in enumerate(times["window"].to_list())}
    left, met = np.zeros((LINKS, WINDOWS)), np.zeros((LINKS, WINDOWS))
    for row in truth.iter_rows(named=True):
        left[row["link"], place[row["window"]]] += row["observed_packets"]
        met[row["link"], place[row["window"]]] += row["observed_congested_packets"]
    sums = dict[tuple[int, int, int, int], dict[str, float]]()
    for names, when in ((HOP, plain_reached(left, met)), (CONGESTED, met)):
        rows = [row | {"place": place[row["window"]]} for row in samples.to_dicts()]
        rows = [row for row in rows if any(row[name] > 0 for name in names)]
        dated = [row for row in rows if row[names[0]] > 0 and when[row["link"]].sum() > 0]
        pieces = plain_pieces(dated, names[1], when)
        at = -1
        for row in rows:
            parts = [(row["place"], 0.0, 1.0)]
            spread = 0.0
            if row in dated:
                at += 1
                spread = (at * 0.6180339887498949) % 1.0
                parts = pieces[row["link"], row["place"]]
            for to, low, high in parts:
                n = row[names[0]]
                last = np.floor(high * n + spread + 1e-9)
                first = np.floor(low * n + spread + 1e-9)
                if n and last <= first:
                    continue
                cell = sums.setdefault((to, row["job"], row["label"], row["link"]), {})
                for name in names:
                    each = row[name] / n if n else 0
                    part = round(each * last) - round(each * first) if n else row[name]
                    cell[name] = cell.get(name, 0) + part
    plain = pl.DataFrame(
        [
            {
                "window": times["window"][to],
                "job": job,
                "label": label,
                "link": link,
                **{name: cell.get(name, 0) for name in SUMS},
            }
            for (to, job, label, link), cell in sums.items()
        ]
    ).sort("window", "label", "link")
    assert plain.height == link_samples.height
    for name in plain.columns:
        assert link_samples[name].to_list() == plain[name].to_list(), name
    by_label = dict(samples.select("label", "phase").iter_rows())
    assert link_samples["phase"].to_list() == [
        by_label[label] for label in link_samples["label"].to_list()
    ]
    assert link_samples.schema == samples.schema


def course_of(seed: int, frames: int) -> Timeline:
    """A course of random samples, one window of which the run does not have."""
    samples, truth, times = random_run(seed)
    dated = samples_by_time_at_link(samples, truth, times["window"], LINKS)
    stray = dated.head(3).with_columns(window=pl.lit(99, pl.UInt32))
    evidence = FigureData.__new__(FigureData)
    evidence.n_links = LINKS
    evidence.run = cast("Any", SimpleNamespace(tables={}))
    vars(evidence)["samples_by_link_time"] = pl.concat([dated, stray])
    vars(evidence)["windows"] = times
    return Timeline(evidence, frames)


@pytest.mark.parametrize("frames", [1, 2, 4, 6, WINDOWS])
@pytest.mark.parametrize("seed", range(4))
def test_frames_hold_what_a_plain_way_sums_up(seed: int, frames: int) -> None:
    course = course_of(seed, frames)
    assert course.n_rows == course_of(seed, frames).samples.height
    evidence = course.evidence
    middle = (evidence.windows["start_ps"] + evidence.windows["end_ps"]) / 2
    frame = np.searchsorted(course.edges_ps, middle.to_numpy(), side="right") - 1
    number = pl.DataFrame({"window": evidence.windows["window"], "frame": frame.astype(np.int32)})
    plain = (
        evidence.samples_by_link_time.join(number, on="window")
        .group_by("frame", "phase", "link")
        .agg(pl.col(name).sum() for name in SUMS)
        .sort("frame", "phase", "link")
    )
    assert course.samples.equals(plain)
    assert course.samples.schema == plain.schema
    assert course.n_rows == plain.height


def test_frames_are_joined_until_their_rows_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = course_of(0, WINDOWS)
    monkeypatch.setattr("tailback.report.timeline.MIN_FRAMES", 2)
    monkeypatch.setattr("tailback.report.timeline.ROWS", fine.n_rows - 1)
    course = timeline_within_budget(fine.evidence, WINDOWS)
    assert course.frames == WINDOWS // 2
    assert course.samples.height < fine.samples.height
