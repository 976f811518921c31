// SPDX-License-Identifier: Apache-2.0
// RoCEv2 packets: headers, parser, checksums, deparser. Includers define metadata_t and the shim that
// SAMPLE_PORT announces.

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  length_words;
    bit<8>  service;
    bit<16> length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

// Link and congested link, each with a count of hops that saturates: a sender starts with 0.
header shim_t {
    bit<8>  congested_hops;
    bit<24> congested_link;
    bit<8>  hops;
    bit<24> link;
}

// The base transport header; its six reserved bits carry a sample.
header bth_t {
    bit<8>  opcode;
    bit<8>  flags;
    bit<16> partition;
    bit<1>  fecn;
    bit<1>  becn;
    bit<6>  sample;
    bit<24> queue_pair;
    bit<8>  acknowledge;
    bit<24> psn;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    shim_t     shim;
    bth_t      bth;
}

const bit<16> IPV4 = 16w0x0800;
const bit<8>  UDP = 8w17;
const bit<16> ROCE_PORT = 16w4791;
const bit<16> SAMPLE_PORT = 16w49152;   // private (RFC 6335): the shim, then the BTH
const bit<8>  FIRST_TTL = 8w64;         // of senders, so hops are counted from it

// A port with more packets in its queue is congested.
const bit<19> QUEUE_LIMIT = 19w16;

parser PacketParser(packet_in packet,
                    out headers_t hdr,
                    inout metadata_t meta,
                    inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            IPV4: parse_ipv4;
            default: accept;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.length_words, hdr.ipv4.offset, hdr.ipv4.protocol) {
            (4w5, 13w0, UDP): parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.destination) {
            ROCE_PORT: parse_bth;
            SAMPLE_PORT: parse_shim;
            default: accept;
        }
    }
    state parse_shim {
        packet.extract(hdr.shim);
        transition parse_bth;
    }
    state parse_bth {
        packet.extract(hdr.bth);
        transition accept;
    }
}

control VerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control Ingress(inout headers_t hdr,
                inout metadata_t meta,
                inout standard_metadata_t standard) {
    apply { }   // forwarding is not part of this program
}

control ComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.length_words, hdr.ipv4.service, hdr.ipv4.length,
              hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl,
              hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control PacketDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.shim);
        packet.emit(hdr.bth);
    }
}

// A sum of 16 bits in ones' complement.
bit<16> add_ones(in bit<16> a, in bit<16> b) {
    bit<17> total = (bit<17>)a + (bit<17>)b;
    return total[15:0] + (bit<16>)total[16:16];
}

// The checksum of UDP after one word of the packet changed (RFC 1624); 0 would say that there is none.
bit<16> changed_checksum(in bit<16> checksum, in bit<16> before, in bit<16> after) {
    bit<16> changed = ~add_ones(add_ones(~checksum, ~before), after);
    return changed == 0 ? 16w0xffff : changed;
}
