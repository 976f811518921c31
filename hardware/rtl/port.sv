// SPDX-License-Identifier: Apache-2.0
// Output ports. `telemetry_port` has a scheme and a random-number circuit and takes a packet in eight clocks;
// `coordinated_pipeline` takes one a clock.

// SCHEME: 0 coordinated, 1 compact, 2 single bit, 3 full. RANDOM: 0 a word from outside, 1 LFSR, 2 ring.
// Fields of a packet come in eight consecutive clocks from `first`: destination, source, queue pair, 0, PSN, 0,
// 0, 0. The next packet may follow at once (with seven or eight hash bits one or two clocks later). The hop number must be there in
// the seventh clock. When `ask` is 1, the port reads congestion, random word and header of the packet, and a clock later
// writes its new header. The register is the one that the scheme needs, written by whoever numbers the links:
// the link's number (full) or the mask of bit 0 of its hash (others).
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
    input  logic             write,        // the port's register
    input  logic [     23:0] data,
    input  logic             first,
    input  logic [     23:0] field,
    input  logic [      2:0] hop,
    output logic             ask,
    input  logic             congested,
    input  logic [     63:0] word,         // random words: lower half hops, upper half congested hops
    input  logic [WIDTH-1:0] header_in,
    output logic             valid_out,
    output logic [WIDTH-1:0] header_out
);
  localparam int LAST = 8 + BITS;
  logic [23:0] register;
  always_ff @(posedge clock) if (write) register <= data;

  // Which clock of its packet it is; packets overlap.
  logic [LAST:0] step;
  logic [LAST:1] later;
  assign step = {later, first};
  always_ff @(posedge clock) later <= step[LAST-1:0] & {LAST{~reset}};
  assign ask = step[LAST];
  always_ff @(posedge clock) valid_out <= ask & ~reset;

  logic [BITS-1:0] hash;
  logic [23:0] midway, id;
  if (SCHEME == 3) begin : g_hash
    assign {hash, midway, id} = '0;
    logic unused;
    assign unused = &{1'b0, field, id};
  end else begin : g_hash
    packet_id_serial mix (.clock, .first, .keep(step[3]), .again(step[5]), .field, .midway, .id);
    link_hash_serial #(.BITS(BITS)) hashed (
        .clock, .load(step[7]), .id, .next(|step[7+BITS:8]), .mask(register), .hash);
  end

  logic [WIDTH-1:0] result;
  if (SCHEME == 0) begin : g_scheme
    logic decided, take;
    decision decide (.midway, .hop, .take(decided));
    always_ff @(posedge clock) if (step[6]) take <= decided;
    scheme_coordinated #(.BITS(BITS)) update (.hash, .congested, .take, .header_in, .header_out(result));
    logic unused;
    assign unused = &{1'b0, word, tick};
  end else begin : g_scheme
    logic [15:0] counts;
    logic [1:0] take;
    for (genvar i = 0; i < (SCHEME == 1 ? 1 : 2); i++) begin : g_random
      if (RANDOM == 0) begin : g_circuit
        random_word #(.BITS(32)) decide (.word(word[32*i+:32]), .count(counts[8*i+:8]), .take(take[i]));
      end else if (RANDOM == 1) begin : g_circuit
        random_lfsr #(.SEED(16'(1 + 977 * i))) decide (
            .clock, .reset, .next(|step[4:1]), .count(counts[8*i+:8]), .take(take[i]));
      end else begin : g_circuit
        random_ring decide (.tick, .reset, .hold(ask), .count(counts[8*i+:8]), .take(take[i]));
      end
    end
    if (SCHEME == 1) begin : g_kind
      assign take[1] = 1'b0;
      scheme_compact #(.BITS(BITS), .COUNT_BITS(COUNT_BITS)) update (
          .hash, .congested, .counts, .take, .header_in, .header_out(result));
      logic unused_count;
      assign unused_count = &{1'b0, counts[15:8]};
    end else if (SCHEME == 2) begin : g_kind
      scheme_single_bit #(.BITS(BITS), .COUNT_BITS(COUNT_BITS)) update (
          .hash, .congested, .counts, .take, .header_in, .header_out(result));
    end else begin : g_kind
      scheme_full update (.link(register), .congested, .counts, .take, .header_in, .header_out(result));
    end
    logic unused;
    assign unused = &{1'b0, tick, word, hop, midway, hash};
  end
  always_ff @(posedge clock) header_out <= result;
endmodule

// `coordinated`, one packet a clock, four clocks from fields to header: two stages of the id, hash and choice. The
// congestion and the header belong to the packet whose fields came three clocks before.
module coordinated_pipeline #(
    parameter int BITS = 5
) (
    input  logic            clock,
    input  logic            write,      // a mask, of bit `address`
    input  logic [     2:0] address,
    input  logic [    23:0] data,
    input  logic [    23:0] psn,
    input  logic [    15:0] source,
    input  logic [    15:0] destination,
    input  logic [    23:0] queue_pair,
    input  logic [     2:0] hop,        // of the packet whose fields came a clock before
    input  logic            congested,
    input  logic [  BITS:0] header_in,
    output logic [  BITS:0] header_out
);
  logic [BITS*24-1:0] masks;
  for (genvar k = 0; k < BITS; k++) begin : g_mask
    always_ff @(posedge clock) if (write && address == 3'(k)) masks[k*24+:24] <= data;
  end
  logic [23:0] ends_1, ends, pair, key, mixed, key_1, psn_1, midway, last, id_next, id;
  mixer_round r0 (.in({8'd0, destination}), .out(ends_1));
  mixer_round r1 (.in(ends_1 ^ {8'd0, source}), .out(ends));
  mixer_round r2 (.in(ends ^ queue_pair), .out(pair));
  mixer_round r3 (.in(pair), .out(key));
  always_ff @(posedge clock) {key_1, psn_1} <= {key, psn};
  mixer_round r4 (.in(key_1 ^ psn_1), .out(mixed));
  mixer_round r5 (.in(mixed ^ key_1), .out(midway));
  mixer_round r6 (.in(midway), .out(last));
  mixer_round r7 (.in(last), .out(id_next));
  logic take_1, take_2;
  logic [BITS-1:0] hash, hash_2;
  logic decided;
  decision decide (.midway, .hop, .take(decided));
  always_ff @(posedge clock) {take_1, id} <= {decided, id_next};
  link_hash #(.BITS(BITS)) hashed (.id, .masks, .hash);
  always_ff @(posedge clock) {take_2, hash_2} <= {take_1, hash};
  always_ff @(posedge clock) header_out <= take_2 ? {hash_2, congested} : header_in;
endmodule
