"""What a trace's own messages say of a machine, whatever its clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tailback as tb
from tailback.calibration import CalibrationError, FittedValue, Placed, Series, estimate
from tailback.calibration.routes import Route
from tailback.calibration.trace import bytes_meanwhile, fit_copied, trace_times
from tests.factories.evidence_traces import Script, receive, send, shifted
from tests.factories.otf2_traces import Build, writing

LATENCY_NS, GBPS, EAGER = 1500, 80.0, 8192
SIZES = [8, 64, 256, 1024, 4096, 8192, 16384, 65536, 262144, 1 << 20]


def took_ns(size: int) -> int:
    """One way, with a handshake of twice the latency above the threshold."""
    return round(LATENCY_NS * (3 if size > EAGER else 1) + size * 8 / GBPS)


def ping_pong(repeats: int = 3) -> list[Script]:
    """Two ranks; each answers at once. The second is in its receive before the first sends."""
    now, scripts = 10_000, list[Script]([[], []])
    for size in SIZES * repeats:
        way = took_ns(size)
        back = now + way
        scripts[0] += send(now, now + (way if size > EAGER else 100), 1, size=size)
        scripts[1] += receive(now - 5_000, back, 0, size=size)
        scripts[1] += send(back, back + (way if size > EAGER else 100), 0, size=size)
        scripts[0] += receive(now + way, back + way, 1, size=size)
        now = back + way + 10_000
    return scripts


def late_receivers(start: int) -> list[Script]:
    """The first sends, the second comes 50 µs later."""
    now, scripts = start, list[Script]([[], []])
    for size in SIZES:
        done = now + 50_000
        end = done + took_ns(size)
        scripts[0] += send(now, end if size > EAGER else now + 100, 1, size=size)
        scripts[1] += receive(done, end, 0, size=size)
        now = end + 10_000
    return scripts


@pytest.fixture
def write(tmp_path: Path) -> Build:
    return writing(tmp_path)


def network(folder: Path) -> Path:
    path = folder / "net.toml"
    path.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 2\nleaves = 1\naggregation = 1\n"
        'host_rate = "80 Gb/s"\n[[job]]\npattern = { kind = "ring", size = "1 KiB" }\n'
    )
    return path


def values(calibration: tb.Calibration) -> dict[str, Any]:
    return {parameter.name: parameter for parameter in [*calibration.engine, *calibration.measured]}


def test_two_sizes_over_two_distances_are_fitted(write: Build, tmp_path: Path) -> None:
    """A master asks with 64 B and gets 32 KiB, as large requests wait for the workers."""
    now, scripts = 10_000, list[Script]([[], [], []])
    for worker in (1, 2) * 4:
        for size in (64, 32 << 10):
            way = took_ns(size) + 1000 * worker
            back = now + way
            scripts[0] += send(now, now + (way if size > EAGER else 100), worker, size=size)
            scripts[worker] += receive(now - 5_000, back, 0, size=size)
            scripts[worker] += send(back, back + (way if size > EAGER else 100), 0, size=size)
            scripts[0] += receive(now + way, back + way, worker, size=size)
            now = back + way + 10_000
        for size in (64, 32 << 10):  # to a late receiver
            done = now + 50_000
            end = done + took_ns(size)
            scripts[0] += send(now, end if size > EAGER else now + 100, worker, size=size)
            scripts[worker] += receive(done, end, 0, size=size)
            now = end + 10_000
    net = tmp_path / "net.toml"
    net.write_text(
        "[fabric.fat_tree]\nhosts_per_leaf = 2\nleaves = 2\naggregation = 1\n"
        'host_rate = "80 Gb/s"\n[[job]]\npattern = { kind = "ring", size = "1 KiB" }\n'
    )
    calibration = tb.calibrate(write(scripts), hosts="n0,n1,n2", fabric=net)
    assert values(calibration)["eager"].value == 64
    assert "rate" not in values(calibration)


def test_sends_shorter_than_their_transfer_are_copied() -> None:
    """Sends of 4 and 32 KiB end at once, those of 128 KiB when they have left."""
    rows = [
        (size, number, start, start + (took_ns(size) if size > 1 << 16 else 100) * 1000)
        for number, size in enumerate([4096, 32768, 131072] * 12)
        for start in [number * 10**9]
    ]
    names = ["size_bytes", "send_call", "send_enter_ps", "send_done_ps"]
    sends = pl.DataFrame(rows, schema=names, orient="row")
    fitted = fit_copied(sends.with_columns(send_done_call="send_call"), GBPS)
    assert fitted is not None and (fitted.value, fitted.high) == (32768, 131071)
    later = sends.with_columns(send_done_call=pl.col("send_call") + 1)
    assert fit_copied(later, GBPS) is None
    assert fit_copied(sends.with_columns(send_done_call="send_call"), 1e5) is None


@pytest.mark.parametrize("offset_ns", [0, 700, 5_000_000])
def test_no_clock_offset_moves_what_is_found(write: Build, tmp_path: Path, offset_ns: int) -> None:
    scripts = ping_pong()
    late = late_receivers(int(max(script[-1][0] for script in scripts)) + 10_000)
    scripts = [a + b for a, b in zip(scripts, late, strict=True)]
    trace = write([scripts[0], shifted(scripts[1], offset_ns)])
    parameters = values(tb.calibrate(trace, hosts="n0,n1", fabric=network(tmp_path)))
    # One switch of 60 ns by default.
    assert parameters["send_delay"].value == pytest.approx((LATENCY_NS - 60) * 1e3, rel=0.03)
    assert parameters["rate"].value == pytest.approx(GBPS, rel=0.03)
    assert (parameters["eager"].value, parameters["eager"].high) == (EAGER, 16383)


def test_ranks_of_one_host_tell_times_within_it(write: Build, tmp_path: Path) -> None:
    trace = write(ping_pong(), hosts=["n1", "n1"])
    parameters = values(tb.calibrate(trace, fabric=network(tmp_path)))
    assert parameters["local_rate"].value == pytest.approx(GBPS, rel=0.03)
    assert parameters["latency_0_switches"].value == pytest.approx(LATENCY_NS * 1e3, rel=0.03)
    assert "send_delay" not in parameters


def test_a_diagnosis_calibrates_from_its_trace(write: Build, tmp_path: Path) -> None:
    trace = write(ping_pong(), hosts=["n0", "n1"])
    diagnosed = tb.diagnose(trace, fabric=network(tmp_path), seeds=1)
    explanation = diagnosed.diagnosis.explanation
    assert explanation is not None
    (engine_source,) = [
        text for text in explanation.sources if text.startswith("settings of the engine")
    ]
    assert "fitted" in engine_source and "send_delay" in engine_source
    engine = diagnosed.run.scenario.engine
    assert engine.send_delay == pytest.approx((LATENCY_NS - 60) * 1e3, rel=0.03)
    assert engine.injection == "round-robin" and "routing" not in engine.model_fields_set
    # A setting that the user states is kept.
    stated = tmp_path / "machine.toml"
    stated.write_text('[engine]\nsend_delay = "50 ns"\n')
    recalibrated = tb.diagnose(trace, fabric=network(tmp_path), seeds=1, calibration=stated)
    assert recalibrated.run.scenario.engine.send_delay == 50_000


def test_hosts_must_be_as_many_as_ranks(write: Build, tmp_path: Path) -> None:
    trace = write(ping_pong(1))
    with pytest.raises(CalibrationError, match="2 ranks, but hosts of 1 are given"):
        tb.calibrate(trace, hosts="n0", fabric=network(tmp_path))
    strange = write(ping_pong(1), hosts=["login", "n1"])
    calibration = tb.calibrate(strange, fabric=network(tmp_path))
    assert any("'login' is not in the fabric" in note for note in calibration.notes)
    assert "send_delay" not in values(calibration)


def rows(*some: tuple[int, int, int, int, int, int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables of messages (source, destination, bytes, sent, receiver entered, arrived), in ps."""
    src, dst, size, start, enter, done = (np.array(column) for column in zip(*some, strict=True))
    calls = np.arange(len(some))
    transfers = pl.DataFrame(
        {
            "src_rank": src,
            "dst_rank": dst,
            "size_bytes": size,
            "send_call": calls,
            "send_enter_ps": start,
            "send_done_call": calls,
            "send_done_ps": start + 1,
            "recv_call": calls,
            "recv_post_ps": enter,
            "recv_done_call": calls,
            "recv_enter_ps": enter,
            "recv_done_ps": done,
        }
    )
    table = pl.DataFrame(
        {"call": calls, "name": ["MPI_Send"] * len(some), "enter_ps": start, "leave_ps": start + 1}
    )
    return transfers, table


HOSTS = ["a", "b", "c"]
US = 10**6


@pytest.mark.parametrize(
    ("why", "extra"),
    [
        ("late receiver", (0, 1, 8, 100 * US, 140 * US, 141 * US)),
        ("posted late", (0, 1, 8, 100 * US, 100 * US + 1, 141 * US)),
        ("queue at the sender", (0, 1, 8, 1 * US, 0, 5 * US)),
        ("queue at the receiver", (2, 1, 1 << 20, 0, 0, 5 * US)),
    ],
)
def test_messages_that_met_others_or_waited_are_excluded(
    why: str, extra: tuple[int, int, int, int, int, int]
) -> None:
    there, back = (0, 1, 8, 0, 0, 2 * US), (1, 0, 8, 50 * US, 40 * US, 52 * US)
    plain = trace_times(*rows(there, back), HOSTS, None)
    (placed,) = plain.placed
    assert placed.series.time_ps.tolist() == [2 * US]
    before = (0, 2, 1 << 20, 0, 0, 9 * US) if why == "queue at the sender" else None
    more = [there, back, extra] if before is None else [back, extra, before]
    times = trace_times(*rows(*more), HOSTS, None)
    if "queue" in why:
        assert not times.placed
    else:
        assert times.placed[0].series.time_ps.tolist() == [2 * US]
        assert times.placed[0].series.n == 2


def test_waits_for_late_partners_tell_no_latency() -> None:
    """Rank 1 waits for what it receives and sends at once; the receiver of the latter is late."""
    there, back = (0, 1, 8, 0, 0, 90 * US), (1, 0, 8, 150 * US, 140 * US, 240 * US)
    sent = (1, 2, 1 << 20, -2 * US, 80 * US, 90 * US)
    transfers, calls = rows(there, back, sent)
    assert trace_times(transfers, calls, HOSTS, None).placed
    # The call that completes the first message completes the third one, too.
    together = transfers.with_columns(send_done_call=pl.Series([10, 11, 0]))
    assert not trace_times(together, calls, HOSTS, None).placed


def test_bytes_of_others_count_while_under_way() -> None:
    # The second overlaps the first by half, the third is within a host, the last is alone.
    size, start = np.array([1000, 400, 800, 600]), np.array([0, 50, 0, 300])
    done = np.array([100, 150, 100, 400])
    meanwhile = bytes_meanwhile(size, start, done, np.array([True, True, False, True]))
    assert meanwhile.tolist() == pytest.approx([200, 500, 1200, 0])


def test_one_direction_alone_tells_nothing() -> None:
    assert not trace_times(*rows((0, 1, 8, 0, 0, 2 * US)), HOSTS, None).placed


def test_end_points_of_several_pairs_have_errors() -> None:
    rng = np.random.default_rng(0)
    hosts = [f"h{rank}" for rank in range(40)]
    some = []
    for pair in range(20):
        for size in (8, 512):
            for src, dst in ((2 * pair, 2 * pair + 1), (2 * pair + 1, 2 * pair)):
                start = 100 * US * (len(some) + 1)
                duration = 2 * US + round(rng.exponential(US / 10))
                some.append((src, dst, size, start, start - US, start + duration))
    (placed,) = trace_times(*rows(*some), hosts, None).placed
    shortest = trace_times(*rows(*some[:4]), hosts, None).placed[0].series
    # One pair alone shows no noise.
    assert shortest.error_ps is None and shortest.time_ps.min() > 2 * US
    assert placed.series.error_ps is not None and placed.series.deviation_ps is not None
    assert placed.series.time_ps == pytest.approx(2 * US, abs=3 * placed.series.error_ps.max())
    assert placed.series.error_ps.max() < US / 20


def test_few_sizes_share_slopes_and_threshold_of_others() -> None:
    sizes = {5: [8, 512, 4096, 8192, 65536, 1 << 18, 1 << 20], 1: [4096, 65536, 1 << 18]}
    rng = np.random.default_rng(0)
    some = []
    for switches, size in sizes.items():
        at = np.array(size, np.float64)
        packets = np.maximum(np.ceil(at / 4096), 1)
        time = US + switches * US / 10 + (at + packets * 80) * 80 + 2 * US * (at > 8192)
        error = np.full(len(at), 5e3)
        series = Series(
            "latency",
            "mpi",
            at,
            time,
            np.ones(len(at)),
            10,
            "trace",
            error_ps=error,
            deviation_ps=5e3 * rng.standard_normal((len(at), 4000)),
        )
        some.append(Placed(series, Route(switches, 0.0, 100.0)))
    threshold = FittedValue("eager", "size", 8192, 8192, 65535, "trace", 10)
    parameters = {parameter.name: parameter for parameter in estimate(some, eager=threshold).engine}
    assert parameters["send_delay"].value == pytest.approx(US, rel=0.02)
    assert parameters["switch_delay"].value == pytest.approx(US / 10, rel=0.05)
    assert parameters["switch_delay"].high - parameters["switch_delay"].low < US / 50
    assert parameters["header"].value == pytest.approx(80, abs=8)
