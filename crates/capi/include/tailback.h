/* libtailback: estimates per link from the samples that packets carry. Apache-2.0.
 * Written by cbindgen from crates/capi/src/ffi.rs: do not edit. docs/reference/c-library.md. */

#ifndef TAILBACK_H
#define TAILBACK_H

#include <stddef.h>
#include <stdint.h>

// Version of the binary interface: it is incremented when a struct or function changes.
#define TAILBACK_ABI 3

// Used in place of a context: all contexts together.
#define TAILBACK_ALL_CONTEXTS 4294967295

// What a call returns.
typedef enum tailback_status {
  // Success.
  TAILBACK_STATUS_OK = 0,
  // A pointer is null, or the size of a struct is not that of this version.
  TAILBACK_STATUS_BAD_ARGUMENT = 1,
  // A number is out of range.
  TAILBACK_STATUS_OUT_OF_RANGE = 2,
  // No candidate links were given for this source.
  TAILBACK_STATUS_UNKNOWN_SOURCE = 3,
  // The link does not exist.
  TAILBACK_STATUS_UNKNOWN_LINK = 4,
  // A memory limit is reached: too many contexts or candidates.
  TAILBACK_STATUS_NO_ROOM = 5,
  // The receivers have different schemes, numbers of links, packets per sample or paths.
  TAILBACK_STATUS_DIFFERENT = 6,
  // The array is too small; the number needed was written.
  TAILBACK_STATUS_TOO_SMALL = 7,
  // Internal error: the call was aborted, and the receiver must be freed.
  TAILBACK_STATUS_INTERNAL = 8,
} tailback_status;

// What switches write into packets.
typedef enum tailback_scheme {
  // Two whole links with counts, 64 bits; hash_bits and count_bits are not used.
  TAILBACK_SCHEME_FULL = 0,
  // Congested bit, hash, count of hops.
  TAILBACK_SCHEME_COMPACT = 1,
  // Congested bit and hash; count_bits is not used.
  TAILBACK_SCHEME_COORDINATED = 2,
  // Hash and count of hops, then hash and count of congested hops.
  TAILBACK_SCHEME_SINGLE_BIT = 3,
  // No sample but a mark (ECN, FECN) in bit 0 of the header, on packets that may be marked. A source is the
  // number of a path, with one link a hop; hash_bits and count_bits are not used.
  TAILBACK_SCHEME_ENTROPY_ECN = 4,
} tailback_scheme;

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
  // One in this many packets carries a sample, up to 1000000; 0 and 1 mean every packet. Hand over only packets
  // that carry one.
  uint32_t one_in;
} tailback_config;

// Estimates for one link.
typedef struct tailback_estimate {
  // Number of the link.
  uint32_t link;
  // Not used.
  uint32_t reserved;
  // Packets whose sample matched the link.
  uint64_t samples;
  // Estimated number of packets that crossed it; by chance it may be below 0 or above the number sent.
  double packets;
  // Standard error of packets.
  double packets_error;
  // Estimated number of packets that met congestion there.
  double congested;
  // Standard error of congested.
  double congested_error;
} tailback_estimate;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Version of the library, like "0.1.0": a static string.
const char *tailback_version(void);

// Binary interface of the library: equal to TAILBACK_ABI of the matching header.
uint32_t tailback_abi(void);

// Text of a status: a static string. Accepts any number.
const char *tailback_status_text(int status);

// Id of a packet: 24 bits from its sequence number, the local ids of its endpoints (in IP networks the
// last three bytes of the addresses) and its queue pair (the receiver's, or the sender's for datagrams).
uint32_t tailback_packet_id(uint32_t psn,
                            uint32_t source,
                            uint32_t destination,
                            uint32_t queue_pair);

// Creates a receiver; release it with tailback_receiver_free.
//
// # Safety
// `config` points to a tailback_config, `receiver` to a pointer to be written. Null is rejected.
enum tailback_status tailback_receiver_new(const struct tailback_config *config,
                                           struct tailback_receiver **receiver);

// Releases a receiver; null is allowed.
//
// # Safety
// `receiver` is null or came from tailback_receiver_new and has not been released.
void tailback_receiver_free(struct tailback_receiver *receiver);

// Adds the candidate links of a source at a hop: hop 0 first, the ejection link of this node last.
// Scheme full needs none.
//
// If only some switches write samples, leave out the links of the others; at a hop where none does, `count` is 0
// and `links` may be null. With scheme coordinated, either all switches of a hop write or none.
//
// # Safety
// `receiver` is from tailback_receiver_new; `links` points to `count` numbers. Other nulls are rejected.
enum tailback_status tailback_receiver_add_hop(struct tailback_receiver *receiver,
                                               uint32_t source,
                                               uint32_t hop,
                                               const uint32_t *links,
                                               size_t count);

// Adds a received packet: its id, its header (bit 0 is the lowest reserved bit), its source, for which
// hops were added, and the calling context it belongs to.
//
// # Safety
// `receiver` is from tailback_receiver_new; null is rejected.
enum tailback_status tailback_receiver_take(struct tailback_receiver *receiver,
                                            uint32_t id,
                                            uint64_t header,
                                            uint32_t source,
                                            uint32_t context);

// Adds the packets of another receiver of the same network, which is not changed.
//
// # Safety
// Both are from tailback_receiver_new; null, or the same receiver twice, is rejected.
enum tailback_status tailback_receiver_merge(struct tailback_receiver *into,
                                             const struct tailback_receiver *from);

// Number of packets added, and of those among them that carried no sample.
//
// # Safety
// `receiver` is from tailback_receiver_new; `received` and `empty` point to numbers. Null is rejected.
enum tailback_status tailback_receiver_counts(const struct tailback_receiver *receiver,
                                              uint64_t *received,
                                              uint64_t *empty);

// Estimates for every link that packets of a context may have crossed, in order of link number.
//
// Always writes their number to `count`, and nothing else if `capacity` is less: call it with `capacity`
// 0 to find out how many there are.
//
// # Safety
// `receiver` is from tailback_receiver_new, `estimates` points to space for `capacity` of them (null if
// that is 0), `count` to a number. Other nulls are rejected.
enum tailback_status tailback_receiver_estimates(const struct tailback_receiver *receiver,
                                                 uint32_t context,
                                                 struct tailback_estimate *estimates,
                                                 size_t capacity,
                                                 size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAILBACK_H */
