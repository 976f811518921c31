"""Fields of management datagrams and ticks of devices, octet by octet as they are specified."""

from __future__ import annotations

import pytest

from tailback.port_counters.collect import mad as mads
from tailback.port_counters.ticks import tick_of

DATA = 64


def datagram(**octets: int) -> bytes:
    """256 octets, zeros save ``o<place in the attribute>``."""
    made = bytearray(256)
    for place, value in octets.items():
        made[DATA + int(place[1:])] = value
    return bytes(made)


@pytest.mark.parametrize(
    ("octets", "told"),
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
def test_what_an_agent_announces(octets: dict[str, int], told: tuple[bool, bool, bool]) -> None:
    found = mads.capability(datagram(**octets))
    assert (found.extended, found.xmit_wait, found.extended_wait) == told


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
    found = mads.port_info(datagram(o31=width, o35=speed << 4, o62=extended << 4))
    assert found.gbps == (None if gbps is None else pytest.approx(gbps, rel=1e-3))


@pytest.mark.parametrize(
    ("state", "active", "up"),
    [(0, False, False), (1, False, False), (2, False, True), (3, False, True), (4, True, True),
     (5, False, False)],
)  # fmt: skip
def test_the_state_of_a_port(state: int, active: bool, up: bool) -> None:
    """1 is down, 2 initialising, 3 armed, 4 active; the upper half of the octet is the speed."""
    found = mads.port_info(datagram(o32=0xF0 | state, o16=0x12, o17=0x34))
    assert (found.active, found.up, found.lid) == (active, up, 0x1234)


def test_setting_back_touches_one_counter() -> None:
    """CounterSelect, octets 2 and 3, is 0; of CounterSelect2, octet 18, bit 0 is PortXmitWait."""
    made = mads.reset_xmit_wait(36)
    assert {place: value for place, value in enumerate(made[DATA:]) if value} == {1: 36, 18: 1}
    assert made[3] == 0x02 and made[1] == 0x04 and made[16:18] == b"\x00\x12"


@pytest.mark.parametrize(
    ("device", "seconds"),
    [(0xCB20, 45.0), (0x1017, 45.0), (0xD2F0, 1.4), (0x101B, 1.4), (0xD2F2, 0.7), (0x1021, 0.7)],
)
def test_so_long_32_bits_last_at_a_port_that_always_stalls(device: int, seconds: float) -> None:
    assert tick_of(device, 100.0).tick_ns * 2**32 == pytest.approx(seconds * 1e9)


@pytest.mark.parametrize(
    ("gbps", "like"), [(54.5, 0xC738), (100.0, 0xCB20), (200.0, 0xD2F0), (400.0, 0xD2F2)]
)
def test_an_unknown_device_is_taken_for_one_of_its_speed(gbps: float, like: int) -> None:
    assert tick_of(0xFFFF, gbps).tick_ns == tick_of(like, gbps).tick_ns
    assert tick_of(0xFFFF, gbps).source == "assumed"
