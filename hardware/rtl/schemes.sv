// SPDX-License-Identifier: Apache-2.0
// What a switch port writes into a header, one module a scheme, all with the same interface:
//   id, hop           packet id and switches header_in this one
//   link, masks       the output port's registers: link number (from 1) and hash masks
//   congested         whether the port is congested for this packet
//   counts            to the random circuits: {congested hops, hops} so far, 8 bits each
//   take              from them: replace the sample {of a congested hop, of a hop}
//   header_in, header_out   header bits, from the least; a sender starts with 0
// Layouts are those of docs/explanation/telemetry.md. Combinational.

// One congested bit and BITS of the link's hash; the decision is a hash of (id, hop).
module scheme_coordinated #(
    parameter int BITS = 5,
    parameter int WIDTH = BITS + 1
) (
    input  logic [       23:0] id,
    input  logic [        3:0] hop,
    input  logic [       23:0] link,
    input  logic [BITS*24-1:0] masks,
    input  logic               congested,
    output logic [       15:0] counts,
    input  logic [        1:0] take,
    input  logic [  WIDTH-1:0] header_in,
    output logic [  WIDTH-1:0] header_out
);
  logic [BITS-1:0] hash;
  logic [23:0] drawn;
  logic chosen;
  hop_hash draw (.id, .hop, .drawn);
  random_word #(.BITS(24), .MOST(15)) decide (.word(drawn), .count({4'd0, hop}), .take(chosen));
  link_hash #(.BITS(BITS)) hashed (.id, .masks, .hash);
  assign header_out = chosen ? {hash, congested} : header_in;
  assign counts = 16'd0;
  logic unused;
  assign unused = &{1'b0, link, take};
endmodule

// Congested bit, hash of BITS, hop count of COUNT_BITS that saturates.
module scheme_compact #(
    parameter int BITS = 1,
    parameter int COUNT_BITS = 4,
    parameter int WIDTH = 1 + BITS + COUNT_BITS
) (
    input  logic [       23:0] id,
    input  logic [        3:0] hop,
    input  logic [       23:0] link,
    input  logic [BITS*24-1:0] masks,
    input  logic               congested,
    output logic [       15:0] counts,
    input  logic [        1:0] take,
    input  logic [  WIDTH-1:0] header_in,
    output logic [  WIDTH-1:0] header_out
);
  logic [BITS-1:0] hash;
  logic [COUNT_BITS-1:0] count;
  assign count = header_in[WIDTH-1-:COUNT_BITS];
  link_hash #(.BITS(BITS)) hashed (.id, .masks, .hash);
  assign counts = 16'(count);
  assign header_out = {&count ? count : count + COUNT_BITS'(1), take[0] ? {hash, congested} : header_in[BITS:0]};
  logic unused;
  assign unused = &{1'b0, hop, link, take[1]};
endmodule

// Hash of a hop and hash of a congested hop, each with a count that saturates.
module scheme_single_bit #(
    parameter int BITS = 1,
    parameter int COUNT_BITS = 4,
    parameter int WIDTH = 2 * (BITS + COUNT_BITS)
) (
    input  logic [       23:0] id,
    input  logic [        3:0] hop,
    input  logic [       23:0] link,
    input  logic [BITS*24-1:0] masks,
    input  logic               congested,
    output logic [       15:0] counts,
    input  logic [        1:0] take,
    input  logic [  WIDTH-1:0] header_in,
    output logic [  WIDTH-1:0] header_out
);
  localparam int HALF = BITS + COUNT_BITS;
  logic [BITS-1:0] hash;
  logic [COUNT_BITS-1:0] hops, met;
  assign hops = header_in[BITS+:COUNT_BITS];
  assign met  = header_in[HALF+BITS+:COUNT_BITS];
  link_hash #(.BITS(BITS)) hashed (.id, .masks, .hash);
  assign counts = {8'(met), 8'(hops)};
  assign header_out = {
    congested & ~&met ? met + COUNT_BITS'(1) : met,
    congested & take[1] ? hash : header_in[HALF+:BITS],
    &hops ? hops : hops + COUNT_BITS'(1),
    take[0] ? hash : header_in[0+:BITS]
  };
  logic unused;
  assign unused = &{1'b0, hop, link};
endmodule

// Link and congested link of 24 bits, each with a count of 8 bits that saturates.
module scheme_full #(
    parameter int BITS = 1,
    parameter int WIDTH = 64
) (
    input  logic [       23:0] id,
    input  logic [        3:0] hop,
    input  logic [       23:0] link,
    input  logic [BITS*24-1:0] masks,
    input  logic               congested,
    output logic [       15:0] counts,
    input  logic [        1:0] take,
    input  logic [  WIDTH-1:0] header_in,
    output logic [  WIDTH-1:0] header_out
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
  logic unused;
  assign unused = &{1'b0, id, hop, masks};
endmodule

// The part of `coordinated` that depends on the output port: link hash and choice. Id and decision depend on
// the packet and on the hops before, so they can be made where the packet enters the switch and go
// with it through the crossbar.
module coordinated_output #(
    parameter int BITS = 5
) (
    input  logic [       23:0] id,
    input  logic               chosen,
    input  logic [BITS*24-1:0] masks,
    input  logic               congested,
    input  logic [     BITS:0] header_in,
    output logic [     BITS:0] header_out
);
  logic [BITS-1:0] hash;
  link_hash #(.BITS(BITS)) hashed (.id, .masks, .hash);
  assign header_out = chosen ? {hash, congested} : header_in;
endmodule
