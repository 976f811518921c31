"""Faults of a lab: as the user writes them, and drawn."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tailback.errors import TailbackError
from tailback.lab.causes import FORMS, Setting, apply, draw, place_ranks, replay
from tailback.lab.plan import Plan
from tailback.lab.spec import LabError, load, parse

EXAMPLE = Path(__file__).parents[3] / "examples" / "lab" / "leaf-spine.toml"


@pytest.fixture
def plan() -> Plan:
    return Plan(load(EXAMPLE))


def _applied(plan: Plan, *written: str) -> Setting:
    setting = Setting.nominal(plan)
    for text in written:
        apply(text, setting, plan)
    return setting


def test_nothing_is_wrong_nominally(plan: Plan) -> None:
    setting = Setting.nominal(plan)
    assert setting.hosts[:4] == ["h00", "h00", "h10", "h10"]
    assert len(setting.hosts) == 16
    assert setting.spines == ["s0", "s1"]
    assert not (setting.rates_bps or setting.environment or setting.flows or setting.causes)


@pytest.mark.parametrize("written", FORMS.values(), ids=FORMS)
def test_every_form_that_a_remedy_shows_is_one(plan: Plan, written: str) -> None:
    setting = _applied(plan, written)
    assert len(setting.causes) == 1
    assert setting.causes[0]["written"] == written
    assert setting != Setting.nominal(plan)


def test_a_slow_cable_is_slow_both_ways(plan: Plan) -> None:
    setting = _applied(plan, "slow-cable:s1-l2=30%")
    links = {link.number: link for link in plan.links}
    assert {(links[n].source, links[n].target): rate for n, rate in setting.rates_bps.items()} == {
        ("l2", "s1"): 12_000_000,
        ("s1", "l2"): 12_000_000,
    }
    assert setting.causes[0]["rate_mbit"] == pytest.approx(12)


def test_a_bad_placement_separates_leaf_neighbours(plan: Plan) -> None:
    setting = _applied(plan, "placement")
    good = Setting.nominal(plan).hosts
    assert sorted(setting.hosts) == sorted(good)
    assert all(setting.hosts[rank][1] != setting.hosts[rank + 1][1] for rank in range(15))
    assert setting.causes[0]["better"] == good


@pytest.mark.parametrize("kind", ["by-leaf", "by-node", "split-pairs", "random,7"])
def test_bad_placements_use_the_same_hosts(plan: Plan, kind: str) -> None:
    good = Setting.nominal(plan).hosts
    hosts = _applied(plan, f"placement:{kind}").hosts
    assert Counter(hosts) == Counter(good)
    # Ranks of a pair share a leaf in the good placement.
    apart = [hosts[rank][1] != hosts[rank + 1][1] for rank in range(0, 16, 2)]
    assert sum(apart) >= 5
    assert hosts == _applied(plan, f"placement:{kind}").hosts


def test_rank_file_replaces_placement_alone(plan: Plan, tmp_path: Path) -> None:
    setting = _applied(plan, "placement", "slow-cable:l0-s0=50%")
    good = Setting.nominal(plan).hosts
    file = tmp_path / "hosts"
    file.write_text("\n".join(good) + "\n")
    place_ranks(file, setting, plan)
    assert setting.hosts == good and setting.rates_bps
    assert [cause["kind"] for cause in setting.causes] == ["slow-cable"]


@pytest.mark.parametrize(
    ("hosts", "words"),
    [(["h00"] * 15, "places 15 ranks, the lab runs 16"), (["h00"] * 15 + ["h99"], "h99")],
)
def test_rank_file_of_another_lab_is_refused(
    plan: Plan, tmp_path: Path, hosts: list[str], words: str
) -> None:
    file = tmp_path / "hosts"
    file.write_text("\n".join(hosts) + "\n")
    with pytest.raises(LabError, match=words) as caught:
        place_ranks(file, Setting.nominal(plan), plan)
    assert caught.value.remedy and caught.value.file == file


def _case(folder: Path, truth: object) -> Path:
    (folder / "truth").mkdir()
    (folder / "truth" / "truth.json").write_text(json.dumps(truth))
    return folder


def test_replay_repeats_causes_and_paths(plan: Plan, tmp_path: Path) -> None:
    written = ("slow-cable:l2-s1=30%", "cross-traffic:h02-h22*3")
    case = _case(tmp_path, {"causes": _applied(plan, *written).causes, "path_seed": 8})
    assert replay(case) == (written, 8)


@pytest.mark.parametrize(
    "truth",
    [[], {}, {"causes": []}, {"causes": [{}], "path_seed": 1}, {"causes": [], "path_seed": 0}],
)
def test_damaged_truth_is_refused(tmp_path: Path, truth: object) -> None:
    with pytest.raises(TailbackError, match=r"truth\.json") as caught:
        replay(_case(tmp_path, truth))
    assert caught.value.remedy


def test_folder_without_truth_is_no_case(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is no case"):
        replay(tmp_path)


def test_causes_add_up(plan: Plan) -> None:
    setting = _applied(plan, "slow-cable:l0-s0=50%", "imbalance:2=3", "bursts:h02-h12*2,1s/2s")
    assert [cause["kind"] for cause in setting.causes] == [
        "slow-cable",
        "imbalance",
        "cross-traffic",
    ]
    assert setting.environment == {"TAILBACK_LAB_SLOW": "2:3.0"}
    assert [(f.source, f.target, f.on_s, f.off_s) for f in setting.flows] == [
        ("h02", "h12", 1.0, 2.0)
    ] * 2


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("slow-cabel:l2-s1=60%", "slow-cable"),
        ("slow-cable:l2-s9=60%", "no cable between l2 and s9"),
        ("slow-cable:l2-s1=0%", "at least 1 %"),
        ("slow-cable:l2-s1", "write it like"),
        ("imbalance:16=2", "the last is 15"),
        ("imbalance:1=-2", "write it like"),
        ("noise:5%", "write it like"),
        ("placement:all", "by-leaf, by-node, split-pairs, random"),
        ("placement:by-leaf,3", "is not one of"),
        ("placement:random", "needs a seed"),
        ("one-spine:s7", "s0, s1"),
        ("cross-traffic:h00-h12", "h00 runs ranks of the job"),
        ("cross-traffic:h02-h02", "cannot send to itself"),
        ("cross-traffic:h02-h77", "there is no host h77"),
        ("bursts:h02-h12,0s/1s", "above 0"),
        ("imbalance:١=2; rm -rf /", "write it like"),
    ],
)
def test_a_cause_that_does_not_fit_is_refused(plan: Plan, written: str, words: str) -> None:
    with pytest.raises(LabError) as caught:
        _applied(plan, written)
    assert words in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "twice",
    [
        ("imbalance:1=2", "imbalance:3=2"),
        ("one-spine:s0", "one-spine:s1"),
        ("slow-cable:l2-s1=30%", "slow-cable:s1-l2=60%"),
    ],
)
def test_a_second_cause_does_not_replace_the_first(plan: Plan, twice: tuple[str, str]) -> None:
    with pytest.raises(LabError, match="already") as caught:
        _applied(plan, *twice)
    assert caught.value.remedy


def test_draws_repeat_and_cover_every_kind(plan: Plan) -> None:
    drawn = [draw(seed, plan) for seed in range(200)]
    assert drawn == [draw(seed, plan) for seed in range(200)]
    kinds = {text.partition(":")[0] for texts in drawn for text in texts}
    assert kinds == set(FORMS)
    assert [] in drawn
    assert any(len(texts) == 2 for texts in drawn)
    for texts in drawn:
        _applied(plan, *texts)


def test_only_what_the_lab_can_have_is_drawn() -> None:
    plan = Plan(
        parse(
            {
                "fabric": {"leaves": 2, "spines": 1, "hosts_per_leaf": 1},
                "job": {"hosts": ["h00", "h10"]},
            }
        )
    )
    kinds = set()
    for seed in range(100):
        for text in draw(seed, plan):
            kinds.add(text.partition(":")[0])
            _applied(plan, text)
    assert kinds == {"slow-cable", "imbalance", "noise"}
