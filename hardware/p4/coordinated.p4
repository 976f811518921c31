// SPDX-License-Identifier: Apache-2.0
// Scheme `coordinated`: one congested bit and five bits of the link's hash, in the reserved bits of the BTH.
// A hash of packet id and hop number says at which hop the sample is taken, so no counter travels.
#include <core.p4>
#include <v1model.p4>
#include "parameters.p4"

struct metadata_t {
    bit<24> mask0;
    bit<24> mask1;
    bit<24> mask2;
    bit<24> mask3;
    bit<24> mask4;
}

#include "packet.p4"

// One round of the packet id: chi on columns of three bits, two xorshifts, a constant.
bit<24> mix_round(in bit<24> x) {
    bit<24> chi = x ^ (~(x[15:0] ++ x[23:16]) & (x[7:0] ++ x[23:8]));
    bit<24> low = chi ^ (chi >> 7);
    return low ^ (low << 10) ^ ID_ROUND;
}

bit<1> parity(in bit<24> x) {
    bit<24> a = x ^ (x >> 12);
    bit<24> b = a ^ (a >> 6);
    bit<24> c = b ^ (b >> 3);
    return c[0:0] ^ c[1:1] ^ c[2:2];
}

// Whether this hop replaces the sample: chance 1 / (hop + 1), up to five switches.
bool takes_sample(in bit<24> midway, in bit<8> hop) {
    bit<24> spread = midway ^ (midway >> 3);
    bit<24> word = spread ^ (spread << 11);
    if (hop == 0) { return true; }
    if (hop == 1) { return word[23:23] == 0; }
    if (hop == 2) { return word[20:5] < 21845; }
    if (hop == 3) { return word[22:21] == 0; }
    bit<16> reversed =
        word[0:0] ++ word[1:1] ++ word[2:2] ++ word[3:3] ++ word[4:4] ++ word[5:5] ++ word[6:6] ++
        word[7:7] ++ word[8:8] ++ word[9:9] ++ word[10:10] ++ word[11:11] ++ word[12:12] ++
        word[13:13] ++ word[14:14] ++ word[15:15];
    return reversed < 13107;
}

control Egress(inout headers_t hdr,
               inout metadata_t meta,
               inout standard_metadata_t standard) {
    action set_masks(bit<24> mask0, bit<24> mask1, bit<24> mask2, bit<24> mask3, bit<24> mask4) {
        meta.mask0 = mask0;
        meta.mask1 = mask1;
        meta.mask2 = mask2;
        meta.mask3 = mask3;
        meta.mask4 = mask4;
    }
    // Written by whoever numbers the links: `python hardware/parameters.py --links N`.
    table link {
        key = { standard.egress_port: exact; }
        actions = { set_masks; }
    }
    apply {
        if (hdr.bth.isValid() && link.apply().hit) {
            bit<24> ends = mix_round(mix_round(hdr.ipv4.destination[23:0]) ^ hdr.ipv4.source[23:0]);
            bit<24> flow = mix_round(mix_round(ends ^ hdr.bth.queue_pair));
            bit<24> midway = mix_round(mix_round(flow ^ hdr.bth.psn) ^ flow);
            bit<24> id = mix_round(mix_round(midway));
            if (takes_sample(midway, FIRST_TTL - hdr.ipv4.ttl)) {
                bit<1> congested = standard.enq_qdepth > QUEUE_LIMIT ? 1w1 : 1w0;
                bit<16> before = hdr.bth.fecn ++ hdr.bth.becn ++ hdr.bth.sample ++ hdr.bth.queue_pair[23:16];
                hdr.bth.sample =
                    parity(id & meta.mask4) ++ parity(id & meta.mask3) ++ parity(id & meta.mask2) ++
                    parity(id & meta.mask1) ++ parity(id & meta.mask0) ++ congested;
                bit<16> after = hdr.bth.fecn ++ hdr.bth.becn ++ hdr.bth.sample ++ hdr.bth.queue_pair[23:16];
                if (hdr.udp.checksum != 0) {
                    hdr.udp.checksum = changed_checksum(hdr.udp.checksum, before, after);
                }
            }
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        }
    }
}

V1Switch(PacketParser(), VerifyChecksum(), Ingress(), Egress(), ComputeChecksum(), PacketDeparser()) main;
