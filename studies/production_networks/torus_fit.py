"""Table I of the torus study, fitted: receivers, buffers, and loads that vary between minutes.

    python -m studies.production_networks.torus_fit                      both parts
    python -m studies.production_networks.torus_fit --part torus-fit     the search at 12³
    python -m studies.production_networks.torus_fit --write              also its page

The published correlation (Jha et al., 2018, Table I) is over link-minutes of five months, in which
the load varied. A run here stands for one minute: the mean of each link over the run. Minutes of
several loads are pooled, as theirs are. The search is at 12³ routers, with the load that gives each
link as many bytes as at 8³; what it keeps is then tested at the full size of 24³, and on the column
of inq stall, which was not fitted. One number for all axes is what both must beat.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

import polars as pl

from measuring import run_parts
from studies.production_networks.compare import PAGE, draw, section
from studies.production_networks.simulated import Found, Row
from studies.production_networks.torus_figures import FAST, FITTED, SLOW, THEIRS, THEIRS_INQ
from studies.production_networks.torus_machine import (
    AXES,
    Machine,
    averaged,
    correlations,
    intervals,
    listed,
    run_of,
)

SIDE, FULL = 12, 24
LOADS: Final = (1.0, 0.3, 0.1, 0.03)
"""Loads of the minutes, relative to the load of equal bytes a link."""
FULL_LOADS: Final = (0.3, 0.1)
"""Loads of the minutes at full size, of the nearest stretch of the search."""
NEAR: Final = 0.1
"""Largest difference of a correlation in a setting that is kept."""
Minutes = Mapping[float, pl.DataFrame]


@dataclass(frozen=True)
class Setting:
    """What may differ between machines: receivers, buffers, placement."""

    host_rate: str
    buffer: str
    everywhere: bool = True

    def words(self) -> str:
        """The setting in a table."""
        jobs = "jobs everywhere" if self.everywhere else "jobs in slabs"
        return f"nodes that take {self.host_rate}, buffers of {self.buffer}, {jobs}"


SETTINGS: Final = (
    *(Setting(rate, "16 KiB") for rate in (SLOW, "5 GB/s", FAST)),
    Setting(SLOW, "64 KiB"),
    Setting(SLOW, "16 KiB", everywhere=False),
)


def machine(setting: Setting, side: int, load: float) -> Machine:
    """A torus of a side under a load relative to that of as many bytes a link as at 8³."""
    return replace(
        FITTED,
        host_rate=setting.host_rate,
        buffer=setting.buffer,
        spread=setting.everywhere,
        side=side,
        load=load * FITTED.side / side,
    )


def minute(setting: Setting, side: int, load: float) -> pl.DataFrame:
    """Mean use and stall of every link over one run."""
    return averaged(intervals(run_of(machine(setting, side, load))))


def far(values: Mapping[str, float | None], theirs: Mapping[str, float] = THEIRS) -> float:
    """Largest difference of a correlation from the published one."""
    return max(abs((values.get(axis) or 0.0) - theirs[axis]) for axis in AXES)


def constant_row(theirs: Mapping[str, float], column: str) -> Row:
    """The mean of a published column for every axis: what a fit must beat."""
    mean = sum(theirs.values()) / len(theirs)
    values: dict[str, float | None] = dict.fromkeys(theirs, mean)
    return Row(
        f"one number for all axes, {column}",
        listed({**theirs}),
        listed(values),
        f"their mean: all within {far(values, theirs):.2f}",
    )


def inq_row(name: str, minutes: Iterable[pl.DataFrame]) -> Row:
    """The column of inq stall of link-minutes: held out, since only credit stall was fitted."""
    values = correlations(pl.concat(list(minutes)), "inq")
    return Row(
        f"inq stall, {name}",
        listed({**THEIRS_INQ}),
        listed(values),
        f"held out: all within {far(values, THEIRS_INQ):.2f}",
    )


def windows(loads: tuple[float, ...]) -> list[tuple[float, ...]]:
    """Every stretch of neighbouring loads."""
    return [loads[a:b] for a in range(len(loads)) for b in range(a + 1, len(loads) + 1)]


def pooled(minutes: Minutes, loads: tuple[float, ...]) -> dict[str, float | None]:
    """Correlations over the link-minutes of these loads."""
    return correlations(pl.concat([minutes[load] for load in loads]))


def told(loads: tuple[float, ...]) -> str:
    """Loads in words."""
    return "load " + ", ".join(f"{load:g}" for load in loads)


def best(
    minutes: Minutes, stretches: list[tuple[float, ...]]
) -> tuple[tuple[float, ...], dict[str, float | None]]:
    """The stretch of loads whose correlations are nearest to the published ones."""
    by_loads = {loads: pooled(minutes, loads) for loads in stretches}
    nearest = min(by_loads, key=lambda loads: far(by_loads[loads]))
    return nearest, by_loads[nearest]


def kept_row(minutes: Mapping[Setting, Minutes]) -> Row:
    """Which settings and stretches of loads are within ``NEAR`` of all three correlations."""
    tried = list(itertools.product(minutes, windows(LOADS)))
    kept = [(s, loads) for s, loads in tried if far(pooled(minutes[s], loads)) <= NEAR]
    if not kept:
        nearest = min(far(pooled(minutes[s], loads)) for s, loads in tried)
        return Row(
            f"kept: all within {NEAR:g}",
            listed({**THEIRS}),
            f"none of {len(tried)}",
            f"the nearest is within {nearest:.2f}",
        )
    rates = sorted({s.host_rate for s, _ in kept}, key=lambda text: float(text.split()[0]))
    buffers = sorted({s.buffer for s, _ in kept})
    places = sorted({"everywhere" if s.everywhere else "in slabs" for s, _ in kept})
    counts = sorted({len(loads) for _, loads in kept})
    return Row(
        f"kept: all within {NEAR:g}",
        listed({**THEIRS}),
        f"{len(kept)} of {len(tried)}",
        f"nodes that take {' or '.join(rates)}, buffers of {' or '.join(buffers)}, jobs "
        f"{' or '.join(places)}, {' or '.join(map(str, counts))} loads pooled",
    )


def search() -> Found:
    """Every setting at 12³, with one load and with the nearest stretch of several."""
    study = Found("torus-fit")
    every: dict[Setting, Minutes] = {}
    for setting in SETTINGS:
        every[setting] = {load: minute(setting, SIDE, load) for load in LOADS}
        for name, stretches in (
            ("one load", [(load,) for load in LOADS]),
            ("several loads", [loads for loads in windows(LOADS) if len(loads) > 1]),
        ):
            loads, values = best(every[setting], stretches)
            study.rows.append(
                Row(
                    f"{setting.words()}, {name}",
                    listed({**THEIRS}),
                    listed(values),
                    f"{told(loads)}: all within {far(values):.2f}",
                )
            )
    study.rows.append(kept_row(every))
    nearest = every[SETTINGS[0]]
    loads, _ = best(nearest, [loads for loads in windows(LOADS) if len(loads) > 1])
    study.rows += [
        inq_row(f"{SETTINGS[0].words()}, {told(loads)}", (nearest[load] for load in loads)),
        constant_row(THEIRS, "credit stall"),
        constant_row(THEIRS_INQ, "inq stall"),
    ]
    return study


def full() -> Found:
    """The nearest mix at full size: each minute alone, and all together."""
    study = Found("torus-full")
    setting = Setting(SLOW, "16 KiB")
    minutes = {load: minute(setting, FULL, load) for load in FULL_LOADS}
    alone = {load: pooled(minutes, (load,)) for load in FULL_LOADS}
    together = pooled(minutes, FULL_LOADS)
    for load, values in alone.items():
        study.rows.append(
            Row(
                f"{FULL}³ routers, {setting.words()}, load {load:g}",
                listed({**THEIRS}),
                listed(values),
                f"all within {far(values):.2f}",
            )
        )
    study.rows.append(
        Row(
            "… these loads together",
            listed({**THEIRS}),
            listed(together),
            f"held out: all within {far(together):.2f}; {reason(alone.values(), together)}",
        )
    )
    study.rows.append(inq_row("these loads together", minutes.values()))
    return study


def reason(
    alone: Iterable[Mapping[str, float | None]], together: Mapping[str, float | None]
) -> str:
    """What pooling shows, in words that follow from the correlations."""
    nearest = min(far(values) for values in alone)
    if far(together) <= NEAR:
        return f"loads that vary give theirs; one load is {nearest:.2f} off at best"
    if far(together) < nearest:
        return f"nearer than one load ({nearest:.2f}), but not theirs"
    return f"loads that vary do not help: one load is within {nearest:.2f}"


PARTS: Final[dict[str, Callable[[], Found]]] = {"torus-fit": search, "torus-full": full}


def main() -> None:
    """Print the tables; write the page on request."""
    run_parts(
        __doc__,
        "part",
        PARTS,
        page=PAGE,
        section=section,
        draw=draw,
        facts=lambda study: {"rows": [asdict(row) for row in study.rows]},
    )


if __name__ == "__main__":
    main()
