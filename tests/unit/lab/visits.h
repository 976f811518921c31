/* Many visits at once, for the tests: one record a visit, with all that decides about it. */
#include "sample.h"

struct record {
  __u32 sample, link, hop, congested, id;
  __u32 random[2];
  __u32 masks[5];
};

INLINE void visit_record(struct record *record) {
  struct visit visit = {
      .link = record->link,
      .hop = record->hop,
      .congested = record->congested,
      .id = record->id,
      .random = {record->random[0], record->random[1]},
      .masks = record->masks,
  };
  record->sample = visited(record->sample, &visit);
}
