/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Maps that the programs share with each other and with user space (tailback.lab.datapath.kernel). */
#ifndef TAILBACK_MAPS_H
#define TAILBACK_MAPS_H

#include "packet.h"

#define LINKS (1 << LINK_BITS)

/* A port, by the number of the link that leaves it. */
struct port {
  __u32 masks[8];         /* of the link hash, written when the lab comes up */
  __u32 congested_bytes;  /* congested if a packet finds more bytes queued */
  __u32 ecn;              /* 1: congested only for packets that it marks (ECN) */
  __u64 packets;          /* that got a sample here, the truth for estimates */
  __u64 congested;        /* of them, those that found the port congested */
  __u64 super_packets;    /* of several segments, left alone */
  __u64 received;         /* of the interface's host: packets whose samples were counted */
  __u64 lost;             /* samples for which `sums` had no room */
};

struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, LINKS);
  __type(key, __u32);
  __type(value, struct port);
} ports SEC(".maps");

/* A connection as its end on this machine sees it. */
struct connection {
  __u32 own, peer; /* last three bytes of the addresses */
  __u16 own_port, peer_port;
};

/* Mark (SO_MARK) of the socket of a connection: learned as it sends, needed as it receives. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct connection);
  __type(value, __u32);
} marks SEC(".maps");

/* The MPI call in which the process with each mark is, 0 outside: its library writes it (calls.c). */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, MAX_PROCESSES);
  __type(key, __u32);
  __type(value, __u32);
} calls SEC(".maps");

/* Number of the link of an interface: interfaces are made with these indices. */
INLINE __u32 link_of(const struct __sk_buff *skb) { return skb->ifindex - FIRST_INDEX; }

#endif
