/* libtailback: estimates per link from the samples that packets carry. Apache-2.0.
 * Written by cbindgen from crates/capi/src/ffi.rs: do not edit. docs/reference/c-library.md. */

#ifndef TAILBACK_H
#define TAILBACK_H

#include <stddef.h>
#include <stdint.h>

// Number of the binary interface: it rises when a struct or function changes.
#define TAILBACK_ABI 1

// In place of a context: all contexts together.
#define TAILBACK_ALL_CONTEXTS 4294967295

// What switches write into packets.
typedef enum tailback_scheme {
  // Two whole links with counts, 64 bits; hash_bits and count_bits are not used.
  TAILBACK_SCHEME_FULL = 0,
  // Congested bit, hash, count of hops.
  TAILBACK_SCHEME_COMPACT = 1,
  // Congested bit and hash; count_bits is not used.
  TAILBACK_SCHEME_COORDINATED = 2,
} tailback_scheme;

// What a call returns.
typedef enum tailback_status {
  // It was done.
  TAILBACK_STATUS_OK = 0,
  // A pointer is null, or the size of a struct is not that of this version.
  TAILBACK_STATUS_BAD_ARGUMENT = 1,
  // A number is out of its range.
  TAILBACK_STATUS_OUT_OF_RANGE = 2,
  // No candidate links of this source were stated.
  TAILBACK_STATUS_UNKNOWN_SOURCE = 3,
  // There is no such link.
  TAILBACK_STATUS_UNKNOWN_LINK = 4,
  // A bound on memory is reached: too many contexts or candidates.
  TAILBACK_STATUS_NO_ROOM = 5,
  // The receivers have different schemes or numbers of links.
  TAILBACK_STATUS_DIFFERENT = 6,
  // The array is too small; the number needed was written.
  TAILBACK_STATUS_TOO_SMALL = 7,
  // A defect of the library: the call was abandoned, the receiver must be freed.
  TAILBACK_STATUS_INTERNAL = 8,
} tailback_status;

// Sums the samples of received packets. Opaque to C.
typedef struct tailback_receiver tailback_receiver;

// The network and its telemetry.
typedef struct tailback_config {
  // sizeof(tailback_config).
  size_t struct_size;
  // A tailback_scheme.
  uint32_t scheme;
  // Bits of a hash, 1 to 8.
  uint32_t hash_bits;
  // Bits of a count of hops, 1 to 8.
  uint32_t count_bits;
  // Directed links of the network, numbered from 0; below 2^24.
  uint32_t links;
} tailback_config;

// What is known of one link.
typedef struct tailback_estimate {
  // Number of the link.
  uint32_t link;
  // Not used.
  uint32_t reserved;
  // Packets that spoke for it.
  uint64_t samples;
  // Packets that crossed it; below 0 or above what was sent by chance.
  double packets;
  // Standard error of packets.
  double packets_error;
  // Of the packets those that met congestion there.
  double congested;
  // Standard error of congested.
  double congested_error;
} tailback_estimate;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Version of the library, like "0.1.0": a static string.
const char *tailback_version(void);

// Binary interface of the library: equal to TAILBACK_ABI of the header that fits it.
uint32_t tailback_abi(void);

// A status in words: a static string. Any number may be given.
const char *tailback_status_text(int status);

// Id of a packet: 24 bits from its sequence number, the local ids of its ends (of IP networks the last
// three bytes of the addresses) and its queue pair (the receiver's; of datagrams the sender's).
uint32_t tailback_packet_id(uint32_t psn,
                            uint32_t source,
                            uint32_t destination,
                            uint32_t queue_pair);

// Makes a receiver; tailback_receiver_free releases it.
//
// # Safety
// `config` points to a tailback_config, `receiver` to a place for a pointer; either may be null, which
// is refused.
enum tailback_status tailback_receiver_new(const struct tailback_config *config,
                                           struct tailback_receiver **receiver);

// Releases a receiver; null is allowed.
//
// # Safety
// `receiver` is null or came from tailback_receiver_new and has not been released.
void tailback_receiver_free(struct tailback_receiver *receiver);

// States the links that packets of a source may cross at a hop: hop 0 first, the link into this node
// last. Scheme full needs none.
//
// # Safety
// `receiver` is of tailback_receiver_new; `links` points to `count` numbers. Null is refused.
enum tailback_status tailback_receiver_add_hop(struct tailback_receiver *receiver,
                                               uint32_t source,
                                               uint32_t hop,
                                               const uint32_t *links,
                                               size_t count);

// Hands over a received packet: its id, its header (bit 0 is the lowest reserved bit), the source whose
// hops were stated, and the calling context it belongs to.
//
// # Safety
// `receiver` is of tailback_receiver_new; null is refused.
enum tailback_status tailback_receiver_take(struct tailback_receiver *receiver,
                                            uint32_t id,
                                            uint64_t header,
                                            uint32_t source,
                                            uint32_t context);

// Adds to a receiver what another one of the same network has taken; that one keeps it.
//
// # Safety
// Both are of tailback_receiver_new; null, or twice the same, is refused.
enum tailback_status tailback_receiver_merge(struct tailback_receiver *into,
                                             const struct tailback_receiver *from);

// Packets that were taken, and those of them that carried no sample.
//
// # Safety
// `receiver` is of tailback_receiver_new; `received` and `empty` point to numbers. Null is refused.
enum tailback_status tailback_receiver_counts(const struct tailback_receiver *receiver,
                                              uint64_t *received,
                                              uint64_t *empty);

// Estimates of every link that packets of a context may have crossed, by number of the link.
//
// Writes their number to `count` in any case, and nothing else where `capacity` is less: call it with
// `capacity` 0 to learn how many there are.
//
// # Safety
// `receiver` is of tailback_receiver_new, `estimates` points to room for `capacity` of them (null where
// that is 0), `count` to a number. Other nulls are refused.
enum tailback_status tailback_receiver_estimates(const struct tailback_receiver *receiver,
                                                 uint32_t context,
                                                 struct tailback_estimate *estimates,
                                                 size_t capacity,
                                                 size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAILBACK_H */
