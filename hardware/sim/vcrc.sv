// SPDX-License-Identifier: Apache-2.0
// Test bench: updates the VCRC of packets whose sample changes.
// +packets=FILE, lines of four hexadecimal numbers: changed byte old XOR new, words behind it, VCRC received, VCRC that must be sent.
module vcrc_bench;
  reg clock, first, next;
  reg [7:0] change;
  reg [15:0] received;
  wire [15:0] sent;
  vcrc_update circuit (
      .clock(clock), .first(first), .next(next), .change(change), .received(received), .sent(sent));

  integer file, i, packets, wrong;
  reg [31:0] changed, words, old_crc, new_crc;
  reg [8*256-1:0] name;

  task step;
    begin
      #1 clock = 1;
      #1 clock = 0;
    end
  endtask

  initial begin
    clock = 0; first = 0; next = 0; change = 0; received = 0; packets = 0; wrong = 0;
    if ($value$plusargs("packets=%s", name) == 0) $fatal(1, "no +packets=FILE");
    file = $fopen(name, "r");
    if (file == 0) $fatal(1, "cannot read the file of +packets");
    while ($fscanf(file, "%h %h %h %h", changed, words, old_crc, new_crc) == 4) begin
      first = 1; change = changed[7:0];
      step;
      first = 0; change = 8'hff;  // no longer looked at
      next = 1;
      for (i = 0; i < words; i = i + 1) step;
      next = 0;
      received = old_crc[15:0];
      #1;
      packets = packets + 1;
      if (sent !== new_crc[15:0]) wrong = wrong + 1;
    end
    $display("result packets %0d wrong %0d", packets, wrong);
    $finish;
  end
endmodule
