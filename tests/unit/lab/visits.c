/* The user-space build of sample.h. */
#include "visits.h"

void visit_records(struct record *record, __u64 count) {
  for (__u64 i = 0; i < count; i++) visit_record(record + i);
}

void survivors(const __u32 *id, const __u32 *hops, __u32 *out, __u64 count) {
  for (__u64 i = 0; i < count; i++) out[i] = survivor(id[i], hops[i]);
}

void ids(const struct flow *flow, __u32 *out, __u64 count) {
  for (__u64 i = 0; i < count; i++) out[i] = packet_id(flow + i);
}

#if SCHEME != FULL
void bins(const __u32 *id, const __u32 *hash, __s64 *out, __u64 count) {
  for (__u64 i = 0; i < count; i++) {
    __u32 powers[LINK_BITS];
    project(id[i], powers);
    add_bins(out, powers, hash[i]);
  }
}
#endif
