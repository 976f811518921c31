"""pF3D's gain by shifting: the settings that are compared, and what is said of them."""

from __future__ import annotations

from studies.taffet2019.case_model import example
from studies.taffet2019.pf3d_reasons import (
    PLACES,
    SETTINGS,
    THEIRS,
    Allocation,
    blocks,
    changed,
    others,
    verdict,
)


def hosts(text: str | None) -> list[int]:
    out: list[int] = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def test_the_first_setting_is_the_example() -> None:
    for shifted, name in ((False, "pf3d/pf3d.toml"), (True, "pf3d/shifted.toml")):
        mine = changed(SETTINGS[0], Allocation(), alone=False, shifted=shifted)
        theirs = example(name)
        for job in (0, 1):
            assert hosts(mine.job[job].hosts) == hosts(theirs.job[job].hosts)
            assert mine.job[job].pattern == theirs.job[job].pattern
    assert len(changed(SETTINGS[0], Allocation(), alone=True, shifted=False).job) == 1


def test_allocations_have_as_many_hosts_as_the_example() -> None:
    for place in PLACES.values():
        assert sum(place.leaves) == sum(Allocation().leaves)
    everywhere = PLACES["the other traffic also goes to our hosts"]
    scenario = changed(SETTINGS[0], everywhere, alone=False, shifted=False)
    assert len(hosts(scenario.job[1].hosts)) == 768 and scenario.job[1].shared_hosts


def test_other_sizes_of_messages_carry_as_many_bytes() -> None:
    scenario = example("pf3d/pf3d.toml")
    blocks(8)(scenario)
    others(2)(scenario)
    observed, background = (job.pattern or {} for job in scenario.job)
    assert (observed["size"], observed["rounds"]) == ("8 KiB", 4)
    assert (background["size"], background["messages"]) == ("2048 KiB", 7)


def test_the_verdict_follows_from_the_ratios() -> None:
    rows = {"as the example": (0.24, -0.002, -0.196), "one plane": (0.21, 0.149, -0.054)}
    text = "\n".join(verdict(rows))
    assert "only with: one plane." in text and "within 1 point: none of them" in text
    rows["like theirs"] = THEIRS
    text = "\n".join(verdict(rows))
    assert (
        "within 1 point: like theirs; with the published slow-down of the shifted run, too: "
        in text
    )
    assert text.endswith("like theirs.")
