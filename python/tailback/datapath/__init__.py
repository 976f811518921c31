"""Telemetry in real packets: the switch and the receiver in eBPF, and counts from their sums.

The C files are the switch's and the receiver's side. ``sample.h`` is what a port does to a sample,
``packet.h`` where packets carry it, ``egress.h`` and ``ingress.h`` are the two programs. They are
compiled for one scheme and one number of links when they are installed.
"""
