// SPDX-License-Identifier: Apache-2.0
// What a switch port writes into a header, one module a scheme:
//   hash, link        of the output port: hash of (packet id, link), link number (from 1)
//   congested         whether the port is congested for this packet
//   counts            to the random circuits: {congested hops, hops} so far, 8 bits each
//   take              from them: replace the sample {of a congested hop, of a hop}
//   header_in, header_out   header bits, from the least; a sender starts with 0
// Layouts are those of docs/explanation/telemetry.md. Combinational.

// One congested bit and BITS of the link's hash; `decision` says whether to take the sample.
module scheme_coordinated #(
    parameter int BITS = 5,
    parameter int WIDTH = BITS + 1
) (
    input  logic [ BITS-1:0] hash,
    input  logic             congested,
    input  logic             take,
    input  logic [WIDTH-1:0] header_in,
    output logic [WIDTH-1:0] header_out
);
  assign header_out = take ? {hash, congested} : header_in;
endmodule

// Congested bit, hash of BITS, hop count of COUNT_BITS that saturates.
module scheme_compact #(
    parameter int BITS = 1,
    parameter int COUNT_BITS = 4,
    parameter int WIDTH = 1 + BITS + COUNT_BITS
) (
    input  logic [ BITS-1:0] hash,
    input  logic             congested,
    output logic [     15:0] counts,
    input  logic [      1:0] take,
    input  logic [WIDTH-1:0] header_in,
    output logic [WIDTH-1:0] header_out
);
  logic [COUNT_BITS-1:0] count;
  assign count = header_in[WIDTH-1-:COUNT_BITS];
  assign counts = 16'(count);
  assign header_out = {&count ? count : count + COUNT_BITS'(1), take[0] ? {hash, congested} : header_in[BITS:0]};
  logic unused;
  assign unused = &{1'b0, take[1]};
endmodule

// Hash of a hop and hash of a congested hop, each with a count that saturates.
module scheme_single_bit #(
    parameter int BITS = 1,
    parameter int COUNT_BITS = 4,
    parameter int WIDTH = 2 * (BITS + COUNT_BITS)
) (
    input  logic [ BITS-1:0] hash,
    input  logic             congested,
    output logic [     15:0] counts,
    input  logic [      1:0] take,
    input  logic [WIDTH-1:0] header_in,
    output logic [WIDTH-1:0] header_out
);
  localparam int HALF = BITS + COUNT_BITS;
  logic [COUNT_BITS-1:0] hops, met;
  assign hops = header_in[BITS+:COUNT_BITS];
  assign met  = header_in[HALF+BITS+:COUNT_BITS];
  assign counts = {8'(met), 8'(hops)};
  assign header_out = {
    congested & ~&met ? met + COUNT_BITS'(1) : met,
    congested & take[1] ? hash : header_in[HALF+:BITS],
    &hops ? hops : hops + COUNT_BITS'(1),
    take[0] ? hash : header_in[0+:BITS]
  };
endmodule

// Link and congested link of 24 bits, each with a count of 8 bits that saturates.
module scheme_full #(
    parameter int WIDTH = 64
) (
    input  logic [     23:0] link,
    input  logic             congested,
    output logic [     15:0] counts,
    input  logic [      1:0] take,
    input  logic [WIDTH-1:0] header_in,
    output logic [WIDTH-1:0] header_out
);
  logic [7:0] hops, met;
  assign hops = header_in[31:24];
  assign met = header_in[63:56];
  assign counts = {met, hops};
  assign header_out = {
    congested & ~&met ? met + 8'd1 : met,
    congested & take[1] ? link : header_in[55:32],
    &hops ? hops : hops + 8'd1,
    take[0] ? link : header_in[23:0]
  };
endmodule
