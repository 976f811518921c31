/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Each port of the software switch, and of the hosts: tc egress, before the queue.
 *
 * The scheme updates the sample in packets of one segment. Packets of several segments (GSO) are
 * left alone and counted, because one sample cannot stand for several packets. The lab limits
 * interfaces to one segment.
 *
 * The queue behind this program would mark packets (ECN) only after it has run, so a port that marks
 * does so here, by its own threshold, and its mark is the congested bit.
 */
#include "maps.h"

/* The fields of kernel structures that are read; the loader resolves their offsets. */
struct gnet_stats_queue {
  __u32 backlog;
} __attribute__((preserve_access_index));
struct Qdisc {
  struct gnet_stats_queue qstats;
} __attribute__((preserve_access_index));
struct net_device {
  struct Qdisc *qdisc;
} __attribute__((preserve_access_index));
struct sk_buff {
  struct net_device *dev;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

/* Bytes that wait in the port's queue. */
INLINE __u32 backlog(struct __sk_buff *skb) {
  struct sk_buff *packet = bpf_cast_to_kern_ctx(skb);
  return packet->dev->qdisc->qstats.backlog;
}

/* Stores the mark of this connection for the receiver of the other direction. */
INLINE void learn(const struct __sk_buff *skb, const struct packet *packet) {
  __u32 mark = skb->mark;
  if (!mark) return;
  struct connection key = {
      packet->flow.source, packet->flow.destination, packet->port[0], packet->port[1]};
  __u32 *known = bpf_map_lookup_elem(&marks, &key);
  if (!known || *known != mark) bpf_map_update_elem(&marks, &key, &mark, BPF_ANY);
}

SEC("tc")
int tailback_egress(struct __sk_buff *skb) {
  struct packet packet;
  if (!parse(skb, &packet) || packet.hop >= MAX_HOPS) return TC_ACT_UNSPEC;
  __u32 link = link_of(skb);
  struct port *port = bpf_map_lookup_elem(&ports, &link);
  if (!port) return TC_ACT_UNSPEC;
  if (skb->gso_segs > 1) {
    __sync_fetch_and_add(&port->super_packets, skb->gso_segs);
    return TC_ACT_UNSPEC;
  }
  struct visit visit = {
      .link = link,
      .hop = packet.hop,
      .congested = backlog(skb) > port->congested_bytes && (!port->ecn || packet.ecn),
      .id = packet_id(&packet.flow),
      .masks = port->masks,
  };
#if SCHEME != COORDINATED && SCHEME != ENTROPY_ECN
  visit.random[0] = bpf_get_prandom_u32();
  visit.random[1] = bpf_get_prandom_u32();
#endif
  if (!packet.hop) learn(skb, &packet);
#if SCHEME == ENTROPY_ECN
  /* Linux routes by the hash of the sending socket where it is left in a packet; a switch cannot. */
  bpf_set_hash_invalid(skb);
#else
  put_sample(&packet, visited(packet.hop ? get_sample(&packet) : 0, &visit));
#endif
  __sync_fetch_and_add(&port->packets, 1);
  if (visit.congested) {
    __sync_fetch_and_add(&port->congested, 1);
    /* Last: the helper may move the packet. */
    if (port->ecn) bpf_skb_ecn_set_ce(skb);
  }
  return TC_ACT_UNSPEC;
}

