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
  mixer_round r5 (.in(mixed ^ key), .out(midway));
  mixer_round r6 (.in(midway), .out(last));
  mixer_round r7 (.in(last), .out(id));
endmodule

// Packet id, a round a clock, eight in all. Fields come as destination, source, queue pair, nothing, PSN, nothing
// three times. `field` must be 0 where there is nothing, as it is behind an AND-OR multiplexer that selects no field.
module packet_id_serial (
    input  logic        clock,
    input  logic        first,   // first clock: destination
    input  logic        keep,    // fourth clock: what comes out is the key of the flow
    input  logic        again,   // sixth clock: the key is added once more
    input  logic [23:0] field,
    output logic [23:0] midway,  // in the seventh clock, the state two rounds before the end
    output logic [23:0] id       // in the eighth clock
);
  logic [23:0] state, key;
  assign midway = (state & {24{~first}}) ^ (again ? key : field);
  mixer_round circuit (.in(midway), .out(id));
  always_ff @(posedge clock) state <= id;
  always_ff @(posedge clock) if (keep) key <= id;
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
  logic [3:0] takes;
  assign takes[0] = 1'b1;
  assign takes[1] = ~word[23];
  assign takes[2] = word[20:5] < 16'd21845;
  assign takes[3] = ~|word[22:21];
  assign take = hop[2] ? reversed < 16'd13107 : takes[hop[1:0]];
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

// An element of GF(2^24), x^24 = x^7 + x^2 + x + 1, divided by x.
module divide_by_x (
    input  logic [23:0] in,
    output logic [23:0] out
);
  assign out = {in[0], in[23:1]} ^ {17'd0, in[0], 4'd0, {2{in[0]}}};
endmodule

// Dividing the id by x brings sums of the next hash bits under the mask of bit 0: first bit 0, then 0^1, 1^2, 0^2^3,
// 0^1^3^4, 1^2^4^5, 0^2^3^5^6, 1^3^4^6^7. This solves for the bits.
module solve_hash #(
    parameter int BITS = 5
) (
    input  logic [BITS-1:0] sums,
    output logic [BITS-1:0] hash
);
  if (BITS < 8) begin : g_short
    assign hash = sums ^ (sums << 1) ^ (sums << 2);
  end else begin : g_long
    assign hash = sums ^ (sums << 1) ^ (sums << 2) ^ (BITS'(sums[0]) << 7);
  end
endmodule

// Link hash, a bit a clock, with the mask of bit 0 alone.
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
  logic [23:0] value, divided;
  logic [BITS-1:0] sums;
  divide_by_x divide (.in(value), .out(divided));
  always_ff @(posedge clock) if (load || next) value <= load ? id : divided;
  if (BITS == 1) begin : g_sums
    always_ff @(posedge clock) if (next) sums <= ^(value & mask);
  end else begin : g_sums
    always_ff @(posedge clock) if (next) sums <= {^(value & mask), sums[BITS-1:1]};
  end
  solve_hash #(.BITS(BITS)) solve_bits (.sums, .hash);
endmodule
