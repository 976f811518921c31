/* What a receiver does with libtailback: state the routes, hand over packets, ask for estimates.
 *
 *   cc -I crates/capi/include crates/capi/examples/receiver.c -L DIR -ltailback -o receiver
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tailback.h"

enum { SOURCE = 5, HERE = 9, PACKETS = 3000 };

static int fail(const char *what, tailback_status status) {
  fprintf(stderr, "%s: %s\n", what, tailback_status_text(status));
  return 1;
}

/* The header that switches would have left: here every packet crosses links 0 and 4, and link 4 is
 * congested for every third one. A real receiver reads the six reserved bits of the packet. */
static uint64_t header_of(uint32_t psn) {
  uint64_t hop = 1 + (psn % 2 ? 4 : 0), count = 2;
  uint64_t congested = psn % 3 == 0 ? (uint64_t)5 | (uint64_t)1 << 24 : 0;
  return hop | count << 24 | congested << 32;
}

int main(void) {
  if (tailback_abi() != TAILBACK_ABI) {
    fprintf(stderr, "libtailback %s does not fit its header\n", tailback_version());
    return 1;
  }
  tailback_config config = {.struct_size = sizeof config, .scheme = TAILBACK_SCHEME_FULL, .links = 8};
  tailback_receiver *receiver = NULL;
  tailback_status status = tailback_receiver_new(&config, &receiver);
  if (status != TAILBACK_STATUS_OK) return fail("new", status);

  for (uint32_t psn = 0; psn < PACKETS; psn++) {
    uint32_t id = tailback_packet_id(psn, SOURCE, HERE, 17);
    status = tailback_receiver_take(receiver, id, header_of(psn), SOURCE, psn < 1500);
    if (status != TAILBACK_STATUS_OK) return fail("take", status);
  }

  tailback_estimate found[8];
  size_t count = 0;
  status = tailback_receiver_estimates(receiver, TAILBACK_ALL_CONTEXTS, found, 8, &count);
  if (status != TAILBACK_STATUS_OK) return fail("estimates", status);
  for (size_t at = 0; at < count; at++)
    printf("link %" PRIu32 ": %.0f +- %.1f packets, %.0f +- %.1f congested\n", found[at].link,
           found[at].packets, found[at].packets_error, found[at].congested,
           found[at].congested_error);

  /* Samples in one of four packets, written by leaf switches only: the middle hop has no candidates. */
  tailback_config part = {.struct_size = sizeof part, .scheme = TAILBACK_SCHEME_COORDINATED,
                          .hash_bits = 5, .links = 8, .one_in = 4};
  tailback_receiver *leaves = NULL;
  const uint32_t up[] = {1, 2}, down[] = {4};
  if ((status = tailback_receiver_new(&part, &leaves)) != TAILBACK_STATUS_OK ||
      (status = tailback_receiver_add_hop(leaves, SOURCE, 0, up, 2)) != TAILBACK_STATUS_OK ||
      (status = tailback_receiver_add_hop(leaves, SOURCE, 1, NULL, 0)) != TAILBACK_STATUS_OK ||
      (status = tailback_receiver_add_hop(leaves, SOURCE, 2, down, 1)) != TAILBACK_STATUS_OK)
    return fail("leaves", status);
  tailback_receiver_free(leaves);

  /* Mistakes are refused, not obeyed. */
  if (tailback_receiver_take(NULL, 0, 0, 0, 0) != TAILBACK_STATUS_BAD_ARGUMENT ||
      tailback_receiver_take(receiver, 0, 9 | 1 << 24, 0, 0) != TAILBACK_STATUS_UNKNOWN_LINK ||
      tailback_receiver_estimates(receiver, 0, found, 1, &count) != TAILBACK_STATUS_TOO_SMALL ||
      tailback_receiver_merge(receiver, receiver) != TAILBACK_STATUS_BAD_ARGUMENT)
    return fail("a mistake", TAILBACK_STATUS_INTERNAL);
  tailback_receiver_free(receiver);
  tailback_receiver_free(NULL);
  return 0;
}
