"""Two switches, three hosts and their forwarding tables."""

from __future__ import annotations

DISCOVERY = """\
Switch 36 "S-0000000000000001" # "left" base port 0 lid 1 lmc 0
[1] "H-0000000000000010"[1](11) # "a HCA-1" lid 3 4xFDR
[2] "H-0000000000000020"[1](21) # "b HCA-1" lid 4 4xFDR
[3] "S-0000000000000002"[3] # "right" lid 2 4xFDR
[4] "S-0000000000000002"[4] # "right" lid 2 4xFDR
Switch 36 "S-0000000000000002" # "right" base port 0 lid 2 lmc 0
[1] "H-0000000000000030"[1](31) # "c HCA-1" lid 5 4xFDR
"""

LEFT = """\
Unicast lids [0x0-0x5] of switch Lid 1 guid 0x0000000000000001 (left):
  Lid  Out   Destination
       Port     Info
0x0001 000 : (Switch portguid 0x0000000000000001: 'left')
0x0002 003 : (Switch portguid 0x0000000000000002: 'right')
0x0003 001 : (Channel Adapter portguid 0x0000000000000011: 'a HCA-1')
0x0004 002 : (Channel Adapter portguid 0x0000000000000021: 'b HCA-1')
0x0005 004 : (Channel Adapter portguid 0x0000000000000031: 'c HCA-1')
5 valid lids dumped
"""

RIGHT = """\
Unicast lids [0x0-0x5] of switch DR path slid 0; dlid 0; 0,1 guid 0x0000000000000002 (right):
  Lid  Out   Destination
       Port     Info
0x0003 003 : (Channel Adapter portguid 0x0000000000000011: 'a HCA-1')
0x0004 004 : (Channel Adapter portguid 0x0000000000000021: 'b HCA-1')
0x0005 001 : (Channel Adapter portguid 0x0000000000000031: 'c HCA-1')
3 valid lids dumped
"""
