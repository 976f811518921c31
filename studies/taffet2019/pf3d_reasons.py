"""Why pF3D's gain by shifting is not the 16.1 % of the SC'19 talk: one change at a time.

    python -m studies.taffet2019.pf3d_reasons --write

The gain follows from two ratios: with the other traffic over alone, and shifted over alone. Each
setting is simulated alone, in the default numbering and shifted; the other traffic sends as many
bytes in all of them. Nothing is fitted: the example keeps its settings whatever the results here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from studies.taffet2019.case_model import example
from studies.taffet2019.case_reasons import Change, Setting, engine, nothing, pattern
from studies.taffet2019.reproduction import run
from tailback import Scenario, simulate
from tailback.units import percent

THEIRS: Final = (30.4 / 24.6 - 1, 25.5 / 24.6 - 1, 25.5 / 30.4 - 1)
"""Slow-down by the other traffic, shifted over alone, shifted instead of default (slide 72)."""
EXAMPLE: Final = (22, 20, 20, 20, 20, 20)
"""Hosts of the example on each of six leaves of 32 hosts."""
LEAF: Final = 32
POD: Final = 768
SHIFT: Final = 2
POINTS: Final = 1.0
"""Percentage points within which a setting is said to give a published figure."""


@dataclass(frozen=True)
class Allocation:
    """Hosts of pF3D and of the other traffic.

    Attributes:
        leaves: Hosts of pF3D on each leaf.
        shift: Nodes by which the shifted numbering begins later.
        everywhere: Whether the other traffic also has a rank on each of our hosts.
    """

    leaves: tuple[int, ...] = EXAMPLE
    shift: int = SHIFT
    everywhere: bool = False

    def own(self) -> list[int]:
        """Our hosts in the default numbering."""
        return [LEAF * leaf + n for leaf, count in enumerate(self.leaves) for n in range(count)]


PLACES: Final = {
    "placement: shifted by one node, not two": Allocation(shift=1),
    "placement: one plane still lies across two leaves": Allocation(
        leaves=(22, 20, 20, 18, 22, 20)
    ),
    "placement: three nodes of a plane on one leaf, the fourth on the next": Allocation(
        leaves=(22, 20, 20, 19, 21, 20)
    ),
    "the other traffic also goes to our hosts": Allocation(everywhere=True),
}


def blocks(kibibytes: int) -> Change:
    """Blocks of another size, and as many bytes in all."""
    return pattern(0, size=f"{kibibytes} KiB", planes=30, rounds=round(2 * 16 / kibibytes))


def others(mebibytes: float) -> Change:
    """The other traffic in messages of another size, and as many bytes in all."""
    size = f"{round(1024 * mebibytes)} KiB"
    return pattern(1, size=size, messages=round(14 / mebibytes))


SETTINGS: Final = (
    Setting("as the example: 4 KiB packets, 64 KiB buffers", nothing),
    Setting("posting: handshake of large messages", engine(eager=8 * 1024)),
    Setting("posting: adapter takes turns between its messages", engine(injection="round-robin")),
    Setting("packets of 2 KiB", engine(packet=2048)),
    Setting("buffers of 32 KiB", engine(buffer=32 * 1024)),
    Setting("buffers of 128 KiB", engine(buffer=128 * 1024)),
    Setting("input-buffered switches", engine(buffering="input")),
    Setting("store and forward", engine(switching="store-and-forward")),
    Setting("fixed instead of adaptive routes", engine(routing="deterministic")),
    Setting("no software delay", engine(send_delay=0)),
    Setting("message size: blocks of 8 KiB, as many bytes", blocks(8)),
    Setting("message size: blocks of 32 KiB, as many bytes", blocks(32)),
    Setting("others' messages of 512 KiB", others(0.5)),
    Setting("others' messages of 2 MiB", others(2)),
)
Ratios = tuple[float, float, float]


def changed(setting: Setting, place: Allocation, *, alone: bool, shifted: bool) -> Scenario:
    """The example with a setting and a placement."""
    scenario = example("pf3d/pf3d.toml")
    scenario.telemetry.messages = False
    nodes = place.own()
    hosts = nodes[place.shift :] + nodes[: place.shift] if shifted else nodes
    free = sorted(set(range(POD)) - (set() if place.everywhere else set(nodes)))
    scenario.job[0].hosts = ",".join(map(str, hosts))
    scenario.job[1].hosts = ",".join(map(str, free))
    scenario.job[1].shared_hosts = place.everywhere
    assert scenario.job[1].pattern is not None
    scenario.job[1].pattern["ranks"] = len(free)
    setting.change(scenario)
    return scenario.model_copy(update={"job": scenario.job[:1]}) if alone else scenario


def ratios(setting: Setting, place: Allocation = Allocation()) -> Ratios:
    """With the other traffic over alone, shifted over alone, shifted over default, less one."""
    alone, default, shifted = (
        float(
            simulate(changed(setting, place, alone=only, shifted=moved)).summary["job_elapsed_ps"][
                "0"
            ]
        )
        for only, moved in ((True, False), (False, False), (False, True))
    )
    return default / alone - 1, shifted / alone - 1, shifted / default - 1


def all_ratios() -> dict[str, Ratios]:
    """Every setting and placement."""
    out = {setting.name: ratios(setting) for setting in SETTINGS}
    return out | {name: ratios(SETTINGS[0], place) for name, place in PLACES.items()}


def table(rows: dict[str, Ratios]) -> str:
    """The ratios in Markdown, and what follows from them."""
    lines = [
        "| one change | default over alone | shifted over alone | shifted instead of default |",
        "|---|---|---|---|",
    ]
    for name, values in {"theirs": THEIRS, **rows}.items():
        lines.append(f"| {name} | {' | '.join(percent(value, 1, '+') for value in values)} |")
    return "\n".join([*lines, "", *verdict(rows)])


def verdict(rows: dict[str, Ratios]) -> list[str]:
    """Which changes give the published figures, in words that follow from the ratios."""

    def near(value: float, column: int) -> bool:
        return 100 * abs(value - THEIRS[column]) <= POINTS

    least = [name for name, values in rows.items() if 100 * values[1] > POINTS]
    gain = [name for name, values in rows.items() if near(values[2], 2)]
    both = [name for name in gain if near(rows[name][1], 1)]
    return [
        f"* Shifted is slower than alone by more than {POINTS:g} point only with: "
        f"{'; '.join(least) or 'none of them'}.",
        f"* The published gain within {POINTS:g} point: {'; '.join(gain) or 'none of them'}; "
        f"with the published slow-down of the shifted run, too: {'; '.join(both) or 'none'}.",
    ]


if __name__ == "__main__":
    run(__doc__, "pf3d reasons", lambda: table(all_ratios()))
