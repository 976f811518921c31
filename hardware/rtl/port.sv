// SPDX-License-Identifier: Apache-2.0
// An output port. SCHEME: 0 coordinated, 1 compact, 2 single bit, 3 full. RANDOM: 0 a word from outside,
// 1 LFSR, 2 ring. One packet a clock, three clocks from fields to header: id | decision and hash | header.

// Link number and hash masks, written by whoever numbers the links. Address 0 is the link number, k + 1 mask k.
module port_registers #(
    parameter int BITS = 5
) (
    input  logic               clock,
    input  logic               write,
    input  logic [        3:0] address,
    input  logic [       23:0] data,
    output logic [       23:0] link,
    output logic [BITS*24-1:0] masks
);
  always_ff @(posedge clock) if (write && address == 4'd0) link <= data;
  for (genvar k = 0; k < BITS; k++) begin : g_mask
    always_ff @(posedge clock) if (write && address == 4'(k + 1)) masks[k*24+:24] <= data;
  end
endmodule

module telemetry_port #(
    parameter int SCHEME = 0,
    parameter int RANDOM = 0,
    parameter int BITS = 5,
    parameter int COUNT_BITS = 4,
    parameter int WIDTH = SCHEME == 0 ? BITS + 1 :
                          SCHEME == 1 ? 1 + BITS + COUNT_BITS :
                          SCHEME == 2 ? 2 * (BITS + COUNT_BITS) : 64
) (
    input  logic             clock,
    input  logic             reset,
    input  logic             tick,         // clock of the rings
    input  logic             write,        // port registers
    input  logic [      3:0] address,
    input  logic [     23:0] data,
    input  logic             valid_in,     // fields of a packet
    input  logic [     23:0] psn,
    input  logic [     15:0] source,
    input  logic [     15:0] destination,
    input  logic [     23:0] queue_pair,
    input  logic [      3:0] hop,
    input  logic             congested,
    input  logic [     63:0] word,         // random words: lower half hops, upper half congested hops
    input  logic [WIDTH-1:0] header_in,
    output logic             valid_out,
    output logic [WIDTH-1:0] header_out
);
  logic [23:0] link, id, id_next;
  logic [BITS*24-1:0] masks;
  port_registers #(.BITS(BITS)) registers (.clock, .write, .address, .data, .link, .masks);

  packet_id mix (.psn, .source, .destination, .queue_pair, .id(id_next));
  logic valid_1, congested_1;
  logic [3:0] hop_1;
  logic [63:0] word_1;
  logic [WIDTH-1:0] header_in_1;
  always_ff @(posedge clock) begin
    {valid_1, congested_1, hop_1, word_1, header_in_1} <= {valid_in & ~reset, congested, hop, word, header_in};
    id <= id_next;
  end

  logic [WIDTH-1:0] result;
  if (SCHEME == 0) begin : g_scheme
    // Stage 2: hop hash and link hash. Stage 3: threshold and choice.
    logic [BITS-1:0] hash, hash_2;
    logic [23:0] drawn, drawn_2;
    logic chosen, congested_2, valid_2;
    logic [3:0] hop_2;
    logic [WIDTH-1:0] header_in_2;
    hop_hash draw (.id, .hop(hop_1), .drawn);
    link_hash #(.BITS(BITS)) hashed (.id, .masks, .hash);
    always_ff @(posedge clock) begin
      {valid_2, congested_2, hop_2, header_in_2} <= {valid_1, congested_1, hop_1, header_in_1};
      {hash_2, drawn_2} <= {hash, drawn};
    end
    random_word #(.BITS(24)) decide (.word(drawn_2), .count({4'd0, hop_2}), .take(chosen));
    assign result = chosen ? {hash_2, congested_2} : header_in_2;
    always_ff @(posedge clock) valid_out <= valid_2 & ~reset;
    logic unused;
    assign unused = &{1'b0, link, word_1, tick};
  end else begin : g_scheme
    logic [15:0] counts;
    logic [1:0] take;
    logic valid_2;
    for (genvar i = 0; i < 2; i++) begin : g_random
      if (RANDOM == 0) begin : g_circuit
        random_word #(.BITS(32)) decide (
            .word(word_1[32*i+:32]), .count(counts[8*i+:8]), .take(take[i]));
      end else if (RANDOM == 1) begin : g_circuit
        random_lfsr #(.SEED(16'(1 + 977 * i))) decide (
            .clock, .reset, .next(valid_1), .count(counts[8*i+:8]), .take(take[i]));
      end else begin : g_circuit
        random_ring decide (.tick, .reset, .hold(valid_1), .count(counts[8*i+:8]), .take(take[i]));
      end
    end
    logic [WIDTH-1:0] next;
    if (SCHEME == 1) begin : g_kind
      scheme_compact #(.BITS(BITS), .COUNT_BITS(COUNT_BITS)) update (
          .id, .hop(hop_1), .link, .masks, .congested(congested_1), .counts, .take, .header_in(header_in_1), .header_out(next));
    end else if (SCHEME == 2) begin : g_kind
      scheme_single_bit #(.BITS(BITS), .COUNT_BITS(COUNT_BITS)) update (
          .id, .hop(hop_1), .link, .masks, .congested(congested_1), .counts, .take, .header_in(header_in_1), .header_out(next));
    end else begin : g_kind
      scheme_full #(.BITS(BITS)) update (
          .id, .hop(hop_1), .link, .masks, .congested(congested_1), .counts, .take, .header_in(header_in_1), .header_out(next));
    end
    logic [WIDTH-1:0] result_2;
    always_ff @(posedge clock) {valid_2, result_2} <= {valid_1, next};
    assign result = result_2;
    always_ff @(posedge clock) valid_out <= valid_2 & ~reset;
    logic unused;
    assign unused = &{1'b0, tick, word_1};
  end
  always_ff @(posedge clock) header_out <= result;
endmodule
