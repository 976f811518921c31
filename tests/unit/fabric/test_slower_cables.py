"""Cables that a file states as slower, or fewer, than their equals are noted and marked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.api.diagnose import diagnose
from tailback.fabric.degraded import nominal
from tailback.fabric.model import Fabric
from tailback.fabric.readers import read_fabric
from tailback.scenario.model import Degraded, parse
from tailback.simulation import prepare
from tests.factories.fabric_files import (
    EQUAL,
    Cables,
    cable_list,
    cable_tree,
    lldp_neighbour,
    ufm_port,
    with_rate,
)
from tests.factories.public_data import real


def read(folder: Path, text: str, **how: Any) -> Fabric:
    file = folder / "network"
    file.write_text(text)
    return read_fabric(file, **how)


def marked(fabric: Fabric) -> set[str]:
    """The cables that are slower than nominal, by the names of their upward links."""
    if fabric.nominal_gbps is None:
        return set()
    slow = np.flatnonzero(fabric.link_gbps < fabric.nominal_gbps)
    return {fabric.link_name(int(link)) for link in slow if fabric.link_up[link] > 0}


def notes(fabric: Fabric) -> list[str]:
    return [n for n in fabric.notes if "slower than" in n or "fewer cables" in n]


def test_cable_slower_than_parallel_ones_is_noted(tmp_path: Path) -> None:
    fabric = read(tmp_path, cable_list(with_rate(cable_tree(spines=1, parallel=8), 16, 2)))
    assert marked(fabric) == {"leaf0[p2] → spine0[q2]"}
    assert notes(fabric) == [
        "1 cable slower than its parallel ones: leaf0[p2] → spine0[q2]: 16 Gb/s of 100"
    ]
    assert nominal(fabric).link_gbps.min() == EQUAL


@pytest.mark.parametrize(
    ("slow", "names"),
    [
        ([3], {"leaf1[p3] → spine1[q3]"}),
        ([0, 5], {"leaf0[p0] → spine0[q0]", "leaf2[p5] → spine1[q5]"}),
        ([9], {"n1[p9] → leaf0[q9]"}),
    ],
)
def test_cable_without_parallels_is_compared_with_siblings(
    tmp_path: Path, slow: list[int], names: set[str]
) -> None:
    fabric = read(tmp_path, cable_list(with_rate(cable_tree(), 40, *slow)))
    assert marked(fabric) == names
    assert len(notes(fabric)) == 1 and "slower than the" in notes(fabric)[0].replace("its", "the")


MIXED: dict[str, Callable[[], Cables]] = {
    "slow leaf": lambda: with_rate(cable_tree(), 56, 2, 3, 12, 13, 14, 15),
    "slow spine": lambda: with_rate(cable_tree(), 56, *range(1, 8, 2)),
    "slow hosts": lambda: with_rate(cable_tree(), 25, *range(8, 24)),
    "hosts of a slow leaf": lambda: with_rate(cable_tree(), 56, 8, 9, 10, 11),
    "service hosts": lambda: [
        (a.replace("n", "io"), b, 50.0) if a.startswith("n") and at % 4 == 0 else (a, b, g)
        for at, (a, b, g) in enumerate(cable_tree())
    ],
    "half of the hosts": lambda: with_rate(cable_tree(), 50, *range(8, 24, 2)),
    "a kind of host on each leaf": lambda: with_rate(cable_tree(), 50, *range(8, 24, 4)),
    "small leaf behind a leaf": lambda: [
        *cable_tree(),
        ("leaf9", "leaf0", 40.0),
        ("x1", "leaf9", 40.0),
        ("x2", "leaf9", 40.0),
    ],
    "one cable": lambda: [
        ("n0", "leaf0", 10.0),
        ("n1", "leaf0", 100.0),
        ("leaf0", "leaf1", 40.0),
        ("n2", "leaf1", 10.0),
        ("n3", "leaf1", 100.0),
    ],
    "two of two": lambda: [
        ("leaf0", "leaf1", 40.0),
        ("leaf0", "leaf1", 100.0),
        *[(f"n{i}", f"leaf{i % 2}", 100.0) for i in range(4)],
    ],
}


def dimensions(slow: int) -> list[tuple[str, str, float]]:
    """A torus of 3 x 3 x 3 switches, one dimension slower than the others."""
    cables = []
    for at in np.ndindex(3, 3, 3):
        name = "s{}{}{}".format(*at)
        cables.append((f"n{name}", name, EQUAL))
        for dim in range(3):
            to = list(at)
            to[dim] = (to[dim] + 1) % 3
            cables.append((name, "s{}{}{}".format(*to), 50.0 if dim == slow else EQUAL))
    return cables


@pytest.mark.parametrize("kind", [*MIXED, "torus"])
def test_mixed_generations_are_not_marked(tmp_path: Path, kind: str) -> None:
    cables = dimensions(2) if kind == "torus" else MIXED[kind]()
    fabric = read(tmp_path, cable_list(cables))
    assert marked(fabric) == set() and notes(fabric) == []


def blocks(slow: str) -> str:
    """Two leaves and a spine, four parallel cables each; the second of leaf a1 in ``slow``."""
    switches: dict[str, list[str]] = {"a1": [], "a2": [], "b1": []}
    for leaf, first in (("a1", 1), ("a2", 5)):
        for at in range(4):
            word = slow if (leaf, at) == ("a1", 1) else "4xEDR"
            switches[leaf].append(f'[{11 + at}] "S-b1"[{first + at}] # "b1" lid 3 {word}')
            switches["b1"].append(f'[{first + at}] "S-{leaf}"[{11 + at}] # "{leaf}" lid 1 {word}')
        for port in (1, 2):
            switches[leaf].append(f'[{port}] "H-{leaf}{port}"[1](c) # "n{leaf}{port}" lid 9 4xEDR')
    return "\n".join(
        line
        for name, lines in switches.items()
        for line in (f'Switch 36 "S-{name}" # "{name}" base port 0 lid 1 lmc 0', *lines)
    )


def ports(slow: str) -> str:
    width, speed = slow[:2], slow[2:]
    lines = []
    for leaf, first in ((0xA1, 1), (0xA2, 5)):
        for at in range(4):
            words = f"{width} {speed}" if (leaf, at) == (0xA1, 1) else "4x EDR"
            lines.append(
                f"SW 1 {11 + at} 0x{leaf:016x} {words} - SW 3 {first + at} 0x{0xB1:016x} "
                f"( '{leaf:x}' - 'b1' )"
            )
        lines += [
            f"CA {leaf}{p} 1 0x{leaf}{p:02} 4x EDR - SW 1 {p} 0x{leaf:016x} "
            f"( 'n{leaf:x}{p} HCA-1' - '{leaf:x}' )"
            for p in (1, 2)
        ]
    return "\n".join(lines) + "\n"


def ufm(slow: str) -> str:
    elements = []
    for leaf, first in (("a1", 1), ("a2", 5)):
        for at in range(4):
            here, there = f"{leaf}_{11 + at}", f"b1_{first + at}"
            up = ufm_port(here, f"{leaf}:{11 + at}", str(11 + at), (there, f"b1:{first + at}", "1"))
            if (leaf, at) == ("a1", 1):
                up |= {"active_width": f"IB_{slow[:2]}", "active_speed": slow[2:]}
            elements.append(up)
        for p in ("1", "2"):
            host = (f"c{leaf}{p}_1", f"n{leaf}{p}", "HCA-1")
            elements.append(ufm_port(f"{leaf}_{p}", f"{leaf}:{p}", p, host))
    return json.dumps(elements)


def lldp(slow: str) -> str:
    parts = []
    for leaf, first in (("a1", 1), ("a2", 5)):
        for at in range(4):
            rate = slow if (leaf, at) == ("a1", 1) else "100GbaseCR4"
            parts += [
                f"# {leaf}",
                lldp_neighbour(f"{11 + at}", "b1", f"{first + at}", rate, "Bridge"),
            ]
        for p in (1, 2):
            parts += [f"# n{leaf}{p}", lldp_neighbour("e0", leaf, f"{p}", "100GbaseCR4", "Bridge")]
    return "\n".join([*parts, ""])


@pytest.mark.parametrize(
    ("write", "slow", "words"),
    [
        (blocks, "4xDDR", "16 Gb/s (4xDDR)"),
        (blocks, "1xEDR", "25 Gb/s (1xEDR)"),
        (ports, "4xDDR", "16 Gb/s (4xDDR)"),
        (ports, "1xEDR", "25 Gb/s (1xEDR)"),
        (ufm, "4xQDR", "32 Gb/s (4xQDR)"),
        (lldp, "25GbaseCR", "25 Gb/s"),
    ],
)
def test_every_format_states_the_slow_cable(
    tmp_path: Path, write: Callable[[str], str], slow: str, words: str
) -> None:
    fabric = read(tmp_path, write(slow))
    assert notes(fabric) == [
        f"1 cable slower than its parallel ones: a1[12] → b1[2]: {words} of 100"
    ]
    assert len(marked(fabric)) == 1


def test_assumed_rate_is_not_compared(tmp_path: Path) -> None:
    text = blocks("4x???").replace("4xEDR", "4xHDR", 0)
    fabric = read(tmp_path, text, cable_gbps=10.0)
    assert marked(fabric) == set() and notes(fabric) == []


def test_missing_cable_among_equals_is_noted(tmp_path: Path) -> None:
    cables = [cable for at, cable in enumerate(cable_tree(leaves=6, spines=8)) if at != 11]
    assert notes(read(tmp_path, cable_list(cables))) == [
        "1 switch has fewer cables upwards than most of the tier: leaf1: 7 of 8"
    ]
    half = [
        cable for at, cable in enumerate(cable_tree(leaves=6, spines=8)) if at not in range(8, 12)
    ]
    assert notes(read(tmp_path, cable_list(half))) == []


def scenario(folder: Path, cables: Cables) -> dict[str, Any]:
    (folder / "links.csv").write_text(cable_list(cables))
    return {
        "fabric": {"file": str(folder / "links.csv")},
        "engine": {"routing": "deterministic"},
        "job": [{"pattern": {"kind": "alltoall", "ranks": 8, "size": "256 KiB"}}],
    }


def test_stated_slow_cable_is_no_other_traffic(tmp_path: Path) -> None:
    cables = cable_tree(leaves=2, spines=1, parallel=4)
    diagnosis = diagnose(scenario(tmp_path, with_rate(cables, 10, 1)), methods=["block"], seeds=1)
    assert diagnosis.cause == "slow-link" and "leaf0[p1] → spine0[q1]" in diagnosis.headline
    assert {finding.cause for finding in diagnosis.findings} == {"slow-link"}
    assert any("slower than its parallel ones" in note for note in diagnosis.warnings)
    well = diagnose(scenario(tmp_path, cables), methods=["block"], seeds=1)
    assert well.cause not in ("slow-link", "other-traffic")


def test_scenario_overrides_the_rate_in_the_file(tmp_path: Path) -> None:
    data = scenario(tmp_path, with_rate(cable_tree(spines=1, parallel=4), 10, 1))
    stated = prepare(parse(data))
    assert stated.scenario.fabric.degraded == [
        Degraded(cable="leaf0[p1]", rate="10.0 Gb/s")  # type: ignore[arg-type]
    ]
    data["fabric"]["degraded"] = [{"cable": "spine0[q1]", "rate": "50 Gb/s"}]
    overridden = prepare(parse(data))
    assert len(overridden.scenario.fabric.degraded) == 1
    assert sorted(set(overridden.fabric.link_gbps.tolist())) == [50.0, 100.0]
    assert nominal(overridden.fabric).link_gbps.min() == EQUAL


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "slow"),
    [
        ("selene/selene.compute.txt", set()),
        ("psmn-x5/X5.topofile", set()),
        ("ibsim-samples/ys135.ibnetdiscover.txt", set()),
        ("netloc/avakas/ib-raw/ib-subnet-fe80:0000:0000:0000.txt", {"node008 HCA-1"}),
        ("netloc/plafrim/ib-raw/ib-subnet-fe80:0000:0000:0000.txt", {"Voltaire 4036 # 4036-8524"}),
    ],
)
def test_real_fabrics_have_few_slow_cables(file: str, slow: set[str]) -> None:
    assert {name.split("[")[0] for name in marked(read_fabric(real(file)))} == slow
