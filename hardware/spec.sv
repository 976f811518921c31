// SPDX-License-Identifier: Apache-2.0
// Specifications beside the circuits: output `same` is 1 exactly if they agree, or else all outputs are equal
// exactly if they agree. See prove.py.

// A round followed by its inverse gives the input back, so a round is a bijection.
module prove_round (input [23:0] x, output same);
  wire [23:0] y;
  mixer_round circuit (.in(x), .out(y));
  // Undo the constant, y ^= y << 10 (twice: 10, 20), y ^= y >> 7 (7, 14, 21), then chi on three bits.
  wire [23:0] a = y ^ 24'h243f6a;
  wire [23:0] b = a ^ (a << 10) ^ (a << 20);
  wire [23:0] c = b ^ (b >> 7) ^ (b >> 14) ^ (b >> 21);
  wire [23:0] p = {c[15:0], c[23:16]}, q = {c[7:0], c[23:8]};
  // Inverse of chi of three bits: x = c ^ (~p & q) with p itself restored.
  wire [23:0] back = c ^ (~(p ^ (~q & c)) & q);
  assign same = back == x;
endmodule

// d: the link's number times the constant. The product by definition; masks of all bits as software computes
// them for the parallel hash, of bit 0 for the serial one, whose clocks are unrolled here.
module prove_hash (input [23:0] id, input [23:0] d, output [7:0] product, output [7:0] parallel, output [7:0] serial);
  reg [23:0] sum, power;
  reg [191:0] masks;
  integer i, k;
  always @* begin
    sum = 0;
    power = d;
    masks = 0;
    for (i = 0; i < 24; i = i + 1) begin
      if (id[i]) sum = sum ^ power;
      for (k = 0; k < 8; k = k + 1) masks[24 * k + i] = power[k];
      power = {power[22:0], 1'b0} ^ (power[23] ? 24'h87 : 24'h0);
    end
  end
  assign product = sum[7:0];
  link_hash #(.BITS(8)) circuit (.id(id), .masks(masks), .hash(parallel));
  wire [23:0] values[0:8];
  wire [7:0] sums;
  assign values[0] = id;
  genvar j;
  generate
    for (j = 0; j < 8; j = j + 1) begin : g_clock
      divide_by_x divide (.in(values[j]), .out(values[j+1]));
      assign sums[j] = ^(values[j] & masks[23:0]);
    end
  endgenerate
  solve_hash #(.BITS(8)) solve_bits (.sums(sums), .hash(serial));
endmodule

// The decision, with each chance written as a product instead of a threshold.
module prove_update (input [23:0] midway, input [2:0] hop, input [4:0] hash, input congested,
                     input [5:0] header_in, output same);
  wire take;
  wire [5:0] header_out;
  decision circuit (.midway(midway), .hop(hop), .take(take));
  scheme_coordinated #(.BITS(5)) update (
      .hash(hash), .congested(congested), .take(take), .header_in(header_in), .header_out(header_out));
  wire [23:0] x = midway ^ (midway >> 3);
  wire [23:0] w = x ^ (x << 11);
  wire [15:0] backwards = {w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
                           w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]};
  reg wanted;
  always @*
    case (hop)
      0: wanted = 1;
      1: wanted = w < 24'h800000;
      2: wanted = {4'd0, w[20:5]} * 20'd3 < 20'd65535;
      3: wanted = {1'b0, w[22:0]} < 24'h200000;
      default: wanted = {4'd0, backwards} * 20'd5 < 20'd65535;
    endcase
  assign same = hop > 4 || header_out == (wanted ? {hash, congested} : header_in);
endmodule

module prove_compact (input hash, input congested, input [1:0] take,
                      input [5:0] header_in, output same);
  wire [5:0] header_out;
  wire [15:0] counts;
  scheme_compact #(.BITS(1), .COUNT_BITS(4)) circuit (
      .hash(hash), .congested(congested), .counts(counts), .take(take), .header_in(header_in), .header_out(header_out));
  wire [3:0] count = header_in >> 2;
  wire [3:0] more = count < 15 ? count + 1 : 15;
  wire [1:0] sample = take[0] ? {hash, congested} : header_in[1:0];
  assign same = header_out == {more, sample} && counts == count;
endmodule

module prove_single_bit (input hash, input congested, input [1:0] take,
                         input [9:0] header_in, output same);
  wire [9:0] header_out;
  wire [15:0] counts;
  scheme_single_bit #(.BITS(1), .COUNT_BITS(4)) circuit (
      .hash(hash), .congested(congested), .counts(counts), .take(take), .header_in(header_in), .header_out(header_out));
  reg [9:0] wanted;
  always @* begin
    wanted = header_in;
    if (take[0]) wanted[0] = hash;
    if (header_in[4:1] < 15) wanted[4:1] = header_in[4:1] + 1;
    if (congested) begin
      if (take[1]) wanted[5] = hash;
      if (header_in[9:6] < 15) wanted[9:6] = header_in[9:6] + 1;
    end
  end
  assign same = header_out == wanted && counts == {4'd0, header_in[9:6], 4'd0, header_in[4:1]};
endmodule

module prove_full (input [23:0] link, input congested, input [1:0] take, input [63:0] header_in, output same);
  wire [63:0] header_out;
  wire [15:0] counts;
  scheme_full circuit (
      .link(link), .congested(congested), .counts(counts), .take(take), .header_in(header_in), .header_out(header_out));
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
module prove_vcrc (input [15:0] crc, input [15:0] x, input [31:0] data, input [7:0] change,
                   output [15:0] anew, output [15:0] updated);
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
  assign anew = now;
  assign updated = was ^ difference;
endmodule
