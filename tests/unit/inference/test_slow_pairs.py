"""Which host, adapter, cable or rail benchmarks between pairs of hosts blame."""

from __future__ import annotations

from itertools import combinations
from math import log
from pathlib import Path

import numpy as np
import pytest

from tailback.api.pairs import diagnose_pairs
from tailback.calibration.model import CalibrationError
from tailback.cli.pairs_screen import pairs_lines
from tailback.inference.slow_pairs import PairTime, find_pair_faults
from tests.factories.benchmark_outputs import ib_write_bw, nccl_text, osu_bw, osu_latency_7

FABRIC = (
    '[fabric]\ntopology = { kind = "pgft", children = [2, 2], parents = [1, 2] }\n'
    '[[job]]\npattern = { kind = "ring", ranks = 4, size = "1 KiB" }\n'
)
ALL = tuple(combinations(("n0", "n1", "n2", "n3"), 2))


def pair_tests(
    n_hosts: int, slow: dict[str, float], *, rails: int = 1, per_leaf: int = 4, seed: int = 1
) -> list[PairTime]:
    """All pairs on all rails; ``slow`` has factors by host, ``host/rail``, ``leaf`` or pair."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    out = []
    for a, b in combinations(range(n_hosts), 2):
        for rail in range(rails):
            hosts = f"n{a}", f"n{b}"
            leaves = tuple(f"l{host // per_leaf}r{rail}" for host in (a, b))
            used = {*hosts, *(f"{host}/{rail}" for host in hosts), f"r{rail}", f"{a}-{b}"}
            used |= set(leaves) if leaves[0] != leaves[1] else set()
            factor = max([slow[name] for name in used if name in slow], default=1.0)
            time = log(factor) + rng.normal(0.0, 0.01)
            number = rail if rails > 1 else -1
            out.append(PairTime(hosts, number, leaves, 100 / factor, time))
    return out


@pytest.mark.parametrize(
    ("slow", "rails", "kind", "names", "rail"),
    [
        ({"n3": 2.0}, 1, "host", ("n3",), -1),
        ({"n3": 1.15}, 1, "host", ("n3",), -1),
        ({"n3/2": 1.5}, 4, "adapter", ("n3",), 2),
        ({"r1": 1.5}, 4, "rail", (), 1),
        ({"l1r0": 1.6}, 1, "uplinks", ("l1r0",), -1),
    ],
)
def test_fault_is_named(
    slow: dict[str, float], rails: int, kind: str, names: tuple[str, ...], rail: int
) -> None:
    faults = find_pair_faults(pair_tests(12, slow, rails=rails)).faults
    assert len(faults) == 1
    first = faults[0].suspects[0]
    assert (first.kind, first.names, first.rail) == (kind, names, rail)
    assert faults[0].probability > 0.95
    assert faults[0].slowdown == pytest.approx(next(iter(slow.values())), rel=0.02)


def test_healthy_hosts_are_not_blamed() -> None:
    for seed in range(20):
        assert not find_pair_faults(pair_tests(8, {}, seed=seed)).faults


def test_several_faults_are_told_apart() -> None:
    faults = find_pair_faults(pair_tests(12, {"n2": 2.0, "n9": 1.4})).faults
    assert [fault.suspects[0].names for fault in faults] == [("n2",), ("n9",)]
    assert [fault.slow.sum() for fault in faults] == [11, 11]
    assert [fault.alone.sum() for fault in faults] == [10, 10]


@pytest.mark.parametrize("slow", [("n2", "n5"), ("n0", "n1", "n7")])
def test_equally_slow_hosts_are_equally_sure(slow: tuple[str, ...]) -> None:
    faults = find_pair_faults(pair_tests(8, dict.fromkeys(slow, 2.0))).faults
    assert {fault.suspects[0].names for fault in faults} == {(name,) for name in slow}
    assert min(fault.probability for fault in faults) > 0.95
    assert [fault.slowdown for fault in faults] == pytest.approx([2.0] * len(slow), rel=0.02)


def test_fast_pairs_of_a_leaf_clear_its_links() -> None:
    """Three of the four hosts of a leaf are slow: twelve of the sixteen pairs across leaves."""
    slow = dict.fromkeys(("n1", "n2", "n3"), 2.0)
    for seed in range(10):
        faults = find_pair_faults(pair_tests(8, slow, seed=seed)).faults
        assert {fault.suspects[0].names for fault in faults} == {("n1",), ("n2",), ("n3",)}


def test_one_erratic_test_blames_no_host() -> None:
    tests = pair_tests(8, {"1-5": 3.0})
    faults = find_pair_faults(tests).faults
    assert all(fault.suspects[0].kind == "path" for fault in faults)


def test_hosts_measured_together_stay_suspects() -> None:
    tests = [PairTime((f"n{k}", f"n{k + 1}"), -1, (), 100.0, 0.0) for k in (0, 2, 4, 6)]
    tests.append(PairTime(("n8", "n9"), -1, (), 50.0, log(2)))
    (fault,) = find_pair_faults(tests).faults
    assert {suspect.names for suspect in fault.suspects} >= {("n8",), ("n9",)}


def nccl_output(hosts: tuple[str, str], busbw: float, wrong: int = 0) -> str:
    """What sendrecv_perf prints for a pair of hosts; bus bandwidth in GB/s."""
    size = 256 << 20
    ends = [
        f"#  Rank {rank} Group  0 Pid {900 + rank} on {host} device  0 [0000:07:00] GPU"
        for rank, host in enumerate(hosts)
    ]
    units = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    row = (
        f"{size} {size // 4} float none -1 {size / busbw / 1e3:.1f} {busbw:.2f} {busbw:.2f} {wrong}"
    )
    end = f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}"
    return "\n".join(["# nThread 1 nGpus 1 minBytes 1", *ends, units, row, end, ""])


def test_impossible_rates_and_wrong_values_are_said(tmp_path: Path) -> None:
    pairs = list(combinations(("n0", "n1", "n2", "n3"), 2))
    for pair in pairs:
        (tmp_path / f"{'-'.join(pair)}.log").write_text(
            nccl_output(pair, 5.0 if "n2" in pair else 11.0, 7 * (pair == ("n0", "n3")))
        )
    fabric = tmp_path / "fabric.toml"
    fabric.write_text(
        '[fabric]\ntopology = { kind = "pgft", children = [2, 2], parents = [1, 2] }\n'
        '[[job]]\npattern = { kind = "ring", ranks = 4, size = "1 KiB" }\n'
    )
    result = diagnose_pairs(list(tmp_path.glob("*.log")), fabric=fabric)
    assert result.cause == "corrupted" and result.slow[0].hosts == ("n2",)
    says = "Data arrived wrong in 1 test: n0–n3 (7 received values wrong)."
    assert result.headline.startswith(says)
    assert result.next_step.startswith("Take n0 and n3 out of service")
    assert pairs_lines(result)[0].endswith("DATA CORRUPTED")
    (tmp_path / "n0-n3.log").write_text(nccl_output(("n0", "n3"), 11.0))
    (tmp_path / "n0-n1.log").write_text(nccl_output(("n0", "n1"), 22000.0))
    result = diagnose_pairs(list(tmp_path.glob("*.log")), fabric=fabric)
    assert result.slow[0].hosts == ("n2",) and result.tests == 5
    assert result.headline.startswith(
        "Left out as impossible: n0–n1 at 1.76e+05 Gb/s over 1 link of 100 Gb/s; check its unit."
    )


@pytest.mark.parametrize("summary", [True, False])
@pytest.mark.parametrize("place", ["out", "in"])
def test_wrong_values_are_said_by_table_and_sum(summary: bool, place: str, tmp_path: Path) -> None:
    """An output that was cut lacks the sum below the table."""
    for pair in ALL:
        text = nccl_text(pair)
        if "n3" in pair and "n2" not in pair:
            rows = text.splitlines()
            at = next(k for k, row in enumerate(rows) if row.split()[:1] == ["1048576"])
            cells = rows[at].split()
            cells[8 if place == "out" else 12] = "5"
            rows[at] = " ".join(cells)
            text = "\n".join(rows) + "\n"
        if not summary:
            text = text[: text.index("# Out of bounds")]
        (tmp_path / f"{'-'.join(pair)}.log").write_text(text)
    result = diagnose_pairs(tmp_path)
    assert result.cause == "corrupted" and len(result.corrupted) == 2
    assert "(5 received values wrong)" in result.headline and "All use n3." in result.headline


def test_failed_validation_is_data_corruption(tmp_path: Path) -> None:
    for pair in ALL:
        text = osu_latency_7()
        bad = text.replace("Pass", "Fail") if pair == ("n1", "n2") else text
        (tmp_path / f"{'-'.join(pair)}.txt").write_text(bad + osu_bw())
    files = [f"{tmp_path / '-'.join(pair)}.txt@{','.join(pair)}" for pair in ALL]
    result = diagnose_pairs(files)
    assert result.cause == "corrupted" and result.corrupted[0].startswith("n1–n2 (line ")


def test_rates_above_those_of_links_are_refused(tmp_path: Path) -> None:
    """The healthy half of the tests is faster than the fabric's links: its rate is wrong."""
    for pair in ALL:
        output = nccl_output(pair, 5.0 if "n2" in pair else 18.0)
        (tmp_path / f"{'-'.join(pair)}.log").write_text(output)
    (tmp_path / "fabric.toml").write_text(FABRIC)
    with pytest.raises(
        CalibrationError, match=r"3 of 6 tests, such as n\d–n\d at 144 Gb/s"
    ) as caught:
        diagnose_pairs(list(tmp_path.glob("*.log")), fabric=tmp_path / "fabric.toml")
    assert "correct the rates in fabric" in str(caught.value)
    assert diagnose_pairs(list(tmp_path.glob("*.log"))).slow[0].hosts == ("n2",)


def test_headline_names_no_others_where_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "fabric.toml").write_text(FABRIC)
    for pair in ALL:
        (tmp_path / f"{'-'.join(pair)}.log").write_text(nccl_output(pair, 11.0))
    result = diagnose_pairs(list(tmp_path.glob("*.log")), fabric=tmp_path / "fabric.toml")
    assert result.cause == "healthy" and "others reach" not in result.headline
    assert "They reach 88 % of the 100 Gb/s of their links." in result.headline


def test_pairs_within_hosts_test_no_cable(tmp_path: Path) -> None:
    for host in ("n0", "n1", "n2"):
        (tmp_path / f"{host}.log").write_text(nccl_output((host, host), 11.0))
    result = diagnose_pairs(tmp_path)
    assert result.cause == "undetermined" and "no adapter or cable was tested" in result.headline
    assert result.next_step.startswith("Test pairs of hosts")


def test_json_has_confidence_and_chances(tmp_path: Path) -> None:
    for slow, cause in (("n2", "slow-link"), ("", "healthy")):
        for pair in ALL:
            output = nccl_output(pair, 5.0 if slow in pair else 11.0)
            (tmp_path / f"{'-'.join(pair)}.log").write_text(output)
        facts = diagnose_pairs(tmp_path).facts()
        assert facts["cause"] == cause
        assert facts["confidence"] == facts["chances"][cause] > 0.9
        assert set(facts["chances"]) == {"slow-link", "healthy"}


@pytest.mark.parametrize(
    ("pairs", "slow", "cause", "step"),
    [
        (
            list(combinations(("n0", "n1", "n2", "n3"), 2)),
            "n2",
            "slow-link",
            "Of host n2 or its cable",
        ),
        (list(combinations(("n0", "n1", "n2", "n3"), 2)), "", "healthy", "tailback diagnose TRACE"),
        (
            [("n0", "n1"), ("n2", "n3"), ("n4", "n5")],
            "n4",
            "undetermined",
            "measure n4 and n5",
        ),
    ],
)
def test_screen_ends_with_next_step(
    pairs: list[tuple[str, str]], slow: str, cause: str, step: str, tmp_path: Path
) -> None:
    for pair in pairs:
        output = nccl_output(pair, 5.0 if slow in pair else 11.0)
        (tmp_path / f"{'-'.join(pair)}.log").write_text(output)
    result = diagnose_pairs(list(tmp_path.glob("*.log")))
    assert result.cause == cause
    last = "\n".join(pairs_lines(result)).rpartition("NEXT  ")[2]
    assert step in " ".join(last.split())


def test_single_slow_pair_leaves_verdict_open(tmp_path: Path) -> None:
    for pair in combinations(("n0", "n1", "n2", "n3", "n4"), 2):
        slow = pair == ("n1", "n3")
        (tmp_path / f"{'-'.join(pair)}.log").write_text(nccl_output(pair, 4.0 if slow else 11.0))
    result = diagnose_pairs(list(tmp_path.glob("*.log")))
    assert result.cause == "undetermined"
    assert "9 of 10 tests reach 88 Gb/s" in result.headline
    assert "But n1–n3 reached 32 Gb/s: repeat it" in result.headline
    assert result.next_step.startswith("Repeat the test of n1–n3")


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (ALL, "Look at what they have in common"),
        (ALL[:3], "All tests use n0, which may be slow. Test pairs without n0."),
    ],
)
def test_pairs_that_are_all_slow_are_said(
    pairs: tuple[tuple[str, str], ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "fabric.toml").write_text(FABRIC)
    for pair in pairs:
        (tmp_path / f"{'-'.join(pair)}.log").write_text(nccl_output(pair, 6.0))
    result = diagnose_pairs(list(tmp_path.glob("*.log")), fabric=tmp_path / "fabric.toml")
    assert result.cause == "undetermined"
    assert says in f"{result.headline} {result.next_step}"
    assert "all pairs are slow: they reach 48 Gb/s, 48 % of the 100 Gb/s" in result.headline


def test_cut_log_of_pairs_loses_its_last_run(tmp_path: Path) -> None:
    runs = [nccl_output(pair, 5.0 if "n2" in pair else 11.0) for pair in ALL]
    row = runs[-1].index("268435456")
    (tmp_path / "all.log").write_text("".join(runs[:-1]) + runs[-1][: row + 20])
    result = diagnose_pairs(tmp_path / "all.log")
    assert result.tests == 5 and result.slow[0].hosts == ("n2",)
    (note,) = result.notes
    lines = "".join(runs[:-1]).count("\n")
    assert note.startswith(f"all.log: a run is left out: line {lines + 5}: ")


def test_tests_without_hosts_say_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "n1.log"
    file.write_text(ib_write_bw())
    for stated, says in (("", "does not print its hosts"), ("@n1", "only n1 is known")):
        with pytest.raises(CalibrationError, match=says) as caught:
            diagnose_pairs(f"{file}{stated}")
        assert "name both: n1.log@CLIENT,SERVER" in str(caught.value)


@pytest.mark.parametrize("slow", [("n2",), ("n2", "n3")])
def test_tests_of_two_states_are_refused(slow: tuple[str, ...], tmp_path: Path) -> None:
    """A single pair that differs, as one that fails now and then, is no other state."""
    for state, rate in (("before", 5.0), ("after", 11.0)):
        for pair in ALL:
            slowed = slow[0] in pair if len(slow) == 1 else pair == slow
            output = nccl_output(pair, rate if slowed else 11.0)
            (tmp_path / f"{state}-{'-'.join(pair)}.log").write_text(output)
    if len(slow) > 1:
        assert diagnose_pairs(tmp_path).tests == 12
        return
    with pytest.raises(
        CalibrationError, match=r"n0–n2 and 2 other pairs reach another rate"
    ) as caught:
        diagnose_pairs(tmp_path)
    assert "after-n0-n2.log" in str(caught.value) and "before-n0-n2.log" in str(caught.value)
