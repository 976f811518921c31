// SPDX-License-Identifier: Apache-2.0
// Specifications beside the circuits: output `same` is 1 exactly if they agree. See prove.py.

// A round followed by its inverse gives the input back, so a round is a bijection.
module prove_round (input [23:0] x, input [23:0] constant, output same);
  wire [23:0] y;
  mixer_round circuit (.in(x), .constant(constant), .out(y));
  // Undo the constant, y ^= y << 10 (twice: 10, 20), y ^= y >> 7 (7, 14, 21), then chi on three bits.
  wire [23:0] a = y ^ constant;
  wire [23:0] b = a ^ (a << 10) ^ (a << 20);
  wire [23:0] c = b ^ (b >> 7) ^ (b >> 14) ^ (b >> 21);
  wire [23:0] p = {c[15:0], c[23:16]}, q = {c[7:0], c[23:8]};
  // Inverse of chi of three bits: x = c ^ (~p & q) with p itself restored.
  wire [23:0] back = c ^ (~(p ^ (~q & c)) & q);
  assign same = back == x;
endmodule

module prove_hash (input [23:0] id, input [23:0] d, output same);
  // d: the link's number times the constant. Product by definition, and masks as software computes them.
  reg [23:0] product, power;
  reg [119:0] masks;
  integer i, k;
  always @* begin
    product = 0;
    power = d;
    masks = 0;
    for (i = 0; i < 24; i = i + 1) begin
      if (id[i]) product = product ^ power;
      for (k = 0; k < 5; k = k + 1) masks[24 * k + i] = power[k];
      power = {power[22:0], 1'b0} ^ (power[23] ? 24'h87 : 24'h0);
    end
  end
  wire [4:0] hash;
  link_hash #(.BITS(5)) circuit (.id(id), .masks(masks), .hash(hash));
  assign same = hash == product[4:0];
endmodule

module prove_update (input [23:0] id, input [3:0] hop, input [119:0] masks, input congested,
                     input [5:0] header_in, output same);
  wire [5:0] header_out;
  wire [15:0] counts;
  scheme_coordinated #(.BITS(5)) circuit (
      .id(id), .hop(hop), .link(24'd0), .masks(masks), .congested(congested), .counts(counts),
      .take(2'd0), .header_in(header_in), .header_out(header_out));
  wire [23:0] drawn;
  wire [4:0] hash;
  hop_hash draw (.id(id), .hop(hop), .drawn(drawn));
  link_hash #(.BITS(5)) hashed (.id(id), .masks(masks), .hash(hash));
  // The engine: upper half of (drawn << 8) x (hop + 1) in 64 bits is 0.
  wire [36:0] scaled = {5'd0, drawn, 8'd0} * ({33'd0, hop} + 37'd1);
  assign same = header_out == (scaled[36:32] == 0 ? {hash, congested} : header_in);
endmodule

module prove_compact (input [23:0] id, input [23:0] masks, input congested, input [1:0] take,
                      input [5:0] header_in, output same);
  wire [5:0] header_out;
  wire [15:0] counts;
  scheme_compact #(.BITS(1), .COUNT_BITS(4)) circuit (
      .id(id), .hop(4'd0), .link(24'd0), .masks(masks), .congested(congested), .counts(counts),
      .take(take), .header_in(header_in), .header_out(header_out));
  wire [3:0] count = header_in >> 2;
  wire [3:0] more = count < 15 ? count + 1 : 15;
  wire [1:0] sample = take[0] ? {^(id & masks), congested} : header_in[1:0];
  assign same = header_out == {more, sample} && counts == count;
endmodule

module prove_single_bit (input [23:0] id, input [23:0] masks, input congested, input [1:0] take,
                         input [9:0] header_in, output same);
  wire [9:0] header_out;
  wire [15:0] counts;
  scheme_single_bit #(.BITS(1), .COUNT_BITS(4)) circuit (
      .id(id), .hop(4'd0), .link(24'd0), .masks(masks), .congested(congested), .counts(counts),
      .take(take), .header_in(header_in), .header_out(header_out));
  reg [9:0] wanted;
  always @* begin
    wanted = header_in;
    if (take[0]) wanted[0] = ^(id & masks);
    if (header_in[4:1] < 15) wanted[4:1] = header_in[4:1] + 1;
    if (congested) begin
      if (take[1]) wanted[5] = ^(id & masks);
      if (header_in[9:6] < 15) wanted[9:6] = header_in[9:6] + 1;
    end
  end
  assign same = header_out == wanted && counts == {4'd0, header_in[9:6], 4'd0, header_in[4:1]};
endmodule

module prove_full (input [23:0] link, input congested, input [1:0] take, input [63:0] header_in, output same);
  wire [63:0] header_out;
  wire [15:0] counts;
  scheme_full circuit (
      .id(24'd0), .hop(4'd0), .link(link), .masks(24'd0), .congested(congested), .counts(counts),
      .take(take), .header_in(header_in), .header_out(header_out));
  reg [63:0] wanted;
  always @* begin
    wanted = header_in;
    if (take[0]) wanted[23:0] = link;
    if (header_in[31:24] < 255) wanted[31:24] = header_in[31:24] + 1;
    if (congested) begin
      if (take[1]) wanted[55:32] = link;
      if (header_in[63:56] < 255) wanted[63:56] = header_in[63:56] + 1;
    end
  end
  assign same = header_out == wanted && counts == {header_in[63:56], header_in[31:24]};
endmodule

// One word (4 bytes) enters the CRC register. Two registers that differ by x, before words that differ by
// `change` in their first byte, differ by vcrc_step(x ^ change) behind them. By induction over the words of
// a packet (x = 0 up to the changed byte, change = 0 after it) the update is the CRC computed anew.
module prove_vcrc (input [15:0] crc, input [15:0] x, input [31:0] data, input [7:0] change, output same);
  function [15:0] shifted(input [15:0] state, input bit_in);
    shifted = {1'b0, state[15:1]} ^ ((state[0] ^ bit_in) ? 16'hd008 : 16'd0);
  endfunction
  reg [15:0] was, now;
  wire [15:0] difference;
  integer i;
  always @* begin
    was = crc;
    now = crc ^ x;
    for (i = 0; i < 32; i = i + 1) begin
      was = shifted(was, data[i]);
      now = shifted(now, data[i] ^ (i < 8 ? change[i] : 1'b0));
    end
  end
  vcrc_step circuit (.from(x ^ {8'd0, change}), .to(difference));
  assign same = now == (was ^ difference);
endmodule
