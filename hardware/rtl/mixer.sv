// SPDX-License-Identifier: Apache-2.0
// The packet id mixer: rounds of XOR, AND and fixed wiring on 24 bits.
// Round constants come from parameters.svh, which hardware/parameters.py writes.

// One round: chi on columns of three bits, two xorshifts, a constant.
module mixer_round (
    input  logic [23:0] in,
    input  logic [23:0] constant,
    output logic [23:0] out
);
  logic [23:0] chi, low;
  assign chi = in ^ (~{in[15:0], in[23:16]} & {in[7:0], in[23:8]});
  assign low = chi ^ {7'd0, chi[23:7]};
  assign out = low ^ {low[13:0], 10'd0} ^ constant;
endmodule

// Packet id of sequence number, local ids and queue pair. Combinational.
module packet_id (
    input  logic [23:0] psn,
    input  logic [15:0] source,
    input  logic [15:0] destination,
    input  logic [23:0] queue_pair,
    output logic [23:0] id
);
`include "parameters.svh"
  logic [23:0] s, d, keyed, one, half, again, three;
  assign s = {8'd0, source};
  assign d = {8'd0, destination};
  assign keyed = psn ^ {s[15:0], s[23:16]} ^ {d[7:0], d[23:8]} ^ {queue_pair[11:0], queue_pair[23:12]};
  assign again = half ^ {d[15:0], d[23:16]} ^ {s[7:0], s[23:8]} ^ queue_pair;
  mixer_round r0 (.in(keyed), .constant(ROUND_CONSTANTS[0*24+:24]), .out(one));
  mixer_round r1 (.in(one), .constant(ROUND_CONSTANTS[1*24+:24]), .out(half));
  mixer_round r2 (.in(again), .constant(ROUND_CONSTANTS[2*24+:24]), .out(three));
  mixer_round r3 (.in(three), .constant(ROUND_CONSTANTS[3*24+:24]), .out(id));
endmodule

// Hash of (packet id, hop index) that switches and receivers share. Combinational.
module hop_hash (
    input  logic [23:0] id,
    input  logic [ 3:0] hop,
    output logic [23:0] drawn
);
`include "parameters.svh"
  logic [23:0] a, b, c;
  mixer_round r4 (
      .in(id ^ {4'd0, hop, 4'd0, hop, 4'd0, hop}),
      .constant(ROUND_CONSTANTS[4*24+:24]),
      .out(a)
  );
  mixer_round r5 (.in(a), .constant(ROUND_CONSTANTS[5*24+:24]), .out(b));
  mixer_round r6 (.in(b), .constant(ROUND_CONSTANTS[6*24+:24]), .out(c));
  mixer_round r7 (.in(c), .constant(ROUND_CONSTANTS[7*24+:24]), .out(drawn));
endmodule

// Link hash: bit k is the parity of the id under mask k of the output port.
module link_hash #(
    parameter int BITS = 5
) (
    input  logic [     23:0] id,
    input  logic [BITS*24-1:0] masks,
    output logic [  BITS-1:0] hash
);
  always_comb for (int k = 0; k < BITS; k++) hash[k] = ^(id & masks[k*24+:24]);
endmodule
