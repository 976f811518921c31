// SPDX-License-Identifier: Apache-2.0
// Feeds `coordinated_pipeline` from the interface of `telemetry_port`, so that one bench drives both.
module pipeline_adapter #(
    parameter int BITS = 5
) (
    input             clock,
    input             reset,
    input             write,
    input      [ 2:0] address,
    input      [23:0] data,
    input             first,
    input      [23:0] field,
    input      [ 2:0] hop,
    output            ask,
    input             congested,
    input      [BITS:0] header_in,
    output reg        valid_out,
    output     [BITS:0] header_out
);
  reg [23:0] psn, queue_pair;
  reg [15:0] source, destination;
  reg [8:1] later;  // clocks since `first`
  assign ask = later[8];
  always @(posedge clock) begin
    later <= reset ? 8'd0 : {later[7:1], first};
    valid_out <= ask & ~reset;
    if (first) destination <= field[15:0];
    if (later[1]) source <= field[15:0];
    if (later[2]) queue_pair <= field;
    if (later[4]) psn <= field;
  end
  coordinated_pipeline #(.BITS(BITS)) circuit (
      .clock(clock), .write(write), .address(address), .data(data), .psn(psn), .source(source),
      .destination(destination), .queue_pair(queue_pair), .hop(hop), .congested(congested),
      .header_in(header_in), .header_out(header_out));
endmodule

// Test bench: replays the visits of packets to switch ports and compares the header that each packet ends with.
// +visits=FILE, lines of eight hexadecimal numbers:
//   0 address data - - - - -             write a port register
//   1 packet psn source destination queue_pair {hop, congested} word      a visit
//   2 packet header - - - - -            the header that must have arrived
// Visits of a packet to different hops must be separated by a register write, which waits for the pipeline.
module replay #(
    parameter int SCHEME = 0,
    parameter int PIPELINE = 0,
    parameter int RANDOM = 0,
    parameter int BITS = 5,
    parameter int COUNT_BITS = 4,
    parameter int PACKETS = 1 << 21
);
  localparam int WIDTH = SCHEME == 0 ? BITS + 1 : SCHEME == 1 ? 1 + BITS + COUNT_BITS :
                         SCHEME == 2 ? 2 * (BITS + COUNT_BITS) : 64;
  reg clock, reset, write, first;
  reg [23:0] data, field;
  reg [2:0] hop, address;
  // Inputs of the packets in the port, in order.
  integer waiting[0:7];
  reg [63:0] words[0:7];
  reg hot[0:7];
  reg congested;
  reg [63:0] word;
  reg [WIDTH-1:0] header_in;
  wire ask, valid_out;
  wire [WIDTH-1:0] header_out;
  generate
    if (PIPELINE) begin : g_port
      pipeline_adapter #(.BITS(BITS)) port (
          .clock(clock), .reset(reset), .write(write), .address(address), .data(data), .first(first), .field(field),
          .hop(hop), .ask(ask), .congested(congested), .header_in(header_in),
          .valid_out(valid_out), .header_out(header_out));
    end else begin : g_port
      telemetry_port #(.SCHEME(SCHEME), .RANDOM(RANDOM), .BITS(BITS), .COUNT_BITS(COUNT_BITS)) port (
          .clock(clock), .reset(reset), .tick(clock), .write(write), .data(data), .first(first), .field(field),
          .hop(hop), .ask(ask), .congested(congested), .word(word), .header_in(header_in),
          .valid_out(valid_out), .header_out(header_out));
    end
  endgenerate

  reg [WIDTH-1:0] carried[0:PACKETS-1];
  integer file, kind, compared, wrong, visits, inserted, removed, i, print;
  reg [63:0] a, b, c, d, e, f, g;
  reg [8*256-1:0] name;

  task step;
    begin
      if (inserted != removed) begin  // of the oldest packet, which is the next to ask
        congested = hot[removed % 8];
        word = words[removed % 8];
        header_in = carried[waiting[removed % 8]];
      end
      #1 clock = 1;
      #1 clock = 0;
      if (valid_out) begin
        carried[waiting[removed % 8]] = header_out;
        removed = removed + 1;
      end
    end
  endtask

  task send(input [23:0] value);
    begin
      field = value;
      step;
      first = 0;
      field = 0;
    end
  endtask

  initial begin
    clock = 0; reset = 1; write = 0; first = 0; congested = 0; hop = 0; address = 0; data = 0; field = 0; word = 0;
    header_in = 0;
    compared = 0; wrong = 0; visits = 0; inserted = 0; removed = 0;
    print = $test$plusargs("print");
    for (i = 0; i < PACKETS; i = i + 1) carried[i] = 0;
    for (i = 0; i < 20; i = i + 1) step;
    reset = 0;
    if ($value$plusargs("visits=%s", name) == 0) $fatal(1, "no +visits=FILE");
    file = $fopen(name, "r");
    if (file == 0) $fatal(1, "cannot read the file of +visits");
    while ($fscanf(file, "%h %h %h %h %h %h %h %h", kind, a, b, c, d, e, f, g) == 8) begin
      if (kind == 1) begin
        hop = f[3:1];
        words[inserted % 8] = g;
        hot[inserted % 8] = f[0];
        waiting[inserted % 8] = a[31:0];
        inserted = inserted + 1;
        visits = visits + 1;
        first = 1;
        send(d[23:0]);
        send(c[23:0]);
        send(e[23:0]);
        send(0);
        send(b[23:0]);
        send(0);
        send(0);
        send(0);
        for (i = 6; i < BITS; i = i + 1) step;
      end else begin
        while (removed != inserted) step;
        if (kind == 0) begin
          write = 1; address = a[2:0]; data = b[23:0];
          step;
          write = 0;
        end else begin
          compared = compared + 1;
          if (print != 0) $display("header %h %h", a[31:0], carried[a[31:0]]);
          if (carried[a[31:0]] !== b[WIDTH-1:0]) begin
            wrong = wrong + 1;
            if (wrong <= 5 && print == 0)
              $display("packet %0d: %h, the engine says %h", a, carried[a[31:0]], b[WIDTH-1:0]);
          end
        end
      end
    end
    $display("result packets %0d visits %0d wrong %0d", compared, visits, wrong);
    $finish;
  end
endmodule
