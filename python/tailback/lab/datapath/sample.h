/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* How a port updates the sample in a packet, bit for bit like crates/telemetry.
 *
 * Pure functions of their arguments, compiled for the kernel by datapath.bpf.c and
 * for user space by the tests, which compare them with the Rust schemes. The compiler is given
 * SCHEME, HASH_BITS and COUNT_BITS, and LINK_BITS, the width of a link number.
 *
 * A sample from the least bit (docs/explanation/telemetry.md):
 *   SINGLE_BIT   hash of a hop, hops, hash of a congested hop, congested hops
 *   COMPACT      congested, hash of a hop, hops
 *   COORDINATED  congested, hash of the hop that a shared hash of (packet id, hop) chose
 *   ENTROPY_ECN  nothing: a mark (ECN) in the header of IP
 *   FULL         link, hops, congested link, congested hops; links are numbered from 1
 */
#ifndef TAILBACK_SAMPLE_H
#define TAILBACK_SAMPLE_H

#include <linux/types.h>

#define SINGLE_BIT 1
#define COMPACT 2
#define COORDINATED 3
#define FULL 4
#define ENTROPY_ECN 5

#define MAX_HOPS 15
#define ID_BITS 24
#define ID_MASK 0xffffffu
/* The golden ratio's digits: links are multiplied by it (crates/telemetry/src/hash/gf.rs). */
#define SPREAD (0x9e3779b9u >> 8)
/* x^24 = x^7 + x^2 + x + 1 in the field of the link hash. */
#define FIELD_LOW 0x87u

#if SCHEME == FULL
#define SEEN_BITS LINK_BITS
#else
#define SEEN_BITS HASH_BITS
#endif
#if SCHEME == SINGLE_BIT || SCHEME == FULL
#define SAMPLE_BITS (2 * (SEEN_BITS + COUNT_BITS))
#elif SCHEME == COMPACT
#define SAMPLE_BITS (1 + SEEN_BITS + COUNT_BITS)
#elif SCHEME == ENTROPY_ECN
#define SAMPLE_BITS 0
#else
#define SAMPLE_BITS (1 + SEEN_BITS)
#endif

#define LOW(bits) ((1u << (bits)) - 1)
#define INLINE static inline __attribute__((always_inline))

/* One port forwards one packet. */
struct visit {
  __u32 link;         /* number of the link, from 1 */
  __u32 hop;          /* index of the hop on the path, from 0 */
  __u32 congested;    /* 1 if the port is congested */
  __u32 id;           /* packet id */
  __u32 random[2];    /* fresh random bits: for the hop, for the congested hop */
  const __u32 *masks; /* bit k of the hash is the parity of id & masks[k] */
};

struct flow {
  __u32 source, destination; /* the last three bytes of the addresses */
  __u32 queue_pair, psn;     /* or what stands for them, as packet.h says */
};

INLINE __u32 rotate(__u32 value, __u32 by) {
  return ((value << by) | (value >> (ID_BITS - by))) & ID_MASK;
}

INLINE __u32 id_round(__u32 x, __u32 constant) {
  x ^= ~rotate(x, 8) & rotate(x, 16);
  x ^= x >> 7;
  return ((x ^ (x << 10)) & ID_MASK) ^ constant;
}

/* crates/telemetry/src/packet_id.rs; the constants are the hexadecimal digits of pi. */
#define ID_ROUND 0x243f6au

INLINE __u32 packet_id(const struct flow *flow) {
  __u32 key = id_round(flow->destination & ID_MASK, ID_ROUND) ^ (flow->source & ID_MASK);
  key = id_round(key, ID_ROUND) ^ (flow->queue_pair & ID_MASK);
  key = id_round(id_round(key, ID_ROUND), ID_ROUND);
  __u32 midway = id_round(id_round(key ^ (flow->psn & ID_MASK), ID_ROUND) ^ key, ID_ROUND);
  return id_round(id_round(midway, ID_ROUND), ID_ROUND);
}

/* A round backwards. */
INLINE __u32 round_back(__u32 y, __u32 constant) {
  y ^= constant;
  y = (y ^ (y << 10) ^ (y << 20)) & ID_MASK;
  y ^= (y >> 7) ^ (y >> 14) ^ (y >> 21);
  __u32 p = rotate(y, 8), q = rotate(y, 16);
  return y ^ (~(p ^ (~q & y)) & q);
}

/* What takes_sample reads: the state of the id two rounds before its end, spread by two shifts. */
INLINE __u32 decision_word(__u32 id) {
  __u32 x = round_back(round_back(id & ID_MASK, ID_ROUND), ID_ROUND);
  x ^= x >> 3;
  return (x ^ (x << 11)) & ID_MASK;
}

/* Hash of (packet id, hop) that ports and receivers share: 32 bits, the lower 8 of them 0. */
INLINE __u32 shared_hash(__u32 id, __u32 hop) {
  __u32 x = (id & ID_MASK) ^ (hop * 0x010101u);
  x = id_round(id_round(x, 0x370734), 0x4a4093);
  x = id_round(id_round(x, 0x822299), 0xf31d00);
  return x << 8;
}

/* True with probability 1/(count + 1). */
INLINE int draw(__u32 random, __u32 count) {
  return ((__u64)random * ((__u64)count + 1)) >> 32 == 0;
}

/* Whether hop `hop` (from 0) replaces the sample of COORDINATED; `word` is decision_word(id). */
INLINE int takes_sample(__u32 id, __u32 word, __u32 hop) {
  if (hop == 0) return 1;
  if (hop == 1) return word >> 23 == 0;
  if (hop == 2) return (word >> 5 & 0xffff) < 0xffff / 3;
  if (hop == 3) return (word >> 21 & 3) == 0;
  if (hop == 4) {
    __u32 low = word & 0xffff;
    low = (low >> 8 | low << 8) & 0xffff;
    low = (low >> 4 & 0x0f0f) | (low & 0x0f0f) << 4;
    low = (low >> 2 & 0x3333) | (low & 0x3333) << 2;
    low = (low >> 1 & 0x5555) | (low & 0x5555) << 1;
    return low < 0xffff / 5;
  }
  return draw(shared_hash(id, hop), hop);
}

/* 0 or 1 as a factor. The kernel's verifier follows both values of a bit that is extended to a mask
 * or branched on, 2^24 ways through a product: so the compiler must not know that it is a bit. */
INLINE __u32 factor(__u32 bit) {
  __asm__ volatile("" : "+r"(bit));
  return bit;
}

INLINE __u32 parity(__u32 x) {
  x ^= x >> 16;
  x ^= x >> 8;
  x ^= x >> 4;
  return (0x6996u >> (x & 15)) & 1;
}

/* The link as the sample represents it: its number, or its hash. */
INLINE __u32 seen_of(const struct visit *visit) {
#if SCHEME == FULL
  return visit->link;
#else
  __u32 hash = 0;
#pragma unroll
  for (int k = 0; k < HASH_BITS; k++) hash |= parity(visit->id & visit->masks[k]) << k;
  return hash;
#endif
}

INLINE __u32 one_more(__u32 count) { return count < LOW(COUNT_BITS) ? count + 1 : count; }

/* Offers one more hop to a reservoir, SEEN_BITS and COUNT_BITS wide. */
INLINE __u32 offer(__u32 reservoir, __u32 random, const struct visit *visit) {
  __u32 seen = reservoir & LOW(SEEN_BITS), count = reservoir >> SEEN_BITS & LOW(COUNT_BITS);
  if (draw(random, count)) seen = seen_of(visit);
  return seen | one_more(count) << SEEN_BITS;
}

/* The sample that leaves a port, from the one that arrived; 0 from a sender. */
INLINE __u32 visited(__u32 sample, const struct visit *visit) {
#if SCHEME == COORDINATED
  if (takes_sample(visit->id, decision_word(visit->id), visit->hop))
    return visit->congested | seen_of(visit) << 1;
  return sample;
#elif SCHEME == COMPACT
  __u32 count = sample >> (1 + SEEN_BITS) & LOW(COUNT_BITS), kept = sample & LOW(1 + SEEN_BITS);
  if (draw(visit->random[0], count)) kept = visit->congested | seen_of(visit) << 1;
  return kept | one_more(count) << (1 + SEEN_BITS);
#else
  __u32 width = SEEN_BITS + COUNT_BITS;
  __u32 hop = sample & LOW(SEEN_BITS + COUNT_BITS), met = sample >> width;
  hop = offer(hop, visit->random[0], visit);
  if (visit->congested) met = offer(met, visit->random[1], visit);
  return hop | met << width;
#endif
}

/* The hop that survives in a packet on a path of `hops` hops, from 1 to MAX_HOPS. */
INLINE __u32 survivor(__u32 id, __u32 hops) {
  __u32 last = 0, word = decision_word(id);
#pragma unroll 1
  for (__u32 hop = 1; hop < MAX_HOPS && hop < hops; hop++)
    if (takes_sample(id, word, hop)) last = hop;
  return last;
}

/* a times x in GF(2^24). */
INLINE __u32 doubled(__u32 a) {
  return ((a << 1) & ID_MASK) ^ FIELD_LOW * factor(a >> (ID_BITS - 1) & 1);
}

/* id times SPREAD times each power of x, in GF(2^24). Bit k of the hash of link d is the XOR of
 * the bits k of powers[j] over the bits j of d: the hash is linear in the link, too. */
INLINE void project(__u32 id, __u32 powers[LINK_BITS]) {
  __u32 product = 0, a = SPREAD;
#pragma unroll
  for (int bit = 0; bit < ID_BITS; bit++) {
    product ^= a * factor(id >> bit & 1);
    a = ((a << 1) & ID_MASK) ^ FIELD_LOW * (a >> (ID_BITS - 1) & 1);
  }
#pragma unroll
  for (int j = 0; j < LINK_BITS; j++) {
    powers[j] = product;
    product = doubled(product);
  }
}

#if SCHEME != FULL
/* Adds one hash to the bins of a Walsh-Hadamard transform: for each combination of its bits, +1 or
 * -1 by their parity goes to the bin that the packet id projects to. The transform of the bins at
 * link d is then the sum over packets of 2^HASH_BITS [hash of d agrees] - 1. */
INLINE void add_bins(__s64 *bins, const __u32 powers[LINK_BITS], __u32 hash) {
  __u32 bin[HASH_BITS], place = 0, odd = 0;
#pragma unroll
  for (int k = 0; k < HASH_BITS; k++) {
    bin[k] = 0;
#pragma unroll
    for (int j = 0; j < LINK_BITS; j++) bin[k] |= (powers[j] >> k & 1) << j;
  }
  /* A Gray code: successive combinations differ in one bit. */
#pragma unroll
  for (__u32 step = 1; step <= LOW(HASH_BITS); step++) {
    const __u32 bit = __builtin_ctz(step);
    place = (place ^ bin[bit]) & LOW(LINK_BITS);
    odd ^= hash >> bit & 1;
    __sync_fetch_and_add(&bins[place], 1 - 2 * (__s64)factor(odd));
  }
}
#endif

#endif
