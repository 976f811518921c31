"""Fields of management datagrams and ticks of devices, octet by octet as they are specified."""

from __future__ import annotations

import ctypes
import re
import struct

import pytest

from tailback.collector import mad as mads
from tailback.collector.umad import load_library
from tailback.fabric.rates import data_rate_gbps
from tailback.port_counters.ticks import tick_of
from tests.factories.collect_subnet import BITS, WIDE_ERRORS, narrow_errors

DATA = 64


def datagram(**octets: int) -> bytes:
    """256 octets, zeros save ``o<place in the attribute>``."""
    made = bytearray(256)
    for place, value in octets.items():
        made[DATA + int(place[1:])] = value
    return bytes(made)


@pytest.mark.parametrize(
    ("octets", "abilities"),
    [
        # CapabilityMask is octets 2 and 3: bit 9, bit 10, bit 12.
        ({"o2": 0x02}, (True, False, False)),
        ({"o2": 0x04}, (True, False, False)),
        ({"o2": 0x10}, (False, True, False)),
        ({"o2": 0x01, "o3": 0xFF}, (False, False, False)),
        # CapabilityMask2 are the upper 27 bits of octets 4 to 7: its bit 1 is bit 6 of octet 7.
        ({"o2": 0x02, "o7": 0x40}, (True, False, True)),
        ({"o2": 0x02, "o7": 0x20}, (True, False, False)),
        ({"o2": 0x02, "o7": 0x80}, (True, False, False)),
        # Without the attribute that it is in, a 64-bit PortXmitWait cannot be asked for.
        ({"o2": 0x10, "o7": 0x40}, (False, True, False)),
    ],
)
def test_what_an_agent_announces(
    octets: dict[str, int], abilities: tuple[bool, bool, bool]
) -> None:
    capability = mads.capability(datagram(**octets))
    assert (capability.extended, capability.xmit_wait, capability.extended_wait) == abilities


@pytest.mark.parametrize(
    ("width", "speed", "extended", "gbps"),
    [
        # LinkWidthActive is octet 31, LinkSpeedActive the upper half of octet 35, and
        # LinkSpeedExtActive that of octet 62, which counts where it says something.
        (1, 1, 0, 2.0),
        (2, 2, 0, 16.0),
        (2, 4, 0, 32.0),
        (4, 4, 0, 64.0),
        (8, 4, 0, 96.0),
        (16, 4, 2, 50.0),
        (2, 4, 1, 4 * 14.0625 * 64 / 66),
        (2, 4, 2, 100.0),
        (2, 4, 4, 200.0),
        (2, 4, 8, 400.0),
        (2, 0, 0, None),
        (3, 4, 2, None),
    ],
)
def test_the_rate_of_a_port(width: int, speed: int, extended: int, gbps: float | None) -> None:
    port = mads.port_info(datagram(o31=width, o35=speed << 4, o62=extended << 4))
    assert port.gbps == (None if gbps is None else pytest.approx(gbps, rel=1e-3))


@pytest.mark.parametrize(
    ("state", "active", "up"),
    [
        (0, False, False),
        (1, False, False),
        (2, False, True),
        (3, False, True),
        (4, True, True),
        (5, False, False),
    ],
)
def test_the_state_of_a_port(state: int, active: bool, up: bool) -> None:
    """1 is down, 2 initialising, 3 armed, 4 active; the upper half of the octet is the speed."""
    port = mads.port_info(datagram(o32=0xF0 | state, o16=0x12, o17=0x34))
    assert (port.active, port.up, port.lid) == (active, up, 0x1234)


SWITCH_X, SWITCH_IB, QUANTUM, QUANTUM_2, QUANTUM_3 = 0xC738, 0xCB20, 0xD2F0, 0xD2F2, 0xD2F4
FDR = 4 * 14.0625 * 64 / 66


@pytest.mark.parametrize(
    ("device", "lanes", "gbps", "tick_ns"),
    [
        # Switches that count 32 bytes of each lane.
        (SWITCH_X, 4, 32.0, 32.0),
        (SWITCH_X, 4, 40.0, 25.6),
        (SWITCH_X, 4, FDR, 18.773),
        (SWITCH_X, 1, FDR / 4, 18.773),
        (SWITCH_IB, 4, 100.0, 10.24),
        (SWITCH_IB, 2, 50.0, 10.24),
        (SWITCH_IB, 4, FDR, 18.773),
        # Switches that count 8 bytes of the port.
        (QUANTUM, 4, 200.0, 0.32),
        (QUANTUM, 2, 100.0, 0.64),
        (QUANTUM, 4, 100.0, 0.64),
        (QUANTUM_2, 4, 400.0, 0.16),
        (QUANTUM_2, 2, 200.0, 0.32),
        (QUANTUM_3, 4, 800.0, 0.08),
    ],
)
def test_tick_follows_model_rate_and_width(
    device: int, lanes: int, gbps: float, tick_ns: float
) -> None:
    for stated_width in (lanes, 0):
        tick = tick_of(gbps, device_id=device, lanes=stated_width, switch=True)
        assert tick.exact and tick.low_ns == pytest.approx(tick_ns, rel=1e-3)
        assert tick.source == "model"


@pytest.mark.parametrize("device", [SWITCH_X, SWITCH_IB, QUANTUM, QUANTUM_2, QUANTUM_3])
@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("speed", ["QDR", "FDR", "EDR", "HDR", "NDR"])
def test_unknown_devices_have_an_interval_of_all_ticks(device: int, lanes: int, speed: str) -> None:
    gbps = data_rate_gbps(f"{lanes}x", speed)
    assert gbps is not None
    counts_by_lane = device in (SWITCH_X, SWITCH_IB)
    if counts_by_lane and speed in ("HDR", "NDR"):
        return  # These switches have no such ports.
    truth = tick_of(gbps, device_id=device, lanes=lanes, switch=True)
    for switch in (True, False):
        for width in (lanes, 0):
            for stated in (0, 32 if counts_by_lane else 8):
                guess = tick_of(gbps, lanes=width, switch=switch, stated_bytes=stated)
                assert guess.low_ns <= truth.low_ns <= guess.high_ns
                assert guess.exact or guess.source == "unknown"
    unrated = tick_of(0.0)
    assert unrated.low_ns <= truth.low_ns <= unrated.high_ns


def test_speed_tells_the_tick_of_a_split_port() -> None:
    split = tick_of(100.0, lanes=2, switch=True)
    assert split.exact and split.low_ns == pytest.approx(0.64) and split.source == "speed"
    assert not tick_of(100.0, lanes=2).exact, "adapters are not known to follow the rule"
    assert not tick_of(100.0, lanes=4, switch=True).exact


def test_stated_tick_narrows_the_interval() -> None:
    mad = datagram(o2=31)
    assert mads.tick_bytes(mad) == 32 and mads.tick_bytes(datagram()) == 0
    open_, stated = tick_of(100.0, lanes=4), tick_of(100.0, lanes=4, stated_bytes=32)
    assert open_.low_ns < stated.low_ns < stated.high_ns == open_.high_ns
    assert tick_of(100.0, lanes=1, stated_bytes=8).source == "device"


@pytest.mark.parametrize(
    ("device", "gbps", "seconds"),
    [
        (SWITCH_X, FDR, 81.0),
        (SWITCH_IB, 100.0, 45.0),
        (QUANTUM, 200.0, 1.4),
        (QUANTUM_2, 400.0, 0.7),
    ],
)
def test_full_counters_last_as_long_as_reported(device: int, gbps: float, seconds: float) -> None:
    """Times to saturation that administrators report, which the rule was not derived from."""
    assert tick_of(gbps, device_id=device).low_ns * 2**32 == pytest.approx(seconds * 1e9, rel=0.03)


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("name", mads.ERROR_COUNTERS)
def test_errors_are_where_libibmad_prints_them(name: str, extended: bool) -> None:
    """A value in one counter is found in that counter and in no other."""
    library = load_library("ibmad", "libibmad.so.5")
    mad, text = bytearray(256), ctypes.create_string_buffer(1 << 16)
    packed = {name: 300 if extended else 2 ** BITS[name] - 1}
    if extended:
        wide = [packed.get(counter, 0) for counter in WIDE_ERRORS]
        mad[DATA + 72 : DATA + 168] = struct.pack(">12Q", *wide)
    else:
        mad[DATA + 4 : DATA + 24] = narrow_errors(packed)
    dump = library.mad_dump_perfcounters_ext if extended else library.mad_dump_perfcounters
    dump(text, len(text), bytes(mad[DATA:]), 192)
    printed = dict(re.findall(r"(\w+):\.*(\d+)\n", text.value.decode()))
    values = mads.error_counters(mads.error_octets(bytes(mad), extended=extended))
    shown = dict(zip(mads.ERROR_COUNTERS, values, strict=True))
    assert shown == {counter: int(printed[counter]) for counter in shown} and shown[name]
