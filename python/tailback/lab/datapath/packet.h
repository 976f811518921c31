/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Where a packet carries its sample, and the fields that identify it.
 *
 *   RoCEv2 (UDP port 4791)   the six reserved bits of the base transport header: byte 4, bits 0-5
 *   TCP over IPv6            the flow label: 20 bits that no checksum covers
 *   TCP over IPv4            the identification: 16 bits without a meaning in packets that must not
 *                            be fragmented (RFC 6864, section 4); the header's checksum is updated
 *
 * The packet id of RoCEv2 is that of captures. For TCP, the sequence number takes the place of the
 * packet sequence number, and a hash of ports, acknowledgement, window and length that of the queue
 * pair: acknowledgements differ in nothing else from each other and from the data that follow. A
 * retransmission may have the id of the packet that was lost.
 *
 * The hop number is INITIAL_TTL minus the hop limit.
 */
#ifndef TAILBACK_PACKET_H
#define TAILBACK_PACKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "sample.h"

#define ROCE_PORT 4791
#define ROCE_BITS 6
#define IPV4_BITS 16
#define IPV6_BITS 20
#define DO_NOT_FRAGMENT 0x4000
#define FRAGMENT_OFFSET_OR_MORE 0x3fff
#define FLOW_LABEL 0xfffffu
#define CONGESTION_EXPERIENCED 3 /* the largest value of the ECN field (RFC 3168) */

/* Odd numbers that spread the words of a TCP header over 32 bits: the primes of xxHash (Collet). */
#define SPREAD_PORTS 0x9e3779b1u
#define SPREAD_ACKNOWLEDGED 0x85ebca77u
#define SPREAD_WINDOW_LENGTH 0xc2b2ae3du
#define SPREAD_WRAPS 0x27d4eb2fu

struct base_transport {
  __u8 opcode, flags;
  __be16 partition;
  __be32 queue_pair; /* FECN, BECN and six reserved bits, then 24 bits */
  __be32 psn;        /* acknowledge request and seven reserved bits, then 24 bits */
};

/* Which field the sample is in. */
enum place { NOWHERE, IPV4_IDENTIFICATION, IPV6_FLOW_LABEL, ROCE_RESERVED };

struct packet {
  struct flow flow;
  enum place place;
  __u32 hop;    /* how many times it has been forwarded */
  __u32 length; /* as the IP header states it */
  __u32 ecn;    /* explicit congestion notification: 0 if it may not be marked */
  __u16 port[2];
  union {
    struct iphdr *v4;
    struct ipv6hdr *v6;
  };
  struct base_transport *transport;
};

/* The last three bytes of an address. */
INLINE __u32 end_of(__be32 last_word) { return bpf_ntohl(last_word) & ID_MASK; }

/* Parses the headers above IP; returns 0 if the packet carries no sample. */
INLINE int parse_transport(struct packet *packet, void *at, void *end, __u32 protocol) {
  if (protocol == IPPROTO_TCP && packet->place != NOWHERE) {
    struct tcphdr *tcp = at;
    if ((void *)(tcp + 1) > end) return 0;
    packet->port[0] = bpf_ntohs(tcp->source);
    packet->port[1] = bpf_ntohs(tcp->dest);
    packet->flow.psn = bpf_ntohl(tcp->seq);
    __u32 ports = (__u32)packet->port[0] << 16 | packet->port[1];
    __u32 size = (__u32)bpf_ntohs(tcp->window) << 16 | packet->length;
    __u32 hash = ports * SPREAD_PORTS + bpf_ntohl(tcp->ack_seq) * SPREAD_ACKNOWLEDGED +
                 size * SPREAD_WINDOW_LENGTH + (packet->flow.psn >> ID_BITS) * SPREAD_WRAPS;
    packet->flow.queue_pair = hash >> (32 - ID_BITS);
    return 1;
  }
#if SAMPLE_BITS <= ROCE_BITS
  if (protocol == IPPROTO_UDP) {
    struct udphdr *udp = at;
    struct base_transport *transport = (void *)(udp + 1);
    if ((void *)(transport + 1) > end || udp->dest != bpf_htons(ROCE_PORT)) return 0;
    packet->port[0] = bpf_ntohs(udp->source);
    packet->port[1] = ROCE_PORT;
    packet->place = ROCE_RESERVED;
    packet->transport = transport;
    packet->flow.queue_pair = bpf_ntohl(transport->queue_pair);
    packet->flow.psn = bpf_ntohl(transport->psn);
    return 1;
  }
#endif
  return 0;
}

/* Reads the headers; returns 0 if the packet carries no sample. */
INLINE int parse(struct __sk_buff *skb, struct packet *packet) {
  void *at = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
  struct ethhdr *ethernet = at;
  if ((void *)(ethernet + 1) > end) return 0;
  packet->place = NOWHERE;
  if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
    struct iphdr *ip = (void *)(ethernet + 1);
    /* With options it has more than 20 bytes, and switches would not parse it. */
    if ((void *)(ip + 1) > end || ip->ihl != 5) return 0;
    __u32 fragment = bpf_ntohs(ip->frag_off);
    if (fragment & FRAGMENT_OFFSET_OR_MORE) return 0;
    if (SAMPLE_BITS <= IPV4_BITS && fragment == DO_NOT_FRAGMENT)
      packet->place = IPV4_IDENTIFICATION;
    packet->v4 = ip;
    packet->hop = INITIAL_TTL - ip->ttl;
    packet->length = bpf_ntohs(ip->tot_len);
    packet->ecn = ip->tos & CONGESTION_EXPERIENCED;
    packet->flow.source = end_of(ip->saddr);
    packet->flow.destination = end_of(ip->daddr);
    return parse_transport(packet, ip + 1, end, ip->protocol);
  }
  if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
    struct ipv6hdr *ip = (void *)(ethernet + 1);
    if ((void *)(ip + 1) > end) return 0;
    packet->place = IPV6_FLOW_LABEL;
    packet->v6 = ip;
    packet->hop = INITIAL_TTL - ip->hop_limit;
    packet->length = bpf_ntohs(ip->payload_len);
    packet->ecn = bpf_ntohl(*(__be32 *)ip) >> 20 & CONGESTION_EXPERIENCED;
    packet->flow.source = end_of(ip->saddr.in6_u.u6_addr32[3]);
    packet->flow.destination = end_of(ip->daddr.in6_u.u6_addr32[3]);
    return parse_transport(packet, ip + 1, end, ip->nexthdr);
  }
  return 0;
}

INLINE __u32 get_sample(const struct packet *packet) {
  switch (packet->place) {
    case IPV4_IDENTIFICATION:
      return bpf_ntohs(packet->v4->id) & LOW(SAMPLE_BITS);
    case IPV6_FLOW_LABEL:
      return bpf_ntohl(*(__be32 *)packet->v6) & LOW(SAMPLE_BITS);
#if SAMPLE_BITS <= ROCE_BITS
    case ROCE_RESERVED:
      return bpf_ntohl(packet->transport->queue_pair) >> ID_BITS & LOW(SAMPLE_BITS);
#endif
    default:
      return 0;
  }
}

INLINE void put_sample(struct packet *packet, __u32 sample) {
  switch (packet->place) {
    case IPV4_IDENTIFICATION: {
      /* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'). */
      __be16 id = bpf_htons(sample);
      __u32 sum = (__u16)~packet->v4->check + (__u32)(__u16)~packet->v4->id + id;
      sum = (sum & 0xffff) + (sum >> 16);
      sum = (sum & 0xffff) + (sum >> 16);
      packet->v4->id = id;
      packet->v4->check = ~sum;
      break;
    }
    case IPV6_FLOW_LABEL: {
      __u32 word = bpf_ntohl(*(__be32 *)packet->v6);
      *(__be32 *)packet->v6 = bpf_htonl((word & ~FLOW_LABEL) | sample);
      break;
    }
#if SAMPLE_BITS <= ROCE_BITS
    case ROCE_RESERVED: {
      /* No checksum covers it: UDP's is 0 over IPv4, and the invariant CRC takes it as ones. */
      __u32 word = bpf_ntohl(packet->transport->queue_pair);
      word = (word & ~(LOW(ROCE_BITS) << ID_BITS)) | sample << ID_BITS;
      packet->transport->queue_pair = bpf_htonl(word);
      break;
    }
#endif
    default:
      break;
  }
}

#endif
