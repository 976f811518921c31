"""Telemetry in real packets: switch and receiver as eBPF programs, and counts from their sums.

``sample.h`` defines how a port updates a sample, ``packet.h`` which header fields carry it;
``egress.h`` (switch) and ``ingress.h`` (receiver) are the two programs. They are compiled for one
scheme and one number of links when they are installed.
"""
