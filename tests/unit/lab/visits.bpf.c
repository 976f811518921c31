/* The kernel's build of sample.h: a packet of records, in place of which the samples come back. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_helpers.h>

#include "visits.h"

SEC("tc")
int visit_records(struct __sk_buff *skb) {
  struct record *record = (void *)(long)skb->data + 14;
#pragma unroll 1
  for (int i = 0; i < 24; i++, record++) {
    if ((void *)(record + 1) > (void *)(long)skb->data_end) break;
    visit_record(record);
  }
  return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL";
