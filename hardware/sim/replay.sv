// SPDX-License-Identifier: Apache-2.0
// Test bench: replays the visits of packets to switch ports and compares the header that each packet ends with.
// +visits=FILE, lines of eight hexadecimal numbers:
//   0 address data - - - - -             write a port register
//   1 packet psn source destination queue_pair {hop, congested} word      a visit
//   2 packet header - - - - -            the header that must have arrived
// Visits of a packet to different hops must be separated by a register write, which waits for the pipeline.
module replay #(
    parameter int SCHEME = 0,
    parameter int RANDOM = 0,
    parameter int BITS = 5,
    parameter int COUNT_BITS = 4,
    parameter int PACKETS = 1 << 21
);
  localparam int WIDTH = SCHEME == 0 ? BITS + 1 : SCHEME == 1 ? 1 + BITS + COUNT_BITS :
                         SCHEME == 2 ? 2 * (BITS + COUNT_BITS) : 64;
  reg clock, reset, write, valid_in, congested;
  reg [3:0] address, hop;
  reg [23:0] data, psn, queue_pair;
  reg [15:0] source, destination;
  reg [63:0] word;
  reg [WIDTH-1:0] header_in;
  wire valid_out;
  wire [WIDTH-1:0] header_out;
  telemetry_port #(.SCHEME(SCHEME), .RANDOM(RANDOM), .BITS(BITS), .COUNT_BITS(COUNT_BITS)) port (
      .clock(clock), .reset(reset), .tick(clock), .write(write), .address(address), .data(data),
      .valid_in(valid_in), .psn(psn), .source(source), .destination(destination),
      .queue_pair(queue_pair), .hop(hop), .congested(congested), .word(word),
      .header_in(header_in), .valid_out(valid_out), .header_out(header_out));

  reg [WIDTH-1:0] carried[0:PACKETS-1];
  integer waiting[0:7];  // packets in the pipeline, in order
  integer file, kind, compared, wrong, visits, inserted, removed, i, print;
  reg [63:0] a, b, c, d, e, f, g;
  reg [8*256-1:0] name;

  task step;
    begin
      #1 clock = 1;
      #1 clock = 0;
      if (valid_out) begin
        carried[waiting[removed % 8]] = header_out;
        removed = removed + 1;
      end
    end
  endtask

  initial begin
    clock = 0; reset = 1; write = 0; valid_in = 0; congested = 0; address = 0; hop = 0; data = 0;
    psn = 0; queue_pair = 0; source = 0; destination = 0; word = 0; header_in = 0;
    compared = 0; wrong = 0; visits = 0; inserted = 0; removed = 0;
    print = $test$plusargs("print");
    for (i = 0; i < PACKETS; i = i + 1) carried[i] = 0;
    for (i = 0; i < 4; i = i + 1) step;
    reset = 0;
    if ($value$plusargs("visits=%s", name) == 0) $fatal(1, "no +visits=FILE");
    file = $fopen(name, "r");
    if (file == 0) $fatal(1, "cannot read the file of +visits");
    while ($fscanf(file, "%h %h %h %h %h %h %h %h", kind, a, b, c, d, e, f, g) == 8) begin
      if (kind == 1) begin
        valid_in = 1; psn = b[23:0]; source = c[15:0]; destination = d[15:0];
        queue_pair = e[23:0]; hop = f[4:1]; congested = f[0]; word = g;
        header_in = carried[a[31:0]];
        waiting[inserted % 8] = a[31:0];
        inserted = inserted + 1;
        visits = visits + 1;
        step;
        valid_in = 0;
      end else begin
        while (removed != inserted) step;
        if (kind == 0) begin
          write = 1; address = a[3:0]; data = b[23:0];
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
