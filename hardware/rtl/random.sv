// SPDX-License-Identifier: Apache-2.0
// Random-number circuits (Taffet 2019, section 5.9): does the packet's hop number count + 1 replace
// the sample? Each answers `take` for two counts: of hops, and of congested hops.

// A uniform word for each decision, compared with a table: yes with probability 1/(count + 1).
// Counts above MOST decide as MOST does.
module random_word #(
    parameter int BITS = 32,
    parameter int MOST = 15
) (
    input  logic [BITS-1:0] word,
    input  logic [     7:0] count,
    output logic            take
);
  logic [BITS-1:0] largest;
  always_comb begin
    largest = BITS'(((64'd1 << BITS) + 64'(MOST)) / (64'(MOST) + 64'd1) - 64'd1);
    for (int c = 0; c < MOST; c++)
      if (count == 8'(c)) largest = BITS'(((64'd1 << BITS) + 64'(c)) / (64'(c) + 64'd1) - 64'd1);
  end
  assign take = word <= largest;
endmodule

// Galois shift register of 16 bits with a table (Figure 5.7). It advances 16 steps a packet, four in each of four
// clocks, because after one step small values stay small. Value 0 never occurs; the table is (2^16 - 1)/(count + 1), rounded.
module random_lfsr #(
    parameter int MOST = 15,
    parameter logic [15:0] SEED = 16'd1
) (
    input  logic       clock,
    input  logic       reset,
    input  logic       next,
    input  logic [7:0] count,
    output logic       take
);
  logic [15:0] state, stepped, largest;
  always_comb begin
    stepped = state;
    for (int i = 0; i < 4; i++) stepped = {1'b0, stepped[15:1]} ^ (stepped[0] ? 16'hb400 : 16'd0);
  end
  always_ff @(posedge clock)
    if (reset) state <= SEED;
    else if (next) state <= stepped;
  always_comb begin
    largest = 16'((65535 + (MOST + 1) / 2) / (MOST + 1));
    for (int c = 0; c < MOST; c++)
      if (count == 8'(c)) largest = 16'((65535 + (c + 1) / 2) / (c + 1));
  end
  assign take = state <= largest;
endmodule

// Rings of 2 to MOST + 1 bits with a single zero (Figure 5.6) that shift at every tick of a free-running
// clock and hold while they are read. Fair only if packets arrive with jitter against that clock.
module random_ring #(
    parameter int MOST = 15
) (
    input  logic       tick,
    input  logic       reset,
    input  logic       hold,
    input  logic [7:0] count,
    output logic       take
);
  logic [MOST:0] zero;  // last bit of the ring of each length, active low
  assign zero[0] = 1'b0;
  for (genvar length = 2; length <= MOST + 1; length++) begin : g_ring
    logic [length-1:0] ring;
    always_ff @(posedge tick)
      if (reset) ring <= {{(length - 1) {1'b1}}, 1'b0};
      else if (!hold) ring <= {ring[0], ring[length-1:1]};
    assign zero[length-1] = ring[0];
  end
  always_comb begin
    take = ~zero[MOST];
    for (int c = 0; c < MOST; c++) if (count == 8'(c)) take = ~zero[c];
  end
endmodule

// Decisions that the sender drew: the leading bit is this switch's, and a final one is the sentinel.
// The field replaces the hop count. When only the sentinel is left the answer is no.
module random_sender #(
    parameter int BITS = 16
) (
    input  logic [BITS-1:0] field,
    output logic            take,
    output logic [BITS-1:0] shifted
);
  logic spent;
  assign spent = ~|field[BITS-2:0];
  assign take = field[BITS-1] & ~spent;
  assign shifted = spent ? field : {field[BITS-2:0], 1'b0};
endmodule
