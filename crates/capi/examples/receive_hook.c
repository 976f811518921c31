/* A receive hook of a network library, as libfabric's hooking providers and UCX's transports have it.
 *
 * The library reads completions from a queue through a table of functions. The hook takes the place of
 * the function that reads, passes on what it reads, and hands every packet to libtailback. The context of
 * a packet is that of the receive it completes: the line of the program that posted it. Switches are
 * unmodified: they mark packets (ECN) and choose paths by a known hash of the entropy value.
 *
 *   cc -I crates/capi/include crates/capi/examples/receive_hook.c -L DIR -ltailback -o receive_hook
 */
#include <inttypes.h>
#include <stdio.h>

#include "tailback.h"

/* --- the network library: a queue of completions, and a provider that fills it ---------------- */

/* fi_cq_msg_entry of libfabric, with what the provider knows of the packet. */
struct completion {
  void *op_context;
  uint64_t flags;
  size_t len;
  uint16_t entropy; /* UDP source port of RoCEv2 */
  uint8_t ecn;      /* of the header of IP: 1 and 2 may be marked, 3 is marked */
};

struct cq;
struct cq_ops {
  size_t (*read)(struct cq *cq, struct completion *entries, size_t count);
};
struct cq {
  struct cq_ops *ops;
  void *provider;
};

static const char *const LINES[] = {"halo.c:41", "halo.c:57"};

enum { PACKETS = 4000, BATCH = 16, NOT_CAPABLE = 0, CAPABLE = 2, MARKED = 3 };

/* Receives of two lines in turn. A link of path 1 marks every second of its packets. */
static size_t provider_read(struct cq *cq, struct completion *entries, size_t count) {
  uint32_t *next = cq->provider;
  size_t done = 0;
  for (; done < count && *next < PACKETS; done++, (*next)++) {
    uint16_t entropy = *next / 2 % 4;
    entries[done] = (struct completion){
        .op_context = (void *)&LINES[*next % 2], .len = 4096, .entropy = entropy,
        .ecn = entropy % 2 == 1 && *next / 8 % 2 ? MARKED : CAPABLE};
  }
  return done;
}

/* --- the hook ---------------------------------------------------------------------------------- */

struct hook {
  struct cq_ops ops; /* first, so that the table that calls the hook leads to it */
  struct cq_ops *below;
  tailback_receiver *receiver;
  uint64_t refused;
};

/* What the switches' hash chooses: two spines, and behind each the same link to this host. */
static uint32_t path_of(uint16_t entropy) { return entropy % 2; }

static size_t hook_read(struct cq *cq, struct completion *entries, size_t count) {
  struct hook *hook = (struct hook *)cq->ops;
  size_t done = hook->below->read(cq, entries, count);
  for (size_t at = 0; at < done; at++) {
    const struct completion *entry = &entries[at];
    if (entry->ecn == NOT_CAPABLE) continue;
    uint32_t context = (uint32_t)((const char *const *)entry->op_context - LINES);
    /* Telemetry never disturbs the program: what the receiver refuses is counted, not returned. */
    hook->refused += tailback_receiver_take(hook->receiver, 0, entry->ecn == MARKED,
                                            path_of(entry->entropy), context) != TAILBACK_STATUS_OK;
  }
  return done;
}

/* Puts the hook before the provider. */
static tailback_status hook_install(struct hook *hook, struct cq *cq) {
  static const uint32_t links[2][3] = {{1, 3, 5}, {2, 4, 5}};
  tailback_config config = {
      .struct_size = sizeof config, .scheme = TAILBACK_SCHEME_ENTROPY_ECN, .links = 8};
  tailback_status status = tailback_receiver_new(&config, &hook->receiver);
  for (uint32_t path = 0; path < 2; path++)
    for (uint32_t hop = 0; hop < 3 && status == TAILBACK_STATUS_OK; hop++)
      status = tailback_receiver_add_hop(hook->receiver, path, hop, &links[path][hop], 1);
  hook->below = cq->ops;
  hook->ops.read = hook_read;
  cq->ops = &hook->ops;
  return status;
}

/* --- the program ------------------------------------------------------------------------------- */

int main(void) {
  uint32_t next = 0;
  struct cq_ops provider = {provider_read};
  struct cq cq = {&provider, &next};
  struct hook hook = {0};
  tailback_status status = hook_install(&hook, &cq);
  struct completion entries[BATCH];
  size_t seen = 0, got;
  while (status == TAILBACK_STATUS_OK && (got = cq.ops->read(&cq, entries, BATCH)) > 0) seen += got;
  printf("%zu completions\n", seen);
  for (uint32_t line = 0; line < 2 && status == TAILBACK_STATUS_OK; line++) {
    tailback_estimate found[8];
    size_t count = 0;
    status = tailback_receiver_estimates(hook.receiver, line, found, 8, &count);
    for (size_t at = 0; at < count; at++)
      printf("%s link %" PRIu32 ": %.0f packets, %.0f congested\n", LINES[line], found[at].link,
             found[at].packets, found[at].congested);
  }
  if (status != TAILBACK_STATUS_OK || hook.refused > 0) {
    fprintf(stderr, "%s; %" PRIu64 " packets refused\n", tailback_status_text(status), hook.refused);
    return 1;
  }
  tailback_receiver_free(hook.receiver);
  return 0;
}
