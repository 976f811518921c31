"""Telemetry as networks have it: only some switches take part, samples are lost, FECN marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tailback.cli import run as command
from tailback.errors import RunError, ScenarioError
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation.decode import decode_link_counts, decode_samples
from tailback.telemetry.estimate import link_estimates
from tailback.telemetry.header_counts import survival_chances
from tests.factories.probed_runs import run_of, scenario, truth_of

LOSSES: list[dict[str, Any]] = [
    {"scheme": "full", "header_loss": 0.4},
    {"scheme": "full", "header_loss": 0.3, "one_in": 3},
    {"scheme": "compact", "hash_bits": 3, "header_loss": 0.4},
    {"scheme": "coordinated", "hash_bits": 5, "header_loss": 0.25, "one_in": 2},
]
PARTLY: list[dict[str, Any]] = [
    {"scheme": "full", "stamping": "leaf"},
    {"scheme": "single-bit", "hash_bits": 3, "stamping": "leaf"},
    {"scheme": "compact", "hash_bits": 3, "count_bits": 2, "stamping": "leaf"},
    {"scheme": "compact", "hash_bits": 3, "stamping": "half"},
    {"scheme": "coordinated", "hash_bits": 5, "stamping": "leaf"},
    {"scheme": "coordinated", "hash_bits": 5, "stamping": "leaf", "one_in": 2},
    {"scheme": "full", "stamping": "half", "header_loss": 0.2},
]


SEEDS = (1, 2, 3, 4)

RANDOM_STARTS = {"psn_start": "random"}
"""From zero, packets of two ranks have the same ids in every run: their errors are no
further samples."""


def squares_off(errors: np.ndarray) -> float:
    """How far the mean square of standardised errors is from 1, in its own standard errors."""
    squares = errors**2
    return float((squares.mean() - 1.0) / (squares.std() / np.sqrt(len(squares))))


def with_names(telemetry: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return telemetry | {"stamping": names} if telemetry.get("stamping") == "half" else telemetry


@pytest.fixture(scope="module")
def half() -> list[str]:
    """Every other switch, of all tiers."""
    return run_of({}, messages=1).tables["switches"].sort("switch")["name"].to_list()[::2]


def stamped(run: Run, telemetry: dict[str, Any]) -> pl.DataFrame:
    """What really crossed the links at which packets get samples, beside the estimates."""
    nodes, switches = run.tables["nodes"], run.tables["switches"].sort("switch")
    names = telemetry.get("stamping", "all")
    acts = np.ones(switches.height, np.bool_)
    if names == "leaf":
        acts = np.isin(np.arange(switches.height), nodes["switch"].to_numpy())
    elif names != "all":
        acts = switches["name"].is_in(names).to_numpy()
    heads = np.concatenate([np.zeros(nodes.height, np.bool_), acts])
    estimates = link_estimates(run.tables["samples"]).rename({"packets": "estimated"})
    both = truth_of(run).with_columns(acts=heads[truth_of(run)["src"].to_numpy()])
    return both.join(estimates, on="link", how="left").with_columns(
        pl.col("estimated", "packets_se", "congested", "congested_se").fill_null(0.0)
    )


@pytest.mark.parametrize(
    "telemetry",
    [
        *LOSSES[:2],
        *PARTLY[:2],
        *(pytest.param(each, marks=pytest.mark.slow) for each in [*LOSSES[2:], *PARTLY[2:]]),
    ],
    ids=lambda t: "-".join(map(str, t.values())),
)
def test_counts_are_the_truth(telemetry: dict[str, Any], half: list[str]) -> None:
    """No bias where packets get samples, errors as large as stated, and nothing elsewhere."""
    telemetry = with_names(telemetry, half)
    errors: dict[str, list[Any]] = {"observed_packets": [], "observed_congested_packets": []}
    inside: list[Any] = []
    for seed in SEEDS:
        run = run_of(telemetry | RANDOM_STARTS, seed=seed)
        both = stamped(decode_samples(run), telemetry)
        for true, name, error in (
            ("observed_packets", "estimated", "packets_se"),
            ("observed_congested_packets", "congested", "congested_se"),
        ):
            # Of a handful of packets the error is not normal, and stated from the estimate itself.
            some = both.filter(pl.col("acts") & (pl.col(true) >= 40) & (pl.col(error) > 0))
            errors[true].append(((some[name] - some[true]) / some[error]).to_numpy())
        assert both.filter(~pl.col("acts"))["estimated"].sum() == 0
        here = both.filter("acts")
        assert here["estimated"].sum() == pytest.approx(here["observed_packets"].sum(), rel=0.06)
        if telemetry["scheme"] != "full":
            counts = decode_link_counts(run)
            assert counts.packets is not None
            inner = both.sort("link")
            assert (counts.counted == (inner["acts"] & ~inner["from_node"]).to_numpy()).all()
            low, high = counts.packets.interval()
            true_packets = inner["observed_packets"].to_numpy()
            inside.append(((low <= true_packets) & (true_packets <= high))[counts.counted])
        silent = any("no samples" in note for note in run.notes)
        assert silent == ("stamping" in telemetry)
    for name, parts in errors.items():
        off = np.concatenate(parts)
        assert len(off) > 20 * len(SEEDS) and abs(off.mean()) < 4 / np.sqrt(len(off)), name
        # Links whose hashes are assigned to likely links are counted more precisely than stated.
        assert squares_off(off) < 4.0, (name, (off**2).mean())
    if inside:
        held = np.concatenate(inside)
        # Four standard deviations of a share of 0.95.
        assert held.mean() > 0.95 - 4 * np.sqrt(0.95 * 0.05 / len(held))


def test_the_share_that_is_lost_is_lost() -> None:
    n_packets = run_of({"scheme": "compact"}).tables["packets"].height
    left = run_of({"scheme": "compact", "header_loss": 0.4}).tables["packets"].height
    # Five standard deviations of a binomial.
    assert abs(left - 0.6 * n_packets) < 5 * (0.24 * n_packets) ** 0.5


@pytest.mark.parametrize("scheme", ["compact", "coordinated", "edge-marking"])
def test_what_each_host_received_adds_up(scheme: str, tmp_path: Path) -> None:
    run = run_of({"scheme": scheme, "hash_bits": 3, "one_in": 2}, messages=20)
    total, hosts = decode_link_counts(run), run.tables["nodes"]["host_name"].to_list()
    parts = [decode_link_counts(run, receiver=host) for host in hosts]
    assert total.packets is not None
    for counts, parts_of_total in (
        (total.packets, [part.packets for part in parts]),
        (total.congested, [part.congested for part in parts]),
    ):
        assert np.allclose(
            counts.packets, sum(part.packets for part in parts_of_total if part is not None)
        )
    with pytest.raises(RunError, match="no host"):
        decode_link_counts(run, receiver="nowhere")
    path, out = run.write(tmp_path / "run"), tmp_path / "counts.csv"
    assert command(["export", "counts", str(path), str(out), "--host", hosts[3]]) == 0
    exported = pl.read_csv(out)["packets"]
    assert exported.sum() == pytest.approx(parts[3].table()["packets"].sum())


def test_coordinated_needs_to_know_which_hops_act(half: list[str]) -> None:
    run = run_of({"scheme": "coordinated", "hash_bits": 5, "stamping": half}, messages=5)
    with pytest.raises(RunError, match="stamps or one that does not"):
        decode_link_counts(run)


CONTROL = {"threshold": "16 KiB", "packet": "0 B", "victims": True}


def congested(rule: dict[str, Any], **control: Any) -> list[int]:
    run = run_of(
        rule,
        engine={
            "buffer": "32 KiB",
            "eager": "1 MiB",
            "injection": "per-destination",
            "congestion_control": CONTROL | control,
        },
    )
    return truth_of(run)["congested_packets"].to_list()


def test_fecn_is_the_queue_over_the_threshold() -> None:
    """With victims marked it is the rule of that name; without, ports that lack credit drop out."""
    fecn = congested({"rule": "fecn"})
    assert fecn == congested({"rule": "queue", "rule_bytes": "16 KiB"}) and sum(fecn) > 0
    assert sum(congested({"rule": "fecn"}, victims=False)) < sum(fecn)


@pytest.mark.parametrize(
    ("telemetry", "words"),
    [
        ({"scheme": "xor-digest", "stamping": "leaf"}, "single-bit"),
        ({"stamping": "leaf", "count_injection": True}, "count_injection"),
        ({"stamping": []}, "names no switch"),
        ({"stamping": ["nowhere"]}, "nowhere"),
        ({"stamping": "spine"}, "stamping"),
        ({"header_loss": 1.0}, "header_loss"),
        ({"header_loss": -0.1}, "header_loss"),
        ({"rule": "fecn"}, "congestion_control"),
        ({"queue_pairs": "per_peer"}, "per-peer"),
    ],
)
def test_mistakes_are_explained(telemetry: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        run_of(telemetry, messages=1)
    message = f"{refused.value}"
    assert words in message and "telemetry" in message, message
    assert parse(scenario({})).telemetry.stamping == "all"


FEW_CONGESTED = {"rule": "queue", "rule_bytes": "64 KiB"}
"""No packet meets three congested hops."""


@pytest.mark.parametrize(
    "scheme",
    [
        {"scheme": "compact", "count_bits": 1},
        {"scheme": "compact", "count_bits": 2},
        {"scheme": "single-bit", "count_bits": 2, **FEW_CONGESTED},
    ],
    ids=lambda scheme: f"{scheme['scheme']}-{scheme['count_bits']}",
)
def test_saturated_counts_weigh_hops_by_chance(scheme: dict[str, Any]) -> None:
    """Paths of one, three and five switches, counts to one or three."""
    chances = survival_chances(5, 2)
    assert chances.tolist() == pytest.approx([3 / 16, 3 / 16, 3 / 16, 3 / 16, 4 / 16])
    telemetry = {"hash_bits": 5, **scheme}
    off: dict[str, list[Any]] = {"observed_packets": [], "observed_congested_packets": []}
    for seed in range(1, 7):
        run = run_of(telemetry | RANDOM_STARTS, seed=seed)
        counts, truth = decode_link_counts(run), truth_of(run)
        assert counts.packets is not None
        for estimate, name in zip((counts.packets, counts.congested), off, strict=True):
            sure = counts.counted & (estimate.variance > 0)
            error = estimate.packets - truth[name].to_numpy()
            off[name].append(error[sure] / np.sqrt(estimate.variance[sure]))
    for name, parts in off.items():
        z = np.concatenate(parts)
        assert abs(z.mean()) < 4 / np.sqrt(len(z)), name
        assert abs(squares_off(z)) < 4.0, (name, (z**2).mean())
        # Six runs of 96 links: the mean square is known to 6 %, and the standard deviation to 3 %.
        assert 0.88 < z.std() < 1.12, name


def test_saturated_counts_of_congested_hops_are_refused() -> None:
    """Of a packet that met three congested hops on five, four or five may have been congested."""
    run = run_of({"scheme": "single-bit", "hash_bits": 5, "count_bits": 2} | RANDOM_STARTS)
    with pytest.raises(RunError, match="no more than 3 congested hops, which 43 % of the packets"):
        decode_link_counts(run)


@pytest.mark.parametrize("randomness", ["lfsr", "ring"])
@pytest.mark.parametrize("scheme", ["compact", "single-bit"])
def test_circuits_decide_as_random_numbers_do(scheme: str, randomness: str) -> None:
    telemetry = {"scheme": scheme, "hash_bits": 5, "randomness": randomness}
    run, ideal = run_of(telemetry), run_of(telemetry | {"randomness": "ideal"})
    assert not run.tables["packets"]["header"].equals(ideal.tables["packets"]["header"])
    assert run.tables["packets"].drop("header").equals(ideal.tables["packets"].drop("header"))
    counts, truth = decode_link_counts(run), truth_of(run)["observed_packets"].to_numpy()
    assert counts.packets is not None
    sure = counts.counted & (counts.packets.variance > 0)
    z = (counts.packets.packets - truth)[sure] / np.sqrt(counts.packets.variance[sure])
    assert abs(z.mean()) < 4 / np.sqrt(len(z)) and z.std() < 1.3


def test_only_random_schemes_have_a_circuit() -> None:
    with pytest.raises(ScenarioError, match="use compact or single-bit"):
        parse(scenario({"scheme": "coordinated", "randomness": "lfsr"}))
