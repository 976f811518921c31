// Written by hardware/parameters.py from the software's constants.
localparam logic [191:0] ROUND_CONSTANTS = {
  24'hf31d00, 24'h822299, 24'h4a4093, 24'h370734, 24'h98a2e0, 24'h8d3131, 24'h885a30, 24'h243f6a
};
