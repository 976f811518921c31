/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The receiver: tc ingress of each host. Adds up samples and keeps no data of single packets.
 *
 * Samples of one sender, receiving socket, hop and weight are added up together: whole links in
 * one bin per link, hashes in the bins of a transform that gives the score of every link. Memory
 * therefore depends on links and pairs of endpoints, not on packets.
 */
#include "maps.h"

#define NO_HOP 255
#define ANY_HOP 0

struct sums_key {
  __u32 source;      /* last three bytes of the sender's address */
  __u32 mark;        /* of the receiving socket, 0 if unknown; above CALL_SHIFT bits the MPI call
                        in which its process is as the packet arrives, 0 outside */
  __u16 interface;   /* link of the interface it arrived at */
  __u8 hop;          /* hop that was sampled, NO_HOP if unknown; without samples: ANY_HOP if any
                        hop might have marked the packet */
  __u8 weight;       /* hops that might have been sampled */
  __u8 congested;    /* one reservoir: whether that hop was congested; two: the reservoir;
                        without samples: whether the packet is marked */
  __u8 reserved[3];
  __u16 port[2];     /* without samples: ports of sender and receiver, which choose the path */
};

struct sums {
  __u64 samples;
  __u64 bytes; /* of the packets, as tc counts them */
  __s64 bins[LINKS];
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, MAX_SUMS);
  __type(key, struct sums_key);
  __type(value, struct sums);
} sums SEC(".maps");

/* A value of all zeros, which is too large for the stack. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct sums);
} zeros SEC(".maps");

INLINE struct sums *sums_of(const struct sums_key *key) {
  struct sums *found = bpf_map_lookup_elem(&sums, key);
  if (found) return found;
  __u32 none = 0;
  struct sums *zero = bpf_map_lookup_elem(&zeros, &none);
  if (!zero) return 0;
  bpf_map_update_elem(&sums, key, zero, BPF_NOEXIST);
  return bpf_map_lookup_elem(&sums, key);
}

/* Adds a sample to the sums of its key; returns whether it was stored. */
INLINE int add(const struct sums_key *key, const __u32 *powers, __u32 seen, __u32 bytes) {
  struct sums *into = sums_of(key);
  if (!into) return 0;
  __sync_fetch_and_add(&into->samples, 1);
  __sync_fetch_and_add(&into->bytes, bytes);
#if SCHEME == FULL
  __sync_fetch_and_add(&into->bins[seen & LOW(LINK_BITS)], 1);
#elif SCHEME != ENTROPY_ECN
  add_bins(into->bins, powers, seen);
#endif
  return 1;
}

INLINE __u32 mark_of(const struct packet *packet) {
  struct connection key = {
      packet->flow.destination, packet->flow.source, packet->port[1], packet->port[0]};
  __u32 *mark = bpf_map_lookup_elem(&marks, &key);
  if (!mark) return 0;
  __u32 *call = bpf_map_lookup_elem(&calls, mark);
  return *mark | (call ? *call << CALL_SHIFT : 0);
}

SEC("tc")
int tailback_ingress(struct __sk_buff *skb) {
  struct packet packet;
  if (!parse(skb, &packet) || packet.hop >= MAX_HOPS || skb->gso_segs > 1) return TC_ACT_UNSPEC;
  __u32 link = link_of(skb);
  struct port *port = bpf_map_lookup_elem(&ports, &link);
  if (!port) return TC_ACT_UNSPEC;
  __u32 sample = get_sample(&packet), powers[LINK_BITS] = {};
  struct sums_key key = {
      .source = packet.flow.source, .mark = mark_of(&packet), .interface = link, .hop = NO_HOP};
  int stored = 1;
#if SCHEME != FULL && SCHEME != ENTROPY_ECN
  __u32 id = packet_id(&packet.flow);
  project(id, powers);
#endif
#if SCHEME == COORDINATED
  /* One hop for each time it was forwarded, and one for the sender's port. */
  key.weight = packet.hop + 1;
  key.hop = survivor(id, packet.hop + 1);
  key.congested = sample & 1;
  stored = add(&key, powers, sample >> 1 & LOW(SEEN_BITS), skb->len);
#elif SCHEME == ENTROPY_ECN
  key.weight = packet.hop + 1;
  key.congested = packet.ecn == CONGESTION_EXPERIENCED;
  key.port[0] = packet.port[0];
  key.port[1] = packet.port[1];
  /* Acknowledgements without data may not be marked (RFC 3168): they tell of traffic only. */
  if (packet.ecn) key.hop = ANY_HOP;
  stored = add(&key, powers, 0, skb->len);
#elif SCHEME == COMPACT
  key.weight = sample >> (1 + SEEN_BITS) & LOW(COUNT_BITS);
  key.congested = sample & 1;
  if (key.weight) stored = add(&key, powers, sample >> 1 & LOW(SEEN_BITS), skb->len);
#else
#pragma unroll
  for (int kind = 0; kind < 2; kind++) {
    __u32 reservoir = sample >> kind * (SEEN_BITS + COUNT_BITS);
    key.weight = reservoir >> SEEN_BITS & LOW(COUNT_BITS);
    key.congested = kind;
    if (key.weight) stored &= add(&key, powers, reservoir & LOW(SEEN_BITS), skb->len);
  }
#endif
  __sync_fetch_and_add(&port->received, 1);
  if (!stored) __sync_fetch_and_add(&port->lost, 1);
  return TC_ACT_UNSPEC;
}

