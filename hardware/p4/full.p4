// SPDX-License-Identifier: Apache-2.0
// Scheme `full`: two reservoirs of whole links with their hop counts, 64 bits behind the UDP header.
#include <core.p4>
#include <v1model.p4>

struct metadata_t {
    bit<24> link;
}

#include "packet.p4"

// Largest random word that replaces a sample of `count` hops: chance 1 / (count + 1), from 15 on 1 / 16.
bit<32> largest_word(in bit<8> count) {
    if (count == 0) { return 0xffffffff; }
    if (count == 1) { return 0x7fffffff; }
    if (count == 2) { return 0x55555555; }
    if (count == 3) { return 0x3fffffff; }
    if (count == 4) { return 0x33333333; }
    if (count == 5) { return 0x2aaaaaaa; }
    if (count == 6) { return 0x24924924; }
    if (count == 7) { return 0x1fffffff; }
    if (count == 8) { return 0x1c71c71c; }
    if (count == 9) { return 0x19999999; }
    if (count == 10) { return 0x1745d174; }
    if (count == 11) { return 0x15555555; }
    if (count == 12) { return 0x13b13b13; }
    if (count == 13) { return 0x12492492; }
    if (count == 14) { return 0x11111111; }
    return 0x0fffffff;
}

control Egress(inout headers_t hdr,
               inout metadata_t meta,
               inout standard_metadata_t standard) {
    action set_link(bit<24> number) {
        meta.link = number;
    }
    table link {
        key = { standard.egress_port: exact; }
        actions = { set_link; }
    }
    apply {
        if (hdr.shim.isValid() && link.apply().hit) {
            bit<32> hop_word;
            bit<32> congested_word;
            random(hop_word, 0, 0xffffffff);
            random(congested_word, 0, 0xffffffff);
            if (hop_word <= largest_word(hdr.shim.hops)) {
                hdr.shim.link = meta.link;
            }
            hdr.shim.hops = hdr.shim.hops |+| 1;
            if (standard.enq_qdepth > QUEUE_LIMIT) {
                if (congested_word <= largest_word(hdr.shim.congested_hops)) {
                    hdr.shim.congested_link = meta.link;
                }
                hdr.shim.congested_hops = hdr.shim.congested_hops |+| 1;
            }
            hdr.udp.checksum = 0;   // not computed: RFC 768
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        }
    }
}

V1Switch(PacketParser(), VerifyChecksum(), Ingress(), Egress(), ComputeChecksum(), PacketDeparser()) main;
