// SPDX-License-Identifier: Apache-2.0
// x^16 + x^12 + x^3 + x + 1, least bit first: the register after 32 bits of 0.
module vcrc_step (
    input  logic [15:0] from,
    output logic [15:0] to
);
  always_comb begin
    to = from;
    for (int i = 0; i < 32; i++) to = {1'b0, to[15:1]} ^ (to[0] ? 16'hd008 : 16'd0);
  end
endmodule

// New variant CRC of an InfiniBand packet from the old one. The CRC is linear: if byte 4 of the BTH changes by
// `change`, the CRC changes by that of a packet which is 0 elsewhere. No other byte of the packet is read.
module vcrc_update (
    input  logic        clock,
    input  logic        first,     // the word (4 bytes) with the changed byte passes
    input  logic        next,      // a later word passes, up to and including the invariant CRC
    input  logic [ 7:0] change,    // changed byte, old XOR new
    input  logic [15:0] received,  // VCRC as received, first byte in the lower half
    output logic [15:0] sent
);
  logic [15:0] difference, advanced;
  vcrc_step step (.from(first ? {8'd0, change} : difference), .to(advanced));
  always_ff @(posedge clock) if (first || next) difference <= advanced;
  assign sent = received ^ difference;
endmodule
