"""InfiniBand captures of packets that carry samples; Wireshark and tshark open them.

A pcap file of link type 197: every packet behind the 16-byte ERF header that capture cards write
(record type 21, InfiniBand). Link type 247 would be the bare packet, but Wireshark 4.0 refuses it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from tailback.errors import TraceError, option
from tailback.run.run import atomic_file
from tailback.telemetry.wire import IbPacket, encode

LINKTYPE_ERF = 197
ERF_INFINIBAND = 21
_ERF = struct.Struct("<QBB")
_ERF_LENGTHS = struct.Struct(">HHH")
_ERF_BYTES = 16
_MAGIC_NS = 0xA1B23C4D
_SNAP_BYTES = 65535


def write_pcap(path: Path, packets: Iterable[tuple[int, IbPacket]], force: bool = False) -> int:
    """Write a capture: all of it or nothing.

    Args:
        path: File to write.
        packets: Arrival time in nanoseconds, and the packet.
        force: Overwrite a file that exists.

    Returns:
        Packets written.

    Raises:
        TraceError: The file exists, cannot be written, or a packet's field does not fit.
    """
    count = 0
    try:
        with atomic_file(path, force=force) as file:
            file.write(struct.pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, _SNAP_BYTES, LINKTYPE_ERF))
            for time_ns, packet in packets:
                wire = encode(packet)
                seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
                if not 0 <= seconds < 1 << 32:
                    raise TraceError(
                        f"packet {count} is at {time_ns} ns, outside of what pcap holds"
                    )
                record = _erf_header(seconds, nanoseconds, len(wire)) + wire
                file.write(struct.pack("<IIII", seconds, nanoseconds, len(record), len(record)))
                file.write(record)
                count += 1
    except FileExistsError:
        raise TraceError(
            "the file exists", file=path, remedy=f"{option('force', True)} overwrites it"
        ) from None
    except OSError as error:
        raise TraceError(
            f"cannot be written: {error.strerror}",
            file=path,
            remedy="check the path and the free space on its disk",
        ) from None
    except TraceError as error:
        raise error.located(path) from None
    return count


def _erf_header(seconds: int, nanoseconds: int, length: int) -> bytes:
    """Time as seconds with 32 binary places, type, flags (varying length), lengths."""
    time = (seconds << 32) | ((nanoseconds << 32) // 1_000_000_000)
    return _ERF.pack(time, ERF_INFINIBAND, 0x04) + _ERF_LENGTHS.pack(_ERF_BYTES + length, 0, length)
