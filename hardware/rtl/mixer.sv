// SPDX-License-Identifier: Apache-2.0
// Packet id, decision and link hash: XOR, AND and fixed wiring on 24 bits.
// Constants come from parameters.svh, which hardware/parameters.py writes.

// One round: chi on columns of three bits, two xorshifts, a constant.
module mixer_round (
    input  logic [23:0] in,
    output logic [23:0] out
);
`include "parameters.svh"
  logic [23:0] chi, low;
  assign chi = in ^ (~{in[15:0], in[23:16]} & {in[7:0], in[23:8]});
  assign low = chi ^ {7'd0, chi[23:7]};
  assign out = low ^ {low[13:0], 10'd0} ^ ID_ROUND;
endmodule

// Packet id in one clock, and the state two rounds before its end. Combinational.
module packet_id (
    input  logic [23:0] psn,
    input  logic [15:0] source,
    input  logic [15:0] destination,
    input  logic [23:0] queue_pair,
    output logic [23:0] midway,
    output logic [23:0] id
);
  logic [23:0] ends_1, ends, pair, key, mixed, last;
  mixer_round r0 (.in({8'd0, destination}), .out(ends_1));
  mixer_round r1 (.in(ends_1 ^ {8'd0, source}), .out(ends));
  mixer_round r2 (.in(ends ^ queue_pair), .out(pair));
  mixer_round r3 (.in(pair), .out(key));
  mixer_round r4 (.in(key ^ psn), .out(mixed));
  assign midway = mixed ^ key;
  mixer_round r5 (.in(midway), .out(last));
  mixer_round r6 (.in(last), .out(id));
endmodule

// Packet id, a round a clock. `step` is one-hot, from the clock of the first field: destination, source,
// queue pair, nothing, PSN, nothing, nothing. `field` must be 0 where there is nothing, as it is behind an
// AND-OR multiplexer that selects no field. `midway` is valid in step 5, `id` in step 6.
module packet_id_serial (
    input  logic        clock,
    input  logic [ 6:0] step,
    input  logic [23:0] field,
    output logic [23:0] midway,
    output logic [23:0] id
);
  logic [23:0] state, key;
  assign midway = (state & {24{~step[0]}}) ^ (step[5] ? key : field);
  mixer_round circuit (.in(midway), .out(id));
  always_ff @(posedge clock) state <= id;
  always_ff @(posedge clock) if (step[3]) key <= id;
endmodule

// Whether hop number `hop` replaces the sample of `coordinated`: chance 1/(hop + 1). `midway` is the id's
// state two rounds before its end. Hops of paths longer than five switches are not decided here.
module decision (
    input  logic [23:0] midway,
    input  logic [ 2:0] hop,
    output logic        take
);
  logic [23:0] spread, word;
  logic [15:0] reversed;
  assign spread = midway ^ {3'd0, midway[23:3]};
  assign word = spread ^ {spread[12:0], 11'd0};
  for (genvar i = 0; i < 16; i++) begin : g_reversed
    assign reversed[i] = word[15-i];
  end
  always_comb
    case (hop)
      3'd0: take = 1'b1;
      3'd1: take = ~word[23];
      3'd2: take = word[20:5] < 16'd21845;
      3'd3: take = ~|word[22:21];
      default: take = reversed < 16'd13107;
    endcase
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

// Link hash, a bit a clock, with the mask of bit 0 alone: dividing the id by x in GF(2^24) brings sums of
// the next bits under the same mask. They come as bits 0, 0^1, 1^2, 0^2^3, 0^1^3^4, 1^2^4^5, 0^2^3^5^6 and
// 1^3^4^6^7 of the hash; `hash` solves for the bits when all BITS sums are in. spec.sv has the proof.
module link_hash_serial #(
    parameter int BITS = 5
) (
    input  logic            clock,
    input  logic            load,   // `id` is valid
    input  logic [    23:0] id,
    input  logic            next,   // one sum; for BITS clocks from the one after `load`
    input  logic [    23:0] mask,
    output logic [BITS-1:0] hash
);
  logic [23:0] value;
  logic [BITS-1:0] sums;
  always_ff @(posedge clock)
    if (load || next)
      value <= load ? id : {value[0], value[23:1]} ^ {17'd0, value[0], 4'd0, {2{value[0]}}};
  if (BITS == 1) begin : g_sums
    always_ff @(posedge clock) if (next) sums <= ^(value & mask);
  end else begin : g_sums
    always_ff @(posedge clock) if (next) sums <= {^(value & mask), sums[BITS-1:1]};
  end
  for (genvar k = 0; k < BITS; k++) begin : g_hash
    case (k)
      0: assign hash[0] = sums[0];
      1: assign hash[1] = sums[1] ^ hash[0];
      2: assign hash[2] = sums[2] ^ hash[1];
      3: assign hash[3] = sums[3] ^ hash[0] ^ hash[2];
      4: assign hash[4] = sums[4] ^ sums[1] ^ hash[3];
      5: assign hash[5] = sums[5] ^ sums[2] ^ hash[4];
      6: assign hash[6] = sums[6] ^ sums[3] ^ hash[5];
      default: assign hash[7] = sums[7] ^ sums[4] ^ hash[0] ^ hash[6];
    endcase
  end
endmodule
